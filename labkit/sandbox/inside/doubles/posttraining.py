"""Models of post-training: one for LoRA, a policy, and a judge of its answers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from labkit.sandbox.inside.doubles import Double
from labkit.sandbox.inside.doubles.generation import Listener, TinyDecoder, seeded
from labkit.sandbox.inside.doubles.training import Momentum


class Judge(Listener):
    """A reward: the mean worth of an answer's tokens. It keeps the answers."""

    def __init__(self, worth: list[float]):
        super().__init__()
        self.worth = worth

    def __call__(self, ids: Any) -> float:
        super().__call__(ids)
        return sum(self.worth[int(token)] for token in ids) / max(1, len(ids))

    def report(self) -> dict[str, Any]:
        return {"reward": self.tokens}


class Adaptable(nn.Module, Double):
    """Two layers of linear layers with a head, on which LoRA can be put.

    put    {path: module} to be put into it; their matrices A and B get numbers

    Shapes: x (B, E) -> (B, V)
    """

    def __init__(
        self,
        size: int = 6,
        put: dict[str, nn.Module] | None = None,
        dtype: torch.dtype = torch.float32,
    ):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleDict({
                "q_proj": nn.Linear(size, size + 2, bias=False),
                "v_proj": nn.Linear(size, size + 2),
                "o_proj": nn.Linear(size + 2, size, bias=False),
                "norm": nn.LayerNorm(size),
            })
            for _ in range(2)
        )  # fmt: skip
        self.lm_head = nn.Linear(size, 5, bias=False)
        self.to(dtype)
        for path, module in (put or {}).items():
            self.set_submodule(path, module)
        self.x = torch.randn(3, size, generator=seeded(0)).to(dtype)
        self.fill("")

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            mixed = torch.tanh(layer["q_proj"](x)) * layer["v_proj"](x)
            x = layer["norm"](x + layer["o_proj"](mixed))
        return self.lm_head(x)

    def fill(self, part: str) -> None:
        """Put numbers into the weights whose names contain `part`, each by its own name."""
        for name, weight in self.named_parameters():
            if part in name:
                numbers = seeded(sum(map(ord, name)))
                weight.data.normal_(std=weight.size(-1) ** -0.5, generator=numbers)

    @torch.no_grad()
    def report(self) -> dict[str, Any]:
        """Return the model's state: its output, its trainable weights, its numbers, and its
        output with other numbers in LoRA's matrices."""
        named = dict(self.named_parameters())
        learn = {name: weight.requires_grad for name, weight in named.items()}
        numbers = {name: weight.clone() for name, weight in self.state_dict().items()}
        report = {"output": self(self.x), "which weights learn": learn, "weights": numbers}
        self.fill(".lora_")
        return report | {"output once A and B have learned": self(self.x)}


def policy(seed: int = 0, lr: float = 0.3, used: bool = False) -> dict[str, Any]:
    """Return {"model", "optimizer"}: a TinyDecoder that learns and is sure of little, and
    Momentum with its weights. A used one still has gradients of something else."""
    model = TinyDecoder(seed, layers=1).requires_grad_(True)
    model.head.data *= 0.25
    for weight in model.parameters() if used else ():
        weight.grad = torch.ones_like(weight)
    return {"model": model, "optimizer": Momentum([{"params": [*model.parameters()]}], lr, 0.5)}
