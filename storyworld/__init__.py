"""Small stories whose truth can be measured, without end and the same from the same seed.

A plot (a search, a gift, a trade, a trip ...) tells events to a world, which refuses impossible
ones. `grammar` writes the events as English; questions and their answers come from the
world at the end. `training_text` puts stories and questions into Qwen's chat format, for a
tokenizer and a language model.

    story = next(stories(seed=1))
    story.text, story.questions        # questions: [(question, answer), ...]

The text depends only on the seed, for every Python from 3.10 on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

from storyworld import plots
from storyworld.grammar import Writer, articles, noun
from storyworld.questions import ask
from storyworld.teller import Teller
from storyworld.words import GENDER, read_table
from storyworld.world import World

END_OF_TEXT, START_OF_TURN, END_OF_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
FEWEST, MOST = 5, 12  # sentences in a story, in each chapter of a long one
LONG = 0.1  # share of stories with a second chapter
QUESTIONS_A_STORY = 4
# a seed belongs to one split; streams of two seeds have nothing in common
SPLITS = {
    "train": range(1_000_000),
    "validation": range(1_000_000, 1_001_000),
    "test": range(1_001_000, 1_002_000),
}
HURRIED = 0.2  # share of conversations whose user types small letters and no full stop
ASIDES = 0.3  # share of conversations with something else between the questions
TALK = read_table("talk.toml")
REQUESTS, LONG_REQUESTS, HONEST = TALK["requests"], TALK["long_requests"], TALK["honest"]


@dataclass(frozen=True)
class Story:
    """A text, the questions that it answers, and the words that a request for it may use."""

    text: str
    questions: tuple[tuple[str, str], ...]
    hero: str
    kind: str  # what the hero is: "rabbit"
    thing: str  # "red ball"; empty if the story is not about one thing
    long: bool


def stories(seed: int, long: bool = False) -> Iterator[Story]:
    """Yield stories without end; with `long` each has a second chapter and is twice as long."""
    rng = Random(f"TinyLLM {'long ' if long else ''}stories {seed}")
    while True:
        if story := tell(rng, long or rng.random() < LONG):
            yield story


def tell(rng: Random, long: bool = False) -> Story | None:
    """Return one story; None if it is too short or too long."""
    teller = Teller(rng, World())
    rng.choice(plots.PLOTS)(teller)
    if long:
        teller.chapter()
        rng.choice(plots.PLOTS)(teller)
    sentences = Writer(rng).text(teller.events)
    fits = FEWEST <= len(sentences) / (1 + long) <= MOST
    if not fits or len(set(sentences)) < len(sentences):
        return None
    return Story(
        text=" ".join(sentences),
        questions=tuple(ask(teller.world, rng, QUESTIONS_A_STORY)),
        hero=(hero := next(iter(teller.world.people))),
        kind=teller.world.people[hero].kind,
        thing=next(iter(teller.world.things), ""),
        long=long,
    )


def request(story: Story, rng: Random) -> str:
    """Return a user's request for this story."""
    if rng.random() < 0.1 and not story.long:
        return rng.choice(TALK["plain_requests"])
    hero, thing = story.hero, story.thing
    if rng.random() < 0.25:
        hero = f"a {story.kind}" + (f" named {hero}" if rng.random() < 0.5 else "")
    if thing and rng.random() < 0.3:
        thing = noun(thing)
    about = f"{hero} and a {thing}" if rng.random() < 0.5 else f"a {thing}"
    if not thing or rng.random() < 0.3:
        about = hero
    requests = LONG_REQUESTS if story.long else REQUESTS
    return articles(rng.choice(requests).format(about=about))


def unknown_request(rng: Random, split: str) -> str:
    """Return a request that no story answers: a sum, a question, a topic or a made-up word.

    Topics and questions of "train" and "test" have no word in common.
    """
    kind = rng.random()
    if kind < 0.2:
        sign = rng.choice("+-*") if split == "train" else rng.choice("+-*/")
        form = rng.choice(TALK["sums"])
        return form.format(a=rng.randrange(100), sign=sign, b=rng.randrange(100))
    if kind < 0.45:
        return rng.choice(TALK[split]["questions"])
    topic = rng.choice(TALK[split]["topics"].split())
    if split == "train" and rng.random() < 0.4:
        syllables = TALK["syllables"].split()
        topic = "".join(rng.choice(syllables) for _ in range(rng.choice((1, 2, 3))))
    about = f"{'an' if topic[0] in 'aeiou' else 'a'} {topic}"
    if rng.random() < 0.25:
        about = f"{rng.choice(list(GENDER))} and {about}"
    return rng.choice(REQUESTS).format(about=about)


def turn(role: str, text: str) -> str:
    """Return a message as Qwen's chat template writes it."""
    return f"{START_OF_TURN}{role}\n{text}{END_OF_TURN}\n"


def hurried(text: str) -> str:
    """Return a request or a question as hurried people type it: "where is the ball"."""
    return text.lower().rstrip(".?!")


def chat(*texts: str) -> str:
    """A conversation that the user begins."""
    return "".join(turn(("user", "assistant")[i % 2], text) for i, text in enumerate(texts))


def prompt(*texts: str) -> str:
    """A conversation in which the assistant speaks next."""
    return chat(*texts) + f"{START_OF_TURN}assistant\n"


def document(story: Story, rng: Random) -> str:
    """A story and up to 4 questions in one of three layouts, closed by the end-of-text token.

    Mostly a request, the story, then questions as further turns; often the user gives the story
    with the first question; now and then a plain story, small talk, or a request that no story
    answers, by itself or between questions. Some users are in a hurry.
    """
    layout, typed = rng.random(), hurried if rng.random() < HURRIED else str
    if layout < 0.05:
        return story.text + END_OF_TEXT
    talk = rng.choice(TALK["small_talk"])
    unknown = unknown_request(rng, "train"), rng.choice(HONEST)
    pairs = list(story.questions)
    brought = layout < 0.45 and bool(pairs)
    if not brought:
        pairs = pairs[: rng.choice((0, 1, 2, 3))]
    if rng.random() < ASIDES:
        pairs.insert(rng.randint(brought, len(pairs)), rng.choice((talk, unknown)))
    turns = [text for question, answer in pairs for text in (typed(question), answer)]
    if brought:
        return chat(f"{story.text}\n{turns[0]}", *turns[1:]) + END_OF_TEXT
    opening = (typed(talk[0]), talk[1]) if rng.random() < 0.15 else ()
    if rng.random() < 0.2:
        opening = (*opening, typed(unknown[0]), unknown[1])
        if rng.random() < 0.6:
            return chat(*opening) + END_OF_TEXT
    return chat(*opening, typed(request(story, rng)), story.text, *turns) + END_OF_TEXT


def training_text(seed: int, n: int) -> Iterator[str]:
    """Return n documents to train a language model on."""
    rng = Random(f"TinyLLM documents {seed}")
    for story in islice(stories(seed), n):
        yield document(story, rng)


def split_text(split: str, n: int) -> Iterator[str]:
    """Return n documents of "train", "validation" or "test", 1000 per seed."""
    seeds = SPLITS[split]
    for start in range(0, n, 1000):
        yield from training_text(seeds[start // 1000], min(1000, n - start))
