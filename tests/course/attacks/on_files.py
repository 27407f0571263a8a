"""For secrets, and against what belongs to others: files, links, memory, /proc."""

import ctypes
import mmap
import os
import stat
import tempfile
from pathlib import Path

from . import attack


@attack("tells where the one who grades keeps programs")
def tells_path(aim):
    return next((each for each in os.get_exec_path() if each not in os.defpath), None)


@attack("reads the reference from the disk", by="kernel")
def reads_reference(aim):
    text = open(f"{aim.root}/solutions/rmsnorm.py").read()
    return text[text.index("BEGIN SOLUTION") :]


@attack("reads what a classmate handed in", by="kernel")
def reads_classmate(aim):
    return Path(aim.victim).read_text()


@attack("reads a classmate's file through the C library", by="kernel")
def libc_reads_classmate(aim):
    number = aim.libc.open(aim.victim.encode(), os.O_RDONLY)
    return os.read(number, 100).decode()


@attack("reads through a hard link in its own folder", by="kernel")
def reads_through_hard_link(aim):
    os.link(aim.victim, f"{tempfile.gettempdir()}/{aim.stray}")
    return open(f"{tempfile.gettempdir()}/{aim.stray}").read()


@attack("reads through the root folder of another process", by="kernel")
def reads_through_proc(aim):
    for pid in (aim.pid, aim.grader, os.getppid(), 1):
        path = f"/proc/{pid}/root{aim.victim}"
        if os.path.exists(path):
            return open(path).read()


@attack("climbs out of its folder by .. and an open descriptor", by="kernel")
def climbs(aim):
    number = os.open("/", os.O_PATH)
    return os.read(os.open(aim.victim[1:], os.O_RDONLY, dir_fd=number), 100).decode()


@attack("opens a file by its handle, past all folders", by="kernel")
def opens_by_handle(aim):
    handle, where = ctypes.create_string_buffer(136), ctypes.c_int()
    ctypes.c_uint.from_buffer(handle).value = 128
    path = aim.victim.encode()
    if aim.libc.name_to_handle_at(-100, path, handle, ctypes.byref(where), 0) == 0:
        folder = os.open(os.path.dirname(aim.victim), os.O_RDONLY)
        number = aim.libc.open_by_handle_at(folder, handle, os.O_RDONLY)
        return os.read(number, 100).decode()


@attack("makes a device of its own and reads it", by="kernel")
def makes_device(aim):
    os.mknod("zeros", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    with open("zeros", "rb") as device:
        return f"a device gave {len(device.read(4))} bytes; a disk would, too"


@attack("reads the environment of the grader", by="kernel")
def reads_environment(aim):
    for pid in (aim.grader, os.getppid()):
        words = open(f"/proc/{pid}/environ", "rb").read()
        if b"PATH=" in words:
            return words.replace(b"\0", b" ").decode()


@attack("reads the memory of another process", by="kernel")
def reads_memory(aim):
    for line in open(f"/proc/{aim.pid}/maps"):
        if "[stack]" in line:
            start = int(line.split("-")[0], 16)
            with open(f"/proc/{aim.pid}/mem", "rb") as memory:
                memory.seek(start)
                return f"{len(memory.read(16))} bytes of its stack"


@attack("lists the folder of a classmate", by="kernel")
def lists(aim):
    return " ".join(os.listdir(os.path.dirname(aim.victim)))


@attack("finds what the last learner left in the folder, and leaves something", by="kernel")
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


@attack("maps a classmate's file and writes into the memory", by="kernel")
def overwrites_by_map(aim):
    with open(aim.victim, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[:4] = b"else"


@attack("deletes a classmate's file", by="kernel")
def deletes(aim):
    os.unlink(aim.victim)


@attack("cuts a classmate's file to nothing without opening it", by="kernel")
def truncates(aim):
    os.truncate(aim.victim, 0)


@attack("leaves a module among Python's packages", by="kernel")
def poisons_packages(aim):
    Path(f"{aim.packages}/{aim.stray}").write_text("import os")


@attack("leaves a file in the system's temporary folder", by="kernel")
def leaves_in_tmp(aim):
    Path(f"/tmp/{aim.stray}").write_text("here")


@attack("leaves shared memory that has a name", by="kernel")
def leaves_shared_memory(aim):
    with open(f"/dev/shm/{aim.stray}", "wb") as file:
        file.write(b"here")


@attack("makes files without end, whose names alone fill the memory", by="kernel",
        unbared="it would leave them to this machine")  # fmt: skip
def many_files(aim):
    for number in range(100_000):
        open(f"{number}-{'x' * 200}", "w").close()
    return "a hundred thousand files"
