"""The hidden checks of a lab with the numbers of one run, and which of them come twice.

The numbers depend on the run's secret, so that all learners of a run get the same ones: the
reference and the mistakes perform each call once. One learner could read them, though, and
hand a table of answers to the next. So a check comes twice, the second time with numbers that
depend on the text of all answers, too, which no one has seen: its twin.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from labkit.checks.declared import BrokenCheck, Check, prepared_checks
from labkit.checks.runner import CheckResult, Performer, run_checks
from labkit.course.syllabus import Exercise, Lab
from labkit.sandbox.bubblewrap import GradingError
from labkit.sandbox.inside.call import Call
from labkit.sandbox.inside.wire import encode_call


@dataclass(frozen=True)
class Question:
    """A check with the numbers that all submissions get, and perhaps its twin.

    messages    its calls, encoded
    is_drawn    whether its numbers depend on the seed
    """

    check: Check
    messages: list[bytes]
    is_drawn: bool
    twin: Check | None = None

    @property
    def calls(self) -> list[tuple[Call, bytes]]:
        """All its calls in the order in which they are sent: those before a crash count."""
        calls = [*zip(self.check.calls, self.messages, strict=True)]
        twin = self.twin.calls if self.twin else []
        return calls + [(call, encode_call(call)) for call in twin]


def checks_of(questions: Sequence[Question]) -> list[Check]:
    """Return the checks, then the twins."""
    return [q.check for q in questions] + [q.twin for q in questions if q.twin]


def merge(questions: Sequence[Question], results: Sequence[CheckResult]) -> list[CheckResult]:
    """Return one result per question of `checks_of`: the twin's if only that did not pass."""
    of_twins = iter(results[len(questions) :])
    pairs = [
        (found, next(of_twins) if question.twin else found)
        for question, found in zip(questions, results, strict=False)
    ]
    return [twin if found.passed else found for found, twin in pairs]


class QuestionMaker:
    """Makes the questions of a run.

    reference    performs a call as the reference does
    """

    def __init__(self, lab: Lab, secret: bytes, reference: Performer):
        self.lab, self.secret, self.reference = lab, secret, reference

    def questions(self, exercise: Exercise, submitted: str, all_twice: bool) -> list[Question]:
        """
        submitted    the text of all answers of a submission
        all_twice    whether each check has a twin, not one of them
        """
        questions, seed = [*self.shared[exercise.id]], self.seed(exercise, submitted)
        chosen = [index for index, question in enumerate(questions) if question.is_drawn]
        if chosen and not all_twice:  # a check without gradients, if any: no table holds those
            plain = [n for n in chosen if not any(c.grad for c in questions[n].check.calls)]
            plain = plain or chosen
            chosen = [plain[int(seed[:8], 16) % len(plain)]]
        for index in chosen:
            (twin,) = self._prepare(exercise, seed, index)
            questions[index] = replace(questions[index], twin=twin)
        return questions

    def counts(self, exercise: Exercise) -> bool:
        """Whether the exercise limits the operations or the memory of torch."""
        calls = [call for question in self.shared[exercise.id] for call in question.check.calls]
        return any(call.most_operations or call.most_numbers for call in calls)

    def seed(self, exercise: Exercise, submitted: str = "") -> str:
        """Return the seed of the numbers for all submissions, or for a single one."""
        about = f"{exercise.id} {submitted}".strip().encode()
        return hmac.new(self.secret, about, hashlib.sha256).hexdigest()

    @cached_property
    def shared(self) -> dict[str, list[Question]]:
        """{exercise id: the questions that all submissions get}.

        Raises GradingError if the reference does not earn all points: then no answer can.
        """
        return {exercise.id: self._shared(exercise) for exercise in self.lab.exercises}

    def _shared(self, exercise: Exercise) -> list[Question]:
        try:
            checks = self._prepare(exercise, self.seed(exercise))
            others = self._prepare(exercise, self.seed(exercise, "another"))
            tried = [run_checks(exercise, c, *[self.reference] * 2) for c in (checks, others)]
            unfair = tried[0].unfair or tried[1].unfair
        except BrokenCheck as error:
            unfair = str(error)
        if unfair:
            raise GradingError(
                f"nothing is graded: exercise {exercise.id}, {exercise.points} points: {unfair}"
            )
        questions = []
        for check, other in zip(checks, others, strict=True):
            messages = [encode_call(call) for call in check.calls]
            is_drawn = messages != [encode_call(call) for call in other.calls]
            questions.append(Question(check, messages, is_drawn))
        return questions

    def _prepare(self, exercise: Exercise, seed: str, only: int | None = None) -> list[Check]:
        return prepared_checks("hidden", self.lab.module, exercise, seed, only)
