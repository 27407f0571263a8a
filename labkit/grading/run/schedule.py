"""Grading all submissions of a lab with a pool, into results and from there into the gradebook.

A verdict is stored as soon as it exists and never made again, so a run that was stopped or
killed goes on where it was. A submission whose judging process died or hung is judged once
more, alone, after all others; so is one that the wall clock stopped, as the machine may have
been busy. One that fails twice needs a person.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from dataclasses import dataclass
from itertools import islice

from nbformat import NotebookNode

from labkit.course.files import of_the_disk
from labkit.course.paths import fault
from labkit.course.syllabus import Lab
from labkit.grading.judge.graded import BROKE_OFF, GradedSubmission
from labkit.grading.judge.intake import earlier_labs
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.graded_notebook import (
    graded_notebook,
    mark_in,
    read_content,
    remarks_on,
    set_mark,
)
from labkit.grading.nbgrader.published import HAND_IN, Published
from labkit.grading.nbgrader.submitted import GradedFile, Remark, SubmittedFile
from labkit.grading.pages import mark_of
from labkit.grading.run.pool import GradingPool
from labkit.grading.run.results import GradingSpec, Results
from labkit.sandbox.bubblewrap import GradingError

BATCH = 32  # results that the gradebook gets in one transaction
POOL_BROKE = (BrokenExecutor, CancelledError, asyncio.CancelledError, OSError)
Class = dict[str, GradedSubmission]  # sorted by learner


@dataclass(frozen=True)
class Task:
    """One submission, read when it is to be judged.

    key      the name of its result
    before   the learner's answers to earlier labs, as JSON, if they count
    """

    key: str
    before: str
    handed: SubmittedFile
    data: bytes


Outcomes = Iterator[tuple[Task, GradedSubmission | BaseException]]
Submit = Callable[[Task], Future[GradedSubmission]]


def grade_lab(
    course: Course,
    lab: Lab,
    pool: GradingPool,
    progress: Callable[[int, int], None] = lambda *_: None,
    fresh: bool = False,
    as_published: bool = False,
    only: Collection[str] = (),
) -> Class:
    """Grade the submissions that have no result yet, and store all results.

    pool            judges a submission, in some process
    progress        called with the numbers of submissions done and of all
    fresh           also grade submissions that have a result
    as_published    keep a published grade of the same notebook, whichever version judged it
    only            some learners; by default all
    Returns {learner: verdict}. If the judge fails for a submission although the reference
    passes, the learner gets a remark and no grade. Raises GradingError if nothing can be
    graded.
    """
    released, points = course.released(lab), course.rules.lab(lab)
    options = {"unsandboxed": pool.unsandboxed, "cpu_seconds": pool.cpu_seconds}
    spec = GradingSpec.of(lab, released, course.secret(), **options)
    results = Results(course.root, lab)
    files, error = list(course.submitted(lab, only)), None
    given_out = Published(course.root, lab.name).out if as_published else {}
    keys_out = {learner: grade.key for learner, grade in given_out.items()}
    tasks = (task_of(course, lab, spec, handed, results, keys_out) for handed in files)
    graded: Class = {}
    keys: dict[str, str | None] = {}
    pending: list[GradedFile] = []
    try:
        for task, outcome in verdicts(tasks, results, spec, pool, fresh):
            learner = task.handed.learner
            if isinstance(outcome, GradedSubmission):
                keys[learner], graded[learner] = task.key, outcome.worth(points)
                pending += graded_file(course, released, spec, task, graded[learner])
            else:
                keys[learner], error = None, first_line(outcome)
                again = f"{BROKE_OFF} ({error}); the same command tries again"
                course.remarks.append(Remark(again, learner))
            progress(len(keys), len(files))
            if len(pending) == BATCH:
                course.store(lab, pending)
                course.feedback(lab, [file.handed.learner for file in pending])
                pending = []
    finally:  # Ctrl-C loses nothing
        course.store(lab, pending)
    if keys and not graded:
        raise GradingError(
            f"nothing is graded: the judge fails at every submission ({error}); try the same "
            "command again, or tell us"
        )
    results.put_class({**results.keys(), **keys} if only else keys)
    return dict(sorted(graded.items()))


def graded_file(
    course: Course,
    released: NotebookNode,
    spec: GradingSpec,
    task: Task,
    submission: GradedSubmission,
) -> list[GradedFile]:
    """The entry for the gradebook. An error of the course at this notebook becomes a remark."""
    learner, lab, remarks = task.handed.learner, task.handed.lab, course.remarks
    mark = mark_of(spec.released.encode(), task.key, submission)
    try:
        notebook = before = read_content(course.autograded(lab, learner))
        if mark_in(before) != mark:
            notebook = graded_notebook(task.data, released, lab, submission)
            set_mark(notebook, mark)
        found = remarks_on(notebook, lab)
    except Exception as error:
        remarks.append(Remark(f"not recorded: {fault(error)}", learner))
        return []
    remarks += [Remark(text, learner) for text in found]
    return [GradedFile(task.handed, submission, notebook, before)]


def first_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".partition("\n")[0].split())


def task_of(
    course: Course,
    lab: Lab,
    spec: GradingSpec,
    handed: SubmittedFile,
    results: Results,
    keys_out: Mapping[str, str],
) -> Task:
    """The task of a submission, by the result that was given out if that is of the same one."""
    data, before = handed.read(), as_json(course.answers(earlier_labs(lab), handed.learner))
    key, given = spec.key(data, before), keys_out.get(handed.learner, "")
    if given[:HAND_IN] == key[:HAND_IN] and results.get(given):
        key = given
    return Task(key, before, handed, data)


def as_json(answers: dict[Lab, dict[str, str | None]]) -> str:
    return json.dumps({lab.module: cells for lab, cells in answers.items()})


def verdicts(
    tasks: Iterator[Task], results: Results, spec: GradingSpec, pool: GradingPool, fresh: bool
) -> Outcomes:
    """Yield each task with its verdict, which is stored, or with its second error."""
    stored: set[str] = set()

    def submit(task: Task) -> Future[GradedSubmission]:
        found = None if fresh else results.get(task.key)
        if found is None:
            return pool.submit(spec, task.data, task.before)
        stored.add(task.key)
        future: Future[GradedSubmission] = Future()
        future.set_result(found)
        return future

    for task, outcome in judged(tasks, submit, pool):
        if isinstance(outcome, GradedSubmission) and task.key not in stored:
            results.put(task.key, outcome)
        yield task, outcome


def judged(tasks: Iterator[Task], submit: Submit, pool: GradingPool) -> Outcomes:
    """Yield each task with its verdict as soon as there is one, or with its second error."""
    again: list[Task] = []
    for task, outcome in one_round(tasks, submit, pool):
        if isinstance(outcome, GradedSubmission) and not outcome.timed_out:
            yield task, outcome
        else:
            again.append(task)
    for task in again:
        yield from one_round(iter([task]), submit, pool)


def one_round(tasks: Iterator[Task], submit: Submit, pool: GradingPool) -> Outcomes:
    """Keep the pool busy. Tasks in flight when the pool broke or hung get an error."""
    running: dict[Future[GradedSubmission], Task] = {}
    while True:
        for task in islice(tasks, max(0, pool.width - len(running))):
            running[submit(task)] = task
        if not running:
            return
        done, _ = wait(running, timeout=pool.patience, return_when=FIRST_COMPLETED)
        is_broken = not done
        for future in [future for future in running if future in done]:  # in order
            task, outcome = running.pop(future), outcome_of(future)
            is_broken |= isinstance(outcome, POOL_BROKE)
            yield task, outcome
        if is_broken:
            pool.stop()
            for task in running.values():
                yield task, TimeoutError("no answer came in time")
            running.clear()


def outcome_of(future: Future[GradedSubmission]) -> GradedSubmission | BaseException:
    """Return the verdict, or why there is none. Raises the errors that stop the whole class."""
    try:
        return future.result()
    except GradingError:
        raise
    except (Exception, asyncio.CancelledError) as error:
        if of_the_disk(error):
            raise
        return error
