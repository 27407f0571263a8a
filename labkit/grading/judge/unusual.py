"""Code in an answer that can lead around a ban of its lab: a person should look at it.

One rule, read from the text: an answer uses usual libraries by their public names, spells those
names, and runs no text. Anything else costs no points and is listed. We do not block every way
around a ban: the course's answers are public anyway, and a person sees such tricks. The price
is that a determined learner can find a way that the rule does not know.
"""

from __future__ import annotations

import ast
import importlib
from contextlib import suppress
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from labkit.sandbox.inside.banned import aliases_in, dotted_name, nodes_of, parts_of, root_of
from labkit.sandbox.inside.importer import PACKAGE

LIBRARIES = {  # libraries that answers import
    *("__future__", "torch", "numpy", "math", "cmath", "random", "re", "string", "json"),
    *("copy", "abc", "typing", "collections", "dataclasses", "enum", "time", "functools"),
    *("itertools", "contextlib", "heapq", "bisect", "numbers", "unicodedata", "warnings"),
    *("pathlib", "hashlib", "fractions", "statistics"),
}
MODULES = {  # modules of torch and numpy whose functions answers use
    *("nn", "nn.functional", "nn.init", "nn.parameter", "nn.utils", "nn.utils.rnn", "linalg"),
    *("special", "fft", "func", "optim", "amp", "autograd", "cuda", "backends", "random"),
    *("types", "utils", "utils.checkpoint", "jit", "lib", "lib.stride_tricks"),
}
RUN_TEXT = {"eval", "exec", "compile", "vars", "globals", "locals", "open", "breakpoint"}
LOADERS = {"torch.load", "torch.jit.load", "numpy.load"}  # these make any object from bytes
# Attributes by which any object gives a frame or another library
LEADING = {
    *("f_globals", "f_locals", "f_builtins", "f_back", "f_code", "gi_frame", "tb_frame"),
    *("sys", "os", "builtins", "importlib", "inspect", "ctypes", "ops", "torch"),
}
USUAL_DUNDERS = {
    *("__init__", "__post_init__", "__call__", "__len__", "__iter__", "__next__", "__eq__"),
    *("__getitem__", "__setitem__", "__contains__", "__enter__", "__exit__", "__repr__"),
    *("__class__", "__name__"),
}
UNCOUNTED = {"numpy", "tolist", "storage", "untyped_storage", "data_ptr"}  # numbers leave torch
COUNTED = "where torch's work is counted"


def unusual(source: str, counted: bool = False) -> str:
    """Return the first thing in the source that no exercise needs, in a few words; "" if there
    is none.

    counted    whether the exercise limits the operations or the memory of torch
    """
    nodes = nodes_of(source)
    if not nodes:
        return "text that cannot be read"
    aliases = aliases_in(nodes)
    if counted and any(name.split(".")[0] == "numpy" for name in aliases.values()):
        return f"numpy {COUNTED}"
    # names that begin a chain or are called with arguments, and names that are bound here
    usual = {id(root_of(n)) for n in nodes if isinstance(n, ast.Attribute)}
    usual |= {id(n.func) for n in nodes if isinstance(n, ast.Call) and len(n.args) > 1}
    bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    bound |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    safe_loads = {id(n.func) for n in nodes if isinstance(n, ast.Call) and _is_safe_load(n)}
    spelled = any("__" in str(n.value) for n in nodes if isinstance(n, ast.Constant))
    for node in nodes:
        found = ""
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found = _in_import(node)
        elif isinstance(node, ast.Attribute) and id(node) not in safe_loads:
            found = _in_chain(node, aliases) or (_uncounted(node) if counted else "")
        elif isinstance(node, ast.Call):
            found = _in_call(node, aliases, spelled)
        elif isinstance(node, ast.Name):
            is_value = id(node) not in usual and node.id not in bound
            found = _in_name(node.id, aliases, is_value)
        if found:
            return found
    return ""


def _is_safe_load(call: ast.Call) -> bool:
    """Whether it is torch.load(file, weights_only=True), which makes tensors and numbers."""
    flags = [word.value for word in call.keywords if word.arg == "weights_only"]
    return any(isinstance(flag, ast.Constant) and flag.value is True for flag in flags)


def _in_import(node: ast.Import | ast.ImportFrom) -> str:
    names = [item.name for item in node.names]
    if isinstance(node, ast.Import):
        return next(filter(None, (_follow(name)[0] for name in names)), "")
    if node.level or (node.module or "").split(".")[0] == PACKAGE:
        return next(filter({*LIBRARIES, *LEADING, "nn", "F"}.__contains__, names), "")
    # the names that it imports are not in the text
    if "*" in names and node.module.split(".")[0] == "torch":
        return f"{node.module}.*"
    found = (_follow(f"{node.module}.{name}")[0] or (name if _leads(name) else "")
             for name in names)  # fmt: skip
    return next(filter(None, found), "")


def _in_chain(node: ast.Attribute, aliases: dict[str, str]) -> str:
    dotted = dotted_name(node, aliases)
    odd, value = _follow(dotted) if dotted else ("", None)
    if odd:
        return odd
    if dotted and not isinstance(node.ctx, ast.Load):
        return f"{dotted} = ..."
    if isinstance(value, ModuleType):
        return f"{dotted} as a value"
    return next(filter(_leads, parts_of(node)), "")


def _in_call(node: ast.Call, aliases: dict[str, str], spelled: bool) -> str:
    """
    spelled    whether a text of the answer holds two underscores, perhaps a part of a name
    """
    if not isinstance(node.func, ast.Name) or len(node.args) < 2:
        return ""
    target, name = node.args[:2]
    if node.func.id in ("setattr", "delattr") and (dotted := dotted_name(target, aliases)):
        return f"setattr of {dotted}"
    if node.func.id != "getattr":
        return ""
    if isinstance(name, ast.Constant):
        return str(name.value) if _leads(str(name.value)) else ""
    return "getattr of a computed name" if spelled or not isinstance(name, ast.Name) else ""


def _in_name(name: str, aliases: dict[str, str], is_value: bool) -> str:
    """
    is_value    whether it is an import's or a built-in's, and begins no chain and no call
    """
    if name in RUN_TEXT or name.startswith("__"):
        return name
    is_module = name in aliases and isinstance(_follow(aliases[name])[1], ModuleType)
    return f"{name} as a value" if is_value and (is_module or name == "getattr") else ""


def _leads(part: str) -> bool:
    is_dunder = part.startswith("__") and part.endswith("__") and part not in USUAL_DUNDERS
    return is_dunder or part in LEADING


def _uncounted(node: ast.Attribute) -> str:
    found = next(filter(UNCOUNTED.__contains__, parts_of(node)), "")
    return f"{found} {COUNTED}" if found else ""


def _follow(dotted: str) -> tuple[str, Any]:
    """Follow a name that begins with an import through the judge's own modules.

    Returns it as far as it is unusual, else ""; and the object there, None if not known.
    """
    path, *parts = dotted.split(".")
    if path not in LIBRARIES:
        return ("" if path == PACKAGE else path), None
    value: Any = importlib.import_module(path)
    for part in parts:
        path += f".{part}"
        if path in LOADERS or (part.startswith("_") and part not in USUAL_DUNDERS):
            return path, None
        value = _member(value, part) if isinstance(value, ModuleType) else None
        if isinstance(value, ModuleType) and not _is_usual(value, path):
            return path, None
    return "", value


def _member(module: ModuleType, name: str) -> Any:
    """The object under a name of a module; an empty module for one that is not loaded."""
    value = vars(module).get(name)
    if value is None and hasattr(module, "__path__"):
        with suppress(ImportError, ValueError):
            full = f"{module.__name__}.{name}"
            return ModuleType(full) if find_spec(full) else None
    return value


def _is_usual(module: ModuleType, path: str) -> bool:
    root, _, rest = path.partition(".")
    if root in ("torch", "numpy"):
        return not rest or rest in MODULES
    return module.__name__.split(".")[0] == root
