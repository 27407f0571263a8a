"""Where a learner's code stands: line numbers of a module turned into lines of a cell."""

from __future__ import annotations

from dataclasses import replace

from labkit.core.cells import split
from labkit.sandboxed.call import Outcome


def localised(outcome: Outcome, module: str, exercise_id: str) -> Outcome:
    """The outcome with its failure's line counted within the exercise's cell."""
    failure = outcome.failure
    if failure is None or failure.line is None:
        return outcome
    line = failure.line
    for key, text in split(module):
        length = text.count("\n")
        if key == exercise_id:
            inside = 1 <= line <= length + 1
            return replace(outcome, failure=replace(failure, line=line if inside else None))
        line -= length
    return outcome
