"""Our whole model compared with `transformers`: logits, losses, gradients, generated tokens."""

import oracle
import pytest
import torch
from oracle import CLOSE
from torch.testing import assert_close

from solutions.generation import generate
from solutions.moe import load_balancing_loss
from solutions.training import causal_lm_loss

SIZES = [(9,), (4, 5), (3, 1, 1, 4), (1,) * 9]


def test_logits(pair):
    model, there = pair
    for batch, length in [(1, 1), (1, 9), (3, 12)]:
        ids = oracle.tokens(batch, length)
        assert_close(model(ids), there(ids).logits, **CLOSE)
    ids, mask = oracle.left_padded((7, 3, 9))
    real = mask.bool()
    assert_close(
        model(ids, mask)[real], oracle.hf_chunks(there, ids, (9,), mask)[real], **CLOSE
    )
    assert_close(model(ids, mask)[1, -3:], model(ids[1:2, -3:])[0], **CLOSE)


def test_logits_with_a_cache(pair):
    model, there = pair
    ids, mask = oracle.left_padded((7, 3, 9))
    whole, real = there(ids).logits, mask.bool()
    for sizes in SIZES:
        cached = oracle.chunks(model, ids, sizes)
        assert_close(cached, whole, **CLOSE)
        assert_close(cached, oracle.hf_chunks(there, ids, sizes), **CLOSE)
    for sizes in ((4, 3, 2), (8, 1)):
        expected = oracle.hf_chunks(there, ids, sizes, mask)
        assert_close(oracle.chunks(model, ids, sizes, mask)[real], expected[real], **CLOSE)


def test_bfloat16_bit_for_bit(pair_bf16):
    model, there = pair_bf16
    for batch, length in [(1, 9), (3, 12)]:
        ids = oracle.tokens(batch, length)
        logits = model(ids)
        assert logits.dtype == torch.bfloat16
        assert torch.equal(logits, there(ids).logits)
    ids, mask = oracle.left_padded((7, 3, 9))
    for sizes in ((9,), (8, 1)):
        expected = oracle.hf_chunks(there, ids, sizes, mask)
        assert torch.equal(
            oracle.chunks(model, ids, sizes, mask)[mask.bool()], expected[mask.bool()]
        )
    assert not list(model.buffers())  # so .to(bfloat16) cannot round a table of angles


@pytest.mark.parametrize("padded", [False, True])
def test_losses_and_gradients(pair, padded):
    model, there = pair
    ids, mask = oracle.left_padded((7, 3, 9)) if padded else (oracle.tokens(3, 9), None)
    labels, extra = ids, {}
    # no loss at padding, nor at a row's first token, which has only padding before it
    if padded:
        labels = ids.masked_fill(mask.cumsum(-1) <= 1, -100)
        extra = {"position_ids": oracle.positions(mask)}
    if model.config.num_experts:
        extra["output_router_logits"] = True
    model.zero_grad()
    there.zero_grad()

    out = there(ids, attention_mask=mask, labels=labels, **extra)
    out.loss.backward()
    logits, router_logits = model(ids, mask, output_router_logits=True)
    loss = causal_lm_loss(logits, labels)
    if model.config.num_experts:
        top_k = model.config.num_experts_per_tok
        balance = load_balancing_loss(router_logits, top_k, mask, pooled=True)
        assert_close(balance, out.aux_loss, **CLOSE)
        loss = loss + model.config.router_aux_loss_coef * balance
    loss.backward()

    assert_close(loss, out.loss, **CLOSE)
    expected = hf_gradients(there)
    assert dict(model.named_parameters()).keys() <= expected.keys()
    for name, parameter in model.named_parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        assert_close(gradient, expected[name], **CLOSE, msg=lambda m, n=name: f"{n}: {m}")


def hf_gradients(there) -> dict:
    """Gradients of transformers' model by the names of a checkpoint: one tensor per expert"""
    found = {}
    for name, parameter in there.named_parameters():
        stem, grad = name.rpartition(".")[0], parameter.grad
        if name.endswith("mlp.experts.gate_up_proj"):
            for expert, (gate, up) in enumerate(zip(*grad.chunk(2, dim=1), strict=True)):
                found[f"{stem}.{expert}.gate_proj.weight"] = gate
                found[f"{stem}.{expert}.up_proj.weight"] = up
        elif name.endswith("mlp.experts.down_proj"):
            for expert, down in enumerate(grad):
                found[f"{stem}.{expert}.down_proj.weight"] = down
        else:
            found[name] = grad
    return found


def test_greedy_words(pair):
    model, there = pair
    ids, mask = oracle.left_padded((6, 2, 8))
    free = generate(model, ids, mask, max_new_tokens=12)
    for stops in (None, [int(free[0, 10]), int(free[1, 13])]):
        expected = there.generate(
            ids, attention_mask=mask, max_new_tokens=12, do_sample=False,
            pad_token_id=3, eos_token_id=stops,
        )  # fmt: skip
        for use_cache in (True, False):
            settings = {"eos_token_id": stops or (), "pad_token_id": 3, "use_cache": use_cache}
            assert torch.equal(generate(model, ids, mask, 12, **settings), expected)
