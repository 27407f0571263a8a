"""The end of a lab: points, predictions, what is still to be written, what comes next."""

from __future__ import annotations

from collections.abc import Container

from labkit.course.lang import tr
from labkit.course.report import Report, Status
from labkit.course.syllabus import LABS, NOTEBOOKS, Exercise, Lab
from labkit.learner.check import check_exercise
from labkit.learner.progress import model_answers, predictions


def finish_report(lab: Lab, answered: Container[Exercise] = ()) -> Report:
    """How far the learner came in this lab; every exercise is checked once more.

    answered    the exercises whose cells were filled when they ran, saved or not
    """
    found = [(e, *check_exercise(lab, e, "", quiet=True)) for e in lab.exercises]
    done = all(report.passed for e, report, _ in found if e.core)
    rows = []
    for label, wanted in (("ok", True), ("open", False)):
        lines = [
            " ".join([e.id, e.title, *([] if e.core else [tr("({kind})", kind=tr(e.kind))])])
            + ("" if wanted else tr(": ") + tr(report.status.value))
            for e, report, _ in found if report.passed is wanted
        ]  # fmt: skip
        rows += [(label, " | ".join(lines))] if lines else []
    summary = predictions.tally(lab)
    rows += [("said", tr("predictions: {summary}", summary=summary))] if summary else []
    if lab.questions:
        rows.append(("write", _questions(lab)))
    rows += model_answers.blank_note(lab, [e for e in lab.exercises if e not in answered])
    rows.append(("next", _next(lab, done)))
    possible = sum(e.points for e in lab.exercises)
    earned = sum(score for *_, score in found)
    verdict = (
        tr("{earned:g} of {possible:g} points", earned=earned, possible=possible)
        if possible
        else tr("done")
        if done
        else ""
    )
    return Report(
        tr("Lab {number}  {title}", number=lab.number, title=tr(lab.title)),
        Status.PASSED if done else Status.NOT_YET,
        rows,
        verdict,
    )


def _questions(lab: Lab) -> str:
    points = sum(question.points for question in lab.questions)
    state = model_answers.answered(lab)
    empty = [name for name, is_filled in state.items() if is_filled is False]
    line = tr(
        "{state}: {points:g} points more, given by a person",
        state=tr(", ").join(state),
        points=points,
    )
    line += (
        tr("; still empty in the saved notebook: {empty}", empty=tr(", ").join(empty))
        if empty
        else ""
    )
    if not model_answers.has_open_answers(lab):
        return line
    first = lab.questions[0].id
    return line + tr('; solution("{first}") shows a model answer beside yours', first=first)


def _next(lab: Lab, done: bool) -> str:
    place = NOTEBOOKS.index(lab) + 1
    steps = [] if done else [tr("finish the core above")]
    if lab in LABS:
        steps.append(tr("`tinyllm submit {module}` packs what you hand in", module=lab.module))
    if place < len(NOTEBOOKS):
        after = NOTEBOOKS[place]
        minutes = tr(", {minutes} minutes of core exercises", minutes=after.minutes)
        steps.append(
            tr(
                "lab {number}, {title}: notebooks/{name}.ipynb",
                number=after.number,
                title=tr(after.title),
                name=after.name,
            )
            + (minutes if after.minutes else "")
        )
    else:
        steps.append(tr("that was the last lab: `tinyllm status` shows the whole course"))
    return tr("; then ").join(steps)
