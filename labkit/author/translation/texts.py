"""Translates texts that are authored as a whole: cells and docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from labkit.course.lang import ENGLISH, language, tr
from labkit.course.lang.layout import wrap_text

WIDTH = 92
# the beginning of a contract, which stays as it is, as do indented lines
CONTRACT = re.compile(r"(?:[A-Z]\w*|dtype):|\s")
HOLDERS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings(source: str) -> Iterator[ast.Constant]:
    """Yield the nodes of all docstrings, the first one first."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, HOLDERS) and ast.get_docstring(node, clean=False):
            yield node.body[0].value


def paragraphs(docstring: str, indent: int) -> list[tuple[str, str]]:
    """Return its paragraphs as (text, text in one line); the latter is "" if it is not
    prose."""
    found = []
    margin = " " * indent
    for block in re.split(r"\n[ \t]*\n", docstring.rstrip()):
        text = "\n".join(line.removeprefix(margin) for line in block.split("\n"))
        prose = not CONTRACT.match(text.lstrip("\n")) and "\n " not in text
        found.append((text, " ".join(text.split()) if prose else ""))
    return found


def prose_of(source: str) -> Iterator[str]:
    """Yield every paragraph of prose in its docstrings."""
    for node in docstrings(source):
        yield from (text for _, text in paragraphs(node.value, node.col_offset) if text)


def with_docstrings(source: str) -> str:
    """Return the code with the prose of its docstrings in the current language."""
    if language() == ENGLISH:
        return source
    lines = source.split("\n")
    for node in sorted(docstrings(source), key=lambda node: -node.lineno):
        lines[node.lineno - 1 : node.end_lineno] = _docstring(node).split("\n")
    return "\n".join(lines)


def _docstring(node: ast.Constant) -> str:
    indent = " " * node.col_offset
    blocks = []
    for text, prose in paragraphs(node.value, node.col_offset):
        translation = tr(prose) if prose else prose
        lines = text.split("\n")
        if translation != prose:
            lines = wrap_text(translation, WIDTH - len(indent))
        blocks.append("\n".join((indent + line).rstrip() for line in lines))
    text = "\n\n".join(blocks).removeprefix(indent)
    end = f"\n{indent}" if "\n" in text else ""
    return f'{indent}"""{text}{end}"""'


SECTION = re.compile(r"^(?=#+ )", re.MULTILINE)


def sections_of(page: str) -> list[str]:
    """A Markdown page in pieces, each from one heading to the next; joined, they are it."""
    return [piece for piece in SECTION.split(page) if piece]


def page(text: str) -> str:
    """Return a Markdown page, section by section, in the current language."""
    pieces = []
    for piece in sections_of(text):
        bare = piece.strip()
        pieces.append(piece.replace(bare, tr(bare)) if bare else piece)
    return "".join(pieces)
