"""The cells that the build owns: inserting missing ones, and creating a notebook."""

import re

import nbformat

from labkit.author import owned_cells
from labkit.author.owned_cells import (
    begun,
    filled,
    notebook_path,
    read_notebook,
    read_or_begin,
)
from labkit.author.translation import messages
from labkit.course.syllabus import LABS, NOTEBOOKS

OWNED = re.compile(r"setup|map|finish|(about|ex|check|written)-\d-\w")


def without(lab, *names):
    """The ids of the cells after a build that has to restore these cells"""
    notebook = read_notebook(notebook_path(lab))
    notebook.cells = [cell for cell in notebook.cells if cell.id not in names]
    return [cell.id for cell in filled(lab, notebook).cells]


def test_a_missing_cell_is_put_where_it_belongs():
    for lab in LABS:
        ids = without(lab)
        tried = {e.check_cell for e in lab.exercises if e.hunt}  # below an experiment
        owned = [name for name in ids if OWNED.fullmatch(name) and name not in tried]
        for names in (owned[::2], owned[1::2]):  # two neighbours are never lost together
            assert without(lab, *names) == ids, (lab.name, names)


def test_a_whole_exercise_or_question_comes_before_the_next_one():
    lab = LABS[0]
    names = [exercise.slug for exercise in lab.exercises if not exercise.hunt]
    after = [*(f"about-{name}" for name in names[1:]), "summary"]
    for name, later in zip(names, after, strict=True):
        cells = [f"about-{name}", f"ex-{name}", f"check-{name}"]
        ids = without(lab, *cells)
        place = ids.index(later)
        assert ids[place - 3 : place] == cells
    last = lab.questions[-1].answer_cell.removeprefix("written-")
    ids = without(lab, f"question-{last}", f"written-{last}")
    assert ids[-4:] == [f"question-{last}", f"written-{last}", "summary", "finish"]


def test_a_notebook_is_begun_with_all_its_cells_in_order():
    for lab in NOTEBOOKS:
        notebook = filled(lab, begun(lab))
        nbformat.validate(notebook)
        ids = [cell.id for cell in notebook.cells]
        assert ids[0] == "title" and ids[-2:] == ["summary", "finish"]
        owned = [cell for cell in without(lab) if OWNED.fullmatch(cell)]
        found = sorted(filter(OWNED.fullmatch, ids))
        assert found == (sorted(owned) if lab.exercises else ["finish"]), lab.name


def test_the_build_begins_a_notebook_that_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(owned_cells, "NOTEBOOKS", tmp_path)
    lab = LABS[0]
    ids = [cell.id for cell in filled(lab, read_or_begin(lab)).cells]
    assert {"title", "map", "summary", "finish"} <= set(ids)
    texts = [message.text for message in messages.of_lab(lab)]
    assert f"# Lab {lab.number}: {lab.title}" in texts
