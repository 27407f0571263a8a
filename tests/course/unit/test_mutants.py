"""Mutants: which are made, and that one which no check sees is shown."""

from dataclasses import replace

import pytest

from labkit.author.mutants import table
from labkit.author.mutants.equivalents import equivalents_of, parsed
from labkit.author.mutants.making import key_of, mutants
from labkit.author.mutants.trial import in_children
from labkit.core.syllabus import LABS, find_exercise

CELL = '''
def f(x: Tensor, size: int = 4, mask=None) -> Tensor:
    """A text, 1 + 1."""
    wide = x.float()  # a comment
    if size > 2:
        raise ValueError(f"size is {size}")
    return wide.mean(dim=-1, keepdim=True)[:, size:]
'''


def made(cell):
    return {(mutant.before, mutant.after) for mutant in mutants(cell)}


@pytest.mark.parametrize(
    "after",
    [
        *("wide = x", "wide = x.double()", "wide = size.float()", "pass"),
        *("if size >= 2:", "if size > 3:", "if not size > 2:", "if False:"),
        'raise RuntimeError(f"size is {size}")',
        "return wide.mean(dim=-2, keepdim=True)[:, size:]",
        "return wide.mean(keepdim=True)[:, size:]",
        "return wide.mean(dim=-1, keepdim=False)[:, size:]",
        "return wide.sum(dim=-1, keepdim=True)[:, size:]",
        "return wide.mean(dim=-1, keepdim=True)[:, size + 1:]",
        "return wide.mean(dim=-1, keepdim=True)[size:, :]",
        "return wide[:, size:]",
        "def f(x: Tensor, size: int = 5, mask=None) -> Tensor:",
        "def f(x: Tensor, size: int = 4, mask=1) -> Tensor:",
    ],
)
def test_one_fault_at_a_time(after):
    assert after in {new for _, new in made(CELL)}


def test_code_that_is_given_is_left_alone():
    cell = "def f(a=1):\n    b = 1\n    ### BEGIN SOLUTION\n    c = 1\n    ### END SOLUTION\n"
    given = "\n\ndef g(a=1):\n    return a\n"
    assert {before for before, _ in made(cell + given)} == {"def f(a=1):", "c = 1"}


def test_texts_annotations_and_comments_are_left_alone():
    assert not {after for _, after in made(CELL) if "text" in after or "Tensor)" in after}
    assert not [pair for pair in made(CELL) if "comment" in "".join(pair)]


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("y = a * b * c", "y = (a + b) * c"),
        ("y = (a + b) * c", "y = (a * b) * c"),
        ("y = a * b + c", "y = a / b + c"),
        ("é = f(ä, b - c)", "é = f(ä, b + c)"),
        ("y = x[-1]", "y = x[-2]"),
    ],
)
def test_brackets_stand_where_they_make_a_difference(line, after):
    assert (line, after) in made(line)


LAB, EXERCISE = find_exercise("3.3")
LINE = "return hidden_states.repeat_interleave(n_rep, dim=1)"
HARMLESS = LINE.replace("dim=1", "dim=-3")
WRONG = LINE.replace("dim=1", "dim=2")
LISTED = f"## repeat_kv\n\ncounted from the other end\n- {LINE}\n+ {HARMLESS}\n"


@pytest.fixture
def tallied(monkeypatch):
    """Two mutants are tried, of which one is a right answer."""

    def run(listed, sample=0):
        both = [m for m in table.mutants_of(LAB, EXERCISE) if m.after == WRONG]
        both += [replace(both[0], after=HARMLESS, cell=both[0].cell.replace(WRONG, HARMLESS))]
        monkeypatch.setattr(table, "mutants_of", lambda *_: both)
        monkeypatch.setattr(table, "equivalents_of", lambda _: parsed(listed))
        return table.tally(LAB, EXERCISE, "a seed", sample, jobs=2)

    return run


def test_what_survives_is_shown_in_the_form_in_which_it_can_be_listed(tallied):
    found = tallied("")
    text = "\n".join(table.problems(found))
    assert found.rate == 0.5 and f"- {LINE}\n+ {HARMLESS}" in text and WRONG not in text
    assert key_of("repeat_kv", LINE, HARMLESS) in parsed(text)


def test_a_listed_mutant_counts_as_a_right_answer(tallied):
    found = tallied(LISTED)
    assert found.rate == 1 and found.equivalent == 1 and not list(table.problems(found))


def test_a_list_that_is_wrong_or_old_is_noticed(tallied):
    found = tallied(LISTED.replace("-3", "2") + "- n_rep = 1\n+ pass\n")
    text = "\n".join(table.problems(found))
    assert "listed as equivalent, but killed" in text
    assert "made no more: repeat_kv\n- n_rep = 1\n+ pass" in text


def test_of_a_sample_the_report_is_shown(tallied):
    text = "\n".join(table.reports(tallied(LISTED, sample=1)))
    assert f"+ {WRONG}\n  look  " in text


def test_an_endless_mutant_ends():
    def work(item):
        while item:
            pass
        return "done"

    assert dict(in_children(work, [0, 1], cpu_seconds=1, jobs=2)) == {0: "done", 1: None}


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.name)
def test_a_right_answer_is_listed_with_its_reason(lab):
    symbols = {symbol for exercise in lab.exercises for symbol in exercise.symbols}
    for (scope, before, after), reason in equivalents_of(lab).items():
        assert scope.split(".")[0] in symbols and before != after and len(reason) > 10
