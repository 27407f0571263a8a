"""The lateness of each submission, and the late days that were used for it.

A learner has `late.days` of course.toml for all labs together. Each day begun after a deadline
uses one until none is left; labs that are due first come first.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from math import ceil

from nbgrader import api

from labkit.grading.course_rules import LabRules

DAY = 24 * 60 * 60


@dataclass(frozen=True)
class Lateness:
    """A submission after its deadline, an extension included.

    is_grace    within the minutes of grace, so not late
    used        late days that were used for it
    left        late days that are left for labs that are due later
    """

    seconds: float
    is_grace: bool
    used: int
    left: int

    @property
    def charged(self) -> float:
        """Seconds that cost points."""
        return 0.0 if self.is_grace else max(0.0, self.seconds - DAY * self.used)


def lateness(gradebook: api.Gradebook, rules: LabRules) -> dict[str, Lateness]:
    """Return {learner: lateness} for those who handed in the lab late."""
    handed, lab = api.SubmittedAssignment, api.Assignment
    columns = (handed.student_id, lab.name, lab.duedate, handed.timestamp, handed.extension)
    query = (
        gradebook.db.query(*columns)
        .join(lab, lab.id == handed.assignment_id)
        .order_by(lab.duedate, lab.name)
    )
    used: Counter[str] = Counter()
    found = {}
    for learner, name, due, when, extension in query:
        if when is None or due is None or name in rules.excused_labs.get(learner, ()):
            continue
        seconds = (when - due - (extension or timedelta())).total_seconds()
        if seconds <= 0:
            continue
        is_grace = seconds <= 60 * rules.grace_minutes
        begun = 0 if is_grace else ceil(seconds / DAY)
        days = min(begun, rules.late_days - used[learner])
        used[learner] += days
        if name == rules.lab.name:
            found[learner] = Lateness(seconds, is_grace, days, rules.late_days - used[learner])
    return found
