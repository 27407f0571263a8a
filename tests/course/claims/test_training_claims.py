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
from tests.course.claims.makers import lesson as cells_of

ROWS, LENGTH = 4, 128  # of a batch


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


def again(rows):
    """Train these rows of the record again."""
    torch.set_num_threads(1)
    for size, _, tokens, _, seed in rows:
        parameters, loss = run(size, tokens, seed)
        print(size, tokens, loss, flush=True)
        yield [size, parameters, tokens, loss, seed]


def rows():
    return json.loads(scaling.RECORD.read_text("utf-8"))


def test_the_product_predicts_the_longer_runs_and_the_sum_does_not():
    names = cells_of(
        "08_training", "law-code", "from labkit.learner.lessons.scaling import *\n"
    )
    runs, unseen = scaling.recorded()
    assert unseen.flops > max(run.flops for run in runs)
    n, d, losses = scaling.columns([run for run in runs if run.tokens > 102_400])
    off = {}
    for form in ("sum_law", "product_law"):
        short = [run for run in runs if run.tokens <= 102_400]
        factors, alpha, beta = names["fitted"](names[form], short)
        law = names[form](n, d, alpha, beta) @ factors
        off[form] = (law / losses - 1).abs().median().item()
    assert off["product_law"] < 0.1 < 0.2 < off["sum_law"], off


@pytest.mark.slow
def test_runs_that_are_trained_again_lose_as_much():
    short = [row for row in rows() if row[0] in (16, 64) and row[2] <= 51_200]
    for row, made in zip(short, again(short), strict=True):
        assert made[:3] == row[:3] and abs(made[3] / row[3] - 1) < 0.02, (row, made)


if __name__ == "__main__":
    made = ",\n".join(map(json.dumps, again(rows())))
    scaling.RECORD.write_text(f"[\n{made}\n]\n", encoding="utf-8")
