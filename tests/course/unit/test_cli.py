"""The command line: right answers, wrong names, written files, imports."""

import json
import os
import re
import shutil
import subprocess
import sys

import nbformat
import pytest
from typer.testing import CliRunner

import tinyllm
from labkit import __version__
from labkit.author import build
from labkit.author.reference import reference_block
from labkit.cli import app, main
from labkit.course import cells
from labkit.course.paths import NOTEBOOKS, ROOT
from labkit.course.syllabus import LABS, find_exercise
from labkit.learner import workspace
from labkit.learner.project import notebook_file

runner = CliRunner()
FIRST = LABS[0].exercises[0]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of the test's own in place of the repository's."""
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


def run(*arguments):
    """The exit code and the output of a command."""
    result = runner.invoke(app, list(arguments))
    return result.exit_code, " ".join(result.output.split())


def test_check_and_status_tell_how_far_a_learner_is(package, monkeypatch):
    code, text = run("check", "1.2")
    assert code == 1 and "not started" in text and run("check", "RMSNorm") == (1, text)
    fill("1.1", "1.2")
    code, text = run("check", "1.2")
    assert code == 0 and "passed" in text
    assert "read on to exercise 1.3, residual (stretch)" in text
    monkeypatch.setattr("labkit.learner.home_sandbox.CPU_SECONDS", 1)
    module = package / "rmsnorm.py"
    loop = "    print(x)\n    while True: pass\n    wide = x.float()"
    module.write_text(module.read_text().replace("    wide = x.float()", loop, 1))
    code, text = run("status")
    assert code == 0 and "tensor(" not in text
    assert re.search(rf"1\.1 layer_norm core \d+ {FIRST.points:g} not checked", text)
    assert re.search(r"1\.2 RMSNorm core [\d ]*passed", text)
    assert re.search(r"1\.3 residual stretch \d+ 4 not started", text)
    assert "`tinyllm check 1.1` says why" in text


def test_status_tells_what_is_typed_and_not_run(package, monkeypatch):
    """Such a cell counts, as `tinyllm submit` hands it in."""
    lab, exercise = find_exercise("1.1")
    content = notebook_file.read(NOTEBOOKS / f"{lab.name}.ipynb")
    notebook_file.put(content, lab, exercise, reference_block(lab, exercise))
    path = package.parent / "mine.ipynb"
    path.write_text(nbformat.writes(content))
    monkeypatch.setattr(notebook_file, "notebook_path", lambda lab: path)
    text = run("status")[1]
    assert re.search(r"1\.1 layer_norm core \d+ 4 typed, not run", text)
    assert re.search(r"1\.2 RMSNorm core [\d ]*not started", text)


def test_watching_checks_again_after_each_change_of_a_file(package, monkeypatch):
    pauses = iter([lambda: None, lambda: fill("1.1"), lambda: None])

    def sleep(_):
        try:
            next(pauses)()
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr("labkit.learner.commands.time.sleep", sleep)
    code, text = run("check", "1.1", "--watch")
    assert code == 0 and text.count("Exercise 1.1") == 2
    assert text.index("not started") < text.index("waiting for a change") < text.index("passed")


def test_a_lost_directive_and_a_lost_module_are_reported(package):
    fill("1.1")
    module = package / "rmsnorm.py"
    module.write_text(module.read_text().replace("# %% exercise 1.1: layer_norm\n", ""))
    assert "nothing marks it as this exercise" in run("check", "1.1")[1]
    module.unlink()
    result = runner.invoke(app, ["status"])
    assert isinstance(result.exception, workspace.MissingModule)
    assert "`tinyllm reset rmsnorm` brings the empty one back" in str(result.exception)


def test_hint_and_solution(package):
    first = run("hint", "1.1")[1]
    assert "rung 1 of 3" in first and "`tinyllm hint 1.1` shows rung 2 of 3" in first
    assert ["rung 2" in run("hint", "1.1")[1], "rung 3" in run("hint", "1.1")[1]] == [True] * 2
    assert "rung 3 of 3" in run("hint", "1.1")[1]  # there is no fourth
    assert "rung 1 of 3" in run("hint", "1.1", "1")[1]
    assert "rung 2 of 3" in run("hint", "1.1")[1]  # it continues after the chosen rung
    assert "rung 3 of 3" in run("hint", "1.1", "3")[1]
    text = run("solution", "1.1")[1]
    assert "torch.rsqrt" in text and "BEGIN SOLUTION" not in text


def test_a_wrong_name_is_answered_with_what_is_near():
    for command, words in {
        "check 1.7": "is it one of 1.1, 1.2, 1.3, 1.4? `tinyllm status`",
        "hint 1,1": "is it one of 1.1",
        "hint rmsnorm": "is it one of 1.1, 1.2, 1.3, 1.4?",
        "solution RMSNom": "'RMSNom'; is it one of RMSNorm",
        "check nonsense": "`tinyllm status` lists all",
        "hint 1.1 5": "there is no rung 5: the rungs are 1 to 3",
        "hint 1.1 0": "there is no rung 0",
        "submit lab9": "the labs are 01_rmsnorm, 02",
        "grade lab9": "the labs are 01_rmsnorm, 02",
        "submit notebooks/01_rmsnorm.ipynb": "is it 01_rmsnorm?",
        "submit tour": "there is no lab 'tour'; the labs are 01_rmsnorm",
        "reset qwen3": "there is no exercise 'qwen3'",
    }.items():
        code, text = run(*command.split())
        assert code == 2 and words in text and len(text) < 300, command


def test_wrong_paths_are_reported_and_nothing_is_overwritten(package, monkeypatch):
    assert "there is no file nowhere.ipynb" in run("submit", "rmsnorm", "nowhere.ipynb")[1]
    (package.parent / "bad.ipynb").write_text("not json")
    assert "is not a notebook" in run("submit", "rmsnorm", "bad.ipynb")[1]
    code, text = run("grade", "rmsnorm", "--course", "nowhere")
    assert code == 2 and "there is no folder" in text
    thesis = package.parent / "mine" / "thesis.txt"
    thesis.parent.mkdir()
    thesis.write_text("years of work")
    code, text = run("demo", "--out", "mine")
    assert code == 2 and "holds something else" in text and thesis.exists()
    fill("1.1")
    module = package / "rmsnorm.py"
    before = module.read_text()
    derived = [build.Derived(module, b"a skeleton")]
    monkeypatch.setattr(build, "everything", lambda: iter(derived))
    monkeypatch.setattr(build, "ROOT", package.parent)
    code, text = run("build")
    assert code == 2 and "holds answers to 1.1" in text
    assert module.read_text() == before


def test_a_course_can_be_built_released_and_found_empty(tmp_path):
    folder = str(tmp_path / "course")
    code, text = run("build", "--course", folder)
    assert code == 0 and "instructor edition" in text
    code, text = run("grade", "rmsnorm", "--course", folder)
    assert code == 2 and "nbgrader generate_assignment 01_rmsnorm" in text


def test_a_copy_that_is_installed_without_its_folder_says_so_at_once(monkeypatch, capsys):
    monkeypatch.setattr("labkit.cli.TESTS", ROOT / "nowhere")
    with pytest.raises(SystemExit) as ended:
        main()
    assert (
        ended.value.code == 2
        and "pip install -c constraints.txt -e ." in capsys.readouterr().err
    )


def test_version_and_a_terminal_that_is_not_utf8():
    assert run("--version") == (0, f"tinyllm {__version__}, Python {sys.version.split()[0]}")
    done = subprocess.run(
        [sys.executable, "-m", "labkit", "status"], cwd=ROOT, capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "60", "NO_COLOR": "1"},
    )  # fmt: skip
    assert done.returncode == 0 and b"RMSNorm" in done.stdout and b"\x1b" not in done.stdout


IMPORTS = """
import json, sys
from typer.testing import CliRunner
from labkit.cli import app
found = {"cli": sorted({"torch", "matplotlib", "IPython"} & set(sys.modules))}
run = CliRunner().invoke
run(app, ["collect", FOLDER, "--course", FOLDER])
found["collect"] = sorted({"torch", "labkit.grading.judge.judge"} & set(sys.modules))
assert "labkit.grading.collect" in sys.modules
sys.modules["nbgrader.apps"] = None
for words in ("grade rmsnorm", "collect x.zip", "demo"):
    for name in [name for name in sys.modules if name.startswith("labkit.grading.")]:
        if name != "labkit.grading.commands":
            del sys.modules[name]
    done = run(app, words.split())
    found[words] = [done.exit_code, done.stderr]
print(json.dumps(found))
"""


def test_commands_import_what_they_need_and_say_what_to_install(tmp_path):
    code = f"FOLDER = {str(tmp_path)!r}\n{IMPORTS}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("cli") == found.pop("collect") == []
    for command, (exit_code, message) in found.items():
        assert exit_code == 2, command
        assert "nbgrader.apps is not installed; `pip install" in message, command


CORE = sum(exercise.core for lab in LABS for exercise in lab.exercises)
WITHOUT_TORCH = """
import sys
import tinyllm
from labkit.cli import app
folder, *words = sys.argv[1:]
tinyllm.__file__ = folder + "/tinyllm/__init__.py"
app(words, standalone_mode=False)
print("torch" in sys.modules)
"""


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("status", f"0 of {CORE} passed"),
        ("hint 1.1", "rung 1 of 3"),
        ("reset 1.1 --yes", "empty again: 1.1"),
        ("collect --course course", "nothing"),
    ],
)
def test_what_judges_nothing_does_not_wait_for_torch(command, shown, tmp_path, monkeypatch):
    shutil.copytree(ROOT / "tinyllm", tmp_path / "tinyllm")
    (tmp_path / "course").mkdir()
    if command.startswith("reset"):
        monkeypatch.setattr(tinyllm, "__file__", str(tmp_path / "tinyllm" / "__init__.py"))
        lab, exercise = find_exercise("1.1")
        workspace.save(lab, exercise, reference_block(lab, exercise))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, str(tmp_path), *command.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    *output, has_torch = done.stdout.splitlines()
    assert shown in " ".join(output), done.stdout + done.stderr
    assert has_torch == "False"
