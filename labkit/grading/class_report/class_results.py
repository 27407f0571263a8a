"""A class as its reports see it: records, points and people of a lab, joined.

The reasons come from the records of grading, the points from the gradebook, so that points
given by hand and late penalties are in them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from labkit.core.report import Status
from labkit.core.syllabus import Exercise, Lab
from labkit.grading.judge.graded import GradedExercise, GradedSubmission, common_layers
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook_connection import RosterEntry, Standing
from labkit.grading.run.results import Results

NAMES = 12  # of learners shown for one mistake
FULL, PART, NONE, ABSENT = "all points", "some points", "no points", "not started"
STATES = (FULL, PART, NONE, ABSENT)


@dataclass
class Entry:
    """One learner in one lab. There is no submission where nothing was handed in.

    written    points given by hand
    waiting    written answers that a person has to grade
    """

    learner: str
    name: str = ""
    submission: GradedSubmission | None = None
    written: float = 0.0
    waiting: int = 0
    late_penalty: float = 0.0
    total: float = 0.0

    @property
    def automatic(self) -> float:
        return self.submission.score if self.submission else 0.0

    @property
    def exercises(self) -> dict[str, GradedExercise]:
        """By their ids."""
        graded = self.submission.exercises if self.submission else ()
        return {each.id: each for each in graded}


def state(graded: GradedExercise) -> str:
    """How an exercise went, as one of STATES."""
    if graded.full:
        return FULL
    if graded.score > 0:
        return PART
    return ABSENT if graded.status is Status.NOT_STARTED else NONE


@dataclass
class LabResults:
    """A lab of the class."""

    lab: Lab
    entries: list[Entry]
    layers: list[str] = field(default_factory=list)  # of protection round learners' code

    @property
    def handed(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.submission]

    @property
    def missing(self) -> list[Entry]:
        return [entry for entry in self.entries if not entry.submission]

    @property
    def possible(self) -> int:
        return sum(exercise.points for exercise in self.lab.exercises)

    @property
    def by_hand(self) -> int:
        return sum(question.points for question in self.lab.questions)

    @property
    def full(self) -> int:
        return sum(entry.automatic == self.possible for entry in self.handed)

    @property
    def median(self) -> float:
        return round(median([entry.automatic for entry in self.handed] or [0.0]), 1)

    def share(self, exercise: Exercise) -> float:
        """Mean share of the points of an exercise, of those who handed something in."""
        scores = [entry.exercises[exercise.id].score for entry in self.handed]
        return sum(scores) / max(len(scores), 1) / exercise.points

    def states(self, exercise: Exercise) -> list[int]:
        """How many got all, some, no points, and how many did not start."""
        counts = Counter(state(entry.exercises[exercise.id]) for entry in self.handed)
        return [counts[state] for state in STATES]


@dataclass
class Cause:
    """A reason for lost points, and whom it cost them."""

    exercise: Exercise
    reason: str
    named: bool
    learners: list[str]

    @property
    def shown(self) -> str:
        names = ", ".join(self.learners[:NAMES])
        more = len(self.learners) - NAMES
        return f"{names} and {more} more" if more > 0 else names


# From records and gradebook to results


def results_of(course: Course, lab: Lab) -> LabResults | None:
    """Records, points and people of a lab; None if it was not graded."""
    submissions = Results(course.root, lab).of_class()
    if submissions is None:
        return None
    people, missing = course.people(), course.missing(lab)
    return joined(lab, submissions, course.standings(lab), people, missing)


def joined(
    lab: Lab,
    submissions: Mapping[str, GradedSubmission],
    standings: Mapping[str, Standing],
    people: Iterable[RosterEntry],
    missing: Iterable[str],
) -> LabResults:
    names = {person.id: person.name for person in people}
    written = [question.answer_cell for question in lab.questions]
    entries = []
    for learner in sorted({*submissions, *names, *missing}, key=str.casefold):
        entry = Entry(learner, names.get(learner, ""), submissions.get(learner))
        if entry.submission:
            standing = standings.get(learner, Standing())
            entry.written = sum(standing.scores.get(cell, 0.0) for cell in written)
            entry.waiting = sum(cell in standing.waiting for cell in written)
            entry.late_penalty, entry.total = standing.late_penalty, standing.total
        entries.append(entry)
    return LabResults(lab, entries, common_layers(submissions.values()))


def by_learner(results: Iterable[LabResults]) -> list[tuple[str, dict[str, Entry]]]:
    """(learner, {lab: how they stand in it}), in the order of the names."""
    entries: dict[str, dict[str, Entry]] = defaultdict(dict)
    for each in results:
        for entry in each.entries:
            entries[entry.learner][each.lab.name] = entry
    return sorted(entries.items(), key=lambda item: item[0].casefold())


def causes(results: Iterable[LabResults]) -> list[Cause]:
    """Why points were lost, the most frequent cause first."""
    found: dict[tuple[str, str, bool], Cause] = {}
    for each in results:
        for entry in each.handed:
            for exercise in each.lab.exercises:
                graded = entry.exercises[exercise.id]
                if state(graded) in (FULL, ABSENT):
                    continue
                key = (exercise.id, graded.reason, bool(graded.why))
                cause = found.setdefault(key, Cause(exercise, *key[1:], []))
                cause.learners.append(entry.learner)
    return sorted(
        found.values(),
        key=lambda cause: (-len(cause.learners), cause.exercise.id, cause.reason),
    )
