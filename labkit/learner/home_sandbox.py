"""Runs a learner's code at home under the rules of grading: the same packages, torch's settings
restored afterwards, a limit of CPU time."""

from __future__ import annotations

import builtins
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from traceback import walk_stack
from types import FrameType
from typing import Any

import torch

from labkit.checks.runner import Ask
from labkit.course.lang import said, tr
from labkit.sandbox.inside.banned import as_in_grading, replaced
from labkit.sandbox.inside.call import Call, Outcome
from labkit.sandbox.inside.importer import PACKAGE
from labkit.sandbox.inside.limits import CPU_SECONDS, CountedOutput, TimeLimit
from labkit.sandbox.inside.torch_private import set_torch, torch_settings

# The packages, beside Python's own, that are there wherever the course is installed
PACKAGES = {
    *("tinyllm", "torch", "numpy", "matplotlib", "mpl_toolkits", "safetensors"),
    *("IPython", "tqdm", "typing_extensions"),
}
ENDLESS = said("look for a loop that never ends")
TICK = 0.25  # seconds of CPU between two looks at the time, once it may be up

FRESH = torch.float32, True, None  # torch's settings in a fresh process


class OutOfTime(BaseException):
    """The learner's code used up its CPU time; path and line say where it was."""

    def __init__(self, path: str, line: int):
        super().__init__(tr("stopped after {seconds} seconds of CPU time", seconds=CPU_SECONDS))
        self.path, self.line = path, line


class HomeSandbox:
    """The limits for a learner's code in one check.

    folder    of its package
    quiet     throw away what it prints
    """

    def __init__(self, folder: str, quiet: bool = False):
        self.folder, self.left = folder, float(CPU_SECONDS)
        self.output = CountedOutput() if quiet else LabelledOutput()
        self.settings = FRESH
        self.place: tuple[str, int] | None = None  # where the time was up

    @contextmanager
    def entered(self) -> Iterator[None]:
        """For a block that runs the learner's code: raises OutOfTime where its time is up."""
        with suppress(TimeLimit), torch_set_to(self.settings):
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

    def limited(self, ask: Ask) -> Ask:
        """The same function, under these limits."""

        def ask_within(module: str, call: Call) -> Outcome:
            with self.entered():
                return ask(module, call)

        return ask_within

    @contextmanager
    def _time_limit(self) -> Iterator[None]:
        """Counts the CPU time of this thread alone: torch's others may spin for nothing.

        Without a limit outside the main thread, which gets no signals, and on Windows.
        """
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or not hasattr(signal, "setitimer"):
            yield
            return
        start = time.thread_time()

        def look(_: int, frame: FrameType | None) -> None:
            frames = [each for each, _ in walk_stack(frame) if self._is_learners(each)]
            if frames and time.thread_time() - start >= self.left:
                self.place = frames[0].f_code.co_filename, frames[0].f_lineno
                raise TimeLimit

        handler = signal.signal(signal.SIGPROF, look)
        timer = signal.setitimer(signal.ITIMER_PROF, max(self.left, TICK), TICK)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, *timer)
            signal.signal(signal.SIGPROF, handler)
            self.left -= time.thread_time() - start

    def _is_learners(self, frame: FrameType) -> bool:
        return str(Path(frame.f_code.co_filename).parent) == self.folder


class LabelledOutput(CountedOutput):
    """Passes on what the learner's code prints, below a line that says whose it is."""

    def __init__(self) -> None:
        super().__init__()
        self.screen = sys.stdout

    def write(self, text: str) -> int:
        if not self.count:
            self.screen.write(tr("your code printed:\n"))
        super().write(text)
        return self.screen.write(text)

    def flush(self) -> None:
        self.screen.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.screen, name)


@contextmanager
def torch_set_to(settings: tuple[torch.dtype, bool, Any]) -> Iterator[None]:
    """While open, torch has these settings, whatever the notebook has set."""
    before = torch_settings()
    set_torch(*settings)
    try:
        yield
    finally:
        set_torch(*before)


@contextmanager
def known_packages_alone() -> Iterator[None]:
    """While open, the learner's modules import what is there in grading, and nothing else."""
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
