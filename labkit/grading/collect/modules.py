"""A lab's module of `tinyllm` beside a notebook. Only the notebook is graded. If it has blank
cells that the module answers, this is an issue: a person asks for a complete notebook."""

from __future__ import annotations

import re

from labkit.course import cells
from labkit.course.answers import answers_in, cell_name
from labkit.course.lang import tr
from labkit.course.syllabus import LABS, Lab
from labkit.grading.judge.notebook_file import MAX_CODE, cells_of, text_of
from labkit.learner.workspace import is_empty

BY_MODULE = {lab.module: lab for lab in LABS}
# rmsnorm.py, as platforms name it: ann_12_34_rmsnorm-1.py
MODULE = re.compile(rf"(?:^|[^a-zA-Z])({'|'.join(BY_MODULE)})(?:-\d+)?\.py$")
GIVEN = {"solutions", "backups", "tests"}  # folders of a project with other modules


def lab_of_module(parts: tuple[str, ...]) -> Lab | None:
    """Return the lab whose module, written by a learner, a file may be."""
    found = None if GIVEN & {*parts[:-1]} else MODULE.search(parts[-1])
    return BY_MODULE[found[1]] if found else None


def blank_cells(lab: Lab, notebook: bytes, module: bytes) -> str:
    """Return which exercises a module answers and the notebook does not, as a sentence."""
    blocks = dict(cells.split(module[:MAX_CODE].decode("utf-8", "replace")))
    for cell in cells_of(notebook):
        for key, text in answers_in(text_of(cell), cell_name(cell), lab).items():
            if not is_empty(lab.exercise(key), text):
                blocks.pop(key, None)
    missing = [e.id for e in lab.exercises if not is_empty(e, blocks.get(e.id))]
    return tr("{names}: blank in the notebook, answered in {module}.py; ask for the notebook "
              "that `tinyllm submit` writes", names=tr(", ").join(missing), module=lab.module,
              ) if missing else ""  # fmt: skip
