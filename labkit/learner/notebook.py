"""A notebook's functions: start, predict, outcome, check, hint, solution, assemble, finish.

After `start("rmsnorm")` in the first cell, every exercise cell that runs is saved into the
lab's module of `tinyllm`, and the package is reloaded.
"""

from __future__ import annotations

import os

from IPython import get_ipython

from labkit.course import paths
from labkit.course.lang import tr
from labkit.course.report import Report
from labkit.course.syllabus import (
    NOTEBOOKS,
    Exercise,
    Question,
    find_exercise,
    find_lab,
    find_question,
)
from labkit.learner import hints, workspace
from labkit.learner.check import assembly_report, check_exercise
from labkit.learner.progress.finish import finish_report
from labkit.learner.progress.model_answers import ModelAnswer, blank_note, model_answer
from labkit.learner.progress.predictions import outcome, predict
from labkit.learner.project.update import is_behind
from labkit.learner.session import UNFINISHED, Session

__all__ = ["assemble", "check", "finish", "hint", "outcome", "predict", "solution", "start"]

_session: Session | None = None


def start(lab: str) -> None:
    """Start a lab: from now on, an exercise cell that runs is saved into the package.

    lab    the lab's name: "rmsnorm", "01" or "01_rmsnorm"
    """
    global _session
    shell = get_ipython()
    if shell is None:
        raise RuntimeError(
            tr("start() belongs in a notebook; in a terminal use `tinyllm check`")
        )
    if not (paths.TESTS / "visible").is_dir():
        raise RuntimeError(tr(paths.NOT_IN_ITS_FOLDER))
    chosen = find_lab(lab, NOTEBOOKS)
    workspace.require_writable()
    if _session is not None:
        shell.events.unregister("pre_run_cell", _session.before_cell)
        shell.events.unregister("post_run_cell", _session.after_cell)
        _session.long_calls.close()  # the old session's limit for this cell
    _session = Session(chosen, shell)
    shell.events.register("pre_run_cell", _session.before_cell)
    shell.events.register("post_run_cell", _session.after_cell)
    shell.set_custom_exc(UNFINISHED, _session.cell_raised)
    exercises = tr(", ").join(f"{e.id} {e.title}" for e in chosen.exercises)
    print(
        tr(
            "Lab {number}, {title}\nExercises: {exercises}",
            number=chosen.number,
            title=tr(chosen.title),
            exercises=exercises,
        )
    )
    print(
        tr(
            "Running an exercise cell saves it to {chosen}",
            chosen=workspace.module_path(chosen),
        )
    )
    if is_behind(chosen):
        print(
            tr(
                "There is a newer version of this lab: save the notebook, run `tinyllm update` "
                "in a terminal, then File, Reload Notebook from Disk. Your answers stay."
            )
        )
    _session.export_earlier_labs()
    _session.export_saved_answers()


def check(exercise_id: str) -> Report | float:
    """Check an exercise: the report shows what is right, the first fault, and its cause."""
    lab, exercise = find_exercise(str(exercise_id))
    ladder = hints.next_help(lab, exercise, *help_calls(exercise))
    report, score = check_exercise(lab, exercise, ladder)
    if _session is None and not report.passed:
        report.rows.append(("note", tr("the first cell of the notebook has not been run yet")))
    if _session is not None and exercise.id in _session.unsaved:
        note = tr(
            "the last run of your cell was not saved, as {why}; this is about the version "
            "before it",
            why=_session.unsaved[exercise.id],
        )
        report.rows.insert(0, ("note", note))
    if report.passed and not (_session and exercise in _session.answered):
        report.rows += blank_note(lab, [exercise])
    if os.environ.get("NBGRADER_EXECUTION"):  # nbgrader reads a plain number as the points
        print(report)
        return float(score)
    return report


def assemble() -> Report:
    """Run a whole model on your own parts; the report names the first part that deviates."""
    return assembly_report('check("{}")'.format)


def finish(lab: str) -> Report:
    """Sum up a lab: points, predictions, questions, the next step."""
    return finish_report(find_lab(lab, NOTEBOOKS), _session.answered if _session else ())


def hint(exercise_id: str, rung: int | None = None) -> Report:
    """Climb one rung of the exercise's ladder; `rung` goes to a rung directly."""
    lab, exercise = find_exercise(str(exercise_id))
    return hints.hint_report(lab, exercise, rung, *help_calls(exercise))


def solution(exercise_id: str) -> ModelAnswer | None:
    """Print the course's own code, after the third hint or once yours passes. For a written
    question, "1.a", show a model answer, once yours is written."""
    try:
        lab, exercise = find_question(str(exercise_id)) or find_exercise(str(exercise_id))
        if isinstance(exercise, Question):
            return model_answer(lab, exercise)
        print(hints.solution_text(lab, exercise, help_calls(exercise)[0]))
    except LookupError as error:
        print(error)
    return None


def help_calls(exercise: Exercise) -> tuple[str, str]:
    return f'hint("{exercise.id}")', f'solution("{exercise.id}")'
