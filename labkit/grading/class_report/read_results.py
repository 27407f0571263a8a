"""The class of a lab, from stored results, gradebook, roster and the questions of collect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from labkit.course.lang import tr
from labkit.course.syllabus import Lab
from labkit.grading.class_report.class_results import Entry, LabResults
from labkit.grading.collect.issues import OpenIssues
from labkit.grading.course_rules import LabRules
from labkit.grading.judge.graded import BROKE_OFF, GradedSubmission, common_layers
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook.connection import RosterEntry
from labkit.grading.nbgrader.published import Published
from labkit.grading.nbgrader.standings import Standing, empty_standing
from labkit.grading.run.results import Results


def results_of(course: Course, lab: Lab) -> LabResults | None:
    """Return the records, points and people of a lab; None if it was not graded."""
    found = Results(course.root, lab).of_class()
    if found is None:
        return None
    submissions = {learner: submission for learner, submission in found.items() if submission}
    ungraded = dict.fromkeys(found.keys() - submissions.keys(), tr(BROKE_OFF))
    ungraded |= OpenIssues(course.root).of_lab(lab.name)
    people, missing = course.people(), [*course.without_notebook(lab), *ungraded]
    keys, published = Results(course.root, lab).keys(), Published(course.root, lab.name)
    rules, standings = course.rules.of(lab), course.standings(lab)
    results = join_class(rules, submissions, standings, people, missing)
    results.left = [e.learner for e in results.entries if e.learner in course.rules.left]
    results.entries = [e for e in results.entries if e.learner not in course.rules.left]
    questions = {issue.learner: issue.reason for issue in OpenIssues(course.root).open()
                 if issue.lab == lab.name and issue.known and issue.sha}  # fmt: skip
    for entry in results.without_grade:
        entry.ungraded = ungraded.get(entry.learner, "")
    for entry in results.handed:
        entry.unsettled = questions.get(entry.learner, "")
    for entry in results.entries:
        entry.key = keys.get(entry.learner) or ""
        entry.change = published.change(entry.learner, entry.grade)
    return results


def remember_grades(course: Course, results: LabResults) -> Published:
    """Record the grades that a run leaves behind."""
    published = Published(course.root, results.lab.name)
    published.remember({entry.learner: entry.grade for entry in results.entries})
    return published


def join_class(
    rules: LabRules,
    submissions: Mapping[str, GradedSubmission],
    standings: Mapping[str, Standing],
    people: Iterable[RosterEntry],
    missing: Iterable[str],
) -> LabResults:
    """Return the class: learners who handed in, are in the gradebook, or are missing."""
    names = {person.id: person.name for person in people}
    entries = []
    for learner in sorted({*submissions, *names, *missing}, key=str.casefold):
        standing, submission = empty_standing(rules, learner), submissions.get(learner)
        if submission:
            submission = submission.worth(rules.lab)
            standing = standings.get(learner, standing)
        entries.append(Entry(learner, standing, names.get(learner, ""), submission))
    return LabResults(rules.counted, entries, common_layers(submissions.values()))
