"""Lab 08: loss, learning rate, one step."""

import math

import oracle
import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close
from transformers.loss.loss_utils import ForCausalLMLoss

from solutions.moe import load_balancing_loss
from solutions.training import (
    adamw_step,
    causal_lm_loss,
    learning_rate,
    train_step,
    train_step_in_parts,
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_loss(dtype):
    logits = (30 * torch.randn(3, 7, 11, generator=oracle.rng(0))).to(dtype).requires_grad_()
    labels = torch.randint(11, (3, 7), generator=oracle.rng(1))
    labels[0, :4], labels[2, -1] = -100, -100
    expected = ForCausalLMLoss(logits, labels, 11)
    loss = causal_lm_loss(logits, labels)
    assert loss.dtype == torch.float32
    assert_close(loss, expected, rtol=1e-6, atol=1e-6)
    got, want = (torch.autograd.grad(value, logits)[0] for value in (loss, expected))
    assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_loss_of_an_even_guess():
    labels = torch.randint(11, (3, 7), generator=oracle.rng(1))
    assert causal_lm_loss(torch.zeros(3, 7, 11), labels).item() == pytest.approx(math.log(11))


def test_learning_rate():
    rates = [learning_rate(step, 0.1, 4, 12, 0.02) for step in range(15)]
    assert rates[:4] == pytest.approx([0.025, 0.05, 0.075, 0.1])
    assert rates[4] == pytest.approx(0.1)
    assert rates[8] == pytest.approx(0.06)
    assert rates[12:] == pytest.approx([0.02] * 3)
    assert sorted(rates[4:], reverse=True) == rates[4:]
    assert learning_rate(0, 0.1, 0, 10) == 0.1


@pytest.mark.parametrize(
    ("step", "warmup", "message"),
    [(-1, 2, "step is -1"), (0, 10, "warmup_steps is 10"), (0, -1, "warmup_steps is -1")],
)
def test_learning_rate_refuses(step, warmup, message):
    with pytest.raises(ValueError, match=message):
        learning_rate(step, 0.1, warmup, 10)


@pytest.mark.parametrize("config", [oracle.DENSE, oracle.MOE])
@pytest.mark.parametrize("padded", [False, True])
def test_step(config, padded):
    """One step equals the same step written with torch's own functions."""
    ids, mask = oracle.left_padded((6, 9)) if padded else (oracle.tokens(2, 9), None)
    labels = ids.masked_fill(mask.cumsum(-1) <= 1, -100) if padded else ids
    model, twin = oracle.ours(config), oracle.ours(config)
    first, second = (torch.optim.SGD(m.parameters(), lr=99.0) for m in (model, twin))
    report = train_step(model, first, ids, labels, 0.01, mask, max_grad_norm=0.5)

    logits, router_logits = twin(ids, mask, output_router_logits=True)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    balance = (
        load_balancing_loss(router_logits, 2, mask) if router_logits else torch.tensor(0.0)
    )
    (loss + config.router_aux_loss_coef * balance).backward()
    grads = [p.grad for p in twin.parameters() if p.grad is not None]
    norm = torch.stack([grad.norm() for grad in grads]).norm()
    assert norm > 0.5
    for parameter in twin.parameters():
        if parameter.grad is not None:
            parameter.grad *= 0.5 / norm
    second.param_groups[0]["lr"] = 0.01
    second.step()

    assert report["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert report["balance_loss"] == pytest.approx(balance.item(), rel=1e-5)
    assert report["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("config", [oracle.DENSE, oracle.MOE])
def test_learns_one_sentence(config):
    model = oracle.ours(config)
    optimizer = torch.optim.AdamW(model.parameters())
    ids = oracle.tokens(2, 12)
    losses = [
        train_step(model, optimizer, ids, ids, learning_rate(step, 1e-2, 5, 40))["loss"]
        for step in range(40)
    ]
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize("parts", [2, 3, 5, 9])
@pytest.mark.parametrize("max_grad_norm", [0.2, 100.0])
def test_a_batch_in_parts_is_the_whole_batch(parts, max_grad_norm):
    """Unequal parts, one of them without any label that counts, more parts than texts."""
    ids = torch.randint(oracle.DENSE.vocab_size, (5, 7), generator=oracle.rng(3))
    labels = ids.clone()
    labels[0, 2:], labels[1:3, :3], labels[4] = -100, -100, -100
    whole, cut = oracle.ours(oracle.DENSE), oracle.ours(oracle.DENSE)
    first, second = (torch.optim.SGD(m.parameters()) for m in (whole, cut))
    reports = [
        train_step(whole, first, ids, labels, 0.1, None, max_grad_norm),
        train_step_in_parts(cut, second, ids, labels, 0.1, parts, None, max_grad_norm),
    ]
    assert reports[1] == pytest.approx(reports[0], rel=1e-5)
    for ours, theirs in zip(cut.parameters(), whole.parameters(), strict=True):
        assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_the_balance_loss_is_taken_of_each_part():
    """Two parts with 3 and 6 counted labels: a third of one balance loss, two of the other."""
    ids, mask = oracle.left_padded((4, 7))
    labels = ids.masked_fill(mask.cumsum(-1) <= 1, -100)
    model = oracle.ours(oracle.MOE)
    with torch.no_grad():
        alone = [
            load_balancing_loss(model(i, m, output_router_logits=True)[1], 2, m).item()
            for i, m in zip(ids.split(1), mask.split(1), strict=True)
        ]
    optimizer = torch.optim.SGD(model.parameters())
    report = train_step_in_parts(model, optimizer, ids, labels, 0.1, 2, mask)
    assert report["balance_loss"] == pytest.approx(alone[0] / 3 + alone[1] * 2 / 3, rel=1e-5)


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_adamw_is_torchs_over_many_steps(weight_decay):
    rng = torch.Generator().manual_seed(5)
    theirs = torch.randn(6, 3, generator=rng).requires_grad_()
    options = {"betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": weight_decay}
    optimizer = torch.optim.AdamW([theirs], **options)
    mine = theirs.detach().clone()
    exp_avg, exp_avg_sq = torch.zeros(2, 6, 3)
    for step in range(30):
        lr = learning_rate(step, 0.1, 5, 30)
        optimizer.param_groups[0]["lr"] = lr
        theirs.grad = torch.randn(6, 3, generator=rng) * 10 ** (step % 3 - 2)
        optimizer.step()
        mine, exp_avg, exp_avg_sq = adamw_step(
            mine, theirs.grad, exp_avg, exp_avg_sq, step, lr, **options
        )
    assert_close(mine, theirs.detach(), rtol=1e-6, atol=1e-6)
