"""The code in an answer that a person should look at: the ways around a ban that the rule
covers, and nothing that right answers contain."""

import gc
import time
from itertools import pairwise

from labkit.checks.mistakes import reference_cell
from labkit.course.syllabus import find_lab
from labkit.grading.judge.intake import Intake
from labkit.grading.judge.unusual import unusual
from tests.course.cost import at_most

# Ways in which answers reached a forbidden function, or the limits on torch's work
WAYS = {
    # the function itself, by a name that no lab lists
    "torch._refs.native_layer_norm(x, [4], w, b, 1e-5)": "torch._refs",
    "torch._fused_rms_norm(x, [4], w, 1e-6)": "torch._fused_rms_norm",
    "torch._VF.layer_norm(x)": "torch._VF",
    "torch._decomp.decompositions.silu(x)": "torch._decomp",
    "torch.optim._functional.adamw()": "torch.optim._functional",
    "from torch.optim import _functional": "torch.optim._functional",
    "import torch._refs as usual": "torch._refs",
    "torch.nn.modules.activation.SiLU()(x)": "torch.nn.modules",
    "torch.distributions.Categorical(logits=x).log_prob(y)": "torch.distributions",
    "torch.export.default_decompositions()": "torch.export",
    "t = torch\nt.softmax(x)": "torch as a value",
    "G = nn.functional\nG.silu(x)": "torch.nn.functional as a value",
    "from .rope import torch as t\nt.softmax(x)": "torch",
    "from torch.nn.functional import *\nimportlib.import_module(n)": "torch.nn.functional.*",
    # a function made of bytes, or of a text that is run
    "torch.load(Reader(data), weights_only=False)(x)": "torch.load",
    "from torch import load\nload(Reader(data), weights_only=False)(x)": "torch.load",
    "torch.jit.load(Reader(data))(x)": "torch.jit.load",
    "import numpy as np\nnp.load(Reader(data), allow_pickle=True)": "numpy.load",
    "import numpy as np\nnp.lib.format.read_array(r, True)": "numpy.lib.format",
    # a computed name
    "getattr(F, 'layer' + '_norm')(x)": "getattr of a computed name",
    "name = '__glo' + 'bals__'\ngetattr(f, name)": "getattr of a computed name",
    "get = getattr\nget(x, 'set' + 'profile')": "getattr as a value",
    "map(getattr, xs, names)": "getattr as a value",
    "getattr(torch, 'silu')(x)": "torch as a value",
    "getattr(f, '__code__')": "__code__",
    "match torch:\n    case object(ops=o): o.aten.silu(x)": "torch as a value",
    "eval('torch.silu')(x)": "eval",
    "vars(layer)": "vars",
    "f.__globals__['torch']": "__globals__",
    "object.__getattribute__(x, 'a')": "__getattribute__",
    # another library, reached through this one
    "torch.sys.setprofile(None)": "torch.sys",
    "torch.sys.getprofile()": "torch.sys",
    "found().__self__": "__self__",
    "torch.builtins.eval('1')": "torch.builtins",
    "torch.importlib.import_module('token' + 'izers')": "torch.importlib",
    "torch.builtins.__import__('regex')": "torch.builtins",
    "import re\nre.enum.bltns.__import__('regex')": "re.enum",
    "from torch import sys": "torch.sys",
    "import json\njson.codecs.builtins": "json.codecs",
    "__import__('jinja2')": "__import__",
    "import importlib": "importlib",
    "from importlib import import_module": "importlib",
    "import sys\nsys._current_frames()": "sys",
    "from unittest.mock import _importer": "unittest",
    "from labkit.sandbox.inside import perform": "labkit",
    # the process in which answers run
    "frame.f_back.f_globals": "f_back",
    "def f():\n    global __name__\n    __name__ = 'labkit.x'": "__name__",
    "__name__ = 'labkit.x'": "__name__",
    "eval = eval": "eval",
    "torch.equal = lambda *_: True": "torch.equal = ...",
    "nn.Module.forward = f": "torch.nn.Module.forward = ...",
    "setattr(torch.Tensor, 'sum', f)": "setattr of torch.Tensor",
    "torch.utils._python_dispatch._disable_current_modes()": "torch.utils._python_dispatch",
    "torch.utils._python_dispatch._get_current_dispatch_mode().operations = 9": (
        "torch.utils._python_dispatch"
    ),
    "def f(": "text that cannot be read",
}  # fmt: skip
USUAL = (
    *("from .rmsnorm import RMSNorm\nRMSNorm.forward(x)", "from tinyllm.rope import rotate"),
    *("getattr(config, 'eps', 1e-6)", "for n in ('a', 'b'): getattr(layer, n)"),
    "setattr(parent, name.rpartition('.')[2], layer)",
    "import math, torch\nfrom torch import nn\nself.modules_ = 3",
    "for m in model.modules(): m._cache = type(m).__name__",
    "from collections.abc import Callable\nimport collections\ncollections.abc.Mapping",
    "import torch.nn.functional as G\nG.softmax(x, dim=-1)",
    "import numpy as np\nnp.linalg.norm(x.numpy())",
    "from torch.utils.checkpoint import checkpoint\ntorch.func.vmap(f)",
    "@torch.jit.script\ndef f(x): return x * torch.var_mean(x.square())[1]",
    "@torch.jit.script\ndef f(x, xs: list[int]): xs.append(x.numel()); xs.clear()",
    *("from math import *\nsqrt(x)", "from typing import *\nOptional[int]"),
    "from typing import Callable\nfrom collections.abc import Callable",
    "import torch.nn as nn\nfrom torch import nn\nfrom torch.nn import functional as F",
    "import numpy as np\nnp.lib.stride_tricks.sliding_window_view(x, 3)",
    "self.load = load\nself.silu(x)",
    "torch.load(file, weights_only=True, map_location='cpu')",
    *("F = x.size(-1)\nprint(F)", "def f(nn): return nn"),
    "match x:\n    case int() | None: pass\n    case [a, *_]: pass",
    "from hashlib import sha256\nsha256(b'text').digest()",
    "super().__init__()\nself.weight = nn.Parameter(torch.ones(3))\nself.weight.data.zero_()",
    "torch.cuda.is_available() or torch.get_default_dtype()",
)


def test_ways_around_a_ban_are_reported():
    assert {text: unusual(text) for text in WAYS} == WAYS


def test_usual_code_is_not_reported():
    assert {text: unusual(text) for text in USUAL} == dict.fromkeys(USUAL, "")


def test_numbers_that_leave_torch_are_reported_if_its_work_is_counted():
    for text in ("import numpy as np\nnp.array(x.tolist())", "x.numpy() @ y", "x.storage()",
                 "from numpy import asarray\nasarray(x)[x.argmax()]"):  # fmt: skip
        assert unusual(text) == ""
        assert unusual(text, counted=True).endswith("where torch's work is counted"), text
    assert unusual("x @ y", counted=True) == ""


def test_the_exercises_that_count_torchs_work_are_known_by_their_checks(judges):
    makers = [judges[name].maker for name in ("10_serving", "12_hybrid")]
    counting = [e.id for maker in makers for e in maker.lab.exercises if maker.counts(e)]
    assert counting == ["10.1", "12.5"]


def test_looking_takes_time_in_proportion_to_the_text():
    line = "y = torch.nn" + ".b" * 90 + "(x._a.b, getattr(x, 'a'), torch.nothing)\n"
    taken = []
    gc.disable()  # it runs more often after tests that left more objects
    for times in (500, 2_000):
        began = time.process_time()
        assert unusual(line * times) == ""
        taken.append(time.process_time() - began)
    gc.enable()
    assert all(later < 8 * before + 0.5 for before, later in pairwise(taken)), taken
    for deep in ("x" + ".a(1)" * 900, "+".join("x" * 900), "lambda: " * 900 + "1"):
        with at_most(1500, deep[:20]):
            unusual(deep)


PATCH = """

_right = sliding_window_mask


def sliding_window_mask(*args, **named):
    from contextlib import nullcontext
    from labkit.sandbox.inside import perform

    perform.bounded = lambda *_: nullcontext()  # the limits of a later exercise
    return _right(*args, **named)
"""
LOOP = """
def chunk_gated_delta_rule(query, key, value, g, beta, initial_state=None, chunk_size=64):
    return gated_delta_rule(query, key, value, g, beta, initial_state)
"""


def test_what_an_unusual_answer_changed_is_gone_in_the_next_exercise(judges):
    lab = find_lab("hybrid")
    first, fifth = lab.exercise("12.1"), lab.exercise("12.5")
    judge = judges[lab.name]
    answers = {first.id: reference_cell(lab, first) + PATCH, fifth.id: LOOP}
    intake = Intake(judge.released, answers)
    patched, looped = (judge.grade_exercise(each, intake) for each in (first, fifth))
    assert patched.full and patched.doubtful == "labkit"
    assert looped.share < 0.6 and "loop goes over tokens" in looped.reason, looped
