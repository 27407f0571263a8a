"""A published grade never changes unnoticed, whatever the cause."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
from nbgrader.coursedir import CourseDirectory

from labkit.grading.class_report.read_results import results_of
from labkit.grading.judge.judge import Judge
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.plugins import ReleaseFeedback
from labkit.grading.nbgrader.published import Change, Grade, Part, Published, causes_of
from labkit.grading.run import judge_process, results
from labkit.grading.sample_class import Learner, encoded, hand_in, solved, with_answer
from tests.course.grading.samples import LAB, by_hand, page_of, rows_of
from tests.course.grading.two_learners import ALL, grade, points, tinyllm

SECOND = LAB.exercises[1]


def row(course, learner="bob"):
    (found,) = (r for r in rows_of(course.root / f"{LAB.name}.csv") if r["learner"] == learner)
    return found


@pytest.fixture
def other_checks(monkeypatch):
    """While open, another version of the checks gives this share of the second exercise."""

    @contextmanager
    def install(share, name="newer"):
        plain = Judge.grade

        def judge(self, *arguments):
            graded = plain(self, *arguments)
            second = replace(graded.exercises[1], share=share, look="another opinion")
            first, _, *others = graded.exercises
            return replace(graded, exercises=(first, second, *others))

        versions = f"checks {name * 8}, torch 9.9, Python 3.11"
        with monkeypatch.context() as patch:
            patch.setattr(Judge, "grade", judge)
            for module in (results, judge_process):
                patch.setattr(module, "judging", lambda lab: versions)
            yield

    return install


def course_command(course, *words):
    return tinyllm(*words, "--course", course.root)


@pytest.fixture
def given_out(handed_in):
    """A course with two graded learners whose grades were published."""
    assert grade(handed_in)[0] == 0
    Published(handed_in.root, LAB.name).give_out()
    return handed_in


def test_the_same_again_changes_nothing(given_out):
    status, text = grade(given_out)
    assert status == 0 and "changed" not in text
    assert course_command(given_out, "report")[0] == 0
    assert row(given_out)["before"] == row(given_out)["changed"] == ""


def test_other_checks_that_cost_points_are_said_everywhere(given_out, other_checks):
    with other_checks(0.5):
        status, text = grade(given_out)
    day = Published(given_out.root, LAB.name).out["bob"].day
    assert status == 1
    assert f"2 grades changed since {day}, 1 fell" in text
    assert f"bob: the grade fell, {ALL} to {ALL - 3} (1.2: 6 to 3; checks" in text
    found = row(given_out)
    assert "to newerne; torch 2" in found["changed"] and " to 9.9; " in found["changed"]
    assert (found["before"], found["total"]) == (f"{ALL}", f"{ALL - 3}")
    assert found["changed"].startswith(f"since {day}: 1.2: 6 to 3")
    assert found["judged by"] == "checks newerne, torch 9.9, Python 3.11"
    assert "newerne, torch 9.9" in (given_out.root / f"{LAB.name}.html").read_text()
    (total,) = (r for r in rows_of(given_out.root / "class.csv") if r["learner"] == "bob")
    assert total["changed"] == f"{LAB.name}: {ALL} to {ALL - 3}"
    assert f"On {day} this grade was {ALL} points" in page_of(given_out, "bob").read_text()
    status, text = course_command(given_out, "report")  # reported until it is published again
    assert status == 1 and f"{LAB.name}: 2 grades changed since {day}, 1 fell" in text


def test_a_total_of_more_points_fell():
    """The same total out of more possible points."""
    before = Grade(9.0, {"1.1": Part(9.0, 9.0, False)})
    now = Grade(9.0, {"1.1": Part(9.0, 9.0, False), "1.2": Part(0.0, 3.0, False)})
    change = Change(before, now, True)
    assert change.fell and not before.is_as(now) and not Change(now, before, True).fell
    assert change.text == "9 of 9 to 9 of 12 (1.2: out of 0, now out of 3)"
    assert before.is_as(Grade(9.0)) and not Change(before, before, True).fell


def test_a_grade_published_again_is_the_next_one_to_compare_with(given_out, other_checks):
    with other_checks(0.5):
        grade(given_out)
        status, text = course_command(given_out, "export", "feedback")
        assert f"bob: the grade fell, {ALL} to {ALL - 3}" in text and status == 1
        status, text = grade(given_out)
        assert status == 0 and "changed" not in text
    assert f"this grade was {ALL} points" in page_of(given_out, "bob").read_text()  # forever


def test_before_anything_is_given_out_the_last_run_counts(handed_in, other_checks):
    assert grade(handed_in)[0] == 0
    with other_checks(0.5):
        status, text = grade(handed_in)
        assert status == 1 and "changed since the last run, 1 fell" in text
        assert "this grade was" not in page_of(handed_in, "bob").read_text()
        status, text = grade(handed_in)
        assert status == 0 and "changed" not in text


def test_as_published_leaves_grades_of_the_same_notebook(given_out, other_checks):
    better = with_answer(solved(given_out.released(LAB), LAB), LAB.exercises[2], "x = 1")
    with other_checks(0.5):
        status, text = grade(given_out, "--no-sandbox", "--as-published")
        assert status == 0 and "changed" not in text
        assert points(given_out) == {"ada": 0, "bob": ALL}
        assert row(given_out)["judged by"].startswith("checks ")
        assert "torch 9.9" not in row(given_out)["judged by"]
        hand_in(given_out.root, LAB, Learner("ada", encoded(better)))
        status, text = grade(given_out, "--no-sandbox", "--as-published")
        assert "1 grade changed" in text and "none fell" in text
        found = row(given_out, "ada")["changed"]
        causes = "1.1: 0 to 4; 1.2: 0 to 3, another reason; 1.4: 0 to 1"
        assert found.endswith(f": handed in again; {causes}")
        assert row(given_out, "ada")["judged by"].startswith("checks newerne, torch 9.9")
    status, text = grade(given_out, "--fresh", "--as-published")
    assert status == 2 and "take one away" in text


def test_fresh_points_by_hand_and_the_rules_are_compared_too(given_out, other_checks):
    by_hand(given_out, SECOND, 7.0, "bob")
    status, text = course_command(given_out, "report")
    assert status == 0 and "1 grade changed" in text and "none fell" in text
    assert row(given_out)["changed"].endswith(": 1.2: 6 to 7 by hand")
    by_hand(given_out, SECOND, None, "bob")
    with other_checks(0.25, "olderold"):
        status, text = grade(given_out, "--no-sandbox", "--fresh")
        assert status == 1 and f"bob: the grade fell, {ALL} to {ALL - 4.5}" in text
    grade(given_out)
    (given_out.root / "course.toml").write_text('[points]\n"1.2" = 4\n')
    status, text = course_command(given_out, "report")
    fell = f"bob: the grade fell, {ALL} to {ALL - 2} (1.2: 6 to 4 by course.toml)"
    assert status == 1 and fell in text


def test_a_grade_that_is_gone_fell_and_an_excuse_did_not(given_out):
    (given_out.root / "submitted" / "bob" / LAB.name / f"{LAB.name}.ipynb").unlink()
    status, text = grade(given_out)
    assert status == 1 and f"bob: the grade fell, {ALL} to no grade" in text
    (given_out.root / "course.toml").write_text('[excused]\nada = ["1"]\n')
    by_hand(given_out, SECOND, 1.0, "ada")
    Published(given_out.root, LAB.name).give_out()
    change = {e.learner: e.change for e in results_of(Course(given_out.root), LAB).entries}
    assert not change["ada"].fell and change["ada"].now.shown == "excused"


def test_nbgraders_release_gives_out(handed_in, monkeypatch):
    grade(handed_in)
    monkeypatch.setattr("nbgrader.exchange.default.ExchangeReleaseFeedback.copy_files",
                        lambda self: None)  # fmt: skip
    for learner in ("ada", "bob"):
        folder = page_of(handed_in, learner).parent
        (folder / "timestamp.txt").write_text("2026-03-01 12:00:00 UTC")
        if learner == "bob":
            (folder / "submission_secret.txt").write_text("secret")
    folder = CourseDirectory(config=handed_in.config(), assignment_id=LAB.name)
    release = ReleaseFeedback(coursedir=folder)
    release.src_path = str(handed_in.root / "feedback" / "*" / LAB.name)
    release.copy_files()
    assert set(Published(handed_in.root, LAB.name).out) == {"bob"}


def test_nbgraders_autograde_says_so_too(given_out, other_checks):
    with other_checks(0.5):
        outcome = given_out.api().autograde(LAB.name, "bob", force=True)
    assert outcome["success"], outcome["log"]
    day = Published(given_out.root, LAB.name).out["bob"].day
    changed = f"bob: the grade changed since {day}, {ALL} to {ALL - 3} (1.2: 6 to 3; "
    assert changed in outcome["log"]


def test_damaged_records_are_refused_with_the_way_out(given_out):
    Published(given_out.root, LAB.name).path.write_text('{"ada": 3}')
    status, text = grade(given_out)
    assert status == 2 and f"published/{LAB.name}.json" in text and "put back a copy" in text


def test_causes_are_told_apart():
    def cause(**now):
        part = Part(**{"points": 4.0, "possible": 6.0, "is_by_hand": False} | now)
        old = Grade(
            4.0, {"1.2": Part(6.0, 6.0, False, "y")}, 0.0, "k" * 64, "checks a, torch 1"
        )
        return [*causes_of(old, Grade(4.0, {"1.2": part}, 0.0, "k" * 64, "checks a, torch 2"))]

    assert cause() == ["1.2: 6 to 4", "torch 1 to 2"]
    assert cause(reason="x") == ["1.2: 6 to 4, another reason", "torch 1 to 2"]
    assert cause(is_by_hand=True) == ["1.2: 6 to 4 by hand"]
    assert cause(possible=4.0) == ["1.2: 6 to 4 by course.toml"]
