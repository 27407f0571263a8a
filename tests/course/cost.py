"""What code costs, as a ratio within one run: its processor time against a yardstick's."""

import ast
import gc
import time
from contextlib import contextmanager

TEXT = "def f(x):\n    return [y * (x - 1) for y in range(x) if y % 3]\n" * 100


def yardstick() -> float:
    """Seconds of the processor for compiling TEXT, the least of three; 5 ms where written."""
    return min(_seconds(lambda: compile(ast.parse(TEXT), "text", "exec")) for _ in range(3))


def _seconds(work) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


@contextmanager
def at_most(yardsticks: float, case: object = ""):
    """Fail if the block takes more processor time than this number of yardsticks.

    A machine that is slow or busy is so for both. What other tests have left is not collected
    meanwhile: its size would count.
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
