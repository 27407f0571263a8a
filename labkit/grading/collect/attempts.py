"""The attempts in a source: the lab of each notebook, and the learner named by its path.

One layout fits a whole source. Trying a layout on each file alone would find a few more owners,
but a file's name, which a learner chooses, could then decide whose work it is.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from labkit.course.files import write_whole
from labkit.course.lang import tr
from labkit.course.syllabus import LABS, Lab
from labkit.grading.collect.labs import lab_by_name, lab_of_cells
from labkit.grading.collect.modules import MODULE
from labkit.grading.collect.walk import ARCHIVE, TABLES, Found, Parts, files_of
from labkit.grading.judge.notebook_file import (
    MAX_NOTEBOOK,
    NotANotebook,
    without_outputs,
)
from labkit.grading.platform_files import members_in, time_in
from labkit.grading.platforms import WRAPPER, Layout, Platform, all_layouts, platform_of


@dataclass(frozen=True)
class Claim:
    """The learner according to a path.

    sure     texts that no learner chooses: a login, a student number, an e-mail address
    names    texts that learners may choose; empty if they chose none
    user     the platform's number for the person, if it has one
    number   of the file: later ones are larger; 0 if the platform does not count
    late     the platform's own mark, or False if it has no time; None: the time decides
    when     the platform's own time, in UTC
    platform None if a person named the learner
    """

    sure: Parts = ()
    names: Parts = ()
    user: str = ""
    number: int = 0
    late: bool | None = None
    when: datetime | None = None
    platform: Platform | None = None

    @property
    def key(self) -> str:
        """Tells people apart, namesakes on one platform too: `Canvas 12345`, `folder ann`."""
        platform = self.platform.name if self.platform else "--as"
        return f"{platform} {self.user or self.shown}"

    @property
    def shown(self) -> str:
        return next(filter(None, (*self.names, *self.sure)), self.user)


@dataclass(frozen=True)
class Attempt:
    """A file of a source.

    file     its path, as the platform named it
    claim    None if the layout of the source does not fit
    lab      the lab of its cells, else of its name
    reason   why it cannot be graded, or why its learner cannot be known
    other    it is of another kind, perhaps not meant to be graded
    content  a copy of the notebook, until its learner is known; `sha`: its hash
    learner  the id, once it is known
    code     the content of a file that may be a learner's module
    """

    file: str
    parts: Parts
    when: datetime | None = None
    claim: Claim | None = None
    lab: Lab | None = None
    reason: str = ""
    other: bool = False
    content: Path | None = None
    sha: str = ""
    learner: str = ""
    code: bytes = b""

    @property
    def order(self) -> list[float]:
        """Later attempts are greater: by the platform's count of files, else by time."""
        return [self.claim.number, self.when.timestamp() if self.when else 0.0]

    @property
    def lab_name(self) -> str:
        return self.lab.name if self.lab else ""

    @property
    def key(self) -> str:
        return self.claim.key if self.claim else ""

    @property
    def shown(self) -> str:
        """The learner, as far as they are known."""
        if self.learner or self.claim is None:
            return self.learner or "?"
        name, user = self.claim.shown, self.claim.user
        return f"{name}_{user}" if user not in ("", name) else name


def attempts_in(source: Path, wanted: Lab | None, spool: Path) -> list[Attempt]:
    """Return all possible attempts in a source; notebooks are copied to `spool`."""
    attempts, tables = [], {}
    for found in files_of(source):
        if found.data is not None and found.parts[-1] in TABLES and not found.inner:
            tables[found.parts] = found.data
        attempts.append(attempt_of(found, source.name, wanted, spool))
    layout = SourceLayout([a.parts for a in attempts if a.sha] or [a.parts for a in attempts])
    claims = layout.claims([attempt.parts for attempt in attempts])
    pairs = [
        (attempt, None if attempt.other and attempt.parts[-1].startswith("._") else claim)
        for attempt, claim in zip(attempts, claims, strict=True)
    ]  # a file that macOS adds, not a submission
    if layout.platform and layout.platform.metadata:
        pairs = list(with_members(pairs, layout, tables))
    return [replace(attempt, claim=claim, when=(claim and claim.when) or attempt.when)
            for attempt, claim in pairs]  # fmt: skip


def with_members(
    pairs: Iterable[tuple[Attempt, Claim | None]],
    layout: SourceLayout,
    tables: Mapping[Parts, bytes],
) -> Iterator[tuple[Attempt, Claim | None]]:
    """Yield each attempt once for each person that the platform's own table lists. The table
    counts only in the place where the platform puts it: any other may be a learner's."""
    platform, people = layout.platform, defaultdict(list)
    table, fault = (*layout.base, platform.metadata), ""
    try:
        for folder, sure, name, time in members_in(tables.get(table, b"")):
            if user := next(filter(None, (*sure, name)), ""):
                claim = Claim(sure, (name,), user, when=time, platform=platform)
                people[folder].append(claim)
    except ValueError as error:
        fault = tr("it cannot be read ({error})", error=error)
    missing = tr("{file} does not say whose it is", file=platform.metadata)
    for attempt, claim in pairs:
        owners = people[attempt.parts[len(layout.base)]] if claim else [None]
        if attempt.parts != table:
            yield from ((attempt, owner) for owner in owners)
            if not owners:
                yield replace(attempt, reason=attempt.reason or missing), None
        elif fault:
            yield replace(attempt, reason=fault, other=False), None


def attempt_of(found: Found, source: str, wanted: Lab | None, spool: Path) -> Attempt:
    path = "/".join((source, *found.parts[found.parts[0] == source :]))
    lab = lab_by_name(found.parts) or wanted
    attempt = Attempt(path, found.parts, found.when, lab=lab, reason=found.reason)
    if found.data is not None and MODULE.search(found.parts[-1]):
        attempt, found = replace(attempt, code=found.data), replace(found, data=None)
    if found.data is None or found.parts[-1] in TABLES:
        other = tr("it is no notebook; the notebook itself, the .ipynb, is needed")
        is_other = found.other or not found.reason
        return replace(attempt, reason=found.reason or other, other=is_other)
    try:
        is_large = len(found.data) > MAX_NOTEBOOK
        data = without_outputs(found.data) if is_large else found.data
        lab = lab_of_cells(data) or lab
    except NotANotebook as error:
        return replace(attempt, reason=str(error))
    if lab is None:
        reason = tr("neither its name nor its cells tell a lab; --lab names it")
        return replace(attempt, reason=reason)
    if lab not in LABS:
        reason = tr("nothing in this notebook is graded")
        return replace(attempt, lab=lab, reason=reason, other=True)
    sha = hashlib.sha256(data).hexdigest()
    write_whole(spool / sha, data)
    return replace(attempt, lab=lab, content=spool / sha, sha=sha)


class SourceLayout:
    """The one layout of a source, by the paths of the notebooks in it.

    base      the folders that all files share
    is_class  whether several hand-ins are side by side; a single folder may be a learner's own
    """

    def __init__(self, notebooks: Sequence[Parts]):
        levels = [{*names} for names in zip(*(path[:-1] for path in notebooks), strict=False)]
        wrapped = [depth for depth, names in enumerate(levels[:2], 1)
                   if WRAPPER.fullmatch(min(names))
                   and all(len(above) == 1 for above in levels[:depth])]  # fmt: skip
        for depth in sorted({int(1 in wrapped), *wrapped}, reverse=True):
            self.base = notebooks[0][:depth] if notebooks else ()
            texts = [plain(path[depth:]) for path in notebooks]
            self.platform, self.layout = best_layout(texts)
            if self.layout and self.layout.first:
                break
        self.is_class = len({text.partition("/")[0] for text in texts}) > 1

    def match(self, path: Parts) -> re.Match[str] | None:
        depth = len(self.base)
        is_inside = self.layout and path[:depth] == self.base
        return self.layout.match(plain(path[depth:])) if is_inside else None

    def claims(self, paths: Sequence[Parts]) -> list[Claim | None]:
        """Return the claim of each path; None if the layout does not fit it."""
        matches = [self.match(path) for path in paths]
        slugs = Counter(match["slug"] for match in matches
                        if match and "slug" in match.re.groupindex)  # fmt: skip
        slug = max(slugs, key=lambda slug: (slugs[slug], -len(slug))) if slugs else None
        claims = [match and self.claim_in(match, slug) for match in matches]
        names: dict[str, set[Parts]] = defaultdict(set)
        for claim in filter(None, claims):
            names[claim.user].add(claim.names)
        return [replace(claim, user="") if claim and len(names[claim.user]) > 1 else claim
                for claim in claims]  # a number of several people is not a person's # fmt: skip

    def claim_in(self, match: re.Match[str], slug: str | None) -> Claim | None:
        """
        slug    the beginning that all hand-ins share
        """
        found = match.groupdict()
        number = "user" if "user" in found else "id"
        user, late = found.get(number) or "", late_without_clock(self.platform)
        if slug is not None:
            end = match.end(number)
            if not match.string.startswith(slug) or end <= len(slug):
                return None
            user = match.string[len(slug) : end]
        if "late" in found:
            late = bool(found["late"])
        who = ARCHIVE.sub("", found.get("who") or "").strip()
        name = who or ARCHIVE.sub("", found.get("name") or "").strip()
        names = (name,) if {"who", "name"} & {*found} else ()
        sure = (who or user * ("id" in found),)
        when = time_in(found.get("time") or "") if self.is_class else None
        number = int(found.get("file") or 0)
        return Claim(sure, names, user, number, late, when, self.platform)


def plain(parts: Iterable[str]) -> str:
    return unicodedata.normalize("NFC", "/".join(parts))


def best_layout(texts: Sequence[str]) -> tuple[Platform | None, Layout | None]:
    """Return the layout that fits all of a source's entries and that no learner can evade, if
    there is one; otherwise the first that fits most of them."""
    entries: dict[str, list[str]] = defaultdict(list)
    for text in texts:
        entries[text.partition("/")[0]].append(text)
    layouts = [*all_layouts()]
    marked = [(platform, layout) for platform, layout in layouts
              if layout.mark and all(layout.mark in text for text in texts)]  # fmt: skip
    fits = []
    for platform, layout in marked or layouts:
        count = sum(all(map(layout.match, inside)) for inside in entries.values())
        is_whole = count == len(entries) > layout.whole
        if is_whole or (2 * count > len(entries) and not layout.whole):
            fits.append((not (is_whole and layout.first), len(fits), platform, layout))
    return min(fits, default=(0, 0, None, None))[2:]


def late_without_clock(platform: Platform) -> bool | None:
    """Return False, not late, for a platform without times; None for any other."""
    return None if platform.clock else False


def claim_called(key: str) -> Claim | None:
    """Return the claim with this key."""
    if (platform := platform_of(key)) is None:
        return None
    name = key[len(platform.name) + 1 :]
    user = name * platform.has_users
    return Claim(names=(name,), user=user, late=late_without_clock(platform), platform=platform)
