"""The learning platforms that grades and feedback go back to: one record each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Platform:
    """How a platform's table of grades looks, and how it names what was handed in.

    name          as `tinyllm export NAME` has it
    table         what its own table of people is called there
    keys          (title, field): what tells whose a row is, the most certain first
    needs         titles by which its own table is known; the first has something in it in
                  every row of a person
    grade         title of the column that is filled in its own table; "" for a new or
                  numbered column for each lab, "Lab 01: norms (9911)"
    titles        the columns that go back beside the grades; by default all
    possible_row  what stands first in the row with the points that can be had
    possible      title of the column with the points that can be had
    upload        pattern of the name that its export gives to a file or folder
    page          the name of a feedback page in a zip that it hands back: {0} is the first
                  group of `upload`
    """

    name: str
    table: str
    keys: tuple[tuple[str, str], ...]
    needs: tuple[str, ...]
    grade: str = ""
    titles: tuple[str, ...] = ()
    possible_row: str = ""
    possible: str = ""
    upload: str = ""
    page: str = ""

    @property
    def title(self) -> str:
        return self.name.capitalize()


PLATFORMS = (
    Platform(
        name="canvas",
        table="gradebook export",
        keys=(("ID", "lms_user_id"), ("SIS Login ID", "id"), ("SIS User ID", "id"),
              ("ID", "id"), ("Student", "name")),
        needs=("ID", "Student"),
        titles=("Student", "ID", "SIS User ID", "SIS Login ID", "Section"),
        possible_row="Points Possible",
        upload=r"(.+_\d+_\d+_.+)\.\w+",
        page="{0}.html",
    ),
    Platform(
        name="moodle",
        table="grading worksheet",
        keys=(("Email address", "email"), ("ID number", "id"), ("Email address", "id"),
              ("Full name", "name")),
        needs=("Identifier", "Grade"),
        grade="Grade",
        possible="Maximum Grade",
        upload=r"(.+_\d+_assignsubmission_file_?).*",
        page="{0}/{lab}.html",
    ),
)  # fmt: skip
