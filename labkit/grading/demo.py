"""The demo: grade a made-up class of every lab, from notebooks to gradebook and report."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from labkit.author.edition import write_source
from labkit.core.syllabus import LABS, Lab
from labkit.grading.nbgrader.course import Course, CourseError
from labkit.grading.run.grade import grade_and_report
from labkit.grading.run.pool import GradingPool
from labkit.grading.run.schedule import Class
from labkit.grading.sample_class import hand_in, small_class

MARKER = ".tinyllm-demo"


def demo(folder: Path, console: Console, labs: Sequence[Lab] = LABS) -> list[Class]:
    """Build, hand in, grade and report, all in a new `folder`; return each lab's class."""
    fresh(folder)
    course = Course(folder)
    with console.status("building the course folder"):
        write_source(course.root)
    graded: list[Class] = []
    with GradingPool(unsandboxed=True) as pool:  # the submissions are ours
        for lab in labs:
            with console.status(f"lab {lab.number}: making a class, starting the judge"):
                course.release(lab)
                for learner in small_class(lab, course.released(lab), whole=lab is LABS[0]):
                    hand_in(folder, lab, learner)
            graded.append(
                grade_and_report(course, lab, console, pool, brief=lab is not LABS[0])
            )
            if lab is LABS[0] and len(labs) > 1:
                console.print("\nThe other labs, each with a class of a few notebooks:\n")
    console.print(
        f"\nThe class, lab by lab: open {course.root}/class.html\n"
        "Talk with the model: tinyllm chat",
        markup=False, highlight=False, soft_wrap=True,
    )  # fmt: skip
    return graded


def fresh(folder: Path) -> None:
    """Empty the folder. Errors: CourseError if an earlier demo did not make it."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARKER).exists():
            raise CourseError(f"{folder} holds something else; name another with --out")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).touch()
