"""Run checks: the learner's code and the reference perform the same calls, and every outcome is
compared.

Expected values are not stored: the reference computes them in each run, as hidden numbers
depend on a secret. The price is the reference's time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module

import torch

from labkit.checks.compare import Difference, compare
from labkit.checks.declared import BrokenCheck, Check
from labkit.course.paths import fault
from labkit.course.syllabus import Exercise
from labkit.sandbox.inside.call import Call, Outcome, describe, tensors_in
from labkit.sandbox.inside.importer import PACKAGE, filename
from labkit.sandbox.inside.perform import perform

HALF = (torch.float16, torch.bfloat16)
Performer = Callable[[Call], Outcome]
Ask = Callable[[str, Call], Outcome]  # performs a call in a module of the package


@dataclass(eq=False)
class CheckResult:
    """The result of one check: the outcomes of its calls, viewed, and how they differ."""

    check: Check
    passed: bool
    outcomes: list[Outcome] = field(default_factory=list)
    difference: Difference | None = None
    differing: int = 0  # the number of the outcome that differs
    rounded_otherwise: bool = (
        False  # whether it passed with different last places in half precision
    )

    def __post_init__(self) -> None:
        self.title, self.points = self.check.title, self.check.points

    @property
    def failure_call(self) -> Call:
        """The call whose outcome differs; with a view of several calls, the last one."""
        calls = self.check.calls
        return calls[min(self.differing, len(calls) - 1)]


@dataclass
class Result:
    """All checks of one exercise."""

    exercise: Exercise
    checks: list[CheckResult] = field(default_factory=list)
    broken: str | None = None  # a fault of the course, not of the learner
    interrupted: bool = False
    bounds: tuple[float, float] = (0.0, 1.0)  # least and most share lost, by the named mistakes

    @property
    def passed(self) -> bool:
        return bool(self.checks) and all(c.passed for c in self.checks) and not self.broken

    @property
    def failed(self) -> list[CheckResult]:
        return [check for check in self.checks if not check.passed]

    @property
    def share(self) -> float:
        """The weight of the passed checks as a share of all, within its bounds; checks of
        refusals are worth nothing if no other check passed."""
        right = [o for check in self.checks if check.passed for o in check.outcomes]
        possible = sum(check.points for check in self.checks)
        lost = sum(check.points for check in self.failed) / possible if possible else 1.0
        if right and all(outcome.failure for outcome in right):
            lost = 1.0
        least, most = self.bounds
        return 1 - min(max(lost, least), most)

    @property
    def score(self) -> float:
        """The points earned in the exercise."""
        return round(self.exercise.points * self.share, 2)

    @property
    def unfair(self) -> str:
        """Why these checks cannot be used, if this is the reference's own result; else ""."""
        if self.broken or self.passed:
            return self.broken or ""
        first = self.first_failure
        if first is None:
            return "its checks weigh nothing"
        return f"the reference itself gets {self.score:g}: {first.title}: {first.difference}"

    @property
    def first_failure(self) -> CheckResult | None:
        return next((check for check in self.checks if not check.passed), None)


def run_checks(
    exercise: Exercise, checks: Sequence[Check], student: Performer, reference: Performer
) -> Result:
    """Perform the calls of prepared checks on both sides and compare."""
    result = Result(exercise)
    try:
        for check in checks:
            result.checks.append(run_check(check, student, reference))
    except KeyboardInterrupt:
        result.interrupted = True
    except BrokenCheck as error:
        result.broken = str(error)
    return result


def run_check(check: Check, student: Performer, reference: Performer) -> CheckResult:
    """Run one check. Errors: BrokenCheck if the reference's outcomes cannot be compared."""
    found = CheckResult(check, False)
    try:
        right = check.viewed([reference(call) for call in check.calls])
        found.outcomes = check.viewed([student(call) for call in check.calls])
        for number, pair in enumerate(zip(found.outcomes, right, strict=True)):
            found.differing = number
            compare(found.failure_call, *pair, check.declaration.tolerance)
        found.passed = True
        found.rounded_otherwise = any(map(_differ_in_half, found.outcomes, right))
    except Difference as difference:
        found.difference = difference
    except Exception as error:  # an odd object of the learner's, or a fault of the check
        found.difference = Difference("type", "odd")
        if student is not reference and not run_check(check, reference, reference).passed:
            raise BrokenCheck(f"{check.address}: {fault(error)}") from error
    return found


def _differ_in_half(answer: Outcome, right: Outcome) -> bool:
    pairs = zip(tensors_in(answer.values, ""), tensors_in(right.values, ""), strict=False)
    return any(b.dtype in HALF and not torch.equal(a, b) for (_, a), (_, b) in pairs)


def package_in(folder: str = PACKAGE) -> Ask:
    """Return a function that performs calls in the package; tracebacks show it in `folder`."""

    def ask(module: str, call: Call) -> Outcome:
        path = filename(module, folder)
        try:
            namespace = vars(import_module(f"{PACKAGE}.{module}"))
        except (Exception, SystemExit) as error:  # the learner's module may raise anything
            return Outcome(failure=describe(error, path))
        return perform(call, namespace, path)

    return ask
