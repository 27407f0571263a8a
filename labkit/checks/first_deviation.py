"""Two traces of one model side by side: the first part that deviates, named.

A part is at fault if what it got is right and what it gave is not, unless a part that it
called is; so the search begins at the logits and goes inwards. A part that the learner wrote
into another one is never called, and so never blamed. What stands at padding counts nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from labkit.checks.compare import Difference, assert_same, close, error_text
from labkit.checks.package import localised
from labkit.core import cells
from labkit.core.syllabus import LABS, Exercise
from labkit.sandboxed.call import Failure, Outcome
from labkit.sandboxed.importer import PACKAGE

TOLERANCE = 1e-4  # of the size of the activations
HOMES = {symbol: (lab, e) for lab in LABS for e in lab.exercises for symbol in e.symbols}
HOMES["Embedding"] = HOMES["Qwen3Model"]  # torch's own: who builds it answers for it
PLACE = ("step", "layer", "part", "symbol")


@dataclass(frozen=True)
class Fault:
    """What is wrong, why, the exercise to mend if it is known, and the layer it showed in."""

    look: str
    why: str = ""
    exercise: Exercise | None = None
    layer: int | None = None

    def within(self, model: str) -> Fault:
        return replace(self, look=f"{model}: {self.look}")


class Pair:
    """The traces of the learner's package and of the right one, as sandboxed.injected.trace
    makes them; `steps` are the inputs, `sources` the learner's modules."""

    def __init__(
        self, mine: Mapping, right: Mapping, steps: Sequence, sources: Mapping[str, str]
    ):
        self.mine, self.right, self.steps, self.sources = mine, right, steps, sources

    def fault(self) -> Fault | None:
        """The first thing wrong; None if every step ends in the right logits."""
        if self.mine["shapes"] and (misfit := self._misfit()):
            return misfit
        for place, call in enumerate(self.mine["calls"]):
            if call["caller"] < 0 and call["symbol"] == "Qwen3ForCausalLM":
                (twin,) = self._twins(call)
                if not self._gave_the_same(call, twin):
                    return self._before(call["step"]) or self._within(place, twin)
        return self._of_an_error() if self.mine["failure"] else None

    def distance(self) -> float:
        """The largest difference between two logits of a real token."""
        ends = [[call["outputs"][0] for call in side["calls"] if call["part"] == "logits"]
                for side in (self.mine, self.right)]  # fmt: skip
        pairs = zip(*ends, self.steps, strict=True)
        return max(float((real(a, s) - real(b, s)).abs().max()) for a, b, s in pairs)

    def _before(self, step: int) -> Fault | None:
        """A part that deviated in an earlier step, where only the cache took note of it."""
        for place, call in enumerate(self.mine["calls"]):
            twin = self._twin(call) if call["step"] < step else None
            if twin and not self._gave_the_same(call, twin):
                return self._within(place, twin)
        return None

    def _within(self, place: int, twin: Mapping) -> Fault:
        """The fault of a call that got what it should and gave something else: that of the
        first part in it of which the same is true, else its own."""
        misfed = changed = None
        for inner, call in enumerate(self.mine["calls"]):
            if call["caller"] != place:
                continue
            twin_of_it = self._twin(call)
            if twin_of_it and not self._gave_the_same(call, twin_of_it):
                return self._within(inner, twin_of_it)
            if twin_of_it and call["changed"] and not misfed:
                changed = call
            if not twin_of_it and self._twins(call):
                misfed = misfed or call
        if misfed and changed:
            return self._of_change(changed)
        return self._of_call(self.mine["calls"][place], twin, misfed)

    def _twin(self, call: Mapping) -> Mapping | None:
        """The right package's call of this part that got the same."""
        return next((t for t in self._twins(call) if self._got_the_same(call, t)), None)

    def _twins(self, call: Mapping) -> list[Mapping]:
        """The right package's calls of this part at this place."""
        here = [call[key] for key in PLACE]
        return [c for c in self.right["calls"] if [c[key] for key in PLACE] == here]

    def _got_the_same(self, call: Mapping, twin: Mapping) -> bool:
        step = self.steps[call["step"]]
        pairs = zip(
            call["inputs"], twin["inputs"], strict=False
        )  # optional ones may be missing
        fed_alike = all(alike(mine, right, step) for mine, right in pairs)
        return fed_alike and made_alike(call["made"], twin["made"])

    def _gave_the_same(self, call: Mapping, twin: Mapping) -> bool:
        if call["outputs"] is None:  # it raised an error
            return False
        step = self.steps[call["step"]]
        return alike(call["outputs"], twin["outputs"], step, strict=True)

    # Faults in words

    def _of_call(self, call: Mapping, twin: Mapping, misfed: Mapping | None) -> Fault:
        exercise = HOMES[call["symbol"]][1]
        what = "gave something else"
        if call["outputs"] is None:
            look, what = self._error(exercise), "raised an error"
        else:
            look = difference(call["outputs"], twin["outputs"], self.steps[call["step"]])
        if misfed:
            what = f"passed something else on to {misfed['part']}"
        later = "continued with a cache: " if call["step"] else ""
        why = f"{exercise.title}, exercise {exercise.id}, got what it should and {what}"
        return Fault(f"{later}{place_of(call)}: {look}", why, exercise, call["layer"])

    def _of_change(self, call: Mapping) -> Fault:
        exercise = HOMES[call["symbol"]][1]
        look = f"{place_of(call)}: it changed its input in place"
        why = f"{exercise.title}, exercise {exercise.id}, gave the right result, but others"
        return Fault(look, f"{why} need the input, too", exercise, call["layer"])

    def _misfit(self) -> Fault | None:
        """The first parameter that is missing, has another shape, or is too many."""
        mine, right = self.mine["shapes"], self.right["shapes"]
        shared = self.mine["shared"]
        off = [n for n in {**right, **mine} if mine.get(n) != right.get(n) or n in shared]
        if not off:
            return None
        name = off[0]
        if name in shared:
            look = f"parameter {name} lost what was loaded: another one shares its memory"
        elif name not in mine:
            look = f"there is no parameter {name}"
        elif name not in right:
            look = f"there is a parameter too many: {name}"
        else:
            mine, right = tuple(mine[name]), tuple(right[name])
            look = f"parameter {name} has shape {mine} instead of {right}"
        exercise = HOMES[self._maker(name, off)][1]
        return Fault(look, f"{exercise.title}, exercise {exercise.id}, makes it", exercise)

    def _maker(self, name: str, off: Sequence[str]) -> str:
        """The class to blame for a parameter: the innermost one that was made as it should
        be; for a shared parameter it must be wrong wherever the class is used."""
        classes, path = self.mine["classes"], name
        while path:
            path = path.rpartition(".")[0]
            leaf, kind = name.removeprefix(path).lstrip("."), classes.get(path)
            if kind not in HOMES:
                continue
            same = [other for other, its in classes.items() if its == kind]
            everywhere = all(f"{other}.{leaf}".lstrip(".") in off for other in same)
            known = self.right["classes"].get(path) == kind
            well_made = known and made_alike(self.mine["made"][path], self.right["made"][path])
            if everywhere if name in self.mine["shared"] else well_made:
                return kind
        return "Qwen3ForCausalLM"

    def _of_an_error(self) -> Fault:
        """An error outside all parts: when the package was imported or the model built."""
        _, text, module, line = self.mine["failure"]
        exercise = exercise_at(self.sources.get(module, ""), line)
        named = re.search(r"^Exercise (\d+\.\d+)|cannot import name '(\w+)'", text)
        for _, each in HOMES.values():
            if named and (each.id == named[1] or named[2] in each.symbols):
                exercise = each
        where = f"{PACKAGE}/{module}.py: " if module else ""
        return Fault(f"{where}{self._error(exercise)}", "", exercise)

    def _error(self, exercise: Exercise | None) -> str:
        kind, text, module, line = self.mine["failure"]
        if exercise and text.startswith(f"Exercise {exercise.id}:"):
            return f"exercise {exercise.id}, {exercise.title}, is not written yet"
        failure = Failure(kind, text, line if exercise else None)
        if exercise:
            source = self.sources.get(module, "")
            failure = localised(Outcome(failure=failure), source, exercise.id).failure
        return error_text(failure)


def exercise_at(source: str, line: int | None) -> Exercise | None:
    """The exercise whose block holds this line of a module."""
    for key, text in cells.split(source):
        length = text.count("\n")
        if line is None or line <= length:
            return next((e for _, e in HOMES.values() if line and e.id == key), None)
        line -= length
    return None


def place_of(call: Mapping) -> str:
    layer = [] if call["layer"] is None else [f"layer {call['layer']}"]
    return ", ".join([*layer, call["part"]]).removesuffix(", the layer")


# Values


def made_alike(mine: Sequence, right: Sequence) -> bool:
    """Whether two objects were made with the same; a default may be spelled out."""
    return all(b is None or a == b for a, b in zip(mine, right, strict=False))


def alike(mine: Any, right: Any, step: Mapping, strict: bool = False) -> bool:
    """Whether two values mean the same: what is not given may be anything, axes may be
    broadcast, masks may be of any kind; strict: only axes."""
    if isinstance(right, list):
        if not isinstance(mine, list) or len(mine) != len(right):
            return False
        return all(alike(a, b, step, strict) for a, b in zip(mine, right, strict=True))
    if not isinstance(right, Tensor):
        return mine == right or (not strict and (mine is None or right is None))
    if right.dtype == torch.bool and not strict:
        mine = allowed(mine, right)
    if not isinstance(mine, Tensor) or (strict and mine.dtype != right.dtype):
        return False
    try:
        mine, right = torch.broadcast_tensors(mine, right)
    except RuntimeError:
        return False
    return bool(close(real(mine, step), real(right, step), TOLERANCE).all())


def allowed(mask: Any, right: Tensor) -> Any:
    """A mask of any kind (none, bool, 0 and 1, added to the scores) as True = may attend."""
    if mask is None:
        return torch.ones_like(right)
    if isinstance(mask, Tensor) and mask.is_floating_point():
        return mask > torch.finfo(mask.dtype).min / 2
    return mask.bool() if isinstance(mask, Tensor) else mask


def real(tensor: Tensor, step: Mapping) -> Tensor:
    """The tensor with 0 wherever it speaks of padding."""
    batch, new = step["input_ids"].shape
    keep = step["attention_mask"].bool()  # (B, S)
    if tensor.dim() == 2 and tensor.size(0) == batch * new:
        return tensor.masked_fill(~keep[:, -new:].reshape(-1, 1), 0)  # (N, ...)
    for axis in range(1, tensor.dim() if tensor.size(0) == batch else 0):
        if tensor.size(axis) in (new, keep.size(1)):
            shape = [batch if i == 0 else -1 if i == axis else 1 for i in range(tensor.dim())]
            return tensor.masked_fill(~keep[:, -tensor.size(axis) :].reshape(shape), 0)
    return tensor


def difference(mine: list, right: list, step: Mapping) -> str:
    """How two lists of values differ, said as in every report."""
    batch, new = step["input_ids"].shape

    def first_text(tensor: Tensor) -> Tensor:  # it has no padding
        rows = {batch: 1, batch * new: new}.get(tensor.size(0))
        return tensor[:rows]

    found = _difference(mine, right, lambda tensor: real(tensor, step))
    if found and found.kind == "values":
        found = _difference(mine, right, first_text) or found
    return found.look if found else "values differ"


def _difference(mine: list, right: list, part: Callable[[Tensor], Tensor]) -> Difference | None:
    outcomes = [Outcome(values=[_mapped(values, part)]) for values in (mine, right)]
    try:
        assert_same(*outcomes, TOLERANCE)
    except Difference as found:
        return found
    return None


def _mapped(value: Any, part: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, list):
        value = [_mapped(item, part) for item in value]
        return value[0] if len(value) == 1 else value
    return part(value) if isinstance(value, Tensor) and value.dim() else value
