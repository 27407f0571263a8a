"""The code of a notebook's cell, as Python reads it.

Parsed with `ast`, since a pattern would mistake a string for code. The price is that a
cell with one wrong bracket has no names at all.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import lru_cache

from labkit.course.lang import tr

# Valid in IPython and not in Python: %time f(x), !ls, files = !ls, x?, ?x; and the
# fence around code that was pasted from a page
MAGIC = re.compile(
    r"^(?P<indent>[ \t]*)(?:\w[\w., \t]*=[ \t]*)?[%!][^\n]*$|^[^\n#]*\?{1,2}[ \t]*$"
    r"|^[ \t]*\?{1,2}[\w.]+[ \t]*$|^[ \t]*```[\w ]*$",
    re.MULTILINE,
)
# Quotes of word processors and spaces of pages, and Python's instead of them
TYPESET = str.maketrans(dict.fromkeys("\u201c\u201d\u201e\u201f", '"'))
TYPESET |= str.maketrans(dict.fromkeys("\u2018\u2019\u201a\u201b", "'"))
TYPESET |= str.maketrans(dict.fromkeys("\u00a0\u2007\u202f\u3000", " "))
# The beginning of a line that only Python 3.12 and later understand
GENERIC = re.compile(
    r"^[ \t]*(?:(?:async +)?def|class) +\w+\[|^[ \t]*type +\w+(?:\[.*\])? *=", re.MULTILINE
)
PROMPT = re.compile(r"^(?:>>> ?|\.\.\. ?|In \[\d*\]: ?)", re.MULTILINE)
CACHED = 16  # texts: a submission is parsed many times
TOOLS = (
    *("start", "predict", "outcome", "check", "hint", "solution", "assemble"),
    *("finish", "status"),
)


@lru_cache(CACHED)
def without_tools(cell: str) -> str:
    """Return the cell as it goes into a module: without magics and without check("1.2").

    Lines are blanked, not removed, so that line numbers stay those of the cell.
    """
    cell = cell.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    text = next(filter(parsed, _readings(cell)), "")
    tree = parsed(text)
    if not text or tree is None:
        return cell
    lines = text.split("\n")
    for node in tree.body:
        if _calls_a_tool(node):
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = ""
    return "\n".join(lines)


def _readings(cell: str) -> Iterator[str]:
    """Yield the cell as plain Python, then as IPython transforms it."""
    yield cell
    text = MAGIC.sub(lambda magic: f"{magic['indent']}pass" if magic["indent"] else "", cell)
    yield text
    yield PROMPT.sub("", text)
    yield textwrap.dedent(text)


def _calls_a_tool(node: ast.stmt) -> bool:
    """check("1.2") and the like at the top level of a cell; also their import."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "labkit.learner.notebook"
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    return isinstance(node.value.func, ast.Name) and node.value.func.id in TOOLS


@lru_cache(CACHED)
def parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def why_no_python(cell: str) -> str:
    """Return why code that looks right is not valid Python here: characters of a word processor
    or a page, or syntax of a later version; "" for any other code."""
    if parsed(without_tools(cell)):
        return ""
    if parsed(without_tools(cell.translate(TYPESET))):
        found = min((cell.index(each), each) for each in map(chr, TYPESET) if each in cell)
        number = cell[: found[0]].count("\n") + 1
        if found[1].isspace():
            return tr("line {number} has a no-break space, as pages do: type a plain space",
                      number=number)  # fmt: skip
        return tr("line {number} has {found}, a quote of a word processor: type ' or \"",
                  number=number, found=found[1])  # fmt: skip
    if sys.version_info < (3, 12) and (generic := GENERIC.search(cell)):
        number, version = cell[: generic.start()].count("\n") + 1, sys.version_info
        return tr("line {number} needs Python 3.12, and this is {major}.{minor}",
                  number=number, major=version.major, minor=version.minor)  # fmt: skip
    return ""


@lru_cache(CACHED)
def fingerprint(cell: str) -> str | None:
    """Return a hash of the code without comments, docstrings and layout; None if it does
    not parse. It is the same within one version of Python."""
    try:
        tree = ast.parse(without_tools(cell))
        for node in ast.walk(tree):
            if isinstance(body := getattr(node, "body", None), list):
                node.body = [statement for statement in body if not _is_docstring(statement)]
        return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def defined_names(source: str) -> list[str]:
    """Return the names that a cell defines at its top level; [] if it does not parse."""
    tree = parsed(source)
    return [] if tree is None else [name for node in tree.body for name in _names(node)]


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [(alias.asname or alias.name).split(".")[0] for alias in node.names]
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def used_names(tree: ast.AST) -> set[str]:
    """Return the names that the code mentions, wherever they come from."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
