"""Lab 10 compared with torch, with plain code, and by counting."""

from itertools import product

import oracle
import pytest
import torch
import torch.nn.functional as F

from solutions.decoder import Qwen3ForCausalLM
from solutions.generation import KVCache, generate
from solutions.serving import (
    PagedBatch,
    PagedCache,
    QuantizedLinear,
    Request,
    Scheduler,
    dequantize,
    pack_int4,
    quantize,
    replace_linears,
    speculative_step,
    tiled_attention,
    unpack_int4,
)


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize(("new", "total", "block"), [(13, 13, 4), (3, 17, 5), (1, 9, 64)])
def test_attention_in_tiles_is_torchs(is_causal, new, total, block):
    generator = oracle.rng(new)
    shapes = ((2, 6, new, 8), (2, 2, total, 8), (2, 2, total, 5))
    inputs = [torch.randn(s, generator=generator).requires_grad_() for s in shapes]
    mine = tiled_attention(*inputs, block_size=block, is_causal=is_causal)
    mask = torch.ones(new, total, dtype=torch.bool).tril(total - new) if is_causal else None
    theirs = F.scaled_dot_product_attention(*inputs, attn_mask=mask, enable_gqa=True)
    assert torch.allclose(mine, theirs, **oracle.CLOSE)
    wave = torch.randn(mine.shape, generator=generator)
    pairs = [torch.autograd.grad((x * wave).sum(), inputs) for x in (mine, theirs)]
    for a, b in zip(*pairs, strict=True):
        assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.parametrize(("bits", "group"), [(8, None), (4, 8), (3, 4), (2, 16)])
def test_rounding_is_off_by_half_a_step_at_most(bits, group):
    weight = torch.randn(5, 16, generator=oracle.rng(bits))
    weight[2] = 0
    numbers, scale = quantize(weight, bits, group)
    steps = scale.repeat_interleave(group or 16, dim=1)
    assert numbers.dtype == torch.int8 and int(numbers.abs().max()) == 2 ** (bits - 1) - 1
    assert ((dequantize(numbers, scale) - weight).abs() <= steps * 0.50001).all()
    assert torch.equal(dequantize(numbers, scale)[2], weight[2])


def test_every_byte_is_a_pair_of_numbers():
    every = torch.arange(256).to(torch.uint8).view(16, 16)
    numbers = unpack_int4(every)
    assert torch.equal(pack_int4(numbers), every) and numbers.dtype == torch.int8
    assert (int(numbers.min()), int(numbers.max())) == (-8, 7)
    weight = torch.randn(5, 16, generator=oracle.rng(0))
    whole, scale = quantize(weight, 4, 8)
    packed = pack_int4(whole)
    assert packed.nbytes == weight.numel() / 2
    assert torch.equal(dequantize(unpack_int4(packed), scale), dequantize(whole, scale))


def test_a_decoder_runs_on_quantized_matrices():
    model = oracle.ours(oracle.MOE)
    ids = oracle.tokens(2, 9)
    expected = model(ids)
    logits = replace_linears(model, QuantizedLinear)(ids)
    assert 0 < (logits - expected).norm() < 0.1 * expected.norm()
    assert any("mlp.gate.weight" in name for name in model.state_dict())


@pytest.mark.parametrize("name", ["dense", "moe"])
@torch.no_grad()
def test_texts_of_different_lengths_get_the_logits_they_get_alone(name):
    model = oracle.ours(oracle.CONFIGS[name])
    cache = PagedCache(model.config.num_hidden_layers, num_blocks=12, block_size=3)
    texts = [oracle.tokens(1, length) for length in (7, 1, 4)]
    for number, ids in enumerate(texts):
        cache.add(number)
        batch = PagedBatch(cache, [number])
        assert torch.allclose(model(ids, batch.attention_mask(ids.size(1)), batch), model(ids),
                              **oracle.CLOSE)  # fmt: skip
    new = oracle.tokens(3, 2)
    batch = PagedBatch(cache, [0, 1, 2])
    together = model(new, batch.attention_mask(2), batch)
    for row, ids in enumerate(texts):
        alone = model(torch.cat((ids, new[row : row + 1]), dim=1))[:, -2:]
        assert torch.allclose(together[row : row + 1], alone, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_fork_writes_into_its_own_copy():
    model: Qwen3ForCausalLM = oracle.ours(oracle.DENSE)
    cache, plain = PagedCache(3, num_blocks=6, block_size=4), KVCache(3, 20)
    ids, ways = oracle.tokens(1, 6), oracle.tokens(2, 1)
    cache.add(0)
    model(ids, None, PagedBatch(cache, [0]))
    cache.fork(0, 1)
    assert len(cache.free_blocks) == 4
    both = model(ways, None, PagedBatch(cache, [0, 1]))
    assert len(cache.free_blocks) == 3 and cache.block_table[0][0] == cache.block_table[1][0]
    model(ids, None, plain)
    assert torch.allclose(both[:1], model(ways[:1], None, plain), **oracle.CLOSE)
    cache.free(0), cache.free(1)
    assert sorted(cache.free_blocks) == list(range(6)) and not any(cache.ref_count)


@pytest.mark.parametrize("seed", range(2))
def test_every_answer_is_the_one_that_it_gets_alone(seed):
    model = oracle.ours(oracle.DENSE, seed)
    draw = oracle.rng(seed)
    sizes = torch.randint(1, 9, (9, 2), generator=draw).tolist()
    requests = [
        Request(n, torch.randint(0, 67, (a,), generator=draw).tolist(), b)
        for n, (a, b) in enumerate(sizes)
    ]
    cache = PagedCache(3, num_blocks=11, block_size=3)
    scheduler = Scheduler(model, cache, max_batch_size=4, eos_token_id=(5, 6))
    for request in requests:
        scheduler.submit(request)
    while scheduler.waiting or scheduler.running:
        scheduler.step()
    assert len(cache.free_blocks) == 11
    for request in requests:
        ids = torch.tensor([request.prompt])
        alone = generate(model, ids, None, request.max_new_tokens, eos_token_id=(5, 6))
        assert scheduler.finished[request.number] == alone[0, ids.size(1) :].tolist()
    assert max(rows for rows, _ in scheduler.passes) > 1


@pytest.mark.parametrize("seed", range(2))
def test_speculation_keeps_the_targets_distribution(seed):
    """The mean of many draws over every pair of drafts, weighted by q"""
    vocab, rows = 3, 30_000
    draw = oracle.rng(seed)
    q = torch.rand(2, vocab, generator=draw).softmax(-1)
    p = torch.rand(3, vocab, generator=draw).mul(3).softmax(-1)
    first = torch.zeros(vocab)
    for drafts in product(range(vocab), repeat=2):
        tokens = speculative_step(
            torch.tensor([drafts]).expand(rows, 2), q.expand(rows, 2, vocab),
            p.expand(rows, 3, vocab), draw,
        )  # fmt: skip
        weight = q[0, drafts[0]] * q[1, drafts[1]]
        first += weight * tokens[:, 0].bincount(minlength=vocab) / rows
    assert torch.allclose(first, p[0], atol=0.01)
