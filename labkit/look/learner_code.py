"""Run the learner's code on a fixed text; the page compares its own numbers with the
results."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from labkit.course.sealed import NotReady
from labkit.learner import models
from labkit.look.export import base64_of
from labkit.look.page import Shown, named
from labkit.model import checkpoint
from labkit.model.tokenizer import Tokenizer

TEXT = "A fox named Clara had a red kite. She gave it to Sam. Who has the kite?"


def compute(name: str) -> Shown:
    """Return a model for the page with the numbers that tinyllm computes; the reference fills
    empty exercises.

    Errors: no such model, or one that the reference cannot load: CheckpointError. What the
            learner's code raises is shown on the page.
    """
    shown = named(name)
    checkpoint.load(shown.folder, models.reference())  # a folder that no code can load
    ids = Tokenizer(shown.folder).chat_prompt([{"role": "user", "content": TEXT}])
    author, empty = models.author()
    origin = {  # words.js has a sentence for each author
        "whose": author.value,
        "labs": ", ".join(lab.number for lab in empty),
    }
    try:
        model = checkpoint.load(shown.folder, _code(author), torch.float32)
        layers, logits = _outputs(model, torch.tensor([ids]))
    except Exception as error:  # a learner's code may raise anything
        return Shown(shown.name, shown.folder, {**origin, "problem": _problem(error)})
    numbers = {"layers": [base64_of(layer) for layer in layers], "logits": base64_of(logits)}
    return Shown(shown.name, shown.folder, {**origin, "ids": ids, **numbers})


def _code(author: models.Author) -> SimpleNamespace:
    """Return the learner's code, right or wrong: the page shows where it differs."""
    return models.reference() if author is models.Author.COURSE else models.complete()


def _problem(error: Exception) -> str:
    is_unfinished = isinstance(error, (NotReady, NotImplementedError))
    return str(error) if is_unfinished else models.error_text(error)


@torch.no_grad()
def _outputs(model: nn.Module, input_ids: Tensor) -> tuple[list[Tensor], Tensor]:
    """The residual stream after every layer, (T, E) each, and the logits (T, V), float32."""
    layers, hooks = [], []

    def record(_module, _inputs, output) -> None:
        hidden = output if isinstance(output, Tensor) else output[0]
        layers.append(hidden[0].float())

    for layer in getattr(getattr(model, "model", None), "layers", ()):
        hooks.append(layer.register_forward_hook(record))
    try:
        return layers, model(input_ids)[0].float()
    finally:
        for hook in hooks:
            hook.remove()
