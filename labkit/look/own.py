"""What Python code makes of a model and a fixed text, for the page to compare itself with."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from labkit.course.sealed import NotReady
from labkit.learner import models
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
    whose, empty = models.author() if package == YOURS else (None, [])
    said = {
        "whose": whose.value if whose else "package",  # words.js has a sentence for each
        "labs": ", ".join(lab.number for lab in empty),
        "package": package,
    }
    try:
        code = _code(whose) if whose else other
        model = checkpoint.load(shown.folder, code, torch.float32)
        layers, logits = _computed(model, torch.tensor([ids]))
    except Exception as error:  # a learner's code may fail in any way
        return Shown(shown.name, shown.folder, {**said, "problem": _problem(error)})
    numbers = {"layers": [base64_of(each) for each in layers], "logits": base64_of(logits)}
    return Shown(shown.name, shown.folder, {**said, "ids": ids, **numbers})


def _code(whose: models.Author) -> SimpleNamespace:
    """What is there, right or wrong: the page says where it differs."""
    return models.reference() if whose is models.Author.COURSE else models.complete()


def _problem(error: Exception) -> str:
    told = isinstance(error, (NotReady, NotImplementedError))
    return str(error) if told else models.error_text(error)


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
