"""Graded submissions into nbgrader's database: the rows of its own autograde, a batch at a
time, in one short transaction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nbgrader.api import (
    Comment,
    Grade,
    Gradebook,
    Student,
    SubmittedAssignment,
    SubmittedNotebook,
)
from nbgrader.preprocessors import AssignLatePenalties
from traitlets.config import Config


@dataclass(frozen=True)
class Entry:
    """What the gradebook is told of one submission.

    grades    {grade cell: points}; None where a person gives them
    comments  {answer cell: nbgrader's own comment, or None}
    person    grade cells that a person has to look at besides
    """

    learner: str
    timestamp: Any
    grades: dict[str, float | None]
    comments: dict[str, str | None]
    person: frozenset[str] = frozenset()


def record(database: str, config: Config, lab_name: str, entries: Iterable[Entry]) -> None:
    """Write the entries, each learner's rows made if they are not there; nothing twice.

    Points and comments that a person gave stay as they are.
    """
    entries = list(entries)
    with Gradebook(database, config.CourseDirectory.get("course_id") or None) as gradebook:
        session = gradebook.db
        assignment = gradebook.find_assignment(lab_name)
        names = [entry.learner for entry in entries]
        query = session.query(Student).filter(Student.id.in_(names))
        students = {student.id: student for student in query}
        query = session.query(SubmittedAssignment).filter(
            SubmittedAssignment.assignment_id == assignment.id,
            SubmittedAssignment.student_id.in_(names),
        )
        submissions = {submission.student_id: submission for submission in query}
        late = []
        for entry in entries:
            student = students.get(entry.learner) or Student(id=entry.learner)
            submission = submissions.get(entry.learner) or blank(assignment, student)
            session.add(submission)
            if entry.timestamp is not None:
                submission.timestamp = entry.timestamp
            for notebook in submission.notebooks:
                fill(notebook, entry)
            late.append((entry, submission))
        session.flush()
        punish(config, late)
        session.commit()


def blank(assignment: Any, student: Student) -> SubmittedAssignment:
    """The rows that nbgrader makes when a submission is first seen."""
    submission = SubmittedAssignment(assignment=assignment, student=student)
    for notebook in assignment.notebooks:
        rows = SubmittedNotebook(notebook=notebook, assignment=submission)
        for cell in [*notebook.grade_cells, *notebook.task_cells]:
            Grade(cell=cell, notebook=rows)
        for cell in [*notebook.solution_cells, *notebook.task_cells]:
            Comment(cell=cell, notebook=rows)
    return submission


def fill(notebook: SubmittedNotebook, entry: Entry) -> None:
    """Points and comments, by the rules of nbgrader's SaveAutoGrades."""
    for grade in notebook.grades:
        if grade.cell.name not in entry.grades:
            continue
        grade.auto_score = entry.grades[grade.cell.name]
        manual = grade.manual_score is not None or grade.auto_score is None
        grade.needs_manual_grade = manual or grade.cell.name in entry.person
    for comment in notebook.comments:
        if comment.cell.name in entry.comments:
            comment.auto_comment = entry.comments[comment.cell.name]


def punish(config: Config, entries: list[tuple[Entry, SubmittedAssignment]]) -> None:
    """Late penalties, as the configured plugin of nbgrader wants them."""
    rule = AssignLatePenalties(config=config)
    rule.init_plugin()
    for entry, submission in entries:
        seconds = submission.total_seconds_late
        for notebook in submission.notebooks:
            penalty = None
            if seconds > 0:
                penalty = rule.plugin_inst.late_submission_penalty(
                    entry.learner, notebook.score, seconds
                )
            if penalty is not None:
                penalty = rule._check_late_penalty(notebook, penalty)
            notebook.late_submission_penalty = penalty
