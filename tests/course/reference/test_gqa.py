"""Lab 03: masks, attention, KV heads, latent attention."""

import oracle
import pytest
import torch
import torch.nn.functional as F
import transformers
from torch.testing import assert_close
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
from transformers.models.qwen3 import modeling_qwen3 as qwen3

from solutions import gqa
from solutions.config import MLAConfig
from solutions.generation import KVCache
from solutions.rope import rope_cos_sin


def heads(count, length, seed, dtype=torch.float32):
    return torch.randn(2, count, length, 10, generator=oracle.rng(seed)).to(dtype)


def test_causal_mask():
    assert torch.equal(gqa.causal_mask(4, 4), torch.ones(4, 4).tril().bool())
    assert gqa.causal_mask(2, 4).tolist() == [[True, True, True, False], [True] * 4]
    assert gqa.causal_mask(1, 5).all()


@pytest.mark.parametrize(("new", "total"), [(5, 5), (1, 4), (3, 7)])
@pytest.mark.parametrize("masked", [False, True])
def test_attention(new, total, masked):
    query, key, value = heads(4, new, 0), heads(4, total, 1), heads(4, total, 2)
    mask = gqa.causal_mask(new, total) if masked else None
    expected = F.scaled_dot_product_attention(query, key, value, mask, scale=0.7)
    got = gqa.scaled_dot_product_attention(query, key, value, mask, 0.7)
    assert_close(got, expected, rtol=1e-5, atol=1e-6)


def test_scale_defaults_to_the_root_of_head_dim():
    query, key, value = heads(4, 3, 0), heads(4, 3, 1), heads(4, 3, 2)
    expected = F.scaled_dot_product_attention(query, key, value)
    assert_close(gqa.scaled_dot_product_attention(query, key, value), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_a_query_that_sees_nothing_gets_is_finite(dtype):
    query, key, value = (heads(4, 3, seed, dtype).requires_grad_() for seed in range(3))
    mask = gqa.causal_mask(3, 3)
    mask[1] = False
    out = gqa.scaled_dot_product_attention(query, key, value, mask)
    assert out.dtype == dtype and torch.isfinite(out).all()
    assert (out[:, :, 0] == value[:, :, 0]).all()
    out.sum().backward()
    for tensor in (query, key, value):
        assert torch.isfinite(tensor.grad).all()


LOW = {
    "minus infinity": lambda dtype: -torch.inf,
    "lowest": lambda dtype: torch.finfo(dtype).min,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["bool", *LOW])
def test_masked_softmax_gives_zeros_where_nothing_is_seen(kind, dtype):
    scores = heads(4, 3, 0, dtype)[..., :3].clone().requires_grad_()
    mask = gqa.causal_mask(3, 3)
    mask[1] = False
    expected = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    if kind in LOW:
        low = LOW[kind](dtype)
        mask = torch.zeros(3, 3, dtype=dtype).masked_fill(~mask, low).requires_grad_()
    weights = gqa.masked_softmax(scores, mask)
    assert weights.dtype == dtype
    assert (weights[:, :, 1] == 0).all()
    assert torch.equal(weights[:, :, ::2], expected[:, :, ::2])
    (weights * torch.arange(3)).sum().backward()
    for tensor in [scores] if kind == "bool" else [scores, mask]:
        assert torch.isfinite(tensor.grad).all() and tensor.grad.any()
    assert (scores.grad[:, :, 1] == 0).all()


@pytest.mark.parametrize("hides", [False, True])
def test_masked_softmax_agrees_with_torch(hides):
    """Values that are an identity show the weights of torch's attention."""
    query, key, value = heads(4, 3, 0), heads(4, 3, 1), torch.eye(3).expand(2, 4, 3, 3)
    mask = torch.randn(4, 3, 3, generator=oracle.rng(3))
    if hides:
        mask = mask.masked_fill(~gqa.causal_mask(3, 3), -torch.inf)
    expected = F.scaled_dot_product_attention(query, key, value, mask, scale=1.0)
    assert_close(gqa.masked_softmax(query @ key.mT, mask), expected, rtol=1e-5, atol=1e-6)


def test_repeat_kv():
    x = heads(2, 3, 0)
    for n_rep in (1, 2, 3):
        assert torch.equal(gqa.repeat_kv(x, n_rep), qwen3.repeat_kv(x, n_rep))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layer(kv_heads, dtype):
    settings = oracle.DENSE.to_dict() | {"num_key_value_heads": kv_heads}
    there_config = transformers.Qwen3Config(**settings, attn_implementation="eager")
    there = qwen3.Qwen3Attention(there_config, layer_idx=0)
    oracle.randomise(there)
    layer = gqa.Qwen3Attention(oracle.Qwen3Config.from_dict(settings), layer_idx=0)
    layer.load_state_dict(there.state_dict(), strict=True)
    there, layer = there.to(dtype), layer.to(dtype)
    x = torch.randn(2, 5, 24, generator=oracle.rng(1)).to(dtype)
    cos, sin = rope_cos_sin(torch.tensor([[4, 5, 6, 7, 8], [0, 1, 5, 6, 9]]), 10, 1e4)
    added = torch.zeros(5, 5, dtype=dtype).masked_fill(
        ~gqa.causal_mask(5, 5), torch.finfo(dtype).min
    )
    expected, _ = there(x, (cos.to(dtype), sin.to(dtype)), added[None, None])
    assert torch.equal(layer(x, cos, sin, gqa.causal_mask(5, 5)), expected)


MLA = MLAConfig(
    hidden_size=24,
    num_attention_heads=3,
    q_lora_rank=14,
    kv_lora_rank=12,
    qk_nope_head_dim=6,
    qk_rope_head_dim=4,
    v_head_dim=8,
)


def test_latent_attention():
    there_config = transformers.DeepseekV3Config(
        **vars(MLA),
        num_key_value_heads=3,
        rope_interleave=False,
        attn_implementation="eager",
    )
    there = deepseek.DeepseekV3Attention(there_config, layer_idx=0)
    oracle.randomise(there)
    layer = gqa.MultiHeadLatentAttention(MLA, layer_idx=0)
    layer.load_state_dict(there.state_dict(), strict=True)

    x = torch.randn(2, 7, 24, generator=oracle.rng(1))
    cos, sin = rope_cos_sin(torch.arange(3, 10)[None], 4, 1e4)
    mask = gqa.causal_mask(7, 7)
    added = torch.zeros(7, 7).masked_fill(~mask, -torch.inf)[None, None]
    expected, _ = there(x, (cos, sin), added)
    assert_close(layer(x, cos, sin, mask), expected, rtol=1e-5, atol=1e-5)

    cache = KVCache(1, 7)
    with torch.no_grad():
        for start, end in ((0, 3), (3, 6), (6, 7)):
            part = slice(start, end)
            mask = gqa.causal_mask(end - start, end)
            got = layer(x[:, part], cos[:, part], sin[:, part], mask, cache)
            assert_close(got, expected[:, part], rtol=1e-5, atol=1e-5)
    assert cache.keys[0].shape == (2, 1, 7, 12)
    assert cache.values[0].shape == (2, 1, 7, 4)


def test_a_hidden_key_stays_hidden_however_high_its_score():
    scores = torch.full((1, 1, 1, 2), 32.0).half()
    mask = torch.full((1, 2), torch.finfo(torch.float16).min).half()  # plus 32 it is no longer
    assert (gqa.masked_softmax(scores, mask) == 0).all()
