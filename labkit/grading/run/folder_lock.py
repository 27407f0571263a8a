"""One at a time: who writes in a course folder holds its lock, and says who it is."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from labkit.core.files import write_whole
from labkit.grading.nbgrader.gradebook.connection import CourseError
from labkit.lang import tr


@contextmanager
def folder_lock(root: Path) -> Iterator[None]:
    """Hold the course folder; CourseError where another process does, or nobody can write.

    The system gives the lock back when its process ends, however it ends.
    """
    lock, holder = FileLock(root / ".lock", blocking=False), root / ".lock-holder"
    try:
        lock.acquire()
        write_whole(holder, myself())
    except Timeout:
        raise CourseError(
            tr(
                "{root} is in use by {told}; wait for it or stop it, then give the "
                "same command again",
                root=root,
                told=told(holder),
            )
        ) from None
    except OSError as error:
        lock.release()
        raise CourseError(
            tr(
                "the course folder {root} cannot be written: {strerror}. Nothing was changed",
                root=root,
                strerror=error.strerror,
            )
        ) from error
    try:
        yield
    finally:
        lock.release()


def myself() -> str:
    command = " ".join(["tinyllm", *sys.argv[1:]])[:200]
    now = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
    return tr(
        "`{command}`, process {process} on {machine}, since {now}",
        command=command,
        process=os.getpid(),
        machine=socket.gethostname(),
        now=now,
    )


def told(holder: Path) -> str:
    try:
        return holder.read_text("utf-8")
    except (OSError, ValueError):
        return tr("another command")
