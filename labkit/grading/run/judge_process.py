"""The functions of a judging process: an executor calls only `grade`.

The process keeps a judge for each lab, and one sandbox for all of them.
"""

from __future__ import annotations

import atexit
import gc
import json
import multiprocessing
import os
import signal
import threading
import warnings
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import nbformat

from labkit.course.paths import fault
from labkit.course.syllabus import find_lab
from labkit.grading.judge.graded import GradedSubmission
from labkit.grading.private_api import at_end_of_pool_process
from labkit.grading.run.results import GradingSpec, judging
from labkit.sandbox.bubblewrap import GradingError, Sandbox, permitted
from labkit.sandbox.probe import best_sandbox

if TYPE_CHECKING:
    from labkit.grading.judge.judge import Judge
    from labkit.sandbox.launch import WorkerLauncher

# these import torch, which the parent does not need
PRELOAD = (__name__, "labkit.grading.judge.judge")
ONE_AT_A_TIME = threading.Lock()  # a Dask worker may have several threads


def grade(spec: GradingSpec, data: bytes, before: str) -> GradedSubmission:
    """The verdict on the bytes of one notebook; before: earlier labs' answers as JSON."""
    earlier = {find_lab(module): answers for module, answers in json.loads(before).items()}
    with ONE_AT_A_TIME:
        return replace(judge_for(spec).grade(data, earlier), made_by=spec.made_by)


@lru_cache(maxsize=4)
def judge_for(spec: GradingSpec) -> Judge:
    """Return a judge with this process's workers. Errors: GradingError if its checks, its
    reference or its sandbox are not sound, since then every score would be wrong."""
    from labkit.grading.judge.judge import Judge

    if judging(spec.lab) != spec.judging:
        raise GradingError("this worker has another version of the course, or of torch")
    workers = running_workers()
    permitted(workers.sandbox, spec.unsandboxed)
    try:
        released = nbformat.reads(spec.released, as_version=4)
        judge = Judge(find_lab(spec.lab), released, spec.secret, workers, spec.cpu_seconds)
        judge.check_reference()
    except GradingError:
        raise
    except Exception as error:
        raise GradingError(f"nothing is graded: {fault(error)}") from error
    return judge


given_sandbox: Sandbox | None = None  # from the process that started this one


@lru_cache(maxsize=1)
def running_workers() -> WorkerLauncher:
    """Start this process's sandbox, for all submissions of all labs; return its launcher."""
    import torch

    from labkit.sandbox.launch import WorkerLauncher

    torch.set_num_threads(1)
    workers = WorkerLauncher(given_sandbox or best_sandbox())
    workers.__enter__()
    workers.prepare()
    at_end_of_pool_process(workers.__exit__)
    atexit.register(workers.__exit__)  # in any other process
    return workers


def begin(sandbox: Sandbox) -> None:
    """Initialize a process of a local pool."""
    global given_sandbox
    given_sandbox = sandbox
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C stops the process that submits
    threading.Thread(target=end_with_parent, daemon=True).start()
    warnings.simplefilter("ignore")  # some listed mistakes make torch warn
    gc.freeze()  # loaded modules never become garbage: do not scan them
    running_workers()


def warm_up() -> None:
    """Do nothing: once this has run, the process has started with all its imports."""


def end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
