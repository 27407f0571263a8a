"""Comparing outcomes: the first thing that differs, said so that a learner can act on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

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
        raise Difference("type", "the call did not return")
    pairs: list[Pair] = []
    for step, (mine, theirs) in enumerate(zip(student.values, reference.values, strict=True)):
        where = "" if len(reference.values) == 1 else f"step {step + 1}: "
        pairs += _same_structure(mine, theirs, where, returns)
    right = _same_form(pairs)
    new = [name for name in student.changed if name not in reference.changed]
    if new:
        raise Difference("changed", f"the call changed its input {new[0]} in place", right)
    right.append("input left unchanged")
    for where, mine, theirs in pairs:
        _same_values(where, mine, theirs, right, tolerance)
    _same_state(student.state, reference.state, [*right, "values"] if pairs else right)
    _same_grads(student.grads, reference.grads, [*right, "values"])


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
        raise Difference("values", f"{int(mine.sum())} tokens of 0 to {len(mine) - 1} came out")
    counts = torch.zeros(len(probs))
    counts[: len(mine)] = mine.float()
    expected = draws * probs / probs.sum()
    possible = expected > 0
    forbidden = (counts > 0) & ~possible
    if forbidden.any():
        token = index_of(forbidden)[0]
        raise Difference("values", f"token {token} came out, which must not be drawn")
    gaps = (counts - expected).square()[possible] / expected[possible]
    if float(gaps.sum()) > chi_square_limit(int(possible.sum()) - 1):
        token = int(possible.nonzero().flatten()[gaps.argmax()])
        look = f"token {token} was drawn {int(counts[token])} times in {draws}"
        raise Difference("values", f"{look}, not about {float(expected[token]):.0f}", [], look)


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
    where = f" (line {failure.line} of your cell)" if failure.line else ""
    raised = "" if failure.kind in OURS else f"it raised {failure.kind}: "
    return f"{raised}{failure.text}{where}"


def _state_text(text: str) -> str:
    """The first thing that keeps weights from being loaded, in a few words."""
    sizes = re.search(r"mismatch for (\S+): .*?Size\((\[.*?\])\).*?Size\((\[.*?\])\)", text)
    missing = re.search(r'Missing key\(s\) in state_dict: "([^"]+)"', text)
    extra = re.search(r'Unexpected key\(s\) in state_dict: "([^"]+)"', text)
    said = "the weights do not fit: "
    if missing and extra:
        return f"{said}there is a {missing[1]} and no {extra[1]}"
    if missing:
        return f"{said}there is a {missing[1]} too many; a buffer takes `persistent=False`"
    if extra:
        return f"{said}there is no {extra[1]}"
    if sizes:
        wanted, got = (f"({shape[1:-1]})" for shape in sizes.groups()[1:])
        return f"{said}{sizes[1]} has shape {got} instead of {wanted}"
    return said.removesuffix(": ")


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _same_failure(student: Outcome, expected: Failure) -> None:
    if student.failure is None:
        raise Difference("error", f"{expected.kind} was expected, nothing was raised")
    if expected.kind not in (student.failure.kind, *student.failure.bases):
        look = f"{expected.kind} was expected; {error_text(student.failure)}"
        raise Difference("error", look)


def _same_names(mine: dict[str, list[int]], theirs: dict[str, list[int]]) -> None:
    missing = [name for name in theirs if name not in mine]
    extra = [name for name in mine if name not in theirs]
    if missing:
        more = f"; it has {', '.join(extra)}" if extra else ""
        raise Difference("names", f"there is no parameter {missing[0]}{more}")
    if extra:
        look = f"there is a parameter too many: {extra[0]} (a buffer takes `persistent=False`)"
        raise Difference("names", look)
    for name, shape in theirs.items():
        if mine[name] != shape:
            look = f"parameter {name} has shape {tuple(mine[name])} instead of {tuple(shape)}"
            raise Difference("names", look)


def _same_structure(
    mine: Any, theirs: Any, where: str, names: Sequence[str] = ()
) -> list[Pair]:
    """The pairs of tensors in two values, after the place where they stand."""
    if isinstance(theirs, Tensor):
        if not isinstance(mine, Tensor):
            raise Difference("type", f"{where}a tensor was expected, not {kind_of(mine)}")
        return [(where, mine, theirs)]
    if isinstance(theirs, (list, tuple)):
        if not isinstance(mine, (list, tuple)) or len(mine) != len(theirs):
            look = f"{where}{len(theirs)} values were expected, not {kind_of(mine)}"
            raise Difference("type", look)
        return [
            pair
            for i, (a, b) in enumerate(zip(mine, theirs, strict=True))
            for pair in _same_structure(
                a, b, f"{where}{names[i] if names else f'value {i + 1}'}: "
            )
        ]
    if isinstance(theirs, dict):
        if not isinstance(mine, dict) or set(mine) != set(theirs):
            got = kind_of(mine)
            if got == "a dict":
                got = f"one with {', '.join(mine) or 'nothing'}"
            look = f"{where}a dict with {', '.join(theirs)} was expected, not {got}"
            raise Difference("type", look)
        return [p for k in theirs for p in _same_structure(mine[k], theirs[k], f"{where}{k}: ")]
    if isinstance(theirs, float) and type(mine) in (int, float):
        if not abs(mine - theirs) <= 1e-5 * max(1.0, abs(theirs)):  # NaN is near nothing
            got = f"{where}{mine:.5g}"
            raise Difference("values", f"{got} instead of {theirs:.5g}", redacted=got)
        return []
    if type(mine) is not type(theirs) or mine != theirs:
        got, wanted = kind_of(mine), kind_of(theirs)
        if type(mine) is type(theirs) and isinstance(mine, (bool, int, str)):
            got, wanted = str(mine)[:60], str(theirs)[:60]
        look = f"{where}{got} instead of {wanted}"
        raise Difference("values", look, redacted=f"{where}{got} is wrong")
    return []


def kind_of(value: Any) -> str:
    if value is None:
        return "None (is a return missing, or a print in its place?)"
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
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
            look = f"the shape is {tuple(mine.shape)} instead of {tuple(theirs.shape)}"
            raise Difference("shape", where + look)
    right = [f"shape {tuple(mine.shape)}" for _, mine, _ in pairs[-1:]]
    for where, mine, theirs in pairs:
        if mine.dtype != theirs.dtype:
            look = f"the dtype is {short(mine.dtype)} instead of {short(theirs.dtype)}"
            raise Difference("dtype", where + look, right)
    right += [f"dtype {short(mine.dtype)}" for _, mine, _ in pairs[-1:]]
    for where, mine, theirs in pairs:
        bad = ~mine.isfinite() & theirs.isfinite()
        if bad.any():
            count, at = f"{int(bad.sum())} of {mine.numel()} entries are", index_of(bad)
            look = f"{count} {float(mine[at])}, first at {list(at)}"
            raise Difference("nan", where + look, right)
    return right


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
    share = "all entries" if off.all() else f"{percent(off)} of the entries"
    redacted = f"{where}values differ in {share}, first at {list(at)}"
    got = number(mine[at])
    look = f"{redacted}: {got}"
    if mine.dim() == 0:
        redacted, look = f"{where}the value differs", f"{where}the value is {got}"
    look = f"{look} instead of {number(theirs[at], got)}"
    raise Difference("values", look, right, redacted)


def _same_state(mine: dict[str, Tensor], theirs: dict[str, Tensor], right: list[str]) -> None:
    """The weights and learning rates that the call left behind."""
    for name, expected in theirs.items():
        got = mine.get(name)
        if got is None or got.shape != expected.shape:
            raise Difference("state", f"afterwards there is no {name} of its old shape", right)
        off = ~close(got, expected, GRAD_TOLERANCE)
        if off.any():
            look = redacted = f"after the call, {name} differs in {percent(off)} of its entries"
            if got.dim() == 0:
                redacted = f"after the call, {name} is {number(got)}"
                look = f"{redacted} instead of {number(expected, number(got))}"
            raise Difference("state", look, right, redacted)


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


def _same_grads(mine: dict[str, Tensor], theirs: dict[str, Tensor], right: list[str]) -> None:
    extra = [name for name in mine if name not in theirs]
    if extra:
        raise Difference("names", f"there is a {extra[0]} too many", right)
    for name, gradient in theirs.items():
        got = mine.get(name)
        if got is None or got.shape != gradient.shape:
            raise Difference("grad", f"no gradient reaches {name}", right)
        if not got.any() and gradient.any():
            look = f"no gradient reaches {name}: it is zero everywhere"
            raise Difference("grad", look, right)
        tolerance = max(GRAD_TOLERANCE, TOLERANCE[gradient.dtype])
        off = ~close(got, gradient, tolerance)
        if off.any():
            look = f"the gradient of {name} differs in {percent(off)} of its entries"
            raise Difference("grad", look, right)
