"""An experiment that the learner designs: one thing varies, several seeds, a conclusion."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

from labkit.course.lang import ntr, tr
from labkit.course.report import Report, Status

ENOUGH = 3  # seeds; with fewer nothing is concluded


def experiment(
    run: Callable[..., float], values: Iterable[object], seeds: Iterable[int]
) -> Report:
    """Run every value with every seed; the report says what the numbers allow to conclude.

    run    called with a value and a seed; returns one number
    """
    seeds = tuple(dict.fromkeys(seeds))
    results = {}
    for value in values:
        numbers = [float(run(value, seed)) for seed in seeds]
        results[getattr(value, "__name__", value)] = numbers
        print(f"{[*results][-1]!s:>16} ", *(f"{number:9.4g}" for number in numbers))
    rows = [
        ("look", tr("{a} and {b}: the ranges overlap", a=a, b=b)
         if max(min(results[a]), min(results[b])) <= min(max(results[a]), max(results[b]))
         else tr("{a} and {b}: apart in every seed", a=a, b=b))
        for a, b in pairwise(results)
    ]  # fmt: skip
    verdict = ntr("{n} seed", "{n} seeds", len(seeds))
    if len(seeds) < ENOUGH:
        rows = [("next", tr("run at least {count} seeds, then conclude", count=ENOUGH))]
    elif all(len(set(numbers)) == 1 for numbers in results.values()):
        rows = [("next", tr("every seed gives the same number: let `run` use its seed"))]
    elif len(results) < 2:
        rows = [("next", tr("vary one thing: give two values or more"))]
    else:
        return Report(tr("Your experiment"), Status.PASSED, rows, verdict)
    return Report(tr("Your experiment"), Status.HELP, rows, verdict)
