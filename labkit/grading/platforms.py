"""The learning platforms, one record each.

A new platform, or one more way to name files, is a record or a layout here, and a row in
LAYOUTS of tests/course/grading/test_collect.py. Platforms are data and not classes, so that
one is added without code; the price is a record with many fields, most of them empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from labkit.course.lang import said
from labkit.course.syllabus import NOTEBOOKS

LAB = "|".join(lab.name for lab in NOTEBOOKS)
MODULE = "|".join(lab.module for lab in NOTEBOOKS)
LAB_SLUG = rf"(?:\d\d[-_])?(?:{MODULE})[-_]"
SLUG = rf"(?:(?:lab|hw|homework|assignment|tinyllm)[-_]?\d*[-_](?:{LAB_SLUG})?|{LAB_SLUG})"
FOLDER = "folder"  # a folder for each learner, of no platform
ATTEMPT = r"(?P<id>[^_/]+)_attempt_(?P<time>\d{4}(?:-\d\d){5})(?:_|\.txt)"
# A folder that all hand-ins of an export share
WRAPPER = re.compile(r"submitted|submissions|inbound|assignment_\d+_export|abgaben|"
                     r"multi_feedback[^/]*|submitted files", re.IGNORECASE)  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """The names of files in a platform's export.

    pattern    matches the start of a file's path. Groups: `id` is a login or student number,
               which no learner chooses; `name` a name that learners may choose; `who` either,
               or an e-mail address, as a teacher names a folder; `user` the platform's internal
               number for a person, looked up as `PLATFORM NUMBER`; `file` a number
               that grows with each file, `late` a mark, `time` a time, `slug`
               what all hand-ins begin with
    whole      it is used only if it fits every learner
    first      if it fits all of a source, it is preferred: a learner cannot remove the text
               that the platform puts before a name
    mark       if every file name has it, no other layout is tried
    """

    pattern: str
    whole: bool = False
    first: bool = False
    mark: str = ""

    def match(self, path: str) -> re.Match[str] | None:
        return re.match(self.pattern, path, re.IGNORECASE)


@dataclass(frozen=True)
class Platform:
    """The data that we read from a platform and write for it.

    layouts       see Layout; the first that fits, of all platforms, is used
    timed         whether the latest of a learner's notebooks counts; else a person is asked
    clock         whether the time of a file is when it was handed in; else nobody is late
    one_number    whether a person has the same number in all labs
    metadata      the file beside its folders that says who handed in
    test_student  its name for a learner who does not exist

    table         its name for its own table of people
    needs         titles that identify this table, `A|B` for alternatives; the first column is
                  filled in every row of a person
    columns       {field of nbgrader's students, or `name`: titles}, the most certain first
    users         titles, there or in any roster, of the column with `user` of its layouts

    column        pattern of the titles of the columns for grades; "" if it takes none
    new           title of a new column, {0} is the lab's number; "" if the table is of one
                  assignment, with one column
    titles        the columns that are exported with the grades; by default all
    last          title of the column that stays behind all others
    possible_row  its text in the column of names, in the row with the possible points
    possible      title of the column with the possible points
    upload        pattern of the name of a file or folder, for feedback; "" if it takes none
    page          the name of a feedback page in a zip: {0} is the first group of `upload`
    """

    name: str
    layouts: tuple[Layout, ...] = ()
    timed: bool = True
    clock: bool = True
    one_number: bool = False
    metadata: str = ""
    test_student: str = ""
    table: str = ""
    needs: tuple[str, ...] = ()
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    users: tuple[str, ...] = ()
    column: str = ""
    new: str = ""
    titles: tuple[str, ...] = ()
    last: str = ""
    possible_row: str = ""
    possible: str = ""
    upload: str = ""
    page: str = ""

    def lacks(self, titles: Iterable[str]) -> list[str]:
        """Return the titles that are needed and missing."""
        return [need for need in self.needs if not {*need.split("|")} & {*titles}]

    @property
    def has_users(self) -> bool:
        """Whether its file names identify a person by more than a name."""
        return any(re.search("<user>|<id>", layout.pattern) for layout in self.layouts)


PLATFORMS = (
    Platform(
        "Moodle",
        # John Doe_12345_assignsubmission_file_/x.ipynb, or ..._assignsubmission_file_x.ipynb
        layouts=(Layout(r"(?!.*_assignsubmission_.*_assignsubmission_)(?P<name>[^/]*)_"
                        r"(?P<user>\d+)_assignsubmission_(?:file|onlinetext)",
                        first=True, mark="_assignsubmission_"),),
        table=said("grading worksheet"),
        needs=("Identifier", "Full name"),
        columns={"id": ("ID number",), "email": ("Email address",), "name": ("Full name",)},
        users=("Identifier",),
        column="Grade",
        possible="Maximum Grade",
        upload=r"(.+_\d+_assignsubmission_file_?).*",
        page="{0}/{lab}.html",
    ),
    Platform(
        "Canvas",
        # doejohn_LATE_12345_67890_x.ipynb
        layouts=(Layout(r"(?P<name>[^_/]*)_(?:(?P<late>late)_)?(?P<user>\d{3,})_"
                        r"(?P<file>\d{3,18})_", first=True),),
        one_number=True,
        test_student="Student, Test",
        table=said("gradebook export"),
        needs=("ID", "Student", "Section|SIS Login ID|SIS User ID"),
        columns={"lms_user_id": ("ID",), "id": ("SIS Login ID", "SIS User ID", "ID"),
                 "name": ("Student",)},
        column=r".+ \(\d+\)",
        new="Lab {0}",
        titles=("Student", "ID", "SIS User ID", "SIS Login ID", "Section"),
        possible_row="Points Possible",
        upload=r"(.+_\d+_\d+_.+)\.\w+",
        page="{0}.html",
    ),
    Platform(
        "Brightspace",
        # 150000-567890 - Ann Lee - Dec 1, 2026 530 PM/x.ipynb, or ... PM - x.ipynb
        layouts=(Layout(r"(?P<user>\d+)-\d+ - (?P<name>[^/]+?) ?- (?P<time>\w+\.? \d+, \d{4} "
                        r"\d{3,4} [AP]M)(?: - |/)", first=True),),
        table=said("grades export"),
        needs=("OrgDefinedId",),
        columns={"id": ("OrgDefinedId", "Username"), "email": ("Email",)},
        column=r".+ Points Grade\b.*",
        new="Lab {0} Points Grade",
        last="End-of-Line Indicator",
    ),
    Platform(
        "Blackboard",
        # Lab 1_ann7_attempt_2026-03-01-12-00-00_x.ipynb
        layouts=(Layout(rf"(?P<slug>[^/_]+_){ATTEMPT}", first=True),
                 Layout(rf"(?P<slug>[^/]+_){ATTEMPT}", whole=True, first=True)),
        one_number=True,
        table=said("grade center export"),
        needs=("Username", "Availability|Last Access"),
        columns={"id": ("Username",)},
        users=("Username",),
    ),
    Platform(
        "ILIAS",
        # Lab 1/Abgaben/Lee_Ann_ann7_1234/x.ipynb
        layouts=(Layout(r"(?=(?:[^/_]*_){3})(?P<name>[^/]+)_(?P<user>\d+)/", first=True),),
        one_number=True,
    ),
    Platform(
        "Microsoft Teams",
        # Submitted files/Ann Lee/Lab 1/Version 2/x.ipynb
        layouts=(Layout(r"(?P<name>[^/]+)/[^/]+/(?:Version|版本) ?(?P<file>\d{1,9})/",
                        first=True),),
    ),
    Platform(
        "Gradescope",
        # submission_12345/x.ipynb
        layouts=(Layout(r"submission_(?P<user>\d+)/"),),
        metadata="submission_metadata.yml",
    ),
    Platform(
        "GitHub Classroom",
        # lab1-octocat/notebooks/01_rmsnorm.ipynb
        layouts=(Layout(rf"(?P<slug>{SLUG})(?P<user>[\w.-]+)/"),),
        timed=False,
        clock=False,
        table=said("roster"),
        needs=("identifier", "github_username"),
        columns={"id": ("identifier",)},
        users=("github_username", "github username", "github"),
    ),
    Platform(
        "Google Classroom",
        # x - Ann Lee.ipynb
        layouts=(Layout(r"[^/]* - (?P<name>[^/]+?)(?: ?\(\d+\))?\.\w+(?=/|$)", whole=True),),
        timed=False,
        clock=False,
        table=said("grades export"),
        needs=("Last Name", "First Name", "Email Address"),
    ),
    Platform(
        "nbgrader",
        # ann+01_rmsnorm+2026-03-01 12:00:00 UTC+0a1b2c/01_rmsnorm.ipynb
        layouts=(Layout(rf"(?P<who>[^+/]+)\+(?:{LAB})\+(?P<time>[^+/]+)(?:\+[^/]*)?/"),),
    ),
    Platform(
        FOLDER,
        # ann/x.ipynb
        layouts=(Layout(rf"(?!(?:{WRAPPER.pattern}|notebooks|{LAB})/)(?P<who>[^/]+)/"),),
        timed=False,
    ),
)  # fmt: skip


def all_layouts() -> Iterator[tuple[Platform, Layout]]:
    return ((platform, layout) for platform in PLATFORMS for layout in platform.layouts)


def platform_of(key: str) -> Platform | None:
    """Return the platform of `PLATFORM NUMBER`; None for any other text."""
    fits = [platform for platform in PLATFORMS if key.startswith(f"{platform.name} ")]
    return max(fits, key=lambda platform: len(platform.name), default=None)


def takes_grades() -> dict[str, Platform]:
    """Return {argument of `tinyllm export`: platform}."""
    return {platform.name.lower(): platform for platform in PLATFORMS if platform.column}


def names_of(platforms: Iterable[Platform]) -> str:
    *names, last = (platform.name for platform in platforms)
    return f"{', '.join(names)} and {last}" if names else last


def read_platforms() -> list[Platform]:
    """Return the platforms whose exports `tinyllm collect` reads."""
    return [platform for platform in PLATFORMS if platform.layouts and platform.name != FOLDER]
