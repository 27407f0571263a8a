"""The judge's end of inside.worker: start a process, ask it, stop it, and trust no answer."""

from __future__ import annotations

import json
import marshal
import math
import os
import secrets
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

from labkit.course.paths import ROOT
from labkit.sandbox.bubblewrap import ONE_THREAD, SCRATCH, Sandbox, sandbox_start_error
from labkit.sandbox.inside.call import Call, Failure, Outcome
from labkit.sandbox.inside.importer import filename
from labkit.sandbox.inside.limits import CPU_SECONDS
from labkit.sandbox.inside.wire import (
    Gone,
    TimedOut,
    decode_outcome,
    encode_call,
    receive,
    send,
)

WALL_SECONDS, PER_CPU_SECOND = 30, 3  # a busy machine must not change a score
# seconds of CPU in wire.IDLE_SECONDS: a process that uses less only waits
IDLE_CPU_SECONDS = 0.01
START_SECONDS = 120
MAX_ANSWER, MAX_ANSWERS = 8 << 20, 16 << 20  # bytes of one outcome, and of all in a request
ENDED = "it ended the process, ran out of time or answered nonsense"
NOT_LOADED = "its cell ended the process or ran out of time"
# `python -I` knows neither PYTHONPATH nor `pip install --user`: the judge's folders of packages
# follow the arguments. They come before the worker's own, so that both import the same torch.
BOOT = (
    "import sys; packages = [path for path in sys.path if path.endswith('-packages')]; "
    "others = [path for path in sys.path if path not in packages]; "
    "sys.path[:] = [sys.argv[1], *others, *sys.argv[4:], *packages]; "
    "from labkit.sandbox.inside.worker import main; main()"
)


@dataclass(frozen=True)
class LoadRequest:
    """The modules that a learner's process loads before it performs calls.

    sources   {module: text} of the package
    module    the one whose symbols are called
    compiled  modules that come compiled, see compiled_modules
    texts     sources that inspect may read
    """

    sources: Mapping[str, str]
    module: str
    compiled: Mapping[str, CodeType] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Answers:
    """The answer to one request.

    outcomes   one for each call; if none came, a failure with the reason
    loading    why the module could not be loaded
    stopped    whether the process, or a limit, ended before everything was answered
    timed_out  whether the wall clock ended it, which a busy machine can do
    """

    outcomes: list[Outcome]
    loading: Failure | None = None
    stopped: bool = False
    timed_out: bool = False


def compiled_modules(sources: Mapping[str, str]) -> dict[str, CodeType]:
    """Compile the reference without docstrings, so that no learner's code finds it as text."""
    return {
        name: compile(text, filename(name), "exec", dont_inherit=True, optimize=2)
        for name, text in sources.items()
    }


class WorkerLauncher:
    """A context in which learners' processes are started; one torch import for all of them,
    and one process at a time: starting the next one ends the last one."""

    def __init__(self, sandbox: Sandbox):
        self.sandbox = sandbox

    def __enter__(self) -> WorkerLauncher:
        is_inside = self.sandbox.bubblewrap  # a part of the sandbox, deleted with it
        self.scratch = Path(SCRATCH if is_inside else tempfile.mkdtemp(prefix="tinyllm-"))
        self.control: socket.socket | None = None
        self.process: subprocess.Popen[bytes] | None = None
        # standard error of a starting process; empty once it has started
        self.errors = tempfile.TemporaryFile()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_parent()
        self.errors.close()
        if not self.sandbox.bubblewrap:
            with suppress(RecursionError):
                shutil.rmtree(self.scratch, ignore_errors=True)

    def start(self, banned: Sequence[str] = (), cpu_seconds: int = CPU_SECONDS) -> Worker:
        """Start a fresh, confined process. Raises GradingError if Python does not start there.

        cpu_seconds  for all its work
        """
        for _ in range(2):  # if the forking parent is gone, a new one is started, once
            with suppress(OSError, Gone):
                return Worker(self._channel(), self, banned, cpu_seconds)
            self._stop_parent()
        self.errors.seek(0)
        error = self.errors.read().decode("utf-8", "replace")
        raise sandbox_start_error(error) if error else Gone("no process starts")

    def answer(
        self,
        request: LoadRequest,
        calls: Sequence[Call],
        banned: Sequence[str] = (),
        cpu_seconds: int = CPU_SECONDS,
    ) -> Answers:
        """Return the answers of a process that is started for them and stopped afterwards.

        banned       names that raise an error when they are called
        cpu_seconds  for all calls together
        Raises GradingError if Python does not start in the sandbox.
        """
        worker = self.start(banned, cpu_seconds)
        try:
            return worker.answer(request, [encode_call(call) for call in calls])
        finally:
            worker.stop()

    def end(self) -> None:
        """End the process that was started last."""
        if not hasattr(os, "fork"):
            self._stop_parent()
        elif self.control is not None:
            with suppress(OSError):  # ending the parent ends its children, too
                self.control.send(b"e")

    def cpu_used(self) -> float:
        """CPU seconds used by the process that was started last; NaN if unknown."""
        if self.control is None:
            return math.nan
        self.control.send(b"t")
        (seconds,) = struct.unpack("d", self.control.recv(8, socket.MSG_WAITALL))
        return seconds

    def _channel(self) -> socket.socket:
        return self._fork() if hasattr(os, "fork") else self._spawn()

    def prepare(self) -> None:
        """Start the parent of all workers, which imports torch; does not wait for it."""
        if hasattr(os, "fork") and self.control is None:
            self.control, door = socket.socketpair()
            with door:
                self.process = self._start(str(door.fileno()), pass_fds=[door.fileno()])

    def _fork(self) -> socket.socket:
        self.prepare()
        assert self.control is not None
        judge_end, worker_end = socket.socketpair()
        with worker_end:
            socket.send_fds(self.control, [b"f"], [worker_end.fileno()])
        return judge_end

    def _spawn(self) -> socket.socket:
        token = secrets.token_bytes(32)
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(START_SECONDS)
            door = str(server.getsockname()[1])
            self.process = self._start(door, stdin=subprocess.PIPE)
            assert self.process.stdin is not None
            self.process.stdin.write(token.hex().encode() + b"\n")
            self.process.stdin.close()
            while True:
                channel, _ = server.accept()
                if secrets.compare_digest(receive(channel, 64, 2), token):
                    return channel
                channel.close()

    def _start(self, door: str, **options: Any) -> subprocess.Popen[bytes]:
        names = ("SYSTEMROOT", "LANG", "LC_ALL", "LD_LIBRARY_PATH")
        environment = {name: os.environ[name] for name in names if name in os.environ}
        environment["PATH"] = os.defpath
        environment |= dict.fromkeys(ONE_THREAD, "1")
        environment |= {"TORCHDYNAMO_DISABLE": "1", "CUDA_VISIBLE_DEVICES": ""}
        environment["TRITON_INTERPRET"] = "1"
        environment |= {"TMPDIR": str(self.scratch), "USER": "learner", "LOGNAME": "learner"}
        python = [sys.executable, "-I", "-c", BOOT]
        self.errors.seek(0)
        self.errors.truncate()
        options = {"stdin": subprocess.DEVNULL, "stderr": self.errors, **options}
        return subprocess.Popen(
            self.sandbox.command(python, ROOT, self.scratch, door),
            env=environment, cwd="/", start_new_session=True, **options,
        )  # fmt: skip

    def _stop_parent(self) -> None:
        if self.control is not None:
            self.control.close()
            self.control = None
        if self.process is not None:
            try:
                self.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None


class Worker:
    """A process in which the answers of one learner run, one exercise after another."""

    def __init__(
        self,
        channel: socket.socket,
        launcher: WorkerLauncher,
        banned: Sequence[str],
        cpu_seconds: int,
    ):
        self.channel, self.launcher = channel, launcher
        self.wall_seconds = WALL_SECONDS + PER_CPU_SECOND * cpu_seconds
        # layers of protection, with their names in labkit.sandbox.inside.limits
        self.layers: list[str] = []
        try:
            channel.settimeout(START_SECONDS)
            limits = {"banned": list(banned), "cpu_seconds": cpu_seconds}
            send(channel, json.dumps(limits).encode())
            self.layers = json.loads(receive(channel, 1000, START_SECONDS))
        except BaseException:  # before any learner code, so not the learner's fault
            self.stop()
            raise

    def answer(self, request: LoadRequest, calls: Sequence[bytes]) -> Answers:
        """Load the requested modules and perform the calls, which are encoded."""
        self.deadline = time.monotonic() + self.wall_seconds
        self.received, answers, is_loaded = 0, Answers([]), False
        self.used = -math.inf  # seconds of CPU at the last look
        try:
            self.channel.settimeout(self.wall_seconds)
            send(self.channel, marshal.dumps({**vars(request), "calls": list(calls)}))
            end = answers.loading = self._outcome().failure
            is_loaded = True
            while end is None and len(answers.outcomes) < len(calls):
                answers.outcomes.append(self._outcome())
                end = answers.outcomes[-1].failure if answers.outcomes[-1].over else None
        except (Gone, ValueError, OSError) as error:
            end = Failure("NoAnswer", ENDED if is_loaded else NOT_LOADED)
            answers.loading = None if is_loaded else end
            answers.timed_out = isinstance(error, (TimedOut, TimeoutError))
            self.stop()
        missing = len(calls) - len(answers.outcomes)
        answers.outcomes += [Outcome(failure=end) for _ in range(missing)]
        answers.stopped = end is not None and end.kind in ("NoAnswer", "TimeLimit")
        return answers

    def _outcome(self) -> Outcome:
        """Receive an outcome; one budget of time and bytes covers all those of a request."""
        limit = min(MAX_ANSWER, MAX_ANSWERS - self.received)
        answer = receive(self.channel, limit, self.deadline - time.monotonic(), self._is_idle)
        self.received += len(answer)
        return decode_outcome(answer)

    def _is_idle(self) -> bool:
        """Whether the process has computed next to nothing since the last call: it sleeps, or
        waits for something that never comes."""
        before, self.used = self.used, self.launcher.cpu_used()
        return self.used - before < IDLE_CPU_SECONDS

    def stop(self) -> None:
        self.channel.close()
        self.launcher.end()
