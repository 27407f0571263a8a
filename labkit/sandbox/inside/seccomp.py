"""System calls that exercise code does not need, refused by the kernel (Linux, libseccomp).

We list the calls to refuse, not those to allow: the calls that torch needs change with its
versions. The price is that an unknown new call would be allowed; see YOUNGER.

A refused call fails with EPERM: starting processes and threads, signals to others, sockets,
memory that no limit counts, and the kernel's levers. Not listed are calls that need a
capability (mount, reboot, setting the clock, ...): they fail anyway, since limits.py drops them
all."""

from __future__ import annotations

import ctypes
import os
import sys

BY_PURPOSE = {
    "processes": "fork vfork clone clone3 execve execveat",
    "processes of others": """
        kill tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_send_signal pidfd_getfd
        ptrace process_vm_readv process_vm_writev process_madvise kcmp setpriority ioprio_set
        sched_setaffinity sched_setscheduler sched_setparam sched_setattr migrate_pages
        move_pages""",
    "network and descriptors of others": """
        socket socketpair connect bind listen accept accept4 sendmsg sendmmsg recvmsg recvmmsg
        """,
    "memory that no limit counts": """
        memfd_create userfaultfd shmget shmat shmctl semget semop semtimedop semctl msgget
        msgsnd msgrcv msgctl mq_open mq_unlink""",
    "limits and counters of the system": "setrlimit io_setup",
    "modes and owners of others' files": """
        chmod fchmod fchmodat chown lchown fchown fchownat utime utimes utimensat futimesat
        setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr truncate mknod
        mknodat""",
    "the kernel": """
        unshare setns open_tree bpf perf_event_open io_uring_setup io_uring_enter
        io_uring_register fanotify_init name_to_handle_at open_by_handle_at add_key request_key
        keyctl personality iopl ioperm modify_ldt kexec_load kexec_file_load init_module
        finit_module delete_module syslog""",
}
REFUSED = " ".join(BY_PURPOSE.values()).split()
# Since Linux 5.12 a call has the same number everywhere, whether or not the library knows its
# name. These fail with ENOSYS, as on an older kernel. (At 512 the x32 calls begin.)
YOUNGER = range(442, 512)

ALLOW, EPERM, ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026  # SCMP_ACT_*, from seccomp.h
NOT_EQUAL, MASKED_EQUAL = 1, 7  # SCMP_CMP_*
NO_SUCH_NAME = -1
F_SETOWN, F_SETOWN_EX, FIOSETOWN, SIOCSPGRP, TIOCSTI = 8, 15, 0x8901, 0x8902, 0x5412


class Comparison(ctypes.Structure):
    """A condition on an argument of a call, for a rule to hold."""

    _fields_ = [
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    ]


class Filter:
    """The system calls that the kernel refuses. Made before a process is forked, put on by the
    process.

    Other architectures' calls, among them x86-64's second set, end the process. libseccomp does
    that, and knows the name of a call on this machine.
    """

    def __init__(self) -> None:
        self.library = libseccomp()
        self.complete = self.library is not None
        if self.library is None:
            return
        self.context = ctypes.c_void_p(self.library.seccomp_init(ALLOW))
        for name in REFUSED:
            self._refuse(self.number(name))
        for number in YOUNGER:
            self._refuse(number, action=ENOSYS)
        # Asking for limits is allowed, setting them is not.
        self._refuse(self.number("prlimit64"), Comparison(2, NOT_EQUAL, 0))
        # These send signals about a descriptor to any process; the last one types into a
        # terminal. Of the argument the kernel reads 32 bits.
        for command in (F_SETOWN, F_SETOWN_EX):
            self._refuse(self.number("fcntl"), low_32_bits(1, command))
        for command in (FIOSETOWN, SIOCSPGRP, TIOCSTI):
            self._refuse(self.number("ioctl"), low_32_bits(1, command))

    def install(self) -> bool:
        """Put the filter on this process for good. True if the kernel took it."""
        if self.library is None:
            return False
        # A signal to oneself is allowed: abort() needs it.
        self._refuse(self.number("tgkill"), Comparison(0, NOT_EQUAL, os.getpid()))
        return self.complete and self.library.seccomp_load(self.context) == 0

    def number(self, name: str) -> int:
        """Return the number of the system call on this machine; negative if it has none."""
        return self.library.seccomp_syscall_resolve_name(name.encode())

    def _refuse(self, number: int, *only_if: Comparison, action: int = EPERM) -> None:
        if number == NO_SUCH_NAME:  # the library is older than the call
            return
        comparisons = (Comparison * len(only_if))(*only_if)
        rule = self.context, action, number, len(only_if), comparisons
        self.complete &= self.library.seccomp_rule_add_array(*rule) == 0


def libseccomp() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return None
    library.seccomp_init.restype = ctypes.c_void_p
    return library


def low_32_bits(argument: int, value: int) -> Comparison:
    return Comparison(argument, MASKED_EQUAL, 0xFFFFFFFF, value)
