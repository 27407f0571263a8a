"""The code for a whole model (the learner's, if it works), and a model to talk with.

A wrong model is found by its logits on two texts, since all checks would take longer. The
price: a fault that these texts do not show is not found.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from enum import Enum
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from labkit.course.lang import said, tr
from labkit.course.sealed import NotReady
from labkit.course.syllabus import LABS, Exercise, Lab
from labkit.learner import workspace
from labkit.model import checkpoint, hub
from labkit.model.chat.screen import WordWrapper
from labkit.model.chat.stream import Sampling, stream
from labkit.model.tokenizer import Tokenizer
from labkit.sandbox.inside.importer import PACKAGE, imported

PARTS = ("Qwen3Config", "Qwen3ForCausalLM", "count_parameters", "KVCache", "generate")
MODEL_LABS = [lab for lab in LABS if lab.number <= "07"]
DECODER_LABS = [lab for lab in LABS if lab.number <= "06"]
CLOSE = 0.01  # logits of two right models in float32; a wrong one is further away


def error_text(error: Exception) -> str:
    """The type of an error and the first line of its message"""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


# The code


class Author(Enum):
    """Who wrote the parts of a model that runs here."""

    COURSE = "course"  # no exercise is written
    MIXED = "mixed"  # the reference fills empty exercises
    LEARNER = "yours"


def author(labs: Sequence[Lab] = MODEL_LABS) -> tuple[Author, list[Lab]]:
    """Return the author of these labs' parts, and the labs with parts from the reference."""
    if not any(written(lab) for lab in labs):
        return Author.COURSE, list(labs)
    empty = [lab for lab in labs if any(each.core for each in workspace.unfinished(lab))]
    return (Author.MIXED if empty else Author.LEARNER), empty


def your_code(
    labs: Sequence[Lab] = MODEL_LABS,
    report: Callable[[str], object] = print,
    as_it_is: bool = False,
) -> SimpleNamespace:
    """Return the parts of a model: the learner's, with the reference in unfinished exercises.

    If that model raises an error or its logits are wrong, return the reference's parts.

    report      called with lines that say who wrote which part
    as_it_is    return the learner's model even if it is wrong
    """
    written_by, _ = author(labs)
    if written_by is Author.COURSE:
        first, last = labs[0].number, labs[-1].number
        report(
            tr(
                "The course's own code stands in for all of yours, labs {first} to {last}.",
                first=first,
                last=last,
            )
        )
        return reference()
    try:
        code = complete(labs) if as_it_is else _code_that_runs(labs)
    except Exception as error:  # a learner's code may raise anything
        known = isinstance(error, NotReady)
        problem = str(error) if known else tr("it raises {error}", error=error_text(error))
        report(
            tr(
                "Your model cannot talk yet: {problem}. `tinyllm assemble` shows which part.",
                problem=problem,
            )
        )
        report(tr("The course's own code runs instead. `tinyllm chat --as-it-is` runs yours."))
        return reference()
    mixed = tr(
        "{labs}. What stands in is the course's own.", labs=workspace.describe_authors(labs)
    )
    report(mixed if written_by is Author.MIXED else tr("Every part of this model is yours."))
    return code


def written(lab: Lab) -> list[Exercise]:
    """The exercises that are not empty"""
    empty = workspace.unfinished(lab)
    return [each for each in lab.exercises if each not in empty]


def reference() -> SimpleNamespace:
    return _namespace(importlib.import_module("solutions"), tr("the course's"))


def _code_that_runs(labs: Sequence[Lab]) -> SimpleNamespace:
    """Return the learner's package, completed, after a trial run.

    Errors: NotReady if its logits are not the reference's; any error of the learner's code
    """
    code = complete(labs)
    writes = MODEL_LABS[-1] in labs
    logits = _trial_logits(code, writes)
    pairs = zip(logits, _trial_logits(reference(), writes), strict=True)
    gap = max(float((a - b).abs().max()) for a, b in pairs)
    if not gap < CLOSE:  # nan fails this test, too
        off = said("it runs and is wrong: logits are up to {gap:.2g} away from the reference's")
        raise NotReady(tr(off, gap=gap))
    return code


def complete(labs: Sequence[Lab] = MODEL_LABS) -> SimpleNamespace:
    """Import the learner's package as its files are now, with the reference in unfinished
    exercises and in all later labs."""
    package = workspace.learner_modules()
    package |= workspace.reference_modules() | workspace.completed_modules(labs)
    with imported(package, workspace.folder()):
        return _namespace(importlib.import_module(PACKAGE), "yours")


def _namespace(package: Any, author: str) -> SimpleNamespace:
    return SimpleNamespace(
        author=author, **{name: checkpoint.part(package, name) for name in PARTS}
    )


@torch.no_grad()
def _trial_logits(code: SimpleNamespace, writes: bool) -> list[Tensor]:
    """Return logits of the shipped models for a text, and for one generated with a cache."""
    found = []
    for folder in hub.SHIPPED.values():
        model = checkpoint.load(folder, code, torch.float32)
        input_ids = torch.arange(3, 40)[None]  # (1, T)
        found.append(model(input_ids))
        if writes:
            found.append(model(code.generate(model, input_ids, max_new_tokens=3))[:, -1])
        code.count_parameters(model.config)
    return found


# A model to talk with


def load_chat_model(
    name: str = "stories-dense", as_it_is: bool = False
) -> tuple[nn.Module, Tokenizer]:
    """Load a model in float32 and its tokenizer; a printed line says whose code runs.

    as_it_is    run your code even if it is wrong
    """
    folder = hub.resolve(name)
    tokenizer, code = Tokenizer(folder), your_code(DECODER_LABS, as_it_is=as_it_is)
    return checkpoint.load(folder, code, torch.float32), tokenizer


def say(
    model: nn.Module, tokenizer: Any, text: str, *, temperature: float = 0.0, seed: int = 0
) -> str:
    """Generate a continuation of a text; print it as it comes, and return it.

    temperature 0 always takes the best token; above it, the same seed draws the same text.
    """
    generator, write = torch.Generator().manual_seed(seed), WordWrapper().print
    ids, sampling = tokenizer.encode(text), Sampling(temperature)
    text = stream(model, tokenizer, ids, _plain_generate, write, sampling, None, generator)
    print()
    return text


@torch.no_grad()
def _plain_generate(
    model: nn.Module,
    input_ids: Tensor,
    max_new_tokens: int,
    temperature: float,
    top_k: None,
    top_p: None,
    eos_token_id: Sequence[int],
    generator: torch.Generator,
    on_token: Callable[[Tensor], None],
) -> Tensor:
    """Continue one text without lab 07: no cache, sampling by temperature only.

    Shapes: input_ids (1, T) -> (1, T + new)
    """
    for _ in range(max_new_tokens):
        logits = model(input_ids)[:, -1]  # (1, V)
        if temperature == 0:
            token = logits.argmax(dim=-1, keepdim=True)  # (1, 1)
        else:
            probs = (logits.float() / temperature).softmax(dim=-1)
            token = torch.multinomial(probs, 1, generator=generator)
        input_ids = torch.cat((input_ids, token), dim=1)
        on_token(token[:, 0])
        if int(token) in eos_token_id:
            break
    return input_ids
