"""Exercise cells: text that begins with a directive and travels between notebook and module.

A module such as tinyllm/rmsnorm.py is a row of blocks, each opened by a comment line:

    # %% exercise 1.2: RMSNorm        a block that the learner writes
    # %% given: rotary tables         code that the course gives

An exercise cell of a notebook is such a block, word for word.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from itertools import pairwise

from labkit.course.paths import TESTS
from labkit.course.python_code import (  # noqa: F401  other rooms use them as cells.NAME
    defined_names,
    fingerprint,
    parsed,
    used_names,
    why_no_python,
    without_tools,
)
from labkit.course.syllabus import Exercise

GIVEN = TESTS / "visible" / "given.json"

DIRECTIVE = re.compile(r"^# %%[ \t]*(?:exercise[ \t]+(\d+\.\d+)|given)\b[^\n]*$", re.MULTILINE)
REGION = re.compile(
    r"^(?P<indent>[ \t]*)### BEGIN SOLUTION[ \t]*\n"
    r"(?P<body>.*?)^[ \t]*### END SOLUTION[ \t]*\n?",
    re.MULTILINE | re.DOTALL,
)
# In the solution of a bug hunt: the lines with the bug, which the learner gets
INSTEAD = re.compile(r"^[ \t]*### INSTEAD\n((?:[ \t]*# [^\n]*\n)+)", re.MULTILINE)
COMMENT = re.compile(r"^([ \t]*)# ", re.MULTILINE)
MARK = re.compile(r"^[ \t]*### (?:BEGIN|END) SOLUTION[ \t]*\n?", re.MULTILINE)
TODO = "# YOUR CODE HERE"
EMPTY_ANSWER = "YOUR ANSWER HERE"  # the cell of a written question
RAISE = "raise NotImplementedError("  # every stub contains it
FUTURE = re.compile(r"^from __future__ import [^\n]*$", re.MULTILINE)
FUTURE_LINE = "from __future__ import annotations\n"  # allowed only at the top of a module
# Added to the directive of a cell that had none and was found by its id or its definitions
ADDED = " (this line was added)"
LOOSE = " (this line was added: it stood in a cell of its own)"
# Code of other cells that an answer needs is between these lines
CARRIED = "# from other cells of the notebook:"
CARRIED_END = "# (end of what is from other cells)"
CARRIED_PART = re.compile(
    rf"^{re.escape(CARRIED)}\n.*?^{re.escape(CARRIED_END)}\n", re.MULTILINE | re.DOTALL
)


def exercise_in(source: str) -> str | None:
    """Return the exercise id in a cell's directive; None without one."""
    found = DIRECTIVE.search(source)
    return found.group(1) if found else None


def split(module: str) -> list[tuple[str | None, str]]:
    """The blocks of a module as (exercise id or None, text); joined, they are the module."""
    starts = [m.start() for m in DIRECTIVE.finditer(module)]
    edges = [0, *starts, len(module)]
    pieces = [module[a:b] for a, b in pairwise(edges)]
    return [(exercise_in(piece), piece) for piece in pieces if piece]


def block(module: str, exercise_id: str) -> str | None:
    """Return an exercise's text in a module, without blank lines around it; None without."""
    return next((text.strip() for key, text in split(module) if key == exercise_id), None)


def with_block(module: str, exercise: Exercise, cell: str) -> str:
    """The module with the exercise's block replaced by `cell`, or with a new one at its end."""
    cell = with_directive(FUTURE.sub("", without_tools(cell)), exercise).rstrip()
    pieces = split(module)
    texts = [cell + "\n\n\n" if key == exercise.id else text for key, text in pieces]
    if exercise.id not in [key for key, _ in pieces]:
        texts = ["".join(texts).rstrip(), f"\n\n\n{cell}"]
    module = "".join(texts).rstrip() + "\n"
    if FUTURE_LINE in module:
        return module
    return re.sub(r"^(?=import |from )", FUTURE_LINE, module, count=1, flags=re.MULTILINE)


def with_directive(cell: str, exercise: Exercise, added: str = ADDED) -> str:
    """Return the cell with the exercise's directive as its first line, and no other directive.

    Lines above the directive move below it, as they would fall into the previous block.

    added    marks a directive that the cell did not have
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
    """Return the cell with code of other cells below its directive."""
    first, _, rest = cell.partition("\n")
    return f"{first}\n{CARRIED}\n{code}\n{CARRIED_END}\n{rest.rstrip()}\n" if code else cell


def carried_part(block: str) -> str:
    """Return the part of a block that came from other cells, with the lines around it; "" if
    none."""
    found = CARRIED_PART.search(block)
    return found[0] if found else ""


def unmarked(cell: str) -> str:
    """Return a block as a cell of a notebook, as `tinyllm submit` writes it: code from other
    cells becomes its own."""
    first, _, rest = cell.partition("\n")
    cell = rest if first.endswith((ADDED, LOOSE)) else cell
    return "\n".join(line for line in cell.split("\n") if line not in (CARRIED, CARRIED_END))


def without_carried(block: str) -> str:
    """Return the learner's own lines of a block, numbered as in the cell."""
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


def directive(exercise: Exercise) -> str:
    return f"# %% exercise {exercise.id}: {exercise.title}"


def stub(text: str, exercise: Exercise) -> str:
    """Return `text` with every solution region replaced by an error that names the exercise; in
    a bug hunt by the lines with the bug."""

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
    """Return `text` without the solution marks, and without the bug of a hunt."""
    return MARK.sub("", INSTEAD.sub("", text))


def is_empty(cell: str | None, stub: str | None) -> bool:
    """Whether an exercise's cell has nothing but its stub; added comments do not count.

    stub    the fingerprint of the stub, None if it is not known
    """
    if cell is None or not plain(cell).strip():
        return True
    return stub is not None and fingerprint(cell) == stub


def solution_lines(text: str) -> int:
    """Return the number of lines that the reference needs, which the badge shows."""
    bodies = (INSTEAD.sub("", region["body"]) for region in REGION.finditer(text))
    return sum(bool(line.strip()) for body in bodies for line in body.splitlines())


def given_names(module: str) -> list[str]:
    """Return the names that a module has besides its exercises: imports and given code."""
    return defined_names("".join(text for key, text in split(module) if key is None))


# The course's own cells


@cache
def given_cells() -> dict[str, set[str]]:
    """Return {lab name: hashes of its released notebook's code cells, in every language}."""
    return {lab: set(hashes) for lab, hashes in json.loads(GIVEN.read_text("utf-8")).items()}


def cell_hash(text: str) -> str:
    return hashlib.sha256(text.strip().encode("utf-8", "replace")).hexdigest()[:8]
