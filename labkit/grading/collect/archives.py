"""Every notebook in a file, a folder or a zip, zips within zips too, read and never unpacked.

Nothing is written here, so a path cannot lead anywhere; still, what tries to is refused, as is
everything too large, too many, too deep, encrypted or broken. Sizes are looked at before data.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from labkit.grading.judge.intake import MAX_NOTEBOOK

MEGABYTE = 1 << 20
ENTRY = b"PK\x01\x02"  # begins each entry of a zip's directory
SYSTEM = ("__MACOSX", ".ipynb_checkpoints", "Thumbs.db")
STAMP_BYTES = 100  # the most of a timestamp.txt
# What zipfile raises for zips that are damaged or made to do damage
BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError,
          ValueError)  # fmt: skip

Parts = tuple[str, ...]  # folders, zips, name


@dataclass(frozen=True)
class Limits:
    files: int = 20_000  # in one zip, and of notebooks in one source
    nested: int = 128 * MEGABYTE  # bytes of a zip within a zip
    total: int = 8 << 30  # bytes read out of zips, for one source
    depth: int = 3  # zips within zips
    ratio: int = 200  # unpacked to packed, from a megabyte on


@dataclass(frozen=True)
class FoundNotebook:
    """One notebook: where it lay, its bytes, its time in UTC."""

    parts: Parts
    data: bytes
    when: datetime | None = None


@dataclass(frozen=True)
class Refused:
    """Something that was not read, and why; no reason: it is neither notebook nor zip."""

    parts: Parts
    reason: str = ""


Read = FoundNotebook | Refused


@dataclass
class Reader:
    """Walks one source within its limits."""

    limits: Limits = field(default_factory=Limits)
    notebooks: int = 0
    read: int = 0

    def walk(self, source: Path) -> Iterator[Read]:
        """All notebooks of a source, and a word on whatever could not be read."""
        if source.is_symlink() or not source.exists():
            yield Refused((source.name,), "a link" if source.is_symlink() else "does not exist")
        elif source.is_dir():
            yield from self._folder(source)
        else:
            yield from self._file(source, (source.name,))

    def _folder(self, root: Path) -> Iterator[Read]:
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(name for name in folders if not hidden(name))
            for name in folders + sorted(names):
                path = Path(folder) / name
                parts = path.relative_to(root).parts
                if path.is_symlink():
                    yield Refused(parts, "a link, which may lead anywhere")
                elif name in names and not hidden(name):
                    yield from self._file(path, parts)

    def _file(self, path: Path, parts: Parts) -> Iterator[Read]:
        kind = kind_of(parts)
        if not kind:
            yield Refused(parts)
            return
        try:
            about = path.lstat()
            if not stat.S_ISREG(about.st_mode):
                yield Refused(parts, "not a file")
            elif kind == ".zip":
                with path.open("rb") as file:
                    yield from self._zip(file, parts, 1)
            elif about.st_size > MAX_NOTEBOOK:
                yield Refused(parts, too_large(about.st_size))
            else:
                yield self._notebook(parts, path.read_bytes(), handed_in(path))
        except OSError as error:
            yield Refused(parts, f"cannot be read: {error.strerror or error}")

    def _notebook(self, parts: Parts, data: bytes, when: datetime | None) -> Read:
        self.notebooks += 1
        if self.notebooks > self.limits.files:
            return Refused(parts, f"more than {self.limits.files:,} notebooks in one source")
        return FoundNotebook(parts, data, when)

    # Zips

    def _zip(self, file: BinaryIO, parts: Parts, depth: int) -> Iterator[Read]:
        if depth > self.limits.depth:
            yield Refused(parts, f"more than {self.limits.depth} zips within one another")
            return
        if entries(file) > self.limits.files:
            yield Refused(parts, f"a zip of more than {self.limits.files:,} files")
            return
        try:
            archive = zipfile.ZipFile(file)
        except BROKEN as error:
            yield Refused(parts, f"not a readable zip ({error})")
            return
        with archive:
            members = {name_of(member): member for member in archive.infolist()}
            if len(members) < len(archive.infolist()):
                twice = "two files of one name in this zip: the later one is taken"
                yield Refused(parts, twice)
            for name, member in members.items():
                inner = PurePosixPath(name).parts
                if inner and not name.endswith("/") and not any(map(hidden, inner)):
                    beside = members.get(str(PurePosixPath(*inner[:-1], "timestamp.txt")))
                    yield from self._member(archive, parts + inner, member, beside, depth)

    def _member(
        self,
        archive: zipfile.ZipFile,
        parts: Parts,
        member: zipfile.ZipInfo,
        beside: zipfile.ZipInfo | None,
        depth: int,
    ) -> Iterator[Read]:
        """What a file of a zip is; `beside` holds the time at which it was handed in."""
        kind = kind_of(parts)
        problem = self._problem(member, kind) if kind else ""
        if problem or not kind:
            yield Refused(parts, problem)
            return
        try:
            data, text = self._bytes(archive, member), b""
            if beside and not self._problem(beside, ".txt"):
                text = self._bytes(archive, beside)
        except BROKEN as error:
            yield Refused(parts, f"broken in the zip ({error})")
            return
        if kind == ".zip":
            yield from self._zip(io.BytesIO(data), parts, depth + 1)
        else:
            yield self._notebook(parts, data, stamp(text) or time_of(member))

    def _bytes(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
        with archive.open(member) as stream:
            data = stream.read(member.file_size + 1)
        self.read += len(data)
        return data

    def _problem(self, member: zipfile.ZipInfo, kind: str) -> str:
        """Why this file of a zip must not be read; told before any of it is."""
        size, most = member.file_size, {".zip": self.limits.nested, ".txt": STAMP_BYTES}
        packed = max(member.compress_size, 1)
        inner = PurePosixPath(name_of(member)).parts
        if ".." in inner or inner[0] == "/" or ":" in inner[0][1:2]:
            return "its path leads out of the zip"
        if stat.S_ISLNK(member.external_attr >> 16):
            return "a link, which may lead anywhere"
        if member.flag_bits & 1:
            return "encrypted"
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            return "packed in an unusual way; zip it again as usual"
        if size > most.get(kind, MAX_NOTEBOOK):
            return too_large(size)
        if size > MEGABYTE and size > self.limits.ratio * packed:
            return f"a zip bomb: {packed:,} bytes that unpack to {size:,}"
        if self.read + size > self.limits.total:
            return f"more than {self.limits.total:,} bytes in one source"
        return ""


def kind_of(parts: Parts) -> str:
    """.ipynb or .zip; empty for what is not read."""
    suffix = PurePosixPath(parts[-1]).suffix.lower()
    return suffix if suffix in (".ipynb", ".zip") else ""


def hidden(name: str) -> bool:
    return name in SYSTEM or (name.startswith(".") and name not in (".", ".."))


def too_large(size: int) -> str:
    return f"{size:,} bytes, which is too large; a notebook may have {MAX_NOTEBOOK:,}"


def entries(file: BinaryIO) -> int:
    """How many files a zip can hold at most, counted before its directory is parsed."""
    count, tail = 0, b""
    file.seek(0)
    while block := file.read(MEGABYTE):
        count += (tail + block).count(ENTRY)
        tail = block[-len(ENTRY) + 1 :]
    file.seek(0)
    return count


def name_of(member: zipfile.ZipInfo) -> str:
    """The name of a file in a zip, with UTF-8 that was not marked as such."""
    name = member.filename
    if not member.flag_bits & 0x800:  # older macOS writes UTF-8 and does not say so
        with suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    return name.replace("\\", "/")


def stamp(text: bytes) -> datetime | None:
    """The time in nbgrader's timestamp.txt."""
    from nbgrader.utils import parse_utc

    try:
        return parse_utc(text.decode("utf-8").strip()).replace(tzinfo=timezone.utc)
    except (ValueError, OverflowError, AttributeError):
        return None


def handed_in(path: Path) -> datetime:
    """When a notebook in a folder was handed in: by the timestamp.txt beside it, if it has
    one, else by its own time."""
    beside = path.with_name("timestamp.txt")
    text = beside.read_bytes()[:STAMP_BYTES] if beside.is_file() else b""
    return stamp(text) or datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)


def time_of(member: zipfile.ZipInfo) -> datetime | None:
    """When a file of a zip was written: exactly where the zip says so, else by local clock."""
    extra = member.extra
    while len(extra) >= 4:
        kind, size = struct.unpack("<HH", extra[:4])
        if kind == 0x5455 and size >= 5 and extra[4] & 1:  # seconds since 1970, in UTC
            (seconds,) = struct.unpack("<i", extra[5:9])
            return datetime.fromtimestamp(seconds, timezone.utc)
        extra = extra[4 + size :]
    try:
        local = datetime(*member.date_time)
        return None if local.year <= 1980 else local.astimezone(timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None
