"""The cost of code within one run: its processor time in units of a yardstick's."""

import ast
import gc
import time
from contextlib import contextmanager

TEXT = "def f(x):\n    return [y * (x - 1) for y in range(x) if y % 3]\n" * 100


def yardstick() -> float:
    """Processor seconds for compiling TEXT, the least of three; 5 ms on the author's
    machine."""
    return min(_seconds(lambda: compile(ast.parse(TEXT), "text", "exec")) for _ in range(3))


def _seconds(work) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


@contextmanager
def at_most(yardsticks: float, case: object = ""):
    """Fail if the block takes more processor time than this number of yardsticks.

    A slow or busy machine slows both. Garbage of other tests is not collected meanwhile, as its
    size would count.
    """
    gc.freeze()
    try:
        unit, began = yardstick(), time.process_time()
        yield
        spent = time.process_time() - began
        if spent > yardsticks * unit:
            unit = max(unit, yardstick())
    finally:
        gc.unfreeze()
    assert spent <= yardsticks * unit, f"{spent / unit:.0f} yardsticks: {case}"
