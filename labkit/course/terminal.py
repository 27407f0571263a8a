"""Shared by all commands: the screen, exit statuses, types of arguments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Optional

import typer
from rich.console import Console
from typer import rich_utils

from labkit.course.lang import ENGLISH, language, said, tr
from labkit.course.lang.layout import break_wide_text
from labkit.course.report import clean
from labkit.course.syllabus import Exercise, Lab, UnknownName, find_exercise, find_lab

console = Console()
ExerciseId = Annotated[str, typer.Argument(help="an exercise, such as 1.2 or RMSNorm")]
LabName = Annotated[str, typer.Argument(help="a lab, such as rmsnorm or 01_rmsnorm")]
Jobs = Annotated[
    Optional[int],  # noqa: UP045  typer on Python 3.10 needs the long form
    typer.Option(min=1, help="processes on this machine; else one a core"),
]
TYPERS_WORDS = {  # typer's words in help and errors
    "ARGUMENTS_PANEL_TITLE": said("Arguments"),
    "OPTIONS_PANEL_TITLE": said("Options"),
    "COMMANDS_PANEL_TITLE": said("Commands"),
    "ERRORS_PANEL_TITLE": said("Error"),
    "REQUIRED_LONG_STRING": said("[required]"),
    "DEFAULT_STRING": said("[default: {}]"),
    "RICH_HELP": said("Try [blue]'{command_path} {help_option}'[/] for help."),
}
ENGLISH_WORDS = {name: getattr(rich_utils, name) for name in TYPERS_WORDS}
# the help of their commands stays English
TEACHERS = ("labkit.grading", "labkit.author", "labkit.site")
COMPLETION = (
    said("Install completion for the current shell."),
    said("Show completion for the current shell, to copy it or customize the installation."),
)


class Problem(typer.Exit):
    """Ends the command with status 2 and a message."""

    def __init__(self, message: object):
        screen = Console(stderr=True, soft_wrap=True, highlight=False)
        screen.print(clean(str(message)), style="red", markup=False)
        super().__init__(2)


@contextmanager
def ending_on(*errors: type[Exception]) -> Iterator[None]:
    """Turn errors that a person can correct into their message, without a traceback."""
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


def translate_help(command: Any) -> Any:
    """Return the command, and those below it, with their help in the current language."""
    if language() != ENGLISH:
        break_wide_text()
        _use_words({name: tr(text) for name, text in TYPERS_WORDS.items()})
        _translate(command)
    return command


def _use_words(words: dict[str, str]) -> None:
    for name, text in words.items():
        setattr(rich_utils, name, text)


def _translate(command: Any) -> None:
    if getattr(command, "rich_help_panel", None):
        command.rich_help_panel = tr(command.rich_help_panel)
    if getattr(command.callback, "__module__", "").startswith(TEACHERS):
        # the command's line in `tinyllm --help`
        command.short_help = tr(command.help.partition("\n")[0])
        page = command.format_help
        command.format_help = lambda *given: (_use_words(ENGLISH_WORDS), page(*given))
        return
    usage = command.get_usage
    command.get_usage = lambda context: usage(context).replace("Usage:", tr("Usage:"), 1)
    help_option = command.get_help_option(typer.Context(command))
    help_option.help = tr("Show this message and exit.")
    for parameter in (command, *command.params):
        if getattr(parameter, "help", None):
            parameter.help = tr(parameter.help)
    for subcommand in getattr(command, "commands", {}).values():
        _translate(subcommand)
