"""Inspecting a model while it runs: shapes and attention weights.

Shapes: B batch, T new tokens, S cached + new tokens, E hidden_size, H query heads, K KV heads,
D head_dim, I intermediate, V vocab_size, L layers.
"""

from __future__ import annotations

from unittest import mock

import torch
from torch import Tensor, nn

from labkit.course.sealed import NotReady

LETTERS = {
    "B, T, E": "embed_tokens input_layernorm o_proj post_attention_layernorm down_proj norm",
    "B, T, H·D": "q_proj",
    "B, H, T, D": "q_norm",
    "B, T, K·D": "k_proj v_proj",
    "B, K, T, D": "k_norm",
    "B, T, I": "gate_proj up_proj",
    "B, T, V": "lm_head",
}


@torch.no_grad()
def shapes(model: nn.Module, input_ids: Tensor) -> list[tuple[str, str, tuple[int, ...]]]:
    """Return for each part that runs: its name, its output's shape in letters and numbers."""
    seen, hooks = [], []
    for name, module in model.named_modules():
        part = name.rpartition(".")[2]
        letters = next((key for key, names in LETTERS.items() if part in names.split()), None)

        def hook(_module, _inputs, output, name=name, letters=letters) -> None:
            tensor = output if isinstance(output, Tensor) else output[-1]
            seen.append((name, letters, tuple(tensor.shape)))

        if letters:
            hooks.append(module.register_forward_hook(hook))
    try:
        model(input_ids)
    finally:
        for each in hooks:
            each.remove()
    return seen


@torch.no_grad()
def attention_weights(model: nn.Module, input_ids: Tensor) -> Tensor:
    """Return the attention weights: (B, T) -> (L, B, H, T, T), every row sums to 1.

    Attention returns a weighted sum of values. With an identity matrix as values it returns the
    weights, without knowing how a learner wrote it; the price is to compute it twice.
    """
    if not hasattr(model, "model"):
        raise NotReady("this model has no layers to look into: it only stands in for one")
    names = type(model.model.layers[0].self_attn).forward.__globals__  # the dict of its module
    plain, weights = names["scaled_dot_product_attention"], []

    def recording(query: Tensor, key: Tensor, value: Tensor, *rest, **settings) -> Tensor:
        one_each = torch.eye(key.size(2), dtype=value.dtype).expand(*key.shape[:2], -1, -1)
        weights.append(plain(query, key, one_each, *rest, **settings))
        return plain(query, key, value, *rest, **settings)

    with mock.patch.dict(names, scaled_dot_product_attention=recording):
        model(input_ids)
    return torch.stack(weights)
