"""Measuring a model on stories it never saw, and the model card that says what came out.

scores.json holds what was measured; the card (README.md) is rendered from it, the config,
the recipe and the log, and never edited by hand.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from labkit.core.files import write_whole
from labkit.model import checkpoint
from labkit.model.chat.stream import Sampling
from labkit.model.fast import accelerate
from labkit.model.tokenizer import Tokenizer
from labkit.pretrain.data import IGNORE, Validation
from labkit.pretrain.recipe import Recipe
from labkit.stories import LONG, LONG_REQUESTS, REQUESTS, SPLITS, prompt
from labkit.stories.reader import baselines, measure, shares
from labkit.stories.words import (
    CONTAINERS,
    FOODS,
    GENDER,
    KINDS,
    PLACES,
    PLURALS,
    QUESTIONS,
    THINGS,
)

AT_ONCE = 64  # prompts in a batch
SLACK = 64  # tokens of room that a prompt may lose to a longer one in its batch
NEW_TOKENS = 280  # the longest story has fewer
SEED = 0
SHARES = {  # key in scores.json: what it is a share of
    "understood": "sentences with a meaning",
    "consistent": "stories that contradict nothing",
    "sound": "stories without any flaw: these and not repeated, long enough, all understood",
    "on_topic": "stories about what was asked for",
    "varied": "sentences that differ, of all that are told",
    "as_often": "kinds of events that happen as often as in the true stories",
    "questions_right": "questions about a true story answered right",
    "later_right": "the same, asked last in a chat, after all others about the story",
    "told_apart": '"Who has the ...?" answered right where two people have two things each',
    "twins": '"Who has the red kite?" answered right where there is a blue one, too',
    "unsaid": "questions about what the story does not say, answered so",
    "visitors": "questions about little stories that somebody made up by hand, answered right",
    "honest": 'requests from beyond the stories ("a dolphin", "4 + 32") answered honestly',
}
ONCE = ("told_apart", "twins", "unsaid", "honest")  # not with long stories again
WAYS = ("greedy", "sampled", "long greedy", "long sampled", "true")

Watch = Callable[[int, int], None]


def scores_of(
    folder: Path, package: ModuleType, stories: int, watch: Watch = lambda done, total: None
) -> dict[str, Any]:
    """Bits per byte, and what a reader makes of stories and answers; see stories.reader.

    Once greedily and once as generation_config.json advises, with a fixed seed, of stories
    with one chapter and with two ("long"); beside them what trivial storytellers score. Of a
    mixture, also the share of the picks that each expert got, layer by layer.
    watch is called with answers written and wanted. Prompts that fill the model's context
    ("too_long" counts them) count as answered wrong.
    """
    tokenizer = Tokenizer(checkpoint.existing(folder))
    model = checkpoint.load(folder, package, torch.float32)  # quick on every processor
    accelerate(model, last_logits_only=True)
    loss = checkpoint.part(package, "causal_lm_loss")
    write = checkpoint.part(package, "generate")
    longest = model.config.max_position_embeddings
    validation = Validation(tokenizer.library, stories, longest, split="test")
    ways = {"greedy": Sampling(), "sampled": Sampling.chosen(tokenizer.generation)}
    seeds = SPLITS["test"][:1]
    found = {"stories": stories, "bits_per_byte": validation.bits_per_byte(model, loss)}
    found["experts"] = expert_shares(model, validation)
    wanted = {long: prompts(seeds, stories, long) for long in (False, True)}
    by_hand = visitors(stories)
    wanted[False] += by_hand
    lengths = [len(tokenizer.encode(asked)) for texts in wanted.values() for asked in texts]
    if max(lengths) >= longest:
        found["too_long"] = sum(length >= longest for length in lengths)
    total, first = len(ways) * sum(map(len, wanted.values())), 0
    for long, asked in wanted.items():
        for name, sampling in ways.items():
            told = lambda done, first=first: watch(first + done, total)  # noqa: E731
            answers = continuations(model, tokenizer, write, asked, sampling, told)
            counts = rounded(measure(answers.__getitem__, seeds, stories, long))
            if long:
                counts = {key: share for key, share in counts.items() if key not in ONCE}
            else:
                right = [answers[asked] in accepted for asked, accepted in by_hand.items()]
                counts["visitors"] = round(sum(right) / len(right), 4)
            found["long " * long + name] = counts
            first += len(asked)
    return found | {name: rounded(counts) for name, counts in baselines(seeds, stories).items()}


def visitors(stories: int) -> dict[str, list[str]]:
    """Questions about at most so many stories that somebody wrote who knew the little world's
    words and the forms of answers, not the generator; with the answers that are right."""
    told = json.loads((Path(__file__).parent / "visitors.json").read_text("utf-8"))
    return {
        prompt(f"{one['story']}\n{words}"): accepted
        for one in told[:stories]
        for words, accepted in one["asked"]
    }


@torch.no_grad()
def expert_shares(model: nn.Module, validation: Validation) -> list[list[float]]:
    """Of every layer with experts, which share of the picks each expert got."""
    counts: list[Tensor] = []
    for labels in validation.batches:
        input_ids, real = labels.clamp(min=0), (labels != IGNORE).flatten()
        _, router_logits = model(input_ids, output_router_logits=True)
        for layer, scores in enumerate(router_logits):
            picks = scores[real].topk(model.config.num_experts_per_tok, dim=-1).indices
            new = picks.flatten().bincount(minlength=scores.size(-1))
            counts[layer:] = [counts[layer] + new if layer < len(counts) else new]
    return [[round(n, 4) for n in (layer / layer.sum()).tolist()] for layer in counts]


def rounded(counts: Counter) -> dict[str, float]:
    return {name: round(share, 4) for name, share in shares(counts).items()}


def prompts(seeds: Sequence[int], stories: int, long: bool) -> list[str]:
    """All that a model is asked, in order, each once."""
    seen: dict[str, None] = {}

    def silent(prompt: str) -> str:
        seen[prompt] = None
        return ""

    measure(silent, seeds, stories, long)
    return list(seen)


def continuations(
    model: nn.Module,
    tokenizer: Tokenizer,
    generate: Callable,
    prompts: Sequence[str],
    sampling: Sampling,
    told: Callable[[int], None],
) -> dict[str, str]:
    """What the model says to each prompt; "" where the prompt fills its context."""
    limit = model.config.max_position_embeddings
    pairs = ((tokenizer.encode(text), text) for text in prompts)
    encoded = sorted(pairs, key=lambda pair: len(pair[0]))
    generator = torch.Generator().manual_seed(SEED)
    answers = {text: "" for ids, text in encoded if len(ids) >= limit}
    for batch in batches([pair for pair in encoded if pair[1] not in answers], limit):
        longest = len(batch[-1][0])
        padding = [longest - len(ids) for ids, _ in batch]
        input_ids = [[0] * n + ids for n, (ids, _) in zip(padding, batch, strict=True)]
        mask = [[0] * n + [1] * (longest - n) for n in padding]
        room = limit - longest
        with torch.no_grad():
            output = generate(
                model, torch.tensor(input_ids), torch.tensor(mask),
                max_new_tokens=min(NEW_TOKENS, room), eos_token_id=sorted(tokenizer.stop_ids),
                generator=generator, **asdict(sampling),
            )  # fmt: skip
        for (_, text), row in zip(batch, output[:, longest:].tolist(), strict=True):
            end = next((i for i, t in enumerate(row) if t in tokenizer.stop_ids), len(row))
            answers[text] = tokenizer.decode(row[:end])
        told(len(answers))
    return answers


def batches(
    encoded: Sequence[tuple[list[int], str]], limit: int
) -> Iterator[list[tuple[list[int], str]]]:
    """Prompts, shortest first, in batches; a short context is not cut further by padding."""
    batch: list[tuple[list[int], str]] = []
    for ids, text in encoded:
        is_cut = bool(batch) and limit - len(ids) < NEW_TOKENS
        if len(batch) == AT_ONCE or (is_cut and len(ids) - len(batch[0][0]) > SLACK):
            yield batch
            batch = []
        batch.append((ids, text))
    if batch:
        yield batch


def examples() -> dict[str, list[str]]:
    """Of every kind of request, and of every kind of question, one."""
    wanted = ((REQUESTS, "Mia and a red kite"), (LONG_REQUESTS, "a fox named Felix"))
    words = {"A": "Mia", "B": "Felix", "x": "kite", "f": "apples", "v": "box"}
    return {
        "requests": [forms[0].format(about=about) for forms, about in wanted],
        "questions": [forms[0].format(**words) for forms in QUESTIONS.values()],
    }


def write_card(folder: Path, package: ModuleType) -> None:
    """README.md, rendered from what lies beside it."""
    write_whole(folder / "README.md", card(folder, package).encode())


def card(folder: Path, package: ModuleType) -> str:
    """The model card of a folder with config.json, recipe.json, log.csv and scores.json."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    config = checkpoint.part(package, "Qwen3Config").from_file(folder)
    total, active = checkpoint.part(package, "count_parameters")(config)
    recipe = Recipe.from_file(folder / "recipe.json")
    with (folder / "log.csv").open(encoding="utf-8") as file:
        columns, *lines = (line.strip().split(",") for line in file)
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("card.md.jinja").render(
        name=folder.name,
        config=config,
        total=total,
        active=active,
        recipe=recipe,
        runs=[*recipe.earlier, recipe.to_dict()],
        last=dict(zip(columns, lines[-1], strict=True)),
        scores=json.loads((folder / "scores.json").read_text("utf-8")),
        shares=SHARES,
        examples=examples(),
        little_world={
            "names": sorted(GENDER),
            "who they are": KINDS,
            "places": list(PLACES),
            "things": [*THINGS, *CONTAINERS],
            "food": FOODS,
            "what is counted": list(PLURALS.values()),
        },
        ways=WAYS,
        long=round(1 / LONG),
        size=(folder / "model.safetensors").stat().st_size,
    )
