"""Muon: momentum matrices are orthogonalized before each step.

Not torch.optim.Muon, which iterates in bfloat16: most CPUs emulate it, which takes nine tenths
of a training step. This one computes in float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
ITERATIONS = 5
COEFFICIENTS = (3.4445, -4.775, 2.0315)  # steep at zero: small singular values grow fast


class Muon(torch.optim.Optimizer):
    """Steps of a length that does not depend on the gradients' size, for matrices only.

        momentum = 0.95 momentum + 0.05 gradient
        weight   = (1 - lr weight_decay) weight - lr scale O

    where O is the orthogonal matrix nearest to the gradient laid over the momentum (Nesterov),
    and scale is 0.2 sqrt(max(rows, columns)): then steps are as long as AdamW's, and one
    learning rate serves both.
    Sources: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon;
             Liu et al. 2025, https://arxiv.org/abs/2502.16982 (as long as AdamW's)
    """

    def __init__(self, matrices: list[Tensor], lr: float = 1e-3, weight_decay: float = 0.0):
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue  # an expert that no token chose
                state = self.state[weight]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(weight)
                momentum = state["momentum_buffer"].lerp_(weight.grad, 1 - MOMENTUM)
                update = orthogonal(weight.grad.lerp(momentum, MOMENTUM))
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(update, alpha=-group["lr"] * (0.2 * max(weight.shape) ** 0.5))


def orthogonal(matrix: Tensor) -> Tensor:
    """Bring the singular values of a matrix (R, C) near 1 by Newton-Schulz, in float32."""
    a, b, c = COEFFICIENTS
    x = matrix.float()
    tall = x.size(0) > x.size(1)
    x = x.T if tall else x
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


class MuonAdamW:
    """Muon for the matrices inside the layers, AdamW for all else, with one learning rate."""

    def __init__(self, model: nn.Module):
        inner, rest = [], []
        for name, weight in model.named_parameters():
            outer = name.endswith(("embed_tokens.weight", "lm_head.weight", "gate.weight"))
            (rest if outer or weight.dim() != 2 else inner).append(weight)
        self.optimizers = [
            torch.optim.AdamW(rest, betas=(0.9, 0.95), weight_decay=0.0),
            Muon(inner, weight_decay=0.05),
        ]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def zero_grad(self, set_to_none: bool = True) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none)

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def state_dict(self) -> list[dict[str, Any]]:
        return [optimizer.state_dict() for optimizer in self.optimizers]

    def load_state_dict(self, states: list[dict[str, Any]]) -> None:
        for optimizer, state in zip(self.optimizers, states, strict=True):
            optimizer.load_state_dict(state)
