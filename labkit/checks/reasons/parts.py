"""Parts of a result, each by itself: which ones are right, and which mistakes explain the
others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from labkit.checks import messages
from labkit.checks.compare import Difference, agree, assert_same
from labkit.checks.declared import Declaration
from labkit.checks.mistakes import Oracle
from labkit.checks.runner import CheckResult, Result
from labkit.course.lang import said, tr
from labkit.sandbox.inside.call import Outcome

MOST_PARTS = 20
MOST_NAMED = 5  # parts on each side that a sentence lists
PLAIN = "values"  # the part "all numbers", without dtypes, gradients and side effects
# all ranks as one part, as some explain nothing by themselves
RANKS = said("all that is on the ranks")
Key = int | str
View = Callable[[list[Outcome]], list[Outcome]]


def parts_of(value: Any) -> Mapping[Key, Any]:
    """Return the parts of one value: several tensors by number, those of a dict by name."""
    if isinstance(value, Mapping) and isinstance(value.get("returned"), (Mapping, list)):
        return parts_of(value["returned"])
    if isinstance(value, Mapping) and "rank 0" in value:
        ranks = {key: item for key, item in value.items() if key.startswith("rank ")}
        value = {RANKS: ranks} | {k: item for k, item in value.items() if k not in ranks}
    if isinstance(value, (list, tuple)) and any(isinstance(item, Tensor) for item in value):
        value = dict(enumerate(value))
    return value if isinstance(value, Mapping) and 1 < len(value) <= MOST_PARTS else {}


def part_view(key: Key) -> View:
    """Return a view of outcomes that shows only one part; for the key PLAIN all numbers and
    their shapes, nothing else."""

    def of_value(value: Any) -> list[Any]:
        if key == PLAIN:
            return [_wide(value)]
        parts = parts_of(value)
        return [_wide(parts[key])] if key in parts else []

    def view(outcomes: list[Outcome]) -> list[Outcome]:
        return [
            replace(o if key == RANKS else Outcome(failure=o.failure), values=values)
            for o in outcomes
            for values in [[part for value in o.values for part in of_value(value)]]
        ]

    return view


def _wide(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, Mapping):
        return {key: _wide(item) for key, item in value.items()}
    return [_wide(item) for item in value] if isinstance(value, (list, tuple)) else value


def _right(check: CheckResult, oracle: Oracle) -> list[Outcome]:
    return check.check.viewed([oracle.reference(call) for call in check.check.calls])


def right_and_wrong(
    checks: Sequence[CheckResult], oracle: Oracle
) -> tuple[dict[Key, str], dict[Key, str]]:
    """Return the parts that are right in all failed checks without an error, and the others,
    each with its name in a report."""
    names: dict[Key, str] = {}
    wrong: dict[Key, str] = {}
    for check in checks:
        if any(outcome.failure for outcome in check.outcomes):
            continue
        expected = _right(check, oracle)
        for key in (key for o in expected for value in o.values for key in parts_of(value)):
            word = messages.place(tr(key) if key == RANKS else key, check.failure_call.returns)
            word = word.removesuffix(tr(": "))
            names.setdefault(key, word)
            view = part_view(key)
            if not all(map(agree, view(check.outcomes), view(expected))):
                wrong[key] = names[key]
    right = {key: word for key, word in names.items() if word not in wrong.values()}
    return right, wrong


def tell_apart(checks: Sequence[CheckResult], oracle: Oracle) -> str:
    """Return a sentence on which parts are right and which are wrong; "" if all parts are
    alike."""
    right, wrong = right_and_wrong(checks, oracle)
    if not right or not wrong or len(wrong) > MOST_NAMED:
        return ""
    more = ["..."] if len(right) > MOST_NAMED else []
    lists = {"right": [*right.values()][:MOST_NAMED] + more, "wrong": wrong.values()}
    words = {name: tr(", ").join(dict.fromkeys(parts)) for name, parts in lists.items()}
    return tr("of what comes back this is right: {right}; this is wrong: {wrong}", **words)


def are_values_right(checks: Sequence[CheckResult], oracle: Oracle) -> bool:
    """Whether the numbers are right in all these checks, whatever their dtypes."""
    view = part_view(PLAIN)
    return all(all(map(agree, view(c.outcomes), view(_right(c, oracle)))) for c in checks)


def seen_through(result: Result, oracle: Oracle, key: Key) -> Result:
    """The checks of an answer with only one part compared, without checks of random draws."""
    view, declarations = part_view(key), dict[Declaration, Declaration]()
    checks = []
    for check in result.checks:
        before = check.check.declaration
        if any(call.summary or call.probs is not None for call in check.check.calls):
            continue
        if before not in declarations:
            declarations[before] = replace(before, view=_after(before.view, view))
        seen = replace(check.check, declaration=declarations[before])
        outcomes = view(check.outcomes)
        found = CheckResult(seen, True, outcomes)
        for place, pair in enumerate(zip(outcomes, view(_right(check, oracle)), strict=False)):
            try:
                assert_same(*pair, before.tolerance)
            except Difference as difference:
                found.passed, found.difference, found.differing = False, difference, place
                break
        checks.append(found)
    return Result(result.exercise, checks)


def _after(first: View | None, then: View) -> View:
    return lambda outcomes: then(first(outcomes) if first else outcomes)
