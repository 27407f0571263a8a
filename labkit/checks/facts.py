"""Facts for a report without a named mistake: how the wrong numbers relate to the right ones,
which argument changes nothing, and which checks fail."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from labkit.checks.compare import agree, close
from labkit.checks.mistakes import Oracle
from labkit.checks.reasons.parts import are_values_right, tell_apart
from labkit.checks.runner import CheckResult, Result
from labkit.course.lang import said, tr
from labkit.sandbox.inside.call import Call, Outcome, tensors_in
from labkit.sandbox.inside.perform import perform

RESULT = re.compile(r"->\s+\(([A-Z](?:, [^()]+)*)\)")  # "-> (B, T, E)"
ROUNDED = 2**-6  # two units in the last place of bfloat16
MOST_TITLES = 4
MOST_LISTED = 3  # places along an axis
MOSTLY = 0.5  # share of the entries that rounding changes
ONLY = {
    "grad": said("the values are right; only gradients are wrong"),
    "dtype": said("the values are right; only dtypes are wrong"),
    "changed": said("the values are right, but an input is changed"),
}


def facts_about(result: Result, unexplained: list[CheckResult], oracle: Oracle) -> list[str]:
    """Return sentences on failed checks that no mistake explains; [] if nothing is certain."""
    first = unexplained[0]
    found = [without_effect(unexplained, oracle) or related(first, oracle)]
    found.append(tell_apart(unexplained, oracle))
    kinds = {check.difference.kind for check in unexplained}
    if len(kinds) == 1 and kinds <= ONLY.keys():
        is_sure = kinds == {"grad"} or are_values_right(unexplained, oracle)
        found.append(tr(ONLY[kinds.pop()]) if is_sure else "")
    titles = list(dict.fromkeys(check.title for check in unexplained))
    # otherwise the reasons say what to fix first
    alone = len(unexplained) == len(result.failed)
    if alone and len(titles) > 1 and any(check.passed for check in result.checks):
        listed = " | ".join(titles[:MOST_TITLES]) + (" | ..." if titles[MOST_TITLES:] else "")
        counts = {"failed": len(unexplained), "all": len(result.checks)}
        found.append(tr("{failed} of {all} checks fail: {shown}", **counts, shown=listed))
    return [text for text in found if text]


def without_effect(failed: list[CheckResult], oracle: Oracle) -> str:
    """Find an argument without effect: the reference without it gives the learner's values."""
    failed = [check for check in failed if not check.failure_call.by_position] or failed
    if not failed or any(c.check.declaration.view or c.failure_call.summary for c in failed):
        return ""
    names = [set(inputs_of(check.failure_call)) for check in failed]
    for name in sorted(set.intersection(*names)):
        if all(_same_without(check, name, oracle) for check in failed[:3]):
            return tr("the result is what the right code gives without `{name}`", name=name)
    return ""


def inputs_of(call: Call) -> list[str]:
    """Return the arguments that a call passes by name, to its steps and its constructor."""
    inputs = [] if call.by_position else [name for _, step in call.steps for name in step]
    init = call.init if isinstance(call.init, Mapping) and not call.by_position else {}
    return [*inputs, *(name for name in init if name != "config")]


def _same_without(check: CheckResult, name: str, oracle: Oracle) -> bool:
    call, answer = check.failure_call, check.outcomes[check.differing]
    if answer.failure or check.difference.kind in ("grad", "state"):  # the values are right
        return False
    fewer = Call(call.symbol)
    fewer.__dict__ |= {**vars(call), "key": "", "hash": ""}
    fewer.steps = [(m, {k: v for k, v in i.items() if k != name}) for m, i in call.steps]
    if isinstance(call.init, Mapping):
        fewer.init = {key: value for key, value in call.init.items() if key != name}
    other = perform(fewer, oracle.namespace)
    answer = Outcome(answer.values)  # one side has gradients of an input that the other lacks
    if other.failure or not agree(answer, Outcome(other.values)):
        return False
    return not agree(answer, Outcome(oracle.reference(call).values))


def related(check: CheckResult, oracle: Oracle) -> str:
    """Return how the wrong numbers of a check relate to the right ones; "" if in no simple
    way."""
    kind, key = (getattr(check.difference, name, "") for name in ("kind", "key"))
    if kind not in ("values", "shape", "dtype") or key in ("number", "value"):
        return ""
    right = check.check.viewed([oracle.reference(call) for call in check.check.calls])
    answer = tensors_in(check.outcomes[check.differing].values, "")
    expected = tensors_in(right[check.differing].values, "")
    letters = _letters(check.failure_call, oracle)
    for n, ((_, a), (_, b)) in enumerate(zip(answer, expected, strict=False)):
        a = a.to(b.dtype) if kind == "dtype" else a
        if a.shape != b.shape or a.dtype != b.dtype or not close(a, b).all():
            inputs = [t for _, step in check.failure_call.steps for t in _tensors(step)]
            return _relation(a, b, inputs, [] if n else letters)
    return ""


def _tensors(inputs: Mapping[str, Any]) -> list[tuple[str, Tensor]]:
    return [(name, value) for name, value in inputs.items() if isinstance(value, Tensor)]


def _letters(call: Call, oracle: Oracle) -> list[str]:
    """Return the letters of the result's axes from the docstring, if it has just one result."""
    words = getattr(oracle.namespace.get(call.symbol), "__doc__", None) or ""
    found = RESULT.findall(words)
    is_plain = len(found) == 1 and [method for method, _ in call.steps] == [""]
    return found[0].split(", ") if is_plain else []


def _relation(
    answer: Tensor, right: Tensor, inputs: list[tuple[str, Tensor]], letters: list[str]
) -> str:
    for name, value in inputs:
        if value.shape == answer.shape and torch.equal(value.to(answer.dtype), answer):
            return tr("the result is `{name}`, unchanged", name=name)
    for a, b in combinations(range(answer.dim()), 2):
        if _equal(answer.transpose(a, b), right):
            return tr("the values are right once axes {a} and {b} are swapped", a=a, b=b)
    if answer.shape == right.shape and not answer.is_floating_point():
        return _whole(answer, right, letters)
    if answer.shape != right.shape or answer.numel() < 2:
        return ""
    for axis in range(answer.dim()):
        if answer.size(axis) > 1 and _equal(answer.sort(axis).values, right.sort(axis).values):
            return tr("along axis {axis} the right entries are in another order", axis=axis)
    if place := _above_or_below(answer, right) or _located(answer, right, letters):
        return place
    if close(answer.abs(), right.abs()).all() and (answer * right > 0).any():
        return tr("the sizes of all entries are right, and some signs are wrong")
    x, y = answer.double(), right.double()
    sure = y.abs() > 1e-3 * y.abs().max()
    ratio = (x / y).where(sure, torch.nan)
    if not sure.all() and (x.abs() > 1e-3 * x.abs().max())[~sure].any():
        return ""
    factor = ratio.nanmedian()
    if ((ratio - factor).abs().nan_to_num() <= 1e-3 * factor.abs()).all() and factor != 0:
        if abs(factor - 1) < 1e-3:
            return tr("every entry is within a thousandth of the right one")
        return tr("every entry is {factor:.4g} times the right one", factor=float(factor))
    gap = x - y
    if ((gap - gap.mean()).abs() <= 1e-3 * gap.mean().abs()).all():
        return tr("every entry is the right one plus {gap:.4g}", gap=float(gap.mean()))
    if answer.dim() > 1 and answer.size(-1) > 2:
        row = ratio.nanmedian(dim=-1, keepdim=True).values
        if ((ratio - row).abs().nan_to_num() <= 1e-3 * row.abs()).all():
            return tr("along the last axis all entries are off by one factor, per vector")
    off = ~close(answer, right)
    if off.sum() > MOST_LISTED and (answer[off] == answer[off][0]).all():
        return tr("all wrong entries are {entry:.4g}", entry=float(answer[off][0]))
    larger, is_many = (x.abs() > y.abs())[off], off.double().mean() > MOSTLY
    is_rounded = is_many and larger.any() and not larger.all()  # up here, and down there
    is_near = [close(answer, right, each).all() for each in (ROUNDED, ROUNDED / 32)]
    if answer.dtype == torch.float32 and is_rounded and is_near == [True, False]:
        return tr("every entry is near the right one, as if something was rounded to bfloat16")
    return ""


def _whole(answer: Tensor, right: Tensor, letters: list[str]) -> str:
    """Return a fact about truth values or whole numbers."""
    if place := _above_or_below(answer, right) or _located(answer, right, letters):
        return place
    if answer.dtype == torch.bool:
        too_many, too_few = (answer & ~right).any(), (right & ~answer).any()
        if too_many and not too_few:
            return tr("nothing is wrongly False; some entries are wrongly True")
        if too_few and not too_many:
            return tr("nothing is wrongly True; some entries are wrongly False")
        return ""
    gap = answer.long() - right.long()
    if answer.numel() > 1 and (gap == gap.flatten()[0]).all():
        return tr("every entry is the right one plus {gap:.4g}", gap=int(gap.flatten()[0]))
    return ""


def _above_or_below(answer: Tensor, right: Tensor) -> str:
    """Return a sentence if all wrong entries of a square are on one side of its diagonal."""
    off = ~close(answer, right)
    if off.dim() < 2 or off.size(-1) != off.size(-2) or off.size(-1) < MOST_LISTED:
        return ""
    square = torch.ones_like(off)
    on, below, above = square.tril().triu(), square.tril(-1), square.triu(1)
    sides = (
        (said("along the last two axes only entries on the diagonal are wrong"), on),
        (said("along the last two axes only entries below the diagonal are wrong"), below),
        (said("along the last two axes only entries above the diagonal are wrong"), above),
    )
    for text, side in sides:
        if not off[~side].any() and off[side].double().mean() > MOSTLY:
            return tr(text)
    return ""


def _equal(answer: Tensor, right: Tensor) -> bool:
    is_alike = answer.shape == right.shape and answer.dtype == right.dtype
    return is_alike and bool(close(answer.contiguous(), right).all())


def _located(answer: Tensor, right: Tensor, letters: list[str]) -> str:
    """Return along which axis the wrong entries are best confined to some places."""
    off = ~close(answer, right)
    best, share = "", 1.0
    for axis, size in enumerate(off.shape):
        others = [other for other in range(off.dim()) if other != axis]
        wrong = off.any(dim=others) if others else off
        count = int(wrong.sum())
        if size > 1 and count < size and count / size < share:
            is_dense = off.double().mean() > MOSTLY * count / size
            name = tr("axis {axis} (of {size} entries)", axis=axis, size=size)
            if len(letters) == off.dim():
                texts = {"axis": axis, "letter": letters[axis], "size": size}
                name = tr("axis {axis} ({letter}, of {size} entries)", **texts)
            best, share = _where(wrong, name, is_dense), count / size
    return best


def _where(wrong: Tensor, name: str, is_dense: bool) -> str:
    """
    name        of the axis
    is_dense    whether most of the entries at the wrong places are wrong
    """
    places, size = wrong.nonzero().flatten().tolist(), len(wrong)
    if not places:  # the values agree; for example a dtype is wrong
        return ""
    if places == list(range(1, size)):
        return tr("along {name} the first entry is right, all others are wrong", name=name)
    if places == list(range(size - 1)):
        return tr("along {name} the last entry is right, all others are wrong", name=name)
    if len(places) == 1:
        return tr("along {name} only entry {places} is wrong", name=name, places=places[0])
    if places == list(range(places[0], size)):
        start = places[0]
        return tr("along {name} entries from {places} on are wrong", name=name, places=start)
    if places == list(range(places[-1] + 1)):
        return tr("along {name} entries up to {places} are wrong", name=name, places=places[-1])
    if len(places) <= MOST_LISTED < size:
        listed = tr(", ").join(map(str, places))
        return tr("along {name} only entries {listed} are wrong", name=name, listed=listed)
    if is_dense and size - len(places) <= MOST_LISTED < len(places):
        rest = tr(", ").join(str(n) for n in range(size) if n not in places)
        return tr("along {name} only entries {listed} are right", name=name, listed=rest)
    return ""
