"""The requests that a model of little stories understands, and notes on answers that do not
fit.

The model itself is never touched: a message is compared with the words it was trained on, and
an answer with the message and the story. `labkit/look/static/samples.js` does so in a page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from storyworld import HONEST, TALK, reader, words
from storyworld.events import SENTENCES
from storyworld.grammar import ALL_ADJECTIVES, PRONOUNS, SLOT, capital
from storyworld.questions import UNTOLD
from storyworld.reader import read, read_story, split_sentences

LETTERS = re.compile(r"[^\W_]+(?:['’][^\W\d_]+)?")
STORY_LENGTH = 3  # sentences of an answer that is a story; small talk has two
LISTS = {  # things to ask for, with the names in page and card
    "names": list(words.GENDER),
    "beings": words.KINDS,
    "places": list(words.PLACES),
    "things": [*words.THINGS, *words.CONTAINERS],
    "food": words.FOODS,
    "counted": list(words.PLURALS.values()),
}
NO_WISH = ("places", "counted")  # words that occur in no request of the training data


def words_of(text: str) -> list[str]:
    """Return the words of a text in order, each once, without a possessive 's."""
    found = (re.sub(r"['’]s$", "", word) for word in LETTERS.findall(text))
    return list(dict.fromkeys(found))


def slotless(texts: Iterable[str]) -> set[str]:
    """Return the words of templates in lower case, without their slots."""
    return {word.lower() for text in texts for word in words_of(SLOT.sub("", text))}


def lower(names: Iterable[str]) -> set[str]:
    """Return the single words of names, in lower case."""
    return {word.lower() for name in names for word in name.split()}


LITTLE = words_of("a an the of in on at by to for with and or is was that who his her")
CHATTER = {request.lower().rstrip(".?!"): reply for request, reply in TALK["small_talk"]}
PLAIN = {request.lower().rstrip(".?!") for request in TALK["plain_requests"]}
ASKED = slotless([*TALK["requests"], *TALK["long_requests"], *PLAIN, *CHATTER, "named"])
ASKED |= lower(ALL_ADJECTIVES)
SAID = slotless(text for texts in SENTENCES.values() for text in texts)
SAID |= slotless([*words.QUESTIONS.values(), *words.PREFIXES]) | {*PRONOUNS, "they"}
SAID |= lower([*words.PLACE_OF_SPOT, *words.NUMBERS, *words.PLURALS])
SAID -= ASKED
FORMS = [  # questions that a story answers, as patterns for Python and JavaScript
    re.sub(r"\{\w+\}", ".+", text.rstrip("?").lower()) for text in words.QUESTIONS.values()
]
REFUSALS = [*HONEST, UNTOLD]
ABOUT_ITSELF = [CHATTER[key] for key in ("who are you", "what is your name", "what can you do")]


def tables() -> dict[str, Any]:
    """Return the tables that the page needs to judge messages and answers like this module."""
    sets = {"requests": ASKED, "texts": SAID, "plain": PLAIN, "chatter": CHATTER}
    lists = {"forms": FORMS, "itself": ABOUT_ITSELF, "adjectives": ALL_ADJECTIVES}
    answers = {"refusals": HONEST, "untold": UNTOLD, "reader": reader.tables()}
    return {name: sorted(each) for name, each in sets.items()} | lists | answers


def is_story_request(message: str) -> bool:
    """Whether a message asks for a story; "This is the story of ..." tells one instead."""
    is_told = re.match("this ", message.strip(), re.I) or len(split_sentences(message)) > 2
    has_word = bool(re.search(r"\bstor(y|ies)\b", message, re.I))
    return (has_word and not is_told) or _bare(message) in PLAIN


def is_question(message: str) -> bool:
    """Whether the last sentence has the form of a question that a story answers."""
    last = _bare((split_sentences(message) or [""])[-1])
    return last not in CHATTER and any(re.fullmatch(form, last) for form in FORMS)


def unknown_words(message: str) -> list[str]:
    """Return words that the model does not know; in a story request it knows fewer."""
    known = ASKED | set(LITTLE)
    if is_story_request(message):
        known |= lower(n for name, names in LISTS.items() if name not in NO_WISH for n in names)
    else:
        known |= SAID | lower(n for names in LISTS.values() for n in names)
    return [word for word in words_of(message) if word.lower() not in known]


def wishes(request: str) -> list[str]:
    """Return the persons and things that a request asks for, in order: "Mia", "red kite",
    "owl"."""
    names = sorted({n for names in LISTS.values() for n in names} | set(words.PLURALS), key=len)
    nouns = "|".join(map(re.escape, reversed(names)))
    found = re.findall(rf"\b(?:(?:{'|'.join(ALL_ADJECTIVES)}) )?(?:{nouns})\b", request, re.I)
    return list(dict.fromkeys(found))


def not_granted(request: str, story: str) -> list[str]:
    """Return the wishes of a request that the story does not mention."""
    return [w for w in wishes(request) if not re.search(rf"\b{re.escape(w)}\b", story, re.I)]


def judged(story: str, question: str, answer: str) -> tuple[str, list[str]]:
    """The fault of an answer to a question, by the reader's understanding of the story."""
    reading, names = read_story(story), rf"\b({'|'.join(words.GENDER).lower()})\b"
    if reading.unclear:
        return "unclear", reading.unclear[:1]
    asked = re.sub(names, lambda m: m[0].title(), capital(_bare(question)))  # as stories do
    right = reading.answer(asked + "?") or UNTOLD
    if answer == right:
        return "", []
    return ("unsettled", []) if right == UNTOLD else ("contradicted", [right])


@dataclass(frozen=True)
class Message:
    """A message to a model of little stories, with the turns before it."""

    text: str
    earlier: Sequence[str] = ()

    @property
    def story(self) -> str:
        """The last story of the conversation, the message's own included; "" if there is
        none."""
        for text in (self.text, *reversed(self.earlier)):
            sentences = split_sentences(text)
            statements = (
                sentences[:-1] if sentences and sentences[-1].endswith("?") else sentences
            )
            is_mine = any(map(read, statements)) or (
                text is self.text and 0 < len(statements) < len(sentences)
            )
            if len(statements) >= STORY_LENGTH or is_mine:
                return " ".join(statements)
        return ""

    @property
    def unknown(self) -> list[str]:
        return unknown_words(self.text)

    @property
    def lacks_story(self) -> bool:
        """Whether it asks about a story, and there is none."""
        return is_question(self.text) and not self.unknown and not self.story

    def fault(self, answer: str) -> tuple[str, list[str]]:
        """Return the fault of an answer: ("left out", ["owl"]) or ("no answer", []); to a
        question ("contradicted", ["Mia has it."]), ("unclear", [sentence]) or
        ("unsettled", []); ("", []) if there is none."""
        sentences = split_sentences(answer)
        if answer.strip() in HONEST or CHATTER.get(_bare(self.text)) == answer.strip():
            return "", []
        if is_story_request(self.text):
            is_story = len(sentences) >= STORY_LENGTH
            left_out = not_granted(self.text, answer) if is_story else []
            return ("left out" * bool(left_out), left_out) if is_story else ("no answer", [])
        if is_question(self.text):
            return judged(self.story, split_sentences(self.text)[-1], answer.strip())
        is_mine = self.story and any(map(read, split_sentences(self.text)))
        return ("", []) if answer.strip() in ABOUT_ITSELF or is_mine else ("no answer", [])


def _bare(message: str) -> str:
    text = " ".join(message.lower().replace(" color ", " colour ").split()).rstrip(".?! ")
    text = re.sub(r"^(where|who|what)['’]s ", r"\1 is ", text)
    text = re.sub(r"^((?:where |who |what |what colour )?)was ", r"\1is ", text)
    return re.sub(r"^why is ", "why was ", text)
