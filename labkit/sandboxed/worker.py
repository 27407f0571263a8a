"""The learner's process: runs submitted code, answers calls, knows no test and no answer.

    judge                                      worker (this file)
      | -- banned names, calls that will be
      |    asked anyway                   -->  |   the parent: fork
      | -- package sources, module        -->  |   the child: confine
      | <-- the layers of protection           |   run the learner's cell
      | <-- an outcome: loaded, or what failed |
      | <-- nonce + the outcomes of those calls|
      | -- nonce + call                   -->  |
      | <-- nonce + its outcome                |   ... until the judge hangs up, or
      | -- sources of the next exercise   -->  |   run the learner's next cell ...

Everything that crosses is plain bytes, see wire.py. On POSIX a parent imports torch once and
forks a fresh child for each learner, one at a time: before the next one starts, the last
one is dead and its files are gone. Elsewhere each starts a new process.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import itertools
import json
import os
import secrets
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from labkit.sandboxed import banned, frames, limits
from labkit.sandboxed.call import Call, Outcome, describe, perform
from labkit.sandboxed.importer import PACKAGE, filename, imported
from labkit.sandboxed.wire import (
    MAX_BYTES,
    Malformed,
    decode_call,
    encode_call,
    encode_outcomes,
)

NONCE = 16
ROUNDS = 12  # of a warm-up, after which Python has adapted its bytecode
HUGE, ADVISE_HUGE, COLLAPSE = 2 << 20, 14, 25  # from the kernel's mman-common.h
ORDER, CALL = b"o", b"c"  # how a message begins
Order = dict[str, Any]  # the fields of labkit.grading.judge.worker_client.Order


def forget_the_course() -> None:
    """Take the course's folder off every road by which Python finds modules."""
    root = str(Path(__file__).resolve().parents[2])
    sys.path[:] = [entry for entry in sys.path if entry and os.path.realpath(entry) != root]
    sys.path_importer_cache.clear()
    ours = [
        f for f in sys.meta_path if "editable" in f"{getattr(f, '__module__', '')}{f!r}".lower()
    ]
    for finder in ours:
        sys.meta_path.remove(finder)


def serve(channel: socket.socket, confinement: limits.Confinement, prelude: Preload) -> None:
    """Load exercises of one learner and answer calls until the judge hangs up."""
    scratch = str(confinement.scratch)
    os.environ["TMPDIR"] = os.environ["HOME"] = tempfile.tempdir = scratch
    os.chdir(scratch)
    order = json.loads(frames.receive(channel, MAX_BYTES).removeprefix(ORDER))
    banned.hold_for_good(prelude.libraries)
    layers = confinement.enter(order["cpu_seconds"], order["audit"])
    frames.send(channel, json.dumps(layers).encode())
    with banned.out_of_reach(prelude.banned):
        while True:
            with imported(order["sources"]):
                order = carry_out(order, channel, prelude.plans[order["plan"]])


def carry_out(order: Order, channel: socket.socket, known: list[Call]) -> Order:
    """Run the learner's cell and answer calls; returns the next order."""
    module = order["module"]
    outcome, namespace = load(module)
    frames.send(channel, encoded([outcome]))

    def performed(call: Call) -> Outcome:
        return perform(call, namespace, filename(module))

    if known:
        nonce = bytes.fromhex(order["nonce"])
        frames.send(channel, nonce + encoded(until_over(known, performed)))
    while True:
        message = frames.receive(channel, MAX_BYTES)
        if message.startswith(ORDER):
            return json.loads(message.removeprefix(ORDER))
        nonce, call = message[len(CALL) :][:NONCE], message[len(CALL) + NONCE :]
        frames.send(channel, nonce + encoded([performed(decode_call(call))]))


def until_over(calls: list[Call], performed: Callable[[Call], Outcome]) -> list[Outcome]:
    """The outcomes of calls, up to one after which no other can be had."""
    outcomes = []
    for call in calls:
        outcomes.append(performed(call))
        if outcomes[-1].over:
            break
    return outcomes


class Preload:
    """What the judge says before anything of a learner comes, and what is good for many
    learners: the banned names, and the calls that the checks make anyway. The parent keeps
    both; sources go to a child alone, since they hold answers to other exercises."""

    def __init__(self) -> None:
        self.banned: list[str] = []
        self.plans: dict[str, list[Call]] = {"": []}
        self.libraries: list[object] = []

    def hear(self, channel: socket.socket) -> None:
        said = json.loads(frames.receive(channel, MAX_BYTES))
        if said["banned"] != self.banned:
            self.banned = said["banned"]
            self.libraries.clear()  # the operators are as they were
            self.libraries = banned.refuse_operators(self.banned)
        for name, count in said["plans"].items():
            calls = [decode_call(frames.receive(channel, MAX_BYTES)) for _ in range(count)]
            self.plans[name] = calls


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
    """Do before a fork what every child would do else: import what torch imports late, while
    the files are in reach, and let Python adapt the code that answers calls."""

    class Scaled(torch.nn.Module):
        def __init__(self, size: int):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(size))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.weight * torch.rsqrt(x.float().pow(2).mean(-1, True)).to(x.dtype)

    namespace, x = {"f": lambda x: x @ x, "Scaled": Scaled}, torch.ones(2, 2)
    half = {"dtype": torch.bfloat16, "x": x.bfloat16()}
    calls = [
        Call("f", x=x, grad=True),
        Call("Scaled", init={"size": 2}, state={"weight": torch.ones(2)}, names=True, x=x),
        Call("Scaled", init={"size": 2}, **half),
    ]
    torch.manual_seed(0)
    for _ in range(ROUNDS):
        encoded([perform(decode_call(encode_call(call)), namespace) for call in calls])


def huge_pages() -> None:
    """Gather this process's memory in huge pages: a fork copies a hundred times fewer entries
    of the page table and takes a third of the time. Linux 6.1 and later; elsewhere nothing."""
    if sys.platform != "linux":
        return
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, _, _, inode, *name = line.split()
        if rights != "rw-p" or inode != "0" or name not in ([], ["[heap]"]):
            continue
        start, stop = (int(number, 16) for number in place.split("-"))
        start, stop = -(-start // HUGE) * HUGE, stop // HUGE * HUGE
        for advice in (ADVISE_HUGE, COLLAPSE) if stop > start else ():
            madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), advice)


def parent(control: socket.socket, confinement: limits.Confinement) -> None:
    """Fork a child for each socket that the judge sends, end it at the next word."""
    running, prelude = 0, Preload()
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
                prelude.hear(channel)
            except frames.Gone:
                continue
            running = os.fork()
            if running == 0:
                control.close()
                os.setsid()
                child(channel, confinement, prelude)


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


def child(channel: socket.socket, confinement: limits.Confinement, prelude: Preload) -> None:
    try:
        serve(channel, confinement, prelude)
    except (frames.Gone, OSError):  # the judge hung up
        os._exit(0)
    except BaseException:  # no traceback of ours for a learner to read
        os._exit(1)


def main() -> None:
    """Arguments: ROOT SCRATCH DOOR.

    DOOR is the number of an inherited socket where processes can fork; elsewhere a port of
    this machine, and the token to say there comes in hexadecimal on standard input.
    """
    _, _, scratch, door = sys.argv
    del sys.argv[1:]
    torch.set_num_threads(1)
    warm_up()
    forget_the_course()
    token = b"" if hasattr(os, "fork") else bytes.fromhex(sys.stdin.readline().strip())
    silence = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silence, descriptor)
    confinement = limits.Confinement(Path(scratch))
    if hasattr(os, "fork"):
        gc.collect()
        huge_pages()
        gc.freeze()  # a child's collector then copies no page of what is here already
        parent(socket.socket(fileno=int(door)), confinement)
    else:
        channel = socket.create_connection(("127.0.0.1", int(door)))
        frames.send(channel, token)
        prelude = Preload()
        prelude.hear(channel)
        child(channel, confinement, prelude)
