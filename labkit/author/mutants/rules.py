"""What a piece of an answer may turn into: small faults, made without understanding.

A rule looks at one node of the syntax tree and yields faults: the rule's name, a node, and what
could stand in that node's place. It never looks at what the code means.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, TypeVar

Fault = tuple[str, ast.AST, ast.AST]
Node = TypeVar("Node", bound=ast.AST)

OTHER_OPERATORS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add, ast.Mult),
    ast.Mult: (ast.Div, ast.Add),
    ast.Div: (ast.Mult, ast.FloorDiv),
    ast.FloorDiv: (ast.Div, ast.Mult),
    ast.Mod: (ast.FloorDiv, ast.Mult),
    ast.Pow: (ast.Mult, ast.Div),
    ast.MatMult: (ast.Mult,),
    ast.BitAnd: (ast.BitOr, ast.BitXor),
    ast.BitOr: (ast.BitAnd, ast.BitXor),
    ast.Lt: (ast.LtE, ast.Gt, ast.GtE, ast.NotEq),
    ast.LtE: (ast.Lt, ast.Gt, ast.GtE, ast.Eq),
    ast.Gt: (ast.GtE, ast.Lt, ast.LtE, ast.NotEq),
    ast.GtE: (ast.Gt, ast.Lt, ast.LtE, ast.Eq),
    ast.Eq: (ast.NotEq, ast.LtE, ast.GtE),
    ast.NotEq: (ast.Eq, ast.Lt, ast.Gt),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
ORDER_COUNTS = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult)
ORDER_IS_FREE = ("min", "max", "transpose")
# Functions, methods and keywords that are taken for each other
ALIKE = [
    *("min max", "minimum maximum", "amin amax", "argmin argmax", "any all", "sum mean"),
    *("sin cos", "softmax log_softmax", "ceil floor", "floor round", "int round", "rsqrt sqrt"),
    *("square abs", "exp log", "log log2", "sigmoid tanh", "erf tanh", "cumsum cumprod"),
    *(
        "zeros ones",
        "zeros_like ones_like",
        "new_zeros new_ones",
        "cat stack",
        "step zero_grad",
    ),
    *("repeat_interleave repeat", "repeat tile", "float double", "float half", "long int"),
    *("view_as expand_as", "unsqueeze squeeze", "topk sort", "mT mH"),
]
DTYPES = ("float32", "float64", "float16", "bfloat16")
HOLDERS = ("self", "config")  # whose fields are taken for each other
MODULES = ("torch", "F", "math", "nn", "nn.init", "nn.utils", "torch.optim")


def faults(node: ast.AST) -> Iterator[Fault]:
    """Everything that could stand in the place of this node, or of a part that it alone has."""
    match node:
        case ast.BinOp(left, op, right):
            for other in OTHER_OPERATORS[type(op)]:
                yield "operator", node, changed(node, op=other())
            if isinstance(op, ORDER_COUNTS):
                yield "swapped", node, changed(node, left=right, right=left)
            yield "operand dropped", node, left
            yield "operand dropped", node, right
        case ast.UnaryOp(ast.USub(), ast.Constant(value)):
            yield from (("constant", node, ast.Constant(n)) for n in constants(-value))
        case ast.UnaryOp(_, operand):
            yield "sign", node, operand
        case ast.Compare(_, [op], _):
            for other in OTHER_OPERATORS[type(op)]:
                yield "comparison", node, changed(node, ops=[other()])
        case ast.Compare(left, [first, second], [middle, right]):
            yield "comparison", node, changed(node, ops=[first], comparators=[middle])
            yield "comparison", node, ast.Compare(middle, [second], [right])
            for other in OTHER_OPERATORS[type(first)]:
                yield "comparison", node, changed(node, ops=[other(), second])
            for other in OTHER_OPERATORS[type(second)]:
                yield "comparison", node, changed(node, ops=[first, other()])
        case ast.BoolOp(op, values):
            yield "condition", node, changed(node, op=OTHER_OPERATORS[type(op)][0]())
            for fewer in one_dropped(values):
                whole = changed(node, values=fewer)
                yield "condition", node, whole if len(fewer) > 1 else fewer[0]
        case ast.IfExp(_, body, orelse):
            yield "condition", node, body
            yield "condition", node, orelse
            yield "condition", node, changed(node, body=orelse, orelse=body)
        case ast.Constant(value):
            yield from (("constant", node, ast.Constant(other)) for other in constants(value))
        case ast.Call():
            yield from (("call", node, other) for other in other_calls(node))
        case ast.Subscript():
            yield from (("subscript", node, other) for other in other_subscripts(node))
        case ast.Tuple(parts) | ast.List(parts) if not any(map(is_slice, parts)):
            yield from (("swapped", node, changed(node, elts=e)) for e in swapped(parts))
            if isinstance(node.ctx, ast.Load) and len(parts) > 1:
                for fewer in one_dropped(parts):
                    yield "part dropped", node, changed(node, elts=fewer)
        case ast.Attribute(ast.Name("torch"), name) if name in DTYPES:
            for other in DTYPES:
                yield "dtype", node, changed(node, attr=other)
        case ast.Attribute(ast.Name("torch"), "inf"):
            yield "constant", node, ast.Constant(1e4)
        case ast.Attribute(_, "dtype"):
            yield "dtype", node, ast.parse("torch.float32", mode="eval").body
        case ast.stmt():
            yield from statement_faults(node)
        case ast.comprehension(_, iterable):
            yield from (("loop", iterable, other) for other in shorter(iterable))


def constants(value: Any) -> list[Any]:
    """Numbers near a number, the other truth, another text."""
    others: list[Any] = []
    match value:
        case bool():
            others = [not value]
        case int():
            others = [value + 1, value - 1, -value, 2 * value]
        case float():
            others = [value + 1, value * 2, value / 2, -value, 0.0]
        case str():
            others = [value + "_"]
    return [other for other in others if other != value]


def other_calls(node: ast.Call) -> Iterator[ast.expr]:
    """The call dropped, with an argument less, two exchanged, or of another function."""
    function, arguments, keywords = node.func, node.args, node.keywords
    name = getattr(function, "attr", getattr(function, "id", ""))
    if isinstance(function, ast.Attribute) and ast.unparse(function.value) not in MODULES:
        yield function.value
    yield from (a for a in arguments if not isinstance(a, (ast.Starred, ast.GeneratorExp)))
    yield from (changed(node, args=fewer) for fewer in one_dropped(arguments))
    yield from (changed(node, keywords=fewer) for fewer in one_dropped(keywords))
    if name not in ORDER_IS_FREE:
        yield from (changed(node, args=order) for order in swapped(arguments))
    for number, keyword in enumerate(keywords):
        for other in alike(keyword.arg or ""):
            yield changed(node, keywords=put(keywords, number, changed(keyword, arg=other)))
    for other in alike(name):
        field = "attr" if isinstance(function, ast.Attribute) else "id"
        yield changed(node, func=changed(function, **{field: other}))
    if ast.unparse(function) in ("range", "torch.arange"):
        for number, argument in enumerate(arguments):
            for other in neighbours(argument):
                yield changed(node, args=put(arguments, number, other))


def other_subscripts(node: ast.Subscript) -> Iterator[ast.expr]:
    """No subscript, one of its parts left out, moved by one, or exchanged with the next."""
    if isinstance(node.ctx, ast.Load):
        yield node.value
    if not isinstance(node.slice, ast.Tuple):
        yield from (changed(node, slice=other) for other in other_slices(node.slice))
        return
    parts = node.slice.elts
    several = [put(parts, n, other) for n, p in enumerate(parts) for other in other_slices(p)]
    for new in (*several, *one_dropped(parts), *swapped(parts)):
        yield changed(node, slice=changed(node.slice, elts=new))


def other_slices(part: ast.expr) -> Iterator[ast.expr]:
    if not isinstance(part, ast.Slice):
        return
    for field in ("lower", "upper", "step"):
        bound = getattr(part, field)
        if bound is not None and ast.unparse(bound) != "0":
            yield from (changed(part, **{field: new}) for new in (None, *neighbours(bound)))


def statement_faults(node: ast.stmt) -> Iterator[Fault]:
    match node:
        case ast.ClassDef():
            return
        case ast.FunctionDef(_, arguments):
            for default in (*arguments.defaults, *arguments.kw_defaults):
                if isinstance(default, ast.Constant) and default.value is None:
                    yield "default", default, ast.Constant(1)
            return
        case ast.If(test):
            for other in (ast.Constant(True), ast.Constant(False), negated(test)):
                yield "condition", test, other
        case ast.For(_, iterable):
            yield from (("loop", iterable, other) for other in shorter(iterable))
        case ast.AugAssign(target, op, value):
            for other in OTHER_OPERATORS[type(op)]:
                yield "operator", node, changed(node, op=other())
            yield "operator", node, ast.Assign([target], value, lineno=node.lineno)
        case ast.Break():
            yield "loop", node, ast.Continue()
        case ast.Continue():
            yield "loop", node, ast.Break()
        case ast.Raise(ast.Call(kind, [text])):
            yield "error", kind, ast.Name("RuntimeError")
            yield "error", text, ast.Constant("")
    yield "statement deleted", node, ast.Pass()


def mistaken_names(function: ast.FunctionDef, parts: list[ast.AST]) -> Iterator[Fault]:
    """In these parts of a function: each variable taken for each other one, each field of
    `self` and of the config for each other one that is used."""
    names = bound_in(function)
    read: dict[str, list[ast.expr]] = defaultdict(list)
    for node in parts:
        match node:
            case ast.Name(name, ast.Load()) if name in names:
                read["a variable"].append(node)
            case ast.Attribute(base, _, ast.Load()) if ast.unparse(base).endswith(HOLDERS):
                read[ast.unparse(base)].append(node)
    for nodes in read.values():
        for other in dict.fromkeys(map(ast.unparse, nodes)):
            for node in nodes:
                yield "mistaken name", node, ast.parse(other, mode="eval").body


def bound_in(function: ast.FunctionDef) -> set[str]:
    """The parameters and the variables of a function."""
    nodes = list(ast.walk(function))
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return stored | {n.arg for n in nodes if isinstance(n, ast.arg)} - {"self"}


def neighbours(number: ast.expr) -> list[ast.expr]:
    """One more and one less than a number that is not written out."""
    if isinstance(number, (ast.Constant, ast.UnaryOp)):
        return []
    one = ast.Constant(1)
    return [ast.BinOp(number, ast.Add(), one), ast.BinOp(number, ast.Sub(), one)]


def shorter(iterable: ast.expr) -> Iterator[ast.expr]:
    """Without its first one, without its last one."""
    whole = ast.Call(ast.Name("list"), [iterable], [])
    yield ast.Subscript(whole, ast.Slice(ast.Constant(1)))
    yield ast.Subscript(whole, ast.Slice(None, ast.Constant(-1)))


def negated(test: ast.expr) -> ast.expr:
    return test.operand if isinstance(test, ast.UnaryOp) else ast.UnaryOp(ast.Not(), test)


def one_dropped(items: list[Any]) -> Iterator[list[Any]]:
    for number in range(len(items)):
        yield items[:number] + items[number + 1 :]


def swapped(items: list[Any]) -> Iterator[list[Any]]:
    """Two that stand side by side, exchanged."""
    for number, (first, second) in enumerate(pairwise(items)):
        yield [*items[:number], second, first, *items[number + 2 :]]


def put(items: list[Any], number: int, item: Any) -> list[Any]:
    return [*items[:number], item, *items[number + 1 :]]


def alike(name: str) -> Iterator[str]:
    for pair in map(str.split, ALIKE):
        if name in pair:
            yield pair[1 - pair.index(name)]


def is_slice(node: ast.AST) -> bool:
    return isinstance(node, ast.Slice)


def changed(node: Node, **fields: Any) -> Node:
    """A copy of the node with other fields."""
    return type(node)(**{**vars(node), **fields})
