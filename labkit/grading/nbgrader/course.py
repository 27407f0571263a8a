"""The course folder: nbgrader's directories and gradebook, filled and read through nbgrader."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator
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

from labkit.author.owned_cells import set_points
from labkit.course.files import write_whole
from labkit.course.paths import ROOT
from labkit.course.syllabus import Lab
from labkit.grading.course_rules import CourseRules, RulesError, read_rules
from labkit.grading.judge.intake import cell_called, rebuild
from labkit.grading.nbgrader import standings
from labkit.grading.nbgrader.exchange_files import copy_exchange_files, handed_in_at
from labkit.grading.nbgrader.gradebook import connection
from labkit.grading.nbgrader.gradebook.connection import (
    COURSE_ID,
    CourseError,
    GradebookConnection,
    LatePenalty,
    RosterEntry,
)
from labkit.grading.nbgrader.gradebook.lateness import lateness
from labkit.grading.nbgrader.gradebook.rows import GradebookRow, record
from labkit.grading.nbgrader.graded_notebook import file_content
from labkit.grading.nbgrader.plugins import CoursePenalty
from labkit.grading.nbgrader.published import Published
from labkit.grading.nbgrader.standings import Standing
from labkit.grading.nbgrader.submitted import GradedFile, Remark, SubmittedFile
from labkit.grading.nbgrader.timestamp import read_manifest


class Course:
    """One course folder, `course/` by default.

    database    the gradebook's address; else nbgrader's `c.CourseDirectory.db_url`, else
                gradebook.db in the folder
    """

    def __init__(self, root: Path, database: str | None = None):
        self.root = root.resolve()
        self.database_option = database
        self.remarks: list[Remark] = []  # for the instructor

    @property
    def database(self) -> str:
        file = f"sqlite:///{self.root}/gradebook.db"
        return self.config().CourseDirectory.get("db_url", file)

    @cached_property
    def gradebook(self) -> GradebookConnection:
        """The gradebook, as long as this object lives."""
        course_id = self.config().CourseDirectory.get("course_id", COURSE_ID)
        return GradebookConnection(self.database, course_id)

    @cached_property
    def late(self) -> LatePenalty:
        """The late penalty; its plugin may be in the course folder or in the current one."""
        late = LatePenalty(self.config(), (self.root, ROOT, Path.cwd()))
        if self.rules.percent_a_day is not None and not isinstance(late.plugin, CoursePenalty):
            raise CourseError(
                "lateness costs what course.toml says, percent_a_day, or what the plugin "
                f"{type(late.plugin).__name__} of nbgrader_config.py says: take one away"
            )
        return late

    @cached_property
    def rules(self) -> CourseRules:
        """The rules in its course.toml, read once."""
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
        if self.database_option:
            config.CourseDirectory.db_url = self.database_option
        return config

    def api(self) -> NbGraderAPI:
        return NbGraderAPI(config=self.config())

    # The release

    def release(self, lab: Lab) -> None:
        """Run nbgrader generate_assignment: make learners' notebook and gradebook rows."""
        outcome = self.api().generate_assignment(lab.name)
        if not outcome["success"]:
            log = outcome.get("log") or outcome.get("error") or outcome
            raise CourseError(f"nbgrader generate_assignment failed:\n{log}")

    def released_file(self, lab: Lab) -> Path:
        return self.root / "release" / lab.name / f"{lab.name}.ipynb"

    def released(self, lab: Lab) -> NotebookNode:
        """Return the released notebook with the current points; CourseError if unusable."""
        path = self.released_file(lab)
        try:
            notebook = nbformat.read(path, as_version=4)
            for name in sorted(lab.cells):
                cell_called(notebook, name)
        except FileNotFoundError:
            fault, force = "is missing", ""
        except Exception as error:  # nbformat raises errors of any type
            fault, force = f"cannot be used ({error})", " --force"
        else:
            set_points(notebook, self.rules.lab(lab))
            for cell in notebook.cells:
                if "checksum" in cell.metadata.get("nbgrader", {}):
                    cell.metadata.nbgrader.checksum = compute_checksum(cell)
            return notebook
        raise CourseError(
            f"{path} {fault}: run `tinyllm build --course {self.root}`, then `nbgrader "
            f"generate_assignment {lab.name}{force}`"
        )

    def ready(self, lab: Lab) -> None:
        """Raise CourseError if a lab cannot be graded here, for example because the gradebook
        has the tables of a different nbgrader."""
        self.released(lab)
        if not self.has_gradebook:
            raise CourseError(
                f"there is no gradebook {self.gradebook.shown}: run `nbgrader "
                f"generate_assignment {lab.name}` first"
            )
        self.gradebook.do(lambda book: bool(book.find_assignment(lab.name)))
        self.standings(lab)

    def secret(self) -> bytes:
        """The seed of the numbers in hidden checks; it is drawn once per course folder."""
        path = self.root / ".secret"
        if not path.exists():
            write_whole(path, secrets.token_bytes(32))
            path.chmod(0o600)
        return path.read_bytes()

    # Submissions

    def submitted(self, lab: Lab, only: Collection[str] = ()) -> Iterator[SubmittedFile]:
        """Yield gradable submissions, of all learners or some; others become remarks."""
        folder = self.root / "submitted"
        for path in sorted(folder.glob(f"*/{lab.name}/{lab.name}.ipynb")):
            handed = SubmittedFile(path.parent.parent.name, lab, path)
            if only and handed.learner not in only:
                continue
            if handed.problem:
                self.remarks.append(handed.remark)
            else:
                yield handed

    def submitted_file(self, lab: Lab, learner: str) -> SubmittedFile:
        path = self.root / "submitted" / learner / lab.name / f"{lab.name}.ipynb"
        return SubmittedFile(learner, lab, path)

    def answers(self, labs: Iterable[Lab], learner: str) -> dict[Lab, dict[str, str | None]]:
        """The exercise cells that a learner handed in, of those labs that were released."""
        found = {}
        for lab in labs:
            handed = self.submitted_file(lab, learner)
            if not handed.problem and self.released_file(lab).exists():
                found[lab] = rebuild(handed.read(), self.released(lab), lab).answers
        return found

    def without_notebook(self, lab: Lab) -> list[str]:
        """Learners whose folder in submitted/ has no notebook of this lab."""
        folders = {path.name for path in (self.root / "submitted").glob("*") if path.is_dir()}
        return sorted(folders - {handed.learner for handed in self.submitted(lab)})

    # Results

    def store(self, lab: Lab, graded: Iterable[GradedFile]) -> None:
        """Write scores into the gradebook, as nbgrader's own code would, then the graded
        notebooks into autograded/; rows and files that are up to date stay as they are.

        Raises CourseError if the gradebook cannot be used.
        """
        rules, rows = self.rules.of(lab), []
        for handed, submission, notebook, before in graded:
            when, fault = handed_in_at(handed.path.parent)
            self.remarks += [Remark(fault, handed.learner)] * bool(fault)
            rows.append(GradebookRow(handed.learner, when, submission, notebook, before))
        if not rows:
            return
        learners = [row.learner for row in rows]
        known = self.gradebook.do(lambda book: standings.standings(book, rules, learners))
        new = [row for row in rows if not row.is_in(known.get(row.learner))]
        if new:
            self.gradebook.do(lambda book: record(book, self.late, rules, new))
        for row in rows:
            path = self.autograded(lab, row.learner)
            if row.notebook != row.before:
                write_whole(path, file_content(row.notebook))
            handed = self.submitted_file(lab, row.learner)
            copy_exchange_files(handed.path.parent, path.parent)

    def autograded(self, lab: Lab, learner: str) -> Path:
        """Return the graded notebook."""
        return self.root / "autograded" / learner / lab.name / f"{lab.name}.ipynb"

    def people(self) -> list[RosterEntry]:
        """Return nbgrader's students; [] without a gradebook."""
        return self.gradebook.do(connection.people) if self.has_gradebook else []

    def due_dates(self) -> dict[str, datetime]:
        """Return {lab: when it was due, in UTC}, for labs with a due date."""

        def dates(book) -> dict[str, datetime]:
            due = {a.name: a.duedate for a in book.assignments if a.duedate}
            return {name: date.replace(tzinfo=timezone.utc) for name, date in due.items()}

        found = self.gradebook.do(dates) if self.has_gradebook else {}
        return found | dict(self.rules.deadlines)

    @property
    def has_gradebook(self) -> bool:
        """Whether the gradebook exists; always True for a server."""
        if not self.database.startswith("sqlite:///"):
            return True
        path = Path(make_url(self.database).database or "")
        return path.is_file() and path.stat().st_size > 0

    def standings(self, lab: Lab, only: Collection[str] = ()) -> dict[str, Standing]:
        """Return {learner: standing} for those in the gradebook, or for some, with the previous
        grade that they got, if it was different; without a time if only a mark tells whether it
        came late."""
        rules = self.rules.of(lab)
        found = self.gradebook.do(lambda book: standings.standings(book, rules, only or None))
        for key, entry in read_manifest(self.root).items():
            learner, _, name = key.partition("/")
            if name == lab.name and entry.get("late") is not None and learner in found:
                found[learner].handed_at = None
        if rules.grace_minutes or rules.late_days:
            for learner, late in self.gradebook.do(lambda book: lateness(book, rules)).items():
                if learner in found:
                    found[learner].lateness = late
        published = Published(self.root, lab.name)
        for learner, standing in found.items():
            standing.given_out = published.other_totals(learner, standing.total)
        return found

    def feedback(self, lab: Lab, learners: Collection[str] = ()) -> list[Path]:
        """Return the pages of these learners, by default of all graded ones; pages are
        rewritten only if something changed.

        A page that cannot be made is a remark: the others are there.
        """
        from labkit.grading.nbgrader.feedback import write_pages

        rules, standings = self.rules.of(lab), self.standings(lab, learners)
        pages, faults = write_pages(self.root, rules, self.people(), standings, learners)
        self.remarks += [Remark(fault, learner, lab.name) for learner, fault in faults.items()]
        return pages
