"""Every notebook in a file, a folder or a zip, zips within zips too, read and never unpacked.

Nothing is written here, so a path cannot lead anywhere; still, what tries to is refused, as is
everything too large, too many, too deep, encrypted or broken. Sizes are looked at before data.

A zip that lies in the source was made by a learner: it has limits of its own, and the time at
which it was handed in is its own, not that of what it holds.
"""

from __future__ import annotations

import io
import os
import re
import stat
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from labkit.core.files import read_plain
from labkit.grading.judge.intake import MAX_NOTEBOOK

MEGABYTE = 1 << 20
ENTRY = b"PK\x01\x02"  # begins each entry of a zip's directory
# doejohn_LATE_12345_67890_..., John Doe_12345_assignsubmission_file_...
LMS = re.compile(r"(.+?)_(?:late_)?(?:\d{3,}_\d{3,}_|\d+_assignsubmission_file)", re.IGNORECASE)
EXPORT = "an export of Canvas or Moodle among other files: collect it by itself"
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
    own_files: int = 50  # notebooks in a learner's zip
    own_bytes: int = 256 * MEGABYTE  # read out of it
    ratio: int = 200  # unpacked to packed, from a megabyte on


@dataclass(frozen=True)
class FoundNotebook:
    """One notebook: where it lay, its bytes, its time in UTC.

    own        how many of the parts lead to the learner's zip that holds it; 0: none does
    stamped    the time that a timestamp.txt beside it says, as nbgrader writes it
    """

    parts: Parts
    data: bytes
    when: datetime | None = None
    own: int = 0
    stamped: datetime | None = None


@dataclass(frozen=True)
class Refused:
    """Something that was not read, and why; no reason: it is neither notebook nor zip."""

    parts: Parts
    reason: str = ""


Read = FoundNotebook | Refused


@dataclass(frozen=True)
class Place:
    """Where something lies; how many parts lead to the learner's zip round it, and its time."""

    parts: Parts
    own: int = 0
    when: datetime | None = None


@dataclass
class Reader:
    """Walks one source within its limits."""

    limits: Limits = field(default_factory=Limits)
    notebooks: int = 0
    read: int = 0
    own_notebooks: Counter[Parts] = field(default_factory=Counter)  # by learner's zip
    own_read: Counter[Parts] = field(default_factory=Counter)

    def walk(self, source: Path, alone: bool = True) -> Iterator[Read]:
        """All notebooks of a source, and a word on whatever could not be read.

        alone    there is no other source: a zip is then an export, and not one learner's
        """
        if source.is_symlink() or not source.exists():
            yield Refused((source.name,), "a link" if source.is_symlink() else "does not exist")
        elif source.is_dir():
            yield from self._folder(source)
        else:
            yield from self._file(source, (source.name,), alone or is_export(source))

    def _folder(self, root: Path) -> Iterator[Read]:
        found = [name for _, _, names in os.walk(root) for name in names if not hidden(name)]
        alone = len([name for name in found if kind_of((name,))]) == 1
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(name for name in folders if not hidden(name))
            for name in folders + sorted(names):
                path = Path(folder) / name
                parts = path.relative_to(root).parts
                if path.is_symlink():
                    yield Refused(parts, "a link, which may lead anywhere")
                elif name in names and not hidden(name):
                    yield from self._file(path, parts, alone)

    def _file(self, path: Path, parts: Parts, alone: bool) -> Iterator[Read]:
        """
        alone    there is no other file: a zip is then the source itself
        """
        kind = kind_of(parts)
        if not kind:
            yield Refused(parts)
            return
        try:
            about = path.lstat()
            if not stat.S_ISREG(about.st_mode):
                yield Refused(parts, "not a file")
            elif kind == ".zip":
                if not alone and is_export(path):
                    yield Refused(parts, EXPORT)
                    return
                theirs = Place(parts, len(parts), modified(path))
                with path.open("rb") as file:
                    yield from self._zip(file, Place(parts) if alone else theirs, 1)
            elif about.st_size > MAX_NOTEBOOK:
                yield Refused(parts, too_large(about.st_size))
            else:
                said = stamp_beside(path)
                yield self._notebook(Place(parts), path.read_bytes(), modified(path), said)
        except OSError as error:
            yield Refused(parts, f"cannot be read: {error.strerror or error}")

    def _notebook(
        self, place: Place, data: bytes, when: datetime | None, stamped: datetime | None
    ) -> Read:
        self.notebooks += 1
        if self.notebooks > self.limits.files:
            text = f"more than {self.limits.files:,} notebooks in one source"
            return Refused(place.parts, text)
        return FoundNotebook(place.parts, data, when, place.own, stamped)

    # Zips

    def _zip(self, file: BinaryIO, place: Place, depth: int) -> Iterator[Read]:
        parts = place.parts
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
                    here = replace(place, parts=parts + inner)
                    if self._own_full(here, member):
                        yield Refused(parts, self._own_full(here, member))
                        return
                    yield from self._member(archive, here, member, beside, depth)

    def _own_full(self, place: Place, member: zipfile.ZipInfo) -> str:
        """Why no more of a learner's zip is read; what was read of it before stays."""
        if not place.own or not kind_of(place.parts):
            return ""
        zipped, limits = place.parts[: place.own], self.limits
        if self.own_notebooks[zipped] >= limits.own_files:
            return f"more than {limits.own_files} notebooks in one learner's zip"
        if self.own_read[zipped] + member.file_size > limits.own_bytes:
            return f"more than {limits.own_bytes:,} bytes in one learner's zip"
        return ""

    def _member(
        self,
        archive: zipfile.ZipFile,
        place: Place,
        member: zipfile.ZipInfo,
        beside: zipfile.ZipInfo | None,
        depth: int,
    ) -> Iterator[Read]:
        """What a file of a zip is; `beside` may hold the time at which it was handed in."""
        parts = place.parts
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
        when = place.when if place.own else time_of(member)
        if place.own:
            self.own_read[parts[: place.own]] += len(data)
            self.own_notebooks[parts[: place.own]] += kind != ".zip"
        if kind == ".zip":
            theirs = place if place.own else Place(parts, len(parts), when)
            yield from self._zip(io.BytesIO(data), replace(theirs, parts=parts), depth + 1)
        else:
            yield self._notebook(place, data, when, None if place.own else stamp(text))

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


def is_export(path: Path) -> bool:
    """Whether a zip holds files of several people, named as Canvas or Moodle do."""
    if kind_of((path.name,)) != ".zip":
        return False
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            names = [name_of(member) for member in archive.infolist()[:2000]]
    except BROKEN:
        return False
    heads = [LMS.match(PurePosixPath(name).parts[0]) for name in names if name.strip("/")]
    return len({head[1] for head in heads if head}) > 1


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


def stamp_beside(path: Path) -> datetime | None:
    """The time in the timestamp.txt beside a notebook in a folder."""
    with suppress(OSError):
        return stamp(read_plain(path.with_name("timestamp.txt"), STAMP_BYTES))
    return None


def modified(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)


def handed_in(path: Path) -> datetime:
    """When a notebook in submitted/ was handed in."""
    return stamp_beside(path) or modified(path)


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
