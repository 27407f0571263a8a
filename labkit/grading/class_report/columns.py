"""The columns of the class tables, of a lab and of the course, in the CSV and on the page.

A new column is a row of COLUMNS, or of FIRST to be before the exercises; one that only the
table of a lab or of the course has is a row of LAB or COURSE.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit.course.files import write_whole
from labkit.course.lang import said, tr
from labkit.course.report import csv_safe, one_line
from labkit.course.syllabus import Exercise, Lab
from labkit.grading.class_report.class_results import (
    ABSENT,
    FULL,
    NONE,
    CourseEntry,
    Entry,
    LabResults,
    state,
)

Row = Entry | CourseEntry
Value = float | str | None  # None: an empty cell


@dataclass(frozen=True)
class Column:
    """One column.

    title   English in the CSV, translated on the page
    value   of a row
    style   a CSS class of the cell on the page
    always  is on the page even if all its cells are empty
    only_csv    is not on the page
    """

    title: str
    value: Callable[[Row], Value]
    style: Callable[[Row], str] = lambda row: ""
    always: bool = False
    only_csv: bool = False


def points(title: str, attribute: str) -> Column:
    """The column of a number of `Standing`, which the course table sums over the labs."""
    return Column(title, lambda row: row.points(attribute) if row.is_graded else None)


FIRST = (
    Column(said("learner"), lambda row: row.learner),
    Column(said("name"), lambda row: row.name),
)
COLUMNS = (
    points(said("automatic"), "automatic"),
    points(said("by hand"), "by_hand"),
    points(said("written"), "written"),
    points(said("extra credit"), "extra"),
    points(said("late days"), "late_days"),
    points(said("late penalty"), "late_penalty"),
    Column(
        said("total"),
        lambda row: row.points("total") if row.is_graded else None,
        lambda row: "full" if row.is_full else "",
        always=True,
    ),
    Column(said("of"), lambda row: row.points("possible")),
    points(said("to be graded"), "to_be_graded"),
)
LAB = (
    Column(said("before"), lambda row: row.change.before.total if row.change else None),
    Column(
        said("changed"),
        lambda row: f"since {row.change.since}: {row.change.why}" if row.change else "",
    ),
    Column(said("look at"), lambda row: "; ".join(row.remarks)),
    Column(said("why"), lambda row: row.why),
    Column(
        "judged by",
        lambda row: row.submission.made_by if row.is_graded else "",
        only_csv=True,
    ),
)
COURSE = (
    Column(said("changed"), lambda row: row.changed),
    Column(said("graded"), lambda row: row.graded),
)


def lab_columns(lab: Lab) -> list[Column]:
    return [*FIRST, *map(exercise_column, lab.exercises), *COLUMNS, *LAB]


def course_columns(labs: Sequence[LabResults]) -> list[Column]:
    return [*FIRST, *(lab_column(results.lab) for results in labs), *COLUMNS, *COURSE]


def exercise_column(exercise: Exercise) -> Column:
    """Return the column of an exercise's points; on the page their color shows its state."""

    def value(entry: Entry) -> Value:
        grade = entry.standing.exercises[exercise.id]
        if not entry.is_graded:
            return None
        return "excused" if grade.excused else grade.points

    def style(entry: Entry) -> str:
        if not entry.is_graded:
            return ""
        if entry.standing.exercises[exercise.id].overridden:
            return "hand"
        styles = {FULL: "full", NONE: "none", ABSENT: "absent"}
        return styles.get(state(entry.exercises[exercise.id]), "")

    return Column(exercise.id, value, style, always=True)


def lab_column(lab: Lab) -> Column:
    """Return the column of a lab's total."""

    def value(row: CourseEntry) -> Value:
        entry = row.labs.get(lab.name)
        if entry and entry.standing.excused:
            return "excused"
        return entry.points("total") if entry and entry.is_graded else None

    def style(row: CourseEntry) -> str:
        entry = row.labs.get(lab.name)
        return "full" if entry and entry.is_graded and entry.is_full else ""

    return Column(lab.name, value, style, always=True)


@dataclass(frozen=True)
class Cell:
    """A cell as the page shows it."""

    text: str
    style: str


def page_table(
    columns: Sequence[Column], rows: Sequence[Row]
) -> tuple[list[Cell], list[tuple[Row, list[Cell]]]]:
    """Return the head and the rows, each with its learner; empty columns are left out."""
    columns = [each for each in columns if each not in FIRST and not each.only_csv]
    values = [[column.value(row) for row in rows] for column in columns]
    head, body = [], [(row, []) for row in rows]
    for column, cells in zip(columns, values, strict=True):
        if not (column.always or any(cells)):
            continue
        is_number = all(isinstance(value, (int, float)) for value in cells
                        if value not in (None, "excused"))  # fmt: skip
        number = "number " if is_number else ""
        head.append(Cell(tr(column.title), number.strip()))
        for (row, shown_cells), value in zip(body, cells, strict=True):
            text = tr(value) if value == "excused" else shown(value)
            shown_cells.append(Cell(text, f"{number}{column.style(row)}".strip()))
    return head, body


def write_csv(path: Path, columns: Sequence[Column], rows: Sequence[Row]) -> Path:
    """Write one line per row, in UTF-8 with a byte order mark, which Excel needs."""
    lines = [[column.title for column in columns]]
    for row in rows:
        values = [column.value(row) for column in columns]
        lines.append([
            csv_safe(one_line(value)) if isinstance(value, str) else shown(value)
            for value in values
        ])  # fmt: skip
    text = io.StringIO(newline="")
    csv.writer(text).writerows(lines)
    write_whole(path, text.getvalue().encode("utf-8-sig"))
    return path


def shown(value: Value) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else value or ""
