"""Model answers to the written questions: shown once the learner has written an answer."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import nbformat

from labkit.course import sealed
from labkit.course.lang import tr
from labkit.course.paths import SOLUTIONS
from labkit.course.syllabus import Exercise, Lab, Question
from labkit.learner import hints, workspace
from labkit.learner.project import notebook_file


def answered(lab: Lab) -> dict[str, bool | None]:
    """{id of a written question: whether its cell in the saved notebook has an answer, None if
    there is no such cell}"""
    try:
        content = notebook_file.read(notebook_file.notebook_path(lab))
    except notebook_file.NotebookError:
        content = nbformat.v4.new_notebook()
    return notebook_file.written_answers(content, lab)


def blank_note(lab: Lab, exercises: Collection[Exercise]) -> list[tuple[str, str]]:
    """Return a row on exercises that the package answers and the saved notebook leaves blank;
    no row if there are none, or no notebook is found."""
    try:
        content = notebook_file.read(notebook_file.notebook_path(lab))
    except notebook_file.NotebookError:
        return []
    blank = [e.id for e in notebook_file.blank_exercises(content, lab) if e in exercises]
    if not blank:
        return []
    note = tr(
        "blank in your saved notebook, where it earns nothing: {names}. Your code is in "
        "tinyllm/{module}.py alone; `tinyllm submit {module}` writes it into the file to hand "
        "in",
        names=tr(", ").join(blank),
        module=lab.module,
    )
    return [("note", note)]


def answers_path(lab: Lab) -> Path:
    return SOLUTIONS / "answers" / f"{lab.module}.md"


def has_open_answers(lab: Lab) -> bool:
    """Whether the model answers of a lab may be shown: their file exists and is not sealed"""
    return answers_path(lab).exists() and not sealed.is_sealed(answers_path(lab))


class ModelAnswer(str):
    """Text in Markdown, which a notebook renders."""

    def _repr_markdown_(self) -> str:
        return str(self)

    __repr__ = str.__str__


def model_answer(lab: Lab, question: Question) -> ModelAnswer:
    """Return the model answer to a written question.

    Errors: LookupError if it is sealed, or the learner has not answered the question yet
    """
    if not has_open_answers(lab):
        raise LookupError(
            tr(
                "the model answers of lab {number} are sealed: ask your instructor for them",
                number=lab.number,
            )
        )
    if not answered(lab)[question.id]:
        raise LookupError(
            tr(
                "Write your own answer to {id} first, in the cell below the question in "
                "{lab}, and save the notebook (Ctrl+S). Then ask again.",
                id=question.id,
                lab=workspace.short_path(notebook_file.notebook_path(lab)),
            )
        )
    text = tr(hints.sections(answers_path(lab).read_text("utf-8"))[question.id]["model answer"])
    return ModelAnswer(
        tr(
            "**A model answer to {id}.** What is missing in which?\n\n{text}",
            id=question.id,
            text=text,
        )
    )
