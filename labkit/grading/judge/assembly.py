"""The assembly in grading: all of one learner's answers, put together in the worker.

It earns no points, since every exercise got its own. It reports whether the learner's parts
make the model, or which of them is the first to deviate. The reference replaces missing
exercises of earlier labs, but not of the last lab."""

from __future__ import annotations

from collections.abc import Mapping

from labkit.author.reference import reference_block
from labkit.checks.assembly import PARTS, judged
from labkit.checks.package import compose, reference_modules
from labkit.course import cells
from labkit.course.lang import tr
from labkit.course.syllabus import LABS, Exercise, Lab
from labkit.sandbox.inside.call import Call, Outcome
from labkit.sandbox.launch import Answers as WorkerAnswers
from labkit.sandbox.launch import LoadRequest, WorkerLauncher

EXERCISE = "6.3"  # the exercise whose report has these rows
LONGEST = 600  # characters of a row
Answers = Mapping[str, str | None]  # {exercise id: the learner's cell}


def put_together(
    answers: Mapping[Lab, Answers], last: Lab
) -> tuple[dict[str, str], list[Exercise]]:
    """Return the package up to the last lab with the learner's cells in it, and the exercises
    without an answer, for which the reference stands in."""
    labs = [lab for lab in LABS if lab.number <= last.number]
    submitted = {
        key: cell for lab in labs for key, cell in answers.get(lab, {}).items() if cell
    }
    played = [e for lab in labs for e in lab.exercises if e.id not in submitted]
    return compose(reference_modules(), submitted, last), played


def assembly_rows(
    answers: Mapping[Lab, Answers], last: Lab, workers: WorkerLauncher
) -> tuple[list[tuple[str, str]], bool]:
    """Return the rows on all parts together for the report of the last exercise, and whether
    the wall clock decided."""
    stubs = {e.id: cells.stub(reference_block(last, e), e) for e in last.exercises}
    of_last = {key: answers[last].get(key) or stub for key, stub in stubs.items()}
    sources, played = put_together({**answers, last: of_last}, last)
    asked: list[WorkerAnswers] = []

    def ask(module: str, call: Call) -> Outcome:
        """Ask in a new process: code that ran before could read the text."""
        asked.append(workers.answer(LoadRequest(sources, module), [call]))
        return asked[-1].outcomes[0]

    try:
        rows = judged(ask, sources).rows
    except Exception as error:  # odd answers; they must not cost the exercises their grades
        rows = [("look", tr("the parts gave no answer ({name})", name=type(error).__name__))]
    used = [e for e in played if set(e.symbols) & {*PARTS}]
    if used:
        names = ", ".join(f"{e.id} {e.title}" for e in used)
        rows.append(("ok", tr("not handed in, so played by the course: {names}", names=names)))
    timed_out = any(answers.timed_out for answers in asked)
    return [(label, f"assembly: {text}"[:LONGEST]) for label, text in rows], timed_out
