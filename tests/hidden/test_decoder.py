"""Hidden checks of lab 06: fresh numbers, odd shapes, caches, padding, ties, other dtypes."""

import torch
from visible import questions
from visible import test_decoder as visible
from visible.test_decoder import MIXTURE, TIED, count_call, lm_call, model_call

from labkit.checks.declared import check


def again(seen, **options):
    """A visible check with other values."""
    return check(seen.exercise, view=seen.view, tolerance=seen.tolerance, **options)(seen)


ODD = {  # H * D is not E
    "vocab_size": [13], "hidden_size": [10], "intermediate_size": [12], "head_dim": [6],
    "moe_intermediate_size": [7], "rope_theta": [30.0],
}  # fmt: skip
BATCH = ODD | {"batch": [3]}
HEADS = [  # fewer KV heads, as many as query heads, one
    {"num_attention_heads": heads, "num_key_value_heads": kv_heads}
    for heads, kv_heads in ((4, 2), (3, 3), (4, 1))
]
PATTERNS = [  # which of four layers hold experts
    {"decoder_sparse_step": step, "mlp_only_layers": dense, "num_hidden_layers": 4}
    for step, dense in ((2, ()), (1, (0, 2)), (3, ()), (2, (3,)), (2, (0, 1)), (5, ()))
]
DENSE, EXPERTS = {"num_experts": 0}, {"num_experts": 3, "sparse": (0, 1)}
SECOND, UNLISTED = (PATTERNS[i] | {"num_experts": 3, "sparse": (1, 3)} for i in (0, 1))

LAYER = BATCH | {"pieces": [(5,)], "apart": [False, True]}
PIECES = [DENSE | {"pieces": (3, 2, 2)}, EXPERTS | {"pieces": (2, 2, 1)}]

test_layer_parameters = again(
    visible.test_layer_parameters,
    cases=[pattern | {"layer_idx": i} for pattern in (SECOND, UNLISTED) for i in (2, 3)],
)
test_layer = again(visible.test_layer, points=2, cases=HEADS, **LAYER)
test_layer_in_a_mixture = again(
    visible.test_layer_with_experts, points=2, cases=[SECOND], layer_idx=[0, 1], **LAYER
)
test_layer_one_token = again(visible.test_layer_one_token, cases=[DENSE, EXPERTS], **ODD)
test_layer_cache = again(visible.test_layer_cache, points=2, cases=PIECES, **BATCH)
test_layer_one_query = again(visible.test_layer_one_query, pieces=[(5, 1)], **ODD)
test_layer_eps = again(visible.test_layer_eps, rms_norm_eps=[0.4], **LAYER)
test_layer_input = again(visible.test_layer_input, cases=[EXPERTS], **LAYER)
test_layer_positions = again(visible.test_layer_positions, **LAYER)
test_layer_half_precision = again(visible.test_layer_half_precision, **BATCH)
test_layer_gradients = again(visible.test_layer_gradients, cases=[DENSE, EXPERTS], **LAYER)

MODEL = BATCH | {"pieces": [(6,)]}
PADDED, GAPS = ("000111", "011111", "111111"), ("111111", "010111", "101110")
PIECES = [DENSE | {"pieces": (1, 3, 2)}, EXPERTS | {"pieces": (4, 1, 1)}]

test_model_parameters = again(visible.test_model_parameters, cases=[SECOND, UNLISTED], **ODD)
test_model = again(visible.test_model, points=2, cases=HEADS, **MODEL)
test_model_with_experts = again(
    visible.test_model_with_experts, points=2, cases=[SECOND, UNLISTED], **MODEL
)
test_model_one_token = again(visible.test_model_one_token, cases=[DENSE, EXPERTS], **ODD)
test_model_padding = again(visible.test_model_padding, points=2, mask=[PADDED], **MODEL)
test_model_padded = again(
    visible.test_model_padding, points=0.5, mask=questions.PADDED, **MODEL | {"pieces": [(5,)]}
)
test_model_gaps = again(
    visible.test_model_padding, cases=[MIXTURE | {"mask": PADDED}, {"mask": GAPS}], **MODEL
)
test_model_boolean_mask = again(visible.test_model_boolean_mask, mask=[PADDED[::-1]], **MODEL)
test_model_cache = again(visible.test_model_cache, points=2, cases=PIECES, **BATCH)
test_model_cache_and_padding = again(
    visible.test_model_cache_and_padding,
    points=2, mask=[PADDED], pieces=[(4, 1, 1), (2, 3, 1)], **ODD,
)  # fmt: skip
test_model_mask_later = again(
    visible.test_model_mask_later, mask=[("11111",) * 3], pieces=[(2, 2, 1)], **ODD
)


@check("6.2", **MODEL)
def test_model_future(rng, **values):
    """a later token changes nothing before it"""
    before, after = (model_call(rng, **values) for _ in range(2))
    after.state = before.state
    ids = before.steps[0][1]["input_ids"].clone()
    ids[:, 4] = (ids[:, 4] + 1) % values["vocab_size"]
    after.steps[0][1]["input_ids"] = ids
    return before, after


test_model_eps = again(visible.test_model_eps, rms_norm_eps=[0.4], **MODEL)
test_model_half_precision = again(visible.test_model_half_precision)
test_model_refuses = again(visible.test_model_refuses, **MODEL)
SMALL = BATCH | {"pieces": [(5,)], "num_hidden_layers": [1]}
test_model_gradients = again(visible.test_model_gradients, cases=[EXPERTS, DENSE], **SMALL)


test_lm_parameters = again(
    visible.test_lm_parameters, attention_bias=[True], num_experts=[0, 3], **TIED, **ODD
)
test_lm = again(visible.test_lm, points=4, **TIED, **MODEL)
test_lm_router_logits = again(
    visible.test_lm_router_logits, points=2, cases=[EXPERTS, MIXTURE], **MODEL
)
test_lm_no_router_logits = again(visible.test_lm_router_logits, cases=[DENSE], **SMALL)
test_lm_padding = again(
    visible.test_lm_padding, points=0.5, mask=[("00011", "01111", "11111"), *questions.PADDED],
    **SMALL,
)  # fmt: skip
test_lm_cache = again(
    visible.test_lm_cache, points=0.5, pieces=[(3, 1, 1), (1, 4)],
    mask=[(), ("01111", "11111")], **BATCH,
)  # fmt: skip


@check("6.3", mask=[("11111", "11111")], pieces=[(5,)], **ODD)
def test_lm_positions(rng, **values):
    """arguments by position: input_ids, attention_mask"""
    call = lm_call(rng, **values)
    call.by_position = True
    return call


test_lm_gradients = again(visible.test_lm_gradients, points=2, **TIED, **SMALL)
test_lm_tie_after_loading = again(visible.test_lm_tie_after_loading, points=2, **TIED, **SMALL)
test_lm_half_precision = again(
    visible.test_lm_half_precision, dtype=[torch.bfloat16, torch.float16], **BATCH
)

COUNTED = {
    "vocab_size": [2003], "hidden_size": [140], "intermediate_size": [307], "head_dim": [38],
    "moe_intermediate_size": [71], "more": [99],
}  # fmt: skip
GROWN = [(0, "vocab_size", 2104), (0, "intermediate_size", 408), (0, "head_dim", 40)]
GROWN += [(0, "num_attention_heads", 18), (0, "attention_bias", True), (6, "num_experts", 7)]
GROWN += [(6, "moe_intermediate_size", 172), (6, "num_experts_per_tok", 4)]
GROWN = [{"num_experts": x, "field": field, "value": value} for x, field, value in GROWN]

test_count = again(visible.test_count, points=2, cases=HEADS, **COUNTED)
test_count_settings = again(visible.test_count_settings, num_experts=[0, 6], **TIED, **COUNTED)
test_count_growth = again(visible.test_count_growth, cases=GROWN, **COUNTED)
test_count_pattern = again(
    visible.test_count_pattern, num_experts=[6], cases=PATTERNS, **COUNTED
)


@check("6.4", points=2)
def test_count_random(rng):
    """sizes drawn at random, with attention_bias"""
    names = ("vocab_size", "hidden_size", "intermediate_size", "moe_intermediate_size")
    fields = dict(zip(names, rng.integers(50, 999, 4).tolist(), strict=True))
    layers, experts, kv_heads, times, half = rng.integers(4, 20, 5).tolist()
    fields |= {"num_hidden_layers": layers, "num_experts": experts, "head_dim": 2 * half}
    fields |= {"num_attention_heads": kv_heads * times, "num_key_value_heads": kv_heads}
    return count_call(rng, **fields, attention_bias=True)


test_count_published = again(
    visible.test_count_published, points=2, name=[*visible.PUBLISHED][1:]
)
test_web_layer = check("6.5", batch=[1, 3])(visible.test_web_layer)
