"""The judge's end of labkit.worker: start it, talk to it, stop it, trust nothing it says."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Listener
from pathlib import Path

from labkit.calls import Call, Failure, Outcome
from labkit.confine import CPU_SECONDS
from labkit.wire import MAX_BYTES, Malformed, decode_outcome, encode_call
from labkit.worker import NONCE

ROOT = Path(__file__).resolve().parents[2]
WALL_SECONDS = 4 * CPU_SECONDS + 10  # a busy machine must not change a score
START_SECONDS = 120
TOKEN = 32
BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from labkit.worker import main; main()"
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Gone(Exception):
    """The worker hung up, said nothing in time, or said something that is no answer."""


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
        self.folder = Path(tempfile.mkdtemp(prefix="tinyllm-"))
        self.scratch = self.folder / "scratch"
        self.scratch.mkdir()
        family = "AF_PIPE" if sys.platform == "win32" else "AF_UNIX"
        address = None if family == "AF_PIPE" else str(self.folder / "judge")
        self.listener = Listener(address, family, backlog=8)
        self.forks = hasattr(os, "fork")
        self.processes: list[subprocess.Popen[bytes]] = []
        if self.forks:
            token = secrets.token_bytes(TOKEN)
            self._start(token)
            self.control, self.parent_pid = self._accept(token)
        return self

    def __exit__(self, *_: object) -> None:
        if self.forks:
            self.control.close()
        for process in self.processes:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def launch(self, order: Order) -> Worker:
        """A fresh process that has loaded `order`."""
        token = secrets.token_bytes(TOKEN)
        if self.forks:
            self.control.send_bytes(token)
        else:
            self._start(token)
        connection, pid = self._accept(token)
        return Worker(connection, pid, order)

    def _start(self, token: bytes) -> None:
        keep = ("PATH", "SYSTEMROOT", "LANG", "LC_ALL", "LD_LIBRARY_PATH")
        environment = {name: os.environ[name] for name in keep if name in os.environ}
        environment |= dict.fromkeys(ONE_THREAD, "1")
        environment |= {"TORCHDYNAMO_DISABLE": "1", "TMPDIR": str(self.scratch)}
        command = [sys.executable, "-I", "-c", BOOT]
        command += [str(ROOT), str(self.listener.address), str(self.scratch)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, env=environment, cwd=self.scratch
        )
        assert process.stdin is not None
        process.stdin.write(token.hex().encode() + b"\n")
        process.stdin.close()
        self.processes.append(process)

    def _accept(self, token: bytes) -> tuple[Connection, int]:
        """The connection that opens with `token`; any other caller is turned away."""
        socket = getattr(self.listener, "_listener", None)
        if socket is not None and hasattr(socket, "_socket"):
            socket._socket.settimeout(START_SECONDS)
        while True:
            try:
                connection = self.listener.accept()
            except TimeoutError as error:
                raise RuntimeError("the learner's process did not start") from error
            if connection.poll(START_SECONDS):
                hello = connection.recv_bytes(256)
                if secrets.compare_digest(hello[:TOKEN], token):
                    return connection, int.from_bytes(hello[TOKEN : TOKEN + 8], "little")
            connection.close()


class Worker:
    """One exercise of one learner, loaded in a process of its own."""

    def __init__(self, connection: Connection, pid: int, order: Order):
        self.connection, self.pid = connection, pid
        self.over: Failure | None = None  # why no further answer can come
        try:
            self.connection.send_bytes(order.encode())
            loaded = decode_outcome(self._receive())
            self.over = loaded.failure
        except (Gone, Malformed, OSError):
            self._give_up("its cell ended the process or ran out of time")

    def ask(self, call: Call) -> Outcome:
        """The outcome of `call`; once the process is gone, a failure that says why."""
        if self.over is not None:
            return Outcome(failure=self.over)
        nonce = secrets.token_bytes(NONCE)
        try:
            self.connection.send_bytes(nonce + encode_call(call))
            answer = self._receive()
            if not secrets.compare_digest(answer[:NONCE], nonce):
                raise Gone("an answer to another question")
            outcome = decode_outcome(answer[NONCE:])
        except (Gone, Malformed, OSError):
            self._give_up("it ended the process or ran out of time")
            return Outcome(failure=self.over)
        if outcome.failure and outcome.failure.kind in ("TimeLimit", "OutputLimit"):
            self.over = outcome.failure  # it would only happen again
        return outcome

    def close(self) -> None:
        self.connection.close()
        if hasattr(os, "killpg"):
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                return

    def _receive(self) -> bytes:
        if not self.connection.poll(WALL_SECONDS):
            raise Gone("no answer in time")
        try:
            return self.connection.recv_bytes(MAX_BYTES)
        except EOFError as error:
            raise Gone("it hung up") from error

    def _give_up(self, why: str) -> None:
        self.over = Failure("NoAnswer", why)
        self.close()
