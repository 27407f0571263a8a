"""The sandbox round the learner's process: bubblewrap where there is one.

    bubblewrap     namespaces of its own: no network, no other process, no file but Python and
                   its packages, read-only, and a small TMPDIR in memory; no privileges
    inside it, or alone where there is no bubblewrap: the layers of labkit.sandboxed.limits

`chosen()` starts the best there is and really tries to break out of it, once a process. What
was tried and what got through stands in every report.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from labkit.core.paths import LABKIT, ROOT
from labkit.sandboxed.call import Call
from labkit.sandboxed.limits import readable_folders

TEMPORARY_BYTES = 64 << 20
NOBODY = "65534"
CODE, SCRATCH = "/code", "/scratch"  # the worker's modules, and its TMPDIR, inside


class GradingError(Exception):
    """Nothing can be graded like this; the message says why and what to do."""


class NoSandbox(GradingError):
    """There is no bubblewrap and one was required; the message says what to do."""


@dataclass(frozen=True)
class Sandbox:
    """How learner code is shut in on this machine."""

    bubblewrap: str | None = None  # the program, where it works
    stopped: tuple[str, ...] = ()  # attempts to break out that failed
    open: tuple[str, ...] = ()  # attempts that got through
    lacking: str = ""  # why there is no bubblewrap, and what to do about it

    def command(self, python: list[str], code: Path, scratch: Path, door: str) -> list[str]:
        """The command line that starts the worker's parent."""
        if self.bubblewrap is None:
            return [*python, str(code), str(scratch), door]
        return [*bwrap_arguments(self.bubblewrap), *python, CODE, SCRATCH, door]

    @property
    def layers(self) -> list[str]:
        """The names of the layers round the worker, beside those that it puts on itself."""
        return ["bubblewrap"] if self.bubblewrap else []


def bwrap_arguments(program: str) -> list[str]:
    """bubblewrap's arguments: everything new and empty, then what Python needs, read-only."""
    words = [program, "--unshare-user", "--unshare-all", "--uid", NOBODY, "--gid", NOBODY]
    words += ["--cap-drop", "ALL", "--new-session", "--hostname", "worker"]
    if threading.current_thread() is threading.main_thread():
        words += ["--die-with-parent"]  # means the thread; without it the closed door ends it
    words += ["--proc", "/proc", "--dir", "/dev"]
    for device in ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"):
        words += ["--dev-bind", device, device]
    for path in ("/etc/ld.so.cache", "/sys/devices/system/cpu"):
        words += ["--ro-bind-try", path, path]
    names = ["/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"]
    names += [str(path) for path in readable_folders()]
    names += [sys.executable, os.path.realpath(sys.executable), f"{sys.prefix}/pyvenv.cfg"]
    for path in sorted(set(names)):  # a folder comes before what lies in it
        if os.path.exists(path) and not path.startswith("/dev/"):
            words += ["--ro-bind", path, path]
    for path in covered(names):
        words += ["--tmpfs", path]
    words += ["--ro-bind", str(LABKIT / "sandboxed"), f"{CODE}/labkit/sandboxed"]
    words += ["--size", str(TEMPORARY_BYTES), "--tmpfs", SCRATCH, "--chdir", SCRATCH]
    return [*words, "--remount-ro", "/", "--"]


def covered(shown: list[str]) -> list[str]:
    """The course's own folders that lie inside a folder that is shown: an installed copy."""
    inside = [Path(name) / part for name in shown for part in ("labkit", "solutions")]
    inside += [ROOT / part for part in ("labkit", "solutions", "tests", "course")]
    return sorted(
        {
            str(path)
            for path in inside
            if path.is_dir() and any(path.is_relative_to(name) for name in shown)
        }
    )


@cache
def best_sandbox() -> Sandbox:
    """The best sandbox of this machine, tried out."""
    program, lacking = shutil.which("bwrap"), ""
    if sys.platform != "linux":
        lacking = "bubblewrap exists for Linux only; grade a class there"
    elif program is None:
        lacking = "bubblewrap is not installed (`apt install bubblewrap`, `dnf install ...`)"
    else:
        lacking = refusal(program)
    if program and not lacking:
        found = probed(Sandbox(program))
        if found.stopped and not found.open:
            return found
        lacking = f"bubblewrap runs but lets through: {', '.join(found.open) or 'everything'}"
    return probed(Sandbox(lacking=lacking))


def required(sandbox: Sandbox) -> Sandbox:
    """`sandbox`, if it is a real one."""
    if sandbox.bubblewrap is None:
        raise NoSandbox(f"a sandbox is required and there is none: {sandbox.lacking}")
    return sandbox


def refusal(program: str) -> str:
    """Why bubblewrap does not start here; empty if it does."""
    command = [*bwrap_arguments(program), sys.executable, "-I", "-S", "-c", "pass"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/")
    if done.returncode == 0:
        return ""
    said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    remedy = "update it to version 0.7 or later"
    if "ermi" in said or "namespace" in said or "uid map" in said:
        remedy = (
            "the system forbids unprivileged user namespaces: allow them for bwrap (on Ubuntu "
            "24.04 `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, in a "
            "container `--privileged` or a matching seccomp profile)"
        )
    return f"bubblewrap does not start here ({said}); {remedy}"


# What a hostile cell might try. Each line of ATTEMPTS either raises or gets through.
PROBE = """
import ctypes, os, resource, socket, torch

def attempt(what, path="", port=0):
    try:
        ATTEMPTS[what](path, port)
    except BaseException as error:
        return "stopped by " + type(error).__name__
    return "got through"

def fill(count):
    for number in range(count):
        with open(str(number), "wb") as file:
            file.write(bytes(8 << 20))

def call(name, *arguments):
    if getattr(ctypes.CDLL(None), name)(*arguments) < 0:
        raise OSError(name)

def fork(path, port):
    if os.fork() == 0:
        os._exit(0)

def loop(path, port):
    while True:
        pass

def empty(path, port):
    if os.listdir("."):
        return
    raise OSError("nothing there")

ATTEMPTS = {
    "reach the network": lambda path, port: socket.create_connection(("127.0.0.1", port), 2),
    "read a file": lambda path, port: open(path).read(),
    "write a file": lambda path, port: open(path + ".new", "w"),
    "write a huge file": lambda path, port: open("huge", "wb").write(bytes(17 << 20)),
    "fill the disk": lambda path, port: fill(16),
    "take all memory": lambda path, port: torch.empty(3 << 30, dtype=torch.uint8),
    "take uncounted memory": lambda path, port: os.memfd_create("x"),
    "start a process": fork,
    "signal another process": lambda path, port: os.kill(os.getppid(), 0),
    "trace a process": lambda path, port: call("ptrace", 0, 0, 0, 0),
    "gain privileges": lambda path, port: call("unshare", 0x10000000),
    "raise its limits": lambda path, port: resource.setrlimit(
        resource.RLIMIT_CPU, (99_999, 99_999)),
    "print without end": lambda path, port: [print("x" * 10_000) for _ in range(1000)],
    "find what another left": empty,
    "compute without end": loop,
}
"""
LAST = ("find what another left", "compute without end")
ONLY_BUBBLEWRAP = ("fill the disk",)


def probed(sandbox: Sandbox) -> Sandbox:
    """The sandbox with what became of every attempt to break out of it."""
    from labkit.grading.judge.worker_client import Gone, LoadRequest, WorkerLauncher

    attempts = [line.split('"')[1] for line in PROBE.splitlines() if line.startswith('    "')]
    if sandbox.bubblewrap is None:
        attempts = [what for what in attempts if what not in ONLY_BUBBLEWRAP]
    with tempfile.TemporaryDirectory() as folder, WorkerLauncher(sandbox) as workers:
        secret = Path(folder) / "secret"
        secret.write_text("the gradebook")
        server = socket.create_server(("127.0.0.1", 0))
        order = LoadRequest({"probe": PROBE}, "probe", (), cpu_seconds=1, audit=False)
        rounds = [[a for a in attempts if a not in LAST], [a for a in attempts if a in LAST]]
        ends: dict[str, str] = {}
        with server:
            for names in rounds:
                try:
                    worker = workers.launch(order)
                except (OSError, Gone):
                    break
                for what in names:
                    arguments = {"path": str(secret), "port": server.getsockname()[1]}
                    outcome = worker.ask(Call("attempt", what=what, **arguments))
                    ends[what] = str(outcome.value or outcome.failure)
                worker.close()
    stopped = tuple(what for what in attempts if ends.get(what, "").startswith("stopped"))
    through = tuple(what for what in attempts if what not in stopped)
    return Sandbox(sandbox.bubblewrap, stopped, through, sandbox.lacking)
