"""Mutants: an exercise's cell of the reference with one fault in it, as text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from labkit.author.mutants.rules import faults
from labkit.course import cells

COMMENT = re.compile(r"\s+#(?: .*)?$", re.MULTILINE)
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Mutant:
    """One fault: `before` and `after` are the lines that differ, without their comments."""

    rule: str
    scope: str  # the function it is in: "RMSNorm.forward"
    before: str
    after: str
    cell: str

    @property
    def key(self) -> Key:
        """What it is known by; holds while its line and its function stay as they are."""
        return key_of(self.scope, self.before, self.after)

    @property
    def diff(self) -> str:
        lines = [f"- {line}" for line in self.before.splitlines()]
        return "\n".join(lines + [f"+ {line}" for line in self.after.splitlines()])


def key_of(scope: str, before: str, after: str) -> Key:
    return scope, " ".join(before.split()), " ".join(after.split())


def mutants(cell: str) -> Iterator[Mutant]:
    """Each different fault once, between the solution marks; a cell without marks is all the
    learner's. Docstrings, annotations and the texts of errors are left alone."""
    source = Source(cell)
    seen = {ast.dump(source.tree)}
    for scope, node in nodes(source.tree):
        for rule, old, new in faults(node):
            if source.is_given(old):
                continue
            text = source.spliced(old, ast.unparse(ast.fix_missing_locations(new)))
            tree = parsed(text)
            if tree is None or ast.dump(tree) in seen:
                continue
            seen.add(ast.dump(tree))
            before, after = differing(cell, text)
            yield Mutant(rule, scope, before, after, text)


class Source:
    """A cell as bytes, which is what the positions in a syntax tree count."""

    def __init__(self, cell: str):
        self.lines = [line.encode() for line in cell.splitlines(keepends=True)]
        self.tree = ast.parse(cell)
        places = [found.span() for found in cells.REGION.finditer(cell)]
        self.regions = [[cell.count("\n", 0, edge) + 1 for edge in span] for span in places]

    @cached_property
    def data(self) -> bytes:
        return b"".join(self.lines)

    def position(self, line: int, column: int) -> int:
        return sum(map(len, self.lines[: line - 1])) + column

    def is_given(self, node: ast.AST) -> bool:
        """Whether the course wrote it: all that is not between marks."""
        written = any(start <= node.lineno < end for start, end in self.regions)
        return bool(self.regions) and not written

    def spliced(self, old: ast.AST, text: str) -> str:
        """The cell with `text` in the place of `old`: in brackets where they make a
        difference, but never for their own sake."""
        start = self.position(old.lineno, old.col_offset)
        end = self.position(old.end_lineno, old.end_col_offset)
        head, tail = self.data[:start].decode(), self.data[end:].decode()
        bare, safe = f"{head}{text}{tail}", f"{head}({text}){tail}"
        trees = parsed(bare), parsed(safe)
        same = trees[1] is None or (trees[0] and ast.dump(trees[0]) == ast.dump(trees[1]))
        return bare if same else safe


def parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


def nodes(node: ast.AST, scope: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Every node that may be mutated, with the function that it is in."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        scope = f"{scope}.{node.name}".lstrip(".")
    yield scope, node
    for child in children(node):
        yield from nodes(child, scope)


def children(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node, without annotations and texts for people."""
    match node:
        case ast.AnnAssign():
            yield from [node.value] if node.value else []
        case ast.FunctionDef() | ast.ClassDef():
            yield from (statement for statement in node.body if not is_text(statement))
        case ast.JoinedStr() | ast.Raise() | ast.UnaryOp(ast.USub(), ast.Constant()):
            return
        case _:
            yield from ast.iter_child_nodes(node)


def is_text(statement: ast.stmt) -> bool:
    """A docstring."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def differing(before: str, after: str) -> tuple[str, str]:
    """The lines in which two texts differ, without comments and indentation."""
    old, new = lines_of(before), lines_of(after)
    while old and new and old[0] == new[0]:
        old, new = old[1:], new[1:]
    while old and new and old[-1] == new[-1]:
        old, new = old[:-1], new[:-1]
    return "\n".join(old), "\n".join(new)


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in COMMENT.sub("", text).splitlines()]
