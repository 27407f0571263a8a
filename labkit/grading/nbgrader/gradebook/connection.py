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
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
    SAWarning,
)
from traitlets import TraitError
from traitlets.config import Config

from labkit.core.report import clean_name, csv_safe

T = TypeVar("T")
COURSE_ID = "tinyllm"
NBGRADERS_TABLES = {"student", "assignment", "grade"}  # in every version
NO_GRADEBOOK = re.compile("not a database|malformed")
OLDER = re.compile(r"no such column|no column named|column .* does not exist")


class CourseError(Exception):
    """The course folder or its gradebook is not as it has to be; the message says so."""


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

    @property
    def sortable_name(self) -> str:
        return f"{self.last_name}, {self.first_name}".strip(", ") or self.id


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
        """Do `work`, in one short transaction; CourseError if it cannot be done.

        Where another writer put in the same rows meanwhile, it is done once more: it has to be
        idempotent.
        """
        for is_last in (False, True):
            try:
                return self._do_once(work)
            except (DBAPIError, InvalidEntry) as error:
                if is_last or not isinstance(error, (IntegrityError, InvalidEntry)):
                    raise CourseError(self._fault(error)) from error
        raise AssertionError  # the last one returns or raises

    def _do_once(self, work: Callable[[Gradebook], T]) -> T:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SAWarning)  # of nbgrader's own use of it
                gradebook = self._opened()
                done = work(gradebook)
                gradebook.db.remove()  # ends the transaction of what only read
                return done
        except MissingEntry as error:
            self.close()
            remedy = "run `nbgrader generate_assignment` first"
            raise CourseError(f"{error} in {self.shown}: {remedy}") from error
        except UnicodeEncodeError as error:
            self.close()
            raise CourseError(
                f"{self.shown} cannot hold {error.object[:40]!r}: "
                "a gradebook needs the encoding UTF-8 (createdb -E UTF8)"
            ) from error
        except BaseException:
            self.close()
            raise

    def _opened(self) -> Gradebook:
        if self.gradebook is None:
            try:
                self._refuse_foreign(create_engine(self.url))
                self.gradebook = Gradebook(self.url, self.course_id)
            except ModuleNotFoundError as error:
                raise CourseError(
                    f"{self.shown} needs {error.name}: "
                    "`pip install -c constraints.txt -e .[postgres]` installs it"
                ) from error
            except (ArgumentError, NoSuchModuleError) as error:
                raise CourseError(f"{self.shown} is no database address: {error}") from error
        return self.gradebook

    def _refuse_foreign(self, engine: Engine) -> None:
        """CourseError for a database with other tables: nbgrader would add its own to any."""
        tables = set(inspect(engine).get_table_names())
        engine.dispose()
        if tables and NBGRADERS_TABLES - tables:
            raise CourseError(
                f"{self.shown} is no gradebook: it holds other tables "
                f"({', '.join(sorted(tables)[:4])}). Nothing was written; name the right one "
                "with --db or in nbgrader_config.py"
            )

    def _fault(self, error: Exception) -> str:
        reason = str(getattr(error, "orig", None) or error).strip().split("\n")[0]
        if NO_GRADEBOOK.search(reason):
            return f"{self.shown} is no gradebook, or damaged: {reason}. Nothing was written"
        if OLDER.search(reason):
            remedy = "copy the file, then run `nbgrader db upgrade`"
            return f"an older nbgrader made {self.shown} ({reason}): {remedy}"
        return (
            f"the gradebook {self.shown} cannot be used: {reason}. What is in it is whole; see "
            "that the database runs and that no other program holds it, and give the same "
            "command again: it goes on from here"
        )


class LatePenalty:
    """The late submission plugin that nbgrader_config.py names, nbgrader's own by default; it
    may stand in one of `folders`."""

    def __init__(self, config: Config, folders: Iterable[Path] = ()):
        sys.path += [folder for folder in map(str, folders) if folder not in sys.path]
        try:
            preprocessor = AssignLatePenalties(config=config)
            preprocessor.init_plugin()
        except (TraitError, ImportError) as error:
            raise CourseError(f"the late submission plugin cannot be used: {error}") from error
        self.plugin = preprocessor.plugin_inst

    def penalty(self, learner: str, score: float, seconds: float) -> float | None:
        """Points that come off, at most the score; None if nothing does."""
        if seconds <= 0:
            return None
        try:
            penalty = self.plugin.late_submission_penalty(learner, score, seconds)
        except Exception as error:  # somebody's own plugin
            raise CourseError(
                f"the late submission plugin {type(self.plugin).__name__} failed on "
                f"{learner!r}: {type(error).__name__}: {error}"
            ) from error
        return None if penalty is None else round(min(max(penalty, 0.0), score), 2)


def people(gradebook: Gradebook) -> list[RosterEntry]:
    fields = ("id", "first_name", "last_name", "email", "lms_user_id")
    return [RosterEntry(*(getattr(s, f) or "" for f in fields)) for s in gradebook.students]


def enrol(gradebook: Gradebook, roster: Iterable[RosterEntry]) -> None:
    """Put a roster into nbgrader's students; what it does not say is left as it is.

    nbgrader's pages and `nbgrader export` write these texts as they are: none may be markup, or
    a spreadsheet's formula.
    """
    for person in roster:
        names = {k: clean_name(v) for k, v in vars(person).items() if k != "id"}
        fields = {k: csv_safe(v) for k, v in names.items() if v}
        gradebook.update_or_create_student(person.id, **fields)
