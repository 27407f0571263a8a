"""A KV cache for layers, models and the hybrid layers of lab 12."""

from __future__ import annotations

import torch
from torch import Tensor

from labkit.sandbox.inside.doubles import Double


class KVCache(Double):
    """Joins the keys and values that a layer brings to those that it has brought before.

    layers      the only ones that may use it
    numbers     how many it stores for each token of a layer, keys and values together
    length_before   tokens that are cached already, whose keys differ from their values
    """

    shared = True

    def __init__(self, layers: list[int], numbers: int, length_before: int = 0):
        self.numbers, self.length_before = numbers, length_before
        self.stored: dict[int, tuple[Tensor, Tensor] | None] = dict.fromkeys(layers)

    def lengths(self) -> dict[int, int]:
        """Return the number of tokens in each layer."""
        pairs = self.stored.items()
        return {n: self.length_before if pair is None else pair[0].size(2) for n, pair in pairs}

    @property
    def length(self) -> int:
        """The number of tokens that all layers have."""
        return min(self.lengths().values())

    def state(self) -> dict[str, Tensor]:
        name = "the number of cached tokens of layer {}"
        return {name.format(n): torch.tensor(length) for n, length in self.lengths().items()}

    def update(self, layer_idx: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if layer_idx not in self.stored:
            known = ", ".join(map(str, self.stored))
            raise ValueError(f"cache.update got layer {layer_idx}; this is {known}")
        new = (key, value)
        for tensor in new:
            if tensor.dim() != 4:
                shape = tuple(tensor.shape)
                raise ValueError(f"the cache takes (B, heads, T, size), not {shape}")
        numbers = sum(t.size(1) * t.size(3) for t in new)
        if numbers != self.numbers:
            raise ValueError(
                f"the cache was given {numbers} numbers a token; it stores {self.numbers}"
            )
        before = self.stored[layer_idx]
        if before is None:
            fill = zip(new, (-0.5, 2.0), strict=True)
            length = self.length_before
            before = [t.new_full((*t.shape[:2], length, t.size(3)), x) for t, x in fill]
        joined = tuple(torch.cat(pair, dim=2) for pair in zip(before, new, strict=True))
        self.stored[layer_idx] = joined
        return joined
