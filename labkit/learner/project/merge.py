"""Three-way merges of a module and of a notebook: the previous edition's version, the learner's
edit of it, and the new edition's version.

By exercise and by cell, and not by line as in git: there are no conflict markers in a
learner's notebook. Where both sides changed a cell, the learner's stays.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from uuid import uuid4

from nbformat import NotebookNode

from labkit.course import cells
from labkit.course.answers import answers_in, cell_name
from labkit.course.syllabus import Lab
from labkit.learner import workspace


def merge_module(lab: Lab, before: str, edited: str, now: str) -> str:
    """Return the new module with the learner's answers and additions at its top."""
    stubs = {key: text.strip() for key, text in cells.split(before)}
    merged = now
    for exercise in lab.exercises:
        answer = cells.block(edited, exercise.id)
        is_stub = answer == stubs.get(exercise.id) or workspace.is_empty(exercise, answer)
        if answer and not is_stub:
            merged = cells.with_block(merged, exercise, answer)
    first, *rest = (text for _, text in cells.split(merged))
    added = "".join(f"{text}\n" for text in _added(before, edited, now))
    return "".join([f"{first.rstrip()}\n\n{added}\n\n" if added else first, *rest])


def _added(before: str, edited: str, now: str) -> list[str]:
    """The learner's own statements outside of exercises, without names of the new module"""
    known = {ast.unparse(node) for text in _outside(before) for node in _statements(text)}
    known.add(cells.FUTURE_LINE.strip())
    new = [
        ast.get_source_segment(text, node) or ""
        for text in _outside(edited)
        for node in _statements(text)
        if ast.unparse(node) not in known
    ]
    given = {*cells.given_names(now)}
    return [text for text in new if not given & {*cells.defined_names(text)}]


def _outside(module: str) -> list[str]:
    return [text for key, text in cells.split(module) if key is None]


def _statements(text: str) -> list[ast.stmt]:
    tree = cells.parsed(text)
    return tree.body if tree else []


def merge_notebook(
    lab: Lab, before: NotebookNode, edited: NotebookNode, now: NotebookNode
) -> tuple[NotebookNode, list[str]]:
    """Return the new notebook with every cell that the learner wrote or changed.

    A learner's own cell stays below the same cell as before. Also returns the names of the
    cells that both sides changed, where the learner's version stays.
    """
    given = {cell_name(cell): cell.source for cell in before.cells}
    names_now = {cell_name(cell) for cell in now.cells}
    names = _names(lab, given, edited, names_now)
    copies: dict[str, NotebookNode] = {}
    below: dict[str, list[NotebookNode]] = defaultdict(list)
    place = ""
    for cell, name in zip(edited.cells, names, strict=True):
        cell.setdefault("id", uuid4().hex[:8])  # cells of older notebooks have no id
        if name in names_now:
            copies[name], place = cell, name
        elif not name or cell.source != given[name]:
            below[place].append(cell)
    both, merged = [], below[""]
    for cell in now.cells:
        name = cell_name(cell)
        copy = copies.get(name)
        if copy is None or (copy.source == given.get(name) != cell.source):
            merged.append(cell)
        else:
            if copy.source != cell.source and given.get(name) != cell.source:
                both.append(name)
            copy.metadata |= cell.metadata
            merged.append(copy)
        merged += below[name]
    edited.nbformat, edited.nbformat_minor = now.nbformat, now.nbformat_minor
    edited.cells = merged
    return edited, both


def _names(
    lab: Lab, given: dict[str, str], edited: NotebookNode, names_now: set[str]
) -> list[str]:
    """Return the name of the given cell that each cell comes from; "" for the learner's own
    cells and for copies."""
    by_source = {source.strip(): name for name, source in given.items()}
    names: list[str] = []
    for cell in edited.cells:
        name = cell_name(cell)
        if name not in given and name not in names_now:
            claims = list(answers_in(cell.source, "", lab))
            named = lab.exercise(claims[0]).answer_cell if len(claims) == 1 else ""
            name = named or by_source.get(cell.source.strip(), "")
        names.append("" if name in names else name)
    return names
