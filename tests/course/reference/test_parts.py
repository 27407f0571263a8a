"""Single parts that neither the whole model (test_exact) nor transformers' own code in place of
an answer (soundness/test_transformers_own) covers."""

import math

import oracle
import pytest
import torch
import torch.nn.functional as F
import transformers
from torch.testing import assert_close

from solutions import gqa, moe, rope, swiglu
from solutions.generation import KVCache, generate, sample_next_token
from solutions.training import adamw_step, learning_rate, train_step

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])


# ----------------------------------------------------------------------------- positions


def test_sinusoidal():
    out = rope.sinusoidal_embedding(torch.tensor([[3, 4], [0, 9]]), 7)
    assert out.shape == (2, 2, 7)
    for feature in range(7):
        wave = math.sin if feature % 2 == 0 else math.cos
        angle = 9 * 10000 ** (-2 * (feature // 2) / 7)
        assert out[1, 1, feature].item() == pytest.approx(wave(angle), abs=1e-6)


def test_learned_positions_are_gpt2s():
    sizes = {"n_embd": 8, "n_positions": 6, "n_head": 2, "n_layer": 1, "vocab_size": 5}
    there = transformers.GPT2Model(transformers.GPT2Config(**sizes)).eval()
    mine = rope.LearnedPositions(6, 8)
    mine.wpe.load_state_dict(there.wpe.state_dict())
    ids, places = torch.tensor([[4, 0, 2], [1, 1, 3]]), torch.arange(2, 5)[None]
    right = there(ids, position_ids=places, output_hidden_states=True).hidden_states[0]
    assert_close(mine(there.wte(ids), start=2), right)
    for start, new in ((0, 7), (5, 2), (-1, 2)):
        with pytest.raises(ValueError, match=f"places {start} to {start + new - 1}.* 6 rows"):
            mine(torch.zeros(1, new, 8), start)


def test_angles_stay_float32_and_yarn_never_shortens():
    expected = rope.rope_cos_sin(torch.arange(9)[None], 16, 1e6)
    torch.set_default_dtype(torch.bfloat16)
    try:
        got = rope.rope_cos_sin(torch.arange(9)[None], 16, 1e6)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(got[0], expected[0]) and torch.equal(got[1], expected[1])
    with pytest.raises(ValueError, match=r"factor is 0\.5"):
        rope.yarn_cos_sin(torch.arange(9)[None], 16, 1e4, 0.5, 64)


# ----------------------------------------------------------------------------- attention


@DTYPES
def test_a_query_that_sees_nothing(dtype):
    """Attention returns finite numbers and masked_softmax zeros; their gradients are finite,
    too."""

    def draw(seed, *shape):
        drawn = torch.randn(2, 4, *shape, generator=oracle.rng(seed))
        return drawn.to(dtype).requires_grad_()

    query, key, value, scores = draw(0, 3, 10), draw(1, 3, 10), draw(2, 3, 10), draw(3, 3, 3)
    sees = gqa.causal_mask(3, 3)
    sees[1] = False
    out = gqa.scaled_dot_product_attention(query, key, value, sees)
    assert out.dtype == dtype and torch.isfinite(out).all()
    assert (out[:, :, 0] == value[:, :, 0]).all()
    out.sum().backward()
    assert all(torch.isfinite(tensor.grad).all() for tensor in (query, key, value))

    expected = scores.masked_fill(~sees, -torch.inf).softmax(dim=-1)
    for low in (None, -torch.inf, torch.finfo(dtype).min):
        mask, scores.grad = sees, None
        if low is not None:
            added = torch.zeros(3, 3, dtype=dtype).masked_fill(~sees, low)
            mask = added.requires_grad_()
        weights = gqa.masked_softmax(scores, mask)
        assert weights.dtype == dtype and (weights[:, :, 1] == 0).all()
        assert torch.equal(weights[:, :, ::2], expected[:, :, ::2])
        (weights * torch.arange(3)).sum().backward()
        for tensor in (scores, mask)[: 1 if low is None else 2]:
            assert torch.isfinite(tensor.grad).all() and tensor.grad.any()
        assert (scores.grad[:, :, 1] == 0).all()


def test_a_hidden_key_stays_hidden_however_high_its_score():
    scores = torch.full((1, 1, 1, 2), 32.0).half()
    mask = torch.full((1, 2), torch.finfo(torch.float16).min).half()  # + 32 it is not
    assert (gqa.masked_softmax(scores, mask) == 0).all()


# ----------------------------------------------------------------- feed-forward and experts


def test_activations_in_half_precision():
    bits = torch.arange(-(2**15), 2**15).to(torch.int16)
    x = bits.view(torch.bfloat16)
    x = x[x.isfinite()]
    assert torch.equal(swiglu.silu(x), F.silu(x))
    layer = swiglu.FeedForward(1, 1, "gelu")
    layer.load_state_dict({name: torch.ones(1, 1) for name in layer.state_dict()})
    for dtype in (torch.bfloat16, torch.float16):  # 1 + erf cancels there: 4 % off at -2
        x = torch.linspace(-4, 4, 1001)[:, None].to(dtype)
        assert_close(layer.to(dtype)(x), F.gelu(x), rtol=2**-7, atol=1e-6)
    with pytest.raises(ValueError, match="'tanh' is none of relu, gelu"):
        swiglu.FeedForward(12, 20, "tanh")


def test_only_chosen_experts_run_and_each_once():
    block = moe.Qwen3MoeSparseMoeBlock(oracle.MOE)
    oracle.randomise(block)
    runs = []
    for index, expert in enumerate(block.experts):
        expert.register_forward_hook(
            lambda module, args, out, index=index: runs.append((index, len(args[0])))
        )
    for shape in ((1, 2, 24), (3, 5, 24)):
        runs.clear()
        x = torch.randn(shape, generator=oracle.rng(1))
        out, router_logits = block(x.mT.contiguous().mT)  # not contiguous
        picked = router_logits.topk(2).indices.flatten().tolist()
        assert runs == [(index, picked.count(index)) for index in sorted(set(picked))]
        assert out.shape == x.shape


# ----------------------------------------------------------------------------- generation


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
    assert cache.keys[0].data_ptr() != got[0].data_ptr()
    assert cache.keys[1].data_ptr() == got[0].data_ptr()  # nothing was copied


@pytest.mark.parametrize("config", [oracle.DENSE, oracle.MOE], ids=["dense", "moe"])
def test_drawn_words_with_and_without_cache(config):
    model = oracle.ours(config)
    ids, mask = oracle.left_padded((3, 6))
    drawn = {"temperature": 0.8, "top_k": 20, "top_p": 0.95}
    outputs = [
        generate(model, ids, mask, 8, **drawn, generator=oracle.rng(3), use_cache=use_cache)
        for use_cache in (True, False, True)
    ]
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])  # a second call starts afresh
    assert not outputs[0].requires_grad


def test_generate_refuses():
    model, nan, inf = oracle.ours(oracle.DENSE), float("nan"), float("inf")
    for name, values in {
        "temperature": (-0.1, nan, inf), "top_k": (0, -5), "top_p": (0.0, 1.1, nan),
    }.items():  # fmt: skip
        for value in values:
            with pytest.raises(ValueError, match=f"{name} is {value}"):
                sample_next_token(torch.zeros(1, 4), **{name: value})
            with pytest.raises(ValueError, match=f"{name} is {value}"):
                generate(model, oracle.tokens(1, 3), None, 4, **{name: value})
    for ids, mask, new, message in (
        (torch.zeros(1, 0, dtype=torch.long), None, 4, "empty prompt"),
        (torch.zeros(3, dtype=torch.long), None, 4, r"shape \(3,\)"),
        (oracle.tokens(1, 3), None, 0, "max_new_tokens is 0"),
        (oracle.tokens(1, 60), None, 5, "make 65; max_position_embeddings allows 64"),
        (oracle.tokens(1, 3), torch.tensor([[1, 1, 0]]), 4, "ends in padding"),
        (oracle.tokens(2, 3), torch.tensor([[1, 1, 1], [0, 0, 0]]), 4, "ends in padding"),
        (oracle.tokens(1, 3), torch.ones(1, 2), 4, "must be equal"),
        (torch.tensor([[1, 99]]), None, 4, "holds token 99"),
    ):
        with pytest.raises(ValueError, match=message):
            generate(model, ids, mask, new)
    assert generate(model, oracle.tokens(1, 60), None, 4).shape == (1, 64)  # exactly full


# ------------------------------------------------------------------------------- training


@pytest.mark.parametrize("config", [oracle.DENSE, oracle.MOE], ids=["dense", "moe"])
def test_learns_one_sentence(config):
    model = oracle.ours(config)
    optimizer = torch.optim.AdamW(model.parameters())
    ids = oracle.tokens(2, 12)
    losses = [
        train_step(model, optimizer, ids, ids, learning_rate(step, 1e-2, 5, 40))["loss"]
        for step in range(40)
    ]
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_adamw_is_torchs_over_many_steps(weight_decay):
    rng = oracle.rng(5)
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


def test_learning_rate_refuses():
    for step, warmup, message in (
        (-1, 2, "step is -1"), (0, 10, "warmup_steps is 10"), (0, -1, "warmup_steps is -1"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            learning_rate(step, 0.1, warmup, 10)
