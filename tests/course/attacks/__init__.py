"""Hostile submissions: what each tries, where it is stopped, and the cell that tries it.

An attack is a function. Its source becomes an exercise cell, together with the table `aim` of
its targets (see world.py). An attack that takes `aim` alone runs when the cell is loaded; an
attack that also takes the arguments of layer_norm runs at every call of it.

Success is measured from outside and is the same for all: a point more than the same wrong
answer earns, a target that was touched, a listener that was called, a process that is left, a
judge that is gone. Or the attack reports it: it returns a text, the loot that its author would
find in the feedback.

What each layer claims to stop:

    split       learner code in a separate process with limits, without a test or an answer;
                plain bytes cross, one question at a time (every system)
    kernel      also Landlock, seccomp, and a check for leftovers (Linux)
    bubblewrap  also namespaces: no network, no other process, no file that is not Python's

Nothing here stops the following: a cell sees the inputs of its hidden checks while it is asked,
and may
forge its answers to them. That helps nobody: what earned points is asked once more with numbers
that depend on all that was handed in with it, so that a forged answer has to be right for
numbers that its author has not seen (test_intake.py learns a whole run by heart). Only one
check of an exercise is asked again, and all if it fails: an author who solves nearly all of an
exercise may, with luck, keep a table for the rest. A cell may use the reference of what its
module imports, which is there as code and not as text; it can take all the time that a cell is
given. Some functions of torch that do the exercise are on no list, and code that finds the
worker's own modules can take the bans back: a ban is a rule, and text that leads around it is
shown to a person (test_unusual.py has the ways). Under the kernel layer alone a cell can also
learn which files exist (Landlock does not cover `stat`), and read a copy of the course that is
installed among Python's packages. The split alone does not protect the files, the network and
the processes of the user who grades.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

LAYERS = ("split", "kernel", "bubblewrap")
WRONG = "0 * x + 7"  # the answer of a hostile cell

PRELUDE = """\
import builtins, collections, contextlib, ctypes, fcntl, gc, os
import signal, socket, stat, struct, sys
import threading, time, types
from pathlib import Path

import torch
from torch import Tensor, nn


class aim:
{aim}


with contextlib.suppress(Exception):
    aim.libc = ctypes.CDLL(None, use_errno=True)


"""
ON_LOADING = """

def layer_norm(x, weight, bias, eps=1e-5):
    return {wrong}


def tell(loot):
    if isinstance(loot, str):
        raise RuntimeError("LOOT " + " ".join(loot.split())[:200])


layer_norm.loot = tell({name}(aim))  # part of the answer, so it runs when that is loaded
"""
ON_CALLING = """

def layer_norm(x, weight, bias, eps=1e-5):
    return {name}(aim, x, weight, bias, eps)
"""


@dataclass(frozen=True)
class Attack:
    """One hostile cell.

    tries    what it tries, in a sentence
    by       the first of LAYERS that stops it
    unbared  why it is not shown to work at the layer below; empty if it is
    """

    name: str
    tries: str
    by: str
    unbared: str
    code: Callable[..., object]

    @property
    def source(self) -> str:
        text = inspect.getsource(self.code)
        return text[text.index("\ndef ") + 1 :].rstrip()

    def cell(self, aim: dict[str, object]) -> str:
        table = "\n".join(f"    {name} = {value!r}" for name, value in aim.items())
        called = len(inspect.signature(self.code).parameters) > 1
        ending = (ON_CALLING if called else ON_LOADING).format(name=self.name, wrong=WRONG)
        start = f"# %% exercise 1.1: layer_norm\n{PRELUDE.format(aim=table)}"
        return f"{start}{self.source}\n{ending}"


ATTACKS: dict[str, Attack] = {}


def attack(tries: str, by: str = "split", unbared: str = ""):
    def register(code: Callable[..., object]) -> Callable[..., object]:
        assert by in LAYERS and code.__name__ not in ATTACKS
        ATTACKS[code.__name__] = Attack(code.__name__, tries, by, unbared, code)
        return code

    return register


def load_attacks() -> dict[str, Attack]:
    """Every attack of the modules in this folder."""
    for path in sorted(Path(__file__).parent.glob("on_*.py")):
        importlib.import_module(f"{__name__}.{path.stem}")
    return ATTACKS
