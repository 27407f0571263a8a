"""The claims of lab 11 in five seeds: what each reward teaches, and what it costs.

The record that the notebook shows, labkit/learner/lessons/posttraining.json, is made by
`python tests/course/claims/test_posttraining_claims.py` (some 15 minutes of one processor; runs
that are in the file stay). `pytest -m slow tests/course/claims` trains them all again and
prints a table, claim by claim; the quick test holds the record to the same claims.
"""

import json
import re
import sys
import time
from functools import partial
from pathlib import Path

import pytest
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
SEEDS = range(5)
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
        weight.data = weight.data.clone()  # those of the file stay as they are
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
    """Means over stories at temperature 0.3, and what the model still knows."""
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
    """One run: the steps' rewards, shares of groups and lengths, and what came of it."""
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
    return {"curve": curve, "after": measured(model, tokenizer), "seconds": seconds}


def all_runs(path=None):
    """{"before": measures, "runs": {reward: [a run per seed]}, "steady": [a run per seed]};
    stored in `path` run by run."""
    torch.set_num_threads(1)
    path = path and Path(path)
    found = json.loads(path.read_text()) if path and path.exists() else {}
    found = found or {"before": measured(*loaded()), "runs": {}}
    lists = [
        (found["runs"].setdefault(reward.__name__, []), {"reward": reward}) for reward in STEPS
    ]
    for seed in SEEDS:
        for runs, settings in (*lists, (found.setdefault("steady", []), STEADY)):
            if len(runs) > seed:
                continue
            runs.append(train(seed, **settings))
            print(settings, seed, runs[-1], flush=True)
            if path:
                path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def every(found, name, what):
    return [run["after"][what] for run in found["runs"][name]]


def claims(found):
    """(what lab 11 says, whether it holds in every seed, the numbers)."""
    before = found["before"]
    given, true, never, near = (partial(every, found, reward.__name__) for reward in STEPS)
    steady = lambda what: [run["after"][what] for run in found["steady"]]  # noqa: E731
    rows = [
        ("nothing_given: no story gives", given("nothing_given"), lambda v: v == 1),
        ("its price: 57 to 82 of 100 flawless", given("flawless"),
         lambda v: 0.57 <= v <= 0.82),
        ("and true stories are foreseen worse", given("nats"), lambda v: v > before["nats"]),
        ("with the reader: 99 of 100 do not give", true("nothing_given"), lambda v: v >= 0.99),
        ("61 to 100 flawless", true("flawless"), lambda v: v >= 0.61),
        ("shorter stories", true("words"), lambda v: v < before["words"] - 5),
        ("five: at most 14 in 100", never("five"), lambda v: v <= 0.14),
        ("near_five: the reward climbs", near("near_five"), lambda v: v > 0.5),
        ("by full stops: four in ten flawed", near("flawless"), lambda v: v <= 0.6),
        ("true stories cost 1.01 nats or more", near("nats"), lambda v: v >= 1.01),
        ("rate 3e-4: 98 of 100 do not give", steady("nothing_given"), lambda v: v >= 0.98),
        ("96 or more flawless", steady("flawless"), lambda v: v >= 0.96),
        ("54 words or more", steady("words"), lambda v: v >= 54),
    ]  # fmt: skip
    return [(text, all(map(holds, values)), values) for text, values, holds in rows]


def judge(found):
    assert {name: len(runs) for name, runs in found["runs"].items()} == {
        reward.__name__: len(SEEDS) for reward in STEPS
    }
    table = claims(found)
    for text, holds, values in table:
        print(f"{'holds' if holds else 'FAILS'}  {text:45} {values}")
    assert [text for text, holds, _ in table if not holds] == []


def test_the_record_bears_what_the_notebook_says_of_it():
    found = rewards.recorded()
    judge(found)
    unrewarded = found["runs"]["five"][0]
    assert not any(reward for reward, _, _ in unrewarded["curve"])
    assert unrewarded["after"] == found["before"]  # to the last digit
    assert every(found, "nothing_given_and_true", "words")[2:4] == [12.74, 21.48]
    assert [round(100 * v) for v in every(found, "five", "flawless")] == [99, 98, 51, 96, 1]
    assert "lent the toy boat" in str(every(found, "nothing_given_and_true", "told"))


@pytest.mark.slow
def test_the_claims_hold_when_all_is_trained_again():
    judge(all_runs())


if __name__ == "__main__":
    all_runs(sys.argv[1] if len(sys.argv) > 1 else RECORD)
