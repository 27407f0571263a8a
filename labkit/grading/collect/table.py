"""What became of each file: the table of a run, on the screen and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from labkit.core.report import csv_safe, one_line
from labkit.core.syllabus import LABS
from labkit.grading.collect.unsettled import Unsettled
from labkit.lang import ntr, said, tr

NEW, SAME, NEWER = said("new"), said("unchanged"), said("replaces the one before")
EARLIER, OLDER = said("earlier attempt, kept"), said("older than what is there, kept")
UNKNOWN, AMBIGUOUS = said("unknown name, kept"), said("whose? kept")
REFUSED, SKIPPED, UNGRADED = said("refused"), said("skipped"), said("cannot be graded")
TROUBLE = (OLDER, UNKNOWN, AMBIGUOUS, REFUSED, UNGRADED)
ALL_SHOWN = 60  # lines of the table; of longer ones only the remarkable are shown
LONG_NAME = 24  # a longer one is broken


@dataclass(frozen=True)
class Line:
    """One line of the table: what became of one file.

    how    what said whose it is
    """

    source: str
    state: str
    learner: str = ""
    lab: str = ""
    when: datetime | None = None
    note: str = ""
    how: str = ""

    @staticmethod
    def of(one: Unsettled) -> Line:
        """An earlier run's."""
        state = UNGRADED if one.known else UNKNOWN
        return Line(one.file, state, one.learner, one.lab, note=one.reason)

    @property
    def what(self) -> str:
        return tr(self.state) + (tr(": ") + tr(self.note) if self.note else "")

    @property
    def time(self) -> str:
        return f"{self.when:%Y-%m-%d %H:%M:%S}" if self.when else ""


def write_log(path: Path, lines: list[Line]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(
            ["learner", "name from", "lab", "handed in (UTC)", "what", "note", "file"]
        )
        for line in lines:
            texts = (line.learner, line.how, line.lab, line.time, line.state, line.note,
                     line.source)  # fmt: skip
            table.writerow(map(csv_safe, texts))


def show(lines: list[Line], unsettled: list[Unsettled], console: Console) -> None:
    """The table of what came from whom; of a long one the remarkable lines. What needs a look
    comes last, that of earlier runs before that of this one."""
    fine = [line for line in lines if line.state not in TROUBLE]
    if len(lines) > ALL_SHOWN:
        fine = [line for line in fine if line.note and line.state != SKIPPED]
    print_table(tr("Collected"), fine[: 4 * ALL_SHOWN], console)
    for lab in LABS:
        states = [line.state for line in lines if line.lab == lab.name]
        counts = {state: states.count(state) for state in (NEW, NEWER, SAME)}
        told = tr(", ").join(
            tr("{count} {state}", count=count, state=tr(state))
            for state, count in counts.items()
            if count
        )
        if told:
            console.print(lab.name + tr(": ") + told, highlight=False)
    trouble = [line for line in lines if line.state in TROUBLE]
    now = {(line.lab, line.source) for line in trouble}
    before = [one for one in unsettled if (one.lab, one.file) not in now]
    print_list(tr("Still needs a look, from earlier"), map(Line.of, before), console)
    print_list(tr("Needs a look"), trouble, console)
    if before:
        place = "collected/needs_a_look.json"
        console.print(
            tr("{count} from earlier: {place}", count=len(before), place=place), style="yellow"
        )
    if trouble:
        text = ntr(
            "{n} of {count} files needs a look",
            "{n} of {count} files need a look",
            len(trouble),
            count=len(lines),
        )
        console.print(text, style="yellow")


def print_list(title: str, lines: Iterable[Line], console: Console) -> None:
    parts = [(f"  {one.learner or '?'} {one.lab}", one.what, one.source) for one in lines]
    texts = map(tr(": ").join, parts)
    for text in [title + tr(": ").rstrip(), *texts] if parts else ():
        console.print(Text(one_line(text)), soft_wrap=True)


def print_table(title: str, lines: list[Line], console: Console) -> None:
    if not lines:
        return
    table = Table(title=title, title_justify="left")
    whole = max(len(line.learner) for line in lines) <= LONG_NAME
    headings = {
        tr("who"): whole,
        tr("lab, time (UTC)"): True,
        tr("what"): False,
        tr("file, name from"): False,
    }
    for heading, no_wrap in headings.items():
        table.add_column(heading, overflow="fold", no_wrap=no_wrap)
    for line in lines:
        cells = ([line.learner], [line.lab, line.time[:-3]], [line.what],
                 [line.source, line.how])  # fmt: skip
        texts = ("\n".join(map(one_line, cell)) for cell in cells)
        table.add_row(*map(Text, texts))  # no markup of theirs
    console.print(table)
