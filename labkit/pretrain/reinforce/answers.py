"""Stories with nearly all their questions, of which the answers count twice.

A training document has up to four questions, and most of its tokens are the story's: a model
sees few answers. Here up to fourteen are asked, and more of the stories are long. To the mean
loss of all tokens comes that of the answers' tokens alone, which the labels mark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labkit.pretrain.data import IGNORE
from labkit.pretrain.stories import (
    END_OF_TEXT,
    END_OF_TURN,
    HURRIED,
    hurried,
    plots,
    prompt,
    tell,
)
from labkit.pretrain.stories.grammar import articles
from labkit.pretrain.stories.questions import answer, candidates, question
from labkit.pretrain.stories.reader import Reading, read_story
from labkit.pretrain.stories.teller import Teller
from labkit.pretrain.stories.words import BOYS, GIRLS, QUESTIONS, THINGS


def first_drill(rng: Random) -> tuple[list[str], list[tuple[str, str]]]:
    """Two or three sentences of who has what, and who has each thing.

    Where little else stands, a model learns within 150 steps to look for the thing that is
    asked about; from whole stories alone it had not in many thousands.
    """
    people = rng.sample(GIRLS + BOYS, rng.choice((2, 2, 3)))
    have = dict(zip(people, rng.sample(list(THINGS), len(people)), strict=True))
    sentences = [f"{a} {rng.choice(HAVING)} a {x}." for a, x in have.items()]
    asked = [(f"Who has the {x}?", f"{a} has it.") for a, x in have.items()]
    return [articles(sentence) for sentence in sentences], asked


def belongings(t: Teller) -> None:
    """Two people with two things each, which may change hands: which one is asked for counts.

    In most plots one thing matters, and a model that answers who has *something* is mostly
    right; so it never learns to look for what the question names.
    """
    here = t.place()
    a = t.hero(here)
    b = t.friend(a, here)
    has: dict[str, list[str]] = {a: [], b: []}
    for name in t.rng.sample([a, a, b, b], 4):
        has[name].append(x := t.toy())
        t("have", a=name, x=x)
    for _ in range(t.rng.choice((0, 1, 1, 2))):
        giver, taker = t.rng.sample([a, b], 2)
        if not has[giver] or not has[taker]:
            break
        x, y = t.rng.choice(has[giver]), t.rng.choice(has[taker])
        how = t.rng.choice(("give", "swap", "put"))
        has[giver].remove(x)
        if how == "give":
            t("give", a=giver, b=taker, x=x)
            has[taker].append(x)
        elif how == "put":
            t("put", a=giver, x=x, s=t.spot(here))
        else:
            t("swap", a=giver, b=taker, x=x, y=y)
            has[taker].remove(y)
            has[taker].append(x)
            has[giver].append(y)
            t.maybe(0.4, "has_now", a=giver, x=y)
    t.ending(a, b)


DRILLS = 0.25  # share of the first drill
UNFINISHED = 0.6  # share of the stories that end early: short ones are learnt from first
HAVING = ("had", "owned", "had brought", "was carrying", "had been given")
LONG = 0.4  # share of stories with a second chapter
# the plots; a model finds it hardest to say who has what after a trade, and to count
CHOICES = (
    *plots.PLOTS,
    *8 * (plots.trade,),
    *4 * (plots.counting,),
    *2 * (plots.twins,),
    *16 * (belongings,),
)
LEAST = 320  # tokens of a row, to have room for a long story and an answer
FEW, MANY = 4, 14  # questions about a quarter of the stories, and about the others
FOLLOWED = ("where_thing", "who_has", "where_person", "how_many")  # through the whole story


class Answers:
    """Rows of such stories by their number, each cut where it is full."""

    def __init__(self, tokenizer, sequence_length: int, first: int = 0):
        self.tokenizer, self.sequence_length = tokenizer, sequence_length
        self.first = first  # those before it were an earlier run's

    def batch(
        self, step: int, size: int, rank: int = 0, world: int = 1
    ) -> tuple[Tensor, Tensor]:
        """Token ids and labels, (size/world, T) each, of this process in a step."""
        start = self.first + step * size
        rows = [self.row(number) for number in range(start + rank, start + size, world)]
        input_ids, labels = zip(*rows, strict=True)
        return torch.tensor(input_ids), torch.tensor(labels)

    def row(self, number: int) -> tuple[list[int], list[int]]:
        rng = Random(f"TinyLLM answers {number}")
        input_ids: list[int] = []
        labels: list[int] = []
        while len(input_ids) < self.sequence_length:
            for text, counts in turns(rng):
                ids = self.tokenizer.encode(text, add_special_tokens=False).ids
                input_ids += ids
                labels += ids if counts else [IGNORE] * len(ids)
        return input_ids[: self.sequence_length], labels[: self.sequence_length]


def turns(rng: Random) -> list[tuple[str, bool]]:
    """The pieces of one document, each with whether it is an answer."""
    story = _story(rng)
    asked = all_questions(story, rng)[: rng.choice((FEW, MANY, MANY, MANY))]
    rng.shuffle(asked)
    pieces, before = [], " ".join(story.sentences) + "\n"
    typed = hurried if rng.random() < HURRIED else str
    for words, reply in asked:
        pieces += [
            (prompt(before + typed(words)), False),
            (reply + END_OF_TURN, True),
            ("\n", False),
        ]
        before = ""
    return [*pieces, (END_OF_TEXT, False)]


def _story(rng: Random) -> Reading:
    long = rng.random() < LONG
    while True:
        if story := tell(rng, long, CHOICES):
            return read_story(story.text)


def all_questions(story: Reading, rng: Random) -> list[tuple[str, str]]:
    """What the story answers, each fact asked for once, with its answer; the hard ones first.

    Who has a thing and where it is are one fact: asked twice, a model would copy its answer.
    """
    hard, others, facts = {}, {}, set()
    for kind in rng.sample(list(QUESTIONS), len(QUESTIONS)):
        asked = hard if kind in FOLLOWED else others
        for args in rng.sample(found := candidates(story.world, kind, rng), len(found)):
            fact = ("x" if kind in ("where_thing", "who_has") else kind, *args.values())
            reply = answer(story.world, kind, args)
            if reply and fact not in facts:
                facts.add(fact)
                asked[question(story.world, kind, args)] = reply
    return [*hard.items(), *others.items()]


# %% every question by itself
EASY = 2  # questions of the other kinds about a story


@dataclass(frozen=True)
class Asked:
    """A story and questions, each asked as the first one.

    In a row of many questions all but the first have it easy: who was told where the ball
    is knows who has the kite that was swapped for it, and need not have read the story.
    """

    story: Tensor  # (1, P): what all begin with
    input_ids: Tensor  # (Q, T): what comes after that, padded at the end
    labels: Tensor  # (Q, T)


def asked(tokenizer: Any, number: int, longest: int) -> Asked:
    """The story of this number, the first that fits with each answer into `longest` tokens."""
    rng = Random(f"TinyLLM asked {number}")
    typed = hurried if rng.random() < HURRIED else str
    ids: list[list[int]] = []
    while not ids or max(map(len, ids)) > longest:
        sentences, chosen = first_drill(rng) if rng.random() < DRILLS else _story_so_far(rng)
        text = " ".join(sentences) + "\n"
        ids, answers = [], []
        for words, reply in chosen:
            pieces = (prompt(text + typed(words)), reply + END_OF_TURN)
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


def _story_so_far(rng: Random) -> tuple[list[str], list[tuple[str, str]]]:
    """Sentences of a story, and the questions of the hard kinds and some others about them."""
    story = _story(rng)
    if rng.random() < UNFINISHED:
        end = rng.randint(3, len(story.sentences))
        story = read_story(" ".join(story.sentences[:end]))
    hard, easy = [], []
    for kind in QUESTIONS:
        for args in candidates(story.world, kind, rng):
            if reply := answer(story.world, kind, args):
                both = (question(story.world, kind, args), reply)
                (hard if kind in FOLLOWED else easy).append(both)
    return story.sentences, hard + rng.sample(easy, min(EASY, len(easy)))


class ReadOnce:
    """A KV cache of one story, from which all its questions go on, and which can be learnt."""

    def __init__(self):
        self.length, self.held = 0, []

    def update(self, layer_idx: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if self.length == 0:
            self.held.append((key, value))
            return key, value
        held = (each.expand(key.size(0), -1, -1, -1) for each in self.held[layer_idx])
        return tuple(torch.cat(pair, dim=2) for pair in zip(held, (key, value), strict=True))


def loss_of(asked: Asked, model: Callable[..., Tensor], device: torch.device) -> Tensor:
    """Of all tokens of the answers, their sum; the story is read once."""
    cache = ReadOnce()
    model(asked.story.to(device), cache=cache)
    cache.length = asked.story.size(1)
    scores = model(asked.input_ids.to(device), cache=cache)[:, :-1]  # (Q, T - 1, V)
    labels = asked.labels[:, 1:].to(device)
    return F.cross_entropy(
        scores.transpose(1, 2).float(), labels, ignore_index=IGNORE, reduction="sum"
    )
