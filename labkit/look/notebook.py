"""The same look inside a notebook: the page in a frame, served by the kernel to this machine.

JupyterLab shows its own files in a sandbox, where a page of several files does not run; so the
kernel serves it at 127.0.0.1, with only the standard library.
"""

from __future__ import annotations

import html
import os

from labkit.course.lang import said, tr
from labkit.look.learner_code import compute
from labkit.look.page import VIEWS, Shown, write
from labkit.look.server import served

WRITTEN = "TINYLLM_LOOK"  # the address of an existing page: link to it, serve none
SEEN = {
    "overview": said("the whole model, and one token on its way through it"),
    "tokens": said(
        "the likeliest next tokens, and what temperature, top-k and top-p make of them"
    ),
    "attention": said("who looks at whom, in every head of every layer"),
    "qknorm": said("queries and keys before and after the norm, and turned by their positions"),
    "experts": said("the experts that each token was sent to, and their load"),
    "cache": said("the KV cache growing, token by token"),
    "swap": said("the model with one part swapped, beside the true one"),
}


def look(view: str = "tokens", *models: str, height: int = 900) -> None:
    """Show the model alive below the cell, computed by the page and compared with your code.

    view      one of overview, tokens, attention, qknorm, experts, cache, swap
    models    as in `tinyllm chat`: shipped names, mine, folders; stories-dense by default
    height    of the frame, in pixels

    Errors: an unknown view: ValueError; no such model, one too large: CheckpointError
    """
    if view not in VIEWS:
        raise ValueError(f"view is {view!r}; there are {', '.join(VIEWS)}")
    shown = [compute(str(name)) for name in models or ["stories-dense"]]
    if address := os.environ.get(WRITTEN):
        link = html.escape(f"{address}#{view}")
        inside, seen = tr("Look inside"), tr(SEEN[view])
        seen = f'<p><a href="{link}">{inside}</a>: {seen}.</p>'
        _display(seen + preview(shown[0]), f"{address}#{view}")
        return
    folder, page = served()
    write(folder, shown)
    address = f"{page}#{view}"
    title = tr("Look inside") + tr(": ") + tr(SEEN[view])
    lives = tr(
        "It lives as long as the kernel; in a terminal, {command} opens it.",
        command=f"<code>tinyllm look --view {view}</code>",
    )
    # a browser that cannot load an object shows its content
    _display(
        f'<figure style="margin:0"><object data="{address}" type="text/html" '
        f'title="{title}" style="width:100%;min-height:{height}px">'
        f"{preview(shown[0])}</object>"
        f"<figcaption>{title}. {lives}</figcaption></figure>",
        address,
    )


def preview(shown: Shown) -> str:
    """The view of a notebook without a page: a picture, or why the code does not run."""
    problem = (shown.computed or {}).get("problem")
    if not problem:
        return ""
    text = tr(
        "{name} does not run in this code yet: {problem}.", name=shown.name, problem=problem
    )
    return f"<p>{html.escape(text)}</p>"


def _display(rendered: str, address: str) -> None:
    from IPython.display import display

    text = tr("Look inside") + tr(": ") + address
    display({"text/html": rendered, "text/plain": text}, raw=True)
