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
    # YOUR CODE HERE (about 2 lines)
    raise NotImplementedError("Exercise 4.1: silu")


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
        # YOUR CODE HERE (about 3 lines)
        raise NotImplementedError("Exercise 4.2: Qwen3MLP")

    def forward(self, x: Tensor) -> Tensor:
        # YOUR CODE HERE (about 2 lines)
        raise NotImplementedError("Exercise 4.2: Qwen3MLP")


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
        # YOUR CODE HERE (about 4 lines)
        raise NotImplementedError("Exercise 4.3: FeedForward")

    def forward(self, x: Tensor) -> Tensor:
        # YOUR CODE HERE (about 12 lines)
        raise NotImplementedError("Exercise 4.3: FeedForward")

    def _gelu(self, x: Tensor) -> Tensor:
        # YOUR CODE HERE (about 2 lines)
        raise NotImplementedError("Exercise 4.3: FeedForward")


# %% exercise 4.4: WebMLP
class WebMLP(nn.Module):
    """Compute what Qwen3MLP computes; w1 is the gate, w3 is up, w2 is down."""

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(silu(self.w1(x) * self.w3(x)))


# %% exercise 4.5: fused
def fused(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """Compute what Qwen3MLP computes, with one product for both of its first matrices.

    Shapes: x (..., E); gate_up (2I, E), the rows of gate_proj first; down (E, I) -> (..., E)
    """
    up, gate = (x @ gate_up.T).chunk(2, dim=-1)  # (..., I)
    return (silu(gate) * up) @ down.T  # (..., E)
