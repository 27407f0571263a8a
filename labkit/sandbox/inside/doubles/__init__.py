"""Test doubles: what the course hands to the learner's code instead of parts that may be
unfinished. They need no part of the package under test, nor those parts of torch that take a
second to import its compiler.

Shapes: B batch, T new tokens, S cached + new tokens, E features, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from labkit.sandbox.inside.doubles.decoders import Cache, ModelCache, Scripted, TinyDecoder
from labkit.sandbox.inside.doubles.learning import (
    Adaptable,
    Momentum,
    WindowConfig,
    WindowModel,
    policy,
    training,
)

__all__ = ["DOUBLES", "SHARED", "Listener", "Momentum", "WindowConfig", "WindowModel"]


class Listener:
    """An on_token that keeps what it hears; a check compares it with the result."""

    def __init__(self) -> None:
        self.tokens: list[Any] = []

    def __call__(self, token: Any) -> None:
        self.tokens.append(token.clone() if isinstance(token, Tensor) else token)


class GoneAfter:
    """An on_token whose reader leaves: the call number `tokens` raises InterruptedError."""

    def __init__(self, tokens: int) -> None:
        self.left = tokens

    def __call__(self, token: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise InterruptedError("the reader has gone")


class Judge(Listener):
    """A reward: what the tokens of an answer are worth on average. It keeps the answers."""

    def __init__(self, worth: list[float]) -> None:
        super().__init__()
        self.worth = worth

    def __call__(self, ids: Any) -> float:
        super().__call__(ids)
        return sum(self.worth[int(token)] for token in ids) / max(1, len(ids))


def linear(
    rows: int,
    columns: int,
    bias: bool = True,
    seed: int = 0,
    dtype: str = "float32",
    device: str = "cpu",
) -> nn.Linear:
    """A linear layer with numbers of its own."""
    layer = nn.Linear(columns, rows, bias=bias)
    generator = torch.Generator().manual_seed(seed)
    for weight in layer.parameters():
        weight.data.normal_(generator=generator)
    return layer.to(device, getattr(torch, dtype))


def passing_rule(query, key, value, g, beta, initial_state=None) -> tuple[Tensor, Tensor]:
    """A rule for GatedDeltaNet that shows by what it gives that it was called, and with which g
    last: (B, T, M, Q) and (B, M)."""
    return 3 * value, g[:, -1]


# By the names that a Given uses.
DOUBLES: dict[str, Callable[..., Any]] = {
    "tanh_linear": lambda weight: lambda x: torch.tanh(x @ weight.T),
    "scale_to_max": lambda: lambda x: x / x.abs().amax(dim=-1, keepdim=True).clamp_min(1e-3),
    "generator": lambda seed: torch.Generator().manual_seed(seed),
    "tiny_decoder": TinyDecoder,
    "scripted": Scripted,
    "listener": Listener,
    "gone_after": GoneAfter,
    "kv_cache": Cache,
    "model_cache": ModelCache,
    "training": training,
    "policy": policy,
    "judge": Judge,
    "linear": linear,
    "adaptable": Adaptable,
    "passing_rule": lambda: passing_rule,
}
SHARED = ("kv_cache", "model_cache", "tiny_decoder")  # one object in all steps of a call
