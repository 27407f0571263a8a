"""A report to a learner: what is right, the first fault, its cause, and the next step.

The layout is the same as text and as HTML, and readable without color.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from enum import Enum
from html import escape

from rich.cells import cell_len

from labkit.course.lang import tr
from labkit.course.lang.layout import pad, wrap_text

CODE = re.compile(r"`([^`<>]+)`")
WIDTH = 76
LABEL = 5  # columns of a row's label, at the least
# Characters that move the cursor, turn the direction, or cannot be seen.
CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e0fff]"
)
FORMULA = tuple("=+-@\t\r")
MARKS_ON_A_LETTER = 3


class Status(Enum):
    """The state of an exercise. Code depends on this and never on the words of a report."""

    PASSED = "passed"
    NOT_YET = "not yet"
    NOT_STARTED = "not started"
    NOT_CHECKED = "not checked"  # the check itself failed, or was interrupted
    HELP = "help"  # no verdict at all: a hint


LABELS = (
    *("ok", "look", "why", "note", "next", "was", "said", "open", "write"),
    *("idea", "shape", "near-code"),
)
MARKS = {
    Status.PASSED: "#009e73",
    Status.HELP: "#0072b2",
}  # color-blind people see the difference


@dataclass
class Report:
    """The report on one exercise.

    rows       (label, text); the labels are those of LABELS
    verdict    at the right of the heading; by default the status
    """

    heading: str
    status: Status
    rows: list[tuple[str, str]] = field(default_factory=list)
    verdict: str = ""

    def __post_init__(self) -> None:
        self.verdict = self.verdict or tr(self.status.value)

    @property
    def passed(self) -> bool:
        return self.status is Status.PASSED

    def text(self, width: int = WIDTH) -> str:
        """Return the report as text, at most `width` columns wide."""
        heading = pad(f"{self.heading}  ", width - cell_len(self.verdict))
        lines = [f"{heading}{self.verdict}"]
        labels = [tr(label) for label, _ in self.rows]
        column = max([LABEL, *map(cell_len, labels)])
        lines += [
            f"  {pad(label, column)} {wrap(text, column + 3, width)}"
            for label, (_, text) in zip(labels, self.rows, strict=True)
        ]
        return clean("\n".join(lines))

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.html()

    def html(self) -> str:
        """A table without scripts or outside resources; colors that work on light and dark."""
        mark = MARKS.get(self.status, "#d55e00")
        cell = "text-align:left;vertical-align:top;padding:2px 12px 2px 8px"
        label_cell = f"{cell};font-weight:600;white-space:nowrap"
        rows = "".join(
            f'<tr><th scope="row" style="{label_cell}">{escape(tr(label))}</th>'
            f'<td style="{cell}">{marked_up(text)}</td></tr>'
            for label, text in self.rows
        )
        return (
            f'<div style="border-left:4px solid {mark};padding:4px 0 4px 8px;max-width:52em;'
            f'font-family:ui-monospace,monospace;font-size:90%">'
            f'<div style="display:flex;justify-content:space-between;padding:2px 8px">'
            f"<b>{escape(clean(self.heading))}</b><b>{escape(self.verdict)}</b></div>"
            f'<table style="border:none;margin:0">{rows}</table></div>'
        )


def marked_up(text: str) -> str:
    """Text as HTML: escaped, with `code` as code."""
    return CODE.sub(r"<code>\1</code>", escape(clean(text))).replace("\n", "<br>")


def clean(text: str) -> str:
    """Return text that cannot repaint a terminal: without control, invisible and direction
    characters, and with few marks on a letter."""
    text = CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
    if text.isascii():
        return text
    letters, tower = [], 0
    for letter in text:
        tower = tower + 1 if unicodedata.category(letter)[0] == "M" else 0
        if tower <= MARKS_ON_A_LETTER:
            letters.append(letter)
    return "".join(letters)


def one_line(text: str) -> str:
    """Return a clean text on one line."""
    return re.sub(r"[\t\n]", "\N{REPLACEMENT CHARACTER}", clean(text))


def clean_name(text: str) -> str:
    """Return a name on one line, without markup."""
    text = " ".join(re.sub(r'[<>&"]', "", text).split())
    return clean(CONTROL.sub("", text))


def csv_safe(text: str) -> str:
    """Return a clean text that no spreadsheet reads as a formula."""
    text = clean(text)
    begin = unicodedata.normalize("NFKC", text.lstrip()[:1])
    return "'" + text if begin.startswith(FORMULA) or text[:1] in FORMULA else text


def wrap(text: str, margin: int, width: int) -> str:
    """Fold a long row under its first word, which has a margin before it."""
    lines = []
    for paragraph in text.split("\n"):
        lines += wrap_text(paragraph, width - margin) or [""]
    return ("\n" + " " * margin).join(lines)
