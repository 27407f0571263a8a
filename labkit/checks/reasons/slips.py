"""Slips that are visible in the learner's code, whatever it computes."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator

from torch import Tensor

from labkit.course import cells
from labkit.course.lang import said, tr

MOST_QUOTED = 60  # characters of a learner's expression
# Methods that change a list, dict, set or queue: their result need not be used
CHANGES = {"add", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove",
           "reverse", "rotate", "setdefault", "sort", "update"}  # fmt: skip
Slip = Callable[[list[ast.AST], list[ast.AST]], str]


def nodes_of(cell: str) -> list[ast.AST]:
    """Return the nodes of the code; [] if it is not valid Python."""
    tree = cells.parsed(cells.without_tools(cell))
    return [*ast.walk(tree)] if tree else []


def fatal_slip(cell: str) -> str:
    """Return a slip that explains every failure, as a sentence; "" if there is none."""
    return _first(FATAL, cell, "")


def likely_slip(cell: str, right: str) -> str:
    """Return a slip that is a likely cause if no mistake is named; "" if there is none.

    right    the reference's cell
    """
    return _first(LIKELY, cell, right)


def _first(slips: tuple[Slip, ...], cell: str, right: str) -> str:
    nodes, expected = nodes_of(cell), nodes_of(right)
    return next((text for slip in slips if (text := slip(nodes, expected))), "")


def quoted(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= MOST_QUOTED else text[: MOST_QUOTED - 3] + "..."


def _all(nodes: list[ast.AST], kind: type) -> Iterator:
    return (node for node in nodes if isinstance(node, kind))


def _forgotten_self(nodes: list[ast.AST], _: list[ast.AST]) -> str:
    """Find a part that `__init__` makes and assigns to a local name."""
    for method in _all(nodes, ast.FunctionDef):
        if method.name != "__init__":
            continue
        used = [node.id for node in ast.walk(method) if isinstance(node, ast.Name)]
        for node in method.body:
            made = isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            name = node.targets[0] if made else None
            if isinstance(name, ast.Name) and used.count(name.id) == 1:
                gone = said(
                    "`self.` is missing: `{name}` is made in `__init__` and is gone when that "
                    "ends"
                )
                return tr(gone, name=name.id)
    return ""


def _misspelled_init(nodes: list[ast.AST], _: list[ast.AST]) -> str:
    for made in _all(nodes, ast.ClassDef):
        names = [node.name for node in made.body if isinstance(node, ast.FunctionDef)]
        odd = [name for name in names if name.strip("_") in ("init", "int", "inti", "initi")]
        if odd and "__init__" not in names:
            never = said(
                "`{name}` is never called: the constructor is `__init__`, with two underscores "
                "on each side"
            )
            return tr(never, name=odd[0])
    return ""


def _comma(nodes: list[ast.AST], _: list[ast.AST]) -> str:
    for node in _all(nodes, ast.Assign):
        value, target = node.value, node.targets[0]
        alone = isinstance(value, ast.Tuple) and len(value.elts) == 1
        if alone and isinstance(target, (ast.Name, ast.Attribute)):
            tail = said("line {line} ends with a comma: `{name}` becomes a tuple of one value")
            return tr(tail, line=node.lineno, name=ast.unparse(target))
    return ""


def _early_return(nodes: list[ast.AST], _: list[ast.AST]) -> str:
    for loop in (node for node in nodes if isinstance(node, (ast.For, ast.While))):
        goes_on = any(isinstance(node, ast.Continue) for node in ast.walk(loop))
        if isinstance(loop.body[-1], ast.Return) and not goes_on:
            line = loop.body[-1].lineno
            return tr("the `return` in line {line} ends the loop in its first pass", line=line)
    return ""


def _thrown_away(nodes: list[ast.AST], right: list[ast.AST]) -> str:
    """Find a dropped result that the reference uses, or that of a function of tensors."""
    alone = {id(node.value) for node in _all(right, ast.Expr)}
    used = {_method(node) for node in _all(right, ast.Call) if id(node) not in alone} - {""}
    in_use = {name for name in used if not name.endswith("_")}  # otherwise it works in place
    methods = {node.name for node in _all(nodes, ast.FunctionDef)}  # they may have effects
    for node in _all(nodes, ast.Expr):
        name = _method(node.value)
        if name in CHANGES or (name in methods and name not in in_use):
            continue
        pure = hasattr(Tensor, name) and not name.endswith("_") and name != "backward"
        if name and (name in in_use or pure):
            lost = said("line {line}: the result of `{call}` is not kept")
            return tr(lost, line=node.lineno, call=quoted(node.value))
    return ""


def _method(node: ast.AST) -> str:
    named = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return node.func.attr if named else ""


def _unused_part(nodes: list[ast.AST], right: list[ast.AST]) -> str:
    """Find a part that is never used, while another is used twice or the reference uses it."""
    of_self = [node for node in _all(nodes, ast.Attribute) if ast.unparse(node.value) == "self"]
    made = {node.attr for node in of_self if isinstance(node.ctx, ast.Store)}
    used = Counter(node.attr for node in of_self if isinstance(node.ctx, ast.Load))
    calls = [
        node.func for node in _all(nodes, ast.Call) if isinstance(node.func, ast.Attribute)
    ]
    called = Counter(func.attr for func in calls if ast.unparse(func.value) == "self")
    branches = [ast.walk(part) for node in _all(nodes, ast.If) for part in node.orelse]
    called -= Counter(getattr(node, "attr", "") for branch in branches for node in branch)
    twice = [name for name, times in called.items() if times > 1 and name in made]
    unused = sorted(name for name in made if not used[name])
    needed = {
        node.attr for node in _all(right, ast.Attribute) if isinstance(node.ctx, ast.Load)
    }
    lost = [name for name in unused if twice or name in needed]
    return tr("`self.{unused}` is made and never used", unused=lost[0]) if lost else ""


def _or_default(nodes: list[ast.AST], right: list[ast.AST]) -> str:
    arguments = {node.arg for node in _all(nodes, ast.arg)}
    arguments -= {ast.unparse(node.values[0]) for node in _all(right, ast.BoolOp)}
    for node in _all(nodes, ast.BoolOp):
        first = node.values[0]
        is_question = isinstance(node.values[1], (ast.Compare, ast.Name))
        if isinstance(node.op, ast.And) or is_question or not isinstance(first, ast.Name):
            continue
        if first.id in arguments:
            zero = said("`{name} or ...` takes the default for 0 as well: ask `is None`")
            return tr(zero, name=first.id)
    return ""


def _unstarted_kernel(nodes: list[ast.AST], right: list[ast.AST]) -> str:
    """Find a kernel that the reference starts and the code only defines."""
    used = {node.id for node in _all(nodes, ast.Name)}
    starts = {ast.unparse(node.value) for node in _all(right, ast.Subscript)}
    for node in _all(nodes, ast.FunctionDef):
        if node.decorator_list and node.name in starts - used:
            return tr(
                "the kernel `{name}` is never started: `{name}[grid](...)`", name=node.name
            )
    return ""


def idle_part(cell: str, right: str) -> tuple[str, str, bool]:
    """Return a sentence on a value that the code never uses, or on an argument that only the
    reference reads; the name of that argument; and whether the value has to be used: it is in
    the reference, or nothing else reads an argument that is needed."""
    needed = {node.id for node in _all(nodes_of(right), ast.Name)}
    expected = {ast.dump(node) for node in _all(nodes_of(right), ast.expr)}
    for function in _all(nodes_of(cell), ast.FunctionDef):
        inside = [*ast.walk(function)]
        loads = [n for n in _all(inside, ast.Name) if isinstance(n.ctx, ast.Load)]
        used = {node.id for node in loads}
        arguments = {node.arg for node in _all(inside, ast.arg)} & needed
        for node in _all(inside, ast.Assign):
            name = getattr(node.targets[0], "id", "_")
            if name not in used and name.strip("_"):
                idle = said("line {line}: `{name}` is computed and never used")
                within = {*ast.walk(node.value)}
                lost = arguments & used - {each.id for each in loads if each not in within}
                is_cause = bool(lost) or ast.dump(node.value) in expected
                return tr(idle, line=node.lineno, name=name), "", is_cause
        for name in sorted(arguments - used):
            idle = said("the argument `{name}` of `{function}` is never used")
            return tr(idle, name=name, function=function.name), name, False
    return "", "", False


FATAL: tuple[Slip, ...] = (_forgotten_self, _misspelled_init, _comma)
LIKELY: tuple[Slip, ...] = (
    _unstarted_kernel, _early_return, _thrown_away, _unused_part, _or_default,
)  # fmt: skip
