"""nbgrader's timestamp.txt: when a submission was handed in."""

from __future__ import annotations

import re
from datetime import datetime, timezone

STAMP_BYTES = 100  # the most of a timestamp.txt
# 2026-03-01 12:00:00.000000 UTC
FORM = re.compile(r"[12]\d{3}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?(?: [A-Za-z+-][\w/+:-]*)?",
                  re.ASCII)  # fmt: skip


def parse_timestamp(text: bytes) -> datetime | None:
    """The time in UTC that a timestamp.txt says in nbgrader's form; None for any other text."""
    from nbgrader.utils import parse_utc

    try:
        stamp = text.decode("utf-8").strip()
        return parse_utc(stamp).replace(tzinfo=timezone.utc) if FORM.fullmatch(stamp) else None
    except Exception:  # dateutil raises whatever it stumbles over
        return None
