"""All of the learner's own parts together: do they make the model, and if not, which is wrong?

Two tiny models run on the learner's package and are recorded part by part, see
labkit.sandboxed.injected.trace. What the reference gives lies recorded with the visible
checks, so that an edition without the reference can compare, too; first_deviation does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import Any

import torch

from labkit.checks.compare import error_text
from labkit.checks.first_deviation import Fault, Pair
from labkit.checks.reference import RecordedReference
from labkit.checks.runner import Rng
from labkit.core.paths import LABKIT
from labkit.core.report import Report, Status
from labkit.core.syllabus import LABS
from labkit.learner import workspace
from labkit.sandboxed.call import Call, Outcome, perform
from labkit.sandboxed.importer import PACKAGE, imported
from labkit.sandboxed.injected.trace import CLASSES, FUNCTIONS

HEADING = "Assembly  your own parts"
RECORD = "assembly"  # its name among the recorded answers
TRACE = LABKIT / "sandboxed" / "injected" / "trace.py"

# Sizes that differ from each other; head_dim is not E / H; fewer KV heads than heads.
SIZES = {
    "vocab_size": 13,
    "hidden_size": 7,
    "intermediate_size": 11,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "rope_theta": 500.0,
    "rms_norm_eps": 0.01,
}
EXPERTS = {
    "num_experts": 5,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 9,
    "norm_topk_prob": True,
    "decoder_sparse_step": 2,
    "mlp_only_layers": [3],  # so of four layers only layer 1 has experts
}
CASES = {
    "dense": {**SIZES, "num_hidden_layers": 3, "tie_word_embeddings": True},
    "MoE": {**SIZES, "num_hidden_layers": 4, **EXPERTS},
}
MASK = [[1] * 8, [0, 0, 1, 1, 1, 1, 1, 1]]  # the second text is padded on the left
LENGTHS = (5, 3)  # tokens of the first step, and of the second, which continues it


@dataclass(frozen=True)
class AssemblyResult:
    """Models and layers that agree, the fault, and how far the logits are from right ones."""

    agreed: list[str]
    fault: Fault | None = None
    distance: float = 0.0

    @property
    def rows(self) -> list[tuple[str, str]]:
        rows = [("ok", " | ".join(self.agreed))] if self.agreed else []
        if self.fault is None:
            near = f"within {self.distance:.0e} of" if self.distance else "equal to"
            return [*rows, ("ok", f"logits {near} the reference's")]
        why = [("why", self.fault.why)] if self.fault.why else []
        return [*rows, ("look", self.fault.look), *why]


def assembly_report(check: Callable[[str], str]) -> Report:
    """Run the learner's whole package and say which part is the first to deviate.

    check    how to check an exercise: "1.2" -> 'check("1.2")'
    """
    sources = workspace.own_package()
    with imported(with_trace(sources), workspace.folder()):
        verdict = judged(performed, sources)
    if verdict.fault is None:
        step = "every part of this model is yours; now it can load a checkpoint and talk"
        return Report(HEADING, Status.PASSED, [*verdict.rows, ("next", step)])
    parts = {*FUNCTIONS, *CLASSES}
    labs = [lab for lab in LABS if lab.module in sources]
    empty = [e for lab in labs for e in workspace.unfinished(lab) if parts & {*e.symbols}]
    if verdict.fault.exercise in empty:  # say all that is missing, and where to begin
        look = f"not written yet: {', '.join(f'{e.id} {e.title}' for e in empty)}"
        verdict = replace(verdict, fault=Fault(look, exercise=empty[0]))
    to_mend = verdict.fault.exercise
    step = check(to_mend.id) if to_mend else "mend this, then assemble again"
    return Report(HEADING, Status.NOT_YET, [*verdict.rows, ("next", step)])


def with_trace(sources: Mapping[str, str]) -> dict[str, str]:
    """A package with the recorder in it."""
    return {**sources, "trace": TRACE.read_text("utf-8")}


def performed(call: Call) -> Outcome:
    """What the call gives in the package that is imported at this time."""
    return perform(call, vars(import_module(f"{PACKAGE}.trace")))


@cache
def record() -> RecordedReference:
    return RecordedReference(RECORD)


def judged(run: Callable[[Call], Outcome], sources: Mapping[str, str]) -> AssemblyResult:
    """Run one model after the other, up to the first fault.

    sources    the learner's modules, to find the exercise in which an error arose
    """
    agreed, farthest = [], 0.0
    for name, entry in record().entries.items():
        inputs = entry["inputs"]
        call = Call("trace", **inputs)
        call.key = name
        outcome = run(call)
        if outcome.failure:
            failure = replace(outcome.failure, line=None)  # the line is in the recorder
            return AssemblyResult(agreed, Fault(f"{name}: {error_text(failure)}"))
        pair = Pair(outcome.value, record().reference(call).value, inputs["steps"], sources)
        fault, layers = pair.fault(), inputs["config"]["num_hidden_layers"]
        if fault is not None:
            if fault.layer:
                agreed.append(f"{name}: layer 0" + f" to {fault.layer - 1}" * (fault.layer > 1))
            return AssemblyResult(agreed, fault.within(name))
        agreed.append(f"{name}: all {layers} layers, without and with a cache")
        farthest = max(farthest, pair.distance())
    return AssemblyResult(agreed, distance=farthest)


# The record, for `tinyllm build`


def recorded(sources: Mapping[str, str]) -> dict[str, Any]:
    """What the package of these sources gives for every case, as Recorded keeps it."""
    from labkit.sandboxed.wire import call_hash, outcome_fields

    entries = {}
    with imported(with_trace(sources)):
        for name, config in CASES.items():
            inputs = inputs_of(name, config)
            call = Call("trace", **inputs)
            fields = outcome_fields(performed(call))
            entries[name] = {"digest": call_hash(call), "reference": fields, "suspects": []}
            entries[name]["inputs"] = inputs
    return entries


def inputs_of(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Config, weights and two steps of tokens; norm weights are around 1, never 1."""
    rng = Rng(f"assembly:{name}")
    package = import_module(f"{PACKAGE}.decoder")
    model = package.Qwen3ForCausalLM(package.Qwen3Config(**config))
    weights = {
        key: (1 + 0.3 * rng.normal(*t.shape)) if t.dim() == 1 else 0.4 * rng.normal(*t.shape)
        for key, t in model.state_dict().items()
        if not (key == "lm_head.weight" and config.get("tie_word_embeddings"))
    }
    steps, held = [], 0
    for length in LENGTHS:
        held += length
        mask = torch.tensor(MASK)[:, :held]
        tokens = rng.integers(0, config["vocab_size"], 2, length)
        steps.append({"input_ids": tokens, "attention_mask": mask})
    return {"config": dict(config), "weights": weights, "steps": steps}
