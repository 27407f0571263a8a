"""Odd but honest forms of a notebook of lab 01, as people hand it in: its code cells, and the
points of each exercise.

In a cell @1, @2 and @3 mean the right answers, @b1 ... for the same without their
directive, @s1 ... for the empty cells as they are released. An exercise that a form does not
mention has a right answer in its own cell.
"""

import re
from dataclasses import dataclass, field

from labkit.author.reference import reference_block
from labkit.course import cells
from labkit.course.syllabus import LABS

LAB = LABS[0]
POINTS = {exercise.id: exercise.points for exercise in LAB.exercises}

# Answers that need code of other cells
NORM = """def layer_norm(x, weight, bias, eps={eps}):
    wide = x.float()
    wide = wide - {mean}
    wide = wide * {root}
    return (wide * weight + bias).to(x.dtype)
"""


def norm(
    eps="1e-5",
    mean="wide.mean(-1, keepdim=True)",
    root="torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)",
    directive=True,
):
    head = "# %% exercise 1.1: layer_norm\n" if directive else ""
    return head + NORM.format(eps=eps, mean=mean, root=root)


MATH = norm(root="torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * math.sqrt(1.0)")
HELPED = norm(mean="mean_of(wide)")
HELPER = "def mean_of(x):\n    return x.mean(-1, keepdim=True)\n"
INIT = """class RMSNorm({base}):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(hidden_size)), eps
"""
FORWARD = """def forward(self, hidden_states):
    wide = hidden_states.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
    return self.weight * wide.to(hidden_states.dtype)
"""
IN_CLASS = "\n" + re.sub("^", "    ", FORWARD.rstrip(), flags=re.MULTILINE) + "\n"
CLASS = "# %% exercise 1.2: RMSNorm\n" + INIT.format(base="nn.Module")
ADD = """def add_to_class(Class):
    def wrapper(method):
        setattr(Class, method.__name__, method)
    return wrapper
"""
WRONG = norm().replace("+ bias", "- bias")
LOOSE_WRONG = WRONG.split("\n", 1)[1]


@dataclass(frozen=True)
class Form:
    """cells: of the notebook, in order, after the course's first cell.

    lost    {exercise id: words of its report} of exercises that do not get all their points
    seen    other words in the report of the first exercise
    asked   exercises that a person is asked to look at
    home    whether check() at home passes exactly the exercises with all points in grading
    """

    cells: tuple[str, ...]
    lost: dict[str, str] = field(default_factory=dict)
    seen: str = ""
    asked: tuple[str, ...] = ()
    home: bool = True

    @property
    def sources(self):
        """The code cells, filled in."""
        told, texts = " ".join(self.cells), []
        for exercise in LAB.exercises:
            number = exercise.id[-1]
            if f"exercise {exercise.id}" in told or f"@{number}" in told.replace("@b", "@"):
                continue
            if not re.search(
                rf"^(def|class) {exercise.title}\b|@s{number}", told, re.MULTILINE
            ):
                texts.append(f"@{number}")
        return [filled(text) for text in (*self.cells, *texts)]


def filled(text):
    for exercise in LAB.exercises:
        block = reference_block(LAB, exercise)
        right, number = cells.plain(block).strip(), exercise.id[-1]
        text = text.replace(f"@s{number}", cells.stub(block, exercise).strip())
        text = text.replace(f"@b{number}", right.split("\n", 1)[1])
        text = text.replace(f"@{number}", right)
    return text


def form(*texts, lost=None, seen="", asked=(), home=True):
    return Form(texts, lost or {}, seen, asked, home)


NOT_STARTED = {"1.1": "not started"}
OUTSIDE = {"1.2": "defines forward and does not count: the answer is one code cell"}
FORMS = {
    # Lines around the definitions
    "%%time": form("%%time\n@1"),
    "%timeit below": form("@1\n%timeit -n 1 -r 1 sum(range(3))"),
    "!pip above": form("!true pip install torch\n@1"),
    "f? below": form("@1\nlayer_norm?"),
    "files = !ls above": form("files = !ls\n@1"),
    "import above the directive": form("import math\n\n" + MATH),
    "rubbish above the directive": form("x = undefined = 3\nprint(x)\n@1"),
    "future annotations below the directive": form(
        "# %% exercise 1.1\nfrom __future__ import annotations\n@b1"
    ),
    "import * of the own module": form("from tinyllm.rmsnorm import *\n@1"),
    "no annotations": form(norm()),
    "a lambda": form(
        "# %% exercise 1.1\nlayer_norm = lambda x, weight, bias, eps=1e-5: ("
        "(x.float() - x.float().mean(-1, keepdim=True)) * torch.rsqrt("
        "x.float().var(-1, keepdim=True, unbiased=False) + eps) * weight + bias).to(x.dtype)"
    ),
    "tabs": form(norm().replace("    ", "\t")),
    "Windows line ends": form("@1".replace("\n", "\r\n") + "\r\nx = 1\r\n"),
    "jit.script": form("# %% exercise 1.1\n@torch.jit.script\n@b1"),
    "parameters renamed": form(
        norm().replace("weight", "gamma"),
        lost={"1.1": "the arguments of `layer_norm` are not those of the stub"},
        asked=("1.1",),
    ),
    "check and hint below": form('@1\ncheck("1.1")\nhint("1.1")'),
    "__main__": form('@1\nif __name__ == "__main__":\n    print(layer_norm)'),
    "the stub's raise left below": form('@1\n\n    raise NotImplementedError("x")'),
    "plt of the tools cell below": form("import matplotlib.pyplot as plt", "@1\nplt.figure()"),
    "plt of the tools cell inside": form(
        "import matplotlib.pyplot as plt",
        norm().replace("    return", "    plt.close()\n    return"),
        lost={"1.1": "matplotlib.pyplot may not be used in an answer"},
    ),
    "display inside": form(norm().replace("    return", "    display(x)\n    return")),
    "unused pandas": form(
        "# %% exercise 1.1\ntry:\n    import pandas as pd\nexcept Exception:\n"
        "    pd = None\n@b1\nprint(pd)"
    ),
    "own test against what is not allowed": form(
        "@1\nx = torch.ones(2, 3)\nassert layer_norm(x, torch.ones(3), torch.zeros(3))"
        ".allclose(nn.functional.layer_norm(x, (3,)))"
    ),
    "the same test in a function": form(
        "@1\ndef test():\n    x = torch.ones(2, 3)\n    one = layer_norm(x, torch.ones(3), 0)\n"
        "    assert one.allclose(nn.LayerNorm(3)(x))\n\ntest()"
    ),
    "what is not allowed, in the answer": form(
        "# %% exercise 1.1\ndef layer_norm(x, weight, bias, eps=1e-5):\n"
        "    return nn.functional.layer_norm(x, weight.shape, weight, bias, eps)",
        lost={"1.1": "F.layer_norm may not be used here"},
    ),
    "torch.compile(...)": form(
        "# %% exercise 1.1\n@torch.compile(dynamic=True)\n" + norm(directive=False)
    ),
    "full-width comma": form(
        norm().replace("weight, bias", "weight\uff0c bias"),
        lost={"1.1": "\uff0c"},
        asked=("1.1",),
    ),
    "a failing line below": form("@1\nlayer_norm(torch.ones(2, 3))"),
    "a name of nowhere below": form("@1\nprint(nowhere)"),
    # How the cell is marked
    "the directive's capital": form("# %% Exercise 1.1\n@b1"),
    "no directive": form("@b1"),
    "#%%": form("#%%\n@b1"),
    # The place of the answer
    "stub left, a cell of its own": form("@s1", "@b1", seen="no cell with the line"),
    "stub emptied, a cell of its own": form("# %% exercise 1.1", "@b1"),
    "merged without directives": form("@b1\n\n@b2\n\n@b3"),
    "merged with directives": form("@1\n\n@2\n\n@3"),
    "right and blank": form("@1", "@s1"),
    "blank and right": form("@s1", "@1"),
    "wrong and right": form(WRONG, "@1", seen="all answer this exercise"),
    "right, then a wrong experiment": form(
        "@1", WRONG, lost={"1.1": "the last one, 3, counts"}, asked=("1.1",)
    ),
    "right, then a wrong experiment without directive": form("@1", LOOSE_WRONG),
    "wrong in its cell, right in a new one": form(
        WRONG,
        "@b1",
        lost={"1.1": "cell 3 defines layer_norm and does not count"},
        asked=("1.1",),
    ),
    "two of its own, the last one wrong": form(
        "@s1", "@b1", LOOSE_WRONG, lost={"1.1": "cell 3 defines it, too"}, asked=("1.1",)
    ),
    "reversed": form("@3", "@2", "@1"),
    "the directive's cell holds something else": form("# %% exercise 1.1\nHALF = 0.5", "@b1"),
    "a broken copy below": form("@1", "# %% exercise 1.1\ndef layer_norm(x:\n"),
    "a broken copy above": form("# %% exercise 1.1\ndef layer_norm(x:\n", "@b1"),
    "a name that is almost right": form(
        "@s1",
        norm(directive=False).replace("layer_norm", "LayerNorm"),
        lost={"1.1": "cell 3 defines LayerNorm and does not count: the answer is one"},
        asked=("1.1",),
    ),
    "renamed in its cell": form(
        norm().replace("layer_norm(", "my_norm("),
        lost={"1.1": "the exercise needs `layer_norm`, and this cell defines my_norm"},
        asked=("1.1",),
    ),
    "nothing": form("@s1", lost=NOT_STARTED),
    # Imports, constants and helpers of other cells
    "math in a cell of its own": form("import math", MATH),
    "math in a cell below": form(MATH, "import math"),
    "F": form(
        "import torch.nn.functional as F",
        MATH.replace("math.sqrt(1.0)", "F.relu(torch.ones(()))"),
    ),
    "what is not allowed under another name": form(
        "import torch.nn.functional as fun",
        "# %% exercise 1.1\ndef layer_norm(x, weight, bias, eps=1e-5):\n"
        "    return fun.layer_norm(x, weight.shape, weight, bias, eps)",
        lost={"1.1": "F.layer_norm may not be used here"},
    ),
    "a helper that is not allowed": form(
        "def do(x, w, b, eps):\n    return nn.functional.layer_norm(x, w.shape, w, b, eps)",
        "# %% exercise 1.1\ndef layer_norm(x, weight, bias, eps=1e-5):\n"
        "    return do(x, weight, bias, eps)",
        lost={"1.1": "another cell: F.layer_norm may not be used here"},
    ),
    "a base class": form(
        "class Base(nn.Module):\n    pass",
        "# %% exercise 1.2\n" + INIT.format(base="Base") + IN_CLASS,
    ),
    "a helper": form(HELPER, HELPED),
    "a helper below": form(HELPED, HELPER),
    "a helper of a helper": form(
        "AXIS = -1",
        "def mean_of(x):\n    return over(x)\n",
        "def over(x):\n    return x.mean(AXIS, keepdim=True)",
        HELPED,
    ),
    "a helper in another answer": form(HELPED, "@2\n\n" + HELPER),
    "a helper below a test that fails": form(HELPER + "\nassert False", HELPED),
    "a helper in a merged cell": form(HELPER + "\n" + HELPED + "\n@2"),
    "a helper made twice": form(HELPER.replace("mean(", "sum("), HELPER, HELPED),
    "a helper with its own import": form(
        "import functools",
        "@functools.cache\ndef axis():\n    return -1\n\n" + HELPER.replace("-1", "axis()"),
        HELPED,
    ),
    "a global config dict": form(
        "CONFIG = {'eps': 1e-5}\nCONFIG['axis'] = -1",
        norm(eps="CONFIG['eps']", mean="wide.mean(CONFIG['axis'], keepdim=True)"),
    ),
    "a dataclass config": form(
        "from dataclasses import dataclass",
        "@dataclass\nclass Config:\n    axis: int = -1\n\ncfg = Config()\nprint(cfg)",
        norm(mean="wide.mean(cfg.axis, keepdim=True)"),
    ),
    "a table filled by a loop": form(
        "AXES = []\nfor k in range(1, 3):\n    AXES.append(-k)",
        norm(mean="wide.mean(AXES[0], keepdim=True)"),
    ),
    "import or else": form(
        "try:\n    import einops\nexcept ImportError:\n    einops = None",
        norm().replace("    return", "    if einops and False: print(1)\n    return"),
    ),
    "star import": form(
        "from math import *",
        norm(root=("torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * sqrt(1.0)")),
    ),
    "a value of a trial": form(
        "@2",
        "out = RMSNorm(4)(torch.ones(4))",
        norm().replace("    return", "    out.sum()\n    return"),
        lost={"1.1": "`out` is used and not defined"},
        asked=("1.1",),
    ),
    # Methods added cell by cell
    "@add_to_class over two cells": form(
        ADD, CLASS, "@add_to_class(RMSNorm)\n" + FORWARD, lost=OUTSIDE, asked=("1.2",)
    ),
    "@add_to_class in one cell": form(
        "# %% exercise 1.2\n"
        + ADD
        + INIT.format(base="nn.Module")
        + "\n@add_to_class(RMSNorm)\n"
        + FORWARD
    ),
    "RMSNorm.forward = in a cell below": form(
        CLASS, FORWARD + "RMSNorm.forward = forward", lost=OUTSIDE, asked=("1.2",)
    ),
    "setattr in a cell below": form(
        CLASS, FORWARD + 'setattr(RMSNorm, "forward", forward)', lost=OUTSIDE, asked=("1.2",)
    ),
    "split at def forward": form(
        CLASS,
        FORWARD,
        lost={"1.2": "the class has no method `forward` of its own"},
        asked=("1.2",),
    ),
    "its method broken in a later cell": form(
        "@2",
        "def broken(self, hidden_states):\n    return hidden_states\n"
        "old, RMSNorm.forward = RMSNorm.forward, broken",
    ),
    # As editors and pages make them
    "a fence": form("```python\n@1\n```", home=False),
    "prompts": form(
        re.sub("^(?=#|def)", ">>> ", norm(), flags=re.M).replace("\n    ", "\n...     ")
    ),
    "the whole cell indented": form(re.sub("^", "    ", norm(), flags=re.M)),
    "imports under TYPE_CHECKING": form(
        "# %% exercise 1.1\nfrom __future__ import annotations\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from jaxtyping import Float\n"
        + norm(directive=False).replace("(x,", "(x: Float[Tensor, 'b e'],"),
    ),
    "own tests under __main__": form(
        '@1\nif __name__ == "__main__":\n    x = torch.ones(2, 3)\n'
        "    nn.functional.layer_norm(x, (3,))"
    ),
    "wrapped below": form(
        "import functools",
        norm() + "\ndef logged(f):\n    @functools.wraps(f)\n    def g(*a, **k):\n"
        "        return f(*a, **k)\n    return g\n\nlayer_norm = logged(layer_norm)",
    ),
    "partial": form(
        "from functools import partial\n\nmean_of = partial(torch.mean, dim=-1, keepdim=True)",
        HELPED,
    ),
    "an alias": form("rsqrt = torch.rsqrt", norm().replace("torch.rsqrt", "rsqrt")),
    "overloads": form(
        "# %% exercise 1.1\nfrom typing import overload\n@overload\ndef layer_norm(x): ...\n@b1"
    ),
    "a version above in the cell": form("# %% exercise 1.1\n" + LOOSE_WRONG + "\n@b1"),
    "async helper": form("@1\nasync def later():\n    return 1\nawait later()"),
    "a decorator of another cell": form(
        "def timed(f):\n    return f", "# %% exercise 1.1\n@timed\n" + norm(directive=False)
    ),
    "two imports in one line": form("import math; print('imported')", MATH),
    "exec": form(
        "# %% exercise 1.1\nexec('MEAN = -1')\n"
        + norm(mean="wide.mean(MEAN, keepdim=True)", directive=False),
        lost={"1.1": "`MEAN` is used and not defined"},
        asked=("1.1",),
    ),
    "quotes of a word processor": form(
        norm().replace(
            "    wide = x.float()", "    name = \u201cnorm\u201d\n    wide = x.float()"
        ),
        lost={"1.1": "line 3 has \u201c, a quote of a word processor: type ' or"},
        asked=("1.1",),
        home=False,
    ),
    "no-break spaces": form(
        norm().replace("wide = wide - ", "wide =\u00a0wide - "),
        lost={"1.1": "line 4 has a no-break space, as pages do: type a plain space"},
        asked=("1.1",),
        home=False,
    ),
    "del below": form("helper = 1", "@1\ndel helper"),
    "a helper that uses a later answer": form(
        "def twice(x):\n    return RMSNorm(3)(x)", norm(), "@2"
    ),
}
