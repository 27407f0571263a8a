"""An author's commands: derive what is derived, write the editions, measure the checks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Optional

import typer

from labkit.course.lang import ENGLISH, known, languages
from labkit.course.syllabus import LABS
from labkit.course.terminal import Jobs, Problem, ending_on, exercise_called, lab_called

MOST = 20  # faults of translations that are shown
app = typer.Typer()

# ruff: noqa: UP045  typer on Python 3.10 needs Optional


@app.command()
def build(
    check: Annotated[
        bool, typer.Option(help="change nothing; fail if something is stale")
    ] = False,
    course: Annotated[
        Optional[Path],
        typer.Option(help="instead write the instructor edition into this course folder"),
    ] = None,
    learners: Annotated[
        Optional[Path],
        typer.Option(help="instead write the edition for learners into this new folder"),
    ] = None,
    zipped: Annotated[bool, typer.Option("--zip", help="and as one zip beside it")] = False,
    key: Annotated[
        Optional[str], typer.Option(help="what its keys are made of; else drawn, and kept")
    ] = None,
    open_: Annotated[
        bool, typer.Option("--open", help="with its answers open, for self-study")
    ] = False,
    lang: Annotated[
        str, typer.Option(help="the language of the learners' edition, such as zh")
    ] = ENGLISH,
) -> None:
    """Derive skeletons, stubs and notebooks from solutions/ (for authors)."""
    from labkit.author import edition
    from labkit.author.build import build as derive
    from labkit.author.reference import BuildError
    from labkit.author.translation import catalogs

    with ending_on(BuildError, OSError):
        if learners is not None:
            if key is not None and open_:
                raise BuildError("--key, --open: one of them at most")
            secret = None if open_ else key or edition.secret_for(learners)
            if known(lang) is None:
                raise BuildError(f"--lang {lang}: there is {', '.join(languages())}")
            for path in edition.write_learners(learners, secret, zipped, lang):
                print(f"learners' edition: {path}")
            if secret:
                print(f"keys to its answers, for you: {edition.write_keys(learners, secret)}")
        if course is not None:
            for path in edition.write_source(course):
                print(f"instructor edition: {path}")
        if course or learners:
            return
        stale = derive(check=check)
    for path in stale:
        print(f"{'stale' if check else 'written'}: {path}")
    if check and stale:
        raise Problem("run `tinyllm build` and commit what it writes")
    if check and (found := catalogs.unfinished()):
        more = [f"... and {len(found) - MOST} more"] * (len(found) > MOST)
        raise Problem("\n".join(["translations to mend:", *found[:MOST], *more]))


@app.command()
def mutants(
    lab: Annotated[
        Optional[list[str]], typer.Argument(help="labs, such as rmsnorm; all, if not said")
    ] = None,
    exercise: Annotated[
        Optional[str], typer.Option(help="only this one, such as 1.2 or RMSNorm")
    ] = None,
    seed: Annotated[str, typer.Option(help="of the checks' numbers")] = "mutants",
    jobs: Jobs = None,
) -> None:
    """Make small faults of six kinds in the reference and run them through the hidden checks.

    What survives is a hole in the checks, or a right answer: list that one, with the reason, in
    solutions/equivalents/. Exit status 1 where something survives.
    """
    from labkit.author.mutants.table import show

    labs = [lab_called(name) for name in lab or ()] or LABS
    if exercise is not None:
        found = exercise_called(exercise)
        labs, exercise = [found[0]], found[1].id
    jobs = jobs or os.cpu_count() or 1
    if not show(labs, exercise, seed, jobs):
        raise typer.Exit(1)
