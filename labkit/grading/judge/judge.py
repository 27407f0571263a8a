"""Judging one submission: each exercise alone over the reference package, by hidden checks.

The judge never runs learner code; a Worker does. The judge gets outcomes from it, and compares
them with those of the reference. See questions.py for the numbers in them.

All calls of an exercise are one request, in the process that the learner's exercises share
(one for each exercise would cost 20 to 80 % more CPU). It ends after an answer that is not
right, or is unusual: its changes to the process are gone before the next one.

An answer that is not fully right is tried once more in a new process, each check twice: a check
counts only if it passes both times. So neither the leftovers of an earlier
exercise nor a busy machine cost points, and a table of answers earns none. If the process died
or had
no memory, the reference is tried, then the answer again: the machine may have been the cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nbformat import NotebookNode

from labkit.author.reference import reference_block
from labkit.checks.diagnose import diagnose
from labkit.checks.errors import advice_on
from labkit.checks.messages import error_text, graded_report
from labkit.checks.mistakes import Oracle
from labkit.checks.package import imported_by, localize
from labkit.checks.runner import Result, run_checks
from labkit.course import cells
from labkit.course.files import of_the_disk
from labkit.course.lang import language, speaking
from labkit.course.paths import fault
from labkit.course.report import Status
from labkit.course.syllabus import Exercise, Lab
from labkit.grading.judge import assembly
from labkit.grading.judge.assembly import Answers as LabAnswers
from labkit.grading.judge.graded import GradedExercise, GradedSubmission, zero
from labkit.grading.judge.intake import ASSEMBLED, Intake, language_of, rebuild
from labkit.grading.judge.questions import QuestionMaker, checks_of, merge
from labkit.grading.judge.submitted_code import SubmittedCode, packages_of, submitted_code
from labkit.grading.judge.unusual import unusual
from labkit.sandbox.bubblewrap import ASK, GradingError
from labkit.sandbox.inside.call import Failure, Outcome
from labkit.sandbox.inside.limits import CPU_SECONDS
from labkit.sandbox.launch import Answers, LoadRequest, Worker, WorkerLauncher, compiled_modules

MISSING = {"NameError", "ImportError", "OSError", "SyntaxError"}


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
        self.lab, self.released, self.workers = lab, released, workers
        self.cpu_seconds = cpu_seconds  # seconds for each process
        self.oracle = Oracle(lab)
        self.maker = QuestionMaker(lab, secret, self.oracle.reference)
        self.packages = packages_of(lab)
        self.codes = {key: compiled_modules(code) for key, code in self.packages.items()}
        # a process that may go on with the learner's next exercise
        self.worker: Worker | None = None
        self.layers: tuple[str, ...] = ()  # layers of protection around the learner's code

    def grade(
        self, data: bytes, before: Mapping[Lab, LabAnswers] | None = None
    ) -> GradedSubmission:
        """Return the verdict on the bytes of one notebook; any bytes get one.

        before    the same learner's answers to earlier labs, for the assembly
        Raises GradingError, or a fault of the course, after the reference was tried.
        """
        with speaking(language_of(data)):
            try:
                return self._submission(data, before)
            except Exception as error:  # a fault of the course is not a verdict
                if not isinstance(error, GradingError) and not of_the_disk(error):
                    self.check_reference()  # GradingError if it fails at the reference as well
                raise

    def _submission(
        self, data: bytes, before: Mapping[Lab, LabAnswers] | None
    ) -> GradedSubmission:
        intake, self.layers = rebuild(data, self.released, self.lab), ()
        try:
            graded = [self.grade_exercise(e, intake) for e in self.lab.exercises]
        finally:
            self._end_worker()
        if self.lab.module == ASSEMBLED:
            answers = {**(before or {}), self.lab: intake.answers}
            graded = [self._with_assembly(exercise, answers) for exercise in graded]
        return GradedSubmission(tuple(graded), intake.problem, self.layers, language())

    def grade_exercise(self, exercise: Exercise, intake: Intake) -> GradedExercise:
        """Return points and reasons; any error of the answer is a verdict."""
        note = intake.notes.get(exercise.id, "")
        answer, odd = intake.answers[exercise.id], exercise.id in intake.odd
        if not answer:
            status = Status.NOT_STARTED if answer == "" else Status.NOT_YET
            return replace(zero(exercise, note, status), needs_person=odd)
        graded = self._run(exercise, intake.answers, note, repr(sorted(intake.answers.items())))
        return replace(graded, needs_person=graded.needs_person or (odd and not graded.full))

    def check_reference(self, *exercises: Exercise) -> None:
        """Grade the reference's answers, to these exercises or all, in the same way as a
        learner's.

        Errors: GradingError if they do not earn all points there: then no answer can.
        """
        self._end_worker()
        try:
            for exercise in exercises or self.lab.exercises:
                answer = reference_block(self.lab, exercise)
                graded = self._run(exercise, {exercise.id: answer}, "", "")
                if not graded.full:
                    raise GradingError(
                        f"nothing is graded: exercise {exercise.id}, in the sandbox the "
                        f"reference itself does not get all points: {graded.reason}"
                    )
        except Exception as error:
            if isinstance(error, GradingError) or of_the_disk(error):
                raise
            raise GradingError(
                "nothing is graded: in the sandbox the judge fails even at the reference "
                f"({fault(error)}); {ASK}"
            ) from error
        finally:
            self._end_worker()

    def _run(
        self, exercise: Exercise, answers: LabAnswers, note: str, submitted: str
    ) -> GradedExercise:
        """
        submitted    the text of all answers that the learner's process may see
        """
        code = submitted_code(self.packages[exercise.id], self.lab, exercise, answers)
        if refusal := code.refusal(self.lab.not_allowed):
            return zero(exercise, refusal)
        result, came = self._ask(code, submitted)
        if result is None or not result.passed:
            result, came = self._ask_alone(code, submitted)
        if submitted and lacked_machine(came):
            self.check_reference(exercise)
            result, came = self._ask_alone(code, submitted)
        cell = cells.without_carried(code.block)
        if result is None:
            graded = self._not_loaded(code, came, note, cell)
        else:
            graded = self._verdict(result, note, cell)
        doubtful = unusual(code.with_imports, self.maker.counts(exercise))
        if doubtful:  # the next exercise starts without the changes of this one
            self._end_worker()
        return replace(graded, timed_out=came.timed_out, doubtful=doubtful)

    def _ask_alone(self, code: SubmittedCode, submitted: str) -> tuple[Result | None, Answers]:
        """Ask in a new process, with each check twice."""
        self._end_worker()
        try:
            return self._ask(code, submitted, all_twice=True)
        finally:
            self._end_worker()

    def _ask(
        self, code: SubmittedCode, submitted: str, all_twice: bool = False
    ) -> tuple[Result | None, Answers]:
        """Return the result of one request; None if the cell could not be loaded."""
        exercise = code.exercise
        questions = self.maker.questions(exercise, submitted, all_twice)
        calls = [pair for question in questions for pair in question.calls]
        if self.worker is None:
            self.worker = self.workers.start(self.lab.not_allowed, self.cpu_seconds)
            self.layers = (*self.workers.sandbox.layers, *self.worker.layers)
        answers = self.worker.answer(self._request(code), [message for _, message in calls])
        if answers.stopped:
            self._end_worker()
        if answers.loading:
            return None, answers
        outcome_of = {
            id(call): localize(outcome, code.module, exercise.id)
            for (call, _), outcome in zip(calls, answers.outcomes, strict=True)
        }
        result = run_checks(
            exercise,
            checks_of(questions),
            lambda call: outcome_of[id(call)],
            self.oracle.reference,
        )
        if result.interrupted:
            raise KeyboardInterrupt
        if result.broken:
            raise RuntimeError(result.broken)
        result.checks = merge(questions, result.checks)
        return result, answers

    def _request(self, code: SubmittedCode) -> LoadRequest:
        """Return the worker's request: the lab's module with the learner's cell in it, and the
        modules of the reference that it imports, compiled; only the learner's part is there as
        text.
        """
        name, exercise = self.lab.module, code.exercise
        names = imported_by(self.packages[exercise.id], name) - {name}
        codes = {module: self.codes[exercise.id][module] for module in sorted(names)}
        return LoadRequest({name: code.module}, name, codes, {name: code.readable})

    def _not_loaded(
        self, code: SubmittedCode, answers: Answers, note: str, cell: str
    ) -> GradedExercise:
        exercise = code.exercise
        failure = localize(Outcome(failure=answers.loading), code.module, exercise.id).failure
        reasons = [error_text(failure), advice_on(failure, exercise, cell), note]
        graded = zero(exercise, "; ".join(filter(None, reasons)))
        return replace(graded, needs_person=is_name_or_file_missing(failure))

    def _end_worker(self) -> None:
        if self.worker is not None:
            self.worker.stop()
            self.worker = None

    def _with_assembly(
        self, graded: GradedExercise, answers: Mapping[Lab, LabAnswers]
    ) -> GradedExercise:
        """Add rows on all parts together to the last exercise's report; keep the others."""
        if graded.id != assembly.EXERCISE:
            return graded
        rows, timed_out = assembly.assembly_rows(answers, self.lab, self.workers)
        return replace(
            graded, rows=(*graded.rows, *rows), timed_out=graded.timed_out or timed_out
        )

    def _verdict(self, result: Result, note: str, cell: str) -> GradedExercise:
        found = diagnose(result, self.oracle, cell)
        result.bounds = found.bounds
        report = graded_report(result, found, note)
        failure = result.first_failure
        look = failure.difference.look if failure and failure.difference else note
        return GradedExercise(
            result.exercise.id,
            result.share,
            report.status,
            tuple(report.rows),
            tuple(version.mistake.sentence for version in found.versions),
            look,
            needs_person=is_missing_in_each_check(result),
            values=tuple(version.value for version in found.versions),
        )


def lacked_machine(answers: Answers) -> bool:
    """Whether the process died or had no memory, which a full machine also causes."""
    failures = [answers.loading, *(outcome.failure for outcome in answers.outcomes)]
    return not answers.timed_out and any(
        f.kind in ("NoAnswer", "MemoryError") or "allocate memory" in f.text
        for f in failures
        if f is not None
    )


def is_name_or_file_missing(failure: Failure | None) -> bool:
    """Whether something was not found: a name, a package, a file, a GPU, the end of a line.
    Then the form may have cost the points; other errors are the answer's own."""
    if failure is None:
        return False
    return "CUDA" in failure.text or not MISSING.isdisjoint((failure.kind, *failure.bases))


def is_missing_in_each_check(result: Result) -> bool:
    """Whether every check lacks a name or a file, and no points are earned."""
    return not result.score and all(
        any(is_name_or_file_missing(outcome.failure) for outcome in check.outcomes)
        for check in result.checks
    )
