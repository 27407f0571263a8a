"""Grades in a platform's own table. Nobody is left out without a remark."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from labkit.course.syllabus import Lab
from labkit.grading.class_report.class_results import LabResults
from labkit.grading.collect.roster import Roster, values_of
from labkit.grading.nbgrader.gradebook.connection import CourseError, RosterEntry
from labkit.grading.platforms import Platform
from labkit.grading.tables import NUMBER, Row, Table

SHOWN = 8  # learners in a remark


def write_grades(
    path: Path,
    platform: Platform,
    graded: Sequence[LabResults],
    people: Sequence[RosterEntry],
    roster: Path | None,
) -> list[str]:
    """Write the points of the labs, after penalties, into the platform's own table `roster`,
    keeping its ids and rows; also return remarks."""
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
            new = f"{title}: {platform.name} has no such assignment, it will be new"
            remarks.append(f"{new}; one called {results.lab.name} or {title} is found")
        found_points = {as_number(row.get(platform.possible, "")) for row in rows}
        found_points |= {as_number(row.get(title, "")) for row in special}
        if found_points - {"", possible}:
            points = " and ".join(sorted(found_points - {""}))
            remarks.append(
                f"{title}: worth {points} points in {platform.name}, here {possible}"
            )
        titles += [title] * (title not in titles)
        totals[title] = possible
        fill_column(rows, learners, results, platform, title)
    remarks += missing_grades(graded, learners, roster.name)
    rows = [totals] * bool(platform.possible_row) + rows
    titles.sort(key=lambda title: title == platform.last)
    Table(titles, rows, table.delimiter, table.written).write(path)
    return remarks


def own_table(path: Path | None, platform: Platform, labs: int) -> Table:
    """The platform's table of its people; CourseError if it is missing or a different table."""
    if path is None:
        raise CourseError(f"--roster FILE is needed: {platform.name}'s {platform.table}")
    table = Table.read(path)
    lacks = platform.lacks(table.titles)
    if not (platform.new or platform.column in table.titles):
        lacks.append(platform.column)
    if lacks:
        raise CourseError(
            f"{path} is not {platform.name}'s own table: it has no columns "
            f"{' and '.join(lacks)}, but {', '.join(table.titles)}"
        )
    if not platform.new and labs > 1:
        raise CourseError(f"{path} is of one assignment: say which with --lab")
    return table


def column_of(table: Table, platform: Platform, lab: Lab) -> str:
    """Return the title of the lab's column as the platform has it, or that of a new one."""
    if not platform.new:
        return platform.column
    number = int(lab.number)
    pattern = rf"^0*{number}\b|\blab\W*0*{number}\b|\b{lab.name}\b|\b{lab.module}\b"
    columns = [title for title in table.titles if re.fullmatch(platform.column, title)]
    found = [title for title in columns if re.search(pattern, title, re.IGNORECASE)]
    return found[0] if len(found) == 1 else platform.new.format(lab.number)


def match_learners(
    rows: Sequence[Row], platform: Platform, people: Sequence[RosterEntry]
) -> list[str]:
    """Return the learner's id for each row; "" if no learner or several match, or if the
    learner matches rows of different people. A person in two sections has two equal rows."""
    roster, found, persons = Roster(people), [], defaultdict(list)
    for row in rows:
        person = values_of(row, platform.columns)
        number, name = (next(iter(person.get(key, ())), "") for key in ("lms_user_id", "name"))
        sure = [form for key in ("id", "email") for text in person.get(key, ())
                for form in (text, text.partition("@")[0])]  # fmt: skip
        ids = roster.find(f"lms_user_id {number}", sure, (name,))
        found.append(next(iter(ids)) if len(ids) == 1 else "")
        persons[found[-1]] += [person] * (person not in persons[found[-1]])
    return [learner if len(persons[learner]) == 1 else "" for learner in found]


def fill_column(
    rows: Iterable[Row],
    learners: Iterable[str],
    results: LabResults,
    platform: Platform,
    title: str,
) -> None:
    """Put the points into a column, with a decimal comma if the platform writes one."""
    points = {entry.learner: f"{entry.standing.total:g}" for entry in results.handed}
    for row, learner in zip(rows, learners, strict=True):
        comma = "," in row.get(platform.possible, "")
        text = points.get(learner, "")
        if text or title not in row:
            row[title] = text.replace(".", ",") if comma else text


def as_number(text: str) -> str:
    """Return a number as we write it; "" for any other text."""
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
        yield f"it is open which answers count, see `tinyllm collect`: {names}"
    waiting = [f"{x.lab.name} {x.waiting}" for x in graded if x.waiting]
    if waiting:
        yield f"written answers still to be graded by hand: {', '.join(waiting)}"
