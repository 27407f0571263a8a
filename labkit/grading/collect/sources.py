"""From a source to attempts: what each file holds, of which lab, and what its path tells of its
learner; with the lists that an LMS puts beside them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from labkit.core.syllabus import LABS, Lab
from labkit.grading.collect.contents import (
    GRADESCOPE,
    LIST,
    kind_of,
    read,
    ungraded,
)
from labkit.grading.collect.identify import Sorter, Where, by_lms, lab_by_name, named_lab
from labkit.grading.collect.places import Attempt, Places
from labkit.grading.collect.reader import Found, Reader
from labkit.grading.collect.roster import Participant, gradescope, worksheet
from labkit.grading.judge.intake import NotANotebook
from labkit.lang import said, tr

NO_LAB = said("neither its name nor its cells tell a lab; --lab names it")
NOTHING_GRADED = said("nothing in this notebook is graded")


@dataclass
class SourceFiles:
    """What was found in a source.

    attempts        what can be read, and what cannot, each with what its path says of a learner
    participants    Moodle's numbers and whose they are
    """

    attempts: list[Attempt] = field(default_factory=list)
    participants: list[Participant] = field(default_factory=list)


def files_of(
    source: Path,
    wanted: Lab | None,
    place: Places,
    alone: bool,
    known: Collection[str] = frozenset(),
) -> SourceFiles:
    """Everything in a source that somebody may have handed in.

    known    squeezed names of the roster
    """
    attempts, lists = [], {}
    for found in Reader().walk(source, alone):
        if is_list(found):
            lists[len(attempts)] = found
        attempts.append(attempt_of(found, source, wanted, place))
    whole = source.is_file() and any(one.parts[0] == source.name and not one.own
                                     and len(one.parts) > 1 for one in attempts)  # fmt: skip
    cut = 1 if whole or (source.is_file() and alone and len(attempts) > 0
                         and len(attempts[0].parts) > 1) else 0  # fmt: skip
    where = [where_of(one, cut) for one in attempts]
    sorter = Sorter(where, source.name if cut else "", known)
    attempts = [replace(one, who=who) for one, who in zip(attempts, sorter.who, strict=True)]
    lists = {n: each for n, each in lists.items() if each.parts[cut:-1] in sorter.containers}
    attempts = [one for number, one in enumerate(attempts) if number not in lists]
    for each in lists.values():
        if each.parts[-1].lower() == GRADESCOPE:
            attempts = list(by_gradescope(attempts, gradescope(each.data), cut, each))
    rows = [row for each in lists.values() for row in worksheet(each.data)]
    if cut or source.is_file():
        rows += beside(source)
    return SourceFiles([timed(one) for one in attempts], rows)


def is_list(found: Found) -> bool:
    """Whether a file may be an LMS's or the instructor's list; what an LMS names after a
    learner was handed in."""
    name = found.parts[-1]
    return (found.data is not None and kind_of(name) == LIST and not found.own
            and not by_lms(name))  # fmt: skip


def where_of(one: Attempt, cut: int) -> Where:
    end = one.own or len(one.parts)
    return Where(one.parts[cut:end], one.parts[end:], one.lab, one.readable)


def attempt_of(found: Found, source: Path, wanted: Lab | None, place: Places) -> Attempt:
    """What is in a file, and the lab to which it belongs: its cells say it, else its name."""
    named = named_lab(found.parts)
    one = Attempt(source, found.parts, found.when, found.own, found.stamped, claimed=named)
    if found.data is None or kind_of(found.parts[-1]) == LIST:
        reason = found.reason or ungraded(found.parts[-1])
        clutter = not found.reason
        return replace(one, lab=named or wanted, reason=reason, clutter=clutter)
    try:
        content = read(found.parts[-1], found.data)
    except NotANotebook as error:
        return replace(one, lab=lab_by_name(found.parts, wanted), reason=str(error))
    lab = content.lab or lab_by_name(found.parts, wanted) or next(iter(content.votes), None)
    if lab is None:
        return replace(one, reason=NO_LAB)
    if lab not in LABS:
        return replace(one, lab=lab, reason=NOTHING_GRADED)
    spooled, sha = place.spool(content.data)
    original = place.spool(found.data)[0] if content.script else None
    answers = tuple(content.of_lab(lab).items())
    note = ""
    if named and named is not lab:
        note = tr("its name says {name}, its cells {lab}", name=named.name, lab=lab.name)
    return replace(one, lab=lab, spooled=spooled, sha=sha, original=original, answers=answers,
                   sure=bool(content.votes[lab]), note=note)  # fmt: skip


def timed(one: Attempt) -> Attempt:
    """With the time at which it was handed in: an LMS's, nbgrader's, else the file's."""
    stamped = one.stamped if one.who.system == "nbgrader" and not one.own else None
    note = one.note
    if one.stamped and not one.who.system and one.lab and one.lab.name in one.parts[-1]:
        note = note or "not in nbgrader's folders, so its timestamp.txt does not count"
    return replace(one, when=one.who.when or stamped or one.when, note=note)


def by_gradescope(
    attempts: list[Attempt], people: dict, cut: int, listed: Found
) -> Iterable[Attempt]:
    """With the names that Gradescope's list has for its folders; a group's is everyone's."""
    depth = len(listed.parts) - 1
    for one in attempts:
        folder = one.parts[depth] if len(one.parts) > depth else ""
        whos, when = people.get(folder, ([], None))
        if one.parts[:depth] != listed.parts[:-1] or not whos:
            yield one
        for who in whos if one.parts[:depth] == listed.parts[:-1] else ():
            yield replace(one, who=replace(who, when=when, place=one.parts[cut : depth + 1]))


def beside(source: Path) -> list[Participant]:
    """Moodle's worksheets in the folder in which an export was saved."""
    rows = []
    found = sorted(path for path in source.parent.glob("*.csv") if not by_lms(path.name))
    for path in found[:20]:
        if path.is_file() and path.stat().st_size < 1 << 20:
            rows += worksheet(path.read_bytes())
    return rows


def clamped(one: Attempt, dues: dict[str, datetime]) -> Attempt:
    """Canvas's mark counts: a file's time in its zip may be that of the download. A time that
    has not come yet is none."""
    if one.when and one.when > datetime.now(timezone.utc) + timedelta(days=1):
        one = replace(
            one,
            when=None,
            note=tr("its time, {when:%Y-%m-%d}, has not come yet", when=one.when),
        )
    due = dues.get(one.lab.name) if one.lab else None
    if due is None or one.who.late is None or one.when is None:
        return one
    if one.who.late and one.when <= due:
        return replace(one, when=due + timedelta(seconds=1), note=tr("late, says Canvas"))
    if not one.who.late and one.when > due:
        return replace(one, when=due, note=tr("in time, says Canvas"))
    return one


def once(owned: list[Attempt]) -> list[Attempt]:
    """Of the files of one learner that cannot be read for the same reason only the first."""
    groups: dict[tuple, list[Attempt]] = defaultdict(list)
    for number, one in enumerate(owned):
        groups[(one.learner, one.lab, one.reason) if one.reason else (number,)].append(one)
    return [
        replace(one, note=tr("and {count} more such files", count=len(more))) if more else one
        for one, *more in groups.values()
    ]
