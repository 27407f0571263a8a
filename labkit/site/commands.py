"""The command that writes the web edition."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Optional

import typer

from labkit.course.lang import ENGLISH, known, languages, tr
from labkit.course.syllabus import NOTEBOOKS, UnknownName, find_lab
from labkit.course.terminal import Problem, ending_on

app = typer.Typer()

# ruff: noqa: UP045  typer on Python 3.10 needs Optional


@app.command()
def site(
    folder: Annotated[Path, typer.Argument(help="a new folder, or an older site")],
    labs: Annotated[
        Optional[str], typer.Option(help="only these, such as 1,3 or rmsnorm,gqa")
    ] = None,
    lang: Annotated[
        Optional[str],
        typer.Option(help="in this language too, in a folder of its name, such as zh"),
    ] = None,
    without_answers: Annotated[
        bool,
        typer.Option(
            "--without-answers", help="no solution, model answer or last hint is in it"
        ),
    ] = False,
) -> None:
    """Write the course as pages that need no server or network.

    The first time takes minutes. build/site/ keeps what is made: a later call
    executes a notebook, and makes a page, only when they show something else.
    """
    try:
        from labkit.site.edition import write_site
        from labkit.site.execution import CACHE, executing
    except ImportError as error:
        raise Problem(f"{error}; pip install -c constraints.txt -e '.[site]'") from error
    from labkit.author.reference import BuildError

    with ending_on(UnknownName, BuildError, OSError):
        chosen = NOTEBOOKS
        if labs is not None:
            named = [find_lab(name.strip().zfill(2), NOTEBOOKS) for name in labs.split(",")]
            chosen = [lab for lab in NOTEBOOKS if lab in named]
        others = [known(lang)] if lang else []
        if None in others or ENGLISH in others:
            names = ", ".join(languages()[1:])
            raise Problem(
                tr("no catalog for {lang!r}: there are {names}", lang=lang, names=names)
            )
        tell = partial(print, flush=True, file=sys.stdout)  # making pages redirects print
        answers, store = not without_answers, CACHE / "pages"
        with executing(chosen, (ENGLISH, *others), tell) as of:
            write_site(folder, chosen, answers, of, others=others, tell=tell, store=store)
    print(f"the site begins at {folder / 'index.html'}")
