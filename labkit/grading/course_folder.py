"""The course folder of an instructor's command: open it, and let one command work in it at a
time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.course.files import of_the_disk
from labkit.course.terminal import Problem, ending_on

if TYPE_CHECKING:
    from labkit.grading.nbgrader.course import Course


@contextmanager
def writing(course: Course) -> Iterator[None]:
    """Lock the course folder; an error that stops everything ends the command with one line."""
    from filelock import FileLock, Timeout

    from labkit.grading.nbgrader.course import CourseError
    from labkit.sandbox.bubblewrap import GradingError

    try:
        with ending_on(CourseError, GradingError), FileLock(course.root / ".lock", timeout=0):
            yield
    except Timeout as error:
        raise Problem(
            f"{course.root} is in use by another command; wait for it or stop it, then give "
            "the same command again"
        ) from error
    except OSError as error:
        ending = "; what is written is whole, and the same command goes on from here"
        where, what = error.filename or course.root, error.strerror or error
        raise Problem(f"{where}: {what}{ending if of_the_disk(error) else ''}") from error


def existing_course(folder: Path, database: str | None) -> Course:
    with grading_extra():
        from labkit.grading.nbgrader.course import Course, CourseError

    course = Course(folder, database)
    if not course.root.exists():
        raise Problem(f"there is no folder {course.root}; `tinyllm build --course` makes one")
    with ending_on(CourseError):
        _ = course.rules  # an error in course.toml ends the command first
    return course


@contextmanager
def grading_extra() -> Iterator[None]:
    """Wraps imports of nbgrader: without it the command ends and says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        install = "pip install -c constraints.txt -e '.[grading]'"
        raise Problem(
            f"{error.name} is not installed; `{install}` installs what grading needs"
        ) from error
