"""The pages of a class, each made by itself, and only if it changed: whatever one of them
stumbles over is said, and stops none of the others.

`nbgrader generate_feedback` makes the same pages, all of them.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

from nbformat import from_dict

from labkit.core import report, syllabus
from labkit.core.files import of_the_disk, write_whole
from labkit.core.syllabus import Lab
from labkit.grading.nbgrader import feedback, marks, standings
from labkit.grading.nbgrader.exchange_files import copy_exchange_files
from labkit.grading.nbgrader.marks import Marks

STAMP = re.compile(rb'name="made-of" content="(\w+)"')
STAMP_WITHIN = 300  # bytes from the beginning of a page


def write_pages(
    root: Path,
    lab: Lab,
    given: dict[str, Marks],
    progress: Callable[[int, int], None] = lambda *_: None,
) -> tuple[list[Path], dict[str, str]]:
    """The pages of all graded notebooks in the course folder, and {learner: why there is none}.

    given    what the gradebook has of each learner
    OSError where the disk takes no page, whosever it is.
    """
    pages, failed = [], {}
    graded = sorted((root / "autograded").glob(f"*/{lab.name}/{lab.name}.ipynb"))
    for number, path in enumerate(graded, 1):
        learner = path.parent.parent.name
        page = root / "feedback" / learner / lab.name / f"{lab.name}.html"
        try:
            if learner not in given:
                raise LookupError("the gradebook has no row for this graded notebook")
            write_page(page, lab, learner, path.read_bytes(), given[learner])
            copy_exchange_files(path.parent, page.parent)
            pages.append(page)
        except Exception as error:  # whatever this notebook, or this name, made of us
            if of_the_disk(error):
                raise
            shutil.rmtree(page.parent, ignore_errors=True)  # what it says is not so any more
            failed[learner] = f"{type(error).__name__}: {error}"
        progress(number, len(graded))
    return pages, failed


def write_page(page: Path, lab: Lab, learner: str, content: bytes, given: Marks) -> None:
    """The page of a graded notebook with these bytes, if the one that is there is another."""
    told = f"{version()} {lab.name} {learner} {given}".encode("utf-8", "surrogateescape")
    stamp = hashlib.sha256(told + content).hexdigest()
    if stamp != stamp_in(page):
        notebook = from_dict(json.loads(content))
        write_whole(page, feedback.page_of(notebook, lab, learner, given, stamp))


def stamp_in(page: Path) -> str:
    """What a page was made of; empty if there is none, or none that tells."""
    try:
        with page.open("rb") as file:
            found = STAMP.search(file.read(STAMP_WITHIN))
    except OSError:
        return ""
    return found[1].decode() if found else ""


@cache
def version() -> str:
    """Tells apart versions of all that has a say in a page."""
    sources = [
        Path(module.__file__) for module in (feedback, marks, standings, report, syllabus)
    ]
    sources += [Path(feedback.template().filename), *sorted(syllabus.FOLDER.glob("*.toml"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
