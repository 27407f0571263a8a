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
from rich.table import Table
from rich.text import Text

from labkit.core.report import clean, one_line
from labkit.core.syllabus import LABS, Lab
from labkit.grading.class_report.class_results import LabResults, results_of
from labkit.grading.class_report.report import write_reports
from labkit.grading.collect.unsettled import UnsettledFiles
from labkit.grading.judge.graded import GradedSubmission, common_layers
from labkit.grading.judge.sandbox import Sandbox
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.standings import Standing, signed
from labkit.grading.run.follow import follow_rules
from labkit.grading.run.misnamed import rename_misnamed
from labkit.grading.run.pool import GradingPool
from labkit.grading.run.results import Results, UnreadableResult
from labkit.grading.run.schedule import Class, grade_lab
from labkit.lang import tr

FEW = 12  # names in a line of the terminal
MAX_REMARK = 300  # characters: what a learner called something may be in it


def grade_and_report(
    course: Course,
    lab: Lab,
    console: Console,
    pool: GradingPool,
    fresh: bool = False,
) -> Class:
    """Grade what was handed in, with a progress bar; then table, feedback, CSV and HTML.

    What a person should look at stands in the course's remarks, and is printed last.
    """
    course.remarks.clear()
    for text in rename_misnamed(course, lab):
        console.print(one_line(text), markup=False, highlight=False, soft_wrap=True)
    pool.announce = lambda sandbox: announce(sandbox, console)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(tr("grading {lab}", lab=lab.name), total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        graded = grade_lab(course, lab, pool, advance, fresh)
        follow_rules(course, lab)
        task = bar.add_task(tr("writing feedback"), total=None)
        if graded:
            course.feedback(lab, advance)
    results = results_of(course, lab)
    console.print(table(results))
    ungraded = UnsettledFiles(course.root).of_lab(lab.name)
    course.remarks += [learner + tr(": ") + why for learner, why in ungraded.items()]
    known = {entry.learner for entry in results.excused} | ungraded.keys()
    missing = [one_line(name) for name in course.missing(lab) if name not in known]
    if missing:
        more = tr(" and {more} more", more=len(missing) - FEW) if len(missing) > FEW else ""
        names = tr(", ").join(missing[:FEW])
        console.print(
            tr("nothing handed in: {names}{more}", names=names, more=more), markup=False
        )
    console.print(
        tr(
            "[bold]{count}[/] graded into {shown}",
            count=len(graded),
            shown=course.gradebook.shown,
        ),
        highlight=False,
    )
    console.print(
        tr("feedback: {path}", path=course.root / "feedback"), highlight=False, soft_wrap=True
    )
    for report in write_reports(course, lab):
        console.print(
            tr("class report: {report}", report=report), highlight=False, soft_wrap=True
        )
    layers = common_layers(graded.values())
    if layers:
        console.print(
            tr("learner code ran in: {names}", names=tr(", ").join(layers)), highlight=False
        )
        if "bubblewrap" not in layers:
            console.print(
                tr("[bold red]NO SANDBOX[/]: see above, and do not grade strangers so")
            )
    for learner, submission in graded.items():
        course.remarks += [learner + tr(": ") + text for text in doubts(submission)]
    print_remarks(course, console)
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


def doubts(submission: GradedSubmission) -> list[str]:
    """What a person should look at: what could not be graded, roads round what is not
    allowed."""
    if submission.problem:
        return [submission.problem]
    return [
        tr("exercise {id}: {reason}", id=each.id, reason=each.reason)
        for each in submission.exercises
        if each.needs_person
    ] + [
        tr(
            "exercise {id} uses {doubtful}, which no exercise needs: have a look",
            id=each.id,
            doubtful=each.doubtful,
        )
        for each in submission.exercises
        if each.doubtful and each.score
    ]


def announce(sandbox: Sandbox, console: Console) -> None:
    """What nobody can miss, before learner code runs without what it should run in."""
    for text in sandbox.warnings:
        console.print(Panel(Text(text), style="bold red", border_style="bold red"))


def table(results: LabResults) -> Table:
    """Who has what, and why: checks, and what there is of the rest, add up to the total."""
    lab = results.lab
    shown = Table(
        title=tr("Lab {number}, {title}", number=lab.number, title=tr(lab.title)),
        title_justify="left",
    )
    shown.add_column(tr("who"), no_wrap=True)
    columns = [
        (
            tr("checks of {possible:g}", possible=results.possible),
            lambda s: f"{s.automatic:g}",
            True,
        ),
        (tr("by hand"), lambda s: signed(s.by_hand), any_of(results, "by_hand")),
        (tr("written"), written, any_of(results, "written", "waiting")),
        (tr("extra"), lambda s: signed(s.extra), any_of(results, "extra")),
        (tr("late"), lambda s: signed(-s.late_penalty), any_of(results, "late_penalty")),
    ]
    columns = [(head, text) for head, text, wanted in columns if wanted]
    if len(columns) > 1:
        columns.append((tr("total"), lambda s: f"{s.total:g}"))
    for head, _ in columns:
        shown.add_column(head, justify="right", no_wrap=True)
    shown.add_column(tr("why"), overflow="fold")
    for entry in results.handed:  # Text: no markup of theirs
        who, why = Text(clean(entry.learner)), Text(clean(entry.why))
        shown.add_row(who, *(text(entry.standing) for _, text in columns), why)
    return shown


def any_of(results: LabResults, *names: str) -> bool:
    return any(getattr(entry.standing, name) for entry in results.handed for name in names)


def written(standing: Standing) -> str:
    return f"{standing.written:g}{' …' * bool(standing.waiting)}"
