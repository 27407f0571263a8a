"""The two files of nbgrader's exchange that travel with a notebook.

`nbgrader submit` writes a time and a secret beside the notebook; `nbgrader release_feedback`
names the page after the secret, which only its learner knows.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from labkit.course.files import read_plain, write_whole
from labkit.grading.nbgrader.timestamp import read_timestamp

EXCHANGE_FILES = ("timestamp.txt", "submission_secret.txt")
MAX_BYTES = 1000  # nbgrader's have 35 and 128


def copy_exchange_files(source: Path, target: Path) -> None:
    """Copy the exchange files of a folder, and delete those that it does not have."""
    for name in EXCHANGE_FILES:
        content, before = read_line(source / name), read_line(target / name)
        if content is None:
            (target / name).unlink(missing_ok=True)
        elif content != before:
            write_whole(target / name, content)


def read_line(path: Path) -> bytes | None:
    """Return the line of text in a small regular file; None for anything else."""
    try:
        content = read_plain(path, MAX_BYTES + 1)
    except OSError:
        return None
    text = content.decode("latin-1").strip()
    if len(content) > MAX_BYTES or not (text.isascii() and text.isprintable()):
        return None
    return content


def handed_in_at(folder: Path) -> tuple[datetime | None, str]:
    """Return the time in timestamp.txt, in UTC without a zone, as the gradebook keeps it, and
    the fault of that file; (None, "") without one."""
    when = read_timestamp(folder)
    if when or not os.path.lexists(folder / "timestamp.txt"):
        return when and when.replace(tzinfo=None), ""
    expected = "a line such as 2026-03-01 12:00:00 UTC"
    return None, f"timestamp.txt holds no time (expected {expected}); not late"
