"""Whose is a file? One table of layouts: how a system names what its users hand in.

To read the export of another system, add a row to LAYOUTS, and a case to LAYOUTS in
tests/course/grading/test_collect.py.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

import yaml

from labkit.course.syllabus import NOTEBOOKS, Lab
from labkit.grading.nbgrader.gradebook.connection import CourseError
from labkit.grading.nbgrader.timestamp import parse_timestamp

Parts = tuple[str, ...]
LAB = "|".join(lab.name for lab in NOTEBOOKS)
MODULE = "|".join(lab.module for lab in NOTEBOOKS)
LAB_SLUG = rf"(?:\d\d[-_])?(?:{MODULE})[-_]"
SLUG = rf"(?:(?:lab|hw|homework|assignment|tinyllm)[-_]?\d*[-_](?:{LAB_SLUG})?|{LAB_SLUG})"
WRAPPER = re.compile(r"submitted|submissions|inbound|assignment_\d+_export")
ARCHIVE = re.compile(r"(?:\.(?:zip|tar|gz|tgz))+$", re.IGNORECASE)
GRADESCOPE, METADATA = "Gradescope", "submission_metadata.yml"


@dataclass(frozen=True)
class Layout:
    """How a system names the files that it exports.

    system     its name
    pattern    matches the start of a file's path. Groups: `who` is a name or an id, `user` the
               system's number for a person, `file` a number that grows with each file, `late`
               a mark, `time` a time in UTC, `slug` the name that all clones begin with
    timed      of several notebooks of a learner the latest counts; else a person is asked
    whole      it is taken only where it fits every learner
    clock      whether the time of a file is when it was handed in; that of a clone is not, and
               then nobody is late
    """

    system: str
    pattern: str
    timed: bool = True
    whole: bool = False
    clock: bool = True

    def match(self, path: str) -> re.Match[str] | None:
        return re.match(self.pattern, path, re.IGNORECASE)


LAYOUTS = (
    # John Doe_12345_assignsubmission_file_/x.ipynb, or flat: ..._assignsubmission_file_x.ipynb
    Layout("Moodle", r"(?!.*_assignsubmission_.*_assignsubmission_)"
                     r"(?P<who>[^/]*)_(?P<user>\d+)_assignsubmission_(?:file|onlinetext)"),
    # doejohn_LATE_12345_67890_x.ipynb
    Layout("Canvas", r"(?P<who>[^_/]*)_(?:(?P<late>late)_)?(?P<user>\d{3,})_"
                     r"(?P<file>\d{3,18})_"),
    # submission_12345/x.ipynb, and submission_metadata.yml beside it
    Layout(GRADESCOPE, r"submission_(?P<user>\d+)/"),
    # ann+01_rmsnorm+2026-03-01 12:00:00 UTC+0a1b2c/01_rmsnorm.ipynb
    Layout("nbgrader", rf"(?P<who>[^+/]+)\+(?:{LAB})\+(?P<time>[^+/]+)(?:\+[^/]*)?/"),
    # lab1-octocat/notebooks/01_rmsnorm.ipynb
    Layout("GitHub Classroom", rf"(?P<slug>{SLUG})(?P<user>[\w.-]+)/", timed=False,
           clock=False),
    # ann/01_rmsnorm/01_rmsnorm.ipynb, with timestamp.txt
    Layout("nbgrader", rf"(?!{SLUG})(?P<who>[^/]+)/(?:{LAB})/", whole=True),
    # ann/x.ipynb
    Layout("folder", rf"(?!(?:{WRAPPER.pattern}|notebooks|{LAB})/)(?P<who>[^/]+)/",
           timed=False),
)  # fmt: skip


@dataclass(frozen=True)
class Claim:
    """What a path says of its learner.

    names    to be looked up in a roster, in this order
    user     the system's number for the person; empty where it has none
    number   of the file: later ones are larger; 0 where the system does not count
    late     the system's own mark, or False where no time is known; None: the time decides
    when     the system's own time, in UTC
    timed    see Layout
    """

    system: str
    names: Parts
    user: str = ""
    number: int = 0
    late: bool | None = None
    when: datetime | None = None
    timed: bool = True

    @property
    def key(self) -> str:
        """Tells people apart, namesakes in one system too: `Canvas 12345`, `folder ann`."""
        return f"{self.system} {self.user or self.shown}"

    @property
    def shown(self) -> str:
        return next(filter(None, self.names), self.user)


def claims_of(
    paths: Sequence[Parts], telling: Sequence[bool]
) -> tuple[list[Claim | None], int]:
    """Of each file of a source whose it is, by the one layout of the source; None for files
    that do not fit it. Also the number of folders that all files share.

    telling   which of the files say what the layout is: notebooks that can be read
    """
    base = int(all(len(parts) > 1 for parts in paths) and len({p[0] for p in paths}) == 1
               and bool(WRAPPER.fullmatch(paths[0][0])))  # fmt: skip
    texts = ["/".join(unicodedata.normalize("NFC", part) for part in parts[base:])
             for parts in paths]  # fmt: skip
    certain = [text for text, tells in zip(texts, telling, strict=True) if tells]
    layout = layout_of(certain or texts)
    found = [layout.match(text) if layout else None for text in texts]
    slugs = Counter(match["slug"] for match in found if match and "slug" in match.groupdict())
    slug = max(slugs, key=lambda slug: (slugs[slug], -len(slug))) if slugs else None
    return [claim(layout, match, slug) if match else None for match in found], base


def layout_of(texts: Sequence[str]) -> Layout | None:
    """The first layout that fits most of what lies side by side in a source; but first one of
    an LMS that fits all of it: what it puts before a name, no learner can leave out."""
    moodles = all("_assignsubmission_" in text for text in texts)
    entries: dict[str, list[str]] = defaultdict(list)
    for text in texts:
        entries[text.partition("/")[0]].append(text)
    found = {}
    for layout in LAYOUTS[:1] if moodles else LAYOUTS:
        count = sum(all(map(layout.match, inside)) for inside in entries.values())
        if count == len(entries) or (2 * count > len(entries) and not layout.whole):
            found[layout] = count == len(entries)
    return next(
        (layout for layout in LAYOUTS[:2] if found.get(layout)), next(iter(found), None)
    )


def claim(layout: Layout, match: re.Match[str], slug: str | None) -> Claim | None:
    groups = match.groupdict()
    user, late = groups.get("user") or "", None if layout.clock else False
    if slug is not None:  # clones of one assignment begin with the same words
        name = match.string.partition("/")[0]
        if not name.startswith(slug) or name == slug:
            return None
        user = name[len(slug) :]
    if "late" in groups:
        late = bool(groups["late"])
    when = parse_timestamp(groups["time"].encode()) if "time" in groups else None
    name = ARCHIVE.sub("", groups.get("who", user) or "").strip()
    return Claim(layout.system, (name,), user, int(groups.get("file") or 0), late, when,
                 layout.timed)  # fmt: skip


def gradescope_claims(data: bytes) -> dict[str, list[Claim]]:
    """{folder: who handed it in} of submission_metadata.yml; a group has several members."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        table = yaml.load(data.decode("utf-8-sig", "replace"), loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise CourseError(f"{METADATA} cannot be read: {error}") from error
    found: dict[str, list[Claim]] = defaultdict(list)
    for folder, about in table.items() if isinstance(table, dict) else ():
        about = plain_keys(about)
        when = about.get("created_at")
        when = when if isinstance(when, datetime) else None
        if when and when.tzinfo is None:
            when = when.replace(tzinfo=timezone.utc)
        for person in map(plain_keys, about.get("submitters") or ()):
            names = [str(person.get(key) or "").strip() for key in ("sid", "email", "name")]
            if any(names):
                user = next(filter(None, names))
                found[str(folder)].append(
                    Claim(GRADESCOPE, tuple(names[::-1]), user, when=when)
                )
    return found


def plain_keys(table: object) -> dict:
    """Ruby's `:name` is `name`."""
    return {str(k).lstrip(":"): v for k, v in table.items()} if isinstance(table, dict) else {}


def lab_by_name(parts: Parts) -> Lab | None:
    """The lab whose name stands in the file's name, or else in that of a folder above it."""
    for part in reversed(parts):
        named = [lab for lab in NOTEBOOKS if re.search(lab_pattern(lab), part, re.IGNORECASE)]
        if len(named) == 1:
            return named[0]
    return None


def lab_pattern(lab: Lab) -> str:
    """A pattern for 01_rmsnorm, and 1-rmsnorm."""
    return rf"(?<!\d)0?{int(lab.number)}[ _-]{lab.module}(?![a-z])"
