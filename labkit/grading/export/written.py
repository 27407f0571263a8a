"""Written answers as tables for people who read them question by question, and their points
back into the gradebook.

A row is an answer beside its rubric. Equal answers of different people are in adjacent rows.
The
last column, `state`, tells whether the answer has changed since, and whether somebody has given
points elsewhere; a table with such a row changes nothing.
"""

from __future__ import annotations

import hashlib
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nbgrader import api

from labkit.author.owned_cells import written_answer
from labkit.course.cells import EMPTY_ANSWER
from labkit.course.report import csv_safe
from labkit.course.syllabus import LABS, Lab, Question
from labkit.grading.class_report.class_results import LabResults
from labkit.grading.judge.intake import cell_called
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook.connection import CourseError
from labkit.grading.nbgrader.gradebook.rows import NO_RESPONSE
from labkit.grading.nbgrader.graded_notebook import read_content
from labkit.grading.nbgrader.standings import Standing, rows
from labkit.grading.tables import NUMBER, Row, Table

TITLES = ["question", "learner", "answer", "rubric", "points", "of", "comment", "state"]
QUESTIONS = {question.id: (lab, question) for lab in LABS for question in lab.questions}
SHOWN = 10  # faults of a table that are printed


@dataclass(frozen=True)
class GivenPoints:
    """Points and a comment for an answer, as texts."""

    lab: Lab
    question: Question
    learner: str
    points: str
    comment: str


def export_written(course: Course, results: LabResults) -> Path:
    """Write the answers of a lab to a table. Raises CourseError if an existing one has points
    that are not in the gradebook."""
    path = course.root / "export" / "written" / f"{results.lab.name}.csv"
    if path.exists():
        refuse_to_overwrite(course, path)
    rows = [row for question in results.lab.questions
            for row in rows_of(course, results, question)]  # fmt: skip
    Table(TITLES, rows).write(path)
    return path


def refuse_to_overwrite(course: Course, path: Path) -> None:
    """CourseError for a table with points that are not in the gradebook, or cannot go there."""
    try:
        count = len([*find_new_points(course, [path])])
    except CourseError as error:
        raise CourseError(f"{path} would be overwritten: move it away; {error}") from error
    if count:
        raise CourseError(
            f"{path} has points for {count} answers that are not in the gradebook: "
            f"`tinyllm points {path}` takes them, or move the file away"
        )


def rows_of(course: Course, results: LabResults, question: Question) -> list[Row]:
    """Return the answers to a question that are not blank, equal ones in adjacent rows."""
    rubric, found = written_answer(results.lab, question)["rubric"], []
    for entry in results.handed:
        grade = entry.standing.questions[question.id]
        answer = answer_to(course, results.lab, question, entry.learner)
        if grade.counted and answer:
            points, comment = points_given(entry.standing, question)
            state = f"{hash_letters(answer)}-{hash_letters(points, comment)}"
            texts = (question.id, entry.learner, answer, rubric, points, f"{grade.possible:g}",
                     comment, state)  # fmt: skip
            found.append(dict(zip(TITLES, texts, strict=True)))
    return sorted(found, key=lambda row: (row["answer"].casefold().split(), row["learner"]))


def answer_to(course: Course, lab: Lab, question: Question, learner: str) -> str:
    """Return an answer as it was graded; "" for none."""
    notebook = read_content(course.autograded(lab, learner))
    text = cell_called(notebook, question.answer_cell).source.strip() if notebook else ""
    return "" if text == EMPTY_ANSWER else text


def points_given(standing: Standing, question: Question) -> tuple[str, str]:
    """Return (points, comment) that a person gave; no points if the answer is newer."""
    grade = standing.questions[question.id]
    comment = standing.comments.get(question.answer_cell, "").strip()
    is_given = grade.manual is not None and not grade.stale
    points = f"{grade.manual:g}" if is_given else ""
    return points, "" if comment == NO_RESPONSE else comment


def hash_letters(*texts: str) -> str:
    """Return a hash without digits, which spreadsheets leave as it is."""
    plain = "\n".join(" ".join(csv_safe(text).split()) for text in texts)
    digest = hashlib.sha256(plain.encode("utf-8", "replace")).digest()
    return "".join(chr(ord("a") + byte % 26) for byte in digest[:10])


# Back into the gradebook


def take_points(course: Course, paths: Sequence[Path]) -> list[GivenPoints]:
    """Put the points and comments of tables into the gradebook; if a row is wrong, none.

    Returns those that are new. Raises CourseError, which lists wrong rows.
    """
    found = [*find_new_points(course, paths)]
    if found:
        course.gradebook.do(lambda book: give(book, found))
    return found


def find_new_points(course: Course, paths: Sequence[Path]) -> Iterator[GivenPoints]:
    """Yield points that are not in the gradebook yet; CourseError lists wrong rows."""
    faults: list[str] = []
    typed: dict[tuple[str, str], Row] = {}
    known: dict[Lab, dict[str, Standing]] = {}
    found = []
    for path in paths:
        for row in read_table(path).rows:
            where = f"{path.name}, {row['question']} of {row['learner']}"
            points = plain_number(row["points"])
            before = row["state"].partition("-")[2]
            if before == hash_letters(points, row["comment"]):
                continue  # the answer in the table is unchanged
            same = typed.setdefault((row["question"], row["learner"]), row)
            if (same["points"], same["comment"]) != (row["points"], row["comment"]):
                faults.append(f"{where}: two tables say different things")
            elif same is row:
                try:
                    found += new_in_row(course, known, row, points, before)
                except ValueError as error:
                    faults.append(f"{where}: {error}")
    if faults:
        more = [f"and {len(faults) - SHOWN} more"] * (len(faults) > SHOWN)
        lines = "\n  ".join([*faults[:SHOWN], *more])
        raise CourseError(f"nothing was changed, as these rows cannot be taken:\n  {lines}")
    yield from found


def read_table(path: Path) -> Table:
    table = Table.read(path)
    lacks = [title for title in TITLES if title not in table.titles]
    if lacks:
        raise CourseError(
            f"{path} has no column {', '.join(lacks)}: expected a table that `tinyllm export "
            "written` wrote, with all of its columns"
        )
    return table


def new_in_row(
    course: Course, known: dict[Lab, dict[str, Standing]], row: Row, points: str, before: str
) -> Iterable[GivenPoints]:
    """Return the new points of a row that was filled in; ValueError if they cannot be taken."""
    if row["question"] not in QUESTIONS:
        raise ValueError("there is no such question")
    lab, question = QUESTIONS[row["question"]]
    if lab not in known:
        known[lab] = course.standings(lab)
    learner = row["learner"]
    if learner not in known[lab]:
        raise ValueError("no such learner is graded: an id that the spreadsheet changed?")
    standing = known[lab][learner]
    possible = standing.questions[question.id].possible
    if points and not (NUMBER.fullmatch(points) and float(points) <= possible):
        raise ValueError(
            f"points are {reprlib.repr(row['points'])}: expected a number from 0 to "
            f"{possible:g}"
        )
    now = points_given(standing, question)
    points, comment = points or now[0], row["comment"] or now[1]  # empty: unchanged
    if now == (points, comment):
        return []
    if (
        hash_letters(answer_to(course, lab, question, learner))
        != row["state"].partition("-")[0]
    ):
        raise ValueError(
            "the answer has changed since: `tinyllm export written` has the new one"
        )
    if hash_letters(*now) != before:
        points, comment = now[0] or "no", now[1] or "no comment"
        raise ValueError(f"somebody gave {points} points and {comment!r} elsewhere since")
    return [GivenPoints(lab, question, learner, points, comment)]


def plain_number(text: str) -> str:
    """Return a number without a decimal comma and zeros at its end; any other text as it is."""
    text = text.strip()
    return f"{float(text.replace(',', '.')):g}" if NUMBER.fullmatch(text) else text


def give(book: api.Gradebook, every: Iterable[GivenPoints]) -> None:
    """Write points and comments as formgrader does, in one transaction."""
    by_lab: dict[Lab, dict[tuple[str, str], GivenPoints]] = {}
    for given in every:
        by_lab.setdefault(given.lab, {})[given.learner, given.question.answer_cell] = given
    for lab, wanted in by_lab.items():
        give_lab(book, lab, wanted)
    book.db.commit()


def give_lab(
    book: api.Gradebook, lab: Lab, wanted: Mapping[tuple[str, str], GivenPoints]
) -> None:
    learners = {learner for learner, _ in wanted}
    for learner, name, grade in rows(book, api.Grade, (api.Grade,), lab.name, learners):
        given = wanted.get((learner, name))
        if given and given.points:
            grade.manual_score, grade.needs_manual_grade = float(given.points), False
    for learner, name, comment in rows(book, api.Comment, (api.Comment,), lab.name, learners):
        given = wanted.get((learner, name))
        if given and given.comment:
            comment.manual_comment = given.comment
