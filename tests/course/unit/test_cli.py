"""The command line: right answers, wrong names, and where files land."""

import re
import shutil
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import tinyllm
from labkit.author.reference import reference_block
from labkit.cli import app
from labkit.core import cells
from labkit.core.paths import ROOT
from labkit.core.syllabus import find_exercise
from labkit.learner import workspace

runner = CliRunner()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of our own in place of the repository's."""
    shutil.copytree(ROOT / "tinyllm", tmp_path / "tinyllm")
    monkeypatch.setattr(tinyllm, "__file__", str(tmp_path / "tinyllm" / "__init__.py"))
    monkeypatch.setattr(tinyllm, "__path__", [str(tmp_path / "tinyllm")])
    monkeypatch.delitem(sys.modules, "tinyllm.rmsnorm", raising=False)
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "tinyllm"
    sys.modules.pop("tinyllm.rmsnorm", None)


def fill(*ids):
    for exercise_id in ids:
        lab, exercise = find_exercise(exercise_id)
        workspace.save(lab, exercise, cells.plain(reference_block(lab, exercise)))


def said(*arguments):
    result = runner.invoke(app, list(arguments))
    return result.exit_code, " ".join(result.output.split())


def test_check_says_not_started_then_passed(package):
    assert said("check", "1.2") == (1, said("check", "RMSNorm")[1])
    assert "not started" in said("check", "1.2")[1]
    fill("1.2")
    code, text = said("check", "1.2")
    assert (
        code == 0 and "passed" in text and "read on to exercise 1.3, residual (stretch)" in text
    )


def test_status_shows_every_exercise(package):
    fill("1.1")
    code, text = said("status")
    assert code == 0 and re.search(r"1\.1 layer_norm core 10 4 passed", text)
    assert "1.3 residual stretch 15 4 not started" in text


def test_status_marks_what_never_ends_and_goes_on(package, monkeypatch):
    monkeypatch.setattr("labkit.learner.room.CPU_SECONDS", 1)
    fill("1.1", "1.2")
    module = package / "rmsnorm.py"
    loop = "    print(x)\n    while True: pass\n    wide = x.float()"
    module.write_text(module.read_text().replace("    wide = x.float()", loop, 1))
    code, text = said("status")
    assert code == 0 and "tensor" not in text
    assert re.search(r"1\.1 layer_norm core [\d ]*not checked", text)
    assert re.search(r"1\.2 RMSNorm core [\d ]*passed", text)
    assert "`tinyllm check 1.1` says why" in text


def test_a_lost_directive_and_a_lost_module_are_named(package):
    fill("1.1")
    module = package / "rmsnorm.py"
    module.write_text(module.read_text().replace("# %% exercise 1.1: layer_norm\n", ""))
    assert "nothing marks it as this exercise" in said("check", "1.1")[1]
    notebook = str(ROOT / "notebooks" / "01_rmsnorm.ipynb")
    assert "is missing" in said("submit", "rmsnorm", notebook)[1]
    module.unlink()
    result = runner.invoke(app, ["status"])
    assert isinstance(result.exception, workspace.MissingModule)
    assert "`tinyllm reset rmsnorm` brings the empty one back" in str(result.exception)
    assert "rmsnorm.py~ holds" in str(result.exception)


def test_hint_and_solution(package):
    assert "rung 1 of 3" in said("hint", "1.1")[1]
    assert "rung 3 of 3" in said("hint", "1.1", "--rung", "3")[1]
    assert "rung 2 of 3" in said("hint", "1.1", "2")[1]
    text = said("solution", "1.1")[1]
    assert "torch.rsqrt" in text and "BEGIN SOLUTION" not in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("check", "1.7"), "is it one of 1.1 layer_norm, 1.2 RMSNorm, 1.3 residual? `tinyllm"),
        (("hint", "1,1"), "is it one of 1.1 layer_norm, 1.2 RMSNorm, 1.3 residual?"),
        (("hint", "rmsnorm"), "is it one of 1.1 layer_norm, 1.2 RMSNorm, 1.3 residual?"),
        (("solution", "rmsNom"), "'rmsNom'; is it one of 1.2 RMSNorm? `tinyllm status`"),
        (("check", "nonsense"), "`tinyllm status` lists all"),
        (("hint", "1.1", "5"), "there is no rung 5: the rungs are 1 to 3"),
        (("hint", "1.1", "--rung", "0"), "there is no rung 0"),
        (("submit", "lab9"), "the labs are 01_rmsnorm, 02"),
        (("grade", "lab9"), "the labs are 01_rmsnorm, 02"),
        (("submit", "notebooks/01_rmsnorm.ipynb"), "is it 01_rmsnorm?"),
        (("submit", "tour"), "nothing in 00_tour is graded; the labs that are: 01_rmsnorm"),
        (("submit", "4.1"), "4.1 is an exercise of the lab swiglu; say swiglu"),
        (("reset", "qwen3"), "there is no exercise 'qwen3'"),
    ],
)  # fmt: skip
def test_a_wrong_name_says_what_is_near(arguments, words):
    code, text = said(*arguments)
    assert code == 2 and words in text and len(text) < 300


def test_wrong_paths_say_so(package):
    assert "there is no file nowhere.ipynb" in said("submit", "rmsnorm", "nowhere.ipynb")[1]
    (package.parent / "bad.ipynb").write_text("not json")
    assert "is not a notebook" in said("submit", "rmsnorm", "bad.ipynb")[1]
    code, text = said("grade", "rmsnorm", "--course", "nowhere")
    assert code == 2 and "there is no folder" in text
    (package.parent / "mine").mkdir()
    (package.parent / "mine" / "thesis.txt").write_text("years of work")
    code, text = said("demo", "--out", "mine")
    assert code == 2 and "holds something else" in text
    assert (package.parent / "mine" / "thesis.txt").exists()


def test_build_never_overwrites_answers(package, monkeypatch):
    from labkit.author import build

    fill("1.1")
    module = package / "rmsnorm.py"
    before = module.read_text()
    derived = [build.Derived(module, b"a skeleton")]
    monkeypatch.setattr(build, "everything", lambda: iter(derived))
    monkeypatch.setattr(build, "ROOT", package.parent)
    code, text = said("build")
    assert code == 2 and "holds answers to 1.1" in text
    assert module.read_text() == before


@pytest.mark.parametrize(
    "arguments", [("grade", "rmsnorm"), ("collect", "x.zip"), ("demo",), ("bench", "check")]
)
def test_without_nbgrader_it_says_what_to_install(arguments):
    code = (
        "import sys\nsys.modules['nbgrader.apps'] = None\n"
        f"sys.argv[1:] = {arguments!r}\nfrom labkit.cli import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert "nbgrader.apps is not installed; `pip install" in done.stderr


def test_importing_the_command_line_is_light():
    code = (
        "import sys, labkit.cli; print({'torch', 'matplotlib', 'IPython'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr


def test_collecting_imports_neither_torch_nor_the_judge(tmp_path):
    code = (
        "import sys\nfrom labkit.cli import app\n"
        f"app(['collect', {str(tmp_path)!r}, '--course', {str(tmp_path)!r}],"
        " standalone_mode=False)\n"
        "print(sorted({'torch', 'labkit.grading.judge.judge'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_course_can_be_built_released_and_found_empty(tmp_path):
    folder = str(tmp_path / "course")
    code, text = said("build", "--course", folder)
    assert code == 0 and "instructor edition" in text
    code, text = said("grade", "rmsnorm", "--course", folder)
    assert code == 2 and "nbgrader generate_assignment 01_rmsnorm" in text
