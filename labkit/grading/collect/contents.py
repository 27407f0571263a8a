"""What a file holds, whatever it is called: which lab's answers, in which form.

Everything becomes a notebook: JSON under another name as it is, a script (nbconvert's,
jupytext's, a module of tinyllm/) with a cell for each of its parts.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePosixPath

from labkit.core.answers import answers_in, cell_name
from labkit.core.cells import DIRECTIVE, defined_names, directive
from labkit.core.syllabus import LABS, NOTEBOOKS, Exercise, Lab
from labkit.grading.judge.intake import MAX_CODE, NotANotebook, cells_of, text_of
from labkit.lang import said, tr
from labkit.learner.workspace import is_empty

NOTEBOOK, ARCHIVE, TEXT, LIST = "notebook", "archive", "text", "list"
SUFFIXES = {".ipynb": NOTEBOOK, ".zip": ARCHIVE, ".tar": ARCHIVE, ".gz": ARCHIVE,
            ".tgz": ARCHIVE, ".py": TEXT, ".json": TEXT, ".txt": TEXT, "": TEXT,
            ".csv": LIST}  # fmt: skip
GRADESCOPE = "submission_metadata.yml"
# What cannot be graded, in a word
OTHERS = dict.fromkeys((".html", ".htm"), said("a web page only shows a notebook")) | {
    ".pdf": said("a PDF only shows a notebook"),
    ".rar": said("a .rar cannot be read, a .zip can"),
    ".7z": said("a .7z cannot be read, a .zip can"),
}
NEEDED = said("the notebook itself, the .ipynb, is needed")

BY_CELL = {name: lab for lab in NOTEBOOKS for name in lab.cells}
BY_SYMBOL = {symbol: (lab, e) for lab in LABS for e in lab.exercises for symbol in e.symbols}
DEFINES = re.compile(rf"^(?:def|class)[ \t]+({'|'.join(BY_SYMBOL)})\b", re.MULTILINE)
# nbconvert's and jupytext's lines between cells; the light form has signs of its own
BETWEEN = re.compile(r"^# (?:In\[[ \d]*\]:|%%)[^\n]*$", re.MULTILINE)
BETWEEN_LIGHT = re.compile(r"^# (?:In\[[ \d]*\]:|%%|\+(?= |$)|-$)[^\n]*$", re.MULTILINE)
LIGHT = re.compile(r"^#\s+format_name: light$", re.MULTILINE)
UNCOMMENTED = re.compile(r"^# ?", re.MULTILINE)
GRADE_ID = re.compile(r'"grade_id": "([\w-]+)"')
SCRIPT = re.compile(rb"^# (?:%%[ \t]*exercise[ \t]+\d|In\[[ \d]*\]:)", re.MULTILINE)


@dataclass(frozen=True)
class Content:
    """A notebook, and what is in it.

    votes     cells that say to which lab they belong
    answers   {exercise id: the cell that answers it}, of those that were begun
    script    it was a script; a module of the package is one, too
    """

    data: bytes
    votes: Counter[Lab] = field(default_factory=Counter)
    answers: dict[str, str] = field(default_factory=dict)
    script: bool = False

    @property
    def lab(self) -> Lab | None:
        """The lab of its cells, where they leave no doubt."""
        (first, most), (_, other) = [*self.votes.most_common(2), (None, 0), (None, 0)][:2]
        return first if most >= 2 * other else None

    def of_lab(self, lab: Lab) -> dict[str, str]:
        """Of the answers those to this lab."""
        return {e.id: self.answers[e.id] for e in lab.exercises if e.id in self.answers}


def kind_of(name: str) -> str:
    """What a file may be by its name; empty for what is not read."""
    lower = name.lower()
    if lower == GRADESCOPE:
        return LIST
    if ".ipynb." in lower and not lower.endswith((".zip", ".gz")):
        return NOTEBOOK
    return SUFFIXES.get(PurePosixPath(lower).suffix, "")


def plausible(name: str, data: bytes) -> bool:
    """Whether a file may be a submission or a list; a quick look, for there may be many."""
    kind = kind_of(name)
    if kind in (NOTEBOOK, LIST):
        return True
    if b'"nbformat"' in data and (b'"cells"' in data or b'"worksheets"' in data):
        return True
    if len(data) > 2 * MAX_CODE:
        return False
    if SCRIPT.search(data):
        return True
    if not name.lower().endswith(".py"):
        return False
    found = Counter(
        BY_SYMBOL[n][0] for n in set(DEFINES.findall(data.decode("utf-8", "replace")))
    )
    return any(2 * count >= len(lab.exercises) for lab, count in found.items())


def ungraded(name: str) -> str:
    """Why a file that is no notebook cannot be graded."""
    suffix = PurePosixPath(name.lower()).suffix
    return tr(OTHERS.get(suffix, said("it is no notebook"))) + tr("; ") + tr(NEEDED)


def read(name: str, data: bytes) -> Content:
    """What is in the file; NotANotebook, which says why, if nothing is."""
    if not data.strip():
        raise NotANotebook(tr("the file is empty"))
    if data[:5] == b"%PDF-" or data[:4] == b"Rar!":
        raise NotANotebook(ungraded("x.pdf" if data[:1] == b"%" else "x.rar"))
    if data.lstrip()[:1] == b"<":
        raise NotANotebook(ungraded("x.html"))
    script = is_script(name, data)
    if script:
        data = notebook_of(data.decode("utf-8-sig", "replace"))
    votes: Counter[Lab] = Counter()
    answers: dict[str, str] = {}
    symbols: Counter[Lab] = Counter()
    for cell in cells_of(data):
        text, called = text_of(cell), cell_name(cell)
        labs = {found for key in _ids(text) if (found := _lab_of(key))}
        labs = labs or {BY_CELL[called]} if called in BY_CELL else labs
        votes.update(labs)
        symbols.update(BY_SYMBOL[symbol][0] for symbol in DEFINES.findall(text))
        for lab in labs.intersection(LABS):
            for key, part in answers_in(text, called, lab).items():
                if not is_empty(lab.exercise(key), part):
                    answers[key] = part
    return Content(data, votes or symbols, answers, script)


def is_script(name: str, data: bytes) -> bool:
    """Whether it is Python's text, whatever it is called."""
    if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        return False
    return bool(SCRIPT.search(data)) or name.lower().endswith(".py")


def _ids(text: str) -> list[str]:
    return [found[1] for found in DIRECTIVE.finditer(text) if found[1]]


def _lab_of(exercise: str) -> Lab | None:
    number = exercise.split(".")[0].zfill(2)
    return next((lab for lab in NOTEBOOKS if lab.number == number), None)


# Scripts


def notebook_of(script: str) -> bytes:
    """A script as a notebook: a cell for each part between the marks of the tool that wrote it.

    What defines an exercise's names and has lost its mark gets it back.
    """
    script = script.replace("\r\n", "\n")
    between = BETWEEN_LIGHT if LIGHT.search(script) else BETWEEN
    marks = list(between.finditer(script))
    edges = [0, *(mark.start() for mark in marks), len(script)]
    parts = [script[a:b] for a, b in pairwise(edges)]
    claimed, cells, waiting = set(_ids(script)), [], ""
    for part in parts:
        mark = between.match(part)
        if mark and not DIRECTIVE.match(part):
            head, part = mark[0], part[mark.end() :]
        else:
            head = ""
        grade_id = GRADE_ID.search(head)
        if not part.strip():
            waiting = grade_id[1] if grade_id else ""  # its directive stands in the next line
            continue
        name = grade_id[1] if grade_id else waiting
        waiting = ""
        if "[markdown]" in head:
            cells.append(_cell("markdown", UNCOMMENTED.sub("", part), name))
            continue
        part, texts = _code_and_texts(part)
        lost = [e for e in _defined(part) if e.id not in claimed] if not _ids(part) else []
        cells += [_cell("code", f"{directive(e)}\n{part}", "") for e in lost]
        if not lost and part:
            cells.append(_cell("code", part, name))
        cells += [_cell("markdown", text, "") for text in texts]
    content = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False).encode("utf-8", "replace")


def _code_and_texts(part: str) -> tuple[str, list[str]]:
    """nbconvert and jupytext's light form write texts as comments below the code, with an empty
    line between two of them."""
    code = re.match(r"(?:.*\n)*[^#\n].*", part)
    end = code.end() if code else 0
    texts = re.split(r"\n\s*\n", part[end:].strip()) if end or not _ids(part) else []
    return part[:end] if texts else part, [UNCOMMENTED.sub("", text) for text in texts]


def _defined(part: str) -> list[Exercise]:
    """The exercises whose names a part of a script defines."""
    names = DEFINES.findall(part) and defined_names(part)
    found = [BY_SYMBOL[name][1] for name in names or () if name in BY_SYMBOL]
    return list(dict.fromkeys(found))


def _cell(kind: str, source: str, name: str) -> dict:
    cell = {"cell_type": kind, "metadata": {}, "source": source.strip("\n")}
    if name:
        cell["metadata"] = {"nbgrader": {"grade_id": name}}
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    return cell


def completed(data: bytes, answers: dict[str, str]) -> bytes:
    """A notebook with answers of the package before its own cells, which count where they are
    filled in."""
    cells = [_cell("code", text, "") for text in answers.values()] + cells_of(data)
    content = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False).encode("utf-8", "replace")
