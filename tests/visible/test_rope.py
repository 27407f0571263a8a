"""Visible checks of lab 02: what check("2.1") and its sisters run."""

import torch
from visible.questions import in_eval_mode

from labkit.checks.declared import Call, check, rows


def positions(rng, ids=None, low=1, high=60, shape=(5,)):
    return rng.integers(low, high, *shape) if ids is None else torch.tensor(ids)


def cos_sin_call(rng, head_dim=6, rope_theta=1e4, by_position=False, **ids):
    call = Call("rope_cos_sin", by_position=by_position)
    call.then(position_ids=positions(rng, **ids), head_dim=head_dim, rope_theta=rope_theta)
    return call.returning("cos", "sin")


FIRST, FAR = tuple(range(5)), (4097, 12345)
test_rope_cos_sin_values = check("2.1", "values for positions 0 to 4", ids=FIRST)(cos_sin_call)
test_rope_cos_sin_theta = check(
    "2.1", "rope_theta 1000000, Qwen3's", ids=FIRST, rope_theta=1000000.0
)(cos_sin_call)
test_rope_cos_sin_cache = check("2.1", "positions that do not start at 0", ids=(7, 8, 9, 10))(
    cos_sin_call
)
test_rope_cos_sin_gaps = check("2.1", "positions with gaps", ids=(0, 1, 5, 20))(cos_sin_call)
test_rope_cos_sin_rows = check(
    "2.1", "every text with positions of its own", low=0, shape=(2, 4)
)(cos_sin_call)
test_rope_cos_sin_large = check(
    "2.1", "large positions, where only float32 still counts",
    ids=FAR, head_dim=4, rope_theta=1000000.0,
)(cos_sin_call)  # fmt: skip
test_rope_cos_sin_by_position = check(
    "2.1", "arguments by position: position_ids, head_dim, rope_theta",
    ids=(3, 50), by_position=True,
)(cos_sin_call)  # fmt: skip


def rotate_call(rng, shape=(2, 4), dtype=torch.float32, **options):
    return Call("rotate_half", x=rng.normal(*shape, dtype=dtype), **options)


test_rotate_half_vector = check("2.2", "one vector, (1, 2, 3, 4, 5, 6)")(
    lambda rng: Call("rotate_half", x=torch.arange(1.0, 7.0))
)
test_rotate_half_values = check("2.2", "values for shape (B, H, T, D)", shape=(2, 4, 6, 8))(
    rotate_call
)
test_rotate_half_half_precision = check("2.2", "{dtype}", dtype=[torch.bfloat16])(rotate_call)
test_rotate_half_gradients = check("2.2", "gradients", grad=True)(rotate_call)


def tables(angles):
    """cos and sin (..., T, D) of angles (..., T, D/2)."""
    angles = torch.cat((angles, angles), dim=-1)
    angles = angles.double()  # float32 differs from processor to processor
    return {"cos": angles.cos().float(), "sin": angles.sin().float()}


def rotation_call(rng, angles, heads=(4, 2), length=3, batch=2, **options):
    query, key = (rng.normal(batch, count, length, 2 * angles.size(-1)) for count in heads)
    given = {"query": query, "key": key, **tables(angles), **options}
    return Call("apply_rotary_pos_emb", **given).returning("query", "key")


def half_precision_rotation_call(rng, dtype, angles):
    """angles    (1, T, D/2)"""
    inputs, angles = {}, torch.tensor(angles)
    for name, heads in (("query", 4), ("key", 2)):  # nothing cancels: roundings stay small
        large, small = rng.uniform(2, 2, heads, *angles.shape[1:], low=-0.1, high=0.1)
        inputs[name] = torch.cat((1.5 + large, small), dim=-1).to(dtype)
    return Call("apply_rotary_pos_emb", **inputs, **tables(angles)).returning("query", "key")


def some_rotation_call(rng, heads=(4, 2), length=3, head_dim=6, batch=2, rows=None, **options):
    angles = rng.uniform(*(rows or (batch, length)), head_dim // 2, low=-3.0, high=3.0)
    return rotation_call(rng, angles, heads, length, batch, **options)


test_rotation_values = check("2.3", "values")(some_rotation_call)
test_rotation_one_row = check(
    "2.3", "one row of angles for all texts, shape {rows} without D", rows=[(3,)]
)(some_rotation_call)
test_rotation_equal_sizes = check(
    "2.3", "as many texts or tokens as heads, where a wrong axis goes unnoticed",
    cases=rows("batch, length, heads", (3, 5, (3, 3)), (2, 3, (3, 3))),
)(some_rotation_call)  # fmt: skip
test_rotation_half_precision = check(
    "2.3", "{dtype} with tables in float32", dtype=[torch.bfloat16],
    angles=(((0.3, 0.7, 1.2), (1.1, 0.4, 0.9), (0.5, 1.0, 0.6)),),
)(half_precision_rotation_call)  # fmt: skip
test_rotation_by_position = check(
    "2.3", "arguments by position: query, key, cos, sin", by_position=True
)(some_rotation_call)
test_rotation_gradients = check("2.3", "gradients of query and key", grad=("query", "key"))(
    some_rotation_call
)


def sinusoidal_call(rng, hidden_size=6, by_position=False, **ids):
    call = Call("sinusoidal_embedding", by_position=by_position)
    return call.then(position_ids=positions(rng, **ids), hidden_size=hidden_size)


test_sinusoidal_embedding_values = check("2.4", "hidden_size {hidden_size}", hidden_size=[6],
                                         ids=FIRST)(sinusoidal_call)  # fmt: skip
test_sinusoidal_embedding_odd_size = check(
    "2.4", "hidden_size {hidden_size}, with a sine to spare", hidden_size=[5], ids=FIRST
)(sinusoidal_call)
test_sinusoidal_embedding_rows = check(
    "2.4", "positions of shape {shape} that do not start at 0", low=5, shape=[(2, 3)]
)(sinusoidal_call)
test_sinusoidal_embedding_large = check(
    "2.4", "large positions, where only float32 still counts", ids=FAR, hidden_size=2
)(sinusoidal_call)
test_sinusoidal_embedding_by_position = check(
    "2.4", "arguments by position: position_ids, hidden_size",
    ids=(3, 50), hidden_size=8, by_position=True,
)(sinusoidal_call)  # fmt: skip


def alibi_call(rng, num_heads=4, query_length=4, key_length=4, more=0, **options):
    """With up to `more` new tokens more, and as many more cached ones, if any are cached."""
    added, cached = rng.integers(0, more + 1, 2).tolist()
    key_length += added + cached * (key_length > query_length)
    query_length += added
    lengths = {"query_length": query_length, "key_length": key_length}
    return Call("alibi_bias", num_heads=num_heads, **lengths, **options)


test_alibi_bias_heads = check("2.5", "{num_heads} heads", num_heads=[8, 4, 12])(alibi_call)
test_alibi_bias_cache = check(
    "2.5", "the last queries of more keys", cases=rows("query_length, key_length", (2, 5))
)(alibi_call)
test_alibi_bias_long = check(
    "2.5", "the last queries of some {key_length} keys, where only float32 still counts",
    key_length=[2100], query_length=1, num_heads=2,
)(alibi_call)  # fmt: skip
test_alibi_bias_by_position = check(
    "2.5", "arguments by position: num_heads, query_length, key_length",
    num_heads=2, query_length=3, by_position=True,
)(alibi_call)  # fmt: skip


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


def yarn_call(
    rng, trained=4096, theta=100.0, factor=4.0, head_dim=16, ids=None, low=1, high=30,
    shape=(2, 5), **options,
):  # fmt: skip
    inputs = {
        "position_ids": positions(rng, ids, low, high, shape),
        "head_dim": head_dim,
        "rope_theta": theta,
        "factor": factor,
        "original_max_position_embeddings": trained,
    }
    return Call("yarn_cos_sin", **inputs, **options).returning("cos", "sin")


SOME = (0, 1, 7, 29)
test_yarn_cos_sin_sizes = check(
    "2.7", "trained length {trained}, rope_theta {theta}, head_dim {head_dim}", ids=SOME,
    cases=rows("trained, theta, head_dim", (1290, 10000.0, 10)),
)(yarn_call)  # fmt: skip
test_yarn_cos_sin_factor = check("2.7", "factor {factor}", factor=[1.0, 8.0], ids=SOME)(
    yarn_call
)
test_yarn_cos_sin_short = check(
    "2.7", "a trained length of {trained}, where the ramp begins at pair 0",
    trained=[6, 100], ids=SOME,
)(yarn_call)  # fmt: skip
test_yarn_cos_sin_far_end = check(
    "2.7", "a trained length of {trained} with rope_theta 10, where the ramp ends at D - 1",
    trained=[800], theta=10.0, ids=SOME,
)(yarn_call)  # fmt: skip
test_yarn_cos_sin_explicit_factor = check(
    "2.7", "attention_factor {attention_factor}, not left to the formula",
    attention_factor=[1.7, 1.0, 0.0], ids=SOME,
)(yarn_call)  # fmt: skip
test_yarn_cos_sin_betas = check(
    "2.7", "other beta_fast and beta_slow", beta_fast=60.0, beta_slow=4.0, ids=SOME
)(yarn_call)
test_yarn_cos_sin_by_position = check(
    "2.7", "arguments by position",
    attention_factor=1.3, beta_fast=20.0, beta_slow=2.0, ids=SOME, by_position=True,
)(yarn_call)  # fmt: skip


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


test_learned_positions_values = check(
    "2.8", "values, from place 0 on, in eval mode either", start=None, new=4
)(in_eval_mode(learned_call))
test_learned_positions_full = check("2.8", "a text as long as the table", start=0, new=7)(
    learned_call
)
test_learned_positions_start = check(
    "2.8", "2 tokens after {start} that a cache holds, of 7 places", start=[3, 5], new=2
)(learned_call)
test_learned_positions_too_long = check(
    "2.8", "tokens behind the last of 7 places: start {start}, T {new}",
    cases=rows("start, new", (0, 8), (6, 2), (7, 1)),
)(learned_call)  # fmt: skip
test_learned_positions_negative = check(
    "2.8", "a start below 0: {start}", points=0.5, start=[-1, -7], new=2
)(learned_call)
test_learned_positions_by_position = check(
    "2.8", "arguments by position: hidden_states, start", points=0.5, start=1, new=3,
    by_position=True,
)(learned_call)  # fmt: skip
test_learned_positions_gradients = check(
    "2.8", "gradients of the embeddings and the table", points=0.5, start=2, new=3, grad=True
)(learned_call)


@check("2.9", theta=[50.0])
def test_web_base(rng, theta, size=8):
    """the tables for rope_theta 10000, and for {theta}"""
    for base in (1e4, theta):
        config = {"head_dim": size, "rope_theta": base}
        yield Call("web_model_rotary", config=config, position_ids=positions(rng))


@check("2.10", size=8)
def test_web_rope(rng, size):
    """a vector of equal numbers, then others, of {size} features"""
    angles = rng.uniform(3, size // 2, low=0.5, high=6.0).repeat(1, 2)
    for x in (torch.ones(3, size), rng.normal(3, size)):
        yield Call("web_rope", x=x, cos=angles.cos(), sin=angles.sin())
