"""Read a source as attempts: the lab of each file, and what its path says of its learner."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from labkit.course.answers import answers_in, cell_name
from labkit.course.cells import DIRECTIVE
from labkit.course.files import write_whole
from labkit.course.lang import tr
from labkit.course.syllabus import LABS, NOTEBOOKS, Lab
from labkit.grading import platforms
from labkit.grading.collect import layouts
from labkit.grading.collect.layouts import MODULE
from labkit.grading.collect.walk import GIT, STAMP, Found, files_of
from labkit.grading.judge.intake import NotANotebook, cells_of, text_of
from labkit.grading.nbgrader.timestamp import parse_timestamp
from labkit.learner.workspace import is_empty

BY_CELL = {name: lab for lab in NOTEBOOKS for name in lab.cells}
BY_NUMBER = {lab.number: lab for lab in NOTEBOOKS}


@dataclass(frozen=True)
class Attempt:
    """A file of a source.

    claim      whose its path says it is; None where the layout of the source does not fit
    lab        the lab of its cells, else of its name
    reason     why it cannot be graded; it has no content then
    other      it is a file of another kind, perhaps not meant to be graded
    content    a copy of the notebook, until it is known whose it is; `sha`: its hash
    begun      the exercises that it answers
    note       why the path does not say whose it is
    code       of a file that may be a learner's module
    """

    source: str
    parts: layouts.Parts
    when: datetime | None = None
    claim: layouts.Claim | None = None
    lab: Lab | None = None
    reason: str = ""
    other: bool = False
    content: Path | None = None
    sha: str = ""
    begun: frozenset[str] = frozenset()
    learner: str = ""
    note: str = ""
    code: bytes = b""

    @property
    def order(self) -> list[float]:
        """Later attempts are greater: by the platform's count of files, else by time."""
        return [self.claim.number, self.when.timestamp() if self.when else 0.0]

    @property
    def lab_name(self) -> str:
        return self.lab.name if self.lab else ""

    @property
    def claim_key(self) -> str:
        return self.claim.key if self.claim else ""

    @property
    def file(self) -> str:
        return "/".join((self.source, *self.parts[self.parts[0] == self.source :]))

    @property
    def shown(self) -> str:
        """What is known of the learner."""
        if self.learner or self.claim is None:
            return self.learner or "?"
        name, user = self.claim.shown, self.claim.user
        return f"{name}_{user}" if user not in ("", name) else name


def attempts_in(source: Path, wanted: Lab | None, spool: Path) -> list[Attempt]:
    """Everything in a source that somebody may have handed in, whole notebooks in `spool`."""
    attempts, stamps, metadata, clones = [], {}, {}, set()
    lists = {platform.metadata: platform for platform in platforms.PLATFORMS}
    for found in files_of(source):
        folder, name = found.parts[:-1], found.parts[-1]
        if name == GIT:
            clones.add(folder)
        elif found.data is not None and name == STAMP and not found.learners:
            stamps[folder] = found.data
        elif found.data is not None and name in lists and not found.learners:
            metadata[folder] = layouts.members_in(lists[name], found.data)
        elif name != STAMP:
            attempts.append(attempt_of(found, source.name, wanted, spool))
    if not attempts:
        return []
    paths = [(*a.parts[:-1], a.parts[-1] + "/" * is_folder(a)) for a in attempts]
    claims, base = layouts.claims_of(paths, [bool(attempt.sha) for attempt in attempts])
    result: list[Attempt] = []
    for attempt, claim in zip(attempts, claims, strict=True):
        members: list[layouts.Claim | None] = [claim]
        if claim and claim.platform.metadata:
            people = metadata.get(attempt.parts[:base], {}).get(attempt.parts[base])
            members = people or [None]
            if not people:
                note = tr("{file} does not say whose it is", file=claim.platform.metadata)
                attempt = replace(attempt, note=note)
        result += [with_time(attempt, member, stamps, clones) for member in members]
    return result


def is_folder(attempt: Attempt) -> bool:
    """Whether it is an archive that could not be read: its files would lie below its name."""
    return attempt.parts[-1].lower().endswith((".zip", ".tar", ".gz", ".tgz"))


def attempt_of(found: Found, source: str, wanted: Lab | None, spool: Path) -> Attempt:
    lab = layouts.lab_by_name(found.parts) or wanted
    attempt = Attempt(source, found.parts, found.when, lab=lab)
    if found.data is not None and MODULE.search(found.parts[-1]):
        attempt, found = replace(attempt, code=found.data), replace(found, data=None)
    if found.data is None:
        other = tr("it is no notebook; the notebook itself, the .ipynb, is needed")
        return replace(attempt, reason=found.reason or other, other=not found.reason)
    try:
        votes, begun = read_notebook(found.data)
    except NotANotebook as error:
        return replace(attempt, reason=str(error))
    lab = lab_of(votes) or attempt.lab
    if lab is None:
        reason = tr("neither its name nor its cells tell a lab; --lab names it")
        return replace(attempt, reason=reason)
    if lab not in LABS:
        reason = tr("nothing in this notebook is graded")
        return replace(attempt, lab=lab, reason=reason, other=True)
    sha = hashlib.sha256(found.data).hexdigest()
    write_whole(spool / sha, found.data)
    return replace(attempt, lab=lab, content=spool / sha, sha=sha, begun=begun)


def read_notebook(data: bytes) -> tuple[Counter[Lab], frozenset[str]]:
    """Of each lab the number of cells that name it, and the exercises that are answered;
    NotANotebook, which says why, if it is none."""
    if not data.strip():
        raise NotANotebook(tr("the file is empty"))
    votes: Counter[Lab] = Counter()
    begun: set[str] = set()
    for cell in cells_of(data):
        text, name = text_of(cell), cell_name(cell)
        numbers = {found[1].split(".")[0].zfill(2) for found in DIRECTIVE.finditer(text)
                   if found[1]}  # fmt: skip
        labs = {BY_NUMBER[number] for number in numbers if number in BY_NUMBER}
        labs = labs or {BY_CELL[name]} if name in BY_CELL else labs
        votes.update(labs)
        for lab in labs.intersection(LABS):
            for key, part in answers_in(text, name, lab).items():
                if not is_empty(lab.exercise(key), part):
                    begun.add(key)
    return votes, frozenset(begun)


def lab_of(votes: Counter[Lab]) -> Lab | None:
    """The lab of a notebook's cells, where they leave no doubt."""
    (first, most), (_, other) = [*votes.most_common(2), (None, 0), (None, 0)][:2]
    return first if most >= 2 * other else None


def with_time(
    attempt: Attempt,
    claim: layouts.Claim | None,
    stamps: dict[layouts.Parts, bytes],
    clones: set[layouts.Parts],
) -> Attempt:
    """With its learner, and the time at which it was handed in: that of the platform, else
    the file's. nbgrader's timestamp.txt counts in its own folders, and never in a clone, where
    it is the learner's."""
    when, folder = claim and claim.when, attempt.parts[:-1]
    is_cloned = any(folder[:end] in clones for end in range(len(folder)))
    if claim and claim.platform.stamped and not (when or is_cloned):
        when = parse_timestamp(stamps.get(folder, b""))
    return replace(attempt, claim=claim, when=when or attempt.when)
