"""The released notebook with the answers of a submission, which may be any bytes.

The released notebook is the frame: its text, checks and ids are kept, and only answers are
taken from the submission; course/answers.py finds them. A missing or odd answer becomes a note
that the learner will read.
"""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache

from nbformat import NotebookNode, from_dict

from labkit.course.answers import Answer, Cell, Notebook, answers_in, cell_name
from labkit.course.cells import (
    EMPTY_ANSWER,
    cell_hash,
    directive,
    exercise_in,
    fingerprint,
    given_cells,
    given_names,
    is_empty,
    parsed,
    without_tools,
)
from labkit.course.lang import ENGLISH, known, tr
from labkit.course.paths import TESTS
from labkit.course.report import Status
from labkit.course.statements import MAX_CELL
from labkit.course.syllabus import LABS, Exercise, Lab
from labkit.grading.judge.notebook_file import NotANotebook, cells_of, text_of
from labkit.grading.judge.outputs import check_passed
from labkit.grading.judge.pictures import Album

ASSEMBLED = "decoder"  # the lab in which all earlier answers come together
MAX_COPIES = 20  # copies of an exercise's cell that a note lists
MAX_WRITTEN = 20_000  # characters of a written answer: 3,000 words
MAX_QUOTED = 60  # characters of a name, in a note
PASTED = re.compile(r"data:[\w/+.-]*;base64,[A-Za-z0-9+/=%\s]{100,}")
NOT_STARTED = Status.NOT_STARTED.value
DEFINITION = re.compile(r"^(?:def|class) (\w+)\(?(self)?", re.MULTILINE)  # at the top level
LANGUAGE = re.compile(rb'"tinyllm":\s{0,9}\{\s{0,99}"language":\s{0,9}"(\w{2,10})"')


@dataclass
class Intake:
    """The rebuilt notebook, the source of each answer with what it needs, and notes.

    answers    "" if an exercise is not begun, None if its cell cannot be read
    odd        exercises whose cells a person should see if points are lost
    """

    notebook: NotebookNode
    answers: dict[str, str | None] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    odd: set[str] = field(default_factory=set)
    problem: str | None = None  # the whole file could not be read


def earlier_labs(lab: Lab) -> list[Lab]:
    """Return the labs whose answers the assembly of `lab` needs; none for other labs."""
    return [each for each in LABS if lab.module == ASSEMBLED and each.number < lab.number]


def language_of(data: bytes) -> str:
    """Return the language of the notebook that was handed in: an edition writes it there."""
    found = LANGUAGE.search(data)
    return (found and known(found[1].decode("utf-8", "replace"))) or ENGLISH


def rebuild(data: bytes, released: NotebookNode, lab: Lab) -> Intake:
    """The released notebook with the submission's answers; never raises for odd bytes."""
    cells_to_fill = [NotebookNode(cell) for cell in released.cells]
    intake = Intake(NotebookNode(released, cells=cells_to_fill))
    try:
        cells = cells_of(data)
    except NotANotebook as error:
        intake.problem = str(error)
        intake.answers = {exercise.id: None for exercise in lab.exercises}
        intake.notes = {exercise.id: intake.problem for exercise in lab.exercises}
        return intake
    handed_in = read(cells, released, lab)
    for exercise in lab.exercises:
        answer = handed_in.answer(exercise)
        text, note, odd = _verdict(exercise, answer, handed_in)
        if answer is None and check_passed(cells, exercise):
            note += tr("; but its check printed passed: the answer was perhaps only in "
                       "tinyllm/{module}.py", module=lab.module)  # fmt: skip
            odd = True
        intake.answers[exercise.id] = text
        if note:
            intake.notes[exercise.id] = note
        if odd or renames(text or "", cell_called(released, exercise.answer_cell).source):
            intake.odd.add(exercise.id)
        if answer and text is not None:
            cell_called(intake.notebook, exercise.answer_cell).source = answer.source
    found = written_cells(cells)
    album, attached = Album(), {text_of(cell): cell.get("attachments") for cell in cells}
    for question in lab.questions:
        texts = [text for text in found[question.answer_cell] if text.strip()]
        answered = [text for text in texts if text.strip() != EMPTY_ANSWER]
        if answered:
            cell = cell_called(intake.notebook, question.answer_cell)
            text, pictures = album.collect(answered[-1], attached.get(answered[-1]))
            cell.source = written(text)
            if pictures:
                cell.attachments = from_dict(pictures)
    return intake


def renames(answer: str, stub: str) -> bool:
    """Whether a function of an answer has other parameters than in the stub."""
    answered, asked = parameters(answer), parameters(stub)
    return any(answered.get(name, names) != names for name, names in asked.items())


def parameters(source: str) -> dict[str, list[str]]:
    """Return {function or method: the names of its parameters}."""
    nodes = ast.walk(parsed(without_tools(source)) or ast.Module([], []))
    return {
        node.name: [
            p.arg for p in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        ]
        for node in nodes
        if isinstance(node, ast.FunctionDef)
    }


def written(text: str) -> str:
    """Return a written answer, as much of it as a person would write."""
    text = PASTED.sub("(a picture)", text)
    if len(text) <= MAX_WRITTEN:
        return text
    cut = tr("(cut here: {count:,} characters; {MAX_WRITTEN:,} is the most)",
             count=len(text), MAX_WRITTEN=MAX_WRITTEN)  # fmt: skip
    return f"{text[:MAX_WRITTEN]}\n\n{cut}"


def read(cells: list[dict], released: NotebookNode, lab: Lab) -> Notebook:
    """Return the cells of a submission as course/answers.py reads them."""
    given = {cell_hash(text_of(cell)) for cell in released.cells} | given_cells()[lab.name]
    blank = {e.id: cell_called(released, e.answer_cell).source for e in lab.exercises}
    read = []
    for place, cell in enumerate(cells, 1):
        text = text_of(cell)
        parts = answers_in(text, cell_name(cell), lab)
        code = cell.get("cell_type") not in ("markdown", "raw")
        read.append(Cell(text, place, parts, code, cell_hash(text) in given))

    def empty(exercise: Exercise, text: str) -> bool:
        return is_empty(text, fingerprint(blank[exercise.id]))

    return Notebook(lab, read, known_names(lab), empty)


@cache
def known_names(lab: Lab) -> list[str]:
    """Return the names that are there without any answer."""
    skeletons = json.loads((TESTS / "visible" / "stubs.json").read_text("utf-8"))
    return given_names(skeletons[lab.module])


def _verdict(
    exercise: Exercise, answer: Answer | None, handed_in: Notebook
) -> tuple[str | None, str, bool]:
    """Return an answer as in Intake, a note, and whether it is odd."""
    if answer is None:
        hint = _elsewhere(exercise, None, handed_in)
        note = tr("the cell of exercise {id} is missing", id=exercise.id)
        if any(exercise.id in cell.parts for cell in handed_in.cells):
            note = NOT_STARTED
        return "", f"{note}; {hint}" if hint else note, bool(hint)
    length, place = len(answer.source), answer.cell.place
    if length > MAX_CELL:
        return None, tr("the cell has {length:,} characters; {MAX_CELL:,} is the most",
                        length=length, MAX_CELL=MAX_CELL), True  # fmt: skip
    many = ", ".join(str(cell.place) for cell in answer.others[-MAX_COPIES:])
    if answer.inferred:
        note = tr('cell {place} answers this; no cell with the line "{line}" does',
                  place=place, line=directive(exercise))  # fmt: skip
        note += tr("; cell {many} defines it, too", many=many) if many else ""
        return answer.text, note, bool(many)
    if many:
        note = tr("cells {many} and {place} all answer this exercise; the last one, "
                  "{place}, counts",
                  many=many, place=place)  # fmt: skip
        return answer.text, note, True
    note = _elsewhere(exercise, answer, handed_in)
    return answer.text, note, bool(note)


def _elsewhere(exercise: Exercise, answer: Answer | None, handed_in: Notebook) -> str:
    """Return a sentence on a cell that defines the exercise, or a method of its class, and does
    not count; "" if there is none."""
    if not any(cell.parts for cell in handed_in.cells):
        return tr("no cell says that it answers an exercise of lab {number}, {title}",
                  number=handed_in.lab.number, title=handed_in.lab.title)  # fmt: skip
    wanted = {plain_name(symbol) for symbol in exercise.symbols}
    is_class = answer is not None and "class " in answer.source
    for cell in reversed(handed_in.cells):
        if cell.given or cell.parts or exercise_in(cell.text[:MAX_CELL]):
            continue
        for name, first in DEFINITION.findall(cell.text):
            is_method = is_class and first == "self" and name not in answer.carried
            if plain_name(name) in wanted or is_method:
                return tr("cell {place} defines {name} and does not count: the answer is one "
                          "code cell that defines {title}", place=cell.place,
                          name=quoted(name), title=exercise.title)  # fmt: skip
    return ""


def plain_name(name: str) -> str:
    return name.lower().replace("_", "").rstrip("0123456789")


def quoted(name: str, most: int = MAX_QUOTED) -> str:
    """Shorten a name that a learner chose, so that a note can show it."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def written_cells(cells: list[dict]) -> dict[str, list[str]]:
    """Return {name of a cell: every text under that name, in order}."""
    found: dict[str, list[str]] = defaultdict(list)
    for cell in cells:
        found[cell_name(cell)].append(text_of(cell))
    return found


def cell_called(notebook: NotebookNode, name: str) -> NotebookNode:
    """Return the cell with this nbgrader grade_id. Raises KeyError."""
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade_id") == name:
            return cell
    raise KeyError(
        tr("the released notebook has no cell {name!r}; run `tinyllm build`", name=name)
    )
