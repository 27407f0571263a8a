"""Hostile submissions, each thrown at three graders: one without protection, the layers alone,
and `tinyllm grade` as this machine has it, in the middle of an honest class.

tests/course/attacks says what each tries; attacks/__init__.py says what nothing stops.
"""

import builtins
import copy
import hashlib
import io
import json
import multiprocessing.forkserver as forkserver
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from attacks import ATTACKS, WRONG, gathered
from attacks.on_intake import BYTES
from attacks.on_people import LEARNERS, RAISED, WRITTEN
from attacks.world import World
from labkit.author.edition import write_source
from labkit.author.mistakes import mistakes_of
from labkit.core.cells import directive
from labkit.core.paths import ROOT
from labkit.core.report import CONTROL
from labkit.core.syllabus import LABS
from labkit.grading.judge.intake import cell_called
from labkit.grading.judge.judge import Judge
from labkit.grading.judge.probe import best_sandbox
from labkit.grading.judge.sandbox import Sandbox
from labkit.grading.judge.worker_client import WorkerLauncher
from labkit.grading.nbgrader.course import Course
from labkit.grading.run.grade import grade_and_report
from labkit.grading.run.pool import GradingPool
from labkit.grading.run.results import GradingSpec
from labkit.grading.run.schedule import grade_lab
from labkit.grading.sample_class import encoded, small_class, solved, with_answer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="not checked: needs Linux")
gathered()
LAB = LABS[0]
FIRST = LAB.exercises[0]
ALL = sum(exercise.points for exercise in LAB.exercises)
REST = ALL - FIRST.points  # what a hostile learner has honestly earned
SECONDS = 1  # of the processor, for an exercise
HANDED = ("source", "release", "submitted")
COURSE = ("labkit", "solutions", "tests", "notebooks", "tinyllm")


def fitting(**wanted):
    return [name for name, one in ATTACKS.items()
            if all(getattr(one, key) == value for key, value in wanted.items())]  # fmt: skip


@contextmanager
def badge():
    """A text in the environment of every process that is started from here on."""
    text, before = f"/badge-{secrets.token_hex(8)}", os.environ["PATH"]
    os.environ["PATH"] += os.pathsep + text
    forkserver._forkserver._stop()  # it would hand its older environment on
    try:
        yield text
    finally:
        forkserver._forkserver._stop()
        os.environ["PATH"] = before


def patiently(condition):
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


# Without protection


@pytest.fixture(scope="module")
def unprotected(tmp_path_factory):
    """{attack: what it achieved where nothing stops it}"""
    folder = tmp_path_factory.mktemp("bare")
    cells = folder / "cells"
    cells.mkdir()
    shown = [one for one in ATTACKS.values() if not one.unbared]
    with badge() as text, World(folder / "world", shown, text) as world:
        for one in shown:
            (cells / f"{one.name}.py").write_text(one.cell(world.aim(one.name)))
        (cells / "aaa.py").write_text(f"def layer_norm(x, *_, eps=1e-5):\n    return {WRONG}\n")
        script = Path(__file__).parent / "bare.py"
        with (folder / "said").open("w+") as said:  # not a pipe: what is left would hold it
            done = subprocess.run(
                [sys.executable, str(script), str(cells)], cwd=ROOT, stdout=said, stderr=said,
                env={**os.environ, "USER": "learner", "OMP_NUM_THREADS": "1"}, timeout=300,
            )  # fmt: skip
        assert done.returncode == 0, (folder / "said").read_text()
        results = {path.stem: json.loads(path.read_text()) for path in cells.glob("*.json")}
        owners = {owner(pid, cells) for pid in world.left()}
        achieved = {
            name: gains(results[name]) + world.traces(name)
            + ["a process was left"] * (name in owners)
            for name in results if name != "aaa"
        }  # fmt: skip
    return achieved, results["aaa"]


def owner(pid, cells):
    """Whose process this is, by the folder in which it works."""
    return Path(os.readlink(f"/proc/{pid}/cwd")).stem


def gains(result):
    found = {
        "points": result["points"] > 0,
        result["said"][:200]: result["said"].startswith("LOOT "),
        "the judge drowned": len(result["said"]) > 1 << 20,
        "the next learner was not graded": not result["next"],
        f"the judge is {result['judge']}": result["judge"] != "fine",
    }
    return [text for text, happened in found.items() if happened]


def test_an_honest_wrong_answer_gains_nothing_even_without_protection(unprotected):
    assert gains(unprotected[1]) == []


@pytest.mark.parametrize("name", fitting(unbared=""))
def test_it_works_where_nothing_protects(unprotected, name):
    """Else it would prove nothing."""
    assert unprotected[0][name], ATTACKS[name].tries


# The layers alone


class Split(Sandbox):
    """No more than a process of its own with limits: no Landlock, no seccomp."""

    OFF = (
        "from labkit.sandboxed import limits, seccomp; "
        "limits.landlock_rules = lambda *_: None; seccomp.Filter.install = lambda *_: False; "
        "from labkit.sandboxed.worker import main"
    )

    def command(self, python, *rest):
        boot = python[-1].replace("from labkit.sandboxed.worker import main", self.OFF)
        assert boot != python[-1]
        return super().command([*python[:-1], boot], *rest)


@contextmanager
def thrown(names, sandbox, released, folder):
    """{attack: its exercise as graded}, and the world afterwards."""
    with badge() as text, World(folder / "world", [ATTACKS[n] for n in names], text) as world:
        notebook = solved(released[LAB.name], LAB)
        with WorkerLauncher(sandbox) as workers:
            judge = Judge(LAB, released[LAB.name], b"secret", workers, SECONDS)
            (own, *_) = judge.grade(encoded(notebook)).exercises
            assert own.score == FIRST.points, own.report  # else nothing below says anything
            graded = {}
            for name in names:
                hostile = with_answer(notebook, FIRST, ATTACKS[name].cell(world.aim(name)))
                graded[name] = judge.grade(encoded(hostile)).exercises[0]
        yield graded, world


@pytest.fixture(scope="module")
def split(released, tmp_path_factory):
    # limits on time are the same in every layer and are met in the class below
    names = fitting(by="split", hangs=False)
    with thrown(names, Split(), released, tmp_path_factory.mktemp("split")) as found:
        yield found


@pytest.fixture(scope="module")
def kernel(released, tmp_path_factory):
    with thrown(
        fitting(by="kernel"), Sandbox(), released, tmp_path_factory.mktemp("kernel")
    ) as found:
        yield found


OURS = {"URLError": OSError, "NotInGrading": NameError}  # not builtin


def missed(graded):
    """Whether what was seen first is that the answer did not find something, or was not found:
    a person is asked about nothing else."""
    if "cells claim this exercise" in graded.look:
        return True
    found = re.search(r"raised (\w+)", graded.look)
    kind = (vars(builtins) | OURS).get(found and found[1], Exception)
    return issubclass(kind, (NameError, ImportError, OSError, SyntaxError))


def nothing_came_of_it(graded, world, name):
    assert graded.score == 0, graded.report
    assert not graded.needs_person or missed(graded), graded.report
    assert "LOOT" not in str(graded.report) and world.token not in str(graded.report)
    assert world.traces(name) == []


@pytest.mark.parametrize("name", fitting(by="split", hangs=False))
def test_a_process_of_its_own_stops(split, name):
    nothing_came_of_it(split[0][name], split[1], name)


@pytest.mark.parametrize("name", fitting(by="kernel"))
def test_the_kernel_stops_without_bubblewrap(kernel, name):
    nothing_came_of_it(kernel[0][name], kernel[1], name)


def test_the_layers_leave_no_process(split, kernel):
    assert patiently(lambda: not split[1].left() and not kernel[1].left())


# A class


@dataclass
class Graded:
    course: Course
    world: World
    rows: dict
    printed: str
    alone: dict
    before: dict
    after: dict
    names: dict
    scores: dict


def mixed(name):
    """Names in an order that has nothing to do with what they are."""
    return f"{hashlib.sha256(name.encode()).hexdigest()[:4]}-{name}"


def honest(released):
    notebook = released[LAB.name]
    perfect = solved(notebook, LAB)
    half = copy.deepcopy(notebook)
    for exercise in LAB.exercises[::2]:
        cell_called(half, exercise.answer_cell).source = cell_called(
            perfect, exercise.answer_cell
        ).source
    yield "half", encoded(half)
    for learner in small_class(LAB, notebook):
        if learner.mistake or learner.name == "perfect":
            yield learner.name, learner.data


def hostile(released, world):
    perfect = solved(released[LAB.name], LAB)
    for name, one in ATTACKS.items():
        yield name, encoded(with_answer(perfect, FIRST, one.cell(world.aim(name))))
    for name, text in RAISED.items():
        answer = (
            f"{directive(FIRST)}\nOh = type({text!r}, (Exception,), {{}})\nraise Oh({text!r})\n"
        )
        yield f"raises-{name}", json.dumps(with_answer(perfect, FIRST, answer)).encode()
    for name, text in WRITTEN.items():
        answer = f"{directive(FIRST)}\n# {text}\nlayer_norm = 1\n"
        notebook = with_answer(perfect, FIRST, answer)
        for question in LAB.questions:
            cell_called(notebook, question.answer_cell).source = text
        yield f"writes-{name}", encoded(notebook)
    for name, make in BYTES.items():
        yield f"bytes-{name}", make()


def everything(folder, names):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for name in names
        for path in sorted((folder / name).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def graded(released, tmp_path_factory):
    """The honest class alone, then among all who are not."""
    folder = tmp_path_factory.mktemp("course")
    course = Course(folder)
    write_source(course.root)
    course.release(LAB)
    (folder / "gradebook-of-last-year.db").write_text("kept")
    console = Console(file=io.StringIO(), width=200)
    world = World(tmp_path_factory.mktemp("class") / "world", ATTACKS.values(), "")
    with badge() as world.badge, world, GradingPool(jobs=2, cpu_seconds=SECONDS) as pool:
        good = dict(honest(released))
        spec = GradingSpec.of(LAB, course.released(LAB), course.secret(), cpu_seconds=SECONDS)
        alone = {name: pool.submit(spec, data) for name, data in good.items()}
        alone = {name: future.result().score for name, future in alone.items()}
        bad = dict(hostile(released, world))
        odd = {f"name-{name}": text for name, text in LEARNERS.items()}
        names = {name: mixed(name) for name in [*good, *bad]} | odd
        perfect = good["perfect"]
        for name, who in names.items():
            path = folder / "submitted" / who / LAB.name / f"{LAB.name}.ipynb"
            path.parent.mkdir(parents=True)
            path.write_bytes(good.get(name) or bad.get(name) or perfect)
        before = everything(ROOT, COURSE), everything(folder, HANDED)
        graded = grade_lab(course, LAB, pool=pool)
        scores = course.standings(LAB)
        after = everything(ROOT, COURSE), everything(folder, HANDED)
        for name, who in names.items():  # pages for few: nbgrader takes its time over each
            if name in ATTACKS or name in good or name.startswith("bytes-"):
                (folder / "seen").mkdir(exist_ok=True)
                shutil.move(folder / "submitted" / who, folder / "seen" / who)
                shutil.move(folder / "autograded" / who, folder / "seen" / who / "autograded")
        grade_and_report(course, LAB, console, pool)
        pool.stop(at_once=False)
        rows = {name: graded[who] for name, who in names.items()}
        printed = console.file.getvalue()
        yield Graded(course, world, rows, printed, alone, before, after, names, scores)


def test_everybody_has_a_verdict(graded):
    assert len(graded.rows) == len(graded.names) > 150
    for name, row in graded.rows.items():
        for one in row.exercises:
            assert not one.needs_person or missed(one), (name, one.look)
    for name in ("perfect", *(f"name-{learner}" for learner in LEARNERS)):
        assert not any(one.needs_person for one in graded.rows[name].exercises), name


def test_the_honest_class_scores_as_it_does_alone(graded):
    assert {name: graded.rows[name].score for name in graded.alone} == graded.alone
    assert len(graded.alone) == len(mistakes_of(LAB)) + 2
    assert graded.alone["perfect"] == ALL
    for name in LEARNERS:
        assert graded.rows[f"name-{name}"].score == ALL


@pytest.mark.parametrize("name", ATTACKS)
def test_it_gains_nothing_learns_nothing_and_harms_nobody(graded, name):
    one, row = ATTACKS[name], graded.rows[name]
    if one.by == "bubblewrap" and "bubblewrap" not in row.layers:
        pytest.skip(f"not checked: {best_sandbox().lacking}")
    assert row.score == REST, one.tries
    nothing_came_of_it(row.exercises[0], graded.world, name)


@pytest.mark.parametrize("name", [f"bytes-{name}" for name in BYTES])
def test_bytes_earn_nothing(graded, name):
    assert graded.rows[name].score == 0


def test_the_gradebook_says_what_the_table_says(graded):
    for name, row in graded.rows.items():
        for one in row.exercises:
            assert graded.scores[graded.names[name]].exercises[one.id].points == one.score


def test_nothing_of_the_course_was_changed(graded):
    assert graded.before == graded.after
    assert (graded.course.root / "gradebook-of-last-year.db").read_text() == "kept"


def test_no_process_is_left(graded):
    assert patiently(lambda: not graded.world.left())


def test_no_secret_came_out(graded):
    """Not in the terminal, nor in any file that the grading wrote."""
    marked = (ROOT / "solutions" / f"{LAB.module}.py").read_text()
    hidden = (ROOT / "tests" / "hidden" / f"test_{LAB.module}.py").read_text()
    secret = [graded.world.token, graded.course.secret().hex()]
    secret += re.findall(r"def test_\w+", hidden)
    assert "BEGIN SOLUTION\n" in marked
    for path in graded.course.root.rglob("*"):
        inside = path.relative_to(graded.course.root).parts
        if (
            path.is_file()
            and inside[0] not in ("source", ".secret")
            and inside[-1] != f"{LAB.name}.ipynb"
        ):
            text = path.read_bytes()
            assert not [s for s in [*secret, "BEGIN SOLUTION\n"] if s.encode() in text], path
    assert not [s for s in secret if s in graded.printed]


# What people look at


def test_the_terminal_is_not_repainted(graded):
    plain = graded.printed.replace("\n", "")
    assert not CONTROL.search(plain), CONTROL.search(plain)
    table = (graded.course.root / f"{LAB.name}.csv").read_text("utf-8-sig")
    for name in ("markup", "formula"):
        assert LEARNERS[name][:20] in table


def pages(graded):
    yield graded.course.root / f"{LAB.name}.html"
    yield from graded.course.root.glob(f"feedback/*/{LAB.name}/{LAB.name}.html")


def test_no_page_runs_what_a_submission_says(graded):
    found = list(pages(graded))
    assert len(found) == len(RAISED) + len(WRITTEN) + len(LEARNERS) + 1  # the lab's own
    for path in found:
        text = path.read_text("utf-8")
        for bad in ("<script>alert", "<img src=x", "<iframe src='http", "<object data",
                    'href="javascript:', "onmouseover='alert"):  # fmt: skip
            at = text.find(bad)
            assert at < 0, (path, text[at - 100 : at + 100])


def test_no_cell_of_the_csv_is_a_formula(graded):
    import csv

    with (graded.course.root / f"{LAB.name}.csv").open(
        newline="", encoding="utf-8-sig"
    ) as file:
        rows = list(csv.reader(file))
    assert len(rows) > len(RAISED) + len(WRITTEN) + len(LEARNERS)
    for row in rows:
        assert not [cell for cell in row if cell[:1] in "=+-@\t\r" and cell]
        assert not [cell for cell in row if CONTROL.search(cell)]
