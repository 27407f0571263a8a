"""The answer to an exercise in a notebook, found by one rule in the notebook, in `tinyllm
submit` and in grading.

An answer is the definitions of its cell with everything that they use by name. Imports,
definitions and
assignments of other cells come along if the answer uses them; nothing else does.

Which cell: the one that says so, by its directive (`# %% exercise 1.2: RMSNorm`), else by its
nbgrader grade_id, else by its cell id; where directive and id disagree, what the cell defines
decides. A cell with several directives answers each with the part below it. Of several cells
the last one that defines the exercise's symbols counts. Where none does, the last code cell
that defines them without saying so is the answer.

Which lines: trials, prints, plots and asserts stay out. A name is looked up in the answer's
cell, then above it, nearest first, then below. Of the course's own cells only imports come
along; a value that was computed with an exercise's answer never does (a lambda, an alias or a
`partial` of it does: nothing is computed yet). All of it is then part of the answer, so banned
names are banned in it, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from labkit.course import cells
from labkit.course.statements import (
    BUILTIN_NAMES,
    MAX_CELL,
    STAR,
    Statement,
    Statements,
    only,
    reach,
    strip_unused,
)
from labkit.course.syllabus import Exercise, Lab


@dataclass(eq=False)
class Cell:
    """One cell of a notebook.

    place    its number, counted from 1
    parts    {exercise id: the part that claims to answer it}, see `answers_in`
    code     whether it is a code cell
    given    whether it is one of the course's own, unchanged
    name     its id, if that is known
    """

    text: str
    place: int = 0
    parts: dict[str, str] = field(default_factory=dict)
    code: bool = True
    given: bool = False
    name: str = ""

    @cached_property
    def statements(self) -> Statements:
        return Statements(self.text)


def answers_in(text: str, name: str, lab: Lab) -> dict[str, str]:
    """Return {exercise id: the part of the cell that claims to answer it} for this lab.

    name    the cell's grade_id or id
    """
    merged = _merged(text, lab)
    if merged:
        return merged
    exercise = _claimed(text, name, lab)
    return {exercise.id: text} if exercise else {}


def cell_name(cell: Mapping[str, Any]) -> str:
    """Return the nbgrader grade_id of a notebook's cell, else its id; "" if the file has
    neither."""
    metadata = cell.get("metadata")
    marks = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    name = marks.get("grade_id") if isinstance(marks, dict) else None
    name = name if isinstance(name, str) else cell.get("id")
    return name if isinstance(name, str) else ""


def _merged(text: str, lab: Lab) -> dict[str, str]:
    """The parts of a cell with several directives, by exercise; {} for any other cell."""
    known, parts, before = {e.id for e in lab.exercises}, {}, ""
    several = len(text) <= MAX_CELL and text.count("# %%") > 1
    for key, piece in cells.split(text) if several else ():
        if key in known:
            parts[key], before = before + piece, ""
        else:
            before += piece
    return parts if len(parts) > 1 else {}


def _claimed(text: str, name: str, lab: Lab) -> Exercise | None:
    directive = cells.exercise_in(text[:MAX_CELL])
    by_id = next((e for e in lab.exercises if e.answer_cell == name), None)
    if directive is None:
        return by_id
    at_odds = by_id and by_id.id != directive and len(text) <= MAX_CELL
    if at_odds and set(by_id.symbols) & set(cells.defined_names(cells.without_tools(text))):
        return by_id
    return next((e for e in lab.exercises if e.id == directive), None)


def defines(text: str, exercise: Exercise) -> bool:
    """Whether the cell binds one of the exercise's symbols; an import is enough."""
    if len(text) > MAX_CELL or not any(symbol in text for symbol in exercise.symbols):
        return False
    return bool(set(exercise.symbols) & set(cells.defined_names(cells.without_tools(text))))


@dataclass(frozen=True)
class Answer:
    """The answer to an exercise.

    text       a complete block: the directive, the answer, the code that it uses of other cells
    source     the learner's cell, or the part of it that answers
    cell       that cell
    inferred   whether the cell does not name the exercise
    carried    the names that came from other cells, imports left out
    others     different cells that claim to answer it
    """

    text: str
    source: str
    cell: Cell
    inferred: bool
    carried: tuple[str, ...]
    others: tuple[Cell, ...]


class Notebook:
    """The cells of a notebook in their order, and the answers in them.

    known    names that exist without them: the imports of the lab's module
    empty    tells whether nothing was written into an exercise's cell
    """

    def __init__(
        self,
        lab: Lab,
        cells: Sequence[Cell],
        known: Iterable[str],
        empty: Callable[[Exercise, str], bool],
    ):
        self.lab, self.cells, self.empty = lab, cells, empty
        self.symbols = {symbol for each in lab.exercises for symbol in each.symbols}
        self.known = {*known, *self.symbols, *BUILTIN_NAMES}

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """{name: the indices of the code cells that bind it}"""
        found = defaultdict(list)
        for index, cell in enumerate(self.cells):
            for name in cell.statements.binding if cell.code else ():
                found[name].append(index)
        return found

    def claims(self, exercise: Exercise) -> list[Cell]:
        """Return the cells that claim to answer an exercise and are not empty."""
        return [
            cell for cell in self.cells
            if (part := cell.parts.get(exercise.id)) is not None
            and (len(part) > MAX_CELL or not self.empty(exercise, part))
        ]  # fmt: skip

    def answer(self, exercise: Exercise) -> Answer | None:
        """Return the answer to an exercise; None if nothing was written."""
        claims = self.claims(exercise)
        right = [cell for cell in claims if defines(cell.parts[exercise.id], exercise)]
        inferred = [] if right else [c for c in self.cells if self._infers(c, exercise)]
        found = [*claims[-1:], *inferred[-1:], *right[-1:]]
        if not found:
            return None
        cell = found[-1]
        source = cell.text if inferred else cell.parts[exercise.id]
        others = {c.text: c for c in (inferred or claims) if c.text != cell.text}
        text, carried = source, set[str]()
        if len(source) <= MAX_CELL:
            mark = cells.LOOSE if inferred else cells.ADDED
            text, carried = self._block(exercise, source, cell, mark)
        return Answer(
            text, source, cell, bool(inferred), tuple(sorted(carried)), tuple(others.values())
        )

    def _infers(self, cell: Cell, exercise: Exercise) -> bool:
        return (
            cell.code
            and not cell.given
            and exercise.id not in cell.parts
            and defines(cell.text, exercise)
            and not self.empty(exercise, strip_unused(cell.text, exercise.symbols))
        )

    def _block(
        self, exercise: Exercise, source: str, home: Cell, mark: str
    ) -> tuple[str, set[str]]:
        """Return the answer as a complete block, and the names that came from other cells.

        source    the learner's cell, or a part of it
        home      the cell
        """
        text = cells.unmarked(source)
        answer, index = Statements(text), self.cells.index(home)
        # the statements of other cells that the answer needs
        places: dict[Statement, tuple[int, int]] = {}

        def find(name: str) -> list[Statement]:
            found = answer.making(name)
            if found or name in self.known:
                return found
            for place in sorted(
                self.places.get(name, ()), key=lambda n: (n > index, abs(n - index))
            ):
                cell = self.cells[place]
                found = cell.statements.making(name)
                if all(self._may_come(statement, cell) for statement in found):
                    places.update({each: (place, each.first) for each in found})
                    return found
            return []

        names, whole = {*exercise.symbols}, set[Statement]()
        if names.isdisjoint(answer.binding):
            whole = {*answer.all}
            names = {name for statement in whole for name in statement.uses}
        needed, missing = reach(names, find)
        if missing - self.known:
            needed |= reach([STAR], find)[0]
        text = only(cells.without_tools(text), answer, needed | whole)
        text = cells.with_directive(text, exercise, mark)
        others = sorted(needed & places.keys(), key=places.__getitem__)
        carried = {name for each in others if not each.is_import for name in each.binds}
        sources = dict.fromkeys(statement.source for statement in others)
        return cells.with_carried(text, "\n".join(sources)), carried - self.symbols

    def _may_come(self, statement: Statement, cell: Cell) -> bool:
        if statement.is_import:
            return "labkit" not in statement.source
        is_trial = statement.is_value and statement.uses & self.symbols
        is_trial = is_trial and not statement.makes_function
        return not (cell.given or is_trial)
