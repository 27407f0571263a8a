"""course.toml: points, deadlines, excuses; and that all numbers of a page add up."""

import io
import re
import shutil
from datetime import datetime, timedelta, timezone

import nbformat
import pytest
from nbgrader.plugins import CsvExportPlugin
from rich.console import Console

from labkit.course.paths import LABKIT
from labkit.grading.class_report.read_results import results_of
from labkit.grading.class_report.report import write_reports
from labkit.grading.course_rules import RulesError, read_rules
from labkit.grading.nbgrader.course import Course, CourseError
from labkit.grading.nbgrader.plugins import CoursePenalty
from labkit.grading.nbgrader.standings import CellGrade, Standing
from labkit.grading.run.follow import apply_course_rules
from labkit.grading.run.grade import print_remarks, report_again
from labkit.grading.run.results import GradingSpec
from labkit.grading.run.screen import total_lines
from tests.course.grading.samples import (
    FULL,
    LAB,
    SECOND,
    by_hand,
    graded,
    page_of,
    rows_of,
    with_plugin,
)
from tests.course.grading.two_learners import tinyllm


@pytest.fixture
def course(released_course):
    return released_course


def ruled(course, text):
    """Write this course.toml and open the course again."""
    (course.root / "course.toml").write_text(text, "utf-8")
    return Course(course.root)


# The file


def test_the_example_says_nothing_until_its_marks_are_taken_away(tmp_path):
    example = (LABKIT / "author" / "course.toml").read_text()
    (tmp_path / "course.toml").write_text(example)
    assert read_rules(tmp_path) == read_rules(tmp_path / "nowhere")
    (tmp_path / "course.toml").write_text(re.sub(r"(?m)^# (?=[\[\"\w]+.*[=\]])", "", example))
    rules = read_rules(tmp_path)
    assert rules.points == {"1.2": 8, "1.c": 0} and rules.percent_a_day == 10
    assert (rules.grace_minutes, rules.late_days) == (15, 3)
    assert rules.excused["s017"] >= {"1.3", "2.1", "2.c"} and rules.learners == {"s017", "s019"}
    assert rules.extensions["01_rmsnorm"]["s017"] > rules.deadlines["01_rmsnorm"]
    assert rules.model_answers == {"01_rmsnorm"}


WRONG = {
    "[points]\n1.2 = 8": "points names '1': possible are, in quotes, ",
    '[points]\n"1.9" = 8': (
        "points names '1.9': possible are, in quotes, 1.1, 1.2, 1.3, 1.4, 1.a"
    ),
    '[points]\n"1.2" = "8"': "points.\"1.2\" = '8': expected a number from 0 to 1000",
    '[points]\n"1.2" = -1': "expected a number from 0",
    '[points]\n"1.2" = nan': "expected a number from 0",
    '[points]\n"1.2" = true': "expected a number from 0",
    "[points]\n" + "\n".join(f'"{exercise.id}" = 0' for exercise in LAB.exercises): (
        "leaves out every exercise of 01_rmsnorm"
    ),
    "[point]\na = 1": "unknown key point: possible is points, deadlines",
    "points = 3": r"points = '3': expected a table, \[points\]",
    "[deadlines]\nrmsnrm = 2026-12-01": "deadlines: there is no lab 'rmsnrm'; the labs are",
    '[deadlines]\nrmsnorm = "soon"': "deadlines.rmsnorm = 'soon': expected a day, 2026-12-01",
    "[deadlines]\nrmsnorm = 18:00:00": "expected a day, 2026-12-01",
    "[extensions.rope]\nada = 2026-12-01": r"extensions.02_rope needs the deadline in \[dead",
    "[deadlines]\nrope = 2026-12-02\n[extensions.rope]\nada = 2026-12-01": "before the deadl",
    '[excused]\nada = "1.3"': r"excused.ada = '1.3': expected a list of names in quotes",
    '[excused]\nada = ["1.9"]': "excused.ada names '1.9': possible are",
    '[excused]\nada = ["rop"]': "excused.ada: there is no lab 'rop'",
    "[late]\nper_day = 10": "unknown key late.per_day: possible is percent_a_day, grace_min",
    "[late]\ndays = 1.5": "late.days = '1.5': expected a whole number from 0 to 365",
    "[late]\ngrace_minutes = -1": "late.grace_minutes = '-1': expected a number from 0 to 1440",
    "[late]\npercent_a_day = 101": "late.percent_a_day = '101': expected a number from 0",
    '[roster]\nleft = "s019"': r"roster.left = 's019': expected a list of names in quotes",
    '[feedback]\nmodel_answers = ["x"]': "feedback.model_answers: there is no lab 'x'",
    "[points\n": r"is no TOML: .*line 1",
    "points = " + "[" * 100_000: r"is no TOML: .*recursion",
    "points = " + "9" * 5000: r"is no TOML: .*4300 digits",
    "points = 0x" + "f" * 5000: r"cannot be: .*4300 digits",
    "[deadlines]\nrope = 0001-01-01T00:00:00+14:00": r"deadlines.rope = '0001-01-01",
    "[deadlines]\nrope = 9999-12-31T23:59:59-10:00": r"deadlines.rope = '9999-12-31",
}


def test_what_cannot_be_is_one_line_before_anything_is_written(tmp_path):
    for text, message in WRONG.items():
        (tmp_path / "course.toml").write_text(text)
        with pytest.raises(RulesError, match=message) as caught:
            read_rules(tmp_path)
        line = str(caught.value)
        assert line.startswith(f"{tmp_path}/course.toml") and "\n" not in line
        with pytest.raises(CourseError, match=r"course\.toml"):
            _ = Course(tmp_path).rules
        assert [path.name for path in tmp_path.iterdir()] == ["course.toml"], text


def test_times_as_people_write_them(tmp_path):
    for written, until in {
        "2026-12-01T18:00+02:00": datetime(2026, 12, 1, 16, tzinfo=timezone.utc),
        "2026-12-01T18:00:00Z": datetime(2026, 12, 1, 18, tzinfo=timezone.utc),
        '"2026-12-01 18:00+00:00"': datetime(2026, 12, 1, 18, tzinfo=timezone.utc),
        "2026-12-01": datetime(2026, 12, 1, 23, 59, 59).astimezone(),
        "2026-12-01 18:00  # as announced": datetime(2026, 12, 1, 18).astimezone(),
    }.items():
        (tmp_path / "course.toml").write_text(f"[deadlines]\nrope = {written}\n")
        assert read_rules(tmp_path).deadlines == {"02_rope": until}, written


# Points


def test_changed_points_judge_nothing_again_and_change_everything(course):
    def stored():
        paths = sorted((course.root / ".results").rglob("*"))
        return {path: path.read_bytes() for path in paths if path.is_file()}

    def key():
        return GradingSpec.of(LAB, course.released(LAB), course.secret()).key(b"x")

    graded(course, "ada", (4.0, 1.5, 0.0))
    graded(course, "bob")
    by_hand(course, LAB.exercises[0], 3.0, "bob")
    by_hand(course, LAB.exercises[1], 5.0, "bob")
    report_again(Course(course.root))
    before = key(), stored()

    course = ruled(course, '[points]\n"1.2" = 12\n"1.3" = 0\n"1.a" = 5\n')
    report_again(course)
    assert (key(), stored()) == before
    assert course.root / f"{LAB.name}.html" in write_reports(course, LAB)
    ada, bob = (course.standings(LAB)[name] for name in ("ada", "bob"))
    assert (ada.automatic, ada.possible, ada.to_be_graded) == (7, 26, 5)  # 4, 3 of 12
    assert (bob.automatic, bob.by_hand) == (17, -8)
    assert [grade.id for grade in bob.stale] == ["1.2"]  # 1.1 is unchanged
    # a person's points for an older answer
    old = CellGrade("1.a", 2.0, manual=1.0, flagged=True)
    assert Standing(questions={"1.a": old}).to_be_graded == 2
    (row,) = (r for r in rows_of(course.root / f"{LAB.name}.csv") if r["learner"] == "ada")
    assert "1.3" not in row and row["1.2"] == "3" and row["of"] == "26"
    page = page_of(course, "ada").read_text()
    for words in ("3 of 12", "to be graded, of 5", "practice, no points",
                  "<b>7</b> of 21 points, 5 to be graded by a person"):  # fmt: skip
        assert words in page, words
    assert not re.search(r"of 6\b", page)
    maxima = course.gradebook.do(
        lambda book: {
            cell.name: cell.max_score
            for cell in book.find_notebook(LAB.name, LAB.name).grade_cells
        }
    )
    assert (maxima["check-1-2"], maxima["check-1-3"], maxima["written-1-a"]) == (12, 0, 5)
    (course.root / "course.toml").unlink()  # without the file, all is as before
    course = Course(course.root)
    report_again(course)
    assert course.standings(LAB)["ada"].automatic == 5.5 and stored() == before[1]


def test_the_learners_notebook_has_the_points_of_the_course(course):
    course = ruled(course, '[points]\n"1.2" = 2.5\n"1.3" = 0\n"1.a" = 1\n"1.b" = 0\n')
    shutil.rmtree(course.root / "release")
    course.release(LAB)
    path = course.root / "release" / LAB.name / f"{LAB.name}.ipynb"
    cells = {cell.id: cell for cell in nbformat.read(path, as_version=4).cells}
    assert "2.5 points · core" in cells["about-1-2"].source
    assert "practice, no points*" in cells["about-1-3"].source
    assert cells["question-1-a"].source.startswith("### Written question 1.a (1 points)")
    assert "(not graded)" in cells["question-1-b"].source
    assert cells["check-1-2"].metadata.nbgrader.points == 2.5
    (course.root / "course.toml").unlink()  # without the file the syllabus's points count
    cells = {cell.id: cell for cell in Course(course.root).released(LAB).cells}
    assert "6 points · core" in cells["about-1-2"].source
    assert "4 points · stretch: counts" in cells["about-1-3"].source


# Deadlines, excuses, lateness

DUE = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
RULES = """
[deadlines]
rmsnorm = 2026-03-01T12:00Z
[extensions.rmsnorm]
ext = 2026-03-05T12:00Z
[late]
percent_a_day = 10
[excused]
exc = ["1.2", "1.c"]
gone = ["1"]
typo = ["rope"]
"""


def stamp(days):
    return f"{DUE + timedelta(days=days):%Y-%m-%d %H:%M:%S} UTC"


@pytest.fixture
def mixed(course):
    """A class with everything: overrides, extra credit, written answers, lateness, excuses."""
    course = ruled(course, RULES)
    apply_course_rules(course, LAB)
    questions = LAB.questions
    for learner, days in {"late": 1.5, "ext": 3.5, "exc": -1, "over": 0, "week": 20}.items():
        graded(course, learner, (4.0, 1.5, 0.0, 1.0), stamp(days))
    by_hand(course, LAB.exercises[1], 4.0, "over", extra=1.0)
    by_hand(course, LAB.exercises[0], 0.5, "over")
    by_hand(course, questions[0], 2.0, "over")
    by_hand(course, questions[0], 1.5, "late")
    by_hand(course, questions[0], None, "ext", extra=0.5)
    graded(course, "over", (4.0, 1.5, 4.0, 1.0), stamp(0), "something else")
    course.remarks.clear()
    return course


KEYS = ("automatic", "by hand", "written", "extra credit", "late penalty", "total", "of",
        "to be graded")  # fmt: skip
NUMBERS = {
    "late": [6.5, 0, 1.5, 0, 1.6, 6.4, 21, 0],  # two days begun: 20% of 8
    "ext": [6.5, 0, 0, 0.5, 0, 7, 21, 2],
    "exc": [5, 0, 0, 0, 0, 5, 13, 2],
    "over": [10.5, -1, 2, 1, 0, 12.5, 21, 2],  # a newer answer came since
    "week": [6.5, 0, 0, 0, 6.5, 0, 21, 2],
}


def test_every_number_of_every_table_adds_up(mixed):
    seen = Console(width=200, file=io.StringIO())
    (mixed.root / "submitted" / "gone").mkdir()
    report_again(mixed)
    print_remarks(mixed.remarks, seen)
    rows = {row["learner"]: row for row in rows_of(mixed.root / f"{LAB.name}.csv")}
    numbers = {name: [float(row[key]) for key in KEYS]
               for name, row in rows.items() if row["automatic"]}  # fmt: skip
    assert numbers == NUMBERS
    page = (mixed.root / f"{LAB.name}.html").read_text().partition('<h2 id="table">')[2]
    titles, *lines = re.findall(r"<tr>.*?</tr>", page, re.DOTALL)
    titles = re.findall("<th[^>]*>(.*?)</th>", titles)
    for name, (automatic, hand, *_, penalty, total, possible, waiting) in numbers.items():
        scores = [float(rows[name][e.id]) for e in LAB.exercises
                  if rows[name][e.id] != "excused"]  # fmt: skip
        assert sum(scores) == pytest.approx(automatic + hand), name
        (line,) = (line for line in lines if f">{name}<" in line)
        shown = dict(zip(titles, re.findall(r"<td[^>]*>(.*?)</td>", line), strict=True))
        assert [float(shown[key]) for key in KEYS] == NUMBERS[name], name
        text = page_of(mixed, name).read_text()
        assert f"<b>{total:g}</b> of {possible - waiting:g} points" in text, name
        assert (f"{waiting:g} to be graded by a person" in text) == bool(waiting)
        assert (f"after {penalty:g} were taken off" in text) == bool(penalty)
    assert rows["exc"]["1.2"] == "excused" and rows["gone"]["why"] == "excused"
    assert rows["exc"]["why"].startswith("1.3: ")
    assert rows["exc"]["why"].endswith("; excused: 1.2")
    assert rows["gone"]["of"] == "0" and rows["over"]["look at"].startswith("1.a: 2 by hand")
    (total,) = (row for row in rows_of(mixed.root / "class.csv") if row["learner"] == "late")
    assert (total[LAB.name], total["total"], total["of"]) == ("6.4", "6.4", "21")
    printed = seen.file.getvalue()
    assert re.search(r"over: 1\.a: 2 by hand counts, older than the answer", printed)
    assert "'typo', whom nobody knows" in printed and "'gone'" not in printed


def penalty_of(course, learner, lab=LAB):
    standing = course.standings(lab)[learner]
    used = standing.lateness and standing.lateness.used
    return standing.late_penalty, used


def test_minutes_of_grace_are_not_late_and_a_minute_more_is(course):
    for learner, minutes in {"ada": 15, "bob": 16, "cyd": 0}.items():
        graded(course, learner, FULL, stamp(minutes / 24 / 60))
    dated = "[deadlines]\nrmsnorm = 2026-03-01T12:00Z\n[late]\npercent_a_day = 10\n"
    ruled(course, dated)
    report_again(Course(course.root))
    assert course.standings(LAB)["ada"].late_penalty == sum(FULL) / 10
    ruled(course, dated + "grace_minutes = 15\n")
    course = Course(course.root)
    report_again(course)
    penalties = {name: penalty_of(course, name)[0] for name in ("ada", "bob", "cyd")}
    assert penalties == {"ada": 0, "bob": sum(FULL) / 10, "cyd": 0}
    words = "within the 15 minutes of grace after the deadline: not late"
    shown = [name for name in penalties if words in page_of(course, name).read_text()]
    assert shown == ["ada"]


def test_late_days_are_used_lab_by_lab_and_the_page_says_how_many(course):
    """Labs that are due first use them first, and an excused lab uses none."""
    course.release(SECOND)
    text = ("[deadlines]\nrmsnorm = 2026-03-01T12:00Z\nrope = 2026-03-08T12:00Z\n"
            "[late]\npercent_a_day = 10\ndays = 3\n")  # fmt: skip
    course = ruled(course, text)
    for learner, days in {"ada": 1.5, "bob": 4.5, "exc": 1.5}.items():
        graded(course, learner, FULL, stamp(days))
    apply_course_rules(course, LAB)
    second = tuple(float(exercise.points) for exercise in SECOND.exercises)
    for learner in ("ada", "bob", "exc"):
        graded(course, learner, second, stamp(7 + 1.5), lab=SECOND)
    apply_course_rules(course, SECOND)
    penalties = [penalty_of(course, name) for name in ("ada", "bob")]
    assert penalties == [(0, 2), (sum(FULL) / 5, 3)]
    every = sum(second)
    assert penalty_of(course, "ada", SECOND) == (pytest.approx(0.1 * every), 1)
    assert penalty_of(course, "bob", SECOND) == (pytest.approx(0.2 * every), 0)
    course.feedback(LAB)
    assert ("Late: 2 of your 3 late days used for this lab, 1 left for the labs that are due"
            in page_of(course, "ada").read_text())  # fmt: skip
    # excused or extended, the first lab leaves its late days to the second
    course = ruled(course, text + '[excused]\nexc = ["1"]\n')
    apply_course_rules(course, LAB)
    assert penalty_of(course, "exc", SECOND) == (0, 2)
    course = ruled(course, text + "[extensions.rmsnorm]\nada = 2026-03-03T12:00Z\n")
    apply_course_rules(course, LAB)
    assert penalty_of(course, "ada", SECOND) == (0, 2)
    report_again(course)
    (row,) = (r for r in rows_of(course.root / f"{SECOND.name}.csv") if r["learner"] == "bob")
    assert row["late days"] == "0"
    (row,) = (r for r in rows_of(course.root / "class.csv") if r["learner"] == "bob")
    assert row["late days"] == "3"


def test_a_stale_override_is_told_to_the_learner(course):
    graded(course, "ada", (4.0, 1.5, 4.0))
    by_hand(course, LAB.exercises[1], 3.0)
    course.feedback(LAB)
    page = page_of(course, "ada")
    assert "A person gave 3 points, which count; by the checks it would be 1.5." in (
        page.read_text()
    )
    graded(course, "ada", FULL)
    course.feedback(LAB)
    text = " ".join(page.read_text().split())
    assert "3 of 6" in text and "<b>12</b> of 19" in text
    assert "by the checks it would be 6 now. The person’s points count until" in text
    (entry,) = results_of(course, LAB).handed
    assert [grade.id for grade in entry.standing.stale] == ["1.2"]


def test_excuses_and_deadlines_go_to_nbgraders_gradebook_and_come_back(mixed):
    def waits(learner):
        def ask(book):
            found = book.find_submission_notebook(LAB.name, LAB.name, learner)
            return {grade.name for grade in found.grades if grade.needs_manual_grade}

        return mixed.gradebook.do(ask)

    def dues(book):
        found = book.find_assignment(LAB.name)
        return found.duedate, book.find_submission(LAB.name, "ext").duedate

    assert waits("exc") == {"written-1-a"}
    assert mixed.gradebook.do(dues) == (
        datetime(2026, 3, 1, 12),
        datetime(2026, 3, 5, 12),
    )
    assert mixed.due_dates() == {LAB.name: DUE}
    changed = RULES.replace('"1.2", "1.c"', '"1.a"')
    again = ruled(mixed, changed.replace("2026-03-01T12:00Z", "2026-03-02T12:00Z"))
    apply_course_rules(again, LAB)
    standings = again.standings(LAB)
    assert waits("exc") == set() and standings["exc"].automatic == 6.5
    assert standings["late"].late_penalty == 0.8  # one day begun: 10% of 8
    apply_course_rules(ruled(mixed, ""), LAB)
    assert waits("exc") == {"written-1-a"}


def test_nbgraders_own_commands_follow_the_rules(mixed, tmp_path):
    apply_course_rules(mixed, LAB)
    export = CsvExportPlugin(to=str(tmp_path / "grades.csv"))
    mixed.gradebook.do(export.export)
    numbers = {row["student_id"]: [float(row[key]) for key in ("raw_score", "score")]
               for row in rows_of(tmp_path / "grades.csv")
               if row["assignment"] == LAB.name}  # fmt: skip
    assert numbers["late"] == [8, 6.4]

    def penalty(course):
        return CoursePenalty(config=course.config()).late_submission_penalty("ada", 7.0, 129600)

    assert penalty(mixed) == pytest.approx(1.4)
    with_plugin(mixed)
    with pytest.raises(CourseError, match=r"percent_a_day, or what the plugin AnHour"):
        _ = Course(mixed.root).late
    assert penalty(ruled(mixed, "")) is None


def test_model_answers_are_shown_to_learners_only_where_the_file_says_so(course):
    graded(course, "ada")
    course.feedback(LAB)
    assert "four equal numbers" not in page_of(course, "ada").read_text()
    ruled(course, '[feedback]\nmodel_answers = ["1"]').feedback(LAB)
    assert "four equal numbers" in page_of(course, "ada").read_text()


# People


def test_who_left_is_named_leaves_all_counts_and_may_come_back(course, tmp_path):
    """A command with a roster lists those not on it; only a person says who left, as a roster
    may be of one section."""
    roster = tmp_path / "autumn.csv"
    roster.write_text("id,name\nada,Ada L\neve,Eve E\ncy,Cy N\n")
    command = ("collect", "--course", course.root, "--roster", roster)
    assert "not on" not in tinyllm(*command)[1]
    for learner in ("ada", "eve"):
        graded(course, learner)
    roster.write_text("id,name\nada,Ada L\ncy,Cy N\n")
    _, text = tinyllm(*command)
    assert 'in the class and not on autumn.csv: "eve"\n' in text
    assert "goes into course.toml: [roster], left = [...]" in text
    report_again(course)
    assert [row["learner"] for row in rows_of(course.root / "class.csv")] == [
        "ada",
        "cy",
        "eve",
    ]

    course = ruled(course, '[roster]\nleft = ["eve"]\n')
    _, text = tinyllm(*command)
    assert "eve" not in text
    report_again(course)
    assert not course.remarks
    for name in (LAB.name, "class"):
        rows = rows_of(course.root / f"{name}.csv")
        assert [row["learner"] for row in rows] == ["ada", "cy"]
    results = results_of(course, LAB)
    assert [e.learner for e in results.missing] == ["cy"] and results.left == ["eve"]
    assert "1 without a file of theirs, 1 left the course" in " ".join(total_lines(results))
    page = (course.root / f"{LAB.name}.html").read_text()
    assert "Left the course, and in no count: eve" in page and page.count("eve") == 1
    assert "of 2 learners are graded" in page
    assert "eve" not in (course.root / "class.html").read_text()

    roster.write_text("id,name\nada,Ada L\neve,Eve E\ncy,Cy N\n")
    assert "though course.toml says that they left: eve" in tinyllm(*command)[1]
    course = ruled(course, "")
    assert course.standings(LAB)["eve"].total == sum(FULL)
    assert [e.learner for e in results_of(course, LAB).handed] == ["ada", "eve"]
