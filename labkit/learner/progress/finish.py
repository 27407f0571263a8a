"""The end of a lab: points, predictions, unanswered questions, the next step."""

from __future__ import annotations

from collections.abc import Container

from labkit.course.lang import tr
from labkit.course.report import Report, Status
from labkit.course.syllabus import LABS, NOTEBOOKS, Exercise, Lab
from labkit.learner.check import check_exercise
from labkit.learner.progress import model_answers, predictions


def finish_report(lab: Lab, answered: Container[Exercise] = ()) -> Report:
    """Return a report on the whole lab; every exercise is checked once more.

    answered    the exercises whose cells were filled when they ran, saved or not
    """
    found = [(e, *check_exercise(lab, e, "", quiet=True)) for e in lab.exercises]
    done = all(report.passed for e, report, _ in found if e.core)
    titles = {
        e: f"{e.id} {e.title}" + ("" if e.core else f" ({tr(e.kind)})") for e, *_ in found
    }
    passed = [titles[e] for e, report, _ in found if report.passed]
    left = [f"{titles[e]}: {tr(r.status.value)}" for e, r, _ in found if not r.passed]
    rows = [("ok", " | ".join(passed)), ("open", " | ".join(left))]
    if lab.predictions:
        rows.append(("said", tr("predictions: {summary}", summary=predictions.tally(lab))))
    rows.append(("write", _questions(lab)))
    rows = [row for row in rows if row[1]]
    rows += model_answers.blank_note(lab, [e for e in lab.exercises if e not in answered])
    rows.append(("next", _next_steps(lab, done)))
    earned, possible = sum(score for *_, score in found), sum(e.points for e in lab.exercises)
    verdict = tr("{earned:g} of {possible:g} points", earned=earned, possible=possible)
    return Report(
        tr("Lab {number}  {title}", number=lab.number, title=tr(lab.title)),
        Status.PASSED if done else Status.NOT_YET,
        rows,
        verdict if possible else "",
    )


def _questions(lab: Lab) -> str:
    if not lab.questions:
        return ""
    state = model_answers.answered(lab)
    points, names = sum(q.points for q in lab.questions), tr(", ").join(state)
    line = tr("{state}: {points:g} points more, given by a person", state=names, points=points)
    if empty := [name for name, is_filled in state.items() if is_filled is False]:
        line += tr("; still empty in the saved notebook: {empty}", empty=tr(", ").join(empty))
    if model_answers.has_open_answers(lab):
        first = lab.questions[0].id
        line += tr('; solution("{first}") shows a model answer beside yours', first=first)
    return line


def _next_steps(lab: Lab, done: bool) -> str:
    steps = [] if done else [tr("finish the core above")]
    if lab in LABS:
        steps.append(tr("`tinyllm submit {module}` packs what you hand in", module=lab.module))
    for after in NOTEBOOKS[NOTEBOOKS.index(lab) + 1 :][:1]:
        names = {"number": after.number, "title": tr(after.title), "name": after.name}
        step = tr("lab {number}, {title}: notebooks/{name}.ipynb", **names)
        minutes = tr(", {minutes} minutes of core exercises", minutes=after.minutes)
        steps.append(step + (minutes if after.minutes else ""))
    if lab == NOTEBOOKS[-1]:
        steps.append(tr("that was the last lab: `tinyllm status` shows the whole course"))
    return tr("; then ").join(steps)
