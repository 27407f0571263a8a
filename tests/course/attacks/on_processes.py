"""Against processes: starting some, leaving some, and doing harm to those of others."""

import builtins
import collections
import ctypes
import fcntl
import itertools
import os
import resource
import signal
import threading
import time

import torch

from . import attack


@attack("starts a process that starts one, and ends", by="kernel")
def forks_twice(aim):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)


@attack("becomes another program", by="kernel")
def becomes(aim):
    os.execv("/bin/sh", ["sh", "-c", f"echo here > {aim.mark}"])


@attack("leaves a thread that spoils the next learner's Python", by="kernel")
def threads(aim):
    def spoil():
        time.sleep(0.01)
        torch.Tensor.mean = None

    thread = threading.Thread(target=spoil)
    thread.start()
    thread.join()
    return "a thread ran"


@attack("spoils torch for the next learner")
def spoils_torch(aim):
    torch.Tensor.mean = torch.Tensor.sqrt = None


@attack("spoils Python for the next learner")
def spoils_python(aim):
    torch.set_default_dtype(torch.float16)
    builtins.__build_class__ = builtins.compile = builtins.exec = None


@attack("kills the process that started it", by="kernel")
def kills_parent(aim):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(0.1)
    return None if os.getppid() > 1 else "the parent is gone"


@attack("kills a process of somebody else", by="kernel")
def kills(aim):
    os.kill(aim.pid, signal.SIGKILL)


@attack("kills by a descriptor of the process", by="kernel")
def kills_by_descriptor(aim):
    signal.pidfd_send_signal(os.pidfd_open(aim.pid), signal.SIGKILL)


@attack("makes a pipe whose news kill a process of somebody else", by="kernel")
def kills_by_pipe(aim):
    read, write = os.pipe()
    fcntl.fcntl(read, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(read, fcntl.F_SETOWN, aim.pid)
    fcntl.fcntl(read, fcntl.F_SETFL, os.O_ASYNC)
    os.write(write, b"x")


@attack("traces a process of somebody else", by="kernel")
def traces(aim):
    if aim.libc.ptrace(16, aim.pid, 0, 0) == 0:
        time.sleep(0.2)
        aim.libc.ptrace(17, aim.pid, 0, 0)
        return "it can read and write all that the process has"


@attack("reads the memory of a process of somebody else by the kernel's copy", by="kernel")
def copies_memory(aim):
    room, wrong_address, bad_address = ctypes.create_string_buffer(16), 4096, 14
    here = (ctypes.c_void_p * 2)(ctypes.addressof(room), 16)
    there = (ctypes.c_void_p * 2)(wrong_address, 16)
    aim.libc.process_vm_readv(aim.pid, here, 1, there, 1, 0)
    if ctypes.get_errno() == bad_address:
        return "only the address was wrong"


@attack("takes an open descriptor of another process", by="kernel")
def takes_descriptor(aim):
    number = aim.libc.syscall(438, os.pidfd_open(aim.pid), 0, 0)
    return "a descriptor of another" if number >= 0 else None


@attack("gives a process of somebody else the lowest priority", by="kernel")
def slows(aim):
    os.setpriority(os.PRIO_PROCESS, aim.pid, 19)


@attack("keeps a process of somebody else on one core", by="kernel")
def pins(aim):
    os.sched_setaffinity(aim.pid, {min(os.sched_getaffinity(aim.pid))})


@attack("limits a process of somebody else until it dies", by="kernel")
def limits(aim):
    resource.prlimit(aim.pid, resource.RLIMIT_NOFILE, (7, 7))
    return f"it may open {resource.prlimit(aim.pid, resource.RLIMIT_NOFILE)[0]} files"


@attack("takes its filter off by another set of system calls", by="kernel",
        unbared="only this course has a filter")  # fmt: skip
def other_calls(aim):
    number = aim.libc.syscall(0x40000000 + 41, 2, 2, 0)  # x32's socket
    return "a socket" if number >= 0 else None


@attack("ignores every signal and computes forever", hangs=True)
def ignores_signals(aim):
    for number in range(1, 64):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            continue
    while True:
        pass


@attack("hangs in a loop of C, where Python's signals are not heard", hangs=True)
def hangs_in_c(aim, x, weight, bias, eps):
    collections.deque(itertools.repeat(None), maxlen=0)


@attack("blocks every signal and lies down", hangs=True)
def sleeps(aim):
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))
    while True:
        time.sleep(600)


@attack("stops itself and waits for somebody to wake it", hangs=True)
def stops_itself(aim):
    signal.raise_signal(signal.SIGSTOP)


@attack("takes memory by a thousand small pieces",
        unbared="it would take the memory of this machine")  # fmt: skip
def takes_small_memory(aim):
    kept = []
    while len(kept) < 3000:
        kept.append(bytearray(1 << 20))
    return "three gigabytes"


@attack("opens ever more files")
def takes_descriptors(aim):
    kept = [open("/dev/null") for _ in range(5000)]
    return f"{len(kept)} files"


@attack("answers half a gigabyte", unbared="it would take the memory of this machine")
def long_answer(aim, x, weight, bias, eps):
    return torch.zeros(1 << 27)


@attack("takes all contexts for asynchronous input that the system has", by="kernel")
def all_contexts(aim):
    io_setup = {"x86_64": 206, "aarch64": 0}[os.uname().machine]
    if aim.libc.syscall(io_setup, 128, ctypes.byref(ctypes.c_ulong(0))) == 0:
        return "the system gave one"
