"""The roster of a class: read from a CSV, and asked whose a notebook is."""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

import yaml

from labkit.core.files import safe_id
from labkit.grading.collect.identify import Identity, squeezed
from labkit.grading.nbgrader.gradebook.connection import CourseError, RosterEntry
from labkit.lang import tr


@dataclass(frozen=True)
class Participant:
    """A row of Moodle's grading worksheet; its numbers hold for one assignment."""

    number: str
    name: str
    email: str = ""
    idnumber: str = ""

    @property
    def id(self) -> str:
        return safe_id(self.idnumber or self.email.split("@")[0] or self.name)


@dataclass
class Roster:
    """Who is in the class; finds a person by any of the names that LMSs make of theirs."""

    people: list[RosterEntry]
    closed: bool = True  # whoever is not in it is unknown
    participants: list[Participant] = field(default_factory=list)
    by_key: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def __post_init__(self) -> None:
        for person in self.people:
            first, last = squeezed(person.first_name), squeezed(person.last_name)
            mail = person.email.split("@")[0]
            keys = {person.id, mail, person.email, first + last, last + first}
            for key in {squeezed(key) for key in keys} - {""}:
                self.by_key[key].add(person.id)

    def find(self, who: Identity) -> tuple[set[str], str]:
        """Ids that fit: one is a match, none is unknown, more are a question; and which of the
        names did."""
        if who.system == "Canvas":
            found = {person.id for person in self.people if person.lms_user_id == who.user}
            if found:
                return found, who.shown
        row = self.participant(who)
        names = (row.idnumber, row.email, *who.names, row.id) if row else who.names
        ids = {person.id for person in self.people}
        for name in filter(None, names):
            found = {name} & ids or self.by_key.get(squeezed(name), set())
            if found:
                return set(found), name
        return set(), ""

    def participant(self, who: Identity) -> Participant | None:
        """Moodle's row of a person, on which all worksheets agree; a worksheet of another
        assignment has other names."""
        if who.system != "Moodle":
            return None
        rows = {one for one in self.participants if one.number == who.user
                and squeezed(one.name) == squeezed(who.shown)}  # fmt: skip
        return rows.pop() if len(rows) == 1 else None


COLUMNS = {
    "id": ("id", "student_id", "student id", "username", "login", "user name", "sid")
    + ("id number",),
    "name": ("name", "full name", "full_name", "student", "student name"),
    "first_name": ("first_name", "first name", "firstname", "given name"),
    "last_name": ("last_name", "last name", "lastname", "surname", "family name"),
    "email": ("email", "e-mail", "email address", "mail"),
    "lms_user_id": ("lms_user_id", "lms user id", "canvas id", "canvas_id"),
}
CANVAS_COLUMNS = {"id": ("sis login id", "sis user id", "id"), "lms_user_id": ("id",)}
PARTICIPANT = re.compile(r"\D*(\d+)")  # Participant 7001, in whatever language
LONGEST_ROSTER = 8 << 20


def read_roster(
    path: Path, known: Sequence[RosterEntry] = ()
) -> tuple[list[RosterEntry], list[Participant]]:
    """A CSV with the columns id and name (or first_name, last_name), perhaps email and
    lms_user_id; gradebook exports of Canvas, Moodle and Gradescope, Moodle's grading
    worksheet. The second are the rows of the last.

    known    who keeps their id, by whichever of Canvas's columns it was
    """
    rows = table_of(roster_text(path))
    titles = list(rows[0]) if rows else []
    participants = participants_in(rows)
    if participants:
        people = {one.id: RosterEntry(one.id, **split_name(one.name), email=one.email)
                  for one in participants}  # fmt: skip
        return list(people.values()), participants
    canvas = {"sis login id", "sis user id"} & {*titles} or {"student", "id", "section"} <= {
        *titles
    }
    columns = {
        key: [name for name in names if name in titles]
        for key, names in (COLUMNS | CANVAS_COLUMNS if canvas else COLUMNS).items()
    }
    if not columns["id"]:
        raise CourseError(
            tr(
                "the roster {path} has no column id; it has {names}",
                path=path,
                names=", ".join(titles),
            )
        )
    people, before = {}, Roster(list(known))
    for row in rows:
        entry = {key: next((row[name] for name in names if row[name]), "")
                 for key, names in columns.items()}  # fmt: skip
        name, mail = entry.pop("name", ""), entry["email"].split("@")[0]
        entry["id"] = entry["id"] or mail
        if name and not entry.get("last_name"):
            entry |= split_name(name)
        if entry["id"] and not (canvas and name == "Points Possible"):
            names = (row.get("sis login id"), row.get("sis user id"), entry["email"])
            number = entry["lms_user_id"]
            who = Identity(tuple(filter(None, names)), number, system="Canvas" * bool(number))
            same = before.find(who)[0] - people.keys() if canvas else set()
            entry["id"] = same.pop() if len(same) == 1 else safe_id(entry["id"])
            people[entry["id"]] = RosterEntry(**entry)
    if not people:
        raise CourseError(tr("the roster {path} has nobody in it", path=path))
    return list(people.values()), []


def table_of(text: str) -> list[dict[str, str]]:
    """The rows of a CSV, by titles in small letters."""
    head = text.split("\n", 1)[0]
    table = csv.reader(io.StringIO(text), delimiter=max(",;\t", key=head.count))
    titles = [title.strip().casefold() for title in next(table, [])]
    return [dict(zip(titles, [*map(str.strip, row), *[""] * len(titles)], strict=False))
            for row in table] or [dict.fromkeys(titles, "")]  # fmt: skip


def participants_in(rows: list[dict[str, str]]) -> list[Participant]:
    """The rows of Moodle's grading worksheet; none if it is another table."""
    if not rows or not {"identifier", "full name"} <= {*rows[0]}:
        return []
    found = []
    for row in rows:
        number = PARTICIPANT.fullmatch(row["identifier"])
        if number:
            found.append(Participant(number[1], row["full name"], row.get("email address", ""),
                                     row.get("id number", "")))  # fmt: skip
    return found


def worksheet(data: bytes) -> list[Participant]:
    """A file beside or in an export, if it is Moodle's grading worksheet."""
    try:
        return participants_in(table_of(decoded(data)))
    except csv.Error:
        return []


def gradescope(data: bytes) -> dict[str, tuple[list[Identity], datetime | None]]:
    """submission_metadata.yml: {folder: (who handed it in, when)}; a group has several."""
    try:
        table = yaml.load(decoded(data), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise CourseError(
            tr("submission_metadata.yml cannot be read: {error}", error=error)
        ) from error
    found = {}
    for folder, about in table.items() if isinstance(table, dict) else ():
        about = plain_keys(about)
        people = [plain_keys(each) for each in about.get("submitters") or ()]
        whos = [identity_of(each) for each in people if each.get("name") or each.get("email")]
        when = about.get("created_at")
        if isinstance(when, datetime) and when.tzinfo is None:
            when = when.replace(tzinfo=timezone.utc)
        found[str(folder)] = (whos, when if isinstance(when, datetime) else None)
    return found


def plain_keys(table: object) -> dict:
    """Ruby's `:name` is `name`."""
    return {str(k).lstrip(":"): v for k, v in table.items()} if isinstance(table, dict) else {}


def identity_of(person: dict) -> Identity:
    name, sid, mail = (str(person.get(key) or "").strip() for key in ("name", "sid", "email"))
    names = tuple(filter(None, (name, sid, mail, mail.split("@")[0])))
    return Identity(names, user=sid or mail.split("@")[0] or name, system="Gradescope",
                    how="Gradescope's list")  # fmt: skip


def roster_text(path: Path) -> str:
    """The file as UTF-8, else as older Excels write it."""
    try:
        data = path.read_bytes()[: LONGEST_ROSTER + 1]
    except OSError as error:
        raise CourseError(
            tr(
                "the roster {path} cannot be read: {strerror}",
                path=path,
                strerror=error.strerror,
            )
        ) from error
    if len(data) > LONGEST_ROSTER:
        raise CourseError(
            tr(
                "the roster {path} is larger than {longest_roster:,} bytes",
                path=path,
                longest_roster=LONGEST_ROSTER,
            )
        )
    return decoded(data)


def decoded(data: bytes) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="replace")
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
