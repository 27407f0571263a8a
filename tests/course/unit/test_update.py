"""A newer edition during a term: a learner's work stays however the edition is installed, and
the course's files are replaced."""

import json
import shutil
import subprocess
import sys
import zipfile

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output
from typer.testing import CliRunner

import tinyllm
from labkit.author import git
from labkit.author.reference import BuildError, reference_block
from labkit.cli import app
from labkit.course import cells
from labkit.course.paths import ROOT
from labkit.course.syllabus import LABS
from labkit.learner.project import merge, update

LAB = LABS[0]
FIRST, SECOND, THIRD, *_ = LAB.exercises
FILE = f"{LAB.name}.ipynb"
RIGHT = {e.id: cells.plain(reference_block(LAB, e)).strip() for e in LAB.exercises}
MINE = RIGHT["1.1"] + "\n# my own way"
NOTEBOOK, MODULE = f"notebooks/{FILE}", "tinyllm/rmsnorm.py"
HELPER = "\n\ndef my_helper(x):\n    return x\n"


def named(notebook):
    return {cell.id: cell for cell in notebook.cells}


def lesson(notebook):
    """Make a newer lesson: a text, code and a stub change, a cell is removed, one is new."""
    cells_of = named(notebook)
    cells_of["title"].source += "\nCorrected."
    cells_of["overflow"].source += "\n# of the newer edition"
    cells_of["tools"].source += "\n# of the newer edition"
    cells_of["ex-1-3"].source = cells_of["ex-1-3"].source.replace("alpha: float", "a: float")
    cells_of["ex-1-1"].source = cells_of["ex-1-1"].source.replace("eps", "epsilon")
    notebook.cells.remove(cells_of["hand-run"])
    notebook.cells.insert(3, new_markdown_cell("A new section.", id="new-section"))
    return notebook


def make_newer(folder):
    """Make an edition a newer one."""
    path, stubs = folder / "given" / FILE, folder / "tests" / "visible" / "stubs.json"
    nbformat.write(lesson(nbformat.read(path, as_version=4)), path)
    texts = json.loads(stubs.read_text())
    texts["rmsnorm"] = texts["rmsnorm"].replace("alpha: float", "a: float")
    texts["rmsnorm"] = texts["rmsnorm"].replace(
        "import torch\n", "import math\n\nimport torch\n", 1
    )
    stubs.write_text(json.dumps(texts))
    (folder / "labkit" / "news.py").write_text("")
    (folder / "solutions" / "hints" / "rope.md").unlink()
    return folder


def work(notebook):
    """Add a learner's work to a lesson."""
    cells_of = named(notebook)
    cells_of["ex-1-1"].source, cells_of["written-1-a"].source = MINE, "My words."
    cells_of["ex-1-1"].outputs = [new_output("stream", text="saved")]
    cells_of["overflow"].source += "\n# my experiment"
    cells_of["tools"].outputs = [new_output("stream", text="an old figure")]
    place = notebook.cells.index(cells_of["check-1-1"])
    notebook.cells.insert(place + 1, new_code_cell("print('a cell of my own')"))
    return notebook


@pytest.fixture
def learner(laid_out, tmp_path):
    """A learner's folder: 1.1 is answered in notebook and package, 1.2 only in the package."""
    folder = tmp_path / "mine"
    shutil.copytree(laid_out, folder)
    path = folder / NOTEBOOK
    nbformat.write(work(nbformat.read(path, as_version=4)), path)
    text = (folder / MODULE).read_text().replace("import torch\n", f"import torch{HELPER}", 1)
    for exercise, answer in ((FIRST, MINE), (SECOND, RIGHT["1.2"])):
        text = cells.with_block(text, exercise, answer)
    (folder / MODULE).write_text(text)
    (folder / "progress.json").write_text("{}")
    return folder


@pytest.fixture
def edition(built, tmp_path):
    """A newer edition."""
    return make_newer(shutil.copytree(built[0], tmp_path / "newer"))


def run(folder, *words):
    command = [sys.executable, "-m", "labkit", *map(str, words)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def assert_all_is_there(folder, before):
    """Check that the learner's work is in the new files, and the old files in the backup."""
    notebook, module = (
        nbformat.read(folder / NOTEBOOK, as_version=4),
        (folder / MODULE).read_text(),
    )
    nbformat.validate(notebook)
    found = named(notebook)
    assert found["ex-1-1"].source == MINE and found["ex-1-1"].outputs
    assert found["written-1-a"].source == "My words."
    assert found["overflow"].source.endswith("# my experiment")
    assert "of the newer edition" in found["tools"].source and not found["tools"].outputs
    assert "Corrected." in found["title"].source and "new-section" in found
    assert "hand-run" not in found and "a: float" in found["ex-1-3"].source
    places = [cell.source for cell in notebook.cells]
    assert places.index("print('a cell of my own')") == places.index('check("1.1")') + 1
    assert cells.block(module, "1.1") == MINE and cells.block(module, "1.2") == RIGHT["1.2"]
    assert "a: float" in cells.block(module, "1.3") and "import math" in module
    assert module.count("def my_helper") == 1 and module.count("__future__") <= 1
    compile(module, MODULE, "exec")
    assert RIGHT["1.2"] == found["ex-1-2"].source.strip()  # the cell was blank
    kept = {path.name: path.read_bytes() for path in (folder / "backups").rglob("*.*")
            if path.is_file()}  # fmt: skip
    assert kept == before


def before(folder):
    return {
        name.rpartition("/")[2]: (folder / name).read_bytes() for name in (NOTEBOOK, MODULE)
    }


def test_a_newer_zip_or_folder_is_taken_over(learner, edition, tmp_path):
    packed = tmp_path / "newer.zip"
    shutil.make_archive(str(tmp_path / "newer"), "zip", root_dir=tmp_path, base_dir="newer")
    mine = before(learner)
    code, text = run(learner, "update", packed)
    assert code == 0, text
    for words in (f"brought up to date: {MODULE}", f"brought up to date: {NOTEBOOK}",
                  "both you and the course changed ex-1-1, overflow; yours stays",
                  "blank cells filled from tinyllm/rmsnorm.py: 1.2"):  # fmt: skip
        assert words in text
    assert_all_is_there(learner, mine)
    assert (learner / "labkit" / "news.py").exists()
    assert not (learner / "solutions" / "hints" / "rope.md").exists()
    assert (learner / "progress.json").read_text() == "{}"
    assert run(learner, "update") == (0, "all is up to date\n")
    assert run(learner, "update", edition)[1].endswith("all is up to date\n")


def test_unpacking_over_the_old_folder_loses_nothing(learner, edition):
    mine = before(learner)
    shutil.copytree(edition, learner, dirs_exist_ok=True)
    assert before(learner) == mine
    code, text = run(learner, "update")
    assert code == 0, text
    assert_all_is_there(learner, mine)


def test_a_deleted_notebook_comes_back_with_the_answers(learner):
    (learner / NOTEBOOK).unlink()
    code, text = run(learner, "update")
    assert code == 0 and f"new: {NOTEBOOK}" in text
    found = named(nbformat.read(learner / NOTEBOOK, as_version=4))
    assert [found[f"ex-1-{n}"].source.strip() for n in (1, 2)] == [MINE, RIGHT["1.2"]]
    (learner / NOTEBOOK).write_text("<<<<<<< ours")
    code, text = run(learner, "update")
    assert code == 0 and "left as it is" in text and "is not a notebook" in text
    assert (learner / NOTEBOOK).read_text() == "<<<<<<< ours"


def test_what_is_no_edition_is_refused_and_a_clone_is_gits(learner, tmp_path):
    (tmp_path / "photos.zip").write_bytes(b"PK")
    with zipfile.ZipFile(tmp_path / "thesis.zip", "w") as archive:
        archive.writestr("thesis/given/notes.txt", "x")
    files = {path: path.read_bytes() for path in learner.rglob("*.py")}
    for source, words in {
        "photos.zip": "is not a readable zip", "thesis.zip": "is not an edition of the course",
        "nowhere": "is not an edition of the course",
        learner: "the folder of this course itself",
    }.items():  # fmt: skip
        code, text = run(learner, "update", tmp_path / source)
        assert code == 2 and words in " ".join(text.split()), text
    assert files == {path: path.read_bytes() for path in learner.rglob("*.py")}
    done = CliRunner().invoke(app, ["update"])
    assert done.exit_code == 2 and "`git pull`" in done.output


def test_a_project_is_behind_until_it_is_brought_up_to_date(tmp_path, monkeypatch, laid_out):
    monkeypatch.setattr(update, "GIVEN", laid_out / "given")
    monkeypatch.setattr(tinyllm, "__file__", str(tmp_path / "tinyllm" / "__init__.py"))
    assert update.is_behind(LAB)
    lines = update.update_project()
    assert f"new: {NOTEBOOK}" in lines and not update.is_behind(LAB)
    assert update.update_project() == []
    record = tmp_path / ".given" / NOTEBOOK
    record.write_text("an older edition")
    assert update.is_behind(LAB) and not update.is_behind(LABS[1])
    monkeypatch.setenv("JUPYTERHUB_USER", "ann")
    shutil.rmtree(tmp_path / "notebooks")  # there nbgrader brings the notebooks
    assert not update.is_behind(LAB) and update.update_project() == []
    assert not (tmp_path / "notebooks").exists()


# Merging


def lesson_of(change=lambda notebook: notebook):
    return change(nbformat.read(ROOT / NOTEBOOK, as_version=4))


def without_ids(notebook):
    for cell in notebook.cells:
        del cell["id"]
        cell.metadata.clear()
    notebook.nbformat_minor = 4
    return notebook


def test_cells_without_ids_are_known_by_what_they_hold():
    merged, both = merge.merge_notebook(
        LAB, lesson_of(), without_ids(lesson_of(work)), lesson_of(lesson)
    )
    nbformat.validate(merged)
    texts = [cell.source for cell in merged.cells]
    assert MINE in texts and "My words." in texts and "print('a cell of my own')" in texts
    assert texts.count('check("1.1")') == 1 and "A new section." in texts
    assert not [
        text for text in texts if text.startswith("# %% exercise 1.2") and "raise" not in text
    ]
    assert both == ["ex-1-1"]


def test_copies_moved_and_deleted_cells():
    def odd(notebook):
        found = named(notebook)
        copy = new_code_cell(MINE, id="copy")
        notebook.cells.remove(found["check-1-2"])
        notebook.cells += [copy, found["hand-run"].copy()]
        found["hand-run"].source += "\n# mine"
        return notebook

    merged, _ = merge.merge_notebook(LAB, lesson_of(), lesson_of(odd), lesson_of(lesson))
    texts = [cell.source for cell in merged.cells]
    assert texts.count(MINE) == 1 and 'check("1.2")' in texts
    assert sum(text.endswith("# mine") for text in texts) == 1  # the learner's text stays


def test_without_a_record_all_that_differs_is_the_learners():
    now = lesson_of(lesson)
    merged, _ = merge.merge_notebook(LAB, now, lesson_of(work), now)
    found = named(merged)
    assert found["ex-1-1"].source == MINE and "Corrected" not in found["title"].source
    assert "hand-run" in found and "new-section" in found


def test_a_module_keeps_answers_and_additions_and_no_old_stub():
    now = (ROOT / MODULE).read_text()
    before = now.replace("alpha: float", "a: float").replace(
        "import torch", "import os\nimport torch", 1
    )
    mine = cells.with_block(
        before.replace("import os", f"import os\nimport re{HELPER}"), SECOND, "x = 1"
    )
    merged = merge.merge_module(LAB, before, mine, now)
    assert cells.block(merged, "1.2").endswith("x = 1") and "import os" not in merged
    assert cells.block(merged, "1.3") == cells.block(now, "1.3")
    assert "import re" in merged and "def my_helper" in merged
    assert merge.merge_module(LAB, before, before, now) == now


# The repository of an edition


@pytest.fixture
def repository(tmp_path):
    """Commits {name: text} as the next edition; returns the folder of the repository."""
    there = tmp_path / "there"

    def commit(**texts):
        edition = tmp_path / "edition"
        shutil.rmtree(edition, ignore_errors=True)
        edition.mkdir()
        for name, text in texts.items():
            (edition / name).write_text(text)
        if not there.exists():
            shutil.copytree(edition, there)
            git.commit_edition(edition, there, is_new=True)
        else:
            git.commit_edition(edition, there, is_new=False)
        return there

    return commit


def log(folder):
    return git._git(folder, "log", "--format=%s", "--no-merges").splitlines()


def commit_by_hand(folder, **texts):
    for name, text in texts.items():
        (folder / name).write_text(text)
    git._git(folder, "commit", "-qam", "by hand")


LONG = "\n".join(map(str, range(30)))


def test_a_newer_edition_is_a_commit_that_learners_can_pull(repository, tmp_path):
    there = repository(a="1", gone="x")
    git._git(tmp_path, "clone", "-q", str(there), "clone")
    (tmp_path / "clone" / "mine").write_text("an answer")
    assert git.is_edition(there) and not git.is_edition(tmp_path)
    repository(a="2")
    assert (there / "a").read_text() == "2" and not (there / "gone").exists()
    assert len(log(there)) == 2 and repository(a="2") and len(log(there)) == 2
    git._git(tmp_path / "clone", "pull", "-q")
    assert {path.name: path.read_text() for path in (tmp_path / "clone").glob("[!.]*")} == {
        "a": "2", "mine": "an answer"
    }  # fmt: skip


def test_what_a_teacher_committed_stays_or_is_a_question(repository):
    there = repository(a=LONG, readme=LONG)
    commit_by_hand(there, readme=f"{LONG}\nOffice hours")
    repository(a="2", readme=f"News\n{LONG}")
    assert (there / "readme").read_text() == f"News\n{LONG}\nOffice hours"
    commit_by_hand(there, a="by hand")
    with pytest.raises(BuildError, match="`git merge edition` in it, settle"):
        repository(a="3", readme=LONG)
    assert (there / "a").read_text() == "by hand" and not git._git(there, "status", "-s")
    (there / "a").write_text("not committed")
    with pytest.raises(BuildError, match="changed there by hand"):
        repository(a="4", readme=LONG)
    assert (there / "a").read_text() == "not committed"
