"""Write graded submissions into nbgrader's database, a batch in one short transaction, and
bring its rows in line with course.toml.

The tables are nbgrader's models (`nbgrader.api`). Its `Gradebook` commits after each learner,
and its `SaveAutoGrades` and `AssignLatePenalties` ask several questions a cell: both take
longer than judging a submission, and do not know excuses or verdicts that a person has to look
at. So the rows are written here; a test compares them with nbgrader's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property

from nbformat import NotebookNode
from nbgrader import api
from nbgrader.utils import compute_checksum, is_grade, is_solution
from sqlalchemy import insert
from sqlalchemy.orm import Session

from labkit.grading.course_rules import LabRules
from labkit.grading.judge.graded import GradedExercise, GradedSubmission
from labkit.grading.nbgrader.gradebook.connection import CourseError, LatePenalty
from labkit.grading.nbgrader.gradebook.lateness import lateness
from labkit.grading.nbgrader.standings import Standing, rows, standings
from labkit.grading.nbgrader.timestamp import Stamp

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

    @cached_property
    def verdicts(self) -> dict[str, GradedExercise]:
        """The verdicts by the ids of the check cells."""
        return {graded.exercise.check_cell: graded for graded in self.submission.exercises}

    @cached_property
    def cells(self) -> dict[str, NotebookNode]:
        return marked_cells(self.notebook)

    @cached_property
    def sources_before(self) -> dict[str, str]:
        return {name: cell.source for name, cell in marked_cells(self.before).items()}

    def is_blank(self, name: str) -> bool:
        """Whether an answer cell is as it was released."""
        cell = self.cells[name]
        checksum = cell.metadata.nbgrader.get("checksum")
        return is_solution(cell) and checksum == compute_checksum(cell)

    def is_in(self, standing: Standing | None) -> bool:
        """Whether the gradebook, with this standing, has all of it from an earlier grading."""
        if standing is None or self.notebook is not self.before:
            return False
        when = standing.handed_at and standing.handed_at.replace(tzinfo=None)
        scores = {key: grade.automatic for key, grade in standing.exercises.items()}
        same = all(scores.get(v.id) == v.score for v in self.submission.exercises)
        return same and self.timestamp in (None, when)

    def is_answer_new(self, name: str) -> bool:
        return self.sources_before.get(name) != self.cells[name].source


def marked_cells(notebook: NotebookNode | None) -> dict[str, NotebookNode]:
    """nbgrader's cells by their ids."""
    cells = notebook.cells if notebook else ()
    return {c.metadata.nbgrader.grade_id: c for c in cells if "nbgrader" in c.metadata}


def record(
    gradebook: api.Gradebook,
    late: LatePenalty,
    rules: LabRules,
    entries: Iterable[GradebookRow],
) -> None:
    """Write the entries; missing rows are created, and nothing is written twice. A written
    answer waits for a person unless it is blank. Points and comments that a person gave
    stay as they are. CourseError if a notebook has other cells than the gradebook.
    """
    session, assignment = gradebook.db, gradebook.find_assignment(rules.lab.name)
    by_learner = {entry.learner: entry for entry in entries}
    query = session.query(api.SubmittedAssignment).filter(
        api.SubmittedAssignment.assignment_id == assignment.id,
        api.SubmittedAssignment.student_id.in_(by_learner),
    )
    missing = by_learner.keys() - {submission.student_id for submission in query}
    add_blank_submissions(session, assignment, sorted(missing))
    submissions = {submission.student_id: submission for submission in query}
    known = {cell.name for notebook in assignment.notebooks for cell in notebook.grade_cells}
    new = set()  # they may differ from those in the gradebook
    for learner, entry in by_learner.items():
        refuse_other_cells({n for n, c in entry.cells.items() if is_grade(c)}, known, rules)
        submission = submissions[learner]
        if entry.timestamp is None or entry.timestamp != submission.timestamp:
            new.add(learner)
        submission.timestamp = entry.timestamp or submission.timestamp
    session.flush()
    lab = rules.lab.name
    for learner, name, grade in rows(gradebook, api.Grade, (api.Grade,), lab, submissions):
        entry, answer = by_learner[learner], name
        asked = not entry.is_blank(name)
        score = None if asked else 0.0
        if name in entry.verdicts:
            verdict = entry.verdicts[name]
            answer, score = verdict.exercise.answer_cell, verdict.score
            asked = verdict.needs_person
        is_new = learner in new if entry.before is None else entry.is_answer_new(answer)
        is_changed = is_new or score != grade.auto_score
        set_grade(grade, score, asked, is_changed, name in excused_cells(rules, learner))
    for learner, name, comment in rows(
        gradebook, api.Comment, (api.Comment,), lab, submissions
    ):
        comment.auto_comment = NO_RESPONSE if by_learner[learner].is_blank(name) else None
    apply_late_penalties(gradebook, late, rules, submissions)


def refuse_other_cells(cells: set[str], known: set[str], rules: LabRules) -> None:
    if cells != known:
        name = rules.lab.name
        raise CourseError(
            f"the gradebook and the released notebook of {name} differ in the cells "
            f"{', '.join(sorted(cells ^ known))}: release it again with "
            f"`nbgrader generate_assignment {name} --force`"
        )


def add_blank_submissions(
    session: Session, assignment: api.Assignment, learners: Sequence[str]
) -> None:
    """Add the rows that nbgrader makes for a new submission, in one statement per table."""
    known = session.query(api.Student.id).filter(api.Student.id.in_(learners))
    students = [{"id": learner} for learner in set(learners) - {row.id for row in known}]
    submissions, notebooks, grades, comments = [], [], [], []
    for learner in learners:
        about = {"assignment_id": assignment.id, "student_id": learner}
        submissions.append({"id": api.new_uuid(), **about})
        for notebook in assignment.notebooks:
            about = {"notebook_id": notebook.id, "assignment_id": submissions[-1]["id"]}
            notebooks.append({"id": api.new_uuid(), **about})
            place = {"notebook_id": notebooks[-1]["id"]}
            grades += [{"cell_id": cell.id, **place} for cell in notebook.grade_cells]
            comments += [{"cell_id": cell.id, **place} for cell in notebook.solution_cells]
    tables = {
        api.Student: students,
        api.SubmittedAssignment: submissions,
        api.SubmittedNotebook: notebooks,
        api.Grade: grades,
        api.Comment: comments,
    }
    for table, new in tables.items():
        if new:
            session.execute(insert(table), new)


def set_grade(
    grade: api.Grade, score: float | None, asked: bool, changed: bool, excused: bool
) -> None:
    """Set the points of the checks, and whether a person has to look.

    asked      a person is to look at the answer
    changed    the answer or its points have changed; else a person may have looked already, or
               given points, and is not asked again
    """
    is_given = grade.manual_score is not None
    grade.auto_score = score
    if excused and not is_given:
        grade.needs_manual_grade = False
    elif changed or not (asked or is_given):
        grade.needs_manual_grade = asked or is_given


def excused_cells(rules: LabRules, learner: str) -> set[str]:
    """Return the cells that nobody has to grade: excused, or left out of the course."""
    ids = rules.excused.get(learner, frozenset())
    parts = [*rules.lab.exercises, *rules.lab.questions]
    return {part.grade_cell for part in parts if part.id in ids or not part.points}


def apply_rules(
    gradebook: api.Gradebook,
    late: LatePenalty,
    rules: LabRules,
    graded: Mapping[str, GradedSubmission],
    changed: Collection[tuple[str, str]],
    times: Mapping[str, Stamp],
) -> None:
    """Bring the rows of a lab in line with its rules: points, deadlines, excuses, penalties.

    graded     {learner: verdicts, with the points of the rules}
    changed    (learner, grade cell) wherever the points have changed
    times      of attempts with a late mark; others keep their time
    """
    assignment = gradebook.find_assignment(rules.lab.name)
    parts = (*rules.lab.exercises, *rules.lab.questions)
    points = {part.grade_cell: part.points for part in parts}
    for notebook in assignment.notebooks:
        for cell in notebook.grade_cells:
            cell.max_score = points.get(cell.name, cell.max_score)
    verdicts = {(learner, verdict.exercise.check_cell): verdict
                for learner, submission in graded.items()
                for verdict in submission.exercises}  # fmt: skip
    for learner, name, grade in rows(gradebook, api.Grade, (api.Grade,), rules.lab.name):
        score, verdict = grade.auto_score, verdicts.get((learner, name))
        asked = score is None or bool(grade.needs_manual_grade)
        if score is not None and verdict:
            score, asked = verdict.score, asked or verdict.needs_person
        is_changed = grade.manual_score is None or (learner, name) in changed
        set_grade(grade, score, asked, is_changed, name in excused_cells(rules, learner))
    submissions = {submission.student_id: submission for submission in assignment.submissions}
    for learner in times.keys() & submissions.keys():
        before, now, _ = (when and when.replace(tzinfo=None) for when in times[learner])
        if submissions[learner].timestamp == before:
            submissions[learner].timestamp = now
    apply_late_penalties(gradebook, late, rules)


def apply_late_penalties(
    gradebook: api.Gradebook,
    late: LatePenalty,
    rules: LabRules,
    only: Collection[str] | None = None,
) -> None:
    """Set a lab's deadline, extensions and late penalties; end the transaction."""
    assignment = gradebook.find_assignment(rules.lab.name)
    submissions = {s.student_id: s for s in assignment.submissions
                   if only is None or s.student_id in only}  # fmt: skip
    if rules.deadline is not None:
        assignment.duedate = rules.deadline.astimezone(timezone.utc).replace(tzinfo=None)
        for learner, submission in submissions.items():
            longer = rules.extensions.get(learner, rules.deadline) - rules.deadline
            submission.extension = longer or None
    gradebook.db.flush()
    found, late_ones = standings(gradebook, rules, submissions), lateness(gradebook, rules)
    for learner, submission in submissions.items():
        score = found[learner].before_penalty if learner in found else 0.0
        seconds = late_ones[learner].charged if learner in late_ones else 0.0
        for notebook in submission.notebooks:
            notebook.late_submission_penalty = late.penalty(learner, score, seconds)
    gradebook.db.commit()
