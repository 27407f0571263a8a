"""Who does the judging: an executor of concurrent.futures, by one of the ways in EXECUTORS.

Each is given the same function, judge_process.grade. Whatever dies, the executor is made anew;
what was finished is kept by whoever holds the pool.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import forkserver

from nbformat import NotebookNode

from labkit.core.syllabus import Lab
from labkit.grading.judge.graded import GradedSubmission
from labkit.grading.private_api import processes_of
from labkit.grading.run import judge_process
from labkit.grading.run.results import GradingSpec
from labkit.lang import tr
from labkit.sandbox.bubblewrap import ONE_THREAD, GradingError, Sandbox, permitted
from labkit.sandbox.inside.limits import CPU_SECONDS
from labkit.sandbox.probe import best_sandbox

PATIENCE = 600  # seconds without any result after which an executor is taken for stuck
CONNECT = 20  # seconds to reach a Dask scheduler
FORKSERVER = hasattr(os, "fork")


@dataclass(frozen=True)
class RunningExecutor:
    """An executor, and what concurrent.futures has no word for.

    slots    how many submissions it judges at a time
    stop     end it: now, with what it is doing, or when that is done
    """

    executor: Executor
    slots: Callable[[], int]
    stop: Callable[[bool], None]


class GradingPool:
    """An executor that can be made anew, as a context.

    jobs        processes on this machine; as many as it has cores if not said
    way         one of EXECUTORS
    address     of whoever does the work in that way, where it is elsewhere
    unsandboxed     whether learner code may run without bubblewrap, see sandbox.permitted
    cpu_seconds     that an exercise of a learner may take
    announce        called with this machine's sandbox before learner code runs in it
    """

    def __init__(
        self,
        jobs: int | None = None,
        way: str = "processes",
        address: str | None = None,
        unsandboxed: bool | None = None,
        patience: float = PATIENCE,
        cpu_seconds: int = CPU_SECONDS,
        announce: Callable[[Sandbox], None] = lambda _: None,
    ):
        self.jobs, self.way, self.address = jobs or cores(), way, address
        self.unsandboxed, self.patience = unsandboxed, patience
        self.cpu_seconds, self.announce = cpu_seconds, announce
        self.running: RunningExecutor | None = None
        self.beside: Future[RunningExecutor] | None = None  # see begin

    def __enter__(self) -> GradingPool:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.stop(at_once=kind is not None)

    @property
    def width(self) -> int:
        """How many submissions are under way at a time: nobody waits for the next one."""
        return 2 * (self.running.slots() if self.running else self.jobs)

    def spec(self, lab: Lab, released: NotebookNode, secret: bytes) -> GradingSpec:
        """What its processes have to know of a lab."""
        options = {"unsandboxed": self.unsandboxed, "cpu_seconds": self.cpu_seconds}
        return GradingSpec.of(lab, released, secret, **options)

    def submit(
        self, spec: GradingSpec, data: bytes, before: str = "{}"
    ) -> Future[GradedSubmission]:
        if self.running is None:
            beside, self.beside = self.beside, None
            self.running = beside.result() if beside else EXECUTORS[self.way](self)
            if not self.address:
                self.announce(self.sandbox())
        return self.running.executor.submit(judge_process.grade, spec, data, before)

    def begin(self, submissions: int) -> None:
        """Start beside whatever is to be done before so many submissions are known."""

        def start() -> RunningExecutor:
            running = EXECUTORS[self.way](self)
            for _ in range(min(submissions, running.slots())):
                running.executor.submit(judge_process.ready)
            return running

        if submissions:
            thread = ThreadPoolExecutor(1)
            self.beside = thread.submit(start)
            thread.shutdown(wait=False)

    def stop(self, at_once: bool = True) -> None:
        """Give the executor up, with what it is doing; the next submission starts another."""
        running, self.running = self.running, None
        if self.beside is not None:  # nobody asked for it
            at_once = True
            with suppress(Exception):
                running = self.beside.result()
            self.beside = None
        if running is not None:
            running.stop(at_once)

    def sandbox(self) -> Sandbox:
        """That of this machine; raises NoSandbox where there is none and one is wanted."""
        return permitted(best_sandbox(), self.unsandboxed)


def local_processes(pool: GradingPool) -> RunningExecutor:
    """Processes of this machine, forked from a server that has imported torch once."""
    context = multiprocessing.get_context("forkserver" if FORKSERVER else "spawn")
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ |= dict.fromkeys(ONE_THREAD, "1")  # read when torch is imported
    try:
        if FORKSERVER:  # it imports torch while the sandbox is tried out here
            context.set_forkserver_preload(["__main__", *judge_process.PRELOAD])
            forkserver.ensure_running()
        first = (pool.sandbox(),)
        executor = ProcessPoolExecutor(pool.jobs, context, judge_process.begin, first)
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})

    def stop(at_once: bool) -> None:
        processes = processes_of(executor) if at_once else []
        executor.shutdown(wait=not at_once, cancel_futures=True)
        for process in processes:
            process.kill()

    return RunningExecutor(executor, lambda: pool.jobs, stop)


def dask_cluster(pool: GradingPool) -> RunningExecutor:
    """The workers of a Dask scheduler, as many as there are at the moment."""
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise GradingError(
            tr(
                "Dask is not installed here; `pip install -c constraints.txt -e "
                ".[dask]` installs it"
            )
        ) from error
    try:
        client = Client(pool.address, timeout=CONNECT, set_as_default=False)
    except OSError as error:
        raise GradingError(
            tr("there is no Dask scheduler at {address}", address=pool.address)
        ) from error

    def stop(at_once: bool) -> None:
        with suppress(TimeoutError, OSError):  # it may be gone
            client.close(timeout=5)  # its executor's futures are cancelled with it

    def slots() -> int:
        return max(1, sum(client.nthreads().values()))

    return RunningExecutor(client.get_executor(pure=False), slots, stop)


# A further way to judge is an entry here, and an option of `tinyllm grade`.
EXECUTORS: dict[str, Callable[[GradingPool], RunningExecutor]] = {
    "processes": local_processes,
    "dask": dask_cluster,
}


def cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
