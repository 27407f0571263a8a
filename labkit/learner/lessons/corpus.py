"""A corpus for lab 08 with planted faults, like those of a crawl. The fault of each text is
known, so that a filter can be scored, which real crawls do not allow."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from random import Random
from zlib import crc32

import torch
from torch import Tensor

from labkit.learner.lessons.data import IGNORE
from storyworld import END_OF_TEXT, SPLITS, Story, stories
from storyworld.reader import read_story, split_sentences
from storyworld.words import BOYS, GIRLS

FAULTS = {"doubled": 0.2, "near-doubled": 0.15, "contradictory": 0.15, "cut off": 0.1}
MOST_COPIED = 5  # half of all copies are of these few texts, as of a popular page
Labeled = tuple[str, str]  # a text and its fault, "" for none


def crawl(seed: int, count: int) -> list[Labeled]:
    """Return `count` texts, with planted faults in more than half of them.

    A text that should be a copy before there is anything to copy has no fault.
    """
    rng = Random(f"TinyLLM crawl {seed}")
    found = islice(stories(SPLITS["train"][500_000 + seed]), count)
    texts: list[Labeled] = []
    for number, story in enumerate(found):
        kind = rng.choices([*FAULTS, ""], [*FAULTS.values(), 1 - sum(FAULTS.values())])[0]
        texts.append((_with_fault(kind, story, number, texts, rng), kind))
    first = next((i for i, (_, kind) in enumerate(texts) if not kind), count)
    early = [(text, "" if kind.endswith("doubled") else kind) for text, kind in texts[:first]]
    return early + texts[first:]


def _with_fault(
    kind: str, story: Story, number: int, texts: Sequence[Labeled], rng: Random
) -> str:
    text = story.text
    if kind.endswith("doubled"):
        whole = [t for t, fault in texts if not fault] or [text]
        text = rng.choice(whole[:MOST_COPIED] if rng.random() < 0.5 else whole)
        return _altered(text, rng) if kind == "near-doubled" else text
    if kind == "cut off":
        words = text.split()
        return " ".join(words[: rng.randrange(len(words) // 2, len(words) - 1)]).rstrip(".!?")
    return _contradictory(text, rng) if kind == "contradictory" else text


def _altered(text: str, rng: Random) -> str:
    """Return the text with a different name for its hero, or without its last sentence."""
    sentences = split_sentences(text)
    if rng.random() < 0.5:
        return " ".join(sentences[:-1])
    names = [name for name in GIRLS + BOYS if name in text]
    group = GIRLS if names[0] in GIRLS else BOYS
    return text.replace(names[0], rng.choice([name for name in group if name not in names]))


def _contradictory(text: str, rng: Random) -> str:
    """Shuffle the sentences of a text until the reader finds a contradiction."""
    sentences = split_sentences(text)
    while not read_story(mixed := " ".join(sentences)).contradictions:
        rng.shuffle(sentences)
    return mixed


def contradictions(text: str) -> int:
    """The number of sentences of a story that contradict earlier ones"""
    return len(read_story(text).contradictions)


def shingles(text: str, words: int = 3) -> Tensor:
    """Return a hash for each run of `words` words: (S,), int64, each once, below 2^31 - 1."""
    split = text.split()
    runs = {" ".join(split[i : i + words]) for i in range(len(split) - words + 1)}
    return torch.tensor(sorted(crc32(run.encode()) % (2**31 - 1) for run in runs)).long()


def scores(texts: Sequence[Labeled], chosen: Collection[int]) -> dict[str, float]:
    """Score a filter: its recall for each kind of fault, and its precision.

    chosen    the numbers of the texts that it kept
    """
    left_out = [kind for i, (_, kind) in enumerate(texts) if i not in set(chosen)]
    kinds = [kind for _, kind in texts]
    found = {f"{kind}, found": left_out.count(kind) / kinds.count(kind) for kind in FAULTS}
    precision = sum(map(bool, left_out)) / max(len(left_out), 1)
    return found | {"precision": precision}


def packed(tokenizer, texts: Iterable[str], length: int, size: int, steps: int) -> list[Tensor]:
    """Concatenate the texts, repeated as needed, and cut them into batches (size, length)."""
    ids: list[int] = []
    for text in texts:
        ids += tokenizer.encode(text + END_OF_TEXT, add_special_tokens=False).ids
    need = length * size * steps
    stream = torch.tensor((ids * (need // len(ids) + 1))[:need])
    return list(stream.view(steps, size, length))


def clean_batch(tokenizer, count: int, longest: int) -> Tensor:
    """Return labels (count, longest) of new stories without faults, to evaluate a model."""
    found = islice(stories(SPLITS["validation"][0]), count)
    rows = [tokenizer.encode(s.text + END_OF_TEXT, add_special_tokens=False).ids for s in found]
    return torch.tensor([(row + [IGNORE] * longest)[:longest] for row in rows])
