"""Count the steps of the reference and of its listed mistakes, and stop endless loops, which
two combined mistakes may have."""

from __future__ import annotations

import sys
from math import inf
from time import thread_time
from types import FrameType
from typing import Any

MOST_TIMES = 20  # factors of the right answer's steps and seconds
LEAST_STEPS = 5000  # lines of Python
LEAST_SECONDS = 1.0  # seconds of CPU time, in case the machine is slow


class StepLimit(BaseException):
    """Raised in code that went past its limit; `except Exception` does not catch it."""


class Steps:
    """A context that counts the lines which run in modules of the reference.

    right    the count of the right answer, from which the limits follow; without it, none

    Errors: StepLimit, raised inside the code that runs
    """

    def __init__(self, right: Steps | None = None):
        self.count, self.seconds, self.stopped = 0, 0.0, False
        self.most = self.most_seconds = inf
        if right is not None:
            self.most = LEAST_STEPS + MOST_TIMES * right.count
            self.most_seconds = LEAST_SECONDS + MOST_TIMES * right.seconds

    def __enter__(self) -> Steps:
        self.before, self.start = sys.gettrace(), thread_time()
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self.before)
        self.seconds = thread_time() - self.start

    def _called(self, frame: FrameType, *_: Any) -> Any:
        module = frame.f_globals.get("__name__")
        return self._ran if isinstance(module, str) and module[:10] == "solutions." else None

    def _ran(self, *_: Any) -> Any:
        self.count += 1
        if self.count > self.most or thread_time() - self.start > self.most_seconds:
            self.stopped = True
            raise StepLimit("it went past its limit")
        return self._ran
