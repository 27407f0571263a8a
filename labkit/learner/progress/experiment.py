"""An experiment that the learner designs: one thing varies, several seeds, a conclusion.

Ranges are compared without a test of significance: a learner can check a range by eye, and five
numbers are too few to check a test's assumptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from math import comb

from labkit.course.lang import ntr, tr
from labkit.course.report import Report, Status

ENOUGH = 5  # seeds; with three, ranges are separate by chance one time in ten


def experiment(
    run: Callable[..., float], values: Iterable[object], seeds: Iterable[int]
) -> Report:
    """Run every value with every seed and report which conclusions the numbers allow.

    run    called with a value and a seed; returns one number
    """
    seeds = tuple(dict.fromkeys(seeds))
    print(tr("seed").rjust(16), "", *(f"{seed:>9}" for seed in seeds))
    results = {}
    for value in values:
        numbers = [float(run(value, seed)) for seed in seeds]
        results[getattr(value, "__name__", value)] = numbers
        print(f"{[*results][-1]!s:>16} ", *(f"{number:9.4g}" for number in numbers))
    pairs = [(a, b, results[a], results[b]) for a, b in pairwise(results)]
    rows = [("look", _compare(*pair)) for pair in pairs]
    if any(_are_apart(first, second) for _, _, first, second in pairs):
        share = 2 / comb(2 * len(seeds), len(seeds))
        rows += [
            ("why", tr("if the value changed nothing, two ranges of {n} seeds would be apart "
                       "in {share} of all experiments; the next seed may fall outside a range",
                       n=len(seeds), share=f"{share:.1%}"))
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


def _are_apart(first: list[float], second: list[float]) -> bool:
    return max(first) < min(second) or max(second) < min(first)


def _compare(a: object, b: object, first: list[float], second: list[float]) -> str:
    """Compare the results of two values by their ranges and seed by seed."""
    higher, n = sum(y > x for x, y in zip(first, second, strict=True)), len(first)
    if _are_apart(first, second):
        return tr("{a} and {b}: the ranges are apart; {b} is higher in {higher} of {n} seeds",
                  a=a, b=b, higher=higher, n=n)  # fmt: skip
    return tr("{a} and {b}: the ranges overlap; {b} is higher in {higher} of {n} seeds",
              a=a, b=b, higher=higher, n=n)  # fmt: skip
