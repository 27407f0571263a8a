"""Six kinds of small faults, made without understanding what the code means.

A rule looks at one node of the syntax tree and yields faults: the kind, a node, and what could
be in that node's place. The kinds are operator, comparison (and condition), constant, argument,
call and statement.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, TypeVar

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
# functions, methods and keywords that are mistaken for each other
ALIKE = (
    "min max|argmin argmax|any all|sum mean|sin cos|softmax log_softmax|ceil floor|rsqrt sqrt|"
    "exp log|sigmoid tanh|cumsum cumprod|zeros ones|zeros_like ones_like|cat stack|"
    "repeat_interleave repeat|float double|topk sort"
)
MODULES = ("torch", "F", "math", "nn", "nn.init", "nn.utils", "torch.optim")


def faults(node: ast.AST) -> Iterator[Fault]:
    """Everything that could replace this node, or of a part that it alone has."""
    match node:
        case ast.BinOp(left, op, right):
            for other in OTHER_OPERATORS[type(op)]:
                yield "operator", node, changed(node, op=other())
            yield "operator", node, left
            yield "operator", node, right
        case ast.AugAssign(_, op, _):
            for other in OTHER_OPERATORS[type(op)]:
                yield "operator", node, changed(node, op=other())
        case ast.Compare(_, [op], _):
            for other in OTHER_OPERATORS[type(op)]:
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
    """Numbers near a number, and the other truth."""
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1, value - 1]
        case float():
            return [value * 2, 0.0] if value else [1.0]
    return []


def other_calls(node: ast.Call, function: ast.expr) -> Iterator[ast.expr]:
    """The call left out, or of a function that is mistaken for it."""
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
    """A copy of the node with other fields."""
    return type(node)(**{**vars(node), **fields})
