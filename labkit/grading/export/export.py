"""`tinyllm export`: the files that it writes into COURSE/export, and remarks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from labkit.course.syllabus import LABS, Lab
from labkit.grading.class_report.class_results import LabResults
from labkit.grading.class_report.read_results import remember_grades, results_of
from labkit.grading.export.answers import export_answers
from labkit.grading.export.feedback import feedback_zips
from labkit.grading.export.grades import write_grades
from labkit.grading.export.written import export_written
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook.connection import CourseError
from labkit.grading.nbgrader.published import Published
from labkit.grading.platforms import takes_grades

FEEDBACK, ANSWERS, WRITTEN = "feedback", "answers", "written"
SHOWN = 3  # learners of a lab whose grade fell


def export(
    course: Course,
    kind: str,
    lab: Lab | None = None,
    roster: Path | None = None,
) -> Iterator[Path | str]:
    """Yield each file or folder as it is written, then remarks for a person.

    kind      "canvas" and the like, "feedback", "answers" or "written"
    roster    the platform's own table of its people, whose ids and rows are kept
    """
    platforms = takes_grades()
    kinds = [*platforms, FEEDBACK, ANSWERS, WRITTEN]
    if kind not in kinds:
        raise CourseError(f"{kind!r} cannot be exported: expected {', '.join(kinds)}")
    labs = [lab] if lab else LABS
    graded = [*filter(None, (results_of(course, lab) for lab in labs))]
    if not graded:
        raise CourseError("nothing is graded yet: run `tinyllm grade LAB`")
    if platform := platforms.get(kind):
        name = f"{graded[0].lab.name}_{kind}" if lab else kind
        path = course.root / "export" / f"{name}.csv"
        remarks = write_grades(path, platform, graded, course.people(), roster)
        yield from (path, *remarks)
    for results in graded:
        yield from fall_remarks(results)
        if platform:
            remember_grades(course, results).give_out()
        if kind == FEEDBACK:
            paths, remarks = feedback_zips(course.root, results)
            yield from (*paths, *remarks)
            Published(course.root, results.lab.name).give_out()
        if kind == ANSWERS:
            yield export_answers(course, results.lab)
        if kind == WRITTEN:
            yield export_written(course, results)


def fall_remarks(results: LabResults) -> Iterator[str]:
    """Yield the first learners whose published grade fell, and how many more did."""
    lab, fell = results.lab.name, [entry for entry in results.entries if entry.fell]
    yield from (f"{lab} {entry.learner}: {entry.fell}" for entry in fell[:SHOWN])
    if len(fell) > SHOWN:
        yield f'{lab}: and {len(fell) - SHOWN} more fell (column "before")'
