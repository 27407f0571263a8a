"""Every notebook in a file, a folder, a zip or a tar, nested ones too, read and never unpacked.

Nothing is written here, so a path cannot lead anywhere; still, what tries to is refused, as is
everything too large, too many, too deep, encrypted or broken. Sizes are looked at before data.

A zip that lies in the source was made by a learner: it has limits of its own, and the time at
which it was handed in is its own, not that of what it holds.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from labkit.core.files import read_plain
from labkit.grading.collect.archives import (
    BROKEN,
    LONGEST_NAME,
    Limits,
    Member,
    Parts,
    TooMuch,
    archived,
    in_memory,
    names_in,
    odd_path,
    opened,
    plain_path,
    too_large,
)
from labkit.grading.collect.contents import ARCHIVE, GRADESCOPE, LIST, kind_of, plausible
from labkit.grading.collect.identify import person
from labkit.grading.judge.intake import MAX_NOTEBOOK
from labkit.grading.nbgrader.timestamp import STAMP_BYTES, parse_timestamp
from labkit.lang import said, tr

# doejohn_LATE_12345_67890_..., John Doe_12345_assignsubmission_file_...
LMS = re.compile(r"(.+?)_(?:late_)?(?:\d{3,}_\d{3,}_|\d+_assignsubmission_file)", re.IGNORECASE)
EXPORT = said("an export of Canvas or Moodle in a folder: collect it by itself")
SYSTEM = ("__MACOSX", "Icon\r", "Thumbs.db", "site-packages", "node_modules", "__pycache__")


@dataclass(frozen=True)
class Found:
    """One file: where it lay, its bytes, its time in UTC; or why it was not read.

    own        how many of the parts lead to the learner's zip that holds it; 0: none does
    stamped    the time that a timestamp.txt beside it says, as nbgrader writes it
    reason     why there is no data; empty if it is just no notebook
    """

    parts: Parts
    data: bytes | None = None
    when: datetime | None = None
    own: int = 0
    stamped: datetime | None = None
    reason: str = ""


@dataclass
class Reader:
    """Walks one source within its limits."""

    limits: Limits = field(default_factory=Limits)
    notebooks: int = 0
    read: int = 0
    own_notebooks: Counter[Parts] = field(default_factory=Counter)  # by learner's zip
    own_read: Counter[Parts] = field(default_factory=Counter)

    def walk(self, source: Path, alone: bool = True) -> Iterator[Found]:
        """All notebooks of a source, and a word on whatever could not be read.

        alone    there is no other source: a zip is then an export, and not one learner's
        """
        if source.is_symlink() or not source.exists():
            reason = tr("a link") if source.is_symlink() else tr("does not exist")
            yield Found((source.name,), reason=reason)
        elif source.is_dir():
            yield from self._folder(source)
        else:
            yield from self._file(source, (source.name,), alone or is_export(source))

    def _folder(self, root: Path) -> Iterator[Found]:
        found = [name for _, _, names in os.walk(root) for name in names if not hidden(name)]
        alone = len([name for name in found if kind_of(name) != LIST]) == 1
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(name for name in folders if not hidden(name))
            names = sorted(name for name in names if not hidden(name))
            for name in folders + names:
                path = Path(folder) / name
                parts = path.relative_to(root).parts
                if odd := odd_path(parts):
                    if name in folders:
                        folders.remove(name)
                    yield Found(plain_path(parts), reason=odd)
                elif path.is_symlink():
                    yield Found(parts, reason=tr("a link, which may lead anywhere"))
                elif name in names:
                    yield from self._file(path, parts, False, alone)

    def _file(
        self, path: Path, parts: Parts, alone: bool, lone: bool = False
    ) -> Iterator[Found]:
        """
        alone    a zip is the source itself, and not one learner's
        lone     it may be, if it is an export and its name is nobody's
        """
        kind = kind_of(path.name)
        here = Found(parts)
        try:
            about = path.lstat()
            here = replace(here, when=modified(path))
            if not kind:
                yield here
            elif not stat.S_ISREG(about.st_mode):
                yield replace(here, reason="not a file")
            elif kind == ARCHIVE:
                alone = alone or (lone and lone_export(path))
                if not alone and is_export(path):
                    yield replace(here, reason=EXPORT)
                    return
                theirs = here if alone else replace(here, own=len(parts))
                with path.open("rb") as file:
                    yield from self._archive(file, theirs, 1)
            elif about.st_size > MAX_NOTEBOOK:
                yield replace(here, reason=too_large(about.st_size))
            else:
                above = path.parents[1 : len(parts)]  # of NAME/LAB/LAB.ipynb from NAME on
                cloned = any((folder / ".git").exists() for folder in above)
                stamped = replace(here, stamped=None if cloned else stamp_beside(path))
                yield from self._content(stamped, path.read_bytes(), 1)
        except OSError as error:
            yield replace(
                here, reason=tr("cannot be read: {error}", error=error.strerror or error)
            )

    def _content(self, here: Found, data: bytes, depth: int) -> Iterator[Found]:
        """A file that was read: a notebook, an archive whatever its name, or neither."""
        if archived(data[:512]):
            theirs = here if here.own else replace(here, own=len(here.parts))
            yield from self._archive(in_memory(data), theirs, depth)
            return
        if not plausible(here.parts[-1], data):
            yield here
            return
        if kind_of(here.parts[-1]) != LIST:
            self.notebooks += 1
            self.own_notebooks[here.parts[: here.own]] += 1
        if self.notebooks > self.limits.files:
            yield replace(
                here,
                reason=tr(
                    "more than {files:,} notebooks in one source", files=self.limits.files
                ),
            )
            return
        yield replace(here, data=data)

    # Zips and tars

    def _archive(self, file: BinaryIO, here: Found, depth: int) -> Iterator[Found]:
        if depth > self.limits.depth:
            reason = tr("more than {depth} zips within one another", depth=self.limits.depth)
            yield replace(here, reason=reason)
            return
        try:
            with opened(file, self.limits) as members:
                yield from self._members(members, here, depth)
        except TooMuch as error:
            yield replace(here, reason=str(error))
        except BROKEN as error:
            yield replace(here, reason=tr("not a readable zip ({error})", error=error))

    def _members(self, members: list[Member], here: Found, depth: int) -> Iterator[Found]:
        named = {member.name: member for member in members}
        if len(named) < len(members):
            twice = tr("two files of one name in this zip: the later one is taken")
            yield replace(here, reason=twice)
        paths = {name: PurePosixPath(name).parts for name in named}
        clones = {parts[: parts.index(".git")] for parts in paths.values() if ".git" in parts}
        for name, member in named.items():
            inner, parts = paths[name], here.parts + paths[name]
            if any(map(hidden, inner)):
                continue
            if odd := odd_path(parts):
                yield replace(here, parts=plain_path(parts), reason=odd)
            else:
                beside = named.get(str(PurePosixPath(*inner[:-1], "timestamp.txt")))
                if any(inner[:length] in clones for length in range(len(inner) - 1)):
                    beside = None
                place = replace(here, parts=parts)
                full = self._own_full(place, member)
                if full:
                    yield replace(here, reason=full)
                    return
                yield from self._member(place, member, beside, depth)

    def _own_full(self, place: Found, member: Member) -> str:
        """Why no more of a learner's zip is read; what was read of it before stays."""
        if not place.own or not kind_of(place.parts[-1]):
            return ""
        zipped, limits = place.parts[: place.own], self.limits
        if self.own_notebooks[zipped] >= limits.own_files:
            return tr(
                "more than {own_files} notebooks in one learner's zip",
                own_files=limits.own_files,
            )
        if self.own_read[zipped] + member.size > limits.own_bytes:
            return tr(
                "more than {own_bytes:,} bytes in one learner's zip", own_bytes=limits.own_bytes
            )
        return ""

    def _member(
        self, here: Found, member: Member, beside: Member | None, depth: int
    ) -> Iterator[Found]:
        """What a file of a zip is; `beside` may hold the time at which it was handed in."""
        kind = kind_of(here.parts[-1])
        here = here if here.own else replace(here, when=member.when)
        problem = self._problem(member, kind)
        if not kind or problem:
            yield replace(here, reason=problem if kind else "")
            return
        try:
            data, text = self._bytes(member), b""
            if beside and not here.own and not self._problem(beside, "stamp"):
                text = self._bytes(beside)
        except BROKEN as error:
            yield replace(here, reason=tr("broken in the zip ({error})", error=error))
            return
        if here.own:
            self.own_read[here.parts[: here.own]] += len(data)
            here = replace(here, stamped=None)
        else:
            here = replace(here, stamped=parse_timestamp(text))
        if kind == ARCHIVE:
            theirs = here if here.own else replace(here, own=len(here.parts))
            yield from self._archive(in_memory(data), theirs, depth + 1)
        else:
            yield from self._content(here, data, depth + 1)

    def _problem(self, member: Member, kind: str) -> str:
        if self.read + member.size > self.limits.total:
            return tr("more than {total:,} bytes in one source", total=self.limits.total)
        return member.problem(kind, self.limits)

    def _bytes(self, member: Member) -> bytes:
        data = member.read()
        self.read += len(data)
        return data


def is_export(path: Path, gradescopes: bool = False) -> bool:
    """Whether a zip holds files of several people, named as Canvas or Moodle do; or, if wanted,
    Gradescope's list."""
    if path.suffix.lower() != ".zip":
        return False
    with path.open("rb") as file:
        names = names_in(file, 2000)
    outermost = [PurePosixPath(name).parts[0] for name in names if name.strip("/")]
    heads = [LMS.match(name[:LONGEST_NAME]) for name in outermost]
    if gradescopes and any(PurePosixPath(name).name == GRADESCOPE for name in names):
        return True
    return len({head[1] for head in heads if head}) > 1


def lone_export(path: Path) -> bool:
    """Whether a zip that is all of a folder is an export: a learner's bears a name."""
    return not person(path.name) and is_export(path, gradescopes=True)


def hidden(name: str) -> bool:
    return name in SYSTEM or (name.startswith(".") and name not in (".", ".."))


def stamp_beside(path: Path) -> datetime | None:
    """The time in the timestamp.txt beside a notebook in a folder."""
    with suppress(OSError):
        return parse_timestamp(read_plain(path.with_name("timestamp.txt"), STAMP_BYTES))
    return None


def modified(path: Path) -> datetime:
    return datetime.fromtimestamp(path.lstat().st_mtime, timezone.utc)


def handed_in(path: Path) -> datetime:
    """When a notebook in submitted/ was handed in."""
    return stamp_beside(path) or modified(path)
