"""The released notebook with the answers of a submission, which may be any bytes.

The released notebook is the frame: its text, checks and ids are kept, and only answers are
taken from the submission; how they are found, and what comes along with them, says
course/answers.py. What is missing or odd becomes a note that the learner will read.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache

from nbformat import NotebookNode, from_dict

from labkit.course.answers import Answer, Cell, Notebook, answers_in, cell_name, defines
from labkit.course.cells import (
    EMPTY_ANSWER,
    cell_hash,
    defined_names,
    directive,
    exercise_in,
    fingerprint,
    given_cells,
    given_names,
    is_empty,
    parsed,
    tidied,
)
from labkit.course.lang import ENGLISH, known, said, tr
from labkit.course.paths import TESTS
from labkit.course.report import Status
from labkit.course.statements import MAX_CELL
from labkit.course.syllabus import LABS, Exercise, Lab
from labkit.grading.judge.pictures import Album

ASSEMBLED = "decoder"  # the lab in which all earlier answers come together
MAX_NOTEBOOK = 32 << 20
MAX_VALUES = 2_000_000  # in a file: each takes some 80 bytes once it is read
MAX_CELLS = 5_000
MAX_CODE = 1_000_000  # characters: to read them takes seconds, and a class is waiting
MAX_COPIES = 20  # of one exercise's cell
MAX_WRITTEN = 20_000  # characters of a written answer: 3,000 words
MAX_QUOTED = 60  # characters of a name, in a note
PASTED = re.compile(r"data:[\w/+.-]*;base64,[A-Za-z0-9+/=%\s]{100,}")
NOT_STARTED = Status.NOT_STARTED.value
# What a file that is no JSON may be instead, by a pattern of its bytes
DAMAGES = (
    (rb"(?m)^(<{7} |>{7} |={7}$)", said("a git merge was not finished: lines of <<<<<<< are in "
                                        "the file")),
    (rb"^version https://git-lfs", said("it is a pointer of git LFS, without the file itself")),
    (rb"^bplist0", said("it is a placeholder of iCloud, without the file itself")),
)  # fmt: skip
ANSWER_CELL = re.compile(r"ex-\d+-\d+")
METHOD = re.compile(r"^def (\w+)\(self\b", re.MULTILINE)  # at the top level of a cell


@dataclass
class Intake:
    """The rebuilt notebook, the source of each answer with what it needs, and notes.

    answers    "" where an exercise is not begun, None where its cell cannot be read
    odd        exercises of which a person should see the notebook, should points be lost
    """

    notebook: NotebookNode
    answers: dict[str, str | None] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    odd: set[str] = field(default_factory=set)
    problem: str | None = None  # the whole file could not be read


def earlier_labs(lab: Lab) -> list[Lab]:
    """The labs whose answers the assembly of `lab` needs; none for other labs."""
    return [each for each in LABS if lab.module == ASSEMBLED and each.number < lab.number]


class NotANotebook(ValueError):
    """Bytes in which no notebook can be found; the message says why."""


def language_of(data: bytes) -> str:
    """The language of the notebook that was handed in: an edition writes it there."""
    if b'"tinyllm"' not in data or len(data) > MAX_NOTEBOOK or values_in(data) > MAX_VALUES:
        return ENGLISH
    try:
        return known(json.loads(data)["metadata"]["tinyllm"]["language"]) or ENGLISH
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return ENGLISH


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
        intake.answers[exercise.id] = text
        if note:
            intake.notes[exercise.id] = note
        if odd:
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


def written(text: str) -> str:
    """A written answer, as much of it as a person would write."""
    text = PASTED.sub("(a picture)", text)
    if len(text) <= MAX_WRITTEN:
        return text
    cut = tr("(cut here: {count:,} characters; {MAX_WRITTEN:,} is the most)",
             count=len(text), MAX_WRITTEN=MAX_WRITTEN)  # fmt: skip
    return f"{text[:MAX_WRITTEN]}\n\n{cut}"


def read(cells: list[dict], released: NotebookNode, lab: Lab) -> Notebook:
    """The cells of a submission as course/answers.py reads them."""
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
    """The names that are there without any answer."""
    skeletons = json.loads((TESTS / "visible" / "stubs.json").read_text("utf-8"))
    return given_names(skeletons[lab.module])


def _verdict(
    exercise: Exercise, answer: Answer | None, handed_in: Notebook
) -> tuple[str | None, str, bool]:
    """An answer as in Intake, a note, and whether it is odd."""
    claims = [cell for cell in handed_in.cells if exercise.id in cell.parts]
    if len(claims) > MAX_COPIES:
        return None, tr("{count} cells claim this exercise; {MAX_COPIES} is the most",
                        count=len(claims), MAX_COPIES=MAX_COPIES), True  # fmt: skip
    if answer is None:
        missing = tr("the cell of exercise {id} is missing", id=exercise.id)
        note, hint = NOT_STARTED if claims else missing, _elsewhere(exercise, handed_in)
        return "", "; ".join(filter(None, [note, hint])), bool(hint)
    length, place = len(answer.source), answer.cell.place
    if length > MAX_CELL:
        return None, tr("the cell has {length:,} characters; {MAX_CELL:,} is the most",
                        length=length, MAX_CELL=MAX_CELL), True  # fmt: skip
    many = ", ".join(str(cell.place) for cell in answer.others[:MAX_COPIES])
    if answer.inferred:
        note = tr('cell {place} answers this; no cell with the line "{line}" does',
                  place=place, line=directive(exercise))  # fmt: skip
        note += tr("; cell {many} defines it, too", many=many) if many else ""
        return answer.text, note, bool(many)
    if many:
        which = tr("{number} cells answer this exercise, {many} and {place}",
                   number=len(answer.others) + 1, many=many, place=place)  # fmt: skip
        note = tr("{which}; the last one, {place}, counts", which=which, place=place)
        return answer.text, note, True
    if defines(answer.source, exercise):
        note = _methods_outside(exercise, answer, handed_in)
        loose = [cell.place for cell in handed_in.cells
                 if cell.code and not (cell.given or cell.parts)
                 and defines(cell.text, exercise)]  # fmt: skip
        if loose and not note:
            note = tr("cell {loose} defines {title}, too; cell {place}, marked, counts",
                      loose=loose[-1], title=exercise.title, place=place)  # fmt: skip
        return answer.text, note, bool(note)
    hint = _elsewhere(exercise, handed_in)
    note = tr("cell {place} does not hold the answer; {hint}", place=place, hint=hint)
    return answer.text, hint and note, bool(hint)


def _methods_outside(exercise: Exercise, answer: Answer, handed_in: Notebook) -> str:
    """A note on a method in a different cell than its class, which does not come along."""
    if not any(f"class {symbol}" in answer.source for symbol in exercise.symbols):
        return ""
    for cell in handed_in.cells:
        found = METHOD.search(cell.text) if cell.code and not cell.given else None
        if found and cell is not answer.cell and found[1] not in answer.carried:
            return tr("cell {place} defines {name} outside of the class",
                      place=cell.place, name=quoted(found[1]))  # fmt: skip
    return ""


def _elsewhere(exercise: Exercise, handed_in: Notebook) -> str:
    """Which cell may be meant as the answer, and why it cannot count."""
    if not any(cell.parts for cell in handed_in.cells):
        for lab in LABS:
            if sum(bool(answers_in(cell.text, "", lab)) for cell in handed_in.cells) > 1:
                return tr("this is the notebook of lab {number}, {title}",
                          number=lab.number, title=lab.title)  # fmt: skip
    meant = re.compile(rf"^[ \t]*(?:def|class)[ \t]+({'|'.join(exercise.symbols)})\b", re.M)
    alike = {symbol.lower().replace("_", "") for symbol in exercise.symbols}
    for cell in reversed(handed_in.cells):
        if cell.given or cell.parts or len(cell.text) > MAX_CELL or exercise_in(cell.text):
            continue
        found = meant.search(cell.text)
        if found and not cell.code:
            return tr("cell {place} defines {found}, but it is no code cell",
                      place=cell.place, found=found[1])  # fmt: skip
        if found and parsed(tidied(cell.text)) is None:
            return tr("cell {place} defines {found}, but it cannot be read as Python",
                      place=cell.place, found=found[1])  # fmt: skip
        for name in defined_names(tidied(cell.text)) if cell.code else ():
            plain = name.lower().replace("_", "").strip("0123456789")
            if name not in exercise.symbols and plain in alike:
                asked = tr("the exercise asks for {title}", title=exercise.title)
                return tr("cell {place} defines {name}, but {asked}",
                          place=cell.place, name=quoted(name), asked=asked)  # fmt: skip
    return ""


def quoted(name: str, most: int = MAX_QUOTED) -> str:
    """A learner's name for something, in a note: as much of it as anybody would read."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def written_cells(cells: list[dict]) -> dict[str, list[str]]:
    """{name of a cell: every text under that name, in order}"""
    found: dict[str, list[str]] = defaultdict(list)
    for cell in cells:
        found[cell_name(cell)].append(text_of(cell))
    return found


def cells_of(data: bytes) -> list[dict]:
    """The cells of a notebook; NotANotebook if there are none."""
    if len(data) > MAX_NOTEBOOK:
        raise NotANotebook(tr("the file has {count:,} bytes; {MAX_NOTEBOOK:,} is the most",
                              count=len(data), MAX_NOTEBOOK=MAX_NOTEBOOK))  # fmt: skip
    if values_in(data) > MAX_VALUES:
        text = tr("the file holds more than {MAX_VALUES:,} values", MAX_VALUES=MAX_VALUES)
        raise NotANotebook(text)
    if data.endswith(bytes(4)):  # a crash while it was saved leaves them
        data = data.rstrip(b"\0")
    try:
        content = json.loads(data.decode(json.detect_encoding(data), errors="replace"))
    except (ValueError, RecursionError) as error:
        why = next((tr(what) for sign, what in DAMAGES if re.search(sign, data)), "")
        text = tr("the file is not a notebook: it is not JSON ({error})", error=error)
        raise NotANotebook(why or text) from error
    cells = content.get("cells") if isinstance(content, dict) else None
    if not isinstance(cells, list):
        raise NotANotebook(tr("the file is not a notebook: it is JSON without a list of cells"))
    cells = [cell for cell in cells[:MAX_CELLS] if isinstance(cell, dict)]
    code = sum(len(text_of(cell)) for cell in cells if is_code(cell))
    if code > MAX_CODE:
        raise NotANotebook(tr("there are {code:,} characters of code; {MAX_CODE:,} is the most",
                              code=code, MAX_CODE=MAX_CODE))  # fmt: skip
    return cells


def values_in(data: bytes) -> int:
    """The most values that a file of JSON can hold, counted before it is read."""
    return sum(map(data.count, (b",", b"[", b"{")))


def is_code(cell: dict) -> bool:
    """Whether anybody will read the cell as Python; pictures pasted into text may be large."""
    text = cell.get("cell_type") in ("markdown", "raw")
    claims = ANSWER_CELL.fullmatch(cell_name(cell)) or exercise_in(text_of(cell)[:MAX_CELL])
    return not text or bool(claims)


def text_of(cell: dict) -> str:
    source = cell.get("source", "")
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    if not isinstance(source, str):
        return ""
    return source.encode("utf-8", errors="replace").decode("utf-8")


def cell_called(notebook: NotebookNode, name: str) -> NotebookNode:
    """The cell with this nbgrader grade_id."""
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade_id") == name:
            return cell
    raise KeyError(
        tr("the released notebook has no cell {name!r}; run `tinyllm build`", name=name)
    )
