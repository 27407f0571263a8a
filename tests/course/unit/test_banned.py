"""What an exercise may not use: found in the source by every name, and stopped when it runs."""

import sys

import pytest
import torch

from labkit.course.syllabus import find_lab
from labkit.sandbox.inside.banned import NotAllowed, doubtful, found_in, out_of_reach
from labkit.sandbox.inside.call import Call
from labkit.sandbox.inside.perform import perform
from labkit.sandbox.inside.torch_private import Watch

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
    assert {"aten::silu", "aten::silu_"} <= {*banned}


def test_other_names_and_text_are_free():
    free = (
        *("", "x = softmax(x)", "x.softmax(-1)", "silu = 1", "self.F.silu(x)", "'F.silu(x)'"),
        *("# nn.RMSNorm", "nn.RMSNormal(3)", "F.silu_(x)", "import transformers2", "torch.op"),
        *("from . import silu", "import mine as F; F.silu(x)"),
        *("nn.RMSNorm(", "\0", "x = " + "(" * 9999),  # no Python: it says so itself
    )
    assert [source for source in free if found_in(source, BANNED)] == []


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


DOUBTFUL = {
    "import importlib": "importlib",
    "from importlib import import_module": "importlib",
    "import sys\nsys.modules['torch']": "modules",
    "getattr(torch, 'layer' + '_norm')(x)": "getattr of a computed name",
    "torch.ops.aten.x.decompose(x)": "decompose",
    "__import__('x')": "__import__",
    "getattr(f, '__code__')": "__code__",
    "from torch import jit as quick": "jit",
    "import pydoc": "pydoc",
    "from unittest.mock import _importer": "unittest.mock",
    "setattr(parent, name.rpartition('.')[2], layer)": "",
    "from .rmsnorm import RMSNorm": "",
    "from sys import setprofile": "setprofile",
    "getattr(config, 'eps')": "",
    "import math, torch\nfrom torch import nn\nself.modules_ = 3": "",
    "def f(": "",
}


def test_a_way_around_a_ban_is_shown_to_a_person():
    assert {source: doubtful(source) for source in DOUBTFUL} == DOUBTFUL


# What runs, reached so that its source names nothing; of it what is refused, else what is told
DECOMPOSED = (
    "dict((str(k), f) for k, f in getattr(torch, 'export').default_decompositions().items())"
)
STATE = "[x.clone()], [x], [x.clone()], [x * x], [], [torch.tensor(1.0)]"
SETTINGS = "amsgrad=False, beta1=.9, beta2=.9, lr=.1, weight_decay=.1, eps=.1, maximize=False"
RAN = {
    ("swiglu", f"{DECOMPOSED}['aten.silu.default'](x)"): "torch.export",
    ("training", f"getattr(torch.optim, '_functional').adamw({STATE}, {SETTINGS})"):
        "torch.optim.adamw.adamw",
    ("rmsnorm", "getattr(F, 'local_' + 'response_norm')(x[None], 2)"):
        "torch.nn.functional.local_response_norm",
    ("rmsnorm", "getattr(F, 'normal' + 'ize')(x)"): "torch.nn.functional.normalize",
    ("rmsnorm", "getattr(torch, '_weight' + '_norm')(x, x[:, :1], 0)"): "torch._weight_norm",
    ("training", "getattr(F, 'kl_div')(x, x, reduction='sum')"): "torch.nn.functional.kl_div",
    ("moe", "getattr(F, 'normal' + 'ize')(x, p=1)"): "",
    ("rmsnorm", "x / x.norm(dim=-1, keepdim=True) + torch.linalg.vector_norm(x)"): "",
    ("rmsnorm", "torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 4))(x)"):
        "torch.",
}  # fmt: skip


def test_what_ran_is_known_by_its_true_name():
    for (module, road), ran in RAN.items():
        found = find_lab(module)
        source = f"import torch\nimport torch.nn.functional as F\ndef f(x): return {road}"
        code = {"__name__": f"tinyllm.{module}"}
        exec(source, code)
        assert found_in(source, found.not_allowed) is None, road
        watch = Watch(found.not_allowed)
        assert perform(Call("f", x=torch.rand(4, 4)), code, None, watch).failure is None, road
        assert watch.odd.startswith(ran) and bool(watch.odd) == bool(ran), road
        refused = ran.startswith(("torch.export", "torch.optim"))
        assert watch.refused == (watch.odd if refused else ""), road


def test_to_stop_the_watch_is_shown_to_a_person():
    code = {"__name__": "tinyllm.rmsnorm", "sys": sys}
    exec("def f(x): sys.setprofile(None); return x", code)
    watch = Watch(find_lab("rmsnorm").not_allowed)
    assert perform(Call("f", x=torch.ones(2)), code, None, watch).failure is None
    assert watch.odd == "sys.setprofile"


def test_the_watch_sees_what_runs_whatever_became_of_sys(monkeypatch):
    code = {"__name__": "tinyllm.rmsnorm"}
    exec("import torch.nn.functional as F\ndef f(x): return F.normalize(x)", code)
    for name in ("setprofile", "getprofile"):
        monkeypatch.setattr(sys, name, lambda *_: None)
    watch = Watch(find_lab("rmsnorm").not_allowed)
    assert perform(Call("f", x=torch.rand(4, 4)), code, None, watch).failure is None
    assert watch.odd == "torch.nn.functional.normalize"


def test_the_courses_own_code_may_run_what_a_learners_may_not():
    code = {"__name__": "labkit.sandbox.inside.doubles"}
    exec("import torch.nn.functional as F\ndef f(x): return F.normalize(x)", code)
    watch = Watch(find_lab("rmsnorm").not_allowed)
    assert perform(Call("f", x=torch.rand(4, 4)), code, None, watch).failure is None
    assert watch.odd == ""
