"""The labels of the notebooks' figures: what the cells that draw write into a picture.

An f-string is a message with places, f"layer {i}" is "layer {0}"; one that chooses between two
words is two messages. Names, formulas and numbers are none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

# of a method's arguments, those of these are written
WRITE = {
    *("text", "annotate", "legend", "suptitle", "set_title", "set_xlabel", "set_ylabel"),
    *("set_xticks", "set_yticks", "set_xticklabels", "set_yticklabels"),
}
WRITTEN = {"label", "labels", "title", "xlabel", "ylabel", "xticklabels", "yticklabels"}
WORD = re.compile(r"\b[A-Za-z][a-z]{2,}\b(?!\()|\b[a-z]{2} [a-z]{2}\b")
# no prose: keys of captions and colours, formulas and places
NO_PROSE = re.compile(r"\d+\.[\w-]+|\w+_\w+|#\w+|<.*>|\S+[.]weight")
APART = re.compile(r"\$[^$]*\$|\{\d\}")
CODE = {
    *("mine", "wrong", "mlp", "gate", "up", "relu", "gelu", "silu", "swish", "geglu", "swiglu"),
    *("cos", "inf", "-inf", "raw", "scaled", "pre", "post", "sandwich", "deepnorm"),
    *("x cos", "rotate_half(x) sin", "parallel", "placement", "system", "user", "assistant"),
    *("dog", "bites", "man", "Transformer-XL", "Python"),  # data
}


def labels_of(cells: list[str]) -> list[str]:
    """What the figures of a notebook's code cells say, in order."""
    trees = [ast.parse(cell) for cell in cells]
    drawing = [tree for tree in trees if "show" in _names(tree) or "axis" in _names(tree)]
    used = set().union(*map(_names, drawing))
    found = []
    for tree in trees:
        if tree in drawing:
            found += _said(tree)
            continue
        for node in tree.body:  # a table that a later cell draws
            if not isinstance(node, ast.Assign) or not used & _names(node.targets[0]):
                continue
            if isinstance(node.value, (ast.Dict, ast.Tuple)):
                found += _said(node.value)
    return [text for text in dict.fromkeys(found) if is_prose(text)]


def is_prose(text: str) -> bool:
    bare = APART.sub(" ", text)
    known = text not in CODE and not NO_PROSE.fullmatch(text)
    return bool(known and len(text) > 2 and WORD.search(bare))


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _said(node: ast.AST, held: bool = False) -> Iterator[str]:
    """The texts of a piece of code that may be written; `held`: of a text in it, too."""
    if isinstance(node, ast.Constant):
        if held and isinstance(node.value, str):
            yield node.value
    elif isinstance(node, ast.JoinedStr) or _is_sum(node):
        for parts in _variants(node):
            places = iter(range(10))
            yield "".join(f"{{{next(places)}}}" if each is None else each for each in parts)
    elif isinstance(node, ast.Call):
        name = getattr(node.func, "id", "")
        if name in ("print", "repr", "outcome", "compare"):
            return
        held = bool(name) or getattr(node.func, "attr", "") in WRITE
        for argument in node.args:
            yield from _said(argument, held)
        for word in node.keywords:
            yield from _said(word.value, True) if word.arg in WRITTEN else ()
    elif isinstance(node, (ast.Compare, ast.Assert, ast.Raise)):
        return
    elif isinstance(node, ast.Subscript):
        yield from _said(node.value)
    elif isinstance(node, ast.IfExp):
        yield from _said(node.body, held)
        yield from _said(node.orelse, held)
    elif isinstance(node, ast.Dict):
        for each in (*node.keys, *node.values):
            yield from _said(each, each in node.keys) if each else ()
    else:
        holds = isinstance(node, (ast.Tuple, ast.List))
        for each in ast.iter_child_nodes(node):
            yield from _said(each, holds)


def _is_sum(node: ast.AST) -> bool:
    """Whether it is a text + something."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Add)
        and any(
            isinstance(each, (ast.JoinedStr, ast.Constant)) for each in (node.left, node.right)
        )
        and any(
            isinstance(each, ast.Constant) and isinstance(each.value, str)
            for each in ast.walk(node)
        )
    )


def _variants(node: ast.AST) -> list[list[str | None]]:
    """What it can say, in pieces; None: what is known only when it runs."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [[node.value]]
    if isinstance(node, ast.JoinedStr):
        pieces = node.values
    elif _is_sum(node):
        pieces = [node.left, node.right]
    elif isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.IfExp):
        return [*_variants(node.value.body), *_variants(node.value.orelse)]
    else:
        return [[None]]
    found = [[]]
    for piece in pieces:
        found = [[*before, *after] for before in found for after in _variants(piece)]
    return found
