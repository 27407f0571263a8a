"""The people of a class, from a CSV and nbgrader's students: whose is a name, an e-mail address
or a number of an LMS?"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from labkit.course.files import safe_id
from labkit.grading.collect.layouts import Claim
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook.connection import CourseError, RosterEntry, enrol
from labkit.grading.tables import Table

# The titles that a column may have, most telling first
COLUMNS = {
    "id": ("id", "student_id", "student id", "username", "login", "user name", "sid",
           "id number"),
    "name": ("name", "full name", "full_name", "student", "student name"),
    "first_name": ("first_name", "first name", "firstname", "given name"),
    "last_name": ("last_name", "last name", "lastname", "surname", "family name"),
    "email": ("email", "e-mail", "email address", "mail"),
    "lms_user_id": ("lms_user_id", "lms user id", "canvas id", "canvas_id"),
    "GitHub Classroom": ("github_username", "github username", "github"),
}  # fmt: skip
# What an LMS's own table has instead, known by the titles that it must have
TABLES = (
    ({"sis login id"}, {"id": ("sis login id", "sis user id"), "lms_user_id": ("id",)}),
    ({"sis user id"}, {"id": ("sis user id", "id"), "lms_user_id": ("id",)}),
    ({"identifier", "full name"}, {"id": ("id number",), "Moodle": ("identifier",)}),
    ({"identifier", "github_username"}, {"id": ("identifier",)}),
)  # fmt: skip


@dataclass
class Roster:
    """Who is in the class.

    closed     a name that is not in it is unknown
    keys       {id, e-mail, name or `SYSTEM NUMBER`: the ids that go by it}
    numbers    {`SYSTEM NUMBER`: id}, of systems whose numbers nbgrader's students lack
    """

    people: Sequence[RosterEntry] = ()
    closed: bool = True
    keys: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    numbers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for person in self.people:
            self.add(person)

    def add(self, person: RosterEntry) -> None:
        first, last = person.first_name, person.last_name
        for key in (person.id, first + last, last + first):
            self.keys[normalize_name(key)].add(person.id)
        self.keys[person.email.casefold()].add(person.id)
        self.keys[f"Canvas {person.lms_user_id}" * bool(person.lms_user_id)].add(person.id)

    def find(self, claim: Claim) -> set[str]:
        """The ids that fit: one is a match, none is unknown, several are a question."""
        ids = {person.id for person in self.people}
        if found := self.keys.get(claim.key):
            return found
        for name in filter(None, claim.names):
            for found in ({name} & ids, self.keys.get(name.casefold()) if "@" in name else (),
                          self.keys.get(normalize_name(name))):  # fmt: skip
                if found and normalize_name(name):
                    return set(found)
        return set()


def roster_of(course: Course, file: Path | None) -> Roster:
    """nbgrader's students and those of the CSV, which become nbgrader's, too. Without a CSV the
    class is closed if the students have more than an id, which is all that grading gives."""
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
    """A CSV with the columns id and name (or first_name, last_name), perhaps email and
    lms_user_id; gradebook exports of Canvas, Moodle and Gradescope, Moodle's grading worksheet,
    GitHub Classroom's roster. Who is known by id, e-mail or name keeps the id they have."""
    table = Table.read(path, "the roster")
    titles = [title.casefold() for title in table.titles]
    table.rename(dict(zip(table.titles, titles, strict=True)))
    special = next((own for needed, own in TABLES if needed <= {*titles}), {})
    if not special and {"student", "id", "section"} <= {*titles}:  # Canvas without SIS
        special = {"lms_user_id": ("id",)}
    columns = {key: [title for title in names if title in titles]
               for key, names in (COLUMNS | special).items()}  # fmt: skip
    if not columns["id"] and "Moodle" not in special:
        raise CourseError(f"the roster {path} has no column id; it has {', '.join(titles)}")
    before, roster, taken = Roster(known), Roster(), {}
    for row in table.rows:
        values = {key: [row[title] for title in titles if row[title]]
                  for key, titles in columns.items()}  # fmt: skip
        entry = {key: next(iter(found), "") for key, found in values.items()}
        name = entry.pop("name")
        if name and not entry["last_name"]:
            entry |= split_name(name)
        systems = {
            key: entry.pop(key) for key in ("Moodle", "GitHub Classroom") if key in entry
        }
        names = (*values["id"], entry["email"], name if any(systems.values()) else "")
        entry["id"] = entry["id"] or entry["email"].split("@")[0] or name
        if not entry["id"] or name == "Points Possible":
            continue
        same = before.find(Claim("Canvas", names, entry["lms_user_id"])) - taken.keys()
        same = {id_ for id_ in same if not other_email(id_, entry["email"], known)}
        entry["id"] = same.pop() if len(same) == 1 else safe_id(entry["id"])
        person = taken[entry["id"]] = RosterEntry(**entry)
        roster.add(person)
        for system, text in systems.items():
            number = re.sub(r"^\D*(?=\d+$)", "", text) if system == "Moodle" else text
            if number:
                roster.numbers[f"{system} {number}"] = person.id
    if not taken:
        raise CourseError(f"the roster {path} has nobody in it")
    roster.people = list(taken.values())
    return roster


def other_email(learner: str, email: str, known: Sequence[RosterEntry]) -> bool:
    """Whether a known learner has a different e-mail address, and so is a namesake."""
    known_emails = {person.email.casefold() for person in known if person.id == learner} - {""}
    return bool(email and known_emails) and email.casefold() not in known_emails


def split_name(name: str) -> dict[str, str]:
    """`Doe, John` or `John Doe`."""
    if "," in name:
        last, first = name.split(",", 1)
    else:
        first, _, last = name.rpartition(" ")
    return {"first_name": first.strip(), "last_name": last.strip()}


def normalize_name(text: str) -> str:
    """Letters and digits alone, without case and accents: how names are compared."""
    plain = unicodedata.normalize("NFKD", text).casefold()
    return "".join(letter for letter in plain if letter.isalnum())
