"""Grading a lab as a person sees it: progress, the class table, feedback, CSV and report."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich import progress
from rich.console import Console

from labkit.course.report import one_line
from labkit.course.syllabus import LABS, Lab
from labkit.grading.class_report.class_results import LabResults
from labkit.grading.class_report.read_results import remember_grades, results_of
from labkit.grading.class_report.remarks import change_line, remarks_on
from labkit.grading.class_report.report import write_reports
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.submitted import Remark
from labkit.grading.run.follow import apply_course_rules
from labkit.grading.run.pool import GradingPool
from labkit.grading.run.results import Results
from labkit.grading.run.schedule import Class, grade_lab
from labkit.grading.run.screen import print_line, print_screen, total_lines
from labkit.sandbox.bubblewrap import Sandbox

MOST_REMARKS = 8  # remarks that are printed
MAX_REMARK = 300  # characters: a remark may contain a name that a learner chose
COLUMNS = (
    *(progress.TextColumn("{task.description}"), progress.BarColumn()),
    *(progress.MofNCompleteColumn(), progress.TimeRemainingColumn()),
)


def grade_and_report(
    course: Course,
    lab: Lab,
    console: Console,
    pool: GradingPool,
    fresh: bool = False,
    brief: bool = False,
    as_published: bool = False,
) -> Class:
    """Grade the submissions of a lab, with a progress bar; write feedback, CSV and pages; print
    one screen, or one line if `brief`.

    See grade_lab for the other arguments and for errors. Returns {learner: verdict}. Remarks
    for a person are in the course's remarks and in the CSV."""
    course.remarks.clear()
    pool.announce = lambda sandbox: announce(sandbox, console)
    is_hidden = not console.is_terminal
    with progress.Progress(*COLUMNS, console=console, transient=True, disable=is_hidden) as bar:
        task = bar.add_task(f"grading {lab.name}", total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        graded = grade_lab(course, lab, pool, advance, fresh, as_published)
        apply_course_rules(course, lab)
        if graded:
            course.feedback(lab)
    results = results_of(course, lab)
    for entry in results.entries:
        course.remarks += [Remark(text, entry.learner) for text in remarks_on(entry)]
    course.remarks[:] = dict.fromkeys(course.remarks)
    written = write_reports(course, lab)
    if brief:
        print_line(console, total_lines(results)[0])
    elif graded or course.remarks:
        print_screen(results, course, written, console)
    remember_grades(course, results)
    return graded


def report_again(course: Course) -> tuple[list[Path], list[LabResults]]:
    """Bring gradebook, feedback and reports of all graded labs up to date with points given
    by hand and with course.toml: the pages, and the labs with the grades that changed."""
    for lab in LABS:
        if Results(course.root, lab).keys():
            apply_course_rules(course, lab)
            course.feedback(lab)
    results = [*filter(None, (results_of(course, lab) for lab in LABS))]
    written = write_reports(course)
    for lab_results in results:
        name, fell = lab_results.lab.name, [e for e in lab_results.entries if e.fell]
        course.remarks += [Remark(entry.fell, entry.learner, name) for entry in fell]
        remember_grades(course, lab_results)
    return written, results


def print_changes(results: Iterable[LabResults], console: Console) -> None:
    """Print for each lab how many grades changed."""
    for lab_results in results:
        if line := change_line(lab_results):
            print_line(console, f"{lab_results.lab.name}: {line}")


def print_remarks(remarks: Iterable[Remark], console: Console) -> None:
    """Print each remark once, on one line, and only the first of many."""
    every = [*map(str, dict.fromkeys(remarks))]
    for remark in every[:MOST_REMARKS]:
        text = one_line(remark if len(remark) <= MAX_REMARK else f"{remark[:MAX_REMARK]}…")
        console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)
    if len(every) > MOST_REMARKS:
        rest = len(every) - MOST_REMARKS
        console.print(f'and {rest} more: column "look at" of the tables', style="yellow")


def announce(sandbox: Sandbox, console: Console) -> None:
    """Print the layers that the sandbox lacks, before learner code runs in it."""
    for text in sandbox.warnings:
        console.print(text, style="bold red", markup=False, highlight=False)
