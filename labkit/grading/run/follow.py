"""Bring a graded class in line with course.toml as it is now; nothing is judged again."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from pathlib import Path

from labkit.author.owned_cells import set_points
from labkit.course.files import write_whole
from labkit.course.lang import tr
from labkit.course.syllabus import LABS, Lab
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook.rows import apply_late_penalties, apply_rules
from labkit.grading.nbgrader.graded_notebook import file_content, read_content, show_verdicts
from labkit.grading.nbgrader.submitted import Remark
from labkit.grading.nbgrader.timestamp import stamp_marked
from labkit.grading.run.results import Results


def apply_course_rules(course: Course, lab: Lab) -> None:
    """Write points, deadlines, excuses and penalties into the gradebook and the notebooks.

    The notebooks come last: if this is interrupted, the next run repeats it.
    """
    rules, late = course.rules.of(lab), course.late
    results = Results(course.root, lab).of_class() or {}
    graded = {learner: found.worth(rules.lab) for learner, found in results.items() if found}
    parts = (*rules.lab.exercises, *rules.lab.questions)
    wanted = {part.grade_cell: part.points for part in parts}
    shown = {learner: points_in(course.autograded(lab, learner)) for learner in graded}
    changed = {
        (learner, name)
        for learner, points in shown.items()
        for name in points.keys() & wanted.keys()
        if points[name] != wanted[name]
    }
    times = stamp_marked(course.root, lab.name, course.due_dates().get(lab.name))
    early = [learner for learner, stamp in times.items() if stamp.now > stamp.file]
    if early:
        text = "marked LATE, which counts, but before the deadline by the times of their files"
        course.remarks.append(Remark(f"{text}: {', '.join(sorted(early))}"))
    course.gradebook.do(lambda book: apply_rules(book, late, rules, graded, changed, times))
    for learner in sorted({learner for learner, _ in changed}):
        path = course.autograded(lab, learner)
        if notebook := read_content(path):
            set_points(notebook, rules.lab)
            show_verdicts(notebook, graded[learner])
            write_whole(path, file_content(notebook))
    share_late_days(course, lab)
    known = {person.id for person in course.people()}
    folders = {path.name for path in (course.root / "submitted").glob("*")}
    for stranger in sorted(course.rules.learners - known - folders):
        text = tr(
            "course.toml names {stranger!r}, whom nobody knows: an id?", stranger=stranger
        )
        course.remarks.append(Remark(text))


def share_late_days(course: Course, changed: Lab) -> None:
    """Renew the penalties of the other labs, which share the late days with this one."""
    if not course.rules.late_days:
        return
    for lab in LABS:
        if lab is not changed and Results(course.root, lab).keys():
            rules, late = course.rules.of(lab), course.late
            course.gradebook.do(partial(apply_late_penalties, late=late, rules=rules))
            course.feedback(lab)


def points_in(path: Path) -> dict[str, float]:
    """Return {grade cell: points} of a graded notebook; empty if it cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        cells = json.loads(path.read_bytes())["cells"]
        marks = [cell["metadata"].get("nbgrader", {}) for cell in cells]
        return {mark["grade_id"]: mark["points"] for mark in marks if "points" in mark}
    return {}
