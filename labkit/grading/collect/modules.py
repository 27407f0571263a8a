"""A lab's module of `tinyllm` that was handed in beside a notebook. It counts only if a person
says so: then its answers go into the notebook's blank cells."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

import nbformat

from labkit.course import cells
from labkit.course.files import read_plain, write_whole
from labkit.course.lang import tr
from labkit.course.syllabus import Lab
from labkit.grading.collect.attempts import Attempt
from labkit.grading.collect.folders import CollectFolders
from labkit.grading.collect.issues import OpenIssues, handed_in
from labkit.grading.collect.labs import lab_of_module
from labkit.grading.judge.notebook_file import MAX_CODE
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook.connection import CourseError
from labkit.learner.project import notebook_file
from labkit.learner.project.notebook_file import NotebookError
from labkit.learner.workspace import is_empty


def modules_in(files: Iterable[Attempt]) -> dict[tuple[str, Lab], Attempt]:
    """{(learner, lab): the module that they handed in}"""
    found = ((file.learner, lab_of_module(file.parts), file) for file in files if file.code)
    return {(learner, lab): file for learner, lab, file in found if learner and lab}


def note_on_module(
    folders: CollectFolders, attempt: Attempt, modules: Mapping[tuple[str, Lab], Attempt]
) -> str:
    """What a module beside the notebook that counts answers and this does not, and the command
    by which it counts; "" where it has no more, or a person has chosen the notebook. It is
    kept beside the copies of the notebook."""
    lab, module = attempt.lab, modules.get((attempt.learner, attempt.lab))
    chosen = OpenIssues(folders.root).given if module else {}
    if module is None or f"{attempt.claim.key}/{attempt.sha}" in chosen:
        return ""
    missing = sorted(answers_of(lab, module.code).keys() - attempt.begun)
    if not missing:
        return ""
    kept = folders.copies_folder(attempt) / f"{lab.module}.py"
    write_whole(kept, module.code)
    return tr(
        "{names}: blank in the notebook, answered in {file}; `tinyllm collect --as {learner} "
        "{kept}` lets that count",
        names=tr(", ").join(missing), file=module.parts[-1], learner=attempt.learner,
        kept=shlex.quote(str(kept)),
    )  # fmt: skip


def answers_of(lab: Lab, code: bytes) -> dict[str, str]:
    """{exercise id: what a module holds for it}"""
    known = {exercise.id: exercise for exercise in lab.exercises}
    blocks = cells.split(code[:MAX_CODE].decode("utf-8", "replace"))
    return {
        key: text.strip() for key, text in blocks
        if key in known and not is_empty(known[key], text)
    }  # fmt: skip


def fill_submission(course: Course, learner: str, module: Path, folder: str) -> Path:
    """What counts of a learner, with the answers of this module in its blank cells: a file in
    `folder`, with the time at which the notebook was handed in."""
    lab = lab_of_module((module.name,))
    handed = course.submitted_file(lab, learner)
    if handed.problem:
        raise CourseError(
            f"{module.name} completes no notebook: {learner} has none that counts"
        )
    try:
        found = answers_of(lab, read_plain(module, MAX_CODE))
        content = notebook_file.read(handed.path)
    except (NotebookError, OSError) as error:
        raise CourseError(str(error)) from error
    missing = found.keys() - notebook_file.answers(content, lab).keys()
    if not missing:
        raise CourseError(f"{module} answers nothing that the notebook of {learner} lacks")
    for exercise in lab.exercises:
        if exercise.id in missing:
            notebook_file.put(content, lab, exercise, found[exercise.id])
    path = Path(folder, f"{lab.name}.ipynb")
    path.write_text(nbformat.writes(content), "utf-8")
    when = handed_in(handed.path).timestamp()
    os.utime(path, (when, when))
    return path
