"""The labels of the notebooks' figures: texts that a cell writes into a picture.

An f-string is a message with placeholders, f"layer {i}" is "layer {0}"; one that chooses
between two words is two messages. Names, formulas and numbers are not messages.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

# keywords whose texts are shown; texts of a method's other keywords are settings
WRITTEN = {"label", "labels", "title", "xlabel", "ylabel", "xticklabels", "yticklabels"}
SILENT = ("print", "repr", "outcome", "compare")  # functions whose arguments no figure shows
WORD = re.compile(r"\b[A-Za-z][a-z]{2,}\b(?!\()|\b[a-z]{2} [a-z]{2}\b")
# not prose: keys of captions and colors, formulas and placeholders
NO_PROSE = re.compile(r"\d+\.[\w-]+|\w+_\w+|#\w+|<.*>|\S+[.]weight")
APART = re.compile(r"\$[^$]*\$|\{\d\}")
TABLES = (ast.Dict, ast.Tuple)
CODE = {
    *("equal", "auto", "off", "log", "symlog", "nearest"),  # settings
    *("Where is the", "bananas and", "abcdefgh", "Once upon a time, there was a", "Anna had"),
    *("nothing", ".weight", "model."),
    *("mine", "wrong", "mlp", "gate", "up", "relu", "gelu", "silu", "swish", "geglu", "swiglu"),
    *("cos", "inf", "-inf", "raw", "scaled", "pre", "post", "sandwich", "deepnorm"),
    *("x cos", "rotate_half(x) sin", "parallel", "placement", "system", "user", "assistant"),
    *("dog", "bites", "man", "Transformer-XL", "Python"),  # data
}


def labels_of(cells: list[str]) -> list[str]:
    """Return the texts in the figures of a notebook's code cells, in order."""
    trees = [ast.parse(cell) for cell in cells]
    drawing = [tree for tree in trees if names_in(tree) & {"show", "axis"}]
    drawn = set().union(*map(names_in, drawing))
    found: list[str] = []
    for tree in trees:
        if tree in drawing:
            found += texts_in(tree)
            continue
        for node in tree.body:  # a table that a later cell draws
            if isinstance(node, ast.Assign) and drawn & names_in(node.targets[0]):
                found += texts_in(node.value) if isinstance(node.value, TABLES) else ()
    return [text for text in dict.fromkeys(found) if is_prose(text)]


def is_prose(text: str) -> bool:
    known = text not in CODE and not NO_PROSE.fullmatch(text)
    return bool(known and len(text) > 2 and WORD.search(APART.sub(" ", text)))


def names_in(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def texts_in(node: ast.AST) -> Iterator[str]:
    """Yield the texts of a piece of code that a figure may show."""
    match node:
        case ast.Call(ast.Name(name)) if name in SILENT:
            return
        case ast.Compare() | ast.Assert() | ast.Raise() | ast.Expr(ast.Constant()):
            return
        case ast.keyword(name) if name not in WRITTEN:
            return
        case ast.Subscript(value):
            yield from texts_in(value)
        case ast.Constant(str()) | ast.JoinedStr() | ast.BinOp(op=ast.Add()):
            for parts in variants(node):
                places = iter(range(10))
                yield "".join(f"{{{next(places)}}}" if p is None else p for p in parts)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from texts_in(child)


def variants(node: ast.AST) -> list[list[str | None]]:
    """Return the possible texts of a node in pieces; None for one known only at run time."""
    match node:
        case ast.Constant(str(text)):
            return [[text]]
        case ast.FormattedValue(ast.IfExp(_, body, orelse)):
            return [*variants(body), *variants(orelse)]
        case ast.JoinedStr(pieces):
            pass
        case ast.BinOp(left, ast.Add(), right):
            pieces = [left, right]
        case _:
            return [[None]]
    found = [[]]
    for piece in pieces:
        found = [[*before, *after] for before in found for after in variants(piece)]
    return found
