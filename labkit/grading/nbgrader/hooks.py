"""Where nbgrader meets the judge: the classes that nbgrader_config.py names."""

from __future__ import annotations

import logging
import os
from functools import cache
from pathlib import Path
from typing import Any

from nbconvert.exporters import NotebookExporter
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_solution

from labkit.core import cells
from labkit.core.syllabus import find_exercise, find_lab
from labkit.grading.judge.assembly import earlier_labs
from labkit.grading.judge.intake import EMPTY_ANSWER
from labkit.grading.judge.judge import Judge
from labkit.grading.judge.sandbox import required
from labkit.grading.nbgrader.course import Course, SubmittedFile
from labkit.grading.run.pool import running_workers

REQUIRE = "TINYLLM_REQUIRE_SANDBOX"  # set: refuse to grade without bubblewrap


class Stubs(NbGraderPreprocessor):
    """Takes the answers out: the course's stubs, which name their exercise, and blank texts."""

    def preprocess_cell(
        self, cell: NotebookNode, resources: dict, index: int
    ) -> tuple[NotebookNode, dict]:
        exercise_id = cells.exercise_in(cell.source) if cell.cell_type == "code" else None
        if exercise_id:
            cell.source = cells.stub(cell.source, find_exercise(exercise_id)[1])
        elif is_solution(cell):
            cell.source = EMPTY_ANSWER
        return cell, resources


class Judged(NotebookExporter):
    """Reads a submission, whatever it is, as the released notebook with verdicts in it.

    nbgrader converts twice: from submitted/ to autograded/, where this class does its work,
    and once more within autograded/, where it reads back what it wrote.
    """

    def from_filename(
        self, filename: str, resources: dict | None = None, **options: Any
    ) -> tuple[str, dict]:
        if not self.parent._sanitizing:
            return super().from_filename(filename, resources, **options)
        root = Path(self.parent.coursedir.root)
        names = resources["nbgrader"]
        judge = judge_of(root, names["assignment"])
        before = Course(root).answers(earlier_labs(judge.lab), names["student"])
        handed = SubmittedFile(names["student"], judge.lab, Path(filename))
        submission = judge.grade(handed.read(), before)
        if submission.problem:
            self.log.warning("%s: %s", filename, submission.problem)
        return self.from_notebook_node(submission.notebook, resources, **options)


@cache
def judge_of(root: Path, lab_name: str) -> Judge:
    """One judge a lab for the life of nbgrader's process."""
    lab, course = find_lab(lab_name), Course(root)
    workers = running_workers()
    if os.environ.get(REQUIRE):
        required(workers.sandbox)
    elif workers.sandbox.bubblewrap is None:
        logging.getLogger("traitlets").warning("NO SANDBOX: %s", workers.sandbox.lacking)
    return Judge(lab, course.released(lab), course.secret(), workers)
