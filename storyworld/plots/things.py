"""Plots about things: lost, given, traded, taken along, hidden, broken, lent."""

from __future__ import annotations

from storyworld.teller import Teller
from storyworld.words import CONTAINERS, OUTDOORS


def search(t: Teller) -> None:
    """Somebody loses a thing, looks for it, and finds it with help."""
    place = t.place()
    a, x = t.owner(place)
    t.maybe(0.4, "use", a=a, x=x)
    if t.chance(0.6):
        t.go(a, t.elsewhere(place))
    place = t.where(a)
    t("lose", a=a, x=x, prefix="But " if t.chance(0.2) else "")
    if t.chance(0.3):
        t("sad_lost", a=a, x=x)
    elif t.chance(0.4):
        t("sad", a=a)
    t("look", a=a, x=x, s=t.spot(place), prefix="First, " if t.chance(0.2) else "")
    if t.chance(0.3):
        t("look", a=a, x=x, s=t.spot(place))
    last = t.elsewhere(place)
    if t.chance(0.25):
        t("find", "At last, " if t.chance(0.5) else "", a=a, x=x, s=t.spot(place))
        return t.ending(a, x=x)
    b = t.friend(a, place if t.chance(0.7) else last)
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
    place = t.place()
    a, x = t.hero(place), t.toy()
    is_wrapped = t.chance(0.5)
    if t.chance(0.3):
        t("find_new", a=a, x=x, s=t.spot(place))
    else:
        t("have", a=a, x=x)
    v = t.thing(CONTAINERS)
    if is_wrapped:
        t("have", a=a, x=v)
        t("put_in", a=a, x=x, v=v)
    goal = t.elsewhere(place)
    b = t.friend(a, goal if t.chance(0.7) else place)
    t.maybe(0.4, "sad", a=b)
    if t.where(b) != place:
        t.go(a, goal, "So " if t.chance(0.2) else "")
        t.maybe(0.3, "meet", a=a, b=b)
    t("give", a=a, b=b, x=v if is_wrapped else x)
    if is_wrapped:
        t("take_out", a=b, x=x, v=v)
    t.thanks(b, a)
    t.maybe(0.4, "like", a=b, x=x)
    t.maybe(0.4, "use", a=b, x=x)
    t.ending(b, a, x)


def trade(t: Teller) -> None:
    """Two people swap their things."""
    place = t.place()
    a, x = t.owner(place)
    b, y = t.friend(a, place if t.chance(0.5) else t.elsewhere(place)), t.toy()
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
    place = t.place()
    goal = t.elsewhere(place)
    a = t.hero(place)
    b = t.friend(a, place)
    x, v = t.toy(), t.thing(CONTAINERS)
    t("have", a=a, x=x)
    t("have", a=b if t.chance(0.3) else a, x=v)
    if t.has(a, v):
        t("put_in", a=a, x=x, v=v)
    t("go_both", a=a, b=b, p=goal)
    if t.has(a, v):
        t("take_out", a=a, x=x, v=v)
    t.maybe(0.6, "use", a=a, x=x)
    if t.chance(0.5):
        t("lend" if t.chance(0.4) else "give", a=a, b=b, x=x)
        t.maybe(0.5, "use", a=b, x=x)
    else:
        t("see", a=b, x=t.toy(), s=t.spot(goal))
    if t.chance(0.4):
        t(
            "go_both",
            "In the evening, ",
            a=a,
            b=b,
            p=t.elsewhere(goal) if t.chance(0.5) else place,
        )
    elif t.chance(0.5):
        t.go(b, place)
    t.ending(a, b)


def hidden(t: Teller) -> None:
    """One hides a thing, another moves it, and the first looks in the wrong spot."""
    place = t.place()
    a, x = t.owner(place)
    first, second = t.spot(place), t.spot(place)
    t("hide", a=a, x=x, s=first)
    t.go(a, t.elsewhere(place))
    b = t.stranger(a, place)
    t("take", a=b, x=x)
    how = t.rng.choice(("hide", "put", "keep"))
    if how != "keep":
        t(how, a=b, x=x, s=second)
    elif t.chance(0.5):
        t("use", a=b, x=x)
    if t.chance(0.75):
        t.go(a, place)
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


def repair(t: Teller) -> None:
    """A thing breaks and somebody repairs it."""
    place = t.place()
    a, x = t.owner(place)
    t.maybe(0.5, "use", a=a, x=x)
    t("break", a=a, x=x, prefix="But " if t.chance(0.2) else "")
    t.maybe(0.6, "sad", a=a)
    goal = t.place(["workshop"]) if t.chance(0.4) and place in OUTDOORS else t.elsewhere(place)
    b = t.friend(a, goal if t.chance(0.7) else place)
    if t.where(b) != place:
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
    place = t.place()
    a, x = t.owner(place)
    b = t.friend(a, place)
    t.maybe(0.4, "want", a=b, x=x)
    t("lend", a=a, b=b, x=x)
    t.thanks(b, a)
    t.maybe(0.3, "has_now", a=b, x=x)
    if t.chance(0.7):
        t.go(b, t.elsewhere(place))
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
    place = t.place()
    a, (x, y) = t.hero(place), t.twins()
    t("have", a=a, x=x)
    t("find_new", a=a, x=y, s=t.spot(place))
    b = t.friend(a, place if t.chance(0.6) else t.elsewhere(place))
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
    place = t.place()
    a, x = t.owner(place)
    holder, other = a, t.friend(a, place)
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
