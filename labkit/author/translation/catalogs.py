"""The catalogs labkit/lang/LANGUAGE/*.po, brought up to date with what is said in English.

A message that is new comes in empty; one whose English changed keeps its translation, marked
fuzzy, with the English that it was made for; one that nobody says any more goes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import cache
from pathlib import Path

from babel.messages.catalog import Catalog, Message
from babel.messages.pofile import read_po, unescape, write_po

from labkit.author.translation import messages
from labkit.author.translation.faults import faults
from labkit.lang import ENGLISH, FOLDER, languages

EPOCH = datetime(2000, 1, 1, tzinfo=timezone.utc)  # no dates in the files: git knows them
WIDTH = 96


def path_of(language: str, name: str) -> Path:
    return FOLDER / language / f"{name}.po"


def translated() -> list[str]:
    return [name for name in languages() if name != ENGLISH]


def read(path: Path, language: str) -> Catalog:
    if not path.exists():
        return Catalog(locale=language)
    with path.open("rb") as file:
        catalog = read_po(file, locale=language)
    for message in catalog:
        _take_previous(message)
    return catalog


def _take_previous(message: Message) -> None:
    """Babel writes the English that a fuzzy message was made for, but reads it as a comment,
    whose lines it has wrapped without regard to the strings in them."""
    comment = " ".join(line[1:].strip() for line in message.user_comments if line[:1] == "|")
    message.user_comments = [line for line in message.user_comments if line[:1] != "|"]
    for said in re.findall(r'msgid(?:_plural)?((?: "(?:[^"\\]|\\.)*")+)', comment):
        strings = re.findall(r'"(?:[^"\\]|\\.)*"', said)
        message.previous_id.append("".join(map(unescape, strings)))


@cache
def templates() -> dict[str, Catalog]:
    """{catalog: its messages, without translations}"""
    found = {}
    for name, said in messages.catalogs().items():
        found[name] = Catalog(project="TinyLLM")
        for text, where in said:
            found[name].add(text, locations=[(where.replace(" ", "#"), 0)])
    return found


def updated(language: str, name: str) -> bytes:
    """What the catalog's file should hold."""
    catalog = read(path_of(language, name), language)
    made_for = {_key(each.id): each.previous_id for each in catalog if each.previous_id}
    catalog.update(templates()[name])
    fresh = Catalog(
        locale=language,
        header_comment=f"# What TinyLLM says, in {catalog.locale.english_name}.",
        project="TinyLLM",
        version="1",
        msgid_bugs_address="none",
        last_translator="none",
        language_team="none",
        creation_date=EPOCH,
        revision_date=EPOCH,
        fuzzy=False,
    )
    for message in catalog:
        if message.id:
            message.flags.discard("python-format")  # it is str.format's
            if message.fuzzy:  # its English may have changed more than once
                known = _key(message.previous_id or message.id)
                message.previous_id = made_for.get(known, message.previous_id)
            fresh[message.id] = message
    written = io.BytesIO()
    write_po(
        written, fresh, width=WIDTH, ignore_obsolete=True, include_previous=True,
        include_lineno=False,
    )  # fmt: skip
    return written.getvalue()


def _key(text: str | Sequence[str]) -> str:
    """The English of a message, of one with a plural its singular."""
    return text if isinstance(text, str) else text[0]


def unfinished() -> list[str]:
    """Every message that is missing, stale or says something else than its English."""
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
    return f"{_key(text)[:60]!r}"
