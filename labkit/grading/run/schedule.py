"""Grading all submissions of a lab with a crew, into results and from there into the gradebook.

What is finished is written down at once and never done again. What was under way when
something broke is suspect: it is done once more, alone, when everything else is through.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from dataclasses import dataclass, replace
from pathlib import Path

from nbformat import NotebookNode

from labkit.core.report import Status
from labkit.core.syllabus import Lab
from labkit.grading.judge.assembly import earlier_labs
from labkit.grading.judge.intake import rebuild
from labkit.grading.judge.judge import Graded, Submission, write_outputs, zero
from labkit.grading.judge.sandbox import GradingError
from labkit.grading.nbgrader.course import Course, SubmittedFile
from labkit.grading.run.pool import GradingPool
from labkit.grading.run.results import GradingSpec, Results, Verdict, digest, file_content

BATCH, SECONDS = 32, 2.0  # the gradebook is written after so many results or so much time
GUILTY = "grading broke off twice at this submission; a person has to look at it"
STALLS = 3


class Stalled(GradingError):
    """The crew gives no results any more."""


@dataclass(frozen=True)
class Row:
    """One learner in the class table."""

    learner: str
    submission: Submission

    @property
    def why(self) -> str:
        """The first reason for lost points, in a few words."""
        lost = [g for g in self.submission.exercises if g.score < g.exercise.points]
        if self.submission.problem:
            return self.submission.problem
        if not lost:
            notes = [text for g in self.submission.exercises for label, text in g.report.rows
                     if label == "note"]  # fmt: skip
            return f"remark: {notes[0]}" if notes else "all checks passed"
        if len(lost) > 1 and len({reason(g) for g in lost}) == 1:
            return reason(lost[0])
        return f"{lost[0].exercise.id}: {reason(lost[0])}"


def reason(graded: Graded) -> str:
    return ", or ".join(graded.why) or graded.look


def layers_of(rows: list[Row]) -> list[str]:
    """The layers of protection round all learner code of a class; [] if none was run."""
    ran = [row.submission.layers for row in rows if row.submission.layers]
    return [layer for layer in ran[0] if all(layer in one for one in ran)] if ran else []


@dataclass(frozen=True)
class Task:
    """One content to grade, and everybody who handed it in; it is read again when its turn
    comes, since a class may be larger than the memory."""

    key: str
    before: str  # what they handed in for earlier labs, as JSON, where that counts
    handed: tuple[SubmittedFile, ...]


def grade_lab(
    course: Course,
    lab: Lab,
    progress: Callable[[int, int], None] = lambda *_: None,
    crew: GradingPool | None = None,
    fresh: bool = False,
) -> list[Row]:
    """Grade what has no result yet, store all results, return the class in its order.

    progress    called with the numbers of learners done and of all
    fresh       grade again what has a result
    """
    if crew is None:
        with GradingPool() as own:
            return grade_lab(course, lab, progress, own, fresh)
    setup = crew.setup(lab, course.released(lab), course.secret())
    results = Results(course.root / ".results" / lab.name)
    tasks = tasks_of(course, lab, setup)
    total = sum(len(task.handed) for task in tasks)
    found: dict[str, Verdict] = {}
    count = 0
    with GradebookWriter(course, lab, course.released(lab)) as writer:

        def done(task: Task, verdict: Verdict) -> None:
            nonlocal count
            writer.add(task, verdict)
            found.update({one.learner: replace(verdict, notebook=b"") for one in task.handed})
            count += len(task.handed)
            progress(count, total)

        todo = []
        for task in tasks:
            verdict = None if fresh else results.get(task.key)
            if verdict is None:
                todo.append(task)
            else:
                done(task, verdict)
        for task, verdict in verdicts(todo, setup, crew):
            if verdict is None:
                done(task, guilty(lab, course))
            else:
                results.put(task.key, verdict)
                done(task, verdict)
    return [Row(name, found[name].submission()) for name in sorted(found)]


def tasks_of(course: Course, lab: Lab, setup: GradingSpec) -> list[Task]:
    same: dict[tuple[str, str], list[SubmittedFile]] = {}
    for handed in course.submitted(lab):
        answers = course.answers(earlier_labs(lab), handed.learner)
        before = json.dumps({one.module: cells for one, cells in answers.items()})
        same.setdefault((setup.key(handed.read(), before), before), []).append(handed)
    return [Task(key, before, tuple(handed)) for (key, before), handed in same.items()]


def guilty(lab: Lab, course: Course) -> Verdict:
    """No points yet, for a submission at which the judge itself broke."""
    graded = [zero(exercise, GUILTY, Status.NOT_CHECKED) for exercise in lab.exercises]
    notebook = course.released(lab)
    write_outputs(notebook, graded)
    return Verdict.of(Submission(lab, graded, notebook, GUILTY))


def verdicts(
    tasks: Iterable[Task], setup: GradingSpec, crew: GradingPool
) -> Iterator[tuple[Task, Verdict | None]]:
    """Every task with its verdict as soon as there is one; None: broke off twice.

    A verdict that the wall clock decided is asked for once more, too, so that a busy machine
    changes no score.
    """
    late: list[Task] = []
    broken: list[Task] = []
    for task, verdict in flow(tasks, setup, crew, last=False):
        if verdict is None or verdict.late:
            (broken if verdict is None else late).append(task)
        else:
            yield task, verdict
    for task, verdict in flow(late, setup, crew):
        if verdict is None:
            broken.append(task)
        else:
            yield task, verdict
    yield from flow(broken, setup, crew, together=False)


def flow(
    tasks: Iterable[Task],
    setup: GradingSpec,
    crew: GradingPool,
    together: bool = True,
    last: bool = True,
) -> Iterator[tuple[Task, Verdict | None]]:
    """Keep the crew busy; None for what was under way when it broke or hung."""
    waiting, flying, stalls = deque(tasks), dict[Future[Verdict], Task](), 0
    while waiting or flying:
        try:
            while waiting and len(flying) < (crew.width if together else 1):
                task = waiting[0]
                data = task.handed[0].read()
                task = replace(task, key=setup.key(data, task.before))  # perhaps a new one
                flying[crew.submit(setup, data, task.before, last)] = task
                waiting.popleft()
            done, _ = wait(flying, timeout=crew.patience, return_when=FIRST_COMPLETED)
        except OSError as error:  # the scheduler is gone
            raise Stalled(f"no results can be had ({error})") from error
        except RuntimeError:  # the pool broke before it could be given anything
            done = set()
        if not done:
            stalls += 1
            if stalls == STALLS:
                raise Stalled("no results are coming any more")
            yield from given_up(crew, flying)
        good = True
        for future in [one for one in flying if one in done]:
            verdict, fine = outcome(future)
            good, stalls = good and fine, stalls if verdict is None else 0
            yield flying.pop(future), verdict
        if not good:
            yield from given_up(crew, flying)


def given_up(
    crew: GradingPool, flying: dict[Future[Verdict], Task]
) -> Iterator[tuple[Task, None]]:
    crew.stop()
    tasks = list(flying.values())
    flying.clear()
    yield from ((task, None) for task in tasks)


def outcome(future: Future[Verdict]) -> tuple[Verdict | None, bool]:
    """The verdict, if there is one, and whether the crew is still good."""
    try:
        return future.result(), True
    except GradingError:
        raise
    except (BrokenExecutor, CancelledError, asyncio.CancelledError, OSError):
        return None, False
    except Exception:  # raised by the judge itself, or Dask's KilledWorker
        return None, True


class GradebookWriter:
    """The only one who writes the gradebook: in short transactions, a batch at a time."""

    def __init__(self, course: Course, lab: Lab, released: NotebookNode):
        self.course, self.lab, self.released = course, lab, released
        self.pending: list[tuple[SubmittedFile, Verdict]] = []
        self.last = time.monotonic()

    def __enter__(self) -> GradebookWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()

    def add(self, task: Task, verdict: Verdict) -> None:
        self.pending += [(one, verdict) for one in task.handed]
        if len(self.pending) >= BATCH or time.monotonic() - self.last > SECONDS:
            self.flush()

    def flush(self) -> None:
        batch, self.pending, self.last = self.pending, [], time.monotonic()
        if not batch:
            return
        self.course.record(self.lab, batch)
        for handed, verdict in batch:
            path = self.course.autograded(handed)
            if not path.exists() or digest(path.read_bytes()) != verdict.digest:
                written(path, verdict.notebook or self._notebook(handed, verdict))

    def _notebook(self, handed: SubmittedFile, verdict: Verdict) -> bytes:
        """The graded notebook of a result that was there already."""
        notebook = rebuild(handed.read(), self.released, self.lab).notebook
        write_outputs(notebook, verdict.submission().exercises)
        return file_content(notebook)


def written(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    temporary.write_bytes(content)
    temporary.replace(path)
