"""Pack the file to hand in: the learner's notebook, with every exercise checked.

If notebook and package differ, the answer that passes is packed, else the notebook's. Asking
the learner would be safer, but nobody wants questions in the last minute before a deadline.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import nbformat

from labkit.checks.package import compose
from labkit.course import cells
from labkit.course.files import write_whole
from labkit.course.lang import said, tr
from labkit.course.report import Report
from labkit.course.syllabus import Exercise, Lab
from labkit.learner import workspace
from labkit.learner.check import check_exercise
from labkit.learner.project import notebook_file
from labkit.learner.project.notebook_file import NotebookError, notebook_path

FOLDER = Path("submissions")


class Side(str, Enum):
    """Where an answer is taken from."""

    NOTEBOOK = said("notebook")
    PACKAGE = said("package")


@dataclass(frozen=True)
class PackedAnswer:
    """An exercise in the file to hand in.

    side       the source of the answer, None if there is none
    differs    whether notebook and package have different answers
    """

    exercise: Exercise
    side: Side | None
    report: Report
    differs: bool

    @property
    def at_stake(self) -> int:
        return 0 if self.report.passed else self.exercise.points

    @property
    def reason(self) -> str:
        """The reason why the answer does not pass, in a sentence; "" if it passes"""
        if self.report.passed or not self.side:
            return ""
        rows = dict(reversed(self.report.rows))  # first, whether another exercise is the cause
        cause = self.report.rows[0][0] == "note"
        return rows["note"] if cause else rows.get("why") or rows.get("look", "")


@dataclass(frozen=True)
class Submission:
    """The file at `path` that is handed in, exercise by exercise."""

    path: Path
    packed: list[PackedAnswer]
    written: dict[str, bool | None]  # {id of a written question: ...}, see written_answers


def prepare(lab: Lab, notebook: Path | None = None) -> Submission:
    """Write submissions/LAB.ipynb. Errors: NotebookError if there is no notebook to read"""
    path = notebook or notebook_path(lab)
    if not path.exists():
        name = tr("or name yours: `tinyllm submit {module} FILE`", module=lab.module)
        raise NotebookError(
            tr(
                "there is no file {path}; {lab}; {name}",
                path=path,
                lab=notebook_file.way_back(lab),
                name=name,
            )
        )
    content = notebook_file.read(path)
    answers = {
        Side.NOTEBOOK: notebook_file.answers(content, lab),
        Side.PACKAGE: notebook_file.saved_answers(lab),
    }
    sides = {e.id: choose_side(lab, e, answers) for e in lab.exercises}
    final = {key: answers[side][key] for key, side in sides.items() if side}
    for exercise in lab.exercises:
        if sides[exercise.id] is Side.PACKAGE:
            notebook_file.put(content, lab, exercise, final[exercise.id])
    packed = [
        PackedAnswer(e, sides[e.id], report_on(lab, e, final), differs(lab, e, answers))
        for e in lab.exercises
    ]
    FOLDER.mkdir(exist_ok=True)
    written = FOLDER / f"{lab.name}.ipynb"
    if written.exists():  # the previous file may have more answers
        written.replace(written.with_suffix(".ipynb~"))
    write_whole(written, nbformat.writes(content))
    return Submission(written, packed, notebook_file.written_answers(content, lab))


def differs(lab: Lab, exercise: Exercise, answers: dict[Side, dict[str, str]]) -> bool:
    """Whether notebook and package answer an exercise with different code"""
    codes = [answers[side][exercise.id] for side in Side if exercise.id in answers[side]]
    return len(codes) == 2 and not notebook_file.are_same(lab, exercise, *codes)


def choose_side(
    lab: Lab, exercise: Exercise, answers: dict[Side, dict[str, str]]
) -> Side | None:
    """Return the side with an answer; of two different answers, the side that passes, else the
    notebook. None if there is no answer."""
    sides = [side for side in Side if exercise.id in answers[side]]
    if differs(lab, exercise, answers):
        sides.sort(key=lambda side: not report_on(lab, exercise, answers[side]).passed)
    return sides[0] if sides else None


def report_on(lab: Lab, exercise: Exercise, answers: dict[str, str]) -> Report:
    """Check an exercise among these answers, without those that are not valid Python."""
    readable = {
        key: text
        for key, text in answers.items()
        if key == exercise.id or cells.parsed(cells.without_tools(text))
    }
    skeleton = {lab.module: workspace.skeletons()[lab.module]}
    with workspace.override_source(lab, compose(skeleton, readable)[lab.module]):
        return check_exercise(lab, exercise, "", quiet=True)[0]
