"""Attacks with processes: start them, leave them behind, harm those of others. Each
system call that the filter refuses is tried by its number in test_sandbox.py."""

import fcntl
import os
import signal
import threading
import time

import torch

from . import attack


@attack("starts a process that starts one, and ends", by="kernel",
        unbared="its process is looked for at the end")  # fmt: skip
def forks_twice(aim):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)


@attack("leaves a thread that spoils the next learner's Python", by="kernel",
        unbared="a rule of the worker stops it first")  # fmt: skip
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


@attack("kills a process of somebody else", by="kernel")
def kills(aim):
    os.kill(aim.pid, signal.SIGKILL)


@attack("makes a pipe whose news kill a process of somebody else", by="kernel")
def kills_by_pipe(aim):
    read, write = os.pipe()
    fcntl.fcntl(read, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(read, fcntl.F_SETOWN, aim.pid)
    fcntl.fcntl(read, fcntl.F_SETFL, os.O_ASYNC)
    os.write(write, b"x")


@attack("takes its filter off by another set of system calls", by="kernel",
        unbared="only this course has a filter")  # fmt: skip
def other_calls(aim):
    number = aim.libc.syscall(0x40000000 + 41, 2, 2, 0)  # x32's socket
    return "a socket" if number >= 0 else None


@attack("ignores every signal and computes forever")
def ignores_signals(aim):
    for number in range(1, 64):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            continue
    while True:
        pass


@attack("blocks every signal and lies down")
def sleeps(aim):
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))
    while True:
        time.sleep(600)


@attack("takes memory by a thousand small pieces")
def takes_small_memory(aim):
    kept = []
    while len(kept) < 3000:
        kept.append(bytearray(1 << 20))
    return "three gigabytes"


@attack("opens ever more files")
def takes_descriptors(aim):
    files = [open("/dev/null") for _ in range(5000)]
    return f"{len(files)} files"


@attack("answers half a gigabyte")
def long_answer(aim, x, weight, bias, eps):
    return torch.zeros(1 << 27)
