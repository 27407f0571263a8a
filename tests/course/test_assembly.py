"""A lab is checked alone; all of the learner's parts together, and the wrong one is named."""

import shutil
import sys
from pathlib import Path

import pytest

import tinyllm
from labkit import cells, workspace
from labkit.build import ROOT
from labkit.checking import check_exercise
from labkit.syllabus import find_exercise


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of our own, finished, in place of the repository's."""
    folder = tmp_path / "tinyllm"
    shutil.copytree(ROOT / "tinyllm", folder)
    for path in folder.glob("*.py"):
        if path.stem != "__init__":
            path.write_text(cells.plain((ROOT / "solutions" / path.name).read_text()))
    monkeypatch.setattr(tinyllm, "__file__", str(folder / "__init__.py"))
    monkeypatch.setattr(tinyllm, "__path__", [str(folder)])
    return folder


def change(package, module, before, after):
    path = package / f"{module}.py"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def checked(exercise_id):
    return str(check_exercise(*find_exercise(exercise_id), 'hint("1.1")')[0])


NOTE = "exercise 1.2, RMSNorm, which this one uses, does not pass its own check"


def test_a_wrong_norm_does_not_fail_attention(package):
    change(package, "rmsnorm", "square().mean(", "square().sum(")
    change(package, "rope", "import torch\n", "import torch\nimport nowhere\n")
    assert "not yet" in checked("1.2")
    report = checked("3.4")
    assert "passed" in report and "which this one uses" not in report


def test_without_the_reference_the_part_to_mend_first_is_named(package, monkeypatch):
    monkeypatch.setattr(workspace, "SOLUTIONS", Path("nowhere"))
    assert "passed" in checked("3.4")
    change(package, "rmsnorm", "square().mean(", "square().sum(")
    assert NOTE in " ".join(checked("3.4").split())
    assert "which this one uses" not in checked("1.2")


def test_a_wrong_part_of_the_same_lab_is_named(package):
    change(package, "rope", "(-second, first)", "(second, first)")
    report = " ".join(checked("2.3").split())
    assert "not yet" in report and "exercise 2.2, rotate_half, which this one uses" in report


def test_a_check_leaves_the_package_in_memory_alone(package):
    import tinyllm.rmsnorm as mine

    before = {name: item for name, item in sys.modules.items() if name.startswith("tinyllm")}
    change(package, "gqa", "from .rmsnorm", "from tinyllm.rmsnorm")
    assert "passed" in checked("3.4")
    assert before == {n: item for n, item in sys.modules.items() if n.startswith("tinyllm")}
    assert sys.modules["tinyllm.rmsnorm"] is mine and tinyllm.rmsnorm is mine
    assert not any(type(finder).__name__ == "Sources" for finder in sys.meta_path)


def test_the_line_of_an_error_is_still_counted_in_its_cell(package):
    change(package, "gqa", "return hidden_states.repeat_interleave(", "return hidden.repeat(")
    block = cells.block((package / "gqa.py").read_text(), "3.3").split("\n")
    line = next(i for i, text in enumerate(block, 1) if "hidden.repeat(" in text)
    report = " ".join(checked("3.3").split())
    assert f"name 'hidden' is not defined (line {line} of your cell)" in report
