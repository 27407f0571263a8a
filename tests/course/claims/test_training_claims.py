"""The recorded runs of lab 08: how the loss falls with a model's size and with its tokens.

The record, labkit/learner/lessons/scaling.json, is made by
`python -m tests.course.claims.test_training_claims` (some 20 minutes of one quiet processor):
for each run hidden_size, parameters, tokens, loss and seed, the unseen run last. `pytest -m
slow tests/course/claims` trains some of them again; the quick test compares the lesson with the
record.
"""

import json
from functools import cache

import pytest
import torch

from labkit.learner.lessons import lesson, scaling
from labkit.learner.lessons.data import Rows
from solutions.training import causal_lm_loss, learning_rate, train_step
from tests.course.claims.makers import cells
from tests.course.claims.makers import lesson as cells_of

ROWS, LENGTH = 4, 128  # rows and length of a batch


@cache
def texts():
    """The batches of the longest run, which all runs share, and new stories."""
    rows = Rows(lesson.tokenizer(), LENGTH)
    held = Rows(lesson.tokenizer(), LENGTH, first=100_000).batch(0, 64)
    return [rows.batch(step, ROWS) for step in range(800)], held


def run(size, tokens, seed):
    """Train a model; return its parameters and its loss on new stories."""
    batches, held = texts()
    model = lesson.build(seed, hidden_size=size, intermediate_size=8 * size // 3, head_dim=32)
    optimizer, steps = lesson.MuonAdamW(model), tokens // (ROWS * LENGTH)
    for step, ids in enumerate(batches[:steps]):
        rate = learning_rate(step, 0.005, steps // 20, steps, 0.0001)
        train_step(model, optimizer, ids, ids, rate)
    with torch.no_grad():
        loss = causal_lm_loss(model(held), held).item()
    return sum(p.numel() for p in model.parameters()), round(loss, 4)


def train_again(rows):
    """Train these rows of the record again."""
    torch.set_num_threads(1)
    for size, _, tokens, _, seed in rows:
        parameters, loss = run(size, tokens, seed)
        print(size, tokens, loss, flush=True)
        yield [size, parameters, tokens, loss, seed]


def rows():
    return json.loads(scaling.RECORD.read_text("utf-8"))


LAWS = ("sum_law", "product_law")


@cache
def laws():
    setup = "from labkit.learner.lessons.scaling import *\n"
    return cells_of("08_training", "law-code", setup)


def off(form, bought, wanted):
    """The relative errors of a law, fitted to the runs bought, on those wanted."""
    factors, alpha, beta = laws()["fitted"](laws()[form], bought)
    parameters, tokens, losses = scaling.columns(wanted)
    return laws()[form](parameters, tokens, alpha, beta) @ factors / losses - 1


def test_the_product_predicts_the_longer_runs_and_the_sum_does_not():
    runs, unseen = scaling.recorded()
    assert unseen.flops > max(run.flops for run in runs)
    short = [run for run in runs if run.tokens <= 102_400]
    longer = [run for run in runs if run.tokens > 102_400]
    missed = {form: off(form, short, longer).abs().median().item() for form in LAWS}
    assert missed["product_law"] < 0.1 < 0.2 < missed["sum_law"], missed


def test_the_lesson_says_how_far_each_purchase_is_off():
    runs, unseen = scaling.recorded()
    missed = lambda form, bought: off(form, bought, [unseen]).item()  # noqa: E731
    near = {(48, 409_600), (64, 409_600), (64, 204_800), (96, 204_800)}
    near = [run for run in runs if (run.size, run.tokens) in near]
    assert abs(missed("product_law", near)) < 0.01 < abs(missed("sum_law", near)) < 0.05
    assert max(missed(form, runs) for form in LAWS) < 0
    cheap = [run for run in runs if run.tokens <= 51_200]
    bought = [run for run in cheap if run.size not in (20, 40)]
    dear = [run for run in runs if run.tokens == 102_400 and run.size not in (20, 40)]
    hit, high, low = (missed("product_law", few) for few in (bought, cheap, bought + dear))
    assert abs(hit) < 0.02
    assert (
        f"with sizes 20 and 40 added the product is {100 * high:.0f} % too high, with the runs "
        f"of 102,400 tokens added {-100 * low:.0f} % too low"
    ) in cells("08_training")["unseen-after"]


@pytest.mark.slow
def test_runs_that_are_trained_again_lose_as_much():
    short = [row for row in rows() if row[0] in (16, 64) and row[2] <= 51_200]
    for row, made in zip(short, train_again(short), strict=True):
        assert made[:3] == row[:3] and abs(made[3] / row[3] - 1) < 0.02, (row, made)


if __name__ == "__main__":
    made = ",\n".join(map(json.dumps, train_again(rows())))
    scaling.RECORD.write_text(f"[\n{made}\n]\n", encoding="utf-8")
