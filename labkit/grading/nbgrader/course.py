"""The course folder: nbgrader's directories and gradebook, filled and read through nbgrader."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbgrader.apps import NbGraderAPI
from nbgrader.utils import compute_checksum
from sqlalchemy import make_url
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from labkit.author.course_rules import CourseRules, RulesError, read_rules
from labkit.author.owned_cells import set_points
from labkit.core.files import read_plain, write_whole
from labkit.core.paths import ROOT
from labkit.core.syllabus import Lab
from labkit.grading.judge.graded import GradedSubmission
from labkit.grading.judge.intake import MAX_NOTEBOOK, cell_called, rebuild
from labkit.grading.nbgrader import standings
from labkit.grading.nbgrader.exchange_files import copy_exchange_files, odd_files
from labkit.grading.nbgrader.gradebook import connection
from labkit.grading.nbgrader.gradebook.connection import (
    COURSE_ID,
    CourseError,
    GradebookConnection,
    LatePenalty,
    RosterEntry,
)
from labkit.grading.nbgrader.gradebook.rows import GradebookRow, record
from labkit.grading.nbgrader.graded_notebook import file_content, read_content
from labkit.grading.nbgrader.marks import marks_of
from labkit.grading.nbgrader.plugins import CoursePenalty
from labkit.grading.nbgrader.standings import Standing
from labkit.grading.nbgrader.timestamp import STAMP_BYTES, parse_timestamp
from labkit.lang import tr

NO_NAME = re.compile(r"[\r\n\ud800-\udfff]")  # nbgrader and databases cannot keep it


@dataclass(frozen=True)
class SubmittedFile:
    """One submission as it lies in submitted/."""

    learner: str
    lab: Lab
    path: Path

    @property
    def problem(self) -> str:
        """Why it is nobody's work, or cannot be read; empty if all is well."""
        if NO_NAME.search(self.learner):
            return tr("the folder's name has line breaks, or letters that are no UTF-8")
        path = self.path
        if path.resolve() != path:
            return tr("a link leads there, perhaps to another one's work")
        if not path.is_file() or not os.access(path, os.R_OK):
            return tr("{name} is no file to be read", name=path.name)
        return ""

    @property
    def remarks(self) -> list[str]:
        """What the instructor should know of it, before it is graded."""
        if self.problem:
            return [f"{self.learner}: {self.problem}; not graded"]
        odd = odd_files(self.path.parent)
        text = f"links or special files beside the notebook, not opened and not copied: {odd}"
        return [f"{self.learner}: {text}"] if odd else []

    def read(self) -> bytes:
        """What is in it; of a file that is too large as much as it takes to refuse it."""
        try:
            return b"" if self.problem else read_plain(self.path, MAX_NOTEBOOK + 1)
        except OSError:  # or no more, while the class is graded
            return b""


def succeeded(command: str, outcome: dict) -> None:
    """Raises what an nbgrader command wrote if it failed."""
    if not outcome["success"]:
        log = outcome.get("log") or outcome.get("error") or outcome
        raise CourseError(tr("nbgrader {command} failed:\n{log}", command=command, log=log))


class Course:
    """One course folder, `course/` by default.

    database    the gradebook's address; else nbgrader's `c.CourseDirectory.db_url`, else
                gradebook.db in the folder
    """

    def __init__(self, root: Path, database: str | None = None):
        self.root = root.resolve()
        self.named = database
        self.remarks: list[str] = []  # what the instructor should know

    @property
    def database(self) -> str:
        file = f"sqlite:///{self.root}/gradebook.db"
        return self.config().CourseDirectory.get("db_url", file)

    @cached_property
    def gradebook(self) -> GradebookConnection:
        """The gradebook, as long as this object lives; one writer."""
        course_id = self.config().CourseDirectory.get("course_id", COURSE_ID)
        return GradebookConnection(self.database, course_id)

    @cached_property
    def late(self) -> LatePenalty:
        """Penalties; plugins may stand in the course folder or where one works."""
        late = LatePenalty(self.config(), (self.root, ROOT, Path.cwd()))
        own = type(late.nbgrader.plugin_inst)
        if self.rules.percent_a_day is not None and not issubclass(own, CoursePenalty):
            raise CourseError(
                tr(
                    "lateness costs what course.toml says, percent_a_day, or what the "
                    "plugin {name} of nbgrader_config.py says: take one of them away",
                    name=own.__name__,
                )
            )
        return late

    @cached_property
    def rules(self) -> CourseRules:
        """What its course.toml says, read once."""
        try:
            return read_rules(self.root)
        except RulesError as error:
            raise CourseError(str(error)) from error

    def config(self) -> Config:
        """nbgrader's configuration with this folder as its root."""
        path = self.root / "nbgrader_config.py"
        folder = self.root if path.exists() else ROOT
        config = PyFileConfigLoader("nbgrader_config.py", str(folder)).load_config()
        config.CourseDirectory.root = str(self.root)
        if self.named:
            config.CourseDirectory.db_url = self.named
        return config

    def api(self) -> NbGraderAPI:
        return NbGraderAPI(config=self.config())

    # What learners are given

    def release(self, lab: Lab) -> None:
        """nbgrader generate_assignment: the learner's notebook, and the gradebook's rows."""
        succeeded("generate_assignment", self.api().generate_assignment(lab.name))

    def released(self, lab: Lab) -> NotebookNode:
        """The notebook that learners were given, with the points of now; CourseError if it
        cannot be graded with."""
        path = self.root / "release" / lab.name / f"{lab.name}.ipynb"
        try:
            notebook = nbformat.read(path, as_version=4)
            for name in sorted(lab.cells):
                cell_called(notebook, name)
        except FileNotFoundError:
            fault, force = tr("is missing"), ""
        except Exception as error:  # nbformat raises whatever it stumbles over
            fault, force = tr("cannot be used ({error})", error=error), " --force"
        else:
            set_points(notebook, self.rules.lab(lab))
            for cell in notebook.cells:
                if "checksum" in cell.metadata.get("nbgrader", {}):
                    cell.metadata.nbgrader.checksum = compute_checksum(cell)
            return notebook
        raise CourseError(
            tr(
                "{path} {fault}: run `tinyllm build --course {root}`, then `nbgrader "
                "generate_assignment {name}{force}`",
                path=path,
                fault=fault,
                root=self.root,
                name=lab.name,
                force=force,
            )
        )

    def ready(self, lab: Lab) -> None:
        """CourseError if a lab cannot be graded here, before anything is begun."""
        self.released(lab)
        if not self.has_gradebook:
            raise CourseError(
                tr(
                    "there is no gradebook {shown}: run `nbgrader generate_assignment "
                    "{name}` first",
                    shown=self.gradebook.shown,
                    name=lab.name,
                )
            )
        self.gradebook.do(lambda book: bool(book.find_assignment(lab.name)))

    def secret(self) -> bytes:
        """What the numbers of hidden checks are drawn from; made once for the course folder."""
        path = self.root / ".secret"
        if not path.exists():
            write_whole(path, secrets.token_bytes(32))
            path.chmod(0o600)
        return path.read_bytes()

    # What the learners hand in

    def submitted(self, lab: Lab) -> Iterator[SubmittedFile]:
        folder = self.root / "submitted"
        for path in sorted(folder.glob(f"*/{lab.name}/{lab.name}.ipynb")):
            handed = SubmittedFile(path.parent.parent.name, lab, path)
            self.remarks += handed.remarks
            if not handed.problem:
                yield handed

    def submitted_file(self, lab: Lab, learner: str) -> SubmittedFile:
        path = self.root / "submitted" / learner / lab.name / f"{lab.name}.ipynb"
        return SubmittedFile(learner, lab, path)

    def answers(self, labs: Iterable[Lab], learner: str) -> dict[Lab, dict[str, str | None]]:
        """The exercise cells that a learner handed in, of those labs that were released."""
        found = {}
        for lab in labs:
            handed = self.submitted_file(lab, learner)
            released = self.root / "release" / lab.name / f"{lab.name}.ipynb"
            if not handed.problem and released.exists():
                found[lab] = rebuild(handed.read(), self.released(lab), lab).answers
        return found

    def missing(self, lab: Lab) -> list[str]:
        """Learners with a folder in submitted/ and no notebook of this lab in it."""
        folders = {path.name for path in (self.root / "submitted").glob("*") if path.is_dir()}
        return sorted(folders - {handed.learner for handed in self.submitted(lab)})

    # What comes out

    def store(
        self,
        lab: Lab,
        graded: Iterable[tuple[SubmittedFile, GradedSubmission, NotebookNode]],
        unchanged: Collection[str] = (),
    ) -> None:
        """The scores into the gradebook, just as `nbgrader autograde` puts them there, then
        the graded notebooks into autograded/.

        unchanged    learners of whom the same was graded before, should autograded/ be gone
        """
        rows, rules = [], self.rules.of(lab)
        for handed, submission, notebook in graded:
            before = read_content(self.autograded(lab, handed.learner))
            if before is None and handed.learner in unchanged:
                before = notebook
            when = self.handed_at(handed)
            rows.append(GradebookRow(handed.learner, when, submission, notebook, before))
        self.gradebook.do(lambda book: record(book, self.late, rules, rows))
        for row in rows:
            path = self.autograded(lab, row.learner)
            if row.notebook != row.before or not path.exists():
                write_whole(path, file_content(row.notebook))
            handed = self.submitted_file(lab, row.learner)
            copy_exchange_files(handed.path.parent, path.parent)

    def autograded(self, lab: Lab, learner: str) -> Path:
        """The graded notebook."""
        return self.root / "autograded" / learner / lab.name / f"{lab.name}.ipynb"

    def handed_at(self, handed: SubmittedFile) -> datetime | None:
        """What timestamp.txt beside the notebook says, in UTC; None without one."""
        try:
            text = read_plain(handed.path.with_name("timestamp.txt"), STAMP_BYTES)
        except FileNotFoundError:
            return None
        except OSError:
            text = b""
        if when := parse_timestamp(text):
            return when.replace(tzinfo=None)  # as the gradebook keeps it
        expected = "expected a line such as 2026-03-01 12:00:00 UTC"
        self.remarks.append(
            f"{handed.learner}: timestamp.txt holds no time ({expected}); not late"
        )
        return None

    def people(self) -> list[RosterEntry]:
        """nbgrader's students; nobody where there is no gradebook yet."""
        return self.gradebook.do(connection.people) if self.has_gradebook else []

    def due_dates(self) -> dict[str, datetime]:
        """{lab: when it was due, in UTC}, for labs with a due date."""
        if not self.has_gradebook:
            return dict(self.rules.deadlines)
        return self.gradebook.do(
            lambda book: {
                one.name: one.duedate.replace(tzinfo=timezone.utc)
                for one in book.assignments
                if one.duedate
            }
        ) | dict(self.rules.deadlines)

    @property
    def has_gradebook(self) -> bool:
        """False where it would be a file and there is none; a server is asked."""
        if not self.database.startswith("sqlite:///"):
            return True
        path = Path(make_url(self.database).database or "")
        return path.is_file() and path.stat().st_size > 0

    def standings(self, lab: Lab) -> dict[str, Standing]:
        """{learner: what they earned} of those in the gradebook."""
        rules = self.rules.of(lab)
        return self.gradebook.do(lambda book: standings.standings(book, rules))

    def feedback(
        self, lab: Lab, progress: Callable[[int, int], None] = lambda *_: None
    ) -> list[Path]:
        """The page of every learner that was graded, made anew where something changed.

        A page that cannot be made is a remark: the others are there.
        """
        from labkit.grading.nbgrader.feedback_pages import write_pages

        rules = self.rules.of(lab)
        given = self.gradebook.do(lambda book: marks_of(book, rules, self.root))
        pages, failed = write_pages(self.root, rules.lab, given, progress)
        self.remarks += [
            tr("{learner}: no page of feedback could be made: {why}", learner=learner, why=why)
            for learner, why in failed.items()
        ]
        return pages
