"""Whose is a file? What the LMS or the instructor made of its path tells.

From outside inwards: what holds several people (an export, a common folder, a lab's folder) is
gone through; the first part below that names somebody decides, and all that lies in it is
theirs, whatever it is called.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from labkit.core.syllabus import LABS, NOTEBOOKS, Lab
from labkit.grading.collect.archives import Parts
from labkit.grading.nbgrader.timestamp import parse_timestamp
from labkit.lang import tr

# doejohn_LATE_12345_67890_01_rmsnorm-1.ipynb
CANVAS = re.compile(r"(?P<who>[^_]+)_(?:(?P<late>late)_)?(?P<user>\d{3,})_(?P<file>\d{3,})_"
                    r"(?P<rest>.+)", re.IGNORECASE)  # fmt: skip
# John Doe_12345_assignsubmission_file_/01_rmsnorm.ipynb, or without the folder. The last number
# is Moodle's: what stands before it is a name, which people choose themselves.
MOODLE = re.compile(
    r"(?P<who>.+)_(?P<user>\d+)_assignsubmission_(?:file|onlinetext)(?:_(?P<rest>.*))?"
)
GRADESCOPE = re.compile(r"submission_(?P<user>\d+)")
# nbgrader's exchange: ann+01_rmsnorm+2026-03-01 12:00:00 UTC+0a1b2c
EXCHANGE = re.compile(r"(?P<who>[^+]+)\+[^+]+\+(?P<time>[^+]+)(?:\+.*)?")
AGAIN = re.compile(r"(?:(?<!\s)\s*\((?P<a>\d+)\)|-(?P<b>\d+)|-copy(?P<c>\d*))$", re.IGNORECASE)
ENDS = re.compile(
    r"(?:\.(?:ipynb|zip|tar|gz|tgz|py|json|txt|pdf|rar|7z|html?|docx?))+$", re.IGNORECASE
)
# s28, s017; not the numbers of assignments, groups, labs, questions, teams, versions, weeks
SHORT_ID = re.compile(r"(?![aghlqtvw]\d\d$|v)[a-z]\d{2,}", re.IGNORECASE)
ARCHIVES = re.compile(r"(?:\.(?:zip|tar|gz|tgz))+$", re.IGNORECASE)
# A clone of GitHub Classroom: lab1-bob, lab-01-rmsnorm-bob, 01_rmsnorm-bob, rmsnorm-bob
MODULES = "|".join(lab.module for lab in NOTEBOOKS)
CLONE = re.compile(r"(?:lab|hw|homework|assignment|exercise|tinyllm)(?:[-_]?\d+)?[-_]+",
                   re.IGNORECASE)  # fmt: skip
CLONE_LAB = re.compile(rf"(?:\d\d[-_])?(?:{MODULES})[-_]+", re.IGNORECASE)
# Words of which no name is made
GENERIC = frozenset(re.findall(r"\w+", """
    submitted submissions submission notebooks notebook tinyllm export exports downloads
    course files autograded release inbound homework hw assignment assignments exercise
    exercises lab labs solution solutions answer answers attempt version final old new
    copy draft backup late untitled my the of done project work code upload uploads zip
    class week group section tutorial team students all batch
"""))  # fmt: skip


@dataclass(frozen=True)
class Identity:
    """What a path says of its learner.

    names     to try, in order, the outermost first
    user      the LMS's number of the learner
    number    the LMS's number of the file: later files have larger ones
    how       what said so, for a person to read; `place`: which part of the path
    within    what else on the way to the file looks like a name; `stem`: what its own does
    doubt     why it may be somebody else's
    """

    names: tuple[str, ...]
    user: str = ""
    number: int = 0
    attempt: int = 0
    late: bool | None = None  # None: nothing says so
    system: str = ""  # Canvas, Moodle, Gradescope, nbgrader
    when: datetime | None = None
    how: str = ""
    place: Parts = ()
    within: Parts = ()
    stem: str = ""
    doubt: str = ""

    @property
    def shown(self) -> str:
        return self.names[0] if self.names else "?"

    @property
    def apart(self) -> str:
        """As `shown`, with the LMS's number, which tells namesakes apart."""
        return f"{self.shown}_{self.user}" if self.user and self.names else self.shown


NOBODY = Identity(())


# Labs


def lab_by_name(parts: Parts, wanted: Lab | None = None) -> Lab | None:
    """By the full name in the file's name, else in its folders'; else `wanted`; else by a short
    name, which may be somebody's own."""
    return named_lab(parts) or wanted or named_lab(parts, short_name)


def named_lab(parts: Parts, pattern: Callable[[Lab], str] | None = None) -> Lab | None:
    """The lab whose name stands in a file's name, else in those of its folders."""
    for part in reversed(parts):
        named = [lab for lab in NOTEBOOKS if re.search((pattern or full_name)(lab), part, re.I)]
        if len(named) == 1:
            return named[0]
    return None


def full_name(lab: Lab) -> str:
    """A pattern for 01_rmsnorm."""
    return rf"(?<!\d){lab.number}[ _-]{lab.module}(?![a-z])"


def short_name(lab: Lab) -> str:
    """A pattern for rmsnorm, lab1, lab 01."""
    number = rf"lab[ _-]?0?{int(lab.number)}(?!\d)"
    return rf"(?<![a-z])(?:{lab.module}(?![a-z])|{number})"


# Names


def without_suffix(name: str) -> str:
    return ENDS.sub("", unicodedata.normalize("NFC", name))


def attempt_of(stem: str) -> tuple[str, int]:
    """A name without `-1`, ` (2)`, `-Copy1`, and that number."""
    found = AGAIN.search(stem)
    if not found:
        return stem, 0
    return stem[: found.start()], int(found["a"] or found["b"] or found["c"] or 1)


def person(
    name: str, labs: Collection[Lab | None] = (), known: Collection[str] = frozenset()
) -> str:
    """What a name says beside a lab's: `anna` of `01_rmsnorm - anna-1.ipynb`; empty if nobody.

    labs    whose short names are looked for, too: another's may be a person's (Moe)
    known   squeezed names of the roster, which are names however they look
    """
    text = without_suffix(name)
    owner = clone_owner(text)
    if squeezed(text) in known or (owner and is_id(owner, known)):
        return text
    text = attempt_of(text)[0]
    patterns = [full_name(lab) for lab in NOTEBOOKS]
    patterns += [short_name(lab) for lab in (set(labs) - {None} or NOTEBOOKS)]
    for pattern in patterns:
        text = re.sub(pattern, " ", text, flags=re.IGNORECASE)
    text = attempt_of(re.sub(r"^[\s_.,-]+|(?<![\s_.,-])[\s_.,-]+$", "", text))[0]
    words = re.findall(r"[^\W\d_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text))
    telling = [word for word in words if len(word) > 1 or not word.isascii()]
    if {word.casefold() for word in telling} - GENERIC or re.fullmatch(r"\d{5,}", text):
        return text
    return text if is_id(text, known) else ""


def clone_owner(name: str) -> str:
    """What the name of a clone says after the assignment's; empty if it is none. Each piece is
    read once, from the left, so that no name takes long."""
    end = 0
    while found := CLONE.match(name, end):
        end = found.end()
    if found := CLONE_LAB.match(name, end):
        end = found.end()
    return name[end:] if end else ""


def is_id(text: str, known: Collection[str]) -> bool:
    """Whether it names somebody though it is no word."""
    return bool(SHORT_ID.fullmatch(text)) or squeezed(text) in known


def squeezed(text: str) -> str:
    """Letters and digits alone, without case and accents: how names are compared."""
    plain = unicodedata.normalize("NFKD", text).casefold()
    return "".join(letter for letter in plain if letter.isalnum())


def by_lms(name: str) -> Identity | None:
    """The learner that an LMS's name of a file or folder tells, with a number."""
    stem = without_suffix(name)
    attempt = attempt_of(stem)[1]
    if found := MOODLE.fullmatch(stem):
        who = (found["who"].strip(),)
        return Identity(who, found["user"], 0, attempt, None, "Moodle", how="Moodle's folder")
    if "_assignsubmission_" not in stem and (found := CANVAS.fullmatch(stem)):
        return Identity((found["who"],), found["user"], int(found["file"][:18]), attempt,
                        bool(found["late"]), "Canvas",
                        how=tr("Canvas's file name"))  # fmt: skip
    if found := GRADESCOPE.fullmatch(name):
        return Identity((name,), found["user"], system="Gradescope", how="Gradescope's folder")
    if found := EXCHANGE.fullmatch(name):
        when = parse_timestamp(found["time"].encode(errors="replace"))
        return Identity((found["who"],), system="nbgrader", when=when,
                        how="nbgrader's exchange")  # fmt: skip
    return None


# From outside inwards


@dataclass(frozen=True)
class Where:
    """Where a file lay: the parts that the instructor or the LMS made, those inside a learner's
    zip; its lab, if that is known; whether it can be read."""

    outer: Parts
    inner: Parts = ()
    lab: Lab | None = None
    readable: bool = True


class Sorter:
    """Says of each file of a source whose it is.

    root          the name of a zip that is the source; it counts where it names somebody and
                  what is in it at most one
    known         squeezed names of the roster
    containers    the folders that hold several people
    """

    def __init__(
        self, files: Sequence[Where], root: str = "", known: Collection[str] = frozenset()
    ):
        self.files, self.known = files, known
        self.who = [NOBODY] * len(files)
        self.containers: set[Parts] = set()
        if files:
            self._container(range(len(files)), ())
        if not self._root(root):
            self._nbgrader()

    def _root(self, root: str) -> bool:
        """Whether it names somebody; then what is in it is theirs."""
        labs = {one.lab for one in self.files if one.lab}
        outside = person(root, labs, self.known)
        if not outside or len({who.place for who in self.who if who.names}) > 1:
            return False
        for number, who in enumerate(self.who):
            same = squeezed(outside) in map(squeezed, who.names)
            if who.user or who.when or same:
                continue
            doubt = (
                tr(
                    "{outside}, the zip's name, or {shown}, {how}",
                    outside=outside,
                    shown=who.shown,
                    how=who.how,
                )
                if who.names
                else ""
            )
            self.who[number] = replace(who, names=(outside,), how=tr("the zip's name"),
                                       place=(root,), doubt=doubt)  # fmt: skip
        return True

    def _nbgrader(self) -> None:
        """Recognize nbgrader's folders, in which timestamp.txt counts: every learner of the
        source has NAME/LAB/, and NAME is no clone."""
        placed = [n for n, who in enumerate(self.who) if who.place]
        below = {n: self.files[n].outer[len(self.who[n].place) :]
                 for n in placed if not self.who[n].system}  # fmt: skip
        notebooks = {lab.name: (lab.name, f"{lab.name}.ipynb") for lab in NOTEBOOKS}
        inside = {n for n, parts in below.items() if parts[1:] and parts[0] in notebooks}
        inside |= {n for n in placed if self.who[n].system == "nbgrader"}
        if any(self.files[n].readable for n in set(placed) - inside):
            return
        for n, parts in below.items():
            counts = parts in notebooks.values() or not self.files[n].readable
            if counts and not clone_owner(self.who[n].place[-1]):
                self.who[n] = replace(self.who[n], system="nbgrader")

    def _container(self, numbers: Iterable[int], path: Parts) -> None:
        """Below `path` lie the files of several people."""
        self.containers.add(path)
        heads: dict[str, list[int]] = defaultdict(list)
        for number in numbers:
            heads[self.files[number].outer[len(path)]].append(number)
        lone = [head for head, those in heads.items() if self._counts((*path, head), those)]
        for head, those in heads.items():
            here, labs = (*path, head), {self.files[n].lab for n in those} - {None}
            leaf = min(len(self.files[n].outer) for n in those) == len(here)
            who, name = by_lms(head), person(head, labs, self.known)
            if who and leaf and who.system == "nbgrader":  # a file's own name sets no time
                who = replace(who, system="", when=None)
            if who and leaf and MOODLE.fullmatch(who.shown):  # of a folder the name is Moodle's
                doubt = tr("two names in Moodle's form, and either may be a file's own")
                self._place(those, replace(who, names=(), place=here, doubt=doubt))
            elif who:
                self._place(those, replace(who, place=here))
            elif leaf and name:
                how = (
                    tr("the zip's name")
                    if self.files[those[0]].inner
                    else tr("the file's name")
                )
                who = Identity((name,), how=how, place=(*path, squeezed(name)))
                self._place(those, who)
            elif not leaf and (not name or (lone == [head] and self._several(those, here))):
                self._container(those, here)
            elif not leaf:
                folder = ARCHIVES.sub("", unicodedata.normalize("NFC", head))
                owner = clone_owner(folder)
                named = any(re.search(full_name(lab), folder) for lab in LABS)
                names = (name if named else folder, *filter(None, [owner]))
                how = tr("the folder {folder}", folder=folder)
                self._place(those, Identity(names, how=how, place=here))

    def _counts(self, here: Parts, those: list[int]) -> bool:
        """Whether a part may name somebody: a file that cannot be read says nothing."""
        one = self.files[those[0]]
        if len(one.outer) > len(here) or by_lms(here[-1]):
            return True
        return one.readable and bool(person(here[-1], {one.lab}, self.known))

    def _several(self, those: list[int], path: Parts) -> bool:
        """Whether a folder holds the same lab of several people."""
        seen: dict[Lab | None, set[str]] = defaultdict(set)
        for one in (self.files[number] for number in those):
            for depth in range(len(path), len(one.outer)):
                part = one.outer[depth]
                who, leaf = by_lms(part), depth == len(one.outer) - 1
                name = who.apart if who else person(part, {one.lab}, self.known)
                if name and (who or not leaf or one.readable):
                    seen[one.lab].add(squeezed(name))
                    break
        unknown = seen.pop(None, set())
        return any(len(names | unknown) > 1 for names in [*seen.values(), set()])

    def _place(self, those: list[int], who: Identity) -> None:
        """All of these are this learner's; names further inside are never theirs, and are kept
        beside."""
        depth, own = len(who.place), {squeezed(name) for name in who.names}
        for number in those:
            one = self.files[number]
            *below, last = (*one.outer[depth:], *one.inner) or (one.outer[-1],)
            labs = {one.lab}
            below = below if one.readable else []  # nothing else is disputed
            names = [name for part in below if (name := person(part, labs, self.known))]
            stem = person(last, labs, self.known)
            self.who[number] = replace(
                who,
                attempt=attempt_of(without_suffix(last))[1],
                within=tuple(key for key in map(squeezed, names) if key not in own),
                stem=squeezed(stem) if squeezed(stem) not in own else "",
            )
