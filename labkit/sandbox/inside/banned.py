"""Names that an exercise may not use: found in the source, replaced while an answer runs.

The source shows the line before anything runs, but no computed name; a replaced function
catches that too, but only once it is called."""

from __future__ import annotations

import ast
import builtins
import importlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from labkit.sandbox.inside.importer import PACKAGE


class NotAllowed(Exception):
    """Learner code used something that does the exercise for it."""


DRAWING = "{name} may not be used in an answer: grading draws nothing; draw below it"
FINISHED = "{name} may not be used here: write it with basic tensor operations"


def message(name: str, translate: Callable[[str], str] = str) -> str:
    """Return the reason for refusing a name."""
    sentence = DRAWING if name.split(".")[0] == "matplotlib" else FINISHED
    shown = name.replace("torch.nn.functional.", "F.").replace("torch.nn.", "nn.")
    return translate(sentence).format(name=shown)


def found_in(source: str, banned: Iterable[str]) -> tuple[str, int] | None:
    """Return the first banned name in the source, with its line; None if there is none.

    Names are followed through imports and aliases: `F.rms_norm` after
    `import torch.nn.functional as F` is torch.nn.functional.rms_norm.
    """
    nodes, prefixes = nodes_of(source), tuple(f"{name}." for name in banned)
    aliases = aliases_in(nodes)
    for node in nodes:
        for name in _mentioned(node, aliases):
            if f"{name}.".startswith(prefixes):
                return name, node.lineno
    return None


def nodes_of(source: str) -> list[ast.AST]:
    """Return the nodes of the code, level by level; [] if it is not valid Python.

    Of a chain `a.b.c` only the whole and `a` are listed, so that following all chains takes
    time in proportion to the text.
    """
    try:
        nodes: list[ast.AST] = [ast.parse(source)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    for node in nodes:  # the list grows meanwhile
        is_chain = isinstance(node, ast.Attribute)
        nodes += [root_of(node)] if is_chain else ast.iter_child_nodes(node)
    return nodes


def root_of(node: ast.AST) -> ast.AST:
    """Return the node that a chain begins with: `a` for a.b.c, `f()` for f().b."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node


def parts_of(node: ast.AST) -> list[str]:
    """Return the attributes in a chain: ["b", "c"] for a.b.c; [] for a name."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return parts[::-1]


def aliases_in(nodes: list[ast.AST]) -> dict[str, str]:
    """Return {name: the dotted name that it imports}."""
    aliases = {"torch": "torch", "nn": "torch.nn", "F": "torch.nn.functional"}
    for node in nodes:
        if isinstance(node, ast.Import):
            for item in node.names:
                if item.asname:
                    aliases[item.asname] = item.name
                else:
                    aliases[item.name.split(".")[0]] = item.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module:
            home = f"{PACKAGE}.{node.module}" if node.level else node.module
            for item in node.names:
                aliases[item.asname or item.name] = f"{home}.{item.name}"
    return aliases


def _mentioned(node: ast.AST, aliases: dict[str, str]) -> list[str]:
    if isinstance(node, ast.Import):
        return [item.name for item in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{item.name}" for item in node.names)]
    dotted = dotted_name(node, aliases) if isinstance(node, ast.Attribute) else ""
    return [dotted] if dotted else []


def dotted_name(node: ast.AST, aliases: dict[str, str]) -> str:
    """Return torch.nn.functional.silu for `F.silu`; "" for a chain that begins with no
    import."""
    root = root_of(node)
    if not isinstance(root, ast.Name) or root.id not in aliases:
        return ""
    return ".".join([aliases[root.id], *parts_of(node)])


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
        target = vars(owner).get(attribute) if owner else None  # getattr would import lazy ones
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
    keyboard, with one thread. Harmless calls do nothing, all others raise NotInGrading."""
    ask, start, this_thread = input, threading.Thread.start, threading.get_ident()

    def refuse_input(*prompt: Any) -> str:
        if sys._getframe(1).f_globals.get("__name__", "").startswith(PACKAGE + "."):
            raise NotInGrading("input() has nobody to ask in grading: leave it out")
        return ask(*prompt)  # a debugger's

    def refuse_shell() -> None:
        raise NotInGrading("get_ipython() is not there in grading, where no notebook runs")

    def refuse_thread(thread: threading.Thread) -> None:
        if isinstance(thread, threading.Timer):
            return  # it would only run a function later, as matplotlib's does
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
    """Do nothing: replaces functions whose effect grading does not need."""


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
