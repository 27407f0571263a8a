"""The limits of a learner's process, and the files and system calls that it is refused.

Three layers, each as far as the system offers it: resource limits (POSIX), Landlock (Linux
5.13 and later: the kernel refuses files) and seccomp (Linux: the kernel refuses system calls).
labkit.sandbox.bubblewrap puts a sandbox around the whole worker.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import sysconfig
from bisect import bisect_left
from pathlib import Path
from typing import Any

from labkit.sandbox.inside import seccomp

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

CPU_SECONDS = 10
MEMORY_BYTES = 2 << 30  # besides the memory that Python and torch have mapped
FILE_BYTES = 16 << 20
OPEN_FILES = 64
PRINTED_CHARACTERS = 1_000_000
PACKAGES = ("site-packages", "dist-packages")  # the second one is Debian's


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
        """Does nothing: the stream has no buffer."""

    def isatty(self) -> bool:
        return False


class Confinement:
    """The limits, prepared before a process is forked; the process itself calls `enter`.

    scratch    its working folder, which is empty and in which the kernel refuses all writing
    """

    def __init__(self, scratch: Path):
        readable = readable_folders()
        self.scratch, self.memory = scratch, mapped_bytes() + MEMORY_BYTES
        self.filter = seccomp.Filter()
        self.ruleset = None
        if sys.platform == "linux":
            self.ruleset = landlock_rules(readable)

    def enter(self, cpu_seconds: int = CPU_SECONDS) -> list[str]:
        """Give up all rights that exercise code does not need; return the layers' names."""
        layers = []
        sys.stdout = sys.stderr = CountedOutput()  # type: ignore[assignment]
        if resource is not None:
            limit_resources(cpu_seconds, self.memory)
            layers.append("limits")
        if sys.platform == "linux":
            drop_capabilities()
        if self.ruleset is not None and landlock(self.ruleset):
            layers.append("landlock")
        if self.filter.install():
            layers.append("seccomp")
        return layers


def mapped_bytes() -> int:
    """Return the address space in use, to a megabyte: the lowest limit under which more can be
    mapped. A worker has no /proc to read it from."""
    if resource is None:
        return 4 << 30
    _, most = before = resource.getrlimit(resource.RLIMIT_AS)

    def can_map(megabytes: int) -> bool:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, most))
        try:
            mmap.mmap(-1, 1 << 20).close()
        except (OSError, MemoryError):
            return False
        return True

    try:
        return bisect_left(range(1 << 24), True, key=can_map) << 20
    except (ValueError, OSError):  # macOS refuses such limits
        return 4 << 30
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def limit_resources(cpu_seconds: int, memory: int) -> None:
    def out_of_time(*_: Any) -> None:
        raise TimeLimit(f"it used more than {cpu_seconds} seconds of CPU time")

    signal.signal(signal.SIGXCPU, out_of_time)
    used = resource.getrusage(resource.RUSAGE_SELF)
    start = int(used.ru_utime + used.ru_stime)
    soft = start + cpu_seconds
    limits = {
        resource.RLIMIT_CPU: (soft, soft + max(1, cpu_seconds // 3)),
        resource.RLIMIT_AS: (memory, memory),
        resource.RLIMIT_FSIZE: (FILE_BYTES, FILE_BYTES),
        resource.RLIMIT_NOFILE: (OPEN_FILES, OPEN_FILES),
        resource.RLIMIT_CORE: (0, 0),
    }
    for name, limit in limits.items():
        try:
            resource.setrlimit(name, limit)
        except (ValueError, OSError):  # macOS refuses some of them
            continue


def drop_capabilities() -> None:
    """Give up the rights of root, and those that a namespace gave."""
    version_3, this_process, no_rights = 0x20080522, 0, (ctypes.c_uint32 * 6)()
    header = (ctypes.c_uint32 * 2)(version_3, this_process)
    ctypes.CDLL(None).capset(header, no_rights)


def package_folders() -> list[Path]:
    """Return the folders from which Python imports packages, in the order of sys.path.

    They get there by a virtual environment, a `.pth` line, PYTHONPATH, `pip install --user` or
    the system's site. Only folders with Python's own names for them count: anything else on
    sys.path may be a checkout, a course folder or a home, with answers, tests and marks in it.
    """
    paths = dict.fromkeys(Path(entry).resolve() for entry in sys.path)
    return [path for path in paths if path.name in PACKAGES and path.is_dir()]


def readable_folders() -> list[Path]:
    """Python, its packages and the system's libraries; never the course."""
    names = [sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    names += [f"{sys.base_prefix}/lib", "/usr/lib", "/usr/local/lib", "/lib", "/lib64"]
    names += ["/usr/share/zoneinfo", "/dev/null", "/dev/urandom"]
    paths = {Path(name).resolve() for name in names if name} | {*package_folders()}
    return sorted(path for path in paths if path.exists())


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


def landlock_version() -> int:
    """Return the version of the kernel's Landlock; below 1 if it has none."""
    if sys.platform != "linux":
        return 0
    return ctypes.CDLL(None).syscall(CREATE_RULESET, None, 0, 1)


def landlock_rules(readable: list[Path]) -> int | None:
    """Return the rules that let the kernel refuse every other file, TCP, and signals to others,
    as a descriptor; None if the kernel has no Landlock."""
    abi, libc = landlock_version(), ctypes.CDLL(None, use_errno=True)
    if abi < 1:
        return None
    handled = EXECUTE | WRITE_FILE | READ_FILE | READ_DIR | MAKE_ANYTHING
    handled |= (REFER if abi >= 2 else 0) | (TRUNCATE if abi >= 3 else 0)
    handled |= IOCTL_DEV if abi >= 5 else 0
    attr = RulesetAttr(handled, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    ruleset = libc.syscall(CREATE_RULESET, ctypes.byref(attr), size, 0)
    if ruleset < 0:
        return None
    for path in readable:
        rights = EXECUTE | READ_FILE | (READ_DIR if path.is_dir() else 0)
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = PathBeneath(rights, descriptor)
        libc.syscall(ADD_RULE, ruleset, 1, ctypes.byref(rule), 0)
        os.close(descriptor)
    return ruleset


def landlock(ruleset: int) -> bool:
    """Put the rules on this process for good. True if they are in force."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
    return libc.syscall(RESTRICT_SELF, ruleset, 0) == 0
