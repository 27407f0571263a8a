"""CSV tables as learning platforms write them: any encoding and delimiter, and Moodle's grading
worksheet with titles in any language, known by the order and kind of its columns."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from pathlib import Path

from labkit.course.files import write_whole
from labkit.course.report import csv_safe
from labkit.grading.nbgrader.gradebook.connection import CourseError

PLAIN = re.compile(r"[\w.@+-]*")  # an id that spreadsheets do not change
NUMBER = re.compile(r"\d+([.,]\d+)?")
# A word and a number, in any language: `Participant 8060`, `Teilnehmer/in8060`, no id
PARTICIPANT = re.compile(r"(?=.*[^A-Za-z0-9_.@+#-])\D+\d+")
Row = dict[str, str]


@dataclass
class Table:
    """A CSV as rows of {title: text}; `written`: {title: its form in the file}."""

    titles: list[str]
    rows: list[Row]
    delimiter: str = ","
    written: Row = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, what: str = "the table") -> Table:
        """Read a table. Errors: CourseError if it cannot be read."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise CourseError(f"{what} {path} cannot be read: {error.strerror}") from error
        encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:  # as older versions of Excel write it
            text = data.decode("cp1252", "replace")
        delimiter = max(",;\t", key=text.partition("\n")[0].count)
        try:
            titles, *lines = [*csv.reader(io.StringIO(text, None), delimiter=delimiter)] or [[]]
        except csv.Error as error:
            raise CourseError(f"{what} {path} cannot be read: {error}") from error
        titles = [title.strip() for title in titles]
        rows = [dict(zip_longest(titles, map(str.strip, line[: len(titles)]), fillvalue=""))
                for line in lines]  # fmt: skip
        table = cls(titles, [row for row in rows if any(row.values())], delimiter)
        table.rename(moodle_titles(table))
        return table

    def column(self, title: str) -> list[str]:
        return [row[title] for row in self.rows]

    def rename(self, new: Row) -> None:
        self.written = {name: title for title, name in new.items()}
        self.titles = [new.get(title, title) for title in self.titles]
        self.rows = [{new.get(k, k): text for k, text in row.items()} for row in self.rows]

    def write(self, path: Path) -> None:
        """Ids stay unchanged; other texts are made safe from being read as formulas."""
        head = [self.written.get(title, title) for title in self.titles]
        lines = [head, *([row.get(title, "") for title in self.titles] for row in self.rows)]
        safe = [[x if PLAIN.fullmatch(x) else csv_safe(x) for x in line] for line in lines]
        text = io.StringIO()
        csv.writer(text, delimiter=self.delimiter).writerows(safe)
        write_whole(path, text.getvalue().encode("utf-8-sig"))


def moodle_titles(table: Table) -> Row:
    """Return {title: Moodle's English one} for a grading worksheet, by place and kind of
    columns: `Participant 8060`, the name, perhaps an id and an e-mail address, grade, most
    points."""
    titles = table.titles
    is_worksheet = len(titles) > 2 and table.rows
    if not is_worksheet or not all(map(PARTICIPANT.fullmatch, table.column(titles[0]))):
        return {}
    new = {titles[0]: "Identifier", titles[1]: "Full name"}
    for title in titles[2:4]:
        cells = table.column(title)
        is_email = any(cells) and all("@" in text for text in filter(None, cells))
        is_id = len({*cells}) == len(cells) and all(re.fullmatch(r"[\w.-]+", c) for c in cells)
        name = "Email address" if is_email else "ID number"
        if (is_email or is_id) and name not in (*titles, *new.values()):
            new[title] = name
    for before, title in pairwise(titles[2:]):
        most = set(table.column(title))
        if len(most) == 1 and NUMBER.fullmatch(*most):
            grade = {before: "Grade", title: "Maximum Grade"}
            new = {k: name for k, name in new.items() if name not in grade.values()} | grade
    return new
