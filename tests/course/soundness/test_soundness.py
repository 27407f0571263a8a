"""The checks are sound: stubs fail, mistakes fail and are named, right answers pass."""

from functools import cache, partial
from importlib import import_module
from itertools import product

import pytest

from labkit.author.reference import reference_block
from labkit.checks.declared import prepared_checks
from labkit.checks.diagnose import diagnose
from labkit.checks.mistakes import KINDS, Mistake, Oracle, mistakes_of, reference_cell
from labkit.checks.runner import run_check, run_checks
from labkit.course import cells
from labkit.course.paths import SOLUTIONS
from labkit.course.syllabus import LABS, NOTEBOOKS, find_lab
from labkit.grading.judge.intake import Intake
from labkit.grading.judge.questions import QuestionMaker
from labkit.grading.judge.submitted_code import packages_of, submitted_code
from labkit.learner.check import SEED
from labkit.sandbox.inside.perform import perform


def name_of(value):
    """Part of a test's id: `-k "4.4"` must select all tests of exercise 4.4."""
    if isinstance(value, Mistake):
        return f"{value.exercise.id}-{value.symbol}:{value.name}"
    return getattr(value, "id", None) or getattr(value, "name", None) or str(value)[:40]


EXERCISES = [(lab, exercise) for lab in LABS for exercise in lab.exercises]
by_lab = pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.name)
by_exercise = pytest.mark.parametrize(("lab", "exercise"), EXERCISES, ids=name_of)
oracle_of = cache(Oracle)


@cache
def checks_of(folder, lab, exercise):
    return prepared_checks(folder, lab.module, exercise, SEED)


def judged(folder, lab, exercise, names):
    """The checks of one exercise, performed with these names in this process."""
    return answered(folder, lab, exercise, lambda call: perform(call, names))


def answered(folder, lab, exercise, student):
    checks = checks_of(folder, lab, exercise)
    return run_checks(exercise, checks, student, oracle_of(lab).reference)


packages = cache(packages_of)


@cache
def reference_answers(lab):
    """{exercise id: the reference's cell}, like a learner's notebook without a mistake."""
    return {exercise.id: reference_cell(lab, exercise) for exercise in lab.exercises}


def names_with(lab, exercise, cell):
    """The names of the module that the judge builds with a cell as the answer to one exercise
    and right answers to all others."""
    answers = reference_answers(lab) | {exercise.id: cell}
    module = submitted_code(packages(lab)[exercise.id], lab, exercise, answers).module
    reference = import_module(f"solutions.{lab.module}")  # dataclasses look their module up
    names = {"__name__": reference.__name__, "__package__": "solutions"}
    exec(compile(module, f"{lab.module}, an answer", "exec", dont_inherit=True), names)
    return names


def variants_of(lab, exercise):
    """{title: cell} of right answers that are written in another way."""
    text = (SOLUTIONS / "variants" / f"{lab.module}.py").read_text()
    blocks = [block for key, block in cells.split(text) if key == exercise.id]
    return {block.split("\n")[0].split(": ")[1]: block for block in blocks}


@by_exercise
def test_right_answers_written_otherwise_pass(lab, exercise):
    variants = variants_of(lab, exercise)
    assert len(variants) >= (1 if exercise.hunt else 3)
    for title, cell in variants.items():
        for folder in ("visible", "hidden"):
            result = judged(folder, lab, exercise, names_with(lab, exercise, cell))
            assert result.passed, f"{title}, {folder}: {result.first_failure.difference}"


@pytest.mark.slow
@by_exercise
def test_no_right_answer_loses_by_the_draw(lab, exercise):
    """Twenty classes, each with its own secret."""
    right = oracle_of(lab).reference
    answers = {
        title: names_with(lab, exercise, cell)
        for title, cell in variants_of(lab, exercise).items()
    }
    for secret in map(str, range(20)):
        checks = prepared_checks("hidden", lab.module, exercise, secret)
        for title, names in answers.items():
            result = run_checks(exercise, checks, partial(perform, namespace=names), right)
            assert result.passed, f"{title}, {secret}: {result.first_failure.difference}"


@by_lab
def test_half_of_the_points_come_from_what_is_drawn(lab):
    """A fixed question, the same for every class, can be answered from a table."""
    asked = QuestionMaker(lab, b"secret", oracle_of(lab).reference).shared
    for exercise in lab.exercises:
        points = [(q.check.points, q.is_drawn) for q in asked[exercise.id]]
        assert sum(p for p, drawn in points if drawn) >= sum(p for p, _ in points) / 2, (
            exercise.id
        )


@by_exercise
def test_every_stub_fails_every_check_by_its_own_name(lab, exercise):
    """A bug hunt's stub runs instead, and is its first mistake, whose sentence describes only
    the symptom."""
    stub = cells.stub(reference_block(lab, exercise), exercise)
    if exercise.hunt:
        bug = next(m for m in mistakes_of(lab) if m.symbol in exercise.symbols)
        assert cells.fingerprint(bug.cell) == cells.fingerprint(stub)
    for folder in ("visible", "hidden"):
        result = judged(folder, lab, exercise, names_with(lab, exercise, stub))
        assert result.checks and result.score == 0, exercise.id
        for check in () if exercise.hunt else result.checks:
            assert f"NotImplementedError: Exercise {exercise.id}" in check.difference.look


@by_lab
def test_the_reference_raises_nothing_but_what_a_check_asks_for(lab):
    """A check whose call fails in the reference would pass any answer with the same error."""
    for exercise, folder in product(lab.exercises, ("visible", "hidden")):
        for check in checks_of(folder, lab, exercise):
            outcomes = [oracle_of(lab).reference(call) for call in check.calls]
            kinds = {outcome.failure.kind for outcome in outcomes if outcome.failure}
            assert kinds <= {"ValueError", "InterruptedError"}, (check.address, kinds)


TENSOR = "next(v for v in [*args, *kwargs.values()] if hasattr(v, 'shape'))"
NONSENSE = (f"return {TENSOR}", "return 1.0")


def nonsense(exercise, body):
    symbol = exercise.symbols[0]
    if symbol[0].isupper():
        return (
            f"from torch import nn\n\nclass {symbol}(nn.Module):\n"
            "    def __init__(self, *args, **kwargs):\n"
            "        super().__init__()\n"
            f"    def forward(self, *args, **kwargs):\n        {body}\n"
        )
    return f"def {symbol}(*args, **kwargs):\n    {body}\n"


@by_lab
def test_nonsense_earns_next_to_nothing(lab):
    for exercise, body in product(lab.exercises, NONSENSE):
        names = names_with(lab, exercise, nonsense(exercise, body))
        result = judged("hidden", lab, exercise, names)
        assert result.score <= 0.15 * exercise.points, (exercise.id, body)


def grade(judge, exercise, cell):
    """The verdict on a cell, with right answers to all other exercises."""
    answers = reference_answers(judge.lab) | {exercise.id: cell}
    return judge.grade_exercise(exercise, Intake(judge.released, answers))


def assert_full_and_unasked(judge, exercise, answers):
    for title, cell in answers.items():
        graded = grade(judge, exercise, cell)
        assert (graded.score, graded.reason) == (exercise.points, ""), title
        assert not graded.needs_person and not graded.doubtful, (title, graded.doubtful)


@by_exercise
def test_right_answers_earn_all_in_the_sandbox_and_no_person_is_asked(judges, lab, exercise):
    """The reference, and a variant: one that calls a later exercise, if there is any."""
    later = [
        symbol for each in lab.exercises if each.id > exercise.id for symbol in each.symbols
    ]
    variants = variants_of(lab, exercise)
    chosen = max(
        variants, key=lambda title: any(f"{name}(" in variants[title] for name in later)
    )
    answers = {"the reference": reference_cell(lab, exercise), chosen: variants[chosen]}
    assert_full_and_unasked(judges[lab.name], exercise, answers)


@pytest.mark.slow
@by_exercise
def test_every_right_answer_earns_all_in_the_sandbox_too(judges, lab, exercise):
    assert_full_and_unasked(judges[lab.name], exercise, variants_of(lab, exercise))


def test_a_later_exercise_comes_along_as_the_learner_wrote_it(judges):
    lab = find_lab("hybrid")
    fourth, fifth = lab.exercise("12.4"), lab.exercise("12.5")
    judge, right = judges[lab.name], reference_answers(lab)
    cell = next(c for c in variants_of(lab, fourth).values() if "chunk_gated_delta_rule(" in c)
    for own, reason in {
        right[fifth.id].replace("    ", "    raise ZeroDivisionError\n    ", 1): "",
        cells.stub(reference_block(lab, fifth), fifth): "Exercise 12.5",
        "": "Exercise 12.5",
    }.items():
        answers = right | {fourth.id: cell, fifth.id: own}
        graded = judge.grade_exercise(fourth, Intake(judge.released, answers))
        assert graded.share < 0.5 and reason in graded.reason, own


def shapes_of(lab):
    """An exercise that is a function, and one that is a class."""
    return {exercise.symbols[0][0].isupper(): exercise for exercise in lab.exercises}.values()


@pytest.mark.parametrize(
    ("lab", "exercise"), [(lab, each) for lab in LABS for each in shapes_of(lab)], ids=name_of
)
def test_the_sandbox_takes_points_off_and_says_why(judges, lab, exercise):
    """With one mistake per kind of answer; all other mistakes are tested in this process."""
    listed = [m for m in mistakes_of(lab) if m.symbol in exercise.symbols]
    mistake = max(listed, key=lambda m: "{value}" in m.sentence)  # one with a value, if any
    graded = grade(judges[lab.name], exercise, mistake.cell)
    assert graded.score < exercise.points
    assert mistake.sentence in graded.why and "{value}" not in graded.reason, graded


def with_marks(lab):
    """Return a lab's mistakes; a commit waits for the first of each exercise, CI for all."""
    met = set()
    for mistake in mistakes_of(lab):
        marks = pytest.mark.full if mistake.exercise.id in met else ()
        met.add(mistake.exercise.id)
        yield pytest.param(lab, mistake, marks=marks)


MISTAKES = [each for lab in NOTEBOOKS if lab.exercises for each in with_marks(lab)]


def test_every_exercise_lists_some_kinds_of_mistakes():
    for lab, exercise in EXERCISES:
        listed = [m for m in mistakes_of(lab) if m.symbol in exercise.symbols]
        assert (1 if exercise.hunt else 3) <= len(listed) <= 32, exercise.id
        for names in ({m.name for m in listed}, {m.sentence for m in listed}):
            assert len(listed) == len(names), exercise.id


@pytest.mark.parametrize(("lab", "mistake"), MISTAKES, ids=name_of)
def test_a_mistake_is_named_and_costs_what_its_kind_costs(lab, mistake):
    exercise, oracle = mistake.exercise, oracle_of(lab)
    folders = ("visible", "hidden") if lab in LABS else ("visible",)
    for number, version in enumerate(mistake.versions):
        for folder in folders:
            where = f"{folder}, {version.edits}"
            if number and folder == "hidden":
                assert not passes(lab, exercise, version), where
                continue
            if number or folder == "hidden":  # calls that diagnose performs anyway
                result = answered(folder, lab, exercise, partial(oracle.mistaken, version))
            else:  # performed again, to compare the outcomes
                result = judged(folder, lab, exercise, version.namespace)
            assert not result.passed, where
            found = diagnose(result, oracle)
            assert mistake.name in found.mistakes, f"{where}: {found.findings}"
            result.bounds, most = found.bounds, KINDS[mistake.kind][1]
            least = min(KINDS[each.mistake.kind][0] for each in found.versions)
            assert least - 1e-9 <= 1 - result.share <= found.bounds[1] + 1e-9, where
            # 1 for answers that mostly raise errors
            assert found.bounds[1] in (most, 1.0), where


def passes(lab, exercise, version):
    """Whether all hidden checks pass; the first that does not is enough."""
    student, right = partial(oracle_of(lab).mistaken, version), oracle_of(lab).reference
    checks = checks_of("hidden", lab, exercise)
    return all(run_check(check, student, right).passed for check in checks)
