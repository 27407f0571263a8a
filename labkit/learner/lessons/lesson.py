"""Tools of lab 08 for training: a tokenizer, a model, an optimizer, and sample answers.

The learner's own loss, schedule and step come from the notebook.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from labkit.course.lang import tr
from labkit.learner.lessons.muon import MuonAdamW as MuonAdamW
from labkit.learner.models import (
    DECODER_LABS,
    error_text,
    reference,
    your_code,
)
from labkit.model import checkpoint
from labkit.model.hub import SHIPPED, trained_folder
from labkit.model.saving import save
from labkit.model.weights import CheckpointError
from storyworld import END_OF_TURN, prompt
from storyworld.scores import score_story, shares


def minutes(default: float) -> float:
    """The minutes to train: TINYLLM_MINUTES in the environment, or the default"""
    return float(os.environ.get("TINYLLM_MINUTES", default))


def pace(steps: Callable[[int], object]) -> float:
    """Set torch to one thread or to all, whichever is faster now; return seconds per step.

    All threads wait for the slowest: beside another busy program, one thread can be many times
    as fast as two.

    steps    trains a number of steps; the first one, which imports and allocates, is not timed
    """
    seconds = {}
    for threads in {1, torch.get_num_threads()}:
        torch.set_num_threads(threads)
        steps(1)
        start = time.perf_counter()
        steps(3)
        seconds[threads] = (time.perf_counter() - start) / 3
    best = min(seconds, key=seconds.__getitem__)
    torch.set_num_threads(best)
    return seconds[best]


def tokenizer() -> Any:
    """Load the tokenizer of the shipped models."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(next(iter(SHIPPED.values())) / "tokenizer.json"))


def decoder() -> tuple[Any, str]:
    """Return the classes (Qwen3Config, Qwen3ForCausalLM) to train, and a text that says who
    wrote them.

    They are the learner's code of labs 01 to 06, completed by the reference; or the
    reference's, if that code does not train.
    """
    notes: list[str] = []
    code = your_code(DECODER_LABS, notes.append)
    try:
        return _check_training(code), " ".join(notes)
    except Exception as error:  # a learner's code may raise anything
        notes.append(tr("It does not train: {error}.", error=error_text(error)))
    notes.append(tr("The course's own model trains instead."))
    return _check_training(reference()), " ".join(notes)


@torch.enable_grad()
def _check_training(code: Any) -> tuple[Any, Any]:
    """Try a forward and a backward pass, dense and with experts; return the classes."""
    config, model = code.Qwen3Config, code.Qwen3ForCausalLM
    for extra in ({}, {"num_experts": 2, "num_experts_per_tok": 1}):
        small = model(config(**SHAPE | {"vocab_size": 8} | extra))
        logits, router_logits = small(torch.arange(6)[None], output_router_logits=True)
        (logits.sum() + sum(r.sum() for r in router_logits)).backward()
    return config, model


SHAPE = {
    "vocab_size": 1536, "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "rope_theta": 1e5,
    "max_position_embeddings": 256, "tie_word_embeddings": True,
}  # fmt: skip


def build(seed: int = 0, **changes: Any) -> nn.Module:
    """Build a model of the shape above, with changed fields; a seed always gives the same."""
    (config, model), _ = decoder()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model(config(**SHAPE | changes))


def keep(model: nn.Module) -> None:
    """Save a trained model with the shipped tokenizer for `tinyllm chat mine`."""
    try:
        save(model, model.config, trained_folder(), next(iter(SHIPPED.values())))
    except CheckpointError as error:
        print(tr("Not kept: {error}", error=error))
        return
    print(tr("Kept in {folder}", folder=trained_folder()))
    print(tr("Talk with it in a terminal: {command}", command="tinyllm chat mine"))


def load_kept() -> nn.Module:
    """Load the saved model to train it further; without one, build a fresh model."""
    found, _ = decoder()
    if not trained_folder().exists():
        print(tr("There is no model of yours to go on with: this one is fresh."))
        return build()
    code = SimpleNamespace(Qwen3Config=found[0], Qwen3ForCausalLM=found[1])
    model = checkpoint.load(trained_folder(), code, torch.float32).train()
    for weight in model.parameters():
        weight.data = weight.data.clone()  # the mapped file stays unchanged
    return model


@torch.no_grad()
def tell(
    model: nn.Module,
    tokenizer: Any,
    request: str = "Tell me a story.",
    count: int = 1,
    longest: int = 140,
    temperature: float = 0.7,
    seed: int = 0,
) -> list[str]:
    """Sample `count` answers to a request, without a cache, as lab 07 may be unfinished."""
    ids = tokenizer.encode(prompt(request), add_special_tokens=False).ids
    start, end = len(ids), tokenizer.token_to_id(END_OF_TURN)
    rows = torch.tensor([ids] * count)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(longest):
        logits = model(rows)[:, -1].float() / temperature  # (count, V)
        token = torch.multinomial(logits.softmax(dim=-1), 1, generator=generator)
        rows = torch.cat((rows, token), dim=1)
        if bool((rows[:, start:] == end).any(dim=1).all()):
            break
    return [_until(end, row, tokenizer) for row in rows[:, start:].tolist()]


def _until(end: int, row: list[int], tokenizer: Any) -> str:
    stop = row.index(end) if end in row else len(row)
    return tokenizer.decode(row[:stop]).strip()


def truth(stories: list[str]) -> Mapping[str, float]:
    """Return the shares of understood sentences, consistent stories and sound stories."""
    found = shares(sum(map(score_story, stories), Counter()))
    return {name: found[name] for name in ("understood", "consistent", "sound")}


def expert_shares(router_logits: list[Tensor], top_k: int) -> Sequence[Tensor]:
    """Return each expert's share of a layer's picks: (layers, X), rows sum to 1."""
    rows = []
    for scores in router_logits:
        picks = scores.topk(top_k, dim=-1).indices.flatten()
        rows.append(torch.bincount(picks, minlength=scores.size(-1)) / picks.numel())
    return torch.stack(rows) if rows else ()
