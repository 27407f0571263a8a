"""The command line `tinyllm`: it mounts the commands of every package in this edition.

The learners' edition has fewer packages, so commands are found by files and not imported here.
"""

from __future__ import annotations

import io
import sys
from importlib import import_module
from typing import Annotated

import typer

import labkit
from labkit.course.lang import said, tr
from labkit.course.paths import NOT_IN_ITS_FOLDER, ROOT, TESTS
from labkit.course.terminal import Problem, translate_help

GROUPS = {  # headings in the help, and the packages whose commands are below them
    said("Learning"): (
        "labkit.learner",
        "labkit.learner.project",
        "labkit.learner.talk",
        "labkit.learner.serve",
        "labkit.look",
    ),
    said("Teaching"): ("labkit.grading",),
    said("Working on the course"): ("training", "labkit.author", "labkit.site"),
}

app = typer.Typer(
    help="TinyLLM: write Qwen3 from scratch, lab by lab.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for group, packages in GROUPS.items():
    for package in packages:
        if (ROOT / package.replace(".", "/") / "commands.py").exists():
            mounted = import_module(f"{package}.commands").app
            for command in mounted.registered_commands:
                command.rich_help_panel = group
            app.add_typer(mounted)


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
            stream.reconfigure(errors="replace")  # the terminal may not be UTF-8
    if not (TESTS / "visible").is_dir():
        sys.exit(Problem(tr(NOT_IN_ITS_FOLDER)).exit_code)
    try:
        translate_help(typer.main.get_command(app))()
    except MissingModule as error:
        sys.exit(Problem(error).exit_code)


if __name__ == "__main__":
    main()
