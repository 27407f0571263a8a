"""The index for searching: every section of the pages with its words, in one script."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

from docutils import nodes

from labkit.course.lang import tr

SCRIPT = "sections.js"
TAG = re.compile(r"<(style|script)\b.*?</\1>|<[^>]*>", re.DOTALL)


def write_sections(env: Any, folder: Path) -> None:
    """Write [page, section's id, page's title, section's title, its text] for each section."""
    rows = [
        row for name in sorted(env.found_docs) for row in rows_of(name, env.get_doctree(name))
    ]
    words = {"none": tr("Nothing found."), "count": tr("{count} places")}
    script = f"const SECTIONS = {json.dumps(rows)};\nconst SEARCH = {json.dumps(words)};\n"
    (folder / SCRIPT).write_text(script, "utf-8")


def rows_of(name: str, page: nodes.document) -> Iterator[list[str]]:
    sections = list(page.findall(nodes.section))
    for section in sections:
        heading = section.next_node(nodes.title)
        parts = [child for child in section.children if not isinstance(child, nodes.section)]
        text = " ".join(text_of(part) for part in parts if part is not heading)
        title = sections[0].next_node(nodes.title).astext()
        yield [name, section["ids"][0], title, heading.astext() if heading else "", text]


def text_of(node: nodes.Node) -> str:
    """Return the words of a part of a page, without markup."""
    leaves = [node] if isinstance(node, nodes.Text) else node.findall(nodes.Text)
    texts = (
        unescape(TAG.sub(" ", t)) if isinstance(t.parent, nodes.raw) else t for t in leaves
    )
    return " ".join(" ".join(texts).split())
