"""The command `tinyllm look`: the model alive in the browser."""

from __future__ import annotations

import webbrowser
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Annotated, Optional

import typer

from labkit.course.lang import tr
from labkit.course.terminal import Problem, console
from labkit.learner.talk.commands import problems_reported

app = typer.Typer()
# ruff: noqa: UP045  typer on Python 3.10 needs Optional


@app.command()
def look(
    models: Annotated[
        Optional[list[str]],
        typer.Argument(metavar="MODEL...", help="as for chat; else those that ship"),
    ] = None,
    view: Annotated[
        str, typer.Option(help="overview, tokens, attention, qknorm, experts, cache or swap")
    ] = "overview",
    to: Annotated[
        Optional[Path], typer.Option(help="write the page to this folder instead of serving it")
    ] = None,
    browser: Annotated[bool, typer.Option(help="open it")] = True,
) -> None:
    """See a model at work, in a page that needs no network."""
    with problems_reported(), console.status(tr("starting torch")):
        from labkit.look.learner_code import compute
        from labkit.look.page import VIEWS, write
        from labkit.look.server import served
        from labkit.model.hub import SHIPPED

        if view not in VIEWS:
            raise Problem(
                tr(
                    "there is no view {view!r}: there are {names}",
                    view=view,
                    names=tr(", ").join(VIEWS),
                )
            )
        shown = [compute(name) for name in models or SHIPPED]
        folder, page = (to, "") if to else served()
        try:
            index = write(folder, shown)
        except OSError as error:
            raise Problem(tr("the page could not be written: {error}", error=error)) from error
    address = f"{page or index.resolve().as_uri()}#{view}"
    opened = browser and webbrowser.open(address)
    verb = tr("Opened") if opened else tr("Open it in a browser:")
    console.print(verb, address, soft_wrap=True)
    if not to:
        console.print(tr("It is served until Ctrl-C."))
        with suppress(KeyboardInterrupt):
            Event().wait()
