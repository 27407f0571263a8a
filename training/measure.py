"""Measure a model on stories that it has never seen.

`scores_of` returns the content of scores.json, from which card.py renders the model card.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from labkit.learner.lessons.data import IGNORE, Validation
from labkit.learner.lessons.lesson import expert_shares
from labkit.model import checkpoint
from labkit.model.chat.stream import Sampling
from labkit.model.fast import accelerate
from labkit.model.tokenizer import Tokenizer
from storyworld import SPLITS, prompt
from storyworld.questions import UNTOLD
from storyworld.scores import measure, right_when_shuffled, shares
from training.asking import asked_words

AT_ONCE = 64  # prompts in a batch
NEW_TOKENS = 280  # the longest story has fewer
SEED = SPLITS["test"][0]
SHARES = {  # {key in scores.json: description of the share}
    "understood": "sentences that the reader understands",
    "consistent": "stories that contradict nothing",
    "sound": "stories without any flaw: understood, consistent, nothing twice, long enough",
    "on_topic": "stories about what was asked for",
    "varied": "sentences that differ, of all that are told",
    "questions_right": "questions about a true story answered right",
    "visitors": "questions about a visitor's own story answered right",
    "visitors_unknown": "those of them that the story leaves open, answered so",
    "honest": 'requests that no story answers ("a dolphin", "4 + 32"), answered so',
}
WAYS = ("greedy", "sampled", "long sampled")

Watch = Callable[[int, int], None]


def scores_of(
    folder: Path, package: ModuleType, stories: int, watch: Watch = lambda done, total: None
) -> dict[str, Any]:
    """Measure bits per byte and the shares of SHARES.

    Answers are decoded greedily ("greedy"), and sampled with generation_config.json and a
    fixed seed ("sampled", and "long sampled" for stories of two chapters). Other entries:

    shuffled    share of questions that a reader of shuffled sentences answers right
    experts     each expert's share of the picks, layer by layer
    asked       counts of granted requests, see training/asking.py

    stories    the number of stories; prompts that fill the context count as answered wrong
    watch      called with the number of answers written and wanted
    """
    tokenizer = Tokenizer(checkpoint.existing(folder))
    model = checkpoint.load(folder, package, torch.float32)  # fast on every processor
    accelerate(model, last_logits_only=True)
    longest = model.config.max_position_embeddings
    validation = Validation(tokenizer.library, stories, longest, split="test")
    loss = checkpoint.part(package, "causal_lm_loss")
    found = {
        "stories": stories,
        "bits_per_byte": validation.bits_per_byte(model, loss),
        "experts": picks_of(model, validation),
        "shuffled": round(right_when_shuffled(SEED, stories), 4),
    }
    by_hand = visitors(stories)
    wanted = {
        "greedy": prompts(stories, long=False) + list(by_hand),
        "sampled": prompts(stories, long=False) + list(by_hand),
        "long sampled": prompts(stories, long=True),
    }
    sampling = Sampling.chosen(tokenizer.generation)
    generate = checkpoint.part(package, "generate")
    total, done = sum(map(len, wanted.values())), 0
    for way, texts in wanted.items():
        progress = lambda written, before=done: watch(before + written, total)  # noqa: E731
        how = Sampling() if way == "greedy" else sampling
        answers = continuations(model, tokenizer, generate, texts, how, progress)
        long = way.startswith("long")
        counts = shares(measure(answers.__getitem__, SEED, stories, long))
        if long:
            del counts["honest"]
        else:
            counts |= visitor_shares(answers, by_hand)
        found[way] = {name: round(share, 4) for name, share in counts.items()}
        done += len(texts)
    found["asked"] = asked_words(
        lambda texts: continuations(model, tokenizer, generate, texts, Sampling()), stories
    )
    return found


def visitors(stories: int | None = None) -> dict[str, list[str]]:
    """Return questions about the first stories of visitors.json with their right answers.

    They are for measuring only: do not train on them, or choose a model by them.
    """
    found = json.loads((Path(__file__).parent / "visitors.json").read_text("utf-8"))
    return {
        prompt(f"{item['story']}\n{words}"): accepted
        for item in found[:stories]
        for words, accepted in item["asked"]
    }


def visitor_shares(answers: dict[str, str], accepted: dict[str, list[str]]) -> dict[str, float]:
    right = {text: answers[text] in wanted for text, wanted in accepted.items()}
    found = {"visitors": sum(right.values()) / len(right)}
    if left_open := [text for text, wanted in accepted.items() if UNTOLD in wanted]:
        found["visitors_unknown"] = sum(map(right.get, left_open)) / len(left_open)
    return found


@torch.no_grad()
def picks_of(model: nn.Module, validation: Validation) -> list[list[float]]:
    """Return each expert's share of the picks on these texts, for each layer with experts."""
    layers: list[list[Tensor]] = []
    for labels in validation.batches:
        real = (labels != IGNORE).flatten()
        _, router_logits = model(labels.clamp(min=0), output_router_logits=True)
        layers = layers or [[] for _ in router_logits]
        for scores, layer in zip(router_logits, layers, strict=True):
            layer.append(scores[real])
    shares = expert_shares(list(map(torch.cat, layers)), model.config.num_experts_per_tok)
    return [[round(share, 4) for share in layer.tolist()] for layer in shares]


def prompts(stories: int, long: bool) -> list[str]:
    """Return all prompts of `measure` in order, each once."""
    seen: dict[str, None] = {}

    def listen(prompt: str) -> str:
        seen[prompt] = None
        return ""

    measure(listen, SEED, stories, long)
    return list(seen)


def continuations(
    model: nn.Module,
    tokenizer: Tokenizer,
    generate: Callable,
    prompts: Sequence[str],
    sampling: Sampling,
    progress: Callable[[int], None] = lambda written: None,
) -> dict[str, str]:
    """Return the model's text for each prompt; "" if the prompt fills the context."""
    limit = model.config.max_position_embeddings
    pairs = ((tokenizer.encode(text), text) for text in prompts)
    encoded = sorted(pairs, key=lambda pair: len(pair[0]))
    generator = torch.Generator().manual_seed(0)
    answers = {text: "" for ids, text in encoded if len(ids) >= limit}
    fitting = [pair for pair in encoded if pair[1] not in answers]
    for start in range(0, len(fitting), AT_ONCE):
        batch = fitting[start : start + AT_ONCE]
        longest = len(batch[-1][0])
        padding = [longest - len(ids) for ids, _ in batch]
        input_ids = [[0] * n + ids for n, (ids, _) in zip(padding, batch, strict=True)]
        mask = [[0] * n + [1] * (longest - n) for n in padding]
        with torch.no_grad():
            output = generate(
                model, torch.tensor(input_ids), torch.tensor(mask),
                max_new_tokens=min(NEW_TOKENS, limit - longest), generator=generator,
                eos_token_id=sorted(tokenizer.stop_ids), **asdict(sampling),
            )  # fmt: skip
        for (_, text), row in zip(batch, output[:, longest:].tolist(), strict=True):
            end = next((i for i, t in enumerate(row) if t in tokenizer.stop_ids), len(row))
            answers[text] = tokenizer.decode(row[:end])
        progress(len(answers))
    return answers
