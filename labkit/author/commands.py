"""The author's command: write the derived files and the editions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from labkit.course.lang import ENGLISH, known, languages
from labkit.course.terminal import Problem, ending_on

MOST = 20  # translation faults that are shown
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
    open_: Annotated[
        bool, typer.Option("--open", help="with its answers open, for self-study")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="of --course: replace edited files, keep a backup")
    ] = False,
    lang: Annotated[
        str, typer.Option(help="the language of the learners' edition, such as zh")
    ] = ENGLISH,
    release: Annotated[
        bool,
        typer.Option("--release", help="with --check: fail if a translation is unfinished"),
    ] = False,
) -> None:
    """Derive skeletons and notebooks; or write an edition of the course."""
    from labkit.author import edition
    from labkit.author.build import build as derive
    from labkit.author.reference import BuildError
    from labkit.author.translation import catalogs

    with ending_on(BuildError, OSError):
        if learners is not None:
            if known(lang) is None:
                raise BuildError(f"--lang {lang}: there is {', '.join(languages())}")
            for path in edition.write_learners(learners, open_, zipped, lang):
                print(f"learners' edition: {path}")
        if course is not None:
            written, edited = edition.write_source(course, force)
            for path in written:
                print(f"instructor edition: {path}")
            if edited:
                print_edited(course, edited, force)
        if course or learners:
            return
        stale = derive(check=check)
    for path in stale:
        print(f"{'stale' if check else 'written'}: {path}")
    if check and stale:
        raise Problem("run `tinyllm build` and commit what it writes")
    if check and (found := catalogs.unfinished()):
        more = [f"... and {len(found) - MOST} more"] * (len(found) > MOST)
        text = "\n".join(["unfinished translations:", *found[:MOST], *more])
        if release:
            raise Problem(text)
        print(f"{text}\nThey are needed for a release alone.")


def print_edited(course: Path, edited: list[Path], force: bool) -> None:
    """Print for each edited file that it was kept (then status 1), or where its copy is."""
    state = "replaced" if force else "edited since it was written, left as it is"
    for path in edited:
        print(f"{state}: {path}")
    if force:
        print(f"your versions are in {course / 'backups'}")
        return
    print("`--force` replaces them by the course's own and keeps yours in backups/")
    raise typer.Exit(1)
