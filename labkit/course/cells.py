"""Exercise cells: text that begins with a directive and travels between notebook and module.

A module such as tinyllm/rmsnorm.py is a row of blocks, each opened by a comment line:

    # %% exercise 1.2: RMSNorm        a block that the learner writes
    # %% given: rotary tables         code that the course gives

An exercise cell of a notebook is such a block, word for word.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import pairwise

from labkit.course.lang import tr
from labkit.course.paths import TESTS
from labkit.course.syllabus import Exercise

GIVEN = TESTS / "visible" / "given.json"

DIRECTIVE = re.compile(r"^# %%[ \t]*(?:exercise[ \t]+(\d+\.\d+)|given)\b[^\n]*$", re.MULTILINE)
REGION = re.compile(
    r"^(?P<indent>[ \t]*)### BEGIN SOLUTION[ \t]*\n"
    r"(?P<body>.*?)^[ \t]*### END SOLUTION[ \t]*\n?",
    re.MULTILINE | re.DOTALL,
)
# Of a bug hunt, in a solution: the lines with the bug, with which the learner begins
INSTEAD = re.compile(r"^[ \t]*### INSTEAD\n((?:[ \t]*# [^\n]*\n)+)", re.MULTILINE)
COMMENT = re.compile(r"^([ \t]*)# ", re.MULTILINE)
MARK = re.compile(r"^[ \t]*### (?:BEGIN|END) SOLUTION[ \t]*\n?", re.MULTILINE)
TODO = "# YOUR CODE HERE"
EMPTY_ANSWER = "YOUR ANSWER HERE"  # of a written question
RAISE = "raise NotImplementedError("  # is in every stub
FUTURE = re.compile(r"^from __future__ import [^\n]*$", re.MULTILINE)
FUTURE_LINE = (
    "from __future__ import annotations\n"  # is at the top of a module, and only there
)
# What IPython understands and Python does not: %time f(x), !ls, files = !ls, x?, ?x; and the
# fence round code that was pasted from a page
MAGIC = re.compile(
    r"^(?P<indent>[ \t]*)(?:\w[\w., \t]*=[ \t]*)?[%!][^\n]*$|^[^\n#]*\?{1,2}[ \t]*$"
    r"|^[ \t]*\?{1,2}[\w.]+[ \t]*$|^[ \t]*```[\w ]*$",
    re.MULTILINE,
)
# Quotes of word processors and spaces of pages, and what Python has instead of them
TYPESET = str.maketrans(dict.fromkeys("\u201c\u201d\u201e\u201f", '"'))
TYPESET |= str.maketrans(dict.fromkeys("\u2018\u2019\u201a\u201b", "'"))
TYPESET |= str.maketrans(dict.fromkeys("\u00a0\u2007\u202f\u3000", " "))
# How a line begins that only Python 3.12 and later understand
GENERIC = re.compile(
    r"^[ \t]*(?:(?:async +)?def|class) +\w+\[|^[ \t]*type +\w+(?:\[.*\])? *=", re.MULTILINE
)
PROMPT = re.compile(r"^(?:>>> ?|\.\.\. ?|In \[\d*\]: ?)", re.MULTILINE)
# After the directive of a cell that has none: it was found by its id, or by what it defines
ADDED = " (this line was added)"
LOOSE = " (this line was added: it stood in a cell of its own)"
# What an answer needs of other cells is between these lines
CARRIED = "# from other cells of the notebook:"
CARRIED_END = "# (end of what is from other cells)"
CARRIED_PART = re.compile(
    rf"^{re.escape(CARRIED)}\n.*?^{re.escape(CARRIED_END)}\n", re.MULTILINE | re.DOTALL
)
CACHED = 16  # texts: one submission asks many times for the same ones
TOOLS = (
    *("start", "predict", "outcome", "check", "hint", "solution", "assemble"),
    *("finish", "status"),
)


def exercise_in(source: str) -> str | None:
    """The exercise id that a cell's directive names, or None."""
    found = DIRECTIVE.search(source)
    return found.group(1) if found else None


def split(module: str) -> list[tuple[str | None, str]]:
    """The blocks of a module as (exercise id or None, text); joined, they are the module."""
    starts = [m.start() for m in DIRECTIVE.finditer(module)]
    edges = [0, *starts, len(module)]
    pieces = [module[a:b] for a, b in pairwise(edges)]
    return [(exercise_in(piece), piece) for piece in pieces if piece]


def block(module: str, exercise_id: str) -> str | None:
    """The text of one exercise in a module, without the blank lines around it."""
    return next((text.strip() for key, text in split(module) if key == exercise_id), None)


def with_block(module: str, exercise: Exercise, cell: str) -> str:
    """The module with the exercise's block replaced by `cell` (put at the end if new)."""
    cell = headed(FUTURE.sub("", tidied(cell)), exercise).rstrip()
    pieces = split(module)
    texts = [cell + "\n\n\n" if key == exercise.id else text for key, text in pieces]
    if exercise.id not in [key for key, _ in pieces]:
        texts = ["".join(texts).rstrip(), f"\n\n\n{cell}"]
    module = "".join(texts).rstrip() + "\n"
    if FUTURE_LINE in module:
        return module
    return re.sub(r"^(?=import |from )", FUTURE_LINE, module, count=1, flags=re.MULTILINE)


def headed(cell: str, exercise: Exercise, added: str = ADDED) -> str:
    """The cell with the exercise's directive as its first line, and no other directive.

    What stood above it comes below; it must not slip into the block before this one.

    added    what marks the directive where the cell has none
    """
    lines = cell.split("\n")
    marked = [n for n, line in enumerate(lines) if DIRECTIVE.match(line)]
    position = next((n for n in marked if exercise_in(lines[n]) == exercise.id), None)
    first = directive(exercise) + added if position is None else lines[position]
    for number in marked:
        lines[number] = ""
    if position is not None:
        del lines[position]
    return "\n".join([first, *lines])


def with_carried(cell: str, code: str) -> str:
    """A cell that begins with its directive, and below that line code of other cells."""
    first, _, rest = cell.partition("\n")
    return f"{first}\n{CARRIED}\n{code}\n{CARRIED_END}\n{rest.rstrip()}\n" if code else cell


def carried_part(block: str) -> str:
    """The part of a block that came from other cells, with the lines around it."""
    found = CARRIED_PART.search(block)
    return found[0] if found else ""


def unmarked(cell: str) -> str:
    """A block as a cell of a notebook, into which `tinyllm submit` puts it: what came from
    other cells is its own then."""
    first, _, rest = cell.partition("\n")
    cell = rest if first.endswith((ADDED, LOOSE)) else cell
    return "\n".join(line for line in cell.split("\n") if line not in (CARRIED, CARRIED_END))


def without_carried(block: str) -> str:
    """The learner's own lines of a block, as they are counted in the cell."""
    block = CARRIED_PART.sub("", block, count=1)
    first, _, rest = block.partition("\n")
    return rest if first.endswith((ADDED, LOOSE)) else block


def line_in_cell(block: str, line: int) -> int | None:
    """The number of a block's line in the learner's cell; None if it is from elsewhere."""
    part = carried_part(block)
    length = part.count("\n")
    if part and 1 < line <= 1 + length:
        return None
    number = line - length if line > 1 else line
    return number - block.partition("\n")[0].endswith((ADDED, LOOSE)) or None


@lru_cache(CACHED)
def tidied(cell: str) -> str:
    """The part of a notebook cell that belongs into a module: no magics, no check("1.2").

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
    """The cell as Python reads it, and as IPython does, which knows more."""
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
    """Why code that looks right is not valid Python here, as a sentence: characters of a word
    processor or a page, syntax of a later version; "" for anything else."""
    if parsed(tidied(cell)):
        return ""
    if parsed(tidied(cell.translate(TYPESET))):
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


def directive(exercise: Exercise) -> str:
    return f"# %% exercise {exercise.id}: {exercise.title}"


def stub(text: str, exercise: Exercise) -> str:
    """`text` with every solution region replaced by an error that names the exercise; in a
    bug hunt by the lines with the bug."""

    def replaced(region: re.Match[str]) -> str:
        if bug := INSTEAD.search(region["body"]):
            return COMMENT.sub(r"\1", bug[1])
        indent, lines = region["indent"], solution_lines(region[0])
        about = f"{TODO} (about {lines} line{'s' if lines > 1 else ''})"
        error = f'raise NotImplementedError("Exercise {exercise.id}: {exercise.title}")'
        return f"{indent}{about}\n{indent}{error}\n"

    stubbed = REGION.sub(replaced, text)
    return stubbed if text.endswith("\n") else stubbed.rstrip("\n")


def plain(text: str) -> str:
    """`text` without the solution marks, and without the bug of a hunt."""
    return MARK.sub("", INSTEAD.sub("", text))


@lru_cache(CACHED)
def fingerprint(cell: str) -> str | None:
    """Tells cells apart by their code alone: comments, docstrings and layout do not count.

    None for a cell that does not parse. It holds within one version of Python.
    """
    try:
        tree = ast.parse(tidied(cell))
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


def is_empty(cell: str | None, stub: str | None) -> bool:
    """Whether nothing was written into an exercise's cell, whatever comments were added.

    stub    the fingerprint of the stub, None if it is not known
    """
    if cell is None or not plain(cell).strip():
        return True
    return stub is not None and fingerprint(cell) == stub


def solution_lines(text: str) -> int:
    """The number of lines that the reference needs, which the badge shows."""
    bodies = (INSTEAD.sub("", region["body"]) for region in REGION.finditer(text))
    return sum(bool(line.strip()) for body in bodies for line in body.splitlines())


def defined_names(source: str) -> list[str]:
    """The names that a cell defines at its top level; [] if it does not parse."""
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


def given_names(module: str) -> list[str]:
    """The names that a module has besides its exercises: imports and given code."""
    return defined_names("".join(text for key, text in split(module) if key is None))


def used_names(tree: ast.AST) -> set[str]:
    """The names that the code mentions, wherever they come from."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


# The course's own cells


@cache
def given_cells() -> dict[str, set[str]]:
    """{lab name: the hashes of its released notebook's code cells, in every language}"""
    return {lab: set(hashes) for lab, hashes in json.loads(GIVEN.read_text("utf-8")).items()}


def cell_hash(text: str) -> str:
    return hashlib.sha256(text.strip().encode("utf-8", "replace")).hexdigest()[:8]
