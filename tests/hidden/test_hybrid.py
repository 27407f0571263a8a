"""Hidden checks of lab 12: fresh numbers, odd sizes, other dtypes, pieces, gradients."""

import torch
from visible import test_hybrid as visible
from visible.questions import PADDED
from visible.test_hybrid import (
    CHUNKS,
    D,
    attention_call,
    loose,
    mask_call,
    net_call,
    rule_call,
    shared_call,
    step_call,
)

from labkit.checks.declared import STRIDED, check, rows, strided

BF16, F16 = torch.bfloat16, torch.float16

test_window = check("12.1", size=[1, 2, 4, 7, 99], new=7, total=7, more=40)(visible.test_window)
test_window_cache = check(
    "12.1", points=2, size=[4, 9], more=40, cases=rows("new, total", (3, 9), (5, 6))
)(visible.test_window_cache)
test_window_last = check("12.1", size=4, cases=rows("new, total", (1, 11), (1,
    2)))(visible.test_window_cache)  # fmt: skip
test_window_sinks = check(
    "12.1", points=2, size=3, sinks=[1, 2, 4], more=40,
    cases=rows("new, total", (8, 8), (2, 9), (1, 12), (4, 5)),
)(visible.test_window_sinks)  # fmt: skip
test_window_all_sinks = check(
    "12.1", "more sinks than tokens", new=5, total=5, size=1, sinks=99, more=40
)(mask_call)
test_window_positions = check("12.1", new=2, total=9, size=3, sinks=2,
    more=40)(visible.test_window_positions)  # fmt: skip

test_norm_start = check("12.2", points=0.5)(visible.test_norm_start)
test_norm = check("12.2", size=[5, 16])(visible.test_norm)
test_norm_eps = check("12.2", points=0.5, cases=rows("eps, scale", (0.5, 0.7), (1e-5,
    1e-3)))(visible.test_norm_eps)  # fmt: skip
test_norm_digits = check("12.2", points=0.5, dtype=[BF16, F16], shape=(5,
    6))(visible.test_norm_digits)  # fmt: skip
test_norm_large = check("12.2", points=0.5, scale=[300.0, 900.0])(visible.test_norm_large)
test_attention = check(
    "12.2", "6 query heads, {kv_heads} KV heads, {rotated} of 8 features rotated",
    points=2.5, shape=(2, 7), cases=rows("kv_heads, rotated", (1, 2), (3, 4), (6, 6)),
)(attention_call)  # fmt: skip
test_attention_sizes = check(
    "12.2", "{heads} query heads, {kv_heads} KV heads, hidden size {size}",
    points=2, cases=rows("heads, kv_heads, size", (4, 2, 20), (3, 1, 24), (8, 4, 9)),
)(attention_call)  # fmt: skip
test_attention_all = check("12.2", points=0.5, rotated=D, shape=(1,
    6))(visible.test_attention_all)  # fmt: skip
test_attention_positions = check("12.2", points=0.5,
    kv_heads=3)(visible.test_attention_positions)  # fmt: skip
test_attention_mask = check("12.2", points=0.5, shape=(2, 7))(visible.test_attention_mask)
test_attention_one_query = check("12.2", shape=(2, 7), cuts=(0, 6,
    7))(visible.test_attention_one_query)  # fmt: skip
test_attention_none = check("12.2", "without a mask every token sees every other",
    mask=None)(attention_call)  # fmt: skip
test_attention_cache = check(
    "12.2", "a text in pieces with a cache, cut at {cuts}",
    points=2, shape=(2, 7), cuts=[(0, 6, 7), (0, 2, 4, 7), (0, 3, 6)],
)(attention_call)  # fmt: skip
test_attention_causality = check("12.2", shape=(2, 6),
    again=4)(visible.test_attention_causality)  # fmt: skip
test_attention_half = check("12.2", points=0.5, dtype=[BF16, F16])(visible.test_attention_half)
test_attention_eps = check("12.2", "eps of q_norm and k_norm", points=0.5,
    eps=0.3)(attention_call)  # fmt: skip
test_attention_gradients = check("12.2", shape=(2, 6))(visible.test_attention_gradients)
test_attention_strided = check("12.2", STRIDED, points=0.5)(strided(attention_call))

SIZES = rows("lead, key_size, value_size", ((), 6, 3), ((4,), 3, 7), ((2, 1, 3), 5, 5))
test_step = check("12.3", "sizes {lead}, a key of {key_size}, a value of {value_size}",
    points=4, cases=SIZES,
)(step_call)  # fmt: skip
test_step_empty = check("12.3", lead=(3, 2))(visible.test_step_empty)
test_step_nothing = check("12.3", lead=(3, 2))(visible.test_step_nothing)
test_step_replace = check("12.3", lead=(3, 2))(visible.test_step_replace)
test_step_forget = check("12.3", lead=(3, 2))(visible.test_step_forget)
test_step_again = check("12.3", points=2)(visible.test_step_again)
test_step_lead = check("12.3", points=0.5, lead=[(), (3,)])(visible.test_step_lead)
test_step_positions = check("12.3", lead=(3,))(visible.test_step_positions)
test_step_gradients = check("12.3", lead=(3, 2))(visible.test_step_gradients)

test_prepare = check("12.4", points=3, heads=[(1, 3), (3, 3), (2, 6)],
    batch=3)(visible.test_prepare)  # fmt: skip
test_prepare_small = check("12.4", points=0.5, scale=0.0005, sizes=(9,
    2))(visible.test_prepare_small)  # fmt: skip
test_prepare_half = check("12.4", points=0.5, dtype=[BF16, F16])(visible.test_prepare_half)
test_rule = check(
    "12.4", "{length} tokens, {heads} key and value heads, no state before",
    points=4, start=False, sizes=(3, 6),
    cases=rows("length, heads", (1, (1, 1)), (9, (3, 3)), (6, (1, 4)), (12, (2, 6))),
)(rule_call)  # fmt: skip
test_rule_start = check("12.4", points=5, length=[1, 8], heads=(2, 6), batch=[3,
    1])(visible.test_rule_start)  # fmt: skip
test_rule_half = check("12.4", dtype=[BF16, F16], length=7)(visible.test_rule_half)
test_rule_gradients = check("12.4", length=7, sizes=(5, 3))(visible.test_rule_gradients)

test_chunks = loose(
    "12.5", "{length} tokens in chunks of {chunk}, after a state",
    points=4, symbol=CHUNKS["symbol"], sizes=(5, 3),
    cases=rows("length, chunk", (1, 8), (8, 8), (17, 8), (20, 5), (7, 64), (5, 1)),
)(rule_call)  # fmt: skip
test_chunks_fresh = loose(
    "12.5", "{length} tokens in chunks of {chunk}, no state before",
    points=2, symbol=CHUNKS["symbol"], start=False, heads=(1, 3),
    cases=rows("length, chunk", (6, 6), (13, 4)),
)(rule_call)  # fmt: skip
test_chunk_operations = loose("12.5", points=9, start=False)(visible.test_chunk_operations)
test_chunk_size = loose("12.5", points=0.5, chunk=3)(visible.test_chunk_size)
test_chunk_default = loose("12.5", length=131)(visible.test_chunk_default)
test_chunk_half = check(
    "12.5", "{dtype} in and out, the state in float32", dtype=[BF16, F16], chunk=4, **CHUNKS
)(rule_call)
test_chunk_strong_decay = loose("12.5", length=50)(visible.test_chunk_strong_decay)
test_chunk_gradients = loose("12.5", chunk=[3, 16])(visible.test_chunk_gradients)

test_gated_norm = check("12.6", size=[5, 16])(visible.test_gated_norm)
test_gated_norm_eps = check(
    "12.6", points=0.5, cases=rows("eps, scale", (0.5, 0.7), (1e-5, 1e-3))
)(visible.test_gated_norm_eps)
test_gated_norm_digits = check("12.6", points=0.5, dtype=[BF16, F16], shape=(5,
    6))(visible.test_gated_norm_digits)  # fmt: skip
test_gated_norm_large = check("12.6", points=0.5, scale=[300.0,
    900.0])(visible.test_gated_norm_large)  # fmt: skip
test_net = loose(
    "12.6", "{keys} key heads, {values} value heads, a convolution {width} wide",
    points=3, length=7, sizes=(4, 3),
    cases=rows("keys, values, width", (1, 1, 4), (2, 6, 3), (3, 3, 5), (2, 4, 2)),
)(net_call)  # fmt: skip
test_net_short = loose("12.6", length=[1, 2, 3], batch=3)(visible.test_net_short)
test_net_half = check("12.6", points=0.5, before=[False, True])(visible.test_net_half)
test_net_decode = loose(
    "12.6", points=4, cases=rows("keys, values, width", (2, 6, 4), (1, 2, 3))
)(visible.test_net_decode)
test_net_goes_on = loose("12.6", points=4, length=[2, 6], keys=3,
    values=6)(visible.test_net_goes_on)  # fmt: skip
test_net_eps = loose(
    "12.6", "small numbers, where the norm's eps counts", points=0.5, eps=0.05
)(net_call)
test_net_rule = loose("12.6", points=2, before=[False, True], length=3)(visible.test_net_rule)
test_net_g = check("12.6", points=0.5, values=6)(visible.test_net_g)
test_net_padding = loose("12.6", points=0.5, values=6, mask=[*PADDED, ("00011",
    "01111")])(visible.test_net_padding)  # fmt: skip
test_net_padding_later = loose("12.6", points=0.5, keys=3, values=6,
    mask=PADDED)(visible.test_net_padding_later)  # fmt: skip
test_net_padding_half = check("12.6", points=0.5, mask=("00011",
    "01111"))(visible.test_net_padding_half)  # fmt: skip
test_net_causality = loose("12.6", length=6, again=4)(visible.test_net_causality)
test_net_gradients = loose("12.6", length=6, values=6)(visible.test_net_gradients)
test_net_strided = loose("12.6", STRIDED, points=0.5)(strided(net_call))

test_shared_names = check("12.7", points=0.5)(visible.test_shared_names)
test_shared = check("12.7", "{experts} experts, {top_k} per token, sizes {sizes}", points=3,
    shape=(2, 4, 6), cases=rows("experts, top_k, sizes", (3, 3, (4, 4)), (5, 2, (3, 9))),
)(visible.test_shared)  # fmt: skip
test_shared_one = check("12.7", experts=6)(visible.test_shared_one)
test_shared_half = check("12.7", points=0.5, dtype=[BF16, F16])(visible.test_shared_half)
test_shared_gradients = check("12.7", experts=3, sizes=(4, 3))(visible.test_shared_gradients)
test_shared_strided = check("12.7", STRIDED, points=0.5)(strided(shared_call))
test_web_window = check("12.8", more=[1, 6])(visible.test_web_window)
test_web_step = check("12.9", lead=[(), (4,)])(visible.test_web_step)
test_web_convolution = check("12.10", width=[3, 5])(visible.test_web_convolution)
