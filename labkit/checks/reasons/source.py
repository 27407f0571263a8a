"""Measure how much of a mistake's edit is found in the learner's own code."""

from __future__ import annotations

import ast
import io
import re
import textwrap
import tokenize
from collections import Counter
from collections.abc import Hashable
from functools import cache

from labkit.checks.mistakes import Version, reference_cell
from labkit.course import cells

EMPTY = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
EMPTY |= {tokenize.ENDMARKER}
CALLED = {"call", "attribute", "keyword"}  # kinds of parts that a learner's own names can hide
NEUTRAL = (ast.Name, ast.Constant, ast.Attribute, ast.Call, ast.keyword, ast.expr_context)
NEUTRAL += (ast.arguments, ast.arg, ast.Module, ast.Expr, ast.Assign, ast.alias, ast.Starred)
NEUTRAL += (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.FunctionDef, ast.Return)
FUNCTION = re.compile(r" *(async )?def ")
UNCLEAR = 0.5  # share of an edit if nothing is known
Parts = Counter[tuple[str, Hashable]]


@cache
def parts_of(cell: str) -> Parts:
    """Count the parts of a cell: calls, attributes, keywords, constants, arguments, operators
    and statements; empty if it is not valid Python."""
    tree = cells.parsed(cells.without_tools(cell))
    found: Parts = Counter()
    for node in ast.walk(tree) if tree else ():
        found.update(_parts(node))
    return found


def _parts(node: ast.AST) -> list[tuple[str, Hashable]]:
    if isinstance(node, ast.Call):
        function = node.func
        name = getattr(function, "attr", None) or getattr(function, "id", "")
        return [("call", name)]
    if isinstance(node, ast.keyword):
        return [("keyword", node.arg)]
    if isinstance(node, ast.Attribute):
        return [("attribute", node.attr)]
    if isinstance(node, ast.Name):
        return [("name", node.id)]
    if isinstance(node, ast.Constant):
        is_text = isinstance(node.value, str) and "\n    " in node.value  # a docstring
        return [] if is_text else [("constant", repr(node.value))]
    if isinstance(node, NEUTRAL):
        return []
    return [("node", type(node).__name__)]


@cache
def changes_of(version: Version) -> tuple[Parts, Parts]:
    """Return the parts that a mistake adds to the reference, and those that it removes."""
    before, after = _right_cell(version).split("\n"), version.cell.split("\n")
    head = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    rest = zip(reversed(before[head:]), reversed(after[head:]), strict=False)
    tail = next((n for n, (a, b) in enumerate(rest) if a != b), 0)
    try:
        old, new = (_parts_around(lines, head, len(lines) - tail) for lines in (before, after))
    except SyntaxError:  # an edit across several functions
        old, new = parts_of(_right_cell(version)), parts_of(version.cell)
    return new - old, old - new


def _parts_around(lines: list[str], head: int, end: int) -> Parts:
    """Return the parts of the functions that contain the lines from `head` to `end`; parsing
    the whole cell for each mistake would take too long."""
    start = next((n for n in range(head - 1, 0, -1) if FUNCTION.match(lines[n])), 0)
    width = len(lines[start]) - len(lines[start].lstrip())
    after = (n for n in range(end, len(lines)) if start and lines[n][: width + 1].strip(" )"))
    return _parts_in(textwrap.dedent("\n".join(lines[start : next(after, len(lines))])))


@cache
def _parts_in(text: str) -> Parts:
    return Counter(part for node in ast.walk(ast.parse(text)) for part in _parts(node))


def share_found(version: Version, cell: str) -> float:
    """Return the share of an edit's changes that the learner's code shows, compared with the
    reference: 1 for all, 0 for none, half as much if the edit reads an argument that the code
    never reads, below 0 if it calls something that does not occur in the code."""
    found = parts_of(cell)
    if not found:
        return UNCLEAR
    added, gone = changes_of(version)
    if any(kind in CALLED and not found[kind, name] for kind, name in added):
        return -1.0
    right = parts_of(_right_cell(version))
    arguments = {("name", name) for name in _arguments(_right_cell(version))}
    missing = {part for part in [*added, *gone] if part[0] == "name" and not found[part]}
    local = missing - arguments
    changed = [part for part in [*added, *gone] if part not in local]
    if not changed:  # only order differs, or names of the reference
        written = [text for _, text in version.edits if text]
        return 1.0 if all(_bare(text) in _bare(cell) for text in written) else UNCLEAR
    shown = [part for part in added if part not in local and found[part] > right[part]]
    shown += [part for part in gone if part not in local and found[part] < right[part]]
    unread = [part for part in arguments if right[part] and not found[part]]
    reads_more = any(right[part] > gone[part] for part in unread)
    return len(shown) / len(changed) / (1 + reads_more)


def is_refuted(version: Version, cell: str) -> bool:
    """Whether a mistake only drops an argument that the code reads like the reference."""
    added, gone = changes_of(version)
    reference = _right_cell(version)
    right, found = _reads(reference), _reads(cell)
    arguments = {name for name in _arguments(reference) if ("name", name) in gone}
    unread = {name for name in arguments if gone["name", name] >= right[name]}
    if not unread or any(kind != "constant" for kind, _ in added):
        return False
    return all(found[name] >= right[name] for name in unread)


@cache
def _arguments(cell: str) -> set[str]:
    return {node.arg for node in _nodes(cell) if isinstance(node, ast.arg)} - {"self"}


def _nodes(cell: str) -> list[ast.AST]:
    return [*ast.walk(cells.parsed(cells.without_tools(cell)) or ast.Module([], []))]


@cache
def _reads(cell: str) -> Counter[str]:
    """Count how often each name is read, without comparisons with None and defaults such as `if
    x is None: x = ...`."""
    nodes, asked = _nodes(cell), set[ast.AST]()
    for node in nodes:
        if isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]) == "None":
            asked |= {*ast.walk(node)}
    names = (node for node in nodes if isinstance(node, ast.Name) and node not in asked)
    return Counter(node.id for node in names if isinstance(node.ctx, ast.Load))


def _right_cell(version: Version) -> str:
    return reference_cell(version.mistake.lab, version.mistake.exercise)


def raises(cell: str, line: int | None) -> bool:
    """Whether a line of the cell raises an error itself, with the learner's own message."""
    text = cell.splitlines()[line - 1 : line] if line else []
    return bool(re.search(r"\b(raise|assert)\b", "".join(text)))


def occurs_in(expression: str, cell: str) -> bool:
    """Whether a mistake's expression may be quoted: a number, or one in the learner's code."""
    try:
        float(expression)
    except ValueError:
        return not cell or _bare(expression) in _bare(cell)
    return True


@cache
def _bare(text: str) -> str:
    """Return Python code without spaces and comments."""
    try:
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        return " ".join(
            t.string for t in tokens if t.type != tokenize.COMMENT and t.string.strip()
        )
    except (tokenize.TokenError, SyntaxError):
        return " ".join(text.split())
