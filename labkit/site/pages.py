"""A lab's page: its executed notebook with stubs instead of answers, all help folded below
them, and the gallery of wrong answers near the end."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from html import escape

from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from labkit.author.owned_cells import model_answer, notebook_path, read_notebook
from labkit.author.reference import reference_block
from labkit.author.translation.texts import with_docstrings
from labkit.course import cells
from labkit.course.lang import said, tr
from labkit.course.syllabus import Exercise, Lab
from labkit.learner import hints
from labkit.site.wrong import WrongAnswer

FORETOLD = ", then run.**"  # the text before the outcome of a prediction
PREDICT = re.compile(r'^predict\("([\w.-]+)"', re.MULTILINE)
# cells whose code few want to read, and the titles of their folds
SETUP = {"setup": said("The setup"), "tools": said("The tools of this lab")}
MAP = "map"
OF_A_LEARNER = ("finish",)  # cells that show a learner's progress
LAST = "summary"
MARKUP = re.compile(r"[*_<\[]")  # marks of Markdown that a report does not mean as such


def find_cell(notebook: NotebookNode, name: str) -> NotebookNode:
    return next(cell for cell in notebook.cells if cell.id == name)


def page_of(
    lab: Lab,
    source: NotebookNode,
    wrong: Sequence[WrongAnswer] = (),
    answers: bool = True,
) -> NotebookNode:
    """Return the page of a lab, a notebook for MyST-NB.

    source     its notebook with the reference in it and its outputs
    wrong      the wrong answers to show, each with its report
    answers    False: neither solutions, model answers nor the last rung of a ladder
    """
    notebook = copy.deepcopy(source)
    for exercise in lab.exercises:
        put_exercise(notebook, lab, exercise, answers)
    for question in lab.questions:
        answer = model_answer(lab, question) if answers else ""
        find_cell(notebook, question.answer_cell).source = (
            fold(tr("Model answer to {id}", id=question.id), answer)
            if answer
            else tr(OWN_WORDS)
        )
    put_predictions(notebook, lab)
    notebook.cells = [cell for cell in notebook.cells if cell.id not in OF_A_LEARNER]
    for cell in notebook.cells:
        if cell.id in SETUP:
            tag(cell, "hide-cell", tr(SETUP[cell.id]))
        elif cell.id == MAP:
            tag(cell, "remove-input")
    if wrong:
        place = [cell.id for cell in notebook.cells].index(LAST)
        notebook.cells.insert(place, new_markdown_cell(shown(wrong, answers), id="wrong"))
    return notebook


OWN_WORDS = said("*Answered in your own words, and read by a person.*")


def put_exercise(notebook: NotebookNode, lab: Lab, exercise: Exercise, answers: bool) -> None:
    """Replace the reference by the stub, the ladder of hints and the answer."""
    block = reference_block(lab, exercise)
    parts = [code(with_docstrings(cells.stub(block, exercise)))]
    rungs = hints.rungs(lab, exercise)
    for number, (name, text) in enumerate(zip(hints.RUNGS, rungs, strict=False), 1):
        if answers or number < len(rungs):
            title = tr("Hint {number} of {count} for {id}: {name}", number=number,
                       count=len(rungs), id=exercise.id, name=tr(name))  # fmt: skip
            parts.append(fold(title, tr(text)))
    if answers:
        solution = code(with_docstrings(cells.plain(block)))
        parts.append(fold(tr("Solution of {id}", id=exercise.id), solution))
    place = notebook.cells.index(find_cell(notebook, exercise.answer_cell))
    text = "\n\n".join(parts)
    notebook.cells[place] = new_markdown_cell(text, id=exercise.answer_cell)
    said_then = tr("What the check says of a right answer")
    tag(find_cell(notebook, exercise.check_cell), "hide-output", said_then)


def put_predictions(notebook: NotebookNode, lab: Lab) -> None:
    """Show predictions with their choices; a click on one or on the fold shows the outcome."""
    known, hidden = lab.predictions, False
    english = {cell.id: cell.source for cell in read_notebook(notebook_path(lab)).cells}
    for place, cell in enumerate(notebook.cells):
        asked = cell.cell_type == "code" and PREDICT.search(cell.source)
        if asked:
            choice = choices(asked[1], known[asked[1]].choices)
            notebook.cells[place] = new_markdown_cell(choice, id=cell.id)
        elif cell.cell_type == "markdown":
            hidden = FORETOLD in english.get(cell.id, "")
        hidden = hidden or bool(asked)
        if hidden and cell.cell_type == "code" and cell.outputs and not asked:
            tag(cell, "hide-output", tr("Your prediction first; then: what comes out"))


def choices(name: str, texts: Mapping[str, str]) -> str:
    options = [
        f'<label><input type="radio" name="{name}" value="{letter}"> {escape(tr(text))}</label>'
        for letter, text in texts.items()
    ]
    first = ['<fieldset class="predict">', "<legend>" + tr("You say") + "</legend>"]
    return "\n".join([*first, *options, "</fieldset>"])


def tag(cell: NotebookNode, name: str, prompt: str = "") -> None:
    """Let MyST-NB hide a part of a cell, and set the title of the fold."""
    cell.metadata["tags"] = [name]
    cell.metadata["mystnb"] = {"code_prompt_show": prompt, "code_prompt_hide": prompt}


def fold(title: str, text: str) -> str:
    """Return help in a fold, which is printed only if a reader asks for it."""
    return f'<details class="help">\n<summary>{escape(title)}</summary>\n\n{text}\n\n</details>'


def code(text: str, language: str = "python") -> str:
    return f"```{language}\n{text.strip(chr(10))}\n```"


def shown(wrong: Sequence[WrongAnswer], answers: bool) -> str:
    """Return the gallery as Markdown."""
    parts = [
        "## " + tr("A gallery of wrong answers"),
        tr("What the check says of mistakes that are made often: look at the row *why*."),
    ]
    for each in wrong:
        title = MARKUP.sub(r"\\\g<0>", each.title)
        parts += [f"### {each.mistake.exercise.id}: {title}", each.report.html()]
        if answers:
            parts.append(fold(tr("What was written"), code(each.edit, "diff")))
    return "\n\n".join(parts)
