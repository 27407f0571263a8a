"""Lab 01: normalization.

Keep the size of the numbers that flow through a deep network under control.

Shapes: B batch, T tokens, E hidden_size. Everything works on the last axis, so any
number of leading axes will do.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn


# %% exercise 1.1: layer_norm
def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Give every vector mean 0 and variance 1, then scale and shift it.

    Mean and variance are taken over the last axis; the variance divides by E, not E - 1. A
    constant vector, whose variance is 0, gives the bias: eps is added to every variance. The
    mean may be far larger than the spread; then mean(x^2) - mean^2 loses its digits.

    Shapes: x (..., E), weight (E,), bias (E,) -> (..., E)
    dtype:  statistics in float32, the result in the dtype of x; weight and bias may be in
            half precision where x is in float32
    Source: Ba, Kiros, Hinton 2016, https://arxiv.org/abs/1607.06450
    """
    # YOUR CODE HERE (about 5 lines)
    raise NotImplementedError("Exercise 1.1: layer_norm")


# %% exercise 1.2: RMSNorm
class RMSNorm(nn.Module):
    """Divide every vector by its root mean square, then scale each feature.

    eps is added to every mean square: a vector of zeros stays one. No mean is subtracted and
    there is no bias: with weight 1 the result has root mean square 1, so its Euclidean norm is
    sqrt(E).

    Shapes: hidden_states (..., E) -> (..., E); weight (E,), ones at the start
    State:  weight alone: another parameter or buffer would be missing from checkpoints
    dtype:  squares, mean and root in float32; the result in the dtype of hidden_states
    Source: Zhang, Sennrich 2019, https://arxiv.org/abs/1910.07467
    """

    def __init__(self, hidden_size: int, eps: float = 1e-6):
        super().__init__()
        # YOUR CODE HERE (about 2 lines)
        raise NotImplementedError("Exercise 1.2: RMSNorm")

    def forward(self, hidden_states: Tensor) -> Tensor:
        # YOUR CODE HERE (about 4 lines)
        raise NotImplementedError("Exercise 1.2: RMSNorm")


# %% exercise 1.3: residual
def residual(
    x: Tensor,
    sublayer: Callable[[Tensor], Tensor],
    norm: Callable[[Tensor], Tensor],
    placement: str = "pre",
    alpha: float = 1.0,
) -> Tensor:
    """Add the result of a sublayer to its input, with the norm in one of four places.

    With pre the sublayer reads the normed x, and its result is added to x itself. With post
    the sublayer reads x itself, and the sum is normed. Sandwich is pre, but the sublayer's
    result is normed as well before it is added. Deepnorm is post, but alpha times x enters
    the sum.

    Shapes: x (..., E) -> (..., E); sublayer and norm keep the shape
    Errors: any other placement raises a ValueError whose message includes it
    Source: Xiong et al. 2020, https://arxiv.org/abs/2002.04745 (pre, post);
            Wang et al. 2022, https://arxiv.org/abs/2203.00555 (DeepNorm)
    """
    # YOUR CODE HERE (about 9 lines)
    raise NotImplementedError("Exercise 1.3: residual")


# %% exercise 1.4: WebRMSNorm
class WebRMSNorm(nn.Module):
    """Compute what RMSNorm computes, for vectors of every size."""

    def __init__(self, dim: int, eps: float = 1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        rms = wide.pow(2).mean(-1, keepdim=True).sqrt()
        return self.weight * (wide / (rms + self.eps)).to(x.dtype)
