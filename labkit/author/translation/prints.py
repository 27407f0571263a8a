"""Translates the texts that a notebook's code prints, by changing the code.

An f-string is a message with placeholders: f"layer {i}" is "layer {0}". The white space around
a text
is not part of the message.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator

from rich.cells import cell_len

from labkit.author.translation.labels import WRITTEN, is_prose
from labkit.course.lang import ENGLISH, language, tr
from labkit.course.lang.layout import pad

PLACE = re.compile(r"\{(\d)\}")
# a place in the source of an f-string, {name:{width}}
SOURCE_PLACE = re.compile(r"(?<!\{)\{(?!\{)(?:[^{}]|\{[^{}]*\})*\}")
WIDTH = 72


def printed_texts(source: str) -> Iterator[str]:
    """Yield the messages of one cell, in order."""
    for node in printed_nodes(ast.parse(source)):
        yield from filter(None, map(message_of, (node, *words_in(node))))


def printed_nodes(tree: ast.AST) -> list[ast.expr]:
    """Return the texts that a cell prints, directly or through a loop over words, in order."""
    found = []
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print"
    ]
    for call in calls:
        for argument in call.args:
            found += literals(argument)
    shown = {argument for call in calls for argument in call.args}
    shown |= {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg in WRITTEN
    }
    shown |= {
        node.value
        for call in calls
        for node in ast.walk(call)
        if isinstance(node, ast.FormattedValue)
    }
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For):
            found += words_of(loop, tree, shown)
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def literals(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the strings that an argument of print can be, not those that it computes with."""
    match node:
        case ast.Constant(str()) | ast.JoinedStr():
            yield node
        case ast.BinOp(left, ast.Add(), right) | ast.IfExp(_, left, right):
            yield from literals(left)
            yield from literals(right)


def words_of(loop: ast.For, tree: ast.AST, shown: set[ast.expr]) -> Iterator[ast.Constant]:
    """Yield the words of `for name, x in (("plain", 1), ("tiles", 2))`, if the name is only
    shown, printed or as a label, and no key of a table."""
    targets = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
    rows = loop.iter.elts if isinstance(loop.iter, (ast.Tuple, ast.List)) else []
    for column, target in enumerate(targets):
        uses = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and node.id == ast.unparse(target) and node != target
        ]
        if uses and shown.issuperset(uses):
            for row in rows:
                word = row.elts[column] if isinstance(row, ast.Tuple) else row
                if isinstance(word, ast.Constant) and isinstance(word.value, str):
                    yield word


def words_in(node: ast.expr) -> Iterator[ast.Constant]:
    """Yield the words between which the places of an f-string choose."""
    for piece in getattr(node, "values", []):
        match piece:
            case ast.FormattedValue(ast.IfExp(_, body, orelse)):
                yield from (word for word in (body, orelse) if isinstance(word, ast.Constant))


def text_of(node: ast.expr) -> str:
    """Return the text of a literal, {0}, {1} ... for its places."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    numbers = iter(range(10))
    pieces = (
        piece.value if isinstance(piece, ast.Constant) else f"{{{next(numbers)}}}"
        for piece in node.values
    )
    return "".join(pieces)


def message_of(node: ast.expr) -> str:
    """Return the message of a text; "" if it is not prose."""
    text = text_of(node).strip()
    return text if is_prose(text) else ""


def with_prints(source: str) -> str:
    """Return the cell, changed to print in the current language."""
    if language() == ENGLISH:
        return source
    lines = source.encode().split(b"\n")  # a node's columns count bytes
    for node in reversed(printed_nodes(ast.parse(source))):
        first, last = node.lineno - 1, node.end_lineno - 1
        before, behind = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
        old = ast.get_source_segment(source, node)
        text = literal(node, old, len(before.decode())) if message_of(node) else old
        lines[first : last + 1] = (before + text.encode() + behind).split(b"\n")
    return b"\n".join(lines).decode()


def literal(node: ast.expr, old: str, column: int) -> str:
    """Return source code of the translated text; on several lines if the old source is."""
    if isinstance(node, ast.Constant):
        return json.dumps(translated(node), ensure_ascii=False)
    places = SOURCE_PLACE.findall(old)
    for word in words_in(node):
        places = [place.replace(word.value, translated(word)) for place in places]
    rows = [""]
    for piece in re.split(r"(\{\d\})", translated(node)):
        escaped = json.dumps(piece.replace("{", "{{").replace("}", "}}"), ensure_ascii=False)
        place = PLACE.fullmatch(piece)
        part = places[int(place[1])] if place else escaped[1:-1]
        if "\n" in old and column + cell_len(rows[-1] + part) > WIDTH:
            rows.append("")
        rows[-1] += part
    return f"\n{' ' * column}".join(f'f"{row}"' for row in rows)


def translated(node: ast.expr) -> str:
    """Return its text in the current language, with the white space around it.

    Several spaces behind a text align the next one: then it keeps its width.
    """
    text, message = text_of(node), message_of(node)
    spoken = text.replace(message, tr(message)) if message else text
    return pad(spoken.rstrip(" "), cell_len(text)) if text.endswith("  ") else spoken
