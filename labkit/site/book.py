"""Sphinx, set up for pages that ask nothing of a network, and our part of it: formulas as
MathML, which browsers draw by themselves."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.util.docutils import docutils_namespace, patch_docutils

from labkit.author.reference import BuildError
from labkit.course.lang import language, tr
from labkit.look.page import NAMES, tag, terms
from labkit.look.page import STATIC as LOOK
from labkit.site.sections import write_sections

# MyST-NB's fold: an admonition with two titles, and a label that is read out instead of them
FOLD = re.compile(
    r'<details class="admonition hide[^"]*">\s*<summary[^>]*>\s*'
    r"<p[^>]*>(.*?)</p>.*?</summary>",
    re.DOTALL,
)
STATIC = Path(__file__).parent / "static"
MAIN = [
    "sidebar/brand.html",
    "languages.html",
    "sidebar/search.html",
    "sidebar/scroll-start.html",
]
MAIN += ["sidebar/navigation.html", "sidebar/scroll-end.html"]
CONFIG: dict[str, Any] = {
    "project": "TinyLLM",
    "copyright": "TinyLLM, MIT licence",
    "extensions": ["myst_nb", "sphinx.ext.githubpages", "labkit.site.book"],
    "nb_execution_mode": "off",
    "nb_ipywidgets_js": {},  # which would come from a network
    "myst_enable_extensions": ["dollarmath"],
    "myst_heading_anchors": 3,
    "smartquotes": False,  # half of the prose is code
    "html_theme": "furo",
    "html_title": "TinyLLM",
    "html_theme_options": {"navigation_with_keys": True},
    "html_sidebars": {"**": MAIN},
    "html_static_path": [str(STATIC), str(LOOK / "explain.js"), str(LOOK / "explain.css")],
    "templates_path": [str(Path(__file__).parent)],
    "html_favicon": str(STATIC / "icon.svg"),  # else a browser asks the host for one
    "html_css_files": ["site.css", "explain.css"],
    "html_js_files": ["explain.js", "site.js"],
    "html_math_renderer": "mathml",
    "pygments_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "html_copy_source": False,  # nothing but the pages themselves
    "html_show_sourcelink": False,
    "html_show_sphinx": False,
    "html_use_index": False,
}


def render(
    source: Path,
    folder: Path,
    doctrees: Path,
    others: Mapping[str, str] | None = None,
    ids: Mapping[str, list[str]] | None = None,
) -> dict[str, list[str]]:
    """Write the pages of a folder with index.md and notebooks, in the language that is spoken.

    others    {language: the way from here to its pages}
    ids       {page: the ids of its sections, in order}, as in another language; else they are
              made from the headings

    Returns the ids.

    Errors: whatever Sphinx warns of is a fault of ours, and so is a page with other sections
            than ids has: BuildError
    """
    warnings = io.StringIO()
    settings = CONFIG | {
        "html_extra_path": [str(source / "extra")],
        "language": tag(language()).replace("-", "_"),
        "page_languages": dict(others or {}),
        "section_ids": dict(ids or {}),
    }
    lines = [f"{name} = {value!r}\n" for name, value in settings.items()]
    (source / "conf.py").write_text("".join(lines), "utf-8")
    try:
        with patch_docutils(source), docutils_namespace():
            app = Sphinx(
                source, source, folder, doctrees, "html", status=None, warning=warnings
            )
            app.build(force_all=True)
            found = {name: ids_of(app.env.get_doctree(name)) for name in app.env.found_docs}
            write_sections(app.env, folder)
    except SphinxError as error:
        raise BuildError(f"Sphinx: {error}") from error
    if warnings.getvalue():
        raise BuildError(f"Sphinx: {warnings.getvalue().strip()}")
    return found


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx: this module is one of its extensions."""
    inline = (visit_formula, None)
    app.add_html_math_renderer("mathml", inline, (visit_block_formula, None))
    app.connect("html-page-context", plain_folds)
    app.connect("html-page-context", switched)
    app.add_config_value("section_ids", {}, "env")
    app.add_config_value("page_languages", {}, "html")
    app.connect("doctree-read", same_ids, priority=100)  # before tables of contents are made
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def visit_formula(translator: Any, node: nodes.math) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def visit_block_formula(translator: Any, node: nodes.math_block) -> None:
    formula = convert(node.astext(), display="block")
    translator.body.append(f'<div class="formula">{formula}</div>')
    raise nodes.SkipNode


def ids_of(page: nodes.document) -> list[str]:
    return [section["ids"][0] for section in page.findall(nodes.section)]


def same_ids(app: Sphinx, page: nodes.document) -> None:
    """The sections of a page get the ids that they have in the other language."""
    wanted = app.config.section_ids.get(app.env.docname)
    if wanted is None:
        return
    if len(wanted) != len(ids_of(page)):
        raise SphinxError(f"{app.env.docname} has other sections in another language")
    for section, name in zip(page.findall(nodes.section), wanted, strict=True):
        section["ids"] = [name]


def switched(app: Sphinx, page: str, template: str, context: dict, doctree: Any) -> None:
    """Before a page is written: the same page in the other languages, for languages.html."""
    up = "../" * page.count("/")
    context["languages"] = [
        (tag(name), NAMES[name], f"{up}{way}{page}.html")
        for name, way in app.config.page_languages.items()
    ]
    context["spoken"] = (tag(language()), NAMES[language()])
    context["terms"] = json.dumps(terms()).replace("<", "\\u003c")
    context["print"] = (tr("Print"), tr("with hints and solutions"))


def plain_folds(app: Sphinx, page: str, template: str, context: dict, doctree: Any) -> None:
    """Before a page is written: all its folds alike."""
    if "body" in context:
        context["body"] = FOLD.sub(r"<details><summary>\1</summary>", context["body"])
