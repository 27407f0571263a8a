"""Objects that the course hands to the learner's code, each by its name; among them a tiny
language model and its optimizer.

The model stands where a learner's own decoder may be unfinished. It is called like
Qwen3ForCausalLM and has the fields of its config that a training step reads. The optimizer is
called like one of torch's, whose own take a second to import torch's compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from labkit.sandboxed.doubles import (
    GivenCache,
    GivenModelCache,
    GoneAfter,
    Listener,
    Scripted,
    TinyDecoder,
)


@dataclass(frozen=True)
class WindowConfig:
    vocab_size: int
    hidden_size: int
    window: int = 4  # tokens that are seen, the newest included
    num_hidden_layers: int = 1
    num_experts: int = 0
    num_experts_per_tok: int = 2
    router_aux_loss_coef: float = 0.1


class WindowModel(nn.Module):
    """Foresees the next token from the last few: embed them, mix, one or two hidden layers.

    With experts every hidden layer is a mixture of `num_experts` linear layers, weighed by a
    router. Tokens where attention_mask is 0 are seen as zeros.

    Shapes: input_ids, attention_mask (B, T) -> logits (B, T, V);
            with output_router_logits (logits, list of router logits (N, X))
    """

    def __init__(self, config: WindowConfig, seed: int = 0):
        super().__init__()
        self.config = config
        size, experts = config.hidden_size, max(config.num_experts, 1)
        self.embed_tokens = nn.Embedding(config.vocab_size, size)
        self.mix = nn.Linear(config.window * size, size)
        self.layers = nn.ModuleList(
            nn.ModuleDict({"experts": nn.Linear(size, experts * size)})
            for _ in range(config.num_hidden_layers)
        )
        if config.num_experts:
            for layer in self.layers:
                layer["gate"] = nn.Linear(size, experts, bias=False)
        self.lm_head = nn.Linear(size, config.vocab_size)
        generator = torch.Generator().manual_seed(seed)
        for weight in self.parameters():
            std = weight.size(-1) ** -0.5 if weight.dim() == 2 else 0.1
            nn.init.normal_(weight, std=std, generator=generator)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        cache: Any = None,
        output_router_logits: bool = False,
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        x = self.embed_tokens(input_ids)  # (B, T, E)
        if attention_mask is not None:
            x = x * attention_mask[..., None].to(x.dtype)
        before = self.config.window - 1
        x = nn.functional.pad(x, (0, 0, before, 0))  # (B, window - 1 + T, E)
        x = x.unfold(1, self.config.window, 1).flatten(2)  # (B, T, E * window)
        x = torch.tanh(self.mix(x))  # (B, T, E)
        router_logits = []
        for layer in self.layers:
            said = layer["experts"](x).unflatten(-1, (-1, self.config.hidden_size))
            weights = torch.ones_like(said[..., 0])  # (B, T, X)
            if self.config.num_experts:
                scores = layer["gate"](x)
                router_logits.append(scores.flatten(0, 1))  # (N, X)
                weights = scores.softmax(dim=-1)
            x = x + torch.tanh((weights[..., None] * said).sum(dim=-2))  # (B, T, E)
        logits = self.lm_head(x)  # (B, T, V)
        return (logits, router_logits) if output_router_logits else logits


class Momentum:
    """Gradient descent that keeps a part of its last step, as torch.optim.SGD does."""

    def __init__(self, groups: list[dict[str, Any]], lr: float, momentum: float):
        self.param_groups = [{"lr": lr, "momentum": momentum, **group} for group in groups]
        self.moving: dict[Tensor, Tensor] = {}

    def zero_grad(self, set_to_none: bool = True) -> None:
        for weight in [weight for group in self.param_groups for weight in group["params"]]:
            if set_to_none or weight.grad is None:
                weight.grad = None
            else:
                weight.grad.zero_()

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    before = self.moving.get(weight, torch.zeros_like(weight))
                    self.moving[weight] = group["momentum"] * before + weight.grad
                    weight -= group["lr"] * self.moving[weight]


def training(
    vocab_size: int = 11,
    hidden_size: int = 6,
    layers: int = 2,
    experts: int = 0,
    coefficient: float = 0.1,
    seed: int = 0,
) -> dict[str, Any]:
    """{"model", "optimizer"}: a WindowModel, and its weights with Momentum in two groups."""
    config = WindowConfig(
        vocab_size,
        hidden_size,
        num_hidden_layers=layers,
        num_experts=experts,
        router_aux_loss_coef=coefficient,
    )
    model = WindowModel(config, seed)
    matrices = [weight for weight in model.parameters() if weight.dim() == 2]
    others = [weight for weight in model.parameters() if weight.dim() != 2]
    groups = [{"params": matrices}, {"params": others}]
    return {"model": model, "optimizer": Momentum(groups, lr=0.7, momentum=0.9)}


GIVEN: dict[str, Callable[..., Any]] = {
    "tanh_linear": lambda weight: lambda x: torch.tanh(x @ weight.T),
    "scale_to_max": lambda: lambda x: x / x.abs().amax(dim=-1, keepdim=True).clamp_min(1e-3),
    "generator": lambda seed: torch.Generator().manual_seed(seed),
    "tiny_decoder": TinyDecoder,
    "scripted": Scripted,
    "listener": Listener,
    "gone_after": GoneAfter,
    "kv_cache": GivenCache,
    "model_cache": GivenModelCache,
    "training": training,
}
KEPT = ("kv_cache", "model_cache", "tiny_decoder")  # one object through a call
