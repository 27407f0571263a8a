"""The templates of the pages that grading writes, for learners, labs and the class; and a mark
in each file, a hash of its sources, so that only changed files are written again."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, Template

from labkit.course.files import hash_of, write_whole
from labkit.course.lang import language, ntr, tr
from labkit.course.paths import ROOT
from labkit.course.report import clean

# Files that decide how a verdict is shown
SHOWING = ("labkit/course/**/*.*", "labkit/grading/**/*.*", "solutions/answers/*.*")


@cache
def showing() -> str:
    """Return a hash of all files of the course that can change a learner's page."""
    return hash_of(
        path for name in SHOWING for path in ROOT.glob(name) if path.suffix != ".pyc"
    )


def mark_of(*parts: object) -> str:
    """Return a hash of the parts of a file, and of the code that makes it."""
    hasher = hashlib.sha256(showing().encode())
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        hasher.update(hashlib.sha256(data).digest())
    return hasher.hexdigest()


def points(number: float) -> str:
    return f"{round(number, 2):g}"


def signed(number: float) -> str:
    """Return the points with their sign; "" for 0."""
    return f"{round(number, 2):+g}".replace("-", "−") if number else ""


@cache
def template(name: str) -> Template:
    loader = PackageLoader("labkit.grading", "templates")
    environment = Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {"tr": tr, "ntr": ntr, "language": language}
    environment.filters |= {"points": points, "signed": signed}
    return environment.get_template(name)


def write_page(path: Path, template_name: str, **content: object) -> Path:
    """Fill in a template; control characters are replaced."""
    html = template(template_name).render(**content)
    write_whole(path, "\n".join(map(clean, html.split("\n"))))
    return path
