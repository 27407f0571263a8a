"""The best sandbox of this machine: it is started, and code in it really tries to break out."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.core.files import write_whole
from labkit.core.paths import LABKIT
from labkit.sandbox import attempts, bubblewrap
from labkit.sandbox.attempts import ATTEMPTS
from labkit.sandbox.bubblewrap import Sandbox, bubblewrap_arguments
from labkit.sandbox.inside import seccomp
from labkit.sandbox.inside.frames import Gone
from labkit.sandbox.inside.limits import landlock_version, readable_folders

if TYPE_CHECKING:  # torch, which is not needed where the outcome of today is there
    from labkit.sandbox.launch import WorkerLauncher

# In a worker after the one with all others, which has left something; the last one ends it.
IN_A_SECOND_WORKER = ("find what another left", "compute without end")
PATIENCE = 20  # times as long, for an attempt that a busy machine did not get to
A_DAY = 24 * 3600
OUTCOMES = ("stopped", "open", "unknown")
KEPT = Path(os.path.expanduser("~")) / ".cache" / "tinyllm" / "probe.json"
SANDBOXED = LABKIT / "sandbox" / "inside"
# What the system says of what it forbids whom: in another container, under another profile or
# after another setting, it is something else.
SAID_BY_THE_SYSTEM = (
    "/proc/sys/kernel/random/boot_id",
    "/sys/kernel/security/lsm",
    "/proc/self/attr/current",
    "/proc/self/uid_map",
    "/proc/sys/user/max_user_namespaces",
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "/proc/sys/kernel/yama/ptrace_scope",
)
NAMESPACES = ("user", "mnt", "pid", "net")


@cache
def best_sandbox() -> Sandbox:
    """The best sandbox of this machine, tried out once a day.

    A bubblewrap that starts is used, whatever the probe says: without it there is less.
    """
    program, lacking = shutil.which("bwrap"), ""
    if sys.platform != "linux":
        lacking = "bubblewrap exists for Linux only; grade a class there"
    elif program is None:
        lacking = "bubblewrap is not installed (`apt install bubblewrap`, `dnf install ...`)"
    else:
        lacking = start_error(program)
    sandbox = Sandbox(lacking=lacking) if lacking else Sandbox(program)
    return remembered(sandbox) or kept(probed(sandbox))


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
    from labkit.sandbox.launch import WorkerLauncher

    names = list(ATTEMPTS)
    first = [name for name in names if name not in IN_A_SECOND_WORKER]
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.create_server(("127.0.0.1", 0)) as server,
        WorkerLauncher(sandbox) as workers,
    ):
        secret = Path(folder) / "secret"
        secret.write_text("the gradebook")
        aims = {"path": str(secret), "port": server.getsockname()[1]}
        heard = _heard(workers, first, aims) | _heard(workers, IN_A_SECOND_WORKER, aims)
        for name in [name for name in names if name not in heard]:  # a busy machine
            heard |= _heard(workers, [name], aims, PATIENCE)
    stopped = tuple(name for name in names if str(heard.get(name)).startswith("stopped by"))
    through = tuple(name for name in names if heard.get(name) == "got through")
    unknown = tuple(name for name in names if name not in {*stopped, *through})
    return replace(sandbox, stopped=stopped, open=through, unknown=unknown)


def _heard(
    workers: WorkerLauncher, names: Iterable[str], aims: Mapping[str, Any], patience: int = 1
) -> dict[str, str]:
    """What became of attempts in a fresh worker; of some nothing may be heard in time."""
    from labkit.sandbox.inside.call import Call
    from labkit.sandbox.launch import LoadRequest

    source = Path(attempts.__file__).read_text("utf-8")
    request = LoadRequest({"attempts": source}, "attempts", (), cpu_seconds=1, audit=False)
    try:
        worker = workers.launch(request, patience=patience)
    except (OSError, Gone):
        return {}
    outcomes = {name: worker.ask(Call("attempt", what=name, **aims)) for name in names}
    worker.close()
    return {name: outcome.value for name, outcome in outcomes.items() if not outcome.failure}


# The outcome of a day: the probe takes seconds, and nothing changes meanwhile.


def remembered(sandbox: Sandbox) -> Sandbox | None:
    """What a probe found of the same sandbox today; None if there was none."""
    try:
        if time.time() - KEPT.stat().st_mtime > A_DAY or KEPT.stat().st_uid != os.getuid():
            return None
        found = json.loads(KEPT.read_text("utf-8"))[_fingerprint(sandbox)]
        outcomes = {name: tuple(found[name]) for name in OUTCOMES}
        known = all(attempt in ATTEMPTS for names in outcomes.values() for attempt in names)
        return replace(sandbox, **outcomes) if known else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def kept(sandbox: Sandbox) -> Sandbox:
    """The sandbox, with a note for the rest of the day if all of it is known."""
    if not sandbox.unknown:
        found = {name: getattr(sandbox, name) for name in OUTCOMES}
        with suppress(OSError):
            KEPT.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(KEPT, json.dumps({_fingerprint(sandbox): found}))
            KEPT.chmod(0o600)
    return sandbox


def _fingerprint(sandbox: Sandbox) -> str:
    """Tells apart systems, starts of the machine, containers and what they forbid, users,
    programs, libraries, and our own code."""
    facts: list[Any] = [platform.platform(), sys.executable, os.getuid(), os.geteuid()]
    facts += [landlock_version(), seccomp.library_version(), readable_folders()]
    facts += [_read(path) for path in SAID_BY_THE_SYSTEM]
    with suppress(OSError):  # no /proc
        facts += [os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES]
    status = _read("/proc/self/status").splitlines()
    kinds = (b"Cap", b"NoNewPrivs", b"Seccomp")
    facts += [line for line in status if line.startswith(kinds)]
    ours = [__file__, attempts.__file__, bubblewrap.__file__]
    facts += [_read(path) for path in [*sorted(SANDBOXED.glob("*.py")), *ours]]
    if sandbox.bubblewrap:
        about = Path(sandbox.bubblewrap).stat()
        facts += [sandbox.bubblewrap, about.st_mtime_ns, about.st_size]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _read(path: Path | str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError):  # not there, or not for us
        return b""
