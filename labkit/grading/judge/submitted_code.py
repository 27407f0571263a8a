"""The package under test for one exercise: the reference, with the learner's cell in it."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from labkit.author.reference import reference_block
from labkit.checks.package import compose, exercise_at, reference_modules
from labkit.course import cells
from labkit.course.lang import tr
from labkit.course.syllabus import Exercise, Lab
from labkit.sandbox.inside import banned


def packages_of(lab: Lab) -> dict[str, dict[str, str]]:
    """Return {exercise id: the package that it is laid over}: the reference up to this lab.

    The exercise and later ones are stubs: no worker ever holds a reference that is still to
    be graded.
    """
    package, packages = compose(reference_modules(), {}, lab), {}
    for exercise in reversed(lab.exercises):
        stub = cells.stub(reference_block(lab, exercise), exercise)
        package = packages[exercise.id] = compose(package, {exercise.id: stub})
    return packages


def submitted_code(
    package: Mapping[str, str], lab: Lab, exercise: Exercise, answers: Mapping[str, str | None]
) -> SubmittedCode:
    """One exercise's answer laid over the package that `packages_of` has for it.

    Earlier exercises are the reference's. A later one that the answer uses is the learner's
    own, too, as its reference must stay secret until it is graded.
    """
    module, laid, new = package[lab.module], [], [exercise]
    later = lab.exercises[lab.exercises.index(exercise) + 1 :]
    while new:
        laid.append(answered := new.pop())
        answer = answers[answered.id] or ""
        module = cells.with_block(module, answered, answer)
        used = cells.used_names(cells.parsed(cells.without_tools(answer)) or ast.Module([], []))
        new += [
            each for each in later
            if each not in (*laid, *new) and answers.get(each.id) and used & {*each.symbols}
        ]  # fmt: skip
    return SubmittedCode(exercise, module, tuple(each.id for each in laid))


@dataclass(frozen=True)
class SubmittedCode:
    """A lab's module with one exercise answered by the learner.

    laid    the ids of all exercises in it that are the learner's own: this one, and later ones
    """

    exercise: Exercise
    module: str
    laid: tuple[str, ...]

    @property
    def block(self) -> str:
        return cells.block(self.module, self.exercise.id) or ""

    @property
    def with_imports(self) -> str:
        """The learner's part, below the imports of the module."""
        return f"{cells.split(self.module)[0][1]}\n{self.block}"

    @property
    def readable(self) -> str:
        """The module's text with every line blank that is not the learner's."""
        return "".join(
            text if key in self.laid else "\n" * text.count("\n")
            for key, text in cells.split(self.module)
        )

    def refusal(self, not_allowed: Sequence[str]) -> str:
        """Return the forbidden name in the learner's parts, and its place; "" if there is
        none."""
        part = self.with_imports
        is_alone = len(self.laid) == 1 and cells.parsed(part) is not None
        if is_alone and banned.found_in(part, not_allowed) is None:
            return ""  # the module is longer
        found = banned.found_in(self.module, not_allowed)
        if found is None:
            return ""
        home, line = exercise_at(self.module, found[1])
        where = tr("line {found}: ", found=line) if home == self.exercise.id else ""
        return (where or tr("in another cell: ")) + banned.message(found[0], tr)
