"""Compare outcomes and find the first difference. Its words are in messages.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from labkit.checks import messages
from labkit.course.lang import tr
from labkit.sandbox.inside.call import Call, Outcome, Step, tensors_in

# Relative to the entry and to a share of the largest one (see `close`), as sums may cancel.
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
Pair = tuple[str, Tensor, Tensor]  # the place of two tensors, and the tensors


class Difference(AssertionError):
    """Raised where two outcomes differ.

    kind      "shape", "dtype", "values", ...
    key, data  the message in messages.py and its values; look: the message for the learner
    redacted  `look` without numbers of the reference, for hidden checks
    right     the properties that were compared before and are right
    """

    def __init__(self, kind: str, key: str, right: Sequence[str] = (), /, **data: Any):
        super().__init__(kind, key)
        self.kind, self.key, self.data = kind, key, data
        self.right = [text[:MAX_LOOK] for text in right]  # a learner's names may be long

    @property
    def look(self) -> str:
        return messages.look(self.key, self.data)[0][:MAX_LOOK]

    @property
    def redacted(self) -> str:
        return messages.look(self.key, self.data)[1][:MAX_LOOK]

    def __str__(self) -> str:
        return self.look


def compare(
    call: Call, student: Outcome, reference: Outcome, tolerance: float | None = None
) -> None:
    """Raise Difference unless the outcomes agree in everything that the call compares."""
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
    returns, steps   of the call, to describe the value that differs
    """
    asked, failure = reference.failure, student.failure
    if asked and not failure:
        raise Difference("error", "not raised", kind=asked.kind)
    if failure and not asked:
        raise Difference("error", "raised", failure=failure)
    if asked and failure:
        if asked.kind not in (failure.kind, *failure.bases):
            raise Difference("error", "raised other", kind=asked.kind, failure=failure)
        return
    _same_names(student.names, reference.names)
    if len(student.values) != len(reference.values):
        raise Difference("type", "no return")
    pairs: list[Pair] = []
    total = len(reference.values)
    values = zip(student.values, reference.values, strict=True)
    for number, (answer, expected) in enumerate(values):
        done = steps[number] if len(steps) == total else ()
        where = messages.step(number + 1, *done) if total > 1 else ""
        pairs += _same_structure(answer, expected, where, returns)
    right = _same_form(pairs)
    new = [name for name in student.changed if name not in reference.changed]
    if new:
        raise Difference("changed", "changed", right, new=new[0])
    right.append(tr("input left unchanged"))
    for where, answer, expected in pairs:
        _same_values(where, answer, expected, right, tolerance)
    right += [tr("values")] if pairs else []
    _same_named("state", student.state, reference.state, right)
    extra = [name for name in student.grads if name not in reference.grads]
    if extra:
        raise Difference("names", "extra gradient", right, extra=extra[0])
    _same_named("grad", student.grads, reference.grads, right)


def assert_drawn(student: Outcome, reference: Outcome, probs: Tensor) -> None:
    """Raise Difference unless counts of draws fit the probabilities: chi-square, level 1e-6.

    Both outcomes are counts (summary "counts"). The reference's counts are used only for errors
    and shapes: a right answer may draw other numbers.
    """
    drawn, draws = student.value, int(reference.value.sum())
    if student.failure or not isinstance(drawn, Tensor) or drawn.dim() != 1:
        assert_same(student, reference)
    if int(drawn.sum()) != draws or len(drawn) > len(probs):
        raise Difference("values", "drawn", drawn=int(drawn.sum()), last=len(drawn) - 1)
    counts = torch.zeros(len(probs))
    counts[: len(drawn)] = drawn.float()
    expected = draws * probs / probs.sum()
    forbidden = (counts > 0) & (expected == 0)
    if forbidden.any():
        raise Difference("values", "forbidden", token=first_true(forbidden)[0])
    gaps = (counts - expected).square() / expected
    if not by_chance(gaps):
        token = int(gaps.nan_to_num().argmax())
        found = {"token": token, "times": int(counts[token]), "draws": draws}
        raise Difference("values", "frequency", **found, expected=float(expected[token]))


def by_chance(gaps: Tensor) -> bool:
    """Whether the sum of squared gaps over their variances (NaN for tokens that cannot be
    drawn) is likely: chance exceeds it more than once in a million times."""
    freedom = max(int((~gaps.isnan()).sum()) - 1, 1)
    spread = 2 / (9 * freedom)  # Wilson and Hilferty; z of 1e-6 is 4.75
    limit = freedom * (1 - spread + 4.75 * spread**0.5) ** 3
    return float(gaps.nansum()) <= limit


def matches(call: Call, student: Outcome, other: Outcome) -> bool:
    """Whether a mistake gives exactly the learner's outcome.

    For errors only the beginnings of the texts are compared, since the length of a name moves
    the place where a long text is cut. Counts of draws match if both fit one distribution.
    """
    if call.summary == "counts":
        return same_distribution(student, other)
    errors = {o.failure.text[:BEGINNING] for o in (student, other) if o.failure}
    return len(errors) < 2 and agree(student, other)


def same_distribution(first: Outcome, second: Outcome) -> bool:
    """Whether two counts of draws may come from the same probabilities."""
    counts = [value for value in (first.value, second.value) if isinstance(value, Tensor)]
    if first.failure or second.failure or [count.dim() for count in counts] != [1, 1]:
        return agree(first, second)
    size = max(map(len, counts))
    a, b = (torch.nn.functional.pad(count, (0, size - len(count))).double() for count in counts)
    return bool(a.sum() == b.sum()) and by_chance((a - b).square() / (a + b))


def agree(answer: Outcome, expected: Outcome, tolerance: float | None = None) -> bool:
    try:
        assert_same(answer, expected, tolerance)
    except Difference:
        return False
    return True


def distance(first: Outcome, second: Outcome) -> float:
    """Return the distance of two agreeing outcomes: the mean difference of all numbers."""
    total = count = 0.0
    x, y = (dict(tensors_in([o.values, o.grads, o.state], "")) for o in (first, second))
    for path in y:
        gap = (x[path].double() - y[path].double()).nan_to_num(posinf=0, neginf=0).abs()
        total, count = total + float(gap.sum()), count + gap.numel()
    return total / max(count, 1)


def _same_names(answer: dict[str, list[int]], expected: dict[str, list[int]]) -> None:
    missing, extra = messages.name_faults(expected, answer)
    if missing:
        raise Difference("names", "missing name", missing=missing[0], extra=extra)
    if extra:
        raise Difference("names", "extra name", extra=extra[0])
    for name, shape in expected.items():
        if answer[name] != shape:
            shapes = {"answer": tuple(answer[name]), "shape": tuple(shape)}
            raise Difference("names", "name shape", name=name, **shapes)


def _same_structure(
    answer: Any, expected: Any, where: str, names: Sequence[str] = ()
) -> list[Pair]:
    """Return the pairs of tensors in two values, each with its place."""
    data = {"where": where, "answer": answer}
    if isinstance(expected, Tensor):
        if not isinstance(answer, Tensor):
            raise Difference("type", "no tensor", **data)
        return [(where, answer, expected)]
    if isinstance(expected, dict):
        if not isinstance(answer, dict) or set(answer) != set(expected):
            raise Difference("type", "no dict", **data, expected=list(expected))
        keys = list(expected)
    elif isinstance(expected, (list, tuple)):
        if not isinstance(answer, (list, tuple)):
            raise Difference("type", "no values", **data, count=len(expected))
        keys = list(range(min(len(answer), len(expected))))
    elif isinstance(expected, float) and type(answer) in (int, float):
        if not abs(answer - expected) <= 1e-5 * max(1.0, abs(expected)):  # NaN fails this test
            raise Difference("values", "number", **data, expected=expected)
        return []
    else:
        if type(answer) is not type(expected) or answer != expected:
            raise Difference("values", "value", **data, expected=expected)
        return []
    found = []
    for key in keys:
        found += _same_structure(answer[key], expected[key], where + messages.place(key, names))
    if len(answer) != len(expected):  # after the differences in values that both have
        raise Difference("type", "no values", **data, count=len(expected))
    return found


def _same_form(pairs: list[Pair]) -> list[str]:
    """Compare shapes, then dtypes, then NaN; return the last pair's right properties."""
    for where, answer, expected in pairs:
        if answer.shape != expected.shape:
            shapes = {"answer": tuple(answer.shape), "wanted": tuple(expected.shape)}
            raise Difference("shape", "shape", where=where, **shapes)
    right = [tr("shape {shape}", shape=tuple(answer.shape)) for _, answer, _ in pairs[-1:]]
    for where, answer, expected in pairs:
        if answer.dtype != expected.dtype:
            dtypes = {"answer": short(answer.dtype), "wanted": short(expected.dtype)}
            raise Difference("dtype", "dtype", right, where=where, **dtypes)
    right += [tr("dtype {dtype}", dtype=short(answer.dtype)) for _, answer, _ in pairs[-1:]]
    for where, answer, expected in pairs:
        bad = ~answer.isfinite()
        if bad.any() and (bad := bad & expected.isfinite()).any():
            place = first_true(bad)
            found = {"bad": int(bad.sum()), "all": bad.numel(), "entry": float(answer[place])}
            raise Difference("nan", "nan", right, where=where, **found, place=list(place))
    return right


def close(answer: Tensor, expected: Tensor, tolerance: float | None = None) -> Tensor:
    """Return a mask of the entries in which two tensors of one shape agree."""
    if not expected.is_floating_point() or torch.equal(answer, expected):
        return answer == expected
    tolerance = TOLERANCE[expected.dtype] if tolerance is None else tolerance
    a, b = answer.double(), expected.double()
    size, finite = b.abs(), b.isfinite()
    scale = float(size.where(finite, 0.0).max()) if b.numel() else 0.0
    slack = 0.5 * scale if expected.dtype in (torch.float32, torch.float64) else 2**-5 * scale
    near = (a - b).abs() <= tolerance * (size + slack)
    return (a == b) | (near & finite) | (a.isnan() & b.isnan())


def first_true(mask: Tensor) -> tuple[int, ...]:
    """The index of its first True."""
    return tuple(mask.nonzero()[0].tolist())


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _same_values(
    where: str, answer: Tensor, expected: Tensor, right: list[str], tolerance: float | None
) -> None:
    off = ~close(answer, expected, tolerance)
    if off.any():
        place = first_true(off)
        key = "scalar" if answer.dim() == 0 else "values"
        numbers = {"answer": answer[place], "expected": expected[place]}
        raise Difference("values", key, right, where=where, off=off, at=list(place), **numbers)


def _same_named(
    kind: str, answer: dict[str, Tensor], expected: dict[str, Tensor], right: list[str]
) -> None:
    """Compare named tensors: for the kind "state" the state after the call, for "grad" the
    gradients."""
    for name, wanted in expected.items():
        got = answer.get(name)
        if got is None or got.shape != wanted.shape:
            raise Difference(kind, f"no {kind}", right, name=name)
        if kind == "grad" and not got.any() and wanted.any():
            raise Difference(kind, "zero grad", right, name=name)
        off = ~close(got, wanted, max(GRAD_TOLERANCE, TOLERANCE.get(wanted.dtype, 0.0)))
        if off.any():
            key = "scalar state" if kind == "state" and got.dim() == 0 else kind
            raise Difference(kind, key, right, name=name, off=off, answer=got, expected=wanted)
