"""Grading all submissions of a lab, one after the other, into the gradebook."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from labkit.grading.assembling import earlier_labs
from labkit.grading.course import Course, Handed
from labkit.grading.judge import Graded, Judge, Submission
from labkit.grading.workers import Workers
from labkit.syllabus import Lab


@dataclass(frozen=True)
class Row:
    """One learner in the class table."""

    learner: str
    submission: Submission

    @property
    def why(self) -> str:
        """The first reason for lost points, in a few words."""
        lost = [g for g in self.submission.exercises if g.score < g.exercise.points]
        if self.submission.problem:
            return self.submission.problem
        if not lost:
            notes = [text for g in self.submission.exercises for label, text in g.report.rows
                     if label == "note"]  # fmt: skip
            return f"remark: {notes[0]}" if notes else "all checks passed"
        if len(lost) > 1 and len({reason(g) for g in lost}) == 1:
            return reason(lost[0])
        return f"{lost[0].exercise.id}: {reason(lost[0])}"


def reason(graded: Graded) -> str:
    return ", or ".join(graded.why) or graded.look


def grade_lab(
    course: Course, lab: Lab, progress: Callable[[Handed, int], None] = lambda *_: None
) -> list[Row]:
    """Grade, store, go on: a submission that cannot be graded never stops the next one.

    progress    called after each submission with it and the number of all
    """
    handed = list(course.submitted(lab))
    released, secret = course.released(lab), course.secret()
    rows = []
    with Workers() as workers:
        judge = Judge(lab, released, secret, workers)
        for one in handed:
            before = course.answers(earlier_labs(lab), one.learner)
            submission = judge.grade(one.path.read_bytes(), before)
            course.store(one, submission)
            rows.append(Row(one.learner, submission))
            progress(one, len(handed))
    return rows
