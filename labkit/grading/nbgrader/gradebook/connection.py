"""The connection to nbgrader's gradebook, SQLite or PostgreSQL, and its table of students."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from nbgrader.api import Gradebook, InvalidEntry, MissingEntry
from nbgrader.preprocessors import AssignLatePenalties
from sqlalchemy import Engine, create_engine, inspect, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SAWarning
from traitlets import TraitError
from traitlets.config import Config

from labkit.course.report import clean_name, csv_safe

T = TypeVar("T")
COURSE_ID = "tinyllm"
NBGRADERS_TABLES = {"student", "assignment", "grade"}  # tables in every version of nbgrader


class NotAGradebook(Exception):
    """The database has other tables; the message names them."""


# (exception, pattern of its text, message): the first that fits
FAULTS = (
    (NotAGradebook, "", "{shown} is no gradebook: it holds other tables ({reason}). Nothing "
     "was written; name the right one with --db or in nbgrader_config.py"),
    (MissingEntry, "", "{reason} in {shown}: run `nbgrader generate_assignment` first"),
    (UnicodeEncodeError, "", "{shown} cannot hold a text ({reason}): a gradebook needs the "
     "encoding UTF-8 (createdb -E UTF8)"),
    (ModuleNotFoundError, "", "{shown} cannot be reached ({reason}): `pip install -c "
     "constraints.txt -e .[postgres]` installs what PostgreSQL needs"),
    ((ArgumentError, NoSuchModuleError), "", "{shown} is no database address: {reason}"),
    (DBAPIError, "not a database|malformed", "{shown} is no gradebook, or damaged: {reason}. "
     "Nothing was written"),
    (DBAPIError, "no such column|no column named|column .* does not exist", "an older nbgrader "
     "made {shown} ({reason}): copy the file, then run `nbgrader db upgrade`"),
    ((DBAPIError, InvalidEntry), "", "the gradebook {shown} cannot be used: {reason}. What is "
     "in it is whole; see that the database runs and that no other program holds it, and give "
     "the same command again: it goes on from here"),
)  # fmt: skip


class CourseError(Exception):
    """The course folder or its gradebook cannot be used; the message says why."""


@dataclass(frozen=True)
class RosterEntry:
    """A row of nbgrader's students."""

    id: str
    first_name: str = ""
    last_name: str = ""
    email: str = ""
    lms_user_id: str = ""

    @property
    def name(self) -> str:
        return f"{self.first_name} {self.last_name}".strip()


class GradebookConnection:
    """A gradebook that is opened when it is first used."""

    def __init__(self, url: str, course_id: str = COURSE_ID):
        self.url, self.course_id = url, course_id
        self.gradebook: Gradebook | None = None

    @property
    def shown(self) -> str:
        """The address without its password."""
        try:
            return make_url(self.url).render_as_string(hide_password=True)
        except ArgumentError:
            return "the gradebook's address"

    def close(self) -> None:
        gradebook, self.gradebook = self.gradebook, None
        if gradebook is not None:
            gradebook.close()

    def do(self, work: Callable[[Gradebook], T]) -> T:
        """Do `work` in one short transaction; CourseError if it cannot be done."""
        try:
            with warnings.catch_warnings():
                # SQLAlchemy's warnings about nbgrader's use of it
                warnings.simplefilter("ignore", SAWarning)
                if self.gradebook is None:
                    refuse_other_tables(create_engine(self.url))
                    self.gradebook = Gradebook(self.url, self.course_id)
                done = work(self.gradebook)
                self.gradebook.db.remove()  # ends the transaction of a read
                return done
        except BaseException as error:
            self.close()
            reason = str(getattr(error, "orig", None) or error).strip().split("\n")[0]
            for kinds, pattern, sentence in FAULTS:
                if isinstance(error, kinds) and re.search(pattern, reason):
                    text = sentence.format(shown=self.shown, reason=reason)
                    raise CourseError(text) from error
            raise


def refuse_other_tables(engine: Engine) -> None:
    """Raise NotAGradebook for other tables, to which nbgrader would add its own."""
    tables = set(inspect(engine).get_table_names())
    engine.dispose()
    if tables and NBGRADERS_TABLES - tables:
        raise NotAGradebook(", ".join(sorted(tables)[:4]))


class LatePenalty:
    """The late submission plugin of nbgrader_config.py, by default nbgrader's own; it may be in
    one of `folders`."""

    def __init__(self, config: Config, folders: Iterable[Path] = ()):
        sys.path += [folder for folder in map(str, folders) if folder not in sys.path]
        try:
            preprocessor = AssignLatePenalties(config=config)
            preprocessor.init_plugin()
        except (TraitError, ImportError) as error:
            raise CourseError(f"the late submission plugin cannot be used: {error}") from error
        self.plugin = preprocessor.plugin_inst

    def penalty(self, learner: str, score: float, seconds: float) -> float | None:
        """Return the points to take off, at most the score; None if nothing is taken off."""
        if seconds <= 0:
            return None
        try:
            penalty = self.plugin.late_submission_penalty(learner, score, seconds)
        except Exception as error:  # a course's own plugin may raise anything
            raise CourseError(
                f"the late submission plugin {type(self.plugin).__name__} failed on "
                f"{learner!r}: {type(error).__name__}: {error}"
            ) from error
        return None if penalty is None else round(min(max(penalty, 0.0), score), 2)


def people(gradebook: Gradebook) -> list[RosterEntry]:
    fields = ("id", "first_name", "last_name", "email", "lms_user_id")
    return [RosterEntry(*(getattr(s, f) or "" for f in fields)) for s in gradebook.students]


def enrol(gradebook: Gradebook, roster: Iterable[RosterEntry]) -> None:
    """Put a roster into nbgrader's students; fields that it lacks stay as they are.

    nbgrader's pages and `nbgrader export` write these texts as they are: none may contain
    markup or begin a spreadsheet's formula.
    """
    for person in roster:
        names = {k: clean_name(v) for k, v in vars(person).items() if k != "id"}
        fields = {k: csv_safe(v) for k, v in names.items() if v}
        gradebook.update_or_create_student(person.id, **fields)
