"""Slips that are found from the source text, and code without a slip."""

import pytest

from labkit.checks.reasons.slips import fatal_slip, likely_slip
from labkit.checks.reasons.source import occurs_in

INIT = "class A:\n    def {name}(self):\n        self.a = 1\n"
PARTS = """class A:
    def __init__(self):
        self.k, self.v = Linear(), Linear()
    def forward(self, x):
        return self.k(x), self.{used}(x)
"""


@pytest.mark.parametrize(
    ("cell", "start"),
    [
        (INIT.format(name="_init_"), "`_init_` is never called"),
        (INIT.format(name="__init__"), ""),
        ("class A:\n    def init(self): ...\n    def __init__(self): ...\n", ""),
        ("def f(x):\n    y = x,\n", "line 2 ends with a comma: `y` becomes a tuple"),
        ("def f(x):\n    y, = x\n    z = x, x\n", ""),
        (
            "class A:\n    def __init__(self):\n        a = B()\n",
            "`self.` is missing: `a` is made",
        ),
        ("class A:\n    def __init__(self):\n        a = B()\n        self.a = a\n", ""),
    ],
)
def test_a_fatal_slip(cell, start):
    found = fatal_slip(cell)
    assert found.startswith(start) and bool(found) is bool(start)


RIGHT = "def f(x, scale=None):\n    y = x.relu()\n    return (x - y) / 2\n"


@pytest.mark.parametrize(
    ("cell", "right", "start"),
    [
        ("def f():\n    raise ValueError('no')\n", "", ""),
        ("def f(x):\n    for a in x:\n        b = a\n        return b\n", "",
         "the `return` in line 4 ends the loop"),
        ("def f(x):\n    for a in x:\n        if a:\n            return a\n", "", ""),
        ("def f(x):\n    x.relu()\n    return x\n", "", "line 2: the result of `x.relu()`"),
        ("def f(x):\n    x.relu_()\n    x.append(1)\n    return x\n", "", ""),
        (PARTS.format(used="k"), "", "`self.v` is made and never used"),
        (PARTS.format(used="v"), "", ""),
        ("def f(x):\n    x.mul_(2)\n    return x\n", "def f(x):\n    return x.mul_(2)\n", ""),
        ("def f(scale=None):\n    return scale or 2\n", RIGHT, "`scale or ...` takes"),
        ("def f(scale=None):\n    return scale or 2\n", "scale or 1", ""),
        ("def f(a, b):\n    return a or b\n", RIGHT, ""),
        ("class A:\n  def add(self): ...\n  def f(self):\n    self.add(1)\n", RIGHT, ""),
        ("def f(", "def f(x):\n    return x\n", ""),
    ],
)  # fmt: skip
def test_a_likely_slip(cell, right, start):
    found = likely_slip(cell, right)
    assert found.startswith(start) and bool(found) is bool(start)


def test_nothing_is_quoted_that_the_learner_did_not_write():
    assert occurs_in("x @ y.mT", "def f(x, y):\n    return x@y.mT  # a product\n")
    assert not occurs_in("x @ y.mT", "def f(x, y):\n    return x.matmul(y)\n")
    assert occurs_in("1e-5", "def f(): ...\n") and occurs_in("anything", "")
