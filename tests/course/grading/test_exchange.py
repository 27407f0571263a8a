"""nbgrader's own commands on a course folder: the files copied with a notebook, and feedback
through nbgrader's exchange."""

import os
import shutil
import subprocess
import sys
from datetime import datetime, timezone

import pytest
from typer.testing import CliRunner

from labkit.author.reference import reference_block
from labkit.cli import app
from labkit.course import cells
from labkit.course.paths import ROOT
from labkit.grading.judge.intake import rebuild
from labkit.grading.nbgrader.course import Course
from labkit.grading.sample_class import Learner, encoded, hand_in, solved
from tests.course.grading.samples import FULL, LAB, by_hand, handed, stored

SECRET = "5ec2e7" * 20
STAMP = "2026-03-01 11:00:00 UTC"
NOTEBOOK, PAGE = f"{LAB.name}.ipynb", f"{LAB.name}.html"
TRAVELERS = {"timestamp.txt", "submission_secret.txt"}
pytestmark = pytest.mark.skipif(os.name == "nt", reason="not checked: links need POSIX")


@pytest.fixture
def course(released_course):
    return released_course


def files_in(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def folder_of(course, step, learner):
    return course.root / step / learner / LAB.name


def run(outcome):
    """Run an nbgrader command, which must succeed; return its log."""
    assert outcome["success"], outcome
    return outcome.get("log", "")


def blank(course, learner):
    hand_in(course.root, LAB, Learner(learner, encoded(course.released(LAB))))
    return folder_of(course, "submitted", learner)


# What travels


def link(path):
    path.symlink_to(path.parents[3] / ".secret")


def huge(path):
    with path.open("wb") as file:
        file.truncate(1 << 30)


def written(text):
    return lambda path: path.write_text(text, "latin-1")


def laid_beside(course, folder):
    """Everything that a learner can put beside a notebook."""
    targets = ["gradebook.db", ".secret", f"submitted/ann/{LAB.name}/{NOTEBOOK}",
               "submitted/ann", "/etc/hostname"]  # fmt: skip
    for number, target in enumerate(targets):
        (folder / f"{number}.txt").symlink_to(course.root / target)
    (folder / "data").mkdir()
    (folder / "data" / "words.csv").write_text("a,b")
    (folder / "page.html").write_text("<script>alert(1)</script>")
    huge(folder / "big.bin")
    os.mkfifo(folder / "pipe")


def test_nbgrader_copies_the_notebook_and_its_own_two_files(course):
    """It never copies what `tinyllm grade` would not read: a notebook that is a link, a
    malformed time."""
    course.secret()
    for name in ("ann", "eve"):
        folder = blank(course, name)
    laid_beside(course, folder)
    (folder / "timestamp.txt").write_text(STAMP)
    (folder / "submission_secret.txt").write_text(SECRET)
    linked = folder_of(course, "submitted", "zoe")
    linked.mkdir(parents=True)
    (linked / NOTEBOOK).symlink_to(folder_of(course, "submitted", "ann") / NOTEBOOK)
    spoils = {"a": link, "b": huge, "c": written("12:1" + "0" * 30)}
    for name, spoil in spoils.items():
        spoil(blank(course, name) / "timestamp.txt")
    log = run(course.api().autograde(LAB.name, "*"))
    assert "zoe: a link leads there" in log
    learners = [handed.learner for handed in course.submitted(LAB)]
    assert learners == sorted(["ann", *spoils, "eve"])
    assert all(f"{name}: timestamp.txt holds no time" in log for name in spoils)
    standings = course.standings(LAB)
    assert set(standings) == {"ann", "eve", *spoils}
    assert standings["eve"].handed_at == datetime(2026, 3, 1, 11, tzinfo=timezone.utc)
    assert not course.api().autograde(LAB.name, "zoe")["success"]
    run(course.api().generate_feedback(LAB.name))
    for step, main in {"autograded": NOTEBOOK, "feedback": PAGE}.items():
        assert files_in(course.root / step / "ann") == {f"{LAB.name}/{main}"}
        assert files_in(folder_of(course, step, "eve")) == {main, *TRAVELERS}
        assert (folder_of(course, step, "eve") / "submission_secret.txt").read_text() == SECRET
        assert not folder_of(course, step, "zoe").exists()
        for name in spoils:
            assert files_in(folder_of(course, step, name)) <= {main, "timestamp.txt"}, name


def test_only_a_secret_of_the_attempt_that_counts_goes_along(course, tmp_path):
    """A malformed secret is copied nowhere and stops nobody."""
    with_exchange(course, tmp_path)
    course.secret()
    spoils = [link, huge, os.mkfifo, os.mkdir, written("\0\xff"), written("5ec2e7\nmore")]
    for name, spoil in zip(["ann", *"abcdef"], [written(SECRET), *spoils], strict=True):
        handed(course, name, STAMP)
        spoil(folder_of(course, "submitted", name) / "submission_secret.txt")
        stored(course, name, STAMP)
    assert len(course.feedback(LAB)) == 7
    for step, main in {"autograded": NOTEBOOK, "feedback": PAGE}.items():
        assert files_in(folder_of(course, step, "ann")) == {main, *TRAVELERS}
        for name in "abcdef":
            assert files_in(folder_of(course, step, name)) == {main, "timestamp.txt"}, name
    log = run(course.api().release_feedback(LAB.name))
    assert len(released(tmp_path)) == 1
    assert "not released: a, b, c, d, e, f. What they handed in" in log
    (folder_of(course, "submitted", "ann") / "submission_secret.txt").unlink()
    course.feedback(LAB)  # the page still belongs to the former attempt
    assert files_in(folder_of(course, "feedback", "ann")) == {PAGE, *TRAVELERS}
    stored(course, "ann", STAMP)
    course.feedback(LAB)
    assert files_in(folder_of(course, "feedback", "ann")) == {PAGE, "timestamp.txt"}


# Through the exchange and back


def with_exchange(course, tmp_path):
    """The course with its own exchange, where others may write, as nbgrader requires."""
    (tmp_path / "exchange").mkdir()
    (tmp_path / "exchange").chmod(0o777)
    config = course.root / "nbgrader_config.py"
    lines = f"\nc.Exchange.root = {str(tmp_path / 'exchange')!r}\n"
    config.write_text(config.read_text() + lines)


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


def test_feedback_goes_back_through_the_exchange(course, tmp_path):
    with_exchange(course, tmp_path)
    run(course.api().release_assignment(LAB.name))
    ann = Person("ann", course, tmp_path)
    ann.start("FetchAssignment")
    (ann.home / LAB.name / NOTEBOOK).write_bytes(encoded(solved(course.released(LAB), LAB)))
    ann.start("Submit")
    run(course.api().collect(LAB.name))
    assert files_in(folder_of(course, "submitted", "ann")) == {NOTEBOOK, *TRAVELERS}
    blank(course, "bob")  # from elsewhere

    tinyllm("grade", LAB.module, "--course", course.root, "--no-sandbox")
    log = run(course.api().release_feedback(LAB.name))
    assert "not released: bob. What they handed in" in log
    assert len(released(tmp_path)) == 1 and f"<b>{sum(FULL):g}</b> of" in ann.page()

    by_hand(course, LAB.exercises[0], 1.0, "ann")
    changed = f"<b>{sum(FULL[1:]) + 1:g}</b> of"
    tinyllm("report", "--course", course.root)
    run(course.api().release_feedback(LAB.name, "ann"))
    assert changed in ann.page() and len(released(tmp_path)) == 1

    run(course.api().autograde(LAB.name, "*"))
    run(course.api().generate_feedback(LAB.name))
    released(tmp_path)[0].unlink()
    assert "not released: bob." in run(course.api().release_feedback(LAB.name))
    assert changed in ann.page() and len(released(tmp_path)) == 1


def test_on_a_hub_submit_fills_blank_cells_from_the_package(tmp_path, released):
    """With hub/nbgrader_config.py and the real command, the answers handed in are those that
    pass."""
    home, exchange = tmp_path / "home", tmp_path / "exchange"
    config = (ROOT / "hub" / "nbgrader_config.py").read_text()
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "nbgrader_config.py").write_text(
        config.replace("/srv/nbgrader/exchange", str(exchange))
    )
    for folder in (exchange / "tinyllm" / "inbound", home / LAB.name,
                   exchange / "tinyllm" / "outbound" / LAB.name):  # fmt: skip
        folder.mkdir(parents=True)
    notebook = encoded(released[LAB.name])
    (home / LAB.name / NOTEBOOK).write_bytes(notebook)
    (exchange / "tinyllm" / "outbound" / LAB.name / NOTEBOOK).write_bytes(notebook)
    package = home / "tinyllm-course" / "tinyllm"
    shutil.copytree(ROOT / "tinyllm", package, ignore=shutil.ignore_patterns("__pycache__"))
    module, first = package / f"{LAB.module}.py", LAB.exercises[0]
    answer = cells.plain(reference_block(LAB, first)).strip()
    module.write_text(cells.with_block(module.read_text(), first, answer))
    places = {"HOME": str(home), "JUPYTER_CONFIG_DIR": str(tmp_path / "etc")}
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", "submit", LAB.name], cwd=home, text=True,
        capture_output=True, env={**os.environ, **places, "JUPYTERHUB_USER": "ann"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "1.1 were blank, now filled from tinyllm/" in done.stderr
    (handed_in,) = exchange.glob(f"tinyllm/inbound/*/{NOTEBOOK}")
    for path in (handed_in, home / LAB.name / NOTEBOOK):
        intake = rebuild(path.read_bytes(), released[LAB.name], LAB)
        assert intake.answers["1.1"].strip() == answer and not intake.answers["1.2"]
