"""Checking one exercise of the learner's package at once: what check("1.2") does."""

from __future__ import annotations

from collections.abc import Callable

from labkit import banned, cells, workspace
from labkit.calls import Call, Outcome, describe, perform
from labkit.checks import run_checks
from labkit.compare import said
from labkit.diagnose import reasons, remarks
from labkit.recorded import Recorded
from labkit.report import Report, learner_report
from labkit.source import localised
from labkit.syllabus import Exercise, Lab

SEED = "visible"


def check_exercise(lab: Lab, exercise: Exercise, hint: str) -> tuple[Report, float]:
    """The report on an exercise of the learner's package, and its points by visible checks.

    hint    how the learner asks for one, to be shown where something is wrong
    """
    heading = f"Exercise {exercise.id}  {exercise.title}"
    source = workspace.module_source(lab)
    block = cells.block(source, exercise.id)
    if block is None or workspace.is_stub(lab, exercise, block):
        where = workspace.shown(workspace.module_path(lab))
        look = f"{where} has no code for this exercise yet"
        do = f"write the exercise's cell and run it, then check again; stuck? {hint}"
        if block is None and set(exercise.symbols) & set(cells.defined_names(source)):
            look = f"{where} defines {exercise.title}, but nothing marks it as this exercise"
            do = f'put "{cells.directive(exercise)}" on the line before it'
        return Report(heading, "not started", [("look", look), ("next", do)]), 0.0
    mentioned = banned.found_in(block, lab.not_allowed)
    if mentioned:
        name, line = mentioned
        look = f"line {line}: {banned.message(name)}"
        return Report(heading, "not yet", [("look", look), ("next", hint)]), 0.0
    try:
        namespace = vars(workspace.load(lab))
    except Exception as error:  # the learner's module may raise anything when it is imported
        filename = str(workspace.module_path(lab))
        loading = Outcome(failure=describe(error, filename))
        look = said(localised(loading, source, exercise.id).failure)
        do = "mend the line, run the cell, check again"
        return Report(heading, "not yet", [("look", look), ("next", do)]), 0.0
    oracle = Recorded(lab.module)
    with banned.out_of_reach(lab.not_allowed):
        student = in_process(namespace, lab, source, exercise)
        result = run_checks("visible", lab.module, exercise, student, oracle, SEED)
    why = reasons(result, oracle)
    step = next_step(lab, exercise) if result.passed else hint
    return learner_report(result, why, remarks(result, oracle), step), result.score


def in_process(
    namespace: dict, lab: Lab, source: str, exercise: Exercise
) -> Callable[[Call], Outcome]:
    """Performs calls right here, with the learner's module."""
    filename = str(workspace.module_path(lab))

    def student(call: Call) -> Outcome:
        return localised(perform(call, namespace, filename), source, exercise.id)

    return student


def next_step(lab: Lab, exercise: Exercise) -> str:
    """What comes after a passed exercise."""
    place = [e.id for e in lab.exercises].index(exercise.id)
    rest = lab.exercises[place + 1 :]
    if not exercise.points:
        return "read on; this was practice"
    if not rest:
        return (
            f"that was the last exercise of this lab: `tinyllm submit {lab.module}` hands it in"
        )
    stretch = "" if rest[0].core else " (stretch)"
    return f"read on to exercise {rest[0].id}, {rest[0].title}{stretch}"
