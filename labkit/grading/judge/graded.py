"""The record of a graded submission, written by the judge.

The judge's process sends it to the one that asked, which stores it in a file. Tables, gradebook
and class pages are made of it, and points come from nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from operator import attrgetter

from labkit.course.lang import ENGLISH, tr
from labkit.course.report import Report, Status
from labkit.course.syllabus import Exercise, Lab, find_exercise

BROKE_OFF = "grading broke off twice at this submission; a person has to look at it"


@dataclass(frozen=True)
class GradedExercise:
    """One exercise of one submission: points, reasons, and the rows of the report.

    share   of its points, from 0 to 1
    rows    of the report, (label, text)
    why     the sentences of the mistakes that the answer equals
    look    the first fault that was found, or a note on the cell
    timed_out    the wall clock decided, which a busy machine can do
    doubtful     code in the cell that a person should look at, see unusual.py
    points       its points in this course; None: those of the syllabus
    values       of {value} in each sentence of `why`
    """

    id: str
    share: float
    status: Status
    rows: tuple[tuple[str, str], ...] = ()
    why: tuple[str, ...] = ()
    look: str = ""
    needs_person: bool = False
    timed_out: bool = False
    doubtful: str = ""
    points: float | None = None
    values: tuple[str, ...] = ()

    @property
    def exercise(self) -> Exercise:
        return find_exercise(self.id)[1]

    @property
    def possible(self) -> float:
        return self.exercise.points if self.points is None else self.points

    @property
    def score(self) -> float:
        return round(self.share * self.possible, 2)

    @property
    def full(self) -> bool:
        return self.share >= 1

    @property
    def reason(self) -> str:
        """The reason for lost points, in a few words; "" if none were lost."""
        pairs = zip_longest(self.why, self.values, fillvalue="")
        whys = [tr(sentence).replace("{value}", value) for sentence, value in pairs]
        return "" if self.full else tr(", or ").join(whys) or tr(self.look)

    @property
    def report(self) -> Report:
        """The report in the graded notebook."""
        counts = tr(
            "{score:g} of {possible:g} points", score=self.score, possible=self.possible
        )
        verdict = counts if self.possible else tr("practice, no points")
        return Report(self.exercise.heading, self.status, list(self.rows), verdict)


@dataclass(frozen=True)
class GradedSubmission:
    """All exercises of one notebook, which several learners may have handed in.

    problem    why the file could not be read as a notebook, or not be graded at all
    layers     of protection around the learner's code; none if no code was run
    language   of the notebook, and so of its report
    made_by    versions of the checks, torch and Python
    """

    exercises: tuple[GradedExercise, ...]
    problem: str | None = None
    layers: tuple[str, ...] = ()
    language: str = ENGLISH
    made_by: str = field(default="", compare=False)

    @property
    def score(self) -> float:
        return round(sum(graded.score for graded in self.exercises), 2)

    def worth(self, lab: Lab) -> GradedSubmission:
        """Return the submission with this lab's points, which may differ from the syllabus."""
        exercises = []
        for graded in self.exercises:
            points = lab.exercise(graded.id).points
            is_usual = points == graded.exercise.points
            exercises.append(replace(graded, points=None if is_usual else points))
        return replace(self, exercises=tuple(exercises))

    @property
    def timed_out(self) -> bool:
        return any(graded.timed_out for graded in self.exercises)

    @property
    def why(self) -> str:
        """The first reason for lost points, in a few words, as the class table has it."""
        if self.problem:
            return self.problem
        lost = [graded for graded in self.exercises if not graded.full and graded.possible]
        if not lost:
            return tr("all checks passed")
        if len(lost) > 1 and len({graded.reason for graded in lost}) == 1:
            return lost[0].reason
        return lost[0].id + tr(": ") + lost[0].reason

    def to_json(self) -> str:
        return json.dumps(asdict(self), default=attrgetter("value"))  # the value of a Status

    @classmethod
    def from_json(cls, text: str) -> GradedSubmission:
        """Read the text of `to_json`; ValueError, TypeError or KeyError for any other text."""
        fields = json.loads(text)
        exercises = []
        for record in fields.pop("exercises"):
            record |= {key: tuple(record[key]) for key in ("why", "values")}
            record["rows"] = tuple(map(tuple, record["rows"]))
            record["status"] = Status(record["status"])
            exercises.append(GradedExercise(**record))
        return cls(tuple(exercises), layers=tuple(fields.pop("layers")), **fields)


def zero(exercise: Exercise, reason: str, status: Status = Status.NOT_YET) -> GradedExercise:
    """Return a result without points, for a reason found before any check."""
    return GradedExercise(exercise.id, 0.0, status, (("look", reason),), (), reason)


def common_layers(submissions: Iterable[GradedSubmission]) -> list[str]:
    """The layers of protection around all learner code of a class; [] if none was run."""
    ran = [submission.layers for submission in submissions if submission.layers]
    return [layer for layer in ran[0] if all(layer in layers for layers in ran)] if ran else []
