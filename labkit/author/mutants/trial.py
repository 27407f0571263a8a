"""Trying mutants: each in a child process of its own, which may crash or never end."""

from __future__ import annotations

import multiprocessing
import resource
import signal
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

import torch

from labkit.author.mutants.making import Mutant
from labkit.author.reference import reference
from labkit.checks.declared import prepared_checks
from labkit.checks.mistakes import Oracle
from labkit.checks.runner import BrokenCheck, CheckResult, run_check, run_checks
from labkit.course import cells
from labkit.course.syllabus import Exercise, Lab
from labkit.sandbox.inside.limits import MEMORY_BYTES, mapped_bytes
from labkit.sandbox.inside.perform import perform

CPU_SECONDS = 10  # of a mutant, and on top of it several times what the reference takes
SLEEPS = 20  # times as many seconds of wall time: the machine may be busy
Item = TypeVar("Item")


class Verdict(Enum):
    KILLED = "killed"  # a check saw a wrong value
    CRASHED = "crashed"  # killed, by an error where the reference raises none
    ENDLESS = "endless"  # killed, by the limit on its time
    SURVIVED = "survived"
    BROKEN = "the check itself fails"  # a fault of the course


@dataclass
class Trial:
    """The hidden checks of one exercise, made ready: children find all answers in memory."""

    lab: Lab
    exercise: Exercise
    seed: str

    def __post_init__(self) -> None:
        self.oracle = Oracle(self.lab)
        self.checks = prepared_checks("hidden", self.lab.module, self.exercise, self.seed)
        self.module = cells.plain(reference(self.lab))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        perfect = self.oracle.reference
        right = run_checks(self.exercise, self.checks, perfect, perfect)
        if not right.passed:
            failure = right.broken or right.first_failure
            raise RuntimeError(f"the reference fails its own checks: {failure}")
        seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
        self.cpu_seconds = int(CPU_SECONDS + 10 * seconds)

    def namespace(self, mutant: Mutant) -> dict[str, Any]:
        """The lab's module of the reference with the mutant in it."""
        source = cells.with_block(self.module, self.exercise, mutant.cell)
        name = f"solutions.{self.lab.module}"
        names: dict[str, Any] = {"__name__": name, "__package__": "solutions"}
        exec(compile(source, "the mutant", "exec", dont_inherit=True), names)
        return names

    def verdict(self, mutant: Mutant) -> Verdict:
        """Whether a check fails; the first that does is enough."""
        try:
            names = self.namespace(mutant)
        except Exception:
            return Verdict.CRASHED
        for check in self.checks:
            try:
                found = run_check(check, lambda c: perform(c, names), self.oracle.reference)
            except BrokenCheck:
                return Verdict.BROKEN
            if not found.passed:
                return self.cause(found)
        return Verdict.SURVIVED

    def cause(self, failed: CheckResult) -> Verdict:
        """Whether the mutant raised where the reference does not."""
        for call, got in zip(failed.check.calls, failed.outcomes, strict=False):
            if got.failure and not self.oracle.reference(call).failure:
                return Verdict.CRASHED
        return Verdict.KILLED


def in_children(
    work: Callable[[Item], Any], items: Sequence[Item], cpu_seconds: int, jobs: int
) -> Iterator[tuple[Item, Any]]:
    """Each item with what `work` makes of it in a child; None where that was killed for its
    time, its memory or a fault of its own."""
    forked = multiprocessing.get_context("fork")
    waiting, running = deque(items), dict[Connection, tuple[Item, Any]]()
    while waiting or running:
        while waiting and len(running) < jobs:
            item = waiting.popleft()
            ours, theirs = forked.Pipe(duplex=False)
            child = forked.Process(target=_child, args=(theirs, work, item, cpu_seconds))
            child.start()
            theirs.close()
            running[ours] = item, child
        for ours in wait(list(running)):
            item, child = running.pop(ours)
            try:
                answer = ours.recv()
            except EOFError:
                answer = None
            child.join()
            ours.close()
            yield item, answer


def _child(theirs: Connection, work: Callable[[Item], Any], item: Item, seconds: int) -> None:
    memory = mapped_bytes() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    signal.alarm(SLEEPS * seconds)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    theirs.send(work(item))
