"""Compare a translation with its English: code, formulas, links and placeholders must be in
both."""

from __future__ import annotations

import csv
import re
from collections import Counter
from functools import cache

from babel.messages.catalog import Message

from labkit.course.lang import FOLDER

# code, formulas and the like, which must be in both
CODE = re.compile(
    r"^```.*?^```"  # a block of code
    r"|\$\$.+?\$\$|\$[^$\n]+\$"  # a formula
    r"|`[^`\n]+`"
    r"|(?<=\]\()[^)\s]+(?=\))|https?://[\w./#?=&%:-]*[\w/#]"  # the address of a link
    r"|</?\w[^>]*>"
    r"|\{\w*[^{}\s]*\}",  # a placeholder
    re.MULTILINE | re.DOTALL,
)


def faults(language: str, message: Message) -> list[str]:
    """Return the faults of a message of a catalog; [] if there are none."""
    is_single = isinstance(message.id, str)
    english = [message.id] if is_single else message.id
    translations = [message.string] if is_single else message.string
    if not translations or not all(translations):
        return ["not translated"]
    if message.fuzzy:
        return ["its English has changed"]
    found = []
    for text in translations:
        codes, translated = (Counter(CODE.findall(each)) for each in (english[-1], text))
        different = [*(codes - translated), *(translated - codes)]
        found += [f"only in one of the two: {code!r}" for code in different]
        found += wrong_terms(language, CODE.sub(" ", english[-1]), text)
    return found


@cache
def glossary(language: str) -> dict[str, list[str]]:
    """Return {English term: its translations, the first one preferred}."""
    path = FOLDER / language / "glossary.csv"
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {row["term"]: row["translation"].split("|") for row in csv.DictReader(file)}


def wrong_terms(language: str, english: str, translation: str) -> list[str]:
    """Return terms of the glossary in the English that the translation renders differently."""
    lower, found = english.lower(), []
    for term, accepted in glossary(language).items():
        if re.search(rf"\b{re.escape(term.lower())}s?\b", lower) and not any(
            each.lower() in translation.lower() for each in accepted
        ):
            found.append(f"{term} is {' or '.join(accepted)} in the glossary")
    return found
