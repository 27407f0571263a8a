"""The file to hand in: it contains the answers that pass, and everything that may cost points
is reported."""

import shutil

import nbformat
import pytest
from nbformat.v4 import new_code_cell
from typer.testing import CliRunner

import tinyllm
from labkit.author.reference import reference_block
from labkit.cli import app
from labkit.course import cells
from labkit.course.paths import ROOT
from labkit.course.syllabus import LABS, find_lab
from labkit.grading.judge.intake import rebuild
from labkit.learner import workspace
from labkit.learner.project.notebook_file import NotebookError
from labkit.learner.project.submit import prepare

LAB = LABS[0]
FIRST, SECOND, *_ = LAB.exercises
NOTEBOOK = ROOT / "notebooks" / f"{LAB.name}.ipynb"
RIGHT = cells.plain(reference_block(LAB, FIRST)).strip()
STUB = cells.stub(reference_block(LAB, FIRST), FIRST).strip()
WRONG = RIGHT.replace("+ eps", "+ 2 * eps")
OTHER = RIGHT.replace("wide", "broad")
TYPO = "# %% exercise 1.1\ndef f(:"
BARE = RIGHT.split("\n", 1)[1]
LIFTED = RIGHT.replace("\n", "\nfrom __future__ import annotations\n# my own words\n", 1)
NEEDY = RIGHT.replace("wide = x.float()", "wide = widened(x)")
HELPER = "def widened(x):\n    return x.float()\n\n\n"
PICTURE = {"a.png": {"image/png": "iVBORw0KGgo="}}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The module of the first lab in a temporary package"""
    shutil.copytree(ROOT / "tinyllm", tmp_path / "tinyllm")
    monkeypatch.setattr(tinyllm, "__file__", str(tmp_path / "tinyllm" / "__init__.py"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "tinyllm" / "rmsnorm.py"


@pytest.fixture
def mine(package, tmp_path):
    """Writes mine.ipynb with these cells instead of the first exercise's."""

    def write(*sources, cell_id=FIRST.answer_cell):
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        place = [cell.id for cell in notebook.cells].index(FIRST.answer_cell)
        new = [new_code_cell(source, id=cell_id + "-" * i) for i, source in enumerate(sources)]
        notebook.cells[place : place + 1] = new
        nbformat.write(notebook, tmp_path / "mine.ipynb")
        return tmp_path / "mine.ipynb"

    return write


def graded(path, released):
    """The answer to the first exercise that grading finds in a file"""
    answer = rebuild(path.read_bytes(), released[LAB.name], LAB).answers[FIRST.id]
    return answer and answer.replace(cells.directive(FIRST) + cells.ADDED, "").strip()


# cell, module; the packed answer, its side; whether it passes, whether the sides differ
CASES = {
    "an answer": (RIGHT, STUB, RIGHT, "notebook", True, False),
    "its future import lifted": (LIFTED, LIFTED, LIFTED, "notebook", True, False),
    "a stub for an answer": (STUB, RIGHT, RIGHT, "package", True, False),
    "nothing for an answer": ("", RIGHT, RIGHT, "package", True, False),
    "two right ones": (OTHER, RIGHT, OTHER, "notebook", True, True),
    "a wrong cell, corrected by hand": (WRONG, RIGHT, RIGHT, "package", True, True),
    "a wrong module": (RIGHT, WRONG, RIGHT, "notebook", True, True),
    "a broken cell": (TYPO, RIGHT, RIGHT, "package", True, True),
    "a wrong one": (WRONG, WRONG, WRONG, "notebook", False, False),
    "both wrong": (TYPO, WRONG, TYPO, "notebook", False, True),
    "nothing anywhere": (STUB, STUB, "", None, False, False),
    "an answer that nothing marks": (STUB, BARE, "", None, False, False),
    "a cell known by its id alone": (BARE, STUB, BARE, "notebook", True, False),
    "a helper elsewhere in the module": (STUB, NEEDY, NEEDY, "package", False, False),
}


def test_a_cell_is_handed_in(package, mine, released):
    empty = package.read_text()
    for case, (cell, saved, handed_in, side, passes, differs) in CASES.items():
        package.write_text(empty)
        if saved is LIFTED:
            workspace.save(LAB, FIRST, saved)
            text = package.read_text()
            assert text.index("from __future__") < text.index("# %%")
        else:
            head = HELPER if saved is NEEDY else ""
            package.write_text(empty.replace(STUB, head + saved))
        handed = prepare(LAB, mine(cell))
        first = handed.packed[0]
        found = first.side and first.side.value, first.report.passed, first.differs
        assert found == (side, passes, differs), case
        assert first.at_stake == (0 if passes else FIRST.points), case
        assert graded(handed.path, released) == handed_in, case


def test_a_lost_cell_comes_back_and_merged_and_broken_cells_harm_no_other(
    package, mine, released
):
    second = cells.plain(reference_block(LAB, SECOND)).strip()
    workspace.save(LAB, SECOND, second)
    packed = prepare(LAB, mine(TYPO)).packed
    assert [one.report.passed for one in packed[:2]] == [False, True]
    named = RIGHT.replace("exercise 1.1", "exercise 1.2")
    for cell in (named, OTHER + "\n\n"):  # its id and its definitions decide
        found = graded(prepare(LAB, mine(cell)).path, released)
        assert found == cell.replace("# %% exercise 1.2: layer_norm\n", "").strip()
    copies = mine(WRONG, RIGHT, STUB, cell_id="a")  # the last one that is not empty counts
    assert graded(prepare(LAB, copies).path, released) == RIGHT
    package.write_text(package.read_text().replace(STUB, RIGHT))
    handed = prepare(LAB, mine())
    names = [cell.source[:16] for cell in nbformat.read(handed.path, as_version=4).cells]
    assert names.index(RIGHT[:16]) + 1 == names.index('check("1.1")')
    assert graded(handed.path, released) == RIGHT
    handed = prepare(LAB, mine(f"{WRONG}\n\n\n{second}\n"))
    answers = rebuild(handed.path.read_bytes(), released[LAB.name], LAB).answers
    assert [answers[e.id].strip() for e in (FIRST, SECOND)] == [RIGHT, second]


def test_pictures_written_answers_and_metadata_survive(package, mine):
    path = mine(RIGHT)
    notebook = nbformat.read(path, as_version=4)
    written = next(c for c in notebook.cells if c.id == LAB.questions[1].answer_cell)
    written.source, written.attachments = "See ![](attachment:a.png)", PICTURE
    notebook.metadata["mine"] = {"deep": [1, "ü"]}
    path.write_bytes(b"\xef\xbb\xbf" + nbformat.writes(notebook).encode())
    handed = prepare(LAB, path)
    after = nbformat.read(handed.path, as_version=4)
    assert after == notebook
    assert handed.written == {"1.a": False, "1.b": True, "1.c": False}
    prepare(LAB, mine(STUB))
    assert "attachment:a.png" in handed.path.with_suffix(".ipynb~").read_text()


def test_what_is_no_notebook_is_refused_by_name(package, tmp_path):
    (tmp_path / "thesis.ipynb").write_text("years of work")
    (tmp_path / "list.ipynb").write_text('{"nbformat": 4, "nbformat_minor": 5}')
    for name in ("none", "thesis", "list"):
        words = "there is no file" if name == "none" else "not a notebook"
        with pytest.raises(NotebookError, match=words):
            prepare(LAB, tmp_path / f"{name}.ipynb")


def test_an_exercise_is_told_of_the_one_that_is_its_cause(package):
    lab = find_lab("swiglu")
    for exercise in lab.exercises[:2]:
        code = cells.plain(reference_block(lab, exercise))
        workspace.save(lab, exercise, code.replace("torch.sigmoid(", "torch.sigmoid(-"))
    path = ROOT / "notebooks" / f"{lab.name}.ipynb"
    first, second, *_ = prepare(lab, path).packed
    assert not first.report.passed and "exercise 4.1" not in first.reason
    assert second.reason.startswith("exercise 4.1, silu, which this one uses, does not pass")


def test_everything_that_may_cost_points_is_said(package, mine):
    result = CliRunner().invoke(app, ["submit", "rmsnorm", str(mine(WRONG))])
    text = " ".join(result.output.split())
    assert result.exit_code == 0
    for words in (
        f"│ 1.1 │ layer_norm │ notebook │ not yet │ {FIRST.points:g} of {FIRST.points:g}",
        "1.1 layer_norm does not pass: ",
        f"│ 1.2 │ RMSNorm │ │ empty │ {SECOND.points:g} of {SECOND.points:g}",
        "1.2 RMSNorm is empty", "written question 1.a is empty",
        f"0 of {len(LAB.exercises)} exercises pass, 0 of 3",
        "written questions are answered hand in submissions/01_rmsnorm.ipynb",
    ):  # fmt: skip
        assert words in text


def test_a_written_question_without_its_cell_is_not_called_empty(package, mine, tmp_path):
    notebook = nbformat.read(mine(RIGHT), as_version=4)
    for number, cell in enumerate(notebook.cells):  # like an editor that makes new ids
        cell.metadata.pop("nbgrader", None)
        cell.id = f"new-{number}"
    nbformat.write(notebook, tmp_path / "mine.ipynb")
    output = CliRunner().invoke(app, ["submit", LAB.module, "mine.ipynb"]).output
    said = " ".join(output.split())
    assert (
        "written question 1.a: its cell has lost its name, so that grading does not find it"
        in said
    )
    assert "1.a is empty" not in said


def test_a_folder_that_cannot_be_written_is_one_sentence(package, mine, tmp_path):
    (tmp_path / "submissions").write_text("in the way")
    done = CliRunner().invoke(app, ["submit", "rmsnorm", str(mine(RIGHT))])
    assert done.exit_code == 2 and "Errno" not in done.output
    assert len(done.output.splitlines()) == 1 and "submissions" in done.output
