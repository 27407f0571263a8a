"""What an exercise may not use: found in the source, and refused at run time."""

from __future__ import annotations

import ast
import builtins
import ctypes
import importlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from labkit.sandbox.inside.importer import PACKAGE
from labkit.sandbox.inside.torch_private import is_among, operator_libraries


class NotAllowed(Exception):
    """Learner code used something that does the exercise for it."""


DRAWING = "{name} may not be used in an answer: grading draws nothing; draw below it"
FINISHED = "{name} may not be used here: write it with basic tensor operations"


def message(name: str, translate: Callable[[str], str] = str) -> str:
    """Why a name is refused."""
    sentence = DRAWING if name.split(".")[0] == "matplotlib" else FINISHED
    shown = name.replace("torch.nn.functional.", "F.").replace("torch.nn.", "nn.")
    return translate(sentence).format(name=shown)


def found_in(source: str, banned: Iterable[str]) -> tuple[str, int] | None:
    """The first banned name that the source mentions, with its line; None if it is clean.

    Names are followed through imports and aliases: `F.rms_norm` after
    `import torch.nn.functional as F` is torch.nn.functional.rms_norm.
    """
    nodes, banned = _nodes(source), tuple(banned)
    aliases = _aliases(nodes)
    for node in nodes:
        for name in _mentioned(node, aliases):
            if is_among(name, banned):
                return name, node.lineno
    return None


# What answers import, and names that no exercise needs and that can lead around a ban.
USUAL_MODULES = {
    *("torch", "numpy", "tinyllm", "math", "cmath", "random", "re", "string", "json", "copy"),
    *("typing", "typing_extensions", "collections", "dataclasses", "enum", "abc", "time"),
    *("functools", "itertools", "contextlib", "heapq", "bisect", "numbers", "unicodedata"),
    *("os", "sys", "warnings", "__future__"),
}
ODD_NAMES = {"__import__", "eval", "exec", "compile", "vars", "globals", "__builtins__"}
ODD_ATTRIBUTES = {"modules", "_getframe", "meta_path", "decompose", "__globals__", "__code__",
                  "__subclasses__", "__builtins__", "_C", "f_globals", "f_locals",
                  "__dict__", "__getattribute__", "attrgetter", "jit",
                  "setprofile"}  # fmt: skip


def doubtful(source: str) -> str:
    """The first name in the source that can lead around a ban, for a person to look at; "" if
    there is none. It costs no points."""
    return next(filter(None, map(_odd, _nodes(source))), "")


def _nodes(source: str) -> list[ast.AST]:
    """All nodes of the code; none where it is no Python."""
    try:
        return [*ast.walk(ast.parse(source))]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _odd(node: ast.AST) -> str:
    if isinstance(node, ast.Import):
        return next(filter(is_unusual, (item.name for item in node.names)), "")
    if isinstance(node, ast.ImportFrom):
        if node.module and not node.level and is_unusual(node.module):
            return node.module
        return next((i.name for i in node.names if i.name in ODD_ATTRIBUTES), "")
    if isinstance(node, ast.Name):
        return node.id if node.id in ODD_NAMES else ""
    if isinstance(node, ast.Attribute):
        return node.attr if node.attr in ODD_ATTRIBUTES else ""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and node.args[1:]:
        if not isinstance(node.args[1], ast.Constant):
            return "getattr of a computed name"
        return node.args[1].value if node.args[1].value in ODD_ATTRIBUTES else ""
    return ""


def is_unusual(module: str) -> bool:
    return module.split(".")[0] not in USUAL_MODULES


def _aliases(nodes: list[ast.AST]) -> dict[str, str]:
    aliases = {"torch": "torch", "nn": "torch.nn", "F": "torch.nn.functional"}
    for node in nodes:
        if isinstance(node, ast.Import):
            for item in node.names:
                if item.asname:
                    aliases[item.asname] = item.name
                else:
                    aliases[item.name.split(".")[0]] = item.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module:
            for item in node.names:
                aliases[item.asname or item.name] = f"{node.module}.{item.name}"
    return aliases


def _mentioned(node: ast.AST, aliases: dict[str, str]) -> list[str]:
    if isinstance(node, ast.Import):
        return [item.name for item in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{item.name}" for item in node.names)]
    if isinstance(node, ast.Attribute):
        dotted = _dotted(node, aliases)
        return [dotted] if dotted else []
    return []


def _dotted(node: ast.AST, aliases: dict[str, str]) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in aliases:
        return None
    return ".".join([aliases[node.id], *reversed(parts)])


def refuse_operators(banned: Iterable[str]) -> None:
    """Replace the operators among the banned names ("aten::...") by a refusal, however they are
    reached, for as long as this process lives.

    A mode of torch's dispatcher would do the same, but it imports a second of modules and
    slows every operator down.
    """
    libraries = operator_libraries()
    for name in banned:
        packet = getattr(torch.ops.aten, name.removeprefix("aten::"), None)
        if not name.startswith("aten::") or packet is None:
            continue
        for overload in packet.overloads():
            full_name = f"{name}.{overload}".removesuffix(".default")
            for key, library in libraries:
                library.impl(full_name, key, _refusal(name))
    for _, library in libraries:  # kept where no list, frame or collector leads to them
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))


@contextmanager
def out_of_reach(banned: Iterable[str]) -> Iterator[None]:
    """While open, every banned function or class raises NotAllowed when it is called."""
    refusals: dict[tuple[Any, str], Any] = {}
    for name in banned:
        owner_name, _, attribute = name.rpartition(".")
        try:
            owner = importlib.import_module(owner_name) if owner_name else None
        except ImportError:
            continue
        target = vars(owner).get(attribute) if owner else None  # getattr imports what is lazy
        if callable(target) and not isinstance(target, type(importlib)):
            refusals[owner, attribute] = _refusal(name)
    with replaced(refusals):
        yield


def _refusal(name: str) -> Any:
    def refuse(*_: Any, **__: Any) -> None:
        raise NotAllowed(message(name))

    return refuse


class NotInGrading(NameError):
    """Learner code used something that a notebook has and grading does not."""


@contextmanager
def as_in_grading() -> Iterator[None]:
    """While open, code finds the names that it finds in grading: without a notebook, without a
    keyboard, with one thread. What would be harmless does nothing, the rest says why."""
    ask, start, this_thread = input, threading.Thread.start, threading.get_ident()

    def refuse_input(*prompt: Any) -> str:
        if sys._getframe(1).f_globals.get("__name__", "").startswith(PACKAGE + "."):
            raise NotInGrading("input() has nobody to ask in grading: leave it out")
        return ask(*prompt)  # a debugger's

    def refuse_shell() -> None:
        raise NotInGrading("get_ipython() is not there in grading, where no notebook runs")

    def refuse_thread(thread: threading.Thread) -> None:
        if isinstance(thread, threading.Timer):
            return  # it would only remind of something later, as matplotlib's does
        if threading.get_ident() == this_thread:
            raise NotInGrading("exercise code cannot start threads in grading")
        start(thread)

    names = {"display": do_nothing, "get_ipython": refuse_shell, "input": refuse_input}
    values: dict[tuple[Any, str], Any] = {(builtins, name): names[name] for name in names}
    values[threading.Thread, "start"] = refuse_thread
    for name in ("set_num_threads", "set_num_interop_threads"):
        values[torch, name] = do_nothing
    values[torch, "compile"] = return_unchanged  # grading has no compiler
    with replaced(values):
        yield


def do_nothing(*_: Any, **__: Any) -> None:
    """Replaces what may be called without any effect."""


def return_unchanged(model: Any = None, **_: Any) -> Any:
    """Replaces torch.compile, with and without arguments: returns the code unchanged."""
    return return_unchanged if model is None else model


MISSING = object()


@contextmanager
def replaced(values: Mapping[tuple[Any, str], Any]) -> Iterator[None]:
    """While open, these attributes have other values: {(owner, name): value}."""
    before = {(owner, name): getattr(owner, name, MISSING) for owner, name in values}
    try:
        for (owner, name), value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for (owner, name), value in before.items():
            if value is MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
