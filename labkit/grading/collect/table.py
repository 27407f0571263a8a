"""What became of each file: the table of a run, on the screen and as CSV."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from labkit.core.report import clean, csv_safe
from labkit.core.syllabus import LABS

NEW, SAME, NEWER = "new", "unchanged", "replaces the one before"
EARLIER, OLDER = "earlier attempt, kept", "older than what is there, kept"
UNKNOWN, AMBIGUOUS, REFUSED, SKIPPED = "unknown name, kept", "whose? kept", "refused", "skipped"
TROUBLE = (OLDER, UNKNOWN, AMBIGUOUS, REFUSED)
ALL_SHOWN = 60  # lines of the table; of longer ones only the remarkable are shown


@dataclass(frozen=True)
class Line:
    """One line of the table: what became of one file."""

    source: str
    state: str
    learner: str = ""
    lab: str = ""
    when: datetime | None = None
    note: str = ""

    @property
    def time(self) -> str:
        return f"{self.when:%Y-%m-%d %H:%M:%S}" if self.when else ""


def write_log(path: Path, lines: list[Line]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["learner", "lab", "handed in (UTC)", "what", "note", "file"])
        for line in lines:
            texts = (line.learner, line.lab, line.time, line.state, line.note, line.source)
            table.writerow(map(csv_safe, texts))


def show(lines: list[Line], console: Console) -> None:
    """The table of what came from whom; of a long one the remarkable lines."""
    short = len(lines) > ALL_SHOWN
    shown = [line for line in lines if not short or line.state not in (NEW, SAME) or line.note]
    table = Table(title="Collected", title_justify="left")
    for heading in ("who", "lab", "handed in (UTC)", "what", "file"):
        table.add_column(heading, overflow="fold")
    for line in shown[: 4 * ALL_SHOWN]:
        state = f"{line.state}: {line.note}" if line.note else line.state
        texts = (line.learner, line.lab, line.time[:-3], state, line.source)
        table.add_row(*(Text(clean(text)) for text in texts))  # no markup of theirs
    if shown:
        console.print(table)
    for lab in LABS:
        states = [line.state for line in lines if line.lab == lab.name]
        counts = {state: states.count(state) for state in (NEW, NEWER, SAME)}
        said = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        if said:
            console.print(f"{lab.name}: {said}", highlight=False)
    trouble = sum(line.state in TROUBLE for line in lines)
    if trouble:
        verb = "needs" if trouble == 1 else "need"
        console.print(f"{trouble} of {len(lines)} files {verb} a look", style="yellow")
