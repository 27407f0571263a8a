"""System calls that exercise code has no use for, refused by the kernel (Linux, seccomp).

A filter is a small program for the kernel's packet-filter machine; it sees the number and the
arguments of every system call. What it refuses fails with EPERM: starting processes and
threads, signals to others, sockets, memory that no limit counts, and the kernel's levers.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import struct
import sys
from functools import cache

# Name, number on x86-64, number on 64-bit Arm (from the kernel's unistd headers).
REFUSED = """
# processes
fork 57 -, vfork 58 -, clone 56 220, clone3 435 435, execve 59 221, execveat 322 281,
# other processes
kill 62 129, tkill 200 130, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240,
pidfd_open 434 434, pidfd_send_signal 424 424, pidfd_getfd 438 438, ptrace 101 117,
process_vm_readv 310 270, process_vm_writev 311 271, process_madvise 440 440,
kcmp 312 272, process_mrelease 448 448, setpriority 141 140, ioprio_set 251 30,
sched_setaffinity 203 122, sched_setscheduler 144 119, sched_setparam 142 118,
sched_setattr 314 274, migrate_pages 256 238, move_pages 279 239,
# network and descriptors of others
socket 41 198, socketpair 53 199, connect 42 203, bind 49 200, listen 50 201,
accept 43 202, accept4 288 242, sendmsg 46 211, sendmmsg 307 269, recvmsg 47 212,
recvmmsg 299 243,
# memory that no limit counts
memfd_create 319 279, memfd_secret 447 447, userfaultfd 323 282, shmget 29 194,
shmat 30 196, shmctl 31 195, semget 64 190, semop 65 193, semtimedop 220 192,
semctl 66 191, msgget 68 186,
msgsnd 69 189, msgrcv 70 188, msgctl 71 187, mq_open 240 180, mq_unlink 241 181,
# limits
setrlimit 160 164,
# modes and owners of others' files
chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, chown 92 -, lchown 94 -,
fchown 93 55, fchownat 260 54, utime 132 -, utimes 235 -, utimensat 280 88,
futimesat 261 -, setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, removexattr 197 14,
lremovexattr 198 15, fremovexattr 199 16, setxattrat 463 463, removexattrat 466 466,
file_setattr 469 469, truncate 76 45, mknod 133 -, mknodat 259 33,
# the kernel
mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, unshare 272 97,
setns 308 268, open_tree 428 428, move_mount 429 429, fsopen 430 430, fsconfig 431 431,
fsmount 432 432, fspick 433 433, mount_setattr 442 442, bpf 321 280,
perf_event_open 298 241, io_uring_setup 425 425, io_uring_enter 426 426,
io_uring_register 427 427, fanotify_init 300 262, name_to_handle_at 303 264,
open_by_handle_at 304 265, add_key 248 217, request_key 249 218, keyctl 250 219,
personality 135 92, iopl 172 -, ioperm 173 -, modify_ldt 154 -, kexec_load 246 104,
kexec_file_load 320 294, init_module 175 105, finit_module 313 273, delete_module 176 106,
reboot 169 142, swapon 167 224, swapoff 168 225, acct 163 89, quotactl 179 60,
syslog 103 116, settimeofday 164 170, clock_settime 227 112, clock_adjtime 305 266,
adjtimex 159 171, sethostname 170 161, setdomainname 171 162, vhangup 153 58,
"""
# Allowed with certain arguments only: signals to oneself, asking for limits.
TGKILL = {"x86_64": 234, "aarch64": 131}
PRLIMIT = {"x86_64": 302, "aarch64": 261}
# Allowed but for certain arguments: F_SETOWN and its kind, by which news of a descriptor
# become a signal to anybody, and TIOCSTI, which types into a terminal.
FCNTL = {"x86_64": 72, "aarch64": 25}
IOCTL = {"x86_64": 16, "aarch64": 29}
OWNERS, LEVERS = (8, 15), (0x8901, 0x8902, 0x5412)
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_*
X32 = 0x40000000  # numbers of x86-64's second set of calls

LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets in what the filter sees
NO_NEW_PRIVS, SET_SECCOMP, FILTER = 38, 22, 2


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def refused_numbers(machine: str) -> list[int]:
    column = list(ARCH).index(machine)
    found = re.findall(r"\w+ (\d+|-) (\d+|-),", REFUSED)
    return sorted(int(row[column]) for row in found if row[column] != "-")


@cache
def fixed_part(machine: str) -> bytes:
    """The filter up to where it depends on the process."""
    lines = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, ARCH[machine]), (RETURN, 0, 0, KILL)]
    lines += [(LOAD, 0, 0, NUMBER), (AT_LEAST, 0, 1, X32), (RETURN, 0, 0, ENOSYS)]
    for number in refused_numbers(machine):
        lines += [(EQUAL, 0, 1, number), (RETURN, 0, 0, EPERM)]
    return packed(lines)


def program(machine: str, pid: int) -> bytes:
    """The filter for a process with this id."""
    lines = only_if(TGKILL[machine], 0, pid) + only_if(PRLIMIT[machine], 2, 0)
    lines += never_if(FCNTL[machine], 1, OWNERS) + never_if(IOCTL[machine], 1, LEVERS)
    return fixed_part(machine) + packed([*lines, (RETURN, 0, 0, ALLOW)])


def packed(lines: list[tuple[int, int, int, int]]) -> bytes:
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def only_if(number: int, argument: int, value: int) -> list[tuple[int, int, int, int]]:
    """Refuse a call unless its argument, a small number, has this value."""
    low = ARGUMENTS + 8 * argument
    return [
        (EQUAL, 0, 6, number),
        (LOAD, 0, 0, low),
        (EQUAL, 0, 3, value),
        (LOAD, 0, 0, low + 4),
        (EQUAL, 0, 1, 0),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, EPERM),
    ]


def never_if(
    number: int, argument: int, values: tuple[int, ...]
) -> list[tuple[int, int, int, int]]:
    """Refuse a call if its argument, of which the kernel reads 32 bits, has such a value."""
    lines = [(EQUAL, 0, 2 + 2 * len(values), number), (LOAD, 0, 0, ARGUMENTS + 8 * argument)]
    for value in values:
        lines += [(EQUAL, 0, 1, value), (RETURN, 0, 0, EPERM)]
    return [*lines, (RETURN, 0, 0, ALLOW)]


def possible() -> bool:
    return sys.platform == "linux" and platform.machine() in ARCH and sys.maxsize > 2**32


def prepare() -> None:
    """Make ready what every process forked from this one will need."""
    if possible():
        fixed_part(platform.machine())


def install() -> bool:
    """Put the filter on this process for good. True if the kernel took it."""
    if not possible():
        return False
    machine = platform.machine()
    code = program(machine, os.getpid())
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
    filter_ = Program(len(code) // 8, code)
    return libc.prctl(SET_SECCOMP, FILTER, ctypes.byref(filter_), 0, 0) == 0
