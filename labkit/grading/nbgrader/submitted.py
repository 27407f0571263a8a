"""The stages of a submission: the file that was handed in, its verdicts, its graded
notebook."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from nbformat import NotebookNode

from labkit.course.files import read_plain
from labkit.course.syllabus import Lab
from labkit.grading.judge.graded import GradedSubmission
from labkit.grading.judge.notebook_file import MAX_NOTEBOOK

NO_NAME = re.compile(
    r"[\r\n\ud800-\udfff]"
)  # characters in names that nbgrader and databases cannot store


class Remark(NamedTuple):
    """A remark for the instructor on a learner's work in a lab, or on the course.

    lab    its name, if remarks on several labs may come together
    """

    text: str
    learner: str = ""
    lab: str = ""

    def __str__(self) -> str:
        about = ", ".join(filter(None, [self.lab, self.learner]))
        return f"{about}: {self.text}" if about else self.text


@dataclass(frozen=True)
class SubmittedFile:
    """One submission in submitted/."""

    learner: str
    lab: Lab
    path: Path

    @property
    def problem(self) -> str:
        """The reason why it belongs to no learner or cannot be read; "" if there is none."""
        if NO_NAME.search(self.learner):
            return "the folder's name has line breaks, or letters that are no UTF-8"
        if self.path.resolve() != self.path:
            return "a link leads there, perhaps to another learner's work"
        if not self.path.is_file() or not os.access(self.path, os.R_OK):
            return f"{self.path.name} is no file to be read"
        return ""

    @property
    def remark(self) -> Remark:
        return Remark(f"{self.problem}; not graded", self.learner)

    def read(self) -> bytes:
        """Return the content of the file; only the beginning of a file that is too large."""
        try:
            return b"" if self.problem else read_plain(self.path, MAX_NOTEBOOK + 1)
        except OSError:  # or deleted, while the class is graded
            return b""


class GradedFile(NamedTuple):
    """A submission, its verdicts, its graded notebook, and the previous graded notebook; if
    these are the same object, it is up to date."""

    handed: SubmittedFile
    submission: GradedSubmission
    notebook: NotebookNode
    before: NotebookNode | None = None
