"""Fixtures of the tests of grading."""

import shutil

import pytest

from labkit.grading.collect import deliver
from labkit.grading.nbgrader.course import Course
from labkit.grading.run.pool import EXECUTORS
from tests.course.grading.samples import LAB, zipped
from tests.course.grading.two_learners import judge_here, two_hand_in


@pytest.fixture
def course(tmp_path):
    """An empty course folder."""
    (tmp_path / "course").mkdir()
    return Course(tmp_path / "course")


class Inbox:
    """A course folder, and files that are collected into it."""

    def __init__(self, folder):
        self.folder, self.course = folder, Course(folder / "course")
        self.course.root.mkdir(parents=True)
        self.root = self.course.root

    def take(self, files, name="export.zip", **options):
        """Collect files, in a zip of this name or in a folder; the lines of the table."""
        path = self.folder / name
        if name.endswith(".zip"):
            path.write_bytes(files if isinstance(files, bytes) else zipped(files))
        for part, data in {} if name.endswith(".zip") else files.items():
            (path / part).parent.mkdir(parents=True, exist_ok=True)
            (path / part).write_bytes(data)
        return deliver.collect(self.course, [path], **options)

    def handed_in(self, lab=LAB):
        """{learner: the notebook that counts}"""
        paths = (self.root / "submitted").glob(f"*/{lab.name}/{lab.name}.ipynb")
        return {path.parts[-3]: path.read_bytes() for path in paths}

    def kept(self, where="collected"):
        """The notebooks that were kept, whether they count or not."""
        return [path.read_bytes() for path in (self.root / where).rglob("*.ipynb")]


@pytest.fixture
def inboxes(tmp_path):
    """Makes a new inbox for each case of a table."""
    return lambda: Inbox(tmp_path / f"inbox {len(list(tmp_path.iterdir()))}")


@pytest.fixture
def inbox(inboxes):
    return inboxes()


@pytest.fixture
def handed_in(released_course, tmp_path, monkeypatch):
    """A course with two notebooks to be graded, by a judge in this process."""
    monkeypatch.setitem(EXECUTORS, "processes", judge_here)
    course = Course(shutil.copytree(released_course.root, tmp_path / "two"))
    two_hand_in(course)
    return course
