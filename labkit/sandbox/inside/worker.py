"""The learner's process: runs submitted code, answers calls, knows no test and no answer.

    judge                                      worker (this file)
      | -- banned names, calls that will
      |    be asked anyway              -->  |   the parent: fork
      | -- package sources, module      -->  |   the child: confine
      | <-- the layers of protection           |
      |                                        |   run the learner's cell
      | <-- an outcome: loaded, or what failed |
      | <-- nonce + the outcomes of those calls|
      | -- nonce + call                 -->  |
      | <-- nonce + its outcome                |   ... until the judge hangs up, or
      | -- sources of the next exercise -->  |   run the learner's next cell ...

Everything that crosses is plain bytes, see wire.py. On POSIX a parent imports torch once and
forks a fresh child for each learner, one at a time: before the next one starts, the last
one is dead and its files are gone. Elsewhere each starts a new process.

What makes it quick, measured on lab 01: torch is imported before the fork (2 s); a child's
collector leaves alone what was there before (0.1 s where it runs); the parent's memory lies in
huge pages, see HUGE_PAGES (3 ms of 9 for a fork and the end of the child); one call is
performed beforehand (2 ms of 16 for all calls of a submission); the parent has read the calls
that are made of everybody (4 ms).
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
from collections.abc import Callable
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
    encode_outcomes,
)

NONCE = 16
LOAD, CALL = b"l", b"c"  # how a message begins
# In the environment: the C library asks the kernel for huge pages. A fork then copies fewer
# entries of the page table.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
Request = dict[str, Any]  # the fields of labkit.sandbox.launch.LoadRequest


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


class Preload:
    """What the judge says before anything of a learner comes, and what is good for all learners
    of a lab: the banned names, whose operators take long to refuse, and the calls that are
    made of everybody. The parent keeps both; sources go to a child alone, since they hold
    answers to other exercises."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.libraries: list[Any] = []
        self.calls: dict[str, list[Call]] = {"": []}  # by the name of the plan

    def receive(self, channel: socket.socket) -> None:
        fields = json.loads(frames.receive(channel, MAX_BYTES))
        if fields["banned"] != self.names:
            self.names = fields["banned"]
            self.libraries.clear()  # the operators are as they were
            self.libraries = banned.refuse_operators(self.names)
        for name, count in fields["plans"].items():
            self.calls[name] = received_calls(channel, count)


def serve(channel: socket.socket, confinement: limits.Confinement, preload: Preload) -> None:
    """Load exercises of one learner and answer calls until the judge hangs up."""
    scratch = str(confinement.scratch)
    os.environ["TMPDIR"] = os.environ["HOME"] = tempfile.tempdir = scratch
    os.chdir(scratch)
    request = json.loads(frames.receive(channel, MAX_BYTES).removeprefix(LOAD))
    calls = preload.calls[request["plan"]]
    preload.calls.clear()  # what others are asked is nothing for this process
    banned.hold_for_good(preload.libraries)
    layers = confinement.enter(request["cpu_seconds"], request["audit"])
    frames.send(channel, json.dumps(layers).encode())
    sys.breakpointhook = banned.nothing
    watch = Watch(preload.names)
    with banned.as_in_grading(), banned.out_of_reach(preload.names):
        while True:
            with imported(sealed(request), texts=request["texts"]):
                request = carry_out(request, channel, calls, watch)
            calls = received_calls(channel, request["calls"])


def received_calls(channel: socket.socket, count: int) -> list[Call]:
    return [decode_call(frames.receive(channel, MAX_BYTES)) for _ in range(count)]


def sealed(request: Request) -> dict[str, Source]:
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


def carry_out(
    request: Request, channel: socket.socket, calls: list[Call], watch: Watch
) -> Request:
    """Run the learner's cell and answer calls; returns the next request.

    watch    of what runs in the first of the calls and in those that are asked later, which
             every right answer meets: to look at all takes an eighth of a right submission
    """
    module = request["module"]
    outcome, namespace = load(module)
    frames.send(channel, encoded([outcome]))

    def performed(call: Call) -> Outcome:
        return perform(call, namespace, filename(module))

    def watched(call: Call) -> Outcome:
        watch.refused = watch.odd = ""
        outcome = perform(call, namespace, filename(module), watch)
        if watch.refused:
            error = banned.NotAllowed(banned.message(watch.refused))
            return Outcome(failure=describe(error, None))
        outcome.odd = watch.odd
        return outcome

    if calls:
        nonce = bytes.fromhex(request["nonce"])
        looks = {id(calls[0]): watched}
        outcomes = until_over(calls, lambda call: looks.get(id(call), performed)(call))
        frames.send(channel, nonce + encoded(outcomes))
    while True:
        message = frames.receive(channel, MAX_BYTES)
        if message.startswith(LOAD):
            return json.loads(message.removeprefix(LOAD))
        nonce, call = message[len(CALL) :][:NONCE], message[len(CALL) + NONCE :]
        frames.send(channel, nonce + encoded([watched(decode_call(call))]))


def until_over(calls: list[Call], performed: Callable[[Call], Outcome]) -> list[Outcome]:
    """The outcomes of calls, up to one after which no other can be had."""
    outcomes = []
    for call in calls:
        outcomes.append(performed(call))
        if outcomes[-1].over:
            break
    return outcomes


def load(module: str) -> tuple[Outcome, dict[str, object]]:
    """Run the module with the learner's cell in it."""
    try:
        return Outcome(), vars(importlib.import_module(f"{PACKAGE}.{module}"))
    except BaseException as error:  # a cell may raise anything, SystemExit too
        return Outcome(failure=describe(error, filename(module))), {}


def encoded(outcomes: list[Outcome]) -> bytes:
    try:
        return encode_outcomes(outcomes)
    except Exception:  # whatever an odd object does when it is packed
        return encode_outcomes([comparable(outcome) for outcome in outcomes])


def comparable(outcome: Outcome) -> Outcome:
    try:
        encode_outcomes([outcome])
    except Exception as error:
        text = f"the answer is nothing that can be compared ({error})"
        return Outcome(failure=describe(Malformed(text), None))
    return outcome


def warm_up() -> None:
    """Perform a call as often as Python takes to adapt its bytecode."""
    call = Call("f", x=torch.ones(2, 2), grad=True)
    for _ in range(12):
        encoded([perform(decode_call(encode_call(call)), {"f": lambda x: x @ x})])


def parent(control: socket.socket, confinement: limits.Confinement) -> None:
    """Fork a child for each socket that the judge sends, end it at the next word."""
    running, preload = 0, Preload()
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
                preload.receive(channel)
            except frames.Gone:
                continue
            running = os.fork()
            if running == 0:
                control.close()
                os.setsid()
                child(channel, confinement, preload)


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


def child(channel: socket.socket, confinement: limits.Confinement, preload: Preload) -> None:
    try:
        serve(channel, confinement, preload)
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
        preload = Preload()
        preload.receive(channel)
        child(channel, confinement, preload)
