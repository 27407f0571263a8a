"""Resetting exercises in package and notebook; a backup is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import nbformat

from labkit.course import cells
from labkit.course.files import write_whole
from labkit.course.lang import tr
from labkit.course.syllabus import (
    NOTEBOOKS,
    Exercise,
    Lab,
    UnknownName,
    find_exercise,
    find_lab,
)
from labkit.learner import record, workspace
from labkit.learner.project import notebook_file

BACKUPS = "backups"


class ResetError(Exception):
    """Nothing was changed; the message says why."""


@dataclass(frozen=True)
class Change:
    """A file, its old content (None for a new file), and its new content."""

    path: Path
    before: bytes | None
    after: str


def find_exercises(name: str) -> tuple[Lab, Sequence[Exercise]]:
    """Find the exercises of a lab, or one exercise. Errors: UnknownName"""
    try:
        lab = find_lab(name, tuple(lab for lab in NOTEBOOKS if lab.exercises))
        return lab, lab.exercises
    except UnknownName:
        lab, exercise = find_exercise(name)
        return lab, [exercise]


def project() -> Path:
    """The folder of the learner's package and notebooks"""
    return Path(workspace.folder()).parent


def find_changes(lab: Lab, exercises: Sequence[Exercise]) -> list[Change]:
    """Return the changes of files that empty these exercises."""
    made = [change_to(workspace.module_path(lab), empty_module(lab, exercises))]
    notebook = project() / "notebooks" / f"{lab.name}.ipynb"
    if notebook.exists():
        made.append(change_to(notebook, empty_notebook(notebook, lab, exercises)))
    if len(exercises) == len(lab.exercises):
        forgotten = record.without_predictions(lab.predictions)
        made += [change_to(record.path(), forgotten)] if forgotten else []
    return [change for change in made if change.before != change.after.encode()]


def change_to(path: Path, after: str) -> Change:
    return Change(path, path.read_bytes() if path.exists() else None, after)


def empty_module(lab: Lab, exercises: Sequence[Exercise]) -> str:
    skeleton = workspace.skeletons()[lab.module]
    if len(exercises) == len(lab.exercises):
        return skeleton
    source = workspace.module_source(lab)
    for exercise in exercises:
        block = cells.block(source, exercise.id)
        if block and workspace.is_empty(exercise, block):
            continue
        if block is None:
            raise ResetError(
                tr(
                    '{lab} has lost the line "{exercise}": put it above your code again, or '
                    "empty the whole module with `tinyllm reset {module}`",
                    lab=workspace.short_path(workspace.module_path(lab)),
                    exercise=cells.directive(exercise),
                    module=lab.module,
                )
            )
        source = cells.with_block(source, exercise, cells.block(skeleton, exercise.id) or "")
    return source


def empty_notebook(path: Path, lab: Lab, exercises: Sequence[Exercise]) -> str:
    content = notebook_file.read(path)
    before = path.read_text("utf-8", errors="replace")
    known = notebook_file.answers(content, lab)
    changed = False
    for exercise in exercises:
        if exercise.id in known or not notebook_file.copies(content, lab, exercise):
            stub = cells.block(workspace.skeletons()[lab.module], exercise.id) or ""
            notebook_file.put(content, lab, exercise, stub)
            changed = True
    return nbformat.writes(content) if changed else before


def write_changes(found: Sequence[Change]) -> Path:
    """Back the files up in a new folder, write the changes, and return the folder."""
    backup = project() / BACKUPS / f"{datetime.now():%Y-%m-%d_%H-%M-%S-%f}"
    for change in found:
        if change.before is not None:
            write_whole(backup / change.path.relative_to(project()), change.before)
    for change in found:
        write_whole(change.path, change.after)
    return backup
