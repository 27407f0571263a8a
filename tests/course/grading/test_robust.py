"""Errors of one learner or of the machine stop nobody else's grading."""

import errno
import os
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from filelock import FileLock
from nbgrader.preprocessors import GetGrades

from labkit.checks import declared
from labkit.course import paths
from labkit.course.paths import TESTS
from labkit.grading.judge.intake import cell_called
from labkit.grading.nbgrader import feedback
from labkit.grading.nbgrader.gradebook.connection import CourseError
from labkit.grading.run import schedule
from labkit.grading.run.judge_process import judge_for
from labkit.grading.run.pool import EXECUTORS, GradingPool
from labkit.grading.run.results import GradingSpec
from labkit.grading.run.schedule import grade_lab
from labkit.grading.sample_class import Learner, encoded, hand_in, solved
from labkit.sandbox.bubblewrap import GradingError
from tests.course.grading.samples import (
    LATE,
    OURS,
    by_hand,
    judged,
    notebook_of,
    stored,
    with_plugin,
)
from tests.course.grading.two_learners import (
    ALL,
    LAB,
    RIGHT,
    all_files,
    grade,
    judge_here,
    page_of,
    points,
    submitted,
    tinyllm,
)
from tests.course.grading.two_learners import assert_refused as refused
from tests.course.grading.two_learners import autograded as graded_notebook_of
from tests.course.grading.two_learners import look_at as looks

NAMES = ("ada", "eve", "zoe")


@pytest.fixture
def course(released_course):
    return released_course


@pytest.fixture
def three(course):
    """A course with three graded learners and their pages."""
    for learner in NAMES:
        stored(course, learner)
    assert len(course.feedback(LAB)) == 3 and not course.remarks
    return course


# Pages


def test_a_page_that_cannot_be_made_is_a_remark_with_its_reason(three):
    stored(three, "zoe", scores=(0.0, 0.0, 0.0))
    contents = {
        b"%PDF-1.7": "JSONDecodeError",
        b"[]": "AttributeError",
        b'{"cells": []}': "AttributeError",
        b"[" * 100_000: "RecursionError",
    }
    for content, why in contents.items():
        graded_notebook_of(three, "eve").write_bytes(content)
        three.remarks.clear()
        pages = three.feedback(LAB)
        assert pages == [page_of(three, "ada"), page_of(three, "zoe")]
        (remark,) = three.remarks
        assert re.match(f"no page of feedback could be made: {why}", remark.text)
        assert (remark.learner, remark.lab) == ("eve", LAB.name)
        assert not page_of(three, "eve").exists()  # a page that is out of date is deleted


def test_the_marks_are_those_of_nbgraders_own_code(course):
    """Points, comments and penalty are as nbgrader's GetGrades puts them into a notebook."""
    stored(with_plugin(course, OURS), "ada", LATE, (4.0, 1.5, 0.0), text="")
    theirs = notebook_of(course, judged(), text="")
    names = {"student": "ada", "assignment": LAB.name, "notebook": LAB.name}
    resources = {"nbgrader": names | {"db_url": course.database}}
    GetGrades().preprocess(theirs, resources)
    expected, standing = resources["nbgrader"], course.standings(LAB)["ada"]
    assert standing.total == expected["score"] == 3.5 and standing.late_penalty == 2
    assert standing.possible == expected["max_score"]
    cells = {c.metadata.nbgrader.grade_id: c.metadata.nbgrader for c in theirs.cells
             if "nbgrader" in c.metadata}  # fmt: skip
    for part in (*LAB.exercises, *LAB.questions):
        grade = (standing.exercises | standing.questions)[part.id]
        theirs = cells[part.grade_cell]
        assert (grade.points, grade.possible) == (theirs["score"], theirs["points"])
        assert standing.comments.get(part.answer_cell) == (cells[part.answer_cell]["comment"])


def test_a_full_disk_is_no_fault_of_a_page(three, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    stored(three, "eve", scores=(0.0, 0.0, 0.0))
    before = page_of(three, "eve").read_bytes()
    monkeypatch.setattr(feedback, "write_whole", full)
    with pytest.raises(OSError, match="No space left"):
        three.feedback(LAB)
    assert page_of(three, "eve").read_bytes() == before
    monkeypatch.undo()
    three.feedback(LAB)
    assert page_of(three, "eve").read_bytes() != before


# Faulty checks and references, which can judge nobody

HIDDEN = f"hidden/test_{LAB.module}.py"


@pytest.fixture
def checks(tmp_path, monkeypatch):
    """A copy of the hidden checks, to be damaged by edit(old, new)."""
    for folder in ("visible", "hidden"):
        shutil.copytree(TESTS / folder, tmp_path / "tests" / folder)
    monkeypatch.setattr(declared, "TESTS", tmp_path / "tests")
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    path = tmp_path / "tests" / HIDDEN

    def edit(find, instead):
        text = path.read_text()
        assert find in text
        path.write_text(text.replace(find, instead, 1))

    return edit


TYPO = ("\n\n\n@check", "\n\n\ndef test_mine(rng)\n    pass\n\n\n@check")


@pytest.mark.parametrize(
    ("find", "instead", "said"),
    [
        (*TYPO, r"exercise 1.1, 4 points: tests/hidden/test_rmsnorm.py, line \d+: SyntaxError"),
        ("from visible import", "from torhc import", r"norm.py, line \d+: Module.*torhc"),
        ("SHAPES = [", "SHAPES = [()[0],", "IndexError"),
        ("return call", "return call.mentioning('odd')", "the reference itself"),
        ("return call", "return 7", "TypeError"),
    ],
)  # fmt: skip
def test_nobody_is_graded_where_the_checks_are_not_sound(course, checks, find, instead, said):
    checks(find, instead)
    with pytest.raises(GradingError, match=said):
        judge_for(GradingSpec.of(LAB, course.released(LAB), b"secret"))


def test_nothing_is_written_where_the_checks_are_not_sound(course, checks, monkeypatch):
    """By `tinyllm grade` and by nbgrader, even if a blank notebook, which needs no check, comes
    first."""
    hand_in(course.root, LAB, Learner("ada", encoded(course.released(LAB))))
    hand_in(course.root, LAB, Learner("bob", encoded(solved(course.released(LAB), LAB))))
    before = all_files(course)
    checks(*TYPO)
    monkeypatch.setitem(EXECUTORS, "processes", judge_here)
    with GradingPool() as pool, pytest.raises(GradingError, match="SyntaxError"):
        grade_lab(course, LAB, pool)
    outcome = course.api().autograde(LAB.name, "ada")
    assert not outcome["success"] and "line" in outcome["log"]
    assert outcome["log"].count("SyntaxError") == 1
    assert course.standings(LAB) == {} and all_files(course) == before


def test_a_released_notebook_that_cannot_be_used_says_what_to_do(course):
    path = course.root / "release" / LAB.name / f"{LAB.name}.ipynb"
    for content in (b"", b"{}", b'{"cells": [], "nbformat": 4}', None):
        path.write_bytes(content) if content is not None else path.unlink()
        with pytest.raises(CourseError, match=r"generate_assignment 01_rmsnorm( --force)?`$"):
            course.released(LAB)


# The command: its status, its one line, and how it continues


def test_the_status_says_whether_something_needs_a_look(handed_in):
    assert grade(handed_in)[0] == 0
    hand_in(handed_in.root, LAB, Learner("eve", b"%PDF-1.7"))
    status, output = grade(handed_in)
    assert status == 1 and "\n  eve: the file is not a notebook" in output
    path = handed_in.root / "submitted" / "eve" / LAB.name / f"{LAB.name}.ipynb"
    path.write_bytes(encoded(handed_in.released(LAB)))
    assert grade(handed_in)[0] == 0


def test_points_by_hand_settle_what_needed_a_look(handed_in, monkeypatch):
    """In the table and on the screen, also after grading again."""
    notebook = solved(handed_in.released(LAB), LAB)
    first = cell_called(notebook, LAB.exercises[0].answer_cell)
    first.source = "# %% exercise 1.1: layer_norm\nfrom my_norm import layer_norm\n"
    hand_in(handed_in.root, LAB, Learner("eve", encoded(notebook)))
    status, output = grade(handed_in)
    assert (
        status == 1 and "eve: exercise 1.1" in output and "my_norm" in looks(handed_in)["eve"]
    )
    by_hand(handed_in, LAB.exercises[0], 4.0, "eve")
    for options in (("--no-sandbox",), ("--no-sandbox", "--fresh")):
        monkeypatch.setitem(EXECUTORS, "processes", judge_here)
        status, output = grade(handed_in, *options)
        assert status == 0 and "Needs a look" not in output
        assert not looks(handed_in)["eve"] and points(handed_in)["eve"] == ALL


def test_a_notebook_under_another_name_is_no_file_that_is_known(handed_in):
    right = handed_in.root / "submitted" / "bob" / LAB.name / f"{LAB.name}.ipynb"
    other = right.rename(right.with_name("homework.ipynb"))
    assert "1 without a file of theirs" in grade(handed_in)[1]
    assert points(handed_in).keys() == {"ada"}
    other.rename(right)
    assert grade(handed_in)[0] == 0 and points(handed_in)["bob"] > 0


def test_a_page_that_fails_leaves_all_reports_and_status_1(handed_in, monkeypatch):
    def broken(notebook, rules, person, *rest):
        if person.id == "bob":
            raise ZeroDivisionError("a fault of ours")
        return page(notebook, rules, person, *rest)

    page = feedback.page_of
    monkeypatch.setattr(feedback, "page_of", broken)
    status, output = grade(handed_in)
    assert status == 1 and "bob: no page of feedback could be made: ZeroDivisionError" in output
    assert page_of(handed_in, "ada").exists() and not page_of(handed_in, "bob").exists()
    for name in (f"{LAB.name}.html", f"{LAB.name}.csv", "class.html", "class.csv"):
        assert "bob" in (handed_in.root / name).read_text("utf-8"), name
    monkeypatch.undo()
    monkeypatch.setitem(EXECUTORS, "processes", judge_here)
    assert grade(handed_in)[0] == 0 and page_of(handed_in, "bob").exists()


def test_a_notebook_that_we_stumble_over_is_a_remark(handed_in, monkeypatch):
    def stumbles(data, *rest):
        if b"graded_by" in data:
            raise RecursionError("a fault of ours")
        return graded_notebook(data, *rest)

    graded_notebook = schedule.graded_notebook
    monkeypatch.setattr(schedule, "graded_notebook", stumbles)
    hand_in(handed_in.root, LAB, Learner("eve", b"graded_by"))
    status, output = grade(handed_in)
    assert status == 1 and "Needs a look: 1 learner" in output
    assert re.search(r"not recorded: .*line \d+: RecursionError", looks(handed_in)["eve"])
    assert points(handed_in) == RIGHT


def test_only_what_has_changed_is_written_again(handed_in):
    def written():
        made = [graded_notebook_of(handed_in, name) for name in ("ada", "bob")]
        made += [page_of(handed_in, name) for name in ("ada", "bob")]
        return [(path.stat().st_mtime_ns, path.stat().st_ino) for path in made]

    def are_unchanged(before):
        return [one == other for one, other in zip(before, written(), strict=True)]

    grade(handed_in)
    first = written()
    assert grade(handed_in)[0] == 0 and are_unchanged(first) == [True] * 4
    hand_in(handed_in.root, LAB, Learner("ada", submitted(handed_in, "bob").read_bytes()))
    assert grade(handed_in)[0] == 0 and are_unchanged(first) == [False, True, False, True]
    assert points(handed_in) == {"ada": ALL, "bob": ALL}
    page = page_of(handed_in, "bob")
    before = page.read_bytes()
    page.write_text("of another program")
    with closing(sqlite3.connect(handed_in.root / "gradebook.db")) as book:
        book.execute("DELETE FROM grade")
        book.execute("DELETE FROM comment")
        book.execute("DELETE FROM submitted_notebook")
        book.execute("DELETE FROM submitted_assignment")
        book.commit()
    assert grade(handed_in)[0] == 0 and page.read_bytes() == before
    assert points(handed_in) == {"ada": ALL, "bob": ALL}


def test_results_of_another_lab_that_cannot_be_read_are_named(handed_in):
    path = handed_in.root / ".results" / "02_rope.json"
    path.parent.mkdir()
    for content in ("{", "[1]"):
        path.write_text(content)
        status, output = grade(handed_in)
        assert status == 2 and "`tinyllm grade rope` makes it again" in output
    path.unlink()
    assert grade(handed_in)[0] == 0


def damaged(path):
    content = bytearray(path.read_bytes())
    content[100:2000] = b"x" * 1900
    path.write_bytes(content)


def with_sql(*statements):
    def change(path):
        with closing(sqlite3.connect(path)) as database, database:
            for statement in statements:
                database.execute(statement)

    return change


def other_tables(path):
    path.unlink()
    with_sql("CREATE TABLE recipes (title)")(path)


WRONG_GRADEBOOKS = {
    "there is no gradebook .*nbgrader generate_assignment 01_rmsnorm": Path.unlink,
    "there is no gradebook": lambda path: path.write_bytes(b""),
    "file is not a database": lambda path: path.write_bytes(b"%PDF-1.7 a page" * 100),
    "is no gradebook, or damaged": damaged,
    r"it holds other tables \(recipes\)": other_tables,
    "nbgrader db upgrade": with_sql('ALTER TABLE "grade" DROP COLUMN extra_credit'),
    "No such assignment.*run `nbgrader gen": with_sql("DELETE FROM assignment"),
}  # fmt: skip


def test_what_is_not_the_courses_gradebook_is_refused_untouched(handed_in):
    path = handed_in.root / "gradebook.db"
    right = path.read_bytes()
    for message, change in WRONG_GRADEBOOKS.items():
        change(path)
        refused(handed_in, message)
        path.write_bytes(right)
    assert grade(handed_in)[0] == 0 and points(handed_in) == RIGHT


def test_a_gradebook_that_another_program_holds_is_said(handed_in):
    config = handed_in.root / "nbgrader_config.py"
    url = f"sqlite:///{handed_in.root}/gradebook.db?timeout=0.05"
    config.write_text(config.read_text() + f"c.CourseDirectory.db_url = {url!r}\n")
    with closing(sqlite3.connect(handed_in.root / "gradebook.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        refused(handed_in, "database is locked", "same command again")
    assert grade(handed_in)[0] == 0 and points(handed_in) == RIGHT


def test_a_second_command_in_a_folder_is_refused(handed_in):
    with FileLock(handed_in.root / ".lock"):
        refused(handed_in, "in use by another command", "same command again")
        assert tinyllm("collect", "--course", handed_in.root)[0] == 2
    assert grade(handed_in)[0] == 0


def test_a_disk_that_fills_up_stops_with_one_line_and_the_same_command_goes_on(
    handed_in, monkeypatch
):
    """The disk is full at the first file, at the second, and so on, until there is room for
    all. No file is written in part, and finished ones stay."""
    replace, statuses = Path.replace, []
    for room in range(20):
        count = iter(range(100))

        def full(path, target, room=room, count=count):
            if next(count) >= room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return replace(path, target)

        monkeypatch.setattr(Path, "replace", full)
        status, output = grade(handed_in)
        statuses.append(status)
        assert not list(handed_in.root.rglob("*.part"))
        if status == 0:
            break
        assert "No space left on device" in output and "Traceback" not in output
    assert statuses == [2] * (len(statuses) - 1) + [0] and len(statuses) > 3
    assert points(handed_in) == RIGHT
    assert page_of(handed_in, "bob").exists() and (handed_in.root / "class.html").exists()
