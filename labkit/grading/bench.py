"""Benchmarks: how long a visible check takes, and what grading costs beside stock nbgrader."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from nbformat import NotebookNode
from rich.console import Console
from rich.table import Table

from labkit.build import ROOT, filled, notebook_path, read_notebook, serialised
from labkit.calls import perform
from labkit.checking import SEED
from labkit.checks import run_checks
from labkit.grading.classroom import solved
from labkit.grading.course import Course
from labkit.grading.oracle import Live
from labkit.grading.run import grade_lab
from labkit.recorded import Recorded
from labkit.syllabus import LABS, Lab

REPEATS = 5
STOCK_SUBMISSIONS = 6
OUR_SUBMISSIONS = 24
STOCK_CONFIG = """c = get_config()
c.CourseDirectory.course_id = "stock"
c.CourseDirectory.root = {root!r}
c.Execute.timeout = 300
c.Execute.iopub_timeout = 60
"""


def bench_check(console: Console) -> None:
    """Print both tables; every number is of this run on this machine."""
    console.print(visible_checks())
    console.print(grading(LABS[0]))


def visible_checks() -> Table:
    table = Table(title="A visible check, torch loaded", title_justify="left")
    for heading in ("exercise", "first, s", f"median of {REPEATS}, s"):
        table.add_column(heading, justify="left" if heading == "exercise" else "right")
    for lab in LABS:
        namespace, oracle = Live(lab).namespace, Recorded(lab.module)
        for exercise in lab.exercises:
            seconds = []
            for _ in range(REPEATS):
                start = time.perf_counter()
                run_checks(
                    *("visible", lab.module, exercise),
                    *(lambda call, names=namespace: perform(call, names), oracle, SEED),
                )
                seconds.append(time.perf_counter() - start)
            shown = [f"{seconds[0]:.3f}", f"{median(seconds):.3f}"]
            table.add_row(f"{exercise.id} {exercise.title}", *shown)
    return table


def grading(lab: Lab) -> Table:
    """Seconds for each further submission: the run of many less the run of one."""
    with tempfile.TemporaryDirectory(prefix="tinyllm-bench-") as name:
        folder = Path(name)
        released = lean(filled(lab, read_notebook(notebook_path(lab))))
        answer = serialised(solved(released, lab))
        stock = stock_seconds(folder / "stock", lab, released, answer)
        ours = our_seconds(folder / "ours", lab, answer)
    table = Table(title=f"Grading one further submission, {lab.name}", title_justify="left")
    for heading in ("by", "wall, s", "ratio"):
        table.add_column(heading, justify="left" if heading == "by" else "right")
    table.add_row("stock nbgrader autograde (visible checks in a kernel)", f"{stock:.3f}", "1")
    table.add_row(
        "tinyllm grade (hidden checks, confined)", f"{ours:.3f}", f"{stock / ours:.1f}"
    )
    return table


def lean(notebook: NotebookNode) -> NotebookNode:
    """Only the cells that grading needs, so that stock nbgrader draws no figures."""
    kept = ("setup", "ex-", "check-", "written-")
    notebook.cells = [cell for cell in notebook.cells if cell.id.startswith(kept)]
    return notebook


def hand_in(folder: Path, lab: Lab, answer: bytes, count: int) -> None:
    for number in range(count):
        path = folder / "submitted" / f"learner-{number:03}" / lab.name / f"{lab.name}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_bytes(answer)


def stock_seconds(folder: Path, lab: Lab, released: NotebookNode, answer: bytes) -> float:
    """nbgrader as it comes: a kernel for each submission, which runs the check cells."""
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

    hand_in(folder, lab, answer, STOCK_SUBMISSIONS)
    run("generate_assignment", lab.name)
    one = run("autograde", lab.name, "--student", "learner-000")
    return (run("autograde", lab.name) - one) / (STOCK_SUBMISSIONS - 2)


def our_seconds(folder: Path, lab: Lab, answer: bytes) -> float:
    """tinyllm grade without its table: judge, worker, gradebook."""
    course = Course(folder)
    course.build_source()
    course.release(lab)

    def run(count: int) -> float:
        shutil.rmtree(folder / "submitted", ignore_errors=True)
        hand_in(folder, lab, answer, count)
        start = time.perf_counter()
        grade_lab(course, lab)
        return time.perf_counter() - start

    one = run(1)
    return (run(OUR_SUBMISSIONS) - one) / (OUR_SUBMISSIONS - 1)
