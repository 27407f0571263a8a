"""nbgrader's own commands on a course folder: what travels beside the notebook, and feedback
through nbgrader's exchange."""

import os
from datetime import datetime, timezone

import pytest
from typer.testing import CliRunner

from labkit.cli import app
from labkit.grading.nbgrader.course import Course
from labkit.grading.sample_class import Learner, encoded, hand_in, solved
from tests.course.grading.test_gradebook import (  # noqa: F401  fixtures are among them
    LAB,
    by_hand,
    course,
    handed,
    stored,
    template,
)

# ruff: noqa: F811  fixtures

SECRET = "5ec2e7" * 20
STAMP = "2026-03-01 11:00:00 UTC"
NOTEBOOK, PAGE = f"{LAB.name}.ipynb", f"{LAB.name}.html"
TRAVELERS = {"timestamp.txt", "submission_secret.txt"}


def files_in(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def folder_of(course, step, learner):
    return course.root / step / learner / LAB.name


def run(outcome):
    """The log of an nbgrader command that went well."""
    assert outcome["success"], outcome
    return outcome.get("log", "")


# What travels


def laid_beside(course, folder):
    """Everything that a learner can put beside a notebook."""
    targets = [
        "gradebook.db",
        ".secret",
        f"submitted/ann/{LAB.name}/{NOTEBOOK}",
        "submitted/ann",
    ]
    for number, target in enumerate([*targets, "/etc/hostname"]):
        (folder / f"{number}.txt").symlink_to(course.root / target)
    (folder / "data").mkdir()
    (folder / "data" / "words.csv").write_text("a,b")
    (folder / "page.html").write_text("<script>alert(1)</script>")
    with (folder / "big.bin").open("wb") as file:
        file.truncate(1 << 30)
    os.mkfifo(folder / "pipe")


@pytest.mark.skipif(os.name == "nt", reason="not checked: links and pipes need POSIX")
def test_nbgrader_copies_the_notebook_and_its_own_two_files(course):
    course.secret()
    for name in ("ann", "eve"):
        hand_in(course.root, LAB, Learner(name, encoded(course.released(LAB))))
    folder = folder_of(course, "submitted", "eve")
    laid_beside(course, folder)
    (folder / "timestamp.txt").write_text(STAMP)
    (folder / "submission_secret.txt").write_text(SECRET)
    log = run(course.api().autograde(LAB.name, "*"))
    assert "eve: links or special files" in log and ": 0.txt, 1.txt" in log
    run(course.api().generate_feedback(LAB.name))
    for step, main in {"autograded": NOTEBOOK, "feedback": PAGE}.items():
        assert files_in(course.root / step / "ann") == {f"{LAB.name}/{main}"}
        assert files_in(folder_of(course, step, "eve")) == {main, *TRAVELERS}
        assert (folder_of(course, step, "eve") / "submission_secret.txt").read_text() == SECRET
    assert course.standings(LAB)["eve"].handed_at == datetime(
        2026, 3, 1, 11, tzinfo=timezone.utc
    )


@pytest.mark.skipif(os.name == "nt", reason="not checked: links and pipes need POSIX")
def test_autograde_leaves_out_what_tinyllm_grade_refuses(course):
    hand_in(course.root, LAB, Learner("ann", encoded(course.released(LAB))))
    folder_of(course, "submitted", "eve").mkdir(parents=True)
    notebook = folder_of(course, "submitted", "eve") / NOTEBOOK
    notebook.symlink_to(folder_of(course, "submitted", "ann") / NOTEBOOK)
    log = run(course.api().autograde(LAB.name, "*"))
    assert "eve: a link leads there" in log and set(course.standings(LAB)) == {"ann"}
    assert not course.api().autograde(LAB.name, "eve")["success"]
    assert files_in(course.root / "autograded") == {f"ann/{LAB.name}/{NOTEBOOK}"}


def link(path):
    path.symlink_to(path.parents[3] / ".secret")


def huge(path):
    with path.open("wb") as file:
        file.truncate(1 << 30)


def written(text):
    return lambda path: path.write_text(text, "latin-1")


def pipe(path):
    os.mkfifo(path)


SPOILED = [link, huge, pipe, os.mkdir, written("\0\xff"), written("5ec2e7\nmore")]


@pytest.mark.skipif(os.name == "nt", reason="not checked: links and pipes need POSIX")
@pytest.mark.parametrize("spoil", SPOILED)
def test_a_spoiled_secret_travels_nowhere_and_stops_nobody(course, tmp_path, spoil):
    with_exchange(course, tmp_path)
    course.secret()
    for learner in ("ann", "eve"):
        handed(course, learner, STAMP)
        secret = folder_of(course, "submitted", learner) / "submission_secret.txt"
        secret.write_text(SECRET) if learner == "ann" else spoil(secret)
        stored(course, learner, STAMP)
    assert len(course.feedback(LAB)) == 2
    for step, main in {"autograded": NOTEBOOK, "feedback": PAGE}.items():
        assert files_in(folder_of(course, step, "ann")) == {main, *TRAVELERS}
        assert files_in(folder_of(course, step, "eve")) == {main, "timestamp.txt"}
    log = run(course.api().release_feedback(LAB.name))
    assert len(released(tmp_path)) == 1 and "not released: eve. What they handed in" in log


@pytest.mark.skipif(os.name == "nt", reason="not checked: links and pipes need POSIX")
@pytest.mark.parametrize(
    "spoil", [*SPOILED[:2], written("yesterday"), written("12:1" + "0" * 30)]
)
def test_a_spoiled_timestamp_stops_nobody_in_autograde(course, spoil):
    course.secret()
    for learner in ("ann", "eve"):
        hand_in(course.root, LAB, Learner(learner, encoded(course.released(LAB))))
    spoil(folder_of(course, "submitted", "eve") / "timestamp.txt")
    for _ in range(2):
        log = run(course.api().autograde(LAB.name, "*"))
        assert "eve: timestamp.txt holds no time" in log
    standings = course.standings(LAB)
    assert standings["eve"].total == standings["ann"].total == 0
    assert files_in(folder_of(course, "autograded", "eve")) <= {NOTEBOOK, "timestamp.txt"}


def test_an_attempt_without_a_secret_takes_the_former_one_away(course):
    handed(course, "ann", STAMP)
    secret = folder_of(course, "submitted", "ann") / "submission_secret.txt"
    secret.write_text(SECRET)
    stored(course, "ann", STAMP)
    course.feedback(LAB)
    assert files_in(folder_of(course, "feedback", "ann")) == {PAGE, *TRAVELERS}
    secret.unlink()
    course.feedback(LAB)  # the page is still that of the former attempt
    assert files_in(folder_of(course, "feedback", "ann")) == {PAGE, *TRAVELERS}
    stored(course, "ann", STAMP)
    course.feedback(LAB)
    assert files_in(folder_of(course, "feedback", "ann")) == {PAGE, "timestamp.txt"}


# Through the exchange and back


def with_exchange(course, tmp_path):
    """The course on an exchange of its own; others may write there, as nbgrader wants it."""
    (tmp_path / "exchange").mkdir()
    (tmp_path / "exchange").chmod(0o777)
    config = course.root / "nbgrader_config.py"
    lines = f"\nc.Exchange.root = {str(tmp_path / 'exchange')!r}\n"
    config.write_text(config.read_text() + lines)
    return course


def released(tmp_path):
    return list((tmp_path / "exchange" / "tinyllm" / "feedback").glob("*.html"))


class Person:
    """A learner with a home of their own, and nbgrader's commands for learners."""

    def __init__(self, name, course, tmp_path):
        self.home = tmp_path / "home" / name
        self.home.mkdir(parents=True)
        self.api = Course(course.root).api()
        self.api.coursedir.root = str(self.home)
        self.api.coursedir.student_id = name
        self.api.coursedir.assignment_id = LAB.name
        self.api.config.Exchange.assignment_dir = str(self.home)
        self.api.config.Exchange.cache = str(self.home / "cache")

    def start(self, command):
        exchange = self.api.exchange
        options = {"coursedir": self.api.coursedir, "authenticator": self.api.authenticator}
        getattr(exchange, command)(parent=self.api, **options).start()

    def page(self):
        """The page that `nbgrader fetch_feedback` brings."""
        self.start("FetchFeedback")
        (path,) = (self.home / LAB.name / "feedback").rglob("*.html")
        return path.read_text("utf-8")


def tinyllm(*arguments):
    done = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200"})
    assert done.exit_code in (0, 1), done.output
    return done.output


@pytest.mark.skipif(os.name == "nt", reason="not checked: nbgrader's exchange needs POSIX")
def test_feedback_goes_back_through_the_exchange(course, tmp_path):
    with_exchange(course, tmp_path)
    run(course.api().release_assignment(LAB.name))
    ann = Person("ann", course, tmp_path)
    ann.start("FetchAssignment")
    (ann.home / LAB.name / NOTEBOOK).write_bytes(encoded(solved(course.released(LAB), LAB)))
    ann.start("Submit")
    run(course.api().collect(LAB.name))
    assert files_in(folder_of(course, "submitted", "ann")) == {NOTEBOOK, *TRAVELERS}
    hand_in(course.root, LAB, Learner("bob", encoded(course.released(LAB))))  # from elsewhere

    tinyllm("grade", LAB.module, "--course", course.root, "--no-sandbox")
    log = run(course.api().release_feedback(LAB.name))
    assert "not released: bob. What they handed in" in log
    assert len(released(tmp_path)) == 1
    assert "<b>14</b> of" in ann.page()

    by_hand(course, LAB.exercises[0], 1.0, "ann")
    tinyllm("report", "--course", course.root)
    run(course.api().release_feedback(LAB.name, "ann"))
    assert "<b>11</b> of" in ann.page() and len(released(tmp_path)) == 1

    run(course.api().autograde(LAB.name, "*"))
    run(course.api().generate_feedback(LAB.name))
    released(tmp_path)[0].unlink()
    assert "not released: bob." in run(course.api().release_feedback(LAB.name))
    assert "<b>11</b> of" in ann.page() and len(released(tmp_path)) == 1
