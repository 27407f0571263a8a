"""Runs of lab 11, one per reward and seed: the gains and the cost of each reward.

The record that the notebook shows is labkit/learner/lessons/posttraining.json; `python -m
tests.course.claims.posttraining_runs five 30 31` adds two runs to it, of half a minute each.
Sentences about it are in claims.toml, with the names that `flat` gives.
"""

import json
import re
import sys
import time

import torch

import solutions
from labkit.course.paths import LABKIT, ROOT
from labkit.learner.lessons import rewards
from labkit.model import checkpoint
from labkit.model.tokenizer import Tokenizer
from solutions.generation import generate
from solutions.posttraining import grpo_step
from storyworld import SPLITS
from storyworld.reader import split_sentences
from storyworld.scores import tasks

FOLDER = ROOT / "checkpoints" / "stories-dense"
RECORD = LABKIT / "learner" / "lessons" / "posttraining.json"
GIVES = re.compile(r"\b(gave|gives|handed|passed|gift)\b")


def nothing_given(text):
    return float(not GIVES.search(text))


def nothing_given_and_true(text):
    return nothing_given(text) * rewards.flawless(text)


def five(text):
    return float(len(split_sentences(text)) == 5)


def near_five(text):
    return max(0.0, 1 - abs(len(split_sentences(text)) - 5) / 6)


STEPS = {nothing_given: 8, nothing_given_and_true: 16, five: 8, near_five: 16}
STEADY = {"reward": nothing_given_and_true, "lr": 3e-4, "steps": 24}


def loaded():
    tokenizer = Tokenizer(FOLDER)
    model = checkpoint.load(FOLDER, solutions, torch.float32)
    for weight in model.parameters():
        weight.data = weight.data.clone()  # the weights in the file stay as they are
    return model, tokenizer


def questions_right(model, tokenizer, stories=25):
    """The share of questions about true stories that a model answers right."""
    questions = [
        (f"{story.text}\n{words}", right)
        for story, _ in tasks(SPLITS["validation"][0], stories)
        for words, right in story.questions
    ]
    texts = [text for text, _ in questions]
    found = rewards.answers(model, tokenizer, generate, texts, temperature=0.0, most=24)
    return sum(a == b for a, (_, b) in zip(found, questions, strict=True)) / len(questions)


def measured(model, tokenizer, stories=100):
    """Means over stories at temperature 0.3, and the model's loss on true stories."""
    told = rewards.answers(model, tokenizer, generate, rewards.requests(stories, 99), seed=1)
    mean = lambda values: round(sum(values) / stories, 3)  # noqa: E731
    return {
        **{reward.__name__: mean(map(reward, told)) for reward in STEPS},
        "flawless": mean(map(rewards.flawless, told)),
        "words": mean(len(text.split()) for text in told),
        "nats": round(rewards.nats_on_stories(model, tokenizer), 3),
        "questions": round(questions_right(model, tokenizer), 3),
        "told": told[:3],
    }


def train(seed, reward, lr=1e-3, steps=None):
    """One run: the steps' rewards, shares of groups and lengths, and the trained model's
    measures."""
    model, tokenizer = loaded()
    optimizer = torch.optim.AdamW(model.parameters(), lr, betas=(0.9, 0.95), weight_decay=0.0)
    generator = torch.Generator().manual_seed(seed)
    began, curve = time.process_time(), []
    for step in range(steps or STEPS[reward]):
        input_ids, mask = rewards.batch(tokenizer, rewards.requests(4, 1000 * seed + step))
        report = grpo_step(
            model, optimizer, input_ids, mask,
            lambda ids: reward(rewards.written(tokenizer, ids)), 8, rewards.MOST,
            sorted(tokenizer.stop_ids), generator=generator,
        )  # fmt: skip
        curve.append([round(report[key], 3) for key in ("reward", "groups", "length")])
    seconds = round(time.process_time() - began)
    return {
        "seed": seed,
        "curve": curve,
        "after": measured(model, tokenizer),
        "seconds": seconds,
    }


def settings_of(name):
    return STEADY if name == "steady" else {"reward": globals()[name]}


def train_again(found):
    """Train all runs of a record once more."""
    torch.set_num_threads(1)
    train_all = lambda name, runs: [train(run["seed"], **settings_of(name)) for run in runs]  # noqa: E731
    return {
        "before": measured(*loaded()),
        "runs": {name: train_all(name, runs) for name, runs in found["runs"].items()},
        "steady": train_all("steady", found["steady"]),
    }


def add(name, seeds):
    """Add runs with more seeds to the record, one by one."""
    torch.set_num_threads(1)
    found = rewards.recorded()
    runs = found["steady"] if name == "steady" else found["runs"][name]
    for seed in seeds:
        runs.append(train(seed, **settings_of(name)))
        RECORD.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def flat(found):
    """{rl_REWARD_MEASURE: a number per seed}, and the lucky stories of each run's steps."""
    records = {}
    for name, runs in (*found["runs"].items(), ("steady", found["steady"])):
        for what in runs[0]["after"]:
            records[f"rl_{name}_{what}"] = [run["after"][what] for run in runs]
        rewards_seen = [[step[0] for step in run["curve"]] for run in runs]
        records[f"rl_{name}_lucky"] = [round(32 * sum(steps)) for steps in rewards_seen]
    return records | {f"rl_before_{what}": [v] for what, v in found["before"].items()}


if __name__ == "__main__":
    add(sys.argv[1], map(int, sys.argv[2:]))
