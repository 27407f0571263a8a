"""The teller: picks people, things and places, and tells events to a world."""

from __future__ import annotations

from random import Random

from labkit.pretrain.stories.grammar import Args, noun
from labkit.pretrain.stories.words import (
    ADJECTIVES,
    ANIMALS,
    BOYS,
    GENDER,
    GIRLS,
    GROUPS,
    JOBS,
    PLACES,
    SPOTS,
    THINGS,
    VERBS,
)
from labkit.pretrain.stories.world import World

OPENINGS = ("One day, ", "One morning, ", "Early in the morning, ", "One afternoon, ")
NEXT = ("Then ", "After that, ", "Soon ", "A little later, ", "Next, ", "Later, ")
MOVES = ("go", "go_back", "put_in", "take_out", "put", "give", "swap", "look", "eat", "hide")


class Teller:
    """Tells events to the world and keeps them; picks people, things and places."""

    def __init__(self, rng: Random, world: World):
        self.rng, self.world = rng, world
        self.events: list[tuple[str, Args, str]] = []
        self.used: list[str] = []

    def __call__(self, kind: str, prefix: str = "", **args: str) -> None:
        """Tell an event; a connecting word such as "Then" comes by chance."""
        if kind == "use":  # each thing in its own way
            kind += ":" + VERBS[noun(args["x"])]
        if not prefix and kind in MOVES and len(self.events) > 2 and self.chance(0.2):
            prefix = self.rng.choice(NEXT)
        errors = self.world.apply(kind, args, prefix)
        assert not errors, f"the plot tells {kind} {args}: {errors}"
        self.events.append((kind, args, prefix))

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def maybe(self, share: float, kind: str, prefix: str = "", **args: str) -> None:
        if self.chance(share):
            self(kind, prefix, **args)

    def new(self, options: list[str]) -> str:
        """One that the story has not used yet, as long as there is one."""
        fresh = [option for option in options if option not in self.used]
        pick = self.rng.choice(fresh or options)
        self.used.append(pick)
        return pick

    def name(self) -> str:
        return self.new(GIRLS + BOYS)

    def kind(self, name: str) -> str:
        child = "girl" if GENDER[name] == "f" else "boy"
        if self.chance(0.4):
            return self.new(ANIMALS)
        return child if self.chance(0.65) else self.rng.choice(JOBS)

    def thing(self, nouns: list[str]) -> str:
        """A thing of its own noun, mostly with an adjective that suits it."""
        word = self.new(nouns)
        adjective = self.rng.choice(ADJECTIVES[GROUPS[word]])
        return f"{adjective} {word}" if self.chance(0.75) else word

    def toy(self) -> str:
        return self.thing(list(THINGS))

    def place(self, options: list[str] | None = None) -> str:
        return self.new(options or list(PLACES))

    def spot(self, place: str) -> str:
        return self.new(SPOTS[place])

    def where(self, a: str) -> str:
        place = self.world.people[a].place
        assert place
        return place

    def has(self, a: str, x: str) -> bool:
        return self.world.things[x].where == ("person", a)

    # beats that many plots share
    def hero(self, place: str) -> str:
        """Introduce somebody who is in a place."""
        a = self.name()
        opening = self.rng.choice(OPENINGS)
        if self.chance(0.5):
            self("intro", a=a, k=self.kind(a))
            self.maybe(0.15, "sun")
            self("be", prefix=opening, a=a, p=place)
        else:
            self("intro_at", a=a, k=self.kind(a), p=place)
            self.maybe(0.15, "sun")
        return a

    def owner(self, place: str) -> tuple[str, str]:
        """Introduce somebody in a place, and a thing that is theirs."""
        a, x = self.hero(place), self.toy()
        self("have", a=a, x=x)
        return a, x

    def friend(self, a: str, place: str) -> str:
        """Introduce a friend of a in a place."""
        b = self.name()
        if place == self.where(a) and self.chance(0.6):
            self("meet_new", a=a, b=b, k=self.kind(b))
        else:
            self("friend", a=a, b=b, k=self.kind(b))
            self("be", a=b, p=place)
        return b

    def thanks(self, a: str, b: str) -> None:
        if self.chance(0.6):
            self("thank", a=a, b=b)
            self.maybe(0.35, "welcome", a=b, b=a)

    def ending(self, a: str, b: str = "", x: str = "") -> None:
        """One or two sentences that are true at the end."""
        people = self.world.people
        options: list[tuple[str, Args]] = [("good_day", {})]
        if people[a].mood >= 0:
            options += [("happy", {"a": a}), ("smile", {"a": a})]
        if b and people[a].place == people[b].place:
            options += [("goodbye", {"a": a, "b": b}), ("friends", {"a": a, "b": b})]
            if people[a].mood >= 0 and people[b].mood >= 0:
                options += [("both_happy", {"a": a, "b": b})]
        if x and self.has(a, x):
            options += [("keep", {"a": a, "x": x})] * 2
            if a in self.world.things[x].lost_by:
                options += [("never_again", {"a": a, "x": x})] * 2
        if people[a].place:
            options += [("sleep", {"a": a, "p": people[a].place})]
        self.rng.shuffle(options)
        first, second = options[0], options[-1]
        calm = first[0] in ("sleep", "good_day", "goodbye")
        if first[0] != second[0] and self.chance(0.5):
            order = [second, first] if calm else [first, second]
            for kind, args in order:
                self(kind, self.late(kind), **args)
        else:
            self(first[0], self.late(first[0]), **first[1])

    def late(self, kind: str) -> str:
        """First words that suit an ending."""
        if kind == "sleep" and self.chance(0.6):
            return "That night, "
        return self.rng.choice(("In the end, ", "At last, ")) if kind == "happy" else ""

    def go(self, a: str, place: str, prefix: str = "") -> None:
        back = place in self.world.people[a].been and self.chance(0.7)
        self("go_back" if back else "go", prefix, a=a, p=place)

    def join(self, a: str, b: str) -> None:
        """Let a go where b is, if that is elsewhere."""
        if self.where(a) != self.where(b):
            self.go(a, self.where(b))
