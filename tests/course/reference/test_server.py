"""Lab 15 compared with plain code: attention over pages, the engine in random schedules."""

import random
from dataclasses import replace

import oracle
import pytest
import torch

from solutions.engine import Engine
from solutions.generation import generate
from solutions.server import PrefixCache, Request, StopText, paged_attention
from solutions.serving import tiled_attention

VOCAB = 67


@pytest.mark.parametrize(("new", "lengths"), [(1, (17, 4, 1)), (3, (9, 3, 16)), (5, (5,))])
def test_attention_over_pages_is_that_over_tiles(new, lengths):
    draw = oracle.rng(new)
    width = -(-max(lengths) // 4)
    blocks = torch.randperm(len(lengths) * width + 2, generator=draw)
    keys, values = (torch.randn(len(blocks), 2, 4, d, generator=draw) for d in (8, 5))
    table = blocks[: len(lengths) * width].view(len(lengths), width)
    query = torch.randn(len(lengths), 6, new, 8, generator=draw)
    mixed = paged_attention(query, keys, values, table, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        key, value = (
            pool[table[row]].transpose(0, 1).flatten(1, 2)[None, :, :length]
            for pool in (keys, values)
        )
        alone = tiled_attention(query[row : row + 1], key, value)
        assert torch.allclose(mixed[row : row + 1], alone, **oracle.CLOSE)


def requests_of(draw):
    """Requests with common prefixes, greedy or sampled"""
    begin = [draw.randrange(VOCAB) for _ in range(8)]
    for number in range(draw.randint(2, 7)):
        more = [draw.randrange(4) for _ in range(draw.randint(1, 6))]
        prompt = begin[: draw.randint(0, 8)] + more
        temperature, seed = draw.choice([0, 0, 1.0]), draw.randrange(5)
        yield Request(number, prompt, draw.randint(1, 8), temperature, seed)


def fresh(request):
    return Request(
        request.number, request.prompt, request.max_new_tokens, request.temperature,
        request.seed,
    )  # fmt: skip


def run(model, requests, draw, blocks, size, budget, places, drafts):
    engine = Engine(model, blocks, size, budget, places, eos_token_id=(5,), drafts=drafts)
    line = list(requests)
    for _ in range(3000):
        while line and (draw.random() < 0.5 or not engine.is_busy):
            engine.submit(line.pop())
        if not (line or engine.is_busy):
            break
        engine.step()
        assert engine.passes[-1] <= budget
    assert len(engine.cache.free_blocks) == blocks and not any(engine.cache.ref_count)
    return engine


def schedules(model, seeds):
    """Check that each answer is the same as alone, for random orders, sizes and budgets."""
    for seed in seeds:
        draw = random.Random(seed)
        requests = list(requests_of(draw))
        size, places = draw.randint(1, 4), draw.randint(1, 4)
        most = max(-(-(len(r.prompt) + r.max_new_tokens - 1) // size) for r in requests)
        line = requests[:]
        draw.shuffle(line)
        blocks, budget = most + draw.randint(0, 6), draw.randint(places, places + 8)
        run(model, line, draw, blocks, size, budget, places, draw.choice([0, 0, 2, 4]))
        for request in requests:
            if request.temperature:
                again = fresh(request)
                run(model, [again], draw, 40, size, 100, 1, 0)
                alone = again.output
            else:
                ids = torch.tensor([request.prompt])
                plain = generate(model, ids, None, request.max_new_tokens, eos_token_id=(5,))
                alone = plain[0, ids.size(1) :].tolist()
            assert request.output == alone, (seed, request.number)


@pytest.mark.parametrize("name", ["dense", "moe"])
def test_every_answer_is_the_one_that_it_gets_alone(name):
    schedules(oracle.ours(oracle.CONFIGS[name]).double(), range(12))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1000, 25))
def test_every_answer_is_the_one_that_it_gets_alone_in_a_thousand_schedules(first):
    config = replace(oracle.DENSE, num_hidden_layers=2)
    schedules(oracle.ours(config).double(), range(first, first + 25))


def test_a_request_that_leaves_gives_its_blocks_back():
    engine = Engine(oracle.ours(oracle.DENSE), 12, 4, budget=4, max_running=2)
    for number in range(3):
        engine.submit(Request(number, [7 + number] * 9, 8))
    for _ in range(3):
        engine.step()
    for number in range(3):
        engine.cancel(number)  # one runs, one is in chunks, one waits
    assert not engine.is_busy and len(engine.cache.free_blocks) == 12
    assert not any(engine.cache.ref_count)
    with pytest.raises(ValueError, match="the cache has room for 48"):
        engine.submit(Request(4, [1] * 40, 12))


def test_the_cache_never_finds_what_was_not_written():
    """A model of the cache: texts by block, under hashes that collide."""
    for seed in range(40):
        draw = random.Random(seed)
        cache = PrefixCache(10, 2, lambda parent, part: bytes([sum(parent) % 3, part[0] % 2]))
        held, texts = {}, {}  # {block: text up to its end}, {sequence: text}
        for number in range(60):
            text = [draw.randrange(3) for _ in range(draw.randint(1, 9))]
            if texts and draw.random() < 0.5:
                cache.free(gone := draw.choice(list(texts)))
                del texts[gone]
            try:
                found = cache.begin(number, text)
            except ValueError:
                continue
            for at, block in enumerate(cache.block_table[number]):
                content = tuple(text[: 2 * at + 2])
                assert 2 * at >= found or held[block] == content
                held[block] = content
            texts[number] = text
            if draw.random() < 0.8:
                cache.commit(number, text)
                for at, block in enumerate(cache.block_table[number][: len(text) // 2]):
                    assert held[block] == tuple(text[: 2 * at + 2])


@pytest.mark.parametrize("seed", range(5))
def test_text_stops_where_the_whole_text_does(seed):
    draw = random.Random(seed)
    for _ in range(200):
        stops = ["".join(draw.choices("ab", k=draw.randint(1, 3))) for _ in range(2)]
        pieces = ["".join(draw.choices("ab", k=draw.randint(0, 3))) for _ in range(6)]
        whole, text = "".join(pieces), StopText(stops)
        places = [whole.find(stop) for stop in stops if stop in whole]
        shown = "".join(text.add(piece) for piece in pieces) + text.rest()
        # the stop string that is complete first counts
        assert whole.startswith(shown) and (bool(places) == text.stopped)
        assert len(shown) <= (max(places) if places else len(whole))
        if not places:
            assert shown == whole
