"""The whole site: which pages there are, what leads from one to another, where it is put."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbformat import NotebookNode

from labkit.author.reference import BuildError
from labkit.core.syllabus import NOTEBOOKS, Lab
from labkit.look.page import write as write_look
from labkit.model.hub import SHIPPED
from labkit.site.executed import executed
from labkit.site.front import front
from labkit.site.pages import FIGURES, page_of
from labkit.site.wrong import WrongAnswer, gallery

OURS = (".nojekyll", "searchindex.js")  # a folder that holds them is a site, and is replaced
NOT_SHOWN = (".buildinfo*", "_sources", "*.map")  # what Sphinx and the theme leave beside it
# lab: views of the model page that show its part at work, and what one sees there
VIEWS = {
    "rmsnorm": {"swap": "without its norms, heard"},
    "rope": {"swap": "without RoPE, heard"},
    "gqa": {
        "attention": "the attention of every head",
        "qknorm": "queries and keys before and after their norm",
        "swap": "with repeat for repeat_interleave, heard",
    },
    "swiglu": {"swap": "with ReLU for SiLU, heard"},
    "moe": {
        "experts": "the experts that each token chose",
        "swap": "with one expert for all, heard",
    },
    "decoder": {
        "tokens": "the guess of the next token as it forms, layer by layer",
        "swap": "with any part swapped, heard",
    },
    "generation": {
        "tokens": "temperature, top-k and top-p at your fingertips",
        "cache": "the cache as it grows, in bytes",
    },
}


def write_site(
    folder: Path,
    labs: Sequence[Lab] = NOTEBOOKS,
    answers: bool = True,
    notebook_of: Callable[[Lab], NotebookNode] = executed,
    gallery_of: Callable[[Lab], list[WrongAnswer]] = gallery,
) -> None:
    """Write the site into a new folder, or in the place of an older site.

    answers        False: neither solutions, model answers nor the last rung of a ladder
    notebook_of    gives a lab's notebook with its outputs
    gallery_of     gives a lab's wrong answers

    Errors: a folder that holds something else: BuildError, and nothing is touched
    """
    if folder.exists() and any(folder.iterdir()) and not is_site(folder):
        raise BuildError(f"{folder} is not empty and no site; name a new folder")
    from labkit.site.book import render

    with TemporaryDirectory(prefix="tinyllm-site-") as name:
        source, made = Path(name, "source"), Path(name, "html")
        (source / "extra" / FIGURES).mkdir(parents=True)
        addresses = {lab.number: f"../{lab.name}.html" for lab in labs}
        write_look(source / "extra" / "look", list(SHIPPED), addresses, "../index.html")
        with redirect_stdout(io.StringIO()):  # of what a learner is told meanwhile
            (source / "index.md").write_text(front(labs, source / "extra"), "utf-8")
            for lab in labs:
                page = page_of(lab, notebook_of(lab), gallery_of(lab), views(lab), answers)
                nbformat.write(page.notebook, source / f"{lab.name}.ipynb")
                for picture, data in page.pictures.items():
                    (source / "extra" / FIGURES / picture).write_bytes(data)
        render(source, made, Path(name, "doctrees"))
        if folder.exists():
            shutil.rmtree(folder)
        shutil.copytree(made, folder, ignore=shutil.ignore_patterns(*NOT_SHOWN))


def is_site(folder: Path) -> bool:
    return all((folder / name).is_file() for name in OURS)


def views(lab: Lab) -> str:
    """Where the model page shows the lab's part at work."""
    links = [
        f'<a href="look/index.html#{view}">{escape(text)}</a>'
        for view, text in VIEWS.get(lab.module, {}).items()
    ]
    if not links:
        return ""
    return f'<p class="look">Look inside a trained model: {", ".join(links)}.</p>'
