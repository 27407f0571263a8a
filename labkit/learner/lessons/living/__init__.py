"""The living model: a shipped model with other parts, its loss and its text.

    alive(RMSNorm=RMSNorm)                                  # your part instead of the course's
    swapped({"ReLU for silu": {"silu": torch.relu}})        # any other part

A part is a name in the course's code, and is replaced in all modules that have this name;
"gqa.RMSNorm" is replaced only in gqa.py. All other parts are the course's own, so that rows
differ only in the replaced parts.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn import functional as F

from labkit.course.lang import said, tr
from labkit.course.syllabus import LABS, Exercise
from labkit.learner import workspace
from labkit.learner.lessons.data import IGNORE, Validation
from labkit.learner.lessons.living.page import Comparison, ModelRow
from labkit.learner.models import PARTS, error_text
from labkit.model import checkpoint, hub
from labkit.model.chat.stream import Sampling
from labkit.model.tokenizer import Tokenizer
from labkit.sandbox.inside.importer import PACKAGE, imported

DENSE = "stories-dense"
SHIPS = said("as it ships")
SWAPS = (  # the names of swaps in the notebooks
    *(said("no weight"), said("no size"), said("no rotation"), said("neighbors")),
    *(said("small base"), said("1000 later"), said("no QK-Norm"), said("no bend")),
    *(said("always first"), said("the least liked"), said("the best alone")),
    said("not renormalized"),
)
REQUEST = "Tell me a story about a boy named Max and a kite."
DOCUMENTS = 16  # stories to measure the loss on
TOKENS = 72  # tokens of the text that is shown
SEED = 3
SAME = 1e-3  # nats; right parts that compute in a different order stay far below


def alive(name: str = DENSE, /, **parts: Any) -> Comparison:
    """Run a shipped model with the learner's parts, beside the model as it ships.

    Parts that are not written yet come from the course, and a note lists them.
    """
    first, notes = as_it_ships(name), []
    empty = [exercise for lab in LABS for exercise in workspace.unfinished(lab)]
    missing = [e for e in empty if parts.keys() & set(e.symbols)]
    written = {k: part for k, part in parts.items() if not any(k in e.symbols for e in missing)}
    if missing:
        titles = ", ".join(f"{e.id} {e.title}" for e in missing)
        notes.append(
            tr(
                "Not written yet: {titles}. The course's own speaks in its place.",
                titles=titles,
            )
        )
    if not written:
        return Comparison([first], notes)
    parts_named = next(iter(written)) if len(written) == 1 else tr("parts")
    model = measure_model(name, tr("with your {parts}", parts=parts_named), written)
    if not abs(model.nats - first.nats) < SAME:  # nan fails this test, too
        checks = tr(" or ").join(f'check("{e.id}")' for e in _exercises(written))
        notes.append(
            tr(
                "That is not the same model: {checks} says what is wrong in yours.",
                checks=checks,
            )
        )
    return Comparison([first, model], notes)


def swapped(swaps: Mapping[str, Mapping[str, Any]], name: str = DENSE, /) -> Comparison:
    """Run a shipped model with other parts than in training: {label: {part: substitute}}."""
    return Comparison(
        [
            as_it_ships(name),
            *(measure_model(name, tr(title), parts) for title, parts in swaps.items()),
        ]
    )


def _exercises(symbols: Mapping[str, Any]) -> list[Exercise]:
    return [e for lab in LABS for e in lab.exercises if symbols.keys() & set(e.symbols)]


@cache
def as_it_ships(name: str) -> ModelRow:
    return measure_model(name, tr(SHIPS), {})


def measure_model(name: str, title: str, parts: Mapping[str, Any]) -> ModelRow:
    """Measure a shipped model with these parts, and let it tell a story."""
    code = course_with(parts)
    tokenizer = _tokenizer(name)
    try:
        model = checkpoint.load(hub.SHIPPED[name], code, torch.float32)
        return ModelRow(
            title, nats_per_token(model, name), _story(model, tokenizer, code.generate)
        )
    except NotImplementedError as stub:
        name = workspace.exercise_named(stub)
        return ModelRow(title, problem=tr("left out: {error} is not written yet", error=name))
    except checkpoint.CheckpointError as error:  # the error may have several lines
        return ModelRow(
            title, problem=tr("left out: {error}", error=" ".join(str(error).split()))
        )
    except Exception as error:  # a learner's code may raise anything
        return ModelRow(title, problem=tr("left out: {error}", error=error_text(error)))


def course_with(parts: Mapping[str, Any]) -> SimpleNamespace:
    """Return the course's classes for a model with these parts. Errors: KeyError"""
    sources = workspace.reference_modules()
    with imported(sources, workspace.folder()):
        package = importlib.import_module(PACKAGE)
        modules = {short: importlib.import_module(f"{PACKAGE}.{short}") for short in sources}
        found = SimpleNamespace()
        for key, part in parts.items():
            *home, symbol = key.split(".")
            places = [
                module
                for short, module in modules.items()
                if hasattr(module, symbol) and home in ([], [short])
            ]
            if not places:
                raise KeyError(f"{key!r} is not a part of the course's code")
            for module in places:
                setattr(module, symbol, part)
        vars(found).update({part: checkpoint.part(package, part) for part in PARTS})
    return found


@cache
def _tokenizer(name: str) -> Tokenizer:
    return Tokenizer(hub.SHIPPED[name])


@cache
def _documents(name: str) -> list[torch.Tensor]:
    """Stories that are not training data, with requests and questions, as labels (B, T)"""
    return Validation(_tokenizer(name).library, DOCUMENTS, 512, split="test").batches


@torch.no_grad()
def nats_per_token(model: torch.nn.Module, name: str) -> float:
    """Return the mean of -ln(probability) of each next token."""
    total, count = 0.0, 0
    for labels in _documents(name):
        logits = model(labels.clamp(min=0))[:, :-1].flatten(0, 1)
        nexts = labels[:, 1:].flatten()
        total += float(F.cross_entropy(logits, nexts, ignore_index=IGNORE, reduction="sum"))
        count += int((nexts != IGNORE).sum())
    return total / count


@torch.no_grad()
def _story(model: torch.nn.Module, tokenizer: Tokenizer, generate: Any) -> str:
    """Sample the beginning of a story with the checkpoint's settings and a fixed seed."""
    ids = tokenizer.chat_prompt([{"role": "user", "content": REQUEST}])
    sampling = Sampling.chosen(tokenizer.generation)
    written = generate(
        model, torch.tensor([ids]), max_new_tokens=TOKENS, **vars(sampling),
        eos_token_id=sorted(tokenizer.stop_ids), generator=torch.Generator().manual_seed(SEED),
    )[0, len(ids) :].tolist()  # fmt: skip
    done = written[-1] in tokenizer.stop_ids
    text = " ".join(
        tokenizer.decode([t for t in written if t not in tokenizer.stop_ids]).split()
    )
    return text if done else f"{text} ..."
