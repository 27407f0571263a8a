"""Questions about a story, each with the only answer that follows from it."""

from __future__ import annotations

from itertools import product
from random import Random

from storyworld.grammar import SLOT, Args, articles, at, key, noun, number
from storyworld.words import COLOURS, GENDER, PLURALS, QUESTIONS
from storyworld.world import World

GIFTS = ("give", "give_back")
FINDS = ("find", "find_in", "find_new")
UNTOLD = "I do not know. The story does not say."


def answer(world: World, kind: str, args: Args) -> str | None:
    """Return the answer; None if the story gives none, or several would be right."""
    known = {**world.people, **world.things}
    if any(args[k] not in known for k in "abxv" if k in args):
        return None
    return ANSWERS[kind](world, **args)


def subject(name: str) -> str:
    return "She" if GENDER[name] == "f" else "He"


def only_value(found: list[str]) -> str | None:
    return found[0] if len(set(found)) == 1 else None


def find_events(world: World, kinds: tuple[str, ...], **wanted: str) -> list[Args]:
    """Return the events of these kinds with these arguments."""
    return [
        args
        for kind, args in world.log
        if kind in kinds and all(args.get(k) == v for k, v in wanted.items())
    ]


def where_thing(world: World, x: str) -> str | None:
    sort, name = world.things[x].where or ("", "")
    if sort in ("", "gone"):
        return None
    places = {"person": f"{name} has it.", "thing": f"It is in the {noun(name)}."}
    return places.get(sort, f"It is {at(name) if sort == 'place' else name}.")


def who_has(world: World, x: str) -> str | None:
    sort, name = world.things[x].where or ("", "")
    return {"person": f"{name} has it.", "spot": "Nobody has it."}.get(sort)


def where_person(world: World, a: str) -> str | None:
    place = world.people[a].place
    return f"{subject(a)} is {at(place)}." if place else None


def did_give(world: World, a: str, b: str, x: str) -> str | None:
    if find_events(world, ("lend", "swap"), x=x) or find_events(world, ("swap",), y=x):
        return None  # after a loan or a trade, yes or no is not clear
    she = subject(a).lower()
    return (
        f"Yes, {she} did."
        if find_events(world, GIFTS, a=a, b=b, x=x)
        else f"No, {she} did not."
    )


def who_gave(world: World, b: str, x: str) -> str | None:
    if find_events(world, ("lend", "swap"), x=x) or find_events(world, ("swap",), y=x):
        return None
    name = only_value([args["a"] for args in find_events(world, GIFTS, b=b, x=x)])
    return f"{name} gave it to {'her' if GENDER[b] == 'f' else 'him'}." if name else None


def how_many(world: World, a: str, f: str) -> str | None:
    if (a, f) not in world.counts:
        return None
    n = world.counts[a, f]
    if n > 12:
        return None
    amount = number(n) if n else "no"
    return f"{subject(a)} has {amount} {f if n == 1 else PLURALS[f]}."


def who_found(world: World, x: str) -> str | None:
    name = only_value([args["a"] for args in find_events(world, FINDS, x=x)])
    return f"{name} found it." if name else None


def where_found(world: World, a: str, x: str) -> str | None:
    finds = find_events(world, FINDS, a=a, x=x)
    spot = only_value([args.get("s") or f"in the {noun(args['v'])}" for args in finds])
    return f"{subject(a)} found it {spot}." if spot else None


def where_hid(world: World, a: str, x: str) -> str | None:
    spot = only_value([args["s"] for args in find_events(world, ("hide",), a=a, x=x)])
    return f"{subject(a)} hid it {spot}." if spot else None


def why_sad(world: World, a: str) -> str | None:
    sorrows = world.people[a].sorrows
    if len(sorrows) != 1:
        return None
    why, x = sorrows[0]
    if why == "lost":
        return f"Because {subject(a).lower()} lost the {noun(x)}."
    return f"Because the {noun(x)} broke."


def colour(world: World, x: str) -> str | None:
    """Ask for the color of a thing that the story mentioned with its color."""
    first = x.split()[0]
    return f"It is {first}." if first in COLOURS else None


def what_kind(world: World, a: str) -> str | None:
    kind = world.people[a].kind
    return articles(f"{a} is a {kind}.") if kind else None


def what_ate(world: World, a: str) -> str | None:
    meals = [f"the {noun(args['x'])}" for args in find_events(world, ("eat", "share"), a=a)]
    meals += [f"the {noun(args['x'])}" for args in find_events(world, ("share",), b=a)]
    for args in find_events(world, ("count_eat",), a=a):
        meals.append(f"{args['n']} {args['f'] if args['n'] == 'one' else PLURALS[args['f']]}")
    return f"{subject(a)} ate {meals[0]}." if len(meals) == 1 else None


def what_in(world: World, v: str) -> str | None:
    inside = [x for x, thing in world.things.items() if thing.where == ("thing", v)]
    if not inside and find_events(world, ("put_in",), v=v):
        return "Nothing is in it."
    return f"The {noun(inside[0])} is in it." if len(inside) == 1 else None


def who_fixed(world: World, x: str) -> str | None:
    name = only_value([args["a"] for args in find_events(world, ("fix",), x=x)])
    return f"{name} fixed it." if name else None


def is_hungry(world: World, a: str) -> str | None:
    hungry, she = world.people[a].hungry, subject(a).lower()
    return {True: f"Yes, {she} is.", False: f"No, {she} is not.", None: None}[hungry]


def did_rain(world: World) -> str | None:
    if find_events(world, ("rain",)):
        return "Yes, it did."
    return "No, it did not." if world.weather == "sun" else None


ANSWERS = {
    answer.__name__: answer
    for answer in (
        *(where_thing, who_has, where_person, did_give, who_gave, how_many, who_found),
        *(where_found, where_hid, why_sad, colour, what_kind, what_ate, what_in, who_fixed),
        *(is_hungry, did_rain),
    )
}


def candidates(world: World, kind: str, rng: Random) -> list[Args]:
    """Return the arguments worth asking about."""
    gifts = [{k: g[k] for k in "abx"} for g in find_events(world, GIFTS)]
    if kind == "did_give":  # "no" as often as "yes"
        pairs = [(a, b) for a in world.people for b in world.people if a != b]
        false = [{"a": a, "b": b, "x": g["x"]} for g in gifts for a, b in pairs]
        false = [args for args in false if args not in gifts]
        return [rng.choice(gifts), rng.choice(false)] if gifts and false else []
    if kind == "who_gave":
        return [{"b": g["b"], "x": g["x"]} for g in gifts]
    if kind == "how_many":
        return [{"a": a, "f": f} for a, f in world.counts]
    slots = [key(slot) for _, slot in SLOT.findall(QUESTIONS[kind])]
    options = [world.people if slot == "a" else world.things for slot in slots]
    return [dict(zip(slots, values, strict=True)) for values in product(*options)]


def ask(world: World, rng: Random, most: int) -> list[tuple[str, str]]:
    """Return up to `most` questions of different kinds, with their answers."""
    kinds = list(QUESTIONS)
    rng.shuffle(kinds)
    if rng.random() < 0.5:  # first, questions for which the whole story has to be followed
        kinds.sort(key=lambda kind: kind not in ("where_thing", "who_has", "where_person"))
    if rng.random() < 0.7:  # last, those that the first sentence answers
        kinds.sort(key=lambda kind: kind == "what_kind")
    asked: list[tuple[str, str]] = []
    for kind in kinds:
        options = candidates(world, kind, rng)
        rng.shuffle(options)
        for args in options:
            reply = answer(world, kind, args)
            if reply and len(asked) < most:
                asked.append((question(world, kind, args), reply))
                break
    rng.shuffle(asked)
    return asked


def question(world: World, kind: str, args: Args) -> str:
    """Return the question in words; a thing is named by its noun if that is clear."""
    words = dict(args)
    for k in "xv":
        if k in words:
            same = [x for x in world.things if noun(x) == noun(words[k])]
            words[k] = noun(words[k]) if len(same) == 1 else words[k]
    if "f" in words:
        words["f"] = PLURALS[words["f"]]
    capitals = {k.upper(): text for k, text in words.items()}
    return QUESTIONS[kind].format(**words, **capitals)
