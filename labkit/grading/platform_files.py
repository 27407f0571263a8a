"""Times in the file names of platforms, and Gradescope's metadata file, which a learner may
have forged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from typing import NamedTuple

import yaml

from labkit.grading.nbgrader.timestamp import parse_timestamp

TIMES = ("%Y-%m-%d-%H-%M-%S", "%b %d, %Y %I%M %p")  # times of Blackboard and of Brightspace
MOST_YAML, DEEPEST_YAML = 8 << 20, 30


class Member(NamedTuple):
    """The person who handed in a folder, from Gradescope's metadata."""

    folder: str
    sure: tuple[str, ...]  # student number, e-mail address
    name: str
    when: datetime | None


def time_in(text: str) -> datetime | None:
    """Return a platform's time: nbgrader's in UTC, others by local clock."""
    if when := parse_timestamp(text.encode()):
        return when
    text = re.sub(r" (\d{3}) (?=[AP]M)", r" 0\1 ", text.replace(".", ""))
    for form in TIMES:
        with suppress(ValueError, OverflowError):
            return datetime.strptime(text, form).astimezone(timezone.utc)
    return None


def members_in(data: bytes) -> Iterator[Member]:
    """Yield the members who handed in each folder, several for a group, from Gradescope's
    metadata. Raises ValueError if it cannot be read."""
    for folder, about in plain_keys(read_yaml(data)).items():
        about = plain_keys(about)
        when = time_in(re.sub(r"(\.\d{6})\d+", r"\1", str(about.get("created_at"))))
        people = about.get("submitters")
        for person in map(plain_keys, people if isinstance(people, list) else ()):
            texts = [person.get(key) for key in ("sid", "email", "name")]
            *sure, name = [text if isinstance(text, str) and text not in ("~", "null") else ""
                           for text in texts]  # fmt: skip
            yield Member(folder, tuple(sure), name, when)


def read_yaml(data: bytes) -> object:
    """Parse YAML; ValueError if it is broken, large, deep, or uses references."""
    if len(data) > MOST_YAML:
        raise ValueError(f"{len(data):,} bytes, more than the {MOST_YAML:,} that are read")
    text, depth = data.decode("utf-8-sig", "replace"), 0
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        for event in yaml.parse(text, loader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST_YAML or getattr(event, "anchor", None):
                raise ValueError("too deep, or it refers to itself")
        return yaml.load(text, loader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def plain_keys(table: object) -> dict[str, object]:
    """Return the table with Ruby's keys `:name` as `name`."""
    return {str(k).lstrip(":"): v for k, v in table.items()} if isinstance(table, dict) else {}
