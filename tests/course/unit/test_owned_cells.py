"""The cells that the build owns: put in where they are missing, a notebook begun."""

import re

import nbformat
import pytest

from labkit.author.owned_cells import begun, filled, notebook_path, read_notebook
from labkit.core.syllabus import LABS, NOTEBOOKS

OWNED = re.compile(r"setup|map|finish|(about|ex|check|written)-\d-\w")


def without(lab, *names):
    """The ids of the notebook that is filled after these cells were lost."""
    notebook = read_notebook(notebook_path(lab))
    notebook.cells = [cell for cell in notebook.cells if cell.id not in names]
    return [cell.id for cell in filled(lab, notebook).cells]


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.name)
def test_a_missing_cell_is_put_where_it_belongs(lab):
    ids = without(lab)
    for name in filter(OWNED.fullmatch, ids):
        assert without(lab, name) == ids, name


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.name)
def test_a_whole_exercise_or_question_comes_before_the_next_one(lab):
    names = [exercise.slug for exercise in lab.exercises]
    after = [*(f"about-{name}" for name in names[1:]), "summary"]
    for name, later in zip(names, after, strict=True):
        cells = [f"about-{name}", f"ex-{name}", f"check-{name}"]
        ids = without(lab, *cells)
        place = ids.index(later)
        assert ids[place - 3 : place] == cells
    last = lab.questions[-1].answer_cell.removeprefix("written-")
    ids = without(lab, f"question-{last}", f"written-{last}")
    assert ids[-4:] == [f"question-{last}", f"written-{last}", "summary", "finish"]


@pytest.mark.parametrize("lab", NOTEBOOKS, ids=lambda lab: lab.name)
def test_a_notebook_is_begun_with_all_its_cells_in_order(lab):
    notebook = filled(lab, begun(lab))
    nbformat.validate(notebook)
    ids = [cell.id for cell in notebook.cells]
    assert ids[0] == "title" and ids[-2:] == ["summary", "finish"]
    owned = [cell for cell in without(lab) if OWNED.fullmatch(cell)]
    ungraded = lab.number == "09"
    assert sorted(filter(OWNED.fullmatch, ids)) == (["finish"] if ungraded else sorted(owned))
