"""In this edition a model runs as its code says, and nothing faster takes its place."""

from __future__ import annotations

from torch import nn


def accelerate(model: nn.Module, last_logits_only: bool = False) -> nn.Module:
    """The model as it is."""
    return model
