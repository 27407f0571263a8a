"""All of the learner's own parts together: do they make the model, and if not, which is wrong?

Two tiny models are run on the learner's package. Where the logits are not right, the search
goes inwards: it makes the calls that the right model makes of its parts, one by one, with right
inputs. A part is to blame if it fails although every part that it should call is right. A part
that the learner wrote into another one is not blamed while that one is right. All this lies
recorded with the visible checks, so that an edition without the reference can compare, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from labkit.checks.compare import OURS, Difference, assert_same, error_text
from labkit.checks.in_process import Ask
from labkit.checks.package import localised
from labkit.checks.reference import RecordedReference
from labkit.core import cells
from labkit.core.syllabus import LABS, Exercise, Lab, UnknownName, find_exercise
from labkit.lang import said, tr
from labkit.sandboxed.call import Call, Failure, Outcome
from labkit.sandboxed.importer import PACKAGE
from labkit.sandboxed.wire import outcome_from

RECORD = "assembly"  # its name among the recorded answers
PARTS = (  # of the models, by the exercises' symbols
    *("rope_cos_sin", "causal_mask", "apply_rotary_pos_emb", "rotate_half", "repeat_kv"),
    *("scaled_dot_product_attention", "silu", "route", "uses_experts", "RMSNorm"),
    *("Qwen3Attention", "Qwen3MLP", "Qwen3MoeSparseMoeBlock"),
    *("Qwen3DecoderLayer", "Qwen3Model", "Qwen3ForCausalLM"),
)
TOLERANCE = 1e-4  # of the size of the activations
FINE = 1e-5  # where no part differs by more, yet the whole does: small faults grow
WHAT = {  # was wrong about a part, by the kind of difference
    "error": said("got what it should and raised an error"),
    "names": said("makes it"),
    "changed": said("gave the right result, but others need the input, too"),
}
OTHERWISE = said("got what it should and gave something else")


@dataclass(frozen=True)
class Part:
    """A part of the right model, and the calls that one other part makes of it.

    caller    the number of that part
    path      where it stands: "model.layers.0.mlp", a function "model.layers.0.silu"
    steps     for each step of the call, the step of the model in which it is made
    real      for each step, which tokens are no padding (B, T)
    """

    number: int
    caller: int
    path: str
    symbol: str
    steps: list[int]
    real: list[Tensor]
    call: Call
    right: Outcome


@dataclass(frozen=True)
class Fault:
    """What is wrong, why, the exercise to mend if it is known, and the layer it showed in."""

    look: str
    why: str = ""
    exercise: Exercise | None = None
    layer: int | None = None


@dataclass(frozen=True)
class AssemblyResult:
    """The rows of a report; the fault, None if all logits are right."""

    rows: list[tuple[str, str]]
    fault: Fault | None = None


@cache
def models() -> dict[str, list[Part]]:
    """The recorded models, each as the list of its parts; the first is the whole."""
    recorded = RecordedReference(RECORD).entries.items()
    return {name: parts_of(entry["weights"], entry["parts"]) for name, entry in recorded}


def parts_of(weights: Mapping[str, Tensor], recorded: list[Mapping]) -> list[Part]:
    inputs = recorded[0]["inputs"]
    masks = [i["attention_mask"][:, -i["input_ids"].size(1) :].bool() for i in inputs]
    return [
        Part(
            *(fields[key] for key in ("number", "caller", "path", "symbol", "steps")),
            real=[masks[step] for step in fields["steps"]],
            call=call_of(fields, weights),
            right=outcome_from(fields["right"]),
        )
        for fields in recorded
    ]


def call_of(fields: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Call:
    """The call of a recorded part; the whole gets its inputs by name."""
    made: dict[str, Any] = {"by_position": fields["caller"] >= 0}
    if fields["init"] is not None:
        within = f"{fields['path']}." if fields["path"] else ""
        own = {k.removeprefix(within): w for k, w in weights.items() if k.startswith(within)}
        made |= {"init": fields["init"], "state": own, "names": True}
    call = Call(fields["symbol"], **made)
    for inputs in fields["inputs"]:
        call.then(**inputs)
    return call


def layer_of(path: str) -> int | None:
    found = re.match(r"model\.layers\.(\d+)", path)
    return int(found[1]) if found else None


def judged(ask: Ask, sources: Mapping[str, str]) -> AssemblyResult:
    """Run one model after the other, up to the first fault.

    sources    the learner's modules, to find the exercise in which an error arose
    """
    agreed, distance = [], 0.0
    for name, parts in models().items():
        search = Search(parts, ask, sources)
        if search.differs(parts[0]):
            fault = search.fault()
            if fault.layer:
                agreed.append(
                    tr("{name}: layer 0", name=name)
                    + f" to {fault.layer - 1}" * (fault.layer > 1)
                )
            rows = [("ok", " | ".join(agreed)), ("look", name + tr(": ") + fault.look)]
            rows = [row for row in [*rows, ("why", fault.why)] if row[1]]
            return AssemblyResult(rows, fault)
        layers = 1 + max(layer_of(part.path) or 0 for part in parts)
        agreed.append(
            tr(
                "{name}: all {layers} layers, without and with a cache",
                name=name,
                layers=layers,
            )
        )
        distance = max(distance, search.distance())
    near = tr("within {distance:.0e} of", distance=distance) if distance else tr("equal to")
    return AssemblyResult(
        [("ok", " | ".join(agreed)), ("ok", tr("logits {near} the reference's", near=near))]
    )


class Search:
    """Looks for the wrong part of one model."""

    def __init__(self, parts: list[Part], ask: Ask, sources: Mapping[str, str]):
        self.parts, self.ask, self.sources = parts, ask, sources
        self.outcomes: dict[int, Outcome] = {}

    def outcome(self, part: Part) -> Outcome:
        """What the learner's part gives, and at padding what is right."""
        if part.number in self.outcomes:
            return self.outcomes[part.number]
        lab, exercise = find_exercise(part.symbol)
        mine = self.ask(lab.module, part.call)
        if mine.failure and part.call.init is not None:  # its weights may not fit
            made = self.ask(lab.module, Call(part.symbol, init=part.call.init, names=True))
            mine = mine if made.failure or made.names == part.right.names else made
        mine = localised(mine, self.sources.get(lab.module, ""), exercise.id)
        triples = zip(mine.values, part.right.values, part.real, strict=False)
        mine.values = [at_real_tokens(*triple) for triple in triples]
        return self.outcomes.setdefault(part.number, mine)

    def differs(
        self, part: Part, strict: bool = False, tolerance: float = TOLERANCE
    ) -> Difference | None:
        """How it differs from the right part; strict: changing an input in place counts."""
        mine = self.outcome(part)
        try:
            assert_same(mine if strict else replace(mine, changed=[]), part.right, tolerance)
        except Difference as found:
            return found
        return None

    def distance(self) -> float:
        """The largest difference between two logits."""
        pairs = zip(self.outcome(self.parts[0]).values, self.parts[0].right.values, strict=True)
        return max(float((mine - right).abs().max()) for mine, right in pairs)

    def fault(self) -> Fault:
        """What is wrong, where the whole differs."""
        part = self.innermost(self.parts[0])
        failure = self.outcome(part).failure
        if failure and failure.kind in OURS:  # no answer says nothing about this part
            return Fault(error_text(failure))
        return self.of_module() or self.of_part(part)

    def innermost(self, part: Part) -> Part:
        """The first wrong part in a wrong one that has no wrong part itself."""
        inside = [inner for inner in self.parts if inner.caller == part.number]
        for strict, tolerance in ((False, TOLERANCE), (True, TOLERANCE), (False, FINE)):
            for inner in inside:
                if self.differs(inner, strict, tolerance):
                    return self.innermost(inner)
        return part

    def of_part(self, part: Part) -> Fault:
        exercise, failure = find_exercise(part.symbol)[1], self.outcome(part).failure
        difference = self.differs(part, strict=True) or self.differs(part, tolerance=FINE)
        look, step = difference.look, len(self.outcome(part).values) if failure else 0
        if numbered := re.search(r"\bstep (\d+):? ", look):
            look, step = look.replace(numbered[0], "", 1), int(numbered[1]) - 1
        if failure and failure.text.startswith(f"Exercise {exercise.id}:"):
            look = tr(
                "exercise {id}, {title}, is not written yet",
                id=exercise.id,
                title=exercise.title,
            )
        place = part.path.removeprefix("model.") or "logits"
        place = re.sub(r"^layers\.(\d+)\.?", r"layer \1, ", place).removesuffix(", ")
        later = tr("continued with a cache: ") if part.steps[step] else ""
        what = tr(WHAT.get(difference.kind, OTHERWISE))
        why = tr(
            "{title}, exercise {id}, {what}", title=exercise.title, id=exercise.id, what=what
        )
        return Fault(later + place + tr(": ") + look, why, exercise, layer_of(part.path))

    def of_module(self) -> Fault | None:
        """The first module that cannot even be imported, and the exercise that stops it."""
        homes = {find_exercise(symbol)[0].module for symbol in PARTS}
        for lab in [lab for lab in LABS if lab.module in homes]:
            loading = self.ask(lab.module, Call("__name__"))  # of nothing in it
            if loading.failure:
                exercise, failure = in_cell(loading, lab, self.sources.get(lab.module, ""))
                look = f"{PACKAGE}/{lab.module}.py" + tr(": ") + error_text(failure)
                return Fault(look, exercise=exercise)
        return None


def in_cell(loading: Outcome, lab: Lab, source: str) -> tuple[Exercise | None, Failure]:
    """The exercise that stops a module, and the error with its line counted in that cell."""
    failure = loading.failure
    if missing := re.search(r"cannot import name '(\w+)'", failure.text):
        with suppress(UnknownName):
            return find_exercise(missing[1])[1], replace(failure, line=None)
    for exercise in [e for e in lab.exercises if cells.block(source, e.id)]:
        if (here := localised(loading, source, exercise.id).failure).line:
            return exercise, here
    return None, replace(failure, line=None)


def at_real_tokens(mine: Any, right: Any, real: Tensor) -> Any:
    """What came out, but where it speaks of padding what is right; NaN stays, as it spreads."""
    if isinstance(mine, list) and isinstance(right, list) and len(mine) == len(right):
        return [at_real_tokens(a, b, real) for a, b in zip(mine, right, strict=True)]
    if not isinstance(mine, Tensor) or not isinstance(right, Tensor):
        return mine
    if (mine.shape, mine.dtype) != (right.shape, right.dtype):
        return mine
    for keep in (real, real.flatten(), real[:, None]):  # (B, T, ...), (N, ...), (B, H, T, ...)
        pairs = zip(keep.shape, mine.shape, strict=False)
        if mine.dim() >= keep.dim() and all(size in (1, its) for size, its in pairs):
            keep = keep.reshape(keep.shape + (1,) * (mine.dim() - keep.dim()))
            return torch.where(keep | ~mine.isfinite(), mine, right)
    return mine
