"""The best sandbox of this machine: it is started, and code in it really tries to break out."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from labkit.grading.judge import attempts
from labkit.grading.judge.attempts import ATTEMPTS
from labkit.grading.judge.sandbox import Sandbox, bubblewrap_arguments
from labkit.grading.judge.worker_client import LoadRequest, WorkerLauncher
from labkit.sandboxed.call import Call
from labkit.sandboxed.frames import Gone

# In a worker after the one with all others, which has left something; the last one ends it.
IN_A_SECOND_WORKER = ("find what another left", "compute without end")
ONLY_BUBBLEWRAP = ("fill the disk",)


@cache
def best_sandbox() -> Sandbox:
    """The best sandbox of this machine, tried out once a process."""
    program, lacking = shutil.which("bwrap"), ""
    if sys.platform != "linux":
        lacking = "bubblewrap exists for Linux only; grade a class there"
    elif program is None:
        lacking = "bubblewrap is not installed (`apt install bubblewrap`, `dnf install ...`)"
    else:
        lacking = start_error(program)
    if program and not lacking:
        sandbox = probed(Sandbox(program))
        if sandbox.stopped and not sandbox.open:
            return sandbox
        lacking = f"bubblewrap runs but lets through: {', '.join(sandbox.open) or 'everything'}"
    return probed(Sandbox(lacking=lacking))


def start_error(program: str) -> str:
    """Why bubblewrap does not start here; empty if it does."""
    command = [*bubblewrap_arguments(program), sys.executable, "-I", "-S", "-c", "pass"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/")
    if done.returncode == 0:
        return ""
    error = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    remedy = "update it to version 0.7 or later"
    if "ermi" in error or "namespace" in error or "uid map" in error:
        remedy = (
            "the system forbids unprivileged user namespaces: allow them for bwrap (on Ubuntu "
            "24.04 `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, in a "
            "container `--privileged` or a matching seccomp profile)"
        )
    return f"bubblewrap does not start here ({error}); {remedy}"


def probed(sandbox: Sandbox) -> Sandbox:
    """The sandbox with what became of every attempt to break out of it."""
    names = [n for n in ATTEMPTS if sandbox.bubblewrap or n not in ONLY_BUBBLEWRAP]
    first = [name for name in names if name not in IN_A_SECOND_WORKER]
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.create_server(("127.0.0.1", 0)) as server,
        WorkerLauncher(sandbox) as workers,
    ):
        secret = Path(folder) / "secret"
        secret.write_text("the gradebook")
        aims = {"path": str(secret), "port": server.getsockname()[1]}
        stopped = _stopped(workers, first, aims)
        stopped |= _stopped(workers, IN_A_SECOND_WORKER, aims)
    through = tuple(name for name in names if name not in stopped)
    return replace(sandbox, stopped=tuple(n for n in names if n in stopped), open=through)


def _stopped(
    workers: WorkerLauncher, names: Iterable[str], aims: Mapping[str, Any]
) -> set[str]:
    """Those of the attempts that fail in a fresh worker."""
    source = Path(attempts.__file__).read_text("utf-8")
    request = LoadRequest({"attempts": source}, "attempts", (), cpu_seconds=1, audit=False)
    try:
        worker = workers.launch(request)
    except (OSError, Gone):
        return set()
    values = {name: worker.ask(Call("attempt", what=name, **aims)).value for name in names}
    worker.close()
    return {name for name, value in values.items() if str(value).startswith("stopped by")}
