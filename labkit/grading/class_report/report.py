"""The class reports: one HTML file a lab and one for the course, with plots inside, without
network or script; and the same numbers as CSV.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from labkit.core.files import write_whole
from labkit.core.report import clean, csv_safe, one_line
from labkit.core.syllabus import LABS, Lab
from labkit.grading.class_report.class_results import (
    NAMES,
    STATES,
    Entry,
    LabResults,
    by_learner,
    causes,
    remarks_on,
    results_of,
    state,
)
from labkit.grading.collect.issues import OpenIssues
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.standings import Standing, shown, signed, stale_text, total
from labkit.grading.run.results import UnreadableResult
from labkit.lang import language, ntr, said, tr

MISTAKES, OTHERS, HARDEST = 12, 8, 10


def write_reports(course: Course, only: Lab | None = None) -> list[Path]:
    """The reports of all graded labs (or one) and of the course; their paths.

    A lab whose results cannot be read is a remark: the others have their reports.
    """
    results = []
    for lab in LABS:
        try:
            found = results_of(course, lab)
        except UnreadableResult as error:
            course.remarks.append(
                tr("{name} is not in the reports: {error}", name=lab.name, error=error)
            )
            continue
        results += [found] if found else []
    written = []
    for one in results:
        if only is None or only.name == one.lab.name:
            course.remarks += [
                f"{one.lab.name}, {entry.learner}, {stale_text(grade)}"
                for entry, grade in one.stale
            ]
            write_csv(course.root / f"{one.lab.name}.csv", one, course.remarks)
            written.append(write_lab(course.root / f"{one.lab.name}.html", one))
    if results:
        write_course_csv(course.root / "class.csv", results)
        written.append(write_course(course.root / "class.html", results))
    return written


def write_lab(path: Path, results: LabResults) -> Path:
    """The page of a lab."""
    from labkit.grading.class_report import plots

    found, lab = causes([results]), results.lab
    feedback = {
        entry.learner: quote(f"feedback/{entry.learner}/{lab.name}/{lab.name}.html")
        for entry in results.handed
        if (path.parent / "feedback" / entry.learner / lab.name).exists()
    }
    return page(
        path,
        "class.html",
        results=results,
        lab=lab,
        figure=Markup(plots.of_lab(results)) if results.handed else "",
        mistakes=[cause for cause in found if cause.named][:MISTAKES],
        others=[cause for cause in found if not cause.named][:OTHERS],
        people=[
            (entry, entry.exercises[key])
            for entry in results.handed
            for key, grade in entry.standing.exercises.items()
            if grade.waiting
        ],
        stale=[(entry, stale_text(grade)) for entry, grade in results.stale],
        feedback=feedback,
        states=STATES,
    )


def write_course(path: Path, results: list[LabResults]) -> Path:
    """The page of all labs."""
    from labkit.grading.class_report import plots

    pairs = [(one, exercise) for one in results if one.handed for exercise in one.lab.exercises]
    hardest = sorted(pairs, key=lambda pair: pair[0].share(pair[1]))[:HARDEST]
    return page(
        path,
        "course.html",
        results=results,
        figure=Markup(plots.of_course(results)),
        hardest_figure=Markup(plots.hardest(hardest)) if hardest else "",
        mistakes=[cause for cause in causes(results) if cause.named][:MISTAKES],
        learners=in_sum(results),
        names=NAMES,
        unsettled=OpenIssues(path.parent).open(),
    )


def page(path: Path, template: str, **content: object) -> Path:
    loader = PackageLoader("labkit.grading", "templates")
    environment = Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {"tr": tr, "ntr": ntr, "said": said, "language": language}
    environment.filters["state"] = state
    environment.filters["each"] = lambda mapping: list(mapping.values())
    environment.filters |= {"points": shown, "signed": signed}
    html = environment.get_template(template).render(**content)
    write_whole(path, "\n".join(map(clean, html.split("\n"))))
    return path


# CSV


def write_csv(path: Path, results: LabResults, remarks: Iterable[str] = ()) -> Path:
    """One line a learner: points by exercise, how they add up to the total, what to look at."""
    ids = [exercise.id for exercise in results.lab.exercises]
    head = ["learner", "name", *ids, *ADDENDS, "look at", "why"]
    lines = [head]
    for entry in results.entries:
        line, standing = [csv_safe(entry.learner), csv_safe(entry.name)], entry.standing
        looks = [*map(stale_text, standing.stale), *remarks_on(entry, remarks)]
        look = csv_safe(one_line("; ".join(looks)))
        if entry.submission and not standing.excused:
            grades = [standing.exercises[key] for key in ids]
            line += ["excused" if each.excused else f"{each.points:g}" for each in grades]
            line += [f"{number:g}" for number in addends(standing)]
            line += [look, csv_safe(entry.why)]
        else:
            why = "excused" if standing.excused else entry.ungraded or tr("nothing handed in")
            blanks = [""] * (len(ids) + 6)
            line += [*blanks, f"{standing.possible:g}", "", look, csv_safe(why)]
        lines.append(line)
    return write_table(path, lines)


ADDENDS = ("automatic", "by hand", "written", "extra credit", "late penalty", "total", "of",
           "to be graded")  # fmt: skip


def addends(*standings: Standing) -> list[float]:
    """The numbers of a table, as ADDENDS names them: of one lab, or of several in sum."""
    rows = [
        (s.automatic, s.by_hand, s.written, s.extra, s.late_penalty, s.total, s.possible,
         s.to_be_graded)
        for s in standings
    ]  # fmt: skip
    return [total(column) for column in zip(*rows, strict=True)]


def write_course_csv(path: Path, results: list[LabResults]) -> Path:
    """One line a learner: the total of each lab, empty where nothing was handed in; sums."""
    labs = [one.lab.name for one in results]
    lines = [["learner", "name", *labs, *ADDENDS, "handed in"]]
    for learner, entries, sums in in_sum(results):
        name = next((entry.name for entry in entries.values() if entry.name), "")
        handed = sum(bool(entry.submission) for entry in entries.values())
        cells = [in_course(entries.get(lab)) for lab in labs]
        numbers = [f"{number:g}" for number in sums.values()]
        lines.append([csv_safe(learner), csv_safe(name), *cells, *numbers, str(handed)])
    return write_table(path, lines)


def in_sum(results: list[LabResults]) -> list[tuple[str, dict[str, Entry], dict[str, float]]]:
    """(learner, {lab: entry}, {name: its sum over the labs})"""
    found = []
    for learner, entries in by_learner(results):
        sums = addends(*(entry.standing for entry in entries.values()))
        found.append((learner, entries, dict(zip(ADDENDS, sums, strict=True))))
    return found


def in_course(entry: Entry | None) -> str:
    if entry is None or not entry.submission:
        return "excused" if entry and entry.standing.excused else ""
    return "excused" if entry.standing.excused else f"{entry.standing.total:g}"


def write_table(path: Path, lines: list[list[str]]) -> Path:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(lines)
    write_whole(path, text.getvalue().encode("utf-8-sig"))  # so that Excel reads names
    return path
