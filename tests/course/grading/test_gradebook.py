"""The gradebook: lateness, points by hand, other databases; the pages that learners get
back."""

import os
import re
import shutil
import socket
import subprocess
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from nbgrader.plugins import CsvExportPlugin
from nbgrader.preprocessors import AssignLatePenalties, SaveAutoGrades
from nbgrader.utils import parse_utc
from traitlets.config import Config

from labkit.course.syllabus import LABS
from labkit.grading.course_rules import CourseRules
from labkit.grading.judge.intake import cell_called
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.feedback import SanitizeAnswers
from labkit.grading.nbgrader.gradebook import rows as gradebook_rows
from labkit.grading.nbgrader.gradebook.connection import (
    CourseError,
    GradebookConnection,
    LatePenalty,
)
from tests.course.grading.samples import (
    DUE,
    FULL,
    LAB,
    LATE,
    OURS,
    by_hand,
    handed,
    judged,
    notebook_of,
    page_of,
    set_due,
    store,
    stored,
    with_plugin,
)

RULES = CourseRules()
COMMENT = "Nearly: *where* is eps? <script>alert(7)</script>"


def comment(book):
    """A person's comment on an answer of ada's."""
    found = book.find_comment(LAB.exercises[1].answer_cell, LAB.name, LAB.name, "ada")
    found.manual_comment = COMMENT
    book.db.commit()


@pytest.fixture
def course(released_course):
    return released_course


# Late submissions


def test_late_submissions_lose_what_the_plugin_says(template, tmp_path):
    zero = 'c.LateSubmissionPlugin.penalty_method = "zero"\n'
    for number, (line, stamps) in enumerate({
        "": {LATE: 0},
        zero: {LATE: sum(FULL), DUE: 0},
        # the third: at most the score
        OURS: {LATE: 2, "2026-03-01 14:30:00 CET": 1, "2026-03-09 12:00:00 UTC": sum(FULL),
               None: 0},
    }.items()):  # fmt: skip
        shutil.copytree(template.root, tmp_path / str(number) / "course")
        course = with_plugin(Course(tmp_path / str(number) / "course"), line)
        for case, (stamp, penalty) in enumerate(stamps.items()):
            standing = stored(course, f"s{case}", stamp)
            found = standing.late_penalty, standing.total
            assert found == (penalty, sum(FULL) - penalty), (line, stamp)
    course.gradebook.do(lambda book: book.grant_extension(LAB.name, "s0", hours=2))
    assert stored(course, "s0", LATE).late_penalty == 0
    for stamp in ("", "yesterday", "9" * 40, "\x00", f"12:1{'0' * 30}", "2026-03-01",
                  "2026-02-30 12:00:00 UTC"):  # fmt: skip
        course.remarks.clear()
        assert stored(course, stamp=stamp).late_penalty == 0
        assert any("ada: timestamp.txt holds no time" in str(x) for x in course.remarks), stamp
    with pytest.raises(CourseError, match=r"AnHour failed on 'broken': ZeroDivisionError"):
        stored(course, "broken", LATE)
    with pytest.raises(CourseError, match="plugin cannot be used"):
        LatePenalty(Config({"AssignLatePenalties": {"plugin_class": "no_such.Plugin"}}))


def test_the_rows_are_those_of_nbgraders_own_code(course, tmp_path):
    """Scores, comments, marks for manual grading, lateness: as we and as nbgrader write
    them."""
    with_plugin(course)
    other = Course(shutil.copytree(course.root, tmp_path / "theirs"))
    submission = judged((4.0, 1.5, 0.0))
    notebook = notebook_of(course, submission)
    store(course, handed(course, "ada", LATE), submission, notebook)
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


# Points and comments by a person


def test_points_given_by_hand_stay_and_are_only_asked_for_again_after_a_change(course):
    first, second, *_ = LAB.exercises
    assert stored(course, scores=(1.0, 6.0, 4.0)).questions["1.a"].waiting
    for part, points in ((LAB.questions[0], 1.5), (first, 3.0), (second, 5.0)):
        by_hand(course, part, points)
    again = stored(course, scores=(1.0, 6.0, 4.0))
    assert (again.written, again.by_hand, again.total) == (1.5, 1.0, 13.5) and not again.stale
    changed = stored(course, text="something else", scores=(1.0, 6.0, 0.0))
    assert [grade.id for grade in changed.stale] == ["1.a"] and changed.written == 1.5
    changed = stored(course, text="something else", scores=(4.0, 6.0, 4.0))
    assert [grade.id for grade in changed.stale] == ["1.1", "1.a"]
    assert (changed.automatic, changed.by_hand, changed.total) == (14, -2, 13.5)


def test_a_copied_course_asks_for_no_point_by_hand_again(course):
    """The gradebook is enough: even without `.results/` and `autograded/`, a submission with
    the same time and the same points needs no second look."""
    first, question = LAB.exercises[0], LAB.questions[0]

    def again(**changes):
        for folder in (".results", "autograded"):
            shutil.rmtree(course.root / folder, ignore_errors=True)
        given = {"stamp": DUE, "scores": (1.0, 6.0, 4.0)} | changes
        return [grade.id for grade in stored(course, **given).stale]

    again()
    by_hand(course, first, 3.0)
    by_hand(course, question, 1.5)
    course.gradebook.do(comment)
    assert again() == [] and course.standings(LAB)["ada"].total == 14.5
    assert course.standings(LAB)["ada"].comments[LAB.exercises[1].answer_cell] == COMMENT
    assert again(scores=(2.0, 6.0, 4.0)) == ["1.1"]
    by_hand(course, first, 3.0)
    assert again(scores=(2.0, 6.0, 4.0), stamp=LATE) == ["1.1", "1.a"]
    assert course.standings(LAB)["ada"].by_hand == 1


# Other databases


def test_what_is_no_gradebook_says_so(tmp_path, course, monkeypatch):
    with pytest.raises(CourseError, match="is no database address"):
        GradebookConnection("nonsense").do(bool)
    with pytest.raises(CourseError, match=r"unable to open database file.*same command again"):
        GradebookConnection(f"sqlite:///{tmp_path}/no/such/folder/x.db").do(bool)
    with pytest.raises(CourseError, match="nbgrader generate_assignment"):
        course.gradebook.do(
            lambda book: gradebook_rows.record(book, course.late, RULES.of(LABS[1]), [])
        )
    submission = judged()
    notebook = notebook_of(course, submission)
    notebook.cells = [c for c in notebook.cells if c.id != "check-1-2"]
    with pytest.raises(CourseError, match=r"differ in the cells check-1-2"):
        store(course, handed(course, "ada"), submission, notebook)
    with pytest.raises(CourseError, match="needs the encoding UTF-8"):
        course.gradebook.do(lambda book: "Ω".encode("ascii"))
    away = GradebookConnection("postgresql+psycopg2://me:hush@127.0.0.1:1/x")
    assert "hush" not in away.shown and "***" in away.shown
    if find_spec("psycopg2"):
        with pytest.raises(CourseError, match=r"refused.*see that the database runs"):
            away.do(bool)
    unwritten = Course(tmp_path / "none")  # reading creates no gradebook
    assert unwritten.people() == [] and unwritten.due_dates() == {}
    assert not unwritten.root.exists()
    monkeypatch.setenv("TINYLLM_DB", "sqlite:////tmp/elsewhere.db")
    assert Course(tmp_path).database == "sqlite:////tmp/elsewhere.db"
    assert Course(tmp_path, "sqlite:///x.db").database == "sqlite:///x.db"


# PostgreSQL


@pytest.fixture(scope="module")
def server():
    """The address of a PostgreSQL server of these tests, on loopback."""
    if shutil.which("pg_ctl") is None:
        pytest.skip("not checked: there is no PostgreSQL on the PATH")
    pytest.importorskip("psycopg2", reason="not checked: psycopg2 is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = {"check": True, "stdout": subprocess.DEVNULL}
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        options |= {"user": "nobody", "group": "nogroup", "extra_groups": []}
    with TemporaryDirectory(prefix="tinyllm-postgres-") as folder:
        Path(folder).chmod(0o777)  # the server's user cannot enter pytest's own folders
        options["cwd"] = folder
        init = ["initdb", "-D", "data", "-U", "grader", "-A", "trust", "-N", "-E", "UTF8"]
        subprocess.run(init, **options)
        control = ["pg_ctl", "-D", "data", "-w", "-l", "log"]
        where = f"-p {port} -h 127.0.0.1 -k '' -F"
        subprocess.run([*control, "-o", where, "start"], **options)
        try:
            yield f"postgresql+psycopg2://grader@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([*control, "-m", "fast", "stop"], **options)


@pytest.fixture(scope="module")
def on_server(template, server, tmp_path_factory):
    """A course whose gradebook is on the server, configured as in nbgrader."""
    root = tmp_path_factory.mktemp("on-server") / "course"
    shutil.copytree(template.root, root)
    (root / "gradebook.db").unlink()
    config = root / "nbgrader_config.py"
    config.write_text(config.read_text() + f"c.CourseDirectory.db_url = {server!r}\n")
    course = with_plugin(Course(root))
    course.release(LAB)
    set_due(course)
    return course


def test_postgresql_holds_what_sqlite_holds(course, on_server, tmp_path):
    with_plugin(course)
    for where in (course, on_server):
        stored(where, "ada", LATE, scores=(1.5, 2.0, 0.0))
        stored(where, "Ω mega")
    assert course.standings(LAB) == on_server.standings(LAB)
    assert not (on_server.root / "gradebook.db").exists()
    on_server.feedback(LAB)
    assert "1.5 of 4" in page_of(on_server, "ada").read_text()
    export = CsvExportPlugin(to=str(tmp_path / "grades.csv"))
    on_server.gradebook.do(export.export)
    assert re.search(r"ada,.*,3.5,2.0,1.5,", (tmp_path / "grades.csv").read_text())


# The pages that learners get back

EVIL = """Hello <script>alert(1)</script> <img src=x onerror=alert(2)> [a](javascript:alert(3))
<iframe src="https://example.org"></iframe> ![b](https://example.org/pixel.png)

    <b>code</b> [c](javascript:alert(4))

`1 < 2` and **bold** \x1b[31m \u202e $a<b$
"""
RUNS = ("<script", "onerror=", "onclick", 'href="javascript', "<iframe", "<img", "\x1b",
        "\u202e", 'src="http')  # fmt: skip


def test_feedback_has_points_reasons_comments_and_nothing_that_runs(course):
    with_plugin(course)
    submission = judged((4.0, 1.5, 0.0))
    notebook = notebook_of(course, submission, EVIL)
    cell = cell_called(notebook, LAB.exercises[0].answer_cell)
    cell.source += "\n# </pre><script>alert(5)</script> \x1b]0;title\x07"
    check = cell_called(notebook, LAB.exercises[0].check_cell)
    check.outputs[0]["data"]["text/html"] += "<script>alert(6)</script><b onclick='x'>look</b>"
    store(course, handed(course, "ada", LATE), submission, notebook)
    course.gradebook.do(comment)
    (path,) = course.feedback(LAB)
    page = path.read_text("utf-8")
    assert not [sign for sign in RUNS if sign in page]
    for words in ("Content-Security-Policy", "default-src 'none'", "<b>3.5</b> of",
                  "after 2 were taken off because it came late", "1.5 of 6",
                  "to be graded, of 2", "<em>where</em> is eps?", "<strong>bold</strong>",
                  "1 &lt; 2"):  # fmt: skip
        assert words in page, words


def test_formgrader_shows_written_answers_without_what_runs(course):
    from nbconvert.filters import markdown2html

    assert course.config().HTMLExporter.preprocessors == [
        "labkit.grading.nbgrader.feedback.SanitizeAnswers"
    ]
    notebook = notebook_of(course, judged(), EVIL)
    assert "four equal numbers" not in str(notebook)
    notebook, _ = SanitizeAnswers().preprocess(notebook, {})
    html = markdown2html(cell_called(notebook, LAB.questions[0].answer_cell).source)
    assert not [sign for sign in RUNS[:-3] if sign in html]
    for words in ("<b>rubric</b>, for you who grade</p><p>2 points.", "1 &lt; 2",
                  "<b>model answer</b>", "<li>1 point: four equal numbers",
                  "<strong>bold</strong>"):  # fmt: skip
        assert words in html, words
