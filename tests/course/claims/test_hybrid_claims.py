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
    """The names of the notebook's cells, with the reference in the place of a learner's."""
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


@cache
def model_of(kind, seed, steps=250):
    return notebook()["recall_model"](kind, seed, steps)


def recall(kind, seed, facts=4, length=20, steps=250):
    return notebook()["recall"](model_of(kind, seed, steps), facts, length)


def test_four_facts_are_recalled_by_all_but_the_window():
    for kind in ("full", "hybrid", "delta"):
        shares = [recall(kind, seed) for seed in SEEDS]
        say(f"{kind}, 4 facts", *shares)
        assert min(shares) > 0.9
    shares = [recall("window", seed) for seed in SEEDS]
    say("window, 4 facts", *shares)
    assert max(shares) < 0.7


def test_eight_facts_are_worse_in_a_state():
    pairs = [(recall("delta", seed, 8), recall("full", seed, 8)) for seed in SEEDS]
    say("8 facts, delta then full", *(share for pair in pairs for share in pair))
    assert all(delta < full - 0.01 for delta, full in pairs)


def test_adding_holds_more_keys_and_the_delta_rule_more_changes():
    recalled = notebook()["recalled"]
    for seed in SEEDS:
        added, delta = (recalled(32, 1, erases, seed=seed) for erases in (False, True))
        say("32 keys, adding then delta", added, delta)
        assert added > delta + 0.2
        added, delta = (recalled(8, 8, erases, seed=seed) for erases in (False, True))
        say("8 keys, 8 changes, adding then delta", added, delta)
        assert delta > added + 0.2


def test_an_idle_head_looks_at_the_first_token_and_a_gate_closes():
    even = (1 / torch.arange(9.0, 33.0)).mean().item()
    for gated in (True, False):
        for seed in SEEDS:
            idle, busy, *factors = notebook()["copying"](seed, gated)
            say(f"{'gated' if gated else 'open'}, even {even:.3f}", idle, busy, *factors)
            assert idle > 2 * even > busy
            assert not gated or factors[0] < 0.7 * factors[1]


def test_the_storyteller_has_no_sink():
    names = notebook()
    even = (1 / torch.arange(17.0, 65.0)).mean().item()
    for seed in SEEDS:
        rows = names["Rows"](names["tokenizer"].library, 64).batch(100_000 + seed, 16)
        shares = [names["first_share"](names["model"], rows, layer) for layer in range(4)]
        shares = [share[:, 16:].mean().item() for share in shares]
        say("first token, the storyteller", *shares)
        assert max(shares) < even


def test_a_narrower_window_costs_more():
    loss_with, mask = notebook()["loss_with"], notebook()["sliding_window_mask"]
    for seed in SEEDS:
        rows = notebook()["Rows"](notebook()["tokenizer"].library, 160)
        notebook()["texts"] = rows.batch(50_000 + seed, 6)
        losses = [loss_with(mask(160, 160, window)) for window in (160, 64, 32, 16, 8)]
        kept = [loss_with(mask(160, 160, window - 4, 4)) for window in (64, 32, 16, 8)]
        say("loss with 160, 64, 32, 16, 8 keys; then with sinks", *losses, *kept)
        assert losses == sorted(losses)
        assert kept[-1] > losses[-1]  # at 8 keys, 4 sinks do not help


def test_time_per_token():
    decode_ms = notebook()["decode_ms"]
    for kind, low, high in (("linear_attention", 0.5, 2), ("full_attention", 2, 1000)):
        ratios = [decode_ms(kind, 8192) / decode_ms(kind, 64) for _ in SEEDS]
        say(f"{kind}, 8,192 tokens against 64", *ratios)
        assert all(low < ratio < high for ratio in ratios)


def test_the_recorded_longer_run():
    """Prints what the notebook shows as recorded: lowest and highest of five seeds."""
    found = {}
    for kind in notebook()["KINDS"]:
        rows = [[recall(kind, s, 4, n, 1000) for s in SEEDS] for n in (20, 40, 80, 160)]
        found[kind] = [(round(min(row), 2), round(max(row), 2)) for row in rows]
        print(f'\n    "{kind}": {found[kind]},', end="")
    assert max(high for _, high in found["window"]) < 0.7
    assert min(low for low, _ in found["hybrid"][:2]) > 0.9
