"""Odd but honest forms of a notebook lose no points in grading, or the report says why."""

import pytest
from forms import FORMS, LAB, POINTS
from nbformat.v4 import new_code_cell, new_notebook

from labkit.author.owned_cells import setup_cell
from labkit.grading.sample_class import encoded


def unfair(form, judge):
    """The differences from the form's expectation, with the reports; none is expected."""
    sources = [setup_cell(LAB), *form.sources]
    notebook = new_notebook(cells=[new_code_cell(source) for source in sources])
    graded = judge.grade(encoded(notebook)).exercises
    reports = {row.id: " ".join(str(row.report).split()) for row in graded}
    lost = {row.id for row in graded if row.score < POINTS[row.id]}
    asked = {row.id for row in graded if row.needs_person}
    words = [word for key, word in form.lost.items() if word not in reports[key]]
    words += [form.seen] * (form.seen not in reports["1.1"])
    if lost != set(form.lost) or asked != set(form.asked) or words:
        return {"lost": lost, "asked": asked, "not in the report": words, "reports": reports}
    return None


@pytest.mark.full
def test_every_form_gets_what_is_fair(judges):
    assert len(FORMS) == 94
    found = {name: unfair(form, judges[LAB.name]) for name, form in FORMS.items()}
    assert {name: differs for name, differs in found.items() if differs} == {}
