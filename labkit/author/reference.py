"""The source of the reference: modules and exercise blocks of solutions/, solution marks
included."""

from __future__ import annotations

from pathlib import Path

from labkit.course import cells
from labkit.course.paths import SOLUTIONS
from labkit.course.syllabus import Exercise, Lab


class BuildError(Exception):
    """A source that the build cannot work with; the message tells how to correct it."""


def references() -> list[Path]:
    """Return the modules of the reference."""
    paths = sorted(SOLUTIONS.glob("*.py"))
    return [path for path in paths if path.stem != "__init__"]


def reference(lab: Lab) -> str:
    return (SOLUTIONS / f"{lab.module}.py").read_text("utf-8")


def reference_block(lab: Lab, exercise: Exercise) -> str:
    """The exercise's block in the reference, marks included; BuildError if it has none."""
    block = cells.block(reference(lab), exercise.id)
    if block is None:
        raise BuildError(f"solutions/{lab.module}.py has no block for exercise {exercise.id}")
    return block
