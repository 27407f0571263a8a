"""Whose notebook is it, and of which lab? What file names, folders and cells tell."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from labkit.core.answers import answers_in, cell_name
from labkit.core.syllabus import LABS, Lab
from labkit.grading.collect.archives import Parts
from labkit.grading.judge.intake import NotANotebook, cells_of, text_of

# doejohn_LATE_12345_67890_01_rmsnorm-1.ipynb
CANVAS = re.compile(r"(?P<who>[^_]+)_(?:(?P<late>late)_)?(?P<user>\d{3,})_(?P<file>\d{3,})_"
                    r"(?P<rest>.+)", re.IGNORECASE)  # fmt: skip
# John Doe_12345_assignsubmission_file_/01_rmsnorm.ipynb, or without the folder
MOODLE = re.compile(r"(?P<who>.+?)_(?P<user>\d+)_assignsubmission_file(?:_(?P<rest>.*))?")
AGAIN = re.compile(r"(?:\s*\((?P<a>\d+)\)|-(?P<b>\d+)|-copy(?P<c>\d*))$", re.IGNORECASE)
GENERIC = {"submitted", "submissions", "submission", "notebooks", "notebook", "tinyllm",
           "export", "downloads", "course", "files", "autograded", "release"}  # fmt: skip


@dataclass(frozen=True)
class Identity:
    """What a path says of its learner: names to try, in order; an LMS's numbers and marks."""

    names: tuple[str, ...]
    user: str = ""  # the LMS's number of the learner
    number: int = 0  # the LMS's number of the file: later files have larger ones
    attempt: int = 0
    late: bool | None = None  # None: nothing says so
    system: str = ""  # Canvas, Moodle, nbgrader

    @property
    def shown(self) -> str:
        return self.names[0] if self.names else "?"


NOBODY = Identity(())


# Labs


def lab_of(parts: Parts, data: bytes) -> Lab | None:
    """By the file's name, else by its folders' names, else by the cells."""
    for part in reversed(parts):
        named = labs_named(part)
        if len(named) == 1:
            return named[0]
    return lab_by_cells(data)


def labs_named(text: str) -> list[Lab]:
    """Labs that a name mentions: by their full names if there are any, else by their words."""
    folded = text.casefold()
    whole = [lab for lab in LABS if re.search(full_name(lab), folded)]
    return whole or [lab for lab in LABS if re.search(short_name(lab), folded)]


def full_name(lab: Lab) -> str:
    """A pattern for 01_rmsnorm."""
    return rf"(?<!\d){lab.number}[ _-]{lab.module}(?![a-z])"


def short_name(lab: Lab) -> str:
    """A pattern for rmsnorm, lab1, lab 01."""
    number = rf"lab[ _-]?0?{int(lab.number)}(?!\d)"
    return rf"(?<![a-z])(?:{lab.module}(?![a-z])|{number})"


def lab_by_cells(data: bytes) -> Lab | None:
    """The lab to which most of the notebook's marked cells belong."""
    try:
        cells = cells_of(data)
    except NotANotebook:
        return None
    votes: Counter[Lab] = Counter()
    for cell in cells:
        text, name = text_of(cell), cell_name(cell)
        votes.update(lab for lab in LABS if answers_in(text, name, lab) or name in lab.cells)
    return votes.most_common(1)[0][0] if votes else None


# Learners


def without_suffix(name: str) -> str:
    return re.sub(
        r"\.(ipynb|zip)$", "", unicodedata.normalize("NFC", name), flags=re.IGNORECASE
    )


def attempt_of(stem: str) -> tuple[str, int]:
    """A name without `-1`, ` (2)`, `-Copy1`, and that number."""
    found = AGAIN.search(stem)
    if not found:
        return stem, 0
    return stem[: found.start()], int(found["a"] or found["b"] or found["c"] or 1)


def leftover(stem: str, lab: Lab) -> str:
    """What a name says beside the lab's name: `anna` of `01_rmsnorm - anna-1`."""
    text = attempt_of(stem)[0]
    for word in (full_name(lab), short_name(lab)):
        text, found = re.subn(word, " ", text, flags=re.IGNORECASE)
        if found:
            break
    return attempt_of(re.sub(r"^[\s_.,-]+|[\s_.,-]+$", "", text))[0]


def who_in(parts: Parts, lab: Lab, shared: bool = False) -> Identity | None:
    """The learner that a path names.

    shared   its folder holds the notebooks of several learners
    """
    names = [without_suffix(part) for part in parts]
    attempt = attempt_of(names[-1])[1]
    for name in names:
        found = CANVAS.fullmatch(name)
        if found:
            return Identity((found["who"],), found["user"], int(found["file"][:18]), attempt,
                       bool(found["late"]), "Canvas")  # fmt: skip
        found = MOODLE.fullmatch(name)
        if found:
            return Identity((found["who"].strip(),), found["user"], 0, attempt, None, "Moodle")
    if len(parts) >= 3 and parts[-2] == lab.name and parts[-1] == f"{lab.name}.ipynb":
        return Identity((names[-3],), system="nbgrader")
    folders = [name for name in names[:-1] if names_a_person(name, lab)]
    stem = leftover(names[-1], lab)
    found = ([stem] if stem and (shared or not folders) else []) + folders + [stem] * bool(stem)
    return Identity(tuple(dict.fromkeys(found)), attempt=attempt) if found else None


def names_a_person(folder: str, lab: Lab) -> bool:
    return bool(leftover(folder, lab)) and folder.casefold() not in GENERIC


def shared_folders(found: Iterable[tuple[Parts, Lab]]) -> set[tuple[Parts, str]]:
    """(folder, lab) with notebooks of one lab by several learners, one name for each."""
    stems: dict[tuple[Parts, str], set[str]] = defaultdict(set)
    for parts, lab in found:
        stems[parts[:-1], lab.name].add(squeezed(leftover(without_suffix(parts[-1]), lab)))
    return {place for place, names in stems.items() if len(names) > 1 and "" not in names}


def squeezed(text: str) -> str:
    """Letters and digits alone, without case and accents: how names are compared."""
    plain = unicodedata.normalize("NFKD", text).casefold()
    return "".join(letter for letter in plain if letter.isalnum())
