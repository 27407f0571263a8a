"""The gradebook: late submissions, two graders at once, PostgreSQL; feedback to learners."""

import copy
import re
import shutil
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from nbgrader.plugins import CsvExportPlugin
from nbgrader.preprocessors import AssignLatePenalties, SaveAutoGrades
from nbgrader.utils import parse_utc
from traitlets.config import Config

from labkit.author.course_rules import CourseRules
from labkit.author.edition import write_source
from labkit.core.report import Status
from labkit.core.syllabus import LABS
from labkit.grading.judge.graded import GradedExercise, GradedSubmission
from labkit.grading.judge.intake import cell_called
from labkit.grading.nbgrader.course import Course, SubmittedFile
from labkit.grading.nbgrader.feedback import SanitizeAnswers
from labkit.grading.nbgrader.gradebook import connection as gradebook_connection
from labkit.grading.nbgrader.gradebook import rows as gradebook_rows
from labkit.grading.nbgrader.gradebook.connection import (
    CourseError,
    GradebookConnection,
    LatePenalty,
    RosterEntry,
)
from labkit.grading.nbgrader.gradebook.rows import GradebookRow
from labkit.grading.nbgrader.graded_notebook import graded_notebook
from labkit.grading.run.results import Results
from labkit.grading.run.schedule import GradebookWriter, Task
from labkit.grading.sample_class import encoded
from tests.course.grading.postgres import Server, binaries

LAB, RULES = LABS[0], CourseRules()
FULL = tuple(float(exercise.points) for exercise in LAB.exercises)
DUE = "2026-03-01 12:00:00 UTC"


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A course with one lab released, due at a time, and nothing handed in."""
    course = Course(tmp_path_factory.mktemp("template") / "course")
    write_source(course.root)
    course.release(LAB)
    set_due(course)
    return course


def set_due(course):
    due = parse_utc(DUE)
    course.gradebook.do(
        lambda book: bool(book.update_or_create_assignment(LAB.name, duedate=due))
    )


@pytest.fixture
def course(template, tmp_path):
    shutil.copytree(template.root, tmp_path / "course")
    return Course(tmp_path / "course")


def judged(scores=FULL):
    """A record, made up: points for the exercises."""
    pairs = zip(LAB.exercises, scores, strict=True)
    ok = (("ok", "x"),)
    return GradedSubmission(
        tuple(GradedExercise(e.id, s / e.points, Status.PASSED, ok) for e, s in pairs)
    )


def notebook_of(course, submission, text="because"):
    """The graded notebook, with a written answer."""
    notebook = copy.deepcopy(course.released(LAB))
    cell_called(notebook, LAB.questions[0].answer_cell).source = text
    return graded_notebook(encoded(notebook), course.released(LAB), LAB, submission)


def handed(course, learner, stamp=None):
    path = course.root / "submitted" / learner / LAB.name / f"{LAB.name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"{}")
    if stamp is not None:
        (path.parent / "timestamp.txt").write_text(stamp)
    return SubmittedFile(learner, LAB, path)


def stored(course, learner="ada", stamp=None, scores=FULL, text="because"):
    submission = judged(scores)
    notebook = notebook_of(course, submission, text)
    course.store(LAB, [(handed(course, learner, stamp), submission, notebook)])
    return course.standings(LAB)[learner]


def by_hand(course, part, points, learner="ada", extra=None):
    """What formgrader does when a person gives points."""

    def give(book):
        grade = book.find_grade(part.grade_cell, LAB.name, LAB.name, learner)
        grade.manual_score, grade.extra_credit = points, extra
        grade.needs_manual_grade = points is None and grade.auto_score is None
        book.db.commit()

    course.gradebook.do(give)


# Late submissions

PLUGIN = """
from nbgrader.plugins import BasePlugin


class AnHour(BasePlugin):
    def late_submission_penalty(self, student_id, score, total_seconds_late):
        if student_id == "broken":
            raise ZeroDivisionError
        return total_seconds_late // 3600
"""
OURS = 'c.AssignLatePenalties.plugin_class = "late_{}.AnHour"\n'


def with_plugin(course, line):
    """The configuration with a line more; a module name of its own for each test."""
    name = "late_" + "".join(filter(str.isalnum, course.root.parent.name))
    (course.root / f"{name}.py").write_text(PLUGIN)
    config = course.root / "nbgrader_config.py"
    config.write_text(config.read_text() + line.replace("late_{}", name))
    return course


LATE = "2026-03-01 14:30:00 UTC"


@pytest.mark.parametrize(
    ("line", "stamp", "penalty"),
    [
        ("", LATE, 0),
        ('c.LateSubmissionPlugin.penalty_method = "zero"\n', LATE, sum(FULL)),
        ('c.LateSubmissionPlugin.penalty_method = "zero"\n', DUE, 0),
        (OURS, LATE, 2),
        (OURS, "2026-03-01 14:30:00 CET", 1),
        (OURS, "2026-03-09 12:00:00 UTC", sum(FULL)),  # never more than the score
        (OURS, None, 0),
    ],
)
def test_late_submissions_lose_what_the_plugin_says(course, line, stamp, penalty):
    standing = stored(with_plugin(course, line), stamp=stamp)
    assert (standing.late_penalty, standing.total) == (penalty, sum(FULL) - penalty)


def test_an_extension_counts(course):
    with_plugin(course, OURS)
    assert stored(course, stamp=LATE).late_penalty == 2
    course.gradebook.do(lambda book: book.grant_extension(LAB.name, "ada", hours=2))
    assert stored(course, stamp=LATE).late_penalty == 0


def test_a_broken_plugin_is_named(course):
    with_plugin(course, OURS)
    with pytest.raises(CourseError, match=r"AnHour failed on 'broken': ZeroDivisionError"):
        stored(course, "broken", LATE)
    with pytest.raises(CourseError, match="plugin cannot be used"):
        LatePenalty(Config({"AssignLatePenalties": {"plugin_class": "no_such.Plugin"}}))


@pytest.mark.parametrize("stamp", ["", "yesterday", "9" * 40, "\x00", f"12:1{'0' * 30}",
                                   "2026-03-01", "2026-02-30 12:00:00 UTC"])  # fmt: skip
def test_a_timestamp_that_is_none_costs_nobody_anything(course, stamp):
    standing = stored(with_plugin(course, OURS), stamp=stamp)
    assert standing.late_penalty == 0
    assert any("ada: timestamp.txt holds no time" in remark for remark in course.remarks)


def test_the_rows_are_those_of_nbgraders_own_code(course, tmp_path):
    """Scores, comments, what waits for a person, lateness: by us, and by nbgrader."""
    with_plugin(course, OURS)
    theirs = shutil.copytree(course.root, tmp_path / "theirs")
    submission = judged((4.0, 1.5, 0.0))
    notebook = notebook_of(course, submission)
    course.store(LAB, [(handed(course, "ada", LATE), submission, notebook)])
    other = Course(theirs)
    other.gradebook.do(lambda book: bool(book.update_or_create_student("ada")))
    when = parse_utc(LATE)
    other.gradebook.do(
        lambda book: bool(book.update_or_create_submission(LAB.name, "ada", timestamp=when))
    )
    names = {"student": "ada", "assignment": LAB.name, "notebook": LAB.name}
    resources = {"nbgrader": names | {"db_url": other.database}}
    for step in (SaveAutoGrades, AssignLatePenalties):
        step(config=other.config()).preprocess(notebook, resources)

    def rows(book):
        found = book.find_submission(LAB.name, "ada")
        (one,) = found.notebooks
        grades = {(g.name, g.auto_score, g.manual_score, g.needs_manual_grade, g.score)
                  for g in one.grades}  # fmt: skip
        comments = {(c.name, c.auto_comment) for c in one.comments}
        return grades, comments, one.late_submission_penalty, found.timestamp

    ours = course.gradebook.do(rows)
    assert ours == other.gradebook.do(rows) and ours[2] == 2


# What a person has given


def test_points_given_by_hand_stay_and_are_only_asked_for_again_after_a_change(course):
    first, second, _ = LAB.exercises
    assert stored(course, scores=(1.0, 6.0, 4.0)).questions["1.a"].waiting
    by_hand(course, LAB.questions[0], 1.5)
    by_hand(course, first, 3.0)
    by_hand(course, second, 5.0)
    again = stored(course, scores=(1.0, 6.0, 4.0))
    assert (again.written, again.by_hand, again.total) == (1.5, 1.0, 13.5) and not again.stale
    changed = stored(course, text="something else", scores=(1.0, 6.0, 0.0))
    assert [grade.id for grade in changed.stale] == ["1.a"] and changed.written == 1.5
    changed = stored(course, text="something else", scores=(4.0, 6.0, 4.0))
    assert [grade.id for grade in changed.stale] == ["1.1", "1.a"]
    assert (changed.automatic, changed.by_hand, changed.total) == (14, -2, 13.5)


def test_points_by_hand_are_not_stale_where_only_the_graded_notebook_is_gone(course):
    task = Task("", "", (handed(course, "ada"),), encoded(course.released(LAB)))
    Results(course.root, LAB).put_learner("ada", "known")
    for key, stale in {"": [], "known": [], "changed": ["1.1"]}.items():
        shutil.rmtree(course.root / "autograded", ignore_errors=True)
        with GradebookWriter(course, LAB, course.released(LAB)) as writer:
            writer.add(replace(task, key=key), judged((1.0, 6.0, 4.0)))
        assert course.autograded(LAB, "ada").exists()
        assert [grade.id for grade in course.standings(LAB)["ada"].stale] == stale
        by_hand(course, LAB.exercises[0], 3.0)


# Databases that are busy, away, or none


class Flaky:
    """A gradebook whose database goes away now and then, after and before its commits."""

    def __init__(self, monkeypatch, times):
        self.left = times
        self.record = gradebook_rows.record
        monkeypatch.setattr("labkit.grading.nbgrader.course.record", self)

    def __call__(self, book, *arguments):
        from sqlalchemy.exc import OperationalError

        self.left -= 1
        if self.left % 2:
            self.record(book, *arguments)
        if self.left >= 0:
            raise OperationalError("", {}, Exception("server closed the connection"))


def test_a_submission_is_stored_once_however_often_the_database_fails(course, monkeypatch):
    Flaky(monkeypatch, 4)
    standing = stored(course)
    assert standing.total == sum(FULL) and len(course.standings(LAB)) == 1


def test_a_database_that_stays_away_is_a_clear_message_and_no_grade(course, monkeypatch):
    Flaky(monkeypatch, 10_000)
    course.gradebook.patience = 0.3
    with pytest.raises(CourseError, match=r"server closed the connection.*same command again"):
        stored(course)
    assert not (course.root / "autograded" / "ada" / LAB.name / f"{LAB.name}.ipynb").exists()


def test_a_locked_file_is_waited_for(course):
    database = course.root / "gradebook.db"
    other = sqlite3.connect(database, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    threading.Timer(1.0, other.rollback).start()
    with closing(GradebookConnection(f"sqlite:///{database}?timeout=0.05")) as writer:
        writer.do(lambda book: gradebook_connection.enrol(book, [RosterEntry("ada", "Ada")]))
        assert [p.name for p in writer.do(gradebook_connection.people)] == ["Ada"]


def write_class(url, config, row, learners, failures):
    try:
        late = LatePenalty(config)
        with closing(GradebookConnection(url)) as writer:
            for learner in learners:
                writer.do(
                    lambda book, name=learner: gradebook_rows.record(
                        book, late, RULES.of(LAB), [replace(row, learner=name)]
                    )
                )
    except Exception as error:
        failures.append(error)


def two_at_once(course, count=12):
    """Two graders write the same learners at the same time; the rows there are."""
    learners, failures = [f"learner {i}" for i in range(count)], []
    submission = judged()
    row = GradebookRow("", None, submission, notebook_of(course, submission))
    threads = [
        threading.Thread(
            target=write_class,
            args=(course.database, course.config(), row, names, failures),
        )
        for names in (learners, learners)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures, failures
    standings = course.standings(LAB)
    assert set(standings) == set(learners)
    assert {one.total for one in standings.values()} == {sum(FULL)}


def test_two_graders_write_one_file(course):
    two_at_once(course)


def test_what_is_no_gradebook_says_so(tmp_path, course):
    with pytest.raises(CourseError, match="is no database address"):
        GradebookConnection("nonsense").do(bool)
    with pytest.raises(CourseError, match="unable to open database file"):
        GradebookConnection(f"sqlite:///{tmp_path}/no/such/folder/x.db", patience=0.1).do(bool)
    with pytest.raises(CourseError, match="nbgrader generate_assignment"):
        course.gradebook.do(
            lambda book: gradebook_rows.record(book, course.late, RULES.of(LABS[1]), [])
        )
    submission = judged()
    notebook = notebook_of(course, submission)
    notebook.cells = [c for c in notebook.cells if c.id != "check-1-2"]
    with pytest.raises(CourseError, match=r"differ in the cells check-1-2"):
        course.store(LAB, [(handed(course, "ada"), submission, notebook)])
    ascii_only = course.gradebook
    with pytest.raises(CourseError, match="needs the encoding UTF-8"):
        ascii_only.do(lambda book: "Ω".encode("ascii"))
    away = GradebookConnection("postgresql+psycopg2://me:hush@127.0.0.1:1/x", patience=0.1)
    assert "hush" not in away.shown and "***" in away.shown


# PostgreSQL


@pytest.fixture(scope="module")
def server():
    if binaries() is None:
        pytest.skip("not checked: this machine has no PostgreSQL")
    pytest.importorskip("psycopg2", reason="not checked: psycopg2 is not installed")
    with TemporaryDirectory(prefix="tinyllm-postgres-") as folder:
        Path(folder).chmod(0o755)  # pytest's own folders are closed to the server's user
        server = Server(Path(folder))
        try:
            server.create()
            yield server.start()
        finally:
            server.stop()


@pytest.fixture(scope="module")
def on_server(template, server, tmp_path_factory):
    """A course whose gradebook is on the server, named as nbgrader has it."""
    root = tmp_path_factory.mktemp("on-server") / "course"
    shutil.copytree(template.root, root)
    (root / "gradebook.db").unlink()
    config = root / "nbgrader_config.py"
    config.write_text(config.read_text() + f"c.CourseDirectory.db_url = {server.url!r}\n")
    course = with_plugin(Course(root), OURS)
    course.release(LAB)
    set_due(course)
    return course


def test_postgresql_holds_what_sqlite_holds(course, on_server):
    with_plugin(course, OURS)
    for one in (course, on_server):
        stored(one, "ada", LATE, scores=(1.5, 2.0, 0.0))
        stored(one, "Ω mega")
    assert course.standings(LAB) == on_server.standings(LAB)
    assert not (on_server.root / "gradebook.db").exists()


def test_feedback_and_export_read_from_the_server(on_server, tmp_path):
    stored(on_server, "ada", LATE, scores=(1.5, 2.0, 0.0))
    (page,) = [p for p in on_server.feedback(LAB) if p.parts[-3] == "ada"]
    assert "1.5 of 4" in page.read_text()
    export = CsvExportPlugin(to=str(tmp_path / "grades.csv"))
    on_server.gradebook.do(export.export)
    assert re.search(r"ada,.*,3.5,2.0,1.5,", (tmp_path / "grades.csv").read_text())


def test_two_graders_write_one_server(on_server):
    on_server.gradebook.do(lambda book: [book.remove_student(s.id) for s in book.students])
    two_at_once(on_server)


def test_a_server_that_restarts_loses_nothing(on_server, server):
    on_server.gradebook.do(lambda book: [book.remove_student(s.id) for s in book.students])
    back = threading.Timer(1.0, server.start)
    for number in range(6):
        if number == 3:
            server.stop()
            back.start()
        stored(on_server, f"learner {number}")
    back.join()
    assert server.process is not None and server.process.poll() is None
    assert len(on_server.standings(LAB)) == 6


# What learners get back

EVIL = """Hello <script>alert(1)</script> <img src=x onerror=alert(2)> [a](javascript:alert(3))
<iframe src="https://example.org"></iframe> ![b](https://example.org/pixel.png)

    <b>code</b> [c](javascript:alert(4))

`1 < 2` and **bold** \x1b[31m \u202e $a<b$
"""


def test_feedback_has_points_reasons_comments_and_nothing_that_runs(course):
    with_plugin(course, OURS)
    handed(course, "ada", LATE)
    submission = judged((4.0, 1.5, 0.0))
    notebook = notebook_of(course, submission, EVIL)
    cell = cell_called(notebook, LAB.exercises[0].answer_cell)
    cell.source += "\n# </pre><script>alert(5)</script> \x1b]0;title\x07"
    check = cell_called(notebook, LAB.exercises[0].check_cell)
    check.outputs[0]["data"]["text/html"] += "<script>alert(6)</script><b onclick='x'>look</b>"
    course.store(LAB, [(handed(course, "ada", LATE), submission, notebook)])

    def comment(book):
        found = book.find_comment(LAB.exercises[1].answer_cell, LAB.name, LAB.name, "ada")
        found.manual_comment = "Nearly: *where* is eps? <script>alert(7)</script>"
        book.db.commit()

    course.gradebook.do(comment)
    (path,) = course.feedback(LAB)
    page = path.read_text("utf-8")
    for sign in ("<script", "onerror", "onclick", 'href="javascript', "<iframe", "<img", "\x1b",
                 "\u202e", 'src="http'):  # fmt: skip
        assert sign not in page, sign
    assert "Content-Security-Policy" in page and "default-src 'none'" in page
    assert "<b>3.5</b> of" in page and "after 2 were taken off because it came late" in page
    assert "1.5 of 6" in page and "to be graded, of 2" in page
    assert "<em>where</em> is eps?" in page and "<strong>bold</strong>" in page
    assert "1 &lt; 2" in page


def test_formgrader_shows_written_answers_without_what_runs(course):
    from nbconvert.filters import markdown2html

    assert course.config().HTMLExporter.preprocessors == [
        "labkit.grading.nbgrader.feedback.SanitizeAnswers"
    ]
    notebook = notebook_of(course, judged(), EVIL)
    assert "four equal numbers" not in str(notebook)
    notebook, _ = SanitizeAnswers().preprocess(notebook, {})
    html = markdown2html(cell_called(notebook, LAB.questions[0].answer_cell).source)
    assert "<b>rubric</b>, for you who grade</p><p>2 points." in html
    assert "<b>model answer</b>" in html and "<li>1 point: four equal numbers" in html
    for sign in ("<script", "onerror=", 'href="javascript', "<iframe", "<img"):
        assert sign not in html, sign
    assert "<strong>bold</strong>" in html and "1 &lt; 2" in html


def test_the_environment_names_the_database(tmp_path, monkeypatch):
    monkeypatch.setenv("TINYLLM_DB", "sqlite:////tmp/elsewhere.db")
    assert Course(tmp_path).database == "sqlite:////tmp/elsewhere.db"
    assert Course(tmp_path, "sqlite:///x.db").database == "sqlite:///x.db"


def test_an_unwritten_gradebook_is_not_made_by_looking(tmp_path):
    course = Course(tmp_path)
    assert course.people() == [] and course.due_dates() == {}
    assert not list(tmp_path.iterdir())
