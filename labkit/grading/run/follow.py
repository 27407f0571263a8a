"""A graded class in line with its course.toml as it is now; nothing is judged for that."""

from __future__ import annotations

import json
from pathlib import Path

from labkit.author.owned_cells import set_points
from labkit.core.files import write_whole
from labkit.core.syllabus import Lab
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook.rows import ask_about, follow
from labkit.grading.nbgrader.graded_notebook import file_content, read_content, show_verdicts
from labkit.grading.run.results import Results
from labkit.lang import tr


def follow_rules(course: Course, lab: Lab) -> None:
    """Points, deadlines, excuses and penalties into the gradebook and the graded notebooks.

    The notebooks go last: should this stop in between, the same happens once more.
    """
    rules, late = course.rules.of(lab), course.late
    results = Results(course.root, lab).readable()
    graded = {learner: found.worth(rules.lab) for learner, found in results.items()}
    parts = (*rules.lab.exercises, *rules.lab.questions)
    wanted = {part.grade_cell: part.points for part in parts}
    shown = {learner: points_in(course.autograded(lab, learner)) for learner in graded}
    changed = {
        (learner, name)
        for learner, points in shown.items()
        for name in points.keys() & wanted.keys()
        if points[name] != wanted[name]
    }
    course.gradebook.do(lambda book: follow(book, late, rules, graded, changed))
    for learner in sorted({learner for learner, _ in changed}):
        path = course.autograded(lab, learner)
        notebook = read_content(path)
        if notebook:
            set_points(notebook, rules.lab)
            show_verdicts(notebook, graded[learner])
            write_whole(path, file_content(notebook))
    known = {person.id for person in course.people()}
    folders = {path.name for path in (course.root / "submitted").glob("*")}
    for stranger in sorted(course.rules.learners - known - folders):
        course.remarks.append(
            tr("course.toml names {stranger!r}, whom nobody knows: an id?", stranger=stranger)
        )


def ask_a_person(course: Course, lab: Lab, learner: str) -> None:
    """What nbgrader's own command does not know: about which exercises a person is asked."""
    results = Results(course.root, lab)
    key = results.keys().get(learner)
    found = results.get(key) if key else None
    if found:
        rules = course.rules.of(lab)
        course.gradebook.do(lambda book: ask_about(book, rules, learner, found))


def points_in(path: Path) -> dict[str, float]:
    """{grade cell: points} of a graded notebook; nothing where there is none to be read."""
    try:
        cells = json.loads(path.read_bytes())["cells"]
        marks = [cell["metadata"].get("nbgrader", {}) for cell in cells]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return {each["grade_id"]: each["points"] for each in marks if "points" in each}
