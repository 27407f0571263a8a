"""The grader's own work on a submission costs little and never fails."""

import json

import pytest

from labkit.checks.declared import prepared_checks
from labkit.checks.mistakes import Oracle
from labkit.checks.runner import run_checks
from labkit.course.syllabus import LABS, find_lab
from labkit.grading.judge.intake import MAX_WRITTEN, cell_called, rebuild
from labkit.grading.nbgrader.feedback import MAX_MARKDOWN, rendered
from labkit.grading.sample_class import encoded, solved, with_answer
from labkit.sandbox.inside.call import Outcome
from tests.course.cost import at_most

LAB = LABS[0]
QUESTION = LAB.questions[0].answer_cell


def test_a_pasted_picture_is_no_reason_to_fail():
    for text, shown in {
        "my drawing ![image.png](attachment:image.png)": "my drawing (a picture)",
        "![a][b]\n\n[b]: attachment:b.png": "",
        "![x](attachment:)": "",
    }.items():
        assert shown in rendered(text) and "<img" not in rendered(text), text


def test_no_text_takes_long_to_show():
    for bomb in ("<div>", "|a|b|\n", "\\(", "\\[", "<b><p>", "<a><div>", "> "):
        with at_most(2000, bomb):
            rendered(bomb * (MAX_MARKDOWN // len(bomb)))
            rendered(bomb * 120_000)  # shown as it was typed


def test_a_written_answer_is_cut_and_says_so(released):
    notebook = solved(released[LAB.name], LAB)
    cell_called(notebook, QUESTION).source = "<div>" * 120_000
    intake = rebuild(encoded(notebook), released[LAB.name], LAB)
    written = cell_called(intake.notebook, QUESTION).source
    assert len(written) < MAX_WRITTEN + 100 and "cut here: 600,000 characters" in written


def test_stubs_without_end_are_not_read(released):
    body = "def layer_norm(x):\n    raise NotImplementedError('')\n" + "y = [1, 2, 3]\n" * 430
    mark = {"nbgrader": {"grade_id": LAB.exercises[0].answer_cell}}
    notebook = json.loads(encoded(solved(released[LAB.name], LAB)))
    notebook["cells"] += [
        {"cell_type": "markdown", "metadata": mark, "source": f"{body}# {number}"}
        for number in range(4_800)
    ]
    with at_most(1500):
        intake = rebuild(json.dumps(notebook).encode(), released[LAB.name], LAB)
    assert intake.problem or LAB.exercises[0].id in intake.notes


DEEP = {
    "calls of calls": "a" + ".f(1)" * 500,
    "attributes": "a" + ".b" * 900 + "(1)",
    "a sum": "f(" + "+".join("x" * 900) + ")",
    "brackets": "(" * 95 + "1" + ")" * 95,
    "lists": "[" * 95 + "]" * 95,
    "functions": "lambda: " * 900 + "1",
    "negations": "-" * 5_000 + "1",
    "conditions": "1 if a else " * 900 + "1",
    "indices": "a" + "[0]" * 900,
    "a comparison": "<".join("x" * 3_000),
    "chains": ";".join(["a" + ".b(1)" * 90] * 350),
}


@pytest.mark.full
def test_a_deep_tree_ends_as_a_verdict_and_costs_little(judges, released):
    judge, first = judges[LAB.name], LAB.exercises[0]
    others = sum(exercise.points for exercise in LAB.exercises[1:])
    right = solved(released[LAB.name], LAB)
    for name, deep in DEEP.items():
        text = cell_called(right, first.answer_cell).source
        notebook = with_answer(right, first, f"{text}\n    {deep}\n")
        with at_most(2000, name):
            graded = judge.grade(encoded(notebook))
        assert graded.score >= others, name


def test_advice_on_an_error_reads_a_deep_tree(judges, released):
    body = f"    return not_there\n    {DEEP['calls of calls']}\n"
    text = f"# %% exercise 1.1\ndef layer_norm(x, weight, bias, eps=1e-5):\n{body}"
    notebook = with_answer(solved(released[LAB.name], LAB), LAB.exercises[0], text)
    verdict = judges[LAB.name].grade(encoded(notebook)).exercises[0]
    assert verdict.score == 0 and "not_there" in str(verdict.report)


def test_an_answer_that_no_check_can_compare_is_wrong_and_no_fault_of_the_judge():
    lab = find_lab("generation")
    reference = Oracle(lab).reference
    for values in ([], [None], [float("nan")], [{}], ["x"]):
        outcome = Outcome(values=values)
        for exercise in lab.exercises[:2]:
            checks = prepared_checks("hidden", lab.module, exercise, "s")
            result = run_checks(exercise, checks, lambda _, o=outcome: o, reference)
            assert result.score == 0 and result.broken is None, values
