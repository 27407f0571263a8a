"""Attacks on secrets and on the property of others: files, links, memory, /proc."""

import ctypes
import os
import stat
from pathlib import Path

from . import attack


@attack("tells where the one who grades keeps programs")
def tells_path(aim):
    return next((each for each in os.get_exec_path() if each not in os.defpath), None)


@attack("reads what a classmate handed in", by="kernel")
def reads_classmate(aim):
    return Path(aim.victim).read_text()


@attack("reads through the root folder of another process", by="kernel",
        unbared="root loses a right in the split that it needs")  # fmt: skip
def reads_through_proc(aim):
    for pid in (aim.pid, aim.grader, os.getppid(), 1):
        path = f"/proc/{pid}/root{aim.victim}"
        if os.path.exists(path):
            return open(path).read()


@attack("opens a file by its handle, past all folders", by="kernel",
        unbared="root loses a right in the split that it needs")  # fmt: skip
def opens_by_handle(aim):
    handle, where = ctypes.create_string_buffer(136), ctypes.c_int()
    ctypes.c_uint.from_buffer(handle).value = 128
    path = aim.victim.encode()
    if aim.libc.name_to_handle_at(-100, path, handle, ctypes.byref(where), 0) == 0:
        folder = os.open(os.path.dirname(aim.victim), os.O_RDONLY)
        number = aim.libc.open_by_handle_at(folder, handle, os.O_RDONLY)
        return os.read(number, 100).decode()


@attack("makes a device of its own and reads it", by="kernel",
        unbared="root loses a right in the split that it needs")  # fmt: skip
def makes_device(aim):
    os.mknod("zeros", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    with open("zeros", "rb") as device:
        return f"a device gave {len(device.read(4))} bytes; a disk would, too"


@attack("finds what the last learner left in the folder, and leaves something", by="kernel",
        unbared="the folder is empty for each learner")  # fmt: skip
def leaves(aim):
    Path("attack-was-here").write_text("import me")
    Path("torch.py").write_text("raise SystemExit")
    return "something is left" if "learner" in " ".join(os.listdir(".")) else None


@attack("finds out which files there are", by="bubblewrap")
def asks_for_names(aim):
    return f"a classmate's file has {os.stat(aim.victim).st_size} bytes"


@attack("writes a file outside its folder", by="kernel")
def writes(aim):
    Path(aim.mark).write_text("here")


@attack("deletes a classmate's file", by="kernel")
def deletes(aim):
    os.unlink(aim.victim)


@attack("cuts a classmate's file to nothing without opening it", by="kernel")
def truncates(aim):
    os.truncate(aim.victim, 0)


@attack("leaves a file in the system's temporary folder", by="kernel")
def leaves_in_tmp(aim):
    Path(aim.stray).write_text("here")
