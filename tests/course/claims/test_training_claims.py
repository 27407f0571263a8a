"""What lab 08 shows beside the learner's run: one longer run, and how the loss falls with the
size of a model, in five seeds.

The record, labkit/learner/lessons/training.json, is made by
`python tests/course/claims/test_training_claims.py` (some 12 minutes of one processor). `pytest
-m slow tests/course/claims` trains all again; the quick test holds the record to the claims.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from labkit.course.paths import LABKIT
from labkit.learner.lessons import lesson
from labkit.learner.lessons.data import Rows
from solutions.training import causal_lm_loss, learning_rate, train_step
from storyworld.words import BOYS, GIRLS

RECORD = LABKIT / "learner" / "lessons" / "training.json"
SEEDS = range(5)
STEPS = 2000  # of the longer run, about five minutes on a quiet processor
SIZES = (24, 32, 48, 64, 96)  # hidden_size; four to fit, the fifth to predict


def train(model, steps, peak=0.005):
    """The notebook's training: four rows of 256 tokens a step."""
    optimizer, rows = lesson.MuonAdamW(model), Rows(lesson.tokenizer(), 256)
    losses = []
    for step in range(steps):
        ids = rows.batch(step, 4)
        rate = learning_rate(step, peak, steps // 20, steps, 0.02 * peak)
        losses.append(train_step(model, optimizer, ids, ids, rate)["loss"])
    return losses


@torch.no_grad()
def names(model, tokenizer):
    """The loss on a name that is new in its text, and on one that was told before."""
    ids = Rows(tokenizer, 256).batch(100_000, 8)
    known = torch.tensor([tokenizer.encode(" " + name).ids[0] for name in GIRLS + BOYS])
    is_name = torch.isin(ids, known)
    told = (ids[:, :, None] == ids[:, None, :]).tril(-1).any(dim=-1)
    logits = model(ids)
    parts = {"new": is_name & ~told, "told": is_name & told, "all": torch.ones_like(told)}
    return {
        name: round(causal_lm_loss(logits, ids.masked_fill(~part, -100)).item(), 3)
        for name, part in parts.items()
    }


def longer(seed):
    """One longer run: its loss every 20 steps, and what the notebook measures at its end."""
    tokenizer, model = lesson.tokenizer(), lesson.build(seed)
    losses = train(model, STEPS)
    curve = [round(sum(losses[i : i + 20]) / 20, 3) for i in range(0, STEPS, 20)]
    stories = lesson.tell(model, tokenizer, count=16)
    truth = {name: round(share, 3) for name, share in lesson.truth(stories).items()}
    return {
        "steps": STEPS,
        "curve": curve,
        **names(model, tokenizer),
        **truth,
        "stories": stories[:3],
    }


def size(seed, hidden, steps=150):
    """Parameters beside the embedding, and the loss on stories that no run has seen."""
    tokenizer = lesson.tokenizer()
    model = lesson.build(
        seed, hidden_size=hidden, intermediate_size=8 * hidden // 3, head_dim=32
    )
    train(model, steps)
    inner = sum(p.numel() for p in model.model.layers.parameters())
    ids = Rows(tokenizer, 256).batch(100_000, 16)
    with torch.no_grad():
        return inner, round(causal_lm_loss(model(ids), ids).item(), 4)


def all_runs(path=None):
    """{"sizes": {hidden_size: parameters and a loss per seed}, "longer": the longer run}."""
    torch.set_num_threads(1)
    found = {"sizes": {}}
    for hidden in SIZES:
        runs = [size(seed, hidden) for seed in SEEDS]
        found["sizes"][str(hidden)] = {
            "parameters": runs[0][0], "losses": [loss for _, loss in runs]
        }  # fmt: skip
    found["longer"] = longer(0)
    if path:
        Path(path).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def judge(found):
    sizes = found["sizes"].values()
    numbers = np.log([each["parameters"] for each in sizes])
    losses = np.log([each["losses"] for each in sizes])
    slope, height = np.polyfit(numbers[:4], losses[:4].mean(axis=1), 1)
    off = np.exp(losses[4] - height - slope * numbers[4]) - 1
    print("the fifth against the line of four:", off.round(3))
    assert len(off) == 5 and all(0 < each < 0.1 for each in off)


def test_the_record_bears_what_the_notebook_says_of_it():
    judge(lesson.recorded())


@pytest.mark.slow
def test_the_claims_hold_when_all_is_trained_again():
    judge(all_runs())


if __name__ == "__main__":
    all_runs(sys.argv[1] if len(sys.argv) > 1 else RECORD)
