"""Find the best sandbox of this machine: start it, and let code in it really try to break out.

A version number of a kernel or of bubblewrap does not tell what a container or a distribution
has switched off. Trying costs some seconds at the start of each grading."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.sandbox import attempts
from labkit.sandbox.attempts import ATTEMPTS
from labkit.sandbox.bubblewrap import Sandbox, bubblewrap_arguments

if TYPE_CHECKING:  # imports torch
    from labkit.sandbox.launch import WorkerLauncher


@cache
def best_sandbox() -> Sandbox:
    """Return the best sandbox of this machine, after attempts to break out of it.

    If bubblewrap starts, it is used even if an attempt succeeds: without it more would succeed.
    """
    program, lacking = shutil.which("bwrap"), ""
    if sys.platform != "linux":
        lacking = "bubblewrap exists for Linux only; grade a class there"
    elif program is None:
        lacking = "bubblewrap is not installed (`apt install bubblewrap`, `dnf install ...`)"
    else:
        lacking = start_error(program)
    sandbox = Sandbox(lacking=lacking) if lacking else Sandbox(program)
    return probed(sandbox)


def start_error(program: str) -> str:
    """Return why bubblewrap does not start here; "" if it does."""
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
    """Return the sandbox with the result of every attempt to break out of it."""
    from labkit.sandbox.launch import WorkerLauncher

    with (
        tempfile.TemporaryDirectory() as folder,
        socket.create_server(("127.0.0.1", 0)) as server,
        WorkerLauncher(sandbox) as workers,
    ):
        secret = Path(folder) / "secret"
        secret.write_text("the gradebook")
        ends = attempt_results(workers, {"path": str(secret), "port": server.getsockname()[1]})
    unstopped = [name for name, end in ends.items() if not end.startswith("stopped by")]
    return replace(sandbox, unstopped=tuple(unstopped))


def attempt_results(workers: WorkerLauncher, aims: Mapping[str, Any]) -> dict[str, str]:
    """Return the end of each attempt in one worker; "" if it gave no answer."""
    from labkit.sandbox.inside.call import Call
    from labkit.sandbox.inside.wire import Gone
    from labkit.sandbox.launch import LoadRequest

    request = LoadRequest({"attempts": Path(attempts.__file__).read_text("utf-8")}, "attempts")
    calls = [Call("attempt", what=name, **aims) for name in ATTEMPTS]
    try:
        answers = workers.answer(request, calls, cpu_seconds=1)
    except (OSError, Gone):
        return dict.fromkeys(ATTEMPTS, "")
    ends = [str(outcome.value or "") for outcome in answers.outcomes]
    # on a busy machine the judge's clock may end it before the limit does
    if answers.timed_out:
        ends[-1] = "stopped by the clock"
    return dict(zip(ATTEMPTS, ends, strict=True))
