"""Which exercise a cell answers: by directive, grade_id, id and definitions."""

from labkit.course.answers import Cell, Notebook, answers_in, cell_name
from labkit.course.syllabus import LABS

LAB = LABS[0]  # 1.1 layer_norm, 1.2 RMSNorm, 1.3 residual
FIRST, SECOND = (
    "# %% exercise 1.1\ndef layer_norm(): ...\n",
    "# %% exercise 1.2\nclass RMSNorm: ...\n",
)
OTHER = "# %% exercise 7.1\n"  # an exercise of another lab
MISLED = "# %% exercise 1.2\ndef layer_norm(): ...\n"
ANSWERS = {  # the cell, its id, the answers in it
    "by its directive": (FIRST, "", {"1.1": FIRST}),
    "both": (FIRST, "ex-1-1", {"1.1": FIRST}),
    "the directive before the id": (FIRST, "ex-1-2", {"1.1": FIRST}),
    "by its id": ("x = 1", "ex-1-1", {"1.1": "x = 1"}),
    "an empty one": ("", "ex-1-1", {"1.1": ""}),
    "a definition alone is none": ("def layer_norm(): ...", "scratch", {}),
    "another lab's": ("# %% exercise 7.1\ndef layer_norm(): ...", "", {}),
    "at odds: what it defines decides": (MISLED, "ex-1-1", {"1.1": MISLED}),
    "unless no id speaks against it": (MISLED, "", {"1.2": MISLED}),
    "given code": ("# %% given\nx = 1", "", {}),
    "merged cells": ("import math\n" + FIRST + SECOND, "",
                     {"1.1": "import math\n" + FIRST, "1.2": SECOND}),
    "merged with another lab's": (FIRST + OTHER + SECOND, "",
                                  {"1.1": FIRST, "1.2": OTHER + SECOND}),
    "merged and misled": (FIRST + MISLED, "ex-1-1", {"1.1": FIRST, "1.2": MISLED}),
    "at odds and no Python": ("# %% exercise 1.2\ndef (:", "ex-1-1",
                              {"1.2": "# %% exercise 1.2\ndef (:"}),
}  # fmt: skip


def test_a_cell_answers_an_exercise():
    for case, (text, name, found) in ANSWERS.items():
        assert answers_in(text, name, LAB) == found, case


def test_a_cell_is_named_by_its_grade_id_or_else_its_id():
    for cell, name in [
        ({"id": "a", "metadata": {"nbgrader": {"grade_id": "ex-1-1"}}}, "ex-1-1"),
        ({"id": "a", "metadata": {"nbgrader": {}}}, "a"),
        ({"id": "a", "metadata": {"nbgrader": {"grade_id": 3}}}, "a"),
        ({"id": "a", "metadata": []}, "a"),
        ({"id": 7}, ""),
        ({}, ""),
    ]:
        assert cell_name(cell) == name, cell


def test_functions_made_of_an_answer_come_along_and_what_it_computed_does_not():
    made = {
        "twice = lambda x: layer_norm(layer_norm(x))": True,
        "twice = layer_norm": True,
        "twice = partial(layer_norm, eps=1e-3)": True,
        "twice = layer_norm(1)": False,
        "twice = partial(layer_norm, layer_norm(1))": False,
        "twice = layer_norm(1).eps": False,
    }
    answer = "# %% exercise 1.2\nclass RMSNorm:\n    forward = lambda self, x: twice(x)\n"
    for line, comes in made.items():
        found = [Cell(FIRST), Cell(line), Cell(answer, parts={"1.2": answer})]
        carried = Notebook(LAB, found, {"partial"}, lambda *_: False).answer(LAB.exercises[1])
        assert (line in carried.text) is comes and ("twice" in carried.carried) is comes, line
