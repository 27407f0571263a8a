"""The claims of lab 13, seed by seed: the effects of thoughts, budgets, draws and teachers.

The record that the notebook shows, labkit/learner/lessons/thinking.json, is made by
`python tests/course/claims/test_thinking_claims.py`: some three minutes of one quiet processor
per seed; parts that are in the file stay, and build/cups/ keeps the models. The quick tests
compare the lesson with the record; the slow one trains a model again.
"""

import copy
import json
import sys
import time

import pytest
import torch

from labkit.course.paths import LABKIT, ROOT
from labkit.learner.lessons import cups
from solutions.config import Qwen3Config
from solutions.decoder import Qwen3ForCausalLM
from solutions.generation import generate
from solutions.posttraining import grpo_step
from solutions.thinking import (
    fuse_modes,
    generate_with_budget,
    on_policy_step,
    pass_at_k,
)
from solutions.training import learning_rate, train_step

RECORD = LABKIT / "learner" / "lessons" / "thinking.json"
SEEDS = range(5)
SWAPS = range(1, cups.MOST + 1)
BUDGETS = range(0, 26, 4)
DRAWS = (1, 2, 4, 8, 16)
WRITES = {"open_think": cups.OPEN, "close_think": cups.CLOSE, "eos_token_id": [cups.END]}


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def fresh(seed, **changes):
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(Qwen3Config(**cups.SHAPE | changes))


def adamw(model, lr=1e-3):
    return torch.optim.AdamW(model.parameters(), lr, betas=(0.9, 0.95), weight_decay=0.01)


def train(seed, steps=900, count=32, **changes):
    """A model that has learned both modes, and a copy from halfway: the first time that it got
    12 swaps right in 3 of 10 questions (None if it never did)."""
    model, generator = fresh(seed, **changes), seeded(seed)
    optimizer, half = adamw(model), None
    for step in range(steps):
        batch = fuse_modes(*cups.questions(count, SWAPS, generator), **cups.MARKS)
        ids, mask, labels = batch
        lr = learning_rate(step, 3e-3, 50, steps, 1e-4)
        train_step(model, optimizer, ids, labels, lr, mask)
        if half is None and step % 10 == 9 and step > 100:
            half = (
                copy.deepcopy(model) if right(model, 12, cups.THINK, count=100) > 0.3 else None
            )
    return model, half


def asked(swaps, flag, count=100, seed=999):
    prompts, thoughts, answers = cups.questions(count, swaps, seeded(seed))
    return cups.ask(prompts, flag), thoughts, answers


def write(model, prompts, budget=None, **settings):
    return generate_with_budget(model, prompts, None, budget, 32, **WRITES, **settings)


def right(model, swaps, flag, budget=None, count=100):
    prompts, _, answers = asked(swaps, flag, count)
    output = write(model, prompts, budget)
    return round(cups.share_right(output, prompts.size(1), answers), 4)


def thought_length(model, swaps):
    prompts, _, _ = asked(swaps, cups.THINK)
    output = write(model, prompts)[:, prompts.size(1) :]
    marks = [(output == token).int().argmax(1) for token in (cups.OPEN, cups.CLOSE)]
    return round((marks[1] - marks[0] - 1).float().mean().item(), 3)


def draws_of(model, flag, swaps, temperature, seed, count=50, n=16):
    """Whether each of n draws is right, and its answer: two tensors (count, n)."""
    prompts, _, answers = asked(swaps, flag, count, seed=500 + seed)
    many = prompts.repeat_interleave(n, 0)
    output = write(model, many, temperature=temperature, generator=seeded(seed))
    found = cups.answers_in(output, many.size(1)).view(count, n)
    return found == torch.tensor(answers), found


def vote_right(found, wanted, n):
    """The share of questions that a majority of n draws gets right; in a tie the first answer
    counts."""
    votes = (found[:, :n, None] == found[:, None, :n]).sum(-1)  # (Q, n)
    winner = found.gather(1, votes.argmax(1, keepdim=True))
    return round((winner == wanted).float().mean().item(), 4)


def by_draws(model, flag, swaps, temperature, seed):
    hits, found = draws_of(model, flag, swaps, temperature, seed)
    _, _, answers = asked(swaps, flag, len(found), seed=500 + seed)
    wanted = torch.tensor(answers)
    some = pass_at_k
    return {
        "one": round(hits.float().mean().item(), 4),
        "vote": [vote_right(found, wanted, n) for n in DRAWS],
        "pass": [round(some(hits.sum(1), 16, k).mean().item(), 4) for k in DRAWS],
    }


def models(seed):
    """(trained, half trained) of a seed, from build/cups/ if they are there."""
    path = ROOT / "build" / "cups" / f"{seed}.pt"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save([model.state_dict() for model in train(seed)], path)
    pair = fresh(seed), fresh(seed)
    for model, state in zip(pair, torch.load(path), strict=True):
        model.load_state_dict(state)
    return pair


def main_part(seed):
    model, half = models(seed)
    modes = {"fast": cups.NO_THINK, "slow": cups.THINK}
    return {
        "half": [right(half, k, cups.THINK) for k in SWAPS],
        **{name: [right(model, k, flag) for k in SWAPS] for name, flag in modes.items()},
        "length": [thought_length(model, k) for k in SWAPS],
        "budget": [right(model, 12, cups.THINK, budget) for budget in BUDGETS],
        "draws slow": by_draws(model, cups.THINK, 8, 1.5, seed),
        "draws fast": by_draws(model, cups.NO_THINK, 8, 1.0, seed),
    }


def lessons_of(method, student, teacher, seed, updates=20, lr=2e-4, every=10):
    """Right answers (12 swaps) of a student after every few updates of 64 texts each."""
    optimizer, generator = adamw(student, lr), seeded(100 + seed)
    shares = [right(student, 12, cups.THINK, count=100)]
    stops = [cups.END]
    for update in range(1, updates + 1):
        prompts, _, answers = cups.questions(8, 12, generator)
        x = cups.ask(prompts, cups.THINK)
        many = cups.ask(cups.questions(64, 12, generator)[0], cups.THINK)
        if method == "grpo":
            wanted = iter([answer for answer in answers for _ in range(8)])

            def reward(text, wanted=wanted):
                start = text.index(cups.CLOSE) + 1 if cups.CLOSE in text else len(text)
                return float(text[start:-1] == next(wanted))

            grpo_step(student, optimizer, x, torch.ones_like(x), reward, 8, 30, stops,
                      generator=generator)  # fmt: skip
        elif method == "on-policy":
            on_policy_step(student, teacher, optimizer, many, torch.ones_like(many), 30, stops,
                           generator=generator)  # fmt: skip
        else:
            texts = generate(teacher, many, None, 30, 1.0, eos_token_id=stops,
                             generator=generator)  # fmt: skip
            labels = texts.masked_fill(texts == cups.PAD, -100)
            labels[:, : many.size(1)] = -100
            train_step(student, optimizer, texts, labels, lr)
        if update % every == 0:
            shares.append(right(student, 12, cups.THINK, count=100))
    return shares


METHODS = ("sft", "on-policy", "grpo")


def distill_part(seed):
    teacher, half = models(seed)
    return {
        method: lessons_of(method, copy.deepcopy(half), teacher, seed) for method in METHODS
    }


def layers_part(seed):
    """Right answers against swaps with one layer and with four; two are in the main part."""
    modes, rows = {"fast": cups.NO_THINK, "slow": cups.THINK}, {}
    for layers in (1, 4):
        model, _ = train(seed, num_hidden_layers=layers)
        rows[layers] = {name: [right(model, k, modes[name]) for k in SWAPS] for name in modes}
    return rows


PARTS = {
    f"{name} {seed}": (part, seed)
    for seed in SEEDS
    for name, part in (("main", main_part), ("distill", distill_part), ("layers", layers_part))
}


def record(words=()):
    """Compute the parts that the file lacks, and those whose names contain one of the words."""
    done = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    for name, (part, *arguments) in PARTS.items():
        if name in done and not any(word in name for word in words):
            continue
        began = time.perf_counter()
        value = part(*arguments)
        done = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
        done[name] = value
        lines = [f"{json.dumps(key)}: {json.dumps(done[key])}" for key in PARTS if key in done]
        RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
        print(f"{name}: {time.perf_counter() - began:.0f} s  {str(value)[:300]}", flush=True)


def rows(name):
    return cups.recorded(name)


def test_thoughts_do_what_layers_do_not():
    for row in rows("main"):
        assert min(row["slow"]) > 0.9 and max(row["fast"][3:]) < 0.5
        assert [round(length) for length in row["length"]] == [2 * k for k in SWAPS]
        assert row["half"][-1] + 0.2 < row["slow"][-1]  # the copy from halfway, at twelve swaps


def test_more_layers_learn_no_more_swaps_in_the_same_steps():
    stretch = list(zip(rows("main"), rows("layers"), strict=True))
    assert len(stretch) == len(SEEDS)
    for two, row in stretch:
        others = [row[layers]["fast"] for layers in ("1", "4")]
        assert two["fast"][1] > max(other[1] for other in others)
        assert max(max(fast[3:]) for fast in (two["fast"], *others)) < 0.35
    assert min(row["4"]["slow"][-1] for _, row in stretch) < 0.5


def test_a_cut_thought_is_hardly_more_than_a_guess():
    for row in rows("main"):
        assert max(row["budget"][:4]) < 0.4 and row["budget"][-1] > 0.9


def test_votes_repair_slips_and_not_guesses():
    for row in rows("main"):
        slow, fast = row["draws slow"], row["draws fast"]
        assert slow["vote"][-1] > slow["one"] and slow["vote"][-1] > 0.95
        assert fast["vote"][-1] < 0.5 and fast["pass"][-1] > 0.9
        assert fast["pass"] == sorted(fast["pass"])


def test_opinions_and_texts_teach_more_than_rewards():
    for row in rows("distill"):
        gain = {way: row[way][-1] - row[way][0] for way in METHODS}
        assert min(gain["sft"], gain["on-policy"]) > gain["grpo"]


@pytest.mark.slow
def test_the_shipped_weights_are_those_of_this_recipe():
    """A model trained with another seed has the recorded results."""
    model, half = train(1)
    assert right(model, 12, cups.THINK) > 0.9 and right(model, 6, cups.NO_THINK) < 0.5
    assert half is not None and right(half, 12, cups.THINK) < 0.9


if __name__ == "__main__":
    torch.set_num_threads(1)
    record(sys.argv[1:])
