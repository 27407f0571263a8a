"""What `tinyllm export` does: the files it writes into COURSE/export, and remarks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from labkit.core.syllabus import LABS, Lab
from labkit.grading.class_report.class_results import results_of
from labkit.grading.export import tables
from labkit.grading.export.feedback_zip import feedback_zips
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook.connection import CourseError
from labkit.lang import tr


def export(
    course: Course,
    lab: Lab | None,
    roster: Path | None,
    canvas: bool = False,
    moodle: bool = False,
    feedback: bool = False,
) -> Iterator[Path | str]:
    """Each file as it is written, then what a person should know of it.

    roster    the LMS's own table of its people, whose ids and rows are kept
    """
    graded = [found for one in ([lab] if lab else LABS) if (found := results_of(course, one))]
    if not graded:
        raise CourseError(tr("nothing is graded yet: `tinyllm grade LAB`"))
    people, folder = course.people(), course.root / "export"
    if canvas:
        path = folder / "canvas.csv"
        remarks = tables.canvas(path, graded, people, roster)
        yield from (path, *remarks)
    if moodle and roster:
        if len(graded) > 1:
            raise CourseError(
                tr("Moodle's worksheet is of one assignment: say which with --lab")
            )
        path = folder / f"{graded[0].lab.name}_moodle.csv"
        remarks = tables.moodle_worksheet(path, graded[0], people, roster)
        yield from (path, *remarks)
    elif moodle:
        path = folder / "moodle.csv"
        remarks = tables.moodle_import(path, graded, people)
        yield from (path, *remarks)
    for results in graded if feedback else ():
        worksheet = roster if moodle else None
        paths, remarks = feedback_zips(course.root, results, people, worksheet)
        yield from (*paths, *remarks)
