"""The teller: picks people, things and places, and tells events to a world."""

from __future__ import annotations

from random import Random

from storyworld import words
from storyworld.grammar import Args, noun
from storyworld.world import World

OPENINGS = ("One day, ", "One morning, ", "Early in the morning, ", "One afternoon, ")
NEXT = ("Then ", "After that, ", "Soon ", "A little later, ", "Next, ", "Later, ")
MOVES = ("go", "go_back", "put_in", "take_out", "put", "give", "swap", "look", "eat", "hide")


class Teller:
    """Tells events to the world and keeps them; picks people, things and places."""

    def __init__(self, rng: Random, world: World):
        self.rng, self.world = rng, world
        self.events: list[tuple[str, Args, str]] = []
        self.used: list[str] = []
        self.group = ""  # the group of adjectives of the last toy
        self.lead = ""  # the person with whom a later chapter begins

    def __call__(self, kind: str, prefix: str = "", **args: str) -> None:
        """Tell an event; a connecting word such as "Then" comes by chance."""
        if kind == "use":  # each thing is used in its own way
            kind += ":" + words.VERBS[noun(args["x"])]
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
        """Choose an item that the story has not used yet, as long as there is one."""
        fresh = [option for option in options if option not in self.used]
        pick = self.rng.choice(fresh or options)
        self.used.append(pick)
        return pick

    def name(self) -> str:
        """Choose a new name, mostly a girl's beside a boy's, so that "she" is clear."""
        genders = {words.GENDER[name] for name in self.world.people}
        if len(genders) != 1 or self.chance(0.1):
            return self.new(words.GIRLS + words.BOYS)
        return self.new(words.BOYS if "f" in genders else words.GIRLS)

    def kind(self, name: str) -> str:
        """Choose a child, an animal or a trade; at most one animal and one trade per story."""
        child = "girl" if words.GENDER[name] == "f" else "boy"
        taken = {person.kind for person in self.world.people.values()}
        if self.chance(0.45) and not taken & set(words.ANIMALS):
            return self.new(words.ANIMALS)
        return child if self.chance(0.65) or taken & set(words.JOBS) else self.new(words.JOBS)

    def thing(self, nouns: list[str]) -> str:
        """Choose a thing with a new noun, mostly with an adjective that suits it."""
        word = self.new(nouns)
        adjective = self.rng.choice(words.ADJECTIVES[words.GROUPS[word]])
        return f"{adjective} {word}" if self.chance(0.75) else word

    def toy(self) -> str:
        """Choose a toy: if the last one was red or blue, this one is old or new."""
        group = {"colour": "make", "make": "colour"}.get(self.group, "")
        fitting = [thing for thing in words.THINGS if not group or words.GROUPS[thing] == group]
        thing = self.thing(fitting)
        self.group = words.GROUPS[noun(thing)]
        return thing

    def twins(self) -> tuple[str, str]:
        """Choose two things of one sort, as "red ball" and "blue ball"."""
        word = self.new([word for word in words.GROUPS if word not in words.FOODS])
        first = self.rng.choice(
            [a for a in words.ADJECTIVES[words.GROUPS[word]] if a in words.OPPOSITES]
        )
        pair = [f"{first} {word}", f"{words.OPPOSITES[first]} {word}"]
        self.rng.shuffle(pair)
        return pair[0], pair[1]

    def place(self, options: list[str] | None = None) -> str:
        if not options and self.lead:
            return self.elsewhere(self.where(self.lead))
        return self.new(options or list(words.PLACES))

    def elsewhere(self, place: str) -> str:
        """Choose a place outdoors if this one is indoors, and the other way around."""
        return self.new(words.OUTDOORS if place in words.INDOORS else words.INDOORS)

    def spot(self, place: str) -> str:
        return self.new(words.SPOTS[place])

    def where(self, a: str) -> str:
        place = self.world.people[a].place
        assert place
        return place

    def has(self, a: str, x: str) -> bool:
        return self.world.things[x].where == ("person", a)

    # beats that many plots share
    def chapter(self) -> None:
        """Begin another day with one of the people that the story already has."""
        self.lead = self.rng.choice(list(self.world.people))

    def hero(self, place: str) -> str:
        """Return somebody in a place: a new person, or the one with whom the chapter begins."""
        if a := self.lead:
            self("be" if self.where(a) == place else "go", "The next day, ", a=a, p=place)
            return a
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
        """Return a friend of `a` in a place; nobody has more than one."""
        is_near = place == self.where(a)
        if b := self.other(a):
            if self.where(b) != place:
                self.go(b, place)
            elif not is_near:
                self("be", a=b, p=place)
            else:
                self.maybe(0.5, "with", a=a, b=b)
            return b
        b = self.name()
        if is_near and self.chance(0.6):
            self("meet_new", a=a, b=b, k=self.kind(b))
        else:
            self("friend", a=a, b=b, k=self.kind(b))
            self("with", a=a, b=b) if is_near else self("be", a=b, p=place)
        return b

    def other(self, a: str) -> str:
        """The other person of the story, "" if there is none."""
        return next((name for name in self.world.people if name != a), "")

    def stranger(self, a: str, place: str) -> str:
        """Return somebody who comes to a place while `a` is away."""
        if self.other(a):
            return self.friend(a, place)
        b = self.name()
        self("intro_at", a=b, k=self.kind(b), p=place)
        return b

    def thanks(self, a: str, b: str) -> None:
        if self.chance(0.6):
            self("thank", a=a, b=b)
            self.maybe(0.35, "welcome", a=b, b=a)

    def ending(self, a: str, b: str = "", x: str = "") -> None:
        """Tell one or two sentences that are true at the end."""
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
                self(kind, self.ending_prefix(kind), **args)
        else:
            self(first[0], self.ending_prefix(first[0]), **first[1])

    def ending_prefix(self, kind: str) -> str:
        """First words that suit an ending."""
        if kind == "sleep" and self.chance(0.6):
            return "That night, "
        return self.rng.choice(("In the end, ", "At last, ")) if kind == "happy" else ""

    def go(self, a: str, place: str, prefix: str = "") -> None:
        back = place in self.world.people[a].been and self.chance(0.7)
        self("go_back" if back else "go", prefix, a=a, p=place)

    def join(self, a: str, b: str) -> None:
        """Let `a` go where `b` is, if that is elsewhere."""
        if self.where(a) != self.where(b):
            self.go(a, self.where(b))
