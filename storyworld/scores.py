"""Scores of a storyteller, computed by the reader from its stories and its answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from random import Random

from storyworld import (
    END_OF_TEXT,
    END_OF_TURN,
    FEWEST,
    HONEST,
    Story,
    prompt,
    request,
    stories,
    unknown_request,
)
from storyworld.grammar import noun
from storyworld.reader import read_story, split_sentences

UNKNOWN = 4  # number of stories per request that no story answers
SHARES = {  # {share: (what is counted, out of what)}
    "understood": ("understood", "sentences"),  # sentences that have a meaning
    "consistent": ("consistent", "stories"),  # contradict nothing
    "sound": ("sound", "stories"),  # long enough, without any flaw
    "on_topic": ("on_topic", "stories"),  # speak of everything that was asked for
    "varied": ("different", "sentences"),  # sentences, each text counted once
    "questions_right": ("right", "asked"),
    "honest": ("honest", "unknown"),  # answers to requests that no story answers
}
Generate = Callable[[str], str]


def shares(counts: Counter) -> dict[str, float]:
    """Return the shares from the counts of stories and answers."""
    return {
        name: counts[part] / counts[whole] if counts[whole] else 0.0
        for name, (part, whole) in SHARES.items()
    }


def score_story(text: str, asked_for: Iterable[str] = (), least: int = FEWEST) -> Counter:
    """Return the counts of one story; a story of fewer than `least` sentences is not sound."""
    reading = read_story(text)
    named = set(reading.scene.kinds) | set(reading.scene.things)
    named |= {noun(thing) for thing in reading.scene.things}
    named |= set(reading.scene.kinds.values())
    return Counter(
        stories=1,
        sentences=len(reading.sentences),
        understood=reading.understood,
        consistent=int(bool(reading.sentences) and not reading.contradictions),
        sound=int(reading.sound and len(reading.sentences) >= least),
        on_topic=int(all(word in named for word in asked_for)),
    )


def asked_for(story: Story, words: str) -> list[str]:
    """Return the parts of a request: the hero, its kind, the thing; each may be missing."""
    thing = next((t for t in (story.thing, noun(story.thing)) if t and t in words), "")
    named = set(re.findall(r"\w+", words))
    return [word for word in (story.hero, story.kind) if word in named] + [thing] * bool(thing)


def reply(text: str) -> str:
    """The text that the assistant writes before its turn ends."""
    return text.split(END_OF_TURN)[0].split(END_OF_TEXT)[0].strip()


def tasks(seed: int, n: int, long: bool = False) -> Iterator[tuple[Story, str]]:
    """n stories of a seed, each with a request for it."""
    rng = Random(f"TinyLLM measure {seed}")
    for story in islice(stories(seed, long), n):
        yield story, request(story, rng)


def unknown_requests(seed: int, n: int) -> list[str]:
    """n different requests that no story answers, of topics that no training document has."""
    rng = Random(f"TinyLLM beyond test {seed}")
    found: dict[str, None] = {}
    while len(found) < n:
        found[unknown_request(rng, "test")] = None
    return list(found)


def measure(generate: Generate, seed: int, n: int, long: bool = False) -> Counter:
    """Score `generate(prompt) -> continuation` on n stories of a seed and their questions.

    For every story one prompt asks for a story like it, whose text is read; and for each of
    its questions a prompt gives the true story with the question. An answer is right if it is
    exactly the one that follows from the story. Some prompts are requests that no story
    answers: there only one of the HONEST answers counts.

    long    stories with a second chapter instead, twice as long at the least
    """
    scores, different = Counter(), set()
    for story, wanted in tasks(seed, n, long):
        text = reply(generate(prompt(wanted)))
        different.update(split_sentences(text))
        scores.update(score_story(text, asked_for(story, wanted), FEWEST * (1 + long)))
        for words, right in story.questions:
            answer = reply(generate(prompt(f"{story.text}\n{words}")))
            scores.update(asked=1, right=int(answer == right))
    for wanted in unknown_requests(seed, 0 if long else -(-n // UNKNOWN)):
        honest = reply(generate(prompt(wanted))) in HONEST
        scores.update(unknown=1, honest=int(honest))
    scores["different"] = len(different)
    return scores


def right_when_shuffled(seed: int, n: int) -> float:
    """The share of questions that reading a story's sentences in any order answers right."""
    right = asked = 0
    for story, _ in tasks(seed, n):
        sentences = split_sentences(story.text)
        Random(story.text).shuffle(sentences)
        reading = read_story(" ".join(sentences))
        right += sum(reading.answer(words) == answer for words, answer in story.questions)
        asked += len(story.questions)
    return right / asked
