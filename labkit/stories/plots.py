"""The plots: what happens in a story, told event by event to a world that refuses nonsense.

A plot rolls dice at every turn, so that no two of its stories need be alike.
"""

from __future__ import annotations

from labkit.stories.grammar import number
from labkit.stories.teller import Teller
from labkit.stories.words import (
    CONTAINERS,
    EDIBLE,
    FOODS,
    INDOORS,
    OUTDOORS,
    PLURALS,
)


def search(t: Teller) -> None:
    """Somebody loses a thing, looks for it, and finds it with help."""
    here = t.place()
    a, x = t.owner(here)
    t.maybe(0.4, "use", a=a, x=x)
    if t.chance(0.6):
        t.go(a, t.elsewhere(here))
    here = t.where(a)
    t("lose", a=a, x=x, prefix="But " if t.chance(0.2) else "")
    if t.chance(0.3):
        t("sad_lost", a=a, x=x)
    elif t.chance(0.4):
        t("sad", a=a)
    t("look", a=a, x=x, s=t.spot(here), prefix="First, " if t.chance(0.2) else "")
    if t.chance(0.3):
        t("look", a=a, x=x, s=t.spot(here))
    last = t.elsewhere(here)
    if t.chance(0.25):
        t("find", "At last, " if t.chance(0.5) else "", a=a, x=x, s=t.spot(here))
        return t.ending(a, x=x)
    b = t.friend(a, here if t.chance(0.7) else last)
    t.join(a, b)
    t.maybe(0.6, "ask", a=a, b=b, x=x)
    how = t.rng.choice(("spot", "place", "finds"))
    if how == "finds":
        spot = t.spot(t.where(b))
        t("find", a=b, x=x, s=spot)
        t("give_back", a=b, b=a, x=x)
    else:
        where = t.elsewhere(t.where(a))
        if how == "spot":
            spot = t.spot(where)
            t("tell_spot", a=b, x=x, s=spot)
        else:
            spot = t.spot(where)
            t("tell_place", a=b, x=x, p=where)
        if t.chance(0.4):
            t("go_both", a=a, b=b, p=where)
        else:
            t.go(a, where)
        t("find", a=a, x=x, s=spot)
    if t.where(a) == t.where(b):
        t.thanks(a, b)
    return t.ending(a, b, x)


def gift(t: Teller) -> None:
    """A present, wrapped or not, for somebody who is sad or has a friend."""
    here = t.place()
    a, x = t.hero(here), t.toy()
    wrapped = t.chance(0.5)
    if t.chance(0.3):
        t("find_new", a=a, x=x, s=t.spot(here))
    else:
        t("have", a=a, x=x)
    v = t.thing(CONTAINERS)
    if wrapped:
        t("have", a=a, x=v)
        t("put_in", a=a, x=x, v=v)
    there = t.elsewhere(here)
    b = t.friend(a, there if t.chance(0.7) else here)
    t.maybe(0.4, "sad", a=b)
    if t.where(b) != here:
        t.go(a, there, "So " if t.chance(0.2) else "")
        t.maybe(0.3, "meet", a=a, b=b)
    t("give", a=a, b=b, x=v if wrapped else x)
    if wrapped:
        t("take_out", a=b, x=x, v=v)
    t.thanks(b, a)
    t.maybe(0.4, "like", a=b, x=x)
    t.maybe(0.4, "use", a=b, x=x)
    t.ending(b, a, x)


def trade(t: Teller) -> None:
    """Two people swap what they have."""
    here = t.place()
    a, x = t.owner(here)
    b, y = t.friend(a, here if t.chance(0.5) else t.elsewhere(here)), t.toy()
    t("have", a=b, x=y)
    t.join(a, b)
    t.maybe(0.5, "show", a=b, b=a, x=y)
    t.maybe(0.5, "want", a=a, x=y)
    if t.chance(0.7):
        t("offer", a=a, b=b, x=x, y=y)
        t("agree", a=b)
    t("swap", a=a, b=b, x=x, y=y)
    t.maybe(0.6, "has_now", a=a, x=y)
    t.maybe(0.5, "use", a=a, x=y)
    if t.chance(0.4):
        t("use", a=b, x=x)
    elif t.chance(0.4):
        t.go(b, t.elsewhere(t.where(b)))
    t.ending(a, b, y)


def trip(t: Teller) -> None:
    """Two friends pack a thing and take it along."""
    here = t.place()
    there = t.elsewhere(here)
    a = t.hero(here)
    b = t.friend(a, here)
    x, v = t.toy(), t.thing(CONTAINERS)
    t("have", a=a, x=x)
    t("have", a=b if t.chance(0.3) else a, x=v)
    if t.has(a, v):
        t("put_in", a=a, x=x, v=v)
    t("go_both", a=a, b=b, p=there)
    if t.has(a, v):
        t("take_out", a=a, x=x, v=v)
    t.maybe(0.6, "use", a=a, x=x)
    if t.chance(0.5):
        t("lend" if t.chance(0.4) else "give", a=a, b=b, x=x)
        t.maybe(0.5, "use", a=b, x=x)
    else:
        t("see", a=b, x=t.toy(), s=t.spot(there))
    if t.chance(0.4):
        t(
            "go_both",
            "In the evening, ",
            a=a,
            b=b,
            p=t.elsewhere(there) if t.chance(0.5) else here,
        )
    elif t.chance(0.5):
        t.go(b, here)
    t.ending(a, b)


def meal(t: Teller) -> None:
    """Somebody is hungry and gets something to eat."""
    here = t.place()
    a, x = t.hero(here), t.thing(FOODS)
    t("hungry", a=a)
    there = t.elsewhere(here)
    if t.chance(0.3):
        t.go(a, "kitchen" if here != "kitchen" else "bakery", "So " if t.chance(0.4) else "")
        t("cook", a=a, x=x)
        if t.chance(0.5):
            b = t.friend(a, t.where(a))
            t("share", a=a, b=b, x=x)
            t.thanks(b, a)
            t("full", a=t.rng.choice((a, b)))
            return t.ending(a, b)
        t("eat", a=a, x=x)
        t("full", a=a)
        b = t.friend(a, t.elsewhere(t.where(a)))
        t.join(a, b)
        return t.ending(a, b)
    b = t.friend(a, there if t.chance(0.7) else here)
    t("cook" if t.chance(0.4) else "have", a=b, x=x)
    if t.where(b) != here:
        t.go(a, there, "So " if t.chance(0.4) else "")
    t.maybe(0.3, "meet", a=a, b=b)
    if t.chance(0.4):
        t("share", a=b, b=a, x=x)
    else:
        t("give", a=b, b=a, x=x)
        t("eat", a=a, x=x)
    t.thanks(a, b)
    t.maybe(0.6, "full", a=a)
    return t.ending(a, b)


def hidden(t: Teller) -> None:
    """One hides a thing, another moves it, and the first looks in the wrong spot."""
    here = t.place()
    a, x = t.owner(here)
    first, second = t.spot(here), t.spot(here)
    t("hide", a=a, x=x, s=first)
    t.go(a, t.elsewhere(here))
    b = t.stranger(a, here)
    t("take", a=b, x=x)
    how = t.rng.choice(("hide", "put", "keep"))
    if how != "keep":
        t(how, a=b, x=x, s=second)
    elif t.chance(0.5):
        t("use", a=b, x=x)
    if t.chance(0.75):
        t.go(a, here)
        t("look", a=a, x=x, s=first)
        t.maybe(0.5, "ask", a=a, b=b, x=x)
        if how == "keep":
            if t.chance(0.7):
                t("give_back", a=b, b=a, x=x)
                t.thanks(a, b)
        elif t.chance(0.8):
            t.maybe(0.6, "tell_spot", a=b, x=x, s=second)
            t("find", a=a, x=x, s=second)
            return t.ending(a, b, x)
    return t.ending(b, a)


def counting(t: Teller) -> None:
    """Things are found, given away, eaten and counted."""
    here = t.place(OUTDOORS)
    a, f = t.hero(here), t.new(list(PLURALS))
    t("count_find", a=a, n=number(t.rng.choice(range(3, 10))), f=f)
    b = t.friend(a, here if t.chance(0.6) else t.elsewhere(here))
    if t.chance(0.3):
        t("count_have", a=b, n=number(t.rng.choice(range(1, 4))), f=f)
    t.join(a, b)
    counts(t, a, b, f, t.rng.choice((1, 2, 2)))
    t.ending(a, b)


def counts(t: Teller, a: str, b: str, f: str, times: int, said: float = 1.0) -> None:
    """Let what a has of one sort become more or less, and say, or as often as `said`, how
    many there are."""
    for _ in range(times):
        n = t.world.number(a, f)
        steps = ["give"] * (n > 1) + ["lose"] * (n > 2) + ["more"] * (n < 7)
        steps += ["eat"] * (n > 1 and f in EDIBLE)
        step = t.rng.choice(steps)
        m = t.rng.choice(range(1, min(n, 5))) if step != "more" else t.rng.choice(range(1, 5))
        if step == "give":
            t("count_give", a=a, b=b, n=number(m), f=f)
            t.maybe(said / 2, "count_now", a=b, n=number(t.world.number(b, f)), f=f)
            t.thanks(b, a)
        else:
            t("count_" + step, a=a, n=number(m), f=f)
        left = number(t.world.number(a, f))
        if said == 1 or t.chance(said):  # stories cast no die here: a seed keeps its stories
            t("count_now" if step == "more" else "count_left", a=a, n=left, f=f)


def rain(t: Teller) -> None:
    """Rain surprises somebody, with or without an umbrella."""
    here, dry = t.place(OUTDOORS), t.place(INDOORS)
    a = t.hero(here)
    x = t.toy() if t.chance(0.5) else ""
    covered = t.chance(0.4) and "umbrella" not in t.used
    if x:
        t("have", a=a, x=x)
    y = t.thing(["umbrella"]) if covered else ""
    if covered:
        t("have", a=a, x=y)
    if t.world.weather != "rain":
        t("rain")
    if covered:
        t("umbrella", a=a, x=y)
        b = t.friend(a, t.where(a))
        t("wet", a=b)
        if t.chance(0.5):
            t("lend" if t.chance(0.5) else "give", a=a, b=b, x=y)
            t.thanks(b, a)
        t("shelter" if t.chance(0.4) else "go", a=b, p=dry)
        t("dry", a=b)
        return t.ending(a, b)
    t("wet", a=a)
    t("shelter", a=a, p=dry)
    if t.chance(0.6):
        b = t.friend(a, dry)
        if x and t.chance(0.6):
            t("show" if t.chance(0.5) else "give", a=a, b=b, x=x)
    t("dry", a=a)
    if t.chance(0.5):
        t("clear")
        if t.chance(0.5):
            t.go(a, here)
    return t.ending(a)


def repair(t: Teller) -> None:
    """A thing breaks and somebody mends it."""
    here = t.place()
    a, x = t.owner(here)
    t.maybe(0.5, "use", a=a, x=x)
    t("break", a=a, x=x, prefix="But " if t.chance(0.2) else "")
    t.maybe(0.6, "sad", a=a)
    there = t.place(["workshop"]) if t.chance(0.4) and here in OUTDOORS else t.elsewhere(here)
    b = t.friend(a, there if t.chance(0.7) else here)
    if t.where(b) != here:
        t.go(a, t.where(b), "So " if t.chance(0.3) else "")
    t.maybe(0.5, "show", a=a, b=b, x=x)
    t.maybe(0.4, "help", a=b, b=a)
    t("fix", a=b, x=x)
    t.maybe(0.4, "fixed", x=x)
    t.thanks(a, b)
    t.maybe(0.5, "use", a=a, x=x)
    t.ending(a, b, x)


def lending(t: Teller) -> None:
    """A thing is borrowed and, mostly, brought back."""
    here = t.place()
    a, x = t.owner(here)
    b = t.friend(a, here)
    t.maybe(0.4, "want", a=b, x=x)
    t("lend", a=a, b=b, x=x)
    t.thanks(b, a)
    t.maybe(0.3, "has_now", a=b, x=x)
    if t.chance(0.7):
        t.go(b, t.elsewhere(here))
    t("use", a=b, x=x)
    if t.chance(0.6):
        t.join(b, a)
        t("give_back", "In the evening, " if t.chance(0.3) else "", a=b, b=a, x=x)
        return t.ending(a, b, x)
    if t.chance(0.5):
        t("put", a=b, x=x, s=t.spot(t.where(b)))
    return t.ending(b, a)


def twins(t: Teller) -> None:
    """Two things of one sort go different ways."""
    here = t.place()
    a, (x, y) = t.hero(here), t.twins()
    t("have", a=a, x=x)
    t("find_new", a=a, x=y, s=t.spot(here))
    b = t.friend(a, here if t.chance(0.6) else t.elsewhere(here))
    t.join(a, b)
    one, other = (x, y) if t.chance(0.5) else (y, x)
    t("give", a=a, b=b, x=one)
    t.thanks(b, a)
    if t.chance(0.5):
        t("put", a=b, x=one, s=t.spot(t.where(b)))
    if t.chance(0.5):
        t("put", a=a, x=other, s=t.spot(t.where(a)))
    elif t.chance(0.5):
        t.go(a, t.elsewhere(t.where(a)))
    t.ending(b, a)


def wandering(t: Teller) -> None:
    """A thing passes from hand to hand and from place to place."""
    here = t.place()
    a, x = t.owner(here)
    holder, other = a, t.friend(a, here)
    for _ in range(t.rng.choice((2, 3, 3))):
        near = t.where(other) == t.where(holder)
        step = t.rng.choice(["go", "put", "give", "give"] if near else ["follow", "put"])
        if step == "go":
            t.go(holder, t.elsewhere(t.where(holder)))
        elif step == "follow":
            t.join(other, holder)
        elif step == "give":
            t("give", a=holder, b=other, x=x)
            holder, other = other, holder
            t.maybe(0.3, "has_now", a=holder, x=x)
        else:
            t("put", a=holder, x=x, s=t.spot(t.where(holder)))
            if near and t.chance(0.6):
                holder, other = other, holder
                t("take", a=holder, x=x)
            else:
                t.go(holder, t.elsewhere(t.where(holder)))
                break
    t.ending(holder, other)


def belongings(t: Teller) -> None:
    """Two people with two things each, which may change hands: which one is asked for counts.

    Not among PLOTS. In most of these one thing matters, and a model that answers who has
    *something* is mostly right, and need not look for what the question names.
    """
    here = t.place()
    a = t.hero(here)
    b = t.friend(a, here)
    for name in t.rng.sample([a, a, b, b], 4):
        t("have", a=name, x=t.toy())
    exchanges(t, here, t.rng.choice((0, 1, 1, 2)))
    t.ending(a, b)


def exchanges(t: Teller, here: str, times: int) -> None:
    """Let things change hands or be put down, while both have something left."""
    for _ in range(times):
        a, b = t.rng.sample(list(t.world.people), 2)
        mine, yours = ([x for x in t.world.things if t.has(name, x)] for name in (a, b))
        if not mine or not yours:
            return
        x, y = t.rng.choice(mine), t.rng.choice(yours)
        how = t.rng.choice(("give", "swap", "put"))
        if how == "put":
            t("put", a=a, x=x, s=t.spot(here))
        elif how == "give":
            t("give", a=a, b=b, x=x)
        else:
            t("swap", a=a, b=b, x=x, y=y)
            t.maybe(0.4, "has_now", a=a, x=y)


PLOTS = (
    *(search, gift, trade, trip, meal, hidden),
    *(counting, rain, repair, lending, twins, wandering),
)
