"""Visible checks of lab 13: what check("13.1") and its sisters run."""

import torch

from labkit.checks.declared import Call, Given, check, rows

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
VOCAB = 23
MARKS = {
    "think_flag": 20, "no_think_flag": 21, "open_think": 7, "close_think": 8, "eos_token_id": 9,
}  # fmt: skip


def fuse_call(rng, *sizes, pad=None, marks=MARKS, **options):
    """Questions of so many tokens of prompt, thought and answer each."""
    draw = lambda size: rng.integers(10, 20, size).tolist()  # noqa: E731
    parts = [[draw(size) for size in column] for column in zip(*sizes, strict=True)]
    inputs = dict(zip(("prompts", "thoughts", "answers"), parts, strict=True)) | marks
    if pad is not None:
        inputs["pad_token_id"] = pad
    call = Call("fuse_modes", **inputs, **options)
    return call.returning("input_ids", "attention_mask", "labels")


test_fuse = check("13.1", "one question, both modes: tokens, mask and labels", points=2)(
    lambda rng, size=(3, 4, 2): fuse_call(rng, size)
)
test_fuse_batch = check(
    "13.1", "questions of different lengths (prompt, thought, answer): {sizes}", points=2,
    sizes=[((3, 4, 1), (5, 2, 2))],
)(lambda rng, sizes, **more: fuse_call(rng, *sizes, **more))  # fmt: skip
test_fuse_pad = check(
    "13.1", "padded with token {pad}, which occurs in the texts", pad=[9, 20],
    sizes=((2, 5, 1), (4, 1, 3)),
)(lambda rng, sizes, **more: fuse_call(rng, *sizes, **more))  # fmt: skip
test_fuse_empty = check(
    "13.1", "empty parts (prompt, thought, answer): {size}", points=0.5,
    size=[(0, 3, 1), (3, 0, 1), (2, 2, 0)],
)(lambda rng, size: fuse_call(rng, size))  # fmt: skip
test_fuse_positions = check("13.1", "arguments by position", points=0.5, by_position=True)(
    lambda rng, sizes=((2, 3, 1), (1, 1, 1)), **more: fuse_call(rng, *sizes, pad=3, **more)
)


@check("13.1", points=0.5)
def test_fuse_counts(rng, short=1):
    """a question without an answer raises ValueError"""
    call = fuse_call(rng, (3, 2, 1), (2, 2, 1))
    inputs = call.steps[0][1]
    return call.then("", **{**inputs, "answers": inputs["answers"][:short]})


OPEN, CLOSE, END, PAD = 10, 11, 12, 13


def write(*scripts, vocab=15, **options):
    """A model that writes these tokens after a prompt of three, unless it is forced."""
    longest = max(map(len, scripts))
    full = [[0, 0, 0, *script, *[END] * (longest - len(script))] for script in scripts]
    table = 20.0 * torch.nn.functional.one_hot(torch.tensor(full), vocab).float()
    return Given("generation.Scripted", script=table, **options)


def budget_call(rng, *scripts, prompts=None, new=None, count_work=False, **inputs):
    given = {
        "input_ids": rng.integers(1, 9, len(scripts), 3), "open_think": OPEN,
        "close_think": CLOSE, "eos_token_id": [END], "pad_token_id": PAD,
        "max_new_tokens": new or max(map(len, scripts)),
    }  # fmt: skip
    if prompts is not None:
        given["input_ids"] = torch.tensor(prompts)
    inputs = {name: v for name, v in (given | inputs).items() if v is not None}
    model = write(*scripts, count_work=count_work)
    return Call("generate_with_budget", model=model, **inputs)


LONG = (OPEN, 1, 2, 3, 4, 5, CLOSE, 6, END)
SHORT = (OPEN, 1, CLOSE, 6, 7, 8, END)
EXACT = (OPEN, 4, 5, CLOSE, 6, 2, END)
LATE = (3, OPEN, 1, 2, 3, 4, CLOSE, 5, END)
NEVER = (3, 4, 5, 6, 7, 8, END)
ENDS = (OPEN, 4, END)
scripted = lambda rng, scripts, **inputs: budget_call(rng, *scripts, **inputs)  # noqa: E731

test_budget_one = check(
    "13.2", "one text whose thought has 5 tokens, budget {budget}", points=2, budget=[3, 1, 0],
    scripts=(LONG,),
)(scripted)  # fmt: skip
test_budget_enough = check(
    "13.2", "thoughts of 5 tokens and of 1, budget {budget}: nothing is forced",
    budget=[5, 9, None], scripts=(LONG, SHORT),
)(scripted)  # fmt: skip
test_budget_rows = check(
    "13.2", "a batch: thoughts long, short, late, none, and one that ends; budget {budget}",
    points=2, budget=[2, 3], scripts=(LONG, SHORT, LATE, NEVER, ENDS),
)(scripted)  # fmt: skip
test_budget_closing = check(
    "13.2", "the closing is several tokens: {closing}", points=1.5, budget=2, new=14,
    closing=[[1, CLOSE], [CLOSE, 2, 2], [7, 8, CLOSE, 1], [4, END, CLOSE]],
    scripts=(LONG, EXACT, LATE, ENDS),
)(scripted)  # fmt: skip
test_budget_stop = check(
    "13.2", "the model would end its turn at the budget: what is written counts", budget=2,
    points=0.5, scripts=((OPEN, 1, 2, END, 5, 6, END),),
)(scripted)  # fmt: skip
test_budget_opened = check(
    "13.2", "the prompt ends with open_think, or holds it earlier", budget=2, points=1.5,
    prompts=((1, 2, OPEN), (1, OPEN, 2), (OPEN, CLOSE, 3)),
    scripts=((1, 2, 3, 4, 5, CLOSE, 6), (1, 2, 3, 4, 5, 6, 7), (1, 2, 3, 4, 5, 6, 7)),
)(scripted)  # fmt: skip
test_budget_again = check(
    "13.2", "a row has one thought: a second open_think is a token like any other", budget=2,
    scripts=((OPEN, 1, CLOSE, OPEN, 1, 2, 3, 4, END), (OPEN, 1, 2, 3, OPEN, 4, 5, 6, END)),
)(scripted)  # fmt: skip
test_budget_work = check(
    "13.2", "the model is run on each token once, without gradients", points=0.5,
    scripts=(LONG,), budget=2, count_work=True,
)(scripted)  # fmt: skip


def padded_call(rng, lengths=(3, 5, 1), new=8, budget=2, temperature=0.0, **inputs):
    """A model whose every word depends on all before it; it opens a thought now and then."""
    longest = max(lengths)
    mask = (torch.arange(longest) >= longest - torch.tensor(lengths)[:, None]).long()
    ids = rng.integers(0, VOCAB, *mask.shape)
    ids[0, -1] = 7
    given = {"open_think": 7, "close_think": 8, "closing": [3, 8], "eos_token_id": [9]}
    if temperature:
        given["generator"] = Given("generation.seeded", seed=int(rng.integers(1, 1000)))
        given["temperature"] = temperature
    return Call(
        "generate_with_budget", model=Given("generation.TinyDecoder", seed=4), input_ids=ids,
        attention_mask=mask, budget=budget, max_new_tokens=new, **given, **inputs,
    )  # fmt: skip


test_budget_padded = check("13.2", "prompts of different lengths, padded on the left")(
    padded_call
)
test_budget_drawn = check(
    "13.2", "prompts of {lengths} tokens, drawn at temperature {temperature}", points=0.5,
    temperature=[0.9], cases=rows("lengths, budget", ((3, 5, 1), 2), ((3,), 0)),
)(padded_call)  # fmt: skip
test_budget_positions = check(
    "13.2", "arguments by position: budget, max_new_tokens, the marks, closing", points=0.5
)(
    lambda rng, budget=2: Call(
        "generate_with_budget", by_position=True, model=write(LONG),
        input_ids=rng.integers(1, 9, 1, 3), attention_mask=torch.ones(1, 3).long(),
        budget=budget, max_new_tokens=7, open_think=OPEN, close_think=CLOSE, closing=[1, CLOSE],
    )
)  # fmt: skip


@check("13.2", points=0.5, cases=rows("budget, closing", (-1, None), (2, [1, 2])))
def test_budget_refused(rng, budget, closing):
    """budget {budget}, closing {closing} raises ValueError"""
    call = budget_call(rng, SHORT, budget=3)
    return call.then("", **call.steps[0][1] | {"budget": budget, "closing": closing})


def text(rng, answer, length=4):
    """Some steps, and an answer behind the mark; None leaves the mark out."""
    steps = rng.integers(10, VOCAB, length).tolist()
    return steps if answer is None else [*steps, 8, answer]


def vote_call(rng, answers, lengths=(2, 4, 1, 3)):
    texts = [text(rng, answer, lengths[n % len(lengths)]) for n, answer in enumerate(answers)]
    call = Call("majority_vote", texts=texts, answer_of=Given("thinking.Reader"))
    return call.returning("answer", "votes", "tie")


test_vote = check(
    "13.3", "majority_vote: texts that answer {answers}", points=2,
    answers=[(3, 5, 3, 4, 3), (5, 3, 3, 4)],
)(vote_call)  # fmt: skip
test_vote_tie = check(
    "13.3", "majority_vote with a tie: {answers}", answers=[(5, 3, 3, 5, 4), (4, 2, 1)]
)(vote_call)
test_vote_none = check(
    "13.3", "majority_vote where texts have no answer: {answers}",
    answers=[(None, None, 3, None, 4, 3), (None, None), ()],
)(vote_call)  # fmt: skip
test_vote_zero = check("13.3", "majority_vote: 0 is an answer: {answers}", points=0.5,
    answers=(0, 1, 0))(vote_call)  # fmt: skip


def best_call(rng, answers, scores, weighted=True, order=None):
    """Texts that end in their own number, from which the verifier knows their score."""
    texts = [[*text(rng, answer), n] for n, answer in enumerate(answers)]
    given = {"texts": texts, "score": Given("thinking.Scorer", worth=list(scores))}
    if weighted:
        given["answer_of"] = Given("thinking.Reader")
    return Call("best_of_n", **given)


test_best = check(
    "13.3", "best_of_n: scores {scores}", weighted=False, answers=(3, 4, 5, 3),
    scores=[(0.2, 0.9, 0.1, 0.5), (0.1, 0.7, 0.7, 0.2), (-3.0, -1.0, -2.0, -4.0)],
)(best_call)  # fmt: skip
test_best_weighted = check(
    "13.3", "best_of_n with answer_of: answers {answers}, scores {scores}", points=2,
    cases=rows("answers, scores", ((3, 4, 5, 3), (0.5, 0.75, 0.125, 0.5)),
               ((None, 4, 5, 4, None), (0.9, 0.25, 0.375, 0.25, 0.9)),
               ((6, 4, 4), (1.0, 0.5, 0.5)), ((4, 5, 4), (-1.0, -1.5, -1.0)),
               ((3, 4, 3), (0.25, 0.5, 0.75)), ((0, 4, 0), (0.5, 0.75, 0.5))),
)(best_call)  # fmt: skip
test_best_none = check(
    "13.3", "best_of_n with answer_of, no text has an answer", points=0.5,
    answers=(None, None), scores=(0.25, 0.5),
)(best_call)  # fmt: skip
test_best_empty = check("13.3", "best_of_n of no texts raises ValueError", points=0.5)(
    lambda rng: (call := best_call(rng, (3,), (0.5,))).then(
        "", **call.steps[0][1] | {"texts": []}
    )
)


def pass_call(rng, n, k, questions=6, correct=None):
    correct = rng.integers(0, n + 1, questions) if correct is None else torch.tensor(correct)
    return Call("pass_at_k", correct=correct, n=n, k=k)


def bad_pass_call(rng, n, k, correct):
    """A right call first, so that a stub fails by its own name."""
    call = pass_call(rng, n, 1, correct=(1,))
    return call.then("", correct=torch.tensor(correct), n=n, k=k)


test_pass = check(
    "13.3", "pass_at_k, n {n}, k {k}, right: {correct}", points=2, tolerance=1e-9,
    cases=rows("n, k, correct", (4, 1, (0, 1, 3, 4)), (10, 4, (1, 2, 5, 7)), (5, 5, (0, 1))),
)(pass_call)  # fmt: skip
test_pass_large = check(
    "13.3", "pass_at_k, n 10,000, k 500", tolerance=1e-6, n=10_000, k=500,
    correct=(0, 1, 20, 300, 9_400, 9_501, 10_000),
)(pass_call)  # fmt: skip
test_pass_refused = check(
    "13.3", "pass_at_k, n {n}, k {k}, right {correct} raises ValueError", points=0.5,
    cases=rows("n, k, correct", (4, 5, (1, 2)), (4, 0, (1, 2)), (4, 2, (5, 1)), (4, 2, (-1,))),
)(bad_pass_call)  # fmt: skip


def distill_call(
    rng, direction="forward", shape=(2, 3, 7), scale=1.0, dtype=F32, masked=(), bad=None,
    grad=("student_logits",), equal=False, first=None, **inputs
):  # fmt: skip
    """Logits of both, about 0.5 apart; where `masked` the mask is 0, and the logits `bad`."""
    teacher = scale * rng.normal(*shape)
    student = teacher.clone() if equal else scale * rng.normal(*shape)
    mask = torch.ones(shape[:2], dtype=torch.long)
    for place in masked:
        mask[place] = 0
        if bad is not None:
            student[place], teacher[place] = bad, bad
    given = {"student_logits": student.to(dtype), "teacher_logits": teacher.to(dtype)}
    return Call("distill_loss", **given, mask=mask, direction=direction, grad=grad, **inputs)


BOTH = ["forward", "reverse"]
test_distill = check("13.4", "{direction} KL over the whole vocabulary", points=2,
    direction=BOTH)(distill_call)  # fmt: skip
test_distill_equal = check("13.4", "{direction}: equal logits give 0", points=0.5,
    direction=BOTH, equal=True, grad=False)(distill_call)  # fmt: skip
test_distill_temperature = check(
    "13.4", "{direction}, temperature {temperature}",
    cases=rows("direction, temperature", ("forward", 2.0), ("reverse", 0.5)),
)(distill_call)  # fmt: skip
test_distill_top = check(
    "13.4", "{direction} over the teacher's top_k {top_k}", points=1.5,
    cases=rows("direction, top_k", ("forward", 3), ("reverse", 2), ("forward", 50)),
)(distill_call)  # fmt: skip
test_distill_mask = check(
    "13.4", "{direction}, masked tokens do not count", masked=((0, 2), (1, 0), (1, 1)),
    direction=BOTH,
)(distill_call)  # fmt: skip
test_distill_bad = check(
    "13.4", "{direction}, masked tokens have logits of {bad}", masked=((0, 2), (1, 0)),
    cases=rows("direction, bad", ("forward", float("-inf")), ("reverse", float("nan"))),
)(distill_call)  # fmt: skip
test_distill_none = check("13.4", "no token counts", points=0.5, shape=(1, 2, 5),
    masked=((0, 0), (0, 1)))(distill_call)  # fmt: skip
test_distill_large = check(
    "13.4", "{direction}, logits of thousands in {dtype}, temperature 0.1", scale=6000.0,
    cases=rows("direction, dtype", ("forward", F16), ("reverse", BF16)), temperature=0.1,
    grad=False,
)(distill_call)  # fmt: skip
test_distill_gradients = check(
    "13.4", "{direction}: gradients flow to student_logits alone", points=0.5, direction=BOTH,
    grad=("student_logits", "teacher_logits"), top_k=4,
)(distill_call)  # fmt: skip
test_distill_unknown = check("13.4", "an unknown direction is refused", points=0.5,
    direction="sideways")(lambda rng, direction: (call := distill_call(rng, grad=False)).then(
        "", **call.steps[0][1] | {"direction": direction}))  # fmt: skip

NEAR = 1e-3


def policy_call(rng, lengths=(3, 5), new=4, stops=(1, 2, 3, 4, 5), steps=1, **inputs):
    """on_policy_step on prompts of these lengths."""
    longest = max(lengths)
    mask = (torch.arange(longest) >= longest - torch.tensor(lengths)[:, None]).long()
    seed = int(rng.integers(0, 1000))
    call = Call("on_policy_step", objects=Given("thinking.school", seed=seed, used=steps > 1))
    for _ in range(steps):
        call.then(
            input_ids=rng.integers(6, VOCAB, *mask.shape), attention_mask=mask,
            max_new_tokens=new, eos_token_id=list(stops),
            generator=Given("generation.seeded", seed=int(rng.integers(1, 1000))),
            **{"max_grad_norm": 50.0, **inputs},
        )  # fmt: skip
    return call


test_policy = check(
    "13.5", "one step: loss, length, and what the student has learned", points=2,
    tolerance=NEAR,
)(policy_call)  # fmt: skip
test_policy_one = check("13.5", "one prompt alone", tolerance=NEAR, lengths=(4,))(policy_call)
test_policy_pad = check(
    "13.5", "padded with a stop token", tolerance=NEAR, pad_token_id=2, new=6
)(policy_call)
test_policy_settings = check("13.5", "with {settings}", tolerance=NEAR, settings=[
        {"direction": "forward"}, {"top_k": 3}, {"temperature": 0.1}, {"max_grad_norm": 0.05},
    ],
)(lambda rng, settings, **sizes: policy_call(rng, **sizes, **settings))  # fmt: skip
test_policy_two = check(
    "13.5", "two steps in a row, with gradients of something else before", tolerance=NEAR,
    steps=2,
)(policy_call)  # fmt: skip


def paired_call(rng, count=12, kind="right", shift=0.3, **inputs):
    """Scores on the same questions, of which most are right for both or for neither."""
    if kind == "scores":
        first = rng.normal(count)
        second = first + shift + 0.3 * rng.normal(count)
    elif kind == "large":  # thirds, which no float32 holds
        first = rng.normal(count).double() / 3 + 333
        second = first + shift + rng.normal(count).double() / 7
    else:
        first = rng.integers(0, 2, count)
        second = torch.where(rng.uniform(count) < 0.3, 1 - first, first)
    if kind == "bool":
        first, second = first.bool(), second.bool()
    inputs = {"resamples": 300, **inputs}
    inputs["generator"] = Given("generation.seeded", seed=int(rng.integers(1, 1000)))
    return Call("paired_test", first=first, second=second, **inputs)


test_paired = check(
    "13.6", "paired_test of {count} questions, scores of kind {kind}", points=2, tolerance=1e-6,
    cases=rows("count, kind", (12, "right"), (9, "scores"), (15, "bool"), (9, "large")),
)(paired_call)  # fmt: skip
test_paired_two = check("13.6", "paired_test of two questions", points=0.5, tolerance=1e-6,
    count=2, kind="scores")(paired_call)  # fmt: skip
test_paired_level = check("13.6", "paired_test at level {level}", level=[0.5, 0.9], count=14,
    tolerance=1e-6, kind="scores")(paired_call)  # fmt: skip
test_paired_defaults = check("13.6", "paired_test, 2,000 resamples if none are asked for",
    points=0.5, tolerance=1e-6, kind="scores")(
    lambda rng, **more: drop(paired_call(rng, **more), "resamples"))  # fmt: skip


def drop(call, name):
    del call.steps[0][1][name]
    return call


@check("13.6", points=0.5, counts=[(3, 4), (1, 1)])
def test_paired_refused(rng, counts):
    """paired_test: {counts} scores raise ValueError"""
    first, second = (rng.normal(count) for count in counts)
    call = paired_call(rng)
    return call.then("", **call.steps[0][1] | {"first": first, "second": second})


def needed_call(rng, difference, disagreement, **inputs):
    return Call("questions_needed", difference=difference, disagreement=disagreement, **inputs)


test_needed = check(
    "13.6", "questions_needed: difference {difference}, disagreement {disagreement}", points=2,
    cases=rows("difference, disagreement", (0.02, 0.3), (0.02, 0.04), (-0.1, 0.5), (1.0, 1.0)),
)(needed_call)  # fmt: skip
test_needed_z = check("13.6", "questions_needed with z {z}", points=0.5, z=[1.5, 2.576],
    difference=0.05, disagreement=0.2)(needed_call)  # fmt: skip
test_needed_whole = check("13.6", "questions_needed where {z} z is reached exactly", z=2.0,
    points=0.5, difference=0.5, disagreement=0.5)(needed_call)  # fmt: skip


@check("13.6", points=0.5, cases=rows("difference, disagreement", (0.0, 0.3), (0.4, 0.3),
                                      (-0.4, 0.3)))  # fmt: skip
def test_needed_refused(rng, difference, disagreement):
    """questions_needed of {difference} with disagreement {disagreement} raises ValueError"""
    call = needed_call(rng, 0.1, 0.2)
    return call.then("", difference=difference, disagreement=disagreement)


@check("13.7", lengths=(7, 3))
def test_web_confidence(rng, lengths):
    """two texts of one length, and texts of {lengths} tokens"""
    for counts in ((5, 5), lengths):
        longest = torch.arange(max(counts))
        mask = (longest < torch.tensor(counts)[:, None]).long()
        log_probs = -rng.normal(*mask.shape).abs()
        yield Call("web_confidence", log_probs=log_probs, mask=mask)
