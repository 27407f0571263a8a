"""The people of a class, from a CSV and nbgrader's students, found by id, e-mail address,
number of an LMS, or name.

Names match only if they are equal: by likeness some work would go to a namesake.
The price: a misspelled name is a question for a person."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from labkit.course.files import safe_id
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook.connection import CourseError, RosterEntry, enrol
from labkit.grading.platforms import PLATFORMS
from labkit.grading.tables import PARTICIPANT, Row, Table

# The titles that a column may have in any table, the most specific first
COLUMNS = {
    "id": ("id", "student_id", "student id", "username", "login", "user name", "sid",
           "id number"),
    "name": ("name", "full name", "full_name", "student", "student name"),
    "first_name": ("first_name", "first name", "firstname", "given name"),
    "last_name": ("last_name", "last name", "lastname", "surname", "family name"),
    "email": ("email", "e-mail", "email address", "mail"),
    "lms_user_id": ("lms_user_id", "lms user id", "canvas id", "canvas_id"),
}  # fmt: skip


@dataclass
class Roster:
    """The people of the class.

    closed     whether nobody else is in the class
    keys       {id, e-mail address or `PLATFORM NUMBER`: the ids that it may stand for}
    names      {name: the ids of the people with it}
    numbers    {`PLATFORM NUMBER`: id}, of platforms whose numbers nbgrader's students lack
    ids        of all people
    """

    people: Sequence[RosterEntry] = ()
    closed: bool = True
    keys: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    names: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    numbers: dict[str, str] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for person in self.people:
            self.add(person)

    def add(self, person: RosterEntry) -> None:
        first, last = person.first_name, person.last_name
        self.ids.add(person.id)
        self.keys[normalize_name(person.id)].add(person.id)
        self.keys[person.email.casefold()].add(person.id)
        if first or last:
            # The last is how ILIAS writes a name, with the login
            for name in (first + last, last + first, last + first + person.id):
                self.names[normalize_name(name)].add(person.id)
        owners = [platform.name for platform in PLATFORMS if "lms_user_id" in platform.columns]
        for owner in ("lms_user_id", *owners) if person.lms_user_id else ():
            self.keys[f"{owner} {person.lms_user_id}"].add(person.id)

    def find(self, key: str, sure: Iterable[str] = (), names: Iterable[str] = ()) -> set[str]:
        """Return the ids found by the first of these that is known: one is a match, none is
        unknown, several are a question.

        key      a `PLATFORM NUMBER`
        sure     ids and e-mail addresses
        names    chosen by learners, so that an id never matches one
        """
        found = [self.keys.get(key)]
        for text in filter(normalize_name, sure):
            email = self.keys.get(text.casefold()) if "@" in text else ()
            found += [{text} & self.ids, email, self.keys.get(normalize_name(text))]
        found += [
            self.names.get(normalize_name(name)) for name in filter(normalize_name, names)
        ]
        return set(next(filter(None, found), ()))

    def numbers_of(self, learner: str) -> set[str]:
        """Return each `PLATFORM NUMBER` that a learner has."""
        numbers = {key for key, id_ in self.numbers.items() if id_ == learner}
        return numbers | {key for key, ids in self.keys.items() if learner in ids}


def roster_of(course: Course, file: Path | None) -> Roster:
    """Return nbgrader's students with those of the CSV, which become nbgrader's students as
    well. Without a CSV the class is closed if a student has more than an id, as grading itself
    adds only ids."""
    known = course.people()
    named = [p for p in known if p.name or p.email or p.lms_user_id]
    if file is None:
        return Roster(known, bool(named))
    read = read_roster(file, known)
    course.gradebook.do(lambda book: enrol(book, read.people))
    given = {person.id for person in read.people}
    for person in named:
        if person.id not in given:
            read.people = [*read.people, person]
            read.add(person)
    return read


def read_roster(path: Path, known: Sequence[RosterEntry] = ()) -> Roster:
    """Read a CSV with the columns id and name (or first_name, last_name), perhaps email and
    lms_user_id, or a platform's own table.

    known    people who keep their id if the file lists them by id, e-mail address or name
    Raises CourseError for a file that is not a roster.
    """
    table = Table.read(path, "the roster")
    fits = (one for one in PLATFORMS if one.needs and not one.lacks(table.titles))
    platform = next(fits, None)
    titles = [title.casefold() for title in table.titles]
    table.rename(dict(zip(table.titles, titles, strict=True)))
    users = {one.name: one.users for one in ([platform] if platform else PLATFORMS)}
    wanted = COLUMNS | (platform.columns if platform else {}) | users
    columns = {key: [title for title in map(str.casefold, names) if title in titles]
               for key, names in wanted.items()}  # fmt: skip
    if not (columns["id"] or platform):
        raise CourseError(f"the roster {path} has no column id; it has {', '.join(titles)}")
    before, roster, taken, seen, written = Roster(known), Roster(), {}, set(), {}
    emails = {person.id: person.email.casefold() for person in known if person.email}
    for row in table.rows:
        values = values_of(row, columns)
        if (text := repr(values)) in seen:  # a person in two sections
            continue
        seen.add(text)
        entry = {key: next(iter(found), "") for key, found in values.items()}
        name = entry.pop("name")
        if name and not entry["last_name"]:
            entry |= split_name(name)
        numbers = {system: entry.pop(system) for system in users}
        sure = (*values["id"], entry["email"], name if any(numbers.values()) else "")
        entry["id"] = entry["id"] or entry["email"].split("@")[0] or name
        special = (platform.possible_row, platform.test_student) if platform else ()
        if not entry["id"] or (name and name in special):
            continue
        raw_id = entry["id"]
        same = before.find(f"lms_user_id {entry['lms_user_id']}", sure, sure[-1:])
        email = entry["email"].casefold()  # a namesake has a different one
        same = {
            id_
            for id_ in same
            if id_ not in taken and (not email or emails.get(id_, email) == email)
        }
        entry["id"] = same.pop() if len(same) == 1 else safe_id(entry["id"])
        if not values["id"] and entry["id"] in taken:  # ann@x.edu and ann@y.edu
            entry["id"] = safe_id(entry["email"] or entry["id"])
        if (first := written.setdefault(entry["id"], raw_id)) != raw_id:
            raise CourseError(
                f"the roster {path}: {first!r} and {raw_id!r} would both be the id "
                f"{entry['id']!r}, as a folder can be called; change one of them"
            )
        person = taken[entry["id"]] = RosterEntry(**entry)
        roster.add(person)
        for system, text in numbers.items():
            if PARTICIPANT.fullmatch(text):
                text = re.sub(r"^\D*", "", text)
            if text:
                roster.numbers[f"{system} {text}"] = person.id
    if not taken:
        raise CourseError(f"the roster {path} has nobody in it")
    roster.people = list(taken.values())
    return roster


def values_of(row: Row, columns: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Return {field: its texts in a row}; Brightspace puts a # before an id."""
    return {key: [row[title].lstrip("#") for title in titles if row.get(title)]
            for key, titles in columns.items()}  # fmt: skip


def split_name(name: str) -> dict[str, str]:
    """`Doe, John` or `John Doe`."""
    if "," in name:
        last, first = name.split(",", 1)
    else:
        first, _, last = name.rpartition(" ")
    return {"first_name": first.strip(), "last_name": last.strip()}


def normalize_name(text: str) -> str:
    """Return a name's letters and digits, without case and accents, to compare it."""
    plain = unicodedata.normalize("NFKD", text).casefold()
    return "".join(letter for letter in plain if letter.isalnum())
