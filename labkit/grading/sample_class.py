"""A small class for the demo and the tests: real notebooks, filled in from the reference and
from the listed mistakes, and some odd ones."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from labkit.author.owned_cells import written_answer
from labkit.author.reference import reference_block
from labkit.checks.mistakes import Mistake, mistakes_of
from labkit.course import cells
from labkit.course.syllabus import Exercise, Lab
from labkit.grading.judge.intake import cell_called

Edit = Callable[[NotebookNode, Lab], object]


@dataclass(frozen=True)
class Learner:
    """One made-up submission; its name describes it."""

    name: str
    data: bytes
    mistake: Mistake | None = None


def solved(released: NotebookNode, lab: Lab) -> NotebookNode:
    """Return the released notebook with the reference in every exercise."""
    notebook = copy.deepcopy(released)
    for exercise in lab.exercises:
        answer = cells.plain(reference_block(lab, exercise))
        cell_called(notebook, exercise.answer_cell).source = answer
    return notebook


def with_answer(notebook: NotebookNode, exercise: Exercise, answer: str) -> NotebookNode:
    changed = copy.deepcopy(notebook)
    cell_called(changed, exercise.answer_cell).source = answer
    return changed


def with_texts(notebook: NotebookNode, lab: Lab) -> NotebookNode:
    """The notebook with the model answers to its written questions, for a person to grade."""
    changed = copy.deepcopy(notebook)
    for question in lab.questions:
        text = written_answer(lab, question)["model answer"]
        cell_called(changed, question.answer_cell).source = text
    return changed


def small_class(lab: Lab, released: NotebookNode, whole: bool = True) -> Iterator[Learner]:
    """Yield a perfect submission, a blank one, one for each mistake, and the odd ones.

    If not `whole`, only the first mistake of each exercise, and nothing odd.
    """
    perfect = solved(released, lab)
    yield Learner("perfect", encoded(with_texts(perfect, lab)))
    yield Learner("blank", encoded(released))
    mistakes = mistakes_of(lab)
    for mistake in mistakes if whole else {m.symbol: m for m in reversed(mistakes)}.values():
        notebook = with_answer(perfect, mistake.exercise, mistake.cell)
        name = f"{mistake.exercise.slug}-{mistake.name}"
        yield Learner(name, encoded(notebook), mistake)
    if not whole:
        return
    for name, edit in ODD.items():
        notebook = copy.deepcopy(perfect)
        edit(notebook, lab)
        yield Learner(name, encoded(notebook))
    yield Learner("not-a-notebook", b"%PDF-1.7 this is what I had on my desktop")


def encoded(notebook: NotebookNode) -> bytes:
    """Return the notebook's file, duplicate ids included; nbformat would change them."""
    return json.dumps(notebook, indent=1).encode()


def first_answer(notebook: NotebookNode, lab: Lab) -> NotebookNode:
    return cell_called(notebook, lab.exercises[0].answer_cell)


def body(line: str) -> Edit:
    """Return the first exercise as a function that only does `line`."""

    def edit(notebook: NotebookNode, lab: Lab) -> None:
        exercise = lab.exercises[0]
        text = f"def {exercise.symbols[0]}(*args, **kwargs):\n    {line}"
        first_answer(notebook, lab).source = f"{cells.directive(exercise)}\n{text}"

    return edit


def break_syntax(notebook: NotebookNode, lab: Lab) -> None:
    cell = first_answer(notebook, lab)
    cell.source = cell.source.replace("):", ")", 1).replace(") ->", " ->", 1)


def paste_twice(notebook: NotebookNode, lab: Lab) -> None:
    cell = first_answer(notebook, lab)
    notebook.cells.insert(notebook.cells.index(cell) + 1, copy.deepcopy(cell))


def strip_metadata(notebook: NotebookNode, lab: Lab) -> None:
    for cell in notebook.cells:
        cell.metadata.clear()


def remove_exercises(notebook: NotebookNode, lab: Lab) -> None:
    notebook.cells = [new_code_cell("print('see you next year')")]


ODD: dict[str, Edit] = {
    "syntax-error": break_syntax,
    "deleted-cell": lambda notebook, lab: notebook.cells.remove(first_answer(notebook, lab)),
    "pasted-twice": paste_twice,
    "metadata-stripped": strip_metadata,
    "no-exercise-cells": remove_exercises,
    "raises-in-the-cell": body('raise RuntimeError("my kernel was fine")'),
    "calls-sys-exit": body("import sys; sys.exit(0)"),
    "loops-for-ever": body("while True: pass"),
    "prints-megabytes": body("while True: print('again ' * 1000)"),
    "returns-a-string": body("return 'forty-two'"),
    "returns-nothing": body("return None"),
}


def hand_in(folder: Path, lab: Lab, learner: Learner) -> Path:
    """Write a submission where nbgrader collects it."""
    path = folder / "submitted" / learner.name / lab.name / f"{lab.name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(learner.data)
    return path
