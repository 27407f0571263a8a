"""Lab 04: activations and feed-forward layers."""

import oracle
import pytest
import torch
import torch.nn.functional as F
import transformers
from torch.testing import assert_close
from transformers.models.qwen3 import modeling_qwen3 as qwen3

from solutions import swiglu


def test_silu_on_every_bf16_number():
    bits = torch.arange(-(2**15), 2**15).to(torch.int16)
    x = bits.view(torch.bfloat16)
    x = x[x.isfinite()]
    assert torch.equal(swiglu.silu(x), F.silu(x))


def test_silu_gradient_far_out():
    x = torch.tensor([-1e4, -100.0, -1.0, 0.0, 1.0, 100.0], requires_grad=True)
    assert_close(swiglu.silu(x), F.silu(x))
    swiglu.silu(x).sum().backward()
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_mlp(dtype):
    there = qwen3.Qwen3MLP(transformers.Qwen3Config(**oracle.DENSE.to_dict()))
    layer = swiglu.Qwen3MLP(oracle.DENSE)
    layer.load_state_dict(there.state_dict(), strict=True)
    x = torch.randn(2, 5, 24, generator=oracle.rng(0)).to(dtype)
    assert_close(layer.to(dtype)(x), there.to(dtype)(x), rtol=1e-5, atol=1e-6)
    if dtype == torch.bfloat16:
        assert torch.equal(layer(x), there(x))
    assert swiglu.Qwen3MLP(oracle.DENSE, 7).up_proj.weight.shape == (7, 24)


@pytest.mark.parametrize(
    ("kind", "act"),
    [
        ("relu", F.relu),
        ("gelu", F.gelu),
        ("swish", F.silu),
        ("geglu", F.gelu),
        ("swiglu", F.silu),
    ],
)
def test_family(kind, act):
    layer = swiglu.FeedForward(12, 20, kind)
    oracle.randomise(layer)
    x = torch.randn(3, 12, generator=oracle.rng(1))
    inner = layer.up_proj(x)
    if kind in ("geglu", "swiglu"):
        inner = act(layer.gate_proj(x)) * inner
    else:
        assert not hasattr(layer, "gate_proj")
        inner = act(inner)
    assert_close(layer(x), layer.down_proj(inner), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gelu_keeps_its_tail_in_half_precision(dtype):
    """Step by step in bfloat16, 1 + erf cancels below zero: 4 % off at -2."""
    x = torch.linspace(-4, 4, 1001).to(dtype)
    assert_close(swiglu.FeedForward(12, 20, "gelu")._gelu(x), F.gelu(x), rtol=2**-7, atol=1e-6)


def test_family_refuses_other_kinds():
    with pytest.raises(ValueError, match="'tanh' is none of relu, gelu"):
        swiglu.FeedForward(12, 20, "tanh")
