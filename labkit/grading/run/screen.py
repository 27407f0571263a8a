"""What an instructor reads in the terminal after grading: 24 lines at most, for any class.

The points and reasons of each learner are in the CSV and on the page, whose paths come last.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from labkit.core.report import one_line
from labkit.grading.class_report.class_results import Cause, LabResults, causes, remarks_on
from labkit.grading.nbgrader.course import Course

MISTAKES = 4  # the commonest that are printed
LOOKS = 3  # learners who need a look that are printed
REMARKS = 2  # on the course as a whole


def print_screen(
    results: LabResults, course: Course, written: Sequence[Path], console: Console
) -> None:
    """Print totals, the commonest mistakes, who needs a look, and the paths of the rest."""
    lines = [totals(results), *points(results)]
    found = causes([results])
    if found:
        lines += ["", "Commonest reasons for lost points"]
        for cause in found[:MISTAKES]:
            lines.append(f"{len(cause.learners):>5}  {described(cause)}")
    lines += looks(results, course)
    if results.layers:
        is_open = "bubblewrap" not in results.layers
        warning = "NO SANDBOX: do not grade strangers like this; " * is_open
        lines.append(f"sandbox   {warning}{', '.join(results.layers)}")
    for line in lines:
        print_line(console, line)
    places = {
        "table": nearby(course.root / f"{results.lab.name}.csv"),
        "pages": ", ".join(map(nearby, [*written, course.root / "feedback"])),
        "gradebook": course.gradebook.shown,
    }
    for name, shown in places.items():
        console.print(f"{name:<9} {shown}", markup=False, highlight=False, soft_wrap=True)


def print_brief(results: LabResults, console: Console) -> None:
    """A lab in two lines, for a run over many labs."""
    head = f"{results.lab.name}: {len(results.handed)} graded, median {results.median:g}"
    print_line(console, f"{head} of {results.possible:g} points; lost, for instance:")
    for cause in causes([results])[:1]:
        print_line(console, f"  {described(cause)}")


def described(cause: Cause) -> str:
    return f"{cause.exercise.id}  {cause.reason}"


def print_line(console: Console, text: str) -> None:
    """Print one line, cut at the screen's edge: names and reasons may be of any length."""
    line = Text(one_line(text))
    if text and not text.startswith(" "):
        line.stylize("bold", 0, len(text.partition(":")[0]))
    console.print(line, no_wrap=True, overflow="ellipsis", crop=True)


def totals(results: LabResults) -> str:
    """How many were graded, and how many were not."""
    failed = [entry for entry in results.missing if entry.ungraded]
    counts = {
        "graded": len(results.handed),
        "not gradable": len(failed),
        "handed in nothing": len(results.missing) - len(failed),
        "excused": len(results.excused),
    }
    shown = [f"{count} {what}" for what, count in counts.items() if count or what == "graded"]
    return f"{results.lab.name}: " + ", ".join(shown)


def points(results: LabResults) -> list[str]:
    """The points by checks, and what waits for a person."""
    standings = [entry.standing for entry in results.handed]
    late = sum(bool(standing.late_penalty) for standing in standings)
    lines = [f"  median {results.median:g} of {results.possible:g} points by checks, "
             f"{results.full} with all of them{f', {late} late' * bool(late)}"]  # fmt: skip
    waiting = sum(len(standing.waiting) for standing in standings)
    if waiting:
        lines.append(f"  {waiting} written answers wait for a person in formgrader")
    return lines


def looks(results: LabResults, course: Course) -> list[str]:
    """Remarks by learner, a line for each of the first, and those on the whole course."""
    by_learner = {
        entry.learner: found
        for entry in results.entries
        if (found := remarks_on(entry, course.remarks))
    }
    known = {f"{learner}: {text}" for learner, texts in by_learner.items() for text in texts}
    general = [text for text in dict.fromkeys(course.remarks) if text not in known]
    lines = []
    if by_learner:
        many = len(by_learner)
        lines += ["", f"Needs a look: {many} learner{'s' * (many != 1)}"]
        for learner, texts in [*by_learner.items()][:LOOKS]:
            more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
            lines.append(f"  {learner}: {texts[0]}{more}")
        if many > LOOKS:
            lines.append(f'  and {many - LOOKS} more: column "look at" of the table')
    if len(general) > REMARKS:
        general[REMARKS - 1 :] = [
            f"{len(general) - REMARKS + 1} more remarks: look at the pages"
        ]
    return lines + general


def nearby(path: Path) -> str:
    """The path as typed from the current folder."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
