"""The sandbox around the learner's process: bubblewrap where it works.

    bubblewrap     namespaces of its own: no network, no other process, no file but Python and
                   its packages, all of it read-only; no privileges
    inside it, or by themselves without bubblewrap: the layers of labkit.sandbox.inside.limits

This module starts a worker in it; probe.py finds the one that works here.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from labkit.course.paths import LABKIT, ROOT
from labkit.course.syllabus import NOTEBOOKS
from labkit.sandbox.inside.limits import PACKAGES, package_folders, readable_folders

NOBODY = "65534"
UNSANDBOXED = (
    "NO SANDBOX: learner code runs beside your own files, with limits but without bubblewrap "
    "around it. Do not grade strangers' code like this. Why:"
)
ASK = "grade on another machine, or tell us which system this is"
PACKAGE_FOLDERS = [f"{above}{name}" for above in ("", "python3*/") for name in PACKAGES]
CODE, SCRATCH = "/code", "/scratch"  # the worker's modules, and an empty folder, inside


class GradingError(Exception):
    """Nothing can be graded; the message says why and what to do."""


def sandbox_start_error(error: str) -> GradingError:
    """Return why Python does not start in the sandbox, and the remedy.

    error    its standard error
    """
    last = (error.strip().splitlines() or ["no reason given"])[-1]
    shown = ", ".join(map(str, package_folders())) or "none"
    return GradingError(
        f"nothing is graded: Python does not start in the sandbox ({last}). Of the folders of "
        f"sys.path it sees those with the name {' or '.join(PACKAGES)} ({shown}): what it "
        "lacks must be installed into one of them, for instance that of a virtual environment"
    )


ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
WITHOUT = "TINYLLM_NO_SANDBOX"  # if set: like `--no-sandbox`, also for nbgrader and formgrader


@dataclass(frozen=True)
class Sandbox:
    """The confinement of learner code on this machine."""

    bubblewrap: str | None = None  # the program, if it works
    unstopped: tuple[str, ...] = ()  # attempts to break out that may succeed
    lacking: str = ""  # the reason if bubblewrap is missing, and the remedy

    def command(self, python: list[str], code: Path, scratch: Path, door: str) -> list[str]:
        """Return the command line that starts the worker's parent."""
        packages = map(str, package_folders())
        if self.bubblewrap is None:
            return [*python, str(code), str(scratch), door, *packages]
        return [*bubblewrap_arguments(self.bubblewrap), *python, CODE, SCRATCH, door, *packages]

    @property
    def layers(self) -> list[str]:
        """The names of the layers around the worker, without those that it enters itself."""
        return ["bubblewrap"] if self.bubblewrap else []

    @property
    def warnings(self) -> list[str]:
        """Warnings for a person before learner code runs in it."""
        found = []
        if self.bubblewrap is None:
            found.append(f"{UNSANDBOXED} {self.lacking}.")
        if self.unstopped:
            ways = ", ".join(self.unstopped)
            found.append(f"perhaps learner code here can {ways} (try it again): {ASK}")
        return found


def bubblewrap_arguments(program: str) -> list[str]:
    """bubblewrap's arguments: everything new and empty, then what Python needs, read-only."""
    words = [program, "--unshare-user", "--unshare-all", "--uid", NOBODY, "--gid", NOBODY]
    words += ["--cap-drop", "ALL", "--new-session", "--hostname", "worker"]
    if threading.current_thread() is threading.main_thread():
        # refers to the thread; in others the closed socket ends the worker
        words += ["--die-with-parent"]
    words += ["--ro-bind-try", "/proc/cpuinfo", "/proc/cpuinfo"]  # the only file of /proc
    words += ["--dir", "/dev"]
    for device in ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"):
        words += ["--dev-bind", device, device]
    for path in ("/etc/ld.so.cache", "/sys/devices/system/cpu"):
        words += ["--ro-bind-try", path, path]
    names = ["/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"]
    names += [str(path) for path in readable_folders()]
    names += [sys.executable, os.path.realpath(sys.executable), f"{sys.prefix}/pyvenv.cfg"]
    for path in sorted(set(names)):  # a folder before its content
        if os.path.exists(path) and not path.startswith("/dev/"):
            words += ["--ro-bind", path, path]
    for path in hidden_folders(names):
        words += ["--tmpfs", path]
    words += ["--ro-bind", str(LABKIT / "sandbox" / "inside"), f"{CODE}/labkit/sandbox/inside"]
    words += ["--dir", SCRATCH, "--chdir", SCRATCH]
    return [*words, "--remount-ro", "/", "--"]


def banned_packages() -> set[str]:
    """The packages that some lab bans: they do exercises, and the reference needs none."""
    roots = {name.split(".")[0] for lab in NOTEBOOKS for name in lab.not_allowed}
    return roots - {"torch"}


def hidden_folders(shown: Iterable[str]) -> list[str]:
    """Return the folders to hide inside those that are shown: the course's own, if it is
    installed, and the banned packages, also where Python does not look for packages: code can
    add a path."""
    homes = {Path(name) for name in shown}
    homes |= {p for home in homes for form in PACKAGE_FOLDERS for p in home.glob(form)}
    names = {"labkit", "solutions", *banned_packages()}
    inside = [home / name for home in homes for name in names]
    inside += [ROOT / part for part in ("labkit", "solutions", "tests", "course")]
    folders = {path.resolve() for path in inside if path.is_dir()}
    return sorted(str(f) for f in folders if any(f.is_relative_to(home) for home in homes))


def permitted(sandbox: Sandbox, without: bool | None = None) -> Sandbox:
    """Return `sandbox`; raise GradingError if bubblewrap is missing and required.

    without    whether learner code may run without bubblewrap; None: as TINYLLM_NO_SANDBOX is
               set
    """
    if without is None:
        without = os.environ.get(WITHOUT, "0") not in ("", "0")
    if sandbox.bubblewrap is None and not without:
        raise GradingError(
            f"there is no sandbox here: {sandbox.lacking}. `--no-sandbox` (or {WITHOUT}=1) "
            "grades without one, beside your own files: only code that you trust"
        )
    return sandbox
