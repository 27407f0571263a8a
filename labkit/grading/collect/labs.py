"""The lab of a notebook: by its cells, else by its name."""

from __future__ import annotations

import re
from collections import Counter

from labkit.course.answers import cell_name
from labkit.course.cells import DIRECTIVE
from labkit.course.syllabus import NOTEBOOKS, Lab
from labkit.grading.judge.notebook_file import cells_of, text_of

BY_CELL = {name: lab for lab in NOTEBOOKS for name in lab.cells}
BY_NUMBER = {lab.number: lab for lab in NOTEBOOKS}
GIVEN = {"given", "backups"}  # folders of a project whose notebooks are not submissions


def lab_of_cells(data: bytes) -> Lab | None:
    """Return the lab that the cells of a notebook belong to; None if they do not decide.

    Raises NotANotebook, with the reason, for any other file.
    """
    votes: Counter[Lab] = Counter()
    for cell in cells_of(data):
        name = cell_name(cell)
        numbers = [match[1] for match in DIRECTIVE.finditer(text_of(cell)) if match[1]]
        labs = {BY_NUMBER.get(number.split(".")[0].zfill(2)) for number in numbers} - {None}
        votes.update(labs or ({BY_CELL[name]} if name in BY_CELL else ()))
    (first, most), (_, other) = [*votes.most_common(2), (None, 0), (None, 0)][:2]
    return first if most >= 2 * other else None


def lab_by_name(parts: tuple[str, ...]) -> Lab | None:
    """Return the lab in the file's name (01_rmsnorm, 1-rmsnorm) or the nearest folder's."""
    for part in reversed(parts):
        named = [lab for lab in NOTEBOOKS
                 if re.search(rf"(?<!\d)0?{int(lab.number)}[ _-]{lab.module}(?![a-z])", part,
                              re.IGNORECASE)]  # fmt: skip
        if len(named) == 1:
            return named[0]
    return None


def rank_in_project(parts: tuple[str, ...]) -> int:
    """Rank the notebooks of one project; only those of the highest rank count: the copy that
    `tinyllm submit` wrote, then the one a learner works in, then given ones and backups."""
    return 2 if "submissions" in parts[:-1] else int(not {*parts[1:-1]} & GIVEN)
