"""Lab 02 against transformers, against published code, and against its own claims."""

import math

import oracle
import pytest
import torch
import transformers
from torch.testing import assert_close
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.qwen3 import modeling_qwen3 as qwen3

from solutions import rope

POSITIONS = torch.tensor([[3, 4, 5, 700], [0, 9, 2, 31000]])


def there_rotary(head_dim, theta, dtype, **rope_parameters):
    config = transformers.Qwen3Config(
        head_dim=head_dim,
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "rope_theta": theta, **rope_parameters},
    )
    rotary = qwen3.Qwen3RotaryEmbedding(config)
    return config, rotary(torch.zeros(1, dtype=dtype), POSITIONS)


@pytest.mark.parametrize("theta", [1e4, 1e6])
@pytest.mark.parametrize("head_dim", [2, 10, 128])
def test_cos_sin(head_dim, theta):
    cos, sin = rope.rope_cos_sin(POSITIONS, head_dim, theta)
    _, (there_cos, there_sin) = there_rotary(head_dim, theta, torch.float32)
    assert torch.equal(cos, there_cos)
    assert torch.equal(sin, there_sin)


def test_angles_are_float32_under_a_bf16_default():
    expected = rope.rope_cos_sin(POSITIONS, 16, 1e6)
    torch.set_default_dtype(torch.bfloat16)
    try:
        got = rope.rope_cos_sin(POSITIONS, 16, 1e6)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(got[0], expected[0])
    assert got[1].dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_apply(dtype):
    query = torch.randn(2, 6, 4, 10, generator=oracle.rng(0)).to(dtype)
    key = torch.randn(2, 3, 4, 10, generator=oracle.rng(1)).to(dtype)
    _, (cos, sin) = there_rotary(10, 1e4, dtype)
    expected = qwen3.apply_rotary_pos_emb(query, key, cos, sin)
    got = rope.apply_rotary_pos_emb(query, key, *rope.rope_cos_sin(POSITIONS, 10, 1e4))
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1], expected[1])


def test_one_row_of_positions_serves_every_batch():
    query = torch.randn(2, 6, 4, 10, generator=oracle.rng(0))
    row = torch.arange(5, 9)
    results = [
        rope.apply_rotary_pos_emb(query, query, *rope.rope_cos_sin(p, 10, 1e4))[0]
        for p in (row, row[None], row.expand(2, 4))
    ]
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_rotate_half_turns_a_quarter():
    assert rope.rotate_half(torch.tensor([1.0, 2, 3, 4])).tolist() == [-3, -4, 1, 2]


def test_sinusoidal():
    out = rope.sinusoidal_embedding(POSITIONS, 7)
    assert out.shape == (2, 4, 7)
    for feature in range(7):
        wave = math.sin if feature % 2 == 0 else math.cos
        angle = 9 * 10000 ** (-2 * (feature // 2) / 7)
        assert out[1, 1, feature].item() == pytest.approx(wave(angle), abs=1e-6)


def test_alibi_slopes_are_the_published_ones():
    assert (-rope.alibi_bias(8, 1, 2)[:, 0, 0]).tolist() == [2.0**-n for n in range(1, 9)]
    for heads in (1, 3, 6, 12, 16, 20):
        slopes = -rope.alibi_bias(heads, 1, 2)[:, 0, 0]
        assert slopes.tolist() == pytest.approx(published_slopes(heads))


def published_slopes(n):
    """From https://github.com/ofirpress/attention_with_linear_biases."""

    def power_of_2(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(n).is_integer():
        return power_of_2(n)
    closest = 2 ** math.floor(math.log2(n))
    return power_of_2(closest) + published_slopes(2 * closest)[0::2][: n - closest]


def test_alibi_distance_counts_from_the_last_keys():
    bias = rope.alibi_bias(2, 2, 5)
    assert bias.shape == (2, 2, 5)
    assert (bias[0] / bias[0, 1, 3]).tolist() == [[3, 2, 1, 0, 1], [4, 3, 2, 1, 0]]


@pytest.mark.parametrize(("new", "total"), [(5, 5), (1, 4), (3, 7)])
def test_relative_scores(new, total):
    draw = oracle.rng(0)
    query, key, relative, content, position = (
        torch.randn(shape, generator=draw)
        for shape in ((2, 3, new, 4), (2, 3, total, 4), (3, total, 4), (3, 4), (3, 4))
    )
    got = rope.relative_scores(query, key, relative, content, position)
    assert got.shape == (2, 3, new, total)
    for t in range(new):
        for j in range(total):
            i = total - new + t
            if j > i:
                assert (got[:, :, t, j] == -torch.inf).all()
                continue
            by_content = ((query[:, :, t] + content) * key[:, :, j]).sum(-1)
            by_distance = ((query[:, :, t] + position) * relative[:, i - j]).sum(-1)
            assert_close(got[:, :, t, j], by_content + by_distance)


@pytest.mark.parametrize("factor", [1.0, 4.0, 32.0])
@pytest.mark.parametrize(("head_dim", "theta", "trained"), [(128, 1e6, 32768), (16, 1e4, 64)])
@pytest.mark.parametrize("explicit", [None, 1.7])
def test_yarn(head_dim, theta, trained, factor, explicit):
    config, _ = there_rotary(
        head_dim,
        theta,
        torch.float32,
        rope_type="yarn",
        factor=factor,
        original_max_position_embeddings=trained,
        **({} if explicit is None else {"attention_factor": explicit}),
    )
    inv_freq, scale = ROPE_INIT_FUNCTIONS["yarn"](config)
    cos, sin = rope.yarn_cos_sin(
        POSITIONS[:, :3], head_dim, theta, factor, trained, attention_factor=explicit
    )
    angles = POSITIONS[:, :3, None] * torch.cat((inv_freq, inv_freq))
    assert_close(cos, angles.cos() * scale, rtol=1e-5, atol=1e-5)
    assert_close(sin, angles.sin() * scale, rtol=1e-5, atol=1e-5)


def test_yarn_refuses_to_shorten():
    with pytest.raises(ValueError, match=r"factor is 0\.5"):
        rope.yarn_cos_sin(POSITIONS, 16, 1e4, 0.5, 64)


def test_learned_positions_are_gpt2s():
    sizes = {"n_embd": 8, "n_positions": 6, "n_head": 2, "n_layer": 1, "vocab_size": 5}
    there = transformers.GPT2Model(transformers.GPT2Config(**sizes)).eval()
    mine = rope.LearnedPositions(6, 8)
    mine.wpe.load_state_dict(there.wpe.state_dict())
    ids, places = torch.tensor([[4, 0, 2], [1, 1, 3]]), torch.arange(2, 5)[None]
    right = there(ids, position_ids=places, output_hidden_states=True).hidden_states[0]
    assert_close(mine(there.wte(ids), start=2), right)


@pytest.mark.parametrize(("start", "new"), [(0, 7), (5, 2), (-1, 2)])
def test_a_place_without_a_row_is_named(start, new):
    with pytest.raises(ValueError, match=f"places {start} to {start + new - 1}.* 6 rows"):
        rope.LearnedPositions(6, 8)(torch.zeros(1, new, 8), start)
