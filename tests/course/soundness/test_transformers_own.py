"""The code of transformers, in the course's signatures, earns all points.

The course follows Qwen3's own code: if that does what an exercise asks, no check may take
points off. transformers_own/X.py holds such answers to lab X, in blocks as in
solutions/variants/X.py. The judge bans transformers, so the checks run in this process.
"""

from functools import cache
from pathlib import Path

import pytest

from labkit.author.reference import reference
from labkit.checks.declared import prepared_checks
from labkit.checks.diagnose import Diagnosis
from labkit.checks.messages import graded_report
from labkit.checks.mistakes import Oracle
from labkit.checks.runner import run_checks
from labkit.course import cells
from labkit.course.syllabus import LABS
from labkit.learner.check import SEED
from labkit.sandbox.inside.perform import perform

OWN = Path(__file__).parent / "transformers_own"
RUNS = [("visible", SEED), ("hidden", "one seed"), ("hidden", "another seed")]


def own(lab):
    """[(exercise, block)] of the answers that transformers' code gives to a lab."""
    path = OWN / f"{lab.module}.py"
    found = cells.split(path.read_text()) if path.exists() else []
    return [(lab.exercise(key), block) for key, block in found if key]


def blocks():
    for lab in LABS:
        for exercise, block in own(lab):
            title = block.split("\n")[0].split(": ")[1]
            yield pytest.param(lab, exercise, block, id=f"{exercise.id} {title}")


oracle_of = cache(Oracle)


@pytest.mark.full
@pytest.mark.parametrize(("lab", "exercise", "block"), blocks())
def test_transformers_own_code_earns_everything(lab, exercise, block):
    source = cells.with_block(cells.plain(reference(lab)), exercise, block)
    namespace = {"__name__": f"solutions.{lab.module}", "__package__": "solutions"}
    exec(compile(source, f"{exercise.id} of transformers", "exec"), namespace)
    for folder, seed in RUNS:
        result = run_checks(
            exercise,
            prepared_checks(folder, lab.module, exercise, seed),
            lambda call: perform(call, namespace),
            oracle_of(lab).reference,
        )
        report = f"{folder}, {seed}:\n{graded_report(result, Diagnosis())}"
        assert result.passed and result.score == exercise.points, report


def test_every_file_is_that_of_a_lab_and_holds_something():
    files = {path.stem for path in OWN.glob("*.py")}
    assert files == {lab.module for lab in LABS if own(lab)}
