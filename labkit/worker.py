"""The learner's process: runs submitted code, answers calls, knows no test and no answer.

    judge                                      worker (this file)
      | -- package sources, module, bans  -->  |   load; confine
      | <-- the layers of protection           |   run the learner's cell
      | <-- an outcome: loaded, or what failed |
      | -- nonce + call                   -->  |
      | <-- nonce + outcome                    |   ... until the judge hangs up

Everything that crosses is plain bytes, see labkit.wire. On POSIX a parent imports torch once
and forks a fresh child for each exercise; elsewhere each exercise starts a new process.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import socket
import sys
import tempfile
from pathlib import Path

import torch

from labkit import banned, confine, frames
from labkit.calls import Call, Outcome, describe, perform
from labkit.sources import PACKAGE, Sources, filename
from labkit.wire import MAX_BYTES, Malformed, decode_call, encode_outcome

NONCE = 16
DIE_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG


def forget_the_course() -> None:
    """Take the course's folder off every road by which Python finds modules."""
    root = str(Path(__file__).resolve().parents[1])
    sys.path[:] = [entry for entry in sys.path if entry and os.path.realpath(entry) != root]
    sys.path_importer_cache.clear()
    ours = [
        f for f in sys.meta_path if "editable" in f"{getattr(f, '__module__', '')}{f!r}".lower()
    ]
    for finder in ours:
        sys.meta_path.remove(finder)


def serve(channel: socket.socket, scratch: Path) -> None:
    """Load one exercise and answer calls until the judge hangs up."""
    scratch = Path(tempfile.mkdtemp(dir=scratch))
    os.environ["TMPDIR"] = os.environ["HOME"] = tempfile.tempdir = str(scratch)
    os.chdir(scratch)
    order = json.loads(frames.receive(channel, MAX_BYTES))
    torch.manual_seed(0)
    sys.meta_path.insert(0, Sources(order["sources"]))
    frames.send(channel, json.dumps(confine.confine(scratch)).encode())
    module = order["module"]
    with banned.out_of_reach(order["banned"]), banned.RefusedOperators(order["banned"]):
        outcome, namespace = load(module)
        frames.send(channel, encode_outcome(outcome))
        while True:
            message = frames.receive(channel, MAX_BYTES)
            nonce, blob = message[:NONCE], message[NONCE:]
            answer = perform(decode_call(blob), namespace, filename(module))
            frames.send(channel, nonce + encoded(answer))


def load(module: str) -> tuple[Outcome, dict[str, object]]:
    """Run the module with the learner's cell in it."""
    try:
        return Outcome(), vars(importlib.import_module(f"{PACKAGE}.{module}"))
    except BaseException as error:  # a cell may raise anything, SystemExit too
        return Outcome(failure=describe(error, filename(module))), {}


def encoded(answer: Outcome) -> bytes:
    try:
        return encode_outcome(answer)
    except Exception as error:  # whatever an odd object does when it is packed
        refused = Malformed(f"the answer is nothing that can be compared ({error})")
        return encode_outcome(Outcome(failure=describe(refused, None)))


def warm_up() -> None:
    """Import what torch imports late, before the files are out of reach."""
    with banned.RefusedOperators([]):
        perform(Call("f", x=torch.ones(2, 2), grad=True), {"f": lambda x: x @ x})
    encode_outcome(Outcome(values=[torch.ones(1)]))


def parent(control: socket.socket, scratch: Path) -> None:
    """Fork one child for each socket that the judge sends, until it hangs up."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children vanish by themselves
    while True:
        word, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not word:
            return
        if os.fork() == 0:
            control.close()
            os.setsid()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if sys.platform == "linux":
                ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
            child(socket.socket(fileno=descriptors[0]), scratch)
        os.close(descriptors[0])


def child(channel: socket.socket, scratch: Path) -> None:
    try:
        frames.send(channel, os.getpid().to_bytes(8, "little"))
        serve(channel, scratch)
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
    if hasattr(os, "fork"):
        parent(socket.socket(fileno=int(door)), Path(scratch))
    else:
        channel = socket.create_connection(("127.0.0.1", int(door)))
        frames.send(channel, token)
        child(channel, Path(scratch))
