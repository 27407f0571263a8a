"""What a learner reads: right first, then the first thing wrong, why, and the next step.

The same layout as text and as HTML, readable without colour.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from html import escape

from labkit.checks import Result

CODE = re.compile(r"`([^`<>]+)`")
WIDTH = 76
MOST_LOOKS = 4
CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


@dataclass
class Report:
    """One exercise's verdict. rows are (label, text); labels: ok, look, why, note, next."""

    heading: str
    verdict: str
    rows: list[tuple[str, str]] = field(default_factory=list)
    passed: bool = False

    def __str__(self) -> str:
        gap = max(2, WIDTH - len(self.heading) - len(self.verdict))
        lines = [f"{self.heading}{' ' * gap}{self.verdict}"]
        lines += [f"  {label:<5} {wrap(text)}" for label, text in self.rows]
        return clean("\n".join(lines))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return self.html()

    def html(self) -> str:
        """A table without scripts or outside resources; colours that work on light and dark."""
        mark = "#0072b2" if self.passed else "#d55e00"
        cell = "text-align:left;vertical-align:top;padding:2px 12px 2px 8px"
        rows = "".join(
            f'<tr><th scope="row" style="{cell};font-weight:600">{escape(label)}</th>'
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
    """Text that cannot repaint a terminal: no control, zero-width or direction characters."""
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def wrap(text: str) -> str:
    """Fold a long row under its own first word."""
    lines = []
    for paragraph in text.split("\n"):
        lines += textwrap.wrap(paragraph, WIDTH - 8, break_long_words=False) or [""]
    return ("\n" + " " * 8).join(lines)


def learner_report(
    result: Result, why: list[str], notes: list[str], next_step: str, earlier: str = ""
) -> Report:
    """The report under a check cell: only the first thing wrong."""
    heading = f"Exercise {result.exercise.id}  {result.exercise.title}"
    if result.broken:
        rows = [("look", f"the check itself failed, not you: {result.broken}")]
        return Report(heading, "not checked", [*rows, ("next", "please report this")])
    if result.interrupted:
        rows = [
            ("look", "the check was interrupted"),
            ("next", "look for a loop that never ends"),
        ]
        return Report(heading, "not checked", rows)
    rows = [("ok", " | ".join(held(result)))] if held(result) else []
    if result.passed:
        rows += [("note", note) for note in notes]
        return Report(heading, "passed", [*rows, ("next", next_step)], passed=True)
    failure = result.first_failure
    assert failure is not None and failure.difference is not None
    rows.append(("look", f"{failure.title}: {failure.difference.look}"))
    rows += because(why)
    return Report(heading, "not yet", [*rows, ("next", next_step)])


def because(why: list[str]) -> list[tuple[str, str]]:
    """The row of causes; empty if no known mistake fits."""
    if not why:
        return []
    return [("why", "this is what comes out when " + ", or when ".join(why))]


def held(result: Result) -> list[str]:
    """What is right: titles of passed checks, then what held in the first failed one."""
    titles = list(dict.fromkeys(check.title for check in result.checks if check.passed))
    failure = result.first_failure
    facts = failure.difference.held if failure and failure.difference else []
    skipped = [f"{check.title}: not checked" for check in result.checks if check.passed is None]
    return titles + facts + skipped


def graded_report(result: Result, why: list[str], notes: list[str], intake: str = "") -> Report:
    """The report in a graded notebook: every check, but no number of the reference."""
    heading = f"Exercise {result.exercise.id}  {result.exercise.title}"
    verdict = f"{result.score:g} of {result.exercise.points} points"
    rows = [("look", intake)] if intake else []
    if result.broken:
        rows.append(("look", "the check itself failed: a person has to look at this"))
    failed = {check.title for check in result.checks if check.passed is False}
    passed = dict.fromkeys(c.title for c in result.checks if c.passed and c.title not in failed)
    rows += [("ok", title) for title in passed]
    looks, told = [], set[str]()  # no check twice, and no fault
    for check in result.checks:
        if check.passed is False and check.difference:
            look = check.difference.secret or check.difference.look
            if not told & {check.title, look}:
                looks.append(f"{check.title}: {look}")
            told |= {check.title, look}
    rows += [("look", look) for look in looks[:MOST_LOOKS]]
    if len(looks) > MOST_LOOKS:
        rows.append(("look", f"and {len(looks) - MOST_LOOKS} more"))
    rows += because(why)
    rows += [("note", note) for note in notes]
    return Report(heading, verdict, rows, passed=result.passed)
