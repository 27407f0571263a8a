"""Lab 05: routing, experts, balance loss."""

import oracle
import pytest
import torch
from torch.testing import assert_close
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

from solutions import moe


def logits(rows, experts, seed):
    return 2 * torch.randn(rows, experts, generator=oracle.rng(seed))


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("top_k", [1, 2, 6])
def test_route(top_k, norm):
    given = logits(9, 6, 0)
    weights, chosen = moe.route(given, top_k, norm)
    probs = given.softmax(-1)
    expected = probs.topk(top_k).values
    if norm:
        expected = expected / expected.sum(-1, keepdim=True)
    assert_close(weights, expected)
    assert_close(probs.gather(-1, chosen), probs.topk(top_k).values)
    assert moe.route(given.bfloat16(), top_k, norm)[0].dtype == torch.bfloat16


def test_only_chosen_experts_run_once():
    block = moe.Qwen3MoeSparseMoeBlock(oracle.MOE)
    oracle.randomise(block)
    runs = []
    for index, expert in enumerate(block.experts):
        expert.register_forward_hook(
            lambda module, args, out, index=index: runs.append((index, len(args[0])))
        )
    x = torch.randn(1, 2, 24, generator=oracle.rng(1))
    out, router_logits = block(x)
    picked = router_logits.topk(2).indices.flatten().tolist()
    assert runs == [(index, picked.count(index)) for index in sorted(set(picked))]
    assert sum(count for _, count in runs) == 4
    assert out.shape == x.shape


def test_block_equals_every_expert_weighted():
    block = moe.Qwen3MoeSparseMoeBlock(oracle.MOE)
    oracle.randomise(block)
    x = torch.randn(3, 5, 24, generator=oracle.rng(1))
    out, router_logits = block(x.mT.contiguous().mT)  # not contiguous
    weights, chosen = moe.route(router_logits, 2, True)
    spread = torch.zeros(15, 6).scatter(1, chosen, weights)
    every = torch.stack([expert(x.flatten(0, 1)) for expert in block.experts], dim=1)
    assert_close(out.flatten(0, 1), (spread[..., None] * every).sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("top_k", [1, 2, 3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("layers", [1, 3])
def test_balance_loss(top_k, masked, layers):
    given = [logits(8, 6, seed).requires_grad_() for seed in range(layers)]
    mask = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]]) if masked else None
    expected = load_balancing_loss_func(tuple(given), 6, top_k, mask)
    wanted = torch.autograd.grad(expected, given)
    for form in (tuple, list):
        loss = moe.load_balancing_loss(form(given), top_k, mask)
        assert_close(loss, expected, rtol=1e-5, atol=1e-6)
        for got, want in zip(torch.autograd.grad(loss, given), wanted, strict=True):
            assert_close(got, want, rtol=1e-5, atol=1e-6)
    if layers == 1:
        assert_close(moe.load_balancing_loss(given[0], top_k, mask), loss)


def test_balance_loss_scale():
    even = torch.eye(6).repeat(4, 1)
    assert moe.load_balancing_loss(even, 1).item() == pytest.approx(1)
    same = torch.tensor([100.0, 0, 0, 0, 0, 0]).repeat(4, 1)
    assert moe.load_balancing_loss(same, 1).item() == pytest.approx(6)
    assert moe.load_balancing_loss(even.bfloat16(), 2).dtype == torch.float32
