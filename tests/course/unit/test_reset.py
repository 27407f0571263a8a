"""Resetting exercises, and restoring them from the backup."""

import shutil

import nbformat
import pytest
from typer.testing import CliRunner

import tinyllm
from labkit.author.reference import reference_block
from labkit.cli import app
from labkit.course import cells
from labkit.course.paths import ROOT
from labkit.course.syllabus import LABS
from labkit.learner import workspace
from labkit.learner.project import notebook_file

LAB = LABS[0]
ANSWERS = {e.id: cells.plain(reference_block(LAB, e)).strip() for e in LAB.exercises[:2]}
FILES = ("tinyllm/rmsnorm.py", f"notebooks/{LAB.name}.ipynb")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A learner's folder (with a space in its name) in which 1.1 and 1.2 are answered."""
    folder = tmp_path / "my course"
    shutil.copytree(ROOT / "tinyllm", folder / "tinyllm")
    monkeypatch.setattr(tinyllm, "__file__", str(folder / "tinyllm" / "__init__.py"))
    notebook = nbformat.read(ROOT / FILES[1], as_version=4)
    for exercise in LAB.exercises[:2]:
        workspace.save(LAB, exercise, ANSWERS[exercise.id])
        notebook_file.put(notebook, LAB, exercise, ANSWERS[exercise.id])
    (folder / "notebooks").mkdir()
    nbformat.write(notebook, folder / FILES[1])
    return folder


def said(*arguments):
    result = CliRunner().invoke(app, ["reset", *arguments])
    return result.exit_code, result.output


def written(project):
    """The exercises with an answer, in the module and in the notebook"""
    module = (project / FILES[0]).read_text()
    here = notebook_file.answers(notebook_file.read(project / FILES[1]), LAB)
    filled = [e.id for e in LAB.exercises
              if not workspace.is_empty(e, cells.block(module, e.id))]  # fmt: skip
    return filled, list(here)


def contents(project):
    return [(project / name).read_bytes() for name in FILES]


def test_emptied_and_brought_back_from_the_backup(project):
    before = contents(project)
    for name, left in {"1.1": ["1.2"], "RMSNorm": ["1.1"], "rmsnorm": [], "01": []}.items():
        code, text = said(name, "--yes")
        assert code == 0 and written(project) == (left, left), name
        backup = next((project / "backups").iterdir())
        assert f"the old version is in {backup}" in text.replace("\n", "")
        shutil.copytree(backup, project, dirs_exist_ok=True)
        shutil.rmtree(backup)
        assert contents(project) == before, name


def test_a_lab_is_again_as_it_was_released(project):
    (project / FILES[0]).write_text("import ruins\n" + (project / FILES[0]).read_text())
    said("rmsnorm", "--yes")
    assert contents(project)[0] == (ROOT / FILES[0]).read_bytes()
    assert notebook_file.read(project / FILES[1]) == nbformat.read(ROOT / FILES[1], 4)
    assert "nothing to do" in said("rmsnorm")[1] and len(list(project.glob("backups/*"))) == 1
    (project / FILES[0]).unlink()
    said("rmsnorm", "--yes")
    assert contents(project)[0] == (ROOT / FILES[0]).read_bytes()


WRONG = {  # arguments: (number of the file, text to remove), words of the error
    ("1.1",): (None, "add `--yes`"),
    ("9.9", "--yes"): (None, "there is no"),
    ("1.1", "--yes"): ((0, "# %% exercise 1.1: layer_norm\n"), "has lost the line"),
    ("rmsnorm", "--yes"): ((1, "{"), "is not a notebook"),
}


def test_where_something_is_wrong_nothing_is_changed(project):
    for arguments, (spoil, words) in WRONG.items():
        if spoil:
            path = project / FILES[spoil[0]]
            path.write_text(path.read_text().replace(spoil[1], "", 1))
        before = contents(project)
        code, text = said(*arguments)
        assert code == 2 and words in " ".join(text.split()), arguments
        assert contents(project) == before and not (project / "backups").exists()


def test_a_folder_that_cannot_be_written_is_one_sentence(project):
    (project / "backups").write_text("in the way")
    before = contents(project)
    code, text = said("rmsnorm", "--yes")
    assert code == 2 and contents(project) == before
    assert len(text.splitlines()) == 1 and "backups" in text and "Errno" not in text
