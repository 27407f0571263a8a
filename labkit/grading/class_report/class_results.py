"""A class as its reports see it: records, points and people of a lab, joined.

The reasons come from the records of grading, the points from the gradebook, so that points
given by hand and late penalties are in them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median

from labkit.author.course_rules import LabRules
from labkit.core.report import Status
from labkit.core.syllabus import Exercise, Lab
from labkit.grading.collect.issues import OpenIssues
from labkit.grading.judge.graded import (
    BROKE_OFF,
    GradedExercise,
    GradedSubmission,
    common_layers,
)
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook.connection import RosterEntry
from labkit.grading.nbgrader.standings import CellGrade, Standing, unseen
from labkit.grading.run.results import Results
from labkit.lang import tr

NAMES = 12  # of learners shown for one mistake
FULL, PART, NONE, ABSENT = "all points", "some points", "no points", "not started"
STATES = (FULL, PART, NONE, ABSENT)


@dataclass
class Entry:
    """One learner in one lab: the reasons, and the points. There is no submission where
    nothing was handed in."""

    learner: str
    standing: Standing
    name: str = ""
    submission: GradedSubmission | None = None
    ungraded: str = ""  # what was handed in and cannot be graded

    @property
    def full(self) -> bool:
        """Whether all checks passed that count for this learner."""
        counts = {each.id for each in self.standing.counted}
        return all(each.full for key, each in self.exercises.items() if key in counts)

    @property
    def why(self) -> str:
        """The first reason for lost points, of what counts for this learner."""
        excused = sorted(key for key, each in self.standing.exercises.items() if each.excused)
        counted = tuple(e for e in self.submission.exercises if e.id not in excused)
        texts = [replace(self.submission, exercises=counted).why] if counted else []
        return tr("; ").join(
            texts + ([tr("excused: {names}", names=tr(", ").join(excused))] if excused else [])
        )

    @property
    def exercises(self) -> dict[str, GradedExercise]:
        """By their ids."""
        graded = self.submission.exercises if self.submission else ()
        return {each.id: each for each in graded}


def state(graded: GradedExercise) -> str:
    """How an exercise went, as one of STATES."""
    if graded.full:
        return FULL
    if graded.share > 0:
        return PART
    return ABSENT if graded.status is Status.NOT_STARTED else NONE


@dataclass
class LabResults:
    """A lab of the class, without what the course leaves out."""

    lab: Lab
    entries: list[Entry]
    layers: list[str] = field(default_factory=list)  # of protection round learners' code

    @property
    def handed(self) -> list[Entry]:
        return [each for each in self.entries if each.submission and not each.standing.excused]

    @property
    def missing(self) -> list[Entry]:
        return [
            each for each in self.entries if not each.submission and not each.standing.excused
        ]

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
    def full(self) -> int:
        return sum(entry.full for entry in self.handed)

    @property
    def median(self) -> float:
        return round(median([entry.standing.automatic for entry in self.handed] or [0.0]), 1)

    @property
    def stale(self) -> list[tuple[Entry, CellGrade]]:
        """Points by hand that are older than the answer."""
        return [(entry, grade) for entry in self.handed for grade in entry.standing.stale]

    def graded(self, exercise: Exercise) -> list[GradedExercise]:
        """What the checks found of all for whom it counts."""
        counted = [e for e in self.handed if e.standing.exercises[exercise.id].counted]
        return [entry.exercises[exercise.id] for entry in counted]

    def share(self, exercise: Exercise) -> float:
        """Mean share of the points of an exercise, of those who handed something in."""
        shares = [graded.share for graded in self.graded(exercise)]
        return sum(shares) / max(len(shares), 1)

    def states(self, exercise: Exercise) -> list[int]:
        """How many got all, some, no points, and how many did not start."""
        counts = Counter(map(state, self.graded(exercise)))
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
        return tr("{names} and {more} more", names=names, more=more) if more > 0 else names


# From records and gradebook to results


def results_of(course: Course, lab: Lab) -> LabResults | None:
    """Records, points and people of a lab; None if it was not graded."""
    stored = Results(course.root, lab)
    submissions = stored.of_class()
    if submissions is None:
        return None
    ungraded = dict.fromkeys(stored.broken_off(), tr(BROKE_OFF))
    ungraded |= OpenIssues(course.root).of_lab(lab.name)
    people, missing = course.people(), [*course.missing(lab), *ungraded]
    rules, standings = course.rules.of(lab), course.standings(lab)
    results = joined(rules, submissions, standings, people, missing)
    for entry in results.missing:
        entry.ungraded = ungraded.get(entry.learner, "")
    return results


def remarks_on(entry: Entry, remarks: Iterable[str] = ()) -> list[str]:
    """What a person should look at: what grading remarked on this learner's work, what could
    not be graded, roads around what is not allowed."""
    start, doubtful = f"{entry.learner}: ", doubts(entry.submission) if entry.submission else []
    about = [text.removeprefix(start) for text in remarks if text.startswith(start)]
    return list(dict.fromkeys([*filter(None, [entry.ungraded]), *doubtful, *about]))


def doubts(submission: GradedSubmission) -> list[str]:
    """Verdicts that a person should look at."""
    if submission.problem:
        return [submission.problem]
    return [f"exercise {each.id}: {each.reason}"
            for each in submission.exercises if each.needs_person] + [
        f"exercise {each.id} uses {each.doubtful}, which no exercise needs: have a look"
        for each in submission.exercises
        if each.doubtful and each.score
    ]  # fmt: skip


def joined(
    rules: LabRules,
    submissions: Mapping[str, GradedSubmission],
    standings: Mapping[str, Standing],
    people: Iterable[RosterEntry],
    missing: Iterable[str],
) -> LabResults:
    names = {person.id: person.name for person in people}
    entries = []
    for learner in sorted({*submissions, *names, *missing}, key=str.casefold):
        standing, submission = unseen(rules, learner), submissions.get(learner)
        if submission:
            submission = submission.worth(rules.lab)
            standing = standings.get(learner, standing)
        entries.append(Entry(learner, standing, names.get(learner, ""), submission))
    return LabResults(rules.counted, entries, common_layers(submissions.values()))


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
                counted = entry.standing.exercises[exercise.id].counted
                if state(graded) in (FULL, ABSENT) or not counted:
                    continue
                key = (exercise.id, graded.reason, bool(graded.why))
                cause = found.setdefault(key, Cause(exercise, *key[1:], []))
                cause.learners.append(entry.learner)
    return sorted(
        found.values(),
        key=lambda cause: (-len(cause.learners), cause.exercise.id, cause.reason),
    )
