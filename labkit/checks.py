"""The pytest side of a check: the fixtures student, reference and rng, and the markers.

    @pytest.mark.exercise("1.2")     which exercise a test (or a class of tests) belongs to
    @pytest.mark.points(2)           its weight within the exercise; 1 if not said

A test performs the same Call on `student` and on `reference` and compares. Who performs it
is not the test's business: `student` may be this process or a confined one, `reference` may
be live or recorded.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy
import pytest
import torch
from torch import Tensor

from labkit.calls import Call, Given, New, Outcome
from labkit.compare import Difference, assert_drawn, assert_same
from labkit.syllabus import Exercise

__all__ = ["Call", "Given", "New", "Outcome", "Rng", "assert_drawn", "assert_same"]

TESTS = Path(__file__).resolve().parents[1] / "tests"
Performer = Callable[[Call], Outcome]


@dataclass(frozen=True)
class Suspect:
    """A known wrong version: its sentence, and what it gives for the call at hand."""

    name: str
    sentence: str
    costs: bool  # False: only worth a remark
    outcome: Outcome


class Oracle(Protocol):
    """Who knows the right outcome of a call, and those of the known mistakes."""

    def reference(self, call: Call) -> Outcome: ...

    def suspects(self, call: Call) -> list[Suspect]: ...


class Rng:
    """Numbers for a test: the same for the same seed, on every machine."""

    def __init__(self, seed: str):
        digest = hashlib.sha256(seed.encode()).digest()
        self.generator = numpy.random.default_rng(int.from_bytes(digest[:8], "little"))

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.tensor(self.generator.standard_normal(shape), dtype=torch.float32).to(
            dtype
        )

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        return torch.tensor(self.generator.uniform(low, high, shape), dtype=torch.float32)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Whole numbers from low up to and without high."""
        return torch.tensor(self.generator.integers(low, high, shape), dtype=torch.int64)


@dataclass
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
    def score(self) -> float:
        """The exercise's points times the share of its checks' weight that passed."""
        possible = sum(check.points for check in self.checks)
        earned = sum(check.points for check in self.checks if check.passed)
        return round(self.exercise.points * earned / possible, 2) if possible else 0.0

    @property
    def first_failure(self) -> Check | None:
        return next((check for check in self.checks if check.passed is False), None)


class Plugin:
    """A pytest plugin that runs the checks of one exercise and keeps what they said."""

    def __init__(self, result: Result, student: Performer, oracle: Oracle, seed: str):
        self.result, self.perform_student, self.oracle = result, student, oracle
        self.seed = seed
        self.current: Check | None = None
        self.checks: dict[str, Check] = {}

    @pytest.fixture
    def student(self, request: pytest.FixtureRequest) -> Performer:
        def perform(call: Call) -> Outcome:
            assert self.current is not None
            call.key = f"{address(request.node)}#{len(self.current.evidence)}"
            outcome = self.perform_student(call)
            self.current.evidence.append((call, outcome))
            return outcome

        return perform

    @pytest.fixture
    def reference(self) -> Performer:
        return self.oracle.reference

    @pytest.fixture
    def rng(self, request: pytest.FixtureRequest) -> Rng:
        return Rng(f"{self.seed}:{address(request.node)}")

    def pytest_configure(self, config: pytest.Config) -> None:
        declare_markers(config)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        wanted = self.result.exercise.id
        items[:] = [item for item in items if exercise_of(item) == wanted]
        for item in items:
            points = item.get_closest_marker("points")
            self.checks[item.nodeid] = Check(title_of(item), points.args[0] if points else 1)
        self.result.checks = list(self.checks.values())

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.result.broken = str(report.longrepr)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item):
        self.current = self.checks[item.nodeid]
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo):
        if self.current is None or call.when == "teardown":
            return (yield)
        error = call.excinfo.value if call.excinfo else None
        if isinstance(error, pytest.skip.Exception):
            self.current.passed = None
        elif isinstance(error, Difference):
            self.current.passed, self.current.difference = False, error
        elif isinstance(error, AssertionError):
            look = (str(error) or self.current.title).splitlines()[0]
            self.current.passed, self.current.difference = False, Difference("property", look)
        elif error is not None:
            self.current.passed = False
            self.result.broken = f"{item.name}: {type(error).__name__}: {error}"
        elif call.when == "call":
            self.current.passed = True
        return (yield)


def declare_markers(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "exercise(id): the exercise a test belongs to")
    config.addinivalue_line("markers", "points(n): the weight of a test within its exercise")


def address(item: pytest.Item) -> str:
    """A test's name within its file: "TestRMSNorm::test_values[shape0]"."""
    return item.nodeid.split("::", 1)[1]


def exercise_of(item: pytest.Item) -> str | None:
    marker = item.get_closest_marker("exercise")
    return marker.args[0] if marker else None


def title_of(item: pytest.Item) -> str:
    """The first line of the test's docstring, with its parameters filled in."""
    text = (getattr(item.function, "__doc__", None) or item.name).strip().splitlines()[0]
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    shown = {
        key: str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else value
        for key, value in parameters.items()
    }
    try:
        return text.format(**shown)
    except (KeyError, IndexError, ValueError):
        return text


def run_checks(
    folder: str,
    module: str,
    exercise: Exercise,
    student: Performer,
    oracle: Oracle,
    seed: str,
) -> Result:
    """Run the tests of one exercise, from tests/visible or tests/hidden, in this process."""
    result = Result(exercise)
    plugin = Plugin(result, student, oracle, seed)
    options = os.environ.pop("PYTEST_ADDOPTS", None)  # a learner's options change no score
    try:
        code = pytest.main(
            [str(TESTS / folder / f"test_{module}.py"), *QUIET], plugins=[plugin]
        )
    finally:
        if options is not None:
            os.environ["PYTEST_ADDOPTS"] = options
    result.interrupted = code == pytest.ExitCode.INTERRUPTED and result.broken is None
    if code in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
        result.broken = result.broken or f"pytest ended with {pytest.ExitCode(code).name}"
    if not result.checks and not result.broken and not result.interrupted:
        result.broken = f"there are no checks for exercise {exercise.id} in tests/{folder}"
    return result


# Parts of pytest that would print, write files, or (unraisableexception) collect all garbage
# six times a run, half a second with torch in memory.
UNUSED = (
    *(
        "terminal",
        "cacheprovider",
        "logging",
        "faulthandler",
        "junitxml",
        "pastebin",
        "doctest",
    ),
    *("unittest", "stepwise", "unraisableexception", "threadexception", "warnings"),
    *("setuponly", "setupplan"),
)

QUIET = [
    "--disable-plugin-autoload",
    "--noconftest",
    "--capture=no",
    "--override-ini=addopts=",
    f"--rootdir={TESTS}",
    f"--config-file={TESTS / 'checks.ini'}",
    "--import-mode=importlib",
    *(f"-pno:{name}" for name in UNUSED),
]
