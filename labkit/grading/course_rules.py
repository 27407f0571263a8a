"""The rules of a course that differ from the syllabus: course.toml in the course folder.

We check each value, as a typing error here changes the grades of a class. That is half of this
file.

Points, deadlines and excuses never need judging again: results hold the earned share of an
exercise, and points are applied wherever they are shown or stored.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timezone
from pathlib import Path
from typing import Any, TypeVar

from labkit.author.reference import BuildError
from labkit.course.syllabus import LABS, Exercise, Lab, Question, UnknownName, find_lab

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

T = TypeVar("T", Exercise, Question)
FILE = "course.toml"
MOST_POINTS, MOST_MINUTES, MOST_DAYS = 1000, 24 * 60, 365
PARTS = {part.id: part for lab in LABS for part in (*lab.exercises, *lab.questions)}
WITHOUT_SECONDS = re.compile(
    r"(=\s*\d{4}-\d\d-\d\d[T ]\d\d:\d\d)(?=(?:Z|[+-]\d\d:\d\d)?[ \t]*(?:#.*)?$)", re.MULTILINE
)
WHEN = "a day, 2026-12-01 (until it ends), or a time, 2026-12-01T18:00, by this machine's clock"


class RulesError(BuildError):
    """An impossible value in course.toml; the message gives its place and the possible ones."""


@dataclass(frozen=True)
class LabRules:
    """The rules of one lab.

    lab            with this course's points; a part of 0 points is left out of all sums
    deadline       in UTC, if the file sets one
    extensions     {learner: until when, in UTC}
    excused        {learner: ids of exercises and questions}
    grace_minutes  after a deadline that are not late
    late_days      that a learner has for all labs together, before lateness costs anything
    excused_labs   {learner: names of whole labs}
    """

    lab: Lab
    deadline: datetime | None = None
    extensions: Mapping[str, datetime] = field(default_factory=dict)
    excused: Mapping[str, frozenset[str]] = field(default_factory=dict)
    grace_minutes: float = 0
    late_days: int = 0
    excused_labs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    model_answers: bool = False

    @property
    def counted(self) -> Lab:
        """The lab without the exercises and questions that the course leaves out."""
        exercises = tuple(each for each in self.lab.exercises if each.points)
        questions = tuple(each for each in self.lab.questions if each.points)
        return replace(self.lab, exercises=exercises, questions=questions)


@dataclass(frozen=True)
class CourseRules:
    """The whole file; without one, the syllabus."""

    points: Mapping[str, float] = field(default_factory=dict)
    deadlines: Mapping[str, datetime] = field(default_factory=dict)
    extensions: Mapping[str, Mapping[str, datetime]] = field(default_factory=dict)
    excused: Mapping[str, frozenset[str]] = field(default_factory=dict)
    percent_a_day: float | None = None
    grace_minutes: float = 0
    late_days: int = 0
    model_answers: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()

    def lab(self, lab: Lab) -> Lab:
        """Return the lab with this course's points."""

        def priced(parts: tuple[T, ...]) -> tuple[T, ...]:
            return tuple(replace(p, points=self.points.get(p.id, p.points)) for p in parts)

        return replace(lab, exercises=priced(lab.exercises), questions=priced(lab.questions))

    def of(self, lab: Lab) -> LabRules:
        ids = {part.id for part in (*lab.exercises, *lab.questions)}
        return LabRules(
            self.lab(lab),
            self.deadlines.get(lab.name),
            self.extensions.get(lab.name, {}),
            {who: parts & ids for who, parts in self.excused.items() if parts & ids},
            self.grace_minutes,
            self.late_days,
            {who: excused_labs(parts) for who, parts in self.excused.items()},
            lab.name in self.model_answers,
        )

    @property
    def learners(self) -> set[str]:
        """The ids of all learners in the file."""
        return {
            *self.left,
            *self.excused,
            *(who for each in self.extensions.values() for who in each),
        }


def excused_labs(parts: frozenset[str]) -> frozenset[str]:
    """Return the labs all of whose exercises and questions are among these."""
    ids = {lab.name: {part.id for part in (*lab.exercises, *lab.questions)} for lab in LABS}
    return frozenset(name for name, every in ids.items() if every <= parts)


def read_rules(course: Path) -> CourseRules:
    """Return the rules of a course folder; raises RulesError for impossible values."""
    path = course / FILE
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        return CourseRules()
    except (OSError, UnicodeDecodeError) as error:
        raise RulesError(f"{path} cannot be read: {error}") from error
    try:
        content = tomllib.loads(WITHOUT_SECONDS.sub(r"\1:00", text))
    except (ValueError, RecursionError) as error:
        raise RulesError(f"{path} is no TOML: {error}") from error
    try:
        return rules_in(content)
    except RulesError as error:
        raise RulesError(f"{path}: {error}") from error
    except ValueError as error:  # a number of more digits than Python prints
        raise RulesError(f"{path} has a value that cannot be: {error}") from error


def rules_in(content: dict[str, Any]) -> CourseRules:
    known = ("points", "deadlines", "extensions", "excused", "late", "feedback", "roster")
    tables = {key: table(key, content.get(key, {})) for key in known}
    keys(content, known)
    late = tables["late"]
    keys(late, ["percent_a_day", "grace_minutes", "days"], "late.")
    keys(tables["feedback"], ["model_answers"], "feedback.")
    keys(tables["roster"], ["left"], "roster.")
    rules = CourseRules(
        {part(key, "points"): points(key, value) for key, value in tables["points"].items()},
        {lab(key, "deadlines"): moment(f"deadlines.{key}", value)
         for key, value in tables["deadlines"].items()},
        {lab(key, "extensions"): {who: moment(f"extensions.{key}.{who}", until)
                                  for who, until in table(f"extensions.{key}", value).items()}
         for key, value in tables["extensions"].items()},
        {who: excuses(f"excused.{who}", value) for who, value in tables["excused"].items()},
        percent(late.get("percent_a_day")),
        number("late.grace_minutes", late.get("grace_minutes", 0), MOST_MINUTES),
        whole("late.days", late.get("days", 0), MOST_DAYS),
        frozenset(lab(name, "feedback.model_answers") for name in
                  names("feedback.model_answers", tables["feedback"].get("model_answers", []))),
        frozenset(names("roster.left", tables["roster"].get("left", []), '["s019"]')),
    )  # fmt: skip
    consistent(rules)
    return rules


def consistent(rules: CourseRules) -> None:
    for name, extensions in rules.extensions.items():
        deadline = rules.deadlines.get(name)
        if deadline is None:
            raise RulesError(f"extensions.{name} needs the deadline in [deadlines], too")
        for who, until in extensions.items():
            if until < deadline:
                raise RulesError(f"extensions.{name}.{who} is before the deadline")
    for each in LABS:
        if not rules.of(each).counted.exercises:
            raise RulesError(
                f"points leaves out every exercise of {each.name}: one has to count"
            )


def wrong(key: str, value: object, possible: str) -> RulesError:
    return RulesError(f"{key} = {str(value)[:60]!r}: expected {possible}")


def keys(content: Mapping[str, Any], known: Iterable[str], where: str = "") -> None:
    for key in content:
        if key not in known:
            raise RulesError(f"unknown key {where}{key}: possible is {', '.join(known)}")


def table(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong(key, value, f"a table, [{key}]")
    return value


def part(name: str, where: str) -> str:
    """Return the id of an exercise or question."""
    if name not in PARTS:
        of_lab = [known for known in PARTS if known.split(".")[0] == name.split(".")[0]]
        raise RulesError(
            f"{where} names {name!r}: possible are, in quotes, {', '.join(of_lab or PARTS)}"
        )
    return name


def lab(name: str, where: str) -> str:
    try:
        return find_lab(name).name
    except UnknownName as error:
        raise RulesError(f"{where}: {error}") from error


def number(key: str, value: Any, most: float) -> float:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not plain or not 0 <= value <= most:  # nan is neither larger nor smaller
        raise wrong(key, value, f"a number from 0 to {most}")
    return value


def points(key: str, value: Any) -> float:
    return number(f'points."{key}"', value, MOST_POINTS)


def percent(value: Any) -> float | None:
    return None if value is None else number("late.percent_a_day", value, 100)


def whole(key: str, value: Any, most: int) -> int:
    if number(key, value, most) != int(value):
        raise wrong(key, value, f"a whole number from 0 to {most}")
    return int(value)


def moment(key: str, value: Any) -> datetime:
    """Return a time in UTC; a day lasts to its end."""
    if isinstance(value, str):
        try:
            value = (
                datetime.fromisoformat(value) if len(value) > 10 else date.fromisoformat(value)
            )
        except ValueError:
            raise wrong(key, value, WHEN) from None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time(23, 59, 59))
    if not isinstance(value, datetime):
        raise wrong(key, value, WHEN)
    try:
        return value.astimezone(timezone.utc)
    # the first or last day that Python knows, in another time zone
    except (OverflowError, ValueError):
        raise wrong(key, value, WHEN) from None


def names(key: str, value: Any, such_as: str = '["1.3", "rope"]') -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise wrong(key, value, f"a list of names in quotes, such as {such_as}")
    return value


def excuses(key: str, value: Any) -> frozenset[str]:
    """Return the parts that are named, or are in a lab that is named."""
    found: set[str] = set()
    for name in names(key, value):
        if name in PARTS:
            found.add(name)
        elif "." in name:
            part(name, key)
        else:
            each = find_lab(lab(name, key))
            found |= {one.id for one in (*each.exercises, *each.questions)}
    return frozenset(found)
