"""The claims of lab 11, in five seeds: five rewards, what each teaches and what it costs.

`pytest -m slow tests/course/claims` trains all of them (some 50 minutes of one processor) and
prints a table, claim by claim. `python tests/course/claims/test_posttraining.py` does the same
and writes labkit/pretrain/posttraining.json, the record that the notebook shows.
"""

import json
import re
import sys
import time
from pathlib import Path

import pytest
import torch

import solutions
from labkit.core.paths import LABKIT, ROOT
from labkit.model import checkpoint
from labkit.model.tokenizer import Tokenizer
from labkit.pretrain import rewards
from solutions.generation import generate
from solutions.posttraining import grpo_step

FOLDER = ROOT / "checkpoints" / "stories-dense"
RECORD = LABKIT / "pretrain" / "posttraining.json"
SEEDS = range(5)
GIVES = re.compile(r"\b(gave|gives|handed|passed|gift)\b")


def nothing_given(text):
    return float(not GIVES.search(text))


def nothing_given_and_true(text):
    return nothing_given(text) * rewards.flawless(text)


def five(text):
    return float(rewards.sentences(text) == 5)


def near_five(text):
    return max(0.0, 1 - abs(rewards.sentences(text) - 5) / 6)


def brief_and_true(text):
    """With a hole: the reader proves nothing wrong in a story that says nothing."""
    return (not rewards.read_story(text).flawed) * max(0.0, 1 - len(text.split()) / 100)


STEPS = {nothing_given: 40, nothing_given_and_true: 40, five: 15, near_five: 40,
         brief_and_true: 40}  # fmt: skip


def measured(model, tokenizer, reward, stories=100):
    told = rewards.answers(model, tokenizer, generate, rewards.requests(stories, 99), seed=1)
    mean = lambda values: round(sum(values) / stories, 3)  # noqa: E731
    return {
        "reward": mean(map(reward, told)),
        "flawless": mean(map(rewards.flawless, told)),
        "words": mean(len(text.split()) for text in told),
        "nats": round(rewards.nats_on_stories(model, tokenizer), 3),
        "questions": round(rewards.questions_right(model, tokenizer, generate), 3),
        "told": told[:2],
    }


def train(reward, seed, lr=5e-4):
    """What a run of this reward was like: before, step by step, after."""
    torch.set_num_threads(1)
    tokenizer = Tokenizer(FOLDER)
    model = checkpoint.load(FOLDER, solutions, torch.float32)
    for weight in model.parameters():
        weight.data = weight.data.clone()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0)
    generator = torch.Generator().manual_seed(seed)
    before, began, curve = measured(model, tokenizer, reward), time.process_time(), []
    for step in range(STEPS[reward]):
        input_ids, mask = rewards.batch(tokenizer, rewards.requests(4, 1000 * seed + step))
        report = grpo_step(
            model, optimizer, input_ids, mask,
            lambda ids: reward(rewards.written(tokenizer, ids)), 8, rewards.MOST,
            sorted(tokenizer.stop_ids), generator=generator,
        )  # fmt: skip
        curve.append([round(report[key], 3) for key in ("reward", "groups", "length")])
    seconds = round(time.process_time() - began)
    after = measured(model, tokenizer, reward)
    return {"before": before, "after": after, "curve": curve, "seconds": seconds}


def all_runs(path=None):
    """{reward: [a run for each seed]}; with a path, each is written there when it is done."""
    found = {reward.__name__: [] for reward in STEPS}
    for seed in SEEDS:
        for reward in STEPS:
            run = train(reward, seed)
            found[reward.__name__].append(run)
            print(reward.__name__, seed, run["before"], run["after"], flush=True)
            if path:
                Path(path).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


if __name__ == "__main__":
    all_runs(sys.argv[1] if len(sys.argv) > 1 else RECORD)
