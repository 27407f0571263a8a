"""What a model of little stories can be asked, and what is said where it does otherwise.

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
LISTS = {  # what can be asked for; the page and the card call them the same
    "names": list(words.GENDER),
    "beings": words.KINDS,
    "places": list(words.PLACES),
    "things": [*words.THINGS, *words.CONTAINERS],
    "food": words.FOODS,
    "counted": list(words.PLURALS.values()),
}
NO_WISH = ("places", "counted")  # no request that the model was trained on has them


def words_of(text: str) -> list[str]:
    """The words of a text in their order, each once, without a possessive 's."""
    found = (re.sub(r"['’]s$", "", word) for word in LETTERS.findall(text))
    return list(dict.fromkeys(found))


def slotless(texts: Iterable[str]) -> set[str]:
    """The words of templates in small letters, without their slots."""
    return {word.lower() for text in texts for word in words_of(SLOT.sub("", text))}


def lower(names: Iterable[str]) -> set[str]:
    """The single words of names, in small letters."""
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
FORMS = [  # of questions that a story answers, as patterns for Python and JavaScript
    re.sub(r"\{\w+\}", ".+", text.rstrip("?").lower()) for text in words.QUESTIONS.values()
]
REFUSALS = [*HONEST, UNTOLD]
ABOUT_ITSELF = [CHATTER[key] for key in ("who are you", "what is your name", "what can you do")]


def tables() -> dict[str, Any]:
    """What the page needs to judge a message and an answer as this module does."""
    sets = {"requests": ASKED, "texts": SAID, "plain": PLAIN, "chatter": CHATTER}
    lists = {"forms": FORMS, "itself": ABOUT_ITSELF, "adjectives": ALL_ADJECTIVES}
    answers = {"refusals": HONEST, "untold": UNTOLD, "reader": reader.tables()}
    return {name: sorted(each) for name, each in sets.items()} | lists | answers


def is_story_request(message: str) -> bool:
    """Whether it asks for a story; one that says "This is the story of ..." tells one."""
    is_told = re.match("this ", message.strip(), re.I) or len(split_sentences(message)) > 2
    has_word = bool(re.search(r"\bstor(y|ies)\b", message, re.I))
    return (has_word and not is_told) or _bare(message) in PLAIN


def is_question(message: str) -> bool:
    """Whether the last sentence has the form of a question that stories answer."""
    last = _bare((split_sentences(message) or [""])[-1])
    return last not in CHATTER and any(re.fullmatch(form, last) for form in FORMS)


def unknown_words(message: str) -> list[str]:
    """Words that the model cannot take in: a request for a story has room for fewer."""
    known = ASKED | set(LITTLE)
    if is_story_request(message):
        known |= lower(n for name, names in LISTS.items() if name not in NO_WISH for n in names)
    else:
        known |= SAID | lower(n for names in LISTS.values() for n in names)
    return [word for word in words_of(message) if word.lower() not in known]


def wishes(request: str) -> list[str]:
    """Who and what a request asks for: "Mia", "red kite", "owl", in its order."""
    names = sorted({n for names in LISTS.values() for n in names} | set(words.PLURALS), key=len)
    nouns = "|".join(map(re.escape, reversed(names)))
    found = re.findall(rf"\b(?:(?:{'|'.join(ALL_ADJECTIVES)}) )?(?:{nouns})\b", request, re.I)
    return list(dict.fromkeys(found))


def not_granted(request: str, story: str) -> list[str]:
    """The wishes of a request of which the story says nothing."""
    return [w for w in wishes(request) if not re.search(rf"\b{re.escape(w)}\b", story, re.I)]


def judged(story: str, question: str, answer: str) -> tuple[str, list[str]]:
    """What is wrong with an answer to a question, as the reader understands the story."""
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
    """A message to a model of little stories, after the turns before it."""

    text: str
    earlier: Sequence[str] = ()

    @property
    def story(self) -> str:
        """The last story of the talk, the message's own included; "" if there is none."""
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
        """Whether it asks about a story that nobody told."""
        return is_question(self.text) and not self.unknown and not self.story

    def fault(self, answer: str) -> tuple[str, list[str]]:
        """What is wrong with an answer: ("left out", ["owl"]), ("no answer", []), to a question
        ("contradicted", ["Mia has it."]), ("unclear", [sentence]), ("unsettled", []); or
        ("", []) for nothing."""
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
