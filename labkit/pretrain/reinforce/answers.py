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
from labkit.pretrain.stories import (
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
from labkit.pretrain.stories.beyond import HONEST, without_story
from labkit.pretrain.stories.grammar import Writer, number
from labkit.pretrain.stories.questions import (
    UNTOLD,
    answer,
    candidates,
    question,
    unfounded,
    untold,
)
from labkit.pretrain.stories.reader import read_story
from labkit.pretrain.stories.teller import Teller
from labkit.pretrain.stories.words import ANIMALS, BOYS, GENDER, GIRLS, PLURALS, QUESTIONS
from labkit.pretrain.stories.world import World

LEAST = 256  # tokens, to have room for a story and an answer
HELD = ("where_thing", "who_has")
FOLLOWED = (*HELD, "where_person", "how_many")  # through the whole story
OTHERS = 2  # questions of other kinds about a story
LONG = 0.5  # share of stories with a second chapter
STRANGERS = 0.5  # share of stories that are also asked about what they do not say
SUPPOSING = 0.5  # share of these that ask what nobody said of those whom it mentions
ALONE = 0.05  # share of conversations in which there is no story
EASY = 0.3  # share of drills with two people, and nothing that changes hands
TWINS = 0.4  # share of those of things with two of one sort, as a red and a blue kite
BROUGHT = 0.5  # share of stories in the message of the first question
TYPED = 0.25  # share of those in a message of their own; the model has told the others
BEFORE = (0, 0, 0, 1, 1, 2)  # so many others are asked before
SAID = 0.6  # share of counts in a drill that are told and need not be reckoned
TOGETHER = 7  # stories in one pass of the model, those of like length


@dataclass(frozen=True)
class Asked:
    """A story and its questions."""

    story: Tensor  # (1, P): what all begin with
    input_ids: Tensor  # (Q, T): what comes after that, padded at the end
    labels: Tensor  # (Q, T)


def asked(tokenizer: Any, number: int, longest: int, drills: float = 0.0) -> Asked:
    """The story of this number, the first that fits with each answer into `longest` tokens.

    drills   share of those that are drills, and of the others that end early: a model learns
             from short ones first
    """
    rng = Random(f"TinyLLM asked {number}")
    typed = hurried if rng.random() < HURRIED else str
    ids: list[list[int]] = []
    while not ids or max(map(len, ids)) > longest:
        if rng.random() < ALONE:
            sentences, wanted = no_story(rng)
        elif rng.random() < drills:
            sentences, wanted = rng.choice(DRILLS)(rng)
        else:
            sentences, wanted = story_so_far(rng, drills)
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
        brought = story + "\n"
    elif story:
        opening = [story, LISTENED]
        if layout > BROUGHT + TYPED:
            opening = [typed(rng.choice(PLAIN_REQUESTS)), story]
    before = min(rng.choice(BEFORE), len(wanted) - 2) if story else 0
    pairs = rng.sample(wanted, len(wanted))
    earlier = [text for words, reply in pairs[:before] for text in (typed(words), reply)]
    found = [([story], LISTENED)] if LISTENED in opening and not before else []
    for words, reply in pairs[before:]:
        said = [*opening, *earlier, typed(words)]
        found.append(([brought + said[0], *said[1:]], reply))
    return found


def questions(world: World, rng: Random, kinds: Sequence[str]) -> list[tuple[str, str]]:
    """Of these kinds all that have to be followed and some others, with their answers."""
    followed, others = [], []
    for kind in kinds:
        for args in candidates(world, kind, rng):
            if reply := answer(world, kind, args):
                both = (question(world, kind, args), reply)
                (followed if kind in FOLLOWED else others).append(both)
    if rng.random() < STRANGERS:
        words = unfounded(world, rng) if rng.random() < SUPPOSING else None
        followed.append((words or untold(world, rng), UNTOLD))
    return followed + rng.sample(others, min(OTHERS, len(others)))


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


def who_has_what(rng: Random) -> tuple[list[str], list[tuple[str, str]]]:
    """A drill: two or three people who are not introduced, what they have, where they put it.

    Where hardly anything stands, a model learns within 50 steps to look for the thing that is
    asked about; from whole stories alone none had in many thousands. Without easy drills the
    dense model had not in 500. Of two kites it named the owner of one or the other by chance,
    until it had 120 steps of easy drills alone, most with such twins: then it was right in 97
    of 100.
    """
    t = Teller(rng, World())
    here, easy = t.place(), t.chance(EASY)
    names = people(t, here, 2 if easy else rng.choice((2, 2, 3)))
    owners = [*names, *rng.choices(names, k=rng.choice((0, 0, 1) if easy else (0, 0, 1, 2)))]
    things = [t.toy() for _ in owners]
    if t.chance(TWINS):
        things[:2] = t.twins()
    for name, x in zip(owners, things, strict=True):
        t("have", a=name, x=x)
    plots.exchanges(t, here, 0 if easy else rng.choice((0, 1, 1, 2, 3)))
    for x in rng.sample(things, rng.choice((0, 1, 2))):
        for name in names:
            if t.has(name, x):
                t("put", a=name, x=x, s=t.spot(here))
    gone = rng.sample(names, rng.choice((0, 1, 2)))
    for name in gone:
        t("go", a=name, p=t.elsewhere(here))
    asked = questions(t.world, rng, HELD)
    for name in gone:  # where the others are is not told
        found = {"a": name}
        words = question(t.world, "where_person", found)
        asked.append((words, answer(t.world, "where_person", found)))
    return Writer(rng).text(t.events), asked


def who_is_where(rng: Random) -> tuple[list[str], list[tuple[str, str]]]:
    """A drill: two or three people, who come and go."""
    t = Teller(rng, World())
    names = people(t, "", rng.choice((2, 2, 3)))
    for name in names:
        t("be", a=name, p=t.place())
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        a = rng.choice(names)
        known = {*map(t.where, names), *t.world.people[a].been} - {t.where(a)}
        t.go(a, rng.choice([*sorted(known), t.place()]))
    return Writer(rng).text(t.events), questions(t.world, rng, ("where_person",))


def who_has_how_many(rng: Random) -> tuple[list[str], list[tuple[str, str]]]:
    """A drill: two people who have some of one sort, and what becomes of these.

    A story always says how many are left, a drill not always: a model that only ever had to
    repeat it does not subtract. Nor did the ones that ship, after 370 steps of which one story
    in ten was such a drill.
    """
    t = Teller(rng, World())
    (a, b), f = people(t, t.place(), 2), t.new(list(PLURALS))
    for name, most in ((a, 9), (b, 4)):
        how = rng.choice(("count_have", "count_find"))
        t(how, a=name, n=number(rng.choice(range(1, most + 1))), f=f)
    plots.counts(t, a, b, f, 0 if t.chance(EASY) else rng.choice((1, 2, 2)), SAID)
    return Writer(rng).text(t.events), questions(t.world, rng, ("how_many",))


def people(t: Teller, place: str, many: int) -> list[str]:
    """So many who are in a place, or nobody knows where, and of whom nothing is said."""
    names = t.rng.sample(GIRLS + BOYS, many)
    for name in names:
        args = {"a": name, "k": t.rng.choice(ANIMALS)}
        t.world.apply("intro_at" if place else "intro", args | {"p": place}, "")
    return names


DRILLS = (who_has_what, who_has_what, who_is_where, who_has_how_many)  # half of them the first

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
