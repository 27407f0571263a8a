"""An author's command: derive what is derived, write the editions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from labkit.core.terminal import Problem, ending_on

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
        typer.Option(help="instead write an edition for learners, without answers"),
    ] = None,
) -> None:
    """Derive skeletons, stubs and recorded answers from solutions/ (for authors)."""
    from labkit.author import edition
    from labkit.author.build import build as derive
    from labkit.author.reference import BuildError

    with ending_on(BuildError, OSError):
        if learners is not None:
            print(f"learners' edition: {edition.write_learners(learners)}")
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
