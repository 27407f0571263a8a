"""The language a person reads, and a message in it.

English is in the code. labkit/course/lang/LANGUAGE/*.po hold the other languages as gettext
catalogs. A message that is missing or fuzzy there is shown in English. CONTRIBUTING.md explains
how to add a language.

    tr("{file} has no code yet", file=name)             a message, its values by name
    ntr("{n} check", "{n} checks", n)                   a message with a number
    with speaking("zh"): ...                            this language within the block
"""

from __future__ import annotations

import gettext
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
ENGLISH = "en"
EDITION = FOLDER / "edition.txt"  # names the language of a translated edition
VARIABLES = ("TINYLLM_LANG", "LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")

_speaking: ContextVar[str] = ContextVar("speaking", default="")


def languages() -> list[str]:
    """Return English, and every language with a catalog."""
    return [ENGLISH, *sorted({path.parent.name for path in FOLDER.glob("*/*.po")})]


def language() -> str:
    """The current language: set by `speaking`, else TINYLLM_LANG, the edition, the system."""
    return _speaking.get() or _chosen()


@contextmanager
def speaking(chosen: str) -> Iterator[None]:
    """Use this language within the block."""
    before = _speaking.set(chosen)
    try:
        yield
    finally:
        _speaking.reset(before)


@cache
def _chosen() -> str:
    asked, *system = (os.environ.get(name, "") for name in VARIABLES)
    edition = EDITION.read_text("utf-8") if EDITION.exists() else ""
    name = next(filter(None, (asked, edition, *system)), "")
    return known(name) or ENGLISH


def known(name: str) -> str | None:
    """Return the language of "zh", "zh_CN.UTF-8" or "zh:en"; None without a catalog of it."""
    short = name.strip().replace("-", "_").partition(":")[0].partition(".")[0].lower()
    short = ENGLISH if short in ("c", "posix") else short.partition("_")[0]
    return short if short in languages() else None


def tr(message: str, **values: object) -> str:
    """Return the message in the current language, with its {values} filled in."""
    text = message if language() == ENGLISH else _catalog(language()).one(message)
    return text.format(**values) if values else text


def known_messages() -> list[str]:
    """Return every message that is translated into the current language."""
    return [] if language() == ENGLISH else list(_catalog(language()).found)


def said(message: str) -> str:
    """Mark a message for the catalogs; `tr` translates it later, when it is shown."""
    return message


def ntr(one: str, many: str, n: float, **values: object) -> str:
    """Return a message that depends on a number, {n}, in the current language."""
    text = one if n == 1 else many
    if language() != ENGLISH:
        text = _catalog(language()).counted(one, n) or text
    return text.format(n=n, **values)


class Catalog:
    """All messages of one language."""

    def __init__(self, name: str):
        from babel.messages.pofile import read_po

        self.found: dict[str, str | tuple[str, ...]] = {}
        self.form: Callable[[int], int] = int
        for path in sorted((FOLDER / name).glob("*.po")):
            with path.open("rb") as file:
                read = read_po(file, locale=name)
            self.form = gettext.c2py(read.plural_expr)
            for message in read:
                key = message.id if isinstance(message.id, str) else message.id[0]
                if key and message.string and not message.fuzzy:
                    self.found[key] = message.string

    def one(self, message: str) -> str:
        text = self.found.get(message, message)
        return text if isinstance(text, str) else text[0]

    def counted(self, message: str, n: float) -> str:
        """ "" if it is not translated."""
        forms = self.found.get(message, "")
        return forms if isinstance(forms, str) else forms[self.form(int(n))]


@cache
def _catalog(name: str) -> Catalog:
    return Catalog(name)
