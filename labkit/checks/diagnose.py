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
    everywhere = _fitting(result.checks, oracle)
    best = _best(everywhere or _fitting(failed, oracle) or _fitting(failed[:1], oracle))
    return best or _advice_of_error(failed[0], result.exercise.id)


def _advice_of_error(check: Check, exercise_id: str) -> list[str]:
    """What the error itself points to, where no known mistake fits."""
    text = next((got.failure.text for _, got in check.evidence if got.failure), "")
    other = re.match(r"Exercise (\d+\.\d+):", text)
    if other and other[1] != exercise_id:
        return [f"exercise {other[1]}, which this one uses, is still empty: write it first"]
    return [advice for part, advice in ERRORS.items() if part in text][:1]


def _fitting(checks: list[Check], oracle: Oracle) -> dict[str, float]:
    """{sentence: distance} of the mistakes that agree with the learner on all of `checks`."""
    far: dict[str, list[float]] = defaultdict(list)
    sentences: dict[str, str] = {}
    wrong: set[str] = set()
    for call, got in [pair for check in checks for pair in check.evidence]:
        for suspect in oracle.suspects(call):
            if not suspect.costs or suspect.name in wrong:
                continue
            sentences[suspect.name] = suspect.sentence
            if fits(got, suspect.outcome):
                far[suspect.name].append(0.0 if got.failure else distance(got, suspect.outcome))
            else:
                wrong.add(suspect.name)
    return {
        sentences[name]: sum(gaps) / len(gaps)
        for name, gaps in far.items()
        if name not in wrong
    }


def fits(got: Outcome, theirs: Outcome) -> bool:
    """Whether a mistake gave the learner's very outcome; two errors need the same words too.

    Long errors are cut where they are described, so that a name of another length moves the
    cut: their beginnings count.
    """
    if got.failure and theirs.failure:
        mine, known = got.failure.text[:BEGINNING], theirs.failure.text[:BEGINNING]
        if mine != known:
            return False
    return agree(got, theirs)


def _best(fitting: dict[str, float]) -> list[str]:
    if not fitting:
        return []
    nearest = min(fitting.values())
    close = [s for s, gap in fitting.items() if gap <= 1.5 * nearest + 1e-12]
    return close[:MOST]


def remarks(result: Result, oracle: Oracle) -> list[str]:
    """Sentences for a right answer that equals a harmless variant and not the reference."""
    if not result.passed:
        return []
    equals: dict[str, bool] = {}
    for check in result.checks:
        for call, got in check.evidence:
            harmless = [one for one in oracle.suspects(call) if not one.costs]
            same = harmless and identical(got, oracle.reference(call))
            for suspect in harmless:
                equal = identical(got, suspect.outcome)
                if equal and not same:
                    equals.setdefault(suspect.sentence, True)
                elif same and not equal:
                    equals[suspect.sentence] = False
    return [sentence for sentence, always in equals.items() if always]
