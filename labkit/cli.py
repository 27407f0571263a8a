"""The command line, `tinyllm`: mounts the commands of every room that this edition has."""

from __future__ import annotations

import io
import sys
from importlib import import_module
from typing import Annotated, Any

import typer

import labkit
from labkit.course.lang import said, tr
from labkit.course.paths import LABKIT, NOT_IN_ITS_FOLDER, TESTS
from labkit.course.terminal import Problem

GROUPS = {  # of the commands in the help, and the rooms that they come from
    said("Learning"): ("learner", "learner/project", "learner/talk", "look"),
    said("Teaching"): ("grading",),
    said("Working on the course"): ("pretrain", "author", "site"),
}

app = typer.Typer(
    help="TinyLLM: write Qwen3 from scratch, lab by lab.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for group, rooms in GROUPS.items():
    for room in rooms:
        if (LABKIT / room / "commands.py").exists():
            mounted = import_module(f"labkit.{room.replace('/', '.')}.commands").app
            for command in mounted.registered_commands:
                command.rich_help_panel = group
            app.add_typer(mounted)


def translate_help(command: Any) -> Any:
    """The command, and those below it, with their help in the current language."""
    if getattr(command, "rich_help_panel", None):
        command.rich_help_panel = tr(command.rich_help_panel)
    for parameter in (command, *command.params):
        if getattr(parameter, "help", None):
            parameter.help = tr(parameter.help)
    for subcommand in getattr(command, "commands", {}).values():
        translate_help(subcommand)
    return command


def print_version(wanted: bool) -> None:
    if wanted:
        print(f"tinyllm {labkit.__version__}, Python {sys.version.split()[0]}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True,
                     help="Show the version and exit."),
    ] = False,
) -> None:  # fmt: skip
    """TinyLLM: write Qwen3 from scratch, lab by lab."""


def main() -> None:
    from labkit.learner.workspace import MissingModule

    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal or a pipe that is not UTF-8
    if not (TESTS / "visible").is_dir():
        sys.exit(Problem(tr(NOT_IN_ITS_FOLDER)).exit_code)
    try:
        translate_help(typer.main.get_command(app))()
    except MissingModule as error:
        sys.exit(Problem(error).exit_code)


if __name__ == "__main__":
    main()
