"""Banned names of an exercise: found in the source under any alias, and stopped at run time."""

import pytest
import torch

from labkit.course.syllabus import find_lab
from labkit.sandbox.inside.banned import NotAllowed, found_in, out_of_reach
from tests.course.cost import at_most

BANNED = (
    "torch.nn.RMSNorm",
    "torch.nn.functional.silu",
    "torch.softmax",
    "transformers",
    "torch.ops",
)
FOUND = {
    "x = torch.nn.RMSNorm(3)": "torch.nn.RMSNorm",
    "x = nn.RMSNorm(3)": "torch.nn.RMSNorm",
    "x = F.silu(x)": "torch.nn.functional.silu",
    "x = map(F.silu, x)": "torch.nn.functional.silu",
    "x = F.silu.__wrapped__": "torch.nn.functional.silu.__wrapped__",
    "x = torch.ops.aten.silu(x)": "torch.ops.aten.silu",
    "import torch as t; t.softmax(x)": "torch.softmax",
    "import torch.nn.functional as G; G.silu(x)": "torch.nn.functional.silu",
    "import torch.nn; torch.nn.RMSNorm(3)": "torch.nn.RMSNorm",
    "from torch import nn as N; N.RMSNorm(3)": "torch.nn.RMSNorm",
    "from torch.nn import functional as G; G.silu(x)": "torch.nn.functional.silu",
    "from torch.nn import RMSNorm": "torch.nn.RMSNorm",
    "from torch.nn.functional import silu as swish": "torch.nn.functional.silu",
    "import transformers": "transformers",
    "import transformers.models.qwen3 as q": "transformers.models.qwen3",
    "from transformers import AutoModel": "transformers",
    "from torch.ops import aten": "torch.ops",
    "def f(x):\n    class A(nn.RMSNorm): ...": "torch.nn.RMSNorm",
    "@torch.softmax\ndef f(): ...": "torch.softmax",
}


def test_a_name_is_found_through_imports_and_aliases():
    found = {source: found_in("# a comment\n\n" + source, BANNED) for source in FOUND}
    assert {source: place and place[0] for source, place in found.items()} == FOUND


def test_every_spelling_of_a_labs_functions_is_found():
    banned = find_lab("swiglu").not_allowed
    for source in ("F.silu_(x)", "torch.silu(x)", "nn.functional.glu(x)"):
        assert found_in(source, banned), source
    for module, source in (
        *(("rmsnorm", "F.normalize(x)"), ("rmsnorm", "nn.utils.weight_norm(layer)")),
        *(("training", "F.kl_div(x, y)"), ("training", "F.poisson_nll_loss(x, y)")),
    ):
        assert found_in(source, find_lab(module).not_allowed), source


def test_other_names_and_text_are_free():
    free = (
        *("", "x = softmax(x)", "x.softmax(-1)", "silu = 1", "self.F.silu(x)", "'F.silu(x)'"),
        *("# nn.RMSNorm", "nn.RMSNormal(3)", "F.silu_(x)", "import transformers2", "torch.op"),
        *("from . import silu", "import mine as F; F.silu(x)"),
        *("nn.RMSNorm(", "\0", "x = " + "(" * 9999),  # invalid Python is reported elsewhere
    )
    assert [source for source in free if found_in(source, BANNED)] == []


def test_reading_takes_time_in_proportion_to_the_text():
    for text in ("x" + ".a(1)" * 900, "f(" + "+".join("x" * 900) + ")", "a" + ".b" * 900,
                 ";".join(["torch" + ".b" * 90] * 2_000)):  # fmt: skip
        with at_most(1000, text[:20]):
            assert found_in(text, BANNED) is None


def test_the_line_is_that_of_the_name():
    source = "def f(x):\n    y = x\n    return y + F.silu(y)\n"
    assert found_in(source, BANNED) == ("torch.nn.functional.silu", 3)


def test_a_name_out_of_reach_raises_on_every_road_and_comes_back():
    before = torch.nn.functional.silu, torch.nn.RMSNorm, torch.softmax
    with (
        pytest.raises(ZeroDivisionError),
        out_of_reach((*BANNED, *BANNED, "no.such.module", "torch.none")),
    ):
        for road in (lambda: getattr(torch.nn.functional, "si" + "lu")(torch.ones(1)),
                     lambda: torch.nn.SiLU()(torch.ones(1)),
                     lambda: torch.nn.RMSNorm(3)):  # fmt: skip
            with pytest.raises(NotAllowed, match="may not be used here: write it with basic"):
                road()
        assert torch.ops is not None and torch.ones(1).softmax(0) == 1
        1 / 0  # noqa: B018
    assert (torch.nn.functional.silu, torch.nn.RMSNorm, torch.softmax) == before
