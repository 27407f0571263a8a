"""The demo's class in nbgrader's gradebook: by `tinyllm grade` and by nbgrader's own
commands."""

import html
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from labkit.course.paths import ROOT
from labkit.course.syllabus import LABS
from labkit.grading.demo import QUESTIONS
from labkit.grading.judge.intake import cell_called
from labkit.grading.nbgrader.course import Course
from labkit.grading.sample_class import ODD, small_class
from storyworld.reader import read_story
from tests.course.grading.samples import by_hand, page_of, rows_of

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
    "prints-megabytes": (ALL - FIRST, "printed more than"),
    "returns-a-string": (ALL - FIRST, "not str 'forty-two'"),
    "returns-nothing": (ALL - FIRST, "not None"),
}


@pytest.fixture(scope="module")
def mistaken(graded_class, released):
    """A learner of the class whose mistake costs points, and the sentence about it."""
    learners = [x for x in small_class(LAB, released[LAB.name]) if x.name in graded_class[1]]
    chosen = next(x for x in learners if x.mistake
                  and "{" not in x.mistake.sentence)  # fmt: skip
    return chosen.name, chosen.mistake.sentence


def test_odd_notebooks_get_a_clear_verdict_and_cost_only_what_is_missing(
    graded_class, mistaken
):
    _, graded, _ = graded_class
    for name, (points, words) in EXPECTED.items():
        assert graded[name].score == points, name
        assert words in graded[name].why, name
    wrong = [name for name in graded if name not in EXPECTED and graded[name].score < ALL]
    assert mistaken[0] in wrong and len(wrong) > 5


def test_a_class_has_mistakes_of_every_exercise_and_every_odd_notebook(released):
    learners = list(small_class(LAB, released[LAB.name]))
    assert {x.mistake.exercise for x in learners if x.mistake} == set(LAB.exercises)
    odd = {x.name for x in learners if not x.mistake}
    assert odd == {*EXPECTED, "loops-for-ever"} == {*ODD, "perfect", "blank", "not-a-notebook"}
    first = nbformat.reads(learners[0].data.decode(), as_version=4).cells
    assert [cell.id for cell in first] == [cell.id for cell in released[LAB.name].cells]


def test_table_gradebook_and_screen_have_the_verdicts(graded_class, mistaken):
    course, graded, printed = graded_class
    sentence = mistaken[1]
    rows = {row["learner"]: row for row in rows_of(course.root / f"{LAB.name}.csv")}
    standings = course.standings(LAB)
    assert rows.keys() == graded.keys() == standings.keys()
    for name, submission in graded.items():
        assert float(rows[name]["automatic"]) == submission.score
        points = {key: grade.points for key, grade in standings[name].exercises.items()}
        assert points == {verdict.id: verdict.score for verdict in submission.exercises}
    assert sentence in rows[mistaken[0]]["why"]
    assert "not JSON" in rows["not-a-notebook"]["look at"]
    screen = printed.partition("\nThe decoder of the best")[0].splitlines()
    assert len(screen) <= 24 and f"{len(graded)} graded" in screen[0]
    assert any("no-exercise-cells: exercise 1.1: the cell of" in line for line in screen)
    assert "Commonest reasons for lost points" in screen


def test_the_demo_ends_with_the_best_submissions_decoder(graded_class):
    """Its story is sound, and its question is answered from it."""
    _, graded, printed = graded_class
    _, learner, end = re.split(r"The decoder of the best submission, (\S+), talks:", printed)
    assert graded[learner].score == ALL
    plain = " ".join(end.split())
    assert "plays what is missing of 02 rope, 03 gqa" in plain and "rmsnorm" not in plain
    turns = [turn.partition("\n\n")[0].partition("\n") for turn in end.split("you> ")[1:]]
    asked, _, answered = zip(*turns, strict=True)
    answered = [" ".join(answer.split()) for answer in answered]  # undo the line breaks
    reading = read_story(answered[0])
    assert asked == QUESTIONS and reading.sound
    assert reading.answer(QUESTIONS[1]) == answered[1]


def nbgrader(folder, *arguments):
    """Run an nbgrader command in a terminal; it must succeed."""
    environment = {**os.environ, "TINYLLM_COURSE": str(folder)}
    scripts = str(Path(sys.executable).parent)
    environment["PATH"] = scripts + os.pathsep + environment["PATH"]
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


def copy_of(course, folder, keep):
    """The course with some of its submissions, ungraded."""
    target = folder / "course"
    for name in ("source", "release", *(f"submitted/{learner}" for learner in keep)):
        shutil.copytree(course.root / name, target / name)
    for name in ("nbgrader_config.py", ".secret"):
        shutil.copyfile(course.root / name, target / name)
    copied = Course(target)
    copied.release(LAB)
    return copied


def edited(course, learner, name, change):
    """Change a cell of a submission."""
    path = course.root / "submitted" / learner / LAB.name / f"{LAB.name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    cell = cell_called(notebook, name)
    cell.source = change(cell.source)
    nbformat.write(notebook, path)


def same_as_ours(copied, course, learners):
    """Whether scores and graded notebooks are those of `tinyllm grade`."""
    ours, theirs = course.standings(LAB), copied.standings(LAB)
    assert theirs == {name: ours[name] for name in learners}
    for learner in learners:
        relative = f"autograded/{learner}/{LAB.name}/{LAB.name}.ipynb"
        one, other = (nbformat.read(c.root / relative, 4).cells for c in (course, copied))
        assert [(c.source, c.get("outputs")) for c in one] == [
            (c.source, c.get("outputs")) for c in other
        ]


def test_nbgrader_autograde_gives_the_very_same_scores(graded_class, mistaken, tmp_path):
    course, name = graded_class[0], mistaken[0]
    chosen = {"blank", "metadata-stripped", "not-a-notebook", name}
    copied = copy_of(course, tmp_path, chosen)
    nbgrader(copied.root, "autograde", LAB.name)
    same_as_ours(copied, course, chosen)
    assert len(copied.feedback(LAB)) == len(chosen) and not copied.remarks
    # gives the same pages
    assert copied.api().generate_feedback(LAB.name, force=True)["success"]
    pages = [page_of(each, name).read_text() for each in (course, copied)]
    ours, theirs = (re.sub(r'<meta name="made-of".*\n', "", page) for page in pages)
    assert ours == theirs


def test_the_formgrader_button_gives_the_same_score_and_questions_go_to_a_person(
    graded_class, tmp_path
):
    """Learner code never runs in the judge's process: a cell that tries to write a file leaves
    none."""
    course, names = graded_class[0], ("perfect", "pasted-twice")
    copied, witness = copy_of(course, tmp_path, names), tmp_path / "I-ran-here"
    code = f"\n\ntry:\n    open({str(witness)!r}, 'w')\nexcept OSError:\n    leaked = False\n"
    edited(copied, "perfect", "ex-1-1", lambda source: source + code)
    edited(copied, "perfect", "written-1-a", lambda _: "[3, 3, 3, 3]")
    for name in ("written-1-b", "written-1-c"):
        edited(copied, "perfect", name, lambda _: "YOUR ANSWER HERE")
    for name in names:
        outcome = copied.api().autograde(LAB.name, name)
        assert outcome["success"], outcome["log"]
    assert not witness.exists()
    standing = copied.standings(LAB)["perfect"]
    assert standing.automatic == ALL
    assert [key for key, grade in standing.questions.items() if grade.waiting] == ["1.a"]
    by_hand(copied, LAB.questions[0], 2, "perfect")
    assert copied.standings(LAB)["perfect"].total == ALL + 2
    waiting = course.standings(LAB)["perfect"].questions.values()
    assert all(grade.waiting for grade in waiting)


def test_no_hidden_check_and_no_answer_travels(graded_class, mistaken):
    course, graded, _ = graded_class
    name, sentence = mistaken
    ours = nbformat.read(ROOT / "notebooks" / f"{LAB.name}.ipynb", as_version=4).cells
    theirs = course.released(LAB).cells  # the release equals the committed notebook
    assert [(c.id, c.source) for c in ours] == [(c.id, c.source) for c in theirs]
    hidden = (ROOT / "tests" / "hidden" / f"test_{LAB.module}.py").read_text()
    names = set(re.findall(r"def (test_\w+)", hidden))
    for folder in ("release", "feedback", "autograded"):
        for path in filter(Path.is_file, (course.root / folder).rglob("*")):
            text = path.read_text(errors="replace")
            assert not [name for name in names if name in text], path
            assert "BEGIN SOLUTION" not in text, path
    for path in (course.root / "source").rglob("*"):
        assert path.is_dir() or path.suffix == ".ipynb", f"{path} would travel to learners"
    page = html.unescape(page_of(course, name).read_text())
    assert sentence in page
    assert all(text in page for verdict in graded[name].exercises for _, text in verdict.rows)
    assert not re.search(r"first at \[[\d, ]*\]: \S+ instead of", page)


def test_a_report_does_not_wait_for_torch(graded_class, tmp_path):
    """It updates the pages and judges nothing."""
    folder = shutil.copytree(graded_class[0].root, tmp_path / "class")
    (folder / "class.html").unlink()
    script = (
        "import sys\nfrom labkit.cli import app\n"
        "app(['report', '--course', sys.argv[1]], standalone_mode=False)\n"
        "print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", script, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False", done.stdout + done.stderr
    assert (folder / "class.html").exists()
