"""From whatever bytes a learner handed in to the released notebook with their answers in it.

The released notebook is the frame: its text, checks and ids are kept, and only answer cells
are taken from the submission. A cell says which answer it is by its directive, else by its
nbgrader grade_id, else by its cell id; of several copies the last one that is filled in
counts. Whatever is missing or odd becomes a note that the learner will read.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import nbformat
from nbformat import NotebookNode

from labkit.core.cells import defined_names, exercise_in, fingerprint, split, tidied
from labkit.core.report import Status
from labkit.core.syllabus import Exercise, Lab
from labkit.learner.submit import EMPTY_ANSWER

UNTOUCHED = "raise NotImplementedError("  # stands in every stub
MAX_NOTEBOOK = 32 << 20
MAX_CELL = 200_000
MAX_CELLS = 5_000
MAX_CODE = 1_000_000  # characters: to read them takes seconds, and a class is waiting


@dataclass
class Intake:
    """The rebuilt notebook, the source of each exercise cell (None: missing), and notes."""

    notebook: NotebookNode
    answers: dict[str, str | None] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)  # exercises that nobody has begun
    problem: str | None = None  # the whole file could not be read


class NotANotebook(ValueError):
    """Bytes in which no notebook can be found; the message says why."""


def rebuild(data: bytes, released: NotebookNode, lab: Lab) -> Intake:
    """The released notebook with the submission's answers; never raises for odd bytes."""
    intake = Intake(sheet(released))
    try:
        cells = cells_of(data)
    except NotANotebook as error:
        intake.problem = str(error)
        cells = []
    found = candidates(cells, lab)
    for exercise in lab.exercises:
        _take_exercise(intake, exercise, found, cells)
    for question in lab.questions:
        texts = [text for text in found[question.answer_cell] if text.strip()]
        answered = [text for text in texts if text.strip() != EMPTY_ANSWER]
        if answered:
            cell_called(intake.notebook, question.answer_cell).source = answered[-1]
    return intake


def sheet(released: NotebookNode) -> NotebookNode:
    """A copy of the released notebook with cells that can be filled in."""
    return NotebookNode(released, cells=[NotebookNode(cell) for cell in released.cells])


def _take_exercise(
    intake: Intake, exercise: Exercise, found: dict[str, list[str]], cells: list[dict]
) -> None:
    copies = found[exercise.id]
    stub = cell_called(intake.notebook, exercise.answer_cell).source
    filled = [text for text in copies if text.strip() and not untouched(text, stub)]
    if intake.problem:
        intake.answers[exercise.id] = None
        intake.notes[exercise.id] = intake.problem
        return
    if not copies:
        intake.answers[exercise.id] = None
        intake.notes[exercise.id] = (
            f"the cell of exercise {exercise.id} is missing" + _elsewhere(exercise, cells)
        )
        intake.absent.add(exercise.id)
        return
    if not filled:
        intake.answers[exercise.id] = ""
        intake.notes[exercise.id] = Status.NOT_STARTED.value
        intake.absent.add(exercise.id)
        return
    answer = filled[-1]
    if len(answer) > MAX_CELL:
        intake.answers[exercise.id] = None
        intake.notes[exercise.id] = (
            f"the cell has {len(answer):,} characters; {MAX_CELL:,} is the most"
        )
        return
    if len(set(filled)) > 1:
        intake.notes[exercise.id] = (
            f"{len(filled)} cells answer this exercise; the last one counts"
        )
    elif not set(exercise.symbols) & set(defined_names(tidied(answer))):
        extra = _elsewhere(exercise, cells)
        if extra:
            intake.notes[exercise.id] = "the exercise's cell does not hold the answer" + extra
    intake.answers[exercise.id] = answer
    cell_called(intake.notebook, exercise.answer_cell).source = answer


def untouched(text: str, stub: str) -> bool:
    """Whether the cell's code is still what was released."""
    if len(text) > MAX_CELL or (UNTOUCHED in stub and UNTOUCHED not in text):
        return False  # without reading it as Python, which takes time
    return fingerprint(text) == fingerprint(stub)


def _elsewhere(exercise: Exercise, cells: list[dict]) -> str:
    """Where else the symbol is defined, for a cell that was split or lost its marks."""
    for number, cell in enumerate(cells, 1):
        text = text_of(cell)
        if len(text) > MAX_CELL or exercise.symbols[0] not in text or not is_code(cell):
            continue
        if exercise.symbols[0] in defined_names(text) and exercise_in(text) is None:
            return (
                f"; cell {number} defines {exercise.symbols[0]}, but the whole answer "
                f'belongs in one cell that begins with "# %% exercise {exercise.id}"'
            )
    return ""


def candidates(cells: list[dict], lab: Lab) -> dict[str, list[str]]:
    """{exercise id or answer cell id: every cell that claims to be it, in order}."""
    found: dict[str, list[str]] = defaultdict(list)
    for cell in cells:
        merged = blocks_of(text_of(cell), lab)
        for exercise_id, text in merged.items():
            found[exercise_id].append(text)
        if not merged:
            found[claimed(cell, lab)].append(text_of(cell))
    return found


def blocks_of(text: str, lab: Lab) -> dict[str, str]:
    """{exercise id: its part} of cells that were merged into one; {} for any other cell."""
    known, merged, before = {e.id for e in lab.exercises}, {}, ""
    pieces = split(text) if len(text) <= MAX_CELL else []
    for key, piece in pieces:
        if key not in known:
            before += piece
        else:
            merged[key], before = before + piece, ""
    return merged if len(merged) > 1 else {}


def claimed(cell: dict, lab: Lab) -> str:
    """What a cell says it is: 1.2 for an exercise cell, written-1-a for a written answer.

    Where the directive and the ids disagree, what the cell defines decides.
    """
    by_directive = exercise_in(text_of(cell)[:MAX_CELL])
    metadata = cell.get("metadata")
    marks = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    name = marks.get("grade_id") if isinstance(marks, dict) else None
    name = name if isinstance(name, str) else cell.get("id")
    name = name if isinstance(name, str) else ""
    by_id = next((e for e in lab.exercises if e.answer_cell == name), None)
    if by_directive is None:
        return by_id.id if by_id else name
    if by_id and by_id.id != by_directive and len(text_of(cell)) <= MAX_CELL:
        defined = set(defined_names(tidied(text_of(cell))))
        if defined & set(by_id.symbols):
            return by_id.id
    return by_directive


def cells_of(data: bytes) -> list[dict]:
    """The cells of a notebook, old formats included; NotANotebook if there are none."""
    if len(data) > MAX_NOTEBOOK:
        raise NotANotebook(f"the file has {len(data):,} bytes; {MAX_NOTEBOOK:,} is the most")
    try:
        content = json.loads(data.decode(json.detect_encoding(data), errors="replace"))
    except (ValueError, RecursionError) as error:
        raise NotANotebook(f"the file is not a notebook: it is not JSON ({error})") from error
    if isinstance(content, dict) and content.get("nbformat") in (1, 2, 3):
        content = _upgraded(content)
    cells = content.get("cells") if isinstance(content, dict) else None
    if not isinstance(cells, list):
        raise NotANotebook("the file is not a notebook: it is JSON without a list of cells")
    cells = [cell for cell in cells[:MAX_CELLS] if isinstance(cell, dict)]
    code = sum(len(text_of(cell)) for cell in cells if is_code(cell))
    if code > MAX_CODE:
        raise NotANotebook(f"there are {code:,} characters of code; {MAX_CODE:,} is the most")
    return cells


def is_code(cell: dict) -> bool:
    """Whether anybody will read the cell as Python; pictures pasted into text may be large."""
    text = cell.get("cell_type") in ("markdown", "raw")
    return not text or exercise_in(text_of(cell)[:MAX_CELL]) is not None


def _upgraded(content: dict[str, Any]) -> dict[str, Any]:
    try:
        return nbformat.convert(nbformat.from_dict(content), 4)
    except Exception as error:  # nbformat raises whatever an old file makes it stumble over
        raise NotANotebook(
            f"the file is an old notebook that cannot be converted ({error})"
        ) from error


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
    raise KeyError(f"the released notebook has no cell {name!r}; run `tinyllm build`")
