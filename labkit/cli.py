"""The command line, `tinyllm`: mounts the commands of every room that this edition has."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer

from labkit.core.paths import LABKIT
from labkit.core.terminal import Problem
from labkit.lang import tr

ROOMS = (
    *("learner", "learner/project", "learner/talk", "look", "pretrain"),
    *("author", "grading", "bench", "site"),
)

app = typer.Typer(
    help="TinyLLM: write Qwen3 from scratch, lab by lab.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for room in ROOMS:
    if (LABKIT / room / "commands.py").exists():
        app.add_typer(import_module(f"labkit.{room.replace('/', '.')}.commands").app)


def translated(command: Any) -> Any:
    """The command, and those below it, with their help in the language that is spoken."""
    for told in (command, *command.params):
        if getattr(told, "help", None):
            told.help = tr(told.help)
    for each in getattr(command, "commands", {}).values():
        translated(each)
    return command


def main() -> None:
    from labkit.learner.workspace import MissingModule

    try:
        translated(typer.main.get_command(app))()
    except MissingModule as error:
        sys.exit(Problem(error).exit_code)


if __name__ == "__main__":
    main()
