"""The graded notebook, as nbgrader keeps it in autograded/: the submission's answers in the
released notebook, and under each check cell its report and its points."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from nbformat import NotebookNode, from_dict
from nbformat.v4 import reads_json

from labkit.course.answers import cell_name
from labkit.course.cells import EMPTY_ANSWER
from labkit.course.lang import ENGLISH, speaking, tr
from labkit.course.syllabus import Lab
from labkit.grading.judge import intake, notebook_file
from labkit.grading.judge.graded import GradedExercise, GradedSubmission
from labkit.grading.judge.pictures import NOT_SHOWN


def graded_notebook(
    data: bytes, released: NotebookNode, lab: Lab, submission: GradedSubmission
) -> NotebookNode:
    """The released notebook with the answers in `data`, as if its check cells had been run."""
    notebook = intake.rebuild(data, released, lab).notebook
    found, loose = written_by_place(data, notebook, lab)
    # a person decides which question it answers: it is shown below each one without an answer
    if loose:
        cells, answered = notebook_file.cells_of(data), {*map(cell_name, found)}
        text = "\n\n".join(notebook_file.text_of(cells[number - 1]).strip() for number in loose)
        names = [question.answer_cell for question in lab.questions]
        blank = [name for name in names if name not in answered
                 and intake.cell_called(notebook, name).source == EMPTY_ANSWER]  # fmt: skip
        found += [{"cell_type": "markdown", "source": text,
                   "metadata": {"nbgrader": {"grade_id": name}}} for name in blank]  # fmt: skip
    if found:
        texts = intake.rebuild(json.dumps({"cells": found}).encode(), released, lab).notebook
        for name in map(cell_name, found):
            intake.cell_called(notebook, name).update(intake.cell_called(texts, name))
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    if submission.language != ENGLISH:
        spoken = {"tinyllm": {"language": submission.language}}
        notebook.metadata = from_dict(notebook.metadata | spoken)
    show_verdicts(notebook, submission)
    return notebook


def set_mark(notebook: NotebookNode, mark: str) -> None:
    about = notebook.metadata.get("tinyllm", {}) | {"made_of": mark}
    notebook.metadata = from_dict(notebook.metadata | {"tinyllm": about})


def mark_in(notebook: NotebookNode | None) -> str:
    return (notebook or {}).get("metadata", {}).get("tinyllm", {}).get("made_of", "")


def show_verdicts(notebook: NotebookNode, submission: GradedSubmission) -> None:
    for graded in submission.exercises:
        cell = intake.cell_called(notebook, graded.exercise.check_cell)
        shown = shown_report(graded, submission.language)
        points = {"text/plain": repr(float(graded.score))}
        cell.outputs = [output("display_data", shown), output("execute_result", points)]
        cell.outputs[1]["execution_count"] = 1
        cell.execution_count = 1


@lru_cache(maxsize=256)  # most learners of a class have equal texts
def shown_report(graded: GradedExercise, language: str) -> dict[str, str]:
    with speaking(language):
        report = graded.report
        return {"text/plain": str(report), "text/html": report.html()}


def written_by_place(
    data: bytes, notebook: NotebookNode, lab: Lab
) -> tuple[list[dict], list[int]]:
    """Return answers whose cells have lost their names: texts below a question that `notebook`
    leaves blank. Also return the places of other texts of the learner: right above such a
    question, or anywhere if all names are lost."""
    known, asked, texts, last = {*map(cell_name, notebook.cells)}, {}, set(), ""
    with speaking(intake.language_of(data)):
        for cell in notebook.cells:
            if cell.source == EMPTY_ANSWER:
                asked[last] = cell_name(cell)
            elif cell.cell_type == "markdown":
                last = ending(tr(cell.source.strip()))
                texts.add(last)
    try:
        cells = notebook_file.cells_of(data) if asked else []
    except notebook_file.NotANotebook:
        cells = []
    all_lost = {*asked.values()} - {*map(cell_name, cells)} == {
        question.answer_cell for question in lab.questions
    }
    found: dict[str, dict] = {}
    above: dict[str, int] = {}
    others, name, loose = [], "", 0
    for number, cell in enumerate(cells, 1):
        text = notebook_file.text_of(cell).strip()
        if notebook_file.is_code(cell) or text in ("", EMPTY_ANSWER):
            continue
        question = next((end for end in asked if end in text), "")
        if question:  # the answer may be in the same cell
            if loose == number - 1 > 0:
                above[asked[question]] = loose
            name, text = asked[question], text.partition(question)[2].strip()
        elif cell_name(cell) in known or ending(text) in texts:
            name, text = "", ""
        if text and name:
            answer = found.setdefault(name, cell | {"source": ""})
            answer["metadata"] = {"nbgrader": {"grade_id": name}}
            answer["source"] = f"{answer['source']}\n\n{text}".strip()
        elif text:
            loose = number
            others += [number] * all_lost
    others += [place for name, place in above.items() if name not in found]
    return [*found.values()], sorted({*others})


def ending(text: str) -> str:
    """Return the last paragraph: the first has points, which the course may change."""
    return text.strip().rpartition("\n\n")[2]


def remarks_on(notebook: NotebookNode, lab: Lab) -> list[str]:
    """Remarks on parts of written answers that the grader does not see: pictures."""
    remarks = []
    for question in lab.questions:
        count = intake.cell_called(notebook, question.answer_cell).source.count(NOT_SHOWN)
        if count:
            pictures = f"question {question.id}: {count} x {NOT_SHOWN}"
            remarks.append(f"{pictures}, see what was handed in")
    return remarks


def output(kind: str, data: dict[str, str]) -> NotebookNode:
    """Return an output like nbformat's new_output, without the slow validation."""
    return from_dict({"output_type": kind, "metadata": {}, "data": data})


def file_content(notebook: NotebookNode) -> bytes:
    """Return the notebook's file, without nbformat's validation: its structure is ours."""
    return (json.dumps(notebook, ensure_ascii=False, sort_keys=True) + "\n").encode()


def read_content(path: Path) -> NotebookNode | None:
    """Return the notebook that `file_content` or nbgrader wrote; None without one."""
    try:
        return reads_json(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
