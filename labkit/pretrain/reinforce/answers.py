"""Questions about stories, each asked by itself.

A training document has up to four questions, one after the other, and most of its tokens are
the story's. All but the first have it easy: who was told where the ball is knows who has the
kite that was swapped for it, and need not have read the story. Here a story is read once, and
each of its questions goes on from there alone; only the answers count. Mostly it is the first
question; sometimes one or two others were asked and answered before all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labkit.pretrain.data import IGNORE
from labkit.pretrain.reinforce import drills
from labkit.pretrain.reinforce.drills import questions
from labkit.stories import (
    END_OF_TURN,
    HURRIED,
    LISTENED,
    PLAIN_REQUESTS,
    REQUESTS,
    hurried,
    plots,
    prompt,
    tell,
)
from labkit.stories.beyond import HONEST, without_story
from labkit.stories.questions import untold
from labkit.stories.reader import read_story
from labkit.stories.words import GENDER, QUESTIONS
from labkit.stories.world import World

LEAST = 256  # tokens, to have room for a story and an answer
LONG = 0.5  # share of stories with a second chapter
ALONE = 0.05  # share of conversations in which there is no story
BROUGHT = 0.5  # share of stories in the message of the first question
TYPED = 0.25  # share of those in a message of their own; the model has told the others
BEFORE = (0, 0, 0, 1, 1, 2)  # so many others are asked before
TOGETHER = 7  # stories in one pass of the model, those of like length


@dataclass(frozen=True)
class Asked:
    """A story and its questions."""

    story: Tensor  # (1, P): what all begin with
    input_ids: Tensor  # (Q, T): what comes after that, padded at the end
    labels: Tensor  # (Q, T)


def asked(tokenizer: Any, number: int, longest: int, drilled: float = 0.0) -> Asked:
    """The story of this number, the first that fits with each answer into `longest` tokens.

    drilled  share of those that are drills, and of the others that end early: a model learns
             from short ones first
    """
    rng = Random(f"TinyLLM asked {number}")
    typed = hurried if rng.random() < HURRIED else str
    ids: list[list[int]] = []
    while not ids or max(map(len, ids)) > longest:
        if rng.random() < ALONE:
            sentences, wanted = no_story(rng)
        elif rng.random() < drilled:
            sentences, wanted = rng.choice(DRILLS)(rng)
        else:
            sentences, wanted = story_so_far(rng, drilled)
        ids, answers = [], []
        for said, reply in conversations(rng, " ".join(sentences), wanted, typed):
            pieces = (prompt(*said), reply + END_OF_TURN)
            both = [tokenizer.encode(p, add_special_tokens=False).ids for p in pieces]
            ids.append([*both[0], *both[1]])
            answers.append(len(both[0]))
    shared = min(answers) - 1  # something is left to be read before each answer
    while len({tuple(row[:shared]) for row in ids}) > 1:
        shared -= 1
    input_ids = torch.zeros(len(ids), max(map(len, ids)) - shared, dtype=torch.long)
    labels = torch.full_like(input_ids, IGNORE)
    for place, (row, start) in enumerate(zip(ids, answers, strict=True)):
        rest = torch.tensor(row[shared:])
        input_ids[place, : len(rest)] = rest
        labels[place, start - shared : len(rest)] = rest[start - shared :]
    return Asked(torch.tensor([ids[0][:shared]]), input_ids, labels)


def conversations(
    rng: Random, story: str, wanted: list[tuple[str, str]], typed: Callable[[str], str]
) -> list[tuple[list[str], str]]:
    """The messages before each answer, and the answer. All begin alike: a story is there that
    the user or the model told, or none, and perhaps others were asked before."""
    opening, brought, layout = [], "", rng.random()
    if story and layout < BROUGHT:
        brought = story + rng.choice(("\n", "\n", " "))
    elif story:
        opening = [story, LISTENED]
        if layout > BROUGHT + TYPED:
            opening = [typed(rng.choice(PLAIN_REQUESTS)), story]
    before = max(0, min(rng.choice(BEFORE), len(wanted) - 2)) if story else 0
    pairs = rng.sample(wanted, len(wanted))
    earlier = [text for words, reply in pairs[:before] for text in (typed(words), reply)]
    found = [([story], LISTENED)] if LISTENED in opening and not before else []
    for words, reply in pairs[before:]:
        said = [*opening, *earlier, typed(words)]
        found.append(([brought + said[0], *said[1:]], reply))
    return found


def story_so_far(rng: Random, unfinished: float) -> tuple[list[str], list[tuple[str, str]]]:
    """A story, or, as often as `unfinished` says, its beginning."""
    story, long = None, rng.random() < LONG
    while not story:
        story = tell(rng, long, CHOICES)
    reading = read_story(story.text)
    if rng.random() < unfinished:
        end = rng.randint(3, len(reading.sentences))
        reading = read_story(" ".join(reading.sentences[:end]))
    return reading.sentences, questions(reading.world, rng, tuple(QUESTIONS))


def no_story(rng: Random) -> tuple[list[str], list[tuple[str, str]]]:
    """Questions about a story that nobody told, and other things that one may say first."""
    said = [untold(World(), rng), without_story(rng, REQUESTS, list(GENDER))]
    return [], [(words, HONEST[-1]) for words in said]


DRILLS = (
    *(drills.who_has_what, drills.who_is_where, drills.who_has_how_many),
    *3 * (drills.in_few_words,),
)

# a model finds it hardest to say who has what after a trade, and to count
CHOICES = (
    *plots.PLOTS,
    *4 * (plots.trade,),
    *4 * (plots.counting,),
    *12 * (plots.twins,),
    *8 * (plots.belongings,),
)


# %% learning
class ReadOnce:
    """A KV cache of stories, from which all their questions go on, and which can be learnt.

    story_of    the number of each question's story, (Q,)
    """

    def __init__(self, story_of: Tensor):
        self.story_of, self.length, self.held = story_of, 0, []

    def update(self, layer_idx: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if self.length == 0:
            self.held.append((key, value))
            return key, value
        held = (
            each.index_select(0, self.story_of.to(each.device)) for each in self.held[layer_idx]
        )
        return tuple(torch.cat(pair, dim=2) for pair in zip(held, (key, value), strict=True))


def losses(stories: Sequence[Asked], logits: Callable[..., Tensor]) -> Iterable[Tensor]:
    """Parts of the mean loss of the answers' tokens, each to be differentiated by itself, for
    memory's sake.

    logits    the model: token ids (B, T), attention mask (B, S) and a cache -> (B, T, V)
    """
    counted = sum((one.labels != IGNORE).sum().item() for one in stories)
    in_order = sorted(stories, key=lambda one: one.story.size(1))
    for start in range(0, len(stories), TOGETHER):
        some = in_order[start : start + TOGETHER]
        story = padded([one.story for one in some], 0, left=True)  # (B, P)
        mask = padded([torch.ones_like(one.story) for one in some], 0, left=True)
        input_ids = padded([one.input_ids for one in some], 0)  # (Q, T)
        labels = padded([one.labels for one in some], IGNORE)[:, 1:]
        asked_of = torch.tensor([n for n, one in enumerate(some) for _ in one.labels])
        cache = ReadOnce(asked_of)
        logits(story, mask, cache)
        cache.length = story.size(1)
        mask = torch.cat((mask[asked_of], torch.ones_like(input_ids)), dim=1)
        scores = logits(input_ids, mask, cache)[:, :-1].transpose(1, 2).float()
        labels = labels.to(scores.device)
        sum_of_all = F.cross_entropy(scores, labels, ignore_index=IGNORE, reduction="sum")
        yield sum_of_all / counted


def padded(tensors: Sequence[Tensor], value: int, left: bool = False) -> Tensor:
    """One below the other, (rows, T) each, as long as the longest."""
    longest = max(each.size(1) for each in tensors)
    more = [longest - each.size(1) for each in tensors]
    sides = [(n, 0) if left else (0, n) for n in more]
    return torch.cat([F.pad(*both, value=value) for both in zip(tensors, sides, strict=True)])
