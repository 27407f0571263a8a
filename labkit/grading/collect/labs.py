"""Which lab a notebook is of, and what it answers: by its cells, else by its name."""

from __future__ import annotations

import re
from collections import Counter

from labkit.course.answers import answers_in, cell_name
from labkit.course.cells import DIRECTIVE
from labkit.course.syllabus import LABS, NOTEBOOKS, Lab
from labkit.grading.judge.notebook_file import cells_of, text_of
from labkit.learner.workspace import is_empty

BY_CELL = {name: lab for lab in NOTEBOOKS for name in lab.cells}
BY_NUMBER = {lab.number: lab for lab in NOTEBOOKS}
BY_MODULE = {lab.module: lab for lab in LABS}
# rmsnorm.py, as platforms name it: ann_12_34_rmsnorm-1.py
MODULE = re.compile(rf"(?:^|[^a-zA-Z])({'|'.join(BY_MODULE)})(?:-\d+)?\.py$")
GIVEN = {"solutions", "backups", "tests"}  # folders of a project with modules that are not it
ASIDE = {"given", "backups"}  # and with notebooks


def read_notebook(data: bytes) -> tuple[Counter[Lab], frozenset[str]]:
    """Of each lab the number of cells that name it, and the exercises that are answered;
    NotANotebook, which says why, if it is none."""
    votes: Counter[Lab] = Counter()
    begun: set[str] = set()
    for cell in cells_of(data):
        text, name = text_of(cell), cell_name(cell)
        numbers = {found[1].split(".")[0].zfill(2) for found in DIRECTIVE.finditer(text)
                   if found[1]}  # fmt: skip
        labs = {BY_NUMBER[number] for number in numbers if number in BY_NUMBER}
        labs = labs or {BY_CELL[name]} if name in BY_CELL else labs
        votes.update(labs)
        for lab in labs.intersection(LABS):
            for key, part in answers_in(text, name, lab).items():
                if not is_empty(lab.exercise(key), part):
                    begun.add(key)
    return votes, frozenset(begun)


def lab_of(votes: Counter[Lab]) -> Lab | None:
    """The lab of a notebook's cells, where they leave no doubt."""
    (first, most), (_, other) = [*votes.most_common(2), (None, 0), (None, 0)][:2]
    return first if most >= 2 * other else None


def lab_by_name(parts: tuple[str, ...]) -> Lab | None:
    """The lab whose name stands in the file's name (01_rmsnorm, 1-rmsnorm), or else in that of
    a folder above it."""
    for part in reversed(parts):
        named = [lab for lab in NOTEBOOKS
                 if re.search(rf"(?<!\d)0?{int(lab.number)}[ _-]{lab.module}(?![a-z])", part,
                              re.IGNORECASE)]  # fmt: skip
        if len(named) == 1:
            return named[0]
    return None


def lab_of_module(parts: tuple[str, ...]) -> Lab | None:
    """The lab of which a file may be a learner's module of `tinyllm`."""
    found = None if GIVEN & {*parts[:-1]} else MODULE.search(parts[-1])
    return BY_MODULE[found[1]] if found else None


def rank_in_project(parts: tuple[str, ...]) -> int:
    """Of the notebooks in one project those of the highest rank count: the copy that `tinyllm
    submit` wrote, then the one a learner works in, then those given out or kept as a backup."""
    folders = {*parts[1:-1]}
    return 2 if "submissions" in parts[:-1] else int(not folders & ASIDE)
