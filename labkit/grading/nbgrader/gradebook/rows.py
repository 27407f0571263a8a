"""Graded submissions into nbgrader's database, a batch in one short transaction; and what is
there, in line with course.toml.

The tables are nbgrader's models (`nbgrader.api`). Its `Gradebook` commits after each learner,
and its `SaveAutoGrades` and `AssignLatePenalties` ask several questions a cell: both take
longer than to judge a submission, and know nothing of excuses and of verdicts that a person
has to look at. Therefore the rows are written here; a test holds them against nbgrader's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from nbformat import NotebookNode
from nbgrader.api import (
    Assignment,
    BaseCell,
    Comment,
    Grade,
    Gradebook,
    Student,
    SubmittedAssignment,
    SubmittedNotebook,
)
from nbgrader.utils import compute_checksum, is_grade, is_solution

from labkit.author.course_rules import LabRules
from labkit.grading.judge.graded import GradedSubmission
from labkit.grading.nbgrader.gradebook.connection import CourseError, LatePenalty
from labkit.grading.nbgrader.standings import standings

NO_RESPONSE = "No response."  # nbgrader's own comment on an answer that is as it was released


@dataclass(frozen=True)
class GradebookRow:
    """One submission for the gradebook.

    timestamp  when it was handed in, in UTC without a zone, as the gradebook keeps it
    notebook   the graded one
    before     the one that was graded last, if it is there
    """

    learner: str
    timestamp: datetime | None
    submission: GradedSubmission
    notebook: NotebookNode
    before: NotebookNode | None = None


def record(
    gradebook: Gradebook, late: LatePenalty, rules: LabRules, entries: Iterable[GradebookRow]
) -> None:
    """Write the entries; rows that are not there are made, nothing is there twice.

    Points and comments that a person gave stay as they are.
    """
    entries, session = list(entries), gradebook.db
    assignment = gradebook.find_assignment(rules.lab.name)
    names = [entry.learner for entry in entries]
    query = session.query(Student).filter(Student.id.in_(names))
    students = {student.id: student for student in query}
    query = session.query(SubmittedAssignment).filter(
        SubmittedAssignment.assignment_id == assignment.id,
        SubmittedAssignment.student_id.in_(names),
    )
    submissions = {submission.student_id: submission for submission in query}
    for entry in entries:
        student = students.get(entry.learner) or Student(id=entry.learner)
        submission = submissions.get(entry.learner) or blank(assignment, student)
        submissions[entry.learner] = submission
        session.add(submission)
        is_new = entry.timestamp is None or entry.timestamp != submission.timestamp
        submission.timestamp = entry.timestamp or submission.timestamp
        for notebook in submission.notebooks:
            fill(notebook, entry, rules, is_new)
    penalise(gradebook, late, rules, assignment, submissions)


def blank(assignment: Assignment, student: Student) -> SubmittedAssignment:
    """The rows that nbgrader makes when a submission is first seen."""
    submission = SubmittedAssignment(assignment=assignment, student=student)
    for notebook in assignment.notebooks:
        rows = SubmittedNotebook(notebook=notebook, assignment=submission)
        for cell in notebook.grade_cells:
            Grade(cell=cell, notebook=rows)
        for cell in notebook.solution_cells:
            Comment(cell=cell, notebook=rows)
    return submission


def fill(
    notebook: SubmittedNotebook, entry: GradebookRow, rules: LabRules, is_new: bool
) -> None:
    """The judge's points, and comments; a written answer waits for a person, or is blank.

    is_new    whether it may be another submission than the one in the gradebook; asked where
              the graded notebook of that one is gone
    """
    cells, before = marked_cells(entry.notebook), marked_cells(entry.before)
    exercises = {graded.exercise.check_cell: graded for graded in entry.submission.exercises}
    blanks = {name for name, cell in cells.items() if is_solution(cell)
              and cell.metadata.nbgrader.get("checksum") == compute_checksum(cell)}  # fmt: skip
    rows = {grade.cell.name: grade for grade in notebook.grades}
    unknown = {name for name, cell in cells.items() if is_grade(cell)} ^ set(rows)
    if unknown:
        name = rules.lab.name
        raise CourseError(
            f"the gradebook and the released notebook of {name} differ in the cells "
            f"{', '.join(sorted(unknown))}: release it again with "
            f"`nbgrader generate_assignment {name} --force`"
        )
    excused = excused_cells(rules, entry.learner)
    for name, grade in rows.items():
        answer, score, asked = name, 0.0 if name in blanks else None, name not in blanks
        if name in exercises:
            graded = exercises[name]
            answer, score = graded.exercise.answer_cell, graded.score
            asked = graded.needs_person
        is_other = is_new
        if entry.before is not None:
            is_other = answer not in before or before[answer].source != cells[answer].source
        set_grade(grade, score, asked, is_other or score != grade.auto_score, name in excused)
    for comment in notebook.comments:
        comment.auto_comment = NO_RESPONSE if comment.cell.name in blanks else None


def marked_cells(notebook: NotebookNode | None) -> dict[str, NotebookNode]:
    """nbgrader's cells by their ids."""
    cells = notebook.cells if notebook else ()
    return {c.metadata.nbgrader.grade_id: c for c in cells if "nbgrader" in c.metadata}


def set_grade(
    grade: Grade, score: float | None, asked: bool, changed: bool, excused: bool
) -> None:
    """The points of the checks, and whether a person has to look.

    asked      a person is to look at the answer
    changed    the answer or its points are others than before: else a person has perhaps
               looked already, or given points, and nothing is asked again
    """
    is_given = grade.manual_score is not None
    grade.auto_score = score
    if excused and not is_given:
        grade.needs_manual_grade = False
    elif changed or not (asked or is_given):
        grade.needs_manual_grade = asked or is_given


def ask_about(
    gradebook: Gradebook, rules: LabRules, learner: str, found: GradedSubmission
) -> None:
    """Mark what a person has to look at, except what is excused or has points by hand."""
    excused = excused_cells(rules, learner)
    asked = {each.exercise.check_cell for each in found.exercises if each.needs_person}
    for notebook in gradebook.find_submission(rules.lab.name, learner).notebooks:
        for grade in notebook.grades:
            if grade.cell.name in asked - excused and grade.manual_score is None:
                grade.needs_manual_grade = True
    gradebook.db.commit()


def excused_cells(rules: LabRules, learner: str) -> set[str]:
    """Those that no person need grade: excused, or left out of the course."""
    ids = rules.excused.get(learner, frozenset())
    parts = [*rules.lab.exercises, *rules.lab.questions]
    return {each.grade_cell for each in parts if each.id in ids or not each.points}


def follow(
    gradebook: Gradebook,
    late: LatePenalty,
    rules: LabRules,
    graded: Mapping[str, GradedSubmission],
    changed: Collection[tuple[str, str]] = (),
) -> None:
    """Bring the rows of a lab in line with its rules: points, deadlines, excuses, penalties.

    graded     {learner: what was found out, with the points of the rules}
    changed    (learner, grade cell) of all whose points have changed
    """
    assignment = gradebook.find_assignment(rules.lab.name)
    parts = (*rules.lab.exercises, *rules.lab.questions)
    points = {part.grade_cell: part.points for part in parts}
    for notebook in assignment.notebooks:
        for cell in notebook.grade_cells:
            cell.max_score = points.get(cell.name, cell.max_score)
    scores = {(learner, each.exercise.check_cell): each.score
              for learner, submission in graded.items()
              for each in submission.exercises}  # fmt: skip
    query = (
        gradebook.db.query(Grade, BaseCell.name, SubmittedAssignment.student_id)
        .join(BaseCell, BaseCell.id == Grade.cell_id)
        .join(SubmittedNotebook, SubmittedNotebook.id == Grade.notebook_id)
        .join(SubmittedAssignment, SubmittedAssignment.id == SubmittedNotebook.assignment_id)
        .filter(SubmittedAssignment.assignment_id == assignment.id)
    )
    for grade, name, learner in query.all():
        score = grade.auto_score
        asked = score is None or bool(grade.needs_manual_grade)
        if score is not None:
            score = scores.get((learner, name), score)
        is_changed = grade.manual_score is None or (learner, name) in changed
        set_grade(grade, score, asked, is_changed, name in excused_cells(rules, learner))
    submissions = {each.student_id: each for each in assignment.submissions}
    penalise(gradebook, late, rules, assignment, submissions)


def penalise(
    gradebook: Gradebook,
    late: LatePenalty,
    rules: LabRules,
    assignment: Assignment,
    submissions: Mapping[str, SubmittedAssignment],
) -> None:
    """The deadline, extensions, and what comes off for lateness of the points that count;
    ends the transaction."""
    if rules.deadline is not None:
        assignment.duedate = rules.deadline.astimezone(timezone.utc).replace(tzinfo=None)
    gradebook.db.flush()
    found = standings(gradebook, rules, submissions)
    for learner, submission in submissions.items():
        if rules.deadline is not None:
            longer = rules.extensions.get(learner, rules.deadline) - rules.deadline
            submission.extension = longer or None
        score = found[learner].before_penalty if learner in found else 0.0
        seconds = submission.total_seconds_late
        for notebook in submission.notebooks:
            notebook.late_submission_penalty = late.penalty(learner, score, seconds)
    gradebook.db.commit()
