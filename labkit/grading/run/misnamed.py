"""Notebooks that somebody put into submitted/NAME/LAB under another name than LAB.ipynb."""

from __future__ import annotations

from labkit.core.syllabus import Lab
from labkit.grading.collect.attempts import lab_of, read_notebook
from labkit.grading.collect.issues import OpenIssue, OpenIssues
from labkit.grading.judge.intake import NotANotebook
from labkit.grading.nbgrader.course import Course, SubmittedFile
from labkit.lang import tr


def rename_misnamed(course: Course, lab: Lab) -> list[str]:
    """Give the only notebook of a folder its name, if its cells are the lab's; a word on each.
    All others need a look."""
    renamed, new = [], []
    for folder in sorted((course.root / "submitted").glob(f"*/{lab.name}")):
        right, found = folder / f"{lab.name}.ipynb", sorted(folder.glob("*.ipynb"))
        if not found or right in found:
            continue
        learner, reason = (
            folder.parent.name,
            tr("one of {count} notebooks in its folder", count=len(found)),
        )
        if len(found) == 1:
            reason = why_not(SubmittedFile(learner, lab, found[0]))
        shown = [str(path.relative_to(course.root)) for path in found]
        if reason:
            reason += tr("; the one that counts is called {name}", name=right.name)
            new += [OpenIssue(learner, True, lab.name, path, reason) for path in shown]
        else:
            found[0].rename(right)
            renamed.append(tr("{file} is called {name} now", file=shown[0], name=right.name))
    if new:
        OpenIssues(course.root).update(new)
    return renamed


def why_not(handed: SubmittedFile) -> str:
    """Why it is not this lab's notebook; empty if it is."""
    try:
        found = None if handed.problem else lab_of(read_notebook(handed.read())[0])
    except NotANotebook as error:
        return str(error)
    cells = tr("its cells are those of {name}", name=found.name if found else tr("no lab"))
    return handed.problem or ("" if found is handed.lab else cells)
