"""The class of the demo, in nbgrader's gradebook, by both roads."""

import csv
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from labkit.author.mistakes import mistakes_of
from labkit.core.paths import ROOT
from labkit.core.syllabus import LABS
from labkit.grading.demo import QUESTIONS
from labkit.grading.nbgrader.course import Course
from labkit.grading.run.pool import GradingPool
from labkit.grading.run.schedule import grade_lab
from labkit.grading.sample_class import ODD, small_class
from labkit.pretrain.stories.reader import read_story

LAB = LABS[0]
ALL = sum(exercise.points for exercise in LAB.exercises)
FIRST = LAB.exercises[0].points

EXPECTED = {
    "perfect": (ALL, "all checks passed"),
    "blank": (0, "not started"),
    "pasted-twice": (ALL, "all checks passed"),
    "metadata-stripped": (ALL, "all checks passed"),
    "deleted-cell": (ALL - FIRST, "is missing"),
    "syntax-error": (ALL - FIRST, "SyntaxError"),
    "no-exercise-cells": (0, "is missing"),
    "not-a-notebook": (0, "not JSON"),
    "raises-in-the-cell": (ALL - FIRST, "my kernel was fine (line"),
    "calls-sys-exit": (ALL - FIRST, "SystemExit"),
    "loops-for-ever": (ALL - FIRST, "more than 10 seconds of CPU time"),
    "prints-megabytes": (ALL - FIRST, "printed more than"),
    "returns-a-string": (ALL - FIRST, "not str 'forty-two'"),
    "returns-nothing": (ALL - FIRST, "not None"),
}


def nbgrader(folder, *arguments):
    environment = {**os.environ, "TINYLLM_COURSE": str(folder)}
    scripts = str(Path(sys.executable).parent)
    environment["PATH"] = scripts + os.pathsep + environment["PATH"]
    return subprocess.run(
        [sys.executable, "-m", "nbgrader", *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_odd_notebooks_get_a_clear_verdict_and_cost_only_what_is_missing(graded_class, name):
    _, graded, _ = graded_class
    points, words = EXPECTED[name]
    assert graded[name].score == points
    assert words in graded[name].why


def test_the_class_has_every_mistake_and_every_odd_notebook(graded_class):
    _, graded, _ = graded_class
    assert len(graded) == len(mistakes_of(LAB)) + len(ODD) + 3
    assert set(EXPECTED) <= set(graded)


def test_the_csv_shows_who_points_and_why(graded_class):
    course, graded, _ = graded_class
    with (course.root / f"{LAB.name}.csv").open(newline="", encoding="utf-8-sig") as file:
        rows = {row["learner"]: row for row in csv.DictReader(file)}
    assert rows.keys() == graded.keys()
    assert {name: float(row["automatic"]) for name, row in rows.items()} == {
        name: submission.score for name, submission in graded.items()
    }
    assert "summed instead of averaged" in rows["1-2-sum-for-mean"]["why"]
    assert "not JSON" in rows["not-a-notebook"]["look at"]


def test_the_terminal_shows_one_screen(graded_class):
    _, graded, printed = graded_class
    screen = printed.partition("\nThe decoder of the best")[0].splitlines()
    assert len(screen) <= 24 and f"{len(graded)} graded" in screen[0]
    assert any("not-a-notebook: the file is not a notebook" in line for line in screen)
    assert "Commonest reasons for lost points" in screen


def test_the_demo_ends_with_the_best_submissions_decoder(graded_class):
    """Its story is sound, and its question is answered from it."""
    _, graded, printed = graded_class
    _, learner, end = re.split(r"The decoder of the best submission, (\S+), talks:", printed)
    assert graded[learner].score == ALL
    plain = " ".join(end.split())
    assert "plays what is missing of 02 rope, 03 gqa" in plain and "rmsnorm" not in plain
    asked, answered = zip(
        *(turn.split("\n")[:2] for turn in end.split("you> ")[1:]), strict=True
    )
    reading = read_story(answered[0])
    assert asked == QUESTIONS and reading.sound
    assert reading.answer(QUESTIONS[1]) == answered[1]


def test_the_gradebook_has_the_scores_of_the_table(graded_class):
    course, graded, _ = graded_class
    standings = course.standings(LAB)
    for learner, submission in graded.items():
        for one in submission.exercises:
            assert standings[learner].exercises[one.id].points == one.score


def test_written_answers_wait_for_a_person(graded_class):
    from nbgrader.api import Gradebook

    course, _, _ = graded_class
    with Gradebook(course.database, "tinyllm") as gradebook:
        book = gradebook.find_submission_notebook(LAB.name, LAB.name, "perfect")
        waiting = {grade.name: grade.needs_manual_grade for grade in book.grades}
    written = {question.answer_cell for question in LAB.questions}
    assert {name for name, needed in waiting.items() if needed} == written


def test_an_answered_question_goes_to_a_person_and_its_score_counts(graded_class, tmp_path):
    from nbgrader.api import Gradebook

    course = copy_of(graded_class[0], tmp_path, keep=["perfect"])
    path = course.root / "submitted" / "perfect" / LAB.name / f"{LAB.name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    next(c for c in notebook.cells if c.id == "written-1-a").source = "[3, 3, 3, 3]"
    for name in ("written-1-b", "written-1-c"):
        next(c for c in notebook.cells if c.id == name).source = "YOUR ANSWER HERE"
    nbformat.write(notebook, path)
    with GradingPool(1) as pool:
        (submission,) = grade_lab(course, LAB, pool).values()
    assert submission.score == ALL
    with Gradebook(course.database, "tinyllm") as gradebook:
        grade = gradebook.find_grade("written-1-a", LAB.name, LAB.name, "perfect")
        assert grade.needs_manual_grade and grade.auto_score is None
        grade.manual_score = 2
        gradebook.db.commit()
        submission = gradebook.find_submission(LAB.name, "perfect")
        assert submission.score == ALL + 2


def copy_of(course, folder, keep=None):
    """The course with its submissions, ungraded."""
    target = folder / "course"
    for name in ("source", "release", "submitted"):
        shutil.copytree(course.root / name, target / name)
    for name in ("nbgrader_config.py", ".secret"):
        shutil.copyfile(course.root / name, target / name)
    if keep is not None:
        for path in (target / "submitted").iterdir():
            if path.name not in keep:
                shutil.rmtree(path)
    copied = Course(target)
    copied.release(LAB)
    return copied


def test_nbgrader_autograde_gives_the_very_same_scores(graded_class, tmp_path):
    course, graded, _ = graded_class
    mistaken = sorted(learner for learner in graded if learner not in EXPECTED)
    # every odd notebook, but for the one that needs twelve seconds; every fourth mistake
    chosen = {*EXPECTED, *mistaken[::4]} - {"loops-for-ever"}
    copied = copy_of(course, tmp_path, keep=chosen)
    done = nbgrader(copied.root, "autograde", LAB.name)
    assert done.returncode == 0, done.stderr[-3000:]
    expected = {
        name: scores for name, scores in course.standings(LAB).items() if name in chosen
    }
    assert copied.standings(LAB) == expected and len(expected) == len(chosen)
    for learner in chosen:
        relative = f"autograded/{learner}/{LAB.name}/{LAB.name}.ipynb"
        ours = nbformat.read(course.root / relative, as_version=4)
        theirs = nbformat.read(copied.root / relative, as_version=4)
        assert [c.source for c in ours.cells] == [c.source for c in theirs.cells]
        assert [c.get("outputs") for c in ours.cells] == [
            c.get("outputs") for c in theirs.cells
        ]
    done = nbgrader(copied.root, "generate_feedback", LAB.name)
    assert done.returncode == 0, done.stderr[-3000:]
    done = nbgrader(copied.root, "export", "--to", str(tmp_path / "grades.csv"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(rf"perfect,.*,{float(ALL)},", (tmp_path / "grades.csv").read_text())


def test_the_formgrader_button_gives_the_same_score(graded_class, tmp_path):
    course, _, _ = graded_class
    copied = copy_of(course, tmp_path, keep=["1-2-sum-for-mean"])
    outcome = copied.api().autograde(LAB.name, "1-2-sum-for-mean")
    assert outcome["success"], outcome["log"]
    assert (
        copied.standings(LAB)["1-2-sum-for-mean"] == course.standings(LAB)["1-2-sum-for-mean"]
    )


def test_learner_code_never_runs_in_the_judges_process(graded_class, tmp_path):
    """A cell that leaves a file behind wherever it runs leaves none, by either road."""
    course = copy_of(graded_class[0], tmp_path, keep=["perfect"])
    witness = tmp_path / "I-ran-here"
    path = course.root / "submitted" / "perfect" / LAB.name / f"{LAB.name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    cell = next(c for c in notebook.cells if c.id == "ex-1-1")
    cell.source += (
        f"\n\ntry:\n    open({str(witness)!r}, 'w')\nexcept OSError:\n    leaked = False\n"
    )
    nbformat.write(notebook, path)
    assert nbgrader(course.root, "autograde", LAB.name).returncode == 0
    assert course.standings(LAB)["perfect"].exercises["1.1"].points == FIRST
    assert not witness.exists()


def test_the_release_is_the_committed_notebook(graded_class):
    course, _, _ = graded_class
    ours = nbformat.read(ROOT / "notebooks" / f"{LAB.name}.ipynb", as_version=4)
    theirs = course.released(LAB)
    assert [(c.id, c.source) for c in ours.cells] == [(c.id, c.source) for c in theirs.cells]


def test_no_hidden_check_and_no_answer_travels(graded_class):
    course, _, _ = graded_class
    hidden = (ROOT / "tests" / "hidden" / f"test_{LAB.module}.py").read_text()
    names = set(re.findall(r"def (test_\w+)", hidden))
    for folder in ("release", "feedback", "autograded"):
        for path in (course.root / folder).rglob("*"):
            if path.is_file():
                text = path.read_text(errors="replace")
                assert not [name for name in names if name in text], path
                assert "BEGIN SOLUTION" not in text
    for path in (course.root / "source").rglob("*"):
        assert path.is_dir() or path.suffix == ".ipynb", f"{path} would travel to learners"


def test_feedback_has_the_report_and_no_expected_value(graded_class):
    course, _, _ = graded_class
    name = "1-2-sum-for-mean"
    page = (course.root / "feedback" / name / LAB.name / f"{LAB.name}.html").read_text()
    assert "summed instead of averaged" in page
    assert "values for any number of axes" in page
    assert not re.search(r"first at \[[\d, ]*\]: \S+ instead of", page)


def test_the_class_report_is_one_file_without_scripts(graded_class):
    course, graded, _ = graded_class
    page = (course.root / f"{LAB.name}.html").read_text()
    assert "<script" not in page and "http://" not in page and "https://" not in page
    assert 'src="data:image/png;base64,' in page and 'alt="Left:' in page
    assert all(learner in page for learner in graded)
    lines = (course.root / f"{LAB.name}.csv").read_text().splitlines()
    assert len(lines) == len(graded) + 1


def test_small_class_is_made_of_the_released_notebook(released):
    first = next(small_class(LAB, released[LAB.name]))
    cells = nbformat.reads(first.data.decode(), as_version=4).cells
    assert [c.id for c in cells] == [c.id for c in released[LAB.name].cells]
