"""The questions that a person has to settle, over all collects; and the table of one run."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from labkit.course.files import write_whole
from labkit.course.lang import tr
from labkit.course.report import csv_safe, one_line
from labkit.course.syllabus import LABS
from labkit.grading.nbgrader.timestamp import read_manifest, read_timestamp, sha_of
from labkit.grading.pages import write_page
from labkit.grading.platforms import platform_of

FILE, LOG = Path("collected", "needs_a_look.json"), Path("collected", "last.csv")
COUNTS = NEW, SAME, NEWER = "new", "unchanged", "replaces the one before"
BLANK = "counts, with blank cells"
EARLIER, SKIPPED, OPEN = "earlier attempt, kept", "skipped", "still open"
WHOSE, REFUSED, UNGRADED = "whose? kept", "refused", "cannot be graded"
TROUBLE = (WHOSE, REFUSED, UNGRADED, BLANK)
SHOWN = 6  # files that need a look and are shown


class Line(NamedTuple):
    """The outcome for one file.

    claim   see Claim.key
    kept    a copy, for `--as` to give to a learner
    """

    learner: str
    claim: str
    lab: str
    when: datetime | None
    state: str
    note: str
    source: str
    kept: str = ""

    @property
    def trouble(self) -> bool:
        return self.state in TROUBLE


@dataclass(frozen=True)
class OpenIssue:
    """A file that cannot be graded, or whose learner is not known.

    learner    an id; or the name in its path, and then `known` is False
    when       seconds since 1970
    sha        of a notebook without a learner, with a copy in `kept`; or of one that counts and
               leaves cells blank
    claim      see Claim.key
    late       the platform's own mark, as in Claim
    """

    learner: str
    known: bool
    lab: str
    file: str
    reason: str
    when: float | None = None
    sha: str = ""
    kept: str = ""
    claim: str = ""
    late: bool | None = None

    @property
    def name(self) -> str:
        return self.file.rpartition("/")[2]

    @property
    def text(self) -> str:
        reason = tr(self.reason)
        return tr(
            "handed in {name}, which cannot be graded: {reason}", name=self.name, reason=reason
        )


class OpenIssues:
    """The issues of a course folder, read and written whole.

    given    {claim, or claim/hash of a notebook: learner}, from `--as`
    """

    def __init__(self, root: Path):
        self.root = root
        try:
            content = json.loads((root / FILE).read_text("utf-8"))
            self.entries = [OpenIssue(**entry) for entry in content["files"]]
            self.given: dict[str, str] = content["given"]
        except (OSError, ValueError, KeyError, TypeError):
            self.entries, self.given = [], {}

    def open(self) -> list[OpenIssue]:
        """Return the issues that are not settled, files without a learner last."""
        claims = {(entry.get("claim"), name.rpartition("/")[2])
                  for name, entry in read_manifest(self.root).items()}  # fmt: skip
        found = [issue for issue in self.entries if not self._settled(issue, claims)]
        return sorted(found, key=lambda issue: (not issue.known, issue.learner, issue.lab))

    def of_lab(self, lab: str) -> dict[str, str]:
        """Return {learner: why their submission cannot be graded}."""
        found = {}
        for issue in sorted(self.entries, key=lambda issue: (issue.learner, issue.when or 0.0)):
            path = submitted(self.root, issue.learner, lab)
            if issue.known and issue.lab == lab and not path.is_file():
                found[issue.learner] = issue.text
        return found

    def _settled(self, issue: OpenIssue, claims: Collection[tuple[str, str]]) -> bool:
        """Whether a later notebook replaced a file that cannot be graded, a different one
        replaced one with blank cells, or a notebook with this claim has a learner now."""
        path = submitted(self.root, issue.learner, issue.lab)
        if issue.kept:
            copies = f"learners/*/{issue.lab}/*{issue.sha[:12]}.ipynb"
            is_given = any((self.root / FILE.parent).glob(copies))
            return is_given or (issue.claim, issue.lab) in claims
        if not (issue.known and issue.lab and path.is_file()):
            return False
        if issue.sha:
            is_chosen = f"{issue.claim}/{issue.sha}" in self.given
            return is_chosen or sha_of(path) != issue.sha
        return issue.when is None or issue.when <= handed_in(path).timestamp()

    def update(self, new: Iterable[OpenIssue]) -> None:
        """Add issues, drop those that are settled, and write all; a learner without a gradable
        file gets a page in place of feedback."""
        entries = {(e.learner, e.lab, e.file): e for e in [*self.entries, *new]}
        self.entries = [*entries.values()]
        self.entries = self.open()
        content = {"files": [asdict(entry) for entry in self.entries], "given": self.given}
        write_whole(self.root / FILE, json.dumps(content, indent=1, ensure_ascii=False))
        for lab in LABS:
            for learner in self.of_lab(lab.name):
                files = [e for e in self.entries if (e.learner, e.lab) == (learner, lab.name)]
                path = self.root / "feedback" / learner / lab.name / f"{lab.name}.html"
                write_page(path, "ungraded.html", lab=lab, who=learner, files=files)


def submitted(root: Path, learner: str, lab: str) -> Path:
    return root / "submitted" / learner / lab / f"{lab}.ipynb"


def handed_in(path: Path) -> datetime:
    """Return when a notebook in submitted/ was handed in."""
    changed = datetime.fromtimestamp(path.lstat().st_mtime, timezone.utc)
    return read_timestamp(path.parent) or changed


# The table of a run


def write_log(root: Path, lines: Iterable[Line], earlier: Iterable[OpenIssue]) -> None:
    """Write a row for each file of this run, and for each open issue of earlier ones."""
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(
        ["learner", "name from", "lab", "handed in (UTC)", "what", "note", "file", "kept as"]
    )
    for line in [*lines, *map(still_open, earlier)]:
        when = f"{line.when:%Y-%m-%d %H:%M:%S}" if line.when else ""
        table.writerow(map(csv_safe, line._replace(when=when)))
    write_whole(root / LOG, text.getvalue().encode("utf-8", "replace"))


def still_open(issue: OpenIssue) -> Line:
    what = (issue.learner, issue.claim, issue.lab, None, OPEN, issue.reason)
    return Line(*what, issue.file, issue.kept)


def show(
    root: Path,
    lines: Sequence[Line],
    issues: Sequence[OpenIssue],
    console: Console,
    is_run: bool = True,
) -> None:
    """One screen: a line for each lab, some of what needs a look, and the path of the table.

    is_run    whether anything was collected; if not, the table of the last run is left alone
    """
    trouble = [line for line in lines if line.trouble]
    now = {(line.lab, line.source) for line in trouble}
    earlier = [issue for issue in issues if (issue.lab, issue.file) not in now]
    if is_run:
        write_log(root, lines, earlier)
    for lab in sorted({line.lab for line in lines} - {""}):
        states = Counter(line.state for line in lines if line.lab == lab)
        counts = ", ".join(f"{states[state]} {state}" for state in states)
        print_line(f"{lab}: {counts}", console)
    new = {platform_of(line.claim) for line in lines if line.state in (NEW, NEWER)} - {None}
    for name in sorted(platform.name for platform in new if not platform.clock):
        print_line(f"{name} tells no time of handing in: nobody is late", console)
    looks = [*trouble, *map(still_open, earlier)]
    if looks:
        print_line(f"{len(trouble)} of {len(lines)} files need a look, "
                   f"{len(earlier)} more from earlier:", console)  # fmt: skip
    if any(look.kept for look in looks[:SHOWN]):
        print_line("`tinyllm collect --as ID FILE` says whose a kept FILE is", console)
    for look in looks[:SHOWN]:
        place = "" if look.kept else look.source
        parts = (look.learner or "?", look.state, look.note, place)
        print_line("  " + ": ".join(filter(None, parts)), console)
        if look.kept:
            path, here = root / look.kept, Path.cwd()
            path = path.relative_to(here) if path.is_relative_to(here) else path
            console.print(Text(f"    {shlex.quote(str(path))}"), soft_wrap=True)
    if len(looks) > SHOWN:
        print_line(f"  and {len(looks) - SHOWN} more", console)
    if not (is_run or looks):
        print_line("nothing is open", console)
    elif looks or not lines:
        console.print(Text(str(root / LOG)), soft_wrap=True)


def print_line(text: str, console: Console) -> None:
    """Print a line, cut at the window's edge unless it has a command to be copied."""
    if "--as " in text:
        console.print(Text(one_line(text)), soft_wrap=True)
    else:
        console.print(Text(one_line(text), no_wrap=True, overflow="ellipsis"))
