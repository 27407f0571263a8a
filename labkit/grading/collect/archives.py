"""Zips and tars: their files, named and looked at before any of them is unpacked."""

from __future__ import annotations

import io
import re
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from gzip import GzipFile
from pathlib import PurePosixPath
from typing import IO, BinaryIO

from labkit.grading.judge.intake import MAX_NOTEBOOK
from labkit.grading.nbgrader.timestamp import STAMP_BYTES
from labkit.lang import tr

MEGABYTE = 1 << 20
ENTRY = b"PK\x01\x02"  # begins each entry of a zip's directory
# What zipfile and tarfile raise for what is damaged or made to do damage
BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, struct.error, EOFError, OSError,
          RuntimeError, ValueError)  # fmt: skip

Parts = tuple[str, ...]  # folders, zips, name
LONGEST_NAME, MOST_PARTS = 255, 20
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Limits:
    files: int = 20_000  # in one zip, and of notebooks in one source
    nested: int = 128 * MEGABYTE  # bytes of a zip within a zip
    total: int = 8 << 30  # bytes read out of zips, for one source
    depth: int = 3  # zips within zips
    own_files: int = 50  # notebooks in a learner's zip
    own_bytes: int = 256 * MEGABYTE  # read out of it; the most that a tar.gz unpacks to
    ratio: int = 200  # unpacked to packed, from a megabyte on


class TooMuch(ValueError):
    """An archive beyond a limit; the message says which."""


@dataclass(frozen=True)
class Member:
    """A file in an archive, not read yet.

    odd     why it must not be read
    when    when it was written, in UTC
    """

    name: str
    size: int
    packed: int
    when: datetime | None
    odd: str
    read: Callable[[], bytes]

    def problem(self, kind: str, limits: Limits) -> str:
        """Why it must not be read; told before any of it is."""
        parts = PurePosixPath(self.name).parts
        if ".." in parts or parts[0] == "/" or ":" in parts[0][1:2]:
            return tr("its path leads out of the zip")
        if self.odd:
            return self.odd
        most = {"archive": limits.nested, "stamp": STAMP_BYTES}.get(kind, MAX_NOTEBOOK)
        if self.size > most:
            return too_large(self.size)
        if self.size > MEGABYTE and self.size > limits.ratio * max(self.packed, 1):
            return tr(
                "a zip bomb: {packed:,} bytes that unpack to {size:,}",
                packed=self.packed,
                size=self.size,
            )
        return ""


def odd_path(parts: Parts) -> str:
    """Why a file must not be read because of its path; told before a pattern sees it."""
    if len(parts) > MOST_PARTS:
        return tr("a path of more than {most} parts", most=MOST_PARTS)
    if any(len(part) > LONGEST_NAME for part in parts):
        return tr("a name of more than {most} characters", most=LONGEST_NAME)
    return tr("a control character in its name") if CONTROL.search("".join(parts)) else ""


def plain_path(parts: Parts) -> Parts:
    """As much of an odd path as can be shown and looked at."""
    shown = [part[:LONGEST_NAME] for part in parts[:MOST_PARTS]]
    return tuple(CONTROL.sub("\N{REPLACEMENT CHARACTER}", part) for part in shown)


def too_large(size: int) -> str:
    return tr(
        "{size:,} bytes, which is too large; a notebook may have {max_notebook:,}",
        size=size,
        max_notebook=MAX_NOTEBOOK,
    )


def archived(head: bytes) -> str:
    """zip, gzip or tar by the first bytes of a file; empty for anything else."""
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return "zip"
    if head[:2] == b"\x1f\x8b":
        return "gzip"
    return "tar" if head[257:262] == b"ustar" else ""


@contextmanager
def opened(file: BinaryIO, limits: Limits) -> Iterator[list[Member]]:
    """The files of an archive; BROKEN if it is none, TooMuch if it is beyond a limit."""
    kind = archived(file.read(512))
    file.seek(0)
    with _tar(file, kind, limits) if kind in ("gzip", "tar") else _zip(file, limits) as found:
        yield found


@contextmanager
def _zip(file: BinaryIO, limits: Limits) -> Iterator[list[Member]]:
    if _entries(file) > limits.files:
        raise TooMuch(tr("a zip of more than {files:,} files", files=limits.files))
    with zipfile.ZipFile(file) as archive:
        yield [
            Member(name_of(info), info.file_size, info.compress_size, time_of(info),
                   _oddity(info), lambda info=info: _bytes(archive.open(info), info.file_size))
            for info in archive.infolist()
            if PurePosixPath(name_of(info)).name and not name_of(info).endswith("/")
        ]  # fmt: skip


@contextmanager
def _tar(file: BinaryIO, kind: str, limits: Limits) -> Iterator[list[Member]]:
    with tempfile.TemporaryFile() as whole:
        unpacked = GzipFile(fileobj=file) if kind == "gzip" else file
        size, packed = 0, file.seek(0, io.SEEK_END)
        most = min(limits.own_bytes, max(MEGABYTE, limits.ratio * packed))
        file.seek(0)
        while block := unpacked.read(MEGABYTE):
            size += len(block)
            if size > most:
                raise TooMuch(
                    tr(
                        "a tar of {packed:,} bytes that unpacks to more than {most:,}",
                        packed=packed,
                        most=most,
                    )
                )
            whole.write(block)
        whole.seek(0)
        with tarfile.open(fileobj=whole, mode="r:") as archive:
            found = []
            for info in archive:
                if len(found) > limits.files:
                    raise TooMuch(tr("a tar of more than {files:,} files", files=limits.files))
                if not info.isdir():
                    found.append(_tarred(archive, info))
            yield found


def _tarred(archive: tarfile.TarFile, info: tarfile.TarInfo) -> Member:
    def read() -> bytes:
        stream = archive.extractfile(info)
        return _bytes(stream, info.size) if stream else b""

    odd = "" if info.isreg() else tr("a link, which may lead anywhere")
    with suppress(ValueError, OverflowError, OSError):
        when = datetime.fromtimestamp(info.mtime, timezone.utc)
        name = info.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return Member(name.removeprefix("./"), info.size, info.size, when, odd, read)
    return Member(info.name, info.size, info.size, None, odd, read)


def _bytes(stream: IO[bytes], size: int) -> bytes:
    with stream:
        return stream.read(size + 1)


def _oddity(info: zipfile.ZipInfo) -> str:
    if stat.S_ISLNK(info.external_attr >> 16):
        return tr("a link, which may lead anywhere")
    if info.flag_bits & 1:
        return "encrypted"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return tr("packed in an unusual way; zip it again as usual")
    return ""


def _entries(file: BinaryIO) -> int:
    """How many files a zip can hold at most, counted before its directory is parsed."""
    count, tail = 0, b""
    file.seek(0)
    while block := file.read(MEGABYTE):
        count += (tail + block).count(ENTRY)
        tail = block[-len(ENTRY) + 1 :]
    file.seek(0)
    return count


def name_of(info: zipfile.ZipInfo) -> str:
    """The name of a file in a zip, with UTF-8 that was not marked as such."""
    name = info.filename
    if not info.flag_bits & 0x800:  # older macOS writes UTF-8 and does not say so
        with suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    return name.replace("\\", "/")


def time_of(info: zipfile.ZipInfo) -> datetime | None:
    """When a file of a zip was written: exactly where the zip says so, else by local clock."""
    extra = info.extra
    while len(extra) >= 4:
        kind, size = struct.unpack("<HH", extra[:4])
        if kind == 0x5455 and size >= 5 and extra[4] & 1:  # seconds since 1970, in UTC
            (seconds,) = struct.unpack("<i", extra[5:9])
            return datetime.fromtimestamp(seconds, timezone.utc)
        extra = extra[4 + size :]
    try:
        local = datetime(*info.date_time)
        return None if local.year <= 1980 else local.astimezone(timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None


def names_in(file: BinaryIO, most: int) -> list[str]:
    """The first names in a zip; none if it is no zip."""
    try:
        with zipfile.ZipFile(file) as archive:
            return [name_of(info) for info in archive.infolist()[:most]]
    except BROKEN:
        return []


def in_memory(data: bytes) -> BinaryIO:
    return io.BytesIO(data)
