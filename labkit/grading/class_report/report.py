"""The class reports: one HTML file a lab and one for the course, with plots inside, without
network or script; and the same numbers as CSV.
"""

from __future__ import annotations

import csv
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from labkit.core.report import clean, csv_safe
from labkit.core.syllabus import LABS, Lab
from labkit.grading.class_report.class_results import (
    NAMES,
    STATES,
    LabResults,
    by_learner,
    causes,
    results_of,
    state,
)
from labkit.grading.nbgrader.course import Course

MISTAKES, OTHERS, HARDEST = 12, 8, 10


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
