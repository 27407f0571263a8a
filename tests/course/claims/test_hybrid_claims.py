"""The claims of lab 12 about its experiments, by the notebook's own code, in five seeds each:
`pytest -m slow -s tests/course/claims/test_hybrid_claims.py` prints the table."""

import json
from functools import cache

import pytest
import torch

from labkit.course.paths import ROOT

pytestmark = pytest.mark.slow
SEEDS = range(5)
CODE = (
    "sink-code",
    "sink-train",
    "sink-open",
    "sink-measure",
    "sink-gate",
    "sink-run",
    "sink-fit",
    "fits-code",
    "recall-code",
)
CODE += ("recall-train", "recall-run", "decode-code", "decode-time", "living-run")
SETUP = """
import time, torch
import torch.nn.functional as F
from labkit.learner.lessons.data import Rows
from solutions.config import Qwen3NextConfig
"""


@cache
def notebook():
    """The names that the notebook's cells define, with the reference in place of answers."""
    torch.set_num_threads(1)
    cells = json.loads((ROOT / "notebooks" / "12_hybrid.ipynb").read_text())["cells"]
    text = {cell["id"]: "".join(cell["source"]) for cell in cells}
    names = {}
    exec(SETUP, names)
    exec("from solutions.hybrid import *", names)
    for name in CODE:
        source = text[name].replace("tinyllm.", "solutions.")
        exec(compile(source, name, "exec"), names)
    return names


def say(claim, *numbers):
    print(f"\n{claim}: " + "  ".join(f"{number:.3g}" for number in numbers), end="")


def test_the_storyteller_has_no_sink():
    names = notebook()
    even = (1 / torch.arange(17.0, 65.0)).mean().item()
    for seed in SEEDS:
        rows = names["Rows"](names["tokenizer"].library, 64).batch(100_000 + seed, 16)
        shares = [names["first_share"](names["model"], rows, layer) for layer in range(4)]
        shares = [share[:, 16:].mean().item() for share in shares]
        say("first token, the storyteller", *shares)
        assert max(shares) < even


def test_time_per_token():
    decode_ms = notebook()["decode_ms"]
    for kind, low, high in (("linear_attention", 0.5, 2), ("full_attention", 2, 1000)):
        ratios = [decode_ms(kind, 8192) / decode_ms(kind, 64) for _ in SEEDS]
        say(f"{kind}, 8,192 tokens against 64", *ratios)
        assert all(low < ratio < high for ratio in ratios)
