"""Graded submissions into nbgrader's database: the rows of its own autograde, a batch at a
time, in one short transaction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nbformat import NotebookNode
from nbgrader.api import (
    Comment,
    Grade,
    Gradebook,
    Student,
    SubmittedAssignment,
    SubmittedNotebook,
)
from nbgrader.utils import compute_checksum, is_grade, is_solution

from labkit.grading.judge.graded import GradedSubmission
from labkit.grading.nbgrader.gradebook_connection import CourseError, LatePenalty

NO_RESPONSE = "No response."  # nbgrader's own comment on an answer that is as it was released


@dataclass(frozen=True)
class GradebookRow:
    """One submission for the gradebook.

    notebook   the graded one
    unchanged  the same verdicts on the same answers are stored already, so that what a person
               has graded by hand need not be looked at again
    """

    learner: str
    timestamp: datetime | None
    submission: GradedSubmission
    notebook: NotebookNode
    unchanged: bool = False


def is_blank(cell: NotebookNode) -> bool:
    """Whether an answer cell is as it was released."""
    return cell.metadata.nbgrader.get("checksum") == compute_checksum(cell)


def record(
    gradebook: Gradebook, late: LatePenalty, lab_name: str, entries: Iterable[GradebookRow]
) -> None:
    """Write the entries, each learner's rows made if they are not there; nothing twice.

    Points and comments that a person gave stay as they are.
    """
    entries, session = list(entries), gradebook.db
    assignment = gradebook.find_assignment(lab_name)
    names = [entry.learner for entry in entries]
    query = session.query(Student).filter(Student.id.in_(names))
    students = {student.id: student for student in query}
    query = session.query(SubmittedAssignment).filter(
        SubmittedAssignment.assignment_id == assignment.id,
        SubmittedAssignment.student_id.in_(names),
    )
    submissions = {submission.student_id: submission for submission in query}
    done = []
    for entry in entries:
        student = students.get(entry.learner) or Student(id=entry.learner)
        submission = submissions.get(entry.learner) or blank(assignment, student)
        session.add(submission)
        if entry.timestamp is not None:
            submission.timestamp = entry.timestamp
        for notebook in submission.notebooks:
            fill(notebook, entry, lab_name)
        done.append((entry, submission))
    session.flush()
    for entry, submission in done:
        for notebook in submission.notebooks:
            seconds = submission.total_seconds_late
            notebook.late_submission_penalty = late.penalty(entry.learner, notebook, seconds)
    session.commit()


def blank(assignment: Any, student: Student) -> SubmittedAssignment:
    """The rows that nbgrader makes when a submission is first seen."""
    submission = SubmittedAssignment(assignment=assignment, student=student)
    for notebook in assignment.notebooks:
        rows = SubmittedNotebook(notebook=notebook, assignment=submission)
        for cell in notebook.grade_cells:
            Grade(cell=cell, notebook=rows)
        for cell in notebook.solution_cells:
            Comment(cell=cell, notebook=rows)
    return submission


def fill(notebook: SubmittedNotebook, entry: GradebookRow, lab_name: str) -> None:
    """The judge's points, and comments, by the rules of nbgrader's SaveAutoGrades; a written
    answer waits for a person, or is blank: no points."""
    marked = [cell for cell in entry.notebook.cells if "nbgrader" in cell.metadata]
    cells = {cell.metadata.nbgrader.grade_id: cell for cell in marked}
    blanks = {name for name, cell in cells.items() if is_solution(cell) and is_blank(cell)}
    exercises = {graded.exercise.check_cell: graded for graded in entry.submission.exercises}
    rows = {grade.cell.name: grade for grade in notebook.grades}
    unknown = {name for name, cell in cells.items() if is_grade(cell)} ^ set(rows)
    if unknown:
        raise CourseError(
            f"the gradebook and the released notebook of {lab_name} differ in the cells "
            f"{', '.join(sorted(unknown))}: release it again with "
            f"`nbgrader generate_assignment {lab_name} --force`"
        )
    for name, grade in rows.items():
        if name in exercises:
            grade.auto_score = exercises[name].score
            person = exercises[name].needs_person
        else:
            grade.auto_score = 0.0 if name in blanks else None
            person = name not in blanks
        if grade.manual_score is None:
            grade.needs_manual_grade = person
        elif not entry.unchanged:
            grade.needs_manual_grade = True
    for comment in notebook.comments:
        comment.auto_comment = NO_RESPONSE if comment.cell.name in blanks else None
