"""Sphinx, set up for pages that load nothing from a network, and our extension: formulas as
MathML, which browsers draw by themselves."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.util.docutils import docutils_namespace, patch_docutils

from labkit.author.reference import BuildError
from labkit.course.lang import ENGLISH, language, said, tr
from labkit.course.syllabus import NOTEBOOKS
from labkit.look.page import NAMES, tag, terms
from labkit.look.page import STATIC as LOOK
from labkit.site.addresses import notebook_address, repository, site_address
from labkit.site.front import STILL
from labkit.site.sections import write_sections

# MyST-NB's fold: an admonition with two titles, and a label that screen readers read instead
FOLD = re.compile(
    r'<details class="admonition hide[^"]*">\s*<summary[^>]*>\s*'
    r"<p[^>]*>(.*?)</p>.*?</summary>",
    re.DOTALL,
)
STATIC = Path(__file__).parent / "static"
MAIN = ["sidebar/brand.html", "languages.html", "sidebar/search.html"]
MAIN += ["sidebar/scroll-start.html", "sidebar/navigation.html", "printing.html"]
MAIN += ["sidebar/scroll-end.html"]
# the theme's English texts and labels; "Copyright" repeats `copyright` of CONFIG
THEME = (
    *(said("Auto light/dark, in dark mode"), said("Auto light/dark, in light mode")),
    *(said("Dark mode"), said("Light mode"), said("Toggle Light / Dark / Auto color theme")),
    *(said("Back to top"), said("Skip to content"), said("On this page"), said("Contents")),
    *(said("Toggle site navigation sidebar"), said("Toggle table of contents sidebar")),
    *(said("Menu"), said("Expand"), said("Next"), said("Previous"), said("Home")),
    *(said("Made with"), said("Copyright &#169; TinyLLM, MIT license")),
)
CONFIG: dict[str, Any] = {
    "project": "TinyLLM",
    "copyright": "TinyLLM, MIT license",
    "extensions": [
        *("myst_nb", "sphinx_copybutton", "sphinx.ext.githubpages", "labkit.site.book")
    ],
    "copybutton_selector": "div.cell_input pre, div.highlight-python pre, div.highlight-sh pre",
    "nb_execution_mode": "off",
    "nb_ipywidgets_js": {},  # it would be loaded from a network
    "myst_enable_extensions": ["dollarmath"],
    "myst_heading_anchors": 3,
    "smartquotes": False,  # half of the prose is code
    "html_theme": "furo",
    "html_title": "TinyLLM",
    "html_theme_options": {"navigation_with_keys": True},
    "html_sidebars": {"**": MAIN},
    "html_static_path": [str(STATIC), str(LOOK / "explain.js"), str(LOOK / "explain.css")],
    "templates_path": [str(Path(__file__).parent)],
    "html_favicon": str(STATIC / "icon.svg"),  # otherwise browsers ask the host for an icon
    "html_css_files": ["site.css", "explain.css"],
    "html_js_files": ["explain.js", "site.js"],
    "html_math_renderer": "mathml",
    "pygments_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "html_copy_source": False,  # only the pages themselves
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
    descriptions: Mapping[str, str] | None = None,
) -> dict[str, list[str]]:
    """Write the pages of a folder with index.md and notebooks, in the current language.

    others    {language: relative path to its pages}
    ids       {page: the ids of its sections, in order}, as in another language; else they are
              made from the headings
    descriptions    {page: a sentence on it}, for previews of links

    Returns the ids.

    Errors: BuildError for any warning of Sphinx, and for a page whose sections differ from ids
    """
    warnings = io.StringIO()
    settings = CONFIG | {
        "html_extra_path": [str(source / "extra")],
        "language": tag(language()).replace("-", "_"),
        "page_languages": dict(others or {}),
        "section_ids": dict(ids or {}),
        "descriptions": dict(descriptions or {}),
        "html_baseurl": address_here(),
    }
    lines = [f"{name} = {value!r}\n" for name, value in settings.items()]
    (source / "conf.py").write_text("".join(lines), "utf-8")
    try:
        with patch_docutils(source), docutils_namespace():
            app = Sphinx(
                source, source, folder, doctrees, "html", status=None, warning=warnings
            )
            app.build()
            found = {name: ids_of(app.env.get_doctree(name)) for name in app.env.found_docs}
            write_sections(app.env, folder)
            translate_theme(folder)
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
    app.add_config_value("descriptions", {}, "html")
    app.connect("html-page-context", previewed)
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
    """Give the sections of a page the ids that they have in the other language."""
    wanted = app.config.section_ids.get(app.env.docname)
    if wanted is None:
        return
    if len(wanted) != len(ids_of(page)):
        raise SphinxError(f"{app.env.docname} has other sections in another language")
    for section, name in zip(page.findall(nodes.section), wanted, strict=True):
        section["ids"] = [name]


def switched(app: Sphinx, page: str, template: str, context: dict, doctree: Any) -> None:
    """Sphinx hook: add links to the page in other languages, and to the repository."""
    up = "../" * page.count("/")
    context["languages"] = [
        (tag(name), NAMES[name], f"{up}{way}{page}.html")
        for name, way in app.config.page_languages.items()
    ]
    context["spoken"] = (tag(language()), NAMES[language()])
    context["terms"] = json.dumps(terms()).replace("<", "\\u003c")
    context["print"] = (tr("Print"), tr("with hints and solutions"))
    links = {tr("The repository"): repository()}
    if page in {lab.name for lab in NOTEBOOKS}:
        links[tr("This notebook")] = notebook_address(page)
    context["links"] = [(text, link) for text, link in links.items() if link]


def previewed(app: Sphinx, page: str, template: str, context: dict, doctree: Any) -> None:
    """Sphinx hook: add the tags that other sites use for the preview of a link."""
    text = app.config.descriptions.get(page)
    if text is None:
        return
    title = re.sub(r"<[^>]+>", "", context.get("title", ""))
    tags = {"og:title": title, "og:description": text, "og:type": "article"}
    if app.config.html_baseurl:
        tags["og:image"] = f"{app.config.html_baseurl}_static/{STILL}"
        tags["og:url"] = f"{app.config.html_baseurl}{page}.html"
    lines = [f'<meta name="description" content="{escape(text)}">']
    lines += [f'<meta property="{name}" content="{escape(v)}">' for name, v in tags.items()]
    context["metatags"] = context.get("metatags", "") + "\n".join(lines)


def address_here() -> str:
    """Return the address of the pages in the current language, if it is known."""
    address, spoken = site_address(), language()
    return address if spoken == ENGLISH or not address else f"{address}{spoken}/"


def translate_theme(folder: Path) -> None:
    """Translate the texts of the theme, which are English in every language."""
    if language() == ENGLISH:
        return
    known = {text: tr(text) for text in THEME}
    words = "|".join(map(re.escape, sorted(known, key=len, reverse=True)))
    pattern = re.compile(rf'((?:>|=")\s*)({words})(?=\s*(?:<|"))')
    for path in folder.glob("*.html"):
        text = path.read_text("utf-8")
        path.write_text(pattern.sub(lambda m: m[1] + known[m[2]], text), "utf-8")


def plain_folds(app: Sphinx, page: str, template: str, context: dict, doctree: Any) -> None:
    """Sphinx hook: give all folds of a page the same form."""
    if "body" in context:
        context["body"] = FOLD.sub(r"<details><summary>\1</summary>", context["body"])
