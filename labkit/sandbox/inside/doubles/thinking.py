"""Readers and judges of texts in the checks of lab 13, a student and its teacher."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labkit.sandbox.inside.doubles.generation import Listener, TinyDecoder
from labkit.sandbox.inside.doubles.training import Momentum

MARK = 8


class Reader(Listener):
    """An answer_of: the token behind the first MARK, None if there is none. It keeps the
    texts that it is asked about."""

    def __call__(self, text: Any) -> int | None:
        text = [int(token) for token in text]
        super().__call__(text)
        behind = text[text.index(MARK) + 1 :] if MARK in text else []
        return behind[0] if behind else None

    def report(self) -> dict[str, Any]:
        return {"answer_of": self.tokens}


class Scorer(Listener):
    """A verifier: the worth of a text's last token. It keeps the texts that it sees."""

    def __init__(self, worth: list[float]):
        super().__init__()
        self.worth = worth

    def __call__(self, text: Any) -> float:
        text = [int(token) for token in text]
        super().__call__(text)
        return self.worth[text[-1]]

    def report(self) -> dict[str, Any]:
        return {"score": self.tokens}


class Teacher(TinyDecoder):
    """A TinyDecoder whose state counts the calls that could have recorded gradients."""

    def __init__(self, seed: int = 0):
        super().__init__(seed, layers=1)
        self.register_buffer("calls_with_gradients", torch.zeros(()))

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        self.calls_with_gradients += torch.is_grad_enabled()
        return super().forward(*inputs, **named)


def school(seed: int = 0, lr: float = 0.3, used: bool = False) -> dict[str, Any]:
    """Return {"student", "teacher", "optimizer"}: two TinyDecoders, of which the first learns
    and is sure of little, and Momentum with its weights. A used student has other gradients."""
    student = TinyDecoder(seed, layers=1).requires_grad_(True)
    student.head.data *= 0.25
    for weight in student.parameters() if used else ():
        weight.grad = weight.detach().clone().fill_(1.0)
    teacher = Teacher(seed + 1)
    teacher.head.data *= 0.5
    optimizer = Momentum([{"params": [*student.parameters()]}], lr, 0.5)
    return {"student": student, "teacher": teacher, "optimizer": optimizer}
