"""Reasons: they are found within a limit, also of two mistakes at once."""

from itertools import combinations
from time import thread_time

import pytest

from labkit.checks.mistakes import Oracle, parse_mistakes
from labkit.checks.reasons.search import combine
from labkit.checks.reasons.steps import LEAST_SECONDS, MOST_TIMES
from labkit.course.syllabus import LABS
from labkit.sandbox.inside.call import Call
from tests.course.soundness.test_soundness import EXERCISES, checks_of, name_of, oracle_of

FAST = 0.02  # seconds of the right answer, of what is performed of one exercise
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
