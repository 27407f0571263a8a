"""The catalogs in labkit/course/lang/LANGUAGE/, brought up to date with the English messages.

A new message comes in empty. A message whose English changed keeps its translation, marked
fuzzy, until a person corrects it (git shows the earlier English). An unused message goes.

The English text itself is the key, so that code shows the real message; the price is that even
a changed comma in English means checking each translation again.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

from labkit.author.translation import messages
from labkit.author.translation.faults import faults
from labkit.course.lang import ENGLISH, FOLDER, languages

WIDTH = 96


def path_of(language: str, name: str) -> Path:
    return FOLDER / language / f"{name}.po"


def translated() -> list[str]:
    return [name for name in languages() if name != ENGLISH]


def read(path: Path, language: str) -> Catalog:
    if not path.exists():
        header = "# What TinyLLM says."
        return Catalog(language, header_comment=header, project="TinyLLM", fuzzy=False)
    with path.open("rb") as file:
        return read_po(file, locale=language)


@cache
def templates() -> dict[str, Catalog]:
    """Return {catalog: its messages, without translations}."""
    found = {}
    for name, entries in messages.catalogs().items():
        found[name] = Catalog(project="TinyLLM")
        for text, where in entries:
            found[name].add(text, locations=[(where.replace(" ", "#"), 0)])
    return found


def updated(language: str, name: str) -> bytes:
    """Return the text that the catalog's file should hold."""
    catalog = read(path_of(language, name), language)
    template = templates()[name]
    catalog.update(template, update_creation_date=False)
    for message in catalog:
        if message.fuzzy and message.previous_id and message.previous_id[0] in template:
            message.string = ""  # a guess from a message that did not change
            message.flags.discard("fuzzy")
        message.flags.discard("python-format")  # placeholders are for str.format, not for %
    written = io.BytesIO()
    write_po(written, catalog, width=WIDTH, ignore_obsolete=True, include_lineno=False)
    return written.getvalue()


def unfinished() -> list[str]:
    """Return every message that is missing, stale or differs from its English."""
    found = []
    for language in translated():
        for name in templates():
            for message in read(path_of(language, name), language):
                if message.id:
                    found += [
                        f"{language}/{name}.po: {fault}: {_short(message.id)}"
                        for fault in faults(language, message)
                    ]
    return found


def _short(text: str | Sequence[str]) -> str:
    return repr(text if isinstance(text, str) else text[0])[:60]
