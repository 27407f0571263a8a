"""Learning from the reader: the model tells stories, and each sentence is judged.

Reinforcement learning with a reward that can be verified. A sentence that the reader accepts
is worth 1, the first that it does not 0, and what comes after that is not looked at. The
gradient is that of

    - sum_s (worth_s - expected_s) * sum_t log p(token t of sentence s) / tokens

(REINFORCE with a baseline), where expected_s is what sentences of that kind ("give", "go")
were worth in this step: nothing is told less often for being hard to tell, but told where it
fits. Where the story ends is a sentence of a kind of its own: 0 if that is too early.
Source: Williams 1992, https://doi.org/10.1007/BF00992696
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from labkit.stories import END_OF_TEXT, END_OF_TURN, FEWEST, prompt, request, tell
from labkit.stories.reader import read_story

LONG = 0.7  # share of the stories that shall have two chapters
MOST = 280  # tokens of a story; the longest true ones have fewer
LEAST = MOST + 104  # positions, to have room for what was asked for and the story
EXPECTED = 4  # so many mean sentences are added to those of a kind: a rare one is no measure
TOGETHER = 16  # stories in one pass of the model, those of like length


@dataclass(frozen=True)
class Part:
    """A sentence of a story as its tokens start to end, or the token that ends the story."""

    start: int
    end: int
    kind: str
    sound: bool


@dataclass(frozen=True)
class Told:
    """A story as the model told it."""

    prompt: list[int]
    tokens: list[int]  # with the stop token, if it came to that
    parts: list[Part]

    @property
    def sound(self) -> bool:
        return bool(self.parts) and self.parts[-1].kind == "end" and self.parts[-1].sound


def wishes(numbers: Iterable[int]) -> list[tuple[str, bool]]:
    """Requests for stories that nobody told, each with whether a long one is meant."""
    return [_wish(Random(f"TinyLLM wishes {number}")) for number in numbers]


def _wish(rng: Random) -> tuple[str, bool]:
    long = rng.random() < LONG
    while True:
        if story := tell(rng, long):
            return prompt(request(story, rng)), long


@torch.no_grad()
def tell_all(
    model: nn.Module,
    cache: Any,
    prompts: Sequence[list[int]],
    temperature: float,
    generator: torch.Generator,
    stops: Set[int],
) -> list[list[int]]:
    """The tokens that a model says to each prompt, up to and with the one that stops it.

    All are written at once, and who has ended leaves the batch: that is twice as quick as
    `generate`, where everybody waits for the longest.

    cache    an empty KVCache with room for the longest prompt and MOST tokens
    """
    longest = max(map(len, prompts))
    input_ids = torch.tensor([[0] * (longest - len(ids)) + ids for ids in prompts])
    mask = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts])
    input_ids, mask = (each.to(generator.device) for each in (input_ids, mask))
    said: list[list[int]] = [[] for _ in prompts]
    rows = list(range(len(prompts)))  # those that still speak
    for _ in range(MOST):
        scores = model(input_ids, mask, cache)[:, -1].float() / temperature  # (B, V)
        token = torch.multinomial(scores.softmax(-1), 1, generator=generator)  # (B, 1)
        for row, new in zip(rows, (drawn := token[:, 0].tolist()), strict=True):
            said[row].append(new)
        going = [place for place, new in enumerate(drawn) if new not in stops]
        if not going:
            break
        mask, input_ids = torch.cat((mask, torch.ones_like(token)), dim=1), token
        if len(going) < len(rows):
            rows = [rows[place] for place in going]
            keep = torch.tensor(going, device=mask.device)
            mask, input_ids = mask[keep], input_ids[keep]
            for held in (cache.keys, cache.values):
                held[:] = [layer[keep] for layer in held]
    return said


def judged(pieces: Sequence[str], ended: bool, least: int) -> list[Part]:
    """The sentences of a story up to the first with a flaw, and its end, if it has no flaw.

    pieces    the text of every token, the stop token's left out
    ended     whether there was one
    least     sentences that the story has to have
    """
    text = "".join(pieces)
    reading = read_story(text)
    first = min(reading.flawed, default=-1)
    parts: list[Part] = []
    place = start = end = length = 0
    for number, sentence in enumerate(reading.sentences):
        found = text.find(sentence, place)
        if found < 0:  # written with odd spaces; the reader takes them as one
            return parts
        place = found + len(sentence)
        while end < len(pieces) and length + len(pieces[end]) <= place:
            length += len(pieces[end])
            end += 1
        parts.append(Part(start, end, reading.kinds[number], number != first))
        if number == first:
            return parts
        start = end
    if ended:
        parts.append(Part(start, len(pieces) + 1, "end", len(reading.sentences) >= least))
    return parts


def advantages(stories: Sequence[Sequence[Part]]) -> list[list[float]]:
    """How much more each part was worth than those of its kind are, in these stories."""
    told, sound = Counter(), Counter()
    for part in (part for parts in stories for part in parts):
        told[part.kind] += 1
        sound[part.kind] += part.sound
    mean = sound.total() / max(1, told.total())
    expected = {k: (sound[k] + EXPECTED * mean) / (n + EXPECTED) for k, n in told.items()}
    return [[part.sound - expected[part.kind] for part in parts] for parts in stories]


def told_stories(
    model: nn.Module,
    make_cache: Callable[[int, int], Any],
    tokenizer: Any,
    numbers: Iterable[int],
    temperature: float,
    generator: torch.Generator,
) -> list[Told]:
    """Stories of these numbers from a model, judged."""
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids  # noqa: E731
    stops = {tokenizer.token_to_id(END_OF_TEXT), tokenizer.token_to_id(END_OF_TURN)}
    wanted = wishes(numbers)
    prompts = [encode(text) for text, _ in wanted]
    cache = make_cache(model.config.num_hidden_layers, max(map(len, prompts)) + MOST)
    stories = []
    answers = tell_all(model, cache, prompts, temperature, generator, stops)
    for ids, tokens, (_, long) in zip(prompts, answers, wanted, strict=True):
        ended = tokens[-1] in stops
        pieces = [tokenizer.decode([t]) for t in (tokens[:-1] if ended else tokens)]
        stories.append(Told(ids, tokens, judged(pieces, ended, FEWEST * (1 + long))))
    return stories


def objectives(
    stories: Sequence[Told], temperature: float, logits: Callable[[Tensor], Tensor]
) -> Iterable[Tensor]:
    """Parts of the sum above, each to be differentiated by itself, for memory's sake.

    logits    the model: token ids (B, T) -> (B, T, V)
    """
    worth = advantages([story.parts for story in stories])
    counted = sum(part.end - part.start for story in stories for part in story.parts)
    lengths = [len(story.prompt) + len(story.tokens) for story in stories]
    order = sorted(range(len(stories)), key=lengths.__getitem__)
    for first in range(0, len(order), TOGETHER):
        chosen = order[first : first + TOGETHER]
        input_ids = torch.zeros(len(chosen), lengths[chosen[-1]], dtype=torch.long)
        weights = torch.zeros(input_ids.shape)
        for row, number in enumerate(chosen):
            story, begin = stories[number], len(stories[number].prompt)
            input_ids[row, : lengths[number]] = torch.tensor(story.prompt + story.tokens)
            for part, more in zip(story.parts, worth[number], strict=True):
                weights[row, begin + part.start : begin + part.end] = more
        scores = logits(input_ids[:, :-1])
        log_probs = (scores.float() / temperature).log_softmax(-1)  # (B, T - 1, V)
        said = log_probs.gather(-1, input_ids[:, 1:, None].to(scores.device)).squeeze(-1)
        yield -(weights[:, 1:].to(scores.device) * said).sum() / max(1, counted)
