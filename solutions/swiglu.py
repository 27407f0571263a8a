"""Lab 04: the feed-forward layer.

Work on every token by itself: widen it, let some features through, narrow it again.

Shapes: E hidden_size, I intermediate_size. Everything works on the last axis, so any
number of leading axes will do.
"""

import math

import torch
from torch import Tensor, nn

from .config import Qwen3Config


# %% exercise 4.1: silu
def silu(x: Tensor) -> Tensor:
    """A smooth gate: near 0 for very negative x, near x for very positive x.

        y = x * sigmoid(x)

    Value and gradient are finite for every finite x: no exp may overflow on the way.

    Shapes: x (...), contiguous or not -> (...)
    dtype:  the result in the dtype of x, right to two units in its last place; float32 inside
            keeps the digits
    Source: Elfwing, Uchibe, Doya 2017, https://arxiv.org/abs/1702.03118
    """
    ### BEGIN SOLUTION
    wide = x.float()
    return (wide * torch.sigmoid(wide)).to(x.dtype)
    ### END SOLUTION


# %% exercise 4.2: Qwen3MLP
class Qwen3MLP(nn.Module):
    """The SwiGLU feed-forward layer: one projection decides how much of another passes.

        y = down_proj(silu(gate_proj(x)) * up_proj(x))

    Three matrices without bias. intermediate_size is config.intermediate_size, unless the
    argument gives another (lab 05 builds its experts so).

    Shapes: x (..., E), contiguous or not -> (..., E)
    dtype:  that of x and of the matrices
    Source: Shazeer 2020, https://arxiv.org/abs/2002.05202
    """

    def __init__(self, config: Qwen3Config, intermediate_size: int | None = None):
        super().__init__()
        size = config.intermediate_size if intermediate_size is None else intermediate_size
        ### BEGIN SOLUTION
        self.gate_proj = nn.Linear(config.hidden_size, size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, size, bias=False)
        self.down_proj = nn.Linear(size, config.hidden_size, bias=False)
        ### END SOLUTION

    def forward(self, x: Tensor) -> Tensor:
        ### BEGIN SOLUTION
        gated = silu(self.gate_proj(x)) * self.up_proj(x)  # (..., I)
        return self.down_proj(gated)  # (..., E)
        ### END SOLUTION


# %% exercise 4.3: FeedForward
class FeedForward(nn.Module):
    """Five feed-forward layers, plain and gated; no matrix has a bias here.

    The plain kinds bend what up_proj gives: relu by max(0, x), gelu by GELU, swish by silu.
    The gated kinds multiply up_proj's output by gate_proj's, which is bent: geglu by GELU,
    swiglu by silu. In all five down_proj comes last. GELU is the exact one:

        gelu(x) = x / 2 * (1 + erf(x / sqrt(2)))

    Plain kinds have no gate_proj. (The first Transformer, BERT and GPT-2 do have biases, and
    GPT-2 and Gemma compute gelu by an approximation with tanh.)

    Shapes: x (..., E), contiguous or not -> (..., E)
    dtype:  that of x and of the matrices; if gelu widens to float32, it goes back
    Errors: any other kind raises a ValueError whose message includes it
    Source: Shazeer 2020, https://arxiv.org/abs/2002.05202
    """

    KINDS = ("relu", "gelu", "swish", "geglu", "swiglu")

    def __init__(self, hidden_size: int, intermediate_size: int, kind: str):
        super().__init__()
        if kind not in self.KINDS:
            raise ValueError(f"kind {kind!r} is none of {', '.join(self.KINDS)}")
        self.kind = kind
        ### BEGIN SOLUTION
        if kind in ("geglu", "swiglu"):
            self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)
        ### END SOLUTION

    def forward(self, x: Tensor) -> Tensor:
        ### BEGIN SOLUTION
        up = self.up_proj(x)  # (..., I)
        if self.kind == "relu":
            inner = up.clamp(min=0)
        elif self.kind == "gelu":
            inner = self._gelu(up)
        elif self.kind == "swish":
            inner = silu(up)
        elif self.kind == "geglu":
            inner = self._gelu(self.gate_proj(x)) * up
        else:
            inner = silu(self.gate_proj(x)) * up
        return self.down_proj(inner)  # (..., E)
        ### END SOLUTION

    def _gelu(self, x: Tensor) -> Tensor:
        ### BEGIN SOLUTION
        wide = x.float()
        return (wide / 2 * (1 + torch.erf(wide / math.sqrt(2)))).to(x.dtype)
        ### END SOLUTION


# %% exercise 4.4: WebMLP
class WebMLP(nn.Module):
    """Compute what Qwen3MLP computes; w1 is the gate, w3 is up, w2 is down."""

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        ### BEGIN SOLUTION
        return self.w2(silu(self.w1(x)) * self.w3(x))
        ### INSTEAD
        # return self.w2(silu(self.w1(x) * self.w3(x)))
        ### END SOLUTION


# %% exercise 4.5: fused
def fused(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """Compute what Qwen3MLP computes, with one product for both of its first matrices.

    Shapes: x (..., E); gate_up (2I, E), the rows of gate_proj first; down (E, I) -> (..., E)
    """
    ### BEGIN SOLUTION
    gate, up = (x @ gate_up.T).chunk(2, dim=-1)  # (..., I)
    ### INSTEAD
    # up, gate = (x @ gate_up.T).chunk(2, dim=-1)  # (..., I)
    ### END SOLUTION
    return (silu(gate) * up) @ down.T  # (..., E)
