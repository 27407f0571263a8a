"""What is true in a story: who is where, who has what, and why somebody is sad.

The rules of `rules` name the steps; here every step is a method of that name. A step
checks something, and reports a contradiction in words, or changes something; what is said
last is believed. The generator and the reader use the same world.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from labkit.pretrain.stories.grammar import Args, at, noun
from labkit.pretrain.stories.rules import STEPS
from labkit.pretrain.stories.words import (
    CONTAINERS,
    EDIBLE,
    FOODS,
    GENDER,
    INDOORS,
    KIND_GENDER,
    NUMBERS,
    PLACE_OF_SPOT,
    PLURALS,
    PREFIXES,
    VERBS,
)


@dataclass
class Person:
    kind: str = ""
    place: str | None = None
    been: list[str] = field(default_factory=list)
    mood: int = 0  # -1 sad, 0 not said, 1 happy
    hungry: bool | None = None
    wet: bool = False
    sorrows: list[tuple[str, str]] = field(default_factory=list)  # (why, thing)


@dataclass
class Thing:
    # ("person", Anna), ("thing", box), ("spot", under the bed), ("place", park), ("gone", "")
    where: tuple[str, str] | None = None
    owner: str | None = None
    not_at: list[str] = field(default_factory=list)
    state: str = ""  # broken or mended
    lost_by: list[str] = field(default_factory=list)


class World:
    """Follows events; `errors` holds what contradicts, in words."""

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
        """Let an event happen; the contradictions it makes, [] if there are none."""
        self.errors = []
        hour = PREFIXES.get(prefix)
        if hour is not None:
            self.need(hour >= self.hour, f"{prefix.strip(', ')!r} comes after a later hour")
            self.hour = hour
        names = [args[k] for k in "abc" if k in args]
        self.need(len(names) == len(set(names)), f"{names[0] if names else ''} is both persons")
        for word, genders in (("g", {"her": "f", "his": "m"}), ("h", {"she": "f", "he": "m"})):
            if word in args:
                fits = genders[args[word]] == GENDER[args["a"]]
                self.need(fits, f"{args[word]!r} does not mean {args['a']}")
        kind, _, self.verb = kind.partition(":")
        for step, *slots in STEPS[kind]:
            getattr(self, "_" + step)(*[args.get(slot, slot) for slot in slots])
        self.log.append((kind, args))
        return self.errors

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
        """The place in which a thing is, through pockets and boxes; None where unknown."""
        sort, name = self.thing(thing).where or ("", "")
        if sort == "person":
            return self.person(name).place
        if sort == "thing":
            return self.place_of(name, depth + 1) if depth < 9 else None
        return PLACE_OF_SPOT.get(name) if sort == "spot" else name or None

    def words(self, thing: str) -> str:
        """Where a thing is, for a reason: "Ben has it", "it is under the bed"."""
        sort, name = self.thing(thing).where or ("", "")
        if sort in ("", "gone"):
            return "nobody knows where it is" if not sort else "it is gone"
        if sort == "person":
            return f"{name} has it"
        spots = {"thing": f"in the {name}", "place": at(name) if sort == "place" else ""}
        return "it is " + spots.get(sort, name)

    # where people are
    def _new(self, a: str, k: str) -> None:
        self.need(a not in self.people, f"{a} is introduced twice")
        self.need(KIND_GENDER.get(k, GENDER[a]) == GENDER[a], f"{a} is not a {k}")
        self.people.setdefault(a, Person()).kind = k

    def _at(self, a: str, p: str) -> None:
        person = self.person(a)
        self.need(person.place in (None, p), f"{a} is {at(person.place or p)}, not {at(p)}")
        self.arrive(person, p)

    def _at_if(self, a: str, p: str) -> None:
        if p != "p":
            self._at(a, p)

    def _go(self, a: str, p: str) -> None:
        person = self.person(a)
        self.need(person.place != p, f"{a} is {at(p)} already")
        self.arrive(person, p)

    def arrive(self, person: Person, p: str) -> None:
        person.place = p
        if p not in person.been:
            person.been.append(p)

    def _been(self, a: str, p: str) -> None:
        self.need(p in self.person(a).been, f"{a} was never {at(p)} before")

    def _together(self, a: str, b: str) -> None:
        one, two = self.person(a), self.person(b)
        one.place, two.place = one.place or two.place, two.place or one.place
        if one.place and two.place and one.place != two.place:
            self.need(False, f"{a} is {at(one.place)}, but {b} is {at(two.place)}")

    def _near(self, a: str, b: str) -> None:
        if b != "b":
            self._together(a, b)

    def _outdoors(self, a: str) -> None:
        self.need(self.person(a).place not in INDOORS, f"{a} is indoors")

    def _indoors(self, p: str) -> None:
        self.need(p in INDOORS, f"it rains {at(p)} too")

    # where things are
    def _create(self, x: str) -> None:
        self.need(x not in self.things, f"the {x} is introduced twice")
        self.things.setdefault(x, Thing())

    def _real(self, x: str) -> None:
        self.need(self.thing(x).where != ("gone", ""), f"the {x} is gone")

    def move(self, x: str, where: tuple[str, str] | None) -> None:
        thing = self.thing(x)
        thing.where, thing.not_at = where, []

    def _has(self, a: str, x: str) -> None:
        self.person(a)
        has = self.thing(x).where == ("person", a)
        self.need(has, f"{a} does not have the {x}: {self.words(x)}")

    def _lacks(self, a: str, x: str) -> None:
        self._real(x)
        self.person(a)
        self.need(self.thing(x).where != ("person", a), f"{a} has the {x}")

    def _hold(self, a: str, x: str) -> None:
        self.person(a)
        self.move(x, ("person", a))

    def _own(self, a: str, x: str) -> None:
        self.thing(x).owner = a

    def _own_if_free(self, a: str, x: str) -> None:
        self.thing(x).owner = self.thing(x).owner or a

    def _owner(self, a: str, x: str) -> None:
        self.need(self.thing(x).owner == a, f"the {x} does not belong to {a}")

    def _reach(self, a: str, x: str) -> None:
        """x lies where a is, or a has it; nobody else holds it."""
        where, place = self.thing(x).where, self.place_of(x)
        if where == ("person", a):
            return
        same = place is not None and place == self.person(a).place
        free = where is not None and where[0] in ("spot", "place")
        self.need(same and free, f"{a} cannot take the {x}: {self.words(x)}")

    def _together_with(self, a: str, x: str) -> None:
        place = self.place_of(x)
        self.need(
            place is not None and place == self.person(a).place, f"{a} is not near the {x}"
        )

    def _spot_here(self, a: str, s: str) -> None:
        place = self.person(a).place
        self.need(PLACE_OF_SPOT[s] == place, f"{s!r} is not {at(place)}" if place else s)

    def _lay(self, x: str, s: str) -> None:
        self.move(x, ("spot", s))

    def _container(self, v: str) -> None:
        self.need(noun(v) in CONTAINERS, f"nothing goes into a {noun(v)}")

    def _into(self, x: str, v: str) -> None:
        self.need(
            x != v and self.thing(v).where != ("thing", x), f"{x} and {v} hold each other"
        )
        self.move(x, ("thing", v))

    def _inside(self, x: str, v: str) -> None:
        self.need(self.thing(x).where == ("thing", v), f"the {x} is not in it: {self.words(x)}")

    def _swap(self, a: str, b: str, x: str, y: str) -> None:
        if self.thing(x).where == ("person", b):
            x, y = y, x
        self._has(a, x)
        self._has(b, y)
        for person, thing in ((b, x), (a, y)):
            self._hold(person, thing)
            self._own(person, thing)

    def _gone(self, x: str) -> None:
        self.move(x, ("gone", ""))

    def _vanish(self, x: str) -> None:
        self.move(x, None)

    # what is said about things
    def _not_at(self, x: str, s: str) -> None:
        self.need(self.thing(x).where != ("spot", s), f"the {x} is {s}")
        self.thing(x).not_at.append(s)

    def _is_at(self, x: str, s: str) -> None:
        thing = self.thing(x)
        if thing.where in (None, ("place", PLACE_OF_SPOT[s])):
            self.need(s not in thing.not_at, f"the {x} was not {s}")
            thing.where = ("spot", s)
        self.need(thing.where == ("spot", s), f"the {x} is not {s}: {self.words(x)}")

    def _is_in(self, x: str, p: str) -> None:
        thing = self.thing(x)
        thing.where = thing.where or ("place", p)
        self.need(self.place_of(x) == p, f"the {x} is not {at(p)}: {self.words(x)}")

    def _use(self, x: str) -> None:
        self.need(VERBS.get(noun(x)) == self.verb, f"nobody {self.verb} a {noun(x)}")

    def _noun(self, x: str, word: str) -> None:
        self.need(noun(x) == word, f"a {x} is no {word}")

    def _food(self, x: str) -> None:
        self.need(noun(x) in FOODS, f"nobody eats a {x}")

    def _harm(self, x: str) -> None:
        self.need(self.thing(x).state != "broken", f"the {x} is broken already")
        self.thing(x).state = "broken"

    def _broken(self, x: str) -> None:
        self.need(self.thing(x).state == "broken", f"the {x} is not broken")

    def _mend(self, x: str) -> None:
        self.thing(x).state = "mended"

    def _mended(self, x: str) -> None:
        self.need(self.thing(x).state == "mended", f"nobody has mended the {x}")

    # how people feel
    def _glad(self, a: str) -> None:
        self.person(a).mood = 1

    def _cheerful(self, a: str) -> None:
        self.need(self.person(a).mood >= 0, f"{a} is sad, and nothing has cheered {a} up")

    def _gloomy(self, a: str) -> None:
        self.need(self.person(a).mood <= 0, f"{a} is happy, and nothing sad has happened since")
        self.person(a).mood = -1

    def _sorrow(self, a: str, x: str, why: str) -> None:
        self.person(a).mood = -1
        self.person(a).sorrows.append((why, x))
        if why == "lost":
            self.thing(x).lost_by.append(a)

    def _glad_owner(self, a: str, x: str) -> None:
        if self.thing(x).owner == a:
            self._glad(a)

    def _is_lost(self, a: str, x: str) -> None:
        self.need(a in self.thing(x).lost_by, f"{a} has not lost the {x}")
        self._lacks(a, x)

    def _was_lost(self, a: str, x: str) -> None:
        self.need(a in self.thing(x).lost_by, f"{a} never lost the {x}")

    def _hunger(self, a: str) -> None:
        self.need(self.person(a).hungry is not False, f"{a} has just eaten")
        self.person(a).hungry = True

    def _fed(self, a: str) -> None:
        self.person(a).hungry = False

    def _is_fed(self, a: str) -> None:
        self.need(self.person(a).hungry is False, f"{a} has not eaten")

    def _debt(self, a: str, b: str) -> None:
        self.debts.append((a, b))

    def _debt_all(self, b: str) -> None:
        self.debts += [(a, b) for a in self.people if a != b]

    def _debt_owner(self, b: str, x: str) -> None:
        owner = self.thing(x).owner
        if owner and owner != b:
            self._debt(owner, b)

    def _owes(self, a: str, b: str) -> None:
        self.need((a, b) in self.debts, f"{a} has nothing to thank {b} for")

    def _thanked(self, a: str, b: str) -> None:
        self.thanks.append((a, b))

    def _was_thanked(self, a: str, b: str) -> None:
        self.need((b, a) in self.thanks[-1:], f"{b} has not just thanked {a}")

    # weather
    def _weather(self, now: str) -> None:
        fits = {"sun": self.weather != "rain", "rain": self.weather != "rain"}
        self.need(fits.get(now, self.weather == "rain"), f"{now} after {self.weather}")
        self.weather = "rain" if now == "rain" else "sun"

    def _raining(self) -> None:
        self.need(self.weather == "rain", "it does not rain")

    def _soak(self, a: str) -> None:
        self.person(a).wet = True

    def _is_wet(self, a: str) -> None:
        self.need(self.person(a).wet, f"{a} is not wet")
        self.person(a).wet = False

    def _indoor_or_clear(self, a: str) -> None:
        indoors = self.person(a).place in INDOORS
        self.need(indoors or self.weather != "rain", f"{a} is out in the rain")

    # counting
    def number(self, a: str, f: str) -> int:
        self.person(a)
        return self.counts.get((a, f), 0)

    def _count(self, a: str, f: str, n: str) -> None:
        have = self.number(a, f)
        self.need(have == value(n), f"{a} has {have} {PLURALS[f]}, not {value(n)}")
        self.counts[a, f] = value(n)

    def _some(self, a: str, f: str) -> None:
        self.need(self.number(a, f) > 0, f"{a} had no {PLURALS[f]} before")

    def _more(self, a: str, f: str, n: str) -> None:
        self.counts[a, f] = self.number(a, f) + value(n)

    def _fewer(self, a: str, f: str, n: str) -> None:
        have = self.number(a, f)
        self.need(have >= value(n), f"{a} has only {have} {PLURALS[f]}")
        self.counts[a, f] = max(0, have - value(n))

    def _edible(self, f: str) -> None:
        self.need(f in EDIBLE, f"nobody eats a {f}")


def value(n: str) -> int:
    return 0 if n == "0" else NUMBERS.index(n) + 1
