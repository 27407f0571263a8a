"""The assembly in grading: all that one learner handed in, put together in the worker.

It earns no points, since every exercise got its own. It says whether the learner's parts make
the model, or which of them is the first to deviate. Exercises of earlier labs that were not
handed in are played by the reference; of the last lab nothing is given away.
"""

from __future__ import annotations

from collections.abc import Mapping

from labkit.author.reference import reference_block
from labkit.checks.assembly import judged, with_trace
from labkit.checks.compare import error_text
from labkit.core import cells
from labkit.core.paths import SOLUTIONS
from labkit.core.syllabus import LABS, Exercise, Lab
from labkit.grading.judge.worker_client import LoadRequest, WorkerLauncher
from labkit.sandboxed.injected.trace import CLASSES, FUNCTIONS

MODULE = "decoder"  # the lab in whose report it stands
EXERCISE = "6.3"
LONGEST = 600  # characters of a row
Answers = Mapping[str, str | None]  # {exercise id: the learner's cell}


def earlier_labs(lab: Lab) -> list[Lab]:
    """The labs whose answers the assembly of `lab` needs; none for other labs."""
    return [each for each in LABS if lab.module == MODULE and each.number < lab.number]


def put_together(
    answers: Mapping[Lab, Answers], last: Lab
) -> tuple[dict[str, str], list[Exercise]]:
    """The package up to the last lab with the learner's cells in it, and the exercises that
    nobody answered, which the reference plays."""
    sources, played = {}, []
    for path in sorted(SOLUTIONS.glob("*.py")):
        sources[path.stem] = cells.plain(path.read_text("utf-8"))
    for lab in LABS:
        if lab.number > last.number:
            sources.pop(lab.module, None)
            continue
        for exercise in lab.exercises:
            answer = answers.get(lab, {}).get(exercise.id)
            if answer:
                sources[lab.module] = cells.with_block(sources[lab.module], exercise, answer)
            else:
                played.append(exercise)
    return sources, played


def assembly_rows(
    answers: Mapping[Lab, Answers], last: Lab, workers: WorkerLauncher
) -> tuple[list[tuple[str, str]], bool]:
    """What the report of the last exercise says of all parts together, and whether the wall
    clock decided."""
    stubs = {e.id: cells.stub(reference_block(last, e), e) for e in last.exercises}
    own = {key: answers[last].get(key) or stub for key, stub in stubs.items()}
    sources, played = put_together({**answers, last: own}, last)
    worker = workers.launch(LoadRequest(with_trace(sources), "trace", ()))
    try:
        if worker.over is not None:
            return [("look", f"assembly: {error_text(worker.over)}")], worker.late
        verdict = judged(worker.ask, sources)
        rows = [(label, f"assembly: {text}"[:LONGEST]) for label, text in verdict.rows]
    except Exception as error:  # an odd trace; it must not cost the exercises their grades
        rows = [("look", f"assembly: the parts gave no trace ({type(error).__name__})")]
    finally:
        worker.close()
    used = [e for e in played if set(e.symbols) & {*FUNCTIONS, *CLASSES}]
    if used:
        names = ", ".join(f"{e.id} {e.title}" for e in used)
        rows.append(("ok", f"assembly: not handed in, so played by the course: {names}"))
    return rows, worker.late
