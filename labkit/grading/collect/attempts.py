"""A source as attempts: the lab of each notebook, and what its path says of its learner."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from labkit.course.files import write_whole
from labkit.course.lang import tr
from labkit.course.syllabus import LABS, Lab
from labkit.grading.collect.labs import MODULE, lab_by_name, lab_of, read_notebook
from labkit.grading.collect.walk import ARCHIVE, BESIDE, GIT, Found, Parts, files_of
from labkit.grading.judge.notebook_file import (
    MAX_NOTEBOOK,
    NotANotebook,
    without_outputs,
)
from labkit.grading.nbgrader.timestamp import STAMP, STAMP_BYTES, parse_timestamp
from labkit.grading.platform_files import members_in, time_in
from labkit.grading.platforms import WRAPPER, Layout, Platform, all_layouts, platform_of


@dataclass(frozen=True)
class Claim:
    """What a path says of its learner.

    sure     what no learner chooses: a login, a student number, an e-mail address
    names    what learners may choose; empty texts where they chose none
    user     the platform's number for the person; empty where it has none
    number   of the file: later ones are larger; 0 where the platform does not count
    late     the platform's own mark, or False where no time is known; None: the time decides
    when     the platform's own time, in UTC
    platform None where a person said it
    folder   where the platform puts its own files; empty where it may be a learner's folder
    """

    sure: Parts = ()
    names: Parts = ()
    user: str = ""
    number: int = 0
    late: bool | None = None
    when: datetime | None = None
    platform: Platform | None = None
    folder: Parts = ()

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

    claim      None where the layout of the source does not fit
    lab        the lab of its cells, else of its name
    reason     why it cannot be graded (it has no content then), or whose it is cannot be known
    other      it is a file of another kind, perhaps not meant to be graded
    content    a copy of the notebook, until it is known whose it is; `sha`: its hash
    begun      the exercises that it answers
    code       the bytes of a file that may be a learner's module
    origin     the platform's path of what a person gives to a learner from our own copies
    """

    source: str
    parts: Parts
    when: datetime | None = None
    claim: Claim | None = None
    lab: Lab | None = None
    reason: str = ""
    other: bool = False
    content: Path | None = None
    sha: str = ""
    begun: frozenset[str] = frozenset()
    learner: str = ""
    code: bytes = b""
    origin: str = ""

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
    def file(self) -> str:
        path = "/".join((self.source, *self.parts[self.parts[0] == self.source :]))
        return self.origin or path

    @property
    def shown(self) -> str:
        """What is known of the learner."""
        if self.learner or self.claim is None:
            return self.learner or "?"
        name, user = self.claim.shown, self.claim.user
        return f"{name}_{user}" if user not in ("", name) else name


def attempts_in(source: Path, wanted: Lab | None, spool: Path) -> list[Attempt]:
    """Everything in a source that somebody may have handed in, whole notebooks in `spool`.

    A platform's own file counts where the platform puts it, and is any other file elsewhere.
    """
    attempts, beside, clones = [], {}, set()
    for found in files_of(source):
        if found.parts[-1] == GIT:
            clones.add(found.parts[:-1])
        if found.data is not None and found.parts[-1] in BESIDE and not found.inner:
            beside[found.parts] = found.data
        attempts.append(attempt_of(found, source.name, wanted, spool))
    claims, base = claims_of([a.parts for a in attempts], [bool(a.sha) for a in attempts])
    platform = next((claim.platform for claim in claims if claim), None)
    table = (*base, platform.metadata) if platform else ()
    listed, broken = defaultdict(list), {}
    if table in beside:
        try:
            for folder, sure, name, time in members_in(beside[table]):
                if user := next(filter(None, (*sure, name)), ""):
                    claim = Claim(sure, (name,), user, when=time, platform=platform)
                    listed[folder].append(claim)
        except ValueError as error:
            broken[table] = tr("it cannot be read ({error})", error=error)
    result, used = [], {table}
    for attempt, claim in zip(attempts, claims, strict=True):
        if attempt.other and attempt.parts[-1].startswith("._"):  # macOS's, of nobody
            claim = None
        members, when = [claim], attempt.when
        if claim and platform.metadata:
            members = listed.get(attempt.parts[len(base)]) or [None]
            if members == [None] and not attempt.reason:
                note = tr("{file} does not say whose it is", file=platform.metadata)
                attempt = replace(attempt, reason=note)
        stamp = (*claim.folder, STAMP) if claim and platform.stamped and claim.folder else ()
        if stamp in beside and not any(stamp[:end] in clones for end in range(len(stamp) - 1)):
            when = parse_timestamp(beside[stamp][: STAMP_BYTES + 1])
            used.add(stamp)
            if when is None:
                broken[stamp] = tr("it holds no time; that of the notebook's file counts")
        for member in members:
            time = (member and member.when) or when or attempt.when
            result.append(replace(attempt, claim=member, when=time))
    faults = [Attempt(source.name, parts, reason=why) for parts, why in broken.items()]
    return [attempt for attempt in result if attempt.parts not in used] + faults


def attempt_of(found: Found, source: str, wanted: Lab | None, spool: Path) -> Attempt:
    lab = lab_by_name(found.parts) or wanted
    attempt = Attempt(source, found.parts, found.when, lab=lab, reason=found.reason)
    if found.data is not None and MODULE.search(found.parts[-1]):
        attempt, found = replace(attempt, code=found.data), replace(found, data=None)
    if found.data is None or found.parts[-1] in BESIDE:
        other = tr("it is no notebook; the notebook itself, the .ipynb, is needed")
        is_other = found.other or not found.reason
        return replace(attempt, reason=found.reason or other, other=is_other)
    try:
        is_large = len(found.data) > MAX_NOTEBOOK
        data = without_outputs(found.data) if is_large else found.data
        votes, begun = read_notebook(data)
    except NotANotebook as error:
        return replace(attempt, reason=str(error))
    lab = lab_of(votes) or attempt.lab
    if lab is None:
        reason = tr("neither its name nor its cells tell a lab; --lab names it")
        return replace(attempt, reason=reason)
    if lab not in LABS:
        reason = tr("nothing in this notebook is graded")
        return replace(attempt, lab=lab, reason=reason, other=True)
    sha = hashlib.sha256(data).hexdigest()
    write_whole(spool / sha, data)
    return replace(attempt, lab=lab, content=spool / sha, sha=sha, begun=begun)


# Whose


def claims_of(
    paths: Sequence[Parts], telling: Sequence[bool]
) -> tuple[list[Claim | None], Parts]:
    """Of each file of a source whose it is, by the one layout of the source; None for files
    that do not fit it. Also the folders that all files share.

    telling   which of the files say what the layout is: notebooks that can be read
    """
    certain = [path for path, tells in zip(paths, telling, strict=True) if tells] or paths
    levels = [{*names} for names in zip(*(path[:-1] for path in certain), strict=False)][:2]
    places = [place for place, names in enumerate(levels, 1) if WRAPPER.fullmatch(min(names))
              and all(len(above) == 1 for above in levels[:place])]  # fmt: skip
    for place in sorted({int(1 in places), *places}, reverse=True):
        base = certain[0][:place] if certain else ()
        platform, layout, is_class = layout_of([plain(p[place:]) for p in certain])
        if layout and layout.first:
            break
    found = {path: match for path in paths if layout and path[:place] == base
             and (match := layout.match(plain(path[place:])))}  # fmt: skip
    slugs = Counter(match["slug"] for match in found.values() if "slug" in match.re.groupindex)
    slug = max(slugs, key=lambda slug: (slugs[slug], -len(slug))) if slugs else None
    claims, names = {}, defaultdict(set)
    for path, match in found.items():
        if claim := claim_in(platform, match, slug):
            names[claim.user].add(claim.names)
            # A single folder may be a learner's own
            folder = path[: place + match[0].count("/")] if is_class else ()
            when = claim.when if is_class else None
            claims[path] = replace(claim, folder=folder, when=when)
    for path, claim in claims.items():
        if len(names[claim.user]) > 1:  # the number of something else
            claims[path] = replace(claim, user="")
    return [claims.get(path) for path in paths], base


def plain(parts: Parts) -> str:
    return unicodedata.normalize("NFC", "/".join(parts))


def layout_of(texts: Sequence[str]) -> tuple[Platform | None, Layout | None, bool]:
    """The first layout that fits most of what lies side by side in a source; but before it one
    that fits all of it and that no learner can leave. Also whether that is more than one."""
    entries: dict[str, list[str]] = defaultdict(list)
    for text in texts:
        entries[text.partition("/")[0]].append(text)
    layouts, is_class = [*all_layouts()], len(entries) > 1
    marked = [(platform, layout) for platform, layout in layouts
              if layout.mark and all(layout.mark in text for text in texts)]  # fmt: skip
    fits = []
    for platform, layout in marked or layouts:
        count = sum(all(map(layout.match, inside)) for inside in entries.values())
        is_whole = count == len(entries) > layout.whole
        if is_whole or (2 * count > len(entries) and not layout.whole):
            fits.append((not (is_whole and layout.first), len(fits), platform, layout))
    return *min(fits, default=(0, 0, None, None))[2:], is_class


def claim_in(platform: Platform, match: re.Match[str], slug: str | None) -> Claim | None:
    found = match.groupdict()
    number = "user" if "user" in found else "id"
    user, late = found.get(number) or "", None if platform.clock else False
    if slug is not None:  # what all hand-ins begin with
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
    when = time_in(found.get("time") or "")
    return Claim(sure, names, user, int(found.get("file") or 0), late, when, platform)


def claim_called(key: str) -> Claim | None:
    """The claim with this key."""
    if (platform := platform_of(key)) is None:
        return None
    name, late = key[len(platform.name) + 1 :], None if platform.clock else False
    return Claim(names=(name,), user=name * platform.has_users, late=late, platform=platform)
