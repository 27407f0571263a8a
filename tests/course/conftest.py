"""Fixtures and order of the course's own tests."""

import io
import os
import shutil
from functools import cache

import nbgrader.api
import pytest
import torch
from rich.console import Console

from labkit.author.edition import write_source
from labkit.author.owned_cells import filled, notebook_path, read_notebook
from labkit.course.syllabus import LABS, NOTEBOOKS
from labkit.grading.demo import demo
from labkit.grading.judge.judge import Judge
from labkit.grading.nbgrader.course import Course
from labkit.grading.sample_class import small_class
from labkit.sandbox.launch import WorkerLauncher
from labkit.sandbox.probe import best_sandbox
from tests.course.grading.samples import set_due

# The tests run side by side, and so do what they start: threads that wait for each other
# would burn time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["TINYLLM_LANG"] = "en"  # in any language of the machine
os.environ.setdefault("TRITON_INTERPRET", "1")  # before transformers imports Triton
# on machines without bubblewrap: only our own code runs
os.environ.setdefault("TINYLLM_NO_SANDBOX", "1")
torch.set_num_threads(1)
# nbgrader starts a program for this, which takes seconds, for every new gradebook
nbgrader.api.get_alembic_version = cache(nbgrader.api.get_alembic_version)

LONG = {"test_attacks", "test_site", "test_train"}


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items):
    """For pytest -n: a file's tests share a process, in files on all labs those of a lab, and
    so do all that need the graded class. Long files come first, so that none runs alone at the
    end."""
    items.sort(key=lambda item: item.path.stem not in LONG)
    for item in items:
        lab = getattr(item, "callspec", None) and item.callspec.params.get("lab")
        if lab and not lab.is_checkable:
            item.add_marker(pytest.mark.skip(f"not checked: {lab.needs} is not installed"))
        group = f"{item.path.stem} {lab.name}" if lab else item.path.stem
        if "graded_class" in item.fixturenames:
            group = "graded_class"
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def workers():
    with WorkerLauncher(best_sandbox()) as running:
        yield running


@pytest.fixture(scope="session")
def released():
    """{lab name: the notebook as learners get it}"""
    return {lab.name: filled(lab, read_notebook(notebook_path(lab))) for lab in NOTEBOOKS}


@pytest.fixture(scope="session")
def judges(workers, released):
    """{lab name: a judge of it}"""
    return {lab.name: Judge(lab, released[lab.name], b"secret", workers) for lab in LABS}


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """A course with the first lab released, due at a time, and nothing handed in."""
    course = Course(tmp_path_factory.mktemp("template") / "course")
    write_source(course.root)
    course.release(LABS[0])
    set_due(course)
    return course


@pytest.fixture
def released_course(template, tmp_path):
    """A copy of it."""
    return Course(shutil.copytree(template.root, tmp_path / "course"))


@pytest.fixture(scope="session")
def graded_class(tmp_path_factory):
    """The demo of the first lab, run once: its course folder, its graded class, and what it
    printed. The class has every eighth mistake, and the odd notebooks except the endless
    loop."""

    def few(lab, released, whole):
        learners = [x for x in small_class(lab, released, whole) if x.name != "loops-for-ever"]
        chosen = [learner for learner in learners if learner.mistake][::8]
        return [x for x in learners if not x.mistake or x in chosen]

    folder = tmp_path_factory.mktemp("class") / "demo"
    console = Console(file=io.StringIO(), width=80)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("labkit.grading.demo.small_class", few)
        (graded,) = demo(folder, console, LABS[:1])
    return Course(folder), graded, console.file.getvalue()
