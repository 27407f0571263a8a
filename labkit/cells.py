"""Exercise cells: text that begins with a directive and travels between notebook and module.

A module such as tinyllm/rmsnorm.py is a row of blocks, each opened by a comment line:

    # %% exercise 1.2: RMSNorm        a block that the learner writes
    # %% given: rotary tables         code that the course gives

An exercise cell of a notebook is such a block, word for word.
"""

from __future__ import annotations

import ast
import re
from itertools import pairwise

from labkit.syllabus import Exercise

DIRECTIVE = re.compile(r"^# %%[ \t]*(?:exercise[ \t]+(\d+\.\d+)|given)\b[^\n]*$", re.MULTILINE)
REGION = re.compile(
    r"^(?P<indent>[ \t]*)### BEGIN SOLUTION[ \t]*\n"
    r"(?P<body>.*?)^[ \t]*### END SOLUTION[ \t]*\n?",
    re.MULTILINE | re.DOTALL,
)
MARK = re.compile(r"^[ \t]*### (?:BEGIN|END) SOLUTION[ \t]*\n?", re.MULTILINE)
TODO = "# YOUR CODE HERE"


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
    cell = cell.strip()
    if exercise_in(cell) != exercise.id:
        cell = f"{directive(exercise)}\n{cell}"
    pieces = split(module)
    if exercise.id not in [key for key, _ in pieces]:
        return module.rstrip() + "\n\n\n" + cell + "\n"
    texts = [cell + "\n\n\n" if key == exercise.id else text for key, text in pieces]
    return "".join(texts).rstrip() + "\n"


def directive(exercise: Exercise) -> str:
    return f"# %% exercise {exercise.id}: {exercise.title}"


def stub(text: str, exercise: Exercise) -> str:
    """`text` with every solution region replaced by an error that names the exercise."""

    def replaced(region: re.Match[str]) -> str:
        indent = region["indent"]
        lines = sum(bool(line.strip()) for line in region["body"].splitlines())
        about = f"{TODO} (about {lines} line{'s' if lines > 1 else ''})"
        error = f'raise NotImplementedError("Exercise {exercise.id}: {exercise.title}")'
        return f"{indent}{about}\n{indent}{error}\n"

    stubbed = REGION.sub(replaced, text)
    return stubbed if text.endswith("\n") else stubbed.rstrip("\n")


def plain(text: str) -> str:
    """`text` without the solution marks."""
    return MARK.sub("", text)


def is_stub(cell: str) -> bool:
    """True while the exercise still raises its own NotImplementedError."""
    return "raise NotImplementedError(" in cell and TODO in cell


def solution_lines(text: str) -> int:
    """How many lines the reference needs: what the badge promises."""
    bodies = (region["body"] for region in REGION.finditer(text))
    return sum(bool(line.strip()) for body in bodies for line in body.splitlines())


def defined_names(source: str) -> list[str]:
    """The names that a cell defines at its top level; [] if it does not parse."""
    try:
        nodes = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [name for node in nodes for name in _names(node)]


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [(alias.asname or alias.name).split(".")[0] for alias in node.names]
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def helpers(source: str, symbols: set[str]) -> str:
    """The top-level definitions of a cell other than the graded symbols, as source."""
    try:
        nodes = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    kept = [n for n in nodes if _names(n) and not symbols.intersection(_names(n))]
    return "\n\n".join(ast.unparse(node) for node in kept)
