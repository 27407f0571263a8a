"""Reads stories back from their text alone, and scores a generator by what it reads.

The text may come from a model and be broken in any way. Every sentence is parsed by the
inverse of the templates and told to a fresh world; what the world refuses is a contradiction.
Nothing of the generator's own state is used.

    reading = read_story("Anna had a red ball. Ben gave the ball to Mia.")
    reading.contradictions     # [(sentence, why), ...]
    reading.answer("Who has the red ball?")
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random

from labkit.stories import (
    END_OF_TEXT,
    END_OF_TURN,
    FEWEST,
    REQUESTS,
    SPLITS,
    Story,
    beyond,
    long_stories,
    prompt,
    request,
    stories,
    tell,
)
from labkit.stories.grammar import SINGULAR, Args, Scene, noun, read, read_question
from labkit.stories.plots import belongings, twins
from labkit.stories.questions import UNTOLD, answer, question, unfounded, untold
from labkit.stories.teller import Teller
from labkit.stories.words import GENDER
from labkit.stories.world import World

STRANGE = 4  # stories for every request that none answers, and for every other extra
QUOTED = re.compile(r'"[^"]*"')
Generate = Callable[[str], str]
Plot = Callable[[Teller], None]


@dataclass
class Reading:
    """What a reader makes of a story."""

    world: World
    scene: Scene
    sentences: list[str] = field(default_factory=list)
    parsed: list[tuple[str, Args]] = field(default_factory=list)
    not_understood: list[str] = field(default_factory=list)
    contradictions: list[tuple[str, str]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)  # of each sentence's first event, or ""
    flawed: list[int] = field(default_factory=list)  # numbers of the sentences with a flaw

    @property
    def understood(self) -> int:
        return len(self.sentences) - len(self.not_understood)

    @property
    def repeated(self) -> int:
        return len(self.sentences) - len(set(self.sentences))

    @property
    def sound(self) -> bool:
        """Long enough, all of it understood, nothing said twice, nothing contradicted."""
        flawless = not (self.not_understood or self.contradictions or self.repeated)
        return flawless and len(self.sentences) >= FEWEST

    def answer(self, question: str) -> str | None:
        """The answer that follows from the text; None if none does or it is unclear."""
        found = read_question(question)
        if not found:
            return None
        kind, args = found
        args, problems = resolve(args, self.scene)
        return None if problems else answer(self.world, kind, args)


def split_sentences(text: str) -> list[str]:
    """Sentences of a text; a quotation stays in its sentence."""
    flat = " ".join(text.split())
    hidden = QUOTED.sub(
        lambda m: re.sub(r"[.!?]", lambda c: chr(0xE000 + ord(c[0])), m[0]), flat
    )
    parts = re.findall(r"[^.!?]*(?:[.!?]+|$)", hidden)
    seen = (re.sub("[\ue021-\ue03f]", lambda c: chr(ord(c[0]) - 0xE000), p) for p in parts)
    return [part.strip() for part in seen if part.strip()]


def read_story(text: str) -> Reading:
    """Read a story sentence by sentence."""
    reading = Reading(World(), Scene())
    for number, sentence in enumerate(split_sentences(text)):
        meaning = read(sentence)
        reading.kinds.append(meaning[1][0][0] if meaning else "")
        if meaning is None or sentence in reading.sentences:
            reading.flawed.append(number)
        reading.sentences.append(sentence)
        if meaning is None:
            reading.not_understood.append(sentence)
            reading.scene.mention({})
            continue
        prefix, events = meaning
        for kind, raw in events:
            if raw.get("a") == "same":
                raw["a"] = reading.parsed[-1][1].get("a", "they")
            args, problems = resolve(raw, reading.scene)
            if not problems:
                problems = reading.world.apply(kind, args, prefix)
            prefix = ""
            reading.contradictions += [(sentence, why) for why in problems]
            reading.flawed += [number] * bool(problems)
            reading.parsed.append((kind, args))
            reading.scene.mention(args)
    return reading


def resolve(raw: Args, scene: Scene) -> tuple[Args, list[str]]:
    """Names for "she", "it", "the ball" and "the rabbit", and what has none."""
    args, problems = dict(raw), []
    for key, words in raw.items():
        meant: str | None = words
        if words == "they":
            pair = scene.persons_now
            meant = pair["ab".index(key)] if len(pair) == 2 else None
        elif key in ("a", "b", "c"):
            meant = scene.person(words)
        elif key in ("x", "y", "v"):
            new = words != "it" and words not in map(noun, scene.things)
            meant = scene.thing(words) or (words if new else None)
        elif key == "f":
            meant = SINGULAR.get(words, words)
        elif key == "p":
            meant = words.split(" the ")[-1]
        if meant is None:
            problems.append(f"{words!r} may stand for nothing told, or for more than one")
            del args[key]
        else:
            args[key] = meant
    return args, problems


SHARES = {
    "understood": ("understood", "sentences"),  # sentences that have a meaning
    "consistent": ("consistent", "stories"),  # contradict nothing (no meaning aside)
    "sound": ("sound", "stories"),  # at least five sentences, without any flaw
    "on_topic": ("on_topic", "stories"),  # speak of everything that was asked for
    "varied": ("different", "sentences"),  # sentences, one that is told twice counted once
    "as_often": ("as_often", "events"),  # what happens in a story, as often as it should
    "questions_right": ("right", "asked"),
    "later_right": ("later", "asked"),  # the same, as the last of a chat
    "told_apart": ("told_apart", "told_apart_asked"),  # who has what, of two things each
    "twins": ("twins", "twins_asked"),  # who has the red kite, and who the blue one
    "unsaid": ("unsaid", "untold"),  # of what a story does not say it says so
    "honest": ("honest", "strange"),  # answers to requests that no story answers
}


def shares(counts: Counter) -> dict[str, float]:
    """What the counts of stories and answers come to."""
    return {
        name: counts[part] / counts[whole] if counts[whole] else 0.0
        for name, (part, whole) in SHARES.items()
    }


def score_story(text: str, asked_for: Iterable[str] = (), least: int = FEWEST) -> Counter:
    """The counts of one story; what has fewer than `least` sentences is not sound."""
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
    """What a request for a story names: its hero, what that is, its thing, or none of them."""
    thing = next((t for t in (story.thing, noun(story.thing)) if t and t in words), "")
    named = set(re.findall(r"\w+", words))
    return [word for word in (story.hero, story.kind) if word in named] + [thing] * bool(thing)


def reply(text: str) -> str:
    """What the assistant says before its turn ends."""
    return text.split(END_OF_TURN)[0].split(END_OF_TEXT)[0].strip()


def measure(generate: Generate, seeds: Sequence[int], n: int, long: bool = False) -> Counter:
    """Score `generate(prompt) -> continuation` on n stories and their questions a seed.

    For every story of a seed (take seeds of SPLITS["test"]), one prompt asks for a story like
    it, whose text is read; and for each of its questions a prompt gives the true story with
    the question; and once more it is the last question of a chat in which the story was told
    and all its other questions were answered. An answer is right if it is exactly the one that
    follows from the story. Some prompts ask for what no story answers: honest is who says so,
    and tells none. Some ask for what the story does not say, of those whom it mentions or not.
    And of stories in which two
    people have two things each, or there are two of one sort, who has each of these is asked.

    long    stories with a second chapter instead, twice as long at the least
    """
    scores, different = Counter(), set()
    happened, should = Counter(), Counter()  # in how many stories an event of each kind
    for story, wanted in tasks(seeds, n, long):
        text = reply(generate(prompt(wanted)))
        happened.update(set(read_story(text).kinds))
        should.update(set(read_story(story.text).kinds))
        different.update(split_sentences(text))
        scores.update(score_story(text, asked_for(story, wanted), FEWEST * (1 + long)))
        for words, right in story.questions:
            answered = reply(generate(prompt(f"{story.text}\n{words}")))
            others = [text for pair in story.questions if pair[0] != words for text in pair]
            last = reply(generate(prompt(wanted, story.text, *others, words)))
            scores.update(asked=1, right=int(answered == right), later=int(last == right))
    for wanted in strange_requests(seeds, 0 if long else n):
        honest = reply(generate(prompt(wanted))) in beyond.HONEST
        scores.update(strange=1, honest=int(honest))
    for name, plot in (("told_apart", belongings), ("twins", twins)):
        for words, right in whose(seeds, 0 if long else n, plot):
            answered = reply(generate(prompt(words)))
            scores.update({f"{name}_asked": 1, name: int(answered == right)})
    for words in untold_of(seeds, 0 if long else n):
        scores.update(untold=1, unsaid=int(reply(generate(prompt(words))) == UNTOLD))
    scores["different"] = len(different)
    scores["as_often"] = (happened & should).total()
    scores["events"] = max(happened.total(), should.total())
    return scores


def tasks(seeds: Sequence[int], n: int, long: bool = False) -> Iterator[tuple[Story, str]]:
    """n stories of every seed, each with a request for it."""
    for seed in seeds:
        rng = Random(f"TinyLLM measure {seed}")
        for story in islice((long_stories if long else stories)(seed), n):
            yield story, request(story, rng)


def strange_requests(seeds: Sequence[int], n: int) -> Iterator[str]:
    """Of every seed, a request that no story answers for every few of n stories."""
    for seed in seeds:
        yield from beyond.distinct("test", seed, -(-n // STRANGE), REQUESTS, list(GENDER))


def whose(seeds: Sequence[int], n: int, plot: Plot) -> Iterator[tuple[str, str]]:
    """Of every seed, who has what in one story of this plot for every few of n stories."""
    for seed in seeds:
        rng = Random(f"TinyLLM whose {seed}")
        for _ in range(-(-n // STRANGE)):
            story = None
            while not story:
                story = tell(rng, choices=[plot])
            world = read_story(story.text).world
            for x in world.things:
                if right := answer(world, "who_has", {"x": x}):
                    yield f"{story.text}\n{question(world, 'who_has', {'x': x})}", right


def untold_of(seeds: Sequence[int], n: int) -> Iterator[str]:
    """Of every seed, a story and a question that it leaves open for every few of n stories;
    every second one is about those whom it mentions."""
    for number, (story, wanted) in enumerate(tasks(seeds, -(-n // STRANGE))):
        world, rng = read_story(story.text).world, Random(wanted)
        about = unfounded(world, rng) if number % 2 else None
        yield f"{story.text}\n{about or untold(world, rng)}"


# baselines: what the scores are worth


def asked_of(text: str) -> tuple[str, str]:
    """The story that is in a prompt, empty where there is none, and the last message."""
    turns = [turn.strip().split("\n", 1)[1] for turn in text.split(END_OF_TURN)[:-1]]
    if len(turns) > 1:
        return turns[1], turns[-1]
    story, _, last = turns[0].rpartition("\n")
    return story, last


def mix(story: str) -> str:
    sentences = split_sentences(story)
    Random(story).shuffle(sentences)
    return " ".join(sentences)


def trivial(text: str) -> str:
    """One story for every request, one answer to every question."""
    if asked_of(text)[0]:
        return "No, she did not."
    return "Anna was a girl. She was happy. She was happy. She was happy. She was happy."


def baselines(seeds: Sequence[int], n: int) -> dict[str, Counter]:
    """Scores of true stories with answers by reading; of the same with their sentences
    shuffled; of other true stories; and of one story and one answer for everything."""
    others = stories(SPLITS["test"][-1])
    told = {wanted: story.text for story, wanted in tasks(seeds, n)}

    def generator(change: Callable[[str], str]) -> Generate:
        def generate(text: str) -> str:
            story, last = asked_of(text)
            if story:
                return read_story(change(story)).answer(last) or UNTOLD
            return change(told[last]) if last in told else beyond.HONEST[0]

        return generate

    hows = {
        "true": generator(str),
        "shuffled": generator(mix),
        "others": lambda text: "" if asked_of(text)[0] else next(others).text,
        "trivial": trivial,
    }
    return {name: measure(generate, seeds, n) for name, generate in hows.items()}
