"""Attempts of a hostile cell to break out; each raises an error or gets through.

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


def start_a_process(path, port):
    if os.fork() == 0:
        os._exit(0)


def take_memory(path, port):
    import torch  # not needed just to read the names below

    torch.empty(3 << 30, dtype=torch.uint8)


def gain_privileges(path, port):
    if ctypes.CDLL(None).unshare(0x10000000) < 0:
        raise OSError("unshare")


def compute_without_end(path, port):
    while True:
        pass


ATTEMPTS = {  # the last one uses up its worker
    "reach the network": lambda path, port: socket.create_connection(("127.0.0.1", port), 2),
    "read a file": lambda path, port: os.open(path, os.O_RDONLY),
    "list a folder": lambda path, port: os.listdir(os.path.dirname(path)),
    "write a file": lambda path, port: os.open(path + ".new", os.O_CREAT),
    "leave a file": lambda path, port: os.open("left", os.O_CREAT),
    "take all memory": take_memory,
    "take uncounted memory": lambda path, port: os.memfd_create("x"),
    "start a process": start_a_process,
    "signal another process": lambda path, port: os.kill(os.getppid(), 0),
    "gain privileges": gain_privileges,
    "compute without end": compute_without_end,
}
