"""Against processes: starting some, leaving some, and doing harm to those of others."""

import builtins
import ctypes
import fcntl
import itertools
import os
import resource
import signal
import subprocess
import threading
import time

import torch

from . import attack


@attack("starts a process that goes on when all is over", by="kernel")
def forks(aim):
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
        os._exit(0)


@attack("starts a process that starts one, and ends", by="kernel")
def forks_twice(aim):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)


@attack("starts ever more processes", by="kernel")
def fork_bomb(aim):
    for _ in range(20):
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
            os._exit(0)


@attack("runs a program", by="kernel")
def runs(aim):
    subprocess.run(["/bin/sh", "-c", f"echo here > {aim.mark}"], check=True)


@attack("runs a program by the C library", by="kernel")
def runs_by_libc(aim):
    aim.libc.system(f"echo here > {aim.mark}".encode())


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
    builtins.__build_class__ = builtins.compile = builtins.exec = None


@attack("changes torch's settings for the next learner")
def spoils_settings(aim):
    torch.set_default_dtype(torch.float16)
    torch.set_grad_enabled(False)


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


@attack("kills by queueing a signal", by="kernel")
def kills_by_queue(aim):
    aim.libc.sigqueue(aim.pid, signal.SIGKILL, 0)


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


@attack("makes a process of somebody else wait", by="kernel")
def slows(aim):
    os.setpriority(os.PRIO_PROCESS, aim.pid, 19)


@attack("keeps a process of somebody else on one core", by="kernel")
def pins(aim):
    cores = os.sched_getaffinity(aim.pid)
    os.sched_setaffinity(aim.pid, {min(cores)})


@attack("limits a process of somebody else until it dies", by="kernel")
def limits(aim):
    resource.prlimit(aim.pid, resource.RLIMIT_NOFILE, (7, 7))
    return f"it may open {resource.prlimit(aim.pid, resource.RLIMIT_NOFILE)[0]} files"


@attack("makes namespaces of its own, in which it is root", by="kernel")
def unshares(aim):
    if aim.libc.unshare(0x00020000) == 0:
        return "mounts of its own"


@attack("takes its filter off by another set of system calls", by="kernel",
        unbared="there is a filter in this course only")  # fmt: skip
def other_calls(aim):
    number = aim.libc.syscall(0x40000000 + 41, 2, 2, 0)  # x32's socket
    return "a socket" if number >= 0 else None


@attack("raises its own limits", by="kernel", unbared="there are limits in this course only")
def raises_limits(aim):
    resource.setrlimit(resource.RLIMIT_CPU, (99_999, 99_999))
    return "ten thousand seconds"


@attack("ignores every signal and computes for ever", hangs=True)
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
    import collections

    collections.deque(itertools.repeat(None), maxlen=0)


@attack("blocks every signal and lies down", hangs=True)
def sleeps(aim):
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))
    while True:
        time.sleep(600)


@attack("stops itself and waits for somebody to wake it", hangs=True)
def stops_itself(aim):
    signal.raise_signal(signal.SIGSTOP)


@attack("catches the end of its time and goes on", hangs=True)
def outlives(aim):
    def on():
        try:
            while True:
                pass
        except BaseException:
            on()

    signal.alarm(0)
    on()


@attack("takes all memory")
def takes_memory(aim):
    torch.empty(3 << 30, dtype=torch.uint8)
    return "three gigabytes"


@attack("takes memory by a thousand small pieces",
        unbared="it would take the memory of this machine")  # fmt: skip
def takes_small_memory(aim):
    kept = []
    while len(kept) < 3000:
        kept.append(bytearray(1 << 20))
    return "three gigabytes"


@attack("takes memory that no limit counts", by="kernel")
def takes_uncounted_memory(aim):
    number = os.memfd_create("x")
    os.ftruncate(number, 4 << 30)
    return "a file of four gigabytes in memory"


@attack("opens ever more files")
def takes_descriptors(aim):
    kept = [open("/dev/null") for _ in range(5000)]
    return f"{len(kept)} files"


@attack("prints without end", hangs=True)
def prints(aim):
    while True:
        print("again " * 10_000)


@attack("answers half a gigabyte", unbared="it would take the memory of this machine")
def long_answer(aim, x, weight, bias, eps):
    return torch.zeros(1 << 27)


@attack(
    "writes into the memory of the process from which all learners' are forked", by="kernel"
)
def parents_memory(aim):
    with open(f"/proc/{os.getppid()}/mem", "r+b", buffering=0) as memory:
        memory.seek(id(aim.libc))
        memory.write(memory.read(1))
    return "the parent's memory can be written"


@attack("takes all contexts for asynchronous input that the system has", by="kernel")
def all_contexts(aim):
    context = ctypes.c_ulong(0)
    io_setup = {"x86_64": 206, "aarch64": 0}[os.uname().machine]
    if aim.libc.syscall(io_setup, 128, ctypes.byref(context)) == 0:
        return "the system gave one"
