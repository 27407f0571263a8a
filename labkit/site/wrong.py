"""The gallery of wrong answers: frequent mistakes, each with the check's own report, made with
the site."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import unified_diff
from itertools import zip_longest

from labkit.author.reference import reference, reference_block
from labkit.checks.diagnose import sentence_of
from labkit.checks.mistakes import Mistake, mistakes_of
from labkit.course import cells
from labkit.course.lang import ENGLISH, language, tr
from labkit.course.report import Report
from labkit.course.syllabus import Lab
from labkit.learner import hints, workspace
from labkit.learner.check import check_exercise

MOST = 5  # wrong answers per lab


@dataclass(frozen=True)
class WrongAnswer:
    """A mistake, and the report on it."""

    mistake: Mistake
    report: Report

    @property
    def title(self) -> str:
        """The name of the mistake as words, in English."""
        if language() == ENGLISH:
            return self.mistake.name.replace("-", " ")
        return sentence_of(self.mistake.versions[0])

    @property
    def edit(self) -> str:
        """The difference from the reference, as a diff."""
        mistake = self.mistake
        right = cells.plain(reference_block(mistake.lab, mistake.exercise))
        lines = unified_diff(right.split("\n"), mistake.cell.split("\n"), lineterm="", n=1)
        return "\n".join(line for line in list(lines)[2:] if not line.startswith("@@"))


def gallery(lab: Lab) -> list[WrongAnswer]:
    """The lab's wrong answers, the first listed ones of each exercise, and check each."""
    mistakes = mistakes_of(lab) if lab.exercises else []
    return [WrongAnswer(mistake, report_on(mistake)) for mistake in chosen(mistakes)]


def chosen(mistakes: Sequence[Mistake]) -> list[Mistake]:
    """Yield one mistake of each exercise, then a second one of each, until there are enough."""
    by_exercise: dict[str, list[Mistake]] = {}
    for mistake in mistakes:
        if not mistake.sentence.startswith("two things"):
            by_exercise.setdefault(mistake.exercise.id, []).append(mistake)
    rows = zip_longest(*by_exercise.values())
    found = [mistake for row in rows for mistake in row if mistake]
    return sorted(found[:MOST], key=mistakes.index)


def report_on(mistake: Mistake) -> Report:
    """Return the report of check() in a package that is finished except for this mistake."""
    lab, exercise = mistake.lab, mistake.exercise
    module = cells.with_block(cells.plain(reference(lab)), exercise, mistake.cell)
    ask, last = f'hint("{exercise.id}")', hints.last_rung(exercise)
    hint = tr("{ask} shows rung {rung} of {count}", ask=ask, rung=1, count=last)
    with workspace.override_source(lab, module):
        report, _ = check_exercise(lab, exercise, hint)
    return report
