"""Rewards for stories, for lab 11 and for recipes with requests: requests, the reader's verdict
on an answer, and the loss on true stories, which shows what a reward has cost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from labkit.model.tokenizer import Tokenizer
from storyworld import LONG_REQUESTS, SPLITS, prompt, request
from storyworld.reader import read_story
from storyworld.scores import reply, tasks

MOST = 160  # tokens of a story; nearly all stories with one chapter have fewer


def requests(count: int, seed: int) -> list[str]:
    """Return requests for short stories; a seed always gives the same."""
    rng, found = Random(f"TinyLLM lab 11 {seed}"), []
    for story, _ in tasks(SPLITS["train"][1000 + seed], 2 * count):
        wanted = request(story, rng)
        if not any(wanted.startswith(form.partition("{")[0]) for form in LONG_REQUESTS):
            found.append(wanted)
    return found[:count]


def batch(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Encode chats that begin with these messages, padded on the left: ids and mask (B, T)."""
    rows = [tokenizer.encode(prompt(text)) for text in texts]
    longest = max(map(len, rows))
    ids = [[0] * (longest - len(row)) + row for row in rows]
    mask = [[0] * (longest - len(row)) + [1] * len(row) for row in rows]
    return torch.tensor(ids), torch.tensor(mask)


def flawless(text: str) -> bool:
    """Whether the text has sentences and the reader can prove none of them wrong"""
    reading = read_story(text)
    return bool(reading.sentences) and reading.flawless


def sound(text: str) -> float:
    """Return 1 for a story that is long enough and without a flaw, otherwise 0."""
    return float(read_story(text).sound)


@torch.no_grad()
def answers(
    model: nn.Module,
    tokenizer: Tokenizer,
    generate: Callable[..., Tensor],
    texts: Sequence[str],
    temperature: float = 0.3,
    seed: int = 0,
    most: int = MOST,
) -> list[str]:
    found: list[str] = []
    generator = torch.Generator().manual_seed(seed)
    for first in range(0, len(texts), 50):
        input_ids, mask = batch(tokenizer, texts[first : first + 50])
        output = generate(
            model, input_ids, mask, most, temperature,
            eos_token_id=sorted(tokenizer.stop_ids), generator=generator,
        )  # fmt: skip
        found += [written(tokenizer, row) for row in output[:, input_ids.size(1) :].tolist()]
    return found


def written(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Return the text of an answer up to its first stop token."""
    return reply(tokenizer.decode(ids, skip_special_tokens=False))


@torch.no_grad()
def nats_on_stories(model: nn.Module, tokenizer: Tokenizer, stories: int = 40) -> float:
    """Return the mean of -ln(probability) of the tokens of true stories, never trained on."""
    total, tokens = 0.0, 0
    for story, wanted in tasks(SPLITS["validation"][0], stories):
        begin = tokenizer.encode(prompt(wanted))
        ids = torch.tensor([begin + tokenizer.encode(story.text)])
        log_probs = model(ids)[0, len(begin) - 1 : -1].float().log_softmax(-1)
        picked = log_probs.gather(-1, ids[0, len(begin) :, None])
        total, tokens = total - float(picked.sum()), tokens + len(picked)
    return total / tokens


def recorded() -> dict[str, list[dict[str, Any]]]:
    """Return the recorded runs of each reward, one per seed, made by tests/course/claims."""
    path = Path(__file__).parent / "posttraining.json"
    return json.loads(path.read_text("utf-8"))
