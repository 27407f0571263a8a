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
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from nbformat import NotebookNode

from labkit.author.reference import reference_block
from labkit.checks.declared import BrokenCheck, Check, prepared_checks
from labkit.checks.diagnose import diagnose, remarks
from labkit.checks.errors import advice_on
from labkit.checks.messages import error_text, graded_report
from labkit.checks.mistakes import Oracle
from labkit.checks.package import compose, localised, needed, reference_modules
from labkit.checks.runner import Performer, Result, run_checks
from labkit.core import cells
from labkit.core.files import of_the_disk
from labkit.core.paths import fault
from labkit.core.report import Status
from labkit.core.syllabus import Exercise, Lab
from labkit.grading.judge import assembly
from labkit.grading.judge.assembly import Answers
from labkit.grading.judge.graded import GradedExercise, GradedSubmission, zero
from labkit.grading.judge.intake import ASSEMBLED, Intake, language_of, rebuild
from labkit.lang import language, speaking, tr
from labkit.sandbox.bubblewrap import ASK, GradingError
from labkit.sandbox.inside import banned
from labkit.sandbox.inside.call import Call, Failure, Outcome
from labkit.sandbox.inside.limits import CPU_SECONDS
from labkit.sandbox.inside.wire import call_hash
from labkit.sandbox.launch import (
    ExpectedCalls,
    LoadRequest,
    Worker,
    WorkerLauncher,
    compiled_modules,
)

REMEMBERED = 1000  # verdicts on right answers
PATIENT_SECONDS = 60  # of one submission, after which its exercises get QUICK_SECONDS each
MISSING = {"NameError", "ImportError", "OSError", "SyntaxError"}
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
        self.oracle = Oracle(lab)
        self.checks: dict[str, list[Check]] = {}  # that everybody gets
        self.packages = packages_of(lab)
        self.right: dict[tuple[str, str, str, bytes], GradedExercise] = {}  # by the answers
        self.codes = {key: compiled_modules(all_) for key, all_ in self.packages.items()}
        self.worker: Worker | None = None  # that may go on with the learner's next exercise
        self.layers: tuple[str, ...] = ()  # of protection round the learner's code
        self.telling: dict[str, list[int]] = {}  # the checks that draw numbers
        self.began = math.inf  # when the submission in hand came; inf: none is in a hurry
        self.odd = ""  # what ran in the answer and a person should look at
        self.own = ""  # all that the learner's process may get to see of what was handed in
        self.asked_more = False  # in the last round: then its answers are not all foreseen

    def grade(
        self, data: bytes, before: Mapping[Lab, Answers] | None = None
    ) -> GradedSubmission:
        """The verdict on the bytes of one notebook; any bytes get one.

        before    what the same learner handed in for earlier labs, for the assembly
        """
        with speaking(language_of(data)):
            try:
                return self._submission(data, before)
            except Exception as error:  # a fault of ours is no verdict
                if not isinstance(error, GradingError) and not of_the_disk(error):
                    self.check_reference()  # does it hit everybody?
                raise

    def _submission(
        self, data: bytes, before: Mapping[Lab, Answers] | None
    ) -> GradedSubmission:
        intake, self.layers = rebuild(data, self.released, self.lab), ()
        self.began = time.monotonic()
        try:
            graded = [self.grade_exercise(each, intake) for each in self.lab.exercises]
        finally:
            self._end_worker()
        if self.lab.module == ASSEMBLED:
            answers = {**(before or {}), self.lab: intake.answers}
            graded = [self._with_assembly(each, answers) for each in graded]
        return GradedSubmission(tuple(graded), intake.problem, self.layers, language())

    def grade_exercise(self, exercise: Exercise, intake: Intake) -> GradedExercise:
        """Points and reasons; whatever goes wrong in the answer ends as a verdict, too."""
        note = intake.notes.get(exercise.id, "")
        answer, self.own = intake.answers[exercise.id], repr(sorted(intake.answers.items()))
        odd = exercise.id in intake.odd
        if not answer:
            status = Status.NOT_STARTED if answer == "" else Status.NOT_YET
            return replace(zero(exercise, note, status), needs_person=odd)
        graded = self._run(exercise, answer, note)
        asked = graded.needs_person or (odd and not graded.full)
        doubtful = graded.doubtful or banned.doubtful(answer)
        return replace(graded, needs_person=asked, doubtful=doubtful)

    def check_reference(self) -> None:
        """Grade the reference's answers by the door through which a learner's come.

        GradingError if they do not earn all points there: then nobody can.
        """
        self._end_worker()
        self.began, self.own = math.inf, ""
        try:
            for exercise in self.lab.exercises:
                answer = reference_block(self.lab, exercise)
                graded = self._run(exercise, answer, "")
                if not graded.full:
                    raise GradingError(
                        f"nothing is graded: exercise {exercise.id}, in the sandbox the "
                        f"reference itself does not get all points: {graded.reason}"
                    )
        except GradingError:
            raise
        except Exception as error:
            if of_the_disk(error):
                raise
            raise GradingError(
                "nothing is graded: in the sandbox the judge fails even at the reference "
                f"({fault(error)}); {ASK}"
            ) from error
        finally:
            self._end_worker()

    def _run(self, exercise: Exercise, answer: str, note: str) -> GradedExercise:
        package, own_name = self.packages[exercise.id], self.lab.module
        module, own = laid_over(package[own_name], exercise, answer)
        found = mentioned(own, module, self.lab.not_allowed)
        if found:
            where = line_in_cell(found[1], module, exercise)
            return zero(exercise, f"{where}{banned.message(found[0], tr)}")
        request = self._request(exercise, module)
        quick = replace(request, cpu_seconds=min(QUICK_SECONDS, self.cpu_seconds))
        alone = self.worker is None
        self._load(quick, self.plans[exercise.id])
        answers = language(), exercise.id, note, hashlib.sha256(self.worker.foreseen()).digest()
        if answers in self.right and self._holds_elsewhere(exercise, module):
            return self.right[answers]
        graded = self._graded(exercise, module, note)
        if graded.full:
            if len(self.right) < REMEMBERED and not self.asked_more:
                self.right[answers] = graded
            return graded
        if not alone or self.worker.stopped:
            self._end_worker()
            self._load(self._hurried(request), ExpectedCalls())
            graded = self._graded(exercise, module, note)
        self._end_worker()
        return graded

    def _request(self, exercise: Exercise, module: str) -> LoadRequest:
        """What the worker is given: the lab's module with the learner's cell in it; of the
        reference what the released module imports, as code; to read, the learner's part alone.
        """
        name, package = self.lab.module, self.packages[exercise.id]
        names = needed(package, name) - {name}
        codes = {each: self.codes[exercise.id][each] for each in sorted(names)}
        texts = {name: learners_part(module, exercise)}
        return LoadRequest(
            {name: module}, name, self.lab.not_allowed, self.cpu_seconds, True, codes, texts
        )

    def _hurried(self, request: LoadRequest) -> LoadRequest:
        """The request, with less time where the submission has used up a class's patience:
        right answers need a tenth of a second."""
        if time.monotonic() - self.began < PATIENT_SECONDS:
            return request
        return replace(request, cpu_seconds=min(QUICK_SECONDS, self.cpu_seconds))

    def _load(self, request: LoadRequest, plan: ExpectedCalls) -> None:
        """Into the learner's running process, or else into a fresh one."""
        if self.worker is None:
            self.worker = self.workers.launch(request, plan, self.plans.values())
        else:
            self.worker.go_on(request, plan)
        self.layers = (*self.workers.sandbox.layers, *self.worker.layers)

    def _student(self, exercise: Exercise, module: str) -> Performer:
        worker, self.odd = self.worker, ""

        def student(call: Call) -> Outcome:
            outcome = worker.ask(call)
            self.odd = self.odd or outcome.odd
            return localised(outcome, module, exercise.id)

        return student

    def _graded(self, exercise: Exercise, module: str, note: str) -> GradedExercise:
        """The verdict on what the worker has loaded, or why it could not be loaded."""
        worker = self.worker
        cell = cells.without_carried(cells.block(module, exercise.id) or "")
        if worker.over is not None:
            loading = localised(Outcome(failure=worker.over), module, exercise.id)
            said = advice_on(loading.failure, exercise, cell)
            reasons = [error_text(loading.failure), said, note]
            graded = zero(exercise, "; ".join(filter(None, reasons)))
            return replace(graded, needs_person=missed(loading.failure))
        result = self._check(exercise, self._student(exercise, module))
        odd = self.odd
        timed_out, self.asked_more = worker.timed_out, worker.asked_more
        self._keep_what_holds(result, exercise, module)
        if result.interrupted:
            raise KeyboardInterrupt
        return replace(self._verdict(result, note, cell), timed_out=timed_out, doubtful=odd)

    def _keep_what_holds(self, result: Result, exercise: Exercise, module: str) -> None:
        """If a check that passed fails with other numbers, those count that pass twice."""
        passed = [n for n in self.telling[exercise.id] if result.checks[n].passed]
        if not passed:
            return
        if self.worker.over is not None:  # it ended after some answers
            self._end_worker()
            self._load(self._hurried(self._request(exercise, module)), ExpectedCalls())
        if self._holds_elsewhere(exercise, module, passed):
            return
        student = self._student(exercise, module)
        again = self._check(exercise, student, self._seed(exercise, self.own))
        for number in passed:
            if not again.checks[number].passed:
                result.checks[number] = again.checks[number]

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

    def _check(self, exercise: Exercise, student: Performer, seed: str = "") -> Result:
        """With the numbers that everybody gets, or with those of another seed."""
        checks = self._prepared(exercise, seed) if seed else self.checks[exercise.id]
        return run_checks(exercise, checks, student, self.oracle.reference)

    def _prepared(self, exercise: Exercise, seed: str, only: int | None = None) -> list[Check]:
        return prepared_checks("hidden", self.lab.module, exercise, seed, only)

    def _seed(self, exercise: Exercise, own: str = "") -> str:
        """Of the numbers that everybody gets; or of those that this submission alone gets."""
        told = f"{exercise.id} {own}".strip().encode()
        return hmac.new(self.secret, told, hashlib.sha256).hexdigest()

    def _holds_elsewhere(
        self, exercise: Exercise, module: str, passed: Sequence[int] = ()
    ) -> bool:
        """Whether one of the checks that passed also passes with numbers that nobody has seen.

        Numbers of a run can be read by one submission and their answers written into the
        next. Work that is equal passes or fails alike; a table of answers does not.
        """
        numbers = passed or self.telling[exercise.id]
        if not numbers:
            return True
        seed = self._seed(exercise, self.own)
        number = numbers[int(seed[:8], 16) % len(numbers)]
        student, checks = (
            self._student(exercise, module),
            self._prepared(exercise, seed, number),
        )
        return run_checks(exercise, checks, student, self.oracle.reference).passed

    @cached_property
    def plans(self) -> dict[str, ExpectedCalls]:
        """The calls that right answers meet; found by checking the reference, once.
        GradingError where the reference does not earn all points: then nobody can."""
        return {exercise.id: self._plan(exercise) for exercise in self.lab.exercises}

    def _plan(self, exercise: Exercise) -> ExpectedCalls:
        plan = ExpectedCalls()
        right = self.oracle.reference
        try:
            self.checks[exercise.id] = self._prepared(exercise, self._seed(exercise))
            result = self._check(exercise, right)
            other = self._check(exercise, right, self._seed(exercise, "another"))
            unfair = result.unfair or other.unfair
        except BrokenCheck as error:
            unfair = str(error)
        if unfair:
            raise GradingError(
                tr(
                    "nothing is graded: exercise {id}, {points} points: {unfair}",
                    id=exercise.id,
                    points=exercise.points,
                    unfair=unfair,
                )
            )
        for call in [call for check in self.checks[exercise.id] for call in check.calls]:
            plan.learn(call)
        pairs = enumerate(zip(result.checks, other.checks, strict=True))
        self.telling[exercise.id] = [
            n for n, (a, b) in pairs if hashes(a.check) != hashes(b.check)
        ]
        return plan

    def _verdict(self, result: Result, note: str, cell: str) -> GradedExercise:
        if result.broken:
            raise RuntimeError(result.broken)
        found, notes = diagnose(result, self.oracle, cell), remarks(result, self.oracle)
        report = graded_report(result, found, notes, note)
        failure = result.first_failure
        look = failure.difference.look if failure and failure.difference else note
        return GradedExercise(
            result.exercise.id,
            result.share,
            report.status,
            tuple(report.rows),
            tuple(version.mistake.sentence for version in found.versions),
            look,
            needs_person=always_missed(result),
            values=tuple(version.value for version in found.versions),
        )


def laid_over(module: str, exercise: Exercise, answer: str) -> tuple[str, str]:
    """The reference module with one exercise's block by the learner; and of that module only
    the imports and their part."""
    module = cells.with_block(module, exercise, answer)
    return module, f"{cells.split(module)[0][1]}\n{cells.block(module, exercise.id)}"


def mentioned(own: str, module: str, not_allowed: Sequence[str]) -> tuple[str, int] | None:
    """What the learner's part mentions of what is not allowed, and the line in the module."""
    if cells.parsed(own) is not None and banned.found_in(own, not_allowed) is None:
        return None
    return banned.found_in(module, not_allowed)


def missed(failure: Failure | None) -> bool:
    """Whether something was not to be found: a name, a package, a file, the end of a line. Then
    it was perhaps the form that cost the points; other errors are the answer's own."""
    return failure is not None and not MISSING.isdisjoint((failure.kind, *failure.bases))


def always_missed(result: Result) -> bool:
    """Whether that is so in each check."""
    return not result.score and all(
        any(missed(outcome.failure) for outcome in check.outcomes) for check in result.checks
    )


def hashes(check: Check) -> list[str]:
    return [call_hash(call) for call in check.calls]


def learners_part(module: str, exercise: Exercise) -> str:
    """The module's text with every line blank that is not the learner's."""
    blocks = cells.split(module)
    return "".join(
        text if key == exercise.id else "\n" * text.count("\n") for key, text in blocks
    )


def line_in_cell(line: int, module: str, exercise: Exercise) -> str:
    outcome = localised(Outcome(failure=Failure("", "", line)), module, exercise.id)
    found = outcome.failure and outcome.failure.line
    return tr("line {found}: ", found=found) if found else tr("in another cell: ")


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
