"""The class of a lab for the reports: results, points and people, joined.

The reasons come from the records of grading, the points from the gradebook, so that points
given by hand and late penalties are in them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import product
from math import ceil
from statistics import median

from labkit.course.lang import said, tr
from labkit.course.report import Status
from labkit.course.syllabus import Exercise, Lab
from labkit.grading.judge.graded import (
    GradedExercise,
    GradedSubmission,
)
from labkit.grading.nbgrader.published import Change, Grade, Part
from labkit.grading.nbgrader.standings import Standing

NAMES = 12  # learners shown for one mistake
STEPS = 10  # steps of the histogram of points
FULL, PART = said("all points"), said("some points")
NONE, ABSENT = said("no points"), said("not started")
STATES = (FULL, PART, NONE, ABSENT)


@dataclass
class Entry:
    """One learner in one lab: the reasons, and the points. `submission` is None if nothing was
    handed in.

    ungraded    why the file that was handed in cannot be graded
    unsettled   an open question of collect about the file that counts
    key         of the stored result
    change      of the grade since it was given out
    remarks     for a person to look at
    """

    learner: str
    standing: Standing
    name: str = ""
    submission: GradedSubmission | None = None
    ungraded: str = ""
    unsettled: str = ""
    key: str = ""
    change: Change | None = None
    remarks: list[str] = field(default_factory=list)

    @property
    def is_graded(self) -> bool:
        return bool(self.submission) and not self.standing.excused

    @property
    def is_full(self) -> bool:
        """Whether all checks passed that count for this learner."""
        counted = {grade.id for grade in self.standing.counted}
        return all(graded.full for key, graded in self.exercises.items() if key in counted)

    def points(self, attribute: str) -> float:
        """Return a number of the standing, such as "total"."""
        return round(getattr(self.standing, attribute), 2)

    @property
    def fell(self) -> str:
        """The old and the new grade, and the cause; "" if the grade did not fall."""
        change = self.change
        return f"the grade fell, {change.text}" if change and change.fell else ""

    @property
    def grade(self) -> Grade:
        """The grade, in the form that is compared with the published one."""
        standing, found = self.standing, self.exercises
        if not self.is_graded:
            return Grade(excused=standing.excused)
        parts = {}
        for name, part in {**standing.exercises, **standing.questions}.items():
            possible = part.possible if part.counted else 0.0
            reason = found[name].reason if name in found else ""
            parts[name] = Part(part.points, possible, part.manual is not None, reason)
        made_by = self.submission.made_by
        return Grade(standing.total, parts, standing.late_penalty, self.key, made_by)

    @property
    def why(self) -> str:
        """The first reason for lost points in the exercises that count for this learner."""
        if not self.is_graded:
            excused = tr("excused") if self.standing.excused else ""
            return excused or self.ungraded or tr("no file of theirs is known")
        excused = [key for key, grade in self.standing.exercises.items() if grade.excused]
        counted = tuple(e for e in self.submission.exercises if e.id not in excused)
        texts = [replace(self.submission, exercises=counted).why] if counted else []
        if excused:
            texts.append(tr("excused: {names}", names=tr(", ").join(excused)))
        return tr("; ").join(texts)

    @property
    def exercises(self) -> dict[str, GradedExercise]:
        """The exercises by id."""
        exercises = self.submission.exercises if self.submission else ()
        return {graded.id: graded for graded in exercises}


@dataclass
class CourseEntry:
    """One learner in all labs; labs: {name of the lab: the learner's entry in it}."""

    learner: str
    labs: dict[str, Entry]
    is_graded = True  # the sum over no lab is 0
    is_full = False

    @property
    def name(self) -> str:
        return next((entry.name for entry in self.labs.values() if entry.name), "")

    @property
    def graded(self) -> int:
        """The number of labs with a grade."""
        return sum(bool(entry.submission) for entry in self.labs.values())

    @property
    def changed(self) -> str:
        """The labs whose grades have changed."""
        changes = [(name, entry.change) for name, entry in self.labs.items() if entry.change]
        return "; ".join(f"{name}: {x.before.shown} to {x.now.shown}" for name, x in changes)

    def points(self, attribute: str) -> float:
        """Return a number of the standings, summed over the labs."""
        return round(sum(entry.points(attribute) for entry in self.labs.values()), 2)


def state(graded: GradedExercise) -> str:
    """Return the result of an exercise as one of STATES."""
    if graded.full:
        return FULL
    if graded.share > 0:
        return PART
    return ABSENT if graded.status is Status.NOT_STARTED else NONE


@dataclass
class LabResults:
    """A lab of the class, without the parts that the course leaves out."""

    lab: Lab
    entries: list[Entry]
    # layers of protection around the learners' code
    layers: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)  # learners who left the course: not counted

    @property
    def handed(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.is_graded]

    @property
    def missing(self) -> list[Entry]:
        """Learners without a file."""
        return [entry for entry in self.without_grade if not entry.ungraded]

    @property
    def not_gradable(self) -> list[Entry]:
        """Learners whose file could not be read or graded."""
        return [entry for entry in self.without_grade if entry.ungraded]

    @property
    def without_grade(self) -> list[Entry]:
        return [e for e in self.entries if not e.submission and not e.standing.excused]

    @property
    def excused(self) -> list[Entry]:
        """Excused from the whole lab."""
        return [entry for entry in self.entries if entry.standing.excused]

    @property
    def possible(self) -> float:
        """Points by checks."""
        return sum(exercise.points for exercise in self.lab.exercises)

    @property
    def written(self) -> float:
        """Points of written answers."""
        return sum(question.points for question in self.lab.questions)

    @property
    def waiting(self) -> int:
        """Written answers that a person has still to grade."""
        return sum(len(entry.standing.waiting) for entry in self.handed)

    @property
    def made_by(self) -> list[str]:
        """The versions that judged, the most frequent first."""
        counts = Counter(entry.submission.made_by for entry in self.handed)
        return [text for text, _ in counts.most_common() if text]

    @property
    def full(self) -> int:
        return sum(entry.is_full for entry in self.handed)

    @property
    def median(self) -> float:
        return round(median([entry.standing.automatic for entry in self.handed] or [0.0]), 1)

    @property
    def spread(self) -> list[tuple[str, int]]:
        """(points by checks, how many have them), in at most STEPS steps."""
        width = max(1, ceil(self.possible / STEPS))
        edges = [*range(0, ceil(self.possible), width)]
        last = len(edges) - 1
        steps = [min(int(e.standing.automatic // width), last) for e in self.handed]
        counts = Counter(steps)
        return [(f"{edge} – {min(edge + width, self.possible):g}", counts[step])
                for step, edge in enumerate(edges)]  # fmt: skip

    def graded(self, exercise: Exercise) -> list[GradedExercise]:
        """Return the graded submissions of all learners who count."""
        counted = [e for e in self.handed if e.standing.exercises[exercise.id].counted]
        return [entry.exercises[exercise.id] for entry in counted]

    def share(self, exercise: Exercise) -> float:
        """Return the mean share of an exercise's points among those who handed something in."""
        shares = [graded.share for graded in self.graded(exercise)]
        return sum(shares) / max(len(shares), 1)

    def states(self, exercise: Exercise) -> list[int]:
        """Count the learners with all, some and no points, and those who did not start."""
        counts = Counter(map(state, self.graded(exercise)))
        return [counts[state] for state in STATES]


@dataclass
class Cause:
    """A reason for lost points, and the learners who lost them."""

    exercise: Exercise
    reason: str
    named: bool
    learners: list[str]

    @property
    def shown(self) -> str:
        names = ", ".join(self.learners[:NAMES])
        more = len(self.learners) - NAMES
        return tr("{names} and {more} more", names=names, more=more) if more > 0 else names


def by_learner(results: Iterable[LabResults]) -> list[CourseEntry]:
    """Entries sorted by the learners' names."""
    labs: dict[str, dict[str, Entry]] = defaultdict(dict)
    for lab_results in results:
        for entry in lab_results.entries:
            labs[entry.learner][lab_results.lab.name] = entry
    return [CourseEntry(learner, labs[learner]) for learner in sorted(labs, key=str.casefold)]


def causes(results: Iterable[LabResults]) -> list[Cause]:
    """Return the causes of lost points, the most frequent first."""
    found: dict[tuple[str, str], Cause] = {}
    for lab_results in results:
        for entry, exercise in product(lab_results.handed, lab_results.lab.exercises):
            graded = entry.exercises[exercise.id]
            counted = entry.standing.exercises[exercise.id].counted
            if counted and state(graded) not in (FULL, ABSENT):
                cause = Cause(exercise, graded.reason, bool(graded.why), [])
                cause = found.setdefault((exercise.id, graded.reason), cause)
                cause.learners.append(entry.learner)
    return sorted(
        found.values(),
        key=lambda cause: (-len(cause.learners), cause.exercise.id, cause.reason),
    )
