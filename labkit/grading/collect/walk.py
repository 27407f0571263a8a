"""Read every file of a folder or a zip, and of learners' zips in it, without unpacking to a
disk.

`nbgrader zip_collect` extracts learners' zips. We only read them: nothing is written, so no
name in a zip can do harm. The price is the limits below. A file that is not read comes with the
reason.
"""

from __future__ import annotations

import io
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from labkit.course.files import read_plain
from labkit.course.lang import tr
from labkit.grading.collect.modules import MODULE
from labkit.grading.platforms import PLATFORMS, WRAPPER

Parts = tuple[str, ...]
MEGABYTE = 1 << 20
LARGEST = 128 * MEGABYTE  # bytes of a file, more than a notebook may have without its outputs
MOST_FILES = 20_000  # files in one zip
MOST_NOTEBOOKS, MOST_BYTES = 50, 256 * MEGABYTE  # limits of a learner's zip
LONGEST_NAME, MOST_PARTS = 255, 20
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
ARCHIVE = re.compile(r"(?:\.(?:zip|tar|gz|tgz))+$", re.IGNORECASE)
GIT = ".git"
PROGRAMS = {"__MACOSX", "Icon\r", "Thumbs.db", "site-packages", "node_modules", "__pycache__"}
TABLES = {platform.metadata for platform in PLATFORMS if platform.metadata}
# The errors that zipfile raises for damaged and for hostile files
BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError,
          ValueError)  # fmt: skip


class Refused(Exception):
    """A zip that is not read; the message is the reason."""


@dataclass(frozen=True)
class Found:
    """One file of a source.

    data       its bytes, if it may be a notebook or a platform's own file
    reason     why it was not read
    other      it is of another kind, perhaps not meant to be graded, and was not read
    inner      it is in a learner's zip, which sets its time
    """

    parts: Parts
    when: datetime | None = None
    reason: str = ""
    other: bool = False
    inner: bool = False
    data: bytes | None = None
    size: int = 0
    read: Callable[[], bytes] = bytes


def files_of(source: Path) -> Iterator[Found]:
    """Yield every file of a source; a program's own folder (.git, __MACOSX) counts as one."""
    try:
        if source.is_symlink() or not source.exists():
            reason = tr("a link") if source.is_symlink() else tr("does not exist")
            yield Found((source.name,), reason=reason)
        elif source.is_dir():
            yield from read_files(files_on_disk(source))
        elif ARCHIVE.search(source.name):
            with source.open("rb") as file:
                yield from read_files(files_in_zip(file))
        else:
            yield from read_files([on_disk(source, (source.name,))])
    except (Refused, *BROKEN) as error:
        yield Found((source.name,), reason=not_readable(error))


def read_files(files: Iterable[Found]) -> Iterator[Found]:
    folders = set()
    for file in files:
        if folder := programs_folder(file.parts):
            if folder not in folders:
                folders.add(folder)
                reason = tr("a program's own, not read")
                yield Found(plain_path(folder), reason=reason, other=True)
            continue
        reason = odd_path(file.parts) or file.reason
        if not reason and is_read(file) and file.size > LARGEST:
            reason = tr("{size:,} bytes, more than the {most:,} that are read",
                        size=file.size, most=LARGEST)  # fmt: skip
        file = replace(file, parts=plain_path(file.parts), reason=reason)
        if reason or not is_read(file):
            yield replace(file, other=not reason)
            continue
        try:
            data = file.read()
            if ARCHIVE.search(file.parts[-1]) or data.startswith(b"PK\x03\x04"):
                yield from read_files(learners_files(file, io.BytesIO(data)))
            else:
                yield replace(file, data=data)
        except (Refused, *BROKEN) as error:
            yield replace(file, reason=not_readable(error))


def is_read(file: Found) -> bool:
    """Whether its name is that of a notebook, a zip, a platform's table or a lab's module."""
    name = file.parts[-1]
    if ".ipynb" in name.lower() or name in TABLES:
        return True
    return bool(ARCHIVE.search(name) or MODULE.search(name))


def learners_files(file: Found, data: BinaryIO) -> list[Found]:
    """Return the files of a learner's zip; raise Refused if reading them would take long."""
    if not zipfile.is_zipfile(data):
        raise Refused(tr("not a readable zip; zip it again as usual"))
    if file.inner:
        raise Refused(tr("a zip in a zip; zip the notebook alone"))
    inside = [replace(f, parts=(*file.parts, *f.parts), when=file.when, inner=True)
              for f in files_in_zip(data)]  # fmt: skip
    sizes = [f.size for f in inside if is_read(f) and not programs_folder(f.parts)]
    if len(sizes) > MOST_NOTEBOOKS or sum(sizes) > MOST_BYTES:
        raise Refused(tr("more than is read of one learner's zip; zip the notebook alone"))
    return inside


def programs_folder(parts: Parts) -> Parts:
    """Return the part of a path, below the learner's folder, that ends at a program's own
    folder or file; () for none. A placeholder of iCloud counts as a learner's file."""
    for place in range(1 + bool(WRAPPER.fullmatch(parts[0])), len(parts)):
        name = parts[place]
        is_hidden = name.startswith(".") and name not in (".", "..")
        if name in PROGRAMS or (is_hidden and not name.endswith(".icloud")):
            return parts[: place + 1]
    return parts[:1] if parts[0] == GIT else ()


def odd_path(parts: Parts) -> str:
    """Return why a file must not be read because of its path, before any pattern is tried on
    it; "" for a plain path."""
    if len(parts) > MOST_PARTS:
        return tr("a path of more than {most} parts", most=MOST_PARTS)
    if any(len(part) > LONGEST_NAME for part in parts):
        return tr("a name of more than {most} characters", most=LONGEST_NAME)
    if ".." in parts or "/" in parts or any(":" in part[1:2] for part in parts):
        return tr("its path leads out of the zip")
    return tr("a control character in its name") if CONTROL.search("".join(parts)) else ""


def plain_path(parts: Parts) -> Parts:
    """Shorten a path so that it can be shown."""
    shown = [part[:LONGEST_NAME] for part in parts[:MOST_PARTS]]
    return tuple(CONTROL.sub("\N{REPLACEMENT CHARACTER}", part) for part in shown)


def not_readable(error: BaseException) -> str:
    is_ours = isinstance(error, Refused)
    return str(error) if is_ours else tr("it cannot be read ({error})", error=error)


def files_on_disk(root: Path) -> Iterator[Found]:
    for path, folders, names in os.walk(root):
        above = Path(path).relative_to(root).parts
        # These are only listed: refused files, or a program's own
        odd = [name for name in folders if (Path(path) / name).is_symlink()
               or odd_path((*above, name)) or programs_folder((*above, name))]  # fmt: skip
        folders[:] = sorted(name for name in folders if name not in odd)
        yield from (on_disk(Path(path, name), (*above, name)) for name in odd + sorted(names))


def on_disk(path: Path, parts: Parts) -> Found:
    about = path.lstat()
    when = datetime.fromtimestamp(about.st_mtime, timezone.utc)
    odd = "" if stat.S_ISREG(about.st_mode) else tr("a link, a pipe or a device, not a file")
    size = about.st_size
    return Found(parts, when, odd, size=size, read=lambda: read_plain(path, size))


def files_in_zip(file: BinaryIO) -> list[Found]:
    """Return the files of a zip; raise one of BROKEN, or Refused for too many files."""
    count, tail, sign = file.seek(0), b"", b"PK\x01\x02"  # starts each entry of the directory
    while block := file.read(MEGABYTE):
        count += (tail + block).count(sign)
        tail = block[-len(sign) + 1 :]
    if count > MOST_FILES:
        raise Refused(tr("a zip of more than {files:,} files", files=MOST_FILES))
    archive = zipfile.ZipFile(file)
    paths = [(PurePosixPath(info.filename.replace("\\", "/")), info)
             for info in archive.infolist()]  # fmt: skip
    return [zipped(archive, path, info) for path, info in paths
            if path.name and not info.is_dir()]  # fmt: skip


def zipped(archive: zipfile.ZipFile, path: PurePosixPath, info: zipfile.ZipInfo) -> Found:
    def read() -> bytes:
        with archive.open(info) as stream:
            return stream.read(info.file_size + 1)

    odd, when = "", None
    if stat.S_ISLNK(info.external_attr >> 16):
        odd = tr("a link, a pipe or a device, not a file")
    elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        odd = tr("packed in an unusual way; zip it again as usual")
    if info.date_time[0] > 1980:  # else the zip has no time
        with suppress(ValueError, OverflowError):  # the 31st of February
            when = datetime(*info.date_time).astimezone(timezone.utc)
    return Found(path.parts, when, odd, size=info.file_size, read=read)
