"""How fast a class is graded: `tinyllm grade`, sandbox on, beside stock nbgrader autograde.

    python benchmarks/grading.py [--lab rmsnorm] [--submissions 60 240] [--jobs N]

All submissions are right, and no two are equal. Ours is the whole command, from imports to
feedback and reports, and the same command again when nothing has changed. Stock nbgrader is
run on a few submissions; its time for a class is its start plus its time for each.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from nbformat import NotebookNode

from labkit.author.edition import write_source
from labkit.author.owned_cells import filled, notebook_path, read_notebook, serialised
from labkit.course.paths import ROOT
from labkit.course.syllabus import Lab, find_lab
from labkit.grading.judge.intake import cell_called
from labkit.grading.nbgrader.course import Course
from labkit.grading.run.pool import cores
from labkit.grading.run.results import Results
from labkit.grading.sample_class import Learner, encoded, hand_in, solved

STOCK_SUBMISSIONS = 6
STOCK_CONFIG = """c = get_config()
c.CourseDirectory.course_id = "stock"
c.CourseDirectory.root = {root!r}
c.Execute.timeout = 300
c.Execute.iopub_timeout = 60
"""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lab", default="rmsnorm")
    parser.add_argument("--submissions", type=int, nargs="+", default=[60, 240])
    parser.add_argument("--jobs", type=int, default=cores(), help="processes of ours")
    parser.add_argument("--no-sandbox", action="store_true")
    options = parser.parse_args(arguments)
    lab = find_lab(options.lab)
    released = lean(filled(lab, read_notebook(notebook_path(lab))))
    answers = solved(released, lab)
    extra = ["--jobs", str(options.jobs), *["--no-sandbox"] * options.no_sandbox]
    print(f"{lab.name}, seconds; {options.jobs} processes, load {load()} before")
    print(f"{'submissions':>11} {'stock':>8} {'ours':>8} {'ratio':>6} {'again':>6}")
    with tempfile.TemporaryDirectory(prefix="tinyllm-bench-") as name:
        start, each = stock_seconds(Path(name) / "stock", lab, released, answers)
        for count in options.submissions:
            ours, again = our_seconds(Path(name) / f"{count}", lab, answers, count, extra)
            stock = start + count * each
            print(f"{count:11} {stock:8.1f} {ours:8.1f} {stock / ours:6.1f} {again:6.1f}")
    print(f"stock: {start:.1f} s to start, {each:.2f} s for each; load {load()} after")


def load() -> str:
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


def lean(notebook: NotebookNode) -> NotebookNode:
    """Keep the cells that grading needs, so that stock nbgrader draws no figures."""
    kept = ("setup", "ex-", "check-", "written-")
    notebook.cells = [cell for cell in notebook.cells if cell.id.startswith(kept)]
    return notebook


def hand_in_many(folder: Path, lab: Lab, answers: NotebookNode, numbers: Iterable[int]) -> None:
    for number in numbers:
        for exercise in lab.exercises:
            cell = cell_called(answers, exercise.answer_cell)
            cell.source = cell.source.split("\n\n# learner ")[0] + f"\n\n# learner {number}"
        hand_in(folder, lab, Learner(f"learner-{number:04}", encoded(answers)))


def seconds(*command: str, **options: object) -> float:
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, **options)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{(done.stderr or done.stdout).decode()}")
    return time.perf_counter() - start


def stock_seconds(
    folder: Path, lab: Lab, released: NotebookNode, answers: NotebookNode
) -> tuple[float, float]:
    """nbgrader without our configuration, a kernel for each submission: seconds to start, and
    for each submission."""
    source = folder / "source" / lab.name / f"{lab.name}.ipynb"
    source.parent.mkdir(parents=True)
    source.write_bytes(serialised(released))
    (folder / "nbgrader_config.py").write_text(STOCK_CONFIG.format(root=str(folder)))
    shutil.copytree(ROOT / "tinyllm", folder / "package" / "tinyllm")
    environment = dict(os.environ, PYTHONPATH=str(folder / "package"))
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    run = {"cwd": folder, "env": environment}
    hand_in_many(folder, lab, answers, range(STOCK_SUBMISSIONS))
    seconds("nbgrader", "generate_assignment", lab.name, **run)
    first = seconds("nbgrader", "autograde", lab.name, "--student", "learner-0000", **run)
    others = seconds("nbgrader", "autograde", lab.name, **run)
    each = (others - first) / (STOCK_SUBMISSIONS - 2)
    return first - each, each


def our_seconds(
    folder: Path, lab: Lab, answers: NotebookNode, count: int, extra: list[str]
) -> tuple[float, float]:
    """Time `tinyllm grade` on a class, then again when everything is graded."""
    course = Course(folder)
    write_source(course.root)
    course.release(lab)
    hand_in_many(folder, lab, answers, range(count))
    command = ["labkit.cli", "grade", lab.module, "--course", str(folder), *extra]
    taken = [seconds(*command, cwd=ROOT) for _ in range(2)]
    graded = (Results(folder, lab).of_class() or {}).values()
    if len(graded) != count or not all(one.full for each in graded for one in each.exercises):
        sys.exit("a right answer lost points: these are no times to believe")
    return taken[0], taken[1]


if __name__ == "__main__":
    main()
