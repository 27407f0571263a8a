"""The file to hand in: the learner's notebook, each of its exercises checked.

Where notebook and package differ, the answer that passes is packed; else the notebook's.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
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
from labkit.learner.progress.written import notebook_path
from labkit.learner.project import notebook_file
from labkit.learner.project.notebook_file import NotebookError

FOLDER = Path("submissions")
SOON = 2.0  # seconds within which two files count as saved together


class Side(str, Enum):
    """Where an answer is taken from."""

    NOTEBOOK = said("notebook")
    PACKAGE = said("package")


@dataclass(frozen=True)
class PackedAnswer:
    """What is handed in for one exercise. side: None where nothing is."""

    exercise: Exercise
    side: Side | None
    report: Report

    @property
    def at_stake(self) -> int:
        return 0 if self.report.passed else self.exercise.points

    @property
    def reason(self) -> str:
        """What is wrong, in a sentence; "" if nothing is."""
        if self.report.passed or not self.side:
            return ""
        rows = dict(reversed(self.report.rows))  # another exercise as the cause comes first
        cause = self.report.rows[0][0] == "note"
        return rows["note"] if cause else rows.get("why") or rows.get("look", "")


@dataclass(frozen=True)
class Submission:
    """What was written to `path`, what it holds, and what the learner should know of it."""

    path: Path
    packed: list[PackedAnswer]
    written: dict[str, bool | None]  # of each written question, see written_answers
    notes: list[str]


def prepare(lab: Lab, notebook: Path | None = None) -> Submission:
    """Write submissions/LAB.ipynb."""
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
    sides = Sides(lab, notebook_file.answers(content, lab))
    notes = not_saved(lab, path, sides)
    chosen, final = {}, {}
    for exercise in lab.exercises:
        side, note = sides.choice(exercise)
        called = f"{exercise.id} {exercise.title}"
        notes += [called + tr(": ") + note] if note else []
        if side:
            chosen[exercise.id], final[exercise.id] = side, sides.answers[side][exercise.id]
        if side is Side.PACKAGE:
            notebook_file.put(content, lab, exercise, final[exercise.id])
    packed = [PackedAnswer(e, chosen.get(e.id), sides.report(final, e)) for e in lab.exercises]
    notes += [
        sides.explain_difference(each.exercise)
        for each in packed
        if sides.differs_when_packed(each)
    ]
    FOLDER.mkdir(exist_ok=True)
    written = FOLDER / f"{lab.name}.ipynb"
    if written.exists():  # one step back, should this one hold less
        written.replace(written.with_suffix(".ipynb~"))
    write_whole(written, nbformat.writes(content))
    return Submission(written, packed, notebook_file.written_answers(content, lab), notes)


class Sides:
    """A learner's answers in notebook and package, {exercise id: code}, and their checks."""

    def __init__(self, lab: Lab, notebook: dict[str, str]):
        self.lab, self.module = lab, workspace.module_source(lab)
        self.file = workspace.short_path(workspace.module_path(lab))
        blocks = {e.id: cells.block(self.module, e.id) for e in lab.exercises}
        package = {e.id: blocks[e.id] for e in lab.exercises
                   if not workspace.is_empty(e, blocks[e.id])}  # fmt: skip
        self.answers = {Side.NOTEBOOK: notebook, Side.PACKAGE: package}
        self.reports: dict[tuple[str, str], Report] = {}

    def choice(self, exercise: Exercise) -> tuple[Side | None, str]:
        """The side of which an exercise is handed in, and what there is to say of that."""
        here, there = (self.answers[side].get(exercise.id) for side in Side)
        if there is None:
            lost = set(exercise.symbols) & set(cells.defined_names(self.module))
            if here is None and lost and cells.block(self.module, exercise.id) is None:
                line = cells.directive(exercise)
                return None, tr(
                    'in {file}, the line "{line}" above its code is missing',
                    file=self.file,
                    line=line,
                )
            return Side.NOTEBOOK if here else None, ""
        if here is None:
            return Side.PACKAGE, tr(
                "taken from {file}; the notebook has no answer", file=self.file
            )
        if notebook_file.are_same(self.lab, exercise, here, there):
            return Side.NOTEBOOK, ""
        right = [side for side in Side if self.report(self.answers[side], exercise).passed]
        if len(right) == 1:
            remark = tr(
                "the notebook and {file} differ, and only the {value}'s passes",
                file=self.file,
                value=tr(right[0].value),
            )
            side = right[0]
        else:
            verdict = tr("both pass") if right else tr("neither passes")
            remark = tr(
                "the notebook and {file} differ, and {verdict}", file=self.file, verdict=verdict
            )
            side = Side.NOTEBOOK
        remark = tr("{remark}; handed in is the {value}'s", remark=remark, value=tr(side.value))
        if side is Side.NOTEBOOK:
            remark += tr(" (`tinyllm restore {id}` puts the other into it)", id=exercise.id)
        return side, remark

    def differs_when_packed(self, packed: PackedAnswer) -> bool:
        """Whether an answer of the package passes there, and not where it is handed in."""
        if packed.side is not Side.PACKAGE or packed.report.passed:
            return False
        return check_exercise(self.lab, packed.exercise, "", quiet=True)[0].passed

    def explain_difference(self, exercise: Exercise) -> str:
        line = cells.directive(exercise)
        return tr(
            "{id} {title}: it passes in {file} alone: what it needs there (imports, "
            'helpers) belongs below its line "{line}"',
            id=exercise.id,
            title=exercise.title,
            file=self.file,
            line=line,
        )

    def report(self, answers: dict[str, str], exercise: Exercise) -> Report:
        """On an exercise as it is handed in: the course's module with these answers, without
        other answers that are no Python."""
        readable = {
            key: text
            for key, text in answers.items()
            if key == exercise.id or cells.parsed(cells.tidied(text))
        }
        skeleton = {self.lab.module: workspace.skeletons()[self.lab.module]}
        source = compose(skeleton, readable)[self.lab.module]
        if (source, exercise.id) not in self.reports:
            with workspace.override_source(self.lab, source):
                report, _ = check_exercise(self.lab, exercise, "", quiet=True)
            self.reports[source, exercise.id] = report
        return self.reports[source, exercise.id]


def not_saved(lab: Lab, notebook: Path, sides: Sides) -> list[str]:
    """A word on a notebook that may be open, with cells that are not in its file yet."""
    module = workspace.module_path(lab).stat().st_mtime
    saved = notebook.stat().st_mtime
    if module < saved + SOON or not sides.answers[Side.PACKAGE]:
        return []
    when = [f"{datetime.fromtimestamp(time):%d %b %H:%M:%S}" for time in (saved, module)]
    return [
        tr(
            "{name} was last saved {when}, {file} {when2}: if the notebook is open "
            "with changes, save it (Ctrl-S) and submit again",
            name=notebook.name,
            when=when[0],
            file=sides.file,
            when2=when[1],
        )
    ]
