"""Decoders whose tokens mean nothing, and a listener for their tokens.

Shapes: B batch, T new tokens, S cached + new tokens, E features, V vocabulary.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from labkit.sandbox.inside.doubles import Double


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _config(vocab_size: int, layers: int) -> SimpleNamespace:
    return SimpleNamespace(
        vocab_size=vocab_size, num_hidden_layers=layers, max_position_embeddings=256
    )


def _columns(input_ids: Tensor, attention_mask: Tensor | None, cache: Any) -> tuple[int, int]:
    """(cached columns, all columns). Raises ValueError for a mask of a different width."""
    cached = 0 if cache is None else cache.length
    total = cached + input_ids.size(1)
    if attention_mask is not None and attention_mask.shape != (input_ids.size(0), total):
        raise ValueError(
            f"attention_mask has shape {tuple(attention_mask.shape)}; expected "
            f"{(input_ids.size(0), total)}: one column for every cached and every new token"
        )
    return cached, total


class TinyDecoder(nn.Module, Double):
    """A decoder of random weights that takes what Qwen3ForCausalLM takes.

    Each token mixes in the tokens up to itself, found by content and position; keys and
    values go through the cache if there is one. Its text means nothing, but each
    token depends on all tokens before it, on their order, and on the padding.

    Shapes: input_ids (B, T), attention_mask (B, S) -> logits (B, T, V)
    """

    shared = True  # later steps find what an earlier one stored on it

    def __init__(self, seed: int = 0, vocab_size: int = 23, size: int = 16, layers: int = 2):
        super().__init__()
        generator = seeded(seed)

        def matrix(rows: int, columns: int, scale: float) -> nn.Parameter:
            numbers = torch.randn(rows, columns, generator=generator)
            return nn.Parameter(scale * numbers, requires_grad=False)

        self.config = _config(vocab_size, layers)
        self.words = matrix(vocab_size, size, 1.0)
        self.mixers = nn.ParameterList(
            [matrix(size, 4 * size, 1.6 * size**-0.5) for _ in range(layers)]
        )
        self.head = matrix(size, vocab_size, 2.0)
        self.speeds = nn.Parameter(2.2 / torch.arange(1.0, size + 1), requires_grad=False)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, cache: Any = None
    ) -> Tensor:
        cached, total = _columns(input_ids, attention_mask, cache)
        if attention_mask is None:
            attention_mask = input_ids.new_ones(input_ids.size(0), total)
        real = attention_mask.bool()  # (B, S)
        place = (real.long().cumsum(-1) - 1).clamp(min=0)[:, cached:]  # (B, T)
        column = torch.arange(total)
        seen = (column <= column[cached:, None]) & real[:, None, :]  # (B, T, S)
        wave = 1.5 * (place[..., None] * self.speeds).sin()
        x = self.words[input_ids] + wave  # (B, T, E)
        for index, mixer in enumerate(self.mixers):
            query, key, value, residual = (x @ mixer).chunk(4, dim=-1)  # (B, T, E) each
            key, value = key[:, None], value[:, None]  # (B, 1, T, E): one head
            if cache is not None:
                key, value = cache.update(index, key, value)  # (B, 1, S, E)
            likeness = (query @ key[:, 0].mT).sigmoid() * seen  # (B, T, S)
            share = likeness / likeness.sum(-1, keepdim=True).clamp(min=1e-6)
            x = torch.tanh(residual + 3 * share @ value[:, 0])
        return x @ self.head  # (B, T, V)


class Scripted(nn.Module):
    """A model that follows a script: after S columns it returns the logits of place S.

    The script fixes every token, so that stops and padding can be tried at will. With
    count_work the place is the number of columns computed so far, which is S only where
    each was computed once; it then also refuses to work while gradients are recorded.

    Shapes: script (B or 1, places, V); input_ids (B, T) -> logits (B, T, V)
    """

    def __init__(self, script: Tensor, count_work: bool = False, breaks_at: int | None = None):
        super().__init__()
        self.config = _config(script.size(-1), layers=1)
        self.script = nn.Parameter(script, requires_grad=False)
        self.count_work, self.work, self.breaks_at = count_work, 0, breaks_at

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, cache: Any = None
    ) -> Tensor:
        _, total = _columns(input_ids, attention_mask, cache)
        if self.count_work and torch.is_grad_enabled():
            raise RuntimeError("gradients are being recorded: torch.no_grad() is missing")
        if self.breaks_at is not None and total >= self.breaks_at:
            raise RuntimeError(f"the model was run on {total} columns")
        batch, new = input_ids.shape
        if cache is not None:
            cache.update(0, torch.zeros(batch, 1, new, 1), torch.zeros(batch, 1, new, 1))
        self.work += new
        place = self.work if self.count_work else total
        last = self.script[:, place % self.script.size(1)].expand(batch, -1)  # (B, V)
        before = last.roll(1, dims=-1)  # other logits at earlier columns
        rows = [before] * (new - 1) + [last]
        return torch.stack(rows, dim=1)  # (B, T, V)


class Listener(Double):
    """An on_token that keeps tokens; after `most` it raises, like a reader who leaves."""

    def __init__(self, most: int | None = None):
        self.most, self.tokens = most, []

    def __call__(self, token: Any) -> None:
        self.tokens.append(token.clone() if isinstance(token, Tensor) else token)
        if len(self.tokens) == self.most:
            raise InterruptedError("the reader has gone")

    def report(self) -> dict[str, Any]:
        return {"on_token": self.tokens}
