"""Judging one submission: each exercise alone over the reference package, by hidden checks.

The judge never runs learner code; a Worker does. What the judge learns from it are outcomes,
which it compares with those of the reference.

An exercise is asked in one go, in the process that the learner's exercises share, and with
little time. Whatever is not fully right then, and had not a process of its own or was stopped
in it, is asked once more: call by call, in a fresh process, with all its time; that answer
counts. So an answer loses nothing to what an earlier exercise left behind, nor to a slow
machine, and what comes before a crash counts.

Three things make this fast, so that a class is graded a hundred times faster than by stock
nbgrader. For a right submission of lab 01 (three exercises), measured one at a time:
    one process for all exercises of a learner, as long as they are right: half of the time
    all calls that right answers meet in one message, not one for each check: half of the time
    right answers that are equal to the last bit are compared once: a quarter of the time
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from nbformat import NotebookNode

from labkit.author.mistakes import live_reference
from labkit.author.reference import reference_block
from labkit.checks.advice import advice_on
from labkit.checks.compare import error_text
from labkit.checks.diagnose import diagnose, remarks
from labkit.checks.explain import graded_report
from labkit.checks.package import compose, localised, reference_modules
from labkit.checks.runner import Result, run_checks
from labkit.checks.symptoms import symptoms
from labkit.core import cells
from labkit.core.report import Status
from labkit.core.syllabus import Exercise, Lab
from labkit.grading.judge import assembly
from labkit.grading.judge.assembly import Answers
from labkit.grading.judge.graded import GradedExercise, GradedSubmission, zero
from labkit.grading.judge.intake import Intake, rebuild
from labkit.grading.judge.worker_client import (
    ExpectedCalls,
    LoadRequest,
    Worker,
    WorkerLauncher,
)
from labkit.sandboxed import banned
from labkit.sandboxed.call import Call, Failure, Outcome
from labkit.sandboxed.limits import CPU_SECONDS

REMEMBERED = 1000  # verdicts on right answers
QUICK_SECONDS = 2  # of CPU for what is asked in one go; right answers take a tenth of one


class Judge:
    """Grades submissions of one lab; holds the reference, the mistakes and the run's secret."""

    def __init__(
        self,
        lab: Lab,
        released: NotebookNode,
        secret: bytes,
        workers: WorkerLauncher,
        cpu_seconds: int = CPU_SECONDS,
    ):
        self.lab, self.released, self.secret, self.workers = lab, released, secret, workers
        self.cpu_seconds = cpu_seconds  # for each exercise
        self.oracle = live_reference(lab)
        self.packages = packages_of(lab)
        self.right: dict[tuple[str, str, bytes], GradedExercise] = {}  # by the answers
        self.worker: Worker | None = None  # that may go on with the learner's next exercise
        self.layers: tuple[str, ...] = ()  # of protection round the learner's code

    def grade(
        self, data: bytes, before: Mapping[Lab, Answers] | None = None
    ) -> GradedSubmission:
        """The verdict on the bytes of one notebook; any bytes get one.

        before    what the same learner handed in for earlier labs, for the assembly
        """
        intake, self.layers = rebuild(data, self.released, self.lab), ()
        try:
            graded = [self.grade_exercise(each, intake) for each in self.lab.exercises]
        finally:
            self._end_worker()
        if self.lab.module == assembly.MODULE:
            answers = {**(before or {}), self.lab: intake.answers}
            graded = [self._with_assembly(each, answers) for each in graded]
        return GradedSubmission(tuple(graded), intake.problem, self.layers)

    def grade_exercise(self, exercise: Exercise, intake: Intake) -> GradedExercise:
        """Points and reasons; whatever goes wrong in here ends as a verdict, too."""
        note = intake.notes.get(exercise.id, "")
        answer = intake.answers[exercise.id]
        if not answer:
            return zero(exercise, note, Status.NOT_STARTED if answer == "" else Status.NOT_YET)
        try:
            return self._run(exercise, answer, intake, note)
        except Exception as error:  # a fault of ours must not stop a class
            self._end_worker()
            reason = f"the judge failed ({type(error).__name__}); a person has to look at this"
            return zero(exercise, reason, Status.NOT_CHECKED)

    def _run(
        self, exercise: Exercise, answer: str, intake: Intake, note: str
    ) -> GradedExercise:
        sources = dict(self.packages[exercise.id])
        others = [text for key, text in intake.answers.items() if key != exercise.id and text]
        module, own = laid_over(sources[self.lab.module], self.lab, exercise, answer, others)
        found = mentioned(own, module, self.lab.not_allowed)
        if found:
            where = line_in_cell(found[1], module, exercise)
            return zero(exercise, f"{where}{banned.message(found[0])}")
        sources[self.lab.module] = module
        request = LoadRequest(sources, self.lab.module, self.lab.not_allowed, self.cpu_seconds)
        quick = replace(request, cpu_seconds=min(QUICK_SECONDS, self.cpu_seconds))
        alone = self.worker is None
        self._load(quick, self.plans[exercise.id])
        answers = exercise.id, note, hashlib.sha256(self.worker.foreseen()).digest()
        if answers in self.right:
            return self.right[answers]
        graded = self._graded(exercise, module, note)
        if graded.full:
            if len(self.right) < REMEMBERED and not self.worker.asked_more:
                self.right[answers] = graded
            return graded
        if not alone or self.worker.stopped:
            self._end_worker()
            self._load(request, ExpectedCalls())
            graded = self._graded(exercise, module, note)
        graded = replace(graded, timed_out=self.worker.timed_out)
        self._end_worker()
        return graded

    def _load(self, request: LoadRequest, plan: ExpectedCalls) -> None:
        """Into the learner's running process, or else into a fresh one."""
        if self.worker is None:
            self.worker = self.workers.launch(request, plan, self.plans.values())
        else:
            self.worker.go_on(request, plan)
        self.layers = (*self.workers.sandbox.layers, *self.worker.layers)

    def _graded(self, exercise: Exercise, module: str, note: str) -> GradedExercise:
        """The verdict on what the worker has loaded, or why it could not be loaded."""
        worker, cell = self.worker, cells.block(module, exercise.id) or ""

        def student(call: Call) -> Outcome:
            return localised(worker.ask(call), module, exercise.id)

        if worker.over is not None:
            loading = localised(Outcome(failure=worker.over), module, exercise.id)
            said = advice_on(loading.failure, exercise, cell)
            return zero(exercise, "; ".join(filter(None, [error_text(loading.failure), said])))
        result = self._check(exercise, student)
        if result.interrupted:
            raise KeyboardInterrupt
        return self._verdict(result, note, cell)

    def _end_worker(self) -> None:
        if self.worker is not None:
            self.worker.close()
            self.worker = None

    def _with_assembly(
        self, graded: GradedExercise, answers: Mapping[Lab, Answers]
    ) -> GradedExercise:
        """The last exercise's report with what all parts give together; others as they are."""
        if graded.id != assembly.EXERCISE:
            return graded
        rows, timed_out = assembly.assembly_rows(answers, self.lab, self.workers)
        return replace(
            graded, rows=(*graded.rows, *rows), timed_out=graded.timed_out or timed_out
        )

    def _check(self, exercise: Exercise, student: Callable[[Call], Outcome]) -> Result:
        seed = hmac.new(self.secret, exercise.id.encode(), hashlib.sha256).hexdigest()
        module, right = self.lab.module, self.oracle.reference
        return run_checks("hidden", module, exercise, student, right, seed)

    @cached_property
    def plans(self) -> dict[str, ExpectedCalls]:
        """The calls that right answers meet; found by checking the reference, once."""
        return {exercise.id: self._plan(exercise) for exercise in self.lab.exercises}

    def _plan(self, exercise: Exercise) -> ExpectedCalls:
        plan = ExpectedCalls()

        def noted(call: Call) -> Outcome:
            plan.learn(call)
            return self.oracle.reference(call)

        self._check(exercise, noted)
        return plan

    def _verdict(self, result: Result, note: str, cell: str) -> GradedExercise:
        found = diagnose(result, self.oracle, cell)
        known = symptoms(result, found.unexplained, self.oracle)
        notes = remarks(result, self.oracle)
        report = graded_report(result, found.reasons, known, notes, note)
        failure = result.first_failure
        look = failure.difference.look if failure and failure.difference else note
        return GradedExercise(
            result.exercise.id,
            result.score,
            report.status,
            tuple(report.rows),
            tuple(found.sentences),
            look,
            needs_person=result.broken is not None,
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


def packages_of(lab: Lab) -> dict[str, dict[str, str]]:
    """{exercise id: the package that it is laid over}: the reference up to this lab.

    The exercise and later ones are stubs: no worker ever holds a reference that is still to
    be graded.
    """
    package, packages = compose(reference_modules(), {}, lab), {}
    for exercise in reversed(lab.exercises):
        stub = cells.stub(reference_block(lab, exercise), exercise)
        package = packages[exercise.id] = compose(package, {exercise.id: stub})
    return packages
