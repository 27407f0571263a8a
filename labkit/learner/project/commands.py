"""A learner's commands on files: submit, reset, update, lab."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer
from rich.table import Table
from rich.text import Text

from labkit.course.lang import said, tr
from labkit.course.report import clean
from labkit.course.syllabus import NOTEBOOKS, UnknownName, find_lab
from labkit.course.terminal import LabName, Problem, console, ending_on, lab_called

if TYPE_CHECKING:
    from labkit.learner.project.submit import Submission

app = typer.Typer()
Yes = Annotated[bool, typer.Option("--yes", "-y", help="ask nothing")]


@app.command()
def submit(
    lab: LabName,
    notebook: Annotated[
        Optional[Path],  # noqa: UP045  typer on Python 3.10 needs the long form
        typer.Argument(help="your notebook; by default notebooks/LAB.ipynb"),
    ] = None,
) -> None:
    """Check your answers and write the file to hand in.

    It is your notebook, completed from tinyllm/. Where the two differ, the answer that passes
    is handed in.
    """
    from labkit.learner.project.notebook_file import NotebookError
    from labkit.learner.project.submit import prepare

    with ending_on(NotebookError, OSError):
        handed = prepare(lab_called(lab), notebook)
    show(handed)


WRITTEN = {
    True: said("a person reads it"),
    False: said("empty"),
    None: said("not found by its name"),
}


def share(points: float, possible: float) -> str:
    return tr("{earned} of {possible}", earned=points, possible=possible)


def show(handed: Submission) -> None:
    """Print the packed answers, exercise by exercise, and everything that may cost points."""
    table = Table("", tr("handed in"), tr("taken from"), tr("check"), tr("points at stake"))
    for each in handed.packed:
        e, empty = each.exercise, each.side is None
        state = tr("empty") if empty else tr(each.report.status.value)
        stake = share(each.at_stake, e.points) if each.at_stake else ""
        table.add_row(e.id, e.title, tr(each.side.value) if each.side else "", state, stake)
    lab = find_lab(handed.path.stem)
    for question in lab.questions:
        state = tr(WRITTEN[handed.written[question.id]])
        stake = "" if handed.written[question.id] else share(question.points, question.points)
        table.add_row(question.id, tr("written question"), tr("notebook"), state, stake)
    console.print(table)
    lines = []
    for each in handed.packed:
        name = f"{each.exercise.id} {each.exercise.title}"
        if each.differs:
            text = tr(
                "{name}: notebook and tinyllm/ differ; handed in is the answer of the {side}",
                name=name,
                side=tr(each.side.value),
            )
            lines.append(text)
        if each.side is None:
            lines.append(tr("{name} is empty", name=name))
        elif not each.report.passed:
            lines.append(tr("{name} does not pass: {reason}", name=name, reason=each.reason))
    for name, filled in handed.written.items():
        if filled is False:
            lines.append(tr("written question {name} is empty", name=name))
        elif filled is None:
            lost = tr(
                "written question {name}: its cell has lost its name, so that grading does not "
                "find it; copy your answer into a fresh copy of the notebook",
                name=name,
            )
            lines.append(lost)
    for line in lines:
        console.print(Text(clean(line), style="yellow"), soft_wrap=True)
    passed = sum(each.report.passed for each in handed.packed)
    answered = sum(map(bool, handed.written.values()))
    summary = tr(
        "{passed} of {exercises} exercises pass, {answered} of {questions} written questions "
        "are answered",
        passed=passed,
        exercises=len(lab.exercises),
        answered=answered,
        questions=len(lab.questions),
    )
    print(summary)
    print(tr("hand in {path}", path=handed.path))


Called = Annotated[str, typer.Argument(help="an exercise, such as 1.2, or a lab")]


@app.command()
def reset(name: Called, yes: Yes = False) -> None:
    """Empty an exercise or a lab again; a backup is kept.

    It is emptied in tinyllm/ and in the notebook.
    """
    from labkit.learner.project import reset as resetting
    from labkit.learner.project.notebook_file import NotebookError

    with ending_on(UnknownName, NotebookError, resetting.ResetError):
        lab, exercises = resetting.find_exercises(name)
        changes = resetting.find_changes(lab, exercises)
    what = tr(", ").join(f"{e.id} {e.title}" for e in exercises)
    if not changes:
        print(tr("{what}: empty already, nothing to do", what=what))
        return
    names = (str(change.path.relative_to(resetting.project())) for change in changes)
    files = tr(" and ").join(names)
    if not yes:
        print(tr("{what}: this empties what you wrote in {files}", what=what, files=files))
        if not sys.stdin.isatty():
            raise Problem(tr("nothing was changed; outside a terminal, add `--yes`"))
        typer.confirm(tr("Go on?"), abort=True)
    with ending_on(OSError):
        backup = resetting.write_changes(changes)
    print(tr("empty again: {what}, in {files}", what=what, files=files))
    print(tr("the old version is in {backup}", backup=backup))
    print(tr("If the notebook is open: File, Reload Notebook from Disk."))


@app.command()
def update(
    edition: Annotated[
        Optional[Path],  # noqa: UP045  typer on Python 3.10 needs the long form
        typer.Argument(help="the newer edition, a folder or a zip; else it is here already"),
    ] = None,
) -> None:
    """Take over a newer edition of the course; what you wrote stays.

    Answers, written texts, cells of your own and what you changed stay, in notebooks/ and
    tinyllm/; a backup is kept. A missing notebook comes back, with your answers in it.
    """
    from labkit.learner.project import update as updating

    with ending_on(updating.UpdateError, OSError):
        if edition is not None:
            raise typer.Exit(updating.take_edition(edition))
        lines = updating.update_project()
    for line in lines:
        print(line)
    if not lines:
        print(tr("all is up to date"))
        return
    if (backups := updating.project() / "backups").is_dir():
        print(tr("what was there before is in {folder}", folder=backups))
    print(tr("If a notebook is open: File, Reload Notebook from Disk."))


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def lab(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="LAB", help="a lab, such as rmsnorm")] = "tour",
) -> None:
    """Open JupyterLab with the tour or a lab's notebook.

    Options after LAB, such as --no-browser, are passed on to JupyterLab.
    """
    from labkit.learner.project import jupyter
    from labkit.learner.project import update as updating
    from labkit.learner.project.notebook_file import NotebookError

    extra = list(context.args)
    if name.startswith("-"):
        name, extra = "tour", [name, *extra]
    with ending_on(UnknownName, NotebookError, jupyter.NoJupyter, OSError):
        updating.update_if_behind(find_lab(name, NOTEBOOKS))
        command = jupyter.command(find_lab(name, NOTEBOOKS), extra)
    raise typer.Exit(jupyter.start(command))
