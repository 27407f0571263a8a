"""Grades in a platform's own table. Nobody is left out without a remark."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from labkit.course.files import safe_id
from labkit.course.syllabus import Lab
from labkit.grading.class_report.class_results import LabResults
from labkit.grading.export.platforms import Platform
from labkit.grading.nbgrader.gradebook.connection import CourseError, RosterEntry
from labkit.grading.tables import NUMBER, Row, Table

SHOWN = 8  # learners in a remark


def write_grades(
    path: Path,
    platform: Platform,
    graded: Sequence[LabResults],
    people: Sequence[RosterEntry],
    roster: Path | None,
) -> list[str]:
    """The points of the labs, after penalties, in the platform's own table `roster`, whose ids
    and rows stay as they are; remarks."""
    table = own_table(roster, platform, len(graded))
    rows = [row for row in table.rows if row[platform.needs[0]].strip()]
    special = [row for row in table.rows if row not in rows]
    learners = match_learners(rows, platform, people)
    titles = [title for title in table.titles if title in (platform.titles or table.titles)]
    totals, remarks = {titles[0]: platform.possible_row}, []
    for results in graded:
        title = column_of(table, platform, results.lab)
        possible = f"{results.possible + results.written:g}"
        if title not in table.titles:
            new = f"{title}: {platform.title} has no such assignment, it will be new"
            remarks.append(f"{new}; one called {results.lab.name} or {title} is found")
        there = {as_number(row.get(platform.possible, "")) for row in rows}
        there |= {as_number(row.get(title, "")) for row in special}
        if there - {"", possible}:
            points = " and ".join(sorted(there - {""}))
            remarks.append(
                f"{title}: worth {points} points in {platform.title}, here {possible}"
            )
        titles += [title] * (title not in titles)
        totals[title] = possible
        fill_column(rows, learners, results, platform, title)
    remarks += missing_grades(graded, learners, roster.name)
    rows = [totals] * bool(platform.possible_row) + rows
    Table(titles, rows, table.delimiter, table.written).write(path)
    return remarks


def own_table(path: Path | None, platform: Platform, labs: int) -> Table:
    """The platform's table of its people; CourseError without it, or if it is another one."""
    if path is None:
        raise CourseError(f"--roster FILE is needed: {platform.title}'s {platform.table}")
    table = Table.read(path)
    if not set(platform.needs) <= set(table.titles):
        raise CourseError(
            f"{path} is not {platform.title}'s own table: it has no columns "
            f"{' and '.join(platform.needs)}, but {', '.join(table.titles)}"
        )
    if platform.grade and labs > 1:
        raise CourseError(f"{path} is of one assignment: say which with --lab")
    return table


def column_of(table: Table, platform: Platform, lab: Lab) -> str:
    """The title of the lab's column, with the platform's number if there is one."""
    if platform.grade:
        return platform.grade
    number = int(lab.number)
    pattern = rf"^0*{number}\b|\blab\W*0*{number}\b|\b{lab.name}\b|\b{lab.module}\b"
    numbered = [title for title in table.titles if re.search(r" \(\d+\)$", title)]
    found = [title for title in numbered if re.search(pattern, title, re.IGNORECASE)]
    return found[0] if len(found) == 1 else f"Lab {lab.number}"


def match_learners(
    rows: Sequence[Row], platform: Platform, people: Iterable[RosterEntry]
) -> list[str]:
    """The learner's id for each row; "" where nobody or several fit, or it fits two rows."""
    index: dict[tuple[str, str], set[str]] = defaultdict(set)
    for person in people:
        for field in ("id", "lms_user_id", "email"):
            index[field, getattr(person, field).casefold()].add(person.id)
        index["name", sorted_words(person.name)].add(person.id)

    def owner(row: Row) -> str:
        for title, field in platform.keys:
            text = row.get(title, "").strip()
            forms = (text, safe_id(text), text.partition("@")[0])
            for form in (sorted_words(text),) if field == "name" else forms:
                found = index.get((field, form.casefold()), ()) if text else ()
                if len(found) == 1:
                    return next(iter(found))
        return ""

    found = [owner(row) for row in rows]
    return [learner if found.count(learner) == 1 else "" for learner in found]


def sorted_words(name: str) -> str:
    """A name whatever the order and case of its words."""
    return " ".join(sorted(re.findall(r"\w+", name.casefold())))


def fill_column(
    rows: Iterable[Row],
    learners: Iterable[str],
    results: LabResults,
    platform: Platform,
    title: str,
) -> None:
    """Put the points into a column, with a decimal comma where the platform writes one."""
    points = {entry.learner: f"{entry.standing.total:g}" for entry in results.handed}
    for row, learner in zip(rows, learners, strict=True):
        comma = "," in row.get(platform.possible, "")
        text = points.get(learner, "")
        if text or title not in row:
            row[title] = text.replace(".", ",") if comma else text


def as_number(text: str) -> str:
    """A number as we write it; "" for any other text."""
    text = text.strip()
    return f"{float(text.replace(',', '.')):g}" if NUMBER.fullmatch(text) else ""


def missing_grades(
    graded: Sequence[LabResults], learners: Iterable[str], table: str
) -> Iterator[str]:
    """Remarks on those whose points are not in the table, or not all of them."""
    known = set(learners)
    lost = {entry.learner for results in graded for entry in results.handed} - known
    if lost:
        more = f" and {len(lost) - SHOWN} more" if len(lost) > SHOWN else ""
        names = ", ".join(sorted(lost)[:SHOWN])
        yield f"not in {table}, so no grade there: {names}{more}"
    unsettled = [f"{x.lab.name} {e.learner}" for x in graded for e in x.handed if e.unsettled]
    if unsettled:
        names = ", ".join(unsettled)
        yield f"an earlier attempt has more answers, see `tinyllm collect`: {names}"
    waiting = [f"{x.lab.name} {x.waiting}" for x in graded if x.waiting]
    if waiting:
        yield f"written answers still to be graded by hand: {', '.join(waiting)}"
