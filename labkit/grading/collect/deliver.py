"""Bringing what learners handed in to where nbgrader looks for it.

The latest attempt counts. Running it again changes nothing; an earlier submission is replaced
by a later one only, and even then it is kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from labkit.core.files import safe_id
from labkit.core.syllabus import LABS, Lab
from labkit.grading.collect.archives import Parts, Reader, Refused
from labkit.grading.collect.identify import (
    NOBODY,
    Identity,
    lab_of,
    shared_folders,
    who_in,
)
from labkit.grading.collect.places import Attempt, Places, path_in
from labkit.grading.collect.roster import Roster, read_roster
from labkit.grading.collect.table import (
    AMBIGUOUS,
    EARLIER,
    REFUSED,
    SKIPPED,
    UNKNOWN,
    Line,
)
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook_connection import CourseError, enrol


def collect(
    course: Course,
    sources: Sequence[Path],
    lab: Lab | None = None,
    roster_file: Path | None = None,
    replace_newer: bool = False,
) -> list[Line]:
    """Collect all notebooks in `sources`; all that do not say otherwise are of `lab`."""
    roster = roster_of(course, roster_file)
    dues = course.due_dates()
    lines: list[Line] = []
    with Places(course.root) as place:
        attempts: list[Attempt] = []
        for source in sources:
            if source.resolve().is_relative_to(place.collected.resolve()):
                raise CourseError(f"{source} is where collect keeps its own files")
            attempts += attempts_in(source, lab, place, lines, alone=len(sources) == 1)
        groups: dict[tuple[str, str], list[Attempt]] = defaultdict(list)
        for one in owned(attempts, roster, place, lines):
            groups[one.learner, one.lab.name].append(clamped(one, dues))
        for group in groups.values():
            group.sort(key=lambda one: one.order)
            lines += delivered(group, place, replace_newer)
        place.finish(lines)
    return lines


def roster_of(course: Course, file: Path | None) -> Roster:
    """The CSV, which is put into nbgrader's students; else those students, if they have more
    than an id (which is all that grading gives to a new one)."""
    if file is not None:
        people = read_roster(file)
        course.gradebook.do(lambda book: enrol(book, people))
        return Roster(people)
    people = course.people()
    return Roster(people, closed=any(p.name or p.email or p.lms_user_id for p in people))


# From sources to attempts


def attempts_in(
    source: Path, wanted: Lab | None, place: Places, lines: list[Line], alone: bool
) -> list[Attempt]:
    """Every notebook of a source with its lab and what its path says of its learner; a line
    for whatever cannot be used."""
    attempts, others = [], []
    for one in Reader().walk(source, alone):
        name = path_in(source, one.parts)
        if isinstance(one, Refused):
            if one.reason:
                lines.append(Line(name, REFUSED, note=one.reason))
            else:
                others.append(one.parts)
            continue
        lab = lab_of(one.parts, one.data) or wanted
        if lab is None:
            note = "neither its name nor its cells tell a lab; --lab names it"
            lines.append(Line(name, REFUSED, note=note))
        elif wanted and lab is not wanted:
            lines.append(Line(name, SKIPPED, note=f"a notebook of {lab.name}"))
        else:
            spooled = place.spool(one.data)
            made = Attempt(source, one.parts, *spooled, lab, one.when, one.own, one.stamped)
            attempts.append(made)
    attempts = below_common_folder(attempts)
    shared = shared_folders((one.parts, one.lab) for one in attempts)
    attempts = [named(one, shared, alone) for one in attempts]
    lines += no_notebooks(source, others, attempts, wanted)
    return attempts


def below_common_folder(attempts: list[Attempt]) -> list[Attempt]:
    """Without a first folder that all share, if several folders lie in it."""
    while attempts and all(len(one.parts) > 2 and one.own != 1 for one in attempts):
        heads, folders = ({one.parts[level] for one in attempts} for level in (0, 1))
        if len(heads) > 1 or len(folders) == 1:
            break
        attempts = [
            replace(one, parts=one.parts[1:], own=max(one.own - 1, 0)) for one in attempts
        ]
    return attempts


def named(one: Attempt, shared: set[tuple[Parts, str]], alone: bool) -> Attempt:
    """With its learner, and the time at which it was handed in.

    Who it is say the parts that the instructor or the LMS made: those inside a learner's zip
    are asked only where the others name nobody. Of a single zip, its own name says nothing of
    a learner unless nothing else does.
    """
    outer = one.parts[: one.own] if one.own else one.parts
    together = (one.parts[:-1], one.lab.name) in shared and not one.own
    inner = outer
    if alone and one.source.is_file() and len(outer) > 1 and outer[0] == one.source.name:
        inner = outer[1:]
    who = who_in(inner, one.lab, together) or who_in(outer, one.lab, together)
    who = who or who_in(one.parts, one.lab, together) or NOBODY
    when = one.stamped if one.stamped and who.system == "nbgrader" else one.when
    return replace(one, who=who, when=when)


def no_notebooks(
    source: Path, others: list[Parts], attempts: list[Attempt], lab: Lab | None
) -> list[Line]:
    """Of whom an LMS's export has files, but no notebook: a word for each."""
    have = {(one.who.system, one.who.user) for one in attempts}
    lines = []
    for parts in others:
        who = who_in(parts, lab or LABS[0])
        if who and who.user and (who.system, who.user) not in have:
            have.add((who.system, who.user))
            note = "handed in no notebook"
            lines.append(Line(path_in(source, parts), SKIPPED, who.shown, note=note))
    return lines


# From attempts to learners


def owned(
    attempts: list[Attempt], roster: Roster, place: Places, lines: list[Line]
) -> list[Attempt]:
    """The attempts with their learners; what is nobody's is kept and said."""
    users: dict[str, set[str]] = defaultdict(set)  # of people of one name
    for one in attempts:
        users[safe_id(one.who.shown)].add(one.who.user)
    found = []
    for one in attempts:
        ids = roster.find(one.who)
        problem = nobodys(one.who, ids, roster)
        if problem:
            lost = replace(one, note=problem)
            place.keep(lost)
            lines.append(lost.line(AMBIGUOUS if ids else UNKNOWN))
        elif ids:
            found.append(replace(one, learner=ids.pop()))
        else:
            found.append(by_its_name(one, users, place))
    return found


def nobodys(who: Identity, ids: set[str], roster: Roster) -> str:
    """Why a notebook cannot be given to anybody; empty if it can."""
    if len(ids) > 1:
        return f"{who.shown} may be {' or '.join(sorted(ids))}"
    if not ids and not who.names:
        return "no name in its path; put it into a folder named after the learner"
    return "" if ids or not roster.closed else "not on the roster, so not graded"


def by_its_name(one: Attempt, users: Mapping[str, set[str]], place: Places) -> Attempt:
    """Without a roster a name is an id; namesakes are told apart by their LMS's numbers."""
    name, user = safe_id(one.who.shown), one.who.user
    others = set(users[name])
    if one.who.system == "Canvas":  # whose numbers stay the same from lab to lab
        others |= place.users_of(name)
    if not user or not others - {user}:
        return replace(one, learner=name)
    note = f"several people are called {one.who.shown}; a roster tells them apart"
    return replace(one, learner=f"{name}_{user}", note=note)


def clamped(one: Attempt, dues: dict[str, datetime]) -> Attempt:
    """Canvas's mark counts: a file's time in its zip may be that of the download. A time that
    has not come yet is none."""
    if one.when and one.when > datetime.now(timezone.utc) + timedelta(days=1):
        one = replace(one, when=None, note=f"its time, {one.when:%Y-%m-%d}, has not come yet")
    due = dues.get(one.lab.name)
    if due is None or one.who.late is None or one.when is None:
        return one
    if one.who.late and one.when <= due:
        return replace(one, when=due + timedelta(seconds=1), note="late, says Canvas")
    if not one.who.late and one.when > due:
        return replace(one, when=due, note="in time, says Canvas")
    return one


# From attempts to files


def delivered(group: list[Attempt], place: Places, replace_newer: bool) -> list[Line]:
    """Put the latest attempt of one learner where nbgrader looks; a line for each attempt."""
    *earlier, last = group
    lines = [one.line(EARLIER) for one in earlier if one.sha != last.sha]
    for one in group:
        place.keep(one)
    return [*lines, last.line(place.deliver(last, replace_newer))]
