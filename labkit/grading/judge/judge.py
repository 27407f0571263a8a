"""Judging one submission: each exercise alone over the reference package, by hidden checks.

The judge never runs learner code; a Worker does. What the judge learns from it are outcomes,
which it compares with those of the reference.

The numbers of the checks depend on the run's secret, so that all learners of a run get the
same ones: the reference and the mistakes perform each call once. One learner could read them,
though, and hand a table of answers to the next. So one check comes twice, the second time with
numbers that depend on the text of all answers, too, and that no one has seen.

All calls of an exercise are one request, in the process that the learner's exercises share.
Whatever is not fully right there is asked once more, in a process of its own, each check
twice: a check counts that passes both times. So an answer loses nothing to what an earlier
exercise left behind, nor to a busy machine, and a table earns nothing. Where the process died
or had no memory, the reference is tried, then the answer again: perhaps it was the machine.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from nbformat import NotebookNode

from labkit.author.reference import reference_block
from labkit.checks.declared import BrokenCheck, Check, prepared_checks
from labkit.checks.diagnose import diagnose, remarks
from labkit.checks.errors import advice_on
from labkit.checks.messages import error_text, graded_report
from labkit.checks.mistakes import Oracle
from labkit.checks.package import compose, localised, needed, reference_modules
from labkit.checks.runner import Result, run_checks
from labkit.course import cells
from labkit.course.files import of_the_disk
from labkit.course.lang import language, speaking, tr
from labkit.course.paths import fault
from labkit.course.report import Status
from labkit.course.syllabus import Exercise, Lab
from labkit.grading.judge import assembly
from labkit.grading.judge.assembly import Answers as LabAnswers
from labkit.grading.judge.graded import GradedExercise, GradedSubmission, zero
from labkit.grading.judge.intake import ASSEMBLED, Intake, language_of, rebuild
from labkit.sandbox.bubblewrap import ASK, GradingError
from labkit.sandbox.inside import banned
from labkit.sandbox.inside.call import Call, Failure, Outcome
from labkit.sandbox.inside.limits import CPU_SECONDS
from labkit.sandbox.inside.wire import encode_call
from labkit.sandbox.launch import Answers, LoadRequest, Worker, WorkerLauncher, compiled_modules

MISSING = {"NameError", "ImportError", "OSError", "SyntaxError"}


@dataclass(frozen=True)
class Questions:
    """The checks of an exercise with the numbers of this run.

    sent     the calls of each check, encoded
    drawn    the numbers of the checks whose calls depend on the seed
    """

    checks: list[Check]
    sent: list[list[bytes]]
    drawn: list[int]


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
        self.cpu_seconds = cpu_seconds  # for each process
        self.oracle = Oracle(lab)
        self.packages = packages_of(lab)
        self.codes = {key: compiled_modules(all_) for key, all_ in self.packages.items()}
        self.worker: Worker | None = None  # that may go on with the learner's next exercise
        self.layers: tuple[str, ...] = ()  # of protection round the learner's code

    def grade(
        self, data: bytes, before: Mapping[Lab, LabAnswers] | None = None
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
        self, data: bytes, before: Mapping[Lab, LabAnswers] | None
    ) -> GradedSubmission:
        intake, self.layers = rebuild(data, self.released, self.lab), ()
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
        answer, odd = intake.answers[exercise.id], exercise.id in intake.odd
        if not answer:
            status = Status.NOT_STARTED if answer == "" else Status.NOT_YET
            return replace(zero(exercise, note, status), needs_person=odd)
        graded = self._run(exercise, answer, note, repr(sorted(intake.answers.items())))
        asked = graded.needs_person or (odd and not graded.full)
        doubtful = graded.doubtful or banned.doubtful(answer)
        return replace(graded, needs_person=asked, doubtful=doubtful)

    def check_reference(self, *exercises: Exercise) -> None:
        """Grade the reference's answers, to these exercises or all, by the door through which
        a learner's come.

        GradingError if they do not earn all points there: then nobody can.
        """
        self._end_worker()
        try:
            for exercise in exercises or self.lab.exercises:
                answer = reference_block(self.lab, exercise)
                graded = self._run(exercise, answer, "", "")
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

    def _run(self, exercise: Exercise, answer: str, note: str, own: str) -> GradedExercise:
        """
        own    all that the learner's process may get to see of what was handed in
        """
        package, own_name = self.packages[exercise.id], self.lab.module
        module, part = laid_over(package[own_name], exercise, answer)
        found = mentioned(part, module, self.lab.not_allowed)
        if found:
            where = line_in_cell(found[1], module, exercise)
            return zero(exercise, f"{where}{banned.message(found[0], tr)}")
        seed = self._seed(exercise, own)
        result, answers = self._asked(exercise, module, seed)
        if result is None or not result.passed:
            self._end_worker()
            result, answers = self._asked(exercise, module, seed, again=True)
            self._end_worker()
        if own and lacked_machine(answers):  # or was it the machine that lacked something?
            self.check_reference(exercise)
            result, answers = self._asked(exercise, module, seed, again=True)
            self._end_worker()
        cell = cells.without_carried(cells.block(module, exercise.id) or "")
        if result is None:
            graded = self._not_loaded(exercise, answers, module, note, cell)
        else:
            graded = self._verdict(result, note, cell)
        odd = next((outcome.odd for outcome in answers.outcomes if outcome.odd), "")
        return replace(graded, timed_out=answers.timed_out, doubtful=odd)

    def _asked(
        self, exercise: Exercise, module: str, seed: str, again: bool = False
    ) -> tuple[Result | None, Answers]:
        """What one asking found, None where the cell could not be loaded.

        seed     of the numbers that this submission alone gets
        again    each check comes twice, not one of them
        """
        questions = self.questions[exercise.id]
        drawn = questions.drawn
        if drawn and not again:  # a check without gradients, if any: no table holds those
            checks = questions.checks
            plain = [n for n in drawn if not any(call.grad for call in checks[n].calls)]
            drawn = [(plain or drawn)[int(seed[:8], 16) % len(plain or drawn)]]
        twins = {number: self._prepared(exercise, seed, number)[0] for number in drawn}
        calls, messages = list[Call](), list[bytes]()
        for number, check in enumerate(questions.checks):  # what comes before a crash counts
            more = twins[number].calls if number in twins else []
            calls += [*check.calls, *more]
            messages += [*questions.sent[number], *map(encode_call, more)]
        if self.worker is None:
            self.worker = self.workers.start(self.lab.not_allowed, self.cpu_seconds)
            self.layers = (*self.workers.sandbox.layers, *self.worker.layers)
        answers = self.worker.answer(self._request(exercise, module), messages)
        if answers.stopped:
            self._end_worker()
        if answers.loading:
            return None, answers
        given = {
            id(call): localised(outcome, module, exercise.id)
            for call, outcome in zip(calls, answers.outcomes, strict=True)
        }
        checks, right = [*questions.checks, *twins.values()], self.oracle.reference
        result = run_checks(exercise, checks, lambda call: given[id(call)], right)
        if result.interrupted:
            raise KeyboardInterrupt
        if result.broken:
            raise RuntimeError(result.broken)
        count = len(questions.checks)
        result.checks, found = result.checks[:count], result.checks[count:]
        for number, twin in zip(twins, found, strict=True):
            if result.checks[number].passed and not twin.passed:
                result.checks[number] = twin
        return result, answers

    def _request(self, exercise: Exercise, module: str) -> LoadRequest:
        """What the worker is given: the lab's module with the learner's cell in it; of the
        reference what the released module imports, as code; to read, the learner's part alone.
        """
        name, package = self.lab.module, self.packages[exercise.id]
        names = needed(package, name) - {name}
        codes = {each: self.codes[exercise.id][each] for each in sorted(names)}
        return LoadRequest({name: module}, name, codes, {name: learners_part(module, exercise)})

    def _not_loaded(
        self, exercise: Exercise, answers: Answers, module: str, note: str, cell: str
    ) -> GradedExercise:
        failure = localised(Outcome(failure=answers.loading), module, exercise.id).failure
        reasons = [error_text(failure), advice_on(failure, exercise, cell), note]
        graded = zero(exercise, "; ".join(filter(None, reasons)))
        return replace(graded, needs_person=missed(failure))

    def _end_worker(self) -> None:
        if self.worker is not None:
            self.worker.stop()
            self.worker = None

    def _with_assembly(
        self, graded: GradedExercise, answers: Mapping[Lab, LabAnswers]
    ) -> GradedExercise:
        """The last exercise's report with what all parts give together; others as they are."""
        if graded.id != assembly.EXERCISE:
            return graded
        rows, timed_out = assembly.assembly_rows(answers, self.lab, self.workers)
        return replace(
            graded, rows=(*graded.rows, *rows), timed_out=graded.timed_out or timed_out
        )

    def _prepared(self, exercise: Exercise, seed: str, only: int | None = None) -> list[Check]:
        return prepared_checks("hidden", self.lab.module, exercise, seed, only)

    def _seed(self, exercise: Exercise, own: str = "") -> str:
        """Of the numbers that everybody gets; or of those that this submission alone gets."""
        about = f"{exercise.id} {own}".strip().encode()
        return hmac.new(self.secret, about, hashlib.sha256).hexdigest()

    @cached_property
    def questions(self) -> dict[str, Questions]:
        """What is asked of everybody. GradingError where the reference does not earn all
        points: then nobody can."""
        return {exercise.id: self._questions(exercise) for exercise in self.lab.exercises}

    def _questions(self, exercise: Exercise) -> Questions:
        right = self.oracle.reference
        try:
            checks = self._prepared(exercise, self._seed(exercise))
            others = self._prepared(exercise, self._seed(exercise, "another"))
            found = [run_checks(exercise, each, right, right) for each in (checks, others)]
            unfair = found[0].unfair or found[1].unfair
        except BrokenCheck as error:
            unfair = str(error)
        if unfair:
            raise GradingError(
                f"nothing is graded: exercise {exercise.id}, {exercise.points} points: {unfair}"
            )
        sent, other = (
            [[encode_call(call) for call in check.calls] for check in drawing]
            for drawing in (checks, others)
        )
        drawn = [number for number in range(len(sent)) if sent[number] != other[number]]
        return Questions(checks, sent, drawn)

    def _verdict(self, result: Result, note: str, cell: str) -> GradedExercise:
        found, notes = diagnose(result, self.oracle, cell), remarks(result, self.oracle)
        result.bounds = found.bounds
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


def lacked_machine(answers: Answers) -> bool:
    """Whether the process died, or there was no memory: a full machine does that, too."""
    failures = [answers.loading, *(outcome.failure for outcome in answers.outcomes)]
    return not answers.timed_out and any(
        f.kind in ("NoAnswer", "MemoryError") or "allocate memory" in f.text
        for f in failures
        if f is not None
    )


def missed(failure: Failure | None) -> bool:
    """Whether something was not to be found: a name, a package, a file, a GPU, the end of a
    line. Then it was perhaps the form that cost the points; other errors are the answer's own.
    """
    if failure is None:
        return False
    return "CUDA" in failure.text or not MISSING.isdisjoint((failure.kind, *failure.bases))


def always_missed(result: Result) -> bool:
    """Whether that is so in each check."""
    return not result.score and all(
        any(missed(outcome.failure) for outcome in check.outcomes) for check in result.checks
    )


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
