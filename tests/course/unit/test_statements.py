"""Reading a notebook stays cheap for any content. The code that an answer needs: forms.py."""

import json

from labkit.course import cells
from labkit.course.answers import defines
from labkit.course.syllabus import LABS, find_lab
from labkit.grading.judge.intake import known_names, rebuild
from tests.course.cost import at_most

LAB = LABS[0]


def test_no_given_cell_looks_like_an_answer(released):
    for lab in LABS:
        code = [cell for cell in released[lab.name].cells if cell.cell_type == "code"]
        given = [c for c in code if not c.metadata.get("nbgrader", {}).get("solution")]
        assert not [c.id for c in given for e in lab.exercises if defines(c.source, e)]
    # names of the module are not searched in other cells
    assert {"torch", "check_inputs", "init_weights"} <= {*known_names(find_lab("decoder"))}


DEFINITION = "# %% exercise 1.1\ndef layer_norm(x):\n    return {}\n"
HOSTILE = {
    "a long chain of names": [
        "".join(f"a{i} = a{i + 1}\n" for i in range(5000)) + DEFINITION.format("a0")
    ],
    "a long chain of cells": [
        DEFINITION.format("f0()"),
        *(f"def f{i}(): return f{i + 1}()" for i in range(4900)),
    ],
    "names that are nowhere": [
        DEFINITION.format([f"q{i}" for i in range(9000)]).replace("'", ""),
        *["w = 'q' * 3\n" * 6000] * 5,
    ],
    "stars": [DEFINITION.format("zz"), *["from math import *\n" * 4000] * 8],
    "names that fail": [
        *["b=1\n" * 3000 + "".join(f"n{i}=z{k}+1\n" for i in range(200)) for k in range(4)],
        DEFINITION.format("+".join(f"n{i}" for i in range(200))),
    ],
    "each needs each": ["x=y\n" * 8000 + "y=x\n" * 8000, DEFINITION.format("x")],
    "methods in many cells": [
        *("\n".join(f"layer_norm.{c}{i}=1" for i in range(5000)) for c in "ab"),
        *["x"] * 4900,
        DEFINITION.format(1),
    ],
    "marks": [DEFINITION.format(1) + f"{cells.CARRIED}\n" * 4000],
    "a deep expression": [DEFINITION.format(1) + "x" + ".a" * 3000 + " = 1\n"],
}


def rebuilt(released, *texts):
    made = [{"cell_type": "code", "source": text} for text in texts]
    data = json.dumps({"cells": made, "nbformat": 4}).encode()
    return rebuild(data, released[LAB.name], LAB)


def test_reading_a_notebook_takes_no_time_however_it_is_made(released):
    for case, texts in HOSTILE.items():
        with at_most(1500, case):
            rebuilt(released, *texts)


def test_a_helper_of_a_helper_comes_along(released):
    helpers = ["def g(): return h()", "def h(): return 1"]
    whole = rebuilt(released, *helpers, DEFINITION.format("g()"))
    assert "def h()" in whole.answers["1.1"] and "1.1" not in whole.notes
