"""The room in which a learner's code runs at home: what is there is what grading has, what it
sets for all of torch stays inside, and a loop that never ends is stopped."""

from __future__ import annotations

import _thread
import builtins
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from functools import cache
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
SIGNAL = getattr(signal, "SIGPROF", signal.SIGTERM)  # Windows sends itself no other


PLAIN = torch.float32, True, None  # torch's settings as they are in a fresh process
SLOW = 1.0  # seconds of CPU for visible checks; the hidden ones need up to ten times as much


class Stopped(BaseException):
    """The learner's code used up its CPU time; path and line say where it was."""

    def __init__(self, path: str, line: int):
        super().__init__(tr("stopped after {seconds} seconds of CPU time", seconds=CPU_SECONDS))
        self.path, self.line = path, line


class Room:
    """Where the learner's code runs for one check.

    folder    where its package lies
    quiet     throw away what it prints
    """

    def __init__(self, folder: str, quiet: bool = False):
        self.folder, self.left = folder, float(CPU_SECONDS)
        self.output = CountedOutput() if quiet else LabelledOutput()
        self.settings = PLAIN
        self.place: tuple[str, int] | None = None  # where the time was up

    @contextmanager
    def entered(self) -> Iterator[None]:
        """For a block that runs the learner's code: raises Stopped where its time is up."""
        with suppress(TimeLimit), torch_set_to(self.settings):
            try:
                with self._limited(), same_room(), redirect_stdout(self.output):
                    yield
            finally:
                self.settings = torch_settings()
        if self.place:
            raise Stopped(*self.place)

    @property
    def notes(self) -> list[str]:
        """What goes well here and may not in grading."""
        used = CPU_SECONDS - self.left
        if used < SLOW:
            return []
        return [
            tr(
                "your code took {used:.1f} seconds of CPU time, far more than it needs: "
                "grading tries more, and stops it after {seconds}",
                used=used,
                seconds=CPU_SECONDS,
            )
        ]

    def within(self, ask: Ask) -> Ask:
        """The same, asked in here."""

        def asked(module: str, call: Call) -> Outcome:
            with self.entered():
                return ask(module, call)

        return asked

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """Counts the CPU time of this thread alone: torch's others may spin for nothing."""
        main = threading.current_thread() is threading.main_thread()
        if not main or signal.getsignal(SIGNAL) is None:  # then no handler can be put there
            yield
            return
        start, trace = time.thread_time(), sys.gettrace()

        def look(_: int, frame: FrameType | None) -> None:
            if time.thread_time() - start >= self.left:
                self._stop(frame)

        before = signal.signal(SIGNAL, look)
        stop = ticking(max(self.left, TICK))
        try:
            yield
        finally:
            stop()
            signal.signal(SIGNAL, before)
            sys.settrace(trace)
            self.left -= time.thread_time() - start

    def _stop(self, frame: FrameType | None) -> None:
        """Raise TimeLimit if the learner's code runs, and once more in its next line: that is
        where an `except:` in the loop has caught the first one."""
        frames = [frame for frame, _ in walk_stack(frame) if self._is_theirs(frame)]
        if not frames:
            return
        self.place = self.place or (frames[0].f_code.co_filename, frames[0].f_lineno)

        def once_more(frame: FrameType, event: str, _: Any) -> Any:
            if not self._is_theirs(frame):
                return None
            if event == "line":
                raise TimeLimit
            return once_more

        for each in frames:
            each.f_trace = once_more
        sys.settrace(once_more)
        raise TimeLimit

    def _is_theirs(self, frame: FrameType) -> bool:
        return str(Path(frame.f_code.co_filename).parent) == self.folder


def ticking(delay: float) -> Callable[[], Any]:
    """Let SIGNAL come after so much CPU time, then again and again; gives what ends it."""
    if hasattr(signal, "setitimer"):
        before = signal.setitimer(signal.ITIMER_PROF, delay, TICK)
        return lambda: signal.setitimer(signal.ITIMER_PROF, *before)
    over = threading.Event()

    def tick() -> None:
        wait = delay
        while not over.wait(wait):
            _thread.interrupt_main(SIGNAL)
            wait = TICK

    threading.Thread(target=tick, daemon=True).start()
    return over.set


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
def same_room() -> Iterator[None]:
    """While open, the learner's code is refused what grading refuses it."""
    with as_in_grading(), known_packages_alone(), watched():
        yield


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


# What exercise code may not do anywhere, by the audit events that tell of it
REFUSED = {
    "start programs": (
        *("subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork"),
    ),
    "use the network": ("socket.",),
}


def refuse(event: str) -> None:
    for what, events in REFUSED.items():
        if event.startswith(events):
            raise PermissionError(f"exercise code cannot {what} in grading")


_inside: set[int] = set()  # threads in which a learner's code runs just now


@contextmanager
def watched() -> Iterator[None]:
    """While open, this thread may not do what grading refuses."""
    _watch()
    here = threading.get_ident()
    _inside.add(here)
    try:
        yield
    finally:
        _inside.discard(here)


@cache
def _watch() -> None:
    """Python lets nobody take an audit hook off again."""

    def hook(event: str, _: Any) -> None:
        if _inside and threading.get_ident() in _inside:
            refuse(event)

    sys.addaudithook(hook)
