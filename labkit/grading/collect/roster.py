"""The roster of a class: read from a CSV, and asked whose a notebook is."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from labkit.core.files import safe_id
from labkit.grading.collect.identify import Identity, squeezed
from labkit.grading.nbgrader.gradebook_connection import CourseError, RosterEntry


@dataclass
class Roster:
    """Who is in the class; finds a person by any of the names that LMSs make of theirs."""

    people: list[RosterEntry]
    closed: bool = True  # whoever is not in it is unknown
    by_key: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def __post_init__(self) -> None:
        for person in self.people:
            first, last = squeezed(person.first_name), squeezed(person.last_name)
            mail = person.email.split("@")[0]
            keys = {person.id, mail, person.email, first + last, last + first}
            for key in {squeezed(key) for key in keys} - {""}:
                self.by_key[key].add(person.id)

    def find(self, who: Identity) -> set[str]:
        """Ids that fit: one is a match, none is unknown, more are a question."""
        ids = {person.id for person in self.people}
        if who.system == "Canvas":
            found = {person.id for person in self.people if person.lms_user_id == who.user}
            if found:
                return found
        exact = [{name} for name in who.names if name in ids]
        similar = [self.by_key.get(squeezed(name), set()) for name in who.names]
        return set(next(filter(None, exact + similar), ()))


COLUMNS = {
    "id": ("id", "student_id", "student id", "username", "login", "user name"),
    "name": ("name", "full name", "full_name", "student", "student name"),
    "first_name": ("first_name", "first name", "firstname", "given name"),
    "last_name": ("last_name", "last name", "lastname", "surname", "family name"),
    "email": ("email", "e-mail", "email address", "mail"),
    "lms_user_id": ("lms_user_id", "lms user id", "canvas id", "canvas_id"),
}
CANVAS_COLUMNS = {"id": ("sis login id", "sis user id"), "lms_user_id": ("id",)}
LONGEST_ROSTER = 8 << 20


def read_roster(path: Path) -> list[RosterEntry]:
    """A CSV with the columns id and name (or first_name, last_name), perhaps email and
    lms_user_id; Canvas's gradebook export will do."""
    text = roster_text(path)
    head = text.split("\n", 1)[0]
    table = csv.DictReader(io.StringIO(text), delimiter=max(",;\t", key=head.count))
    titles = {(title or "").strip().casefold(): title for title in table.fieldnames or ()}
    canvas = "sis login id" in titles or "sis user id" in titles
    columns = {
        key: next((titles[name] for name in names if name in titles), None)
        for key, names in (COLUMNS | CANVAS_COLUMNS if canvas else COLUMNS).items()
    }
    if columns["id"] is None:
        raise CourseError(f"the roster {path} has no column id; it has {', '.join(titles)}")
    people = {}
    for row in table:
        entry = {key: (row.get(title) or "").strip() for key, title in columns.items() if title}
        name, entry["id"] = entry.pop("name", ""), entry["id"] and safe_id(entry["id"])
        if name and not entry.get("last_name"):
            entry |= split_name(name)
        if entry["id"]:
            people[entry["id"]] = RosterEntry(**entry)
    if not people:
        raise CourseError(f"the roster {path} has nobody in it")
    return list(people.values())


def roster_text(path: Path) -> str:
    """The file as UTF-8, else as older Excels write it."""
    try:
        data = path.read_bytes()[: LONGEST_ROSTER + 1]
    except OSError as error:
        raise CourseError(f"the roster {path} cannot be read: {error.strerror}") from error
    if len(data) > LONGEST_ROSTER:
        raise CourseError(f"the roster {path} is larger than {LONGEST_ROSTER:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace")


def split_name(name: str) -> dict[str, str]:
    """`Doe, John` or `John Doe`."""
    if "," in name:
        last, first = name.split(",", 1)
    else:
        first, _, last = name.rpartition(" ")
    return {"first_name": first.strip(), "last_name": last.strip()}
