"""The folders that collect writes, and the manifest of what it wrote.

course/submitted/NAME/LAB/LAB.ipynb      the attempt that counts, with timestamp.txt
course/collected/NAME/LAB/*.ipynb        every attempt there was, this one too; of a script
                                         beside it the file as it came
course/collected/unknown/NAME/...        those of names that are not on the roster
course/collected/manifest.json           where each counting attempt came from
course/collected/needs_a_look.json       what a person has to look at (unsettled.py)
course/collected/last.csv                the table of the last run
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from labkit.core.files import safe_id, write_whole
from labkit.core.syllabus import Lab
from labkit.grading.collect.archives import Parts
from labkit.grading.collect.identify import NOBODY, Identity
from labkit.grading.collect.reader import handed_in
from labkit.grading.collect.table import NEW, NEWER, OLDER, SAME, Line, write_log
from labkit.lang import tr

STAMP = "%Y-%m-%d %H:%M:%S.%f %Z"


@dataclass(frozen=True)
class Attempt:
    """A file on its way: its content lies in a spool file until it is known whose it is.

    parts      where in the source it lay; the first `own` of them lead to the learner's zip
    lab        of its cells, else of its name
    claimed    the lab that the name says, where the cells say another
    reason     why it cannot be graded; it has no content then
    clutter    it is a file of another kind, perhaps nothing that was handed in
    answers    {exercise id: cell}, of those that were begun
    sure       its cells are the lab's
    rank       how far inside the path the name stood by which the roster knows the learner
    """

    source: Path
    parts: Parts
    when: datetime | None = None
    own: int = 0
    stamped: datetime | None = None  # what nbgrader's timestamp.txt says
    lab: Lab | None = None
    claimed: Lab | None = None
    reason: str = ""
    clutter: bool = False
    spooled: Path | None = None
    sha: str = ""
    original: Path | None = None  # of a script, as it came
    answers: tuple[tuple[str, str], ...] = ()
    sure: bool = False
    who: Identity = NOBODY
    learner: str = ""
    rank: int = 0
    note: str = ""

    @property
    def order(self) -> tuple:
        """Later attempts are greater: by the LMS's count of files, else by time."""
        when = self.when.timestamp() if self.when else 0.0
        fuller = len(self.answers) if self.script else 0
        return (self.who.number, when, self.who.attempt, fuller, self.file)

    @property
    def script(self) -> bool:
        return self.original is not None

    @property
    def readable(self) -> bool:
        return self.spooled is not None

    @property
    def file(self) -> str:
        return path_in(self.source, self.parts)

    def line(self, state: str, note: str = "") -> Line:
        learner, lab = self.learner or self.who.apart, self.lab.name if self.lab else ""
        notes = tr(", ").join(map(tr, filter(None, (note, self.note))))
        return Line(self.file, state, learner, lab, self.when, notes, self.who.how)


def path_in(source: Path, parts: Parts) -> str:
    return "/".join(parts if parts[:1] == (source.name,) else (source.name, *parts))


class Places:
    """Where a run puts what it found; what it spooled is gone at its end."""

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
            write_whole(path, data)
        return path, sha

    def keep(self, one: Attempt) -> Path:
        """A copy under collected/, named by time and content; the same one only once."""
        owner = Path(one.learner) if one.learner else Path("unknown", safe_id(one.who.apart))
        folder = self.collected / owner / one.lab.name
        for path in folder.glob(f"*{one.sha[:12]}.ipynb"):
            return path
        when = f"{one.when:%Y-%m-%dT%H-%M-%SZ}-" if one.when else ""
        path = folder / f"{when}{one.sha[:12]}.ipynb"
        write_whole(path, one.spooled.read_bytes())
        if one.when:  # from which `collect --as` takes it
            os.utime(path, (one.when.timestamp(), one.when.timestamp()))
        if one.original:
            suffix = Path(one.parts[-1]).suffix or ".txt"
            write_whole(path.with_suffix(suffix), one.original.read_bytes())
        return path

    def deliver(self, one: Attempt, replace_newer: bool) -> str:
        """Make `one` what counts, unless what is there is later; returns what was done."""
        folder = self.submitted / one.learner / one.lab.name
        path, key = folder / f"{one.lab.name}.ipynb", f"{one.learner}/{one.lab.name}"
        state = NEW
        if path.is_file():
            spooled, sha = self.spool(path.read_bytes())
            if sha == one.sha:
                self.manifest.setdefault(key, entry(one))
                return SAME
            before, when = self.manifest.get(key, {}), handed_in(path)
            by_hand = (0, when.timestamp())  # put there by other means
            order = before["order"] if before.get("sha") == sha else by_hand
            if not later(one, order) and not replace_newer:
                return OLDER
            self.keep(replace(one, spooled=spooled, sha=sha, when=when, original=None))
            state = NEWER
        if one.when:  # first: should this be the last thing done, the notebook comes again
            write_whole(folder / "timestamp.txt", one.when.strftime(STAMP).encode())
        else:
            (folder / "timestamp.txt").unlink(missing_ok=True)
        write_whole(path, one.spooled.read_bytes())
        self.manifest[key] = entry(one)
        return state

    def finish(self, lines: list[Line]) -> None:
        write_whole(self.path, json.dumps(self.manifest, indent=1, sort_keys=True).encode())
        write_log(self.collected / "last.csv", lines)


def entry(one: Attempt) -> dict:
    """What the manifest says of the attempt that counts."""
    order = list(one.order)
    return {"sha": one.sha, "order": order, "user": one.who.user, "system": one.who.system,
            "source": order[-1]}  # fmt: skip


def later(one: Attempt, order: tuple) -> bool:
    """Whether an attempt comes after this order: by numbers of files if both have them."""
    number, *rest = order
    if one.who.number and number:
        return one.who.number > number
    return one.when is not None and one.order[1:3] > tuple(rest[:2])
