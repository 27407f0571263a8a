"""The outputs that a submission was saved with. They can be anything, so they earn nothing; if
they contradict a blank cell, a person is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from labkit.course.lang import languages, speaking, tr
from labkit.course.report import Status
from labkit.course.syllabus import Exercise

LONGEST = 20_000  # characters of an output that are read


def check_passed(cells: list[dict], exercise: Exercise) -> bool:
    """Whether an output is the report of a check that this exercise passed."""
    for name in languages():
        with speaking(name):
            heading, verdict = exercise.heading, tr(Status.PASSED.value)
        for text in texts_of(cells):
            _, found, rest = text.partition(heading)
            if found and rest.lstrip().startswith(verdict):
                return True
    return False


def texts_of(cells: list[dict]) -> Iterator[str]:
    """Yield the plain text of each output, for any content of the file."""
    for cell in cells:
        outputs = cell.get("outputs")
        for output in filter(is_dict, outputs if isinstance(outputs, list) else ()):
            data = output.get("data")
            for text in (output.get("text"), data.get("text/plain") if is_dict(data) else ""):
                yield plain_text(text)


def is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def plain_text(text: Any) -> str:
    if isinstance(text, list):
        text = "".join(part for part in text if isinstance(part, str))
    return text[:LONGEST] if isinstance(text, str) else ""
