"""Rendering the chat template of a checkpoint: a program by somebody else, run with limits."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from types import FrameType
from typing import Any

import psutil
from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from labkit.course.lang import tr

SECONDS = 5  # of CPU time
MOST_LETTERS = 2**20
MOST_MEMORY = 2**30  # bytes on top of what the process has
MOST_PRODUCT = 10**6


class TooMuch(Exception):
    """A template that takes more than its limits."""


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, in which no product and no power is a huge text or number."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if _size(left) * _size(right) > MOST_PRODUCT:
            raise TooMuch(tr("it multiplies to more than {most:,}", most=MOST_PRODUCT))
        return super().call_binop(context, operator, left, right)


def render(template: str, **values: Any) -> str:
    """The text that a template makes of the values.

    Errors: TooMuch for more time, memory or text than the limits; whatever the template raises
    """
    letters, pieces = 0, []
    with limited():
        for piece in _compiled(template).generate(values):
            pieces.append(piece)
            letters += len(piece)
            if letters > MOST_LETTERS:
                raise TooMuch(tr("it writes more than {most:,} letters", most=MOST_LETTERS))
    return "".join(pieces)


@contextmanager
def limited() -> Iterator[None]:
    """Limits the time and, where the system can, the memory of what the block calls."""
    end, before = time.thread_time() + SECONDS, sys.gettrace()

    def watch(frame: FrameType, event: str, argument: Any) -> Any:
        if time.thread_time() > end:
            raise TooMuch(tr("it takes more than {count} seconds", count=SECONDS))
        return watch

    with _memory_limited():
        sys.settrace(watch)
        try:
            yield
        except MemoryError as error:
            megabytes = MOST_MEMORY // 2**20
            raise TooMuch(tr("it takes more than {count:,} MB", count=megabytes)) from error
        finally:
            sys.settrace(before)


@contextmanager
def _memory_limited() -> Iterator[None]:
    try:
        import resource
    except ImportError:  # Windows
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = psutil.Process().memory_info().vms + MOST_MEMORY
    if soft != resource.RLIM_INFINITY:
        most = min(most, soft)
    try:
        with suppress(ValueError, OSError):  # macOS refuses
            resource.setrlimit(resource.RLIMIT_AS, (most, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@lru_cache(maxsize=8)
def _compiled(template: str) -> Template:
    environment = LimitedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _refuse
    return environment.from_string(template)


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _size(value: Any) -> float:
    """How large a product with the value may become."""
    return abs(value) if isinstance(value, (int, float)) else len(value)
