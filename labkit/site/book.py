"""Sphinx, set up for pages that ask nothing of a network, and our part of it: formulas as
MathML, which browsers draw by themselves."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.util.docutils import docutils_namespace, patch_docutils

from labkit.author.reference import BuildError

# MyST-NB's fold: an admonition with two titles, and a label that is read out instead of them
FOLD = re.compile(
    r'<details class="admonition hide[^"]*">\s*<summary[^>]*>\s*'
    r"<p[^>]*>(.*?)</p>.*?</summary>",
    re.DOTALL,
)
STATIC = Path(__file__).parent / "static"
MAIN = ["sidebar/brand.html", "sidebar/search.html", "sidebar/scroll-start.html"]
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
    "html_static_path": [str(STATIC)],
    "html_favicon": str(STATIC / "icon.svg"),  # else a browser asks the host for one
    "html_css_files": ["site.css"],
    "html_js_files": ["site.js"],
    "html_math_renderer": "mathml",
    "pygments_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "html_copy_source": False,  # nothing but the pages themselves
    "html_show_sourcelink": False,
    "html_show_search_summary": False,  # fetches pages, which a browser refuses on file://
    "html_show_sphinx": False,
    "html_use_index": False,
}


def render(source: Path, folder: Path, doctrees: Path) -> None:
    """Write the pages of a folder with index.md and notebooks.

    Errors: whatever Sphinx warns of is a fault of ours: BuildError
    """
    warnings = io.StringIO()
    settings = {**CONFIG, "html_extra_path": [str(source / "extra")]}
    lines = [f"{name} = {value!r}\n" for name, value in settings.items()]
    (source / "conf.py").write_text("".join(lines), "utf-8")
    try:
        with patch_docutils(source), docutils_namespace():
            app = Sphinx(
                source, source, folder, doctrees, "html", status=None, warning=warnings
            )
            app.build(force_all=True)
    except SphinxError as error:
        raise BuildError(f"Sphinx: {error}") from error
    if warnings.getvalue():
        raise BuildError(f"Sphinx: {warnings.getvalue().strip()}")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx: this module is one of its extensions."""
    inline = (visit_formula, None)
    app.add_html_math_renderer("mathml", inline, (visit_block_formula, None))
    app.connect("html-page-context", plain_folds)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def visit_formula(translator: Any, node: nodes.math) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def visit_block_formula(translator: Any, node: nodes.math_block) -> None:
    formula = convert(node.astext(), display="block")
    translator.body.append(f'<div class="formula">{formula}</div>')
    raise nodes.SkipNode


def plain_folds(app: Sphinx, page: str, template: str, context: dict, doctree: Any) -> None:
    """Before a page is written: all its folds alike."""
    if "body" in context:
        context["body"] = FOLD.sub(r"<details><summary>\1</summary>", context["body"])
