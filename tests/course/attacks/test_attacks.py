"""Every hostile submission, thrown at the first layer that claims to stop it and at the layer
below, and a few at `tinyllm grade` in the middle of an honest class.

tests/course/attacks says what each attack tries; attacks/__init__.py lists those that nothing
stops.
"""

import builtins
import csv
import hashlib
import io
import json
import multiprocessing.forkserver as forkserver
import os
import re
import secrets
import shutil
import sys
import time
from contextlib import contextmanager
from itertools import cycle
from types import SimpleNamespace

import nbformat
import pytest
from rich.console import Console

from attacks import ATTACKS, LAYERS, load_attacks
from attacks.on_intake import BYTES
from attacks.on_people import LEARNERS, RAISED, WRITTEN
from attacks.world import World
from labkit.course.cells import directive
from labkit.course.paths import ROOT
from labkit.course.report import CONTROL
from labkit.course.syllabus import LABS
from labkit.grading.judge.intake import cell_called, rebuild
from labkit.grading.judge.judge import Judge
from labkit.grading.nbgrader.course import Course
from labkit.grading.run.grade import grade_and_report
from labkit.grading.run.pool import GradingPool
from labkit.grading.sample_class import (
    Learner,
    encoded,
    hand_in,
    small_class,
    solved,
    with_answer,
)
from labkit.sandbox import launch
from labkit.sandbox.bubblewrap import Sandbox
from labkit.sandbox.launch import WorkerLauncher
from labkit.sandbox.probe import best_sandbox
from tests.course.cost import at_most

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="not checked: needs Linux")
load_attacks()
LAB = LABS[0]
FIRST = LAB.exercises[0]
ALL = sum(exercise.points for exercise in LAB.exercises)
REST = ALL - FIRST.points  # points for a hostile learner's honest answers
SECONDS = 1  # processor seconds per exercise
IN_CLASS = ("garbage", "forges_frames", "interrupts", "long_text", "reads_classmate", "deletes",
            "asks_for_names", "leaves_in_tmp", "unix", "kills", "ignores_signals")  # fmt: skip


@contextmanager
def badge():
    """A text in the environment of every process that is started from here on."""
    text, before = f"/badge-{secrets.token_hex(8)}", os.environ.get("LD_LIBRARY_PATH")
    os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, (before, text)))
    forkserver._forkserver._stop()  # else its processes inherit its old environment
    try:
        yield text
    finally:
        forkserver._forkserver._stop()
        del os.environ["LD_LIBRARY_PATH"]
        os.environ |= {"LD_LIBRARY_PATH": before} if before else {}


def processes_left(world):
    """Processes of learners that still run; some need a moment to end."""
    end = time.monotonic() + 20
    while world.left() and time.monotonic() < end:
        time.sleep(0.05)
    return world.left()


# Each attack at the first layer that claims to stop it


class Split(Sandbox):
    """Only a separate process with limits: no Landlock, no seccomp."""

    OFF = (
        "from labkit.sandbox.inside import limits, seccomp; "
        "limits.landlock_rules = lambda *_: None; seccomp.Filter.install = lambda *_: False; "
        "from labkit.sandbox.inside.worker import main"
    )

    def command(self, python, *rest):
        boot = python[-1].replace("from labkit.sandbox.inside.worker import main", self.OFF)
        assert boot != python[-1]
        return super().command([*python[:-1], boot], *rest)


OURS = {"URLError": OSError, "NotInGrading": NameError}  # not builtin


def is_missing(graded):
    """Whether the first fault is a name or file that the answer did not find, or an answer that
    was not found: nothing else is a reason to ask a person."""
    if "cells claim this exercise" in graded.look:
        return True
    found = re.search(r"raised (\w+)", graded.look)
    kind = (vars(builtins) | OURS).get(found and found[1], Exception)
    return issubclass(kind, (NameError, ImportError, OSError, SyntaxError))


def success(submission, world, name):
    """The success of the attack with this name: points, a secret or damage; "" is expected."""
    graded = submission.exercises[0]
    found = {
        f"{submission.score} points instead of {REST}": submission.score != REST,
        f"a person is asked: {graded.look}": graded.needs_person and not is_missing(graded),
        f"loot: {graded.report}": "LOOT" in str(graded.report),
        f"a secret: {graded.report}": world.token in str(graded.report),
    }
    return [text for text, happened in found.items() if happened] + world.traces(name)


@pytest.mark.full
@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_stops_what_it_claims_to_stop(layer, released, tmp_path, monkeypatch):
    names = [name for name, attack in ATTACKS.items() if attack.by == layer]
    found = attempted(names, layer, released, tmp_path, monkeypatch)
    assert names and {name: gained for name, gained in found.items() if gained} == {}


@pytest.mark.parametrize("layer", LAYERS[1:])
def test_the_attacks_work_at_the_layer_below(layer, released, tmp_path, monkeypatch):
    """Otherwise a failure at the higher layer proves nothing."""
    names = [name for name, attack in ATTACKS.items()
             if attack.by == layer and not attack.unbared]  # fmt: skip
    below = LAYERS[LAYERS.index(layer) - 1]
    found = attempted(names, below, released, tmp_path, monkeypatch)
    assert [name for name, gained in found.items() if not gained] == []


def attempted(names, layer, released, tmp_path, monkeypatch):
    """The success of each attack against a layer; an honest learner comes before and after."""
    monkeypatch.setattr(launch, "WALL_SECONDS", -1)  # so 2 s of wall clock per second of CPU
    sandbox = {"split": Split(), "kernel": Sandbox()}.get(layer) or best_sandbox()
    if layer == "bubblewrap" and sandbox.bubblewrap is None:
        pytest.skip(f"not checked: {sandbox.lacking}")
    attacks, found = [ATTACKS[name] for name in names], {}
    notebook = solved(released[LAB.name], LAB)
    with badge() as text, World(tmp_path / "world", attacks, text) as world:
        with WorkerLauncher(sandbox) as workers:
            judge = Judge(LAB, released[LAB.name], b"secret", workers, SECONDS)
            assert judge.grade(encoded(notebook)).score == ALL
            for name in names:
                hostile = with_answer(notebook, FIRST, ATTACKS[name].cell(world.aim(name)))
                found[name] = success(judge.grade(encoded(hostile)), world, name)
            assert judge.grade(encoded(notebook)).score == ALL
        left = processes_left(world)
        assert not left or layer == "split"
    return found


def test_bytes_earn_nothing_say_why_and_cost_little(judges, released):
    for name, make in BYTES.items():
        data = make()
        with at_most(2000, name):
            verdicts = judges[LAB.name].grade(data).exercises
        assert all(verdict.score == 0 and verdict.look for verdict in verdicts), name
        nbformat.validate(rebuild(data, released[LAB.name], LAB).notebook)


# A class


def honest_class(notebook):
    """{name: bytes}: right, blank, half done, and the first mistake of each exercise."""
    half = solved(notebook, LAB)
    cell_called(half, FIRST.answer_cell).source = cell_called(
        notebook, FIRST.answer_cell
    ).source
    learners = small_class(LAB, notebook, whole=False)
    return {learner.name: learner.data for learner in learners} | {"half": encoded(half)}


def raising(exercise, text):
    return (
        f"{directive(exercise)}\nOh = type({text!r}, (Exception,), {{}})\nraise Oh({text!r})\n"
    )


def hostile_texts(perfect):
    """{learner with a hostile name: bytes of a notebook with hostile texts}."""
    raised, written, found = iter(RAISED), cycle(WRITTEN), {}
    for name in LEARNERS:
        notebook = perfect
        for exercise, text in zip(LAB.exercises[1:3], raised, strict=False):
            notebook = with_answer(notebook, exercise, raising(exercise, text))
        for question in LAB.questions:
            cell_called(notebook, question.answer_cell).source = next(written)
        found[name] = json.dumps(notebook).encode()
    assert next(raised, None) is None
    return found


def all_files(folder, names):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for name in names
        for path in sorted((folder / name).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def state(course):
    code = all_files(ROOT, ("labkit", "solutions", "tests", "notebooks", "tinyllm"))
    return code, all_files(course.root, ("source", "release", "submitted"))


@pytest.fixture(scope="module")
def graded(template, workers, tmp_path_factory):
    """An honest class, graded by itself and then among all the hostile learners."""
    folder = tmp_path_factory.mktemp("class")
    course = Course(shutil.copytree(template.root, folder / "course"))
    released = course.released(LAB)
    perfect, honest = solved(released, LAB), honest_class(released)
    judge = Judge(LAB, released, course.secret(), workers)
    alone = {name: judge.grade(data).score for name, data in honest.items()}
    attacks = [ATTACKS[name] for name in IN_CLASS]
    world, console = (
        World(folder / "world", attacks, ""),
        Console(file=io.StringIO(), width=200),
    )
    with badge() as world.badge, world, GradingPool(jobs=2, cpu_seconds=SECONDS) as pool:
        handed = honest | hostile_texts(perfect)
        handed |= {name: BYTES[name]() for name in ("deep JSON", "lone surrogates")}
        for name in IN_CLASS:
            cell = ATTACKS[name].cell(world.aim(name))
            handed[name] = encoded(with_answer(perfect, FIRST, cell))
        mixed = sorted(handed, key=lambda name: hashlib.sha256(name.encode()).digest())
        for name in mixed:
            hand_in(course.root, LAB, Learner(name, handed[name]))
        before = state(course)
        rows = grade_and_report(course, LAB, console, pool)
        pool.stop(at_once=False)
        yield SimpleNamespace(
            course=course, world=world, alone=alone, rows=rows, handed=handed, before=before,
            printed=console.file.getvalue(),
        )  # fmt: skip


def test_the_honest_class_loses_nothing(graded):
    standings = graded.course.standings(LAB)
    assert graded.handed.keys() == standings.keys()
    assert graded.alone["perfect"] == ALL and graded.alone["half"] == REST
    for name, points in graded.alone.items():
        assert standings[name].total == pytest.approx(points), name
    honest = FIRST.points + sum(exercise.points for exercise in LAB.exercises[3:])
    for name in LEARNERS:
        assert standings[name].total == honest, name


def test_the_hostile_learners_gain_and_harm_nothing(graded):
    found = {name: success(graded.rows[name], graded.world, name) for name in IN_CLASS}
    if best_sandbox().bubblewrap is None:
        del found["asks_for_names"]
    assert {name: gained for name, gained in found.items() if gained} == {}
    assert state(graded.course) == graded.before
    assert not processes_left(graded.world)


def test_no_secret_came_out(graded):
    """Neither in the terminal nor in a file that grading wrote."""
    hidden = (ROOT / "tests" / "hidden" / f"test_{LAB.module}.py").read_text()
    secret = [graded.world.token, graded.course.secret().hex(), "BEGIN SOLUTION\n"]
    secret += re.findall(r"^(?:def )?(test_\w+)", hidden, re.MULTILINE)
    assert len(secret) > 5
    for path in graded.course.root.rglob("*"):
        inside = path.relative_to(graded.course.root).parts
        if path.is_file() and inside[0] not in ("source", ".secret"):
            if inside[-1] != f"{LAB.name}.ipynb":
                text = path.read_bytes()
                assert not [word for word in secret if word.encode() in text], path
    assert not [word for word in secret if word in graded.printed]


def test_no_text_repaints_the_terminal_runs_in_a_page_or_in_a_sheet(graded):
    plain = graded.printed.replace("\n", "")
    assert not CONTROL.search(plain), CONTROL.search(plain)
    root = graded.course.root
    pages = [root / f"{LAB.name}.html", *root.glob(f"feedback/*/{LAB.name}/{LAB.name}.html")]
    assert len(pages) == len(graded.handed) + 1
    for path in pages:
        text = path.read_text("utf-8")
        for bad in ("<script>alert", "<img src=x", "<iframe src='http", "<object data",
                    'href="javascript:', "onmouseover='alert"):  # fmt: skip
            at = text.find(bad)
            assert at < 0, (path, text[at - 100 : at + 100])
    table = (root / f"{LAB.name}.csv").read_text("utf-8-sig")
    rows = list(csv.reader(io.StringIO(table, newline="")))
    assert len(rows) > len(graded.handed) and "[bold red]best" in table
    cells = [cell for row in rows for cell in row if cell]
    assert not [cell for cell in cells if cell[0] in "=+-@\t\r" or CONTROL.search(cell)]
