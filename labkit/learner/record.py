"""progress.json in the learner's folder: exercises that passed, predictions, hints shown.

An exercise counts as passed only while its code has the recorded fingerprint: nothing has to
be invalidated when a cell changes. A file and not a database, so that it can be copied.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from labkit.course import cells
from labkit.course.files import write_whole
from labkit.course.syllabus import LABS, Exercise, Lab
from labkit.learner import workspace

PASSED, PREDICTIONS, HINTS = "passed", "predictions", "hints"  # the parts of the file


def path() -> Path:
    return Path(workspace.folder()).parent / "progress.json"


def remembered(part: str) -> dict[str, Any]:
    """Return one part of the file; {} if it is missing or damaged."""
    found = _read().get(part)
    return found if isinstance(found, dict) else {}


def remember(part: str, name: str, value: Any) -> None:
    """Save a value, unless the folder is read-only. A damaged file is moved aside."""
    content = _read()
    if not content and path().exists():
        with suppress(OSError):
            path().replace(path().with_name("progress.json~"))
    content[part] = remembered(part) | {name: value}
    with suppress(OSError):
        write_whole(path(), json.dumps(content, indent=1) + "\n")


def without_predictions(names: Iterable[str]) -> str | None:
    """Return the text of the file without these predictions, None if it has none of them."""
    content, known = _read(), remembered(PREDICTIONS)
    rest = {name: value for name, value in known.items() if name not in names}
    content[PREDICTIONS] = rest
    return None if rest == known else json.dumps(content, indent=1) + "\n"


def _read() -> dict[str, Any]:
    try:
        found = json.loads(path().read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def record_pass(lab: Lab, exercise: Exercise) -> None:
    code = _code(lab, exercise)
    if code and remembered(PASSED).get(exercise.id) != code:
        remember(PASSED, exercise.id, code)


def has_passed(lab: Lab, exercise: Exercise) -> bool:
    """Whether the exercise passed with its current code"""
    code = remembered(PASSED).get(exercise.id)
    return code is not None and code == _code(lab, exercise)


def passed_labs() -> frozenset[str]:
    """The modules of the labs whose core exercises all passed with their current code"""
    return frozenset(
        lab.module for lab in LABS if all(has_passed(lab, e) for e in lab.exercises if e.core)
    )


def _code(lab: Lab, exercise: Exercise) -> str | None:
    try:
        return cells.fingerprint(cells.block(workspace.module_source(lab), exercise.id) or "")
    except OSError:
        return None
