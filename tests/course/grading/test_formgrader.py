"""Formgrader shows learners' names as text, whatever they contain."""

import html
from types import SimpleNamespace

import nbformat
from jinja2 import Environment, FileSystemLoader
from nbconvert.exporters import HTMLExporter
from nbgrader.server_extensions.formgrader.base import BaseHandler
from nbgrader.server_extensions.formgrader.handlers import template_path

from labkit.course.answers import cell_name
from labkit.grading.nbgrader.feedback import cells_to_grade
from tests.course.grading.samples import LAB, stored

PAGES = {
    "manage_students_assignments.tpl": ["student_id"],
    "manage_students_notebook_submissions.tpl": ["student_id", "assignment_id"],
    "manage_submissions.tpl": ["assignment_id"],
    "gradebook_notebooks.tpl": ["assignment_id"],
    "gradebook_notebook_submissions.tpl": ["assignment_id", "notebook_id"],
}
MARKUP = ["<img src=x onerror=alert(1)>", '"><svg onload=alert(1)>', "</title><script>alert(1)"]


def test_names_are_text_on_the_page_of_a_submission(released_course):
    course = released_course
    stored(course)
    config = course.config()
    config.HTMLExporter.template_name = "formgrade"
    config.HTMLExporter.extra_template_basedirs = [template_path]
    exporter = HTMLExporter(config=config)
    resources = {"assignment_id": LAB.name, "notebook_id": LAB.name, "submission_id": "1",
                 "index": 0, "total": 1, "base_url": "", "first_name": None, "last_name": None,
                 "student": "ada", "notebook_path": "autograded/ada/x.ipynb"}  # fmt: skip

    def page(**names):
        path = str(course.autograded(LAB, "ada"))
        return exporter.from_filename(path, resources=resources | names)[0]

    first, second, third = MARKUP
    made = page(first_name=first, last_name=second, student=third,
                notebook_path=f"autograded/{third}/x.ipynb")  # fmt: skip
    assert not [name for name in MARKUP if name in made]
    assert first in html.unescape(made) and second in html.unescape(made)
    made = page(student=third, notebook_path=f"autograded/{third}/x.ipynb")
    assert third not in made and third in html.unescape(made)
    made = html.unescape(page(first_name="Zoë & 小明", last_name="O'Brien"))
    assert "O'Brien, Zoë & 小明" in made and "&amp;" not in made


def test_the_page_of_a_submission_begins_with_the_written_answers(released_course):
    """Then come the exercises with their checks, as in the notebook; the lesson is left out."""
    notebook = nbformat.read(released_course.released_file(LAB), as_version=4)
    names = [cell_name(cell) for cell in cells_to_grade(notebook.cells)]
    written = [question.answer_cell for question in LAB.questions]
    order = [cell_name(cell) for cell in notebook.cells]
    by_place = sorted(LAB.exercises, key=lambda exercise: order.index(exercise.answer_cell))
    exercises = [name for e in by_place for name in (e.answer_cell, e.check_cell)]
    assert names[1::2] == written + exercises[1::2] and names[-len(exercises) :] == exercises
    asked = cells_to_grade(notebook.cells)[0 : 2 * len(written) : 2]
    assert all(cell.cell_type == "markdown" and "point" in cell.source for cell in asked)


def test_ids_are_text_in_lists(released_course):
    """Folders of submitted/ are listed; the address of each one's page contains its name."""
    for _ in range(2):  # formgrader reads it several times
        released_course.config()
    environment = Environment(loader=FileSystemLoader([template_path]))
    handler = SimpleNamespace(settings={"nbgrader_jinja2_env": environment})
    for template_name, keys in PAGES.items():
        for name in (*MARKUP, "O'Brien & 小明", "\\"):
            names = dict.fromkeys(keys, name)
            page = BaseHandler.render(handler, template_name, base_url="", **names)
            shown = name in page, name in html.unescape(page)
            assert shown == (name.startswith("O"), True), (template_name, name)
