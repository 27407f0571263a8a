"""Write files whole, read only regular files, and make names that are safe in a path."""

import errno
import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

LONGEST_ID = 80
# Windows reserves these names
DEVICE = re.compile(r"con|prn|aux|nul|(?:com|lpt)\d", re.IGNORECASE)
# errors of the disk, not of one file
DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}


def of_the_disk(error: BaseException) -> bool:
    """Whether an error will affect every further write: the disk is full or read-only."""
    return isinstance(error, OSError) and error.errno in DISK


def safe_id(name: str) -> str:
    """Return the name in a form that is safe in a path and in nbgrader's patterns."""
    text = unicodedata.normalize("NFC", name)
    text = re.sub(r"[^\w .,'@+-]|[\x00-\x1f]", "_", text)
    text = re.sub(r"\s+", " ", text).strip(" .")[:LONGEST_ID].strip(" .")
    return f"{text}_" if DEVICE.fullmatch(text) else text or "nameless"


def read_plain(path: Path, most: int) -> bytes:
    """Return the first bytes of a regular file. Raises OSError for a link, a pipe, a folder."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with open(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path.name} is not a file")
        return file.read(most)


def hash_of(paths: Iterable[Path], start: str = "") -> str:
    """Return a hash of the names and contents of files; `start` is hashed first."""
    hasher = hashlib.sha256(start.encode())
    for path in sorted(paths):
        hasher.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return hasher.hexdigest()


def write_whole(path: Path, content: str | bytes | memoryview, sync: bool = False) -> None:
    """Write so that a crash leaves the old file or the new one, never half of it. Raises
    OSError with the path of the file.

    sync    survive a power failure too; costs some milliseconds
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name[:60]}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        error.filename = str(path)  # the error of a full disk has no path
        raise
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
