"""All of the learner's own parts together: what assemble() and `tinyllm assemble` do."""

from __future__ import annotations

from collections.abc import Callable

from labkit.checks.assembly import PARTS, judged
from labkit.checks.runner import package_in
from labkit.course.lang import said, tr
from labkit.course.report import Report, Status
from labkit.course.syllabus import LABS
from labkit.learner import workspace
from labkit.learner.check import stopped_rows
from labkit.learner.home_sandbox import FRESH, HomeSandbox, OutOfTime, torch_set_to
from labkit.sandbox.inside.importer import imported

HEADING = said("Assembly  your own parts")


def assembly_report(check: Callable[[str], str]) -> Report:
    """Run the learner's whole package and say which part is wrong.

    check    how to check an exercise: "1.2" -> 'check("1.2")'
    """
    labs = [lab for lab in LABS if {*PARTS} & {s for e in lab.exercises for s in e.symbols}]
    empty = [e for lab in labs for e in workspace.unfinished(lab) if {*PARTS} & {*e.symbols}]
    sources = workspace.own_package()
    if empty:
        sources |= workspace.completed_modules(labs)
    ask = HomeSandbox(workspace.folder()).limited(package_in(workspace.folder()))
    try:
        with torch_set_to(FRESH), imported(sources, workspace.folder()):
            verdict = judged(ask, sources)
    except OutOfTime as stopped:
        return Report(tr(HEADING), Status.NOT_CHECKED, stopped_rows(stopped, None))
    if verdict.passed and not empty:
        step = tr("every part of this model is yours; now it can load a checkpoint and talk")
        return Report(tr(HEADING), Status.PASSED, [*verdict.rows, ("next", step)])
    rows, to_mend = verdict.rows, verdict.exercise
    if to_mend in empty or verdict.passed:  # say all that is missing, and where to begin
        missing = tr(", ").join(f"{e.id} {e.title}" for e in empty)
        rows, to_mend = [row for row in rows if row[0] == "ok"], empty[0]
        rows.append(("look", tr("not written yet: {missing}", missing=missing)))
    if empty:
        rows.insert(0, ("note", workspace.whose(labs)))
    step = check(to_mend.id) if to_mend else tr("mend this, then assemble again")
    return Report(tr(HEADING), Status.NOT_YET, [*rows, ("next", step)])
