"""Every file of a folder or a zip, zips inside it too: read, and never unpacked to a disk.

Nothing is written, so no name can lead anywhere. What is too large, too many, too deep,
encrypted, broken or a link is not read; sizes are looked at before data. A zip inside a source
is one learner's: it has limits of its own, so that it costs nobody else anything.
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from labkit.course.files import read_plain
from labkit.course.lang import tr
from labkit.grading.collect.layouts import ARCHIVE, MODULE, Parts
from labkit.grading.judge.intake import MAX_NOTEBOOK
from labkit.grading.nbgrader.timestamp import STAMP_BYTES
from labkit.grading.platforms import PLATFORMS

MEGABYTE = 1 << 20
STAMP, GIT = "timestamp.txt", ".git"
READ_BESIDE = {STAMP} | {platform.metadata for platform in PLATFORMS if platform.metadata}
LONGEST_NAME, MOST_PARTS = 255, 20
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
SYSTEM = {"__MACOSX", "Icon\r", "Thumbs.db", "site-packages", "node_modules", "__pycache__"}
MAYBE = {"", ".json", ".txt"}  # suffixes that a browser gives to a notebook
# What zipfile raises for what is damaged or made to do damage
BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError,
          ValueError)  # fmt: skip


@dataclass(frozen=True)
class Limits:
    files: int = 20_000  # in one zip
    zipped: int = 128 * MEGABYTE  # bytes of a zip inside a source
    depth: int = 3  # zips within one another
    own_files: int = 50  # notebooks in a learner's zip
    own_bytes: int = 256 * MEGABYTE  # read of it


class TooMuch(Exception):
    """A zip is beyond a limit; the message says which."""


@dataclass(frozen=True)
class Found:
    """One file: its path in the source, its bytes, its time in UTC.

    reason     why it was not read; empty if its kind is one that is not read
    learners   it lies in a learner's zip, which sets its time
    """

    parts: Parts
    data: bytes | None = None
    when: datetime | None = None
    reason: str = ""
    learners: bool = False


@dataclass(frozen=True)
class Member:
    """A file that is not read yet, on a disk or in a zip; `odd`: why it must not be."""

    parts: Parts
    size: int
    when: datetime | None
    odd: str
    read: Callable[[], bytes]


@dataclass
class Budget:
    """What may still be read of a learner's zip, whose files have its time."""

    files: int
    bytes: int
    when: datetime | None

    def spend(self, size: int, files: int = 0) -> None:
        self.bytes, self.files = self.bytes - size, self.files - files
        if self.bytes < 0:
            raise TooMuch(tr("more bytes than may be read of one learner's zip"))
        if self.files < 0:
            raise TooMuch(tr("more notebooks than may be read of one learner's zip"))


def files_of(source: Path, limits: Limits = Limits()) -> Iterator[Found]:
    """Every file of a source that may be handed in, and why others could not be read; also a
    repository's folder .git, without anything in it."""
    try:
        if source.is_symlink() or not source.exists():
            reason = tr("a link") if source.is_symlink() else tr("does not exist")
            yield Found((source.name,), reason=reason)
        elif source.is_dir():
            yield from read_members(files_on_disk(source), (), limits, 0)
        elif ARCHIVE.search(source.name):
            with source.open("rb") as file, open_zip(file, limits) as members:
                yield from read_members(members, (), limits, 1)
        else:
            yield from read_members([on_disk(source, (source.name,))], (), limits, 0)
    except (TooMuch, *BROKEN) as error:
        yield Found((source.name,), reason=not_readable(error))


def read_members(
    members: Iterable[Member],
    above: Parts,
    limits: Limits,
    depth: int,
    budget: Budget | None = None,
) -> Iterator[Found]:
    for member in members:
        parts, in_zip = above + member.parts, budget is not None
        when = budget.when if budget else member.when
        if GIT in member.parts:
            yield Found(parts[: parts.index(GIT) + 1])
        if any(map(is_hidden, member.parts)):
            continue
        reason = odd_path(parts)
        if reason:
            parts = plain_path(parts)
        kind = kind_of(parts[-1])
        reason = reason or member.odd or (too_large(member, kind, limits) if kind else "")
        if reason or not kind:
            yield Found(parts, None, when, reason, in_zip)
            continue
        if budget:
            budget.spend(member.size)
        try:
            data = member.read()
        except BROKEN as error:
            yield Found(parts, None, when, not_readable(error), in_zip)
            continue
        if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
            found = Found(parts, None, when, "", in_zip)
            yield from read_zip(data, found, limits, depth, budget)
            continue
        if kind == "archive":
            reason = tr("not a readable zip; zip it again as usual")
        is_named = ".ipynb" in parts[-1].lower()
        is_notebook = is_named or (b'"nbformat"' in data and b'"cells"' in data)
        if budget and is_notebook:
            budget.spend(0, files=1)
        is_read = is_notebook or kind == "module" or parts[-1] in READ_BESIDE
        yield Found(parts, data if is_read and not reason else None, when, reason, in_zip)


def read_zip(
    data: bytes, found: Found, limits: Limits, depth: int, budget: Budget | None
) -> Iterator[Found]:
    """The files of a zip inside a source; `found`: where it lies."""
    parts, when = found.parts, found.when
    try:
        if depth >= limits.depth:
            raise TooMuch(tr("more than {depth} zips in one another", depth=limits.depth))
        with open_zip(io.BytesIO(data), limits) as members:
            inner_budget = budget or Budget(limits.own_files, limits.own_bytes, when)
            yield from read_members(members, parts, limits, depth + 1, inner_budget)
    except (TooMuch, *BROKEN) as error:
        if budget and isinstance(error, TooMuch):
            raise
        yield Found(parts, None, when, not_readable(error), True)


def too_large(member: Member, kind: str, limits: Limits) -> str:
    most = {"archive": limits.zipped, STAMP: STAMP_BYTES}.get(kind, MAX_NOTEBOOK)
    if member.size <= most:
        return ""
    size = member.size
    return tr("{size:,} bytes, more than the {most:,} that are read", size=size, most=most)


def kind_of(name: str) -> str:
    """What a file may be by its name; empty for what is not read."""
    if name in READ_BESIDE:
        return name
    if ARCHIVE.search(name):
        return "archive"
    if MODULE.search(name):
        return "module"
    suffix = PurePosixPath(name.lower()).suffix
    return "notebook" if ".ipynb" in name.lower() or suffix in MAYBE else ""


def is_hidden(name: str) -> bool:
    """Whether a program put it there; a placeholder of a file in iCloud is a learner's."""
    is_learners = name in (".", "..") or name.endswith(".icloud")
    return name in SYSTEM or (name.startswith(".") and not is_learners)


def odd_path(parts: Parts) -> str:
    """Why a file must not be read because of its path; asked before a pattern sees it."""
    if len(parts) > MOST_PARTS:
        return tr("a path of more than {most} parts", most=MOST_PARTS)
    if any(len(part) > LONGEST_NAME for part in parts):
        return tr("a name of more than {most} characters", most=LONGEST_NAME)
    if ".." in parts or "/" in parts or any(":" in part[1:2] for part in parts):
        return tr("its path leads out of the zip")
    return tr("a control character in its name") if CONTROL.search("".join(parts)) else ""


def plain_path(parts: Parts) -> Parts:
    """As much of an odd path as can be shown."""
    shown = [part[:LONGEST_NAME] for part in parts[:MOST_PARTS]]
    return tuple(CONTROL.sub("\N{REPLACEMENT CHARACTER}", part) for part in shown)


def not_readable(error: BaseException) -> str:
    if isinstance(error, TooMuch):
        return str(error)
    return tr("it cannot be read ({error})", error=error)


def files_on_disk(root: Path) -> Iterator[Member]:
    for path, folders, names in os.walk(root):
        above = Path(path).relative_to(root).parts
        # Only listed, so that they are refused, or known to be there
        odd = [name for name in folders if name == GIT or (Path(path) / name).is_symlink()
               or odd_path((*above, name))]  # fmt: skip
        folders[:] = sorted(name for name in folders if not (is_hidden(name) or name in odd))
        yield from (on_disk(Path(path, name), (*above, name)) for name in odd + sorted(names))


def on_disk(path: Path, parts: Parts) -> Member:
    about = path.lstat()
    when = datetime.fromtimestamp(about.st_mtime, timezone.utc)
    odd = "" if stat.S_ISREG(about.st_mode) else tr("a link, a pipe or a device, not a file")
    return Member(parts, about.st_size, when, odd, lambda: read_plain(path, about.st_size))


@contextmanager
def open_zip(file: BinaryIO, limits: Limits) -> Iterator[list[Member]]:
    """The files of a zip; BROKEN if it is none, TooMuch if it is beyond a limit."""
    if count_entries(file) > limits.files:
        raise TooMuch(tr("a zip of more than {files:,} files", files=limits.files))
    with zipfile.ZipFile(file) as archive:
        latest = {name_of(info): info for info in archive.infolist()}
        yield [zip_member(archive, name, info) for name, info in latest.items()
               if PurePosixPath(name).name and not name.endswith("/")]  # fmt: skip


def zip_member(archive: zipfile.ZipFile, name: str, info: zipfile.ZipInfo) -> Member:
    odd = ""
    if stat.S_ISLNK(info.external_attr >> 16):
        odd = tr("a link, a pipe or a device, not a file")
    elif info.flag_bits & 1:
        odd = tr("it is encrypted")
    elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        odd = tr("packed in an unusual way; zip it again as usual")

    def read() -> bytes:
        with archive.open(info) as stream:
            return stream.read(info.file_size + 1)

    return Member(PurePosixPath(name).parts, info.file_size, time_of(info), odd, read)


def count_entries(file: BinaryIO) -> int:
    """The most files that a zip can hold, counted before its directory is parsed."""
    count, tail, sign = 0, b"", b"PK\x01\x02"  # begins each entry of the directory
    while block := file.read(MEGABYTE):
        count += (tail + block).count(sign)
        tail = block[-len(sign) + 1 :]
    file.seek(0)
    return count


def name_of(info: zipfile.ZipInfo) -> str:
    """The name of a file in a zip; older macOS writes UTF-8 and does not say so."""
    name = info.filename
    if not info.flag_bits & 0x800:
        with suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    return name.replace("\\", "/")


def time_of(info: zipfile.ZipInfo) -> datetime | None:
    """When a file of a zip was written: in UTC where the zip says it, else by local clock."""
    extra = info.extra
    with suppress(ValueError, OverflowError, OSError, struct.error):
        while len(extra) >= 4:
            kind, size = struct.unpack("<HH", extra[:4])
            if kind == 0x5455 and size >= 5 and extra[4] & 1:  # seconds since 1970
                return datetime.fromtimestamp(*struct.unpack("<i", extra[5:9]), timezone.utc)
            extra = extra[4 + size :]
        if info.date_time[0] > 1980:
            return datetime(*info.date_time).astimezone(timezone.utc)
    return None
