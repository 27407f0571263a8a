"""The rules of grading for code at home: the same packages, fresh settings of torch, a limit
of CPU time.

The limit is a signal and not a separate process, which would have to import torch for each
check. The price: a long call of C code is stopped late, and nothing is stopped on Windows.
"""

from __future__ import annotations

import builtins
import linecache
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from traceback import walk_stack
from types import FrameType
from typing import Any

import torch

from labkit.checks.runner import Ask
from labkit.course.lang import ntr, said, tr
from labkit.course.syllabus import LABS
from labkit.sandbox.inside.banned import as_in_grading, replaced
from labkit.sandbox.inside.call import Call, Outcome
from labkit.sandbox.inside.doubles.parallel import Ranks
from labkit.sandbox.inside.importer import PACKAGE
from labkit.sandbox.inside.limits import CPU_SECONDS, CountedOutput, TimeLimit
from labkit.sandbox.inside.torch_private import set_torch, torch_settings

# The packages that come with the course, besides Python's own
PACKAGES = {
    *("tinyllm", "torch", "numpy", "matplotlib", "mpl_toolkits", "safetensors"),
    *("IPython", "tqdm", "typing_extensions"),
    *(lab.needs for lab in LABS if lab.needs),
}
ENDLESS = said("look for a loop that never ends")
LONG_CALL = 30  # seconds of CPU time for one call of the learner's code in a cell of the course
MOST_LINES, MOST_PRINTED = 20, 4000  # lines and characters of output that are shown
TICK = 0.25  # seconds of CPU between two checks of the time

FRESH = torch.float32, True, None  # torch's settings in a fresh process


class OutOfTime(BaseException):
    """The learner's code used up its CPU time at this path, line and rank."""

    def __init__(self, path: str, line: int, rank: Any = None, seconds: Any = None):
        seconds = CPU_SECONDS if seconds is None else seconds
        super().__init__(tr("stopped after {seconds} seconds of CPU time", seconds=seconds))
        self.path, self.line, self.rank = path, line, rank


class HomeSandbox:
    """The limits for a learner's code in one check.

    folder    of its package
    quiet     discard its output; else `printed` has the beginning
    """

    def __init__(self, folder: str, quiet: bool = False):
        linecache.checkcache()  # warnings quote the code that runs, not the one before it
        self.folder, self.left = folder, float(CPU_SECONDS)
        self.output = CountedOutput() if quiet else KeptOutput()
        self.settings = FRESH
        self.place: tuple[str, int, int | None] | None = None  # where the time was up

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Run a block of the learner's code under the limits. Errors: OutOfTime"""
        with suppress(TimeLimit), use_torch_settings(self.settings):
            try:
                with (
                    self._time_limit(), as_in_grading(), known_packages_alone(),
                    redirect_stdout(self.output),
                ):  # fmt: skip
                    yield
            finally:
                self.settings = torch_settings()
        if self.place:
            raise OutOfTime(*self.place)

    @property
    def printed(self) -> str:
        return self.output.beginning if isinstance(self.output, KeptOutput) else ""

    def limited(self, ask: Ask) -> Ask:
        """Return `ask`, run under these limits."""

        def ask_within(module: str, call: Call) -> Outcome:
            with self.entered():
                return ask(module, call)

        return ask_within

    @contextmanager
    def _time_limit(self) -> Iterator[None]:
        start = time.thread_time()

        def look(frames: list[FrameType]) -> None:
            if frames and time.thread_time() - start >= self.left:
                rank = Ranks.current.running if Ranks.current else None
                self.place = frames[0].f_code.co_filename, frames[0].f_lineno, rank
                raise TimeLimit

        try:
            with at_ticks(self.folder, look):
                yield
        finally:
            self.left -= time.thread_time() - start


class LongCalls:
    """Stops a single call of the learner's code that does not end, in a cell of the course."""

    def __init__(self) -> None:
        self.call: FrameType | None = None  # the outermost call that runs
        self.since, self.is_announced = 0.0, False

    def look(self, frames: list[FrameType]) -> None:
        """Errors: OutOfTime, in the learner's code"""
        call = frames[-1] if frames else None
        if call is not self.call:
            self.call, self.since, self.is_announced = call, time.thread_time(), False
        if call is None:
            return
        path, line = frames[0].f_code.co_filename, frames[0].f_lineno
        seconds = time.thread_time() - self.since
        if seconds > CPU_SECONDS and not self.is_announced:
            self.is_announced = True
            running = said(
                "tinyllm/{file} is at line {line} after {seconds} seconds in one call; it is "
                "stopped after {limit}"
            )
            times = {"seconds": CPU_SECONDS, "limit": LONG_CALL}
            print(tr(running, file=Path(path).name, line=line, **times))
        if seconds > LONG_CALL:
            raise OutOfTime(path, line, seconds=LONG_CALL)


@contextmanager
def at_ticks(folder: str, look: Callable[[list[FrameType]], None]) -> Iterator[None]:
    """While open, call `look` at each tick of CPU time with the frames of the code in a
    folder, the innermost first.

    Measure the CPU time of this thread only: torch's other threads may spin. Nothing ticks
    on Windows and outside the main thread, as only that gets signals.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not hasattr(signal, "setitimer"):
        yield
        return

    def handle(_: int, frame: FrameType | None) -> None:
        files = ((each, Path(each.f_code.co_filename)) for each, _ in walk_stack(frame))
        look([each for each, file in files if str(file.parent) == folder])

    handler = signal.signal(signal.SIGPROF, handle)
    timer = signal.setitimer(signal.ITIMER_PROF, TICK, TICK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, *timer)
        signal.signal(signal.SIGPROF, handler)


class KeptOutput(CountedOutput):
    """Keeps the beginning of the output, to be shown below the report."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.lines = "", 0

    def write(self, text: str) -> int:
        self.text += text[: MOST_PRINTED - len(self.text)]
        self.lines += text.count("\n")
        return super().write(text)

    @property
    def beginning(self) -> str:
        """The first lines of the output under a heading; "" if there is none."""
        lines = self.text.rstrip("\n").split("\n")[:MOST_LINES]
        if not self.text:
            return ""
        left = self.lines - len(lines)
        more = (
            [ntr("... and {n} more line", "... and {n} more lines", left)] if left > 0 else []
        )
        return tr("your code printed:\n") + "\n".join([*lines, *more])


@contextmanager
def use_torch_settings(settings: tuple[torch.dtype, bool, Any]) -> Iterator[None]:
    """While open, torch has these settings instead of the notebook's."""
    before = torch_settings()
    set_torch(*settings)
    try:
        yield
    finally:
        set_torch(*before)


@contextmanager
def known_packages_alone() -> Iterator[None]:
    """While open, the learner's modules can import only packages that grading has."""
    load = builtins.__import__

    def load_known(name: str, scope: Any = None, *rest: Any, **named: Any) -> Any:
        root, level = name.split(".")[0], named.get("level", rest[2] if len(rest) > 2 else 0)
        learners = scope and str(scope.get("__name__")).startswith(f"{PACKAGE}.")
        if learners and not level and root not in PACKAGES | sys.stdlib_module_names:
            known = tr("torch, numpy and Python's own library are")
            raise ModuleNotFoundError(
                tr("{root} may not be there in grading: {known}", root=root, known=known)
            )
        return load(name, scope, *rest, **named)

    with replaced({(builtins, "__import__"): load_known}):
        yield
