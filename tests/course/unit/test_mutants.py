"""The mutants that the tool makes, and its report on one that no check kills."""

import sys
from dataclasses import replace

import pytest

from labkit.author.reference import reference_block
from labkit.course.paths import ROOT
from labkit.course.syllabus import LABS, find_exercise

sys.path.append(str(ROOT / "benchmarks"))
import mutants as tool
from mutations import mutants

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


def test_one_fault_at_a_time():
    assert {
        *("wide = x", "wide = x.double()", "pass"),
        *("if size >= 2:", "if size > 3:", "if False:"),
        "return wide.mean(dim=-2, keepdim=True)[:, size:]",
        "return wide.mean(keepdim=True)[:, size:]",
        "return wide.mean(dim=-1, keepdim=False)[:, size:]",
        "return wide.sum(dim=-1, keepdim=True)[:, size:]",
        "return wide[:, size:]",
    } <= {after for _, after in made(CELL)}


def test_code_that_is_given_is_left_alone():
    cell = "def f(a=1):\n    b = 1\n    ### BEGIN SOLUTION\n    c = 1\n    ### END SOLUTION\n"
    given = "\n\ndef g(a=1):\n    return a\n"
    assert {before for before, _ in made(cell + given)} == {"c = 1"}


def test_texts_annotations_and_comments_are_left_alone():
    assert not {after for _, after in made(CELL) if "text" in after or "Tensor)" in after}
    assert not [pair for pair in made(CELL) if "comment" in "".join(pair)]


LAB, EXERCISE = find_exercise("3.3")
LINE = "return hidden_states.repeat_interleave(n_rep, dim=1)"
HARMLESS = LINE.replace("dim=1", "dim=-3")
WRONG = LINE.replace("dim=1", "dim=2")
LISTED = f"## repeat_kv\n\ncounted from the other end\n- {LINE}\n+ {HARMLESS}\n"


@pytest.fixture
def found(monkeypatch):
    """Runs two mutants, one of which is a right answer; returns their verdicts."""

    def run(listed):
        cell = reference_block(LAB, EXERCISE)
        [wrong] = [m for m in mutants(cell) if m.after == WRONG]
        harmless = replace(wrong, after=HARMLESS, cell=cell.replace(LINE, HARMLESS))
        monkeypatch.setattr(tool, "mutants", lambda _: [wrong, harmless])
        monkeypatch.setattr(tool, "equivalents_of", lambda _: tool.parsed(listed))
        return tool.tried(LAB, EXERCISE, "a seed", jobs=2)

    return run


def test_what_survives_is_shown_in_the_form_in_which_it_can_be_listed(found):
    both = found("")
    assert [verdict for _, verdict in both] == ["killed", "survived"]
    text = "\n".join(tool.problems(both))
    assert tool.row("3.3", both).endswith("50.0%")
    assert f"- {LINE}\n+ {HARMLESS}" in text and WRONG not in text
    assert ("repeat_kv", LINE, HARMLESS) in tool.parsed(text)


def test_a_listed_mutant_counts_as_a_right_answer(found):
    both = found(LISTED)
    assert [verdict for _, verdict in both] == ["killed", "equivalent"]
    assert tool.row("3.3", both).endswith("100.0%") and not list(tool.problems(both))


def test_an_endless_mutant_ends():
    def work(item):
        while item:
            pass
        return "done"

    assert dict(tool.in_children(work, [0, 1], cpu_seconds=1, jobs=2)) == {0: "done", 1: None}


@pytest.mark.slow
def test_a_right_answer_is_listed_with_its_reason():
    """Each entry is a mutant that the tool makes today."""
    for lab in LABS:
        made_here = {m.key for e in lab.exercises for m in mutants(reference_block(lab, e))}
        listed = tool.equivalents_of(lab)
        assert listed.keys() <= made_here
        assert all(len(reason) > 10 for reason in listed.values())
