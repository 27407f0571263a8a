"""A learner's notebook as a file: read it, find its answers, replace one."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from labkit.course import cells
from labkit.course.answers import Cell, Notebook, answers_in, cell_name
from labkit.course.files import write_whole
from labkit.course.lang import tr
from labkit.course.paths import GIVEN, ROOT
from labkit.course.syllabus import NOTEBOOKS, Exercise, Lab
from labkit.learner import workspace


class NotebookError(Exception):
    """A notebook that cannot be used; the message says why."""


def notebook_path(lab: Lab) -> Path:
    """The notebook in the project, else in the current folder, where nbgrader puts it"""
    file = Path(f"{lab.name}.ipynb")
    project = Path(workspace.folder()).parent / "notebooks" / file
    return file.absolute() if file.exists() and not project.exists() else project


def read(path: Path) -> NotebookNode:
    if not path.exists():
        raise NotebookError(tr("there is no file {path}", path=path))
    return parse(path.read_bytes(), path)


def parse(data: bytes, path: Path | str) -> NotebookNode:
    """Parse a notebook.

    path    the name of the file, for errors

    Errors: NotebookError if the bytes are not a notebook
    """
    try:
        content = nbformat.reads(data.decode(json.detect_encoding(data)), as_version=4)
        content.cells  # noqa: B018  raises an error if there are none
    except Exception as error:  # nbformat raises many types of errors
        raise NotebookError(
            tr("{path} is not a notebook: {error}", path=path, error=error)
        ) from error
    return content


def way_back(lab: Lab) -> str:
    """Explain how to restore a lab's notebook that was deleted."""
    if GIVEN.is_dir():
        return tr("`tinyllm update` brings back the lesson, with your answers from tinyllm/")
    if (ROOT / ".git").exists():
        return tr(
            "`git checkout -- notebooks/{name}.ipynb` brings back the empty one", name=lab.name
        )
    return tr("the folder or zip that you were given has the empty one")


def copies(
    content: NotebookNode, lab: Lab, exercise: Exercise
) -> list[tuple[NotebookNode, str]]:
    """The cells that answer an exercise, each with the part that is the answer"""
    parts = ((cell, answers_in(cell.source, cell_name(cell), lab)) for cell in content.cells)
    return [(cell, found[exercise.id]) for cell, found in parts if exercise.id in found]


def answers(content: NotebookNode, lab: Lab) -> dict[str, str]:
    """{exercise id: the answer that counts, with the code of other cells that it uses}"""
    given, read = cells.given_cells()[lab.name], []
    for place, cell in enumerate(content.cells, 1):
        parts = answers_in(cell.source, cell_name(cell), lab)
        is_given = cells.cell_hash(cell.source) in given
        read.append(Cell(cell.source, place, parts, cell.cell_type == "code", is_given))
    notebook = Notebook(lab, read, workspace.known_names(lab), workspace.is_empty)
    found = {exercise.id: notebook.answer(exercise) for exercise in lab.exercises}
    return {key: answer.text for key, answer in found.items() if answer}


def saved_answers(lab: Lab) -> dict[str, str]:
    """{exercise id: the learner's answer in the package}"""
    source = workspace.module_source(lab)
    blocks = {e.id: cells.block(source, e.id) for e in lab.exercises}
    return {
        e.id: blocks[e.id] for e in lab.exercises if not workspace.is_empty(e, blocks[e.id])
    }


def blank_exercises(content: NotebookNode, lab: Lab) -> list[Exercise]:
    """The exercises that only the package answers, and not the notebook"""
    only_saved = saved_answers(lab).keys() - answers(content, lab).keys()
    return [exercise for exercise in lab.exercises if exercise.id in only_saved]


def fill_blanks(content: NotebookNode, lab: Lab) -> list[Exercise]:
    """Write the package's answers into blank cells of a notebook; return their exercises."""
    blank, saved = blank_exercises(content, lab), saved_answers(lab)
    for exercise in blank:
        put(content, lab, exercise, saved[exercise.id])
    return blank


def fill_folder(folder: Path) -> dict[str, list[Exercise]]:
    """Fill the blank cells of the notebooks that `nbgrader submit` hands in from a folder.

    Returns {notebook: exercises that were filled}.
    """
    filled = {}
    for lab in NOTEBOOKS:
        path = folder / f"{lab.name}.ipynb"
        if path.is_file() and lab.exercises:
            content = read(path)
            if blank := fill_blanks(content, lab):
                write_whole(path, nbformat.writes(content))
                filled[path.name] = blank
    return filled


def put(content: NotebookNode, lab: Lab, exercise: Exercise, code: str) -> None:
    """Write `code` into every cell that answers the exercise, or into a new cell."""
    found = copies(content, lab, exercise)
    for cell, text in found:
        if text == cell.source:
            cell.source = code
        else:  # the cell has several answers
            tail = text[len(text.rstrip()) :]
            cell.source = cell.source.replace(text, code.rstrip() + tail)
    if not found:
        names = [cell_name(cell) for cell in content.cells]
        check = exercise.check_cell
        place = names.index(check) if check in names else len(names)
        content.cells.insert(place, new_cell(content, code))


def are_same(lab: Lab, exercise: Exercise, first: str, second: str) -> bool:
    """Whether two answers are the same code, apart from layout and comments"""
    skeleton = workspace.skeletons()[lab.module]
    modules = (cells.with_block(skeleton, exercise, text) for text in (first, second))
    first, second = (cells.block(module, exercise.id) or "" for module in modules)
    print_of = cells.fingerprint
    return first == second or None is not print_of(first) == print_of(second)


def new_cell(content: NotebookNode, code: str) -> NotebookNode:
    cell = new_code_cell(code)
    if (content.nbformat, content.nbformat_minor) < (4, 5):
        del cell["id"]
    return cell


def written_answers(content: NotebookNode, lab: Lab) -> dict[str, bool | None]:
    """{id of a written question: whether its cell is filled, None if there is no such cell}"""
    filled: dict[str, bool] = {}
    for cell in content.cells:
        name, empty = cell_name(cell), cell.source.strip() in ("", cells.EMPTY_ANSWER)
        filled[name] = filled.get(name, False) or not empty
    return {question.id: filled.get(question.answer_cell) for question in lab.questions}
