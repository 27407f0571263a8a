"""The fast path computes what the plain code computes, and leaves other models alone."""

import copy
from itertools import product

import oracle
import pytest
import torch
from oracle import CLOSE, chunks
from safetensors.torch import load_file
from torch import nn
from torch.nn.utils import prune
from torch.testing import assert_close

from labkit.model.fast import accelerate
from labkit.model.saving import save
from labkit.model.weights import SINGLE
from solutions.generation import KVCache, generate
from solutions.gqa import causal_mask

ALL = pytest.mark.parametrize("name", oracle.CONFIGS)
THREE = pytest.mark.parametrize("name", ["dense", "moe", "moe-whole-lines"])


def both(name, dtype=torch.float32, **settings):
    """(plain, fast) with the same weights."""
    model = oracle.ours(oracle.CONFIGS[name]).to(dtype)
    return model, accelerate(copy.deepcopy(model), **settings)


@ALL
@torch.no_grad()
def test_float32(name):
    model, fast = both(name)
    for batch in (1, 8):
        ids = oracle.tokens(batch, 9)
        assert_close(fast(ids), model(ids), **CLOSE)
        for sizes in ((9,), (4, 5), (3, 1, 1, 4), (1,) * 9):
            assert_close(chunks(fast, ids, sizes), chunks(model, ids, sizes), **CLOSE)
    ids, mask = oracle.left_padded((7, 3, 9))
    real = mask.bool()
    assert_close(fast(ids, mask)[real], model(ids, mask)[real], **CLOSE)
    for sizes in ((9,), (8, 1), (4, 3, 1, 1)):
        got = chunks(fast, ids, sizes, mask)
        assert not got.isnan().any()
        assert_close(got[real], chunks(model, ids, sizes, mask)[real], **CLOSE)


def differs_by_rounding_alone(model, fast, x):
    """Compare layer by layer on the same input, as an earlier rounding could send a token to a
    different expert. Tolerance: two units in the last place of the largest value in
    bfloat16."""
    length = x.size(1)
    angles = torch.ones(1, length, 10), torch.zeros(1, length, 10)
    for here, there in zip(model.model.layers, fast.model.layers, strict=True):
        attention = (*angles, causal_mask(length, length))
        for part, extra in (("self_attn", attention), ("mlp", ())):
            ours, quick = (getattr(layer, part)(x, *extra) for layer in (here, there))
            if isinstance(ours, tuple):
                ours, quick = ours[0], quick[0]
            assert quick.dtype == ours.dtype
            assert (quick - ours).abs().max() <= 2 * 2**-7 * ours.abs().max()


@ALL
@torch.no_grad()
def test_bfloat16(name):
    model, fast = both(name, torch.bfloat16)
    for batch, length in product((1, 8), (1, 9)):
        x = torch.randn(batch, length, 24, generator=oracle.rng(3)).bfloat16()
        differs_by_rounding_alone(model, fast, x)
    if name.startswith("dense"):
        ids = oracle.tokens(8, 9)
        expected = chunks(model, ids, (8, 1))
        assert (chunks(fast, ids, (8, 1)) - expected).norm() < 0.03 * expected.norm()


@pytest.mark.filterwarnings("error")
def test_autocast():
    """Under autocast: matrices in half precision, the rest in its own dtype."""
    model, fast = both("moe")
    with torch.autocast("cpu", torch.bfloat16):
        x = torch.randn(3, 30, 24, generator=oracle.rng(3))
        differs_by_rounding_alone(model, fast, x)


@ALL
def test_greedy_words_are_the_same(name):
    model, fast = both(name, last_logits_only=True)
    ids, mask = oracle.left_padded((6, 2, 8))
    expected = generate(model, ids, mask, 12)
    for use_cache in (True, False):
        assert torch.equal(generate(fast, ids, mask, 12, use_cache=use_cache), expected)
    alone = ids[:1, 2:]
    assert torch.equal(generate(fast, alone, None, 12), generate(model, alone, None, 12))


@torch.no_grad()
def test_last_logits_only_where_there_is_a_cache():
    model, fast = both("moe", last_logits_only=True)
    ids = oracle.tokens(2, 5)
    logits, router_logits = fast(ids, output_router_logits=True)
    assert_close(logits, model(ids), **CLOSE)
    assert len(router_logits) == 3
    assert_close(fast(ids, cache=KVCache(4, 5)), model(ids)[:, -1:], **CLOSE)


# ------------------------------------------------------------------------------- learning


def learns_the_same(learner, model, length):
    ids = oracle.tokens(3, length)
    for each in (model, learner):
        each.zero_grad()
        each(ids).square().mean().backward()
    grads = {name: p.grad for name, p in learner.named_parameters()}
    for key, parameter in model.named_parameters():
        if parameter.grad is None:
            assert grads[key] is None or not grads[key].any()
        else:
            assert_close(grads[key], parameter.grad, **CLOSE)


@THREE
def test_gradients(name):
    for writing, length in product((False, True), (1, 5, 30)):
        model, fast = both(name, last_logits_only=writing)
        learns_the_same(fast, model, length)


# -------------------------------------------------------------------- weights in their memory


@THREE
@torch.no_grad()
def test_weights_that_change_in_place_are_seen(name):
    for writing in (False, True):
        model, fast = both(name, last_logits_only=writing)
        ids = oracle.tokens(2, 6)
        for each in (model, fast):
            each(ids, cache=KVCache(4, 9))
            for parameter in each.parameters():
                parameter.mul_(1.1)
        assert_close(fast(ids), model(ids), **CLOSE)
        assert torch.equal(generate(fast, ids, None, 3), generate(model, ids, None, 3))


@torch.no_grad()
def test_a_pruned_model_is_sped_up_as_far_as_it_can_be():
    model = oracle.ours(oracle.CONFIGS["moe"])
    for module in model.modules():
        if isinstance(module, nn.Linear):
            prune.l1_unstructured(module, "weight", 0.3)
    fast = accelerate(copy.deepcopy(model), last_logits_only=True)
    ids = oracle.tokens(2, 6)
    assert_close(fast(ids), model(ids), **CLOSE)


def test_weights_are_untouched(tmp_path):
    for writing in (False, True):
        model = oracle.ours(oracle.MOE)
        parameters, before = list(model.parameters()), copy.deepcopy(model.state_dict())
        assert accelerate(model, last_logits_only=writing) is model
        for parameter, same in zip(model.parameters(), parameters, strict=True):
            assert parameter is same
            # torch's fused optimizers take the memory of a Parameter for its numbers in a row
            assert writing or parameter.is_contiguous()
        assert_close(dict(model.state_dict()), dict(before), rtol=0, atol=0)
    save(model, model.config, tmp_path / "experts lie side by side")
    saved = load_file(tmp_path / "experts lie side by side" / SINGLE)
    assert_close(saved, {name: before[name] for name in saved}, rtol=0, atol=0)
    assert len(saved) >= len(parameters)


# ------------------------------------------------------------------------------- the rest


@torch.no_grad()
def test_errors_stay():
    _, fast = both("dense")
    cache = KVCache(3, 80)
    fast(oracle.tokens(1, 64), cache=cache)
    with pytest.raises(ValueError, match="max_position_embeddings allows 64"):
        fast(oracle.tokens(1, 1), cache=cache)
    with pytest.raises(ValueError, match="holds token 67"):
        fast(torch.tensor([[67]]), cache=KVCache(3, 80))


def test_other_models_are_left_alone():
    """A learner's package may use the same names for different code."""
    learners = type("Qwen3Attention", (nn.Linear,), {"__module__": "tinyllm.gqa"})
    model = nn.Sequential(learners(3, 3), nn.Linear(3, 3))
    accelerate(model, last_logits_only=True)
    assert not any("forward" in vars(module) for module in model.modules())
