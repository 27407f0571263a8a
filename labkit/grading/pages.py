"""The templates of the pages that grading writes: of learners, of labs, of the class."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, Template

from labkit.course.files import write_whole
from labkit.course.lang import language, ntr, tr
from labkit.course.report import clean


def points(number: float) -> str:
    return f"{round(number, 2):g}"


def signed(number: float) -> str:
    """The points with their sign; "" for 0."""
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
