"""Reports and their reasons, and values of the reference that no report may contain."""

from types import SimpleNamespace

import pytest
import torch

from labkit.checks.compare import Difference
from labkit.checks.declared import check as declared
from labkit.checks.declared import checks_in
from labkit.checks.diagnose import Diagnosis, diagnose
from labkit.checks.errors import advice_on
from labkit.checks.facts import facts_about
from labkit.checks.messages import FOLD, MOST_LOOKS, graded_report, learner_report
from labkit.checks.mistakes import MistakeError, Oracle, parse_mistakes
from labkit.checks.package import exercise_at, localize
from labkit.checks.runner import CheckResult, Result, run_checks
from labkit.course.report import Report, Status, clean
from labkit.course.syllabus import LABS
from labkit.sandbox.inside.call import Call, Failure, Outcome
from labkit.sandbox.inside.perform import perform

LAB = LABS[0]
EXERCISE = LAB.exercises[0]  # 1.1 layer_norm
WRONG = Difference("values", "number", ["shape (2,)"], where="", answer=1.0, expected=0.1875)
T = torch.tensor


def check_of(*calls, title="title", points=1.0, view=None):
    """Return a check that makes these calls."""

    def function(rng):
        return calls

    function.__doc__ = title
    declaration = declared("1.1", points=points, view=view)(function)
    found = SimpleNamespace(declaration=declaration, address=title, calls=list(calls))
    found.title, found.points = title, points
    found.viewed = lambda outcomes: view(outcomes) if view else outcomes
    return found


def result(*checks, **fields):
    """Return a result of checks given as (title, passed) or (title, False, difference)."""
    parts = [
        CheckResult(check_of(title=title), passed, [], *rest) for title, passed, *rest in checks
    ]
    return Result(EXERCISE, parts, **fields)


def findings(*rows):
    """Return a diagnosis with rows (label, text) for the first case or (label, text, case)."""
    found = [(row[2] if row[2:] else None, *row[:2]) for row in rows]
    return SimpleNamespace(findings=found)


def test_a_learner_reads_the_first_fault_why_what_is_right_and_what_next():
    other = Difference("dtype", "odd")
    found = result(("names", True), ("mean", False, WRONG), ("cast", False, other))
    why = findings(("why", "it is summed"), ("look", "only here"))
    report = learner_report(found, why, "hint")
    assert report.heading == "Exercise 1.1  layer_norm" and report.status is Status.NOT_YET
    assert report.rows == [
        ("look", "mean: 1 instead of 0.1875"),
        ("why", "it is summed"),
        ("look", "only here"),
        ("ok", "names | shape (2,)"),
        ("next", "hint"),
    ]


def test_a_reason_stands_under_the_case_that_it_explains():
    found = result(("mean", False, WRONG), ("cast", False, Difference("dtype", "odd")))
    why = findings(("why", "it is cast", found.checks[1]),
                   ("look", "everywhere", found.checks[0]))  # fmt: skip
    looks = [("look", "mean: 1 instead of 0.1875"), ("look", "everywhere")]
    rows = learner_report(found, why).rows
    assert rows[:2] == looks and rows[2][1].startswith("cast: ") and rows[3][1] == "it is cast"


def test_a_long_list_of_what_is_right_becomes_a_count():
    titles = [(f"{'x' * (FOLD // 4)} {i}", True) for i in range(5)]
    found = result(*titles, ("mean", False, WRONG))
    assert ("ok", "5 of 6 checks") in learner_report(found, findings()).rows


@pytest.mark.parametrize(
    ("found", "status", "rows"),
    [
        (result(("a", True)), Status.PASSED, [("ok", "a"), ("next", "on")]),
        (result(("a", True), broken="x"), Status.NOT_CHECKED, [("look", "not you: x")]),
        (result(("a", True), interrupted=True), Status.NOT_CHECKED, [("look", "interrupted")]),
    ],
)
def test_other_ends_of_a_check_have_a_status_of_their_own(found, status, rows):
    report = learner_report(found, Diagnosis(), "on")
    assert report.status is status and report.verdict.startswith(status.value)
    full = f"{EXERCISE.points:g} of {EXERCISE.points:g} points"
    assert (full in report.verdict) is report.passed
    for (label, text), (wanted, end) in zip(report.rows, rows, strict=False):
        assert label == wanted and text.endswith(end)
    assert report.rows[-1][0] == "next"


def test_a_graded_report_has_no_number_of_the_reference():
    found = result(("mean", False, WRONG), ("names", True))
    why = findings(("why", "it is summed"))
    report = graded_report(found, why, "the cell was split")
    assert (
        report.verdict == f"{EXERCISE.points / 2:g} of {EXERCISE.points:g} points"
        and report.status is Status.NOT_YET
    )
    assert report.rows == [
        ("look", "the cell was split"),
        ("look", "mean: 1"),
        ("why", "it is summed"),
        ("ok", "names"),
    ]
    broken = str(graded_report(result(("a", True), broken="0.1875"), findings()))
    assert "0.1875" not in report.html() + broken and "a person has to look" in broken


def test_a_graded_report_has_no_title_and_no_fault_twice_and_few_in_all():
    faults = [Difference("names", "extra name", extra=f"f{i}") for i in range(MOST_LOOKS + 2)]
    looks = [("a", 0), ("a", 1), ("b", 0), *((f"t{i}", i) for i in range(2, MOST_LOOKS + 2))]
    found = result(("ok", True), ("ok", True), *((t, False, faults[i]) for t, i in looks))
    rows = graded_report(found, findings()).rows
    assert rows[-1] == ("ok", "ok")
    titles = [text.partition(":")[0] for label, text in rows if label == "look"]
    assert titles == ["a", "t2", "t3", "t4", "and 1 more"]


# Mistakes

FILE = """
## layer_norm

doubled: it is doubled
return (normed -> return (2 * normed
or .to(x.dtype) -> .to(x.dtype) * 2

eps-ignored: eps is {value}
rsqrt(variance + eps -> rsqrt(variance + {1e-3 | 0.5}

mean-kept: the mean stays
- mean = wide.mean(dim=-1, keepdim=True)  # (..., 1)
+ mean = 0.0

whole: a whole answer
+ def layer_norm(*_):
+     return 1
"""


def test_mistakes_are_read_with_alternatives_and_values():
    found = list(parse_mistakes(LAB, FILE))
    sizes = {mistake.name: len(mistake.versions) for mistake in found}
    assert sizes == {"doubled": 2, "eps-ignored": 2, "mean-kept": 1, "whole": 1}
    assert "(2 * normed" in found[0].cell and found[1].versions[1].value == "0.5"
    assert "mean = 0.0\n" in found[2].cell
    assert found[3].versions[0].namespace["layer_norm"]() == 1
    for odd in ("no title\na -> b", "name: sentence", "name: sentence\nno edit"):
        with pytest.raises(MistakeError):
            list(parse_mistakes(LAB, f"## layer_norm\n\n{odd}\n"))
    stray = next(parse_mistakes(LAB, "## layer_norm\n\nname: sentence\nnowhere -> b\n"))
    with pytest.raises(MistakeError, match="not 0 times: 'nowhere'"):
        stray.cell  # noqa: B018


class Listed(Oracle):
    """An oracle of lab 01 with other mistakes."""

    def __init__(self, text=FILE):
        super().__init__(LAB)
        self.mistakes = list(parse_mistakes(LAB, text))

    def listed(self, symbols):
        return [version for mistake in self.mistakes for version in mistake.versions]


def diagnosed(*edits, oracle=None):
    """Diagnose a wrong layer_norm: the reference with these edits."""
    oracle = oracle or Listed()
    text = "## layer_norm\n\nwrong: wrong\n" + "\n".join(f"{a} -> {b}" for a, b in edits)
    names = next(parse_mistakes(LAB, text)).versions[0].namespace
    checks = [c.prepared("s") for c in checks_in("hidden", "rmsnorm") if "layer" in c.address]
    found = run_checks(EXERCISE, checks, lambda c: perform(c, names), oracle.reference)
    return diagnose(found, oracle), found


DOUBLED = ("(normed * weight + bias)", "2 * (normed * weight + bias)")
UNDER = ("rsqrt(variance + eps", "rsqrt(variance + 0.5")
KEPT = ("mean = wide.mean(dim=-1, keepdim=True)  # (..., 1)", "mean = 0.0")


@pytest.mark.parametrize(
    ("edits", "why"),
    [
        ([UNDER], ["eps is 0.5"]),
        ([KEPT], ["the mean stays"]),
        ([UNDER, KEPT], ["eps is 0.5", "the mean stays"]),  # no listed version has both edits
        ([(".to(x.dtype)", ".to(x.dtype) * 2")], ["it is doubled"]),
        ([("rsqrt(variance + eps", "rsqrt(variance + 0.7")], []),
        ([("x: Tensor", "x: Tensor")], []),
    ],
    ids=["a value", "an edit", "two at once", "an alternative", "none", "right"],
)
def test_the_mistake_that_gives_the_same_outcomes_is_named(edits, why):
    assert [reason.text for reason in diagnosed(*edits)[0].reasons] == why


def test_a_passed_check_contradicts_a_mistake():
    whole = "(normed * weight + bias)"
    broad = f"{whole} -> {whole} * (1 + (x.dtype == torch.float32))"
    for more, names in (("", ["broad"]), (broad, [])):
        text = f"## layer_norm\n\nbroad: broad\nx.float() -> x\n{more}\n"
        found, result = diagnosed(("x.float()", "x"), oracle=Listed(text))
        assert (
            result.failed and found.mistakes == names and bool(found.facts) is not bool(names)
        )


HALF = (".to(x.dtype)", ".to(x.dtype) * (1 + 0.1 * (x.dtype != torch.float32))")
DETACHED, MINUS = (
    ("x.float()", "x.detach().float()"),
    ("(normed * weight + bias)", "(normed - weight)"),
)


@pytest.mark.parametrize(
    ("edits", "bounds"),
    [
        ([HALF], (0.1, 0.2)),
        ([DETACHED], (0.2, 0.5)),
        ([MINUS], (0.1, 1.0)),
        ([UNDER], (0.2, 0.5)),
    ],
    ids=["half precision", "gradients", "values", "named"],
)
def test_points_follow_what_fails_where_no_mistake_is_named(edits, bounds):
    found, result = diagnosed(*edits)
    assert result.failed and found.bounds == bounds


def test_a_check_without_a_title_gets_one_from_its_name():
    made = next(iter(c for c in checks_in("hidden", "tokenizer") if "empty" in c.address))
    assert made.title.startswith("train empty, new 3, texts [")


@pytest.mark.parametrize(
    ("line", "names"),
    [("raise ValueError('mine')", ["refused"]), ("raise TypeError", []), ("int('mine')", [])],
)
def test_errors_with_the_learners_own_text_are_compared_by_kind(line, names):
    listed = "refused: it is\n+ def layer_norm(*_, **__):\n+     raise ValueError('listed')"
    oracle, cell = (
        Listed(f"## layer_norm\n\n{listed}\n"),
        f"def layer_norm(*_, **__):\n    {line}",
    )
    exec(compile(cell, "cell", "exec"), wrong := {})
    checks = [c.prepared("s") for c in checks_in("visible", "rmsnorm") if "layer" in c.address]
    found = run_checks(EXERCISE, checks, lambda c: perform(c, wrong, "cell"), oracle.reference)
    assert diagnose(found, oracle, cell).mistakes == names


# Errors

CELL = """def layer_norm(x, eps):
    query = x
    return x / x.pow(2).mean(-1)
"""
SIZES = "The size of tensor a (8) must match the size of tensor b (7)"


@pytest.mark.parametrize(
    ("text", "line", "cell", "start"),
    [
        ("Exercise 1.1: layer_norm", None, "", "a `raise NotImplementedError` line"),
        ("Exercise 4.2: Qwen3MLP", None, "", "exercise 4.2, which this one uses, is"),
        ("layer_norm is not defined", None, "def my_norm():\n    pass\n",
         "the exercise needs `layer_norm`, and this cell defines my_norm"),
        ("name 'math' is not defined", 2, CELL, "`import math` is missing"),
        ("name 'quey' is not defined", 2, CELL,
         "`quey` is used and not defined: is it a slip for `query`?"),
        ("_forward_unimplemented() got an unexpected keyword argument 'x'", None, "",
         "the class has no method `forward`"),
        ("layer_norm() got an unexpected keyword argument 'x'", None, CELL,
         "the arguments of `layer_norm` are not those of the stub"),
        ("softmax() got an unexpected keyword argument 'x'", 2, CELL, ""),
        ("mean() missing 1 required positional argument: 'dim'", 2, CELL, ""),
        ("layer_norm.f() takes 1 positional argument but 2 were given", None,
         "class layer_norm:\n    def f(x):\n        pass\n", "`self` is missing as the first"),
        ("'NoneType' object has no attribute 'shape'", 2, CELL, "what `.shape` is"),
        ("'layer_norm' object has no attribute 'eps'", 2, CELL, "`self.eps` is read"),
        ("'Tensor' object has no attribute 'eps'", 2, CELL, ""),
        (SIZES, 3, CELL, "two shapes do not line up: line 3 reduces an axis without"),
        (SIZES, 2, CELL.replace("= x", "= x @ x"), ""),
        (SIZES, 3, CELL.replace("(-1)", "(-1, keepdim=True)"), ""),
        ("mat1 and mat2 shapes cannot be multiplied (6x8 and 10x10)", None, CELL,
         "rows of 8 numbers meet a matrix that takes rows of 10"),
        ("Boolean value of Tensor with more than one value is ambiguous", None, "",
         "a tensor stands where Python wants one truth value"),
        ("something else", None, CELL, ""),
    ],
)  # fmt: skip
def test_advice_on_an_error_is_right_or_silent(text, line, cell, start):
    advice = advice_on(Failure("Error", text, line), EXERCISE, cell)
    assert advice.startswith(start) and bool(advice) is bool(start)


# Facts

X = torch.arange(1.0, 13.0).reshape(3, 4)


class Right:
    """An oracle whose function returns a fixed value, or the result of another function."""

    def __init__(self, value=None, **namespace):
        self.value, self.namespace = value, namespace

    def reference(self, call):
        return perform(call, self.namespace) if self.namespace else Outcome([self.value])


def failed(got, kind="values", **inputs):
    call = Call("f", **inputs)
    return CheckResult(check_of(call), False, [Outcome([got])], Difference(kind, "odd"))


def facts(checks, oracle):
    return facts_about(Result(EXERCISE, checks), [c for c in checks if not c.passed], oracle)


@pytest.mark.parametrize(
    ("got", "fact"),
    [
        (2 * X, "every entry is 2 times the right one"),
        (X + 3, "every entry is the right one plus 3"),
        (X.T.contiguous(), "the values are right once axes 0 and 1 are swapped"),
        (X.flip(1), "along axis 1 the right entries are in another order"),
        (X * T([[2.0], [3.0], [4.0]]), "along the last axis all entries are off by one factor"),
        ((X * 1.234).bfloat16().float() / 1.234, "every entry is near the right one, as if"),
        (X.where(T([[True], [False], [False]]), 0), "along axis 0 (of 3 entries) the first"),
        (X.where(T([[True], [True], [False]]), 0), "along axis 0 (of 3 entries) only entry 2"),
        (X.where(T([True, False, True, True]), -X), "along axis 1 (of 4 entries) only entry 1"),
        (torch.full((3, 4), 7.0), "all wrong entries are 7"),
        (X.square() + 0.5, None),
        (X * (1 - T([0.003, 0.002, 0.004, 0.001])), None),  # near, and all of it smaller
        (X * T([1.0, -1, 1, -1]) * T([[1.0], [-1], [1]]), "the sizes of all entries are"),
        (X.where(T([True, False, False, True]), -X), "along axis 1 (of 4 entries) only ent"),
    ],
)  # fmt: skip
def test_how_wrong_numbers_relate_to_the_right_ones(got, fact):
    found = facts([failed(got, y=X)], Right(X))
    assert found[0].startswith(fact) if fact else found == []


SQUARE = torch.ones(4, 4)


@pytest.mark.parametrize(
    ("got", "right", "fact"),
    [
        (SQUARE.tril(), SQUARE, "along the last two axes only entries above the diagonal"),
        (SQUARE.triu(), SQUARE, "along the last two axes only entries below the diagonal"),
        (SQUARE - torch.eye(4), SQUARE, "along the last two axes only entries on the diagonal"),
        (SQUARE > 0, SQUARE.roll(1, 0).fill_diagonal_(0) > 0, "along the last two axes only"),
        (T([[True, True], [True, False]]), T([[True, False], [False, False]]),
         "nothing is wrongly False"),
        (T([[False, False], [False, True]]), T([[True, False], [True, True]]), "along axis 1"),
        (torch.arange(6) + 2, torch.arange(6), "every entry is the right one plus 2"),
        (torch.arange(6), torch.arange(6).square() + 1, None),
    ],
)  # fmt: skip
def test_where_entries_are_wrong(got, right, fact):
    found = facts([failed(got)], Right(right))
    assert found[0].startswith(fact) if fact else found == []


def test_an_axis_has_the_letter_of_the_docstring():
    def f(x):
        """Shapes: x (B, T) -> (B, T)"""
        return x

    found = facts([failed(X.where(T([True, False, True, True]), -X), x=X)], Right(f=f))
    assert found[0].startswith("along axis 1 (T, of 4 entries) only entry 1")


def test_a_wrong_number_silences_facts_about_tensors():
    check = failed([1.0, 2 * X])
    check.difference = Difference("values", "number", where="", answer=1.0, expected=2.0)
    assert not any("times" in fact for fact in facts([check], Right([2.0, X])))


def test_facts_separate_right_and_wrong_parts():
    check = failed([X, 2 * X])
    check.check.calls[0].returning("query", "key")
    found = facts([check], Right([X, X]))
    assert found[-1] == "of what comes back this is right: query; this is wrong: key"
    assert all(
        "comes back" not in fact for fact in facts([failed([2 * X, X])], Right([X, 2 * X]))
    )


def test_a_fact_on_a_wrong_dtype_says_if_the_values_are_right():
    assert facts([failed(X.double(), "dtype")], Right(X)) == [
        "the values are right; only dtypes are wrong"
    ]
    assert facts([failed(2 * X.double(), "dtype")], Right(X)) == [
        "every entry is 2 times the right one"
    ]


def test_an_argument_that_changes_nothing_is_named():
    def f(x, mask=None, scale=1.0):
        return (x if mask is None else x * mask) * scale

    oracle = Right(f=f)
    mask = T([0.0, 1, 1, 1])
    checks = [failed(X * 2, x=X, mask=mask, scale=2.0), failed(X, x=X, mask=mask)]
    assert "the right code gives without `mask`" in facts(checks, oracle)[0]


@pytest.mark.parametrize("kinds", ["grad grad", "grad shape"])
def test_a_fact_says_what_is_right_if_all_failures_are_of_one_kind(kinds):
    found = facts([failed(0, kind, x=X) for kind in kinds.split()], Right(X))
    one_kind = "the values are right; only gradients are wrong"
    assert (one_kind in found) is (kinds == "grad grad")


# Lines, reports

MODULE = (
    "import torch\n\n\n# %% exercise 1.1: layer_norm\na\n\n\n# %% exercise 1.2: RMSNorm\nb\n"
)


@pytest.mark.parametrize(
    ("line", "own", "home"),
    [(4, 1, "1.1"), (5, 2, "1.1"), (8, None, "1.2"), (1, None, None), (99, None, None)],
)
def test_a_line_of_the_module_becomes_one_of_the_cell(line, own, home):
    assert exercise_at(MODULE, line)[0] == home
    outcome = Outcome(failure=Failure("ValueError", "no", line))
    assert localize(outcome, MODULE, "1.1").failure.line == own
    assert outcome.failure.line == line


def test_long_rows_are_folded_under_their_first_word():
    report = Report("Exercise", Status.NOT_YET, [("look", "word " * 30 + "\n" + "x" * 90)])
    first, *rows = str(report).split("\n")
    assert first == "Exercise" + " " * 61 + "not yet"
    assert rows[0].startswith("  look  word") and rows[-1].strip() == "x" * 90
    assert all(row.startswith(" " * 8) for row in rows[1:])
    assert len(max(rows[:3], key=len)) <= 76


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


def test_a_report_passes_by_its_status_and_never_by_its_words():
    for status in Status:
        report = Report("heading", status, verdict="passed")
        assert report.passed is (status is Status.PASSED) and report.verdict == "passed"
        assert Report("heading", status).verdict == status.value


def test_every_title_of_a_check_has_its_values_in_it():
    checks = [
        c for lab in LABS for f in ("visible", "hidden") for c in checks_in(f, lab.module)
    ]
    raw = [c.title for c in checks if "{" in c.title and c.title == c.declaration.title]
    assert len(checks) > 1000 and raw == []
