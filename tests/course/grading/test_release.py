"""A teacher's edits in course/source stay, and release/ is never lost."""

import json
import shutil
from hashlib import sha256

import nbformat
import pytest
from typer.testing import CliRunner

from labkit.author.edition import write_source
from labkit.cli import app
from labkit.course.syllabus import LABS
from labkit.grading.nbgrader.gradebook.connection import CourseError
from tests.course.grading.two_learners import grade

LAB = LABS[0]
SOURCE = f"source/{LAB.name}/{LAB.name}.ipynb"
EDITED = (SOURCE, "nbgrader_config.py")


def build(root, *options):
    done = CliRunner().invoke(app, ["build", "--course", str(root), *options])
    return done.exit_code, " ".join(done.output.split())


def edit(root):
    """Add a line to the files that a teacher may edit, as GRADING.md says."""
    for name in EDITED:
        with (root / name).open("a") as file:
            file.write("\n# mine\n")
    return {name: (root / name).read_bytes() for name in EDITED}


def contents(root):
    return {name: (root / name).read_bytes() for name in EDITED}


def change(course, edit_cells):
    """Edit the cells of the instructor's notebook, then release it again."""
    path = course.root / SOURCE
    notebook = nbformat.read(path, as_version=4)
    edit_cells(notebook.cells)
    nbformat.write(notebook, path)
    done = course.api().generate_assignment(LAB.name, force=True)
    return done["success"], done.get("log", "")


def test_edited_files_of_a_course_are_left_and_listed(tmp_path):
    write_source(tmp_path)
    given = contents(tmp_path)
    assert build(tmp_path)[0] == 0  # nothing edited: nothing to list
    mine = edit(tmp_path)
    code, text = build(tmp_path)
    assert code == 1 and contents(tmp_path) == mine
    assert all(f"left as it is: {tmp_path / name}" in text for name in EDITED)
    code, text = build(tmp_path, "--force")
    assert code == 0 and contents(tmp_path) == given
    (backup,) = (tmp_path / "backups").iterdir()
    assert contents(backup) == mine and str(backup.parent) in text


def test_a_new_version_replaces_what_nobody_edited(tmp_path):
    write_source(tmp_path)
    given, record = contents(tmp_path), tmp_path / ".written.json"
    (tmp_path / SOURCE).write_text("an older version")
    known = json.loads(record.read_text()) | {SOURCE: sha256(b"an older version").hexdigest()}
    record.write_text("half a line")  # without the record, the file counts as a person's
    assert write_source(tmp_path)[1] == [(tmp_path / SOURCE).resolve()]
    record.write_text(json.dumps(known))
    assert write_source(tmp_path)[1] == [] and contents(tmp_path) == given


def test_an_edited_lesson_is_released_anew(released_course):
    def edit_lesson(cells):
        next(each for each in cells if each.id == "summary").source = "## My summary"

    success, log = change(released_course, edit_lesson)
    assert success, log
    assert "My summary" in released_course.released_file(LAB).read_text()


def own_question(cells):
    cell = nbformat.v4.new_markdown_cell("YOUR ANSWER HERE")
    marks = {"schema_version": 3, "grade_id": "my-question", "points": 2, "locked": False}
    marks |= {"grade": True, "solution": True, "task": False, "cell_type": "markdown"}
    cell.metadata["nbgrader"] = marks
    cells.append(cell)


def without_check(cells):
    cells[:] = [cell for cell in cells if cell.id != "check-1-2"]


def copied(cells):
    cells.append(next(cell for cell in cells if cell.id == "check-1-2").copy())


@pytest.mark.parametrize(
    "edit_cells, words",
    [
        (own_question, "my-question: a graded cell of your own"),
        (without_check, "check-1-2 is not there: leave the cells, and let them count nothing"),
        (copied, "check-1-2 is there twice"),
    ],
)
def test_other_graded_cells_are_refused_before_anything_is_touched(
    released_course, edit_cells, words
):
    before = released_course.released_file(LAB).read_bytes()
    success, log = change(released_course, edit_cells)
    assert not success and words in log and "nothing was changed" in log
    assert "Traceback" not in log and "Removing" not in log
    assert released_course.released_file(LAB).read_bytes() == before


def locked_cell(cells):
    cell = nbformat.v4.new_code_cell("1")
    marks = {"schema_version": 3, "grade_id": "demo", "grade": False, "solution": False}
    cell.metadata["nbgrader"] = {**marks, "locked": True, "task": False, "cell_type": "code"}
    cells.append(cell)


def test_after_hand_ins_no_cell_comes_or_goes(handed_in):
    before = handed_in.released_file(LAB).read_bytes()
    assert grade(handed_in)[0] == 0
    success, log = change(handed_in, locked_cell)
    assert not success and "demo: learners have handed in this lab" in log
    assert "Traceback" not in log and handed_in.released_file(LAB).read_bytes() == before
    success, log = change(handed_in, lambda cells: cells.pop())  # the extra cell is gone again
    assert success, log


def test_a_step_that_fails_leaves_what_was_released(released_course, monkeypatch):
    before = released_course.released_file(LAB).read_bytes()

    def fail(*_):
        raise RuntimeError("the disk is full")

    monkeypatch.setattr("labkit.grading.nbgrader.hooks.InsertStubs.preprocess", fail)
    success, log = change(released_course, lambda cells: None)
    assert not success and "is as it was before" in log
    assert released_course.released_file(LAB).read_bytes() == before
    assert not list(released_course.root.glob(".release-*"))
    shutil.rmtree(released_course.root / "release")
    with pytest.raises(CourseError, match="the disk is full"):
        released_course.release(LAB)
