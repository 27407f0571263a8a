"""Whether a translation can be what its English says: what is no prose must be in both."""

from __future__ import annotations

import csv
import re
from collections import Counter
from functools import cache

from babel.messages.catalog import Message

from labkit.course.lang import FOLDER

# In this order, each taken out of the text before the next one is looked for
KEPT = {
    "code blocks": re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL),
    "formulas": re.compile(r"\$\$.+?\$\$|\$[^$\n]+\$", re.DOTALL),
    "code": re.compile(r"`[^`\n]+`"),
    "links": re.compile(r"(?<=\]\()[^)\s]+(?=\))|https?://[\w./#?=&%:-]*[\w/#]"),
    "HTML": re.compile(r"</?\w[^>]*>|<!--.*?-->"),
    "placeholders": re.compile(r"\{\w*[^{}\s]*\}"),
    "numbers": re.compile(r"\d+(?:[.,]\d+)*"),
}
# "16 million" may be 1600 万, or 16M: such numbers are for a person to compare
LARGE = re.compile(r"(\d+(?:[.,]\d+)*) ?(?:thousand|million|billion|trillion|[百千万亿MB])")
HEADINGS = re.compile(r"^#+ ", re.MULTILINE)


def faults(language: str, message: Message) -> list[str]:
    """What is wrong with a message of a catalog; [] if nothing."""
    one = isinstance(message.id, str)
    english, said = ([message.id], [message.string]) if one else (message.id, message.string)
    if not said or not all(said):
        return ["not translated"]
    if message.fuzzy:
        return ["its English has changed"]
    found = []
    for text in said:
        found += differences(english[-1], text)
        found += wrong_terms(language, prose(english[-1]), text)
    return found


def differences(english: str, said: str) -> list[str]:
    """Code, formulas, links, numbers ... that only one of the two has."""
    found = []
    for name, pattern in KEPT.items():
        ours, theirs = (Counter(pattern.findall(text)) for text in (english, said))
        if name == "numbers":
            for large in {*LARGE.findall(english), *LARGE.findall(said)}:
                ours.pop(large, None)
                theirs.pop(large, None)
        if ours != theirs:
            only = [*(ours - theirs).elements(), *(theirs - ours).elements()]
            found.append(f"{name} differ ({', '.join(map(repr, only[:4]))})")
        english, said = (pattern.sub(" ", text) for text in (english, said))
    if HEADINGS.findall(english) != HEADINGS.findall(said):
        found.append("headings differ")
    return found


def prose(text: str) -> str:
    """What is left without code, formulas, links and the like."""
    for pattern in KEPT.values():
        text = pattern.sub(" ", text)
    return text


@cache
def glossary(language: str) -> dict[str, list[str]]:
    """{English term: its translations, the first one preferred}"""
    path = FOLDER / language / "glossary.csv"
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {row["term"]: row["translation"].split("|") for row in csv.DictReader(file)}


def wrong_terms(language: str, english: str, said: str) -> list[str]:
    """Terms of the glossary that the English has and the translation says otherwise."""
    lower, found = english.lower(), []
    for term, accepted in glossary(language).items():
        if re.search(rf"\b{re.escape(term.lower())}s?\b", lower) and not any(
            each.lower() in said.lower() for each in accepted
        ):
            found.append(f"{term} is {' or '.join(accepted)} in the glossary")
    return found
