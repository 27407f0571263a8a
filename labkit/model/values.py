"""Reading the text and JSON files of a checkpoint, with limits of size and checks of type.

The files come from strangers: no value is used before its type is known, so that errors are
sentences and not tracebacks. The price is a table of types for every file that is read.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.course.lang import said, tr
from labkit.course.report import clean

MOST_BYTES = 64 * 2**20  # tokenizer.json of the published Qwen3 has 11 MB
MOST_LETTERS = 1000  # characters of a message, which may quote a file
LARGEST = 2**31 - 1


class CheckpointError(ValueError):
    """A checkpoint that cannot be read or written as asked; the message says what to do."""

    def __init__(self, message: str, **values: object):
        text = clean(tr(message, **values))
        super().__init__(f"{text[:MOST_LETTERS]} ..." if len(text) > MOST_LETTERS else text)


@dataclass(frozen=True)
class Kind:
    """A type of values in JSON, and its name in messages."""

    name: str
    accepts: Callable[[Any], bool]


def _is_whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _all(accepts: Callable[[Any], bool], values: Any) -> bool:
    return isinstance(values, list) and all(map(accepts, values))


TEXT = Kind(said("text"), _is_text)
TEXTS = Kind(said("a list of texts"), lambda value: _all(_is_text, value))
FLAG = Kind(said("true or false"), lambda value: isinstance(value, bool))
WHOLE = Kind(said("a whole number from 0 to 2147483647"), _is_whole)
WHOLES = Kind(said("a list of whole numbers"), lambda value: _all(_is_whole, value))
NUMBER = Kind(said("a number from 0 on"), _is_number)
SHARE = Kind(said("a number from 0 to 1"), lambda value: _is_number(value) and value <= 1)
OBJECT = Kind(said("an object"), lambda value: isinstance(value, dict))
TOKEN_IDS = Kind(
    said("a token id or a list of them"),
    lambda value: _is_whole(value) or _all(_is_whole, value),
)
TOKEN = Kind(
    said("a token's text, alone or as its content"),
    lambda value: _is_text(value.get("content") if isinstance(value, dict) else value),
)


def read_text(path: Path) -> str | None:
    """Return the text of a file, None if it does not exist.

    Errors: CheckpointError if it cannot be read, is not UTF-8, or has more than MOST_BYTES
    """
    try:
        if not path.is_file():  # a pipe would keep its reader waiting
            return None
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise CheckpointError(
                "{path} has more than {most} MB, the most that is read",
                path=path,
                most=MOST_BYTES // 2**20,
            )
        return data.decode("utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise CheckpointError(
            "{path} cannot be read: {reason}", path=path, reason=reason
        ) from error
    except UnicodeDecodeError as error:
        raise CheckpointError("{path} is not text in UTF-8", path=path) from error


def read_object(path: Path, kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """Return the object in a JSON file, {} if it does not exist; null counts as missing.

    kinds    {key: type of its value}; other keys are not checked

    Errors: CheckpointError, with file and key, if the text or a value is not as expected
    """
    text = read_text(path)
    return {} if text is None else parse_object(path, text, kinds)


def parse_object(path: Path, text: str, kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """Return the object in the text of a JSON file, see read_object."""
    try:
        values = json.loads(text)
    except ValueError as error:
        raise CheckpointError(
            "{path} is not valid JSON: {error}", path=path, error=error
        ) from error
    except RecursionError as error:
        raise CheckpointError("{path} is nested too deeply", path=path) from error
    if not isinstance(values, dict):
        raise CheckpointError(
            "{path} holds {value}; expected an object", path=path, value=reprlib.repr(values)
        )
    check_kinds(path, values, kinds)
    return {key: value for key, value in values.items() if value is not None}


def check_kinds(
    path: Path, values: Mapping[str, Any], kinds: Mapping[str, Kind], inside: str = ""
) -> None:
    """Check the types of values; `inside` is a prefix of names. Errors: CheckpointError"""
    for key, kind in kinds.items():
        value = values.get(key)
        if value is not None and not kind.accepts(value):
            raise CheckpointError(
                "{path}: {key} is {value}; expected {kind}",
                path=path,
                key=inside + key,
                value=reprlib.repr(value),
                kind=tr(kind.name),
            )
