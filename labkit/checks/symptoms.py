"""What is known where no mistake is named: what the failed checks have in common, and where in
a tensor the wrong entries stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from labkit.checks.compare import close
from labkit.checks.runner import Check, Oracle, Result
from labkit.lang import said, tr
from labkit.sandboxed.call import Call, Given, New, Outcome, tensors_in

HALF = (torch.bfloat16, torch.float16)
MOST_TITLES = 4
IN_HALF = said("in half precision")
ONLY = {
    "grad": said("the values are right; only gradients are wrong"),
    "dtype": said("the dtypes are wrong; values are compared once those are right"),
    "changed": said("the values are right, but an input is changed"),
}


def symptoms(result: Result, unexplained: list[Check], oracle: Oracle) -> list[str]:
    """Sentences on failed checks that nothing explains; "" and [] where nothing is sure."""
    if not unexplained:
        return []
    passed = [check for check in result.checks if check.passed]
    ours = {id(check) for check in unexplained}
    others = [check for check in result.checks if id(check) not in ours]
    first = unexplained[0]
    right = oracle.reference(first.evidence[-1][0]) if first.evidence else Outcome()
    found = [located(first, right), in_common(unexplained, others)]
    titles = list(dict.fromkeys(check.title for check in unexplained))
    if len(titles) > 1 and passed:
        shown = " | ".join(titles[:MOST_TITLES]) + (" | ..." if titles[MOST_TITLES:] else "")
        found.append(
            tr(
                "{failed} of {all} checks fail: {shown}",
                failed=len(unexplained),
                all=len(result.checks),
                shown=shown,
            )
        )
    found = [text for text in found if text]
    if found and len(unexplained) < sum(check.passed is False for check in result.checks):
        found[0] = tr("what that leaves over: {found}", found=found[0])
    return found


def in_common(failed: list[Check], others: list[Check]) -> str:
    """What all these failed checks share and no other one has, passed or explained by a
    mistake; "" if nothing."""
    kinds = {check.difference.kind for check in failed if check.difference}
    if len(kinds) == 1 and kinds <= ONLY.keys():
        return tr(ONLY[kinds.pop()])
    calls = [c for check in others for c, _ in check.evidence if any(i for _, i in c.steps)]
    if len(failed) < 2 or not calls or not all(check.evidence for check in failed):
        return ""
    shared = [features(check.evidence[-1][0]) for check in failed]
    elsewhere = {feature for call in calls for feature in features(call)}
    only = [f for f in shared[0] if f not in elsewhere and all(f in each for each in shared)]
    if only[:1] == [IN_HALF]:
        return tr("wrong only {only}", only=tr(IN_HALF))
    sure = len(only) == 1 and shared[0][only[0]]  # of several, any one may be the cause
    return tr("wrong only {only}", only=only[0]) if sure else ""


def features(call: Call) -> dict[str, bool]:
    """What is special about a call, in words that go on "wrong only ...", in their order;
    False for what differs from check to check without a meaning."""
    found: dict[str, bool] = {}
    init = call.init if isinstance(call.init, Mapping) else {}  # by position: no names
    inputs = [init, *(inputs for _, inputs in call.steps)]
    tensors = [
        pair for given in inputs for name in given for pair in tensors_in(given[name], name)
    ]
    dtypes = [t.dtype for _, t in tensors if t.is_floating_point()] + [call.dtype]
    if any(dtype in HALF for dtype in dtypes):
        found[IN_HALF] = True
    for given in inputs:
        for name, value, means_something in arguments(given):
            found[tr("where `{name}` is {value}", name=name, value=value)] = means_something
    for name, tensor in tensors:
        if tensor.dtype == torch.bool:
            found[tr("where `{name}` is a tensor of bools", name=name)] = True
        if not tensor.is_contiguous():
            found[
                tr(
                    "where `{name}` does not lie in order in memory (it was transposed or cut)",
                    name=name,
                )
            ] = True
        for axis in range(tensor.dim()):
            if tensor.size(axis) == 1:
                found[
                    tr("where axis {axis} of `{name}` has one entry", axis=axis, name=name)
                ] = True
    if len(call.steps) > 1:
        found[tr("where one object is used several times")] = True
    return found


def arguments(given: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """(name, value, whether that means something) of plain arguments, also of those of objects
    that are made for a call. Sizes and the like differ from check to check by themselves."""
    for name, value in given.items():
        if isinstance(value, (New, Given)):
            yield name, "given", True
            yield from arguments(value.arguments)
        elif isinstance(value, Tensor):
            yield name, "given", True
        elif value is None or isinstance(value, (bool, int, float, str)):
            yield name, str(value), not isinstance(value, (int, float)) or value in (0, 1)


def located(check: Check, right: Outcome) -> str:
    """Along which axis wrong entries stand at some places only; "" if they are everywhere."""
    if check.difference is None or check.difference.kind != "values" or not check.evidence:
        return ""
    ours = tensors_in(check.evidence[-1][1].values, "")
    theirs = tensors_in(right.values, "")
    for (_, mine), (_, wanted) in zip(ours, theirs, strict=False):
        if mine.shape == wanted.shape and mine.dtype == wanted.dtype:
            off = ~close(mine, wanted)
            if off.any():
                return _axis(off)
    return ""


def _axis(off: Tensor) -> str:
    """The axis that tells right from wrong most sharply."""
    best, share = "", 1.0
    for axis, size in enumerate(off.shape):
        others = [other for other in range(off.dim()) if other != axis]
        wrong = off.any(dim=others) if others else off
        count = int(wrong.sum())
        if size > 1 and count < size and count / size < share:
            best, share = _where(wrong, axis, size), count / size
    return best


def _where(wrong: Tensor, axis: int, size: int) -> str:
    places = wrong.nonzero().flatten().tolist()
    name = tr("axis {axis} (of {size} entries)", axis=axis, size=size)
    if places == list(range(1, size)):
        return tr("along {name} the first entry is right, all others are wrong", name=name)
    if places == list(range(size - 1)):
        return tr("along {name} the last entry is right, all others are wrong", name=name)
    if len(places) == 1:
        return tr("along {name} only entry {places} is wrong", name=name, places=places[0])
    if places == list(range(places[0], size)):
        return tr(
            "along {name} entries from {places} on are wrong", name=name, places=places[0]
        )
    if places == list(range(places[-1] + 1)):
        return tr("along {name} entries up to {places} are wrong", name=name, places=places[-1])
    return ""
