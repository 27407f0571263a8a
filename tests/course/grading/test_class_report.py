"""The class reports on a made-up class: their numbers and names; they fetch and run nothing."""

import io
import re
from dataclasses import replace
from itertools import zip_longest
from types import SimpleNamespace

import pytest
from rich.cells import cell_len
from rich.console import Console

from labkit.course.report import Status, csv_safe
from labkit.grading.class_report import columns
from labkit.grading.class_report.class_results import (
    ABSENT,
    FULL,
    NONE,
    PART,
    Entry,
    causes,
    state,
)
from labkit.grading.class_report.read_results import join_class
from labkit.grading.class_report.report import write_course, write_lab
from labkit.grading.course_rules import CourseRules
from labkit.grading.judge.graded import GradedExercise, GradedSubmission
from labkit.grading.nbgrader.gradebook.connection import RosterEntry
from labkit.grading.nbgrader.published import Change, Grade
from labkit.grading.nbgrader.standings import CellGrade, Standing
from labkit.grading.nbgrader.submitted import Remark
from labkit.grading.run.results import Results
from labkit.grading.run.screen import print_screen
from tests.course.grading.samples import LAB, SECOND, rows_of

RULES = CourseRules()
EVIL = '=cmd|" /C calc"!A0<script>alert(1)</script>\x1b[31m\u202e'


def verdict(lab, *states):
    """The record of one learner, and the gradebook's standing that goes with it."""
    graded, standing = [], Standing()
    rest = FULL if {*states} == {FULL} else ABSENT  # of exercises that a sample does not list
    for exercise, how in zip_longest(lab.exercises, states, fillvalue=rest):
        score = {FULL: float(exercise.points), PART: 0.5}.get(how, 0.0)
        status = {FULL: Status.PASSED, ABSENT: Status.NOT_STARTED}.get(how, Status.NOT_YET)
        texts = {FULL: "", PART: "eps is left out", NONE: "SyntaxError", ABSENT: "not started"}
        why, look = ((texts[how],), "") if how == PART else ((), texts[how])
        share = score / exercise.points
        graded.append(GradedExercise(exercise.id, share, status, (), why, look))
        assert state(graded[-1]) == how
        standing.exercises[exercise.id] = CellGrade(exercise.id, exercise.points, score)
    for question in lab.questions:
        grade = CellGrade(question.id, question.points, flagged=True)
        standing.questions[question.id] = grade
    return GradedSubmission(tuple(graded)), standing


def of_class(lab, learners, people=(), without=()):
    made = {name: verdict(lab, *states) for name, states in learners.items()}
    submissions = {name: submission for name, (submission, _) in made.items()}
    standings = {name: standing for name, (_, standing) in made.items()}
    return join_class(RULES.of(lab), submissions, standings, people, without)


@pytest.fixture
def small():
    people = [RosterEntry("ada", "Ada", "Lovelace"), RosterEntry("gone", "Go", "Ne")]
    learners = {
        "ada": (FULL, FULL, FULL),
        "bob": (FULL, PART, NONE),
        "cyd": (PART, PART, ABSENT),
        EVIL: (ABSENT, ABSENT, ABSENT),
    }
    return of_class(LAB, learners, people, without=["silent"])


def test_numbers_and_causes_of_a_class(small):
    assert [entry.learner for entry in small.missing] == ["gone", "silent"]
    assert len(small.handed) == 4 and small.full == 1 and small.median == 2.8
    first, second, third, *_ = LAB.exercises
    assert small.states(first) == [2, 1, 0, 1] and small.states(third) == [1, 0, 1, 2]
    assert small.share(second) == pytest.approx((6 + 0.5 + 0.5 + 0) / 4 / 6)
    found = causes([small])
    assert [(c.exercise.id, c.learners[0], len(c.learners), c.named) for c in found] == [
        ("1.2", "bob", 2, True), ("1.1", "cyd", 1, True), ("1.3", "bob", 1, False)
    ]  # fmt: skip


def test_pages_say_what_an_instructor_asks_and_run_nothing(tmp_path, small):
    every = len(SECOND.exercises)
    second = of_class(SECOND, {"ada": [FULL] * every, "bob": [ABSENT] * every}, without=["cyd"])
    page = tmp_path / "feedback" / "ada" / LAB.name / f"{LAB.name}.html"
    page.parent.mkdir(parents=True)
    page.touch()
    lab = write_lab(tmp_path, small).read_text("utf-8")
    course = write_course(tmp_path, [small, second]).read_text("utf-8")
    for page in (lab, course):
        assert "default-src 'none'" in page
        assert not re.search(r"<script|javascript:|https?://|\x1b|\u202e| on\w+=", page)
        assert "{{" not in page and "{%" not in page
    lab, course = (" ".join(page.split()) for page in (lab, course))
    for words in ("<b>4</b><span>of 6 learners are graded", "eps is left out", "(bob, cyd)",
                  '<b>12</b><span><a href="#grade">written answers to be graded</a>',
                  "gone (Go Ne), silent", '14 – 15</td><td class="number">1</td>',
                  f'<a href="feedback/ada/{LAB.name}/{LAB.name}.html">ada</a>'):  # fmt: skip
        assert words in lab, words
    assert "2 labs" in course and f'href="{SECOND.name}.html"' in course
    row = course.partition(f"{LAB.name}.html")[2].partition("</tr>")[0]
    assert re.findall(">([^<>]+)</td>", row) == ["4", "2", "0", "1", "2.8 of 15"]
    assert re.search(rf"{LAB.name}</th><td class=\"number\">2</td><td>gone, silent", course)
    hardest = course.partition("The hardest exercises")[2].partition("1.2 RMSNorm")[2]
    numbers = re.findall('<td class="number">(.*?)</td>', hardest)
    assert numbers[:5] == ["1", "2", "0", "1", "29%"]
    empty = of_class(LAB, {}, [RosterEntry("ada")])
    assert "No file of theirs is known: 1" in write_lab(tmp_path, empty).read_text()


def test_tables_hold_no_formula(tmp_path, small):
    for text in ("=1+1", "+1", "-1", "@SUM(A1)", " =1", "\t=1", "\n=1", "\uff1d1", "\x00=1"):
        assert csv_safe(text).startswith(("'", "\N{REPLACEMENT CHARACTER}")), text
    assert csv_safe("Ada = Bob") == "Ada = Bob"
    write_lab(tmp_path, small)
    write_course(tmp_path, [small])
    for path in (tmp_path / f"{LAB.name}.csv", tmp_path / "class.csv"):
        rows = {row["learner"]: row for row in rows_of(path)}
        assert len(rows) == len(small.entries) and "\x1b" not in path.read_text("utf-8")
        cells = [cell for row in rows.values() for cell in row.values()]
        assert not [cell for cell in cells if cell[:1] in tuple("=+-@\t\r")]
        assert rows["ada"]["total"] == "15" and rows["ada"]["name"] == "Ada Lovelace"


def test_a_new_column_is_one_row_in_one_place(tmp_path, small, monkeypatch):
    """It is then in both tables and on both pages."""
    double = columns.Column("double", lambda row: 2 * row.points("total"))
    monkeypatch.setattr(columns, "COLUMNS", (*columns.COLUMNS, double))
    for page in (write_lab(tmp_path, small), write_course(tmp_path, [small])):
        (line,) = re.findall("<tr><td[^>]*>(?:<a[^>]*>)?ada<.*", page.read_text())
        assert '<th class="number">double</th>' in page.read_text() and ">30</td>" in line
    for name in (LAB.name, "class"):
        rows = {row["learner"]: row for row in rows_of(tmp_path / f"{name}.csv")}
        assert rows["ada"]["double"] == "30" and rows["silent"]["double"] == "0"


def test_a_class_that_was_graded_is_found_again(tmp_path):
    results = Results(tmp_path, LAB)
    assert results.of_class() is None
    submission, _ = verdict(LAB, FULL, PART, NONE)
    results.put("key", submission)
    results.put_class({"ada": "key", "bob": None})
    assert results.of_class() == {"ada": submission, "bob": None}
    (tmp_path / ".results" / LAB.name / "key.json").unlink()
    assert results.of_class() == {"ada": None, "bob": None}


def test_the_terminal_shows_one_screen_of_any_class(tmp_path):
    """For any names and reasons: 24 lines of 80 columns, except for paths."""
    learners = {f"{'long-name-' * number}{EVIL}": (PART, NONE, PART) for number in range(200)}
    submission, standing = verdict(LAB, FULL, PART, FULL)
    odd = replace(submission, problem="it is not JSON\n" * 50)
    results = of_class(LAB, learners)
    results.entries += [Entry(f"odd{n}", standing, submission=odd) for n in range(150)]
    results.entries.append(Entry("late", replace(standing, late_penalty=1.0), "", submission))
    for entry in results.entries[200:]:
        entry.change = Change(Grade(14.0, day="2026-11-20"), entry.grade, True)
    results.left = ["eve"]
    results.layers = ["limits"]
    remarks = [Remark("an old remark " * 9, f"odd{n}") for n in range(150)]
    remarks += [Remark(f"course.toml names '{n}', whom nobody knows") for n in range(30)]
    shown = SimpleNamespace(shown="sqlite:///gradebook.db")
    course = SimpleNamespace(root=tmp_path, remarks=remarks, gradebook=shown)
    seen = Console(record=True, width=80, file=io.StringIO())
    print_screen(results, course, [tmp_path / "lab.html"], seen)
    lines = seen.export_text().splitlines()
    assert len(lines) <= 24 and all(cell_len(line) <= 80 for line in lines[:-4])
    text = "\n".join(lines)
    assert "351 graded" in text and "Needs a look: 151 learners" in text
    assert "151 grades changed since 2026-11-20, 151 fell" in text
    assert "the grade fell, 14 to " in text and "and 148 more" in text and "1 late" in text
    assert "29 more remarks" in text and "NO SANDBOX" in text and "\x1b" not in text
