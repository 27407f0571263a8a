"""Which exercise a cell answers: by directive, grade_id, id, and what it defines."""

import pytest

from labkit.core.answers import answers_in, cell_name
from labkit.core.syllabus import LABS

LAB = LABS[0]  # 1.1 layer_norm, 1.2 RMSNorm, 1.3 residual
FIRST, SECOND = (
    "# %% exercise 1.1\ndef layer_norm(): ...\n",
    "# %% exercise 1.2\nclass RMSNorm: ...\n",
)
OTHER = "# %% exercise 7.1\n"  # of another lab
MISLED = "# %% exercise 1.2\ndef layer_norm(): ...\n"


@pytest.mark.parametrize(
    ("text", "name", "found"),
    [
        (FIRST, "", {"1.1": FIRST}),
        (FIRST, "ex-1-1", {"1.1": FIRST}),
        (FIRST, "ex-1-2", {"1.1": FIRST}),
        ("x = 1", "ex-1-1", {"1.1": "x = 1"}),
        ("", "ex-1-1", {"1.1": ""}),
        ("def layer_norm(): ...", "scratch", {}),
        ("# %% exercise 7.1\ndef layer_norm(): ...", "", {}),
        (MISLED, "ex-1-1", {"1.1": MISLED}),
        (MISLED, "", {"1.2": MISLED}),
        ("# %% given\nx = 1", "", {}),
        ("import math\n" + FIRST + SECOND, "", {"1.1": "import math\n" + FIRST, "1.2": SECOND}),
        (FIRST + OTHER + SECOND, "", {"1.1": FIRST, "1.2": OTHER + SECOND}),
        (FIRST + MISLED, "ex-1-1", {"1.1": FIRST, "1.2": MISLED}),
        ("# %% exercise 1.2\ndef (:", "ex-1-1", {"1.2": "# %% exercise 1.2\ndef (:"}),
    ],
    ids=[
        "by its directive", "both", "the directive before the id", "by its id", "an empty one",
        "a definition alone is none", "another lab's", "at odds: what it defines decides",
        "unless no id speaks against it", "given code", "merged cells",
        "merged with another lab's", "merged and misled", "at odds and no Python",
    ],
)  # fmt: skip
def test_a_cell_answers(text, name, found):
    assert answers_in(text, name, LAB) == found


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        ({"id": "a", "metadata": {"nbgrader": {"grade_id": "ex-1-1"}}}, "ex-1-1"),
        ({"id": "a", "metadata": {"nbgrader": {}}}, "a"),
        ({"id": "a", "metadata": {"nbgrader": {"grade_id": 3}}}, "a"),
        ({"id": "a", "metadata": []}, "a"),
        ({"id": 7}, ""),
        ({}, ""),
    ],
    ids=str,
)
def test_a_cell_is_named_by_its_grade_id_or_else_its_id(cell, name):
    assert cell_name(cell) == name
