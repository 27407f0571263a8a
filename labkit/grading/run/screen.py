"""The screen after grading: 24 lines at most, for any class.

The points and reasons of each learner are in the CSV and on the page, whose paths come last.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from labkit.course.report import one_line
from labkit.grading.class_report.class_results import LabResults, causes
from labkit.grading.class_report.remarks import change_line, remarks_on
from labkit.grading.nbgrader.course import Course

MISTAKES = 4  # mistakes that are printed
LOOKS = 3  # learners who need a look that are printed
REMARKS = 2  # remarks on the course as a whole


def print_screen(
    results: LabResults, course: Course, written: Sequence[Path], console: Console
) -> None:
    """Print totals, common mistakes, learners who need a look, and paths of the rest."""
    lines = total_lines(results) + [change_line(results)] * bool(change_line(results))
    if found := causes([results]):
        lines += ["", "Commonest reasons for lost points"]
        lines += [
            f"{len(c.learners):>5}  {c.exercise.id}  {c.reason}" for c in found[:MISTAKES]
        ]
    lines += look_lines(results, course)
    if results.layers:
        is_open = "bubblewrap" not in results.layers
        warning = "NO SANDBOX: do not grade strangers like this; " * is_open
        lines.append(f"sandbox   {warning}{', '.join(results.layers)}")
    for line in lines:
        print_line(console, line)
    pages = [*written, course.root / "feedback"]
    places = {
        "table": relative_path(course.root / f"{results.lab.name}.csv"),
        "pages": ", ".join(map(relative_path, pages)),
        "gradebook": course.gradebook.shown,
    }
    for name, shown in places.items():
        console.print(f"{name:<9} {shown}", markup=False, highlight=False, soft_wrap=True)


def print_line(console: Console, text: str) -> None:
    """Print one line, cut at the screen's edge: names and reasons may be of any length."""
    line = Text(one_line(text))
    if text and not text.startswith(" "):
        line.stylize("bold", 0, len(text.partition(":")[0]))
    console.print(line, no_wrap=True, overflow="ellipsis", crop=True)


def total_lines(results: LabResults) -> list[str]:
    """Return lines with numbers of graded and other learners, points, open questions."""
    late = sum(bool(entry.standing.late_penalty) for entry in results.handed)
    counts = {
        "not gradable": len(results.not_gradable),
        "without a file of theirs": len(results.missing),
        "excused": len(results.excused),
        "left the course": len(results.left),
        "late": late,
    }
    head = f"{results.lab.name}: {len(results.handed)} graded, median {results.median:g} of "
    head += f"{results.possible:g} points by checks, {results.full} with all of them"
    shown = [f"{count} {what}" for what, count in counts.items() if count]
    lines = [head, *[f"  {', '.join(shown)}"] * bool(shown)]
    wait = f"  {results.waiting} written answers wait for a person: "
    wait += "formgrader, or `tinyllm export written`"
    return lines + [wait] * bool(results.waiting)


def look_lines(results: LabResults, course: Course) -> list[str]:
    """Remarks by learner, a line for each of the first, and those on the whole course."""
    by_learner = {
        entry.learner: texts
        for entry in sorted(results.entries, key=lambda entry: not entry.fell)
        if (texts := remarks_on(entry, course.remarks))
    }
    rest = dict.fromkeys(x for x in course.remarks if x.learner not in by_learner)
    general = [*map(str, rest)]
    lines, many = [], len(by_learner)
    if by_learner:
        lines += ["", f"Needs a look: {many} learner{'s' * (many != 1)}"]
        for learner, texts in list(by_learner.items())[:LOOKS]:
            more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
            lines.append(f"  {learner}: {texts[0]}{more}")
        if many > LOOKS:
            lines.append(f'  and {many - LOOKS} more: column "look at" of the table')
    if len(general) > REMARKS:
        rest = len(general) - REMARKS + 1
        general[REMARKS - 1 :] = [f"{rest} more remarks: look at the pages"]
    return lines + general


def relative_path(path: Path) -> str:
    """Return the path as typed from the current folder."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
