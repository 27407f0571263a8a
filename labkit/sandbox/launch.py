"""The judge's end of inside.worker: start it, talk to it, stop it, trust nothing it says."""

from __future__ import annotations

import base64
import hashlib
import json
import marshal
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.core.paths import ROOT
from labkit.sandbox.bubblewrap import ONE_THREAD, SCRATCH, Sandbox, start_fault
from labkit.sandbox.inside import frames
from labkit.sandbox.inside.call import Call, Failure, Outcome
from labkit.sandbox.inside.frames import Gone, TimedOut
from labkit.sandbox.inside.importer import filename
from labkit.sandbox.inside.limits import CPU_SECONDS
from labkit.sandbox.inside.wire import call_hash, decode_outcomes, encode_call
from labkit.sandbox.inside.worker import CALL, HUGE_PAGES, LOAD, NONCE, empty

WALL_SECONDS = 4 * CPU_SECONDS + 10  # a busy machine must not change a score
START_SECONDS = 120
MAX_ANSWER, MAX_ANSWERS = 8 << 20, 16 << 20  # bytes of one, and of all in an exercise
NO_ANSWER = "it ended the process, ran out of time or answered nonsense"
# `python -I` knows neither PYTHONPATH nor `pip install --user`: the judge's folders of packages
# follow the arguments. They come before the worker's own, so that both import the same torch.
BOOT = (
    "import sys; found = [path for path in sys.path if path.endswith('-packages')]; "
    "rest = [path for path in sys.path if path not in found]; "
    "sys.path[:] = [sys.argv[1], *rest, *sys.argv[4:], *found]; "
    "from labkit.sandbox.inside.worker import main; main()"
)


class ExpectedCalls:
    """The calls that the checks of an exercise make, known from the first time they ran: a
    worker gets them all at once and answers them all at once."""

    MOST = 16 << 20  # bytes

    def __init__(self) -> None:
        self.numbers: dict[str, tuple[int, str]] = {}  # and the hash of a call, by its key
        self.message = b""
        self.name = ""  # by which the worker's parent knows it

    def learn(self, call: Call) -> None:
        blob = frames.framed(encode_call(call))
        if call.key not in self.numbers and len(self.message) + len(blob) < self.MOST:
            self.numbers[call.key] = (len(self.numbers), call_hash(call))
            self.message += blob
            self.name = hashlib.sha256(self.name.encode() + blob).hexdigest()

    def number_of(self, call: Call) -> int | None:
        number, expected = self.numbers.get(call.key, (None, ""))
        return number if expected == call_hash(call) else None


@dataclass(frozen=True)
class LoadRequest:
    """What a worker loads: the package's sources, the module under test, the banned names.

    compiled    modules that come as code, see compiled_modules
    texts       what inspect may read of a module
    """

    sources: Mapping[str, str]
    module: str
    banned: Sequence[str]
    cpu_seconds: int = CPU_SECONDS
    audit: bool = True
    compiled: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)

    def message(self, nonce: bytes, plan: ExpectedCalls, known: bool) -> bytes:
        """
        known    the worker has the calls of the plan; else they follow
        """
        fields = {name: getattr(self, name) for name in ("module", "cpu_seconds", "audit")}
        for name in ("sources", "compiled", "texts"):
            fields[name] = dict(getattr(self, name))
        fields |= {"nonce": nonce.hex(), "plan": plan.name}
        fields["calls"] = 0 if known else len(plan.numbers)
        message = frames.framed(LOAD + json.dumps(fields).encode())
        return message if known else message + plan.message


def compiled_modules(sources: Mapping[str, str]) -> dict[str, str]:
    """The reference as code without docstrings, so that no learner's code finds it as text."""
    codes = {
        name: compile(text, filename(name), "exec", dont_inherit=True, optimize=2)
        for name, text in sources.items()
    }
    return {name: base64.b64encode(marshal.dumps(c)).decode() for name, c in codes.items()}


class WorkerLauncher:
    """A context in which workers can be launched; one torch import for all of them, and one
    worker at a time: launching the next one ends the last one."""

    def __init__(self, sandbox: Sandbox):
        self.sandbox = sandbox

    def __enter__(self) -> WorkerLauncher:
        inside = self.sandbox.bubblewrap  # then the folder is its own, and nothing stays behind
        self.scratch = Path(SCRATCH if inside else tempfile.mkdtemp(prefix="tinyllm-"))
        self.control: socket.socket | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.sent = {""}  # names of the plans that the parent has
        self.errors = tempfile.TemporaryFile()  # of a process that starts; empty once it has
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_parent()
        self.errors.close()
        if not self.sandbox.bubblewrap:
            with suppress(OSError):
                empty(self.scratch)
                self.scratch.rmdir()

    def launch(
        self,
        request: LoadRequest,
        plan: ExpectedCalls | None = None,
        more: Iterable[ExpectedCalls] = (),
        patience: int = 1,
    ) -> Worker:
        """A fresh process that has loaded what is requested; GradingError where Python does
        not even start in the sandbox.

        more        plans of exercises that others will begin with
        patience    how many times longer than usual it is waited for
        """
        plan = plan or ExpectedCalls()
        plans = {each.name: each for each in (plan, *more)}
        try:
            return self._launched(request, plan, plans, patience)
        except (OSError, Gone):  # the forking parent is gone: a new one, once
            self._stop_parent()
        try:
            return self._launched(request, plan, plans, patience)
        except (OSError, Gone):
            self._stop_parent()
            self.errors.seek(0)
            error = self.errors.read().decode("utf-8", "replace")
            if error:
                raise start_fault(error) from None
            raise

    def _launched(
        self,
        request: LoadRequest,
        plan: ExpectedCalls,
        plans: dict[str, ExpectedCalls],
        patience: int,
    ) -> Worker:
        channel = self._channel()
        new = {name: each for name, each in plans.items() if name not in self.sent}
        counts = {name: len(each.numbers) for name, each in new.items()}
        preload = json.dumps({"banned": list(request.banned), "plans": counts}).encode()
        messages = b"".join(each.message for each in new.values())
        first = frames.framed(preload) + messages
        worker = Worker(channel, request, plan, first, self.end, patience)
        self.sent |= set(new)
        return worker

    def end(self) -> None:
        """End the worker that was launched last."""
        if not hasattr(os, "fork"):
            self._stop_parent()
        elif self.control is not None:
            with suppress(OSError):  # with the parent its children are gone, too
                self.control.send(b"e")

    def _channel(self) -> socket.socket:
        return self._fork() if hasattr(os, "fork") else self._spawn()

    def prepare(self) -> None:
        """Start what workers are forked from: it imports torch, and need not be waited for."""
        if hasattr(os, "fork") and self.control is None:
            self.control, door = socket.socketpair()
            with door:
                self.process = self._start(str(door.fileno()), pass_fds=[door.fileno()])

    def _fork(self) -> socket.socket:
        self.prepare()
        assert self.control is not None
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.control, [b"f"], [theirs.fileno()])
        return ours

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
                if secrets.compare_digest(frames.receive(channel, 64, 2), token):
                    return channel
                channel.close()

    def _start(self, door: str, **options: Any) -> subprocess.Popen[bytes]:
        keep = ("SYSTEMROOT", "LANG", "LC_ALL", "LD_LIBRARY_PATH")
        environment = {name: os.environ[name] for name in keep if name in os.environ}
        environment["PATH"] = os.defpath
        environment |= dict.fromkeys(ONE_THREAD, "1") | HUGE_PAGES
        environment |= {"TORCHDYNAMO_DISABLE": "1", "CUDA_VISIBLE_DEVICES": ""}
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
        self.sent = {""}
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
    """The exercises of one learner, one after another, in a process of its own."""

    def __init__(
        self,
        channel: socket.socket,
        request: LoadRequest,
        plan: ExpectedCalls,
        preload: bytes,
        end: Callable[[], None],
        patience: int = 1,
    ):
        self.channel, self.end, self.patience = channel, end, patience
        self.over: Failure | None = None  # why no further answer can come
        self.timed_out = False  # the wall clock ended it, which a busy machine can do
        self.layers: list[str] = []  # of protection, as labkit.sandbox.inside.limits names them
        try:
            channel.settimeout(START_SECONDS)
            channel.sendall(preload + self._begin(request, plan, known=True))
            self.layers = json.loads(frames.receive(channel, 1000, START_SECONDS))
        except BaseException:  # before any learner code: no fault of theirs
            self.close()
            raise
        self._load(b"")

    def go_on(self, request: LoadRequest, plan: ExpectedCalls) -> None:
        """Load another exercise of the same learner in the same process."""
        self._load(self._begin(request, plan, known=False))

    def _begin(self, request: LoadRequest, plan: ExpectedCalls, known: bool) -> bytes:
        self.plan, self.nonce = plan, secrets.token_bytes(NONCE)
        self.message: bytes | None = None  # the answers to the calls of the plan
        self.answers: list[Outcome] | None = None  # the same, once they are read
        self.asked_more = False  # something that is not in the plan
        self.received = 0  # bytes
        self.allowed = self.patience * WALL_SECONDS * request.cpu_seconds / CPU_SECONDS
        return request.message(self.nonce, plan, known)

    def _load(self, message: bytes) -> None:
        self.deadline = time.monotonic() + self.allowed
        try:
            self.channel.settimeout(self.allowed)
            self.channel.sendall(message)
            (loading,) = decode_outcomes(self._receive())
            self.over = loading.failure
        except (Gone, ValueError, OSError) as error:
            self._give_up("its cell ended the process or ran out of time", error)

    def foreseen(self) -> bytes:
        """The answers to all calls of the plan, as they came; b"" if they did not come."""
        if self.message is None:
            self.message = b""
            if self.over is None and self.plan.numbers:
                try:
                    self.message = self._answer_to(self.nonce)
                except (Gone, OSError) as error:
                    self._give_up(NO_ANSWER, error)
        return self.message

    def ask(self, call: Call) -> Outcome:
        """The outcome of `call`; once the process is gone, a failure that says why."""
        self.foreseen()
        if self.over is not None:
            return Outcome(failure=self.over)
        try:
            number = self.plan.number_of(call)
            outcome = self._asked(call) if number is None else self._answer(number)
        except (Gone, ValueError, LookupError, OSError) as error:
            self._give_up(NO_ANSWER, error)
            return Outcome(failure=self.over)
        if outcome.over:
            self.over = outcome.failure
        return outcome

    @property
    def stopped(self) -> bool:
        """Whether the process, or a limit, ended before everything was answered."""
        return self.over is not None and self.over.kind in ("NoAnswer", "TimeLimit")

    def close(self) -> None:
        self.channel.close()
        self.end()

    def _answer(self, number: int) -> Outcome:
        if self.answers is None:
            self.answers = decode_outcomes(self.foreseen())
        last = self.answers[-1]
        return last if last.over and number >= len(self.answers) else self.answers[number]

    def _asked(self, call: Call) -> Outcome:
        self.asked_more, nonce = True, secrets.token_bytes(NONCE)
        frames.send(self.channel, CALL + nonce + encode_call(call))
        (outcome,) = decode_outcomes(self._answer_to(nonce))
        return outcome

    def _answer_to(self, expected: bytes) -> bytes:
        answer = self._receive()
        if not secrets.compare_digest(answer[: len(expected)], expected):
            raise Gone("an answer to another question")
        return answer[len(expected) :]

    def _receive(self) -> bytes:
        """One budget of wall-clock time and of bytes for all that an exercise does."""
        left = min(MAX_ANSWER, MAX_ANSWERS - self.received)
        answer = frames.receive(self.channel, left, self.deadline - time.monotonic())
        self.received += len(answer)
        return answer

    def _give_up(self, why: str, error: Exception) -> None:
        self.timed_out = isinstance(error, (TimedOut, TimeoutError))
        self.over = Failure("NoAnswer", why)
        self.close()
