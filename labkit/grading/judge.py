"""Judging one submission: each exercise alone over the reference package, by hidden checks.

The judge never runs learner code; a Worker does. What the judge learns from it are outcomes,
which it compares with those of the reference.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_output

from labkit import banned, cells
from labkit.calls import Call, Outcome
from labkit.checks import Result, run_checks
from labkit.compare import said
from labkit.diagnose import reasons, remarks
from labkit.grading.intake import Intake, cell_called, rebuild
from labkit.grading.oracle import Live
from labkit.grading.workers import ROOT, Order, Workers
from labkit.report import Report, graded_report
from labkit.source import localised
from labkit.syllabus import LABS, Exercise, Lab

SOLUTIONS = ROOT / "solutions"


@dataclass
class Graded:
    """One exercise of one submission: points, the reasons, and the report."""

    exercise: Exercise
    score: float
    report: Report
    why: list[str] = field(default_factory=list)
    look: str = ""
    needs_person: bool = False


@dataclass
class Submission:
    """All exercises of one submission, and the notebook with the reports in it."""

    lab: Lab
    exercises: list[Graded]
    notebook: NotebookNode
    problem: str | None = None

    @property
    def score(self) -> float:
        return round(sum(graded.score for graded in self.exercises), 2)


class Judge:
    """Grades submissions of one lab; holds the reference, the mistakes and the run's secret."""

    def __init__(self, lab: Lab, released: NotebookNode, secret: bytes, workers: Workers):
        self.lab, self.released, self.secret, self.workers = lab, released, secret, workers
        self.oracle = Live(lab)
        self.sources = package_sources(lab)

    def grade(self, data: bytes, progress: Callable[[], None] = lambda: None) -> Submission:
        """The verdict on the bytes of one notebook; any bytes get one."""
        intake = rebuild(data, self.released, self.lab)
        graded = []
        for exercise in self.lab.exercises:
            graded.append(self.grade_exercise(exercise, intake))
            progress()
        write_outputs(intake.notebook, graded)
        return Submission(self.lab, graded, intake.notebook, intake.problem)

    def grade_exercise(self, exercise: Exercise, intake: Intake) -> Graded:
        note = intake.notes.get(exercise.id, "")
        answer = intake.answers[exercise.id]
        if answer is None:
            return zero(exercise, note)
        if cells.is_stub(answer) or not answer.strip():
            return zero(exercise, "not started")
        mentioned = banned.found_in(answer, self.lab.not_allowed)
        if mentioned:
            name, line = mentioned
            return zero(exercise, f"line {line}: {banned.message(name)}")
        return self._run(exercise, self._laid_over(exercise, answer, intake), note)

    def _laid_over(self, exercise: Exercise, answer: str, intake: Intake) -> str:
        """The reference module with this one exercise's block, and helpers, by the learner."""
        symbols = {symbol for e in self.lab.exercises for symbol in e.symbols}
        others = (text for key, text in intake.answers.items() if key != exercise.id and text)
        help_from_other_cells = [cells.helpers(text, symbols) for text in others]
        module = cells.with_block(self.sources[self.lab.module], exercise, answer)
        extra = "\n\n\n".join(text for text in help_from_other_cells if text)
        return (
            f"{module}\n\n# %% given: helpers from the other cells\n{extra}\n"
            if extra
            else module
        )

    def _run(self, exercise: Exercise, module: str, note: str) -> Graded:
        sources = {**self.sources, self.lab.module: module}
        worker = self.workers.launch(Order(sources, self.lab.module, self.lab.not_allowed))

        def student(call: Call) -> Outcome:
            return localised(worker.ask(call), module, exercise.id)

        seed = hmac.new(self.secret, exercise.id.encode(), hashlib.sha256).hexdigest()
        try:
            if worker.over is not None:
                loading = localised(Outcome(failure=worker.over), module, exercise.id)
                return zero(exercise, said(loading.failure))
            result = run_checks("hidden", self.lab.module, exercise, student, self.oracle, seed)
        finally:
            worker.close()
        return self._verdict(result, note)

    def _verdict(self, result: Result, note: str) -> Graded:
        why = reasons(result, self.oracle)
        report = graded_report(result, why, remarks(result, self.oracle), note)
        failure = result.first_failure
        look = failure.difference.look if failure and failure.difference else note
        broken = result.broken is not None
        return Graded(result.exercise, result.score, report, why, look, needs_person=broken)


def zero(exercise: Exercise, reason: str) -> Graded:
    """No points, for a reason found before anything was run."""
    heading = f"Exercise {exercise.id}  {exercise.title}"
    report = Report(heading, f"0 of {exercise.points} points", [("look", reason)])
    return Graded(exercise, 0.0, report, look=reason)


def package_sources(lab: Lab) -> dict[str, str]:
    """The reference modules that a worker may hold: this lab's, earlier ones', given ones.

    A later lab's module is not sent; nor are solution marks.
    """
    later = {other.module for other in LABS if other.number > lab.number}
    return {
        path.stem: cells.plain(path.read_text("utf-8"))
        for path in sorted(Path(SOLUTIONS).glob("*.py"))
        if path.stem not in later and path.stem != "__init__"
    }


def write_outputs(notebook: NotebookNode, graded: list[Graded]) -> None:
    """Put each report and its points under the check cell, as if the cell had been run."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    for one in graded:
        cell = cell_called(notebook, one.exercise.check_cell)
        shown = {"text/plain": str(one.report), "text/html": one.report.html()}
        points = {"text/plain": repr(float(one.score))}
        cell.outputs = [
            new_output("display_data", shown),
            new_output("execute_result", points, execution_count=1),
        ]
        cell.execution_count = 1
