"""Read stories back from their text, and prove sentences wrong.

The text may come from a model and be broken in any way. Every known phrase of a sentence is
replaced by its class, "<P> gave the <X> to <P>.", and the rest is looked up in a table: the
inverse of the templates. The events are told to a fresh world; an event that the world refuses
is a contradiction. The generator's own state is not used. A sentence outside of the table is
not understood, even if it is good English: so no guess counts as a fact.

    reading = read_story("Anna had a red ball. Ben gave the ball to Mia.")
    reading.contradictions     # [(sentence, why), ...]
    reading.answer("Who has the red ball?")
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from storyworld import FEWEST, grammar, words
from storyworld.events import RULES, SENTENCES
from storyworld.grammar import ALL_ADJECTIVES, SLOT, Args, Scene, at, capital, key, noun
from storyworld.questions import answer
from storyworld.words import GENDER, NUMBERS, PLURALS
from storyworld.world import World

QUOTED = re.compile(r'"[^"]*"')
SINGULAR = {plural: single for single, plural in PLURALS.items()}
CLASSES = {"P": "abc", "X": "xyv", "A": "at", "L": "to", "S": "s", "K": "k", "N": "n", "F": "f"}
START = re.compile("|".join(map(re.escape, words.PREFIXES)))
ARTICLE = re.compile(r"\b([Aa])(n?) (?=(\w))")


@dataclass
class Reading:
    """The result of reading a story."""

    world: World
    scene: Scene
    sentences: list[str] = field(default_factory=list)
    parsed: list[tuple[str, Args]] = field(default_factory=list)
    not_understood: list[str] = field(default_factory=list)
    contradictions: list[tuple[str, str]] = field(default_factory=list)
    unclear: list[str] = field(default_factory=list)  # no meaning, or "she" is unclear

    @property
    def understood(self) -> int:
        return len(self.sentences) - len(self.not_understood)

    @property
    def flawless(self) -> bool:
        """Whether every sentence was understood, none repeats and none contradicts another."""
        is_repeated = len(self.sentences) > len(set(self.sentences))
        return not (self.not_understood or self.contradictions or is_repeated)

    @property
    def sound(self) -> bool:
        """Long enough and flawless."""
        return self.flawless and len(self.sentences) >= FEWEST

    def answer(self, question: str) -> str | None:
        """The answer that follows from the text; None if none does or it is unclear."""
        found = read_question(question)
        if not found:
            return None
        kind, args = found
        args, problems = resolve(args, self.scene)
        return None if problems else answer(self.world, kind, args)


def split_sentences(text: str) -> list[str]:
    """Sentences of a text; a quotation stays in its sentence."""
    flat = " ".join(text.split())
    hidden = QUOTED.sub(
        lambda m: re.sub(r"[.!?]", lambda c: chr(0xE000 + ord(c[0])), m[0]), flat
    )
    parts = re.findall(r"[^.!?]*(?:[.!?]+|$)", hidden)
    seen = (re.sub("[\ue021-\ue03f]", lambda c: chr(ord(c[0]) - 0xE000), p) for p in parts)
    return [part.strip() for part in seen if part.strip()]


def read_story(text: str) -> Reading:
    """Read a story sentence by sentence."""
    reading = Reading(World(), Scene())
    for sentence in split_sentences(text):
        meaning = read(sentence)
        reading.sentences.append(sentence)
        if meaning is None:
            reading.not_understood.append(sentence)
            reading.unclear.append(sentence)
            reading.scene.mention({})
            continue
        prefix, events = meaning
        for kind, raw in events:
            if raw.get("a") == "same":
                raw["a"] = reading.parsed[-1][1].get("a", "they")
            args, problems = resolve(raw, reading.scene)
            if problems:
                reading.unclear.append(sentence)
            else:
                problems = reading.world.apply(kind, args, prefix)
            prefix = ""
            reading.contradictions += [(sentence, why) for why in problems]
            reading.parsed.append((kind, args))
            reading.scene.mention(args)
    return reading


def resolve(raw: Args, scene: Scene) -> tuple[Args, list[str]]:
    """Return names for "she", "it", "the ball" and "the rabbit", and phrases without one."""
    args, problems = dict(raw), []
    for name, phrase in raw.items():
        meant: str | None = phrase
        if phrase == "they":
            pair = scene.persons_now
            meant = pair["ab".index(name)] if len(pair) == 2 else None
        elif name in ("a", "b", "c"):
            meant = scene.person(phrase)
        elif name in ("x", "y", "v"):
            new = phrase != "it" and phrase not in map(noun, scene.things)
            meant = scene.thing(phrase) or (phrase if new else None)
        elif name == "f":
            meant = SINGULAR.get(phrase, phrase)
        elif name == "p":
            meant = phrase.split(" the ")[-1]
        if meant is None:
            problems.append(f"{phrase!r} may stand for nothing told, or for more than one")
            del args[name]
        else:
            args[name] = meant
    return args, problems


# sentences to events
def skeleton(template: str) -> tuple[str, list[str]]:
    """ "{a} took the {x}." -> ("<P> took the <X>.", ["a", "x"])"""
    keys = [key(slot) for _, slot in SLOT.findall(template)]
    return SLOT.sub(lambda m: f"{m[1] or ''}<{class_of(m[2])}>", template), keys


def class_of(slot: str) -> str:
    low = slot.lower().rstrip("!")
    return next((c for c, slots in CLASSES.items() if low in (slots, *slots)), low.upper())


def table(templates: dict[str, list[str]]) -> dict[str, tuple[str, list[str]]]:
    """{skeleton: (kind, argument names)}; two kinds with one skeleton are a mistake of ours."""
    found: dict[str, tuple[str, list[str]]] = {}
    for kind, texts in templates.items():
        for text in texts:
            masked, keys = skeleton(text)
            if found.setdefault(masked, (kind, keys)) != (kind, keys):
                raise ValueError(f"{text!r} means both {found[masked][0]} and {kind}")
    return found


def phrase_pattern() -> re.Pattern:
    adjective, nouns = "|".join(ALL_ADJECTIVES), longest(words.GROUPS)
    spots = longest(spot for several in words.SPOTS.values() for spot in several)
    after_her = "the|a|an|about|to|and|see|have|along|there|" + "|".join(NUMBERS)
    her_is_object = rf"her(?=[.,!?]| (?:{after_her})\b)"
    return re.compile(
        rf"\b(?:(?P<S>{spots})|(?P<A>{longest(map(at, words.PLACES))})"
        rf"|(?P<L>{longest(words.PLACES)})"
        rf"|(?P<X>(?:(?:{adjective}) )?(?:{nouns}))|(?P<P>{longest(GENDER)}|She|He|him"
        rf"|{her_is_object}|[Tt]he (?:{longest(words.KINDS)}))|(?P<K>{longest(words.KINDS)})"
        rf"|(?P<N>{longest(NUMBERS)})|(?P<F>{longest([*PLURALS, *SINGULAR])})"
        rf"|(?P<G>her|his)|(?P<H>she|he)|(?P<it>it|It)|(?P<they>They))\b"
    )


def longest(phrases) -> str:
    return "|".join(sorted(phrases, key=lambda phrase: (-len(phrase), phrase)))


PHRASE = phrase_pattern()
MEANINGS = table(SENTENCES)
QUESTION_MEANINGS = table({kind: [text] for kind, text in words.QUESTIONS.items()})


def mask(text: str, it_is_a_thing: bool) -> tuple[str, list[str]]:
    """ "Anna took the red ball." -> ("<P> took the <X>.", ["Anna", "red ball"])"""
    values: list[str] = []

    def replace(match: re.Match) -> str:
        name, word = match.lastgroup, match[0]
        if name == "it":
            if not it_is_a_thing:
                return word
            values.append("it")
            return "The <X>" if word == "It" else "the <X>"
        if name == "they":
            values.extend(["they", "they"])
            return "<P> and <P>"
        values.append(word)
        return f"<{name}>"

    text = ARTICLE.sub(lambda m: m[1] + " " if bool(m[2]) == (m[3] in "aeiou") else "? ", text)
    return PHRASE.sub(replace, text), values


def read(sentence: str) -> tuple[str, list[tuple[str, Args]]] | None:
    """(first words, events) of a sentence, references unresolved; None if it has no meaning."""
    first = START.match(sentence)
    prefix, body = (first[0], sentence[first.end() :]) if first else ("", sentence)
    if prefix:
        if not body[:1].islower() and body.split(" ")[0].strip(",.") not in GENDER:
            return None
        body = capital(body)
    for it_is_a_thing in (True, False):
        masked, values = mask(body, it_is_a_thing)
        events = look_up(masked, values)
        if events and all(agrees(args) for _, args in events):
            return prefix, events
    return None


def look_up(masked: str, values: list[str]) -> list[tuple[str, Args]] | None:
    """Return one event, or two that are joined by "and"."""
    if masked in MEANINGS:
        kind, keys = MEANINGS[masked]
        return [(kind, dict(zip(keys, values, strict=True)))]
    for match in re.finditer(" and ", masked):
        left = MEANINGS.get(masked[: match.start()] + ".")
        right = MEANINGS.get("<P> " + masked[match.end() :])
        if left and right and left[1][:1] == right[1][:1] == ["a"]:
            size = len(left[1])
            second = ["same", *values[size:]]
            pairs = ((left, values[:size]), (right, second))
            return [(kind, dict(zip(keys, part, strict=True))) for (kind, keys), part in pairs]
    return None


def read_question(text: str) -> tuple[str, Args] | None:
    masked, values = mask(text, it_is_a_thing=False)
    if masked not in QUESTION_MEANINGS:
        return None
    kind, keys = QUESTION_MEANINGS[masked]
    return kind, dict(zip(keys, values, strict=True))


def agrees(args: Args) -> bool:
    """ "one apple", "two apples" """
    if "n" not in args:
        return "f" not in args or args["f"] in SINGULAR
    return (args["n"] == "one") == (args["f"] in PLURALS)


def tables() -> dict[str, object]:
    """Return the tables for the reader in JavaScript, labkit/look/static/reader.js."""
    names = ("gender", "prefixes", "plurals", "numbers", "places", "colours")
    found = {name: getattr(words, name.upper()) for name in names}
    found |= {"phrase": PHRASE.pattern.replace("(?P<", "(?<"), "start": START.pattern}
    found |= {"meanings": MEANINGS, "questions": QUESTION_MEANINGS, "rules": RULES}
    pronouns, spots = grammar.PRONOUNS, words.PLACE_OF_SPOT
    return found | {"adjectives": ALL_ADJECTIVES, "pronouns": pronouns, "spots": spots}
