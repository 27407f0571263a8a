"""Write events as sentences.

An event is a kind and its arguments: ("give", {"a": "Anna", "x": "red ball", "b": "Ben"}).
`Writer` turns events into English: it picks a template, joins two events of one person with
"and", and uses "she", "it", "they" or "the rabbit" where that can only mean one. What "she" and
"the ball" mean is decided by `Scene`, which the reader shares: pronouns point to the sentence
before, and nowhere else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from random import Random

from storyworld.events import SENTENCES
from storyworld.words import ADJECTIVES, GENDER, NUMBERS, PLACES, PLURALS

Args = dict[str, str]
ALL_ADJECTIVES = [word for words in ADJECTIVES.values() for word in words]
PRONOUNS = {"she": "f", "her": "f", "he": "m", "him": "m"}
SLOT = re.compile(r"(the |The )?\{(\w+!?)\}")
JOINED = 0.35  # chance that two events of one person become one sentence
STATES = ("intro", "friend", "be", "have")  # lasting states are not joined with events
SHORT = 0.6  # chance of a pronoun where it is clear


def at(place: str) -> str:
    """ "garden" -> "in the garden" """
    return f"{PLACES[place]} the {place}"


def number(n: int) -> str:
    return NUMBERS[n - 1]


def noun(thing: str) -> str:
    """ "red toy boat" -> "toy boat" """
    first, _, rest = thing.partition(" ")
    return rest if first in ALL_ADJECTIVES else thing


def articles(text: str) -> str:
    """Write "an" before a vowel."""
    return re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


@dataclass
class Scene:
    """The people and things that a phrase can refer to: the story's and the last sentence's."""

    kinds: dict[str, str] = field(default_factory=dict)  # person -> rabbit, girl ...
    things: list[str] = field(default_factory=list)
    persons_now: list[str] = field(default_factory=list)
    things_now: list[str] = field(default_factory=list)

    def person(self, words: str) -> str | None:
        """The person that a phrase refers to; None if nobody or more than one fits."""
        if words.lower() in PRONOUNS:
            gender = PRONOUNS[words.lower()]
            return only(p for p in self.persons_now if GENDER[p] == gender)
        if words.lower().startswith("the "):
            return only(p for p, kind in self.kinds.items() if kind == words[4:])
        return words

    def thing(self, words: str) -> str | None:
        """The thing that a phrase refers to; None if nothing or more than one fits."""
        if words == "it":
            return only(self.things_now)
        if words in self.things:
            return words
        return only(t for t in self.things if noun(t) == words)

    def mention(self, args: Args) -> None:
        """Make the latest sentence the one that pronouns point to."""
        self.persons_now = unique(args[key] for key in "abc" if key in args)
        self.things_now = unique(args[key] for key in "xyv" if key in args)
        self.things += [t for t in self.things_now if t not in self.things]
        for person in self.persons_now:
            self.kinds.setdefault(person, "")
        if "k" in args and ("a" in args or "b" in args):
            self.kinds[args.get("b", args.get("a", ""))] = args["k"]


def only(found) -> str | None:
    candidates = list(found)
    return candidates[0] if len(candidates) == 1 else None


def unique(found) -> list[str]:
    return list(dict.fromkeys(found))


class Writer:
    """Writes events as sentences."""

    def __init__(self, rng: Random):
        self.rng, self.scene = rng, Scene()

    def text(self, events: list[tuple[str, Args, str]]) -> list[str]:
        """Sentences for (kind, arguments, first words or "")."""
        sentences, rest = [], list(events)
        while rest:
            kind, args, prefix = rest.pop(0)
            first = self.pick(SENTENCES[kind], args, bool(prefix))
            sentence = self.clause(first, args, fresh=not prefix)
            if rest and joinable(kind, first) and self.rng.random() < JOINED:
                sentence = sentence[:-1] + self.second_half(args["a"], rest)
            if prefix and first[:3].lower() == "{a}":
                named = sentence.split()[0].strip(",.") in GENDER
                sentence = prefix + (sentence if named else sentence[0].lower() + sentence[1:])
            sentences.append(capital(sentence))
        return sentences

    def second_half(self, a: str, rest: list[tuple[str, Args, str]]) -> str:
        """Take an event off `rest`, for " and went home."; just "." if it cannot be joined."""
        kind, args, prefix = rest[0]
        templates = [t for t in SENTENCES[kind] if joinable(kind, t)]
        if not templates or prefix or args["a"] != a:
            return "."
        rest.pop(0)
        template = self.pick(templates, args).removeprefix("{a} ")
        return f" and {self.clause(template, args, fresh=False)}"

    def pick(self, templates: list[str], args: Args, after: bool = False) -> str:
        """Choose a template that needs only these arguments, and fits after "Then"."""
        keys = set(args) | {"g", "h"}
        fitting = [t for t in templates if {key(slot) for _, slot in SLOT.findall(t)} <= keys]
        if after:
            fitting = [t for t in fitting if t[:3].lower() == "{a}"] or fitting
        return self.rng.choice(fitting)

    def clause(self, template: str, args: Args, fresh: bool) -> str:
        """Fill one template, and remember the people and things it mentions."""
        both = [args.get("a"), args.get("b")]
        if template.startswith("{A} and {B} ") and self.scene.persons_now == both and fresh:
            template = "They " + template.removeprefix("{A} and {B} ")
        it = self.scene.thing("it") if can_be_it(template) else None
        words = SLOT.sub(lambda match: self.phrase(template, match, args, it), template)
        shown = {"a", *(key(slot) for _, slot in SLOT.findall(template))}
        shown |= {"a", "b"} if template.startswith("They ") else set()
        self.scene.mention({k: v for k, v in args.items() if k in shown})
        return articles(words)

    def phrase(self, template: str, match: re.Match, args: Args, it: str | None) -> str:
        the, slot = match[1] or "", match[2]
        if slot == "g":
            return the + ("her" if GENDER[args["a"]] == "f" else "his")
        if slot == "h":
            return the + ("she" if GENDER[args["a"]] == "f" else "he")
        value = args[key(slot)]
        if slot in ("x", "y", "v"):
            if the and value == it and self.rng.random() < 0.8:
                return "It" if the == "The " else "it"
            return the + self.thing(value, full=template[: match.start()].endswith("a "))
        if slot == "at":
            return the + at(value)
        if slot == "f":
            return value if args.get("n") == "one" else PLURALS[value]
        if slot.endswith("!"):
            return value
        if slot in "abcABC":
            return the + self.person(value, slot, args, subject=match.start() == 0)
        return the + value

    def thing(self, thing: str, full: bool) -> str:
        short = noun(thing)
        clear = thing in self.scene.things and self.scene.thing(short) == thing
        return short if clear and not full and self.rng.random() < SHORT else thing

    def person(self, name: str, slot: str, args: Args, subject: bool) -> str:
        kind = self.scene.kinds.get(name)
        if kind and self.scene.person("the " + kind) == name and self.rng.random() < 0.15:
            return "the " + kind
        others = [args[k] for k in "abc" if k in args and args[k] != name]
        alone = subject or all(GENDER[other] != GENDER[name] for other in others)
        pronoun = ("she" if subject else "her") if GENDER[name] == "f" else "he"
        pronoun = "him" if pronoun == "he" and not subject else pronoun
        clear = slot.islower() and alone and self.scene.person(pronoun) == name
        return pronoun if clear and self.rng.random() < SHORT else name


def key(slot: str) -> str:
    """The argument a slot shows: {A} and {a} are one person, {at} and {to} one place."""
    return "p" if slot in ("at", "to") else slot.lower().rstrip("!")


def joinable(kind: str, template: str) -> bool:
    """Whether an event can be half of "Anna took the ball and went home."."""
    plain = not any(mark in template for mark in (" and ", ",", '"'))
    return kind not in STATES and template.startswith("{a} ") and plain


def can_be_it(template: str) -> bool:
    """Whether "it" is clear: no other "it", and no order in which "it" sounds wrong."""
    orders = ("{x} of", "{y} of", "up the {x}", "out the {x}", "{b} the {x}", "{B} the {x}")
    return not any(words in template for words in (" it", "told", *orders))
