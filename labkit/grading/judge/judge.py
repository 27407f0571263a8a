"""Judging one submission: each exercise alone over the reference package, by hidden checks.

The judge never runs learner code; a Worker does. What the judge learns from it are outcomes,
which it compares with those of the reference.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nbformat import NotebookNode, from_dict

from labkit.author.mistakes import live_reference
from labkit.checks.compare import error_text
from labkit.checks.diagnose import reasons, remarks
from labkit.checks.explain import graded_report
from labkit.checks.package import localised
from labkit.checks.runner import Result, run_checks
from labkit.core import cells
from labkit.core.paths import SOLUTIONS
from labkit.core.report import Report, Status
from labkit.core.syllabus import LABS, Exercise, Lab
from labkit.grading.judge import assembly
from labkit.grading.judge.assembly import Answers
from labkit.grading.judge.intake import Intake, cell_called, rebuild
from labkit.grading.judge.worker_client import (
    ExpectedCalls,
    LoadRequest,
    Worker,
    WorkerLauncher,
)
from labkit.sandboxed import banned
from labkit.sandboxed.call import Call, Failure, Outcome
from labkit.sandboxed.limits import CPU_SECONDS

REMEMBER = 10_000
QUICK_SECONDS = 2  # of CPU for what is asked in one go; right answers take a tenth of one


@dataclass
class Graded:
    """One exercise of one submission: points, the reasons, and the report."""

    exercise: Exercise
    score: float
    report: Report
    why: list[str] = field(default_factory=list)
    look: str = ""
    needs_person: bool = False
    late: bool = False  # the wall clock decided, which a busy machine can do


@dataclass
class Submission:
    """All exercises of one submission, and the notebook with the reports in it."""

    lab: Lab
    exercises: list[Graded]
    notebook: NotebookNode
    problem: str | None = None
    layers: list[str] = field(default_factory=list)  # of protection, as confine names them

    @property
    def late(self) -> bool:
        return any(graded.late for graded in self.exercises)

    @property
    def score(self) -> float:
        return round(sum(graded.score for graded in self.exercises), 2)


class Judge:
    """Grades submissions of one lab; holds the reference, the mistakes and the run's secret.

    remember    how many verdicts on answers to keep: the same answers, to the last bit, are
                then compared only once
    """

    def __init__(
        self,
        lab: Lab,
        released: NotebookNode,
        secret: bytes,
        workers: WorkerLauncher,
        cpu_seconds: int = CPU_SECONDS,
        remember: int = REMEMBER,
    ):
        self.lab, self.released, self.secret, self.workers = lab, released, secret, workers
        self.remember = remember
        self.known: dict[tuple[str, bytes], Graded] = {}  # by the answers that code gave
        self.cpu_seconds = cpu_seconds  # for each exercise
        self.oracle = live_reference(lab)
        self.sources = package_sources(lab)
        self.modules: dict[str, str] = {}  # the reference's module as it is for an exercise
        self.plans: dict[str, ExpectedCalls] = {}  # by exercise
        self.worker: Worker | None = None  # that may go on with the learner's next exercise
        self.layers: list[str] = []  # of protection round the last learner's code
        self.last = True  # see grade

    def grade(
        self, data: bytes, before: Mapping[Lab, Answers] | None = None, last: bool = True
    ) -> Submission:
        """The verdict on the bytes of one notebook; any bytes get one.

        before    what the same learner handed in for earlier labs, for the assembly
        last      False: what the wall clock decides will be asked for once more, so that it
                  is not worth waiting for now
        """
        self.last = last
        intake = rebuild(data, self.released, self.lab)
        try:
            graded = [self.grade_exercise(one, intake) for one in self.lab.exercises]
        finally:
            self._end_worker()
        if self.lab.module == assembly.MODULE:
            answers = {**(before or {}), self.lab: intake.answers}
            whole = next(one for one in graded if one.exercise.id == assembly.EXERCISE)
            rows, late = assembly.assembly_rows(answers, self.lab, self.workers)
            whole.report = replace(whole.report, rows=[*whole.report.rows, *rows])
            whole.late = whole.late or late
        write_outputs(intake.notebook, graded)
        return Submission(self.lab, graded, intake.notebook, intake.problem, self.layers)

    def grade_exercise(self, exercise: Exercise, intake: Intake) -> Graded:
        """Points and reasons; whatever goes wrong in here ends as a verdict, too."""
        note = intake.notes.get(exercise.id, "")
        answer = intake.answers[exercise.id]
        if not answer:
            begun = exercise.id not in intake.absent
            return zero(exercise, note, Status.NOT_YET if begun else Status.NOT_STARTED)
        try:
            return self._run(exercise, answer, intake, note)
        except Exception as error:  # a fault of ours must not stop a class
            self._end_worker()
            reason = f"the judge failed ({type(error).__name__}); a person has to look at this"
            return zero(exercise, reason, Status.NOT_CHECKED)

    def _run(self, exercise: Exercise, answer: str, intake: Intake, note: str) -> Graded:
        sources = self._sources_for(exercise)
        others = [text for key, text in intake.answers.items() if key != exercise.id and text]
        module, own = laid_over(sources[self.lab.module], self.lab, exercise, answer, others)
        found = mentioned(own, module, self.lab.not_allowed)
        if found:
            where = line_in_cell(found[1], module, exercise)
            return zero(exercise, f"{where}{banned.message(found[0])}")
        sources[self.lab.module] = module
        order = LoadRequest(sources, self.lab.module, self.lab.not_allowed, self.cpu_seconds)
        quick = replace(order, cpu_seconds=min(QUICK_SECONDS, self.cpu_seconds))
        plan, went_on = self._plans()[exercise.id], self.worker is not None
        graded, broke = self._asked(exercise, quick, plan, note)
        if went_on and not broke and graded.score < exercise.points:  # its own fault?
            graded, broke = self._asked(exercise, quick, plan, note)
        if broke and (self.last or not graded.late):
            # call by call, with all its time: what comes before the break counts
            graded, _ = self._asked(exercise, order, ExpectedCalls(), note)
        return graded

    def _asked(
        self, exercise: Exercise, order: LoadRequest, plan: ExpectedCalls, note: str
    ) -> tuple[Graded, bool]:
        """What the checks say of `order`, and whether the worker broke off.

        The worker that has got everything right so far goes on; else there is a fresh one.
        """
        if self.worker is None:
            self.worker = self.workers.launch(order, plan)
        else:
            self.worker.go_on(order, plan)
        worker, module = self.worker, order.sources[order.module]
        self.layers = [*self.workers.sandbox.layers, *worker.layers]

        def student(call: Call) -> Outcome:
            return localised(worker.ask(call), module, exercise.id)

        key = f"{exercise.id} {note}", hashlib.sha256(worker.heard()).digest()
        if worker.over is not None:
            loading = localised(Outcome(failure=worker.over), module, exercise.id)
            graded = zero(exercise, error_text(loading.failure))
        elif key in self.known:
            graded = self.known[key]
        else:
            result = self._check(exercise, student)
            if result.interrupted:
                raise KeyboardInterrupt
            graded = self._verdict(result, note)
            if len(self.known) < self.remember and worth_keeping(graded, worker):
                self.known[key] = graded
        if graded.score < exercise.points:
            self._end_worker()
        return replace(graded, late=worker.late), worker.broke

    def _end_worker(self) -> None:
        if self.worker is not None:
            self.worker.close()
            self.worker = None

    def _check(self, exercise: Exercise, student: Callable[[Call], Outcome]) -> Result:
        seed = hmac.new(self.secret, exercise.id.encode(), hashlib.sha256).hexdigest()
        return run_checks("hidden", self.lab.module, exercise, student, self.oracle, seed)

    def _plans(self) -> dict[str, ExpectedCalls]:
        """The calls that right answers meet; found by checking the reference, once."""
        if not self.plans:
            self.plans = {one.id: self._plan(one) for one in self.lab.exercises}
        return self.plans

    def _plan(self, exercise: Exercise) -> ExpectedCalls:
        plan = ExpectedCalls()

        def noted(call: Call) -> Outcome:
            plan.learn(call)
            return self.oracle.reference(call)

        self._check(exercise, noted)
        return plan

    def _sources_for(self, exercise: Exercise) -> dict[str, str]:
        """The package for one exercise: later exercises of the lab are stubs, so that no
        worker ever holds a reference that is still to be graded."""
        if exercise.id in self.modules:
            return {**self.sources, self.lab.module: self.modules[exercise.id]}
        place = [e.id for e in self.lab.exercises].index(exercise.id)
        later = {e.id: e for e in self.lab.exercises[place:]}
        marked = (SOLUTIONS / f"{self.lab.module}.py").read_text("utf-8")
        texts = [
            cells.stub(text, later[key]) if key in later else cells.plain(text)
            for key, text in cells.split(marked)
        ]
        self.modules[exercise.id] = "".join(texts)
        return self._sources_for(exercise)

    def _verdict(self, result: Result, note: str) -> Graded:
        why = reasons(result, self.oracle)
        report = graded_report(result, why, remarks(result, self.oracle), note)
        failure = result.first_failure
        look = failure.difference.look if failure and failure.difference else note
        broken = result.broken is not None
        return Graded(result.exercise, result.score, report, why, look, needs_person=broken)


def worth_keeping(graded: Graded, worker: Worker) -> bool:
    """Whether code with the same answers, to the last bit, gets the same verdict: if all was
    asked beforehand, and no line of this learner's code is in the report."""
    if worker.over is not None or worker.asked or not worker.answers or graded.needs_person:
        return False
    return graded.score == graded.exercise.points or not any(
        answer.failure for answer in worker.answers
    )


def laid_over(
    module: str, lab: Lab, exercise: Exercise, answer: str, others: list[str]
) -> tuple[str, str]:
    """The reference module with one exercise's block by the learner, and before it whatever
    that block uses of their other cells; and of that module only the imports and their part."""
    symbols = {symbol for e in lab.exercises for symbol in e.symbols}
    header = cells.split(module)[0][1]
    extra = cells.helpers(answer, others, symbols | set(cells.defined_names(header)))
    module = cells.with_block(module, exercise, answer)
    own = f"{header}\n{extra}\n{cells.tidied(answer)}"
    if not extra:
        return module, own
    given = f"# %% given: from the learner's other cells\n{extra}\n\n\n"
    start = module.index(cells.block(module, exercise.id) or "")
    return module[:start] + given + module[start:], own


def mentioned(own: str, module: str, not_allowed: Sequence[str]) -> tuple[str, int] | None:
    """What the learner's part mentions of what is not allowed, and the line in the module."""
    if cells.parsed(own) is not None and banned.found_in(own, not_allowed) is None:
        return None
    return banned.found_in(module, not_allowed)


def line_in_cell(line: int, module: str, exercise: Exercise) -> str:
    outcome = localised(Outcome(failure=Failure("", "", line)), module, exercise.id)
    found = outcome.failure and outcome.failure.line
    return f"line {found}: " if found else "in another cell: "


def zero(exercise: Exercise, reason: str, status: Status = Status.NOT_YET) -> Graded:
    """No points, for a reason found before anything was run."""
    heading = f"Exercise {exercise.id}  {exercise.title}"
    report = Report(heading, status, [("look", reason)], f"0 of {exercise.points} points")
    needs_person = status is Status.NOT_CHECKED
    return Graded(exercise, 0.0, report, look=reason, needs_person=needs_person)


def package_sources(lab: Lab) -> dict[str, str]:
    """The reference modules that a worker may hold: this lab's, earlier ones', given ones.

    A later lab's module is not sent; nor are solution marks.
    """
    later = {other.module for other in LABS if other.number > lab.number}
    return {
        path.stem: cells.plain(path.read_text("utf-8"))
        for path in sorted(SOLUTIONS.glob("*.py"))
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
        cell.outputs = [output("display_data", shown), output("execute_result", points)]
        cell.outputs[1]["execution_count"] = 1
        cell.execution_count = 1


def output(kind: str, data: dict[str, str]) -> NotebookNode:
    """What nbformat's new_output makes, without its validation, which takes milliseconds."""
    return from_dict({"output_type": kind, "metadata": {}, "data": data})
