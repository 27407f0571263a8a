"""In this edition each model runs its own code, and no faster code replaces it."""

from __future__ import annotations

from torch import nn


def accelerate(model: nn.Module, last_logits_only: bool = False) -> nn.Module:
    """Return the model unchanged."""
    return model
