"""Plots about food, numbers of things, and rain."""

from __future__ import annotations

from storyworld.grammar import number
from storyworld.teller import Teller
from storyworld.words import EDIBLE, FOODS, INDOORS, OUTDOORS, PLURALS


def meal(t: Teller) -> None:
    """Somebody is hungry and gets something to eat."""
    place = t.place()
    a, x = t.hero(place), t.thing(FOODS)
    t("hungry", a=a)
    goal = t.elsewhere(place)
    if t.chance(0.3):
        t.go(a, "kitchen" if place != "kitchen" else "bakery", "So " if t.chance(0.4) else "")
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
    b = t.friend(a, goal if t.chance(0.7) else place)
    t("cook" if t.chance(0.4) else "have", a=b, x=x)
    if t.where(b) != place:
        t.go(a, goal, "So " if t.chance(0.4) else "")
    t.maybe(0.3, "meet", a=a, b=b)
    if t.chance(0.4):
        t("share", a=b, b=a, x=x)
    else:
        t("give", a=b, b=a, x=x)
        t("eat", a=a, x=x)
    t.thanks(a, b)
    t.maybe(0.6, "full", a=a)
    return t.ending(a, b)


def counting(t: Teller) -> None:
    """Things are found, given away, eaten and counted."""
    place = t.place(OUTDOORS)
    a, f = t.hero(place), t.new(list(PLURALS))
    t("count_find", a=a, n=number(t.rng.choice(range(3, 10))), f=f)
    b = t.friend(a, place if t.chance(0.6) else t.elsewhere(place))
    if t.chance(0.3):
        t("count_have", a=b, n=number(t.rng.choice(range(1, 4))), f=f)
    t.join(a, b)
    change_counts(t, a, b, f, t.rng.choice((1, 2, 2)))
    t.ending(a, b)


def change_counts(t: Teller, a: str, b: str, f: str, times: int) -> None:
    """Give person `a` more or fewer things of one kind, and say how many there are."""
    for _ in range(times):
        n = t.world.number(a, f)
        steps = ["give"] * (n > 1) + ["lose"] * (n > 2) + ["more"] * (n < 7)
        steps += ["eat"] * (n > 1 and f in EDIBLE)
        step = t.rng.choice(steps)
        m = t.rng.choice(range(1, min(n, 5))) if step != "more" else t.rng.choice(range(1, 5))
        if step == "give":
            t("count_give", a=a, b=b, n=number(m), f=f)
            t.maybe(0.5, "count_now", a=b, n=number(t.world.number(b, f)), f=f)
            t.thanks(b, a)
        else:
            t("count_" + step, a=a, n=number(m), f=f)
        left = number(t.world.number(a, f))
        t("count_now" if step == "more" else "count_left", a=a, n=left, f=f)


def rain(t: Teller) -> None:
    """Rain surprises somebody, with or without an umbrella."""
    place, dry = t.place(OUTDOORS), t.place(INDOORS)
    a = t.hero(place)
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
            t.go(a, place)
    return t.ending(a)
