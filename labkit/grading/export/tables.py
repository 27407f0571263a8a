"""Grades as Canvas and Moodle import them: their own table with its ids, one column filled in.

Who is who says the roster: Canvas's gradebook export, Moodle's grading worksheet. Without one,
nbgrader's students are all that is known. Nobody is left out without a word.
"""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit.core.files import safe_id, write_whole
from labkit.core.report import csv_safe
from labkit.core.syllabus import Lab
from labkit.grading.class_report.class_results import Entry, LabResults
from labkit.grading.collect.layouts import full_name, short_name
from labkit.grading.collect.roster import normalize_name, roster_text
from labkit.grading.nbgrader.gradebook.connection import CourseError, RosterEntry
from labkit.lang import tr

CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Integration ID", "Root Account",
          "Section")  # fmt: skip
POSSIBLE = "Points Possible"
MOODLE = ("First name", "Last name", "ID number", "Email address")
PARTICIPANT = re.compile(r"\D*(\d+)")  # Participant 7001
NAMES = ("Student", "Full name")
# Of a row, what tells its learner, most certain first, and of whom it is compared with what
TELLING = (("ID", "lms_user_id"), ("SIS Login ID", "id"), ("SIS User ID", "id"), ("ID", "id"),
           ("ID number", "id"), ("Email address", "email"), ("Email", "email"),
           ("Email address", "id"))  # fmt: skip
PLAIN = re.compile(r"[\w.@+-]*")  # an id that no spreadsheet reckons with


@dataclass
class Table:
    """A CSV as an LMS wrote it; titles are found whatever their case."""

    titles: list[str]
    rows: list[list[str]]
    delimiter: str = ","

    @classmethod
    def read(cls, path: Path) -> Table:
        text = roster_text(path)
        head = text.split("\n", 1)[0]
        delimiter = max(",;\t", key=head.count)
        titles, *rows = list(csv.reader(io.StringIO(text), delimiter=delimiter)) or [[]]
        titles = [title.strip() for title in titles]
        return cls(titles, [(row + [""] * len(titles))[: len(titles)] for row in rows if row],
                   delimiter)  # fmt: skip

    def column(self, title: str) -> int | None:
        folded = [each.casefold() for each in self.titles]
        return folded.index(title.casefold()) if title.casefold() in folded else None

    def get(self, row: Sequence[str], title: str) -> str:
        place = self.column(title)
        return row[place].strip() if place is not None else ""

    def write(self, path: Path) -> None:
        """Ids stay what they are; no other text is a spreadsheet's formula."""
        text = io.StringIO()
        writer = csv.writer(text, delimiter=self.delimiter)
        for row in (self.titles, *self.rows):
            writer.writerow([each if PLAIN.fullmatch(each) else csv_safe(each) for each in row])
        write_whole(path, text.getvalue().encode("utf-8-sig"))


class People:
    """Finds the learner of an LMS's row."""

    def __init__(self, people: Iterable[RosterEntry]):
        self.by: dict[tuple[str, str], set[str]] = defaultdict(set)
        for person in people:
            for key in ("id", "lms_user_id", "email"):
                self.by[key, getattr(person, key).casefold()].add(person.id)
            for name in (person.first_name + person.last_name,
                         person.last_name + person.first_name):  # fmt: skip
                self.by["name", normalize_name(name)].add(person.id)

    def owners(self, table: Table, rows: Sequence[Sequence[str]]) -> list[str]:
        """The learner's id for each row; "" where nobody or several fit, or it fits two."""
        found = [self._of(table, row) for row in rows]
        return [owner if found.count(owner) == 1 else "" for owner in found]

    def _of(self, table: Table, row: Sequence[str]) -> str:
        keys = []
        for title, key in TELLING:
            text = table.get(row, title)
            if (title, key) == ("Email address", "id"):
                text = text.split("@")[0]
            keys.append((key, (safe_id(text) if text and key == "id" else text).casefold()))
        keys += [("name", normalize_name(table.get(row, title))) for title in NAMES]
        found = (self.by.get((key, text), set()) for key, text in keys if text)
        return next((next(iter(ids)) for ids in found if len(ids) == 1), "")


# Grades


def points(entry: Entry) -> str:
    """As class.csv has them: after penalties, empty where nothing was handed in or counts."""
    counts = entry.submission and not entry.standing.excused
    return f"{entry.standing.total:g}" if counts else ""


def possible(results: LabResults) -> float:
    return results.possible + results.written


def left_over(results: LabResults, known: Iterable[str], table: str) -> list[str]:
    """A word on those whose points are not in the table, or not all of them."""
    lab, known = results.lab.name, set(known)
    lost = [entry.learner for entry in results.handed if entry.learner not in known]
    remarks = []
    if lost:
        remarks.append(
            tr(
                "{lab}: not in {table}, so no grade there: {names}",
                lab=lab,
                table=table,
                names=tr(", ").join(lost),
            )
        )
    waiting = sum(len(entry.standing.waiting) for entry in results.handed)
    if waiting:
        remarks.append(
            tr(
                "{lab}: {waiting} written answers are still to be graded by hand",
                lab=lab,
                waiting=waiting,
            )
        )
    return remarks


# Canvas


def canvas(
    path: Path, graded: Sequence[LabResults], people: list[RosterEntry], roster: Path | None
) -> list[str]:
    """The gradebook with a column for each lab, for Canvas's Import of grades; remarks.

    roster    Canvas's own gradebook export
    """
    made = Table.read(roster) if roster else canvas_students(people)
    if roster and (made.column("Student") is None or made.column("ID") is None):
        raise CourseError(
            tr(
                "{roster} is not Canvas's gradebook export: it has no columns Student "
                "and ID, but {names}",
                roster=roster,
                names=tr(", ").join(made.titles),
            )
        )
    students = [row for row in made.rows if is_student(made, row)]
    remarks, owners = [], People(people).owners(made, students)
    head = [title for title in CANVAS if made.column(title) is not None]
    table = Table(list(head), [[POSSIBLE] + [""] * (len(head) - 1)])
    table.rows += [[made.get(row, title) for title in head] for row in students]
    for results in graded:
        title, of = assignment(made, results.lab)
        entries = {entry.learner: entry for entry in results.entries}
        table.titles.append(title)
        table.rows[0].append(f"{possible(results):g}")
        for row, owner in zip(table.rows[1:], owners, strict=True):
            row.append(points(entries[owner]) if owner in entries else "")
        if roster and title not in made.titles:
            remarks.append(
                tr("{title}: Canvas has no such assignment, it will be new", title=title)
            )
        if of and of != f"{possible(results):g}":
            remarks.append(
                tr(
                    "{title}: worth {of} points in Canvas, here {possible:g}",
                    title=title,
                    of=of,
                    possible=possible(results),
                )
            )
        remarks += left_over(results, owners, roster.name if roster else tr("the gradebook"))
    lost = [person.id for person in people if not person.lms_user_id]
    if lost and not roster:
        advice = tr("give its gradebook export as --roster")
        remarks.append(
            tr(
                "without Canvas's ID ({advice}): {names}",
                advice=advice,
                names=tr(", ").join(lost),
            )
        )
    table.write(path)
    return remarks


def canvas_students(people: Iterable[RosterEntry]) -> Table:
    rows = [[f"{p.last_name}, {p.first_name}".strip(", ") or p.id, p.lms_user_id, "", p.id, ""]
            for p in people]  # fmt: skip
    return Table(["Student", "ID", "SIS User ID", "SIS Login ID", "Section"], rows)


def is_student(table: Table, row: Sequence[str]) -> bool:
    """Not the row of possible points, nor the others of no person that Canvas writes."""
    who = table.get(row, "Student").casefold()
    ids = (table.get(row, "ID"), table.get(row, "SIS Login ID"), table.get(row, "SIS User ID"))
    return any(ids) and who != POSSIBLE.casefold()


def assignment(table: Table, lab: Lab) -> tuple[str, str]:
    """The title of the lab's column, with Canvas's number if there is one; its points there."""
    columns = [title for title in table.titles if re.search(r" \(\d+\)$", title)]
    for pattern in (full_name(lab), short_name(lab)):
        found = [title for title in columns if re.search(pattern, title, re.IGNORECASE)]
        if len(found) == 1:
            rows = (row for row in table.rows if not is_student(table, row))
            of = next(filter(None, (table.get(row, found[0]) for row in rows)), "")
            return found[0], of if re.fullmatch(r"[\d.]+", of) is None else f"{float(of):g}"
    return f"Lab {lab.number}", ""


# Moodle


def moodle_worksheet(
    path: Path, results: LabResults, people: list[RosterEntry], worksheet: Path
) -> list[str]:
    """Moodle's grading worksheet of one assignment, its column Grade filled in; remarks."""
    table, remarks = Table.read(worksheet), []
    grade, whom = table.column("Grade"), table.column("Identifier")
    if grade is None or whom is None:
        raise CourseError(
            tr(
                "{worksheet} is not Moodle's grading worksheet: it has no columns "
                "Identifier and Grade, but {names}",
                worksheet=worksheet,
                names=tr(", ").join(table.titles),
            )
        )
    entries = {entry.learner: entry for entry in results.entries}
    owners = People(people).owners(table, table.rows)
    for row, owner in zip(table.rows, owners, strict=True):
        mark = points(entries[owner]) if owner in entries else ""
        if mark and table.get(row, "Grade can be changed").casefold() == "no":
            remarks.append(tr("{owner}: Moodle lets nobody change this grade", owner=owner))
        elif mark:
            comma = "," in table.get(row, "Maximum Grade")
            row[grade] = mark.replace(".", ",") if comma else mark
    worth = {table.get(row, "Maximum Grade").replace(",", ".") for row in table.rows} - {""}
    of = possible(results)
    if any(float(each) != of for each in worth if re.fullmatch(r"[\d.]+", each)):
        shown = " and ".join(sorted(worth))
        remarks.append(
            tr(
                "{name}: worth {shown} points in Moodle, here {of:g}",
                name=results.lab.name,
                shown=shown,
                of=of,
            )
        )
    table.write(path)
    return remarks + left_over(results, owners, worksheet.name)


def moodle_import(
    path: Path, graded: Sequence[LabResults], people: list[RosterEntry]
) -> list[str]:
    """For Moodle's import of grades, which finds people by e-mail or ID number; remarks."""
    remarks: list[str] = []
    rows = [[p.first_name, p.last_name, p.id, p.email] for p in people]
    for results in graded:
        entries = {entry.learner: entry for entry in results.entries}
        for person, row in zip(people, rows, strict=True):
            row.append(points(entries[person.id]) if person.id in entries else "")
        remarks += left_over(results, (p.id for p in people), tr("the gradebook"))
    lost = [person.id for person in people if not person.email]
    if lost:
        said = tr("without an e-mail address, found only if this is Moodle's ID number")
        remarks.append(tr("{said}: {names}", said=said, names=tr(", ").join(lost)))
    Table([*MOODLE, *(f"Lab {results.lab.number}" for results in graded)], rows).write(path)
    return remarks
