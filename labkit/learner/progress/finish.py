"""The end of a lab: points, predictions, what is still to be written, what comes next."""

from __future__ import annotations

from labkit.core.report import Report, Status
from labkit.core.syllabus import LABS, NOTEBOOKS, Lab
from labkit.learner import workspace
from labkit.learner.check import check_exercise
from labkit.learner.progress import predictions, written


def finish_report(lab: Lab) -> Report:
    """How far the learner came in this lab; every exercise is checked once more."""
    found = [(e, *check_exercise(lab, e, "", quiet=True)) for e in lab.exercises]
    done = all(report.passed for e, report, _ in found if e.core)
    rows = []
    for label, wanted in (("ok", True), ("open", False)):
        lines = [
            f"{e.id} {e.title}{'' if e.core else ' (stretch)'}"
            + ("" if wanted else f": {report.status.value}")
            for e, report, _ in found if report.passed is wanted
        ]  # fmt: skip
        rows += [(label, " | ".join(lines))] if lines else []
    told = predictions.tally(lab)
    rows += [("said", f"predictions: {told}")] if told else []
    if lab.questions:
        rows.append(("write", _questions(lab)))
    rows.append(("next", _next(lab, done)))
    possible = sum(e.points for e in lab.exercises)
    earned = sum(score for *_, score in found)
    verdict = f"{earned:g} of {possible:g} points" if possible else "done" if done else ""
    return Report(
        f"Lab {lab.number}  {lab.title}",
        Status.PASSED if done else Status.NOT_YET,
        rows,
        verdict,
    )


def _questions(lab: Lab) -> str:
    points = sum(question.points for question in lab.questions)
    state = written.answered(lab)
    empty = [name for name, there in state.items() if there is False]
    line = f"{', '.join(state)}: {points:g} points more, given by a person"
    line += f"; still empty in the saved notebook: {', '.join(empty)}" if empty else ""
    if workspace.reference_path(lab).exists():
        first = lab.questions[0].id
        line += f'; solution("{first}") shows a model answer beside yours'
    return line


def _next(lab: Lab, done: bool) -> str:
    place = NOTEBOOKS.index(lab) + 1
    steps = [] if done else ["finish the core above"]
    if lab in LABS:
        steps.append(f"`tinyllm submit {lab.module}` packs what you hand in")
    if place < len(NOTEBOOKS):
        after = NOTEBOOKS[place]
        steps.append(f"lab {after.number}, {after.title}: notebooks/{after.name}.ipynb")
    else:
        steps.append("that was the last lab: `tinyllm status` shows the whole course")
    return "; then ".join(steps)
