"""A course with two submissions, ada's blank notebook and bob's right one; and helpers for
tests of whole runs. Grading is done in this process: `here`."""

import csv
import re
from concurrent.futures import ThreadPoolExecutor

from typer.testing import CliRunner

from labkit.cli import app
from labkit.course.syllabus import LABS
from labkit.grading.run.pool import RunningExecutor
from labkit.grading.sample_class import Learner, encoded, hand_in, solved

LAB = LABS[0]
ALL = sum(exercise.points for exercise in LAB.exercises)
RIGHT = {"ada": 0, "bob": ALL}


def judge_here(pool):
    """An executor that judges in this process."""
    executor = ThreadPoolExecutor(1)
    return RunningExecutor(executor, lambda: 1, lambda at_once: executor.shutdown())


def two_hand_in(course):
    released = course.released(LAB)
    for name, notebook in (("ada", released), ("bob", solved(released, LAB))):
        hand_in(course.root, LAB, Learner(name, encoded(notebook)))


def submitted(course, learner):
    return course.root / "submitted" / learner / LAB.name / f"{LAB.name}.ipynb"


def autograded(course, learner):
    return course.root / "autograded" / learner / LAB.name / f"{LAB.name}.ipynb"


def page_of(course, learner):
    return course.root / "feedback" / learner / LAB.name / f"{LAB.name}.html"


def tinyllm(*arguments):
    """Run the command; return (status, output)."""
    done = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def grade(course, *options):
    options = options or ("--no-sandbox",)
    return tinyllm("grade", LAB.module, "--course", course.root, *options)


def points(course):
    return {name: standing.total for name, standing in course.standings(LAB).items()}


def look_at(course):
    """{learner: remarks for a person} from the lab's table."""
    with (course.root / f"{LAB.name}.csv").open(newline="", encoding="utf-8-sig") as file:
        return {row["learner"]: row["look at"] for row in csv.DictReader(file)}


def all_files(course):
    files = {path for path in course.root.rglob("*") if path.is_file()}
    kept = (".secret", ".lock", ".lock-holder")
    return {path: path.read_bytes() for path in files if path.name not in kept}


def assert_refused(course, *words):
    """Check that the command ends with one line with these words, and changes no file."""
    before = all_files(course)
    status, output = grade(course)
    assert status == 2 and output.count("\n") == 1, output
    for word in words:
        assert re.search(word, output), output
    assert all_files(course) == before
