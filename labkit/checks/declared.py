"""Checks are data: a check returns the Calls to perform; the runner performs them and compares
the outcomes.

    @check("1.2", points=2, shape=[(2, 7, 32), (5,)])
    def test_values(rng, shape):
        "values of shape {shape}"                      # its title; a learner reads it
        return rms_norm_call(rng, shape, shift=1.5)    # a Call, or several

A function that builds calls can be made a check directly, and so can another check with other
values:

    test_eps = check("1.2", "eps {eps}", eps=[1e-5, 0.5], scale=1e-3)(rms_norm_call)
    test_values = check("1.2", shape=(5,))(visible.test_values)
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from itertools import product
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from labkit.course.lang import tr
from labkit.course.paths import TESTS, fault
from labkit.course.syllabus import Exercise
from labkit.sandbox.inside.call import Call, Given, New, Outcome

__all__ = ["STRIDED", "Call", "Given", "New", "Outcome", "Rng", "check", "rows", "strided"]

STRIDED = "an input that is not contiguous, and that stays as it was"
View = Callable[[list[Outcome]], list[Outcome]]


class Rng:
    """Numbers for a check: the same for the same seed, on every machine."""

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


@dataclass(frozen=True, eq=False)
class Declaration:
    """A function that makes calls, with the arguments of `check`."""

    function: Callable[..., Any]
    title: str
    module: str  # the line in which it was declared
    exercise: str
    points: float
    view: View | None
    tolerance: float | None
    cases: Sequence[Mapping[str, Any]]  # sets of values that belong together
    values: Mapping[str, Any]  # a list is a choice

    def combined(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (distinguishing values, all values) of each check of this declaration."""
        choices = {n: value for n, value in self.values.items() if isinstance(value, list)}
        for combination in product(*choices.values()):
            for case in self.cases:
                differing = {**dict(zip(choices, combination, strict=True)), **case}
                text = ", ".join(f"{n}={_short(value)}" for n, value in differing.items())
                yield text, {**self.values, **differing}


@dataclass(frozen=True, eq=False)
class Check:
    """One check with its values, ready to be asked for its calls."""

    declaration: Declaration
    address: str  # "test_values[shape=(5,)]", also a seed of its numbers
    values: Mapping[str, Any]
    calls: list[Call] = field(default_factory=list)

    @property
    def points(self) -> float:
        return self.declaration.points

    @property
    def title(self) -> str:
        """The title in the current language, with the values filled in."""
        text = self.declaration.title or _words(self.address)
        named = inspect.signature(self.declaration.function).parameters.values()
        defaults = {each.name: each.default for each in named}
        shown = {
            name: str(value).removeprefix("torch.") if type(value) is torch.dtype else value
            for name, value in {**defaults, **self.values}.items()
        }
        try:
            return tr(text).format(**shown)
        except (KeyError, IndexError, ValueError):
            return text

    def viewed(self, outcomes: list[Outcome]) -> list[Outcome]:
        """The part of the outcomes that is compared."""
        return self.declaration.view(outcomes) if self.declaration.view else outcomes

    def prepared(self, seed: str) -> Check:
        """Return the check with the calls that it makes for this seed."""
        made = self.declaration.function(Rng(f"{seed}:{self.address}"), **self.values)
        calls = [made] if isinstance(made, Call) else list(made)
        for number, call in enumerate(calls):
            call.key = f"{self.address}#{number}"
        return Check(self.declaration, self.address, self.values, calls)


def check(
    exercise: str,
    title: str = "",
    /,
    *,
    points: float = 1,
    view: View | None = None,
    tolerance: float | None = None,
    cases: Sequence[Mapping[str, Any]] | None = None,
    **values: Any,
) -> Callable[[Callable[..., Any] | Declaration], Declaration]:
    """Declare a function `(rng, **values) -> Call or Calls` a check of an exercise.

    Applied to another check, it keeps all arguments that are not given here, except the points.

    title      the first line of the function's docstring by default
    points     its weight within the exercise
    view       reduces the outcomes of both sides to what is compared
    tolerance  relative, instead of that of the dtype
    cases      dicts of values that belong together; the check is made for each of them
    values     a list is a choice: the check is made for each combination
    """
    module = sys._getframe(1).f_globals["__name__"]

    def declare(made: Callable[..., Any] | Declaration) -> Declaration:
        before = made if isinstance(made, Declaration) else None
        function = before.function if before else made
        text = before.title if before else (function.__doc__ or "").strip().partition("\n")[0]
        return Declaration(
            function,
            title or text,
            module,
            exercise,
            points,
            view or (before and before.view),
            tolerance or (before and before.tolerance),
            cases or (before.cases if before else ({},)),
            {**(before.values if before else {}), **values},
        )

    return declare


def strided(builder: Callable[..., Call]) -> Callable[..., Call]:
    """Make a builder of calls with tensors that are not contiguous in memory."""

    def build(rng: Rng, **values: Any) -> Call:
        call = builder(rng, **values)
        for _, inputs in call.steps:
            for name, value in inputs.items():
                if isinstance(value, Tensor) and value.dim() > 1:
                    inputs[name] = value.transpose(0, -1).contiguous().transpose(0, -1)
        return call

    return build


def rows(names: str, *values: Sequence[Any]) -> list[dict[str, Any]]:
    """Cases as a table: rows("start, new", (0, 8), (6, 2))."""
    return [dict(zip(names.split(", "), row, strict=True)) for row in values]


class BrokenCheck(Exception):
    """A check that cannot be used: a fault of the course, with its place."""


def checks_in(folder: str, module: str) -> list[Check]:
    """Return the checks of tests/FOLDER/test_MODULE.py in order, without calls.

    Errors of the file are passed on
    """
    return _checks_of(TESTS / folder / f"test_{module}.py")


@cache
def _checks_of(path: Path) -> list[Check]:
    spec = spec_from_file_location(f"{path.parent.name}.{path.stem}", path)
    module = module_from_spec(spec)
    sys.path.insert(0, str(path.parents[1]))  # hidden checks import the visible ones
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parents[1]))
    names = vars(module)
    return [found for name, value in names.items() for found in _cases(name, value, names)]


def _cases(name: str, value: Any, names: Mapping[str, Any]) -> Iterator[Check]:
    if isinstance(value, Declaration) and value.module == names["__name__"]:
        for choice, values in value.combined():
            yield Check(value, f"{name}[{choice}]" if choice else name, values)


def _words(address: str) -> str:
    """ "test_log_probs[size=2]" as words: "log probs, size 2"."""
    name, _, values = address.partition("[")
    parts = [name.removeprefix("test_").replace("_", " "), values[:-1].replace("=", " ")]
    return ", ".join(part for part in parts if part).replace("{", "{{").replace("}", "}}")


def _short(value: Any) -> str:
    return str(value).removeprefix("torch.") if type(value) is torch.dtype else repr(value)


def prepared_checks(
    folder: str, module: str, exercise: Exercise, seed: str, only: int | None = None
) -> list[Check]:
    """Return the checks of one exercise with all their calls.

    only    the number of the only check to return

    Errors: BrokenCheck
    """
    try:
        found = [c for c in checks_in(folder, module) if c.declaration.exercise == exercise.id]
        chosen = found if only is None else [found[only]]
        prepared = [check.prepared(seed) for check in chosen]
    except Exception as error:  # the file may raise anything
        raise BrokenCheck(fault(error)) from error
    if not prepared:
        where = f"tests/{folder}/test_{module}.py"
        raise BrokenCheck(f"there are no checks for exercise {exercise.id} in {where}")
    return prepared
