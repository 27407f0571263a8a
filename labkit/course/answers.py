"""How the answer to an exercise is found in a notebook: one rule, for the notebook, `tinyllm
submit` and grading.

An answer is what its cell defines, with all that this uses by name. Imports, definitions and
assignments of other cells come along if the answer uses them; nothing else does.

Which cell: the one that says so, by its directive (`# %% exercise 1.2: RMSNorm`), else by its
nbgrader grade_id, else by its cell id; where directive and id disagree, what the cell defines
decides. A cell with several directives answers each with the part below it. Of several cells
the last one that defines the exercise's symbols counts. Where none does, the last code cell
that defines them without saying so is the answer.

Which lines: trials, prints, plots and asserts stay out. A name is looked up in the cell that
uses it, then above the answer, nearest first, then below. Of the course's own cells only
imports come along; a value that was computed with an exercise's answer never does. Methods
that another cell puts into the answer's class (`RMSNorm.forward = forward`) come along where
the class has none of that name. All of it is part of the answer then: what is not allowed
there is not allowed here.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from labkit.course import cells
from labkit.course.statements import (
    ALWAYS_THERE,
    AT_HAND,
    DEFINITIONS,
    MAX_CELL,
    STAR,
    Statement,
    Statements,
    needed_for,
    only,
    strip_unused,
)
from labkit.course.syllabus import Exercise, Lab

NO_STAR = {"labkit", "tinyllm", "__future__"}  # a star import of these brings nothing


@dataclass(eq=False)
class Cell:
    """One cell of a notebook.

    place    its number, counted from 1
    parts    {exercise id: its part}: what it says that it answers (`answers_in`)
    code     whether it is a code cell
    given    whether it is one of the course's own, unchanged
    name     its id, where that is known
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
    """{exercise id: the part of the cell that says it answers it}, of this lab's exercises.

    name    the cell's grade_id or id
    """
    merged = _merged(text, lab)
    if merged:
        return merged
    exercise = _claimed(text, name, lab)
    return {exercise.id: text} if exercise else {}


def cell_name(cell: Mapping[str, Any]) -> str:
    """The nbgrader grade_id of a notebook's cell, else its id; whatever a file may hold."""
    metadata = cell.get("metadata")
    marks = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    name = marks.get("grade_id") if isinstance(marks, dict) else None
    name = name if isinstance(name, str) else cell.get("id")
    return name if isinstance(name, str) else ""


def _merged(text: str, lab: Lab) -> dict[str, str]:
    """Of a cell with several directives each part; {} for any other cell."""
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
    if at_odds and set(by_id.symbols) & set(cells.defined_names(cells.tidied(text))):
        return by_id
    return next((e for e in lab.exercises if e.id == directive), None)


def defines(text: str, exercise: Exercise) -> bool:
    """Whether the cell binds one of the exercise's symbols, by an import at least."""
    if len(text) > MAX_CELL or not any(symbol in text for symbol in exercise.symbols):
        return False
    return bool(set(exercise.symbols) & set(cells.defined_names(cells.tidied(text))))


def is_answer_line(text: str, exercise: Exercise, line: int) -> bool:
    """Whether a line of a cell belongs to the answer in it."""
    needed = needed_for(exercise.symbols, Statements(text))
    return not needed or any(each.first <= line <= each.last for each in needed)


@dataclass(frozen=True)
class Answer:
    """What answers an exercise.

    text       a block as it travels: the directive, the answer, what it uses of other cells
    source     the learner's cell, or the part of it that answers
    cell       where that was found
    inferred   whether the cell does not say what it answers
    carried    the names that came from other cells, imports left out
    others     different cells that say they answer it
    truncated  whether it uses more of other cells than a cell may hold
    """

    text: str
    source: str
    cell: Cell
    inferred: bool
    carried: tuple[str, ...]
    others: tuple[Cell, ...]
    truncated: bool = False


class Notebook:
    """The cells of a notebook in their order, and the answers in them.

    known    names that are there without them: what the lab's module imports
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
        self.known = {*known, *self.symbols, *ALWAYS_THERE}

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """{name: the indices of the code cells that bind it}"""
        found = defaultdict(list)
        for index, cell in enumerate(self.cells):
            for name in cell.statements.binding if cell.code else ():
                found[name].append(index)
        return found

    def claims(self, exercise: Exercise) -> list[Cell]:
        """The cells that say they answer an exercise and are not empty."""
        return [
            each for each in self.cells
            if (part := each.parts.get(exercise.id)) is not None
            and (len(part) > MAX_CELL or not self.empty(exercise, part))
        ]  # fmt: skip

    def answer(self, exercise: Exercise) -> Answer | None:
        """What answers an exercise; None where nothing was written."""
        claims = self.claims(exercise)
        right = [each for each in claims if defines(each.parts[exercise.id], exercise)]
        inferred = [] if right else [c for c in self.cells if self._infers(c, exercise)]
        found = [*claims[-1:], *inferred[-1:], *right[-1:]]
        if not found:
            return None
        cell = found[-1]
        source = cell.text if inferred else cell.parts[exercise.id]
        others = {c.text: c for c in (inferred or claims) if c.text != cell.text}
        text, carried, truncated = source, set[str](), False
        if len(source) <= MAX_CELL:
            mark = cells.LOOSE if inferred else cells.ADDED
            answer = _Collector(self, exercise, source, cell)
            text, carried, truncated = answer.block(mark)
        return Answer(
            text, source, cell, bool(inferred), tuple(sorted(carried)),
            tuple(others.values()), truncated,
        )  # fmt: skip

    def _infers(self, cell: Cell, exercise: Exercise) -> bool:
        return (
            cell.code
            and not cell.given
            and exercise.id not in cell.parts
            and defines(cell.text, exercise)
            and not self.empty(exercise, strip_unused(cell.text, exercise.symbols))
        )


class _Collector:
    """Collects what one answer needs: statements of its own cell, and of others."""

    def __init__(self, notebook: Notebook, exercise: Exercise, source: str, cell: Cell):
        self.notebook, self.exercise, self.source = notebook, exercise, source
        self.answer = Cell(cells.unmarked(source))
        self.index = next(n for n, each in enumerate(notebook.cells) if each is cell)
        self.is_part = source != cell.text
        self.chosen: dict[Statement, tuple[int, int]] = {}  # {of another cell: its place}
        self.needed: set[Statement] = set()  # of the answer's cell

    def block(self, mark: str) -> tuple[str, set[str], bool]:
        """The answer as it travels, the names carried, and whether it was cut."""
        text = cells.tidied(self.answer.text)
        bound_names = self.answer.statements.binding.keys()
        if bound_names.isdisjoint(self.exercise.symbols):
            self.needed.update(self.answer.statements.all)
            missing = self._collect(
                (name, self.answer) for each in self.needed for name in each.uses
            )
        else:
            missing = self._collect((name, self.answer) for name in self.exercise.symbols)
        below = self._methods()
        if missing and not self._collect([(STAR, self.answer)]):
            missing = set()
        typed = {name for each in (*self.needed, *self.chosen) for name in each.mentions}
        untyped = self._collect(((name, self.answer) for name in typed), for_annotations=True)
        text = only(text, self.answer.statements, self.needed)
        text = cells.headed(text, self.exercise, mark)
        if untyped - missing:  # names of annotations alone: these stay text then
            text = f"{text}\n{cells.FUTURE_LINE}"
        above, cut = _joined(self.chosen)
        below_text, cut_below = _joined(below)
        names = {n for each in (*self.chosen, *below) if not each.is_import for n in each.binds}
        names |= {method for each in below for _, method in each.methods}
        names -= {*self.notebook.symbols, STAR}
        return cells.with_carried(text, above, below_text), names, cut or cut_below

    def _collect(
        self, wanted: Iterable[tuple[str, Cell]], for_annotations: bool = False
    ) -> set[str]:
        """Take along what makes these names, used in these cells; the names nothing binds."""
        seen, new, missing = set[str](), list(wanted), set[str]()
        while new:
            name, home = new.pop()
            if name in seen:
                continue
            seen.add(name)
            cell, found = self._making(name, home, for_annotations)
            if not found and name not in self.notebook.known:
                missing.add(name)
            for statement in found:
                new += [(use, cell) for use in statement.uses]
        return missing

    def _making(
        self, name: str, home: Cell, for_annotations: bool
    ) -> tuple[Cell, list[Statement]]:
        """The cell that makes a name what it is for its user, and the statements that do."""
        found = self.answer.statements.making(name)
        if home is self.answer and found:
            self.needed.update(found)
            return self.answer, found
        if name in self.notebook.known:
            return home, []
        for index in self._nearest(name, home):
            cell = self.notebook.cells[index]
            found = cell.statements.making(name)
            if all(self._may_come(each, cell, for_annotations) for each in found):
                for each in found:
                    self.chosen.setdefault(each, (index, each.first))
                return cell, found
        return home, []

    def _nearest(self, name: str, home: Cell) -> Iterator[int]:
        """The indices of the cells that bind a name, in the order in which they count."""
        found, here = self.notebook.places.get(name, []), self.index
        if home is not self.answer:
            yield from (n for n in found if self.notebook.cells[n] is home)
        yield from [here] if self.is_part and here in found else []
        yield from (n for n in reversed(found) if n < here)
        yield from (n for n in found if n > here)

    def _may_come(self, statement: Statement, cell: Cell, for_annotations: bool) -> bool:
        if statement.is_import:
            packages = statement.packages
            if STAR in statement.binds and packages & NO_STAR:
                return False
            return "labkit" not in packages and not (for_annotations and packages - AT_HAND)
        trial = statement.is_value and statement.uses & self.notebook.symbols
        return not cell.given and not trial

    def _methods(self) -> dict[Statement, tuple[int, int]]:
        """What other cells put into the answer's class; the last one of a name counts."""
        found: dict[tuple[str, str], tuple[Statement, Cell, tuple[int, int]]] = {}
        classes = {
            each.node.name: _methods_of(each.node)
            for each in self.needed
            if isinstance(each.node, ast.ClassDef)
        }
        for symbol in classes.keys() & {*self.exercise.symbols}:
            has = classes[symbol].union(*({m for _, m in each.methods} for each in self.needed))
            for index in self.notebook.places.get(symbol, ()):
                cell = self.notebook.cells[index]
                if index == self.index or cell.given:
                    continue
                for each in cell.statements.binding[symbol]:
                    for owner, method in each.methods:
                        if owner == symbol and method not in has:
                            found[owner, method] = each, cell, (index, each.first)
        for statement, cell, _ in found.values():
            self._collect((name, cell) for name in statement.uses)
        return {statement: place for statement, _, place in found.values()}


def _methods_of(node: ast.ClassDef) -> set[str]:
    """The names of a class's own methods that are written: a stub's ends in a raise."""
    definitions = [each for each in node.body if isinstance(each, DEFINITIONS)]
    return {each.name for each in definitions if not isinstance(each.body[-1], ast.Raise)}


def _joined(chosen: dict[Statement, tuple[int, int]]) -> tuple[str, bool]:
    """The sources of statements in the order of their places, and whether that was too much."""
    sources, length = [], 0
    for statement in sorted(chosen, key=chosen.__getitem__):
        length += len(statement.source) + 1
        if length > MAX_CELL:
            return "\n".join(sources), True
        sources.append(statement.source)
    return "\n".join(dict.fromkeys(sources)), False
