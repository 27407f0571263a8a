"""Visible checks of lab 02: what check("2.1") and its sisters run."""

import torch

from labkit.checks.declared import Call, check, rows


def cos_sin_call(position_ids, head_dim=6, rope_theta=1e4, **options):
    inputs = {"head_dim": head_dim, "rope_theta": rope_theta}
    call = Call("rope_cos_sin", position_ids=position_ids, **inputs, **options)
    return call.returning("cos", "sin")


test_rope_cos_sin_values = check("2.1", "values for positions 0 to 4")(
    lambda rng: cos_sin_call(torch.arange(5))
)
test_rope_cos_sin_theta = check("2.1", "rope_theta 1000000, Qwen3's")(
    lambda rng: cos_sin_call(torch.arange(5), rope_theta=1000000.0)
)
test_rope_cos_sin_cache = check("2.1", "positions that do not start at 0")(
    lambda rng: cos_sin_call(torch.arange(7, 11))
)
test_rope_cos_sin_gaps = check("2.1", "positions with gaps")(
    lambda rng: cos_sin_call(torch.tensor([0, 1, 5, 20]))
)
test_rope_cos_sin_rows = check("2.1", "every text with positions of its own")(
    lambda rng: cos_sin_call(rng.integers(0, 60, 2, 4))
)
test_rope_cos_sin_large = check("2.1", "large positions, where only float32 still counts")(
    lambda rng: cos_sin_call(torch.tensor([4097, 12345]), 4, 1000000.0)
)


@check("2.1")
def test_rope_cos_sin_by_position(rng):
    """arguments by position: position_ids, head_dim, rope_theta"""
    return cos_sin_call(torch.tensor([3, 50]), by_position=True)


test_rotate_half_vector = check("2.2", "one vector, (1, 2, 3, 4, 5, 6)")(
    lambda rng: Call("rotate_half", x=torch.arange(1.0, 7.0))
)
test_rotate_half_values = check("2.2", "values for shape (B, H, T, D)")(
    lambda rng: Call("rotate_half", x=rng.normal(2, 4, 6, 8))
)
test_rotate_half_half_precision = check("2.2", "bfloat16")(
    lambda rng: Call("rotate_half", x=rng.normal(2, 4, dtype=torch.bfloat16))
)
test_rotate_half_gradients = check("2.2", "gradients")(
    lambda rng: Call("rotate_half", x=rng.normal(2, 4), grad=True)
)


def tables(angles):
    """cos and sin (..., T, D) of angles (..., T, D/2)."""
    angles = torch.cat((angles, angles), dim=-1)
    angles = angles.double()  # float32 differs from processor to processor
    return {"cos": angles.cos().float(), "sin": angles.sin().float()}


def rotation_call(rng, angles, heads=(4, 2), length=3, batch=2, **options):
    query, key = (rng.normal(batch, count, length, 2 * angles.size(-1)) for count in heads)
    given = {"query": query, "key": key, **tables(angles), **options}
    return Call("apply_rotary_pos_emb", **given).returning("query", "key")


def half_precision_rotation_call(rng, angles, dtype):
    inputs = {}
    for name, heads in (("query", 4), ("key", 2)):  # nothing cancels: roundings stay small
        large, small = rng.uniform(2, 2, heads, 3, angles.size(-1), low=-0.1, high=0.1)
        inputs[name] = torch.cat((1.5 + large, small), dim=-1).to(dtype)
    return Call("apply_rotary_pos_emb", **inputs, **tables(angles)).returning("query", "key")


def some_rotation_call(rng, heads=(4, 2), length=3, batch=2, rows=None, **options):
    angles = rng.uniform(*(rows or (batch, length)), 3, low=-3.0, high=3.0)
    return rotation_call(rng, angles, heads, length, batch, **options)


test_rotation_values = check("2.3", "values")(some_rotation_call)
test_rotation_one_row = check(
    "2.3", "one row of angles for all texts, shape (T, D)", rows=(3,)
)(some_rotation_call)


@check("2.3", sizes=[(3, 5, 3), (2, 3, 3)])
def test_rotation_equal_sizes(rng, sizes):
    """as many texts or tokens as heads, where a wrong axis goes unnoticed"""
    batch, length, heads = sizes
    return some_rotation_call(rng, (heads, heads), length, batch)


@check("2.3")
def test_rotation_half_precision(rng):
    """bfloat16 with tables in float32"""
    angles = rng.uniform(1, 3, 3, low=0.3, high=1.2)
    return half_precision_rotation_call(rng, angles, torch.bfloat16)


test_rotation_by_position = check(
    "2.3", "arguments by position: query, key, cos, sin", by_position=True
)(some_rotation_call)
test_rotation_gradients = check("2.3", "gradients of query and key", grad=("query", "key"))(
    some_rotation_call
)


def sinusoidal_call(position_ids, hidden_size, **options):
    inputs = {"position_ids": position_ids, "hidden_size": hidden_size}
    return Call("sinusoidal_embedding", **inputs, **options)


test_sinusoidal_embedding_values = check("2.4", "values")(
    lambda rng: sinusoidal_call(torch.arange(5), 6)
)
test_sinusoidal_embedding_odd_size = check("2.4", "an odd size, with a sine to spare")(
    lambda rng: sinusoidal_call(torch.arange(4), 5)
)


@check("2.4")
def test_sinusoidal_embedding_rows(rng):
    """positions that do not start at 0, for each text its own"""
    return sinusoidal_call(rng.integers(5, 60, 2, 3), 6)


@check("2.4")
def test_sinusoidal_embedding_large(rng):
    """large positions, where only float32 still counts"""
    return sinusoidal_call(torch.tensor([4097, 12345]), 2)


@check("2.4")
def test_sinusoidal_embedding_by_position(rng):
    """arguments by position: position_ids, hidden_size"""
    return sinusoidal_call(torch.tensor([3, 50]), 8, by_position=True)


def alibi_call(num_heads, query_length, key_length, **options):
    lengths = {"query_length": query_length, "key_length": key_length}
    return Call("alibi_bias", num_heads=num_heads, **lengths, **options)


test_alibi_bias_heads = check("2.5", "{num_heads} heads", num_heads=[8, 4, 12])(
    lambda rng, num_heads: alibi_call(num_heads, 4, 4)
)
test_alibi_bias_cache = check("2.5", "the last 2 queries of 5 keys")(
    lambda rng: alibi_call(4, 2, 5)
)


@check("2.5")
def test_alibi_bias_long(rng):
    """the last query of 2100 keys, where only float32 still counts"""
    return alibi_call(2, 1, 2100)


@check("2.5")
def test_alibi_bias_by_position(rng):
    """arguments by position: num_heads, query_length, key_length"""
    return alibi_call(2, 3, 4, by_position=True)


def relative_scores_call(rng, new, total, batch=2, heads=3, head_dim=4, **options):
    inputs = {
        "query": rng.normal(batch, heads, new, head_dim),
        "key": rng.normal(batch, heads, total, head_dim),
        "relative_key": rng.normal(heads, total, head_dim),
        "content_bias": rng.normal(heads, head_dim),
        "position_bias": rng.normal(heads, head_dim),
    }
    return Call("relative_scores", **inputs, **options)


test_relative_scores_values = check("2.6", "values", new=5, total=5)(relative_scores_call)
test_relative_scores_cache = check("2.6", "queries: {new}, keys: 5", new=[1, 2], total=5)(
    relative_scores_call
)
test_relative_scores_by_position = check(
    "2.6", "arguments by position", new=2, total=4, by_position=True
)(relative_scores_call)
test_relative_scores_gradients = check(
    "2.6", "gradients of all five inputs", new=1, total=4, grad=True
)(relative_scores_call)


def yarn_call(position_ids, trained=4096, theta=100.0, factor=4.0, head_dim=16, **options):
    inputs = {
        "position_ids": position_ids,
        "head_dim": head_dim,
        "rope_theta": theta,
        "factor": factor,
        "original_max_position_embeddings": trained,
    }
    return Call("yarn_cos_sin", **inputs, **options).returning("cos", "sin")


def yarn_cos_sin_call(**options):
    return yarn_call(torch.tensor([0, 1, 7, 29]), **options)


test_yarn_cos_sin_values = check("2.7", "values")(
    lambda rng: yarn_cos_sin_call(trained=1290, theta=10000.0, head_dim=10)
)
test_yarn_cos_sin_factor = check("2.7", "factor {factor}", factor=[1.0, 8.0])(
    lambda rng, factor: yarn_cos_sin_call(factor=factor)
)


@check("2.7", trained=[6, 100])
def test_yarn_cos_sin_short(rng, trained):
    """a trained length of {trained}, where the ramp begins at pair 0"""
    return yarn_cos_sin_call(trained=trained)


@check("2.7")
def test_yarn_cos_sin_far_end(rng):
    """a trained length of 800 with rope_theta 10, where the ramp ends at D - 1"""
    return yarn_cos_sin_call(trained=800, theta=10.0)


@check("2.7", attention_factor=[1.7, 1.0])
def test_yarn_cos_sin_explicit_factor(rng, attention_factor):
    """attention_factor {attention_factor}, not left to the formula"""
    return yarn_cos_sin_call(attention_factor=attention_factor)


test_yarn_cos_sin_betas = check("2.7", "other beta_fast and beta_slow")(
    lambda rng: yarn_cos_sin_call(beta_fast=60.0, beta_slow=4.0)
)


@check("2.7")
def test_yarn_cos_sin_by_position(rng):
    """arguments by position"""
    more = {"attention_factor": 1.3, "beta_fast": 20.0, "beta_slow": 2.0}
    return yarn_cos_sin_call(**more, by_position=True)


def learned_call(rng, start, new, rows=7, batch=2, size=5, dtype=torch.float32, **options):
    """The tokens of a text from place `start` on; None leaves it to the default."""
    init = {"max_position_embeddings": rows, "hidden_size": size}
    state = {"wpe.weight": rng.normal(rows, size)}
    inputs = {"hidden_states": rng.normal(batch, new, size).to(dtype)}
    if start is not None:
        inputs["start"] = start
    return Call("LearnedPositions", init=init, state=state, dtype=dtype, **inputs, **options)


@check("2.8")
def test_learned_positions_made(rng):
    """freshly made: it holds wpe, with a row for each place"""
    call = Call("LearnedPositions", init={"max_position_embeddings": 7, "hidden_size": 5})
    call.names = True
    return call


test_learned_positions_values = check("2.8", "values, from place 0 on", start=None, new=4)(
    learned_call
)
test_learned_positions_full = check("2.8", "a text as long as the table", start=0, new=7)(
    learned_call
)
test_learned_positions_start = check(
    "2.8", "2 tokens after {start} that a cache holds, of 7 places", start=[3, 5], new=2
)(learned_call)
test_learned_positions_too_long = check(
    "2.8",
    "tokens behind the last of 7 places: start {start}, T {new}",
    cases=rows("start, new", (0, 8), (6, 2), (7, 1)),
)(learned_call)
test_learned_positions_negative = check(
    "2.8", "a start below 0: {start}", points=0.5, start=[-1, -7], new=2
)(learned_call)
test_learned_positions_by_position = check(
    "2.8",
    "arguments by position: hidden_states, start",
    points=0.5,
    start=1,
    new=3,
    by_position=True,
)(learned_call)
test_learned_positions_gradients = check(
    "2.8", "gradients of the embeddings and the table", points=0.5, start=2, new=3, grad=True
)(learned_call)
