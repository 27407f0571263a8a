"""Put the package under test together from the learner's and the reference's code, and map its
line numbers to cells."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.course import cells, sealed
from labkit.course.paths import SOLUTIONS
from labkit.course.syllabus import NOTEBOOKS, Lab

if TYPE_CHECKING:  # `collect` imports this module and needs no torch
    from labkit.sandbox.inside.call import Outcome

# from .rope import ..., from tinyllm.rope import ..., import tinyllm.rope
IMPORTED = re.compile(r"^[ \t]*(?:from|import)[ \t]+(?:tinyllm)?\.(\w+)", re.MULTILINE)


def modules_in(folder: Path) -> dict[str, str]:
    """{module: source} of a package on disk."""
    paths = [path for path in sorted(folder.glob("*.py")) if path.stem != "__init__"]
    return {path.stem: sealed.read_source(path) for path in paths}


def reference_modules() -> dict[str, str]:
    """{module: source} of the reference, without solution marks; {} if it is not available."""
    return {name: cells.plain(text) for name, text in modules_in(SOLUTIONS).items()}


def compose(
    modules: Mapping[str, str], answers: Mapping[str, str], last: Lab | None = None
) -> dict[str, str]:
    """Return the sources of a package in which these cells answer some exercises.

    modules    {module: source} to begin with, the reference's or the learner's own
    answers    {exercise id: cell that replaces the block there}
    last       the lab whose module is the last one that the package has
    """
    later = {lab.module for lab in NOTEBOOKS if last and lab.number > last.number}
    package = {name: source for name, source in modules.items() if name not in later}
    for lab in NOTEBOOKS:
        for exercise in lab.exercises:
            if exercise.id in answers and lab.module in package:
                cell, source = answers[exercise.id], package[lab.module]
                package[lab.module] = cells.with_block(source, exercise, cell)
    return package


def imported_by(modules: Mapping[str, str], module: str) -> set[str]:
    """Return the names of the modules that one imports, directly or not, itself included."""
    found, new = set[str](), [module]
    while new:
        name = new.pop()
        if name in modules and name not in found:
            found.add(name)
            new += IMPORTED.findall(modules[name])
    return found


def exercise_at(source: str, line: int) -> tuple[str | None, int]:
    """Return the exercise whose cell has a line of a module, and the line's number in that
    cell; for lines outside of these cells None and the number in the module."""
    before = 0
    for exercise_id, text in cells.split(source):
        length = text.count("\n")
        if exercise_id and before < line <= before + length:
            number = cells.line_in_cell(text, line - before)
            return (exercise_id, number) if number else (None, line)
        before += length
    return None, line


def localize(outcome: Outcome, source: str, exercise_id: str) -> Outcome:
    """The outcome with its failure's line of `source` counted within the exercise's cell."""
    failure = outcome.failure
    if failure is None or failure.line is None:
        return outcome
    home, line = exercise_at(source, failure.line)
    return replace(
        outcome, failure=replace(failure, line=line if home == exercise_id else None)
    )
