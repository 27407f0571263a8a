"""Hidden checks of lab 03: fresh numbers, odd shapes, other dtypes, caches, causality."""

import torch
from visible import test_gqa as visible
from visible.test_gqa import (
    HALF,
    LOW,
    SMALL,
    E,
    attention_call,
    causal,
    latent_call,
    mask_call,
    padded,
    padded_or_itself,
    qwen3_call,
    repeat_call,
    softmax_call,
    window,
)

from labkit.checks.declared import STRIDED, check, rows, strided

SHAPE = (2, 3, 4, 7, 6)
ODD = (1, 3, 5, 6, 4)
GAPS = torch.tensor([[2, 3, 7, 9, 14, 15], [1, 6, 8, 12, 13, 18]])
PADDED = torch.tensor([[0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 2, 3]])  # positions, two of padding


def each_head(new, total):
    """(3, new, total): a window for each of three heads."""
    return torch.stack([window(new, total, width) for width in (1, 3, 5)])


def unless_alone(new, total):
    """Causal, and no mask for a single token."""
    return causal(new, total) if new > 1 else None


test_mask_square = check("3.1", length=[1, 2, 7])(visible.test_mask_square)
test_mask_chunk = check(
    "3.1", "{new} new tokens or some more, {total} in all or some more",
    points=2, more=99, cases=rows("new, total", (3, 7), (5, 6), (2, 9)),
)(mask_call)  # fmt: skip
test_mask_long = check("3.1", cases=rows("new, total", (2, 701), (5, 1600)))(test_mask_chunk)


@check("3.1", total=[2, 6])
def test_mask_one_token(rng, total):
    """1 new token, {total} in all or some more"""
    return mask_call(rng, 1, total + rng.integers(0, 100, 1).item())


test_mask_positions = check("3.1", new=4, total=7)(visible.test_mask_positions)

test_attention = check("3.2", shape=[(1, 1, 1, 1, 3), (2, 3, 4, 4, 5), (3, 1, 2, 9,
    16)])(visible.test_attention)  # fmt: skip
test_attention_scale = check("3.2", shape=SHAPE, scale=[0.1, 2.0,
    0.0])(visible.test_attention_scale)  # fmt: skip
test_attention_value_size = check("3.2", points=0.25, shape=SHAPE, features=[1,
    9])(visible.test_attention_value_size)  # fmt: skip
test_attention_mask = check(
    "3.2", shape=[(2, 3, 5, 5, 6), SHAPE, (2, 3, 1, 7, 6), (3, 2, 1, 7, 6), (1, 2, 6, 6, 4)]
)(visible.test_attention_mask)
test_attention_causal_mask = check(
    "3.2", "a causal mask: the last query sees every key", shape=SHAPE, mask=causal
)(attention_call)
test_attention_padding = check("3.2", shape=(2, 3, 5, 5, 6),
    mask=padded_or_itself)(visible.test_attention_mask_of_each_text)  # fmt: skip
test_attention_mask_of_one_text = check("3.2", shape=(2, 3, 1, 6,
    4))(visible.test_attention_mask_of_one_text)  # fmt: skip
test_attention_mask_of_each_head = check(
    "3.2", "a mask (H, T, S), another for each head, and scale 0.3",
    shape=SHAPE, mask=each_head, scale=0.3,
)(attention_call)  # fmt: skip
test_attention_large_scores = check("3.2", shape=ODD,
    size=150)(visible.test_attention_large_scores)  # fmt: skip
test_attention_low_scores = check("3.2", shape=ODD)(visible.test_attention_low_scores)
test_attention_far_ahead = check("3.2", shape=ODD)(visible.test_attention_far_ahead)
test_attention_half = check("3.2", points=0.5, shape=ODD)(visible.test_attention_half)
test_attention_strided = check("3.2", STRIDED, points=0.25, shape=SHAPE, mask=window)(
    strided(attention_call)
)

test_attention_positions = check("3.2", shape=SHAPE,
    scale=0.6)(visible.test_attention_positions)  # fmt: skip
test_attention_gradients = check("3.2", shape=SHAPE)(visible.test_attention_gradients)
test_attention_gradients_without_mask = check(
    "3.2", "gradients of query, key and value without a mask",
    shape=(1, 2, 3, 5, 4), scale=0.4, grad=True,
)(attention_call)  # fmt: skip

test_repeat = check(
    "3.3", points=2, cases=rows("heads, n_rep", (2, 2), (3, 2), (4, 3), (2, 5))
)(visible.test_repeat)
test_repeat_one_head = check(
    "3.3", "one KV head for all {n_rep} query heads", heads=1, n_rep=[2, 4]
)(repeat_call)
test_repeat_nothing = check("3.3", heads=4)(visible.test_repeat_nothing)
test_repeat_half = check("3.3", "{dtype}", heads=3, dtype=HALF)(repeat_call)
test_repeat_positions = check("3.3", heads=3)(visible.test_repeat_positions)
test_repeat_gradients = check("3.3", n_rep=[2, 3])(visible.test_repeat_gradients)
test_repeat_strided = check("3.3", STRIDED)(strided(repeat_call))

test_qwen3_parameters = check("3.4")(visible.test_qwen3_parameters)
test_qwen3_parameters_with_bias = check("3.4",
    points=0.5)(visible.test_qwen3_parameters_with_bias)  # fmt: skip
test_qwen3_parameters_of_other_sizes = check(
    "3.4", cases=rows("heads, size", (6, SMALL), (4, E))
)(visible.test_qwen3_parameters_of_other_sizes)
test_qwen3 = check(
    "3.4", "6 query heads, {kv_heads} KV heads",
    points=2.75, shape=(2, 7), kv_heads=[1, 2, 3, 6],
)(qwen3_call)  # fmt: skip
test_qwen3_other_sizes = check(
    "3.4", points=2, shape=(2, 7),
    cases=rows("heads, kv_heads, size", (6, 2, SMALL), (8, 4, 16)),
)(visible.test_qwen3_other_sizes)  # fmt: skip
test_qwen3_one_token = check("3.4", shape=(3, 1))(visible.test_qwen3_one_token)
test_qwen3_cache = check(
    "3.4", "a text in pieces with a cache, cut at {cuts}, gives what it gives whole",
    points=2, shape=(2, 7), cuts=[(0, 6, 7), (0, 2, 4, 7), (0, 1, 2, 3), (0, 3, 6)],
)(qwen3_call)  # fmt: skip
test_qwen3_held = check("3.4", shape=(2, 6), held=3, cuts=(0, 2, 6))(visible.test_qwen3_held)
test_qwen3_one_query = check("3.4", shape=(2, 7), cuts=(0, 6, 7))(visible.test_qwen3_one_query)
test_qwen3_decode_without_mask = check(
    "3.4", "one new token with a cache and no mask sees all", cuts=(0, 4, 5), mask=unless_alone
)(qwen3_call)
test_qwen3_causality = check("3.4", shape=(2, 6), again=4)(visible.test_qwen3_causality)
test_qwen3_own_positions = check(
    "3.4", "two texts at positions of their own, with gaps", shape=(2, 6), positions=GAPS
)(qwen3_call)
test_qwen3_padded_batch = check(
    "3.4", "a batch padded on the left, with positions and a mask of its own for each text",
    shape=(2, 6), positions=PADDED, mask=padded_or_itself,
)(qwen3_call)  # fmt: skip
test_qwen3_without_mask = check("3.4")(visible.test_qwen3_without_mask)
test_qwen3_bias = check("3.4", points=0.5)(visible.test_qwen3_bias)
test_qwen3_eps = check("3.4", points=0.5, cases=rows("eps, scale", (1e-5, 0.002), (0.1,
    1.0)))(visible.test_qwen3_eps)  # fmt: skip
test_qwen3_half = check("3.4", points=0.5, dtype=HALF)(visible.test_qwen3_half)
test_qwen3_strided = check("3.4", STRIDED, points=0.5)(strided(qwen3_call))

test_qwen3_positions = check("3.4")(visible.test_qwen3_positions)
test_qwen3_gradients = check("3.4", shape=(2, 6))(visible.test_qwen3_gradients)

LATENT = {"size": 12, "heads": 5, "q": 9, "kv": 7, "nope": 4, "rope": 6, "v": 3}
test_latent_parameters = check("3.5", **LATENT)(visible.test_latent_parameters)


@check("3.5", points=2, length=[1, 4, 7])
def test_latent(rng, length):
    """{length} tokens, nothing cached"""
    return latent_call(rng, shape=(2, length), **LATENT)


test_latent_cache = check(
    "3.5", "a text in pieces with a cache, cut at {cuts}, gives what it gives whole",
    points=2, shape=(2, 7), cuts=[(0, 6, 7), (0, 2, 4, 7), (0, 3, 6)], **LATENT,
)(latent_call)  # fmt: skip
test_latent_one_query = check("3.5", shape=(2, 7), cuts=(0, 6, 7),
    **LATENT)(visible.test_latent_one_query)  # fmt: skip
test_latent_causality = check("3.5", shape=(1, 6), again=4,
    **LATENT)(visible.test_latent_causality)  # fmt: skip
test_latent_without_mask = check("3.5", **LATENT)(visible.test_latent_without_mask)
test_latent_own_positions = check(
    "3.5", "two texts at positions of their own, with gaps", shape=(2, 6), positions=GAPS,
    **LATENT,
)(latent_call)  # fmt: skip
test_latent_eps = check("3.5", points=0.5, **LATENT)(visible.test_latent_eps)
test_latent_half = check("3.5", points=0.5,
    **LATENT | {"dtype": HALF})(visible.test_latent_half)  # fmt: skip
test_latent_positions = check("3.5", **LATENT)(visible.test_latent_positions)
test_latent_gradients = check("3.5", shape=(2, 6), **LATENT)(visible.test_latent_gradients)

WIDE = (2, 3, 4, 7)
test_softmax_bool_mask = check("3.6", shape=[WIDE, (1, 2, 5, 5), (3, 1, 1,
    6)])(visible.test_softmax_bool_mask)  # fmt: skip
test_softmax_float_mask = check("3.6", shape=WIDE)(visible.test_softmax_float_mask)
test_softmax_bias = check("3.6", shape=[(3, 4, 7), (2, 1, 4, 7),
    (7,)])(visible.test_softmax_bias)  # fmt: skip
test_softmax_bias_and_mask = check(
    "3.6", "a float mask that favors some keys and hides others",
    shape=WIDE, low=-torch.inf, favors=True,
)(softmax_call)  # fmt: skip
test_softmax_blind_query = check("3.6", shape=WIDE)(visible.test_softmax_blind_query)
test_softmax_padded_batch = check(
    "3.6", "a mask (B, 1, T, S) that hides padding, with blind queries in one text of two",
    shape=(2, 3, 5, 5), mask=padded,
)(softmax_call)  # fmt: skip
test_softmax_low_scores = check("3.6", shape=WIDE,
    base=-30000.0)(visible.test_softmax_low_scores)  # fmt: skip
test_softmax_high_hidden_scores = check("3.6",
    shape=WIDE)(visible.test_softmax_high_hidden_scores)  # fmt: skip
test_softmax_high_hidden_scores_float_mask = check("3.6",
    shape=WIDE)(visible.test_softmax_high_hidden_scores_float_mask)  # fmt: skip
test_softmax_half = check("3.6", points=0.5, shape=(2, 3, 5, 6))(visible.test_softmax_half)
test_softmax_high_scores = check("3.6", points=0.5, shape=(2, 3, 5, 6),
    high=2000)(visible.test_softmax_high_scores)  # fmt: skip
test_softmax_positions = check("3.6", shape=WIDE)(visible.test_softmax_positions)
test_softmax_gradients = check("3.6", shape=(1, 2, 5, 5), low=[None,
    *LOW])(visible.test_softmax_gradients)  # fmt: skip
test_web_attention = check("3.7", heads=[4, 8])(visible.test_web_attention)
