"""The class reports: one HTML file a lab and one for the course, with plots inside, without
network or script; and the same numbers as CSV.

The reasons come from the records of grading, the points from the gradebook, so that points
given by hand and late penalties are in them.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from urllib.parse import quote

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from labkit.core.report import Status, clean
from labkit.core.syllabus import LABS, Exercise, Lab
from labkit.grading.judge.graded import GradedExercise, GradedSubmission, common_layers
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook_connection import RosterEntry, Standing
from labkit.grading.run.results import Results

NAMES = 12  # of learners shown for one mistake
MISTAKES, OTHERS, HARDEST = 12, 8, 10
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


# Pages


def write_reports(course: Course, only: Lab | None = None) -> list[Path]:
    """The reports of all graded labs (or one) and of the course; their paths."""
    results = [found for lab in LABS if (found := results_of(course, lab))]
    written = []
    for one in results:
        if only in (None, one.lab):
            write_csv(course.root / f"{one.lab.name}.csv", one)
            written.append(write_lab(course.root / f"{one.lab.name}.html", one))
    if results:
        write_course_csv(course.root / "class.csv", results)
        written.append(write_course(course.root / "class.html", results))
    return written


def write_lab(path: Path, results: LabResults) -> Path:
    """The page of a lab."""
    from labkit.grading.class_report import plots

    found, lab = causes([results]), results.lab
    feedback = {
        entry.learner: quote(f"feedback/{entry.learner}/{lab.name}/{lab.name}.html")
        for entry in results.handed
        if (path.parent / "feedback" / entry.learner / lab.name).exists()
    }
    return page(
        path,
        "class.html",
        results=results,
        lab=lab,
        figure=Markup(plots.of_lab(results)) if results.handed else "",
        mistakes=[cause for cause in found if cause.named][:MISTAKES],
        others=[cause for cause in found if not cause.named][:OTHERS],
        people=[
            (entry, graded)
            for entry in results.handed
            for graded in entry.exercises.values()
            if graded.needs_person
        ],
        feedback=feedback,
        states=STATES,
    )


def write_course(path: Path, results: list[LabResults]) -> Path:
    """The page of all labs."""
    from labkit.grading.class_report import plots

    pairs = [(one, exercise) for one in results if one.handed for exercise in one.lab.exercises]
    hardest = sorted(pairs, key=lambda pair: pair[0].share(pair[1]))[:HARDEST]
    return page(
        path,
        "course.html",
        results=results,
        figure=Markup(plots.of_course(results)),
        hardest_figure=Markup(plots.hardest(hardest)) if hardest else "",
        mistakes=[cause for cause in causes(results) if cause.named][:MISTAKES],
        learners=by_learner(results),
        names=NAMES,
    )


def page(path: Path, template: str, **content: object) -> Path:
    loader = PackageLoader("labkit.grading", "templates")
    environment = Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["state"] = state
    environment.filters["points"] = lambda number: f"{round(number, 2):g}"
    html = environment.get_template(template).render(**content)
    path.write_text("\n".join(map(clean, html.split("\n"))), "utf-8")
    return path


# CSV


def write_csv(path: Path, results: LabResults) -> Path:
    """One line a learner: points by exercise, by hand, off for lateness, in sum; the reason."""
    ids = [exercise.id for exercise in results.lab.exercises]
    head = ["learner", "name", *ids, "automatic", "written", "to be graded", "late penalty",
            "total", "why"]  # fmt: skip
    lines = [head]
    for entry in results.entries:
        line = [csv_safe(entry.learner), csv_safe(entry.name)]
        if entry.submission:
            numbers = [entry.exercises[key].score for key in ids]
            numbers += [entry.automatic, entry.written, entry.waiting, entry.late_penalty]
            line += [f"{number:g}" for number in (*numbers, entry.total)]
            line += [csv_safe(entry.submission.why)]
        else:
            line += [""] * (len(head) - 3) + ["nothing handed in"]
        lines.append(line)
    return write_table(path, lines)


def write_course_csv(path: Path, results: list[LabResults]) -> Path:
    """One line a learner: the total of each lab, empty where nothing was handed in."""
    labs = [one.lab.name for one in results]
    lines = [["learner", "name", *labs, "total", "handed in"]]
    for learner, entries in by_learner(results):
        name = next((entry.name for entry in entries.values() if entry.name), "")
        handed = {lab: entry.total for lab, entry in entries.items() if entry.submission}
        points = [f"{handed[lab]:g}" if lab in handed else "" for lab in labs]
        total = f"{sum(handed.values()):g}"
        lines.append([csv_safe(learner), csv_safe(name), *points, total, str(len(handed))])
    return write_table(path, lines)


def write_table(path: Path, lines: list[list[str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8-sig") as file:  # so that Excel reads names
        csv.writer(file).writerows(lines)
    return path


def csv_safe(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    text = clean(text)
    return "'" + text if text.lstrip()[:1] in tuple("=+-@\N{FULLWIDTH EQUALS SIGN}") else text
