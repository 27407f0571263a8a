"""Drills: some sentences about few people, and questions that need each of them.

Where hardly anything stands, a model learns within 50 steps to look for what is asked about;
from whole stories alone none had in many thousands.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from random import Random

from labkit.stories import plots
from labkit.stories.events import rows
from labkit.stories.grammar import Args, Writer, articles, at, number
from labkit.stories.questions import (
    GIFTS,
    UNTOLD,
    answer,
    candidates,
    question,
    told,
    unfounded,
    untold,
)
from labkit.stories.teller import Teller
from labkit.stories.words import (
    ANIMALS,
    BOYS,
    CONTAINERS,
    FOODS,
    GENDER,
    GIRLS,
    JOBS,
    NUMBERS,
    PLACE_OF_SPOT,
    PLACES,
    PLURALS,
    QUESTIONS,
)
from labkit.stories.world import World

HELD = ("where_thing", "who_has")
FOLLOWED = (*HELD, "where_person", "how_many")  # through the whole story
OTHERS = 2  # questions of other kinds about a story
STRANGERS = 0.5  # share of stories that are also asked about what they do not say
SUPPOSING = 0.5  # share of these that ask what nobody said of those whom it mentions
REWORDED = 0.3  # share of questions in other words than those of the documents
EASY = 0.3  # share of drills with two people, and nothing that changes hands
TWINS = 0.4  # share of those of things with two of one sort, as a red and a blue kite
SAID = 0.6  # share of counts in a drill that are told and need not be reckoned
NEW = 0.6  # share of things that are new in a few words and said to be: "a ball"
UNSAID = 0.2  # share of what is easily guessed that is asked for
AND = 0.15  # share of short sentences that are joined to the one before
DIGITS = 0.5  # share of stories in which numbers are digits
MOVED = 0.6  # share of spots that become one that the documents do not know
OTHER = 0.5  # share of stories with a gift that are asked about another thing
NEAR = ("in", "on", "under", "behind", "beside", "near", "at", "next to", "inside", "by")


def questions(world: World, rng: Random, kinds: Sequence[str]) -> list[tuple[str, str]]:
    """Of these kinds all that have to be followed and some others, with their answers."""
    followed, others = [], []
    for kind in kinds:
        for args in candidates(world, kind, rng):
            if reply := answer(world, kind, args):
                both = (worded(world, rng, kind, args), reply)
                (followed if kind in FOLLOWED else others).append(both)
    if rng.random() < STRANGERS:
        words = unfounded(world, rng) if rng.random() < SUPPOSING else None
        followed.append((words or untold(world, rng), UNTOLD))
    return followed + rng.sample(others, min(OTHERS, len(others)))


def worded(world: World, rng: Random, kind: str, args: Args) -> str:
    """The question as the documents ask it, or in other words."""
    other = rng.random() < REWORDED
    return question(world, kind, args, rng.randrange(1, len(QUESTIONS[kind])) if other else 0)


def who_has_what(rng: Random) -> tuple[list[str], list[tuple[str, str]]]:
    """Two or three people who are not introduced, what they have, where they put it.

    Without easy ones the dense model had not learnt it in 500 steps. Of two kites it named the
    owner of one or the other by chance, until it had 120 steps of easy drills alone, most with
    such twins: then it was right in 97 of 100.
    """
    t = Teller(rng, World())
    here, easy = t.place(), t.chance(EASY)
    names = people(t, here, 2 if easy else rng.choice((2, 2, 3)))
    owners = [*names, *rng.choices(names, k=rng.choice((0, 0, 1) if easy else (0, 0, 1, 2)))]
    things = [t.toy() for _ in owners]
    if t.chance(TWINS):
        things[:2] = t.twins()
    for name, x in zip(owners, things, strict=True):
        t("have", a=name, x=x)
    plots.exchanges(t, here, 0 if easy else rng.choice((0, 1, 1, 2, 3)))
    for x in rng.sample(things, rng.choice((0, 1, 2))):
        for name in names:
            if t.has(name, x):
                t("put", a=name, x=x, s=t.spot(here))
    gone = rng.sample(names, rng.choice((0, 1, 2)))
    for name in gone:
        t("go", a=name, p=t.elsewhere(here))
    asked = questions(t.world, rng, HELD) + not_given(t.world, rng)
    for name in gone:  # where the others are is not told
        asked.append(whereabouts(t, name))
    return Writer(rng).text(t.events), asked


def who_is_where(rng: Random) -> tuple[list[str], list[tuple[str, str]]]:
    """Two or three people, who come and go."""
    t = Teller(rng, World())
    names = people(t, "", rng.choice((2, 2, 3)))
    for name in names:
        t("be", a=name, p=t.place())
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        a = rng.choice(names)
        known = {*map(t.where, names), *t.world.people[a].been} - {t.where(a)}
        t.go(a, rng.choice([*sorted(known), t.place()]))
    return Writer(rng).text(t.events), questions(t.world, rng, ("where_person",))


def who_has_how_many(rng: Random) -> tuple[list[str], list[tuple[str, str]]]:
    """Two people who have some of one sort, and what becomes of these.

    A story always says how many are left, a drill not always: a model that only ever had to
    repeat it does not subtract. Nor did the ones that ship, after 370 steps of which one story
    in ten was such a drill.
    """
    t = Teller(rng, World())
    (a, b), f = people(t, t.place(), 2), t.new(list(PLURALS))
    for name, most in ((a, 9), (b, 4)):
        how = rng.choice(("count_have", "count_find"))
        t(how, a=name, n=number(rng.choice(range(1, most + 1))), f=f)
    plots.counts(t, a, b, f, 0 if t.chance(EASY) else rng.choice((1, 2, 2)), SAID)
    sentences = Writer(rng).text(t.events)
    return as_typed(rng, sentences, questions(t.world, rng, ("how_many",)))


def whereabouts(t: Teller, name: str) -> tuple[str, str]:
    found = {"a": name}
    asked = worded(t.world, t.rng, "where_person", found)
    return asked, answer(t.world, "where_person", found)


def people(t: Teller, place: str, many: int) -> list[str]:
    """So many who are in a place, or nobody knows where, and of whom nothing is said."""
    names = t.rng.sample(GIRLS + BOYS, many)
    for name in names:
        args = {"a": name, "k": t.rng.choice(ANIMALS)}
        t.world.apply("intro_at" if place else "intro", args | {"p": place}, "")
        t.world.people[name].kind = ""
    return names


# %% a few words, as somebody types them who has just this to say
FEW_WORDS = """
have: who_has where_thing colour
  {a} had the {x}. | {a} has the {x}. | {a} has got the {x}. | {a} owns the {x}.
give: who_has where_thing who_gave did_give colour
  {a} gave the {x} to {b}. | {a} gives the {x} to {b}. | {a} gave {b} the {x}.
  {a} gives {b} the {x}. | {B} got the {x} from {A}. | {B} was given the {x} by {A}.
  {a} has given the {x} to {b}.
lend: who_has where_thing
  {a} lent the {x} to {b}. | {a} lends the {x} to {b}. | {B} borrowed the {x} from {A}.
  {B} borrows the {x} from {A}.
put: who_has where_thing
  {a} put the {x} {s}. | {a} puts the {x} {s}. | {a} left the {x} {s}.
  {a} has put the {x} {s}.
hide: who_has where_thing where_hid
  {a} hid the {x} {s}. | {a} hides the {x} {s}. | {a} has hidden the {x} {s}.
put_in: where_thing what_in
  {a} put the {x} in the {v}. | {a} puts the {x} into the {v}. | {a} has put the {x} in the {v}.
take_out: who_has where_thing what_in
  {a} took the {x} out of the {v}. | {a} takes the {x} out of the {v}.
  {a} has taken the {x} out of the {v}.
find_new: who_has where_thing who_found where_found
  {a} found the {x} {s}. | {a} finds the {x} {s}. | {a} has found the {x} {s}.
eat: what_ate is_hungry
  {a} ate the {x}. | {a} eats the {x}. | {a} has eaten the {x}. | {a} is eating the {x}.
share: what_ate is_hungry
  {a} shared the {x} with {b}. | {a} shares the {x} with {b}. | {A} and {B} eat the {x}.
fix: who_fixed
  {a} fixed the {x}. | {a} mends the {x}. | {a} has repaired the {x}. | {a} repaired the {x}.
lose: why_sad
  {a} lost the {x}. | {a} has lost the {x}. | {a} loses the {x}.
break: why_sad
  {a} broke the {x}. | {a} has broken the {x}. | {a} breaks the {x}.
intro: what_kind
  {A} was a {k}. | {A} is a {k}. | There is a {k} called {A}. | There was a {k} named {A}.
hungry: is_hungry
  {a} was hungry. | {a} is hungry. | {a} feels hungry.
rain: did_rain
  It rained. | It is raining. | It rains. | It was raining.
count_have: how_many
  {a} had {n} {f}. | {a} has {n} {f}. | {a} has got {n} {f}. | {a} found {n} {f}.
go:
  {a} went to the {to}. | {a} goes to the {to}. | {a} has gone to the {to}. | {a} is {at}.
  {a} was {at}. | {a} walks to the {to}. | {a} plays {at}.
"""
ANSWERED = {kind: kinds.split() for kind, kinds, _ in rows(FEW_WORDS)}
SHORT = {kind: told for kind, _, told in rows(FEW_WORDS)}
SPOT_NOUNS = sorted({spot.split(" the ")[1] for spot in PLACE_OF_SPOT if " the " in spot})
PLACED = {"put", "hide", "find_new"}  # they tell where somebody is, too
OF_TWO = ("give", "lend", "share")
WITH_THING = ("give", "lend", "put", "hide", "put_in", "take_out", "fix", "lose", "break")


def in_few_words(rng: Random) -> tuple[list[str], list[tuple[str, str]]]:
    """One to some short sentences, as somebody types them who has just this to say.

    What leads up to them goes without saying: "Sam ate a pie." needs no pie before. Of the
    questions about little stories made up by hand (visitors.json), models without this drill
    answered 41 and 37 of 100 right; after 330 steps of drills alone, half of them such, and 260
    mixed ones, 66 and 68.
    """
    t = Teller(rng, World())
    here = t.place()
    names = people(t, here, rng.choice((1, 2, 2, 3)))
    twins = list(t.twins()) if t.chance(TWINS) else []
    kinds = ["have"] * len(twins) + rng.choices(
        [*SHORT, "intro"], k=rng.choice((1, 1, 2, 2, 3, 4))
    )
    for kind in kinds:
        staying = [name for name in names if t.where(name) == here]
        if staying:
            few_words(t, kind, rng.sample(staying, len(staying)), twins)
    kinds_told = {kind for kind, _, _ in t.events}
    gone = [args["a"] for kind, args, _ in t.events if kind == "go"]
    for name in names:
        if all(name not in args.values() for _, args, _ in t.events):
            del t.world.people[name]
        elif name not in gone and kinds_told.isdisjoint(PLACED):
            t.world.people[name].place = None  # nobody said it
    sentences = loosely(rng, Writer(rng, SHORT).text(t.events), list(t.world.things))
    asked = sorted({kind for event in kinds_told for kind in ANSWERED[event]})
    wanted = questions(t.world, rng, asked) + [whereabouts(t, name) for name in gone]
    wanted = dict(wanted + in_all(t.world) + unsaid(t.world, rng) + not_given(t.world, rng))
    if not kinds_told or not wanted:
        return in_few_words(rng)
    return as_typed(rng, sentences, list(wanted.items()))


def few_words(t: Teller, kind: str, names: list[str], twins: list[str]) -> None:
    """Tell an event of the first of the names and perhaps the second, who are here, unless it
    is told already or another is needed; what it supposes, let be so."""
    world, (a, *others) = t.world, names
    here, args = t.where(a), {"a": a}
    heard = [one for one, also, _ in t.events if a in also.values()]
    late = {"intro": heard, "hungry": world.people[a].hungry is not None, "rain": world.weather}
    if late.get(kind) or (kind in OF_TWO and not others):
        return
    supposed = lambda kind, **more: world.apply(kind, {"a": a, **more})  # noqa: E731
    if kind in OF_TWO:
        args["b"] = others[0]
    if kind in ("have", "find_new"):
        args["x"] = twins.pop() if twins else t.toy()
    elif kind in ("eat", "share"):
        args["x"] = t.thing(FOODS)
        supposed("have", x=args["x"])
    elif kind in WITH_THING:
        held = [x for x in world.things if t.has(a, x) and world.things[x].owner == a]
        args["x"] = t.rng.choice(held) if held else t.toy()
        held or supposed("have", x=args["x"])
    match kind:
        case "put" | "hide" | "find_new":
            args["s"] = t.spot(here)
        case "put_in" | "take_out":
            args["v"] = t.thing(CONTAINERS)
            supposed("have", x=args["v"])
        case "intro":
            args["k"] = t.rng.choice((t.kind(a), t.new(JOBS)))
            del world.people[a]
        case "go":
            args["p"] = t.elsewhere(here)
        case "count_have":
            args |= {"n": number(t.rng.randint(1, 12)), "f": t.new(list(PLURALS))}
    if kind == "take_out":
        supposed("put_in", x=args["x"], v=args["v"])
    elif kind == "fix":
        world.things[args["x"]].state = "broken"
    t(kind, **args)
    if kind == "intro":
        world.people[a].place = here
    for x in (args.get("v"), args["x"] if kind in ("fix", "break") else None):
        if x:
            world.things[x].move()  # who has it, nobody said
    if kind == "hungry" and t.chance(0.6):
        few_words(t, t.rng.choice(("eat", "share")), names, twins)


def unsaid(world: World, rng: Random) -> list[tuple[str, str]]:
    """What is easily guessed and was not told: where and who they are, how many of another
    sort."""
    found = [("where_person", {"a": a}) for a, one in world.people.items() if not one.place]
    found += [("what_kind", {"a": a}) for a, one in world.people.items() if not one.kind]
    found += [("how_many", {"a": a, "f": rng.choice(list(PLURALS))}) for a, _ in world.counts]
    found = [one for one in found if rng.random() < UNSAID and not answer(world, *one)]
    return [(question(world, *one), UNTOLD) for one in found]


def in_all(world: World) -> list[tuple[str, str]]:
    """How many there are of what just one person has."""
    of = Counter(f for _, f in world.counts)
    return [
        (f"How many {PLURALS[f]} are there?", answer(world, "how_many", {"a": a, "f": f}))
        for a, f in world.counts
        if of[f] == 1
    ]


def not_given(world: World, rng: Random) -> list[tuple[str, str]]:
    """Whether somebody gave what was given, and another thing."""
    gifts = told(world, GIFTS)
    if not gifts or rng.random() > OTHER:
        return []
    gift = rng.choice(gifts)
    pairs = [{"a": gift["a"], "b": gift["b"], "x": x} for x in (gift["x"], *world.things)]
    both = [pairs[0], rng.choice(pairs)]
    found = {worded(world, rng, "did_give", pair): pair for pair in both}
    answers = [(words, answer(world, "did_give", pair)) for words, pair in found.items()]
    return [(words, reply) for words, reply in answers if reply]


def as_typed(
    rng: Random, sentences: list[str], wanted: list[tuple[str, str]]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Spots that no document knows ("on the ladder", "in the park"), and numbers as digits.

    What stands in the story is to be said again, not what is often said. The answers' numbers
    stay words.
    """
    text, moved = "\n".join(sentences), {}
    for spot in PLACE_OF_SPOT:
        if spot in text and rng.random() < MOVED:
            some = f"{rng.choice(NEAR)} the {rng.choice(SPOT_NOUNS)}"
            moved[spot] = rng.choice((some, at(rng.choice(list(PLACES)))))
    for spot, other in moved.items():
        text = text.replace(spot, other)
        wanted = [(words, reply.replace(spot, other)) for words, reply in wanted]
    if rng.random() < DIGITS:
        text = re.sub(rf"\b({'|'.join(NUMBERS)})\b", digits, text)
    return text.split("\n"), wanted


def digits(word: re.Match) -> str:
    return str(NUMBERS.index(word[0]) + 1)


def loosely(rng: Random, sentences: list[str], things: list[str]) -> list[str]:
    """ "a ball" for "the ball" where it is new, and two sentences that become one."""
    text = " ".join(sentences)
    for x in things:
        if rng.random() < NEW:
            text = re.sub(rf"\bthe {x}\b", f"a {x}", text, count=1)
    found = []
    for sentence in articles(text).split(". "):
        sentence = sentence.rstrip(".") + "."
        if found and rng.random() < AND:
            name = sentence.split()[0] in GENDER
            rest = sentence if name else sentence[0].lower() + sentence[1:]
            found[-1] = found[-1][:-1] + rng.choice((" and ", ", and ")) + rest
        else:
            found.append(sentence)
    return found
