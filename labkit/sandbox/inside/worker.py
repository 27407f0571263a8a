"""The learner's process: runs submitted code, answers calls, knows no test and no answer.

    judge                                      worker (this file)
      | -- banned names, seconds of CPU  -->   |   the parent: fork
      | <-- the layers of protection           |   the child: confine
      | -- package sources, module, calls -->  |
      | <-- an outcome: loaded, or what failed |   run the learner's cell
      | <-- the outcome of each call           |   perform the calls
      | -- sources of the next exercise   -->  |   ... until the judge hangs up

Everything that crosses is plain bytes, see wire.py. On POSIX a parent imports torch once and
forks a fresh child for each learner, one at a time: before the next one starts, the last
one is dead and its files are gone. Elsewhere each starts a new process.

A request comes when the last one is answered, not before: it holds reference code that must
not lie in the process while the answer that it would give away is still asked for.

What makes it quick, measured on lab 01: torch is imported before the fork (2 s); a child's
collector leaves alone what was there before (0.1 s where it runs); one call is performed
beforehand (2 ms of 16 for all calls of a submission).
"""

from __future__ import annotations

import base64
import gc
import importlib
import itertools
import json
import marshal
import os
import secrets
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from labkit.sandbox.inside import banned, frames, limits
from labkit.sandbox.inside.call import Call, Outcome, describe, perform
from labkit.sandbox.inside.importer import PACKAGE, Source, compiled, filename, imported
from labkit.sandbox.inside.torch_private import Watch
from labkit.sandbox.inside.wire import (
    MAX_BYTES,
    Malformed,
    decode_call,
    encode_call,
    encode_outcome,
)


def forget_the_course() -> None:
    """Take the course's folder off every road by which Python finds modules."""
    root = str(Path(__file__).resolve().parents[3])
    sys.path[:] = [entry for entry in sys.path if entry and os.path.realpath(entry) != root]
    sys.path_importer_cache.clear()
    ours = [
        f for f in sys.meta_path if "editable" in f"{getattr(f, '__module__', '')}{f!r}".lower()
    ]
    for finder in ours:
        sys.meta_path.remove(finder)


class Setup:
    """What the judge says before anything of a learner comes: the seconds of CPU that a
    process gets, and the banned names. To refuse their operators takes long, so the parent
    does it, and keeps it for the next process."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.libraries: list[Any] = []
        self.cpu_seconds = 0

    def receive(self, channel: socket.socket) -> None:
        fields = json.loads(frames.receive(channel, MAX_BYTES))
        self.cpu_seconds = fields["cpu_seconds"]
        if fields["banned"] != self.names:
            self.names = fields["banned"]
            self.libraries.clear()  # the operators are as they were
            self.libraries = banned.refuse_operators(self.names)


def serve(channel: socket.socket, confinement: limits.Confinement, setup: Setup) -> None:
    """Answer the requests for one learner until the judge hangs up."""
    scratch = str(confinement.scratch)
    os.environ["TMPDIR"] = os.environ["HOME"] = tempfile.tempdir = scratch
    os.chdir(scratch)
    banned.hold_for_good(setup.libraries)
    layers = confinement.enter(setup.cpu_seconds)
    frames.send(channel, json.dumps(layers).encode())
    sys.breakpointhook = banned.nothing
    watch = Watch(setup.names)
    with banned.as_in_grading(), banned.out_of_reach(setup.names):
        while True:
            request = json.loads(frames.receive(channel, MAX_BYTES))
            calls = [
                decode_call(frames.receive(channel, MAX_BYTES)) for _ in range(request["calls"])
            ]
            with imported(sealed(request), texts=request["texts"]):
                carry_out(request["module"], calls, channel, watch)


def sealed(request: dict[str, Any]) -> dict[str, Source]:
    """The package as code, before any of it runs: its text is gone then, since the learner's
    module holds answers to other exercises, too."""
    package: dict[str, Source] = {
        name: marshal.loads(base64.b64decode(code))
        for name, code in request.pop("compiled").items()
    }
    for name, text in request.pop("sources").items():
        try:
            package[name] = compiled(text, filename(name))
        except BaseException as error:  # said when it is imported
            package[name] = error
    return package


def carry_out(module: str, calls: list[Call], channel: socket.socket, watch: Watch) -> None:
    """Run the learner's cell, then the calls, up to one after which no other can be had. Each
    outcome leaves at once: what comes before a crash counts."""
    outcome, namespace = load(module)
    frames.send(channel, encoded(outcome))
    for call in [] if outcome.failure else calls:
        watch.refused = watch.odd = ""
        outcome = perform(call, namespace, filename(module), watch)
        outcome.odd = watch.odd
        if watch.refused:
            refusal = banned.NotAllowed(banned.message(watch.refused))
            outcome = Outcome(failure=describe(refusal, None))
        frames.send(channel, encoded(outcome))
        if outcome.over:
            return


def load(module: str) -> tuple[Outcome, dict[str, object]]:
    """Run the module with the learner's cell in it."""
    try:
        return Outcome(), vars(importlib.import_module(f"{PACKAGE}.{module}"))
    except BaseException as error:  # a cell may raise anything, SystemExit too
        return Outcome(failure=describe(error, filename(module))), {}


def encoded(outcome: Outcome) -> bytes:
    try:
        return encode_outcome(outcome)
    except Exception as error:  # whatever an odd object does when it is packed
        text = f"the answer is nothing that can be compared ({error})"
        return encode_outcome(Outcome(failure=describe(Malformed(text), None)))


def warm_up() -> None:
    """Perform a call as often as Python takes to adapt its bytecode."""
    call = Call("f", x=torch.ones(2, 2), grad=True)
    for _ in range(12):
        encoded(perform(decode_call(encode_call(call)), {"f": lambda x: x @ x}))


def parent(control: socket.socket, confinement: limits.Confinement) -> None:
    """Fork a child for each socket that the judge sends, end it at the next word."""
    running, setup = 0, Setup()
    while True:
        word, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if running:
            end(running, confinement.scratch)
            running = 0
        if not word:
            return
        if not descriptors:
            continue
        with socket.socket(fileno=descriptors[0]) as channel:
            try:
                setup.receive(channel)
            except frames.Gone:
                continue
            running = os.fork()
            if running == 0:
                control.close()
                os.setsid()
                child(channel, confinement, setup)


def end(running: int, scratch: Path) -> None:
    """Kill the child and whatever it started, and empty the folder in which it could write."""
    for kill in (os.killpg, os.kill):
        try:
            kill(running, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    os.waitpid(running, 0)
    empty(scratch)


def empty(folder: Path) -> None:
    """Remove what is in the folder, however deep and whatever its modes; follow no link.

    A folder inside hands its entries up and goes, so that no path becomes long.
    """
    names = (f"{secrets.token_hex(8)}-{number}" for number in itertools.count())
    while entries := list(os.scandir(folder)):
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            os.chmod(entry.path, 0o700)
            for inner in list(os.scandir(entry.path)):
                if inner.is_dir(follow_symlinks=False):
                    os.chmod(inner.path, 0o700)  # it could not be moved else
                os.rename(inner.path, folder / next(names))
            os.rmdir(entry.path)


def child(channel: socket.socket, confinement: limits.Confinement, setup: Setup) -> None:
    try:
        serve(channel, confinement, setup)
    except (frames.Gone, OSError):  # the judge hung up
        os._exit(0)
    except BaseException:  # no traceback of ours for a learner to read
        os._exit(1)


def main() -> None:
    """Arguments: ROOT SCRATCH DOOR PACKAGES...

    DOOR is the number of an inherited socket where processes can fork; elsewhere a port of
    this machine, and the token to say there comes in hexadecimal on standard input.
    """
    _, _, scratch, door, *_ = sys.argv
    limits.not_dumpable()
    del sys.argv[1:]
    torch.set_num_threads(1)
    warm_up()
    forget_the_course()
    token = b"" if hasattr(os, "fork") else bytes.fromhex(sys.stdin.readline().strip())
    with suppress(OSError):  # what the judge would read had this process not started
        os.ftruncate(2, 0)
    silence = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silence, descriptor)
    confinement = limits.Confinement(Path(scratch))
    if hasattr(os, "fork"):
        gc.collect()
        gc.freeze()
        parent(socket.socket(fileno=int(door)), confinement)
    else:
        channel = socket.create_connection(("127.0.0.1", int(door)))
        frames.send(channel, token)
        setup = Setup()
        setup.receive(channel)
        child(channel, confinement, setup)
