"""The points of learners in a lab: no other module adds them up.

    automatic + by hand + written + extra credit - late penalty = total

A person's points replace those of the checks until a person changes them. If the answer
has changed since, nbgrader's mark `needs manual grade` is set, and every page shows it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from nbgrader import api

from labkit.grading.course_rules import LabRules
from labkit.grading.nbgrader.gradebook.lateness import Lateness


@dataclass(frozen=True)
class CellGrade:
    """The entry of the gradebook for one exercise or written question.

    possible    its points; 0 if the course leaves it out
    automatic   by the checks; None for a written answer, which waits for a person
    manual      by a person
    flagged     nbgrader's needs_manual_grade
    """

    id: str
    possible: float
    automatic: float | None = None
    manual: float | None = None
    extra: float = 0.0
    flagged: bool = False
    excused: bool = False

    @property
    def counted(self) -> bool:
        return self.possible > 0 and not self.excused

    @property
    def points(self) -> float:
        """The points that count, without extra credit."""
        given = self.automatic if self.manual is None else self.manual
        return given or 0.0 if self.counted else 0.0

    @property
    def passed(self) -> bool:
        """Whether the checks gave all points."""
        return (self.automatic or 0.0) >= self.possible

    @property
    def overridden(self) -> bool:
        return self.counted and self.manual is not None

    @property
    def waiting(self) -> bool:
        """Whether a person has to grade it, perhaps again because the answer changed."""
        return self.counted and self.flagged

    @property
    def stale(self) -> bool:
        """A person's points that are older than the answer."""
        return self.overridden and self.flagged


@dataclass
class Standing:
    """One learner in one lab, by the ids of its exercises and questions.

    comments    {answer cell: comment of a person, or of nbgrader}
    lateness    if course.toml has minutes of grace or late days
    given_out   (day, total) of the last grade that its learner got, if it was different
    """

    exercises: dict[str, CellGrade] = field(default_factory=dict)
    questions: dict[str, CellGrade] = field(default_factory=dict)
    late_penalty: float = 0.0
    handed_at: datetime | None = None  # in UTC
    comments: dict[str, str] = field(default_factory=dict)
    lateness: Lateness | None = None
    given_out: tuple[str, float] | None = None

    @property
    def counted(self) -> list[CellGrade]:
        every = (*self.exercises.values(), *self.questions.values())
        return [grade for grade in every if grade.counted]

    @property
    def excused(self) -> bool:
        """Whether the learner is excused from the whole lab."""
        return bool(self.exercises) and not self.counted

    @property
    def automatic(self) -> float:
        return total(e.automatic or 0.0 for e in self.exercises.values() if e.counted)

    @property
    def late_days(self) -> int:
        """The late days that were used for this lab."""
        return self.lateness.used if self.lateness else 0

    @property
    def by_hand(self) -> float:
        """Points that a person added to those of the checks, or took away."""
        given = [grade for grade in self.exercises.values() if grade.overridden]
        return total(grade.points - (grade.automatic or 0.0) for grade in given)

    @property
    def written(self) -> float:
        return total(question.points for question in self.questions.values())

    @property
    def extra(self) -> float:
        return total(grade.extra for grade in self.counted)

    @property
    def before_penalty(self) -> float:
        return total((self.automatic, self.by_hand, self.written, self.extra))

    @property
    def total(self) -> float:
        return total((self.before_penalty, -self.late_penalty))

    @property
    def possible(self) -> float:
        return total(grade.possible for grade in self.counted)

    @property
    def waiting(self) -> list[CellGrade]:
        """Written answers to be graded."""
        return [question for question in self.questions.values() if question.waiting]

    @property
    def to_be_graded(self) -> float:
        """Their points."""
        return total(question.possible for question in self.waiting)

    @property
    def stale(self) -> list[CellGrade]:
        return [grade for grade in self.counted if grade.stale]


def total(numbers: Iterable[float]) -> float:
    return round(sum(numbers), 2) + 0.0  # no -0


def stale_text(grade: CellGrade) -> str:
    text = f"{grade.id}: {grade.manual:g} by hand counts, older than the answer"
    if grade.automatic is None:
        return text
    return f"{text}; the checks give {grade.automatic:g} now"


def empty_standing(rules: LabRules, learner: str) -> Standing:
    """Return the standing of a learner without entries in the gradebook."""
    excused = rules.excused.get(learner, frozenset())
    exercises, questions = (
        {part.id: CellGrade(part.id, part.points, excused=part.id in excused) for part in parts}
        for parts in (rules.lab.exercises, rules.lab.questions)
    )
    return Standing(exercises, questions)


def standings(
    gradebook: api.Gradebook, rules: LabRules, learners: Collection[str] | None = None
) -> dict[str, Standing]:
    """{learner: standing} of the learners in the gradebook, or of some; in two queries."""
    columns = (api.SubmittedAssignment.timestamp, api.SubmittedNotebook.late_submission_penalty,
               api.Grade.auto_score, api.Grade.manual_score, api.Grade.extra_credit,
               api.Grade.needs_manual_grade)  # fmt: skip
    parts = {part.grade_cell: part for part in (*rules.lab.exercises, *rules.lab.questions)}
    found: dict[str, Standing] = {}
    for learner, cell, *row in rows(gradebook, api.Grade, columns, rules.lab.name, learners):
        when, penalty, automatic, manual, extra, flagged = row
        standing = found.setdefault(learner, Standing(late_penalty=penalty or 0.0))
        standing.handed_at = when.replace(tzinfo=timezone.utc) if when else None
        part = parts.get(cell)
        if part is not None:
            is_exercise = part in rules.lab.exercises
            excused = part.id in rules.excused.get(learner, ())
            (standing.exercises if is_exercise else standing.questions)[part.id] = CellGrade(
                part.id, part.points, automatic, manual, extra or 0.0, bool(flagged), excused
            )
    for learner, cell, text in rows(
        gradebook, api.Comment, (api.Comment.comment,), rules.lab.name, learners
    ):
        if learner in found and text:
            found[learner].comments[cell] = text
    return found


def rows(
    book: api.Gradebook,
    table: Any,
    columns: tuple,
    lab_name: str,
    learners: Collection[str] | None = None,
) -> Iterable[tuple]:
    """Return (learner, cell, columns) of a lab's rows in a table of cells."""
    query = (
        book.db.query(api.SubmittedAssignment.student_id, api.BaseCell.name, *columns)
        .select_from(table)
        .join(api.BaseCell, api.BaseCell.id == table.cell_id)
        .join(api.SubmittedNotebook, api.SubmittedNotebook.id == table.notebook_id)
        .join(
            api.SubmittedAssignment,
            api.SubmittedAssignment.id == api.SubmittedNotebook.assignment_id,
        )
        .join(api.Assignment, api.Assignment.id == api.SubmittedAssignment.assignment_id)
        .filter(api.Assignment.name == lab_name)
        .order_by(api.BaseCell.name)
    )
    if learners is None:
        return query
    return query.filter(api.SubmittedAssignment.student_id.in_(learners))
