"""What is handed in: the learner's notebook, its gaps filled from the package, and notes."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell

import tinyllm
from labkit.author.reference import reference_block
from labkit.core import cells
from labkit.core.paths import ROOT
from labkit.core.syllabus import LABS
from labkit.learner.submit import SubmitError, prepare

LAB = LABS[0]
FIRST = LAB.exercises[0]
ANSWER = cells.plain(reference_block(LAB, FIRST))
OTHER = ANSWER.replace("eps", "epsilon")
STUB = cells.stub(reference_block(LAB, FIRST), FIRST)
BARE = ANSWER.split("\n", 1)[1]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An untouched module of the first lab, in place of the repository's."""
    monkeypatch.setattr(tinyllm, "__file__", str(tmp_path / "tinyllm" / "__init__.py"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tinyllm").mkdir()
    module = tmp_path / "tinyllm" / "rmsnorm.py"
    module.write_text((ROOT / "tinyllm" / "rmsnorm.py").read_text())
    return module


@pytest.fixture
def hand_in(package, tmp_path):
    """Hands in the notebook with these cells in the place of the first exercise's; gives the
    source of the last one afterwards, and what was said of the exercise."""

    def submit(*sources, cell_id=FIRST.answer_cell):
        notebook = nbformat.read(ROOT / "notebooks" / f"{LAB.name}.ipynb", as_version=4)
        place = [cell.id for cell in notebook.cells].index(FIRST.answer_cell)
        new = [new_code_cell(source, id=cell_id + "-" * i) for i, source in enumerate(sources)]
        notebook.cells[place : place + 1] = new
        nbformat.write(notebook, tmp_path / "mine.ipynb")
        written, notes = prepare(LAB, tmp_path / "mine.ipynb")
        cell = nbformat.read(written, as_version=4).cells[place + max(len(sources) - 1, 0)]
        return cell.source, [note for note in notes if note.startswith("1.1 ")]

    return submit


@pytest.mark.parametrize(
    ("cell", "saved", "handed_in", "words"),
    [
        (ANSWER, STUB, ANSWER, None),
        (ANSWER, ANSWER, ANSWER, None),
        (STUB, ANSWER, ANSWER.strip(), "taken from the package"),
        ("", ANSWER, ANSWER.strip(), "taken from the package"),
        (OTHER, ANSWER, OTHER, "the package differs; the notebook counts"),
        (STUB, STUB, STUB, "still empty"),
        (STUB, BARE, STUB, 'the line "# %% exercise 1.1: layer_norm" is missing'),
        ("# %% exercise 1.1\ndef f(:", ANSWER, "# %% exercise 1.1\ndef f(:", "a syntax error"),
        (BARE, STUB, BARE, None),
    ],
    ids=[
        "an answer", "an answer that was run", "a stub for an answer", "nothing for an answer",
        "another answer", "nothing anywhere", "an answer that nothing marks", "a broken cell",
        "a cell known by its id alone",
    ],
)  # fmt: skip
def test_a_cell_is_handed_in(package, hand_in, cell, saved, handed_in, words):
    package.write_text(package.read_text().replace(STUB.strip(), saved.strip()))
    source, notes = hand_in(cell)
    assert source.strip() == handed_in.strip()
    assert len(notes) == (words is not None) and all(words in note for note in notes)


def test_a_lost_cell_is_named_and_the_last_copy_of_one_counts(hand_in):
    assert "your notebook has lost this cell" in hand_in()[1][0]
    named = ANSWER.replace("exercise 1.1", "exercise 1.2")
    assert "has lost this cell" in hand_in(named, cell_id="another")[1][0]
    assert hand_in(named) == (named, [])  # its id and what it defines say what it is
    assert hand_in(OTHER, ANSWER, cell_id="copied") == (ANSWER, [])


def test_unanswered_questions_are_named_and_the_last_file_is_kept(package, hand_in, tmp_path):
    hand_in(OTHER)
    hand_in(ANSWER)
    first = (tmp_path / "submissions" / f"{LAB.name}.ipynb~").read_text()
    assert "epsilon" in first
    _, notes = prepare(LAB, tmp_path / "mine.ipynb")
    assert [f"{question.id}: no answer yet" for question in LAB.questions] == notes[-3:]


def test_what_is_no_notebook_is_refused_by_name(package, tmp_path):
    (tmp_path / "thesis.ipynb").write_text("years of work")
    for name, words in (("none.ipynb", "there is no file"), ("thesis.ipynb", "not a notebook")):
        with pytest.raises(SubmitError, match=words):
            prepare(LAB, tmp_path / name)
