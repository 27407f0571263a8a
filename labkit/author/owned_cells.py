"""The cells of a notebook that the build owns: written from the reference and the syllabus.

A missing cell is put into its place; all other cells are authored and stay as they are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from labkit.author.reference import BuildError, reference, reference_block
from labkit.author.translation.prints import with_prints
from labkit.author.translation.texts import with_docstrings
from labkit.course import cells
from labkit.course.lang import ENGLISH, language, ntr, tr
from labkit.course.paths import NOTEBOOKS, SOLUTIONS
from labkit.course.syllabus import KINDS, LABS, Exercise, Lab, Prediction, Question
from labkit.learner import hints

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
MAP = """\
# Where this lab sits in the whole of Qwen3
from labkit.learner.figures.architecture import architecture

architecture("{}")"""
BADGE = re.compile(r"\A(?:### (?:Exercise|Bug hunt)[^\n]*\n+)?(?:\*[^\n]*minutes[^\n]*\*\n*)?")
WORTH = re.compile(r"[\d.]+ points? · (?:core|stretch|bug hunt)[^*\n]*|practice, no points")
ASKED = re.compile(r"\((?:[\d.]+ points?|not graded)\)(?=\n|$)")
LAST = "summary"  # the id of a notebook's last text, above the cell "finish"


def notebook_path(lab: Lab) -> Path:
    return NOTEBOOKS / f"{lab.name}.ipynb"


def read_notebook(path: Path) -> NotebookNode:
    if not path.exists():
        raise BuildError(f"{path} is missing: `tinyllm build` begins one")
    return nbformat.read(path, as_version=4)


def begun(lab: Lab) -> NotebookNode:
    """Return a first notebook for a lab: headings, to be filled in between."""
    title = new_markdown_cell(f"# Lab {lab.number}: {lab.title}", id="title")
    return new_notebook(cells=[title, new_markdown_cell("## Summary", id=LAST)])


def read_or_begin(lab: Lab) -> NotebookNode:
    """Return the lab's notebook, or the beginning of one."""
    path = notebook_path(lab)
    return read_notebook(path) if path.exists() else begun(lab)


def serialised(notebook: NotebookNode) -> bytes:
    return (nbformat.writes(notebook, version=4).rstrip("\n") + "\n").encode()


def filled(lab: Lab, notebook: NotebookNode, solved: bool = False) -> NotebookNode:
    """Return the notebook with every cell that the build owns filled in.

    solved    whether answers hold the reference; else stubs
    Raises BuildError if the reference lacks an exercise or an answer.
    """
    spoken = {} if language() == ENGLISH else {"tinyllm": {"language": language()}}
    notebook.metadata = nbformat.from_dict(METADATA | spoken)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
        if text := authored(lab, cell):
            cell.source = cell.source.replace(text, tr(text))
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
            cell.source = with_prints(cell.source)
    if lab.exercises:
        setup = owned(notebook, "setup", below=notebook.cells[0].id)
        setup.source = setup_cell(lab)
    if lab in LABS:
        owned(notebook, "map", below="setup").source = MAP.format(lab.module)
    for name, outcome in lab.predictions.items():
        fill_prediction(notebook, name, outcome)
    for exercise in lab.exercises:
        fill_exercise(lab, notebook, exercise, solved)
    for question in lab.questions:
        fill_question(lab, notebook, question, solved)
    finish = owned(notebook, "finish", below=LAST)
    finish.source = f'finish("{lab.module}")'
    return notebook


def authored(lab: Lab, cell: NotebookNode) -> str:
    """Return the part of a cell that an author wrote; "" if the build writes all of it."""
    if cell.cell_type != "markdown" or cell.id in [q.answer_cell for q in lab.questions]:
        return ""
    about = cell.id in [f"about-{exercise.slug}" for exercise in lab.exercises]
    return BADGE.sub("", cell.source.lstrip()).strip() if about else cell.source.strip()


def owned(
    notebook: NotebookNode,
    name: str,
    make: Callable[..., NotebookNode] = new_code_cell,
    below: str = "",
    above: Iterable[str] = (),
) -> NotebookNode:
    """Return the cell with this id; a missing one is made below another cell, else above the
    first of those that are there, else at the end."""
    places = {cell.id: place for place, cell in enumerate(notebook.cells)}
    if name not in places:
        end = min((places[other] for other in above if other in places), default=len(places))
        places[name] = places[below] + 1 if below in places else end
        notebook.cells.insert(places[name], make(id=name))
    return notebook.cells[places[name]]


def fill_exercise(lab: Lab, notebook: NotebookNode, exercise: Exercise, solved: bool) -> None:
    """Fill in the exercise's text with heading and badge, its answer cell and check cell."""
    block, name = reference_block(lab, exercise), f"about-{exercise.slug}"
    place = lab.exercises.index(exercise)
    later = [f"about-{e.slug}" for e in lab.exercises[place + 1 :] if not e.hunt]
    above = (exercise.answer_cell, exercise.check_cell, *later, LAST)
    about = owned(notebook, name, new_markdown_cell, above=above)
    about.source = with_badge(about.source, exercise, block)
    answer = owned(notebook, exercise.answer_cell, below=name)
    answer.source = with_docstrings(block if solved else cells.stub(block, exercise))
    mark(answer, exercise.answer_cell, solution=True)
    test = owned(notebook, exercise.check_cell, below=exercise.answer_cell)
    test.source = f'check("{exercise.id}")'
    mark(test, exercise.check_cell, grade=True, locked=True, points=exercise.points)


def fill_prediction(notebook: NotebookNode, name: str, outcome: Prediction) -> None:
    """Write the cell of a prediction, before the cell with its outcome."""
    teller = re.compile(rf'(?:show\(\w+, |outcome\()"{re.escape(name)}"[,)]')
    above = [cell.id for cell in notebook.cells if teller.search(cell.source)]
    if not above:  # a notebook that was just begun
        return
    choices = [f"# {letter}  {tr(text)}" for letter, text in outcome.choices.items()]
    cell = owned(notebook, f"predict-{name.replace('.', '-')}", above=above)
    cell.source = "\n".join([*choices, f'predict("{name}", "")'])


def fill_question(lab: Lab, notebook: NotebookNode, question: Question, solved: bool) -> None:
    """Write the cell for the answer; add a heading above it if its authored text is missing."""
    name = question.answer_cell.replace("written", "question")
    place = lab.questions.index(question)
    later = [other.answer_cell for other in lab.questions[place + 1 :]]
    later += [cell.replace("written", "question") for cell in later]
    if question.answer_cell not in [cell.id for cell in notebook.cells]:
        text = owned(notebook, name, new_markdown_cell, above=(*later, LAST))
        heading = f"### Written question {question.id} ({question.points} points)"
        text.source = text.source or heading
    answer = owned(notebook, question.answer_cell, new_markdown_cell, below=name)
    answer.source = model_answer(lab, question) if solved else cells.EMPTY_ANSWER
    mark(answer, question.answer_cell, solution=True, grade=True, points=question.points)


def mark(cell: NotebookNode, grade_id: str, **fields: object) -> None:
    """Add nbgrader's metadata, schema 3: exactly the keys that it allows."""
    base = {"schema_version": 3, "grade_id": grade_id, "grade": False, "solution": False}
    base |= {"locked": False, "task": False, "cell_type": cell.cell_type}
    cell.metadata["nbgrader"] = nbformat.from_dict({**base, **fields})


def setup_cell(lab: Lab) -> str:
    """Return the module's own imports, so that a cell sees the same names here and there."""
    tools = ["from labkit.learner.notebook import (",
           "    check, finish, hint, outcome, predict, solution, start)"]  # fmt: skip
    return "\n".join([*imports(reference(lab)), "", *tools, "", f'start("{lab.module}")'])


def imports(source: str) -> list[str]:
    lines = []
    last = None
    for node in ast.parse(source).body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        if isinstance(node, ast.ImportFrom) and node.level:
            node = ast.ImportFrom(f"tinyllm.{node.module}", node.names, 0)
        elif last is not None and node.lineno > last + 1:
            lines.append("")
        last = getattr(node, "end_lineno", last)
        line = ast.unparse(node)
        if len(line) > 78:
            start, names = line.split(" import ")
            line = f"{start} import (\n    {names})"
        lines.append(line)
    return lines


def with_badge(text: str, exercise: Exercise, block: str) -> str:
    """Return the authored text under the heading and the badge that the syllabus gives."""
    lines = cells.solution_lines(block)
    long = ntr("about {n} line", "about {n} lines", lines)
    time = tr("{minutes} minutes", minutes=exercise.minutes)
    badge = f"{time} · {long} · {worth(exercise)}"
    body = BADGE.sub("", text.lstrip())
    heading = f"### {exercise.heading}"
    return f"{heading}\n*{badge}*\n\n{body}".rstrip()


def worth(exercise: Exercise) -> str:
    if not exercise.points:
        return tr("practice, no points")
    more = tr("stretch: counts, but nothing later needs it")
    kind = more if exercise.kind == KINDS[1] else tr(exercise.kind)
    points = f"{exercise.points:g}"
    points = ntr("{amount} point", "{amount} points", exercise.points, amount=points)
    return f"{points} · {kind}"


def set_points(notebook: NotebookNode, lab: Lab) -> None:
    """Write the lab's points into the graded cells, and into the texts that mention them."""
    named = {cell.id: cell for cell in notebook.cells}
    graded = {
        cell.metadata.get("nbgrader", {}).get("grade_id"): cell for cell in notebook.cells
    }
    for part in (*lab.exercises, *lab.questions):
        if part.grade_cell in graded:
            graded[part.grade_cell].metadata.nbgrader.points = part.points
    for exercise in lab.exercises:
        about = named.get(f"about-{exercise.slug}")
        if about:
            about.source = WORTH.sub(worth(exercise), about.source, count=1)
    for question in lab.questions:
        text = named.get(question.answer_cell.replace("written", "question"))
        if text:
            points = f"({question.points:g} points)" if question.points else "(not graded)"
            text.source = ASKED.sub(points, text.source, count=1)


def written_answer(lab: Lab, question: Question) -> dict[str, str]:
    """Return {"rubric": text, "model answer": text} of a written question; BuildError
    without."""
    path = SOLUTIONS / "answers" / f"{lab.module}.md"
    found = hints.sections(path.read_text("utf-8")).get(question.id, {})
    if not {"rubric", "model answer"} <= set(found):
        raise BuildError(f"{path.name} lacks rubric or model answer for question {question.id}")
    return found


def model_answer(lab: Lab, question: Question) -> str:
    found = written_answer(lab, question)
    rubric = tr("**Rubric.**")
    return f"{tr(found['model answer'])}\n\n{rubric} {tr(found['rubric'])}"
