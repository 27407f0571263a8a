"""Which exercise does a cell answer? The one rule, for notebook, submit, collect and grading.

A cell says it by its directive (`# %% exercise 1.2: RMSNorm`), else by its nbgrader grade_id,
else by its cell id. Where directive and id disagree, what the cell defines decides. A cell into
which several answers were merged answers each with its own part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labkit.core import cells
from labkit.core.syllabus import Exercise, Lab

MAX_CELL = 200_000  # characters; what is longer is not read as code


def answers_in(text: str, name: str, lab: Lab) -> dict[str, str]:
    """{exercise id: the part of the cell that answers it}, of this lab's exercises.

    name    the cell's grade_id or id
    """
    merged = _merged(text, lab)
    if merged:
        return merged
    exercise = _claimed(text, name, lab)
    return {exercise.id: text} if exercise else {}


def cell_name(cell: Mapping[str, Any]) -> str:
    """The nbgrader grade_id of a notebook's cell, else its id; whatever a file may hold."""
    metadata = cell.get("metadata")
    marks = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    name = marks.get("grade_id") if isinstance(marks, dict) else None
    name = name if isinstance(name, str) else cell.get("id")
    return name if isinstance(name, str) else ""


def _merged(text: str, lab: Lab) -> dict[str, str]:
    """Of a cell with several directives each part; {} for any other cell."""
    known, parts, before = {e.id for e in lab.exercises}, {}, ""
    for key, piece in cells.split(text) if len(text) <= MAX_CELL else ():
        if key in known:
            parts[key], before = before + piece, ""
        else:
            before += piece
    return parts if len(parts) > 1 else {}


def _claimed(text: str, name: str, lab: Lab) -> Exercise | None:
    directive = cells.exercise_in(text[:MAX_CELL])
    by_id = next((e for e in lab.exercises if e.answer_cell == name), None)
    if directive is None:
        return by_id
    at_odds = by_id and by_id.id != directive and len(text) <= MAX_CELL
    if at_odds and set(by_id.symbols) & set(cells.defined_names(cells.tidied(text))):
        return by_id
    return next((e for e in lab.exercises if e.id == directive), None)
