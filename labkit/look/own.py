"""What Python code makes of a model and a fixed text, for the page to compare itself with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from labkit.core.sealed import NotReady
from labkit.learner import models, workspace
from labkit.learner.talk.commands import YOURS, load_package
from labkit.look.export import base64_of
from labkit.look.page import Shown, named
from labkit.model import checkpoint
from labkit.model.tokenizer import Tokenizer

TEXT = "A fox named Clara had a red kite. She gave it to Sam. Who has the kite?"


def compared(name: str, package: str = YOURS) -> Shown:
    """A model for the page, with what the package's code computes of it.

    package    tinyllm, the reference in what is empty there, or any that has the same parts

    Errors: no such model, no such package: CheckpointError, ChatError. What the code raises
            is told on the page.
    """
    shown = named(name)
    ids = Tokenizer(shown.folder).chat_prompt([{"role": "user", "content": TEXT}])
    if package != YOURS:
        other = load_package(package)
    try:
        code, whose = _yours() if package == YOURS else (other, f"The code of {package}")
    except Exception as error:  # a learner's code may fail in any way
        return Shown(shown.name, shown.folder, _problem("Your code", error))
    try:
        model = checkpoint.load(shown.folder, code, torch.float32)
        layers, logits = _computed(model, torch.tensor([ids]))
    except Exception as error:
        return Shown(shown.name, shown.folder, _problem(whose, error))
    numbers = {"layers": [base64_of(each) for each in layers], "logits": base64_of(logits)}
    return Shown(shown.name, shown.folder, {"whose": whose, "ids": ids, **numbers})


def _yours() -> tuple[SimpleNamespace, str]:
    labs = models.MODEL_LABS
    if models.reference_is_here():
        if not any(models.written(lab) for lab in labs):
            return models.reference(), "The course's own code, as nothing of yours is written,"
        empty = [lab for lab in labs if any(e.core for e in workspace.unfinished(lab))]
        if empty:
            numbers = ", ".join(lab.number for lab in empty)
            return (
                models.as_it_is(),
                f"Your code, the course's own in what is empty ({numbers}),",
            )
    return models.as_it_is(), "Your code"


def _problem(whose: str, error: Exception) -> dict[str, Any]:
    told = isinstance(error, (NotReady, NotImplementedError))
    return {"whose": whose, "problem": str(error) if told else models.error_text(error)}


@torch.no_grad()
def _computed(model: nn.Module, input_ids: Tensor) -> tuple[list[Tensor], Tensor]:
    """The stream after every layer, (T, E) each, and the logits (T, V), float32."""
    layers, hooks = [], []

    def keep(_module, _inputs, output) -> None:
        hidden = output if isinstance(output, Tensor) else output[0]
        layers.append(hidden[0].float())

    for layer in getattr(getattr(model, "model", None), "layers", ()):
        hooks.append(layer.register_forward_hook(keep))
    try:
        return layers, model(input_ids)[0].float()
    finally:
        for hook in hooks:
            hook.remove()
