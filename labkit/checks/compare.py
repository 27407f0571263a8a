"""Comparing outcomes: the first thing that differs, said so that a learner can act on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labkit.sandboxed.call import Call, Failure, Outcome, tensors_in

# Relative tolerance, also taken of the largest entry: a sum that cancels is not less exact.
# float16 and bfloat16: two units in the last place of a number just above a power of two.
TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-5,
    torch.float16: 2**-9,
    torch.bfloat16: 2**-6,
}
GRAD_TOLERANCE = 1e-4
Performer = Callable[[Call], Outcome]
OURS = ("NoAnswer", "TimeLimit", "OutputLimit")  # not raised by code: what stopped it


@dataclass(eq=False)
class Difference(AssertionError):
    """Raised where two outcomes differ: `look` says how, `facts` what was right before it."""

    look: str
    secret: str = ""  # `look` without numbers of the reference, for checks that are hidden
    facts: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return self.look


def assert_same(student: Outcome, reference: Outcome, tolerance: float | None = None) -> None:
    """Raise Difference unless the two outcomes agree: errors, names, types, shapes, dtypes,
    NaN, inputs left unchanged, values, state, gradients, in this order.

    tolerance    of values; TOLERANCE if not said
    """
    facts: list[str] = []
    try:
        for fact in _agreements(student, reference, tolerance):
            facts.append(fact)
    except Difference as difference:
        difference.facts = facts
        raise


def _agreements(student: Outcome, reference: Outcome, tolerance: float | None) -> Iterator[str]:
    """What is right, one fact after the other; raises Difference at the first that is not."""
    if reference.failure is not None:
        _same_failure(student.failure, reference.failure)
        return
    if student.failure is not None:
        raise Difference(error_text(student.failure))
    _same_names(student.names, reference.names)
    pairs = _tensor_pairs(student.values, reference.values)
    _same_shapes(pairs)
    if pairs:
        yield f"shape {tuple(pairs[-1].theirs.shape)}"
    _same_dtypes(pairs)
    if pairs:
        yield f"dtype {short(pairs[-1].theirs.dtype)}"
    _finite(pairs)
    new = [name for name in student.changed if name not in reference.changed]
    if new:
        raise Difference(f"the call changed its input {new[0]} in place")
    yield "input left unchanged"
    _same_values(pairs, tolerance)
    if pairs:
        yield "values"
    _same_state(student.state, reference.state)
    _same_grads(student.grads, reference.grads)


def compare(student: Performer, reference: Performer, call: Call) -> Outcome:
    """Have both perform the call and raise Difference unless the outcomes agree; the first."""
    outcome = student(call)
    assert_same(outcome, reference(call))
    return outcome


def assert_drawn(student: Outcome, reference: Outcome, probs: Tensor) -> None:
    """Raise Difference unless counts of draws fit the probabilities: chi-square, level 1e-6.

    Both outcomes hold counts (summary "counts"). The reference's serve for errors and shapes
    only: a right answer may draw other numbers.
    """
    mine, theirs = student.value, reference.value
    if student.failure or not isinstance(mine, Tensor) or mine.dim() != 1:
        assert_same(student, reference)
    counts, fresh = torch.zeros(len(probs)), int(theirs.sum())
    if int(mine.sum()) != fresh or len(mine) > len(probs):
        raise Difference(f"{int(mine.sum())} tokens of 0 to {len(mine) - 1} came out")
    counts[: len(mine)] = mine.float()
    expected = fresh * probs / probs.sum()
    for token in (expected == 0).nonzero().flatten().tolist():
        if counts[token]:
            raise Difference(f"token {token} came out, which must not be drawn")
    kept = expected > 0
    gaps = (counts - expected).square()[kept] / expected[kept]
    freedom = max(int(kept.sum()) - 1, 1)  # Wilson and Hilferty's quantile; z of 1e-6 is 4.75
    limit = freedom * (1 - 2 / (9 * freedom) + 4.75 * (2 / (9 * freedom)) ** 0.5) ** 3
    if float(gaps.sum()) > limit:
        token = int(kept.nonzero().flatten()[gaps.argmax()])
        look = f"token {token} was drawn {int(counts[token])} times in {fresh}"
        raise Difference(f"{look}, not about {float(expected[token]):.0f}", look)


def agree(mine: Outcome, theirs: Outcome) -> bool:
    try:
        assert_same(mine, theirs)
    except Difference:
        return False
    return True


def identical(mine: Outcome, theirs: Outcome) -> bool:
    """Equal to the last bit in every value, and in what the call left behind."""
    ours = tensors_in([mine.values, mine.state], "")
    others = tensors_in([theirs.values, theirs.state], "")
    return len(ours) == len(others) and all(
        a.dtype == b.dtype and torch.equal(a, b)
        for (_, a), (_, b) in zip(ours, others, strict=True)
    )


def distance(mine: Outcome, theirs: Outcome) -> float:
    """How far two agreeing outcomes are apart: the mean difference of values and gradients."""
    total = count = 0.0
    pairs = [(mine.grads[name], theirs.grads[name]) for name in theirs.grads]
    pairs += [(mine.state[name], theirs.state[name]) for name in theirs.state]
    values = zip(tensors_in(mine.values, ""), tensors_in(theirs.values, ""), strict=True)
    for x, y in [*pairs, *((a, b) for (_, a), (_, b) in values)]:
        gap = (x.double() - y.double()).nan_to_num(posinf=0, neginf=0).abs()
        total, count = total + float(gap.sum()), count + gap.numel()
    return total / max(count, 1)


def error_text(failure: Failure) -> str:
    where = f" (line {failure.line} of your cell)" if failure.line else ""
    raised = "" if failure.kind in OURS else f"it raised {failure.kind}: "
    return f"{raised}{failure.text}{where}"


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _same_failure(failure: Failure | None, expected: Failure) -> None:
    if failure is None:
        raise Difference(f"{expected.kind} was expected, nothing was raised")
    if expected.kind not in (failure.kind, *failure.bases):
        raise Difference(f"{expected.kind} was expected; {error_text(failure)}")


def _same_names(mine: dict[str, list[int]], theirs: dict[str, list[int]]) -> None:
    missing = [name for name in theirs if name not in mine]
    extra = [name for name in mine if name not in theirs]
    if missing:
        more = f"; it has {', '.join(extra)}" if extra else ""
        raise Difference(f"there is no parameter {missing[0]}{more}")
    if extra:
        raise Difference(f"there is a parameter too many: {extra[0]}")
    for name, shape in theirs.items():
        if mine[name] != shape:
            look = f"parameter {name} has shape {tuple(mine[name])} instead of {tuple(shape)}"
            raise Difference(look)


class Pair(NamedTuple):
    """Two tensors to compare, and where in the outcome they stand."""

    where: str
    mine: Tensor
    theirs: Tensor


def _tensor_pairs(mine: list[Any], theirs: list[Any]) -> list[Pair]:
    """The tensors in the values of all steps; whatever else is there is compared at once."""
    if len(mine) != len(theirs):
        raise Difference("the call did not return")
    if len(theirs) == 1:
        return _pairs_in("", mine[0], theirs[0])
    steps = enumerate(zip(mine, theirs, strict=True), 1)
    return [pair for i, (a, b) in steps for pair in _pairs_in(f"step {i}: ", a, b)]


def _pairs_in(where: str, mine: Any, theirs: Any) -> list[Pair]:
    if isinstance(theirs, Tensor):
        if not isinstance(mine, Tensor):
            raise Difference(f"{where}a tensor was expected, not {kind_of(mine)}")
        return [Pair(where, mine, theirs)]
    if isinstance(theirs, (list, tuple)):
        if not isinstance(mine, (list, tuple)) or len(mine) != len(theirs):
            look = f"{where}{len(theirs)} values were expected, not {kind_of(mine)}"
            raise Difference(look)
        items = enumerate(zip(mine, theirs, strict=True), 1)
        parts = [_pairs_in(f"{where}value {i}: ", a, b) for i, (a, b) in items]
    elif isinstance(theirs, dict):
        if not isinstance(mine, dict) or set(mine) != set(theirs):
            raise Difference(f"{where}a dict was expected, not {kind_of(mine)}")
        parts = [_pairs_in(f"{where}{key}: ", mine[key], theirs[key]) for key in theirs]
    else:
        _same_plain(where, mine, theirs)
        parts = []
    return [pair for part in parts for pair in part]


def _same_plain(where: str, mine: Any, theirs: Any) -> None:
    """Numbers, text, None: what holds no tensor."""
    if isinstance(theirs, float) and isinstance(mine, (int, float)):
        if abs(mine - theirs) > 1e-5 * max(1.0, abs(theirs)):
            look = f"{where}{mine:.5g}"
            raise Difference(f"{look} instead of {theirs:.5g}", look)
        return
    if type(mine) is type(theirs) and mine == theirs:
        return
    got, wanted = kind_of(mine), kind_of(theirs)
    if type(mine) is type(theirs) and isinstance(mine, (bool, int, str)):
        got, wanted = str(mine)[:60], str(theirs)[:60]
    raise Difference(f"{where}{got} instead of {wanted}", f"{where}{got} is wrong")


def kind_of(value: Any) -> str:
    if value is None:
        return "None (is a return missing, or a print in its place?)"
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, dict) and len(value) == 1:
        key, item = next(iter(value.items()))
        if key.startswith("a") and " " in key:
            return f"{key} {str(item)[:60]}"
    if isinstance(value, (bool, int, float, str)):
        return f"{type(value).__name__} {str(value)[:40]!r}"
    if isinstance(value, (list, tuple)):
        return f"{len(value)} values"
    return f"a {type(value).__name__}"


def _same_shapes(pairs: list[Pair]) -> None:
    for where, mine, theirs in pairs:
        if mine.shape != theirs.shape:
            look = f"the shape is {tuple(mine.shape)} instead of {tuple(theirs.shape)}"
            raise Difference(where + look)


def _same_dtypes(pairs: list[Pair]) -> None:
    for where, mine, theirs in pairs:
        if mine.dtype != theirs.dtype:
            look = f"the dtype is {short(mine.dtype)} instead of {short(theirs.dtype)}"
            raise Difference(where + look)


def _finite(pairs: list[Pair]) -> None:
    """No NaN and no infinity but where the reference has one."""
    for where, mine, theirs in pairs:
        bad = ~mine.isfinite() & theirs.isfinite()
        if bad.any():
            at = first(bad)
            count = f"{int(bad.sum())} of {mine.numel()} entries are"
            raise Difference(f"{where}{count} {float(mine[at])}, first at {list(at)}")


def close(mine: Tensor, theirs: Tensor, tolerance: float | None = None) -> Tensor:
    """Where two tensors of one shape agree, entry by entry."""
    if not theirs.is_floating_point() or torch.equal(mine, theirs):
        return mine == theirs
    if tolerance is None:
        tolerance = TOLERANCE[theirs.dtype]
    a, b = mine.double(), theirs.double()
    finite = b[b.isfinite()]
    scale = float(finite.abs().max()) if finite.numel() else 0.0
    slack = 0.5 * scale if theirs.dtype in (torch.float32, torch.float64) else 2**-5 * scale
    near = (a - b).abs() <= tolerance * (b.abs() + slack)
    return (a == b) | (near & b.isfinite()) | (a.isnan() & b.isnan())


def first(where: Tensor) -> tuple[int, ...]:
    """The index of the first True."""
    return tuple(where.nonzero()[0].tolist())


def _same_values(pairs: list[Pair], tolerance: float | None) -> None:
    for where, mine, theirs in pairs:
        off = ~close(mine, theirs, tolerance)
        if not off.any():
            continue
        at = first(off)
        got = number(mine[at])
        wanted = number(theirs[at], got)
        if mine.dim() == 0:
            look = f"{where}the value is {got} instead of {wanted}"
            raise Difference(look, f"{where}the value differs")
        share = "all entries" if off.all() else f"{percent(off)} of the entries"
        look = f"{where}values differ in {share}, first at {list(at)}"
        raise Difference(f"{look}: {got} instead of {wanted}", look)


def _same_state(mine: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    """The weights and learning rates that the call left behind."""
    for name, right in theirs.items():
        got = mine.get(name)
        if got is None or got.shape != right.shape:
            raise Difference(f"afterwards there is no {name} of its old shape")
        off = ~close(got, right, GRAD_TOLERANCE)
        if not off.any():
            continue
        if got.dim() == 0:
            look = f"after the call, {name} is {number(got)}"
            raise Difference(f"{look} instead of {number(right, number(got))}", look)
        raise Difference(f"after the call, {name} differs in {percent(off)} of its entries")


def _same_grads(mine: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    extra = [name for name in mine if name not in theirs]
    if extra:
        raise Difference(f"there is a {extra[0]} too many")
    for name, gradient in theirs.items():
        got = mine.get(name)
        if got is None or got.shape != gradient.shape:
            raise Difference(f"no gradient reaches {name}")
        if not got.any() and gradient.any():
            raise Difference(f"no gradient reaches {name}: it is zero everywhere")
        tolerance = max(GRAD_TOLERANCE, TOLERANCE[gradient.dtype])
        off = ~close(got, gradient, tolerance)
        if off.any():
            raise Difference(f"the gradient of {name} differs in {percent(off)} of its entries")


def percent(off: Tensor) -> str:
    share = 100 * float(off.double().mean())
    return f"{share:.0f}%" if share >= 1 else "under 1%"


def number(entry: Tensor, other: str | None = None) -> str:
    """Five digits, or as many as it takes to look different from the other number."""
    value = entry.item()
    if not isinstance(value, float):
        return str(value)
    text = f"{value:.5g}"
    return f"{value:.9g}" if text == other else text
