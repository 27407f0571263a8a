"""Hidden checks of lab 13: fresh numbers, other sizes, dtypes, marks and settings."""

from visible import test_thinking as visible
from visible.test_thinking import CLOSE, END, ENDS, F16, F32, LONG, NEVER, OPEN, SHORT

from labkit.checks.declared import Call, check, rows

test_fuse = check("13.1", points=2, size=[(1, 6, 1), (4, 2, 3)])(visible.test_fuse)
test_fuse_batch = check("13.1", points=3, sizes=[
    ((2, 7, 1), (6, 1, 1), (3, 3, 4)), ((5, 0, 1), (1, 2, 5)),
])(visible.test_fuse_batch)  # fmt: skip
test_fuse_pad = check("13.1", pad=[7, 15, 0], sizes=((3, 6, 1), (5, 1, 1)))(
    visible.test_fuse_pad
)
test_fuse_marks = check("13.1", "other marks", marks={
    "think_flag": 5, "no_think_flag": 6, "open_think": 9, "close_think": 21, "eos_token_id": 3,
}, sizes=((2, 2, 2), (3, 1, 1)))(visible.test_fuse_batch)  # fmt: skip
test_fuse_empty = check("13.1", points=0.5, size=[(0, 2, 1), (1, 0, 2)])(
    visible.test_fuse_empty
)
test_fuse_positions = check("13.1", points=0.5)(visible.test_fuse_positions)
test_fuse_counts = check("13.1", points=0.5, short=[0])(visible.test_fuse_counts)


def thought(rng, length, behind=3):
    """A text that opens, thinks `length` tokens, closes, and answers; none is a mark."""
    inside, answer = (rng.integers(1, 9, size).tolist() for size in (length, behind))
    return (OPEN, *inside, CLOSE, *answer, END)


def drawn_call(rng, lengths, late=(), **inputs):
    """Thoughts of these lengths; those of rows in `late` begin a few tokens later."""
    scripts = [thought(rng, length) for length in lengths]
    scripts = [(*([3] * 2 * (n in late)), *script) for n, script in enumerate(scripts)]
    return visible.budget_call(rng, *scripts, **inputs)


test_budget_one = check("13.2", "a thought of {lengths} tokens, budget {budget}", points=2,
    lengths=[(6,)], budget=[0, 2, 4, 5])(drawn_call)  # fmt: skip
test_budget_enough = check("13.2", "thoughts of {lengths} tokens, budget {budget}",
    lengths=[(4, 1, 0)], budget=[4, 7, None])(drawn_call)  # fmt: skip
test_budget_rows = check(
    "13.2", "a batch of thoughts of {lengths} tokens, some begin later, budget {budget}",
    points=3, lengths=[(7, 2, 5, 0, 3)], late=[(), (0, 3), (1, 2)], budget=[0, 1, 3],
)(drawn_call)  # fmt: skip
test_budget_kinds = check("13.2", points=1.5, budget=[1, 2, 4], scripts=[
    (NEVER, LONG, ENDS), (ENDS, SHORT, LONG, NEVER)])(visible.test_budget_rows)  # fmt: skip
test_budget_closing = check("13.2", points=2, budget=[1, 3], new=15, closing=[
    [2, 3, CLOSE], [CLOSE, 1], [4, CLOSE, CLOSE, 5]])(visible.test_budget_closing)  # fmt: skip
test_budget_short = check("13.2", "max_new_tokens {new} ends everything, forced or not",
    scripts=(LONG, SHORT), budget=2, closing=[[1, 2, CLOSE, 3]], new=[1, 4, 5],
)(visible.scripted)  # fmt: skip
test_budget_opened = check("13.2", points=2, budget=[0, 3])(visible.test_budget_opened)
test_budget_again = check("13.2", budget=[0, 1, 3])(visible.test_budget_again)
test_budget_work = check("13.2", points=0.5, budget=[1])(visible.test_budget_work)
test_budget_padded = check("13.2", lengths=[(2, 6), (1, 4, 4, 7)], budget=[0, 1, 3], new=[12])(
    visible.test_budget_padded
)
test_budget_drawn = check("13.2", temperature=[0.6, 1.5], budget=[2], new=[10])(
    visible.test_budget_drawn
)
test_budget_end = check(
    "13.2", "a stop token within what is forced ends the row", points=0.5, budget=1,
    closing=[[4, END, CLOSE]], scripts=(LONG, SHORT),
)(visible.scripted)  # fmt: skip
test_budget_pad = check(
    "13.2", "padded with {pad_token_id}, a mark", points=0.5, pad_token_id=[OPEN, CLOSE],
    budget=2, scripts=(ENDS, LONG, SHORT), new=14,
)(visible.scripted)  # fmt: skip
test_budget_positions = check("13.2", points=0.5, budget=[1])(visible.test_budget_positions)
test_budget_refused = check("13.2", points=0.5, cases=rows("budget, closing", (-2, None),
    (1, [3])))(visible.test_budget_refused)  # fmt: skip

test_vote = check("13.3", points=2, answers=[(2, 2, 9, 2), (7, 1, 1, 6, 7, 1), (4,)])(
    visible.test_vote
)
test_vote_tie = check("13.3", answers=[(6, 2, 2, 6), (1, 3), (9, 5, 5, 2, 2)])(
    visible.test_vote_tie
)
test_vote_none = check("13.3", answers=[(None, 5, None, 5), (None,), (4, None, None, 2)])(
    visible.test_vote_none
)
test_vote_zero = check("13.3", points=0.5, answers=[(3, 0, 0), (0, 4)])(visible.test_vote_zero)
test_best = check("13.3", answers=[(2, 5, 2)], scores=[(0.1, 0.3, 0.2), (-1.0, -1.0, -3.0)])(
    visible.test_best
)


@check("13.3", points=2, count=[5, 8], shift=[0.0, -2.0])
def test_best_weighted(rng, count, shift):
    """best_of_n with answer_of: {count} texts, scores around {shift}"""
    answers = rng.integers(1, 4, count).tolist()
    scores = (rng.integers(1, 60, count) / 64 + shift).tolist()
    return visible.best_call(rng, answers, scores)


test_best_weighted_none = check(
    "13.3", cases=rows("answers, scores", ((None, 6, None, 6), (0.75, 0.25, 0.875, 0.125)),
                       ((3, None, 2), (-0.5, 2.0, -0.25)), ((2, 0, 0), (0.75, 0.5, 0.5))),
)(visible.test_best_weighted)  # fmt: skip
test_best_none = check("13.3", points=0.5, answers=(None, None, None), scores=(0.5, 0.75,
    0.25))(visible.test_best_none)  # fmt: skip
test_best_empty = check("13.3", points=0.5)(visible.test_best_empty)
test_pass = check("13.3", points=2, correct=None, questions=[7], cases=rows("n, k", (6, 1),
    (8, 3), (16, 16), (20, 7), (40, 25)))(visible.test_pass)  # fmt: skip
test_pass_large = check(
    "13.3", "pass_at_k, n {n}, k {k}", tolerance=1e-6, correct=None,
    cases=rows("n, k", (10_000, 500), (5_000, 2), (3_000, 2_999)),
)(visible.test_pass_large)  # fmt: skip
test_pass_edges = check("13.3", "pass_at_k: {correct} of {n} right, k {k}", tolerance=1e-9,
    n=6, k=[1, 3, 6], correct=(0, 6, 5))(visible.pass_call)  # fmt: skip
test_pass_refused = check("13.3", points=0.5, cases=rows("n, k, correct", (3, 4, (1,)),
    (3, 1, (4, 0)), (5, -1, (2,))))(visible.test_pass_refused)  # fmt: skip

test_distill = check("13.4", points=3, shape=[(1, 4, 5), (3, 1, 30)])(visible.test_distill)
test_distill_equal = check("13.4", points=0.5, shape=[(1, 2, 9)])(visible.test_distill_equal)
test_distill_temperature = check("13.4", points=2, direction=["forward", "reverse"],
    cases=[{"temperature": 0.7}, {"temperature": 3.0}])(
    visible.test_distill_temperature)  # fmt: skip
test_distill_top = check("13.4", points=2, direction=["forward", "reverse"],
    cases=[{"top_k": 1}, {"top_k": 4}, {"top_k": 99}], shape=[(2, 2, 11)])(
    visible.test_distill_top)  # fmt: skip
test_distill_top_warm = check(
    "13.4", "{direction} over the teacher's top_k {top_k} at temperature {temperature}",
    direction=["forward", "reverse"], top_k=3, temperature=2.0, masked=((1, 1),),
)(visible.distill_call)  # fmt: skip
test_distill_mask = check("13.4", points=1.5, masked=[((0, 0), (0, 1), (0, 2)), ((1, 2),)])(
    visible.test_distill_mask
)
test_distill_bad = check("13.4", cases=rows("direction, bad", ("reverse", float("inf")),
    ("forward", float("nan"))))(visible.test_distill_bad)  # fmt: skip
test_distill_none = check("13.4", points=0.5, direction=["reverse"], top_k=[None, 2])(
    visible.test_distill_none
)
test_distill_large = check("13.4", points=1.5, scale=[3000.0], cases=rows("direction, dtype",
    ("reverse", F16), ("forward", F32)))(visible.test_distill_large)  # fmt: skip
test_distill_gradients = check("13.4", points=0.5, top_k=[None, 3], temperature=[1.5])(
    visible.test_distill_gradients
)
test_distill_unknown = check("13.4", points=0.5, direction="jensen")(
    visible.test_distill_unknown
)

test_policy = check("13.5", points=2, lengths=[(2, 6, 3), (4, 4)])(visible.test_policy)
test_policy_one = check("13.5", lengths=[(1,)], new=[5])(visible.test_policy_one)
test_policy_pad = check("13.5", pad_token_id=[4])(visible.test_policy_pad)
test_policy_settings = check("13.5", points=2, lengths=[(5, 2)], settings=[
    {"direction": "forward", "top_k": 5}, {"top_k": 2}, {"temperature": 0.2},
    {"max_grad_norm": 0.02},
])(visible.test_policy_settings)  # fmt: skip
test_policy_two = check("13.5", new=[6])(visible.test_policy_two)

test_paired = check("13.6", points=3, cases=rows("count, kind", (20, "right"), (31, "scores"),
    (8, "bool")))(visible.test_paired)  # fmt: skip
test_paired_two = check("13.6", points=0.5)(visible.test_paired_two)
test_paired_level = check("13.6", level=[0.8, 0.99], resamples=[400])(visible.test_paired_level)
test_paired_defaults = check("13.6", points=0.5, count=[25])(visible.test_paired_defaults)
test_paired_refused = check("13.6", points=0.5, counts=[(2, 5), (0, 0)])(
    visible.test_paired_refused
)


@check("13.6", points=0.5)
def test_paired_shape(rng):
    """scores that are not one row raise ValueError"""
    call = visible.paired_call(rng)
    scores = {"first": rng.normal(2, 3), "second": rng.normal(2, 3)}
    return call.then("", **call.steps[0][1] | scores)


@check("13.6", points=2, z=[1.96, 2.81])
def test_needed(rng, z, count=4):
    """questions_needed for drawn shares, z {z}"""
    call = Call("questions_needed")
    for _ in range(count):
        difference = float(rng.integers(1, 20)) / 100
        disagreement = difference + float(rng.integers(0, 40)) / 100
        call.then("", difference=difference, disagreement=disagreement, z=z)
    return call


test_needed_whole = check("13.6", points=0.5, cases=rows("z, difference, disagreement",
    (1.0, 0.25, 0.25)))(visible.test_needed_whole)  # fmt: skip
test_needed_sign = check("13.6", points=0.5, cases=rows("difference, disagreement",
    (-0.03, 0.2), (-0.5, 0.5), (1.0, 1.0)))(visible.test_needed)  # fmt: skip
test_needed_refused = check("13.6", points=0.5, cases=rows("difference, disagreement",
    (0.0, 0.1), (0.2, 0.1), (-0.7, 0.5)))(visible.test_needed_refused)  # fmt: skip
test_web_confidence = check("13.7", lengths=[(2, 9), (6, 1, 4)])(visible.test_web_confidence)
