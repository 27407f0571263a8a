"""Calls and outcomes as bytes: one safetensors file, its tensors plus a JSON header. No pickle.

The reader trusts nothing: sizes are capped, unknown kinds are refused, and a value that is
not what it should be raises Malformed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from labkit.sandbox.inside.call import Call, Failure, Given, New, Outcome

MAX_BYTES = 64 << 20
MAX_DEPTH = 13
MAX_NAMES = 10_000
MAX_HEADER = 1 << 20  # of outcomes: everything in them but the numbers
MAX_DIMENSIONS = 16
# Of a learner's text, which somebody will read: names, errors, texts, how many of them.
MAX_NAME, MAX_ERROR, MAX_TEXT, MAX_ITEMS = 80, 300, 1_000, 2_000

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
WHOLE = (torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool)
DTYPES = {str(dtype): dtype for dtype in (*FLOATS, *WHOLE)}
SETTINGS = (
    *("init", "state", "dtype", "grad", "names", "by_position", "summary", "objects"),
    *("most_numbers", "most_operations"),
)


class Malformed(ValueError):
    """Bytes that are no call or outcome."""


class Packer:
    """Turns values into JSON and puts their tensors aside under short names."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}

    def pack(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, torch.dtype):
            return {"dtype": str(value)}
        if isinstance(value, New):
            return {"new": [value.symbol, self.pack(value.arguments)]}
        if isinstance(value, Given):
            return {"given": [value.name, self.pack(value.arguments)]}
        if isinstance(value, Mapping):
            return {"dict": [[str(key), self.pack(item)] for key, item in value.items()]}
        if isinstance(value, tuple):
            return {"tuple": [self.pack(item) for item in value]}
        if isinstance(value, list):
            return [self.pack(item) for item in value]
        if value is None or type(value) in (bool, int, float, str):
            return value
        raise Malformed(f"a {type(value).__name__} cannot cross")

    def _tensor(self, tensor: Tensor) -> dict[str, Any]:
        name = f"t{len(self.tensors)}"
        if str(tensor.dtype) not in DTYPES:
            return {"dict": [["a tensor of dtype", str(tensor.dtype)]]}
        plain = tensor.detach().as_subclass(Tensor)
        self.tensors[name] = plain.clone(memory_format=torch.contiguous_format)
        return {"tensor": name, "strides": odd_strides(plain)}


class Unpacker:
    """The way back; strict.

    ours    what the course packed: strides count, texts may be long
    """

    def __init__(self, tensors: Mapping[str, Tensor], ours: bool):
        self.tensors, self.ours = tensors, ours

    def unpack(self, packed: Any, depth: int = 0) -> Any:
        if depth > MAX_DEPTH:
            raise Malformed("nested too deeply")
        if packed is None or type(packed) in (bool, int, float):
            return packed
        if type(packed) is str:
            return packed if self.ours else packed[:MAX_TEXT]  # line breaks count
        if not self.ours and len(packed) > MAX_ITEMS:
            raise Malformed(f"{len(packed)} values in one")
        if type(packed) is list:
            return [self.unpack(item, depth + 1) for item in packed]
        if type(packed) is not dict:
            raise Malformed(f"unexpected {type(packed).__name__}")
        if "tensor" in packed:
            return self._tensor(packed)
        if len(packed) != 1:
            raise Malformed("a value must have one kind")
        kind, body = next(iter(packed.items()))
        if kind == "dtype" and body in DTYPES:
            return DTYPES[body]
        if kind == "dict" and type(body) is list:
            return {self._name(key): self.unpack(item, depth + 1) for key, item in body}
        if kind == "tuple" and type(body) is list:
            return tuple(self.unpack(item, depth + 1) for item in body)
        if kind in ("new", "given") and type(body) is list and len(body) == 2:
            made = New if kind == "new" else Given
            return made(body[0], **self.unpack(body[1], depth + 1))
        raise Malformed(f"unknown kind {kind!r}")

    def _name(self, key: Any) -> str:
        return str(key) if self.ours else one_line(str(key), MAX_NAME)

    def _tensor(self, packed: Mapping[str, Any]) -> Tensor:
        tensor = self.tensors.get(packed["tensor"])
        if tensor is None:
            raise Malformed("a tensor is missing")
        if tensor.dim() > MAX_DIMENSIONS or str(tensor.dtype) not in DTYPES:
            raise Malformed("a tensor of no use")
        strides = packed.get("strides")
        if not strides or not self.ours:
            return tensor
        if len(strides) != tensor.dim() or any(type(s) is not int or s < 0 for s in strides):
            raise Malformed("impossible strides")
        room = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, strides, strict=True))
        if room > 16 * max(tensor.numel(), 1):
            raise Malformed("impossible strides")
        fresh = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype)
        return fresh.copy_(tensor) if 0 not in strides else tensor


def odd_strides(tensor: Tensor) -> list[int] | None:
    return None if tensor.is_contiguous() else list(tensor.stride())


def pack(value: Any) -> bytes:
    """Values (see labkit.sandbox.inside.call.Call for the kinds) as one safetensors file."""
    packer = Packer()
    packed = json.dumps(packer.pack(value))
    return save(packer.tensors, metadata={"value": packed})


def unpack(blob: bytes, ours: bool = True) -> Any:
    """The values in such a file; Malformed for anything else.

    ours    False for what a learner's process sends: texts are cut, strides dropped
    """
    if len(blob) > MAX_BYTES:
        raise Malformed(f"{len(blob)} bytes are more than {MAX_BYTES}")
    try:
        size = int.from_bytes(blob[:8], "little")
        header = json.loads(blob[8 : 8 + size])
        packed = json.loads(header["__metadata__"]["value"], parse_constant=_no_number)
        return Unpacker(load(blob), ours).unpack(packed)
    except Malformed:
        raise
    except (SafetensorError, ValueError, LookupError, TypeError, AttributeError,
            RecursionError) as error:  # fmt: skip
        raise Malformed(f"not a message: {error}") from error


def _no_number(name: str) -> Any:
    raise Malformed(f"{name} is no number that JSON knows")


def one_line(text: str, most: int) -> str:
    return " ".join(text[: 2 * most].split())[:most]


def encode_call(call: Call) -> bytes:
    settings = {name: getattr(call, name) for name in (*SETTINGS, "trace")}
    return pack({"symbol": call.symbol, "steps": call.steps, **settings})


def decode_call(blob: bytes) -> Call:
    fields = unpack(blob)
    steps = fields.pop("steps")
    call = Call(fields.pop("symbol"), **fields)
    for method, inputs in steps:
        call.then(method, **inputs)
    return call


def encode_outcome(outcome: Outcome) -> bytes:
    failure = outcome.failure
    fields = failure and [failure.kind, failure.text, failure.line, failure.bases]
    return pack({**vars(outcome), "failure": fields})


def decode_outcome(blob: bytes) -> Outcome:
    if int.from_bytes(blob[:8], "little") > MAX_HEADER:
        raise Malformed("an outcome with too much text in it")
    return outcome_from(unpack(blob, ours=False))


def outcome_from(fields: Any) -> Outcome:
    try:
        return Outcome(
            values=_typed(fields["values"], list),
            grads=_typed_items(fields["grads"], Tensor),
            names={name: _shape(shape) for name, shape in _items(fields["names"], list)},
            changed=[_line(name) for name in _typed(fields["changed"], list)],
            state=_typed_items(fields["state"], Tensor),
            renamed={key: _line(name) for key, name in _items(fields["renamed"], str)},
            failure=_failure(fields["failure"]),
            odd=_line(fields["odd"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(f"not an outcome: {error}") from error


def _failure(fields: Any) -> Failure | None:
    if fields is None:
        return None
    kind, text, line, bases = fields
    bases = [_line(name) for name in _typed(bases, list)[:8]]
    line = line and _typed(line, int)
    kind = _line(kind)
    kind = kind if kind.isidentifier() else "Error"
    return Failure(kind, _line(text, MAX_ERROR), line, bases)


def _line(text: Any, most: int = MAX_NAME) -> str:
    return one_line(_typed(text, str), most)


def _shape(sizes: list[Any]) -> list[int]:
    return [_typed(size, int) for size in sizes[:MAX_DIMENSIONS]]


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
    return value


def _items(value: Any, kind: type) -> Iterator[tuple[str, Any]]:
    items = _typed(value, dict)
    if len(items) > MAX_NAMES:
        raise ValueError(f"{len(items)} names; {MAX_NAMES} are the most")
    for key, item in items.items():
        yield key, _typed(item, kind)


def _typed_items(value: Any, kind: type) -> dict[str, Any]:
    return dict(_items(value, kind))
