"""Benchmarks: how long a visible check takes, and how fast a class is graded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from nbformat import NotebookNode
from rich.console import Console
from rich.table import Table

from labkit.author.edition import write_source
from labkit.author.owned_cells import filled, notebook_path, read_notebook, serialised
from labkit.bench.duration import in_words
from labkit.checks.runner import run_checks
from labkit.core.paths import ROOT
from labkit.core.syllabus import LABS, Lab
from labkit.grading.judge.graded import common_layers
from labkit.grading.judge.intake import cell_called
from labkit.grading.nbgrader.course import Course
from labkit.grading.run.pool import GradingPool, cores
from labkit.grading.run.schedule import Class, grade_lab
from labkit.grading.sample_class import Learner, encoded, hand_in, solved
from labkit.learner.check import oracle_of, visible_checks
from labkit.sandbox.inside.call import perform

REPEATS = 5
STOCK_SUBMISSIONS = 6
STOCK_CONFIG = """c = get_config()
c.CourseDirectory.course_id = "stock"
c.CourseDirectory.root = {root!r}
c.Execute.timeout = 300
c.Execute.iopub_timeout = 60
"""


def bench_check(console: Console) -> None:
    """Print how long visible checks take; every number is of this run on this machine."""
    table = Table(title="A visible check, torch loaded", title_justify="left")
    for heading in ("exercise", "first, s", f"median of {REPEATS}, s"):
        table.add_column(heading, justify="left" if heading == "exercise" else "right")
    runs = {}
    for lab in LABS:
        oracle = oracle_of(lab)
        student = partial(perform, namespace=oracle.namespace)
        for exercise in lab.exercises:
            sides = visible_checks(lab, exercise), student, oracle.reference
            runs[f"{exercise.id} {exercise.title}"] = partial(run_checks, exercise, *sides)
    first = {name: seconds_of(run) for name, run in runs.items()}
    to_come = in_words((REPEATS - 1) * sum(first.values()))
    console.print(f"By the first round, {REPEATS - 1} more take about {to_come}.")
    for name, run in runs.items():
        seconds = [first[name], *(seconds_of(run) for _ in range(REPEATS - 1))]
        table.add_row(name, f"{seconds[0]:.3f}", f"{median(seconds):.3f}")
    console.print(table)


def seconds_of(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def bench_grade(console: Console, labs: Sequence[Lab], count: int, jobs: int | None) -> None:
    """Grade the same submissions with stock nbgrader and with the course, and print both."""
    table = Table(title="Grading", title_justify="left")
    for heading in ("lab", "seconds of", "nbgrader autograde", "tinyllm grade", "ratio"):
        justify = "left" if heading in ("lab", "seconds of") else "right"
        table.add_column(heading, justify=justify, no_wrap=True)
    before, layers = load(), []
    for number, lab in enumerate(labs, 1):
        start = time.perf_counter()

        def tell(to_come: float, start: float = start, left: int = len(labs) - number) -> None:
            lab_seconds = time.perf_counter() - start + to_come
            text = in_words(to_come + left * lab_seconds)
            console.print(f"By its beginning the rest takes about {text}.")

        layers = grading(table, lab, count, jobs, tell)
    console.print(table)
    console.print(
        "One more: a further submission, without start-up. A class: with start-up, without "
        "feedback and reports; stock's is reckoned from its start and its time for each. The "
        "whole command: `tinyllm grade` as a user runs it, from imports to feedback and "
        "reports, beside stock's autograde alone; again: the same when nothing has changed.\n"
        "All submissions are right and differ in their text only; each is run, and what is "
        "right and equal to the last bit is compared once.\n"
        f"Learner code ran in: {', '.join(layers)}. "
        f"Processes waiting for the {cores()} cores: {before} before, {load()} after.",
        highlight=False,
    )


def load() -> str:
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


def grading(
    table: Table, lab: Lab, count: int, jobs: int | None, tell: Callable[[float], None]
) -> list[str]:
    """The rows of the table for a lab; returns the layers round learner code. `tell` is given
    the seconds to come, once a first submission was graded by either road."""
    with tempfile.TemporaryDirectory(prefix="tinyllm-bench-") as name:
        folder = Path(name)
        released = lean(filled(lab, read_notebook(notebook_path(lab))))
        answers = solved(released, lab)
        nbgrader = stock_course(folder / "stock", lab, released, answers)
        one = nbgrader("autograde", lab.name, "--student", "learner-0000")
        start, ours, layers = our_seconds(folder / "ours", lab, answers, count, jobs)
        tell((STOCK_SUBMISSIONS - 1) * one + 2 * (start + count * ours))
        stock = (nbgrader("autograde", lab.name) - one) / (STOCK_SUBMISSIONS - 2)
        command, again = command_seconds(folder / "whole", lab, answers, count, jobs)
    theirs, mine = one - stock + count * stock, start + count * ours
    rows = (("one more", stock, ours), (f"a class of {count}", theirs, mine),
            ("the whole command", theirs, command))  # fmt: skip
    for number, (what, slow, quick) in enumerate(rows):
        shown = [
            f"{seconds:.4f}" if seconds < 1 else f"{seconds:.1f}" for seconds in (slow, quick)
        ]
        table.add_row("" if number else lab.module, what, *shown, f"{slow / quick:.0f}")
    table.add_row("", "the command again", "", f"{again:.1f}", "", end_section=True)
    return layers


def lean(notebook: NotebookNode) -> NotebookNode:
    """Only the cells that grading needs, so that stock nbgrader draws no figures."""
    kept = ("setup", "ex-", "check-", "written-")
    notebook.cells = [cell for cell in notebook.cells if cell.id.startswith(kept)]
    return notebook


def hand_in_many(folder: Path, lab: Lab, answers: NotebookNode, numbers: Iterable[int]) -> None:
    """Submissions that differ, so that no two are one result."""
    for number in numbers:
        for exercise in lab.exercises:
            cell = cell_called(answers, exercise.answer_cell)
            cell.source = cell.source.split("\n\n# learner ")[0] + f"\n\n# learner {number}"
        hand_in(folder, lab, Learner(f"learner-{number:04}", encoded(answers)))


def stock_course(
    folder: Path, lab: Lab, released: NotebookNode, answers: NotebookNode
) -> Callable[..., float]:
    """nbgrader as it comes, a kernel for each submission, which runs the check cells: a
    function that runs one of its commands and returns the seconds it took."""
    source = folder / "source" / lab.name / f"{lab.name}.ipynb"
    source.parent.mkdir(parents=True)
    source.write_bytes(serialised(released))
    (folder / "nbgrader_config.py").write_text(STOCK_CONFIG.format(root=str(folder)))
    shutil.copytree(ROOT / "tinyllm", folder / "package" / "tinyllm")
    environment = dict(os.environ, PYTHONPATH=str(folder / "package"))
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"

    def run(*arguments: str) -> float:
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "nbgrader", *arguments],
            cwd=folder, env=environment, check=True, capture_output=True,
        )  # fmt: skip
        return time.perf_counter() - start

    hand_in_many(folder, lab, answers, range(STOCK_SUBMISSIONS))
    run("generate_assignment", lab.name)
    return run


def our_seconds(
    folder: Path, lab: Lab, answers: NotebookNode, count: int, jobs: int | None
) -> tuple[float, float, list[str]]:
    """tinyllm grade without its table and feedback: judges, sandbox, gradebook, files.

    Seconds to start, with the first submissions; for each further one; the layers.
    """
    course = Course(folder)
    write_source(course.root)
    course.release(lab)

    def timed(numbers: range) -> tuple[float, Class]:
        hand_in_many(folder, lab, answers, numbers)
        start = time.perf_counter()
        graded = grade_lab(course, lab, pool)
        return time.perf_counter() - start, graded

    with GradingPool(jobs, unsandboxed=True) as pool:
        first = 2 * pool.jobs  # so that every process has been at work
        begun, _ = timed(range(first))
        shutil.rmtree(folder / "submitted")
        seconds, graded = timed(range(first, first + count))
    possible = sum(exercise.points for exercise in lab.exercises)
    if any(submission.score != possible for submission in graded.values()):
        raise RuntimeError("a right answer lost points: these are no times to believe")
    return begun, seconds / count, common_layers(graded.values())


def command_seconds(
    folder: Path, lab: Lab, answers: NotebookNode, count: int, jobs: int | None
) -> tuple[float, float]:
    """`tinyllm grade` on a class, from its start to its end, and once more."""
    course = Course(folder)
    write_source(course.root)
    course.release(lab)
    hand_in_many(folder, lab, answers, range(count))
    words = [sys.executable, "-m", "labkit.cli", "grade", lab.module, "--course", str(folder)]
    words += ["--no-sandbox", *(["--jobs", str(jobs)] if jobs else [])]
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
        seconds.append(time.perf_counter() - start)
    return seconds[0], seconds[1]
