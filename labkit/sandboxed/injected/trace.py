"""What a decoder computes, part by part: every part's inputs and outputs, in running order.

This module is laid into the package under test, in the notebook as in grading's confined
process, so `.decoder` is the learner's.
"""

from __future__ import annotations

import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

FUNCTIONS = (
    *("rope_cos_sin", "causal_mask", "apply_rotary_pos_emb", "rotate_half", "repeat_kv"),
    *("scaled_dot_product_attention", "silu", "route"),
)
CLASSES = (
    *("Embedding", "RMSNorm", "Qwen3Attention", "Qwen3MLP", "Qwen3MoeSparseMoeBlock"),
    *("Qwen3DecoderLayer", "Qwen3Model", "Qwen3ForCausalLM"),
)


def trace(
    config: Mapping[str, Any], weights: Mapping[str, Tensor], steps: Sequence[Mapping]
) -> dict[str, Any]:
    """Build the package's model and run it on `steps`, which share one cache.

    shapes    {name of a parameter or buffer: shape}
    classes   {path of a module: its class}
    made      {path of a module: what it was made with}
    shared    parameters that do not hold what was loaded, since another one overwrote it
    calls     of every part, see Recorder
    failure   None, or what was raised: [kind, text, module, line]
    """
    recorder = Tracer()
    found = {"shapes": {}, "classes": {}, "made": {}, "shared": []}
    found |= {"calls": recorder.calls, "failure": None}
    try:
        from .config import Qwen3Config
        from .decoder import Qwen3ForCausalLM

        with recorder.watching():
            model = Qwen3ForCausalLM(Qwen3Config(**config)).eval()
            found["shapes"] = {name: list(t.shape) for name, t in model.state_dict().items()}
            for path, module in model.named_modules():
                found["classes"][path] = type(module).__name__
                found["made"][path] = vars(module).get("made_with", [])
            model.load_state_dict(weights, strict=True)
            loaded = model.state_dict().items()
            found["shared"] = [
                k for k, t in loaded if k in weights and not torch.equal(t, weights[k])
            ]
            recorder.watch(model)
            cache = Cache()
            for recorder.step, inputs in enumerate(steps):
                model(**inputs, cache=cache)
    except Exception as error:  # whatever a learner's code raises
        found["failure"] = described(error)
    return found


class Cache:
    """Keys and values of all layers, joined to what is held."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def length(self) -> int:
        return self.held[0][0].size(2) if self.held else 0

    def update(self, layer_idx: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if layer_idx in self.held:
            pairs = zip(self.held[layer_idx], (key, value), strict=True)
            key, value = (torch.cat(pair, dim=2) for pair in pairs)
        self.held[layer_idx] = (key, value)
        return key, value


class Tracer:
    """Keeps every call of a part: step, layer, part, symbol, `caller` (the place in `calls` of
    the part that made it), what the part was made with, inputs, outputs (None: it raised an
    error), and whether it changed an input in place."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.running: list[int] = []
        self.step = 0
        self.copies: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While open, every module of the package calls recorded versions of FUNCTIONS, and
        objects of CLASSES remember what they were made with."""
        modules = [m for name, m in sys.modules.items() if name.startswith(f"{__package__}.")]
        before = []
        for module in modules:
            own = vars(module)
            before += [(module, name, own[name]) for name in FUNCTIONS if name in own]
            made = [
                item
                for item in own.values()
                if type(item) is type and item.__module__ == module.__name__
            ]
            before += [
                (kind, "__init__", kind.__init__) for kind in made if kind.__name__ in CLASSES
            ]
        for owner, name, old in before:
            new = (
                self.remembering(old) if name == "__init__" else self.recorded(old, name, name)
            )
            setattr(owner, name, new)
        try:
            yield
        finally:
            for owner, name, old in before:
                setattr(owner, name, old)

    def remembering(self, init: Callable) -> Callable:
        """`__init__`, which now also keeps its arguments in the object."""

        def __init__(self_: nn.Module, *args: Any, **kwargs: Any) -> None:
            given = arguments(init, (self_, *args), kwargs)[1:]
            vars(self_).setdefault("made_with", self.plain(given))
            init(self_, *args, **kwargs)

        return __init__

    def watch(self, model: nn.Module) -> None:
        for path, module in model.named_modules():
            symbol = type(module).__name__
            if symbol in CLASSES:
                layer, part = located(path)
                made = vars(module).get("made_with", [])
                module.forward = self.recorded(module.forward, symbol, part, layer, made)

    def recorded(
        self,
        function: Callable,
        symbol: str,
        part: str,
        layer: int | None = None,
        made: Sequence = (),
    ) -> Callable:
        """`function`, which now also keeps what goes in and comes out."""

        def call(*args: Any, **kwargs: Any) -> Any:
            caller = self.running[-1] if self.running else -1
            within = self.calls[caller]["layer"] if self.running and layer is None else layer
            entry = {"step": self.step, "layer": within, "part": part, "symbol": symbol}
            given = arguments(function, args, kwargs)
            before = versions(given)
            entry |= {"caller": caller, "made": list(made)}
            entry |= {"inputs": self.plain(given), "outputs": None}
            self.running.append(len(self.calls))
            self.calls.append(entry)
            try:
                value = function(*args, **kwargs)
                entry["outputs"] = self.plain(value if type(value) is tuple else [value])
            finally:
                self.running.pop()
                entry["changed"] = versions(given) != before
            return value

        return call

    def plain(self, value: Any) -> Any:
        """A copy of tensors, numbers and lists; of anything else the name of its type.

        A tensor that was not changed in between is copied once.
        """
        if isinstance(value, Tensor):
            if value.is_inference():  # it does not count its changes
                return value.clone()
            key = (id(value), value._version)
            if key not in self.copies:
                self.copies[key] = (value, value.detach().clone())
            return self.copies[key][1]
        if isinstance(value, (list, tuple)):
            return [self.plain(item) for item in value]
        if value is None or type(value) in (bool, int, float):
            return value
        return type(value).__name__


def located(path: str) -> tuple[int | None, str]:
    """The layer and the part of a module's path: "model.layers.2.mlp" is (2, "mlp")."""
    found = re.match(r"model\.layers\.(\d+)\.?(.*)", path)
    if found:
        return int(found[1]), found[2] or "the layer"
    return None, path.removeprefix("model.") or "logits"


def arguments(function: Callable, args: Sequence, kwargs: Mapping[str, Any]) -> list[Any]:
    """What the function gets, in the order of its parameters."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):  # the call itself will say what is wrong
        return [*args, *kwargs.values()]
    bound.apply_defaults()
    return list(bound.arguments.values())


def versions(values: Sequence[Any]) -> list[int]:
    """How often each of the tensors was changed in place."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    return [t._version for t in tensors if not t.is_inference()]


def described(error: Exception) -> list[Any]:
    """The error in words, and the last line of the package's own modules that it passed."""
    place = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    text = str(error)
    if isinstance(error, SyntaxError):
        place.append((error.filename or "", error.lineno))
        text = error.msg
    folder = Path(__file__).parent
    own = [(Path(file).stem, line) for file, line in place if Path(file).parent == folder]
    module, line = [("", None), *(pair for pair in own if pair[0] != "trace")][-1]
    return [type(error).__name__, " ".join(text.split())[:300], module, line]
