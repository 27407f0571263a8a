"""Hidden checks of lab 02: fresh numbers, odd shapes, other dtypes, gradients, properties.

An angle of many turns shows the rounding of its frequency, which differs from one right way
of writing it to the next. So positions are kept so small that no pair but the first, whose
frequency is exactly 1, turns by more than about 20.
"""

import torch
from visible.test_rope import (
    alibi_call,
    cos_sin_call,
    half_precision_rotation_call,
    learned_call,
    relative_scores_call,
    rotation_call,
    sinusoidal_call,
    tables,
    yarn_call,
)

from labkit.checks.declared import Call, check, rows

HALF = [torch.bfloat16, torch.float16]


test_rope_cos_sin_head_dim = check("2.1", "head_dim {head_dim}", head_dim=[2, 10, 64])(
    lambda rng, head_dim: cos_sin_call(rng.integers(1, 24, 7), head_dim)
)


@check("2.1", rope_theta=[200.0, 500000.0, 1000000.0])
def test_rope_cos_sin_theta(rng, rope_theta):
    """rope_theta {rope_theta}"""
    return cos_sin_call(rng.integers(1, 40, 6), 6, rope_theta)


@check("2.1", shape=[(1, 6), (3, 4), (2, 2, 3)])
def test_rope_cos_sin_every_row_its_own(rng, shape):
    """every text with positions of its own, shape {shape}"""
    return cos_sin_call(rng.integers(0, 99, *shape), head_dim=8)


@check("2.1")
def test_rope_cos_sin_after_a_cache(rng):
    """positions that go on after a cache"""
    start = int(rng.integers(7, 90, 1))
    for length in (4, 1):
        yield cos_sin_call(start + torch.arange(length)[None], head_dim=8)


@check("2.1")
def test_rope_cos_sin_gaps(rng):
    """positions with gaps, and not in order"""
    gaps = rng.integers(2, 9, 5).cumsum(0)
    return cos_sin_call(gaps.flip(0), 8, 1000000.0)


@check("2.1", points=2)
def test_rope_cos_sin_large_positions(rng):
    """large positions, where only float32 still counts"""
    for head_dim, rope_theta, most in ((2, 10000.0, 2**20), (4, 1000000.0, 20000)):
        yield cos_sin_call(rng.integers(5000, most, 2, 8), head_dim, rope_theta)


test_rope_cos_sin_position_zero = check("2.1", "position 0, where nothing turns")(
    lambda rng: cos_sin_call(torch.tensor([0, int(rng.integers(1, 60, 1)), 0]), head_dim=8)
)


@check("2.1")
def test_rope_cos_sin_by_position(rng):
    """arguments by position: position_ids, head_dim, rope_theta"""
    return cos_sin_call(rng.integers(1, 60, 5), head_dim=8, by_position=True)


@check("2.1")
def test_rope_cos_sin_strided_positions(rng):
    """positions that are not contiguous, and that stay as they were"""
    return cos_sin_call(rng.integers(1, 60, 5, 3).T, head_dim=8)


@check("2.2", shape=[(8,), (4, 4), (2, 3, 6), (2, 4, 6, 10), (1, 3, 1, 2)])
def test_rotate_half_values(rng, shape):
    """values for any number of axes"""
    return Call("rotate_half", x=rng.normal(*shape))


test_rotate_half_half_precision = check("2.2", "{dtype}", dtype=HALF)(
    lambda rng, dtype: Call("rotate_half", x=rng.normal(2, 4, 6, dtype=dtype))
)


@check("2.2")
def test_rotate_half_strided_input(rng):
    """an input that is not contiguous, and that stays as it was"""
    return Call("rotate_half", x=rng.normal(6, 4, 2).transpose(0, 2))


test_rotate_half_gradients = check("2.2", "gradients")(
    lambda rng: Call("rotate_half", x=rng.normal(3, 2, 8), grad=True)
)


def some_rotation_call(rng, heads=(4, 2), length=3, head_dim=8, batch=2, rows=None, **options):
    positions = rng.integers(1, 50, *((batch, length) if rows is None else rows))
    angles = positions[..., None] * rng.uniform(head_dim // 2, low=0.01, high=2.0)
    return rotation_call(rng, angles, heads, length, batch, **options)


@check("2.3", points=3, sizes=[(3, (4, 2), 5, 6), (1, (5, 1), 1, 2), (2, (3, 3), 7, 10)])
def test_rotation_values(rng, sizes):
    """values"""
    batch, heads, length, head_dim = sizes
    return some_rotation_call(rng, heads, length, head_dim, batch)


@check("2.3", sizes=[(4, (4, 2), 3), (2, (5, 5), 5)])
def test_rotation_equal_sizes(rng, sizes):
    """as many texts or tokens as heads, where a wrong axis goes unnoticed"""
    batch, heads, length = sizes
    return some_rotation_call(rng, heads, length, 6, batch)


test_rotation_one_row_for_all = check(
    "2.3",
    "one row of positions for all texts, shape {rows}",
    rows=[(5,), (1, 5)],
    length=5,
    batch=3,
)(some_rotation_call)


@check("2.3", points=0.5, dtype=HALF)
def test_rotation_half_precision(rng, dtype):
    """{dtype} with tables in float32"""
    angles = torch.tensor([[[1.0], [2], [3]]]) * rng.uniform(4, low=0.1, high=0.4)
    return half_precision_rotation_call(rng, angles, dtype)


@check("2.3", points=2)
def test_rotation_offset_alone(rng):
    """scores depend on the offset alone"""
    query, key = (rng.normal(1, 3, 1, 8), rng.normal(1, 3, 1, 8))
    frequencies = rng.uniform(4, low=0.01, high=1.5)
    places = torch.tensor([[[0], [7], [24]]])  # after a cache, positions do not start at 0
    inputs = {"query": query.repeat(1, 1, 3, 1), "key": key.repeat(1, 1, 3, 1)}
    for shift in (0, int(rng.integers(1, 40, 1))):
        angles = (places + shift) * frequencies
        call = Call("apply_rotary_pos_emb", **inputs, **tables(angles))
        yield call


test_rotation_norm_kept = check("2.3", "the lengths of query and key stay", length=6)(
    some_rotation_call
)


@check("2.3")
def test_rotation_position_zero(rng):
    """position 0, where nothing moves"""
    call = some_rotation_call(rng, length=2)
    places = torch.tensor([[[0], [3]], [[0], [8]]])
    call.steps[0][1].update(tables(places * rng.uniform(4, low=0.1, high=1.0)))
    return call


test_rotation_by_position = check(
    "2.3", "arguments by position: query, key, cos, sin", points=2, by_position=True
)(some_rotation_call)


@check("2.3")
def test_rotation_strided_input(rng):
    """inputs that are not contiguous, and that stay as they were"""
    call = some_rotation_call(rng, length=5)
    call.steps[0][1]["query"] = rng.normal(2, 5, 4, 8).transpose(1, 2)
    call.steps[0][1]["key"] = rng.normal(8, 2, 5, 2).permute(1, 3, 2, 0)
    return call


test_rotation_gradients = check(
    "2.3", "gradients of query and key", points=3, length=4, grad=("query", "key")
)(some_rotation_call)


@check("2.4", hidden_size=[2, 6, 8, 64])
def test_sinusoidal_embedding_values(rng, hidden_size):
    """hidden_size {hidden_size}"""
    return sinusoidal_call(rng.integers(1, 24, 7), hidden_size)


@check("2.4", hidden_size=[1, 5, 9])
def test_sinusoidal_embedding_odd_size(rng, hidden_size):
    """hidden_size {hidden_size}, with a sine to spare"""
    return sinusoidal_call(rng.integers(1, 60, 5), hidden_size)


@check("2.4", shape=[(1, 4), (3, 5), (2, 2, 3)])
def test_sinusoidal_embedding_every_row_its_own(rng, shape):
    """positions of shape {shape}"""
    return sinusoidal_call(rng.integers(0, 60, *shape), 6)


@check("2.4")
def test_sinusoidal_embedding_large_positions(rng):
    """large positions, where only float32 still counts"""
    return sinusoidal_call(rng.integers(5000, 100000, 9), 2)


@check("2.4")
def test_sinusoidal_embedding_by_position(rng):
    """arguments by position: position_ids, hidden_size"""
    return sinusoidal_call(rng.integers(1, 60, 3, 4).T, 8, by_position=True)


@check("2.5", num_heads=[1, 2, 8, 16])
def test_alibi_bias_powers_of_two(rng, num_heads):
    """{num_heads} heads"""
    length = int(rng.integers(3, 9, 1))
    return alibi_call(num_heads, length, length)


@check("2.5", num_heads=[3, 7, 12, 20])
def test_alibi_bias_other_numbers(rng, num_heads):
    """{num_heads} heads, no power of two"""
    length = int(rng.integers(3, 9, 1))
    return alibi_call(num_heads, length, length)


@check("2.5", points=2, query_length=[1, 3])
def test_alibi_bias_after_a_cache(rng, query_length):
    """the last {query_length} queries of more keys"""
    return alibi_call(4, query_length, query_length + int(rng.integers(2, 9, 1)))


test_alibi_bias_long = check("2.5", "thousands of keys, where only float32 still counts")(
    lambda rng: alibi_call(3, 2, 2100 + int(rng.integers(0, 200, 1)))
)


@check("2.5")
def test_alibi_bias_by_position(rng):
    """arguments by position: num_heads, query_length, key_length"""
    return alibi_call(5, 2, int(rng.integers(6, 12, 1)), by_position=True)


test_relative_scores_values = check("2.6", "{length} tokens", points=2, length=[2, 5, 8])(
    lambda rng, length: relative_scores_call(rng, length, length)
)
test_relative_scores_after_a_cache = check(
    "2.6",
    "queries: {new}, keys: {total}",
    points=2,
    cases=rows("new, total", (1, 6), (3, 7), (1, 1)),
    batch=1,
    heads=2,
    head_dim=6,
)(relative_scores_call)
test_relative_scores_equal_sizes = check(
    "2.6", "as many tokens as heads and texts", new=3, total=3, batch=3, heads=3, head_dim=3
)(relative_scores_call)


@check("2.6")
def test_relative_scores_offset_alone(rng):
    """with equal tokens, scores depend on the offset alone"""
    call = relative_scores_call(rng, 5, 5)
    for name in ("query", "key"):
        call.steps[0][1][name] = rng.normal(2, 3, 1, 4).repeat(1, 1, 5, 1)
    return call


test_relative_scores_by_position = check(
    "2.6", "arguments by position", new=2, total=4, by_position=True
)(relative_scores_call)
test_relative_scores_gradients = check(
    "2.6", "gradients of all five inputs", new=1, total=5, grad=True
)(relative_scores_call)


def yarn_cos_sin_call(rng, **options):
    return yarn_call(rng.integers(1, 30, 2, 5), **options)


test_yarn_cos_sin_factor = check("2.7", "factor {factor}", points=2, factor=[1.0, 2.5, 8.0])(
    yarn_cos_sin_call
)


@check(
    "2.7", points=2, sizes=[(1500, 10000.0, 10), (3617, 10000.0, 32), (32768, 1000000.0, 12)]
)
def test_yarn_cos_sin_sizes(rng, sizes):
    """trained length, rope_theta and head_dim {sizes}"""
    trained, theta, head_dim = sizes
    return yarn_cos_sin_call(rng, trained=trained, theta=theta, head_dim=head_dim)


test_yarn_cos_sin_short = check(
    "2.7", "a trained length of {trained}, where the ramp begins at pair 0", trained=[6, 100]
)(yarn_cos_sin_call)
test_yarn_cos_sin_far_end = check(
    "2.7",
    "a trained length of {trained} with rope_theta 10, where the ramp ends at D - 1",
    trained=[500, 800],
    theta=10.0,
)(yarn_cos_sin_call)
test_yarn_cos_sin_explicit_factor = check(
    "2.7",
    "attention_factor {attention_factor}, not left to the formula",
    attention_factor=[1.7, 1.0],
)(yarn_cos_sin_call)
test_yarn_cos_sin_betas = check(
    "2.7", "other beta_fast and beta_slow", points=2, beta_fast=60.0, beta_slow=4.0
)(yarn_cos_sin_call)


@check("2.7")
def test_yarn_cos_sin_by_position(rng):
    """arguments by position"""
    more = {"attention_factor": 1.3, "beta_fast": 20.0, "beta_slow": 2.0}
    return yarn_cos_sin_call(rng, **more, by_position=True)


@check("2.7")
def test_yarn_cos_sin_large_positions(rng):
    """large positions, where only float32 still counts"""
    call = yarn_cos_sin_call(rng, trained=32768, theta=1000000.0, head_dim=2)
    call.steps[0][1]["position_ids"] = rng.integers(5000, 100000, 9)
    return call


@check("2.8", sizes=[(5, 11, 3, 8), (1, 4, 1, 3), (9, 9, 2, 6)])
def test_learned_positions_values(rng, sizes):
    """T, places, B and E {sizes}, from place 0 on"""
    new, rows, batch, size = sizes
    return learned_call(rng, None, new, rows=rows, batch=batch, size=size, names=True)


test_learned_positions_start = check(
    "2.8",
    "T {new} of 11 places, from place {start} on",
    points=2,
    cases=rows("start, new", (1, 5), (4, 1), (9, 2)),
    rows=11,
    batch=3,
    size=4,
)(learned_call)
test_learned_positions_too_long = check(
    "2.8",
    "T {new} of 11 places, from place {start} on: too far",
    cases=rows("start, new", (0, 12), (10, 2), (11, 1), (40, 3)),
    rows=11,
)(learned_call)
test_learned_positions_negative = check(
    "2.8", "a start below 0: {start}", points=0.5, start=[-1, -5], new=3, rows=11
)(learned_call)
test_learned_positions_half_precision = check(
    "2.8", "{dtype}", points=0.5, dtype=[torch.bfloat16, torch.float16], start=2, new=4
)(learned_call)
test_learned_positions_by_position = check(
    "2.8",
    "arguments by position: hidden_states, start",
    points=0.5,
    start=2,
    new=3,
    batch=1,
    by_position=True,
)(learned_call)
test_learned_positions_gradients = check(
    "2.8",
    "gradients of the embeddings and the table",
    points=0.5,
    start=3,
    new=4,
    batch=3,
    grad=True,
)(learned_call)
