"""The facts of a story: where people and things are, who has them, and why somebody is sad.

events.txt lists the steps of every event: methods of World, or short functions in STEPS. A step
changes something, or returns a contradiction in words; the latest statement is believed. The
generator and the reader use the same world.
"""

from __future__ import annotations

from collections.abc import Callable

from storyworld import words
from storyworld.events import RULES
from storyworld.grammar import Args, at, noun
from storyworld.state import Person, Thing


class World:
    """Follows events; `errors` holds the contradictions of the last one, in words."""

    def __init__(self):
        self.people: dict[str, Person] = {}
        self.things: dict[str, Thing] = {}
        self.counts: dict[tuple[str, str], int] = {}
        self.debts: list[tuple[str, str]] = []
        self.thanks: list[tuple[str, str]] = []
        self.weather: str | None = None
        self.hour = 0
        self.log: list[tuple[str, Args]] = []
        self.errors: list[str] = []

    def apply(self, kind: str, args: Args, prefix: str = "") -> list[str]:
        """Let an event happen; return its contradictions, [] if there are none."""
        self.errors = []
        hour = words.PREFIXES.get(prefix)
        if hour == -1:
            self.new_day()
        elif hour is not None:
            self.need(hour >= self.hour, f"{prefix.strip(', ')!r} comes after a later hour")
            self.hour = hour
        names = [args[k] for k in "abc" if k in args]
        self.need(len(names) == len(set(names)), f"{names[0] if names else ''} is both persons")
        for word, genders in (("g", {"her": "f", "his": "m"}), ("h", {"she": "f", "he": "m"})):
            if word in args:
                fits = genders[args[word]] == words.GENDER[args["a"]]
                self.need(fits, f"{args[word]!r} does not mean {args['a']}")
        kind, _, self.verb = kind.partition(":")
        for step, *slots in RULES[kind]:
            do = STEPS.get(step) or getattr(World, step)
            if problem := do(self, *[args.get(slot, slot) for slot in slots]):
                self.errors.append(problem)
        self.log.append((kind, args))
        return self.errors

    def new_day(self) -> None:
        """Forget moods, hunger, rain and the hour; things stay where they are."""
        self.hour, self.weather = 0, None
        for person in self.people.values():
            person.mood, person.hungry, person.wet = 0, None, False

    def need(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.errors.append(otherwise)

    def person(self, name: str) -> Person:
        self.need(name in self.people, f"nobody has spoken of {name} yet")
        return self.people.setdefault(name, Person())

    def thing(self, name: str) -> Thing:
        self.need(name in self.things, f"nobody has spoken of a {name} yet")
        return self.things.setdefault(name, Thing())

    def place_of(self, thing: str, depth: int = 0) -> str | None:
        """The place of a thing, looked up through pockets and boxes; None if unknown."""
        sort, name = self.thing(thing).where or ("", "")
        if sort == "person":
            return self.person(name).place
        if sort == "thing":
            return self.place_of(name, depth + 1) if depth < 9 else None
        return words.PLACE_OF_SPOT.get(name) if sort == "spot" else name or None

    def whereabouts(self, thing: str) -> str:
        """Return words for the place of a thing: "Ben has it", "it is under the bed"."""
        sort, name = self.thing(thing).where or ("", "")
        if sort in ("", "gone"):
            return "nobody knows where it is" if not sort else "it is gone"
        if sort == "person":
            return f"{name} has it"
        spots = {"thing": f"in the {name}", "place": at(name) if sort == "place" else ""}
        return "it is " + spots.get(sort, name)

    def number(self, a: str, f: str) -> int:
        self.person(a)
        return self.counts.get((a, f), 0)

    # steps; the short ones are in the table below
    def new(self, a: str, k: str) -> str | None:
        self.need(a not in self.people, f"{a} is introduced twice")
        self.people.setdefault(a, Person()).kind = k
        gender = words.GENDER[a]
        return None if words.KIND_GENDER.get(k, gender) == gender else f"{a} is not a {k}"

    def at(self, a: str, p: str) -> None:
        person = self.person(a)
        self.need(person.place in (None, p), f"{a} is {at(person.place or p)}, not {at(p)}")
        person.arrive(p)

    def go(self, a: str, p: str) -> None:
        person = self.person(a)
        self.need(person.place != p, f"{a} is {at(p)} already")
        person.arrive(p)

    def together(self, a: str, b: str) -> str | None:
        first, second = self.person(a), self.person(b)
        first.place, second.place = first.place or second.place, second.place or first.place
        if first.place == second.place:
            return None
        return f"{a} is {at(first.place)}, but {b} is {at(second.place)}"

    def create(self, x: str) -> None:
        self.need(x not in self.things, f"the {x} is introduced twice")
        self.things.setdefault(x, Thing())

    def has(self, a: str, x: str) -> str | None:
        self.person(a)
        if self.thing(x).where == ("person", a):
            return None
        return f"{a} does not have the {x}: {self.whereabouts(x)}"

    def lacks(self, a: str, x: str) -> str | None:
        self.need(self.thing(x).where != ("gone", ""), f"the {x} is gone")
        self.person(a)
        return f"{a} has the {x}" if self.thing(x).where == ("person", a) else None

    def hold(self, a: str, x: str) -> None:
        self.person(a)
        self.thing(x).move("person", a)

    def reach(self, a: str, x: str) -> str | None:
        """Check that `a` has x, or x is where `a` is and nobody has it."""
        where, place = self.thing(x).where, self.place_of(x)
        if where == ("person", a):
            return None
        same = place is not None and place == self.person(a).place
        free = where is not None and where[0] in ("spot", "place")
        return None if same and free else f"{a} cannot take the {x}: {self.whereabouts(x)}"

    def together_with(self, a: str, x: str) -> str | None:
        place = self.place_of(x)
        near = place is not None and place == self.person(a).place
        return None if near else f"{a} is not near the {x}"

    def spot_here(self, a: str, s: str) -> str | None:
        place = self.person(a).place
        if words.PLACE_OF_SPOT[s] == place:
            return None
        return f"{s!r} is not {at(place)}" if place else s

    def into(self, x: str, v: str) -> None:
        apart = x != v and self.thing(v).where != ("thing", x)
        self.need(apart, f"{x} and {v} hold each other")
        self.thing(x).move("thing", v)

    def swap(self, a: str, b: str, x: str, y: str) -> None:
        if self.thing(x).where == ("person", b):
            x, y = y, x
        for person, thing in ((a, x), (b, y)):
            if problem := self.has(person, thing):
                self.errors.append(problem)
        for person, thing in ((b, x), (a, y)):
            self.hold(person, thing)
            self.thing(thing).owner = person

    def not_at(self, x: str, s: str) -> None:
        self.need(self.thing(x).where != ("spot", s), f"the {x} is {s}")
        self.thing(x).not_at.append(s)

    def is_at(self, x: str, s: str) -> str | None:
        thing = self.thing(x)
        if thing.where in (None, ("place", words.PLACE_OF_SPOT[s])):
            self.need(s not in thing.not_at, f"the {x} was not {s}")
            thing.where = ("spot", s)
        return (
            None if thing.where == ("spot", s) else f"the {x} is not {s}: {self.whereabouts(x)}"
        )

    def is_in(self, x: str, p: str) -> str | None:
        thing = self.thing(x)
        thing.where = thing.where or ("place", p)
        return (
            None if self.place_of(x) == p else f"the {x} is not {at(p)}: {self.whereabouts(x)}"
        )

    def harm(self, x: str) -> None:
        self.need(self.thing(x).state != "broken", f"the {x} is broken already")
        self.thing(x).state = "broken"

    def gloomy(self, a: str) -> None:
        self.need(self.person(a).mood <= 0, f"{a} is happy, and nothing sad has happened since")
        self.person(a).mood = -1

    def sorrow(self, a: str, x: str, why: str) -> None:
        self.person(a).mood = -1
        self.person(a).sorrows.append((why, x))
        if why == "lost":
            self.thing(x).lost_by.append(a)

    def is_lost(self, a: str, x: str) -> str | None:
        self.need(a in self.thing(x).lost_by, f"{a} has not lost the {x}")
        return self.lacks(a, x)

    def hunger(self, a: str) -> None:
        self.need(self.person(a).hungry is not False, f"{a} has just eaten")
        self.person(a).hungry = True

    def debt_owner(self, b: str, x: str) -> None:
        owner = self.thing(x).owner
        if owner and owner != b:
            self.debts.append((owner, b))

    def turn(self, now: str) -> None:
        fits = (self.weather == "rain") == (now == "clear")
        self.need(fits, f"{now} after {self.weather}")
        self.weather = "rain" if now == "rain" else "sun"

    def is_wet(self, a: str) -> None:
        self.need(self.person(a).wet, f"{a} is not wet")
        self.person(a).wet = False

    def count(self, a: str, f: str, n: str) -> None:
        have = self.number(a, f)
        self.need(have == value(n), f"{a} has {have} {words.PLURALS[f]}, not {value(n)}")
        self.counts[a, f] = value(n)

    def more(self, a: str, f: str, n: str) -> None:
        self.counts[a, f] = self.number(a, f) + value(n)

    def fewer(self, a: str, f: str, n: str) -> None:
        have = self.number(a, f)
        self.need(have >= value(n), f"{a} has only {have} {words.PLURALS[f]}")
        self.counts[a, f] = max(0, have - value(n))


def value(n: str) -> int:
    return 0 if n == "0" else words.NUMBERS.index(n) + 1


# short steps: those that check return the contradiction, those that change return None
STEPS: dict[str, Callable[..., bool | str | None]] = {
    "been": lambda w, a, p: p not in w.person(a).been and f"{a} was never {at(p)} before",
    "outdoors": lambda w, a: w.person(a).place in words.INDOORS and f"{a} is indoors",
    "indoors": lambda w, p: p not in words.INDOORS and f"it rains {at(p)} too",
    "real": lambda w, x: w.thing(x).where == ("gone", "") and f"the {x} is gone",
    "owner": lambda w, a, x: w.thing(x).owner != a and f"the {x} does not belong to {a}",
    "container": lambda w, v: (
        noun(v) not in words.CONTAINERS and f"nothing goes into a {noun(v)}"
    ),
    "inside": lambda w, x, v: (
        w.thing(x).where != ("thing", v) and f"the {x} is not in it: {w.whereabouts(x)}"
    ),
    "use": lambda w, x: words.VERBS.get(noun(x)) != w.verb and f"nobody {w.verb} a {noun(x)}",
    "noun": lambda w, x, word: noun(x) != word and f"a {x} is no {word}",
    "food": lambda w, x: noun(x) not in words.FOODS and f"nobody eats a {x}",
    "edible": lambda w, f: f not in words.EDIBLE and f"nobody eats a {f}",
    "broken": lambda w, x: w.thing(x).state != "broken" and f"the {x} is not broken",
    "mended": lambda w, x: w.thing(x).state != "mended" and f"nobody has mended the {x}",
    "cheerful": lambda w, a: (
        w.person(a).mood < 0 and f"{a} is sad, and nothing has cheered {a} up"
    ),
    "was_lost": lambda w, a, x: a not in w.thing(x).lost_by and f"{a} never lost the {x}",
    "is_fed": lambda w, a: w.person(a).hungry is not False and f"{a} has not eaten",
    "owes": lambda w, a, b: (a, b) not in w.debts and f"{a} has nothing to thank {b} for",
    "was_thanked": lambda w, a, b: (
        (b, a) not in w.thanks[-1:] and f"{b} has not just thanked {a}"
    ),
    "raining": lambda w: w.weather != "rain" and "it does not rain",
    "indoor_or_clear": lambda w, a: (
        w.person(a).place not in words.INDOORS
        and w.weather == "rain"
        and f"{a} is out in the rain"
    ),
    "some": lambda w, a, f: w.number(a, f) <= 0 and f"{a} had no {words.PLURALS[f]} before",
    "at_if": lambda w, a, p: p != "p" and w.at(a, p),
    "near": lambda w, a, b: b != "b" and w.together(a, b),
    "own": lambda w, a, x: setattr(w.thing(x), "owner", a),
    "own_if_free": lambda w, a, x: setattr(w.thing(x), "owner", w.thing(x).owner or a),
    "lay": lambda w, x, s: w.thing(x).move("spot", s),
    "gone": lambda w, x: w.thing(x).move("gone", ""),
    "vanish": lambda w, x: w.thing(x).move(),
    "mend": lambda w, x: setattr(w.thing(x), "state", "mended"),
    "glad": lambda w, a: setattr(w.person(a), "mood", 1),
    "glad_owner": lambda w, a, x: w.thing(x).owner == a and STEPS["glad"](w, a),
    "fed": lambda w, a: setattr(w.person(a), "hungry", False),
    "soak": lambda w, a: setattr(w.person(a), "wet", True),
    "debt": lambda w, a, b: w.debts.append((a, b)),
    "debt_all": lambda w, b: w.debts.extend((a, b) for a in w.people if a != b),
    "thanked": lambda w, a, b: w.thanks.append((a, b)),
}
