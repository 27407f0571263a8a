"""Reports and their reasons: what a learner reads, and what of the reference nobody reads."""

import pytest
import torch

from labkit.checks.compare import Difference
from labkit.checks.diagnose import ERRORS, reasons, remarks
from labkit.checks.explain import MOST_LOOKS, graded_report, learner_report
from labkit.checks.package import localised
from labkit.checks.runner import Check, KnownMistake, Result
from labkit.core.report import Report, Status, clean
from labkit.core.syllabus import LABS
from labkit.sandboxed.call import Call, Failure, Outcome

EXERCISE = LABS[0].exercises[0]  # 1.1 layer_norm, 4 points
WRONG = Difference("1 instead of 0.1875", "1 is wrong", ["shape (2,)"])


def result(*checks, **fields):
    """Checks as (title, passed) or (title, False, difference)."""
    parts = [Check(title, 1, passed, *rest) for title, passed, *rest in checks]
    return Result(EXERCISE, parts, **fields)


def test_a_learner_reads_what_is_right_the_first_fault_why_and_what_next():
    other = Difference("never said")
    found = result(
        ("names", True), ("mean", False, WRONG), ("cast", False, other), ("big", None)
    )
    report = learner_report(found, ["it is summed", "it is squared"], ["never said"], "hint")
    assert report.heading == "Exercise 1.1  layer_norm" and report.status is Status.NOT_YET
    assert report.rows == [
        ("ok", "names | shape (2,) | big: not checked"),
        ("look", "mean: 1 instead of 0.1875"),
        ("why", "this is what comes out when it is summed, or when it is squared"),
        ("next", "hint"),
    ]


@pytest.mark.parametrize(
    ("found", "status", "rows"),
    [
        (result(("a", True)), Status.PASSED, [("ok", "a"), ("note", "n"), ("next", "on")]),
        (result(("a", True), broken="x"), Status.NOT_CHECKED, [("look", "not you: x")]),
        (result(("a", True), interrupted=True), Status.NOT_CHECKED, [("look", "interrupted")]),
    ],
)
def test_other_ends_of_a_check_have_a_status_of_their_own(found, status, rows):
    report = learner_report(found, [], ["n"], "on")
    assert report.status is status and report.verdict == status.value
    for (label, text), (wanted, end) in zip(report.rows, rows, strict=False):
        assert label == wanted and text.endswith(end)
    assert report.rows[-1][0] == "next"


def test_a_check_that_was_skipped_is_no_pass():
    assert not result(("a", None)).passed and result(("a", None)).score == 0
    assert not result().passed and result(("a", True), ("b", None), ("c", False)).score == 1.33


def test_a_graded_report_has_no_number_of_the_reference():
    found = result(("mean", False, WRONG), ("names", True))
    report = graded_report(found, ["it is summed"], ["note"], "the cell was split")
    assert report.verdict == "2 of 4 points" and report.status is Status.NOT_YET
    assert report.rows == [
        ("look", "the cell was split"),
        ("ok", "names"),
        ("look", "mean: 1 is wrong"),
        ("why", "this is what comes out when it is summed"),
        ("note", "note"),
    ]
    assert "0.1875" not in report.html()
    broken = graded_report(result(("a", True), broken="0.1875"), [], [])
    assert "0.1875" not in str(broken) and "a person has to look" in str(broken)


def test_a_graded_report_says_no_title_and_no_fault_twice_and_few_in_all():
    looks = [
        ("a", "x"),
        ("a", "y"),
        ("b", "x"),
        *((f"t{i}", f"f{i}") for i in range(MOST_LOOKS)),
    ]
    faults = [(title, False, Difference(look)) for title, look in looks]
    rows = graded_report(result(("a", True), ("ok", True), ("ok", True), *faults), [], []).rows
    assert rows[0] == ("ok", "ok")
    assert [text for label, text in rows if label == "look"] == [
        *["a: x", "t0: f0", "t1: f1", "t2: f2"], "and 1 more",
    ]  # fmt: skip


class Oracle:
    """Says of every call what was handed to it: the right value, and {name: (costs, value)}."""

    def __init__(self, right, **known):
        self.right, self.known = right, known

    def reference(self, call):
        return Outcome([self.right[call.symbol]])

    def suspects(self, call):
        return [KnownMistake(name, f"it is {name}", costs, Outcome([values[call.symbol]]))
                for name, (costs, values) in self.known.items()]  # fmt: skip


def evidence(passed=False, **values):
    """A check that asked for each name and got its value."""
    got = [
        (Call(name), v if isinstance(v, Outcome) else Outcome([v]))
        for name, v in values.items()
    ]
    difference = None if passed else WRONG
    return Check("title", 1, passed, difference, got)


T = torch.tensor
RIGHT = {"f": T(1.0), "g": T(1.0)}
DOUBLED, SHIFTED = {"f": T(2.0), "g": T(2.0)}, {"f": T(2.0), "g": T(9.0)}


@pytest.mark.parametrize(
    ("checks", "known", "why"),
    [
        ([evidence(f=T(2.0)), evidence(g=T(2.0))], {}, ["it is doubled"]),
        ([evidence(f=T(2.0)), evidence(g=T(9.0))], {}, ["it is shifted"]),
        ([evidence(f=T(2.0))], {}, ["it is doubled", "it is shifted"]),
        ([evidence(f=T(2.0)), evidence(g=T(5.0))], {}, ["it is doubled", "it is shifted"]),
        ([evidence(f=T(7.0))], {}, []),
        ([evidence(True, f=T(1.0))], {}, []),
        ([evidence(f=T(2.00001))], {"more": (True, {"f": T(2.00001)})}, ["it is more"]),
        ([evidence(f=T(7.0))], {"more": (False, {"f": T(7.0)})}, []),
    ],
    ids=[
        "what fits all failed checks", "and no other", "two that fit equally well",
        "else what fits the first", "none", "not if all is right", "the nearest",
        "not what costs nothing",
    ],
)  # fmt: skip
def test_the_reason_is_the_mistake_that_gives_the_very_outcome(checks, known, why):
    oracle = Oracle(RIGHT, doubled=(True, DOUBLED), shifted=(True, SHIFTED), **known)
    assert reasons(Result(EXERCISE, checks), oracle) == why


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *((f"... {part} ...", advice) for part, advice in ERRORS.items()),
        ("Exercise 1.1: layer_norm", ERRORS["Exercise "]),
        ("Exercise 4.2: Qwen3MLP", "exercise 4.2, which this one uses, is still empty"),
        ("something else", None),
    ],
)
def test_an_error_that_no_mistake_raises_points_to_its_cause(text, why):
    failed = evidence(f=Outcome(failure=Failure("Error", text)))
    found = reasons(Result(EXERCISE, [failed]), Oracle(RIGHT, doubled=(True, DOUBLED)))
    assert [sentence.startswith(why) for sentence in found] == [True] * (why is not None)


def test_a_right_answer_that_equals_a_harmless_variant_is_remarked_on():
    near = {"f": T(1.0) + 2e-7, "g": T(1.0)}
    oracle = Oracle(RIGHT, rounded=(False, near), doubled=(True, DOUBLED))
    same = [evidence(True, f=near["f"]), evidence(True, g=T(1.0))]
    assert remarks(Result(EXERCISE, same), oracle) == ["it is rounded"]
    for checks in ([evidence(True, f=T(1.0))], [*same, evidence(True, f=T(1.0))],
                   [*same, evidence(f=T(2.0))]):  # fmt: skip
        assert remarks(Result(EXERCISE, checks), oracle) == []


MODULE = (
    "import torch\n\n\n# %% exercise 1.1: layer_norm\na\n\n\n# %% exercise 1.2: RMSNorm\nb\n"
)


@pytest.mark.parametrize(("line", "own"), [(4, 1), (5, 2), (9, None), (1, None), (99, None)])
def test_a_line_of_the_module_becomes_one_of_the_cell(line, own):
    outcome = Outcome(failure=Failure("ValueError", "no", line))
    assert localised(outcome, MODULE, "1.1").failure.line == own
    assert outcome.failure.line == line
    assert localised(Outcome([1]), MODULE, "1.1") == Outcome([1])


def test_long_rows_are_folded_under_their_first_word():
    report = Report("Exercise", Status.NOT_YET, [("look", "word " * 30 + "\n" + "x" * 90)])
    first, *rows = str(report).split("\n")
    assert first == "Exercise" + " " * 61 + "not yet"
    assert (
        rows[0].startswith("  look  word") and len(rows) == 4 and rows[-1].strip() == "x" * 90
    )
    assert (
        all(row.startswith(" " * 8) for row in rows[1:]) and len(max(rows[:3], key=len)) <= 76
    )


def test_no_text_repaints_a_terminal_or_runs_in_a_page():
    odd = "\x1b\x07\u202e\u200b\x9b\ud800"
    assert clean(odd + "é\n\tα") == "\N{REPLACEMENT CHARACTER}" * 6 + "é\n\tα"
    text = f"<script>alert(1)</script> & `a < b` `c` {odd}\nend"
    report = Report(f"<b>{odd}", Status.PASSED, [("<u>", text)], "<i>")
    html = report._repr_html_()
    for part in ("<script", "<i>", "<u>", "\x1b", "\u202e", "<b><b>"):
        assert part not in html
    assert "&lt;script&gt;" in html and "<code>c</code>" in html and "<br>end" in html
    assert "\x1b" not in str(report) and repr(report) == str(report)


@pytest.mark.parametrize("status", Status)
def test_a_report_passes_by_its_status_and_never_by_its_words(status):
    report = Report("heading", status, verdict="passed")
    assert report.passed is (status is Status.PASSED) and report.verdict == "passed"
    assert Report("heading", status).verdict == status.value
