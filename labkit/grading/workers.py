"""The judge's end of labkit.worker: start it, talk to it, stop it, trust nothing it says."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit import frames
from labkit.calls import Call, Failure, Outcome
from labkit.confine import CPU_SECONDS
from labkit.frames import Gone
from labkit.wire import Malformed, decode_outcome, encode_call
from labkit.worker import NONCE

ROOT = Path(__file__).resolve().parents[2]
WALL_SECONDS = 4 * CPU_SECONDS + 10  # a busy machine must not change a score
START_SECONDS = 120
MAX_ANSWER = 8 << 20
BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from labkit.worker import main; main()"
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Order:
    """What a worker loads: the package's sources, the module under test, the banned names."""

    sources: Mapping[str, str]
    module: str
    banned: Sequence[str]

    def encode(self) -> bytes:
        fields = {"sources": dict(self.sources), "module": self.module}
        return json.dumps({**fields, "banned": list(self.banned)}).encode()


class Workers:
    """A context in which workers can be launched; one torch import for all of them."""

    def __enter__(self) -> Workers:
        self.scratch = Path(tempfile.mkdtemp(prefix="tinyllm-"))
        self.control: socket.socket | None = None
        self.process: subprocess.Popen[bytes] | None = None
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_parent()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def launch(self, order: Order) -> Worker:
        """A fresh process that has loaded `order`."""
        try:
            channel = self._fork() if hasattr(os, "fork") else self._spawn()
        except (OSError, Gone):  # the forking parent is gone: a new one, once
            self._stop_parent()
            channel = self._fork() if hasattr(os, "fork") else self._spawn()
        return Worker(channel, order)

    def _fork(self) -> socket.socket:
        if self.control is None:
            self.control, door = socket.socketpair()
            self.process = self._start(str(door.fileno()), pass_fds=[door.fileno()])
            door.close()
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.control, [b"f"], [theirs.fileno()])
        return ours

    def _spawn(self) -> socket.socket:
        token = secrets.token_bytes(32)
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(START_SECONDS)
            process = self._start(str(server.getsockname()[1]), stdin=subprocess.PIPE)
            assert process.stdin is not None
            process.stdin.write(token.hex().encode() + b"\n")
            process.stdin.close()
            while True:
                channel, _ = server.accept()
                if secrets.compare_digest(frames.receive(channel, 64, 2), token):
                    return channel
                channel.close()

    def _start(self, door: str, **options: Any) -> subprocess.Popen[bytes]:
        keep = ("PATH", "SYSTEMROOT", "LANG", "LC_ALL", "LD_LIBRARY_PATH")
        environment = {name: os.environ[name] for name in keep if name in os.environ}
        environment |= dict.fromkeys(ONE_THREAD, "1")
        environment |= {"TORCHDYNAMO_DISABLE": "1", "TMPDIR": str(self.scratch)}
        command = [sys.executable, "-I", "-c", BOOT, str(ROOT), str(self.scratch), door]
        options = {"stdin": subprocess.DEVNULL, **options}
        return subprocess.Popen(
            command, env=environment, cwd=self.scratch, start_new_session=True, **options
        )

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
    """One exercise of one learner, loaded in a process of its own."""

    def __init__(self, channel: socket.socket, order: Order):
        self.channel = channel
        self.over: Failure | None = None  # why no further answer can come
        self.layers: list[str] = []  # of protection, as labkit.confine names them
        self.pid = 0
        try:
            self.pid = int.from_bytes(frames.receive(channel, 8, START_SECONDS), "little")
            frames.send(channel, order.encode())
            self.layers = json.loads(frames.receive(channel, 1000, START_SECONDS))
            self.deadline = time.monotonic() + WALL_SECONDS
            self.over = decode_outcome(self._receive()).failure
        except (Gone, Malformed, OSError):
            self._give_up("its cell ended the process or ran out of time")
        except BaseException:
            self.close()
            raise

    def ask(self, call: Call) -> Outcome:
        """The outcome of `call`; once the process is gone, a failure that says why."""
        if self.over is not None:
            return Outcome(failure=self.over)
        nonce = secrets.token_bytes(NONCE)
        try:
            frames.send(self.channel, nonce + encode_call(call))
            answer = self._receive()
            if not secrets.compare_digest(answer[:NONCE], nonce):
                raise Gone("an answer to another question")
            outcome = decode_outcome(answer[NONCE:])
        except (Gone, Malformed, OSError):
            self._give_up("it ended the process, ran out of time or answered nonsense")
            return Outcome(failure=self.over)
        if outcome.failure and outcome.failure.kind in ("TimeLimit", "OutputLimit"):
            self.over = outcome.failure  # it would only happen again
        return outcome

    def close(self) -> None:
        self.channel.close()
        if self.pid and hasattr(os, "killpg"):
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                return

    def _receive(self) -> bytes:
        """One wall-clock budget for all that an exercise does."""
        return frames.receive(self.channel, MAX_ANSWER, self.deadline - time.monotonic())

    def _give_up(self, why: str) -> None:
        self.over = Failure("NoAnswer", why)
        self.close()
