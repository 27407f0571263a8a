"""Comparing outcomes: the first thing that differs. Its words are in messages.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from labkit.checks import messages
from labkit.sandbox.inside.call import Call, Failure, Outcome, Step, tensors_in

# Relative tolerance, of the entry and of a share of the largest one (see `close`): a sum that
# cancels is not less exact.
# float16 and bfloat16: two units in the last place of a number just above a power of two.
TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-5,
    torch.float16: 2**-9,
    torch.bfloat16: 2**-6,
}
GRAD_TOLERANCE = 1e-4
MAX_LOOK = 400  # characters
BEGINNING = 200  # characters of an error that are compared
Pair = tuple[str, Tensor, Tensor]  # where two tensors are, and the two


class Difference(AssertionError):
    """Raised where two outcomes differ.

    kind      what differs: "shape", "dtype", "values", ...
    look      how, for the learner
    redacted  `look` without numbers of the reference, for hidden checks
    right     what was right before it
    """

    def __init__(self, kind: str, key: str, right: Sequence[str] = (), /, **data: Any):
        super().__init__(kind, key)
        self.kind, self.key, self.data, self._right = kind, key, data, right

    @property
    def look(self) -> str:
        return messages.look(self.key, self.data)[0][:MAX_LOOK]  # a learner's names may be long

    @property
    def redacted(self) -> str:
        return messages.look(self.key, self.data)[1][:MAX_LOOK]

    @property
    def right(self) -> list[str]:
        return [text[:MAX_LOOK] for text in self._right]

    def __str__(self) -> str:
        return self.look


def compare(
    call: Call, student: Outcome, reference: Outcome, tolerance: float | None = None
) -> None:
    """Raise Difference unless the outcomes of a call agree by what the call says of them."""
    if call.probs is not None and reference.failure is None:
        assert_drawn(student, reference, call.probs)
    else:
        assert_same(student, reference, tolerance, call.returns, call.steps)
    if call.mentions and call.mentions not in getattr(student.failure, "text", ""):
        raise Difference("error", "unmentioned", text=call.mentions)


def assert_same(
    student: Outcome,
    reference: Outcome,
    tolerance: float | None = None,
    returns: Sequence[str] = (),
    steps: Sequence[Step] = (),
) -> None:
    """Raise Difference unless the two outcomes agree: errors, names, types, shapes, dtypes,
    NaN, inputs left unchanged, values, gradients, in this order.

    tolerance    of values; TOLERANCE by default
    returns      what the values of a pair or row are called: ("cos", "sin")
    steps        of the call, for words on the one that differs
    """
    if reference.failure is not None:
        _same_failure(student, reference.failure)
        return
    if student.failure is not None:
        raise Difference("error", "raised", failure=student.failure)
    _same_names(student.names, reference.names)
    if len(student.values) != len(reference.values):
        raise Difference("type", "no return")
    pairs: list[Pair] = []
    named = steps if len(steps) == len(reference.values) else [()] * len(reference.values)
    for number, (mine, theirs) in enumerate(zip(student.values, reference.values, strict=True)):
        where = "" if len(named) == 1 else messages.step(number + 1, *named[number])
        pairs += _same_structure(mine, theirs, where, returns)
    right = _same_form(pairs)
    new = [name for name in student.changed if name not in reference.changed]
    if new:
        raise Difference("changed", "changed", right, new=new[0])
    right.append(messages.right("input left unchanged"))
    for where, mine, theirs in pairs:
        _same_values(where, mine, theirs, right, tolerance)
    right += [messages.right("values")] if pairs else []
    _same_state(student.state, reference.state, right)
    _same_grads(student.grads, reference.grads, right)


def assert_drawn(student: Outcome, reference: Outcome, probs: Tensor) -> None:
    """Raise Difference unless counts of draws fit the probabilities: chi-square, level 1e-6.

    Both outcomes hold counts (summary "counts"). The reference's serve for errors and shapes
    only: a right answer may draw other numbers.
    """
    mine, theirs = student.value, reference.value
    if student.failure or not isinstance(mine, Tensor) or mine.dim() != 1:
        assert_same(student, reference)
    draws = int(theirs.sum())
    if int(mine.sum()) != draws or len(mine) > len(probs):
        raise Difference("values", "drawn", drawn=int(mine.sum()), last=len(mine) - 1)
    counts = torch.zeros(len(probs))
    counts[: len(mine)] = mine.float()
    expected = draws * probs / probs.sum()
    possible = expected > 0
    forbidden = (counts > 0) & ~possible
    if forbidden.any():
        raise Difference("values", "forbidden", token=index_of(forbidden)[0])
    gaps = (counts - expected).square()[possible] / expected[possible]
    if float(gaps.sum()) > chi_square_limit(int(possible.sum()) - 1):
        token = int(possible.nonzero().flatten()[gaps.argmax()])
        found = {"token": token, "times": int(counts[token]), "draws": draws}
        raise Difference("values", "frequency", **found, expected=float(expected[token]))


def chi_square_limit(freedom: int) -> float:
    """What a chi-square of so many degrees of freedom exceeds once in a million times."""
    spread = 2 / (9 * max(freedom, 1))  # Wilson and Hilferty; z of 1e-6 is 4.75
    return max(freedom, 1) * (1 - spread + 4.75 * spread**0.5) ** 3


def matches(call: Call, student: Outcome, other: Outcome) -> bool:
    """Whether a mistake gives the very outcome of the learner.

    Of two errors the beginnings of the texts are compared: a name of another length moves the
    cut of a long one. Of counts of draws it is asked whether both fit one distribution.
    """
    if call.summary == "counts":
        return same_distribution(student, other)
    errors = {o.failure.text[:BEGINNING] for o in (student, other) if o.failure}
    return len(errors) < 2 and agree(student, other)


def same_distribution(mine: Outcome, theirs: Outcome) -> bool:
    """Whether two counts of draws may come from the same probabilities."""
    counts = [value for value in (mine.value, theirs.value) if isinstance(value, Tensor)]
    if mine.failure or theirs.failure or [count.dim() for count in counts] != [1, 1]:
        return agree(mine, theirs)
    size = max(map(len, counts))
    a, b = (torch.nn.functional.pad(count, (0, size - len(count))).double() for count in counts)
    seen = a + b > 0
    gaps = (a - b).square()[seen] / (a + b)[seen]
    limit = chi_square_limit(int(seen.sum()) - 1)
    return bool(a.sum() == b.sum()) and float(gaps.sum()) <= limit


def agree(mine: Outcome, theirs: Outcome, tolerance: float | None = None) -> bool:
    try:
        assert_same(mine, theirs, tolerance)
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
    for x, y in zip(_numbers(mine, theirs), _numbers(theirs, theirs), strict=True):
        gap = (x.double() - y.double()).nan_to_num(posinf=0, neginf=0).abs()
        total, count = total + float(gap.sum()), count + gap.numel()
    return total / max(count, 1)


def _numbers(outcome: Outcome, keys: Outcome) -> list[Tensor]:
    values = [tensor for _, tensor in tensors_in(outcome.values, "")]
    grads = [outcome.grads[name] for name in keys.grads]
    return values + grads + [outcome.state[name] for name in keys.state]


def _same_failure(student: Outcome, expected: Failure) -> None:
    if student.failure is None:
        raise Difference("error", "not raised", kind=expected.kind)
    if expected.kind not in (student.failure.kind, *student.failure.bases):
        raise Difference("error", "raised other", kind=expected.kind, failure=student.failure)


def _same_names(mine: dict[str, list[int]], theirs: dict[str, list[int]]) -> None:
    missing = [name for name in theirs if name not in mine]
    extra = [name for name in mine if name not in theirs]
    if missing:
        raise Difference("names", "missing name", missing=missing[0], extra=extra)
    if extra:
        raise Difference("names", "extra name", extra=extra[0])
    for name, shape in theirs.items():
        if mine[name] != shape:
            shapes = {"mine": tuple(mine[name]), "shape": tuple(shape)}
            raise Difference("names", "name shape", name=name, **shapes)


def _same_structure(
    mine: Any, theirs: Any, where: str, names: Sequence[str] = ()
) -> list[Pair]:
    """The pairs of tensors in two values, after the place where they are."""
    if isinstance(theirs, Tensor):
        if not isinstance(mine, Tensor):
            raise Difference("type", "no tensor", where=where, mine=mine)
        return [(where, mine, theirs)]
    if isinstance(theirs, (list, tuple)):
        found = [
            pair
            for i, (a, b) in enumerate(zip(mine, theirs, strict=False))
            for pair in _same_structure(a, b, where + messages.place(i, names))
        ] if isinstance(mine, (list, tuple)) else None  # fmt: skip
        if found is None or len(mine) != len(theirs):
            raise Difference("type", "no values", where=where, count=len(theirs), mine=mine)
        return found
    if isinstance(theirs, dict):
        if not isinstance(mine, dict) or set(mine) != set(theirs):
            raise Difference("type", "no dict", where=where, theirs=list(theirs), mine=mine)
        return [
            pair
            for key in theirs
            for pair in _same_structure(mine[key], theirs[key], where + messages.place(key))
        ]
    if isinstance(theirs, float) and type(mine) in (int, float):
        if not abs(mine - theirs) <= 1e-5 * max(1.0, abs(theirs)):  # NaN is near nothing
            raise Difference("values", "number", where=where, mine=mine, theirs=theirs)
    elif type(mine) is not type(theirs) or mine != theirs:
        raise Difference("values", "value", where=where, mine=mine, theirs=theirs)
    return []


def _same_form(pairs: list[Pair]) -> list[str]:
    """Compare all shapes, then dtypes, then NaN; what is right about the last pair."""
    for where, mine, theirs in pairs:
        if mine.shape != theirs.shape:
            shapes = {"mine": tuple(mine.shape), "wanted": tuple(theirs.shape)}
            raise Difference("shape", "shape", where=where, **shapes)
    right = [messages.right("shape", shape=tuple(mine.shape)) for _, mine, _ in pairs[-1:]]
    for where, mine, theirs in pairs:
        if mine.dtype != theirs.dtype:
            dtypes = {"mine": short(mine.dtype), "wanted": short(theirs.dtype)}
            raise Difference("dtype", "dtype", right, where=where, **dtypes)
    right += [messages.right("dtype", dtype=short(mine.dtype)) for _, mine, _ in pairs[-1:]]
    for where, mine, theirs in pairs:
        bad = ~mine.isfinite()
        if bad.any() and (bad := bad & theirs.isfinite()).any():
            place = index_of(bad)
            found = {"bad": int(bad.sum()), "all": mine.numel(), "entry": float(mine[place])}
            raise Difference("nan", "nan", right, where=where, **found, place=list(place))
    return right


def close(mine: Tensor, theirs: Tensor, tolerance: float | None = None) -> Tensor:
    """Where two tensors of one shape agree, entry by entry."""
    if not theirs.is_floating_point() or torch.equal(mine, theirs):
        return mine == theirs
    if tolerance is None:
        tolerance = TOLERANCE[theirs.dtype]
    a, b = mine.double(), theirs.double()
    size = b.abs()
    scale = float(size.max()) if b.numel() else 0.0
    odd = not math.isfinite(scale)
    if odd:
        scale = float(size.where(b.isfinite(), 0.0).max())
    slack = 0.5 * scale if theirs.dtype in (torch.float32, torch.float64) else 2**-5 * scale
    near = (a - b).abs() <= tolerance * (size + slack)
    return (a == b) | (near & b.isfinite()) | (a.isnan() & b.isnan()) if odd else near


def index_of(where: Tensor) -> tuple[int, ...]:
    """The first True."""
    return tuple(where.nonzero()[0].tolist())


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _same_values(
    where: str, mine: Tensor, theirs: Tensor, right: list[str], tolerance: float | None
) -> None:
    off = ~close(mine, theirs, tolerance)
    if off.any():
        place = index_of(off)
        key = "scalar" if mine.dim() == 0 else "values"
        numbers = {"mine": mine[place], "theirs": theirs[place]}
        raise Difference("values", key, right, where=where, off=off, at=list(place), **numbers)


def _same_state(mine: dict[str, Tensor], theirs: dict[str, Tensor], right: list[str]) -> None:
    """The weights and learning rates that the call left behind."""
    for name, expected in theirs.items():
        got = mine.get(name)
        if got is None or got.shape != expected.shape:
            raise Difference("state", "no state", right, name=name)
        off = ~close(got, expected, GRAD_TOLERANCE)
        if off.any():
            key = "scalar state" if got.dim() == 0 else "state"
            raise Difference("state", key, right, name=name, off=off, mine=got, theirs=expected)


def _same_grads(mine: dict[str, Tensor], theirs: dict[str, Tensor], right: list[str]) -> None:
    extra = [name for name in mine if name not in theirs]
    if extra:
        raise Difference("names", "extra gradient", right, extra=extra[0])
    for name, gradient in theirs.items():
        got = mine.get(name)
        if got is None or got.shape != gradient.shape:
            raise Difference("grad", "no gradient", right, name=name)
        if not got.any() and gradient.any():
            raise Difference("grad", "zero gradient", right, name=name)
        off = ~close(got, gradient, max(GRAD_TOLERANCE, TOLERANCE.get(gradient.dtype, 0.0)))
        if off.any():
            raise Difference("grad", "gradient", right, name=name, off=off)
