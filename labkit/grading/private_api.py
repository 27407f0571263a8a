"""What is used of other packages although they do not promise to keep it.

Tried with Python 3.11 (concurrent.futures, multiprocessing). Of nbgrader, tried with 0.9.6,
only what is public is used.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize


def processes_of(executor: ProcessPoolExecutor) -> list[BaseProcess]:
    """The running processes of a pool; Python 3.14 can kill them by itself."""
    return list((getattr(executor, "_processes", None) or {}).values())


def at_end_of_pool_process(work: Callable[[], None]) -> None:
    """As atexit does it in other processes: those of a pool end without it."""
    Finalize(None, work, exitpriority=10)
