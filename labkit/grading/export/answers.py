"""All answers as code, for a tool that finds copies: JPlag, compare50, Dolos."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from labkit.course.files import write_whole
from labkit.course.syllabus import Lab
from labkit.grading.judge.intake import cell_called
from labkit.grading.nbgrader.course import Course


def export_answers(course: Course, lab: Lab) -> Path:
    """Write the answers to a lab's exercises as handed in, LEARNER/1_2.py, and the stubs into a
    folder beside it, by the same names. Returns the folder of the learners."""
    folder = course.root / "export" / "answers" / lab.name
    given = folder.with_name(f"{lab.name}_given")
    for old in (folder, given):
        # else answers of learners whose submission is gone would stay
        shutil.rmtree(old, ignore_errors=True)
    released = course.released(lab)
    stubs = {e.id: cell_called(released, e.answer_cell).source for e in lab.exercises}
    write_answers(given / "stubs", stubs)
    for handed in course.submitted(lab):
        write_answers(folder / handed.learner, course.answers([lab], handed.learner)[lab])
    return folder


def write_answers(folder: Path, answers: Mapping[str, str | None]) -> None:
    for exercise, text in answers.items():
        if text:
            path = folder / f"{exercise.replace('.', '_')}.py"
            write_whole(path, text.encode("utf-8", "replace"))
