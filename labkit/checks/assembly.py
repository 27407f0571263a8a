"""All of the learner's own parts together: do they make the model, and if not, which is wrong?

Four tiny models run on the learner's package and on the reference, and every call of a part is
recorded. The part to blame is that of the first call to end, hence the innermost, with the same
inputs as a call in the right model and a different outcome. A part whose code the learner wrote
inside another part is never called and never blamed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from labkit.checks.compare import Difference, assert_same
from labkit.checks.declared import Rng
from labkit.checks.messages import LIMITS, error_text
from labkit.checks.package import exercise_at, localize, reference_modules
from labkit.checks.runner import Ask, package_in
from labkit.course.lang import said, tr
from labkit.course.syllabus import LABS, Exercise, find_exercise
from labkit.sandbox.inside.call import Call, Given, New, Outcome
from labkit.sandbox.inside.importer import PACKAGE, imported
from labkit.sandbox.inside.perform import mask_padding
from labkit.sandbox.inside.wire import outcome_from

PARTS = (  # parts of the models, by the exercises' symbols
    *("rope_cos_sin", "causal_mask", "apply_rotary_pos_emb", "rotate_half", "repeat_kv"),
    *("scaled_dot_product_attention", "silu", "route", "uses_experts", "RMSNorm"),
    *("Qwen3Attention", "Qwen3MLP", "Qwen3MoeSparseMoeBlock"),
    *("Qwen3DecoderLayer", "Qwen3Model", "Qwen3ForCausalLM"),
)
WHOLE, HOME = PARTS[-1], "decoder"  # and the module with it
# Sizes that differ from each other; head_dim is not E / H; fewer KV heads than heads; of the
# four layers of the MoE model only layer 1 has experts.
SIZES = {
    "vocab_size": 13, "hidden_size": 7, "intermediate_size": 11, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 6, "rope_theta": 500.0, "rms_norm_eps": 0.01,
}  # fmt: skip
EXPERTS = {
    "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 9,
    "norm_topk_prob": True, "decoder_sparse_step": 2, "mlp_only_layers": [3],
}  # fmt: skip
DENSE = {**SIZES, "num_hidden_layers": 3, "tie_word_embeddings": True}
UNMASKED = said("dense, without an attention_mask")
CONFIGS = {
    "dense": DENSE,
    UNMASKED: DENSE,
    "MoE": {**SIZES, "num_hidden_layers": 4, **EXPERTS},
    "MoE, norm_topk_prob=False": {
        **SIZES, "num_hidden_layers": 2, **EXPERTS, "norm_topk_prob": False
    },
}  # fmt: skip
MASK = torch.tensor([[1] * 8, [0, 0, 1, 1, 1, 1, 1, 1]])  # the second text is padded
STEPS = ((0, 5), (5, 8))  # tokens per step; the second step continues the first
TOLERANCE, FINE = 1e-4, 1e-5  # tolerances: of logits; of a part's inputs and outcomes
Found = tuple[dict[str, Any], Difference]  # a right call, and the learner's call that differs
Fault = tuple[str, str, Exercise | None]  # what is wrong, why, the exercise to fix
WHAT = {  # {kind of difference: the words for a report}
    "error": said("got what it should and raised an error"),
    "names": said("makes it"),
    "changed": said("gave the right result, but changed its input, which other parts need"),
}
OTHERWISE = said("got what it should and gave something else")


@dataclass(frozen=True)
class AssemblyResult:
    """The rows of a report; whether all logits are right; the exercise to fix, if known."""

    rows: list[tuple[str, str]]
    passed: bool = False
    exercise: Exercise | None = None


@cache
def reference_models() -> dict[str, tuple[Call, Outcome]]:
    """{name of a model: its call, and the reference's outcome}"""
    ask, found = package_in(), {}
    with imported(reference_modules()):
        for name, config in CONFIGS.items():
            rng, init = Rng(f"assembly:{name}"), {"config": New("Qwen3Config", **config)}
            shapes = ask(HOME, Call(WHOLE, init=init, names=True)).names
            weights = {key: random_weights(rng, shape) for key, shape in shapes.items()}
            if config.get("tie_word_embeddings"):
                del weights["lm_head.weight"]
            call = Call(WHOLE, init=init, state=weights, trace=PARTS)
            numbers = 2 * config["num_key_value_heads"] * config["head_dim"]
            layers = [*range(config["num_hidden_layers"])]
            for start, end in STEPS:
                tokens = rng.integers(0, config["vocab_size"], len(MASK), end - start)
                kv_cache = Given("gqa.KVCache", layers=layers, numbers=numbers)
                mask = {} if name == UNMASKED else {"attention_mask": MASK[:, :end]}
                call.then(input_ids=tokens, **mask, cache=kv_cache)
            found[name] = call, ask(HOME, call)
    return found


def random_weights(rng: Rng, shape: list[int]) -> Tensor:
    """Random weights; those of norms are around 1, never 1."""
    numbers = rng.normal(*shape)
    return 1 + 0.3 * numbers if len(shape) == 1 else 0.4 * numbers


def judged(ask: Ask, sources: Mapping[str, str]) -> AssemblyResult:
    """Run one model after the other, up to the first fault.

    sources    the learner's modules, to find the exercise in which an error arose
    """
    agreed = []
    for name, (call, right) in reference_models().items():
        answer, ok = ask(HOME, call), [("ok", " | ".join(agreed))][: len(agreed)]
        if wrong := wrong_logits(answer, right):
            look, why, exercise = fault_in(answer, right, wrong, ask, sources)
            rows = [*ok, ("look", tr(name) + tr(": ") + look), *[("why", why)][: len(why)]]
            return AssemblyResult(rows, False, exercise)
        layers = CONFIGS[name]["num_hidden_layers"]
        whole = said("{name}: all {layers} layers, without and with a cache")
        agreed.append(tr(whole, name=tr(name), layers=layers))
    ok = [("ok", " | ".join(agreed)), ("ok", tr("logits agree with the reference's"))]
    return AssemblyResult(ok, True)


def fault_in(
    answer: Outcome, right: Outcome, wrong: Found, ask: Ask, sources: Mapping[str, str]
) -> Fault:
    """Find the fault of a model whose logits are wrong."""
    # without an outcome, nothing is known about the parts
    if answer.failure and answer.failure.kind in LIMITS:
        return error_text(answer.failure), "", None
    if not answer.values and (fault := import_fault(ask, sources)):
        return fault
    record, found = wrong_weight(answer, right) or first_wrong(answer, right, sources) or wrong
    exercise, look, path = find_exercise(record["symbol"])[1], found.look, record["path"]
    if f": Exercise {exercise.id}: " in look:
        unwritten = said("exercise {id}, {title}, is not written yet")
        look = tr(unwritten, id=exercise.id, title=exercise.title)
    if is_function(record):  # "model.layers.0.mlp" calls "model.layers.0.silu"
        layer = re.match(r"model\.layers\.\d+|", path)[0]
        path = f"{layer or 'model'}.{record['symbol']}"
    place = path.removeprefix("model.") or "logits"
    place = re.sub(r"^layers\.(\d+)\.?", r"layer \1, ", place).removesuffix(", ")
    later = tr("continued with a cache: ") if record["step"] > 1 else ""
    what = tr(WHAT.get(found.kind, OTHERWISE))
    why = tr("{title}, exercise {id}, {what}", title=exercise.title, id=exercise.id, what=what)
    return later + place + tr(": ") + look, why, exercise


def wrong_logits(answer: Outcome, right: Outcome) -> Found | None:
    """Return the first step in which the logits differ."""
    for step, logits in enumerate(right.values[:-1], 1):
        values = answer.values[:-1][step - 1 : step]
        failure = None if values or not answer.failure else replace(answer.failure, line=None)
        found = difference(Outcome(values, failure=failure), Outcome([logits]), step, TOLERANCE)
        if found:
            return module_at("", step, right), found
    return None


def wrong_weight(answer: Outcome, right: Outcome) -> Found | None:
    """Return the innermost part with a wrong weight, and the parts that share it."""
    weights = {name: weight.tolist() for name, weight in right.state.items()}
    for name, weight in answer.state.items():
        if weight.tolist() != weights.get(name):
            owners = [other for other in weights if weights[other] == weight.tolist()] or [""]
            path = name
            while not all(f"{owner}.".startswith(path and f"{path}.") for owner in owners):
                path = path.rpartition(".")[0]
            while not (record := module_at(path, 1, right)):
                path = path.rpartition(".")[0]
            return record, Difference("names", "not the weights", name=name)
    return None


def module_at(path: str, step: int, right: Outcome) -> dict[str, Any] | None:
    """Return the record of a module's call in the right model."""
    records = [r for r in right.values[-1] if (r["path"], r["step"]) == (path, step)]
    return next((record for record in records if not is_function(record)), None)


def is_function(record: dict[str, Any]) -> bool:
    return record["symbol"].islower()


def first_wrong(answer: Outcome, right: Outcome, sources: Mapping[str, str]) -> Found | None:
    """Return the first call with right inputs and a wrong outcome."""
    for record in answer.values[-1] if answer.values else []:
        (lab, exercise), step = find_exercise(record["symbol"]), record["step"]
        outcome = localize(outcome_from(record), sources.get(lab.module, ""), exercise.id)
        same = [r for r in right.values[-1] if is_same_call(record, r)]
        same = same or [r for r in right.values[-1] if is_same_call(record, r, loose=True)]
        found = [difference(outcome, outcome_from(r), step) for r in same]
        if found and all(found):
            shown = difference(outcome, outcome_from(same[0]), step, TOLERANCE)
            return same[0], shown or found[0]
    return None


def is_same_call(answer: dict[str, Any], right: dict[str, Any], loose: bool = False) -> bool:
    """Whether two calls are of the same part, with the same inputs.

    loose    None, a default, is the same as any number
    """
    if (answer["symbol"], answer["step"]) != (right["symbol"], right["step"]):
        return False
    if answer["step"] and not is_function(right) and answer["path"] != right["path"]:
        return False
    for pair in zip(answer["inputs"], right["inputs"], strict=False):
        given, wanted = list(pair[0][: len(pair[1])]), list(pair[1])
        for i, two in enumerate(zip(given, wanted, strict=False)):
            numbers = sum(isinstance(value, (int, float)) for value in two)
            if loose and numbers == 1 and any(value is None for value in two):
                given[i] = wanted[i]
        if difference(Outcome(given), Outcome(wanted), answer["step"]):
            return False
    return True


def import_fault(ask: Ask, sources: Mapping[str, str]) -> Fault | None:
    """The first module that cannot even be imported, and the exercise that stops it."""
    homes = {find_exercise(symbol)[0].module for symbol in PARTS}
    for module in [lab.module for lab in LABS if lab.module in homes]:
        if failure := ask(module, Call("__name__")).failure:  # no error arose in it
            key, line = exercise_at(sources.get(module, ""), failure.line or 0)
            if missing := re.search(f"cannot import name '({'|'.join(PARTS)})'", failure.text):
                key, line = missing[1], None
            text = error_text(replace(failure, line=line if key else None))
            exercise = find_exercise(key)[1] if key else None
            return f"{PACKAGE}/{module}.py" + tr(": ") + text, "", exercise
    return None


def difference(
    answer: Outcome, right: Outcome, step: int, tolerance: float = FINE
) -> Difference | None:
    """How an outcome differs from the right one at the real tokens of a step."""
    start, end = STEPS[step - 1]
    padding = MASK[:, start:end] == 0, MASK[:, :end] == 0
    pair = [replace(o, values=mask_padding(o.values, *padding)) for o in (answer, right)]
    try:
        assert_same(*pair, tolerance)
    except Difference as found:
        return found
    return None
