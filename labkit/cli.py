"""The command line, `tinyllm`: mounts the commands of every room that this edition has."""

from __future__ import annotations

import io
import re
import sys
from importlib import import_module
from typing import Annotated, Any

import typer

import labkit
from labkit.course.lang import ENGLISH, language, said, tr
from labkit.course.paths import LABKIT, NOT_IN_ITS_FOLDER, NOTEBOOKS
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


TYPER_MESSAGES = (  # {}: a part that typer fills in
    said("Usage: {} [OPTIONS] COMMAND [ARGS]..."),
    said("Usage: {} [OPTIONS] {}"),
    said("Usage: {} [OPTIONS]"),
    said("Show this message and exit."),
    said("Show the version and exit."),
    said("Install completion for the current shell."),
    said("Show completion for the current shell, to copy it or customize the installation."),
    said("Try [blue]'{} {}'[/] for help."),
    said("Missing command."),
    said("Missing argument {}."),
    said("No such command {}. Did you mean {}?"),
    said("No such command {}."),
    said("No such option: {} (Possible options: {})"),
    said("No such option: {}"),
    said("Option {} requires an argument."),
    said("Option {} does not take a value."),
    said("Got unexpected extra argument(s) ({})"),
    said("Invalid value for {}: {}"),
    said("Input should be a valid integer, unable to parse string as an integer"),
    said("Input should be a valid number, unable to parse string as a number"),
    said("Input should be greater than or equal to {}"),
    said("Arguments"),
    said("Options"),
    said("Commands"),
    said("Error"),
    said("Aborted."),
    said("[default: {}]"),
    said("[env var: {}]"),
    said("[required]"),
)


def translate_typer(text: str) -> str:
    """A message of typer in the current language; any other text as it is."""
    for message in TYPER_MESSAGES:
        filled_in = re.fullmatch(re.escape(message).replace(r"\{\}", "(.+)"), text, re.DOTALL)
        if filled_in:
            return tr(message).format(*map(translate_typer, filled_in.groups()))
    return text


def install_translations() -> None:
    """Translate typer's own messages: its titles are constants, and all other texts go through
    its highlighter."""
    from rich.text import Text
    from typer import rich_utils

    class Translated(rich_utils.OptionHighlighter):
        def __call__(self, text: str | Text) -> Text:
            plain, translated = str(text), translate_typer(str(text))
            shown = super().__call__(text if translated == plain else translated)
            shown.overflow = "fold"  # rich takes a space behind wide characters for too much
            return shown

    rich_utils.highlighter = Translated()
    for name, text in vars(rich_utils).items():
        if name.endswith(("_TITLE", "_TEXT", "_STRING", "RICH_HELP")):
            setattr(rich_utils, name, translate_typer(text))


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
    if not NOTEBOOKS.is_dir():
        sys.exit(Problem(tr(NOT_IN_ITS_FOLDER)).exit_code)
    if language() != ENGLISH:
        install_translations()
    try:
        translate_help(typer.main.get_command(app))()
    except MissingModule as error:
        sys.exit(Problem(error).exit_code)


if __name__ == "__main__":
    main()
