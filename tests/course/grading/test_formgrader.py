"""What formgrader shows of learners' names: text, whatever they are called."""

import html
from types import SimpleNamespace

import pytest
from jinja2 import Environment, FileSystemLoader
from nbconvert.exporters import HTMLExporter
from nbgrader.server_extensions.formgrader.base import BaseHandler
from nbgrader.server_extensions.formgrader.handlers import template_path

from tests.course.grading.test_gradebook import (  # noqa: F401  fixtures are among them
    LAB,
    course,
    stored,
    template,
)

# ruff: noqa: F811  fixtures

PAGES = {
    "manage_students_assignments.tpl": ["student_id"],
    "manage_students_notebook_submissions.tpl": ["student_id", "assignment_id"],
    "manage_submissions.tpl": ["assignment_id"],
    "gradebook_notebooks.tpl": ["assignment_id"],
    "gradebook_notebook_submissions.tpl": ["assignment_id", "notebook_id"],
}
MARKUP = ["<img src=x onerror=alert(1)>", '"><svg onload=alert(1)>', "</title><script>alert(1)"]


def page_of(course, **names):
    """The page of a submission as formgrader makes it."""
    config = course.config()
    config.HTMLExporter.template_name = "formgrade"
    config.HTMLExporter.extra_template_basedirs = [template_path]
    resources = {"assignment_id": LAB.name, "notebook_id": LAB.name, "submission_id": "1",
                 "index": 0, "total": 1, "base_url": "", "first_name": None, "last_name": None,
                 "student": "ada", "notebook_path": "autograded/ada/x.ipynb"}  # fmt: skip
    path = course.autograded(LAB, "ada")
    page, _ = HTMLExporter(config=config).from_filename(str(path), resources=resources | names)
    return page


@pytest.mark.parametrize("name", MARKUP)
def test_names_are_text(course, name):
    stored(course)
    given = [{"first_name": name, "last_name": "Low"}, {"first_name": "Eve", "last_name": name},
             {"student": name, "notebook_path": f"autograded/{name}/x.ipynb"}]  # fmt: skip
    for names in given:
        page = page_of(course, **names)
        assert name not in page and name in html.unescape(page)


def test_names_show_as_they_are(course):
    stored(course)
    page = html.unescape(page_of(course, first_name="Zoë & 小明", last_name="O'Brien"))
    assert "O'Brien, Zoë & 小明" in page and "&amp;" not in page
    assert "ada" in page_of(course)


@pytest.mark.parametrize("template_name", sorted(PAGES))
@pytest.mark.parametrize("name", [*MARKUP, "O'Brien & 小明", "\\"])
def test_ids_are_text_in_lists(course, template_name, name):
    """Folders of submitted/ are listed; the page of each has its name in its address."""
    for _ in range(2):  # as formgrader reads it, again and again
        course.config()
    environment = Environment(loader=FileSystemLoader([template_path]))
    handler = SimpleNamespace(settings={"nbgrader_jinja2_env": environment})
    names = dict.fromkeys(PAGES[template_name], name)
    page = BaseHandler.render(handler, template_name, base_url="", **names)
    assert (name in page) == name.startswith("O") and name in html.unescape(page)
