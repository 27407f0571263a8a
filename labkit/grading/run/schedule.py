"""Grading all submissions of a lab with a pool, into results and from there into the gradebook.

What is finished is written down at once and never done again. What was under way when
something broke is suspect, and what the wall clock stopped may have met a busy machine: both
are done once more, alone, when everything else is through.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace

from nbformat import NotebookNode

from labkit.core.files import of_the_disk
from labkit.core.paths import fault
from labkit.core.syllabus import Lab
from labkit.grading.judge.graded import BROKE_OFF, GradedSubmission
from labkit.grading.judge.intake import earlier_labs
from labkit.grading.nbgrader.course import Course, SubmittedFile
from labkit.grading.nbgrader.graded_notebook import graded_notebook, remarks_on
from labkit.grading.run.pool import GradingPool
from labkit.grading.run.results import GradingSpec, Results, UnreadableResult
from labkit.lang import tr
from labkit.sandbox.bubblewrap import GradingError

BATCH, SECONDS = 32, 2.0  # the gradebook is written after so many results or so much time
STALLS = 3
Class = dict[str, GradedSubmission]  # by learner, in their order


@dataclass(frozen=True)
class Task:
    """One content to grade, and everybody who handed it in; it is read again when its turn
    comes, since a class may be larger than the memory."""

    key: str
    before: str  # what they handed in for earlier labs, as JSON, where that counts
    handed: tuple[SubmittedFile, ...]
    data: bytes = b""  # the content, when its turn has come
    error: BaseException | None = None  # of ours, at which grading broke off


Finished = Iterator[tuple[Task, GradedSubmission | None]]  # None: grading broke off


def grade_lab(
    course: Course,
    lab: Lab,
    pool: GradingPool,
    progress: Callable[[int, int], None] = lambda *_: None,
    fresh: bool = False,
) -> Class:
    """Grade what has no result yet, store all results, return the class in its order.

    A fault of ours is no grade: a learner at whom the judge fails, although the reference is
    right, is a remark. GradingError if that is everybody.

    progress    called with the numbers of learners done and of all
    fresh       grade again what has a result
    """
    released, points = course.released(lab), course.rules.lab(lab)
    spec, results = pool.spec(lab, released, course.secret()), Results(course.root, lab)
    tasks = tasks_of(course, lab, spec)
    total = sum(len(task.handed) for task in tasks)
    graded: Class = {}
    keys: dict[str, str | None] = {}
    with GradebookWriter(course, lab, released) as writer:
        for task, submission in with_stored(tasks, results, fresh, spec, pool):
            learners = [handed.learner for handed in task.handed]
            keys |= dict.fromkeys(learners, task.key if submission else None)
            if submission is None:
                why = first_line(task.error)
                again = f"{BROKE_OFF} ({why}); the same command tries again"
                course.remarks += [f"{learner}: {again}" for learner in learners]
            else:
                submission = submission.worth(points)
                writer.add(task, submission)
                graded |= dict.fromkeys(learners, submission)
            progress(len(keys), total)
    if keys and not graded:
        raise GradingError(
            f"nothing is graded: the judge fails at every submission ({why}); try the same "
            "command again, or tell us"
        )
    results.put_class(keys)
    return dict(sorted(graded.items()))


def first_line(error: BaseException | None) -> str:
    if error is None:
        return "no answer came in time"
    return " ".join(f"{type(error).__name__}: {error}".partition("\n")[0].split())


def tasks_of(course: Course, lab: Lab, spec: GradingSpec) -> list[Task]:
    same: dict[tuple[str, str], list[SubmittedFile]] = {}
    for handed in course.submitted(lab):
        answers = course.answers(earlier_labs(lab), handed.learner)
        before = as_json(answers)
        same.setdefault((spec.key(handed.read(), before), before), []).append(handed)
    return [Task(key, before, tuple(handed)) for (key, before), handed in same.items()]


def as_json(answers: dict[Lab, dict[str, str | None]]) -> str:
    return json.dumps({each.module: cells for each, cells in answers.items()})


def with_stored(
    tasks: Iterable[Task], results: Results, fresh: bool, spec: GradingSpec, pool: GradingPool
) -> Finished:
    """Every task with its record: those that are there first, then new ones, stored at once."""
    todo = []
    for task in tasks:
        stored = None if fresh else results.get(task.key)
        if stored is None or was_bare(stored, pool):
            todo.append(task)
        else:
            yield task, stored
    for task, submission in judged(todo, spec, pool):
        if submission is not None:
            results.put(task.key, submission)
        yield task, submission


def was_bare(stored: GradedSubmission, pool: GradingPool) -> bool:
    """Whether learner code ran without the sandbox that there is now."""
    bare = bool(stored.layers) and "bubblewrap" not in stored.layers
    return bare and not pool.address and pool.sandbox().bubblewrap is not None


def judged(tasks: Iterable[Task], spec: GradingSpec, pool: GradingPool) -> Finished:
    """Every task with its record as soon as there is one; None: broke off twice."""
    again: list[Task] = []
    for task, submission in one_round(tasks, spec, pool):
        if submission is None or submission.timed_out:
            again.append(task)
        else:
            yield task, submission
    yield from one_round(again, spec, pool, alone=True)


def one_round(
    tasks: Iterable[Task], spec: GradingSpec, pool: GradingPool, alone: bool = False
) -> Finished:
    """Keep the pool busy; None for what was under way when it broke or hung."""
    waiting, running, stalls = deque(tasks), dict[Future[GradedSubmission], Task](), 0
    while waiting or running:
        try:
            while waiting and len(running) < (1 if alone else pool.width):
                task = waiting[0]
                data = task.handed[0].read()
                key = spec.key(data, task.before)  # perhaps a new one
                first, others = task.handed[:1], task.handed[1:]
                if key != task.key and others:  # only the first one's file has changed
                    waiting.insert(1, replace(task, handed=others))
                    task = replace(task, handed=first)
                task = replace(task, key=key, data=data)
                running[pool.submit(spec, data, task.before)] = task
                waiting.popleft()
            done, _ = wait(running, timeout=pool.patience, return_when=FIRST_COMPLETED)
        except OSError as error:  # the scheduler is gone
            if of_the_disk(error):
                raise
            raise GradingError(tr("no results can be had ({error})", error=error)) from error
        except RuntimeError:  # the pool broke before it could be given anything
            done = set()
        if not done:
            stalls += 1
            if stalls == STALLS:
                raise GradingError(tr("no results are coming any more"))
        works = bool(done)
        for future in [each for each in running if each in done]:
            found, fine = outcome(future)
            failed, task = isinstance(found, BaseException), running.pop(future)
            works, stalls = works and fine, stalls if failed else 0
            yield (replace(task, error=found), None) if failed else (task, found)
        if not works:
            pool.stop()
            yield from ((task, None) for task in running.values())
            running.clear()


def outcome(future: Future[GradedSubmission]) -> tuple[GradedSubmission | BaseException, bool]:
    """The record, or why there is none, and whether the pool still works."""
    try:
        return future.result(), True
    except GradingError:
        raise
    except (BrokenExecutor, CancelledError, asyncio.CancelledError, OSError) as error:
        if of_the_disk(error):
            raise
        return error, False
    except Exception as error:  # raised by the judge itself, or Dask's KilledWorker
        return error, True


class GradebookWriter:
    """The only one who writes the gradebook: in short transactions, a batch at a time."""

    def __init__(self, course: Course, lab: Lab, released: NotebookNode):
        self.course, self.lab, self.released = course, lab, released
        self.pending: list[tuple[SubmittedFile, GradedSubmission, NotebookNode]] = []
        self.last = time.monotonic()
        self.before: dict[str, str | None] = {}
        self.unchanged: set[str] = set()
        with suppress(UnreadableResult):  # it is made again
            self.before = Results(course.root, lab).keys()

    def __enter__(self) -> GradebookWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()

    def add(self, task: Task, submission: GradedSubmission) -> None:
        data = task.data or task.handed[0].read()
        try:
            notebook = graded_notebook(data, self.released, self.lab, submission)
            remarks = remarks_on(data, notebook, self.lab)
        except Exception as error:  # of ours, at this notebook: it must not stop a class
            for handed in task.handed:
                self.course.remarks.append(
                    tr(
                        "{learner}: not recorded: {fault}",
                        learner=handed.learner,
                        fault=fault(error),
                    )
                )
            return
        self.pending += [(handed, submission, notebook) for handed in task.handed]
        for learner in (handed.learner for handed in task.handed):
            self.course.remarks += [f"{learner}: {text}" for text in remarks]
            if self.before.get(learner) == task.key:
                self.unchanged.add(learner)
        if len(self.pending) >= BATCH or time.monotonic() - self.last > SECONDS:
            self.flush()

    def flush(self) -> None:
        batch, self.pending, self.last = self.pending, [], time.monotonic()
        if batch:
            self.course.store(self.lab, batch, self.unchanged)
