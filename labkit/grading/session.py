"""Grading a lab as a person sees it: progress, the class table, feedback, CSV and report."""

from __future__ import annotations

from rich.console import Console
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from labkit.grading.class_report import write_csv, write_report
from labkit.grading.course import Course
from labkit.grading.crew import Crew
from labkit.grading.run import Row, grade_lab, layers_of
from labkit.report import clean
from labkit.syllabus import Lab

FEW = 12  # names in a line of the terminal
UNSANDBOXED = (
    "NO SANDBOX: learner code ran beside your own files, with limits but without bubblewrap "
    "round it ({layers}). Do not grade strangers' code like this. {remedy}"
)


def grade_and_report(
    course: Course,
    lab: Lab,
    console: Console,
    crew: Crew | None = None,
    fresh: bool = False,
) -> list[Row]:
    """Grade what was handed in, with a progress bar; then table, feedback, CSV and HTML."""
    if crew is None:
        with Crew() as own:
            return grade_and_report(course, lab, console, own, fresh)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"grading {lab.name}", total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        rows = grade_lab(course, lab, advance, crew, fresh)
        task = bar.add_task("writing feedback", total=None)
        pages = course.feedback(lab) if rows else []
        bar.update(task, total=len(pages), completed=len(pages))
    console.print(table(lab, rows))
    missing = [clean(name) for name in course.without(lab)]
    if missing:
        more = f" and {len(missing) - FEW} more" if len(missing) > FEW else ""
        names = ", ".join(missing[:FEW])
        console.print(f"nothing handed in: {names}{more}", markup=False)
    addresses = {
        page.parent.parent.name: page.relative_to(course.root).as_posix() for page in pages
    }
    write_csv(course.root / f"{lab.name}.csv", lab, rows)
    report = write_report(course.root / f"{lab.name}.html", lab, rows, addresses)
    console.print(f"[bold]{len(rows)}[/] graded into {course.database}", highlight=False)
    console.print(f"feedback: {course.root / 'feedback'}", highlight=False, soft_wrap=True)
    console.print(f"class report: {report}", highlight=False, soft_wrap=True)
    layers = layers_of(rows)
    if layers:
        console.print(f"learner code ran in: {', '.join(layers)}", highlight=False)
        if "bubblewrap" not in layers:
            console.print(warning(layers, crew))
    return rows


def warning(layers: list[str], crew: Crew) -> Panel:
    """What nobody can miss where learner code ran without bubblewrap."""
    remedy = "" if crew.dask else f"Why: {crew.sandbox().lacking}."
    text = UNSANDBOXED.format(layers=", ".join(layers), remedy=remedy)
    return Panel(Text(text), style="bold red", border_style="bold red")


def table(lab: Lab, rows: list[Row]) -> Table:
    possible = sum(exercise.points for exercise in lab.exercises)
    shown = Table(title=f"Lab {lab.number}, {lab.title}", title_justify="left")
    shown.add_column("who", no_wrap=True)
    shown.add_column(f"of {possible}", justify="right", no_wrap=True)
    shown.add_column("why")
    for row in rows:
        who, why = Text(clean(row.learner)), Text(clean(row.why))  # Text: no markup of theirs
        shown.add_row(who, f"{row.submission.score:g}", why)
    return shown
