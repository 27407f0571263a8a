"""A hold on nbgrader's gradebook, SQLite or PostgreSQL, that loses nothing.

Work on it comes in short pieces that may be done twice with the same result. Where another
grader holds the database, or its server goes away for a moment, the piece is done again.
"""

from __future__ import annotations

import logging
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from nbgrader.api import Gradebook, InvalidEntry, MissingEntry
from nbgrader.preprocessors import AssignLatePenalties
from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SAWarning
from traitlets import TraitError
from traitlets.config import Config

from labkit.core.report import clean_name, csv_safe
from labkit.grading.nbgrader.gradebook.check import fault_of

T = TypeVar("T")
COURSE_ID = "tinyllm"
PATIENCE = 60.0  # seconds for a database that has answered before
FIRST_PATIENCE = 5.0  # for one that has not: its address may be wrong
LONGEST_PAUSE = 5.0
PERMANENT = re.compile(  # faults with which waiting cannot help
    r"authentication failed|(database|role) \".*\" does not exist"
    r"|readonly database|no such (column|table)|disk is full|not a database|malformed"
)
NO_GRADEBOOK = re.compile("not a database|malformed")
log = logging.getLogger("tinyllm.gradebook")


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


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Without nbgrader's warnings about its own use of SQLAlchemy, one for each learner, and
    without its tracebacks of conflicts that are resolved here."""
    logger = logging.getLogger("traitlets")
    level = logger.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SAWarning)
        logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            logger.setLevel(level)


class GradebookConnection:
    """One writer's hold on a gradebook: opened late, kept open, reopened after a fault."""

    def __init__(self, url: str, course_id: str = COURSE_ID, patience: float = PATIENCE):
        self.url, self.course_id, self.patience = url, course_id, patience
        self.gradebook: Gradebook | None = None
        self.answered = False

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
            try:
                gradebook.close()
            except DBAPIError:  # the connection is gone already
                log.debug("closing a lost connection", exc_info=True)

    def do(self, work: Callable[[Gradebook], T]) -> T:
        """Do `work`, again and again for a while if the database is away or busy.

        The work has to be idempotent: a fault may come after its commit.
        """
        began, pause, warned = time.monotonic(), 0.05, False
        while True:
            try:
                return self._do_once(work)
            except (DBAPIError, InvalidEntry) as error:
                waited, patience = time.monotonic() - began, self.patience
                if not self.answered:
                    patience = min(FIRST_PATIENCE, patience)
                if waited > patience or PERMANENT.search(str(error)):
                    raise CourseError(self._gone(error)) from error
                if not warned and waited > 1:
                    log.warning("the gradebook does not answer; trying for %g s", patience)
                    warned = True
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _do_once(self, work: Callable[[Gradebook], T]) -> T:
        try:
            with quiet_logs():
                gradebook = self._opened()
                done = work(gradebook)
                gradebook.db.remove()  # ends the transaction of what only read
        except BaseException as error:
            self.close()
            if isinstance(error, MissingEntry):
                remedy = "run `nbgrader generate_assignment` first"
                raise CourseError(f"{error} in {self.shown}: {remedy}") from error
            if isinstance(error, UnicodeEncodeError):
                raise CourseError(
                    f"{self.shown} cannot hold {error.object[:40]!r}: "
                    "a gradebook needs the encoding UTF-8 (createdb -E UTF8)"
                ) from error
            raise
        self.answered = True
        return done

    def _opened(self) -> Gradebook:
        if self.gradebook is None:
            try:
                if not self.answered:
                    self._refuse_foreign()
                self.gradebook = Gradebook(self.url, self.course_id)
            except ModuleNotFoundError as error:
                raise CourseError(
                    f"{self.shown} needs {error.name}: "
                    "`pip install -c constraints.txt -e .[postgres]` installs it"
                ) from error
            except (ArgumentError, NoSuchModuleError) as error:
                raise CourseError(f"{self.shown} is no database address: {error}") from error
        return self.gradebook

    def _refuse_foreign(self) -> None:
        engine = create_engine(self.url)
        try:
            fault = fault_of(engine, self.course_id)
        finally:
            engine.dispose()
        if fault:
            raise CourseError(f"{self.shown} is not this course's gradebook: {fault}")

    def _gone(self, error: Exception) -> str:
        reason = str(getattr(error, "orig", None) or error).strip().split("\n")[0]
        if NO_GRADEBOOK.search(reason):
            return f"{self.shown} is no gradebook, or damaged: {reason}. Nothing was written"
        return (
            f"the gradebook {self.shown} cannot be used: {reason}. What is in it is whole; see "
            "that the database runs and that no other program holds it, and give the same "
            "command again: it goes on from here"
        )


class LatePenalty:
    """The penalty for late submissions, as nbgrader_config.py has it.

    nbgrader's own plugin, or one named by `c.AssignLatePenalties.plugin_class`, which may stand
    beside the configuration.
    """

    def __init__(self, config: Config, folders: Iterable[Path] = ()):
        for folder in map(str, folders):
            if folder not in sys.path:
                sys.path.append(folder)
        try:
            self.nbgrader = AssignLatePenalties(config=config)
            self.nbgrader.init_plugin()
        except (TraitError, ImportError) as error:
            raise CourseError(f"the late submission plugin cannot be used: {error}") from error

    def penalty(self, learner: str, score: float, seconds: float) -> float | None:
        if seconds <= 0:
            return None
        plugin = self.nbgrader.plugin_inst
        try:
            penalty = plugin.late_submission_penalty(learner, score, seconds)
        except Exception as error:  # somebody's own plugin
            raise CourseError(
                f"the late submission plugin {type(plugin).__name__} failed on {learner!r}: "
                f"{type(error).__name__}: {error}"
            ) from error
        return None if penalty is None else round(min(max(penalty, 0.0), score), 2)


def people(gradebook: Gradebook) -> list[RosterEntry]:
    return [
        RosterEntry(
            s.id, s.first_name or "", s.last_name or "", s.email or "", s.lms_user_id or ""
        )
        for s in gradebook.students
    ]


def enrol(gradebook: Gradebook, roster: Iterable[RosterEntry]) -> None:
    """Put a roster into nbgrader's students; what it does not say is left as it is.

    nbgrader's pages and `nbgrader export` write these texts as they are: none may be markup, or
    a spreadsheet's formula.
    """
    for person in roster:
        names = {k: clean_name(v) for k, v in vars(person).items() if k != "id"}
        fields = {k: csv_safe(v) for k, v in names.items() if v}
        gradebook.update_or_create_student(person.id, **fields)
