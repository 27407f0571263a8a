"""What the learner's process may touch: limits, and files that it can no longer open.

Three layers, each as far as the system offers it: resource limits (POSIX), Landlock (Linux
5.13 and later, in the kernel, no privilege needed), and a Python audit hook (everywhere;
it stops Python-level access only). The stronger sandbox for a class of strangers wraps the
whole worker and is not this module's business.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import sysconfig
from pathlib import Path
from typing import Any

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

CPU_SECONDS = 10
MEMORY_BYTES = 4 << 30
FILE_BYTES = 16 << 20
PRINTED_CHARACTERS = 1_000_000


class TimeLimit(BaseException):
    """Raised inside learner code that used up its CPU time."""


class OutputLimit(BaseException):
    """Raised by a print that goes past PRINTED_CHARACTERS."""


class CountedOutput:
    """A stdout that throws everything away and refuses to take megabytes."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self) -> None:
        self.count = 0

    def write(self, text: str) -> int:
        self.count += len(text)
        if self.count > PRINTED_CHARACTERS:
            raise OutputLimit(f"it printed more than {PRINTED_CHARACTERS:,} characters")
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""

    def isatty(self) -> bool:
        return False


def confine(scratch: Path) -> list[str]:
    """Give up what a learner's code has no use for; returns the names of the layers in force.

    scratch    the one folder that stays writable
    """
    layers = []
    sys.stdout = sys.stderr = CountedOutput()  # type: ignore[assignment]
    if resource is not None:
        limit_resources()
        layers.append("limits")
    readable = readable_folders()
    if sys.platform == "linux" and landlock(readable, [scratch]):
        layers.append("landlock")
    sys.addaudithook(Watch(readable, scratch))
    layers.append("audit hook")
    return layers


def limit_resources() -> None:
    def out_of_time(*_: Any) -> None:
        raise TimeLimit(f"it used more than {CPU_SECONDS} seconds of CPU time")

    signal.signal(signal.SIGXCPU, out_of_time)
    used = resource.getrusage(resource.RUSAGE_SELF)
    start = int(used.ru_utime + used.ru_stime)
    limits = {
        resource.RLIMIT_CPU: (start + CPU_SECONDS, start + CPU_SECONDS + 3),
        resource.RLIMIT_AS: (MEMORY_BYTES, MEMORY_BYTES),
        resource.RLIMIT_FSIZE: (FILE_BYTES, FILE_BYTES),
        resource.RLIMIT_CORE: (0, 0),
    }
    for name, limit in limits.items():
        try:
            resource.setrlimit(name, limit)
        except (ValueError, OSError):  # macOS refuses some of them
            continue


def readable_folders() -> list[Path]:
    """Python, its packages and the system's libraries; never the course."""
    names = [sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    names += [
        os.path.join(sys.base_prefix, "lib"),
        "/usr/lib",
        "/usr/local/lib",
        "/lib",
        "/lib64",
    ]
    names += ["/usr/share/zoneinfo", "/dev/null", "/dev/urandom"]
    found = {Path(name).resolve() for name in names if name}
    return sorted(path for path in found if path.exists())


class Watch:
    """The audit hook: refuses files outside the allowed folders, programs, and the network."""

    REFUSED = (
        *("subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork"),
        *("os.kill", "socket.", "ctypes.", "pty.", "resource.", "sqlite3.", "signal.pidfd"),
    )
    PATHS = (
        *("open", "os.listdir", "os.scandir", "os.remove", "os.rename", "os.rmdir", "os.mkdir"),
        *(
            "os.link",
            "os.symlink",
            "os.truncate",
            "os.chmod",
            "os.chown",
            "os.chdir",
            "shutil.",
        ),
    )

    def __init__(self, readable: list[Path], scratch: Path):
        self.allowed = [str(path.resolve()) for path in [*readable, scratch]]

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(self.REFUSED):
            raise PermissionError(f"{event} is not available to exercise code")
        if event.startswith(self.PATHS) and arguments:
            name = arguments[0]
            if isinstance(name, bytes):
                name = os.fsdecode(name)
            if not isinstance(name, str):
                return
            path = os.path.realpath(name)
            if not any(path == root or path.startswith(root + os.sep) for root in self.allowed):
                raise PermissionError(f"{name}: exercise code may not open files here")


# Landlock, from the kernel's include/uapi/linux/landlock.h.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
MAKE_ANYTHING = 0x1FF0  # remove, make directories, files, sockets, links
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
NO_NEW_PRIVS = 38


class RulesetAttr(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed", ctypes.c_uint64), ("fd", ctypes.c_int32)]


def landlock(readable: list[Path], writable: list[Path]) -> bool:
    """Let the kernel refuse every other file, TCP, and signals to others. True if in force."""
    libc = ctypes.CDLL(None, use_errno=True)
    abi = libc.syscall(CREATE_RULESET, None, 0, 1)
    if abi < 1:
        return False
    handled = EXECUTE | WRITE_FILE | READ_FILE | READ_DIR | MAKE_ANYTHING
    handled |= (REFER if abi >= 2 else 0) | (TRUNCATE if abi >= 3 else 0)
    handled |= IOCTL_DEV if abi >= 5 else 0
    attr = RulesetAttr(handled, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    ruleset = libc.syscall(CREATE_RULESET, ctypes.byref(attr), size, 0)
    if ruleset < 0:
        return False
    read = EXECUTE | READ_FILE | READ_DIR
    for path, rights in [(p, read) for p in readable] + [(p, handled) for p in writable]:
        if not path.is_dir():
            rights &= EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = PathBeneath(rights, descriptor)
        libc.syscall(ADD_RULE, ruleset, 1, ctypes.byref(rule), 0)
        os.close(descriptor)
    libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
    done = libc.syscall(RESTRICT_SELF, ruleset, 0) == 0
    os.close(ruleset)
    return done
