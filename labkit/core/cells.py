"""Exercise cells: text that begins with a directive and travels between notebook and module.

A module such as tinyllm/rmsnorm.py is a row of blocks, each opened by a comment line:

    # %% exercise 1.2: RMSNorm        a block that the learner writes
    # %% given: rotary tables         code that the course gives

An exercise cell of a notebook is such a block, word for word.
"""

from __future__ import annotations

import ast
import hashlib
import io
import re
import tokenize
from functools import lru_cache
from itertools import pairwise

from labkit.core.syllabus import Exercise

DIRECTIVE = re.compile(r"^# %%[ \t]*(?:exercise[ \t]+(\d+\.\d+)|given)\b[^\n]*$", re.MULTILINE)
REGION = re.compile(
    r"^(?P<indent>[ \t]*)### BEGIN SOLUTION[ \t]*\n"
    r"(?P<body>.*?)^[ \t]*### END SOLUTION[ \t]*\n?",
    re.MULTILINE | re.DOTALL,
)
MARK = re.compile(r"^[ \t]*### (?:BEGIN|END) SOLUTION[ \t]*\n?", re.MULTILINE)
TODO = "# YOUR CODE HERE"
EMPTY_ANSWER = "YOUR ANSWER HERE"  # of a written question
RAISE = "raise NotImplementedError("  # stands in every stub
FUTURE = re.compile(r"^from __future__ import [^\n]*$", re.MULTILINE)
MAGIC = re.compile(r"^[ \t]*[%!][^\n]*$|^[^\n#]*\?{1,2}[ \t]*$", re.MULTILINE)
LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
KEPT = 16  # results for the last texts: one submission asks many times for the same
TOOLS = ("check", "hint", "solution", "start", "assemble")


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
    cell = tidied(cell)
    futures = FUTURE.findall(cell)
    cell = FUTURE.sub("", cell).strip("\n").rstrip()
    if exercise_in(cell) != exercise.id:
        cell = f"{directive(exercise)}\n{cell}"
    pieces = split(module)
    if exercise.id not in [key for key, _ in pieces]:
        return with_futures(module.rstrip() + "\n\n\n" + cell + "\n", futures)
    texts = [cell + "\n\n\n" if key == exercise.id else text for key, text in pieces]
    return with_futures("".join(texts).rstrip() + "\n", futures)


def with_futures(module: str, futures: list[str]) -> str:
    """`from __future__` lines of a cell, put where Python wants them: before all imports."""
    new = "".join(f"{line}\n" for line in dict.fromkeys(futures) if line not in module)
    return re.sub(r"^(?=import |from )", new, module, count=1, flags=re.MULTILINE)


@lru_cache(KEPT)
def tidied(cell: str) -> str:
    """What of a notebook cell belongs into a module: no magics, no check("1.2") of its own.

    Lines are blanked, not removed, so that line numbers stay those of the cell.
    """
    cell = cell.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    text = cell if parsed(cell) else MAGIC.sub("", cell)
    tree = parsed(text)
    if tree is None:
        return cell
    lines = text.split("\n")
    for node in tree.body:
        if _calls_a_tool(node):
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = ""
    return "\n".join(lines)


def _calls_a_tool(node: ast.stmt) -> bool:
    """check("1.2") and the like at the top level of a cell; also their import."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "labkit.learner.notebook"
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    return isinstance(node.value.func, ast.Name) and node.value.func.id in TOOLS


@lru_cache(KEPT)
def parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def directive(exercise: Exercise) -> str:
    return f"# %% exercise {exercise.id}: {exercise.title}"


def stub(text: str, exercise: Exercise) -> str:
    """`text` with every solution region replaced by an error that names the exercise."""

    def replaced(region: re.Match[str]) -> str:
        indent, lines = region["indent"], solution_lines(region[0])
        about = f"{TODO} (about {lines} line{'s' if lines > 1 else ''})"
        error = f'raise NotImplementedError("Exercise {exercise.id}: {exercise.title}")'
        return f"{indent}{about}\n{indent}{error}\n"

    stubbed = REGION.sub(replaced, text)
    return stubbed if text.endswith("\n") else stubbed.rstrip("\n")


def plain(text: str) -> str:
    """`text` without the solution marks."""
    return MARK.sub("", text)


@lru_cache(KEPT)
def fingerprint(cell: str) -> str | None:
    """Tells cells apart by their code alone: comments and layout do not count.

    Made of tokens, since the syntax tree of one text differs between versions of Python.
    """
    lines = io.StringIO(tidied(cell)).readline
    try:
        words = [t.string for t in tokenize.generate_tokens(lines) if t.type not in LAYOUT]
    except (tokenize.TokenError, SyntaxError):
        return None
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


def is_empty(cell: str | None, stub: str | None) -> bool:
    """Whether nothing was written into an exercise's cell, whatever comments were added.

    stub    the fingerprint of the stub, None if it is not known
    """
    if cell is None or not plain(cell).strip():
        return True
    return RAISE in cell and fingerprint(cell) == stub  # most need not be read as Python


def solution_lines(text: str) -> int:
    """How many lines the reference needs: what the badge promises."""
    bodies = (region["body"] for region in REGION.finditer(text))
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


def helpers(answer: str, others: list[str], known: set[str]) -> str:
    """What `answer` uses of the learner's other cells, as source to stand before it.

    answer    the graded cell
    others    the other exercise cells of the same learner
    known     names that must not come from there: the lab's symbols and its imports

    Only definitions, imports and assignments that the answer needs are taken, each guarded:
    a fault in another cell is no fault of this one.
    """
    tree = parsed(tidied(answer))
    if tree is None:
        return ""
    taken = known | set(defined_names(tidied(answer)))
    wanted, found = used_names(tree) - taken, []
    for source in map(tidied, others):
        other = parsed(source)
        nodes = [] if other is None else other.body
        for node in reversed(nodes):
            if wanted.intersection(_names(node)):
                taken |= set(_names(node))
                wanted = (wanted | used_names(node)) - taken
                found.append(_guarded(source, node))
    return "\n\n".join(reversed(found))


def used_names(tree: ast.AST) -> set[str]:
    """The names that the code mentions, wherever they come from."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _guarded(source: str, node: ast.stmt) -> str:
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    lines = source.split("\n")[first - 1 : node.end_lineno]
    body = "\n".join("    " + line for line in lines)
    return f"try:\n{body}\nexcept Exception as problem:\n    del problem"
