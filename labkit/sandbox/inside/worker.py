"""The learner's process: runs submitted code, answers calls, knows no test and no answer.

    judge                                      worker (this file)
      |                                        |   the parent: fork
      | -- banned names, seconds of CPU  -->   |
      | <-- the layers of protection           |   the child: confine
      | -- package sources, module, calls -->  |
      | <-- an outcome: loaded, or what failed |   run the learner's cell
      | <-- the outcome of each call           |   perform the calls
      | -- sources of the next exercise   -->  |   ... until the judge hangs up

A learner's process sends plain bytes, see wire.py. On POSIX a parent imports torch once
and forks a fresh child for each learner, one at a time: before the next one starts, the last
one is dead. It leaves no file: bubblewrap and Landlock let it write none. Elsewhere a new
process is started for each learner.

The next request comes only after the last answer: it contains reference code that must not be
in the process while the exercise that it solves is still being graded.

Three things make it quick, measured on lab 01: torch is imported before the fork (saves 2 s); a
child's garbage collector skips older objects (0.1 s per collection); one call is performed
beforehand (2 ms of 16 for all calls of a submission).
"""

from __future__ import annotations

import gc
import importlib
import json
import marshal
import math
import os
import signal
import socket
import struct
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from pkgutil import iter_modules

import torch

from labkit.sandbox.inside import banned, doubles, limits
from labkit.sandbox.inside.call import Call, Outcome, describe
from labkit.sandbox.inside.importer import PACKAGE, Source, compile_module, filename, imported
from labkit.sandbox.inside.perform import perform
from labkit.sandbox.inside.wire import (
    MAX_BYTES,
    Gone,
    Malformed,
    decode_call,
    encode_call,
    encode_outcome,
    receive,
    send,
)


def serve(channel: socket.socket, confinement: limits.Confinement) -> None:
    """Answer the requests for one learner until the judge closes the connection."""
    setup = json.loads(receive(channel, MAX_BYTES))
    scratch = str(confinement.scratch)
    os.environ["TMPDIR"] = os.environ["HOME"] = tempfile.tempdir = scratch
    os.chdir(scratch)
    layers = confinement.enter(setup["cpu_seconds"])
    send(channel, json.dumps(layers).encode())
    sys.breakpointhook = banned.do_nothing
    with banned.as_in_grading(), banned.out_of_reach(setup["banned"]):
        while True:
            request = marshal.loads(receive(channel, MAX_BYTES))
            sources = request["sources"].items()
            package = {name: code_or_error(name, text) for name, text in sources}
            calls = [decode_call(call) for call in request["calls"]]
            with imported(request["compiled"] | package, texts=request["texts"]):
                module = request["module"]
                del request, sources, package  # they hold answers to other exercises
                perform_calls(module, calls, channel)


def code_or_error(name: str, text: str) -> Source:
    """Return a module as code, of which no text is left when it runs."""
    try:
        return compile_module(text, filename(name))
    except BaseException as error:  # the error is raised when the module is imported
        return error


def perform_calls(module: str, calls: list[Call], channel: socket.socket) -> None:
    """Run the learner's cell, then the calls, until a limit is used up. Each outcome is sent at
    once, so that those before a crash count."""
    outcome, namespace = load(module)
    send(channel, encode_or_explain(outcome))
    for call in [] if outcome.failure else calls:
        outcome = perform(call, namespace, filename(module))
        send(channel, encode_or_explain(outcome))
        if outcome.over:
            return


def load(module: str) -> tuple[Outcome, dict[str, object]]:
    """Run the module with the learner's cell in it."""
    try:
        return Outcome(), vars(importlib.import_module(f"{PACKAGE}.{module}"))
    except BaseException as error:  # a cell may raise anything, even SystemExit
        return Outcome(failure=describe(error, filename(module))), {}


def encode_or_explain(outcome: Outcome) -> bytes:
    try:
        return encode_outcome(outcome)
    except Exception as error:  # an odd object may raise anything when it is packed
        text = f"the answer is nothing that can be compared ({error})"
        return encode_outcome(Outcome(failure=describe(Malformed(text), None)))


def warm_up() -> None:
    """Import the doubles of all labs, which no child can; perform a call as often as Python
    takes to adapt its bytecode."""
    for lab in iter_modules(doubles.__path__):
        importlib.import_module(f"{doubles.__name__}.{lab.name}")
    call = Call("f", x=torch.ones(2, 2), grad=True)
    for _ in range(12):
        encode_or_explain(perform(decode_call(encode_call(call)), {"f": lambda x: x @ x}))


def fork_children(control: socket.socket, confinement: limits.Confinement) -> None:
    """Fork a child for each socket that the judge sends, end it at the next command. Asked for
    the time, send the seconds of CPU that it has used."""
    pid = 0
    while True:
        command, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if command == b"t":
            control.send(struct.pack("d", cpu_used_by(pid)))
            continue
        if pid:
            kill_child(pid)
            pid = 0
        if not command:
            return
        if descriptors:
            pid = os.fork()
            if pid == 0:
                control.close()
                os.setsid()
                serve_child(socket.socket(fileno=descriptors[0]), confinement)
            os.close(descriptors[0])


def cpu_used_by(pid: int) -> float:
    """Return seconds; NaN if the system does not tell."""
    try:
        return time.clock_gettime(~pid << 3 | 2)  # Linux: the clock of a process
    except OSError:
        return math.nan


def kill_child(pid: int) -> None:
    """Kill the child and all that it started."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def serve_child(channel: socket.socket, confinement: limits.Confinement) -> None:
    try:
        serve(channel, confinement)
    except (Gone, OSError):  # the judge closed the connection
        os._exit(0)
    except BaseException:  # a learner must not read a traceback of ours
        os._exit(1)


def main() -> None:
    """Arguments: ROOT SCRATCH DOOR PACKAGES...

    DOOR is the number of an inherited socket on systems that can fork; on others a port of this
    machine, and the token to send there comes in hexadecimal on standard input.
    """
    _, _, scratch, door, *_ = sys.argv
    del sys.argv[1:]
    torch.set_num_threads(1)
    warm_up()
    token = b"" if hasattr(os, "fork") else bytes.fromhex(sys.stdin.readline().strip())
    with suppress(OSError):  # an error that the judge reads if this process does not start
        os.ftruncate(2, 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    confinement = limits.Confinement(Path(scratch))
    if hasattr(os, "fork"):
        gc.collect()
        gc.freeze()
        fork_children(socket.socket(fileno=int(door)), confinement)
    else:
        channel = socket.create_connection(("127.0.0.1", int(door)))
        send(channel, token)
        serve_child(channel, confinement)
