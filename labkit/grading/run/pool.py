"""Who does the judging: processes of this machine, or those of a Dask cluster.

Both are executors of concurrent.futures and are given the same function, `grade`. Whatever
dies, the crew is made anew; what was finished is kept by whoever holds the crew.
"""

from __future__ import annotations

import atexit
import gc
import json
import multiprocessing
import os
import signal
import threading
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import suppress
from functools import lru_cache
from multiprocessing import forkserver
from multiprocessing.util import Finalize
from typing import Any

import nbformat
import torch
from nbformat import NotebookNode

from labkit.core.syllabus import Lab, find_lab
from labkit.grading.judge.judge import REMEMBER, Judge
from labkit.grading.judge.probe import best_sandbox
from labkit.grading.judge.sandbox import GradingError, Sandbox, required
from labkit.grading.judge.worker_client import ONE_THREAD, WorkerLauncher
from labkit.grading.run.results import GradingSpec, Verdict, judging
from labkit.sandboxed.limits import CPU_SECONDS

PATIENCE = 600  # seconds without any result after which a crew is taken for stuck
CONNECT = 20  # seconds to reach a Dask scheduler
ONE_AT_A_TIME = threading.Lock()  # a Dask worker may have several threads
FORKSERVER = hasattr(os, "fork")


class OtherVersion(GradingError):
    """A worker of the cluster has another version of the course than this machine."""


# In the judge's process


def grade(setup: GradingSpec, data: bytes, before: str, last: bool) -> Verdict:
    """The verdict on one submission; what an executor is given to do."""
    earlier = {find_lab(module): answers for module, answers in json.loads(before).items()}
    with ONE_AT_A_TIME:
        return Verdict.of(judge_for(setup).grade(data, earlier, last))


@lru_cache(maxsize=4)
def judge_for(setup: GradingSpec) -> Judge:
    if judging(setup.lab) != setup.judging:
        raise OtherVersion("this worker has another version of the course, or of torch")
    lab = find_lab(setup.lab)
    workers = running_workers()
    if setup.require_sandbox:
        required(workers.sandbox)
    released = nbformat.reads(setup.released, as_version=4)
    return Judge(lab, released, setup.secret, workers, setup.cpu_seconds, setup.remember)


given: Sandbox | None = None  # by the process that started this one


@lru_cache(maxsize=1)
def running_workers() -> WorkerLauncher:
    """This process's sandbox, for all submissions of all labs."""
    torch.set_num_threads(1)
    workers = WorkerLauncher(given or best_sandbox())
    workers.__enter__()
    workers.prepare()
    Finalize(None, workers.__exit__, exitpriority=10)  # in processes of a pool
    atexit.register(workers.__exit__)  # in all others
    return workers


def begin(sandbox: Sandbox) -> None:
    """What a process of a pool does first."""
    global given
    given = sandbox
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asked
    threading.Thread(target=end_with_parent, daemon=True).start()
    gc.freeze()  # nothing of what is loaded ever becomes garbage: do not look for it
    running_workers()


def end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


# In the process that asks


class GradingPool:
    """An executor that can be made anew, as a context.

    jobs    processes on this machine; as many as it has cores if not said
    dask    the address of a Dask scheduler, whose workers then do the work
    cpu_seconds     that an exercise of a learner may take
    remember    how many verdicts a process keeps, see Judge
    """

    def __init__(
        self,
        jobs: int | None = None,
        dask: str | None = None,
        require_sandbox: bool = False,
        patience: float = PATIENCE,
        cpu_seconds: int = CPU_SECONDS,
        remember: int = REMEMBER,
    ):
        self.jobs, self.dask, self.require_sandbox = jobs or cores(), dask, require_sandbox
        self.patience, self.cpu_seconds, self.remember = patience, cpu_seconds, remember
        self.executor: Executor | None = None
        self.client: Any = None

    def __enter__(self) -> GradingPool:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.stop(at_once=kind is not None)

    @property
    def width(self) -> int:
        """How many submissions are under way at a time."""
        if self.client is not None:
            return 2 * max(1, sum(self.client.nthreads().values()))
        return 2 * self.jobs

    def setup(self, lab: Lab, released: NotebookNode, secret: bytes) -> GradingSpec:
        """What its processes are told of a lab."""
        return GradingSpec.of(
            lab, released, secret, require_sandbox=self.require_sandbox,
            cpu_seconds=self.cpu_seconds, remember=self.remember,
        )  # fmt: skip

    def submit(
        self, setup: GradingSpec, data: bytes, before: str = "{}", last: bool = True
    ) -> Future[Verdict]:
        if self.executor is None:
            self.executor = self._cluster() if self.dask else self._processes()
        return self.executor.submit(grade, setup, data, before, last)

    def stop(self, at_once: bool = True) -> None:
        """Give the executor up, with what it is doing; the next submission starts another."""
        executor, self.executor = self.executor, None
        client, self.client = self.client, None
        if client is not None:
            with suppress(TimeoutError, OSError):  # it may be gone
                client.close(timeout=5)  # its executor's futures are cancelled with it
        elif executor is not None:
            processes = list((getattr(executor, "_processes", None) or {}).values())
            executor.shutdown(wait=not at_once, cancel_futures=True)
            for process in processes if at_once else ():
                process.kill()

    def sandbox(self) -> Sandbox:
        """That of this machine; raises NoSandbox where one is required and there is none."""
        return required(best_sandbox()) if self.require_sandbox else best_sandbox()

    def _processes(self) -> Executor:
        context = multiprocessing.get_context("forkserver" if FORKSERVER else "spawn")
        before = {name: os.environ.get(name) for name in ONE_THREAD}
        os.environ |= dict.fromkeys(ONE_THREAD, "1")  # read when torch is imported
        try:
            if FORKSERVER:  # it imports torch once, while the sandbox is tried out here
                context.set_forkserver_preload(["__main__", __name__])
                forkserver.ensure_running()
            pool = ProcessPoolExecutor(self.jobs, context, begin, (self.sandbox(),))
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
        return pool

    def _cluster(self) -> Executor:
        try:
            from distributed import Client
        except ModuleNotFoundError as error:
            raise GradingError(
                "Dask is not installed here; "
                "`pip install -c constraints.txt -e .[dask]` installs it"
            ) from error
        try:
            self.client = Client(self.dask, timeout=CONNECT, set_as_default=False)
        except OSError as error:
            raise GradingError(f"there is no Dask scheduler at {self.dask}") from error
        return self.client.get_executor(pure=False)


def cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
