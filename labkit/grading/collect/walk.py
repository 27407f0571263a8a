"""Every file of a folder, a zip or a tar, nested ones too: read, and never unpacked to a disk.

Nothing is written, so no name can lead anywhere. What is too large, too many, too deep,
encrypted, broken or a link is not read; sizes are looked at before data. An archive inside a
source is one learner's: it has limits of its own, so that it costs nobody else anything.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from labkit.course.files import read_plain
from labkit.course.lang import tr
from labkit.grading.collect.layouts import ARCHIVE, METADATA, Parts
from labkit.grading.judge.intake import MAX_NOTEBOOK
from labkit.grading.nbgrader.timestamp import STAMP_BYTES

MEGABYTE = 1 << 20
STAMP = "timestamp.txt"
LONGEST_NAME, MOST_PARTS = 255, 20
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
SYSTEM = {"__MACOSX", "Icon\r", "Thumbs.db", "site-packages", "node_modules", "__pycache__"}
MAYBE = {"", ".json", ".txt"}  # suffixes that a browser gives to a notebook
# What zipfile and tarfile raise for what is damaged or made to do damage
BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, struct.error, EOFError, OSError,
          RuntimeError, ValueError)  # fmt: skip


@dataclass(frozen=True)
class Limits:
    files: int = 20_000  # in one archive, and of notebooks in one source
    nested: int = 128 * MEGABYTE  # bytes of an archive inside a source
    total: int = 8 << 30  # bytes read of one source
    depth: int = 3  # archives within one another
    own_files: int = 50  # notebooks in a learner's archive
    own_bytes: int = 256 * MEGABYTE  # read of it; the most that a compressed tar unpacks to
    ratio: int = 200  # unpacked to packed, from a megabyte on


class TooMuch(Exception):
    """An archive is beyond a limit; the message says which."""


@dataclass(frozen=True)
class Found:
    """One file: its path in the source, its bytes, its time in UTC.

    reason     why it was not read; empty if its kind is one that is not read
    learners   it lies in a learner's archive, which sets its time
    """

    parts: Parts
    data: bytes | None = None
    when: datetime | None = None
    reason: str = ""
    learners: bool = False


@dataclass(frozen=True)
class Member:
    """A file that is not read yet, on a disk or in an archive; `odd`: why it must not be."""

    parts: Parts
    size: int
    packed: int
    when: datetime | None
    odd: str
    read: Callable[[], bytes]


@dataclass
class Budget:
    """What may still be read; a learner's archive has a time, which its files have."""

    files: int
    bytes: int
    where: str
    when: datetime | None = None

    def spend(self, size: int) -> None:
        self.bytes -= size
        if self.bytes < 0:
            raise TooMuch(tr("more bytes than may be read of {where}", where=self.where))

    def count(self) -> None:
        self.files -= 1
        if self.files < 0:
            raise TooMuch(tr("more notebooks than may be read of {where}", where=self.where))


@dataclass
class Walk:
    """Reads one source within its limits; `clones` are the folders with a .git."""

    limits: Limits = field(default_factory=Limits)
    clones: set[Parts] = field(default_factory=set)

    def files(self, source: Path) -> Iterator[Found]:
        """Every file of a source that may be handed in, and why others could not be read."""
        budget = Budget(self.limits.files, self.limits.total, tr("one source"))
        try:
            if source.is_symlink() or not source.exists():
                reason = tr("a link") if source.is_symlink() else tr("does not exist")
                yield Found((source.name,), reason=reason)
            elif source.is_dir():
                yield from self._members(folder(source, self.clones), (), budget, 0)
            elif ARCHIVE.search(source.name):
                with source.open("rb") as file, opened(file, self.limits) as members:
                    yield from self._members(members, (), budget, 1)
            else:
                member = on_disk(source, (source.name,))
                yield from self._members([member], (), budget, 0)
        except TooMuch as error:
            yield Found((source.name,), reason=str(error))
        except BROKEN as error:
            yield Found((source.name,), reason=not_readable(error))

    def _members(
        self,
        members: Iterable[Member],
        above: Parts,
        budget: Budget,
        depth: int,
        own: bool = False,
    ) -> Iterator[Found]:
        for member in members:
            parts = above + member.parts
            when = budget.when if own else member.when
            if ".git" in member.parts:
                self.clones.add(parts[: parts.index(".git")])
            if any(map(hidden, member.parts)):
                continue
            if odd := odd_path(parts):
                yield Found(plain_path(parts), None, when, odd, own)
            elif kind := kind_of(parts[-1]):
                if reason := member.odd or self._too_large(member, kind):
                    yield Found(parts, None, when, reason, own)
                else:
                    yield from self._read(member, parts, when, budget, depth, own)
            else:
                yield Found(parts, None, when, member.odd, own)

    def _read(
        self, member: Member, parts: Parts, when: datetime | None, budget: Budget, depth: int,
        own: bool,
    ) -> Iterator[Found]:  # fmt: skip
        budget.spend(member.size)
        try:
            data = member.read()
        except BROKEN as error:
            yield Found(parts, None, when, not_readable(error), own)
            return
        if packed(data):
            yield from self._archive(data, parts, when, budget, depth + 1, own)
            return
        if ARCHIVE.search(parts[-1]):
            yield Found(parts, None, when, tr("not a readable zip or tar"), own)
        elif parts[-1] in (STAMP, METADATA):
            yield Found(parts, data, when, "", own)
        elif ".ipynb" in parts[-1].lower() or (b'"nbformat"' in data and b'"cells"' in data):
            budget.count()
            yield Found(parts, data, when, "", own)
        else:
            yield Found(parts, None, when, "", own)

    def _archive(
        self, data: bytes, parts: Parts, when: datetime | None, budget: Budget, depth: int,
        own: bool,
    ) -> Iterator[Found]:  # fmt: skip
        limits = self.limits
        if not own:
            budget = Budget(limits.own_files, limits.own_bytes, tr("one learner's zip"), when)
        try:
            if depth > limits.depth:
                raise TooMuch(tr("more than {depth} zips in one another", depth=limits.depth))
            with opened(io.BytesIO(data), limits) as members:
                yield from self._members(members, parts, budget, depth, True)
        except TooMuch as error:
            if own:
                raise
            yield Found(parts, None, when, str(error), True)
        except BROKEN as error:
            yield Found(parts, None, when, not_readable(error), True)

    def _too_large(self, member: Member, kind: str) -> str:
        most = {"archive": self.limits.nested, STAMP: STAMP_BYTES}.get(kind, MAX_NOTEBOOK)
        size, small = member.size, max(member.packed, 1)
        if size > most:
            return tr(
                "{size:,} bytes, more than the {most:,} that are read", size=size, most=most
            )
        if size > MEGABYTE and size > self.limits.ratio * small:
            return tr("a zip bomb: {small:,} bytes unpack to {size:,}", small=small, size=size)
        return ""


def kind_of(name: str) -> str:
    """What a file may be by its name; empty for what is not read."""
    if name in (STAMP, METADATA):
        return name
    if ARCHIVE.search(name):
        return "archive"
    suffix = PurePosixPath(name.lower()).suffix
    return "notebook" if ".ipynb" in name.lower() or suffix in MAYBE else ""


def hidden(name: str) -> bool:
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
    return tr("it cannot be read ({error})", error=error)


# Folders


def folder(root: Path, clones: set[Parts]) -> Iterator[Member]:
    for path, folders, names in os.walk(root):
        above = Path(path).relative_to(root).parts
        if ".git" in folders + names:
            clones.add(above)
        folders[:] = sorted(name for name in folders if not hidden(name))
        odd = [name for name in folders if odd_path((*above, name))]
        folders[:] = [name for name in folders if name not in odd]
        links = [name for name in folders if (Path(path) / name).is_symlink()]
        yield from (
            on_disk(Path(path) / name, (*above, name)) for name in odd + links + sorted(names)
        )


def on_disk(path: Path, parts: Parts) -> Member:
    about = path.lstat()
    when = datetime.fromtimestamp(about.st_mtime, timezone.utc)
    odd = "" if stat.S_ISREG(about.st_mode) else tr("a link, a pipe or a device, not a file")
    size = about.st_size
    return Member(parts, size, size, when, odd, lambda: read_plain(path, size))


# Archives


def packed(data: bytes) -> str:
    """zip, gzip or tar by the first bytes of a file; empty for anything else."""
    if data[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return "zip"
    if data[:2] == b"\x1f\x8b":
        return "gzip"
    return "tar" if data[257:262] == b"ustar" else ""


@contextmanager
def opened(file: BinaryIO, limits: Limits) -> Iterator[list[Member]]:
    """The files of an archive; BROKEN if it is none, TooMuch if it is beyond a limit."""
    kind, size = packed(file.read(512)), file.seek(0, io.SEEK_END)
    file.seek(0)
    if kind == "gzip":
        most = min(limits.own_bytes, max(MEGABYTE, limits.ratio * size))
        with gzip.GzipFile(fileobj=file) as stream:
            file, kind = io.BytesIO(stream.read(most + 1)), "tar"
        if file.getbuffer().nbytes > most:
            text = "a tar of {size:,} bytes that unpacks to more than {most:,}"
            raise TooMuch(tr(text, size=size, most=most))
        if packed(content := file.getvalue()) != "tar":
            size = len(content)
            yield [Member(("unpacked.ipynb",), size, size, None, "", lambda: content)]
            return
    if kind == "tar":
        with tarfile.open(fileobj=file, mode="r:") as tar:
            yield [in_tar(tar, info) for info in counted(tar, limits) if not info.isdir()]
        return
    if entries(file) > limits.files:
        raise TooMuch(tr("a zip of more than {files:,} files", files=limits.files))
    with zipfile.ZipFile(file) as archive:
        latest = {name_of(info): info for info in archive.infolist()}
        yield [in_zip(archive, name, info) for name, info in latest.items()
               if PurePosixPath(name).name and not name.endswith("/")]  # fmt: skip


def counted(tar: tarfile.TarFile, limits: Limits) -> Iterator[tarfile.TarInfo]:
    for number, info in enumerate(tar):
        if number >= limits.files:
            raise TooMuch(tr("a zip of more than {files:,} files", files=limits.files))
        yield info


def in_tar(tar: tarfile.TarFile, info: tarfile.TarInfo) -> Member:
    name = info.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    odd = "" if info.isreg() else tr("a link, a pipe or a device, not a file")
    when = None
    with suppress(ValueError, OverflowError, OSError):
        when = datetime.fromtimestamp(info.mtime, timezone.utc)
    parts = PurePosixPath(name).parts or ("?",)
    return Member(parts, info.size, info.size, when, odd,
                  lambda: tar.extractfile(info).read(info.size))  # fmt: skip


def in_zip(archive: zipfile.ZipFile, name: str, info: zipfile.ZipInfo) -> Member:
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

    return Member(PurePosixPath(name).parts, info.file_size, info.compress_size, time_of(info),
                  odd, read)  # fmt: skip


def entries(file: BinaryIO) -> int:
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
