"""The course folder: nbgrader's directories and gradebook, filled and read through nbgrader."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from nbgrader.utils import parse_utc
from sqlalchemy.exc import SAWarning
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from labkit.build import ROOT, filled, notebook_path, read_notebook, serialised
from labkit.grading.gradebook import Entry, record
from labkit.grading.intake import rebuild
from labkit.grading.results import Verdict
from labkit.syllabus import LABS, Lab


class CourseError(Exception):
    """The course folder is not as it has to be; the message says what to do."""


@dataclass(frozen=True)
class Handed:
    """One submission as it lies in submitted/."""

    learner: str
    lab: Lab
    path: Path


def told(outcome: dict) -> str:
    """What an nbgrader command said when it failed."""
    return str(outcome.get("log") or outcome.get("error") or outcome)


@contextmanager
def quiet() -> Iterator[None]:
    """Without nbgrader's warnings about its own use of SQLAlchemy, one for each learner."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SAWarning)
        yield


class Course:
    """One course folder, `course/` by default."""

    def __init__(self, root: Path):
        self.root = root.resolve()

    @property
    def database(self) -> str:
        return (
            self.config().CourseDirectory.get("db_url") or f"sqlite:///{self.root}/gradebook.db"
        )

    def config(self) -> Config:
        """nbgrader's configuration with this folder as its root."""
        path = self.root / "nbgrader_config.py"
        folder = self.root if path.exists() else ROOT
        config = PyFileConfigLoader("nbgrader_config.py", str(folder)).load_config()
        config.CourseDirectory.root = str(self.root)
        return config

    def api(self) -> NbGraderAPI:
        scripts = str(Path(sys.executable).parent)  # nbgrader starts `alembic` from PATH
        if scripts not in os.environ.get("PATH", "").split(os.pathsep):
            os.environ["PATH"] = scripts + os.pathsep + os.environ.get("PATH", "")
        return NbGraderAPI(config=self.config())

    # What the instructor makes

    def build_source(self) -> list[Path]:
        """The instructor edition: source/LAB/LAB.ipynb with the reference in every answer."""
        written = []
        for lab in LABS:
            path = self.root / "source" / lab.name / f"{lab.name}.ipynb"
            path.parent.mkdir(parents=True, exist_ok=True)
            notebook = filled(lab, read_notebook(notebook_path(lab)), solved=True)
            path.write_bytes(serialised(notebook))
            written.append(path)
        shutil.copyfile(ROOT / "nbgrader_config.py", self.root / "nbgrader_config.py")
        return written

    def release(self, lab: Lab) -> None:
        """nbgrader generate_assignment: the learner's notebook, and the gradebook's rows."""
        outcome = self.api().generate_assignment(lab.name)
        if not outcome["success"]:
            raise CourseError(f"nbgrader generate_assignment failed:\n{told(outcome)}")

    def released(self, lab: Lab) -> NotebookNode:
        """The notebook that learners were given."""
        path = self.root / "release" / lab.name / f"{lab.name}.ipynb"
        if not path.exists():
            raise CourseError(
                f"{path} is missing: run `tinyllm build --course {self.root}`, then "
                f"`nbgrader generate_assignment {lab.name}`"
            )
        return nbformat.read(path, as_version=4)

    def secret(self) -> bytes:
        """What the numbers of hidden checks are drawn from; made once for the course folder."""
        path = self.root / ".secret"
        if not path.exists():
            path.write_bytes(secrets.token_bytes(32))
            path.chmod(0o600)
        return path.read_bytes()

    # What the learners hand in

    def submitted(self, lab: Lab) -> Iterator[Handed]:
        folder = self.root / "submitted"
        for path in sorted(folder.glob(f"*/{lab.name}/{lab.name}.ipynb")):
            yield Handed(path.parent.parent.name, lab, path)

    def answers(self, labs: Iterable[Lab], learner: str) -> dict[Lab, dict[str, str | None]]:
        """The exercise cells that a learner handed in, of those labs that were released."""
        found = {}
        for lab in labs:
            notebook = Path(lab.name, f"{lab.name}.ipynb")
            path = self.root / "submitted" / learner / notebook
            if path.exists() and (self.root / "release" / notebook).exists():
                found[lab] = rebuild(path.read_bytes(), self.released(lab), lab).answers
        return found

    def without(self, lab: Lab) -> list[str]:
        """Learners with a folder in submitted/ and no notebook of this lab in it."""
        folders = {path.name for path in (self.root / "submitted").glob("*") if path.is_dir()}
        return sorted(folders - {handed.learner for handed in self.submitted(lab)})

    # What comes out

    def autograded(self, handed: Handed) -> Path:
        """Where nbgrader looks for the graded notebook."""
        return self.root / "autograded" / handed.learner / handed.lab.name / handed.path.name

    def record(self, lab: Lab, graded: list[tuple[Handed, Verdict]]) -> None:
        """The scores into the gradebook, just as `nbgrader autograde` puts them there."""
        entries = []
        for handed, verdict in graded:
            stamp = handed.path.parent / "timestamp.txt"
            when = parse_utc(stamp.read_text().strip()) if stamp.exists() else None
            person = frozenset(verdict.for_a_person)
            entries.append(
                Entry(handed.learner, when, verdict.grades, verdict.comments, person)
            )
        with quiet():
            record(self.database, self.config(), lab.name, entries)

    def scores(self, lab: Lab) -> dict[str, dict[str, float]]:
        """{learner: {grade cell: score}} as the gradebook has them."""
        with Gradebook(self.database, "tinyllm") as gradebook:
            return {
                submission.student.id: {
                    grade.name: grade.score
                    for book in submission.notebooks
                    for grade in book.grades
                }
                for submission in gradebook.assignment_submissions(lab.name)
            }

    def feedback(self, lab: Lab) -> list[Path]:
        """nbgrader generate_feedback for all that was graded; the HTML files."""
        with quiet():
            outcome = self.api().generate_feedback(lab.name, force=True)
        if not outcome["success"]:
            raise CourseError(f"nbgrader generate_feedback failed:\n{told(outcome)}")
        return sorted(self.root.glob(f"feedback/*/{lab.name}/{lab.name}.html"))
