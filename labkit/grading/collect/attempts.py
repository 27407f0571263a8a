"""A source as attempts: the lab of each notebook, and what its path says of its learner."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import yaml

from labkit.course.answers import answers_in, cell_name
from labkit.course.cells import DIRECTIVE
from labkit.course.files import write_whole
from labkit.course.lang import tr
from labkit.course.syllabus import LABS, NOTEBOOKS, Lab
from labkit.grading.collect.walk import ARCHIVE, BESIDE, GIT, MEGABYTE, Found, Parts, files_of
from labkit.grading.judge.notebook_file import (
    MAX_NOTEBOOK,
    NotANotebook,
    cells_of,
    text_of,
    without_outputs,
)
from labkit.grading.nbgrader.timestamp import STAMP, STAMP_BYTES, parse_timestamp
from labkit.grading.platforms import TIMES, WRAPPER, Layout, Platform, all_layouts, platform_of
from labkit.learner.workspace import is_empty

BY_CELL = {name: lab for lab in NOTEBOOKS for name in lab.cells}
BY_NUMBER = {lab.number: lab for lab in NOTEBOOKS}
MOST_YAML, DEEPEST_YAML = 8 * MEGABYTE, 30


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
        return "/".join((self.source, *self.parts[self.parts[0] == self.source :]))

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
        if found.data is not None and not found.inner:
            beside[found.parts] = found.data
        attempts.append(attempt_of(found, source.name, wanted, spool))
    claims, base = claims_of([a.parts for a in attempts], [bool(a.sha) for a in attempts])
    platform = next((claim.platform for claim in claims if claim), None)
    table = (*base, platform.metadata) if platform else ()
    listed, broken = {}, {}
    if table in beside:
        try:
            listed = members_in(platform, beside[table])
        except ValueError as error:
            broken[table] = tr("it cannot be read ({error})", error=error)
    result, used = [], {table}
    for attempt, claim in zip(attempts, claims, strict=True):
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


def read_notebook(data: bytes) -> tuple[Counter[Lab], frozenset[str]]:
    """Of each lab the number of cells that name it, and the exercises that are answered;
    NotANotebook, which says why, if it is none."""
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


def lab_by_name(parts: Parts) -> Lab | None:
    """The lab whose name stands in the file's name (01_rmsnorm, 1-rmsnorm), or else in that of
    a folder above it."""
    for part in reversed(parts):
        named = [lab for lab in NOTEBOOKS
                 if re.search(rf"(?<!\d)0?{int(lab.number)}[ _-]{lab.module}(?![a-z])", part,
                              re.IGNORECASE)]  # fmt: skip
        if len(named) == 1:
            return named[0]
    return None


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
        platform, layout, is_class = layout_of(["/".join(nfc(p[place:])) for p in certain])
        if layout and layout.first:
            break
    found = {
        path: layout.match("/".join(nfc(path[place:])))
        for path in paths
        if layout and path[:place] == base
    }
    matches = [match for match in found.values() if match]
    slugs = Counter(match["slug"] for match in matches if "slug" in match.re.groupindex)
    slug = max(slugs, key=lambda slug: (slugs[slug], -len(slug))) if slugs else None
    claims = {path: claim_in(platform, match, slug) for path, match in found.items() if match}
    names = defaultdict(set)
    for claim in filter(None, claims.values()):
        names[claim.user].add(claim.names)
    for path, claim in claims.items():
        if claim and is_class:
            claims[path] = replace(claim, folder=path[: place + found[path][0].count("/")])
        elif claim:  # a single folder may be a learner's own
            claims[path] = replace(claim, when=None)
        if claim and len(names[claim.user]) > 1:  # the number of something else
            claims[path] = replace(claims[path], user="")
    return [claims.get(path) for path in paths], base


def nfc(parts: Parts) -> list[str]:
    return [unicodedata.normalize("NFC", part) for part in parts]


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


def time_in(text: str) -> datetime | None:
    """A platform's time: nbgrader's in UTC, others by local clock."""
    if when := parse_timestamp(text.encode()):
        return when
    text = re.sub(r" (\d{3}) (?=[AP]M)", r" 0\1 ", text.replace(".", ""))
    for form in TIMES:
        with suppress(ValueError, OverflowError):
            return datetime.strptime(text, form).astimezone(timezone.utc)
    return None


def claim_called(key: str) -> Claim | None:
    """The claim with this key."""
    if (platform := platform_of(key)) is None:
        return None
    name, late = key[len(platform.name) + 1 :], None if platform.clock else False
    return Claim(names=(name,), user=name * platform.has_users, late=late, platform=platform)


def members_in(platform: Platform, data: bytes) -> dict[str, list[Claim]]:
    """{folder: who handed it in} of Gradescope's metadata; a group has several members."""
    found: dict[str, list[Claim]] = defaultdict(list)
    for folder, about in plain_keys(read_yaml(data)).items():
        about = plain_keys(about)
        when = time_in(re.sub(r"(\.\d{6})\d+", r"\1", str(about.get("created_at"))))
        people = about.get("submitters")
        for person in map(plain_keys, people if isinstance(people, list) else ()):
            texts = [person.get(key) for key in ("sid", "email", "name")]
            *sure, name = [text if isinstance(text, str) and text not in ("~", "null") else ""
                           for text in texts]  # fmt: skip
            if user := next(filter(None, (*sure, name)), ""):
                claim = Claim(tuple(sure), (name,), user, when=when, platform=platform)
                found[folder].append(claim)
    return found


def read_yaml(data: bytes) -> object:
    """YAML as tables, lists and texts; ValueError where it is broken, large, deep, or refers to
    itself."""
    if len(data) > MOST_YAML:
        raise ValueError(f"{len(data):,} bytes, more than the {MOST_YAML:,} that are read")
    text, depth = data.decode("utf-8-sig", "replace"), 0
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        for event in yaml.parse(text, loader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST_YAML or getattr(event, "anchor", None):
                raise ValueError("too deep, or it refers to itself")
        return yaml.load(text, loader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def plain_keys(table: object) -> dict[str, object]:
    """Ruby's `:name` is `name`."""
    return {str(k).lstrip(":"): v for k, v in table.items()} if isinstance(table, dict) else {}
