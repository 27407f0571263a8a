"""The record of the assembly: two tiny models run on the reference, and every call of a part
that they make is kept, so that labkit.checks.assembly can make it of a learner's part."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from labkit.checks.assembly import PARTS, call_of, layer_of
from labkit.checks.in_process import package_in
from labkit.checks.runner import Rng
from labkit.core.syllabus import find_exercise
from labkit.sandboxed.call import Given, New, copied
from labkit.sandboxed.doubles import DOUBLES
from labkit.sandboxed.importer import PACKAGE, imported
from labkit.sandboxed.wire import outcome_fields

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
MASK = torch.tensor([[1] * 8, [0, 0, 1, 1, 1, 1, 1, 1]])  # the second text is padded
LENGTHS = (5, 3)  # tokens of the first step, and of the second, which continues it


def recorded(sources: Mapping[str, str]) -> dict[str, Any]:
    """{model: its weights and its parts} with the package of these sources."""
    return {name: recorded_model(name, config, sources) for name, config in CASES.items()}


def recorded_model(
    name: str, config: Mapping[str, Any], sources: Mapping[str, str]
) -> dict[str, Any]:
    rng, recorder = Rng(f"assembly:{name}"), Recorder(config)
    with imported(sources), torch.no_grad():
        decoder = import_module(f"{PACKAGE}.decoder")
        model = decoder.Qwen3ForCausalLM(decoder.Qwen3Config(**config))
        weights = {key: drawn(rng, weight) for key, weight in model.state_dict().items()}
        if config.get("tie_word_embeddings"):
            del weights["lm_head.weight"]
        model.load_state_dict(weights)
        recorder.watch(model)
        recorder.run(model, rng)
    parts = list(recorder.parts.values())
    with imported(sources):
        for part in parts:
            module = find_exercise(part["symbol"])[0].module
            part["right"] = outcome_fields(package_in()(module, call_of(part, weights)))
    return {"weights": weights, "parts": parts}


def drawn(rng: Rng, weight: Tensor) -> Tensor:
    """Random weights; those of norms are around 1, never 1."""
    numbers = rng.normal(*weight.shape)
    return 1 + 0.3 * numbers if weight.dim() == 1 else 0.4 * numbers


class Recorder:
    """Keeps the calls of a model's parts, as labkit.checks.assembly.Part reads them; all that
    one part makes of another are steps of a single Call."""

    def __init__(self, config: Mapping[str, Any]):
        self.config = config
        self.parts: dict[tuple[int, str], dict[str, Any]] = {}
        self.running = [-1]  # numbers of the parts at work
        self.step = 0

    def run(self, model: nn.Module, rng: Rng) -> None:
        given, end = self.cache(""), 0
        cache = DOUBLES[given.name](**given.arguments)
        for self.step, length in enumerate(LENGTHS):
            end += length
            tokens = rng.integers(0, self.config["vocab_size"], 2, length)
            model(input_ids=tokens, attention_mask=MASK[:, :end], cache=cache)

    def watch(self, model: nn.Module) -> None:
        for path, module in model.named_modules():
            symbol = type(module).__name__
            if symbol in PARTS:
                init = self.init(symbol, path, module)
                module.forward = self.watched(module.forward, symbol, path, init)
        for name in [name for name in sys.modules if name.startswith(f"{PACKAGE}.")]:
            own = vars(sys.modules[name])
            own |= {s: self.watched(own[s], s) for s in PARTS if inspect.isfunction(own.get(s))}

    def watched(
        self, function: Callable, symbol: str, path: str = "", init: Mapping | None = None
    ) -> Callable:
        """`function`, whose calls are now kept; path and init are those of a module."""

        def call(*args: Any, **kwargs: Any) -> Any:
            caller, inside = self.running[-1], path
            if init is None:  # "model.layers.0.self_attn" calls "model.layers.0.silu"
                within = list(self.parts.values())[caller]["path"]
                inside = ".".join([*re.findall(r"^model(?:\.layers\.\d+)?", within), symbol])
            new = {"caller": caller, "path": inside, "symbol": symbol, "init": init}
            new |= {"number": len(self.parts), "inputs": [], "steps": []}
            part = self.parts.setdefault((caller, inside), new)
            if part is new and symbol == "Qwen3DecoderLayer":
                self.asked_in_init(part)
            inputs = copied(inspect.signature(function).bind(*args, **kwargs).arguments)
            given = {"cache": self.cache(path)} if "cache" in inputs else {}
            part["inputs"].append({**inputs, **given})
            part["steps"].append(self.step)
            self.running.append(part["number"])
            value = function(*args, **kwargs)
            self.running.pop()
            return value

        return call

    def asked_in_init(self, layer: dict[str, Any]) -> None:
        """What a layer asks while it is made, before its forward is watched."""
        question = {"caller": layer["number"], "path": f"{layer['path']}.uses_experts"}
        question |= {"symbol": "uses_experts", "init": None, "number": len(self.parts)}
        question |= {"inputs": [dict(layer["init"])], "steps": [0]}
        self.parts[layer["number"], question["path"]] = question

    def init(self, symbol: str, path: str, module: nn.Module) -> dict[str, Any]:
        """What a part is made with."""
        if symbol == "RMSNorm":
            return {"hidden_size": len(module.weight), "eps": module.eps}
        init: dict[str, Any] = {"config": New("Qwen3Config", **self.config)}
        if symbol in ("Qwen3Attention", "Qwen3DecoderLayer"):
            init["layer_idx"] = layer_of(path)
        if symbol == "Qwen3MLP" and "experts" in path:
            init["intermediate_size"] = module.up_proj.out_features
        return init

    def cache(self, path: str) -> Given:
        """The cache of one layer, or of all."""
        numbers = 2 * self.config["num_key_value_heads"] * self.config["head_dim"]
        layer = layer_of(path)
        if layer is not None:
            return Given("kv_cache", layer_idx=layer, numbers=numbers)
        return Given("model_cache", layers=self.config["num_hidden_layers"], numbers=numbers)
