"""What failed checks have in common and no passed one has: an argument, its value, a dtype."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from labkit.checks.mistakes import Oracle
from labkit.checks.runner import CheckResult
from labkit.course.lang import tr
from labkit.sandbox.inside.call import Call

FEWEST = 2  # checks on each side that make a rule
Trait = tuple[str, str, str]  # its kind, the name of an argument, its value


def shared_by(
    failed: Sequence[CheckResult], passed: Sequence[CheckResult], oracle: Oracle
) -> str:
    """A sentence on what tells failed and passed checks apart; "" if nothing simple does.

    Checks that ask for an error say nothing: what they pass need not be right elsewhere.
    """
    asked = {step for check in failed for step in _steps(check.failure_call)}
    sound = [
        check
        for check in passed
        if any(asked & _steps(call) for call in check.check.calls)
        and not any(oracle.reference(call).failure for call in check.check.calls)
    ]
    if min(len(failed), len(sound)) < FEWEST:
        return ""
    bad = [_traits([check.failure_call]) for check in failed]
    good = [_traits(check.check.calls) for check in sound]
    counts = {"failed": len(failed), "passed": len(sound)}
    for kind, name, value in sorted(set.intersection(*bad) - set().union(*good)):
        texts = {"name": name, "value": value, **counts}
        if kind == "given":
            return tr("all {failed} checks with `{name}` fail, those without it pass", **texts)
        if kind == "value":
            return tr("the {failed} checks with {name}={value} fail, the others pass", **texts)
        return tr("the {failed} checks with a {value} `{name}` fail, the others pass", **texts)
    for kind, name, _ in sorted(set.intersection(*good) - set().union(*bad)):
        if kind == "given":
            texts = {"name": name, **counts}
            return tr("all {failed} checks without `{name}` fail, those with it pass", **texts)
    return ""


def _steps(call: Call) -> set[tuple[str, str]]:
    return {(call.symbol, method) for method, _ in call.steps}


def _traits(calls: Iterable[Call]) -> set[Trait]:
    return {trait for call in calls for trait in _of_call(call)}


def _of_call(call: Call) -> Iterator[Trait]:
    init = call.init if isinstance(call.init, Mapping) else {}
    for inputs in (init, *(inputs for _, inputs in call.steps)):
        for name, value in inputs.items():
            yield from _of_input(name, value)


def _of_input(name: str, value: Any) -> Iterator[Trait]:
    if value is None:
        return
    yield "given", name, ""
    if isinstance(value, (bool, int, float, str)) and len(str(value)) < 20:
        yield "value", name, repr(value)
    if isinstance(value, Tensor) and value.is_floating_point():
        yield "type", name, str(value.dtype).removeprefix("torch.")
