"""The whole site: its pages, the links between them, and its folder."""

from __future__ import annotations

import io
import re
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import redirect_stdout
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbformat import NotebookNode

from labkit.author.reference import BuildError
from labkit.course.files import hash_of
from labkit.course.lang import ENGLISH, speaking
from labkit.course.paths import LABKIT
from labkit.course.syllabus import NOTEBOOKS, Lab
from labkit.look.page import NAMES
from labkit.look.page import write as write_look
from labkit.model.hub import SHIPPED
from labkit.site.addresses import repository, site_address
from labkit.site.execution import execute, key
from labkit.site.front import descriptions, front
from labkit.site.pages import page_of
from labkit.site.wrong import WrongAnswer, gallery

LINK = re.compile(r"\[([^\]]+)\]\((\w+)\.ipynb[^)]*\)")  # a link from one notebook to another
SITE_FILES = (".nojekyll", "search.html")  # a folder with these files is a site
# files that Sphinx and the theme write and the site does not need
NOT_SHOWN = (".buildinfo*", "_sources", "jupyter_execute", "*.map", "searchindex.js")


def write_site(
    folder: Path,
    labs: Sequence[Lab] = NOTEBOOKS,
    answers: bool = True,
    notebook_of: Callable[[Lab], NotebookNode] = execute,
    gallery_of: Callable[[Lab], list[WrongAnswer]] = gallery,
    others: Sequence[str] = (),
    tell: Callable[[str], None] = lambda line: None,
    store: Path | None = None,
) -> None:
    """Write the site into a new folder, or replace an older site.

    answers        False: neither solutions, model answers nor the last rung of a ladder
    notebook_of    gives a lab's notebook with its outputs
    gallery_of     gives a lab's wrong answers
    others         languages besides English: the same pages, with the same anchors, in folders
                   named after the languages
    tell           is called with a line about each part that is done
    store          a folder of ours: pages stay in it, and are made again when they change

    Errors: BuildError for a folder with anything else in it, which stays untouched
    """
    if folder.exists() and any(folder.iterdir()) and not is_site(folder):
        raise BuildError(f"{folder} is not empty and no site; name a new folder")
    from labkit.site.book import render

    with TemporaryDirectory(prefix="tinyllm-site-") as name:
        work, ids, made_by = store or Path(name), None, machinery(labs, answers, others)
        # the hash of its sources, if it is complete
        made, note = work / "html", work / "made-by"
        if not note.exists() or note.read_text() != made_by:
            shutil.rmtree(work, ignore_errors=True)
        note.unlink(missing_ok=True)
        for spoken in (ENGLISH, *others):
            started = time.monotonic()
            place = made if spoken == ENGLISH else made / spoken
            ways = {ENGLISH: "", **{each: f"{each}/" for each in others}}
            up = "" if spoken == ENGLISH else "../"
            addresses = {each: up + way for each, way in ways.items() if each != spoken}
            source = work / f"source-{spoken}"
            with speaking(spoken), redirect_stdout(io.StringIO()):  # the messages to a learner
                write_source(source, labs, answers, notebook_of, gallery_of, addresses)
            with speaking(spoken):
                trees, texts = work / f"trees-{spoken}", descriptions(labs)
                found = render(source, place, trees, addresses, ids, texts)
            tell(f"pages in {NAMES[spoken]}, {time.monotonic() - started:.0f} s")
            ids = ids or found
        note.write_text(made_by)
        if folder.exists():
            shutil.rmtree(folder)
        shutil.copytree(made, folder, ignore=shutil.ignore_patterns(*NOT_SHOWN))


def write_source(
    source: Path,
    labs: Sequence[Lab],
    answers: bool,
    notebook_of: Callable[[Lab], NotebookNode],
    gallery_of: Callable[[Lab], list[WrongAnswer]],
    others: Mapping[str, str],
) -> None:
    """Write the sources of the pages, in the current language.

    others    {language: relative path from these pages to its pages}
    """
    (source / "extra").mkdir(parents=True, exist_ok=True)
    addresses = {lab.number: f"../{lab.name}.html" for lab in labs}
    looks = {each: f"../{way}look/index.html" for each, way in others.items()}
    write_look(source / "extra" / "look", list(SHIPPED), addresses, "../index.html", looks)
    (source / "index.md").write_text(front(labs, source / "extra"), "utf-8")
    for lab in labs:
        path, notebook, made_of = source / f"{lab.name}.ipynb", notebook_of(lab), key(lab)
        if path.exists() and nbformat.read(path, 4).metadata.get("made_of") == made_of:
            continue
        notebook = page_of(lab, notebook, gallery_of(lab), answers)
        notebook.metadata["made_of"] = made_of
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = drop_links(cell.source, {lab.name for lab in labs})
        nbformat.write(notebook, path)


def machinery(labs: Sequence[Lab], answers: bool, others: Sequence[str]) -> str:
    """Return a hash of the code that makes all pages."""
    rooms = (path for name in ("author", "look", "site") for path in (LABKIT / name).rglob("*"))
    files = [path for path in rooms if path.is_file() and path.suffix != ".pyc"]
    facts = [[lab.name for lab in labs], answers, others, repository(), site_address()]
    return hash_of(files, f"{facts} {version('sphinx')} {version('myst-nb')} {version('furo')}")


def drop_links(text: str, pages: Collection[str]) -> str:
    """The text with plain words in place of links to notebooks that are not on this site."""
    return LINK.sub(lambda found: found[0] if found[2] in pages else found[1], text)


def is_site(folder: Path) -> bool:
    return all((folder / name).is_file() for name in SITE_FILES)
