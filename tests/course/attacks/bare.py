"""A grader without protection, like many a script: python bare.py FOLDER

It runs the cells FOLDER/NAME.py beside the answers, compares in the usual ways, passes
the results on as a pickle, continues with the next learner in the same process, and mistakes a
process that ended well for one that passed. For each cell it leaves FOLDER/NAME.json:

    points   the share of comparisons that held
    error    what the cell raised
    next     whether the next learner's right answer still has its points
    judge    "fine", "gone" or "waiting": what became of the process that asked
"""

import json
import os
import pickle
import resource
import signal
import socket
import sys
import time
import unittest
from contextlib import suppress
from pathlib import Path

import numpy
import torch

PATIENCE, SHORT = 60, 3  # seconds; the second for an attack that hangs
MEMORY = 8 << 30
RIGHT = """
def layer_norm(x, weight, bias, eps=1e-5):
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).square().mean(-1, keepdim=True)
    return weight * (x - mean) / (variance + eps).sqrt() + bias
"""


def questions():
    for seed in range(2):
        torch.manual_seed(seed)
        yield torch.randn(3, 8), torch.randn(8), torch.randn(8)


def compared(got, expected):
    """The usual ways to compare. What fails to compare does not hold."""
    ways = (
        lambda: torch.allclose(got, expected, atol=1e-5),
        lambda: torch.equal((got - expected).abs() < 1e-5, torch.ones(3, 8, dtype=torch.bool)),
        lambda: numpy.allclose(got, expected, atol=1e-5),
        lambda: got == expected and not isinstance(got == expected, torch.Tensor),
        lambda: (abs(got - expected) < 1e-5).all(),
        lambda: max(abs(float(e)) for e in (got - expected).flatten()) < 1e-5,
    )
    for way in ways:
        holds = False
        with suppress(Exception):
            holds = bool(way())
        yield holds


def score(namespace, reference):
    held = []
    for x, weight, bias in questions():
        got = namespace["layer_norm"](x, weight, bias)
        expected = reference.layer_norm(x, weight, bias)
        held += compared(got, expected)
    return sum(held) / len(held), got


def learner(cell, channel):
    import solutions.rmsnorm as reference

    namespace, verdict, got = {}, {"points": 0.0, "error": "", "next": False}, None
    try:
        exec(compile(cell, "cell.py", "exec"), namespace)
        verdict["points"], got = score(namespace, reference)
    except unittest.SkipTest:
        verdict["points"] = 1.0  # a test that was skipped has not failed
    except Exception as error:
        verdict["error"] = str(error)
    following = {"torch": torch}
    with suppress(Exception):
        exec(RIGHT, following)
        verdict["next"] = score(following, reference)[0] >= 0.5
    try:
        blob = pickle.dumps((verdict, got))
    except Exception:
        blob = pickle.dumps((verdict, None))
    channel.sendall(blob)


def judge(path, result):
    os.setsid()
    os.chdir(result.with_suffix(".home"))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        signal.alarm(SHORT - 2)
        learner(path.read_text(), theirs)
        sys.exit(0)
    theirs.close()
    with ours.makefile("rb") as stream:
        verdict = None
        with suppress(EOFError):
            verdict, _ = pickle.load(stream)
    _, status = os.waitpid(child, 0)
    if verdict is None:
        verdict = {"points": float(status == 0), "error": "", "next": False}
    result.write_text(json.dumps({**verdict, "judge": "fine"}))


def trial(path, patience):
    result = path.with_suffix(".json")
    home = path.with_suffix(".home")
    home.mkdir()
    (home / "from-the-last-learner").write_text("an answer")
    pid = os.fork()
    if pid == 0:
        try:
            judge(path, result)
        finally:
            os._exit(0)
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if os.waitpid(pid, os.WNOHANG)[0]:
            fate = "gone"
            break
        time.sleep(0.01)
    else:
        fate = "waiting"
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    if fate == "waiting":
        os.waitpid(pid, 0)
    if not result.exists():
        nothing = {"points": 0.0, "error": "", "next": False}
        result.write_text(json.dumps({**nothing, "judge": fate}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    import solutions.rmsnorm  # noqa: F401  once, for all children

    cells = {path: path.read_text() for path in sorted(Path(sys.argv[1]).glob("*.py"))}
    waiting = []
    for path in [path for path, text in cells.items() if "# hangs" in text]:
        waiting.append(os.fork())  # beside each other and all others: they only take time
        if waiting[-1] == 0:
            trial(path, SHORT)
            os._exit(0)
    for path in [path for path, text in cells.items() if "# hangs" not in text]:
        trial(path, PATIENCE)
    for pid in waiting:
        os.waitpid(pid, 0)
