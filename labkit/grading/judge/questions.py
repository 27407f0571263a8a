"""The hidden checks of a lab with the numbers of one run, and which of them come twice.

The numbers depend on the run's secret, so that all learners of a run get the same ones: the
reference and the mistakes perform each call once. One learner could read them, though, and
hand a table of answers to the next. So a check comes twice, the second time with numbers that
depend on the text of all answers, too, and that no one has seen: its twin.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from functools import cached_property

from labkit.checks.declared import BrokenCheck, Check, prepared_checks
from labkit.checks.runner import Performer, Result, run_checks
from labkit.course.syllabus import Exercise, Lab
from labkit.sandbox.bubblewrap import GradingError
from labkit.sandbox.inside.call import Call
from labkit.sandbox.inside.wire import encode_call


@dataclass(frozen=True)
class Shared:
    """The checks of an exercise with the numbers that all submissions get.

    messages   the calls of each check, encoded
    drawn      the indices of the checks whose calls depend on the seed
    """

    checks: list[Check]
    messages: list[list[bytes]]
    drawn: list[int]


@dataclass(frozen=True)
class Questions:
    """What one request asks: checks, and {index of a check: its twin}."""

    shared: Shared
    twins: dict[int, Check]

    @property
    def checks(self) -> list[Check]:
        return [*self.shared.checks, *self.twins.values()]

    @property
    def order(self) -> list[tuple[Call, bytes]]:
        """The calls as they are sent, each twin after its check: what comes before a crash
        counts."""
        order = []
        for index, check in enumerate(self.shared.checks):
            twin = self.twins[index].calls if index in self.twins else []
            order += zip(check.calls, self.shared.messages[index], strict=True)
            order += [(call, encode_call(call)) for call in twin]
        return order

    def merge(self, result: Result) -> None:
        """Leave one result for each check: that of the twin where it alone did not pass."""
        count = len(self.shared.checks)
        result.checks, of_twins = result.checks[:count], result.checks[count:]
        for index, twin in zip(self.twins, of_twins, strict=True):
            if result.checks[index].passed and not twin.passed:
                result.checks[index] = twin


class QuestionMaker:
    """Makes the questions of a run.

    reference    performs a call as the reference does
    """

    def __init__(self, lab: Lab, secret: bytes, reference: Performer):
        self.lab, self.secret, self.reference = lab, secret, reference

    def questions(self, exercise: Exercise, submitted: str, all_twice: bool) -> Questions:
        """
        submitted    the text of all answers of a submission
        all_twice    whether each check has a twin, not one of them
        """
        shared, seed = self.shared[exercise.id], self.seed(exercise, submitted)
        chosen = shared.drawn
        if chosen and not all_twice:  # a check without gradients, if any: no table holds those
            checks = shared.checks
            plain = [n for n in chosen if not any(call.grad for call in checks[n].calls)]
            plain = plain or chosen
            chosen = [plain[int(seed[:8], 16) % len(plain)]]
        twins = {index: self._prepared(exercise, seed, index)[0] for index in chosen}
        return Questions(shared, twins)

    def seed(self, exercise: Exercise, submitted: str = "") -> str:
        """The seed of the numbers that all submissions get, or that one alone gets."""
        about = f"{exercise.id} {submitted}".strip().encode()
        return hmac.new(self.secret, about, hashlib.sha256).hexdigest()

    @cached_property
    def shared(self) -> dict[str, Shared]:
        """{exercise id: what all submissions are asked}.

        Errors: GradingError where the reference does not earn all points: then no answer can.
        """
        return {exercise.id: self._shared(exercise) for exercise in self.lab.exercises}

    def _shared(self, exercise: Exercise) -> Shared:
        try:
            checks = self._prepared(exercise, self.seed(exercise))
            others = self._prepared(exercise, self.seed(exercise, "another"))
            tried = [run_checks(exercise, c, *[self.reference] * 2) for c in (checks, others)]
            unfair = tried[0].unfair or tried[1].unfair
        except BrokenCheck as error:
            unfair = str(error)
        if unfair:
            raise GradingError(
                f"nothing is graded: exercise {exercise.id}, {exercise.points} points: {unfair}"
            )
        messages, other = (
            [[encode_call(call) for call in check.calls] for check in drawing]
            for drawing in (checks, others)
        )
        drawn = [index for index, sent in enumerate(messages) if sent != other[index]]
        return Shared(checks, messages, drawn)

    def _prepared(self, exercise: Exercise, seed: str, only: int | None = None) -> list[Check]:
        return prepared_checks("hidden", self.lab.module, exercise, seed, only)
