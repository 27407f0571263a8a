"""The time of a submission: nbgrader's timestamp.txt, and a platform's mark."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

from labkit.course.files import read_plain, write_whole

MANIFEST = Path("collected", "manifest.json")
STAMP = "timestamp.txt"
STAMP_BYTES = 100  # the most bytes that are read
# 2026-03-01 12:00:00.000000 UTC
FORM = re.compile(r"[12]\d{3}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?(?: [A-Za-z+-][\w/+:-]*)?",
                  re.ASCII)  # fmt: skip


def parse_timestamp(text: bytes) -> datetime | None:
    """Return the time in UTC of a timestamp.txt in nbgrader's form; None for any other text."""
    from nbgrader.utils import parse_utc

    try:
        stamp = text.decode("utf-8").strip()
        return parse_utc(stamp).replace(tzinfo=timezone.utc) if FORM.fullmatch(stamp) else None
    except Exception:  # dateutil raises errors of any type
        return None


def read_timestamp(folder: Path) -> datetime | None:
    """The time of a folder in submitted/; None without a timestamp in nbgrader's form."""
    try:
        return parse_timestamp(read_plain(folder / STAMP, STAMP_BYTES + 1))
    except OSError:
        return None


def timestamp_text(when: datetime) -> str:
    return when.strftime("%Y-%m-%d %H:%M:%S.%f %Z")


def read_manifest(root: Path) -> dict[str, dict[str, Any]]:
    """Return {LEARNER/LAB: where the attempt that counts came from, its time, a late mark}."""
    try:
        return json.loads((root / MANIFEST).read_text("utf-8"))
    except (FileNotFoundError, IsADirectoryError, ValueError):
        return {}


def sha_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Stamp(NamedTuple):
    """The old and the new text of timestamp.txt, and the time of the file."""

    before: datetime | None
    now: datetime
    file: datetime


def stamp_marked(root: Path, lab: str, due: datetime | None) -> dict[str, Stamp]:
    """Write the times of a lab's submissions that have a platform's mark: after the deadline if
    marked late, else not after it, whatever time the file has."""
    times = {}
    for key, entry in read_manifest(root).items():
        learner, _, name = key.partition("/")
        path, late = root / "submitted" / learner / lab / f"{lab}.ipynb", entry.get("late")
        if name != lab or late is None or not entry["order"][1]:
            continue
        if not path.is_file() or sha_of(path) != entry["sha"]:
            continue
        sent = when = datetime.fromtimestamp(entry["order"][1], timezone.utc)
        if due and late != (when > due):
            when = due.astimezone(timezone.utc) + timedelta(seconds=late)
        before = read_timestamp(path.parent)
        if before != when:
            write_whole(path.with_name(STAMP), timestamp_text(when))
        times[learner] = Stamp(before, when, sent)
    return times
