"""A learner's commands: status, check, assemble, hint, solution."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import nullcontext, suppress
from datetime import datetime
from typing import Annotated, Optional

import typer
from rich import box
from rich.table import Column, Table
from rich.text import Text

from labkit.course.lang import tr
from labkit.course.lang.layout import pad
from labkit.course.report import WIDTH, Report, Status
from labkit.course.syllabus import (
    KINDS,
    LABS,
    NOTEBOOKS,
    Exercise,
    Lab,
    Question,
    UnknownName,
    find_question,
)
from labkit.course.terminal import (
    ExerciseId,
    console,
    ending_on,
    exercise_called,
)

app = typer.Typer()
# ruff: noqa: UP045  typer on Python 3.10 needs Optional


@app.command()
def status() -> None:
    """Show every exercise and how far you are."""
    from labkit.learner.workspace import unfinished

    table = Table(
        "", Column(tr("exercise"), overflow="fold"), "", tr("minutes"), tr("points"),
        tr("state"), box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True,
    )  # fmt: skip
    unchecked, every = [], []
    for lab in NOTEBOOKS:
        empty = unfinished(lab)
        typed = _typed_exercises(lab) if empty else {}
        found = [
            (each, Status.NOT_STARTED, 0.0) if each in empty else (each, *_check(lab, each))
            for each in lab.exercises
        ]
        points, state = _totals(found) if lab in LABS else ("", "" if found else tr("to read"))
        minutes = f"{lab.minutes or ''}"
        table.add_row(
            f"[bold]{lab.number}", f"[bold]{tr(lab.title)}", "", minutes, points, state
        )
        for exercise, status, _ in found:
            numbers = f"{exercise.minutes}", f"{exercise.points:g}"
            is_typed = status is Status.NOT_STARTED and exercise.id in typed
            text = tr("typed, not run") if is_typed else tr(status.value)
            state = Text(text, COLOURS.get(status, ""))
            table.add_row(exercise.id, exercise.title, tr(exercise.kind), *numbers, state)
            if status is Status.NOT_CHECKED:
                unchecked.append(exercise.id)
        table.add_section()
        every += found if lab in LABS else []
    console.print(table)
    for kind in KINDS:
        points, passed = _totals([each for each in every if each[0].kind == kind])
        console.print(
            pad(tr(kind), 9) + tr("{passed}, {points} points", passed=passed, points=points),
            highlight=False,
        )
    asked = sum(question.points for lab in LABS for question in lab.questions)
    console.print(
        tr("written {asked:g} points more, which a person gives", asked=asked), highlight=False
    )
    for name in unchecked:
        console.print(
            tr("{name} could not be checked: `tinyllm check {name}` says why", name=name)
        )


COLOURS = {Status.PASSED: "green", Status.NOT_YET: "yellow", Status.NOT_CHECKED: "red"}


def _typed_exercises(lab: Lab) -> Collection[str]:
    """The exercises that the notebook answers, even if their cells were not run"""
    from labkit.learner.project import notebook_file

    try:
        return notebook_file.answers(notebook_file.read(notebook_file.notebook_path(lab)), lab)
    except (notebook_file.NotebookError, OSError):
        return ()


def _check(lab: Lab, exercise: Exercise) -> tuple[Status, float]:
    from labkit.learner.check import check_exercise  # torch takes seconds to import

    task = tr("checking {id} {title}", id=exercise.id, title=exercise.title)
    with nullcontext() if console.is_jupyter else console.status(task):
        report, points = check_exercise(lab, exercise, "", quiet=True)
    return report.status, points


def _totals(found: Sequence[tuple[Exercise, Status, float]]) -> tuple[str, str]:
    """Return two texts: the points, and the number of exercises that passed"""
    earned, possible = sum(score for *_, score in found), sum(e.points for e, *_ in found)
    passed = sum(status is Status.PASSED for _, status, _ in found)
    return tr("{earned:g} of {possible:g}", earned=earned, possible=possible), tr(
        "{passed} of {count} passed", passed=passed, count=len(found)
    )


def show(report: Report) -> None:
    print(report.text(min(WIDTH, console.width)))


@app.command()
def check(
    exercise: ExerciseId,
    watch: Annotated[
        bool, typer.Option("--watch", help="check again whenever a file in tinyllm/ changes")
    ] = False,
) -> None:
    """Check one exercise of your tinyllm package.

    The exit status is 1 if it is not right yet.
    """
    from labkit.learner import hints
    from labkit.learner.check import check_exercise

    lab, found = exercise_called(exercise)
    ladder = hints.next_help(lab, found, *help_commands(found))
    report, _ = check_exercise(lab, found, ladder)
    show(report)
    if watch:
        print(tr("waiting for a change in tinyllm/; Ctrl-C ends this"))
        with suppress(KeyboardInterrupt):
            for _ in changes():
                console.rule(f"{datetime.now():%H:%M:%S}")
                report, _ = check_exercise(lab, found, ladder)
                show(report)
    if not report.passed:
        raise typer.Exit(1)


def changes() -> Iterator[None]:
    """Yield each time the learner's package has changed on disk."""
    from labkit.learner.workspace import learner_modules

    before = learner_modules()
    while True:
        time.sleep(0.5)
        now = learner_modules()
        if now != before:
            yield
        before = now


@app.command()
def assemble() -> None:
    """Run a whole model on your parts, and find the first wrong one.

    The exit status is 1 if one is wrong.
    """
    from labkit.learner.check import assembly_report

    report = assembly_report("`tinyllm check {}`".format)
    show(report)
    if not report.passed:
        raise typer.Exit(1)


@app.command()
def hint(
    exercise: ExerciseId,
    rung: Annotated[
        Optional[int], typer.Argument(metavar="RUNG", help="1 idea, 2 API, 3 near-code")
    ] = None,
) -> None:
    """Show the next of three hints for an exercise."""
    from labkit.learner import hints

    lab, found = exercise_called(exercise)
    with ending_on(UnknownName):
        show(hints.hint_report(lab, found, rung, *help_commands(found)))


def help_commands(exercise: Exercise) -> tuple[str, str]:
    return f"`tinyllm hint {exercise.id}`", f"`tinyllm solution {exercise.id}`"


@app.command()
def solution(exercise: ExerciseId) -> None:
    """Show the course's code for an exercise, or a model answer.

    The code is shown after the third hint, or once your own passes, and a model answer to a
    written question, such as 1.a, once yours is written.
    """
    from labkit.learner import hints
    from labkit.learner.progress import model_answers

    lab, found = find_question(exercise) or exercise_called(exercise)
    with ending_on(LookupError):
        if isinstance(found, Question):
            print(model_answers.model_answer(lab, found))
        else:
            print(hints.solution_text(lab, found, help_commands(found)[0]))
