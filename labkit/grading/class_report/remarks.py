"""Remarks: the things in a graded lab that a person should look at."""

from __future__ import annotations

from collections.abc import Iterable

from labkit.grading.class_report.class_results import Entry, LabResults
from labkit.grading.nbgrader.submitted import Remark


def change_line(results: LabResults) -> str:
    """Return the number of grades that changed, as a sentence; "" if none did."""
    changes = [entry.change for entry in results.entries if entry.change]
    if not changes:
        return ""
    since = " and ".join(sorted({change.since for change in changes}))
    fell = sum(change.fell for change in changes) or "none"
    text = f"{len(changes)} grade{'s' * (len(changes) != 1)} changed since {since}, {fell} fell"
    return f'{text} (column "before")'


def remarks_on(entry: Entry, remarks: Iterable[Remark] = ()) -> list[str]:
    """Return remarks for a person: those of grading on this learner's work, files that could
    not be graded, ways around a ban."""
    doubtful = doubts(entry) if entry.submission else []
    about = [remark.text for remark in remarks if remark.learner == entry.learner]
    first = filter(None, [entry.fell, entry.ungraded, entry.unsettled])
    return list(dict.fromkeys([*first, *doubtful, *about]))


def doubts(entry: Entry) -> list[str]:
    """Verdicts that a person should look at, until they have given points."""
    if entry.submission.problem:
        return [entry.submission.problem]
    grades = entry.standing.exercises
    is_open = {key: not grade.overridden or grade.stale for key, grade in grades.items()}
    found = [e for e in entry.submission.exercises if is_open.get(e.id, True)]
    return [f"exercise {e.id}: {e.reason}" for e in found if e.needs_person] + [
        f"exercise {e.id} uses {e.doubtful}, which no exercise needs: have a look"
        for e in found
        if e.doubtful and e.score
    ]
