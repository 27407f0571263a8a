"""Hidden checks of lab 07: other chunks, other sizes, distributions instead of draws."""

from math import inf

import torch
from visible import test_generation as visible
from visible.test_generation import check_sampling, generate_call, repeated, sample_call, seeded

from labkit.checks.declared import STRIDED, check, strided

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
SIZES = {"layers": [3], "max_length": [7], "shape": [(3, 2, 6)]}

test_chunks = check(
    "7.1", chunks=[(7,), (1, 1, 1, 1), (4, 3), (2, 1, 3), (1, 6)], layer=[1], **SIZES
)(visible.test_cache_chunks)
test_layers = check(
    "7.1", points=2, shape=[(1, 1, 3), (4, 1, 5), (2, 4, 8)], chunks=[(3, 1, 2)], layers=[3]
)(visible.test_cache_layers)
test_length = check("7.1", chunks=[(4, 1, 2)], **SIZES)(visible.test_cache_length)
test_length_within = check("7.1", order=[(0, 1, 2), (2, 1, 0), (1, 2, 0)],
    **SIZES)(visible.test_cache_length_within)  # fmt: skip
test_forms = check(
    "7.1", cases=[{"dtype": d, "wider": w} for d, w in ((BF16, 0), (F16, 0), (F32, 4))],
    shape=[(2, 1, 3)],
)(visible.test_cache_forms)  # fmt: skip
test_room = check("7.1", points=2, view=visible.room_sizes, tokens=[1, 5],
    max_length=[11])(visible.test_cache_room)  # fmt: skip
test_cache_positions = check("7.1", **SIZES)(visible.test_cache_positions)
test_refusal = check("7.1", steps=[((0, 4), (0, 3), (0, 1)), ((0, 2), (0, 2, 1))],
    **SIZES)(visible.test_cache_refusal)  # fmt: skip
test_cache_strided = check("7.1", STRIDED)(
    strided(lambda rng: visible.cache_call(rng, (0, 3), (0, 2)))
)

EVEN = (0.24, 0.21, 0.18, 0.15, 0.1, 0.08, 0.04)
STEEP = (0.55, 0.2, 0.1, 0.08, 0.07)
HEAD = (0.33, 0.25, 0.09, 0.08, 0.075, 0.07, 0.06, 0.045)
SCORES = (1.8, 1.65, 1.5, 1.3, 0.9, 0.7, 0.0)

test_best = check_sampling(
    settings=[{"temperature": 0.0, "top_k": 3, "top_p": 0.7}], shape=[(1, 3), (6, 50), (33, 7)],
    cases=[{"gap": 0.01}, {"gap": 2e-6, "level": 0.0}],
)(visible.test_sample_best)  # fmt: skip
test_determined = check_sampling(settings=[{"top_k": 1}, {"temperature": 1e-6}],
    gap=[1.0])(visible.test_sample_best)  # fmt: skip
CUT = {"temperature": 1.7, "top_k": 4, "top_p": 0.9}
test_many = check_sampling(size=[75])(visible.test_sample_many)
test_certain = check_sampling(cases=[
    *({"shape": (1, 9), "settings": cut} for cut in ({}, {"top_k": 1}, {"top_p": 0.01})),
    {"shape": (6, 5000), "settings": {"temperature": 0.0}},
    {"shape": (6, 5000), "settings": {"top_k": 2, "top_p": 0.6}},
    *({"shape": (9, 5), "settings": CUT, "ahead": inf, "dtype": half} for half in (BF16, F16)),
])(visible.test_sample_certain)  # fmt: skip
test_drawn = check_sampling(cases=[
    *({"probs": EVEN, "settings": {"top_k": k}} for k in (2, 4, 7, 30)),
    *({"probs": EVEN, "settings": {"top_p": p}} for p in (0.01, 0.5, 0.7, 0.95, 1.0)),
    *({"probs": STEEP, "settings": {"temperature": t, "top_p": p}}
      for t, p in ((0.5, 0.9), (2.5, 0.6))),
    *({"probs": STEEP, "settings": {"temperature": 0.8, "top_p": 0.85}, "dtype": dtype}
      for dtype in (BF16, F16)),
    *({"probs": HEAD, "settings": {"top_k": k, "top_p": p}}
      for k, p in ((3, 0.85), (5, 0.69), (4, 0.76))),
    {"probs": (0.28, 0.28, 0.28, 0.08, 0.08), "settings": {"top_p": 0.7}},
    {"probs": (0.5, 0.25, 0.25), "settings": {"top_k": 3, "top_p": 0.5}, "shift": 0.0},
    *({"probs": (p, 0.2, 0.16, 0.64 - p), "settings": {"top_p": top_p}}
      for p, top_p in ((0.499, 0.4988), (0.4983, 0.4987))),
])(visible.test_sample_drawn)  # fmt: skip
test_rows = check_sampling(
    points=2, cut=[{"top_k": 2}, {"top_p": 0.65}, {"top_k": 4, "top_p": 0.6}], temperature=[0.9]
)(visible.test_sample_rows)
test_cold = check_sampling(temperature=[0.0005], size=[6], top_k=[3])(visible.test_sample_cold)
test_bfloat16 = check_sampling(top_p=[0.691], scores=[(1.625, 1.375, 1.0,
    0.25)])(visible.test_sample_bfloat16)  # fmt: skip
PLAIN = {"size": [30], "temperature": [1.2], "top_p": [0.99]}
test_sample_generator = check_sampling(points=2, **PLAIN)(visible.test_sample_generator)
test_sample_no_generator = check_sampling(**PLAIN)(visible.test_sample_no_generator)
test_sample_positions = check_sampling(probs=[EVEN], top_k=[5])(visible.test_sample_positions)
test_impossible = check_sampling()(visible.test_sample_impossible)
test_logits_kept = check("7.2", temperature=[1.3])(visible.test_sample_logits_kept)
test_frequencies = check_sampling(points=2, draws=[2500], cases=[
    {"scores": SCORES, "settings": {}},
    {"scores": (0.92, 0.86, 0.85, 0.8), "settings": {"temperature": 0.05}},
    {"scores": SCORES, "settings": {"temperature": 3.0}},
    {"scores": (90000.0, 90000.5, 90001.0), "settings": {}},
    *({"scores": SCORES, "settings": cut, "kept": 3} for cut in ({"top_k": 3}, {"top_p": 0.6})),
])(visible.test_sample_frequencies)  # fmt: skip
test_frequencies_of_bfloat16 = check_sampling(
    scores=[(128.0, 129.0, 130.0, 131.0)], settings=[{"temperature": 1.3}], dtype=[BF16]
)(visible.test_sample_frequencies)
test_sample_strided = check_sampling(STRIDED, temperature=0.7)(
    strided(
        lambda rng, temperature: sample_call(
            rng, rng.normal(20, 9), top_k=1, temperature=temperature
        )
    )
)

LINE = ((4, 8, 5, 6, 7, 5),)
ROWS = ((4, 8, 6, 7, 5, 4, 3), (6, 5, 7, 4, 6, 3, 2), (4, 11, 8, 7, 4, 6, 1))

test_greedy = check("7.3", points=7 / 8, use_cache=[True, False], cases=[
    {"rows": rows, "tokens": tokens, "new": new}
    for rows, tokens, new in ((1, 1, 1), (3, 7, 9), (2, 2, 12), (1, 252, 4))
])(visible.test_generate_greedy)  # fmt: skip
test_defaults = check(
    "7.3", script=[((4, 8, 11, 6, 5, 7), (5, 8, 7, 4, 11, 6), (6, 1, 2, 3, 4, 5))]
)(visible.test_generate_defaults)
test_work = check("7.3", points=2, use_cache=[True, False], tokens=[6],
    new=[7])(visible.test_generate_work)  # fmt: skip
test_padded = check(
    "7.3", points=2.5, use_cache=[True, False], padding=[(4, 0, 2, 5)], tokens=[6], new=[7]
)(visible.test_generate_padded)
test_two = check("7.3", rows=[2])(visible.test_generate_two)
test_stop = check("7.3", padding=[13], cases=[
    *({"script": LINE, "stops": stops} for stops in (6, [6], (11, 6), (6, 11), (1, 6, 12))),
    *({"script": ((stop, 5, 7, 8),), "stops": stop} for stop in (6, 0)),
])(visible.test_generate_stop)  # fmt: skip
test_stop_of_rows = check("7.3", points=2, script=[ROWS], cases=[
    {"stops": stops, "padding": padding}
    for stops, padding in ((6, 13), ((6, 11), 13), ((6, 11), 11))
])(visible.test_generate_stop)  # fmt: skip
test_no_stop = check("7.3", script=[(4, 5, 7, 8, 1)])(visible.test_generate_no_stop)
test_many_tokens = check(
    "7.3", vocab=[5000], script=[((2049, 5, 4097, 6, 1), (4097, 2049, 2, 6, 8))], stops=[(6, 7)]
)(visible.test_generate_many_tokens)
test_on_token = check("7.3", use_cache=[True, False],
    script=[ROWS])(visible.test_generate_on_token)  # fmt: skip
test_at_once = check("7.3", script=[(4, 8, 5, 7, 3)], heard=[3])(visible.test_generate_at_once)
test_settings = check(
    "7.3", settings=[{"top_k": 3}, {"top_p": 0.6}, {"top_p": 0.8, "temperature": 0.5}, {}]
)(visible.test_generate_settings)
test_generator = check("7.3", rows=[10])(visible.test_generate_generator)
test_generator_goes_on = check("7.3", probs=[(0.28, 0.26, 0.24, 0.22)],
    use_cache=[False])(visible.test_generate_generator_goes_on)  # fmt: skip
test_no_generator = check("7.3", rows=[6], new=[5])(visible.test_generate_no_generator)
test_positions = check(
    "7.3", script=[(4, 5, 8, 7, 6)], pad_token_id=[2], generator=[None], use_cache=[True]
)(visible.test_generate_positions)
test_refused = check("7.3")(visible.test_generate_refused)


@check("7.3")
def test_generate_both_alike(rng):
    """draws with the cache equal those without"""
    settings = {"temperature": 1.3, "top_k": 15, "top_p": 0.97, "generator": seeded(rng)}
    call = generate_call(rng, 3, 5, 5, **settings)
    again = {**call.steps[0][1], "use_cache": False}
    return repeated(call.then("", **again))


test_web_top_p = check("7.4", sure=[0.92, 0.99])(visible.test_web_top_p)
