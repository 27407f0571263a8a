"""Proof that the checks are sound: stubs and mistakes fail, right answers pass."""

from functools import cache
from pathlib import Path

import pytest

from labkit.author.build import record_of
from labkit.author.mistakes import live_reference, mistakes_of
from labkit.author.reference import reference_block
from labkit.checks.diagnose import diagnose, remarks
from labkit.checks.reference import RecordedReference
from labkit.checks.runner import run_checks
from labkit.core import cells
from labkit.core.paths import SOLUTIONS
from labkit.core.syllabus import LABS, NOTEBOOKS
from labkit.grading.judge.intake import Intake
from labkit.learner.check import SEED
from labkit.sandboxed.call import perform

EXERCISES = [(lab, exercise) for lab in LABS for exercise in lab.exercises]
VARIANTS = SOLUTIONS / "variants"


def name_of(value):
    return getattr(value, "id", None) or getattr(value, "name", None) or str(value)[:40]


@cache  # to read one takes longer than to perform a mistake
def recorded(module):
    return RecordedReference(module)


def judged_at_once(lab, mistake):
    """The visible checks of a mistake in this process, and what they compared with."""
    oracle = recorded(lab.module)
    student = lambda call: perform(call, mistake.namespace)  # noqa: E731
    return run_checks(
        "visible", lab.module, mistake.exercise, student, oracle.reference, SEED
    ), oracle


def grade(judges, lab, exercise, answer):
    """The judge's verdict on one answer, in a confined process."""
    judge = judges[lab.name]
    return judge.grade_exercise(exercise, Intake(judge.released, {exercise.id: answer}))


def variants():
    for lab in LABS:
        text = (VARIANTS / f"{lab.module}.py").read_text()
        for exercise_id, block in cells.split(text):
            if exercise_id:
                title = block.split("\n")[0].split(": ")[1]
                yield pytest.param(
                    lab, lab.exercise(exercise_id), block, id=f"{exercise_id} {title}"
                )


@pytest.mark.parametrize(("lab", "exercise", "answer"), variants())
def test_right_answers_written_otherwise_earn_everything(judges, lab, exercise, answer):
    graded = grade(judges, lab, exercise, answer)
    assert graded.score == exercise.points, str(graded.report)


@pytest.mark.parametrize(("lab", "exercise"), EXERCISES, ids=name_of)
def test_at_least_three_variants(lab, exercise):
    count = sum(v.values[1] is exercise for v in variants())
    assert count >= 3


@pytest.mark.parametrize(("lab", "exercise"), EXERCISES, ids=name_of)
def test_the_reference_earns_everything(judges, lab, exercise):
    graded = grade(judges, lab, exercise, cells.plain(reference_block(lab, exercise)))
    assert graded.score == exercise.points, str(graded.report)
    assert "note" not in dict(graded.report.rows)


@pytest.mark.parametrize("folder", ["visible", "hidden"])
@pytest.mark.parametrize(("lab", "exercise"), EXERCISES, ids=name_of)
def test_every_stub_fails_every_check_by_its_own_name(lab, exercise, folder):
    block = cells.stub(reference_block(lab, exercise), exercise)
    module = cells.with_block((cells.plain(block)), exercise, block)
    source = cells.split((Path("solutions") / f"{lab.module}.py").read_text())
    given = "".join(text for key, text in source if key is None)  # header and given blocks
    namespace: dict = {"__name__": f"solutions.{lab.module}", "__package__": "solutions"}
    exec(given + module, namespace)
    oracle = live_reference(lab)
    result = run_checks(
        folder, lab.module, exercise, lambda c: perform(c, namespace), oracle.reference, "s"
    )
    assert result.checks and result.score == 0
    for check in result.checks:
        assert f"NotImplementedError: Exercise {exercise.id}" in check.difference.look


TENSOR = "next(v for v in [*args, *kwargs.values()] if hasattr(v, 'shape'))"
NONSENSE = {
    "gives its input back": f"return {TENSOR}",
    "always 7": f"return {TENSOR} * 0 + 7",
    "nothing": "return None",
    "an empty tensor": "return torch.empty(0)",
    "a number": "return 1.0",
    "a value error": "raise ValueError('no')",
}


@pytest.mark.parametrize("body", NONSENSE.values(), ids=NONSENSE)
@pytest.mark.parametrize(("lab", "exercise"), EXERCISES, ids=name_of)
def test_nonsense_earns_next_to_nothing(judges, lab, exercise, body):
    symbol = exercise.symbols[0]
    if symbol[0].isupper():
        answer = (
            f"class {symbol}(nn.Module):\n    def __init__(self, *args, **kwargs):\n"
            "        super().__init__()\n"
            f"    def forward(self, *args, **kwargs):\n        {body}\n"
        )
    else:
        answer = f"def {symbol}(*args, **kwargs):\n    {body}\n"
    graded = grade(judges, lab, exercise, answer)
    assert graded.score <= 0.15 * exercise.points, str(graded.report)


MISTAKES = [
    pytest.param(lab, mistake, id=f"{mistake.symbol}:{mistake.name}")
    for lab in LABS
    for mistake in mistakes_of(lab)
    if mistake.costs
]
REMARKS = [
    pytest.param(lab, mistake, id=f"{mistake.symbol}:{mistake.name}")
    for lab in LABS
    for mistake in mistakes_of(lab)
    if not mistake.costs
]


@pytest.mark.parametrize(("lab", "exercise"), EXERCISES, ids=name_of)
def test_every_exercise_lists_three_mistakes(lab, exercise):
    listed = [p for p in MISTAKES if p.values[1].symbol in exercise.symbols]
    assert len(listed) >= 3


@pytest.mark.parametrize(("lab", "mistake"), MISTAKES)
def test_every_mistake_loses_points_and_is_named_first_in_grading(judges, lab, mistake):
    exercise = mistake.exercise
    graded = grade(judges, lab, exercise, mistake.cell)
    assert graded.score < exercise.points
    assert mistake.sentence in graded.why, str(graded.report)
    assert mistake.sentence.split()[-1] in str(graded.report)


@pytest.mark.parametrize(("lab", "mistake"), MISTAKES)
def test_every_mistake_is_named_by_the_visible_checks(lab, mistake):
    result, oracle = judged_at_once(lab, mistake)
    assert not result.passed and result.first_failure is not None
    assert mistake.sentence in diagnose(result, oracle).sentences


@pytest.mark.parametrize("lab", [lab for lab in NOTEBOOKS if lab.exercises], ids=name_of)
def test_no_record_is_stale(lab):
    assert not record_of(lab).stale


@pytest.mark.parametrize(("lab", "mistake"), REMARKS)
def test_remarks_are_made_and_cost_nothing(judges, lab, mistake):
    exercise = mistake.exercise
    graded = grade(judges, lab, exercise, mistake.cell)
    assert graded.score == exercise.points
    assert ("note", mistake.sentence) in graded.report.rows
    result, oracle = judged_at_once(lab, mistake)
    assert result.passed and remarks(result, oracle) == [mistake.sentence]


def test_no_two_mistakes_of_an_exercise_share_a_sentence():
    listed = [p.values[1] for p in MISTAKES + REMARKS]
    sentences = [(mistake.symbol, mistake.sentence) for mistake in listed]
    assert len(sentences) == len(set(sentences))
