"""Grading a lab as a person sees it: progress, the class table, feedback, CSV and report."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from labkit.core.report import one_line
from labkit.core.syllabus import LABS, Lab
from labkit.grading.class_report.class_results import remarks_on, results_of
from labkit.grading.class_report.report import write_reports
from labkit.grading.nbgrader.course import Course
from labkit.grading.run.follow import follow_rules
from labkit.grading.run.misnamed import rename_misnamed
from labkit.grading.run.pool import GradingPool
from labkit.grading.run.results import Results, UnreadableResult
from labkit.grading.run.schedule import Class, grade_lab
from labkit.grading.run.screen import print_brief, print_screen
from labkit.lang import tr
from labkit.sandbox.bubblewrap import Sandbox

RENAMED = 3  # lines on notebooks that had another name
MAX_REMARK = 300  # characters: what a learner called something may be in it


def grade_and_report(
    course: Course,
    lab: Lab,
    console: Console,
    pool: GradingPool,
    fresh: bool = False,
    brief: bool = False,
) -> Class:
    """Grade what was handed in, with a progress bar; feedback, CSV and HTML; then one screen.

    What a person should look at is in the course's remarks and in the CSV.

    brief    two lines instead of a screen
    """
    course.remarks.clear()
    renamed = rename_misnamed(course, lab)
    for text in renamed[:RENAMED]:
        console.print(one_line(text), markup=False, highlight=False, soft_wrap=True)
    if len(renamed) > RENAMED:
        console.print(f"and {len(renamed) - RENAMED} more notebooks have the lab's name now")
    pool.announce = lambda sandbox: announce(sandbox, console)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeRemainingColumn())  # fmt: skip
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(tr("grading {lab}", lab=lab.name), total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        graded = grade_lab(course, lab, pool, advance, fresh)
        follow_rules(course, lab)
        task = bar.add_task(tr("writing feedback"), total=None)
        if graded:
            course.feedback(lab, advance)
    results = results_of(course, lab)
    for entry in results.entries:
        course.remarks += [f"{entry.learner}: {text}" for text in remarks_on(entry)]
    course.remarks[:] = dict.fromkeys(course.remarks)
    written = write_reports(course, lab)
    if brief:
        print_brief(results, console)
    elif graded or course.remarks:
        print_screen(results, course, written, console)
    return graded


def report_again(course: Course) -> list[Path]:
    """Gradebook, feedback and reports of all that is graded, as points by hand and course.toml
    are now."""
    for lab in LABS:
        with suppress(UnreadableResult):  # of which write_reports speaks
            if Results(course.root, lab).of_class():
                follow_rules(course, lab)
                course.feedback(lab)
    return write_reports(course)


def print_remarks(course: Course, console: Console) -> None:
    """What needs a look, each thing once."""
    for remark in dict.fromkeys(course.remarks):
        text = one_line(remark if len(remark) <= MAX_REMARK else f"{remark[:MAX_REMARK]}…")
        console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)


def announce(sandbox: Sandbox, console: Console) -> None:
    """What nobody can miss, before learner code runs without what it should run in."""
    for text in sandbox.warnings:
        console.print(Panel(Text(text), style="bold red", border_style="bold red"))
