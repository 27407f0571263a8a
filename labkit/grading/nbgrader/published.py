"""The published grades of a lab, so that none changes unnoticed.

course/published/LAB.json holds, for each learner, `last`: the grade as the last run left it;
`out`: the grade that was published last; `earlier`: [day, total] of those published before it.

A grade is published by `tinyllm export` (to a platform, or in a page of feedback) and by
`nbgrader release_feedback`. From then on each run compares with that grade, and until then with
the run before.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import NamedTuple

from labkit.course.files import write_whole
from labkit.sandbox.bubblewrap import GradingError

HAND_IN = 32  # letters of a result's key for the hand-in; the others are for the judge


class Part(NamedTuple):
    """An exercise or question in a grade; `possible` is 0 if it does not count."""

    points: float
    possible: float
    is_by_hand: bool
    reason: str = ""


@dataclass(frozen=True)
class Grade:
    """A learner's grade in a lab.

    total      None without a grade
    parts      {id of an exercise or question: Part}
    late       points lost for lateness
    key        of the stored result
    made_by    versions of the checks, torch and Python
    day        on which it was recorded
    """

    total: float | None = None
    parts: Mapping[str, Part] = field(default_factory=dict)
    late: float = 0.0
    key: str = ""
    made_by: str = ""
    excused: bool = False
    day: str = ""

    @property
    def shown(self) -> str:
        if self.total is None:
            return "excused" if self.excused else "no grade"
        return f"{self.total:g}"

    @property
    def possible(self) -> float:
        """The possible points; 0 for a record without parts."""
        return round(sum(part.possible for part in self.parts.values()), 2)

    def is_as(self, other: Grade) -> bool:
        """Whether both are the same points out of the same possible points."""
        same_possible = not (self.parts and other.parts) or self.possible == other.possible
        return self.total == other.total and same_possible

    @classmethod
    def from_json(cls, content: dict) -> Grade:
        parts = {name: Part(*part) for name, part in content["parts"].items()}
        return cls(**content | {"parts": parts})


@dataclass(frozen=True)
class Change:
    """A grade that has changed."""

    before: Grade
    now: Grade
    is_given_out: bool  # whether the old grade was published

    @property
    def fell(self) -> bool:
        before, now = self.before.total or 0.0, self.now.total or 0.0
        is_less = before == now and self.before.possible < self.now.possible
        return not self.now.excused and (now < before or is_less)

    @property
    def since(self) -> str:
        return self.before.day if self.is_given_out else "the last run"

    @property
    def text(self) -> str:
        before, now = self.before.shown, self.now.shown
        if before == now:
            before, now = (f"{g.shown} of {g.possible:g}" for g in (self.before, self.now))
        return f"{before} to {now} ({self.why})"

    @property
    def why(self) -> str:
        return "; ".join(causes_of(self.before, self.now)) or "as the gradebook has it"


def causes_of(before: Grade, now: Grade) -> Iterator[str]:
    """Yield the causes of a change between two grades, in a few words each."""
    is_new = bool(now.key) and before.key[:HAND_IN] != now.key[:HAND_IN]
    if is_new:
        yield "handed in again"
    is_judged_otherwise = False
    nothing = Part(0.0, 0.0, False)
    for name in {**before.parts, **now.parts} if now.parts else ():
        old, new = before.parts.get(name, nothing), now.parts.get(name, nothing)
        if old.points == new.points:
            if old.possible != new.possible:
                yield f"{name}: out of {old.possible:g}, now out of {new.possible:g}"
            continue
        text = f"{name}: {old.points:g} to {new.points:g}"
        if new.is_by_hand or old.is_by_hand:
            yield f"{text} by hand"
        elif old.possible != new.possible:
            yield f"{text} by course.toml"
        else:
            is_judged_otherwise = True
            is_other = old.reason and new.reason and old.reason != new.reason
            yield f"{text}, another reason" if is_other else text
    if before.late != now.late:
        yield f"late penalty {before.late:g} to {now.late:g}"
    if is_judged_otherwise and not is_new:
        old, new = before.made_by.split(", "), now.made_by.split(", ")
        pairs = zip(old, new, strict=False)
        yield from (f"{a} to {b.split()[-1]}" for a, b in pairs if a != b)


class Published:
    """The records of a lab, read and written whole."""

    def __init__(self, root: Path, lab_name: str):
        self.path = root / "published" / f"{lab_name}.json"
        try:
            self.records: dict[str, dict] = json.loads(self.path.read_text("utf-8"))
            self.last, self.out = (
                {who: Grade.from_json(record[when])
                 for who, record in self.records.items() if record[when]}
                for when in ("last", "out")
            )  # fmt: skip
        except FileNotFoundError:
            self.records, self.last, self.out = {}, {}, {}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise GradingError(
                f"{self.path}, the grades that were given out, cannot be read ({error}): put "
                "back a copy; or delete it, and the grades of now are what later ones are "
                "compared with"
            ) from error

    def change(self, learner: str, now: Grade) -> Change | None:
        """The change since the published grade, or, if there is none, since the last run."""
        before = self.out.get(learner, self.last.get(learner))
        if before is None or before.total is None or before.is_as(now):
            return None
        return Change(before, now, learner in self.out)

    def other_totals(self, learner: str, total: float) -> tuple[str, float] | None:
        """Return (day, total) of the grade that was given out last with a different total."""
        grades = [*self.records.get(learner, {}).get("earlier", ())]
        if out := self.out.get(learner):
            grades.append([out.day, out.total])
        different = [tuple(each) for each in grades if each[1] != total]
        return different[-1] if different else None

    def remember(self, grades: Mapping[str, Grade]) -> None:
        """Record the grades that a run leaves behind."""
        today = date.today().isoformat()
        for learner, grade in grades.items():
            if grade.total is not None or learner in self.last:
                self.last[learner] = replace(grade, day=today)
        self._write()

    def give_out(self, learners: Collection[str] | None = None) -> None:
        """Record the grades of the last run as given out, for all learners or some."""
        today = date.today().isoformat()
        for learner, grade in self.last.items():
            if grade.total is None or (learners is not None and learner not in learners):
                continue
            before = self.out.get(learner)
            if before and before.total != grade.total:
                self.records[learner]["earlier"].append([before.day, before.total])
            self.out[learner] = replace(grade, day=today)
        self._write()

    def _write(self) -> None:
        for learner, grade in self.last.items():
            record = self.records.setdefault(learner, {"earlier": []})
            record["last"] = asdict(grade)
            record["out"] = asdict(self.out[learner]) if learner in self.out else None
        text = json.dumps(self.records, ensure_ascii=False, sort_keys=True)
        write_whole(self.path, text)
