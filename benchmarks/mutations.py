"""Small faults of six kinds in an answer, made without understanding what the code means.

A rule looks at one node of the syntax tree and yields faults: the kind, a node, and what could
replace it. The kinds are operator, comparison (and condition), constant, argument, call and
statement.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from labkit.course import cells

Fault = tuple[str, ast.AST, ast.AST]
Node = TypeVar("Node", bound=ast.AST)

OTHER_OPERATORS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Div,), ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,), ast.Mod: (ast.FloorDiv,), ast.Pow: (ast.Mult,),
    ast.MatMult: (ast.Mult,), ast.BitAnd: (ast.BitOr,), ast.BitOr: (ast.BitAnd,),
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
    ast.And: (ast.Or,), ast.Or: (ast.And,),
}  # fmt: skip
# functions, methods and keywords that are often confused
ALIKE = (
    "min max|argmin argmax|any all|sum mean|sin cos|softmax log_softmax|ceil floor|rsqrt sqrt|"
    "exp log|sigmoid tanh|cumsum cumprod|zeros ones|zeros_like ones_like|cat stack|"
    "repeat_interleave repeat|float double|topk sort"
)
MODULES = ("torch", "F", "math", "nn", "nn.init", "nn.utils", "torch.optim")


Key = tuple[str, str, str]


@dataclass(frozen=True)
class Mutant:
    """An answer with one fault; `before` and `after` are the lines that differ."""

    rule: str
    scope: str  # the function it is in: "RMSNorm.forward"
    before: str
    after: str
    cell: str

    @property
    def key(self) -> Key:
        """The identity of a mutant, as long as its line and its function do not change"""
        return self.scope, self.before, self.after

    @property
    def diff(self) -> str:
        lines = [f"- {line}" for line in self.before.splitlines()]
        return "\n".join(lines + [f"+ {line}" for line in self.after.splitlines()])


def mutants(cell: str) -> Iterator[Mutant]:
    """Each different fault once, between the solution marks; a cell without marks is all the
    learner's. Docstrings, annotations and the texts of errors are left alone."""
    tree = ast.parse(cell)
    marks = [found.span() for found in cells.REGION.finditer(cell)]
    regions = [[cell.count("\n", 0, edge) + 1 for edge in span] for span in marks]
    right = ast.unparse(tree)
    seen = {right}
    for scope, node in nodes(tree):
        for rule, old, new in faults(node):
            if regions and not any(first <= old.lineno < last for first, last in regions):
                continue
            text = ast.unparse(replaced(tree, old, new))
            if text in seen or not is_valid(text):
                continue
            seen.add(text)
            yield Mutant(rule, scope, *differing(right, text), text)


def replaced(tree: Any, old: ast.AST, new: ast.AST) -> Any:
    """A copy of a tree, or of a list of trees, with `new` instead of `old`."""
    if tree is old:
        return new
    if isinstance(tree, list):
        return [replaced(part, old, new) for part in tree]
    if isinstance(tree, ast.AST):
        return changed(tree, **{k: replaced(v, old, new) for k, v in ast.iter_fields(tree)})
    return tree


def is_valid(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def nodes(node: ast.AST, scope: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Every node that may be mutated, with the function that it is in."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        scope = f"{scope}.{node.name}".lstrip(".")
    yield scope, node
    for child in children(node):
        yield from nodes(child, scope)


def children(node: ast.AST) -> Iterator[ast.AST]:
    """The children of a node, without annotations and texts for people"""
    match node:
        case ast.AnnAssign():
            yield from [node.value] if node.value else []
        case ast.FunctionDef() | ast.ClassDef():
            yield from node.body[bool(ast.get_docstring(node)) :]
        case ast.JoinedStr() | ast.Raise() | ast.UnaryOp(ast.USub(), ast.Constant()):
            return
        case _:
            yield from ast.iter_child_nodes(node)


def differing(before: str, after: str) -> tuple[str, str]:
    """The lines in which two texts differ, without indentation."""
    old, new = ([line.strip() for line in text.splitlines()] for text in (before, after))
    while old and new and old[0] == new[0]:
        old, new = old[1:], new[1:]
    while old and new and old[-1] == new[-1]:
        old, new = old[:-1], new[:-1]
    return "\n".join(old), "\n".join(new)


def faults(node: ast.AST) -> Iterator[Fault]:
    """Yield all replacements of this node or of one of its direct parts."""
    match node:
        case ast.BinOp(left, op, right):
            for other in OTHER_OPERATORS.get(type(op), ()):
                yield "operator", node, changed(node, op=other())
            yield "operator", node, left
            yield "operator", node, right
        case ast.AugAssign(_, op, _):
            for other in OTHER_OPERATORS.get(type(op), ()):
                yield "operator", node, changed(node, op=other())
        case ast.Compare(_, [op], _):
            for other in OTHER_OPERATORS.get(type(op), ()):
                yield "comparison", node, changed(node, ops=[other()])
        case ast.BoolOp(op, values):
            yield "comparison", node, changed(node, op=OTHER_OPERATORS[type(op)][0]())
            yield from (("comparison", node, value) for value in values)
        case ast.IfExp(_, body, orelse):
            yield "comparison", node, body
            yield "comparison", node, orelse
        case ast.UnaryOp(ast.USub(), ast.Constant(value)):
            yield from (("constant", node, ast.Constant(n)) for n in constants(-value))
        case ast.Constant(value):
            yield from (("constant", node, ast.Constant(other)) for other in constants(value))
        case ast.Call(function, arguments, keywords):
            for fewer in one_dropped(arguments):
                yield "argument", node, changed(node, args=fewer)
            for fewer in one_dropped(keywords):
                yield "argument", node, changed(node, keywords=fewer)
            for order in swapped(arguments):
                yield "argument", node, changed(node, args=order)
            yield from (("call", node, other) for other in other_calls(node, function))
    if isinstance(node, ast.If):
        yield "comparison", node.test, ast.Constant(True)
        yield "comparison", node.test, ast.Constant(False)
    if isinstance(node, ast.stmt) and not isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        yield "statement", node, ast.Pass()


def constants(value: Any) -> list[Any]:
    """Yield numbers near a number, or the other truth value."""
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1, value - 1]
        case float():
            return [value * 2, 0.0] if value else [1.0]
    return []


def other_calls(node: ast.Call, function: ast.expr) -> Iterator[ast.expr]:
    """Yield the call left out, and calls of functions that are confused with it."""
    if isinstance(function, ast.Attribute) and ast.unparse(function.value) not in MODULES:
        yield function.value
    yield from (a for a in node.args if not isinstance(a, (ast.Starred, ast.GeneratorExp)))
    field = "attr" if isinstance(function, ast.Attribute) else "id"
    name = getattr(function, field, "")
    for pair in map(str.split, ALIKE.split("|")):
        if name in pair:
            other = pair[1 - pair.index(name)]
            yield changed(node, func=changed(function, **{field: other}))


def one_dropped(items: list[Any]) -> Iterator[list[Any]]:
    for number in range(len(items)):
        yield items[:number] + items[number + 1 :]


def swapped(items: list[Any]) -> Iterator[list[Any]]:
    """Two neighbors exchanged."""
    for number, (first, second) in enumerate(pairwise(items)):
        yield [*items[:number], second, first, *items[number + 2 :]]


def changed(node: Node, **fields: Any) -> Node:
    """Copy a node with other fields."""
    return type(node)(**{**vars(node), **fields})
