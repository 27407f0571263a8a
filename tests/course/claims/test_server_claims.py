"""The claims of lab 15 about its experiments, in five seeds each, by the notebook's own cells.

pytest -m slow tests/course/claims/test_server_claims.py -s    prints the table
"""

import json

import pytest

from labkit.course.paths import ROOT
from solutions import server

pytestmark = pytest.mark.slow
SEEDS = range(5)
CELLS = ["tools", "talks-code", "beginning-code", "arrivals-code", "day-code", "pass-code"]
CELLS += ["alone-code", "pay-code", "together-code"]


@pytest.fixture(scope="module")
def lab():
    """The names that the notebook's cells define, with the reference in place of answers."""
    notebook = json.loads((ROOT / "notebooks" / "15_server.ipynb").read_text("utf-8"))
    sources = {cell["id"]: "".join(cell["source"]) for cell in notebook["cells"]}
    names = dict(vars(server)) | {"outcome": lambda name: None}
    for cell in CELLS:
        exec(
            compile(sources[cell].replace("from tinyllm.", "from solutions."), cell, "exec"),
            names,
        )
    return names


def tell(claim, numbers):
    print(f"\n{claim}: " + "  ".join(f"{number:.3g}" for number in numbers))


def test_found(lab):
    """With room for everything more than three quarters are found; evicting the end first is
    never worse."""
    for blocks in (32, 64, 96, 128, 256):
        pairs = [
            [lab["share_found"](kind, blocks, seed) for seed in SEEDS]
            for kind in (server.PrefixCache, lab["BeginningFirst"])
        ]
        tell(f"{blocks} blocks, end first: share found", pairs[0])
        tell(f"{blocks} blocks, beginning first: share found", pairs[1])
        assert all(end >= beginning for end, beginning in zip(*pairs, strict=True))
    assert min(pairs[0]) > 0.75


def test_chunks(lab):
    """The longest gap falls to less than half; the knee stays within a step of the load."""
    knees = {}
    rates = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)
    for budget in (32, 10**6):
        days = [
            [lab["day"](lab["arrivals"](rate, seed), budget) for seed in SEEDS]
            for rate in rates
        ]
        gaps = [max(found[1]) for found in days[1]]
        tell(f"budget {budget}: longest gap at 0.1", gaps)
        assert max(gaps) < 3 if budget == 32 else min(gaps) > 6
        waits = [sum(sum(d[0]) for d in row) / sum(len(d[0]) for d in row) for row in days]
        tell(f"budget {budget}: mean wait by load", waits)
        knees[budget] = next(n for n, wait in enumerate(waits) if wait > 4 * waits[0])
    assert abs(knees[32] - knees[10**6]) <= 1


def test_drafts(lab):
    """Tokens per pass: few in a new story, more in a repeated one, most with a second model's
    drafts."""
    found = []
    for who in ("fox named Tom", "girl named Mia", "cat named Lily", "boy named Ben", "duck"):
        story = f"Once upon a time, there was a {who}. It was a sunny day."
        told = lab["tokenizer"].decode(lab["per_pass"](story, 0, new=60)[1])
        again = f"{story}{told} {story}"
        rows = [(story, None), (again, None), (story, lab["small_model"])]
        found.append([lab["per_pass"](text, 4, draft)[0] for text, draft in rows])
    new, before, second = zip(*found, strict=True)
    tell("a new story: tokens per pass", new)
    tell("a story told before: tokens per pass", before)
    tell("a second model: tokens per pass", second)
    assert max(new) < 1.5 and min(second) > 1.5
    assert all(a < b for a, b in zip(new, before, strict=True))


def test_together(lab):
    """Prefixes and chunks shorten the clock, and no answer changes."""
    ways = [{"known": False}, {}, {"budget": 48}, {"budget": 48, "drafts": 3}]
    found = [lab["crowd"](**way) for way in ways]
    tell("the clock", [clock for _, _, clock, _ in found])
    assert all(answers == found[0][0] for answers, *_ in found)
    assert found[0][2] > found[1][2] > found[2][2]
