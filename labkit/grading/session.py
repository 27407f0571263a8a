"""Grading a lab as a person sees it: progress, the class table, feedback, CSV and report."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from labkit.grading.class_report import keep_rows, write_reports
from labkit.grading.course import Course
from labkit.grading.run import Row, grade_lab
from labkit.report import clean
from labkit.syllabus import Lab

FEW = 12  # names in a line of the terminal
UNSANDBOXED = (
    "UNSANDBOXED: this system has no Landlock, so learner code ran with Python-level "
    "protection only. Do not grade strangers' code here."
)


def grade_and_report(course: Course, lab: Lab, console: Console) -> list[Row]:
    """Grade what was handed in, with a progress bar; then table, feedback, CSV and HTML."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"grading {lab.name}", total=None)

        def advance(_: object, total: int) -> None:
            bar.update(task, advance=1, total=total)

        rows = grade_lab(course, lab, advance)
        task = bar.add_task("writing feedback", total=None)
        pages = course.feedback(lab) if rows else []
        bar.update(task, total=len(pages), completed=len(pages))
    console.print(table(lab, rows))
    missing = [clean(name) for name in course.without(lab)]
    if missing:
        more = f" and {len(missing) - FEW} more" if len(missing) > FEW else ""
        names = ", ".join(missing[:FEW])
        console.print(f"nothing handed in: {names}{more}", markup=False)
    if unsandboxed(rows):
        console.print(UNSANDBOXED, style="bold red")
    for remark in dict.fromkeys(course.remarks):
        console.print(clean(remark), style="yellow", markup=False)
    course.remarks.clear()
    keep_rows(course, lab, rows)
    reports = write_reports(course, lab)
    console.print(f"[bold]{len(rows)}[/] graded into {course.ledger.shown}", highlight=False)
    console.print(f"feedback: {course.root / 'feedback'}", highlight=False, soft_wrap=True)
    for report in reports:
        console.print(f"class report: {report}", highlight=False, soft_wrap=True)
    return rows


def unsandboxed(rows: list[Row]) -> bool:
    """Whether learner code ran without the kernel's protection."""
    ran = [row.submission.layers for row in rows if row.submission.layers]
    return any("landlock" not in layers for layers in ran)


def table(lab: Lab, rows: list[Row]) -> Table:
    possible = sum(exercise.points for exercise in lab.exercises)
    shown = Table(title=f"Lab {lab.number}, {lab.title}", title_justify="left")
    shown.add_column("who", no_wrap=True)
    shown.add_column(f"of {possible}", justify="right", no_wrap=True)
    shown.add_column("why")
    for row in rows:
        shown.add_row(
            row.learner, f"{row.submission.score:g}", clean(row.why).replace("[", r"\[")
        )
    return shown
