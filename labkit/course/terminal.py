"""What the commands of all rooms share: the screen, how one ends, what its arguments name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Optional

import typer
from rich.console import Console

from labkit.course.report import clean
from labkit.course.syllabus import Exercise, Lab, UnknownName, find_exercise, find_lab

console = Console()
ExerciseId = Annotated[str, typer.Argument(help="an exercise, such as 1.2 or RMSNorm")]
LabName = Annotated[str, typer.Argument(help="a lab, such as rmsnorm or 01_rmsnorm")]
Jobs = Annotated[
    Optional[int],  # noqa: UP045  typer on Python 3.10 needs the long form
    typer.Option(min=1, help="processes on this machine; else one a core"),
]


class Problem(typer.Exit):
    """Ends the command with status 2 and a message."""

    def __init__(self, message: object):
        screen = Console(stderr=True, soft_wrap=True, highlight=False)
        screen.print(clean(str(message)), style="red", markup=False)
        super().__init__(2)


@contextmanager
def ending_on(*errors: type[Exception]) -> Iterator[None]:
    """Errors that a person can put right: their message, and no traceback."""
    try:
        yield
    except errors as error:
        of_file = isinstance(error, OSError) and error.filename
        raise Problem(f"{error.filename}: {error.strerror}" if of_file else error) from error


def exercise_called(name: str) -> tuple[Lab, Exercise]:
    with ending_on(UnknownName):
        return find_exercise(name)


def lab_called(name: str) -> Lab:
    with ending_on(UnknownName):
        return find_lab(name)
