"""Running checks: what student, reference and rng are, and what the markers say.

    @pytest.mark.exercise("1.2")     which exercise a test (or a class of tests) belongs to
    @pytest.mark.points(2)           its weight within the exercise; 1 if not said

A test performs the same Call on `student` and on `reference` and compares. Who performs it
is not the test's business: `student` may be this process or a confined one, `reference` may
be live or recorded. pytest finds the tests and expands their parameters; they are then called
as the plain functions that they are, with no other fixture.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy
import pytest
import torch
from torch import Tensor

from labkit.checks.compare import (
    Difference,
    Performer,
    assert_drawn,
    assert_same,
    compare,
    short,
)
from labkit.core.paths import TESTS, fault
from labkit.core.syllabus import Exercise
from labkit.lang import tr
from labkit.sandboxed.call import Call, Given, New, Outcome

__all__ = ["Call", "Given", "New", "Outcome", "Rng", "assert_drawn", "assert_same", "compare"]

MARKS = {"exercise", "points", "parametrize"}
FIXTURES = ("student", "reference", "rng")


@dataclass(frozen=True)
class KnownMistake:
    """A known wrong version: its sentence, and what it gives for the call at hand."""

    name: str
    sentence: str
    costs: bool  # False: only worth a remark
    give: Callable[[], Outcome]

    @cached_property
    def outcome(self) -> Outcome:
        """Performed when it is asked for: most mistakes are out of the question before."""
        return self.give()


class Oracle(Protocol):
    """Who knows the right outcome of a call, and those of the known mistakes."""

    def reference(self, call: Call) -> Outcome: ...

    def suspects(self, call: Call) -> list[KnownMistake]: ...


class Rng:
    """Numbers for a test: the same for the same seed, on every machine."""

    def __init__(self, seed: str):
        digest = hashlib.sha256(seed.encode()).digest()
        self.generator = numpy.random.default_rng(int.from_bytes(digest[:8], "little"))

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        numbers = self.generator.standard_normal(shape)
        return torch.as_tensor(numbers, dtype=torch.float32).to(dtype)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        return torch.as_tensor(self.generator.uniform(low, high, shape), dtype=torch.float32)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Whole numbers from low up to and without high."""
        return torch.as_tensor(self.generator.integers(low, high, shape), dtype=torch.int64)


@dataclass(eq=False)
class Check:
    """What one test said of the learner's work."""

    title: str
    points: float
    passed: bool | None = None  # None: not checked (skipped)
    difference: Difference | None = None
    evidence: list[tuple[Call, Outcome]] = field(default_factory=list)


@dataclass
class Result:
    """All checks of one exercise."""

    exercise: Exercise
    checks: list[Check] = field(default_factory=list)
    broken: str | None = None  # a fault of the course, not of the learner
    interrupted: bool = False

    @property
    def passed(self) -> bool:
        done = [check for check in self.checks if check.passed is not None]
        return bool(done) and all(check.passed for check in done) and not self.broken

    @property
    def share(self) -> float:
        """Of the checks' weight, what passed."""
        possible = sum(check.points for check in self.checks)
        earned = sum(check.points for check in self.checks if check.passed)
        return earned / possible if possible else 0.0

    @property
    def score(self) -> float:
        """The share of the exercise's points."""
        return round(self.exercise.points * self.share, 2)

    @property
    def unfair(self) -> str:
        """Why these checks can judge nobody, if this is what the reference got; "" if they
        can."""
        if self.broken or self.score == self.exercise.points:
            return self.broken or ""
        lost = next((check for check in self.checks if check.passed is not True), None)
        if lost is None:
            return "its checks weigh nothing"
        look = lost.difference.look if lost.difference else "not checked"
        return f"the reference itself gets {self.score:g}: {lost.title}: {look}"

    @property
    def first_failure(self) -> Check | None:
        return next((check for check in self.checks if check.passed is False), None)


@dataclass(frozen=True)
class Test:
    """One test as pytest collected it: where it lives, what it says, what it takes."""

    address: str  # its name within its file: "TestRMSNorm::test_values[shape0]"
    words: str  # its title, with {parameters}
    points: float
    exercise: str | None
    owner: Any  # its module or class
    name: str
    parameters: dict[str, Any]
    fixtures: tuple[str, ...]

    @property
    def title(self) -> str:
        """In the language that is spoken now, its parameters filled in."""
        shown = {
            key: short(value) if isinstance(value, torch.dtype) else value
            for key, value in self.parameters.items()
        }
        try:
            return tr(self.words).format(**shown)
        except (KeyError, IndexError, ValueError):
            return self.words

    def run(self, offered: dict[str, Any]) -> None:
        owner = self.owner() if isinstance(self.owner, type) else self.owner
        taken = {name: offered[name] for name in self.fixtures}
        getattr(owner, self.name)(**self.parameters, **taken)


class Collector:
    """A pytest plugin that keeps the tests which pytest finds."""

    def __init__(self) -> None:
        self.tests: list[Test] = []
        self.broken: str | None = None

    def pytest_configure(self, config: pytest.Config) -> None:
        declare_markers(config)

    def pytest_exception_interact(self, call: pytest.CallInfo) -> None:
        self.broken = fault(call.excinfo.value)

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo) -> bool:
        self.broken = fault(excinfo.value)
        return True  # nothing is printed

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            parameters = parameters_of(item)
            fixtures = set(item.fixturenames) - set(parameters) - {"request"}
            marks = {mark.name for mark in item.iter_markers()} - MARKS
            if not fixtures <= set(FIXTURES) or marks:
                odd = ", ".join(sorted(marks | fixtures - set(FIXTURES)))
                self.broken = f"{item.name}: a check cannot use {odd}"
            points = item.get_closest_marker("points")
            exercise = item.get_closest_marker("exercise")
            if any(mark and len(mark.args) != 1 for mark in (points, exercise)):
                self.broken = f"{item.name}: its marks say exercise(id) and points(n)"
                break
            self.tests.append(
                Test(
                    item.nodeid.split("::", 1)[1],
                    words_of(item),
                    points.args[0] if points else 1,
                    exercise.args[0] if exercise else None,
                    item.cls or item.module,
                    item.originalname,
                    parameters,
                    tuple(fixtures),
                )
            )
        items.clear()


def declare_markers(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "exercise(id): the exercise a test belongs to")
    config.addinivalue_line("markers", "points(n): the weight of a test within its exercise")


def parameters_of(item: pytest.Item) -> dict[str, Any]:
    return item.callspec.params if hasattr(item, "callspec") else {}


def words_of(item: pytest.Item) -> str:
    """The first line of the test's docstring."""
    return (getattr(item.function, "__doc__", None) or item.name).strip().splitlines()[0]


@cache
def tests_in(path: Path) -> tuple[list[Test], str | None]:
    """The tests in a file, and what is wrong with it. pytest finds them, once a process:
    it takes far longer to start than the tests of an exercise to run."""
    collector = Collector()
    if not path.is_file():
        return [], f"{path} is missing"
    options = os.environ.pop("PYTEST_ADDOPTS", None)  # a learner's options change no score
    try:
        code = pytest.main([str(path), *QUIET], plugins=[collector])
    finally:
        if options is not None:
            os.environ["PYTEST_ADDOPTS"] = options
    if code in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
        collector.broken = collector.broken or f"pytest ended with {pytest.ExitCode(code).name}"
    return collector.tests, collector.broken


def run_checks(
    folder: str,
    module: str,
    exercise: Exercise,
    student: Performer,
    reference: Performer,
    seed: str,
    only: int | None = None,
) -> Result:
    """Run the tests of one exercise, from tests/visible or tests/hidden, in this process.

    only    the number of the one test to run
    """
    tests, broken = tests_in(TESTS / folder / f"test_{module}.py")
    result = Result(exercise, broken=broken)
    tests = [test for test in tests if test.exercise == exercise.id]
    tests = tests if only is None else [tests[only]]
    result.checks = [Check(test.title, test.points) for test in tests]
    if not tests and not broken:
        where = f"tests/{folder}/test_{module}.py"
        result.broken = f"there are no checks for exercise {exercise.id} in {where}"
    try:
        for test, check in zip(tests, result.checks, strict=True):
            run_test(test, check, result, student, reference, seed)
    except KeyboardInterrupt:
        result.interrupted = True
    return result


def run_test(
    test: Test,
    check: Check,
    result: Result,
    student: Performer,
    reference: Performer,
    seed: str,
) -> None:
    """Run one test and note in `check` what it said, in `result` if the test itself broke."""

    def perform(call: Call) -> Outcome:
        call.key, call.hash = f"{test.address}#{len(check.evidence)}", ""
        outcome = student(call)
        check.evidence.append((call, outcome))
        return outcome

    try:
        run_once(test, perform, reference, seed)
        check.passed = True
    except pytest.skip.Exception:
        check.passed = None
    except Difference as error:
        check.passed, check.difference = False, error
    except AssertionError as error:
        look = (str(error) or check.title).splitlines()[0]
        check.passed, check.difference = False, Difference("property", look)
    except (Exception, pytest.fail.Exception) as error:
        check.passed = False
        check.difference = Difference("type", "what came back cannot be compared")
        if breaks_for_all(test, reference, seed):
            result.broken = f"{test.name}: {type(error).__name__}: {error}"


def run_once(test: Test, student: Performer, reference: Performer, seed: str) -> None:
    rng = Rng(f"{seed}:{test.address}")
    test.run({"student": student, "reference": reference, "rng": rng})


def breaks_for_all(test: Test, reference: Performer, seed: str) -> bool:
    """Whether a test fails for the right answer, too: then it is our fault."""
    count = itertools.count()

    def perform(call: Call) -> Outcome:
        call.key, call.hash = f"{test.address}#{next(count)}", ""
        return reference(call)

    try:
        run_once(test, perform, reference, seed)
    except (Exception, pytest.fail.Exception):
        return True
    return False


# Parts of pytest that would print, write files, or (unraisableexception) collect all garbage
# six times a run, half a second with torch in memory.
UNUSED = (
    "terminal cacheprovider logging faulthandler junitxml pastebin doctest unittest stepwise "
    "unraisableexception threadexception warnings setuponly setupplan"
)

QUIET = [
    "--disable-plugin-autoload",
    "--noconftest",
    "--capture=no",
    "--override-ini=addopts=",
    f"--rootdir={TESTS}",
    f"--config-file={TESTS / 'checks.ini'}",
    "--import-mode=importlib",
    *(f"-pno:{name}" for name in UNUSED.split()),
]
