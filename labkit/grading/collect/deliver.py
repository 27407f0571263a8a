"""Bringing what learners handed in to where nbgrader looks for it.

    course/submitted/NAME/LAB/LAB.ipynb     the attempt that counts, with timestamp.txt
    course/collected/NAME/LAB/*.ipynb       every attempt there was, this one too
    course/collected/unknown/...            those of names that are not on the roster
    course/collected/manifest.json          where each counting attempt came from
    course/collected/last.csv               the table of the last run

The latest attempt counts. Running it again changes nothing; an earlier submission is replaced
by a later one only, and even then it is kept.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from labkit.core.report import clean, csv_safe
from labkit.core.syllabus import LABS, Lab
from labkit.grading.collect.archives import (
    FoundNotebook,
    OtherFile,
    Parts,
    Reader,
    Refused,
    stamp,
)
from labkit.grading.collect.identify import (
    Identity,
    Roster,
    lab_of,
    read_roster,
    safe_id,
    shared_folders,
    who_in,
)
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook_connection import CourseError, enrol

NEW, SAME, NEWER = "new", "unchanged", "replaces the one before"
EARLIER, OLDER = "earlier attempt, kept", "older than what is there, kept"
UNKNOWN, AMBIGUOUS, REFUSED, SKIPPED = "unknown name, kept", "whose? kept", "refused", "skipped"
TROUBLE = (OLDER, UNKNOWN, AMBIGUOUS, REFUSED)
ALL_SHOWN = 60  # lines of the table; of longer ones only the remarkable are shown
STAMP = "%Y-%m-%d %H:%M:%S.%f %Z"


@dataclass(frozen=True)
class Line:
    """One line of the table: what became of one file."""

    source: str
    state: str
    learner: str = ""
    lab: str = ""
    when: datetime | None = None
    note: str = ""


@dataclass(frozen=True)
class Attempt:
    """A notebook on its way: its content lies in a spool file until it is known whose it is."""

    source: str
    spooled: Path
    sha: str
    who: Identity
    lab: Lab
    when: datetime | None
    learner: str = ""
    note: str = ""

    @property
    def order(self) -> tuple:
        """Later attempts are greater: by the LMS's count of files, else by time."""
        when = self.when.timestamp() if self.when else 0.0
        return (self.who.number, when, self.who.attempt, self.source)


def collect(
    course: Course,
    sources: Sequence[Path],
    lab: Lab | None = None,
    roster_file: Path | None = None,
    replace_newer: bool = False,
) -> list[Line]:
    """Collect all notebooks in `sources`; all that do not say otherwise are of `lab`."""
    roster = roster_of(course, roster_file)
    dues = course.due_dates()
    lines: list[Line] = []
    with Places(course.root) as place:
        attempts = identified(sources, lab, place, lines)
        groups: dict[tuple[str, str], list[Attempt]] = defaultdict(list)
        for one in owned(attempts, roster, place, lines):
            groups[one.learner, one.lab.name].append(clamped(one, dues))
        for group in groups.values():
            group.sort(key=lambda one: one.order)
            lines += delivered(group, place, replace_newer)
        place.finish(lines)
    return lines


def roster_of(course: Course, file: Path | None) -> Roster:
    """The CSV, which is put into nbgrader's students; else those students, if they have more
    than an id (which is all that grading gives to a new one)."""
    if file is not None:
        people = read_roster(file)
        course.gradebook.do(lambda book: enrol(book, people))
        return Roster(people)
    people = course.people()
    return Roster(people, closed=any(p.name or p.email or p.lms_user_id for p in people))


# From sources to attempts


def identified(
    sources: Sequence[Path], wanted: Lab | None, place: Places, lines: list[Line]
) -> list[Attempt]:
    """Every notebook with its lab and what its path says of its learner."""
    attempts = []
    for source in sources:
        if source.resolve().is_relative_to(place.collected.resolve()):
            raise CourseError(f"{source} is where collect keeps its own files")
        found, others = spooled(source, wanted, place, lines)
        found = below_common_folder(found)
        shared = shared_folders((one.parts, lab) for one, lab, _, _ in found)
        here = []
        for one, lab, path, sha in found:
            together = (one.parts[:-1], lab.name) in shared
            who = learner_named(one.parts, lab, together, source, len(sources) == 1)
            here.append(Attempt(named(source, one.parts), path, sha, who, lab, one.when))
        lines += no_notebooks(source, others, here, wanted)
        attempts += here
    return attempts


Spooled = tuple[FoundNotebook, Lab, Path, str]


def spooled(
    source: Path, wanted: Lab | None, place: Places, lines: list[Line]
) -> tuple[list[Spooled], list[OtherFile]]:
    """The notebooks of one source that can be used, written down; and what else lay there."""
    found, others = [], []
    for one in Reader().walk(source):
        if isinstance(one, OtherFile):
            others.append(one)
            continue
        if isinstance(one, Refused):
            lines.append(Line(named(source, one.parts), REFUSED, note=one.reason))
            continue
        lab = lab_of(one.parts, one.data)
        if lab and wanted and lab is not wanted:
            note = f"a notebook of {lab.name}"
            lines.append(Line(named(source, one.parts), SKIPPED, note=note))
        elif lab or wanted:
            found.append((replace(one, data=b""), lab or wanted, *place.spool(one.data)))
        else:
            note = "neither its name nor its cells tell a lab; --lab names it"
            lines.append(Line(named(source, one.parts), REFUSED, note=note))
    return found, others


def learner_named(
    parts: Parts, lab: Lab, together: bool, source: Path, alone: bool
) -> Identity:
    """Of a single zip, the name says nothing of a learner unless nothing else does."""
    inner = parts[1:] if alone and source.is_file() and len(parts) > 1 else parts
    return who_in(inner, lab, together) or who_in(parts, lab, together) or Identity(())


def no_notebooks(
    source: Path, others: list[OtherFile], attempts: list[Attempt], lab: Lab | None
) -> list[Line]:
    """Of whom an LMS's export has files, but no notebook: a word for each."""
    have = {(one.who.system, one.who.user) for one in attempts}
    lines = []
    for other in others:
        who = who_in(other.parts, lab or LABS[0])
        if who and who.user and (who.system, who.user) not in have:
            have.add((who.system, who.user))
            note = "handed in no notebook"
            lines.append(Line(named(source, other.parts), SKIPPED, who.names[0], note=note))
    return lines


def below_common_folder(found: list[Spooled]) -> list[Spooled]:
    """Without a first folder that all share, if several folders lie in it."""
    while found and all(len(one.parts) > 2 for one, *_ in found):
        heads = {one.parts[0] for one, *_ in found}
        if len(heads) > 1 or len({one.parts[1] for one, *_ in found}) == 1:
            break
        found = [(replace(one, parts=one.parts[1:]), *rest) for one, *rest in found]
    return found


def named(source: Path, parts: tuple[str, ...]) -> str:
    return "/".join(parts if parts[:1] == (source.name,) else (source.name, *parts))


def owned(
    attempts: list[Attempt], roster: Roster, place: Places, lines: list[Line]
) -> list[Attempt]:
    """The attempts with their learners; what is nobody's is kept and said."""
    namesakes = defaultdict(set)
    for one in attempts:
        if one.who.names:
            namesakes[safe_id(one.who.names[0])].add(one.who.user)
    done = []
    for one in attempts:
        ids = roster.find(one.who)
        shown = one.who.names[0] if one.who.names else "?"
        if len(ids) == 1:
            done.append(replace(one, learner=ids.pop()))
        elif len(ids) > 1:
            note = f"{shown} may be {' or '.join(sorted(ids))}"
            lines.append(kept(one, AMBIGUOUS, shown, note, place))
        elif not one.who.names:
            note = "no name in its path; put it into a folder named after the learner"
            lines.append(kept(one, UNKNOWN, shown, note, place))
        elif roster.closed:
            note = "not on the roster, so not graded"
            lines.append(kept(one, UNKNOWN, shown, note, place))
        else:
            learner, note = safe_id(shown), ""
            others = set(namesakes[learner])
            if one.who.system == "Canvas":  # whose numbers stay the same from lab to lab
                others |= place.users_of(learner)
            if one.who.user and others - {one.who.user}:
                learner = f"{learner}_{one.who.user}"
                note = f"several people are called {shown}; a roster tells them apart"
            done.append(replace(one, learner=learner, note=note))
    return done


def kept(one: Attempt, state: str, shown: str, note: str, place: Places) -> Line:
    place.keep(one.spooled, Path("unknown") / safe_id(shown) / one.lab.name, one)
    return Line(one.source, state, shown, one.lab.name, one.when, note)


def clamped(one: Attempt, dues: dict[str, datetime]) -> Attempt:
    """Canvas's mark counts: a file's time in its zip may be that of the download."""
    due = dues.get(one.lab.name)
    if due is None or one.who.late is None or one.when is None:
        return one
    if one.who.late and one.when <= due:
        return replace(one, when=due + timedelta(seconds=1), note="late, says Canvas")
    if not one.who.late and one.when > due:
        return replace(one, when=due, note="in time, says Canvas")
    return one


# From attempts to files


def delivered(group: list[Attempt], place: Places, replace_newer: bool) -> list[Line]:
    """Put the latest attempt of one learner where nbgrader looks; a line for each attempt."""
    *earlier, last = group
    lines = [
        Line(one.source, EARLIER, one.learner, one.lab.name, one.when, one.note)
        for one in earlier
        if one.sha != last.sha
    ]
    for one in group:
        place.keep(one.spooled, Path(one.learner) / one.lab.name, one)
    state = place.deliver(last, replace_newer)
    return [*lines, Line(last.source, state, last.learner, last.lab.name, last.when, last.note)]


class Places:
    """The folders that collect writes, and the manifest of what it wrote."""

    def __init__(self, root: Path):
        self.submitted, self.collected = root / "submitted", root / "collected"
        self.collected.mkdir(parents=True, exist_ok=True)
        self.spool_folder = TemporaryDirectory(prefix=".spool-", dir=self.collected)
        self.path = self.collected / "manifest.json"
        try:
            self.manifest = json.loads(self.path.read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            self.manifest = {}

    def __enter__(self) -> Places:
        return self

    def __exit__(self, *_: object) -> None:
        self.spool_folder.cleanup()

    def users_of(self, learner: str) -> set[str]:
        """Canvas's numbers of the people whose files went under this name before."""
        return {
            entry["user"]
            for key, entry in self.manifest.items()
            if key.rpartition("/")[0] == learner and entry.get("system") == "Canvas"
        }

    def spool(self, data: bytes) -> tuple[Path, str]:
        sha = hashlib.sha256(data).hexdigest()
        path = Path(self.spool_folder.name) / sha
        if not path.exists():
            write(path, data)
        return path, sha

    def keep(self, spooled: Path, folder: Path, one: Attempt) -> Path:
        """A copy under collected/, named by time and content; the same one only once."""
        target = self.collected / folder
        target.mkdir(parents=True, exist_ok=True)
        there = list(target.glob(f"*{one.sha[:12]}.ipynb"))
        if there:
            return there[0]
        when = f"{one.when:%Y-%m-%dT%H-%M-%SZ}-" if one.when else ""
        path = target / f"{when}{one.sha[:12]}.ipynb"
        write(path, spooled.read_bytes())
        return path

    def deliver(self, one: Attempt, replace_newer: bool) -> str:
        """Make `one` what counts, unless what is there is later; returns what was done."""
        folder = self.submitted / one.learner / one.lab.name
        path, key = folder / f"{one.lab.name}.ipynb", f"{one.learner}/{one.lab.name}"
        state = NEW
        if path.is_file():
            data = path.read_bytes()
            sha = hashlib.sha256(data).hexdigest()
            if sha == one.sha:
                self.manifest.setdefault(key, self.entry(one))
                return SAME
            known = self.manifest.get(key, {})
            order = tuple(known["order"]) if known.get("sha") == sha else by_hand(path)
            if not later(one, order) and not replace_newer:
                return OLDER
            spooled, _ = self.spool(data)
            before = replace(one, sha=sha, when=time_of(path))
            self.keep(spooled, Path(one.learner) / one.lab.name, before)
            state = NEWER
        folder.mkdir(parents=True, exist_ok=True)
        if one.when:  # first: should this be the last thing done, the notebook comes again
            write(folder / "timestamp.txt", one.when.strftime(STAMP).encode())
        else:
            (folder / "timestamp.txt").unlink(missing_ok=True)
        write(path, one.spooled.read_bytes())
        self.manifest[key] = self.entry(one)
        return state

    @staticmethod
    def entry(one: Attempt) -> dict:
        return {"sha": one.sha, "order": list(one.order), "user": one.who.user,
                "system": one.who.system, "source": one.source}  # fmt: skip

    def finish(self, lines: list[Line]) -> None:
        write(self.path, json.dumps(self.manifest, indent=1, sort_keys=True).encode())
        write_log(self.collected / "last.csv", lines)


def by_hand(path: Path) -> tuple:
    """The order of a notebook that was put into submitted/ by other means."""
    when = time_of(path)
    return (0, when.timestamp() if when else 0.0)


def time_of(path: Path) -> datetime | None:
    beside = path.parent / "timestamp.txt"
    text = beside.read_bytes()[:100] if beside.is_file() else b""
    return stamp(text) or datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)


def later(one: Attempt, order: tuple) -> bool:
    """Whether an attempt comes after this order: by numbers of files if both have them."""
    number, when = order[0], order[1]
    if one.who.number and number:
        return one.who.number > number
    return one.when is not None and one.order[1:3] > (when, *order[2:3])


def write(path: Path, data: bytes) -> None:
    """Whole or not at all."""
    part = path.with_name(f"{path.name[:60]}.{os.getpid()}.part")
    part.write_bytes(data)
    part.replace(path)


# What is said


def write_log(path: Path, lines: list[Line]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["learner", "lab", "handed in (UTC)", "what", "note", "file"])
        for line in lines:
            when = f"{line.when:%Y-%m-%d %H:%M:%S}" if line.when else ""
            texts = (line.learner, line.lab, when, line.state, line.note, line.source)
            table.writerow([csv_safe(text) for text in texts])


def show(lines: list[Line], console: Console) -> None:
    """The table of what came from whom; of a long one the remarkable lines."""
    short = len(lines) > ALL_SHOWN
    shown = [line for line in lines if not short or line.state not in (NEW, SAME) or line.note]
    table = Table(title="Collected", title_justify="left")
    for heading in ("who", "lab", "handed in (UTC)", "what", "file"):
        table.add_column(heading, overflow="fold")
    for line in shown[: 4 * ALL_SHOWN]:
        when = f"{line.when:%Y-%m-%d %H:%M}" if line.when else ""
        state = f"{line.state}: {line.note}" if line.note else line.state
        texts = (line.learner, line.lab, when, state, line.source)
        table.add_row(*(clean(text).replace("[", r"\[") for text in texts))
    if shown:
        console.print(table)
    for lab in LABS:
        of_lab = [line for line in lines if line.lab == lab.name]
        counts = {s: sum(line.state == s for line in of_lab) for s in (NEW, NEWER, SAME)}
        said = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        if said:
            console.print(f"{lab.name}: {said}", highlight=False)
    trouble = sum(line.state in TROUBLE for line in lines)
    if trouble:
        verb = "needs" if trouble == 1 else "need"
        console.print(f"{trouble} of {len(lines)} files {verb} a look", style="yellow")
