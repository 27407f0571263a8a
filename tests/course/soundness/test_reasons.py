"""Reasons: they are found within a limit of time, also for two mistakes at once."""

from functools import partial
from itertools import combinations
from random import Random
from time import thread_time

import pytest

from labkit.checks.diagnose import diagnose
from labkit.checks.mistakes import Oracle, mistakes_of, parse_mistakes, reference_cell
from labkit.checks.reasons.search import combine
from labkit.checks.reasons.steps import LEAST_SECONDS, MOST_TIMES
from labkit.course.syllabus import LABS, find_lab
from labkit.sandbox.inside.call import Call
from tests.course.soundness.test_soundness import (
    EXERCISES,
    answered,
    checks_of,
    judged,
    name_of,
    names_with,
    oracle_of,
)

FAST = 0.02  # seconds of the right answer, above which fewer calls are performed
LAB = LABS[0]
VALUES = Call("layer_norm", x=[1.0], weight=None, bias=None)


@pytest.mark.parametrize("line", ["while True: x = 1", "layer_norm(x)", "x = [*x, *x]"])
def test_a_mistake_that_does_not_end_is_stopped(line):
    listed = f"def layer_norm(x, **_):\n+     while True:\n+         {line}"
    version = next(parse_mistakes(LAB, f"## layer_norm\n\nendless: odd\n+ {listed}\n")).versions
    start = thread_time()
    outcome = Oracle(LAB).mistaken(version[0], VALUES)
    assert outcome.failure and thread_time() - start < 5


@pytest.mark.slow
@pytest.mark.parametrize(("lab", "exercise"), EXERCISES, ids=name_of)
def test_two_mistakes_at_once_end(lab, exercise):
    oracle, calls = oracle_of(lab), {}
    for check in checks_of("visible", lab, exercise):
        for call in check.calls:
            calls.setdefault((check.declaration, call.symbol), call)
    quick = sorted(calls.values(), key=oracle.seconds)
    while len(quick) > 1 and sum(map(oracle.seconds, quick)) > FAST:
        quick.pop()
    for first, second in combinations(oracle.listed(set(exercise.symbols)), 2):
        both = combine(first, second)
        for call in quick if both else ():
            start = thread_time()
            oracle.mistaken(both, call)
            most = LEAST_SECONDS + MOST_TIMES * oracle.seconds(call)
            assert thread_time() - start < 4 * most, (first.edits, second.edits)


TURNED = {"query": ("cos + rotate", "cos - rotate"), "key": ("cos + rotate", "sin + rotate")}


def test_each_part_of_what_comes_back_has_a_reason_of_its_own():
    lab = find_lab("rope")
    exercise = lab.exercise("2.3")
    lines = reference_cell(lab, exercise).split("\n")
    for name, edit in TURNED.items():
        place = next(i for i, line in enumerate(lines) if f"turned_{name} =" in line)
        lines[place] = lines[place].replace(*edit)
    cell = "\n".join(lines).replace("rotate_half(key) * sin", "rotate_half(key) * cos")
    result = judged("visible", lab, exercise, names_with(lab, exercise, cell))
    told = [reason.text for reason in diagnose(result, oracle_of(lab), cell).reasons]
    assert [text.partition(": ")[0] for text in told] == ["query", "key"], told
    assert "cos and sin have changed places" in told[1]


PAIRS, NAMED = 60, 55


def drawn_pairs(seed):
    """(lab, exercise, two versions of different mistakes, both at once), forever."""
    dice = Random(seed)
    exercises = [(lab, exercise) for lab, exercise in EXERCISES if not exercise.hunt]
    while True:
        lab, exercise = dice.choice(exercises)
        listed = [m for m in mistakes_of(lab) if m.symbol in exercise.symbols]
        first, second = (dice.choice(m.versions) for m in dice.sample(listed, 2))
        if both := combine(first, second):
            yield lab, exercise, {first.mistake.name, second.mistake.name}, both


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["visible", "hidden"])
def test_of_two_mistakes_at_once_one_is_named_and_no_third(folder):
    tried, missed, thirds = 0, [], []
    for lab, exercise, names, both in drawn_pairs("a seed"):
        student = partial(oracle_of(lab).mistaken, both)
        result = answered(folder, lab, exercise, student)
        if result.passed:
            continue
        told = {*diagnose(result, oracle_of(lab), both.cell).mistakes}
        missed += [] if told & names else [(exercise.id, names)]
        thirds += [(exercise.id, names, told)] if told - names else []
        tried += 1
        if tried == PAIRS:
            break
    assert not thirds and PAIRS - len(missed) >= NAMED, (missed, thirds)


def diagnosed_with(exercise_id, *edits, label="why"):
    """Return the sentences under a label of a report at home on the right answer with some
    edits."""
    lab, exercise = next((lab, e) for lab, e in EXERCISES if e.id == exercise_id)
    cell = reference_cell(lab, exercise)
    for before, after in edits:
        assert before in cell
        cell = cell.replace(before, after)
    result = judged("visible", lab, exercise, names_with(lab, exercise, cell))
    found = diagnose(result, oracle_of(lab), cell)
    return [text for _, sort, text in found.findings if sort == label], found.bounds


@pytest.mark.parametrize(
    ("exercise", "edits", "text"),
    [
        ("9.3", [("<|im_end|>\\n", "<|im_end|>\\n\\n")], r"<|im_end|>\n\n"),
        ("10.6", [("high << 4", "high << 3")], "with `high << 3` instead of `high << 4`"),
        ("3.4", [("key, value, mask, scale", "key, value, None, scale")], "mask"),
    ],
)
def test_a_small_edit_of_the_right_answer_is_told_and_costs_a_part(exercise, edits, text):
    told, bounds = diagnosed_with(exercise, *edits)
    assert len(told) == 1 and text in told[0] and bounds[1] <= 0.5, (told, bounds)


def test_what_is_never_used_is_told_beside_the_facts():
    idle = [("    wide = x.float()\n", "    wide = x.float()\n    half = x / 2\n")]
    wrong = [*idle, ("* torch.rsqrt(variance + eps)", "* 0.123")]
    told, _ = diagnosed_with("1.1", *wrong, label="look")
    assert told[0].endswith("`half` is computed and never used"), told
