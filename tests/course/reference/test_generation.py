"""Lab 07: the cache, the choice of a token, the loop."""

import oracle
import pytest
import torch
import transformers
from torch.testing import assert_close

from solutions.generation import KVCache, generate, sample_next_token


def test_cache_keeps_what_it_is_given():
    cache = KVCache(2, 6)
    key = torch.randn(2, 3, 6, 4, generator=oracle.rng(0)).bfloat16()
    value = torch.randn(2, 3, 6, 5, generator=oracle.rng(1)).bfloat16()
    for start, end in ((0, 3), (3, 5), (5, 6)):
        for layer in (0, 1):
            assert cache.length == start
            got = cache.update(layer, key[:, :, start:end], value[:, :, start:end])
            assert torch.equal(got[0], key[:, :, :end])
            assert torch.equal(got[1], value[:, :, :end])
    assert cache.keys[0].dtype == torch.bfloat16
    address = cache.keys[0].data_ptr()
    assert got[0].data_ptr() != address
    assert cache.keys[1].data_ptr() == got[0].data_ptr()  # nothing was copied


def distribution(logits, **settings):
    """What sample_next_token draws, as frequencies over 20000 rows."""
    rows = logits.expand(20000, -1)
    drawn = sample_next_token(rows, generator=oracle.rng(0), **settings)
    return torch.bincount(drawn, minlength=logits.numel()) / 20000


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 2.0, "top_k": 3},
        {"top_p": 0.75},
        {"temperature": 1.5, "top_k": 4, "top_p": 0.9},
        {"top_p": 1.0, "top_k": 99},
        {"top_p": 1e-6},
    ],
)
def test_sampling_has_the_distribution_of_transformers(settings):
    logits = torch.tensor([0.1, 2.0, -1.0, 1.5, 0.7, -3.0])
    warped = logits[None] / settings.get("temperature", 1.0)
    if "top_k" in settings:
        warped = transformers.TopKLogitsWarper(settings["top_k"])(None, warped)
    if "top_p" in settings:
        warped = transformers.TopPLogitsWarper(settings["top_p"])(None, warped)
    expected = warped.softmax(-1)[0]
    got = distribution(logits, **settings)
    assert_close(got, expected, rtol=0, atol=0.015)
    assert torch.equal(got > 0, expected > 1e-4)


def test_top_p_keeps_the_token_that_crosses():
    logits = torch.tensor([0.15, 0.5, 0.05, 0.3]).log()
    assert distribution(logits, top_p=0.6).nonzero().flatten().tolist() == [1, 3]


def test_greedy_and_reproducible():
    logits = torch.randn(5, 40, generator=oracle.rng(0))
    before = logits.clone()
    assert torch.equal(sample_next_token(logits, temperature=0), logits.argmax(-1))
    draws = [sample_next_token(logits, 1.3, 20, 0.9, oracle.rng(7)) for _ in range(2)]
    assert torch.equal(draws[0], draws[1])
    assert (
        sample_next_token(logits.bfloat16(), top_k=1).tolist()
        == logits.bfloat16().argmax(-1).tolist()
    )
    assert torch.equal(logits, before)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -0.1}, "temperature is -0.1"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": float("inf")}, "temperature is inf"),
        ({"top_k": 0}, "top_k is 0"),
        ({"top_k": -5}, "top_k is -5"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"top_p": float("nan")}, "top_p is nan"),
    ],
)
def test_impossible_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        sample_next_token(torch.zeros(1, 4), **settings)
    with pytest.raises(ValueError, match=message):
        generate(oracle.ours(oracle.DENSE), oracle.tokens(1, 3), None, 4, **settings)


def test_stop_tokens_and_padding():
    model = oracle.ours(oracle.DENSE)
    ids = oracle.tokens(2, 4)
    free = generate(model, ids, max_new_tokens=10)[:, 4:]
    first = int(free[0, 0])
    seen = []
    got = generate(
        model,
        ids,
        max_new_tokens=10,
        eos_token_id=first,
        pad_token_id=66,
        on_token=lambda token: seen.append(token),
    )
    assert got[0, 4] == first  # a stop token at once ends the row at once
    assert (got[0, 5:] == 66).all()
    own = generate(model, ids[1:], max_new_tokens=10, eos_token_id=[first])
    assert torch.equal(got[1:, : own.size(1)], own)  # a finished neighbour disturbs nobody
    assert torch.equal(torch.stack(seen, dim=1), got[:, 4:])
    assert generate(model, ids[:1], None, 9, eos_token_id=(1, first)).shape == (1, 5)


@pytest.mark.parametrize("config", [oracle.DENSE, oracle.MOE])
def test_sampling_with_and_without_cache(config):
    model = oracle.ours(config)
    ids, mask = oracle.left_padded((3, 6))
    outputs = [
        generate(
            model, ids, mask, 8, 0.8, 20, 0.95, generator=oracle.rng(3), use_cache=use_cache
        )
        for use_cache in (True, False)
    ]
    assert torch.equal(outputs[0], outputs[1])
    assert not outputs[0].requires_grad


def test_two_prompts_one_after_the_other():
    model = oracle.ours(oracle.DENSE)
    ids = oracle.tokens(1, 5)
    first = generate(model, ids, max_new_tokens=4)
    generate(model, oracle.tokens(1, 7, seed=9), max_new_tokens=4)
    assert torch.equal(generate(model, ids, max_new_tokens=4), first)


@pytest.mark.parametrize(
    ("ids", "mask", "new", "message"),
    [
        (torch.zeros(1, 0, dtype=torch.long), None, 4, "empty prompt"),
        (torch.zeros(3, dtype=torch.long), None, 4, r"shape \(3,\)"),
        (oracle.tokens(1, 3), None, 0, "max_new_tokens is 0"),
        (oracle.tokens(1, 60), None, 5, "make 65; max_position_embeddings allows 64"),
        (oracle.tokens(1, 3), torch.tensor([[1, 1, 0]]), 4, "ends in padding"),
        (oracle.tokens(2, 3), torch.tensor([[1, 1, 1], [0, 0, 0]]), 4, "ends in padding"),
        (oracle.tokens(1, 3), torch.ones(1, 2), 4, "must be equal"),
        (torch.tensor([[1, 99]]), None, 4, "holds token 99"),
    ],
)
def test_refuses(ids, mask, new, message):
    with pytest.raises(ValueError, match=message):
        generate(oracle.ours(oracle.DENSE), ids, mask, new)


def test_exactly_full():
    assert generate(oracle.ours(oracle.DENSE), oracle.tokens(1, 60), None, 4).shape == (1, 64)
