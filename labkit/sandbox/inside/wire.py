"""The messages between the judge and a learner's process.

A message is four bytes of length, then that many bytes. A call or an outcome is one safetensors
file: its tensors, and all else as JSON in the header. The reader of an outcome trusts nothing:
sizes are capped, texts are cut, and a value of the wrong kind raises Malformed.

A pickle would be shorter, and would run code where it is read. The price of JSON is this file.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from labkit.sandbox.inside.call import OPTIONS, Call, Failure, Given, New, Outcome
from labkit.sandbox.inside.torch_private import copy_with_strides

# seconds of silence, after which the judge checks whether the other side computes
IDLE_SECONDS = 3.0
MAX_BYTES = 64 << 20
MAX_DEPTH = 13
MAX_HEADER = 1 << 20  # bytes of an outcome without its numbers
MAX_DIMENSIONS = 16
# Characters of a learner's names, errors and texts, and how many values one list may have
MAX_NAME, MAX_ERROR, MAX_TEXT, MAX_ITEMS = 80, 300, 1_000, 2_000

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
WHOLE = (torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool)
DTYPES = {str(dtype): dtype for dtype in (*FLOATS, *WHOLE)}
# The fields of an Outcome: a type, a list of it, or a dictionary from names to it
FIELDS = {
    "values": list, "grads": {str: Tensor}, "names": {str: [int]}, "changed": [str],
    "state": {str: Tensor},
}  # fmt: skip


class Gone(Exception):
    """The other side hung up, was too slow (TimedOut), or announced too many bytes."""


class TimedOut(Gone):
    """Nothing came in time."""


class Malformed(ValueError):
    """Bytes that are not a call or an outcome."""


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(4, "little") + message


def send(channel: socket.socket, message: bytes) -> None:
    channel.sendall(framed(message))


def receive(
    channel: socket.socket,
    limit: int,
    seconds: float | None = None,
    is_idle: Callable[[], bool] = lambda: False,
) -> bytes:
    """Return the next message; Gone if it is not all there within `seconds` (None: wait
    forever), or where the other side is idle, which is asked in every IDLE_SECONDS of
    silence."""
    deadline = None if seconds is None else time.monotonic() + seconds
    size = int.from_bytes(_exactly(channel, 4, deadline, is_idle), "little")
    if size > limit:
        raise Gone(f"a message of {size:,} bytes; {limit:,} is the most")
    return _exactly(channel, size, deadline, is_idle)


def _exactly(
    channel: socket.socket, size: int, deadline: float | None, is_idle: Callable[[], bool]
) -> bytes:
    parts = []
    while size:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise TimedOut("no answer in time")
        channel.settimeout(None if left is None else min(left, IDLE_SECONDS))
        try:
            part = channel.recv(min(size, 1 << 20))
        except TimeoutError as error:
            if is_idle():
                raise TimedOut("it waits and computes nothing") from error
            continue
        except OSError as error:  # reset, closed
            raise Gone(str(error) or type(error).__name__) from error
        if not part:
            raise Gone("it hung up")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def pack(value: Any) -> bytes:
    """Values (see Call for the kinds) as one safetensors file."""
    tensors: dict[str, Tensor] = {}
    packed = json.dumps(_to_json(value, tensors))
    return save(tensors, metadata={"value": packed})


def _to_json(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return the value as JSON; its tensors are put into `tensors`."""
    if isinstance(value, Tensor):
        if str(value.dtype) not in DTYPES:
            return {"dict": [["a tensor of dtype", str(value.dtype)]]}
        plain, name = value.detach().as_subclass(Tensor), f"t{len(tensors)}"
        tensors[name] = plain.clone(memory_format=torch.contiguous_format)
        return {"tensor": name, "strides": None if plain.is_contiguous() else plain.stride()}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value)}
    if isinstance(value, (New, Given)):
        kind = "new" if isinstance(value, New) else "given"
        return {kind: [value.name, _to_json(value.arguments, tensors)]}
    if isinstance(value, Mapping):
        items = value.items()
        return {"dict": [[str(key), _to_json(item, tensors)] for key, item in items]}
    if isinstance(value, tuple):
        return {"tuple": [_to_json(item, tensors) for item in value]}
    if isinstance(value, list):
        return [_to_json(item, tensors) for item in value]
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise Malformed(f"a {type(value).__name__} cannot cross")


def unpack(blob: bytes, is_trusted: bool = True) -> Any:
    """Return the values in such a file. Raises Malformed for anything else.

    is_trusted    False for messages of a learner's process: texts are cut, strides dropped
    """
    if len(blob) > MAX_BYTES:
        raise Malformed(f"{len(blob)} bytes are more than {MAX_BYTES}")
    try:
        size = int.from_bytes(blob[:8], "little")
        header = json.loads(blob[8 : 8 + size])
        packed = json.loads(header["__metadata__"]["value"], parse_constant=_refuse_number)
        return _from_json(packed, load(blob), is_trusted)
    except Malformed:
        raise
    except (SafetensorError, ValueError, LookupError, TypeError, AttributeError,
            RuntimeError, RecursionError) as error:  # fmt: skip
        raise Malformed(f"not a message: {error}") from error


def _refuse_number(name: str) -> Any:
    raise Malformed(f"{name} is no number that JSON knows")


def _from_json(
    packed: Any, tensors: Mapping[str, Tensor], is_trusted: bool, depth: int = 0
) -> Any:
    if depth > MAX_DEPTH:
        raise Malformed("nested too deeply")
    if packed is None or type(packed) in (bool, int, float):
        return packed
    if type(packed) is str:
        return packed if is_trusted else packed[:MAX_TEXT]  # line breaks count

    def inner(items: Any) -> list[Any]:
        if type(items) is not list or (len(items) > MAX_ITEMS and not is_trusted):
            raise Malformed("no list, or one that is too long")
        return [_from_json(item, tensors, is_trusted, depth + 1) for item in items]

    if type(packed) is list:
        return inner(packed)
    if "tensor" in packed:
        return _tensor(tensors[packed["tensor"]], packed.get("strides") if is_trusted else None)
    ((kind, body),) = packed.items()
    if kind == "dtype":
        return DTYPES[body]
    if kind == "tuple":
        return tuple(inner(body))
    if kind == "dict":
        names = [key if is_trusted else one_line(key, MAX_NAME) for key, _ in body]
        return dict(zip(names, inner([item for _, item in body]), strict=True))
    if kind in ("new", "given") and is_trusted:
        name, arguments = body
        made = New if kind == "new" else Given
        return made(name, **_from_json(arguments, tensors, is_trusted, depth + 1))
    raise Malformed(f"unknown kind {kind!r}")


def _tensor(tensor: Tensor, strides: list[int] | None) -> Tensor:
    if tensor.dim() > MAX_DIMENSIONS or str(tensor.dtype) not in DTYPES:
        raise Malformed("a tensor of a wrong dtype or of too many dimensions")
    if not strides or 0 in strides:
        return tensor
    return copy_with_strides(tensor, strides)


def one_line(text: str, most: int) -> str:
    return " ".join(text[: 2 * most].split())[:most]


def encode_call(call: Call) -> bytes:
    options = {name: getattr(call, name) for name in OPTIONS}
    return pack({"symbol": call.symbol, "steps": call.steps, **options})


def decode_call(blob: bytes) -> Call:
    fields = unpack(blob)
    steps = fields.pop("steps")
    call = Call(fields.pop("symbol"), **fields)
    call.steps = steps
    return call


def encode_outcome(outcome: Outcome) -> bytes:
    failure = outcome.failure
    fields = failure and [*vars(failure).values()]
    return pack({**vars(outcome), "failure": fields})


def decode_outcome(blob: bytes) -> Outcome:
    if int.from_bytes(blob[:8], "little") > MAX_HEADER:
        raise Malformed("an outcome with too much text in it")
    return outcome_from(unpack(blob, is_trusted=False))


def outcome_from(fields: Any) -> Outcome:
    try:
        checked = {name: _checked(fields[name], kind) for name, kind in FIELDS.items()}
        return Outcome(**checked, failure=fields["failure"] and _failure(*fields["failure"]))
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(f"not an outcome: {error}") from error


def _checked(value: Any, kind: Any, most: int = MAX_NAME) -> Any:
    """Return the value, if it is of this kind (see FIELDS); a text becomes a line.

    most    characters of a text
    """
    if isinstance(kind, list):
        return [_checked(item, kind[0]) for item in _checked(value, list)]
    if isinstance(kind, dict):
        return {key: _checked(item, kind[str]) for key, item in _checked(value, dict).items()}
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
    return one_line(value, most) if kind is str else value


def _failure(kind: Any, text: Any, line: Any, bases: Any, rank: Any) -> Failure:
    name = _checked(kind, str)
    return Failure(
        name if name.isidentifier() else "Error",
        _checked(text, str, MAX_ERROR),
        line and _checked(line, int),
        _checked(bases, [str])[:8],
        rank if rank is None else _checked(rank, int),
    )
