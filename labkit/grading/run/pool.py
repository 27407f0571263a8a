"""The executor that judges: processes of this machine, or the workers of a Dask cluster.

Processes and not threads, since a process that hangs can be ended without the others. The price
is an import of
torch, which the fork server makes once for all of them.

Both are executors of concurrent.futures and get the same function, judge_process.grade. An
executor that died or hangs is stopped; the next submission starts a new one.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Callable
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import forkserver

from labkit.course.files import of_the_disk
from labkit.grading.judge.graded import GradedSubmission
from labkit.grading.private_api import processes_of
from labkit.grading.run import judge_process
from labkit.grading.run.results import GradingSpec
from labkit.sandbox.bubblewrap import GradingError, Sandbox, permitted
from labkit.sandbox.inside.limits import CPU_SECONDS
from labkit.sandbox.probe import best_sandbox

PATIENCE = 600  # seconds without any result after which an executor counts as hung
CONNECT = 20  # seconds to reach a Dask scheduler and its first worker
FORKSERVER = hasattr(os, "fork")


@dataclass(frozen=True)
class RunningExecutor:
    """An executor, how many submissions it judges at a time, and how to stop it: at once, or
    when its work is done."""

    executor: futures.Executor
    slots: Callable[[], int]
    stop: Callable[[bool], None]


class GradingPool:
    """An executor that starts with the first submission, or by `start`, as a context.

    jobs           processes on this machine; by default one for each core
    scheduler      the address of a Dask scheduler, whose workers judge instead
    unsandboxed    whether learner code may run without bubblewrap, see sandbox.permitted
    cpu_seconds    CPU time for each exercise of a learner
    announce       called with this machine's sandbox before learner code runs in it
    """

    def __init__(
        self,
        jobs: int | None = None,
        scheduler: str | None = None,
        unsandboxed: bool | None = None,
        patience: float = PATIENCE,
        cpu_seconds: int = CPU_SECONDS,
        announce: Callable[[Sandbox], None] = lambda _: None,
    ):
        self.jobs, self.scheduler = jobs or cores(), scheduler
        self.unsandboxed, self.patience = unsandboxed, patience
        self.cpu_seconds, self.announce = cpu_seconds, announce
        self.starting: futures.Future[RunningExecutor] | None = None
        self.running: RunningExecutor | None = None  # the executor in use

    def __enter__(self) -> GradingPool:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.stop(at_once=kind is not None or self.running is None)

    @property
    def width(self) -> int:
        """Submissions in flight: four times the slots, so that no process waits for the next
        one while results are written."""
        return 4 * (self.running.slots() if self.running else self.jobs)

    def start(self, submissions: int = 0) -> None:
        """Start the executor in a thread, with processes for this many submissions."""

        def start() -> RunningExecutor:
            running = EXECUTORS["dask" if self.scheduler else "processes"](self)
            for _ in range(min(submissions, running.slots())):
                running.executor.submit(judge_process.warm_up)
            return running

        thread = futures.ThreadPoolExecutor(1)
        self.starting = thread.submit(start)
        thread.shutdown(wait=False)

    def submit(
        self, spec: GradingSpec, data: bytes, before: str = "{}"
    ) -> futures.Future[GradedSubmission]:
        """Judge one submission. Errors: GradingError if nothing can be judged at all."""
        try:
            if self.running is None:
                if self.starting is None:
                    self.start()
                self.running = self.starting.result()
                if not self.scheduler:
                    self.announce(self.sandbox())
            return self.running.executor.submit(judge_process.grade, spec, data, before)
        except futures.BrokenExecutor as error:  # since the last result
            broken: futures.Future[GradedSubmission] = futures.Future()
            broken.set_exception(error)
            return broken
        except OSError as error:
            if of_the_disk(error):
                raise
            raise GradingError(f"nothing can be judged any more: {error}") from error

    def stop(self, at_once: bool = True) -> None:
        """Stop the executor and its work; the next submission starts a new one."""
        starting, self.starting, self.running = self.starting, None, None
        if starting and not starting.exception():
            starting.result().stop(at_once)

    def sandbox(self) -> Sandbox:
        """This machine's sandbox. Errors: GradingError if there is none and one is required."""
        return permitted(best_sandbox(), self.unsandboxed)


def local_processes(pool: GradingPool) -> RunningExecutor:
    """Processes of this machine, forked from a server that has imported torch once."""
    context = multiprocessing.get_context("forkserver" if FORKSERVER else "spawn")
    if FORKSERVER:  # the server imports torch while the sandbox is tried in this process
        context.set_forkserver_preload(["__main__", *judge_process.PRELOAD])
        forkserver.ensure_running()
    first = (pool.sandbox(),)
    executor = futures.ProcessPoolExecutor(pool.jobs, context, judge_process.begin, first)

    def stop(at_once: bool) -> None:
        processes = processes_of(executor) if at_once else []
        executor.shutdown(wait=not at_once, cancel_futures=True)
        for process in processes:
            process.kill()

    return RunningExecutor(executor, lambda: pool.jobs, stop)


def dask_cluster(pool: GradingPool) -> RunningExecutor:
    """Return the workers of a Dask scheduler, as many as it has at the moment."""
    try:
        from distributed import Client

        client = Client(pool.scheduler, timeout=CONNECT, set_as_default=False)
        client.wait_for_workers(1, timeout=CONNECT)
    except ModuleNotFoundError as error:
        install = "pip install -c constraints.txt -e '.[dask]'"
        raise GradingError(f"Dask is not installed here; `{install}` installs it") from error
    except (OSError, asyncio.TimeoutError) as error:
        problem = f"no Dask scheduler with a worker at {pool.scheduler}"
        raise GradingError(f"{problem}: start them there, then try again") from error

    def stop(at_once: bool) -> None:
        with suppress(OSError, asyncio.TimeoutError):  # the scheduler may be gone
            client.close(timeout=5)  # this cancels the executor's futures

    executor = client.get_executor(pure=False)
    return RunningExecutor(executor, lambda: sum(client.nthreads().values()) or 1, stop)


EXECUTORS: dict[str, Callable[[GradingPool], RunningExecutor]] = {
    "processes": local_processes,
    "dask": dask_cluster,
}


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
