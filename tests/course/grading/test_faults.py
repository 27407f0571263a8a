"""An error of the course is never a grade: from whichever folder packages come, the class is
graded, or nobody is and one sentence says why. A learner whose grading fails has no points
yet."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from labkit.course.paths import ROOT
from labkit.grading.run.pool import EXECUTORS
from labkit.grading.sample_class import Learner, encoded, hand_in, solved
from labkit.sandbox.bubblewrap import GradingError
from labkit.sandbox.inside.call import Call, Failure, Outcome
from labkit.sandbox.inside.limits import package_folders
from labkit.sandbox.inside.wire import Gone
from labkit.sandbox.launch import LoadRequest, Worker, WorkerLauncher
from labkit.sandbox.probe import best_sandbox
from tests.course.grading.test_robust import (  # noqa: F401  fixtures are among them
    LAB,
    all_files,
    course,
    grade,
    graded_notebook_of,
    judge_here,
    looks,
    page_of,
    points,
    refused,
    tinyllm,
)
from tests.course.grading.two_learners import ALL, RIGHT

posix = pytest.mark.skipif(os.name != "posix", reason="not checked: needs POSIX")


# The folders that packages come from


@pytest.fixture
def bare(tmp_path):
    """The Python of a virtual environment without packages, and its site-packages."""
    folder = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    return folder / "bin" / "python", packages


def run(python, *arguments, cwd=ROOT, **environment):
    """Run a module's command under another Python; return (status, output)."""
    scripts = Path(sys.executable).parent
    environment = {"PYTHONPATH": str(ROOT), "COLUMNS": "200"} | environment
    environment["PATH"] = os.environ["PATH"] + os.pathsep + str(scripts)  # alembic is a program
    done = subprocess.run(
        [python, "-m", *map(str, arguments)], cwd=cwd, env={**os.environ, **environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
    )  # fmt: skip
    return done.returncode, done.stdout


def pythonpath(*folders):
    return os.pathsep.join(map(str, [ROOT, *folders]))


def by_a_pth_line(bare, tmp_path):
    python, packages = bare
    (packages / "all.pth").write_text("\n".join(map(str, package_folders())))
    return python, {}


def by_pythonpath(bare, tmp_path):
    return bare[0], {"PYTHONPATH": pythonpath(*package_folders())}


def by_pip_install_user(bare, tmp_path):
    """In the home folder; a virtual environment does not look there."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folder = tmp_path / "home" / ".local" / "lib" / version
    folder.mkdir(parents=True)
    (folder / "site-packages").symlink_to(Path(torch.__file__).parents[1])
    return getattr(sys, "_base_executable", sys.executable), {}


# by_a_pth_line is tried at the end of the test below
@posix
@pytest.mark.slow
@pytest.mark.parametrize("road", [by_pythonpath, by_pip_install_user])
def test_a_class_is_graded_wherever_packages_come_from(handed_in, bare, tmp_path, road):
    python, environment = road(bare, tmp_path)
    environment = {"HOME": str(tmp_path / "home"), **environment}
    where = ("--course", handed_in.root)
    status, output = run(python, "labkit.cli", "grade", LAB.module, *where, **environment)
    assert status == 0 and points(handed_in) == RIGHT, output


def test_of_sys_path_only_folders_of_packages_are_shown(tmp_path, monkeypatch):
    sandbox = best_sandbox()
    if sandbox.bubblewrap is None:
        pytest.skip(f"not checked: {sandbox.lacking}")
    packages = tmp_path / "lib" / "site-packages"
    folders = [packages, tmp_path / "course", tmp_path / "home"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "file").touch()
        monkeypatch.syspath_prepend(str(folder))
    monkeypatch.syspath_prepend(str(ROOT))
    paths = [str(path) for path in (*(each / "file" for each in folders), ROOT / "solutions")]
    source = "import os\n\ndef f(paths):\n    return [os.path.exists(path) for path in paths]\n"
    with WorkerLauncher(sandbox) as workers:
        answers = workers.answer(LoadRequest({"lab": source}, "lab"), [Call("f", paths=paths)])
        assert answers.outcomes[0].value == [True, False, False, False]


# The judge fails for everybody


@pytest.mark.full
@posix
def test_nobody_is_graded_where_the_sandbox_cannot_import_torch(handed_in, bare, tmp_path):
    """The sandbox hides a folder that may hold anything, so packages in it are missing."""
    python, packages = bare
    modules = tmp_path / "modules"
    modules.mkdir()
    for path in [path for folder in package_folders() for path in folder.iterdir()]:
        if not (modules / path.name).exists():
            (modules / path.name).symlink_to(path)
    environment = {"HOME": str(tmp_path / "home"), "PYTHONPATH": pythonpath(modules)}
    before, where = all_files(handed_in), ("--course", handed_in.root)
    command = ("labkit.cli", "grade", LAB.module, *where)
    status, output = run(python, *command, **environment)
    assert status == 2 and output.count("\n") == 1, output
    for words in ("No module named 'torch'", str(packages), "installed into one of them"):
        assert words in output
    assert all_files(handed_in) == before
    environment["TINYLLM_COURSE"] = str(handed_in.root)
    status, output = run(python, "nbgrader", "autograde", LAB.name, **environment)
    assert status and output.count("No module named 'torch'") == 1 and "Traceback" not in output
    assert all_files(handed_in) == before and points(handed_in) == {}
    python, environment = by_a_pth_line(bare, tmp_path)  # the same class without --fresh
    assert run(python, *command, HOME=str(tmp_path / "home"), **environment)[0] == 0
    assert points(handed_in) == RIGHT


def test_the_demo_ends_with_the_sentence_too(tmp_path, monkeypatch):
    def refuse():
        raise GradingError("the sandbox cannot import torch")

    monkeypatch.setattr("labkit.grading.run.pool.best_sandbox", refuse)
    status, output = tinyllm("demo", "--out", tmp_path / "demo")
    assert status == 2 and output.endswith("the sandbox cannot import torch\n")


@pytest.fixture
def fail(monkeypatch):
    """Lets a test choose the modules for which the learner's process ends before it begins."""

    def answer(self, request, *rest):
        if said and any(said[-1] in text for text in request.sources.values()):
            raise Gone("it hung up")
        return original(self, request, *rest)

    said, original = [], Worker.answer
    monkeypatch.setattr(Worker, "answer", answer)
    return said.append


def test_the_reference_goes_through_the_same_door_first(handed_in, fail):
    fail("import torch")  # everybody hands it in
    refused(handed_in, "nothing is graded", "even at the reference", "Gone: it hung up")


def test_a_judge_that_begins_to_fail_at_everybody_stops(handed_in, fail, monkeypatch):
    assert grade(handed_in)[0] == 0
    before = points(handed_in)
    fail("import torch")
    monkeypatch.setitem(EXECUTORS, "processes", judge_here)
    arguments = ("--course", handed_in.root, "--no-sandbox", "--fresh")
    status, output = tinyllm("grade", LAB.module, *arguments)
    assert status == 2 and "even at the reference" in output and output.count("\n") == 1
    assert points(handed_in) == before


# The judge fails for one learner


def test_who_the_judge_fails_at_has_no_points_and_is_named(handed_in, fail, monkeypatch):
    notebook = solved(handed_in.released(LAB), LAB)
    for cell in notebook.cells:
        cell.source = cell.source.replace("# %% exercise 1.1", "# %% exercise 1.1\n# of eve")
    hand_in(handed_in.root, LAB, Learner("eve", encoded(notebook)))
    fail("# of eve")
    status, output = grade(handed_in)
    assert status == 1 and "\n  eve: grading broke off twice" in output
    assert "Gone: it hung up" in looks(handed_in)["eve"] and "Traceback" not in output
    assert points(handed_in) == RIGHT
    assert not graded_notebook_of(handed_in, "eve").exists()
    assert not page_of(handed_in, "eve").exists()
    lines = (handed_in.root / f"{LAB.name}.csv").read_text("utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith("eve")]
    assert "broke off" in line and line.startswith("eve," + "," * (len(LAB.exercises) + 6))
    assert "grading broke off" in (handed_in.root / f"{LAB.name}.html").read_text("utf-8")
    fail("no such text")
    monkeypatch.setitem(EXECUTORS, "processes", judge_here)
    assert grade(handed_in)[0] == 0 and points(handed_in) == RIGHT | {"eve": ALL}


# The machine has no memory, or kills a process


def test_a_full_machine_gives_no_grade(handed_in, monkeypatch):
    """The process dies at every answer until there is memory again: nobody gets points, and the
    same command continues later. If it dies again although the reference passes, that counts.
    """
    notebook = solved(handed_in.released(LAB), LAB)
    hand_in(handed_in.root, LAB, Learner("bob", encoded(notebook)))
    full, asked = [True], []

    def answer(self, request, calls, *rest):
        found = original(self, request, calls, *rest)
        asked.append(request.module)
        if len(asked) > len(LAB.exercises) and full[0]:  # after the reference was tried
            found.outcomes = [Outcome(failure=Failure("MemoryError", "")) for _ in calls]
        return found

    original = Worker.answer
    monkeypatch.setattr(Worker, "answer", answer)
    status, output = grade(handed_in)
    assert status == 2 and "the reference itself does not get all points" in output
    assert points(handed_in) in ({}, {"ada": 0})  # ada's notebook is blank
    full[0] = False
    monkeypatch.setitem(EXECUTORS, "processes", judge_here)
    assert grade(handed_in)[0] == 0 and points(handed_in) == RIGHT


def test_an_answer_that_takes_all_memory_is_a_verdict(handed_in):
    notebook = solved(handed_in.released(LAB), LAB)
    greedy = "\ndef layer_norm(x, weight, bias, eps=1e-5):\n    return torch.ones(10**12)\n"
    for cell in notebook.cells:
        if cell.source.startswith("# %% exercise 1.1"):
            cell.source += greedy
    hand_in(handed_in.root, LAB, Learner("eve", encoded(notebook)))
    assert grade(handed_in)[0] == 0
    assert points(handed_in)["eve"] == ALL - LAB.exercises[0].points
