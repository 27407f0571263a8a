"""What a hostile cell might try; each attempt raises an error or gets through.

The text of this file runs in the worker as if a learner had written it, see probe.py.
"""

import ctypes
import os
import socket


def attempt(what, path="", port=0):
    try:
        ATTEMPTS[what](path, port)
    except BaseException as error:
        return "stopped by " + type(error).__name__
    return "got through"


def write(path, size):
    with open(path, "wb") as file:
        file.write(bytes(size))


def start_a_process(path, port):
    if os.fork() == 0:
        os._exit(0)


def raise_limits(path, port):
    import resource  # not on Windows

    resource.setrlimit(resource.RLIMIT_CPU, (99_999, 99_999))


def take_memory(path, port):
    import torch  # not needed to read the names below

    torch.empty(3 << 30, dtype=torch.uint8)


def find_files(path, port):
    if not os.listdir("."):
        raise OSError("nothing there")


def compute_without_end(path, port):
    while True:
        pass


def call(name, *arguments):
    if getattr(ctypes.CDLL(None), name)(*arguments) < 0:
        raise OSError(name)


def write_into_the_parent(path, port):
    """Its memory; where the parent was forked from, addresses are the same."""
    with open(f"/proc/{os.getppid()}/mem", "r+b", buffering=0) as memory:
        memory.seek(id(ATTEMPTS))
        memory.write(memory.read(1))


ATTEMPTS = {
    "write another's memory": write_into_the_parent,
    "reach the network": lambda path, port: socket.create_connection(("127.0.0.1", port), 2),
    "read a file": lambda path, port: os.open(path, os.O_RDONLY),
    "write a file": lambda path, port: write(path + ".new", 1),
    "write a huge file": lambda path, port: write("huge", 17 << 20),
    "fill the disk": lambda path, port: [write(str(n), 8 << 20) for n in range(16)],
    "take all memory": take_memory,
    "take uncounted memory": lambda path, port: os.memfd_create("x"),
    "start a process": start_a_process,
    "signal another process": lambda path, port: os.kill(os.getppid(), 0),
    "trace a process": lambda path, port: call("ptrace", 0, 0, 0, 0),
    "gain privileges": lambda path, port: call("unshare", 0x10000000),
    "raise its limits": raise_limits,
    "print without end": lambda path, port: [print("x" * 10_000) for _ in range(1000)],
    "find what another left": find_files,
    "compute without end": compute_without_end,
}
