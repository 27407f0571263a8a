"""Names in an answer that can lead around a ban of its lab: a person should look at them.

The text alone tells, outside of the learner's process, and it costs no points. What begins with
an import is followed through the judge's own modules. This is not a wall: it knows the roads
that were tried, and a person who works hard finds a new one.
"""

from __future__ import annotations

import ast
import importlib
from contextlib import suppress
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch

from labkit.sandbox.inside.banned import aliases_in, dotted_name, nodes_of, parts_of, root_of
from labkit.sandbox.inside.importer import PACKAGE

# What answers import, and the modules of torch in which they find things
LIBRARIES = {
    "__future__",
    *("torch", "numpy", "math", "cmath", "random", "re", "string", "json", "copy", "abc"),
    *("typing", "collections", "dataclasses", "enum", "time", "functools", "itertools"),
    *("contextlib", "heapq", "bisect", "numbers", "unicodedata", "warnings", "pathlib"),
    "hashlib",
}
IN_TORCH = {
    *("nn", "nn.functional", "nn.init", "nn.parameter", "nn.utils", "nn.utils.rnn", "linalg"),
    *("special", "fft", "func", "optim", "amp", "autograd", "cuda", "backends", "random"),
    *("types", "utils", "utils.checkpoint", "jit"),
}
NAMES = {"eval", "exec", "compile", "vars", "globals", "locals", "open", "breakpoint"}
# Attributes that give a frame, another library's module, or whatever a text names
LEADING = {
    *("f_globals", "f_locals", "f_builtins", "f_back", "f_code", "gi_frame", "tb_frame"),
    *("sys", "os", "builtins", "bltns", "importlib", "inspect", "ctypes", "ops", "torch"),
    *("attrgetter", "get_type_hints", "singledispatch", "Formatter", "decompose"),
    *("CompilationUnit", "_evaluate", "singledispatchmethod"),
}
# What makes any object of bytes, or runs a text
LOADERS = {
    *("torch.load", "torch.jit.load", "numpy.load", "numpy.lib.format", "typing.ForwardRef"),
    *("numpy.testing.runstring", "numpy.testing.measure"),
}
USUAL_DUNDERS = {
    *("__init__", "__post_init__", "__call__", "__len__", "__iter__", "__next__", "__eq__"),
    *("__getitem__", "__setitem__", "__contains__", "__enter__", "__exit__", "__repr__"),
    *("__class__", "__name__"),
}
UNCOUNTED = {"numpy", "tolist", "storage", "untyped_storage", "data_ptr"}  # numbers leave torch
COUNTED = "where torch's work is counted"


def unusual(source: str, counted: bool = False) -> str:
    """The first thing in the source that no exercise needs, in a few words; "" if nothing is.

    counted    whether the exercise limits the operations or the memory of torch
    """
    nodes = nodes_of(source)
    if not nodes:
        return "text that cannot be read"
    aliases = aliases_in(nodes)
    usual = {id(root_of(n)) for n in nodes if isinstance(n, ast.Attribute)}
    usual |= {id(n.func) for n in nodes if isinstance(n, ast.Call) and len(n.args) > 1}
    bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    bound |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    if name := _imported_twice(nodes, aliases):
        return f"{name} imported as two things"
    if counted and any(name.split(".")[0] == "numpy" for name in aliases.values()):
        return f"numpy {COUNTED}"
    is_script = any("jit" in parts_of(n) for n in nodes)
    is_script |= any(".jit" in name for name in aliases.values())
    spelled = any("__" in str(n.value) for n in nodes if isinstance(n, ast.Constant))
    plain = {
        id(n.func) for n in nodes if isinstance(n, ast.Call) and _reads_weights(n, aliases)
    }
    for node in nodes:
        found = ""
        if id(node) in plain:
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found = _in_import(node)
        elif isinstance(node, ast.Attribute):
            found = _in_chain(node, aliases) or (counted and _uncounted(parts_of(node)))
            found = found or (is_script and _in_script(node, aliases))
        elif isinstance(node, ast.Call):
            found = _in_call(node, aliases, spelled)
        elif isinstance(node, ast.Name):
            is_value = id(node) not in usual and node.id not in bound
            found = _in_name(node.id, aliases, is_value)
        elif isinstance(node, ast.Global):
            found = next((name for name in node.names if name.startswith("__")), "")
        elif isinstance(node, ast.MatchClass) and (node.patterns or node.kwd_attrs):
            found = "match on attributes"
        if found:
            return found
    return ""


def _in_import(node: ast.Import | ast.ImportFrom) -> str:
    if isinstance(node, ast.Import):
        return next(filter(None, (_followed(item.name)[0] for item in node.names)), "")
    for item in node.names:
        if node.level or (node.module or "").split(".")[0] == PACKAGE:
            found = item.name if item.name in LIBRARIES | {"nn", "F"} else ""
        else:
            found = _followed(f"{node.module}.{item.name}")[0]
            if item.name == "*" and _exports_modules(node.module):
                found = f"{node.module}.*"
        if found or item.name in LEADING:
            return found or item.name
    return ""


def _exports_modules(name: str) -> bool:
    """Whether `from NAME import *` binds modules, whose names nothing in the text tells."""
    module = _followed(name)[1]
    names = getattr(module, "__all__", [n for n in dir(module) if not n.startswith("_")])
    return any(isinstance(getattr(module, each, None), ModuleType) for each in names)


def _imported_twice(nodes: list[ast.AST], aliases: dict[str, str]) -> str:
    """A name that two imports, perhaps one that never runs, bind to different things, of which
    one is a module; "" if there is none. What such a name leads to cannot be followed."""
    imports = [[node] for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
    for each in ([], *imports):  # the first: what the course's own cell imports
        for name, dotted in aliases_in(each).items():
            both = {dotted, aliases[name]}
            if len(both) > 1 and any(isinstance(_followed(d)[1], ModuleType) for d in both):
                return name
    return ""


def _in_script(node: ast.Attribute, aliases: dict[str, str]) -> str:
    """An operation of torch that is a tensor's method in TorchScript alone, as x.silu()."""
    parts = [] if dotted_name(node, aliases) else parts_of(node)
    for part in parts:
        is_method = any(hasattr(kind, part) for kind in (torch.Tensor, list, dict, str, bytes))
        if not is_method and hasattr(torch.ops.aten, part):
            return f"{part} in torch.jit"
    return ""


def _reads_weights(call: ast.Call, aliases: dict[str, str]) -> bool:
    """Whether it is torch.load(file, weights_only=True), which makes tensors and numbers."""
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    flag, is_chain = named.pop("weights_only", None), isinstance(call.func, ast.Attribute)
    is_plain = isinstance(flag, ast.Constant) and flag.value is True and len(call.args) == 1
    is_load = is_chain and dotted_name(call.func, aliases) == "torch.load"
    return is_load and is_plain and set(named) <= {"map_location"}


def _in_chain(node: ast.Attribute, aliases: dict[str, str]) -> str:
    parts, dotted = parts_of(node), dotted_name(node, aliases)
    found, value = _followed(dotted) if dotted else ("", None)
    if found:
        return found
    if dotted and not isinstance(node.ctx, ast.Load):
        return f"{dotted} = ..."
    if isinstance(value, ModuleType):
        return f"{dotted} as a value"
    return next(filter(_leads, parts), "")


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
    is_computed = spelled or not isinstance(name, ast.Name)
    return "getattr of a computed name" if is_computed else ""


def _in_name(name: str, aliases: dict[str, str], is_value: bool) -> str:
    """
    is_value    whether it is an import's or a built-in's, and begins no chain and no call
    """
    if name in NAMES or name.startswith("__"):
        return name
    is_module = name in aliases and isinstance(_followed(aliases[name])[1], ModuleType)
    return f"{name} as a value" if is_value and (is_module or name == "getattr") else ""


def _leads(part: str) -> bool:
    if part.startswith("__"):
        return _is_dunder(part)
    return part in LEADING or (part.startswith("_") and part in vars(torch))


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in USUAL_DUNDERS


def _uncounted(parts: list[str]) -> str:
    found = next(filter(UNCOUNTED.__contains__, parts), "")
    return f"{found} {COUNTED}" if found else ""


def _followed(dotted: str) -> tuple[str, Any]:
    """What begins with an import, followed to where it leads: as far as it is unusual, else "";
    and what is there, None if it is not known."""
    path, *parts = dotted.split(".")
    if path not in LIBRARIES:
        return ("" if path == PACKAGE else path), None
    value: Any = importlib.import_module(path)
    for part in parts:
        path += f".{part}"
        if path in LOADERS:
            return path, None
        if part.startswith("_") and part not in USUAL_DUNDERS:
            return path, None
        value = _part(value, part) if isinstance(value, ModuleType) else None
        if isinstance(value, ModuleType) and not _is_usual(value, path):
            return path, None
    return "", value


def _part(module: ModuleType, name: str) -> Any:
    """What a module holds under a name; a module without content for one that is not loaded."""
    value = vars(module).get(name)
    if value is None and hasattr(module, "__path__"):
        with suppress(ImportError, ValueError):
            full = f"{module.__name__}.{name}"
            return ModuleType(full) if find_spec(full) else None
    return value


def _is_usual(module: ModuleType, path: str) -> bool:
    root, _, rest = path.partition(".")
    if root == "torch":
        return not rest or rest in IN_TORCH
    return module.__name__.split(".")[0] == root
