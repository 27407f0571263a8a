"""Whose is a file? By the layouts of the platforms, and what a platform puts beside them."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

import yaml

from labkit.course.syllabus import LABS, NOTEBOOKS, Lab
from labkit.grading.nbgrader.gradebook.connection import CourseError
from labkit.grading.nbgrader.timestamp import parse_timestamp
from labkit.grading.platforms import WRAPPER, Layout, Platform, all_layouts, platform_of

Parts = tuple[str, ...]
ARCHIVE = re.compile(r"(?:\.(?:zip|tar|gz|tgz))+$", re.IGNORECASE)


BY_MODULE = {lab.module: lab for lab in LABS}
# rmsnorm.py, as platforms name it: ann_12_34_rmsnorm-1.py
MODULE = re.compile(rf"(?:^|[^a-zA-Z])({'|'.join(BY_MODULE)})(?:-\d+)?\.py$")
GIVEN = {"solutions", "backups", "tests"}  # folders of a project with modules that are not it
ASIDE = {"given", "backups"}  # and with notebooks


@dataclass(frozen=True)
class Claim:
    """What a path says of its learner.

    names    to be looked up in a roster, in this order
    user     the platform's number for the person; empty where it has none
    number   of the file: later ones are larger; 0 where the platform does not count
    late     the platform's own mark, or False where no time is known; None: the time decides
    when     the platform's own time, in UTC
    platform what it was named by; None where a person said it
    """

    names: Parts
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
    platform, layout = layout_of(certain or texts)
    found = [layout.match(text) if layout else None for text in texts]
    slugs = Counter(match["slug"] for match in found if match and "slug" in match.groupdict())
    slug = max(slugs, key=lambda slug: (slugs[slug], -len(slug))) if slugs else None
    return [claim(platform, match, slug) if match else None for match in found], base


def layout_of(texts: Sequence[str]) -> tuple[Platform | None, Layout | None]:
    """The first layout that fits most of what lies side by side in a source; but before it one
    that fits all of it and that no learner can leave."""
    entries: dict[str, list[str]] = defaultdict(list)
    for text in texts:
        entries[text.partition("/")[0]].append(text)
    layouts = [*all_layouts()]
    marked = [(platform, layout) for platform, layout in layouts
              if layout.mark and all(layout.mark in text for text in texts)]  # fmt: skip
    found = []
    for platform, layout in marked or layouts:
        count = sum(all(map(layout.match, inside)) for inside in entries.values())
        is_whole = count == len(entries)
        if is_whole or (2 * count > len(entries) and not layout.whole):
            found.append((not (is_whole and layout.first), len(found), platform, layout))
    return min(found, default=(0, 0, None, None))[2:]


def claim(platform: Platform, match: re.Match[str], slug: str | None) -> Claim | None:
    groups = match.groupdict()
    user, late = groups.get("user") or "", None if platform.clock else False
    if slug is not None:  # clones of one assignment begin with the same words
        name = match.string.partition("/")[0]
        if not name.startswith(slug) or name == slug:
            return None
        user = name[len(slug) :]
    if "late" in groups:
        late = bool(groups["late"])
    when = parse_timestamp(groups["time"].encode()) if "time" in groups else None
    name = ARCHIVE.sub("", groups.get("who", user) or "").strip()
    return Claim((name,), user, int(groups.get("file") or 0), late, when, platform)


def claim_called(key: str) -> Claim | None:
    """The claim with this key."""
    if (platform := platform_of(key)) is None:
        return None
    name, late = key[len(platform.name) + 1 :], None if platform.clock else False
    return Claim((name,), name * platform.has_users, late=late, platform=platform)


def members_in(platform: Platform, data: bytes) -> dict[str, list[Claim]]:
    """{folder: who handed it in} of Gradescope's metadata; a group has several members."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        table = yaml.load(data.decode("utf-8-sig", "replace"), loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise CourseError(f"{platform.metadata} cannot be read: {error}") from error
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
                person = Claim(tuple(names[::-1]), user, when=when, platform=platform)
                found[str(folder)].append(person)
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


def lab_of_module(parts: Parts) -> Lab | None:
    """The lab of which a file may be a learner's module of `tinyllm`."""
    found = None if GIVEN & {*parts[:-1]} else MODULE.search(parts[-1])
    return BY_MODULE[found[1]] if found else None


def rank(parts: Parts) -> int:
    """Of notebooks in one project, those of the highest rank count: what `tinyllm submit`
    wrote, then what a learner works in, then what they were given or had before."""
    folders = {*parts[1:-1]}
    return 2 if "submissions" in parts[:-1] else int(not folders & ASIDE)


def lab_pattern(lab: Lab) -> str:
    """A pattern for 01_rmsnorm, and 1-rmsnorm."""
    return rf"(?<!\d)0?{int(lab.number)}[ _-]{lab.module}(?![a-z])"
