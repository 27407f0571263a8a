"""Why is it wrong: the known mistakes perform the same calls, and the one that gives the
learner's very outcome lends its sentence."""

from __future__ import annotations

import re
from collections import defaultdict

from labkit.checks.compare import agree, distance, identical
from labkit.checks.runner import Check, Oracle, Result
from labkit.sandboxed.call import Outcome

BEGINNING = 200  # characters of an error that are compared
# What errors of Python and torch mostly mean in an exercise cell; each continues
# "this is what comes out when ...".
ERRORS = {
    "is not defined": "a name is used that the cell does not define: only exercise cells are "
    "saved, so imports and helpers belong into this one",
    "Exercise ": "a `raise NotImplementedError` line of the stub is still there: delete it",
    "unexpected keyword argument": "an argument was renamed: keep the names of the stub",
    "required positional argument": "the arguments are not those of the stub",
    "multiple values for argument": "`self` is missing as the first argument",
    "object has no attribute": "something was not stored on `self` in `__init__`",
    "before Module.__init__() call": "`super().__init__()` does not come first in `__init__`",
    "same dtype": "two tensors of different dtypes meet: cast one of them with `.to(...)`",
    "same scalar type": "two tensors have different dtypes: cast one of them with `.to(...)`",
    "must match the size": "two shapes do not line up: is `keepdim=True` missing, or is the "
    "axis another one?",
}

MOST = 2  # sentences shown when several mistakes fit equally well


def reasons(result: Result, oracle: Oracle) -> list[str]:
    """The sentences of the mistakes that explain the failed checks, best first.

    A mistake that fits every check counts above one that fits the first failed check alone;
    among equals the one whose numbers are nearest to the learner's wins.
    """
    failed = [check for check in result.checks if check.passed is False]
    if not failed:
        return []
    for checks in (result.checks, failed, failed[:1]):
        matching = _matching(checks, oracle)
        if matching:
            return _nearest(matching)
    return _error_advice(failed[0], result.exercise.id)


def _error_advice(check: Check, exercise_id: str) -> list[str]:
    """What the error itself points to, where no known mistake fits."""
    text = next((got.failure.text for _, got in check.evidence if got.failure), "")
    other = re.match(r"Exercise (\d+\.\d+):", text)
    if other and other[1] != exercise_id:
        return [f"exercise {other[1]}, which this one uses, is still empty: write it first"]
    return [advice for part, advice in ERRORS.items() if part in text][:1]


def _matching(checks: list[Check], oracle: Oracle) -> dict[str, float]:
    """{sentence: distance} of the mistakes that agree with the learner on all of `checks`."""
    gaps: dict[str, list[float]] = defaultdict(list)
    sentences: dict[str, str] = {}
    contradicted: set[str] = set()
    for call, got in [pair for check in checks for pair in check.evidence]:
        for suspect in oracle.suspects(call):
            if not suspect.costs or suspect.name in contradicted:
                continue
            sentences[suspect.name] = suspect.sentence
            if matches(got, suspect.outcome):
                gap = 0.0 if got.failure else distance(got, suspect.outcome)
                gaps[suspect.name].append(gap)
            else:
                contradicted.add(suspect.name)
                gaps.pop(suspect.name, None)
    return {sentences[name]: sum(g) / len(g) for name, g in gaps.items()}


def matches(got: Outcome, theirs: Outcome) -> bool:
    """Whether a mistake gave the learner's very outcome; two errors need the same words too.

    Long errors are cut where they are described, so that a name of another length moves the
    cut: their beginnings count.
    """
    errors = {o.failure.text[:BEGINNING] for o in (got, theirs) if o.failure}
    return len(errors) < 2 and agree(got, theirs)


def _nearest(matching: dict[str, float]) -> list[str]:
    limit = 1.5 * min(matching.values()) + 1e-12
    return [sentence for sentence, gap in matching.items() if gap <= limit][:MOST]


def remarks(result: Result, oracle: Oracle) -> list[str]:
    """Sentences for a right answer that equals a harmless variant and not the reference."""
    if not result.passed:
        return []
    told_apart: dict[str, bool] = {}
    for call, got in [pair for check in result.checks for pair in check.evidence]:
        harmless = [suspect for suspect in oracle.suspects(call) if not suspect.costs]
        as_reference = harmless and identical(got, oracle.reference(call))
        for suspect in harmless:
            as_suspect = identical(got, suspect.outcome)
            if as_suspect and not as_reference:
                told_apart.setdefault(suspect.sentence, True)
            elif as_reference and not as_suspect:
                told_apart[suspect.sentence] = False
    return [sentence for sentence, shown in told_apart.items() if shown]
