"""Comparing outcomes: the first thing that differs, said so that a learner can act on it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from labkit.lang import tr
from labkit.sandboxed.call import Call, Failure, Outcome, tensors_in

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
Performer = Callable[[Call], Outcome]
Pair = tuple[str, Tensor, Tensor]  # where two tensors stand, and the two
OURS = ("NoAnswer", "TimeLimit", "OutputLimit")  # not raised by code: what stopped it


@dataclass(eq=False)
class Difference(AssertionError):
    """Raised where two outcomes differ: `look` says how, `right` what was right before it."""

    kind: str
    look: str
    right: list[str] = field(default_factory=list)
    redacted: str = ""  # `look` without numbers of the reference, for checks that are hidden

    def __post_init__(self) -> None:
        """Names and shapes in it are a learner's, and may be long."""
        self.look, self.redacted = self.look[:MAX_LOOK], self.redacted[:MAX_LOOK]
        self.right = [text[:MAX_LOOK] for text in self.right]

    def __str__(self) -> str:
        return self.look


def assert_same(
    student: Outcome,
    reference: Outcome,
    tolerance: float | None = None,
    returns: Sequence[str] = (),
) -> None:
    """Raise Difference unless the two outcomes agree: errors, names, types, shapes, dtypes,
    NaN, inputs left unchanged, values, gradients, in this order.

    tolerance    of values; TOLERANCE if not said
    returns      what the values of a pair or row are called: ("cos", "sin")
    """
    if reference.failure is not None:
        _same_failure(student, reference.failure)
        return
    if student.failure is not None:
        raise Difference("error", error_text(student.failure))
    _same_names(student.names, reference.names)
    if len(student.values) != len(reference.values):
        raise Difference("type", tr("the call did not return"))
    pairs: list[Pair] = []
    for step, (mine, theirs) in enumerate(zip(student.values, reference.values, strict=True)):
        where = "" if len(reference.values) == 1 else tr("step {step}: ", step=step + 1)
        pairs += _same_structure(mine, theirs, where, returns)
    right = _same_form(pairs)
    new = [name for name in student.changed if name not in reference.changed]
    if new:
        raise Difference(
            "changed", tr("the call changed its input {new} in place", new=new[0]), right
        )
    right.append(tr("input left unchanged"))
    for where, mine, theirs in pairs:
        _same_values(where, mine, theirs, right, tolerance)
    _same_state(student.state, reference.state, [*right, tr("values")] if pairs else right)
    _same_grads(student.grads, reference.grads, [*right, tr("values")])


def compare(student: Performer, reference: Performer, call: Call) -> Outcome:
    """Have both perform the call and raise Difference unless the outcomes agree; the first."""
    outcome = student(call)
    assert_same(outcome, reference(call), returns=call.returns)
    return outcome


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
        raise Difference(
            "values",
            tr(
                "{drawn} tokens of 0 to {last} came out",
                drawn=int(mine.sum()),
                last=len(mine) - 1,
            ),
        )
    counts = torch.zeros(len(probs))
    counts[: len(mine)] = mine.float()
    expected = draws * probs / probs.sum()
    possible = expected > 0
    forbidden = (counts > 0) & ~possible
    if forbidden.any():
        token = index_of(forbidden)[0]
        raise Difference(
            "values", tr("token {token} came out, which must not be drawn", token=token)
        )
    gaps = (counts - expected).square()[possible] / expected[possible]
    if float(gaps.sum()) > chi_square_limit(int(possible.sum()) - 1):
        token = int(possible.nonzero().flatten()[gaps.argmax()])
        look = tr(
            "token {token} was drawn {times} times in {draws}",
            token=token,
            times=int(counts[token]),
            draws=draws,
        )
        raise Difference(
            "values",
            tr("{look}, not about {times:.0f}", look=look, times=float(expected[token])),
            [],
            look,
        )


def chi_square_limit(freedom: int) -> float:
    """What a chi-square of so many degrees of freedom exceeds once in a million times."""
    spread = 2 / (9 * max(freedom, 1))  # Wilson and Hilferty; z of 1e-6 is 4.75
    return max(freedom, 1) * (1 - spread + 4.75 * spread**0.5) ** 3


def drawn_alike(mine: Outcome, theirs: Outcome) -> bool:
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
    if failure.text.startswith("Error(s) in loading state_dict"):
        return _state_text(failure.text)
    where = tr(" (line {line} of your cell)", line=failure.line) if failure.line else ""
    raised = "" if failure.kind in OURS else tr("it raised {kind}: ", kind=failure.kind)
    return f"{raised}{failure.text}{where}"


def _state_text(text: str) -> str:
    """The first thing that keeps weights from being loaded, in a few words."""
    sizes = re.search(r"mismatch for (\S+): .*?Size\((\[.*?\])\).*?Size\((\[.*?\])\)", text)
    missing = re.search(r'Missing key\(s\) in state_dict: "([^"]+)"', text)
    extra = re.search(r'Unexpected key\(s\) in state_dict: "([^"]+)"', text)
    said = tr("the weights do not fit: ")
    if missing and extra:
        return tr(
            "{said}there is a {missing} and no {extra}",
            said=said,
            missing=missing[1],
            extra=extra[1],
        )
    if missing:
        return tr(
            "{said}there is a {missing} too many; a buffer takes `persistent=False`",
            said=said,
            missing=missing[1],
        )
    if extra:
        return tr("{said}there is no {extra}", said=said, extra=extra[1])
    if sizes:
        wanted, got = (f"({shape[1:-1]})" for shape in sizes.groups()[1:])
        return tr(
            "{said}{sizes} has shape {got} instead of {wanted}",
            said=said,
            sizes=sizes[1],
            got=got,
            wanted=wanted,
        )
    return said.removesuffix(tr(": "))


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _same_failure(student: Outcome, expected: Failure) -> None:
    if student.failure is None:
        raise Difference(
            "error", tr("{kind} was expected, nothing was raised", kind=expected.kind)
        )
    if expected.kind not in (student.failure.kind, *student.failure.bases):
        look = tr(
            "{kind} was expected; {failure}",
            kind=expected.kind,
            failure=error_text(student.failure),
        )
        raise Difference("error", look)


def _same_names(mine: dict[str, list[int]], theirs: dict[str, list[int]]) -> None:
    missing = [name for name in theirs if name not in mine]
    extra = [name for name in mine if name not in theirs]
    if missing:
        more = tr("; it has {extra}", extra=tr(", ").join(extra)) if extra else ""
        raise Difference(
            "names", tr("there is no parameter {missing}{more}", missing=missing[0], more=more)
        )
    if extra:
        look = tr(
            "there is a parameter too many: {extra} (a buffer takes `persistent=False`)",
            extra=extra[0],
        )
        raise Difference("names", look)
    for name, shape in theirs.items():
        if mine[name] != shape:
            look = tr(
                "parameter {name} has shape {mine} instead of {shape}",
                name=name,
                mine=tuple(mine[name]),
                shape=tuple(shape),
            )
            raise Difference("names", look)


def _same_structure(
    mine: Any, theirs: Any, where: str, names: Sequence[str] = ()
) -> list[Pair]:
    """The pairs of tensors in two values, after the place where they stand."""
    if isinstance(theirs, Tensor):
        if not isinstance(mine, Tensor):
            raise Difference(
                "type",
                tr("{where}a tensor was expected, not {mine}", where=where, mine=kind_of(mine)),
            )
        return [(where, mine, theirs)]
    if isinstance(theirs, (list, tuple)):
        if not isinstance(mine, (list, tuple)) or len(mine) != len(theirs):
            look = tr(
                "{where}{count} values were expected, not {mine}",
                where=where,
                count=len(theirs),
                mine=kind_of(mine),
            )
            raise Difference("type", look)
        return [
            pair
            for i, (a, b) in enumerate(zip(mine, theirs, strict=True))
            for pair in _same_structure(
                a, b, where + (names[i] if names else tr("value {n}", n=i + 1)) + tr(": ")
            )
        ]
    if isinstance(theirs, dict):
        if not isinstance(mine, dict) or set(mine) != set(theirs):
            got = kind_of(mine)
            if got == "a dict":
                got = tr("one with {names}", names=tr(", ").join(mine) or tr("nothing"))
            look = tr(
                "{where}a dict with {theirs} was expected, not {got}",
                where=where,
                theirs=tr(", ").join(theirs),
                got=got,
            )
            raise Difference("type", look)
        return [
            pair
            for key in theirs
            for pair in _same_structure(mine[key], theirs[key], where + str(key) + tr(": "))
        ]
    if isinstance(theirs, float) and type(mine) in (int, float):
        if not abs(mine - theirs) <= 1e-5 * max(1.0, abs(theirs)):  # NaN is near nothing
            got = f"{where}{mine:.5g}"
            raise Difference(
                "values",
                tr("{got} instead of {theirs:.5g}", got=got, theirs=theirs),
                redacted=got,
            )
        return []
    if type(mine) is not type(theirs) or mine != theirs:
        got, wanted = kind_of(mine), kind_of(theirs)
        if type(mine) is type(theirs) and isinstance(mine, (bool, int, str)):
            got, wanted = str(mine)[:60], str(theirs)[:60]
        look = tr("{where}{got} instead of {wanted}", where=where, got=got, wanted=wanted)
        raise Difference(
            "values", look, redacted=tr("{where}{got} is wrong", where=where, got=got)
        )
    return []


def kind_of(value: Any) -> str:
    if value is None:
        return tr("None (is a return missing, or a print in its place?)")
    if isinstance(value, Tensor):
        return tr("a tensor of shape {shape}", shape=tuple(value.shape))
    if isinstance(value, dict) and len(value) == 1:
        key, item = next(iter(value.items()))
        if key.startswith("a") and " " in key:
            return f"{key} {str(item)[:60]}"
    if value in ("nan", "inf", "-inf"):  # a number, as a call gives it
        return value
    if isinstance(value, (bool, int, float, str)):
        return f"{type(value).__name__} {str(value)[:40]!r}"
    if isinstance(value, (list, tuple)):
        return f"{len(value)} values"
    return f"a {type(value).__name__}"


def _same_form(pairs: list[Pair]) -> list[str]:
    """Compare all shapes, then dtypes, then NaN; what is right about the last pair."""
    for where, mine, theirs in pairs:
        if mine.shape != theirs.shape:
            look = tr(
                "the shape is {mine} instead of {wanted}",
                mine=tuple(mine.shape),
                wanted=tuple(theirs.shape),
            )
            raise Difference("shape", where + look)
    right = [tr("shape {shape}", shape=tuple(mine.shape)) for _, mine, _ in pairs[-1:]]
    for where, mine, theirs in pairs:
        if mine.dtype != theirs.dtype:
            look = tr(
                "the dtype is {mine} instead of {wanted}",
                mine=short(mine.dtype),
                wanted=short(theirs.dtype),
            )
            raise Difference("dtype", where + look, right)
    right += [tr("dtype {dtype}", dtype=short(mine.dtype)) for _, mine, _ in pairs[-1:]]
    for where, mine, theirs in pairs:
        bad = ~mine.isfinite()
        if bad.any() and (bad := bad & theirs.isfinite()).any():
            count, at = (
                tr("{bad} of {all} entries are", bad=int(bad.sum()), all=mine.numel()),
                index_of(bad),
            )
            look = tr(
                "{count} {entry}, first at {place}",
                count=count,
                entry=float(mine[at]),
                place=list(at),
            )
            raise Difference("nan", where + look, right)
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


def _same_values(
    where: str, mine: Tensor, theirs: Tensor, right: list[str], tolerance: float | None
) -> None:
    off = ~close(mine, theirs, tolerance)
    if not off.any():
        return
    at = index_of(off)
    share = tr("all entries") if off.all() else tr("{off} of the entries", off=percent(off))
    redacted = tr(
        "{where}values differ in {share}, first at {at}", where=where, share=share, at=list(at)
    )
    got = number(mine[at])
    look = redacted + tr(": ") + got
    if mine.dim() == 0:
        redacted, look = (
            tr("{where}the value differs", where=where),
            tr("{where}the value is {got}", where=where, got=got),
        )
    look = tr("{look} instead of {got}", look=look, got=number(theirs[at], got))
    raise Difference("values", look, right, redacted)


def _same_state(mine: dict[str, Tensor], theirs: dict[str, Tensor], right: list[str]) -> None:
    """The weights and learning rates that the call left behind."""
    for name, expected in theirs.items():
        got = mine.get(name)
        if got is None or got.shape != expected.shape:
            raise Difference(
                "state", tr("afterwards there is no {name} of its old shape", name=name), right
            )
        off = ~close(got, expected, GRAD_TOLERANCE)
        if off.any():
            look = redacted = tr(
                "after the call, {name} differs in {off} of its entries",
                name=name,
                off=percent(off),
            )
            if got.dim() == 0:
                redacted = tr("after the call, {name} is {got}", name=name, got=number(got))
                look = tr(
                    "{redacted} instead of {got}",
                    redacted=redacted,
                    got=number(expected, number(got)),
                )
            raise Difference("state", look, right, redacted)


def percent(off: Tensor) -> str:
    share = 100 * float(off.double().mean())
    return f"{share:.0f}%" if share >= 1 else tr("under 1%")


def number(entry: Tensor, other: str | None = None) -> str:
    """Five digits, or as many as it takes to look different from the other number."""
    value = entry.item()
    if not isinstance(value, float):
        return str(value)
    text = f"{value:.5g}"
    return f"{value:.9g}" if text == other else text


def _same_grads(mine: dict[str, Tensor], theirs: dict[str, Tensor], right: list[str]) -> None:
    extra = [name for name in mine if name not in theirs]
    if extra:
        raise Difference("names", tr("there is a {extra} too many", extra=extra[0]), right)
    for name, gradient in theirs.items():
        got = mine.get(name)
        if got is None or got.shape != gradient.shape:
            raise Difference("grad", tr("no gradient reaches {name}", name=name), right)
        if not got.any() and gradient.any():
            look = tr("no gradient reaches {name}: it is zero everywhere", name=name)
            raise Difference("grad", look, right)
        tolerance = max(GRAD_TOLERANCE, TOLERANCE[gradient.dtype])
        off = ~close(got, gradient, tolerance)
        if off.any():
            look = tr(
                "the gradient of {name} differs in {off} of its entries",
                name=name,
                off=percent(off),
            )
            raise Difference("grad", look, right)
