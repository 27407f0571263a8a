"""The package under test for one exercise: the reference, with the learner's cell in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.author.reference import reference_block
from labkit.checks.package import compose, exercise_at, reference_modules
from labkit.course import cells
from labkit.course.lang import tr
from labkit.course.syllabus import Exercise, Lab
from labkit.sandbox.inside import banned


def packages_of(lab: Lab) -> dict[str, dict[str, str]]:
    """{exercise id: the package that it is laid over}: the reference up to this lab.

    The exercise and later ones are stubs: no worker ever holds a reference that is still to
    be graded.
    """
    package, packages = compose(reference_modules(), {}, lab), {}
    for exercise in reversed(lab.exercises):
        stub = cells.stub(reference_block(lab, exercise), exercise)
        package = packages[exercise.id] = compose(package, {exercise.id: stub})
    return packages


@dataclass(frozen=True)
class SubmittedCode:
    """A lab's module with one exercise answered by the learner, and all else the reference."""

    exercise: Exercise
    module: str

    @property
    def block(self) -> str:
        return cells.block(self.module, self.exercise.id) or ""

    @property
    def readable(self) -> str:
        """The module's text with every line blank that is not the learner's."""
        return "".join(
            text if key == self.exercise.id else "\n" * text.count("\n")
            for key, text in cells.split(self.module)
        )

    def refusal(self, not_allowed: Sequence[str]) -> str:
        """Which name that is not allowed the learner's part mentions, and where; "" if none."""
        part = f"{cells.split(self.module)[0][1]}\n{self.block}"  # with the module's imports
        if cells.parsed(part) is not None and banned.found_in(part, not_allowed) is None:
            return ""
        found = banned.found_in(self.module, not_allowed)
        if found is None:
            return ""
        home, line = exercise_at(self.module, found[1])
        where = tr("line {found}: ", found=line) if home == self.exercise.id else ""
        return (where or tr("in another cell: ")) + banned.message(found[0], tr)
