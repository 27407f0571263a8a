"""The class reports: a page for each lab and one for the course, without network or script;
and the same tables as CSV.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from labkit.course.syllabus import LABS, Lab
from labkit.grading.class_report.class_results import (
    NAMES,
    STATES,
    LabResults,
    by_learner,
    causes,
)
from labkit.grading.class_report.columns import (
    course_columns,
    lab_columns,
    page_table,
    write_csv,
)
from labkit.grading.class_report.read_results import results_of
from labkit.grading.class_report.remarks import remarks_on
from labkit.grading.collect.issues import OpenIssues
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.standings import stale_text
from labkit.grading.nbgrader.submitted import Remark
from labkit.grading.pages import write_page

MISTAKES, OTHERS, HARDEST = 12, 8, 10


def write_reports(course: Course, only: Lab | None = None) -> list[Path]:
    """Write the reports of all graded labs (or one) and of the course; return the pages."""
    results = [*filter(None, (results_of(course, lab) for lab in LABS))]
    written = []
    for lab_results in results:
        name = lab_results.lab.name
        if only is None or only.name == name:
            about = [remark for remark in course.remarks if remark.lab in ("", name)]
            for entry in lab_results.entries:
                stale = [*map(stale_text, entry.standing.stale)]
                entry.remarks = stale + remarks_on(entry, about)
                course.remarks += [Remark(text, entry.learner, name) for text in stale]
            written.append(write_lab(course.root, lab_results))
    return written + [write_course(course.root, results)] * bool(results)


def write_lab(folder: Path, results: LabResults) -> Path:
    """Write the table and the page of a lab; return the path of the page."""
    found, lab = causes([results]), results.lab
    columns = lab_columns(lab)
    write_csv(folder / f"{lab.name}.csv", columns, results.entries)
    pages = {
        entry.learner: f"feedback/{entry.learner}/{lab.name}/{lab.name}.html"
        for entry in results.entries
    }
    return write_page(
        folder / f"{lab.name}.html", "class.html", results=results, lab=lab, states=STATES,
        exercises=[(results, exercise) for exercise in lab.exercises],
        mistakes=[cause for cause in found if cause.named][:MISTAKES],
        others=[cause for cause in found if not cause.named][:OTHERS],
        table=page_table(columns, results.entries),
        links={who: quote(page) for who, page in pages.items() if (folder / page).exists()},
    )  # fmt: skip


def write_course(folder: Path, results: list[LabResults]) -> Path:
    """Write the table and the page of all labs; return the path of the page."""
    learners, columns = by_learner(results), course_columns(results)
    write_csv(folder / "class.csv", columns, learners)
    exercises = [(lab_results, exercise) for lab_results in results
                 for exercise in lab_results.lab.exercises if lab_results.handed]  # fmt: skip
    exercises.sort(key=lambda pair: pair[0].share(pair[1]))
    return write_page(
        folder / "class.html", "course.html", results=results, states=STATES,
        exercises=exercises[:HARDEST],
        mistakes=[cause for cause in causes(results) if cause.named][:MISTAKES],
        table=page_table(columns, learners), names=NAMES,
        unsettled=OpenIssues(folder).open(),
    )  # fmt: skip
