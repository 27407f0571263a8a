"""Hidden checks of lab 02: fresh numbers, odd shapes, other dtypes, gradients, properties.

An angle of many turns shows the rounding of its frequency, which differs from one right way
of writing it to the next. So positions are kept so small that no pair but the first, whose
frequency is exactly 1, turns by more than about 20.
"""

import torch
from visible import test_rope as visible
from visible.test_rope import learned_call, rotation_call, some_rotation_call, tables, yarn_call

from labkit.checks.declared import STRIDED, Call, check, rows, strided

HALF = [torch.bfloat16, torch.float16]
DRAWN = {"ids": None}  # positions of the run


test_rope_cos_sin_head_dim = check(
    "2.1", "head_dim {head_dim}", head_dim=[2, 10, 64], high=24, shape=(7,)
)(visible.cos_sin_call)
test_rope_cos_sin_theta = check(
    "2.1", "rope_theta {rope_theta}", rope_theta=[200.0, 500000.0, 1000000.0], high=40
)(visible.cos_sin_call)
test_rope_cos_sin_rows = check("2.1", shape=[(1, 6), (3, 4), (2, 2, 3)], high=99,
    head_dim=8)(visible.test_rope_cos_sin_rows)  # fmt: skip
test_rope_cos_sin_cache = check("2.1", ids=[((23, 24, 25, 26),), ((71,),)],
    head_dim=8)(visible.test_rope_cos_sin_cache)  # fmt: skip
test_rope_cos_sin_gaps = check(
    "2.1", "positions with gaps, and not in order", ids=(33, 26, 19, 11, 4),
    head_dim=8, rope_theta=1000000.0,
)(visible.cos_sin_call)  # fmt: skip
test_rope_cos_sin_large = check(
    "2.1", low=5000, shape=(2, 8), **DRAWN,
    cases=rows("head_dim, rope_theta, high", (2, 10000.0, 2**20), (4, 1000000.0, 20000)),
)(visible.test_rope_cos_sin_large)  # fmt: skip
test_rope_cos_sin_position_zero = check(
    "2.1", "position 0, where nothing turns", ids=(0, 37, 0), head_dim=8
)(visible.cos_sin_call)
test_rope_cos_sin_by_position = check("2.1", head_dim=8,
    **DRAWN)(visible.test_rope_cos_sin_by_position)  # fmt: skip
test_rope_cos_sin_strided = check("2.1", STRIDED, shape=(3, 5), head_dim=8)(
    strided(visible.cos_sin_call)
)

test_rotate_half_values = check(
    "2.2", "values for any number of axes",
    shape=[(8,), (4, 4), (2, 3, 6), (2, 4, 6, 10), (1, 3, 1, 2)],
)(visible.rotate_call)  # fmt: skip
test_rotate_half_half_precision = check("2.2", dtype=HALF, shape=(2, 4,
    6))(visible.test_rotate_half_half_precision)  # fmt: skip
test_rotate_half_strided = check("2.2", STRIDED, shape=(2, 4, 6))(strided(visible.rotate_call))
test_rotate_half_gradients = check("2.2", shape=(3, 2, 8))(visible.test_rotate_half_gradients)

test_rotation_values = check("2.3", points=3, cases=rows(
    "batch, heads, length, head_dim", (3, (4, 2), 5, 6), (1, (5, 1), 1, 2), (2, (3, 3), 7, 10)
))(visible.test_rotation_values)  # fmt: skip
test_rotation_equal_sizes = check(
    "2.3", cases=rows("batch, length, heads", (4, 3, (4, 2)), (2, 5, (5, 5)))
)(visible.test_rotation_equal_sizes)
test_rotation_one_row = check("2.3", rows=[(5,), (1, 5)], length=5,
    batch=3)(visible.test_rotation_one_row)  # fmt: skip
test_rotation_half_precision = check(
    "2.3", points=0.5, dtype=HALF,
    angles=(((0.2, 0.13, 0.31, 0.4), (0.4, 0.26, 0.62, 0.8), (0.6, 0.39, 0.93, 1.2)),),
)(visible.test_rotation_half_precision)  # fmt: skip


@check("2.3", points=2)
def test_rotation_offset_alone(rng):
    """scores depend on the offset alone"""
    query, key = (rng.normal(1, 3, 1, 8), rng.normal(1, 3, 1, 8))
    frequencies = rng.uniform(4, low=0.01, high=1.5)
    places = torch.tensor([[[0], [7], [24]]])  # after a cache, positions do not start at 0
    inputs = {"query": query.repeat(1, 1, 3, 1), "key": key.repeat(1, 1, 3, 1)}
    for shift in (0, int(rng.integers(1, 40, 1))):
        angles = (places + shift) * frequencies
        yield Call("apply_rotary_pos_emb", **inputs, **tables(angles))


test_rotation_lengths = check("2.3", "the lengths of query and key stay", length=6,
    head_dim=8)(some_rotation_call)  # fmt: skip


@check("2.3")
def test_rotation_position_zero(rng):
    """position 0, where nothing moves"""
    places = torch.tensor([[[0], [3]], [[0], [8]]])
    return rotation_call(rng, places * rng.uniform(4, low=0.1, high=1.0), length=2)


test_rotation_by_position = check("2.3", points=2,
    head_dim=8)(visible.test_rotation_by_position)  # fmt: skip
test_rotation_strided = check("2.3", STRIDED, length=5, head_dim=8)(strided(some_rotation_call))
test_rotation_gradients = check("2.3", points=3, length=4,
    head_dim=8)(visible.test_rotation_gradients)  # fmt: skip

test_sinusoidal_embedding_values = check(
    "2.4", hidden_size=[2, 6, 8, 64], high=24, shape=(7,), **DRAWN
)(visible.test_sinusoidal_embedding_values)
test_sinusoidal_embedding_odd_size = check("2.4", hidden_size=[1, 5, 9],
    **DRAWN)(visible.test_sinusoidal_embedding_odd_size)  # fmt: skip
test_sinusoidal_embedding_rows = check("2.4", low=0, shape=[(1, 4), (3, 5), (2, 2,
    3)])(visible.test_sinusoidal_embedding_rows)  # fmt: skip
test_sinusoidal_embedding_large = check("2.4", low=5000, high=100000, shape=(9,),
    **DRAWN)(visible.test_sinusoidal_embedding_large)  # fmt: skip
test_sinusoidal_embedding_by_position = check("2.4", shape=(4, 3),
    **DRAWN)(visible.test_sinusoidal_embedding_by_position)  # fmt: skip
test_sinusoidal_embedding_strided = check("2.4", STRIDED, shape=(4, 3), hidden_size=8)(
    strided(visible.sinusoidal_call)
)

test_alibi_bias_heads = check(
    "2.5", num_heads=[1, 2, 8, 16], query_length=6, key_length=6, more=60
)(visible.test_alibi_bias_heads)
test_alibi_bias_other_numbers = check(
    "2.5", "{num_heads} heads, no power of two", num_heads=[3, 7, 12, 20],
    query_length=5, key_length=5, more=60,
)(visible.test_alibi_bias_heads)  # fmt: skip
test_alibi_bias_cache = check(
    "2.5", points=2, cases=rows("query_length, key_length, more", (1, 7, 0), (3, 9, 60))
)(visible.test_alibi_bias_cache)
test_alibi_bias_long = check("2.5", num_heads=3, query_length=2, key_length=[2219],
    more=60)(visible.test_alibi_bias_long)  # fmt: skip
test_alibi_bias_by_position = check("2.5", num_heads=5, query_length=2, key_length=9,
    more=60)(visible.test_alibi_bias_by_position)  # fmt: skip

test_relative_scores_values = check(
    "2.6", points=2, cases=rows("new, total", (2, 2), (5, 5), (8, 8))
)(visible.test_relative_scores_values)
test_relative_scores_after_a_cache = check(
    "2.6", "queries: {new}, keys: {total}", points=2,
    cases=rows("new, total", (1, 6), (3, 7), (1, 1)), batch=1, heads=2, head_dim=6,
)(visible.relative_scores_call)  # fmt: skip
test_relative_scores_equal_sizes = check(
    "2.6", "as many tokens as heads and texts", new=3, total=3, batch=3, heads=3, head_dim=3
)(visible.relative_scores_call)


@check("2.6")
def test_relative_scores_offset_alone(rng):
    """with equal tokens, scores depend on the offset alone"""
    call = visible.relative_scores_call(rng, 5, 5)
    for name in ("query", "key"):
        call.steps[0][1][name] = rng.normal(2, 3, 1, 4).repeat(1, 1, 5, 1)
    return call


test_relative_scores_by_position = check("2.6")(visible.test_relative_scores_by_position)
test_relative_scores_gradients = check("2.6", total=5)(visible.test_relative_scores_gradients)

test_yarn_cos_sin_factor = check("2.7", points=2, factor=[1.0, 2.5, 8.0],
    **DRAWN)(visible.test_yarn_cos_sin_factor)  # fmt: skip
test_yarn_cos_sin_sizes = check("2.7", points=2, **DRAWN, cases=rows(
    "trained, theta, head_dim", (1500, 1e4, 10), (3617, 1e4, 32), (32768, 1e6, 12)
))(visible.test_yarn_cos_sin_sizes)  # fmt: skip
test_yarn_cos_sin_short = check("2.7", **DRAWN)(visible.test_yarn_cos_sin_short)
test_yarn_cos_sin_far_end = check("2.7", trained=[500, 800],
    **DRAWN)(visible.test_yarn_cos_sin_far_end)  # fmt: skip
test_yarn_cos_sin_explicit_factor = check("2.7",
    **DRAWN)(visible.test_yarn_cos_sin_explicit_factor)  # fmt: skip
test_yarn_cos_sin_betas = check("2.7", points=2, **DRAWN)(visible.test_yarn_cos_sin_betas)
test_yarn_cos_sin_by_position = check("2.7", **DRAWN)(visible.test_yarn_cos_sin_by_position)
test_yarn_cos_sin_large = check(
    "2.7", "large positions, where only float32 still counts",
    trained=32768, theta=1e6, head_dim=2, low=5000, high=100000, shape=(9,),
)(yarn_call)  # fmt: skip


@check("2.8", sizes=[(5, 11, 3, 8), (1, 4, 1, 3), (9, 9, 2, 6)])
def test_learned_positions_values(rng, sizes):
    """T, places, B and E {sizes}, from place 0 on"""
    new, rows, batch, size = sizes
    call = learned_call(rng, None, new, rows=rows, batch=batch, size=size, names=True)
    return call.then("__setattr__", name="training", value=False).then(**call.steps[0][1])


test_learned_positions_start = check(
    "2.8", "T {new} of 11 places, from place {start} on", points=2,
    cases=rows("start, new", (1, 5), (4, 1), (9, 2)), rows=11, batch=3, size=4,
)(learned_call)  # fmt: skip
test_learned_positions_too_long = check(
    "2.8", "T {new} of 11 places, from place {start} on: too far",
    cases=rows("start, new", (0, 12), (10, 2), (11, 1), (40, 3)), rows=11,
)(learned_call)  # fmt: skip
test_learned_positions_negative = check(
    "2.8", "a start below 0: {start}", points=0.5, start=[-1, -5], new=3, rows=11
)(learned_call)
test_learned_positions_half_precision = check(
    "2.8", "{dtype}", points=0.5, dtype=[torch.bfloat16, torch.float16], start=2, new=4
)(learned_call)
test_learned_positions_by_position = check(
    "2.8", "arguments by position: hidden_states, start", points=0.5, start=2, new=3, batch=1,
    by_position=True,
)(learned_call)  # fmt: skip
test_learned_positions_gradients = check(
    "2.8", "gradients of the embeddings and the table", points=0.5, start=3, new=4, batch=3,
    grad=True,
)(learned_call)  # fmt: skip
test_web_base = check("2.9", theta=[1e6, 30.0], size=6)(visible.test_web_base)
test_web_rope = check("2.10", size=[6, 12])(visible.test_web_rope)
