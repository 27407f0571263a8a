"""The file to hand in: the learner's notebook, completed from the package where it has gaps."""

from __future__ import annotations

from pathlib import Path

import nbformat

from labkit.core import cells
from labkit.core.answers import answers_in, cell_name
from labkit.core.files import write_whole
from labkit.core.paths import NOTEBOOKS
from labkit.core.syllabus import Exercise, Lab
from labkit.learner import workspace

FOLDER = Path("submissions")


class SubmitError(Exception):
    """A notebook that cannot be handed in as it is."""


def prepare(lab: Lab, notebook: Path | None) -> tuple[Path, list[str]]:
    """Write submissions/LAB.ipynb; returns its path and what the learner should know."""
    path = notebook or NOTEBOOKS / f"{lab.name}.ipynb"
    if not path.exists():
        raise SubmitError(
            f"there is no file {path}; name your notebook: `tinyllm submit {lab.module} FILE`"
        )
    try:
        content = nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat raises many kinds for a file that is none
        raise SubmitError(f"{path} is not a notebook: {error}") from error
    module = workspace.module_source(lab)
    notes = []
    for exercise in lab.exercises:
        note = _complete(content, module, lab, exercise)
        notes += [f"{exercise.id} {exercise.title}: {note}"] if note else []
    notes += [
        f"{question.id}: no answer yet"
        for question in lab.questions
        for cell in content.cells
        if cell.get("id") == question.answer_cell
        and cell.source.strip() in ("", cells.EMPTY_ANSWER)
    ]
    FOLDER.mkdir(exist_ok=True)
    written = FOLDER / f"{lab.name}.ipynb"
    if written.exists():  # one step back, should this one hold less
        written.replace(written.with_suffix(".ipynb~"))
    write_whole(written, nbformat.writes(content))
    return written, notes


def _complete(content: nbformat.NotebookNode, module: str, lab: Lab, exercise: Exercise) -> str:
    """Fill an exercise cell that is still a stub from the package; a note, or ""."""
    answers = [(c, answers_in(c.source, cell_name(c), lab)) for c in content.cells]
    found = [(c, parts[exercise.id]) for c, parts in answers if exercise.id in parts]
    code = cells.block(module, exercise.id)
    empty = workspace.is_empty(exercise, code)
    if not found:
        return "your notebook has lost this cell"
    cell, answer = found[-1]
    if cells.parsed(cells.tidied(answer)) is None:
        return "the cell does not run, it has a syntax error"
    if not workspace.is_empty(exercise, answer):
        differs = not empty and code.strip() != answer.strip()
        return "the package differs; the notebook counts" if differs else ""
    if code is None and set(exercise.symbols) & set(cells.defined_names(module)):
        return f'in tinyllm/, the line "{cells.directive(exercise)}" is missing'
    if empty:
        return "still empty"
    cell.source = cell.source.replace(answer, code)
    return "taken from the package tinyllm"
