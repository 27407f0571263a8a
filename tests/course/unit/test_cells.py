"""Blocks, stubs and directives: the text that is moved between notebook and module."""

import sys

import pytest

from labkit.author.reference import reference_block
from labkit.course import cells
from labkit.course.paths import ROOT
from labkit.course.syllabus import LABS

LAB = LABS[0]
FIRST = LAB.exercises[0]
MODULE = (ROOT / "solutions" / "rmsnorm.py").read_text()


def test_blocks_joined_are_the_module():
    assert "".join(text for _, text in cells.split(MODULE)) == MODULE
    assert [key for key, _ in cells.split(MODULE)] == [None, "1.1", "1.2", "1.3", "1.4"]
    lazy = MODULE.replace("\nfrom", f"\n{cells.FUTURE_LINE}from", 1)  # lazy annotations
    assert cells.with_block(MODULE, FIRST, cells.block(MODULE, "1.1")) == lazy
    without = "".join(text for key, text in cells.split(MODULE) if key != "1.1")
    module = cells.with_block(without, FIRST, "def layer_norm(): ...")  # at the end
    line = f"# %% exercise 1.1: layer_norm{cells.ADDED}"
    assert module.endswith(f"    ### END SOLUTION\n\n\n{line}\ndef layer_norm(): ...\n")


def test_the_stub_of_a_hunt_is_its_bug_and_the_plain_text_has_none_of_it():
    hunt = LAB.exercise("1.4")
    block = reference_block(LAB, hunt)
    stub, right = cells.stub(block, hunt), cells.plain(block)
    assert "rms + self.eps" in stub and "rms + self.eps" not in right
    assert "# " not in stub.split("wide = ")[1] and cells.solution_lines(block) == 2
    assert cells.is_empty(stub, cells.fingerprint(stub))
    assert not cells.is_empty(right, cells.fingerprint(stub))


def test_a_stub_names_its_exercise_and_is_known_by_its_code_alone():
    stub, print_of = cells.stub(reference_block(LAB, FIRST), FIRST), cells.fingerprint
    line = '    # YOUR CODE HERE (about 5 lines)\n    raise NotImplementedError("Exercise'
    assert line in stub and "SOLUTION" not in stub and "rsqrt" not in stub
    compile(stub, "stub", "exec")
    assert print_of(stub) == print_of(stub.replace("# YOUR CODE HERE", "# what now?\n\n    #"))
    assert print_of(stub) != print_of(stub.replace("    raise", "    x = 1\n    raise"))
    assert print_of("def f(:") is None or print_of("def f(:") != print_of(stub)
    assert print_of('"""never closed') is None


def test_tidied_keeps_line_numbers():
    for before, after in {
        "x = 1\ncheck('1.1')": "x = 1\n",
        "%%time\nx = 1": "\nx = 1",
        "x = 1\n!ls\ny = 2": "x = 1\n\ny = 2",
        "x?\ny = 2": "\ny = 2",
        "from labkit.learner.notebook import check\nx = 1": "\nx = 1",
        "x = (7\n% 3)": "x = (7\n% 3)",
        "x = (": "x = (",
        "\ufeffx = 1\r\ny = 2": "x = 1\ny = 2",
    }.items():
        assert cells.without_tools(before) == after


def test_lines_are_counted_as_in_the_cell_whatever_was_put_round_them():
    cell = "import math\n# %% exercise 1.1: layer_norm\ndef layer_norm(x):\n    return x"
    block = cells.with_carried(cells.with_directive(cell, FIRST), "A = 1\nB = 2")
    own = {cells.line_in_cell(block, n + 1): t for n, t in enumerate(block.split("\n"))}
    assert own[3] == "def layer_norm(x):" and own[4] == "    return x"
    assert [cells.line_in_cell(block, n) for n in (2, 4, 5)] == [None, None, None]
    head, *rest = cells.unmarked(block).rstrip().split("\n")
    assert head == cells.directive(FIRST) and rest == [
        "A = 1", "B = 2", *cell.split("\n")[::2], "    return x",
    ]  # fmt: skip
    without = cells.with_directive("def layer_norm(x):\n    return x", FIRST)
    assert cells.line_in_cell(without, 3) == 2


@pytest.mark.parametrize(
    "cell, words",
    [
        ("x = 1\ny = \u201ca\u201d", "line 2 has \u201c, a quote of a word processor"),
        ("print(\u2018a\u2019)", "line 1 has \u2018, a quote"),
        ("def f():\n    return\u00a01", "line 2 has a no-break space"),
        ("x = 1  # \u201ca\u201d", ""),
        ("x = \u201ca\u201d +", ""),  # quotes are not the only error
        ("def f(:", ""),
    ],
)
def test_what_a_word_processor_or_a_page_put_in_is_said(cell, words):
    sentence = cells.why_no_python(cell)
    assert words in sentence and bool(words) == bool(sentence)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="not checked: this Python reads it")
def test_syntax_of_a_later_python_is_said():
    for code in ("def f[T](x: T) -> T: ...", "class A[T]: ...", "type A = int"):
        assert "line 2 needs Python 3.12, and this is" in cells.why_no_python(f"\n{code}")
