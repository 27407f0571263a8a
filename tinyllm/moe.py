"""Lab 05: mixture of experts.

Many feed-forward layers, of which each token uses a few: a router picks them. Parameters
grow with the number of experts, the work per token does not.

Shapes: B batch, T tokens, N = B*T flattened tokens, E hidden_size, X experts,
k experts per token.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import Qwen3Config
from .swiglu import Qwen3MLP


# %% exercise 5.1: route
def route(router_logits: Tensor, top_k: int, norm_topk_prob: bool) -> tuple[Tensor, Tensor]:
    """Pick each token's top_k experts and say how much each of them counts.

    Each weight is the probability that the softmax over all experts gives the chosen one. With
    norm_topk_prob the weights of a token keep their proportions and sum to 1.

    Shapes: router_logits (N, X) -> weights (N, k), chosen (N, k), the best expert first
    dtype:  softmax in float32; weights in the dtype of router_logits, chosen int64
    Source: Shazeer et al. 2017, https://arxiv.org/abs/1701.06538 (the best k experts)
    """
    # YOUR CODE HERE (about 5 lines)
    raise NotImplementedError("Exercise 5.1: route")


# %% exercise 5.2: Qwen3MoeSparseMoeBlock
class Qwen3MoeSparseMoeBlock(nn.Module):
    """Send each token through the experts its router picked and add up their outputs.

        y = sum over the chosen experts x of weight_x * expert_x(token)

    `gate` is the router, a linear layer without bias; `experts` are Qwen3MLPs of size
    moe_intermediate_size. An expert works on the tokens that picked it and sees no other.

    Shapes: hidden_states (B, T, E) -> (B, T, E) and router_logits (N, X)
    dtype:  that of hidden_states and of the weights
    Source: Qwen3 2025, https://arxiv.org/abs/2505.09388
    """

    def __init__(self, config: Qwen3Config):
        super().__init__()
        self.top_k = config.num_experts_per_tok
        self.norm_topk_prob = config.norm_topk_prob
        # YOUR CODE HERE (about 4 lines)
        raise NotImplementedError("Exercise 5.2: Qwen3MoeSparseMoeBlock")

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        # YOUR CODE HERE (about 10 lines)
        raise NotImplementedError("Exercise 5.2: Qwen3MoeSparseMoeBlock")


# %% exercise 5.3: load_balancing_loss
def load_balancing_loss(
    router_logits: Tensor | Sequence[Tensor],
    top_k: int,
    attention_mask: Tensor | None = None,
    pooled: bool = False,
) -> Tensor:
    """A penalty that makes the router spread its tokens.

        loss = X * sum over experts x of load_x * mean_prob_x

    load_x is the share of tokens that picked expert x, mean_prob_x the mean probability the
    router gave it. Even load scores top_k; every token on the same experts, up to X. (Below
    top_k is possible: load and probability then disagree. Low is not the same as even.)
    The loss of several layers is the mean of their losses: an expert has nothing in common
    with its namesake in another layer. With pooled, as `transformers` has it, their tokens
    count as one long list instead. Tokens where attention_mask is 0 do not count.

    The gradient reaches router_logits through mean_prob only; load is a count.

    Shapes: router_logits (N, X), or a list or tuple of them, one per layer;
            attention_mask (B, T) of 0 and 1, int64 -> scalar
    dtype:  the loss is float32, whatever the logits are
    Source: Fedus, Zoph, Shazeer 2021, https://arxiv.org/abs/2101.03961
    """
    layers = [router_logits] if isinstance(router_logits, Tensor) else list(router_logits)
    # YOUR CODE HERE (about 13 lines)
    raise NotImplementedError("Exercise 5.3: load_balancing_loss")


# %% exercise 5.4: uses_experts
def uses_experts(config: Qwen3Config, layer_idx: int) -> bool:
    """Whether the feed-forward part of this layer is a mixture of experts (a sparse layer).

        a model with num_experts 0 is dense: no layer
        else every decoder_sparse_step-th layer, but none that mlp_only_layers lists

    Layers are numbered from 0, also in mlp_only_layers, and are counted from 1: with
    decoder_sparse_step 2 the second, the fourth, ... are sparse, layer_idx 1, 3, ...

    Shapes: -> True or False
    Source: Qwen3MoeDecoderLayer, https://github.com/huggingface/transformers
    """
    # YOUR CODE HERE (about 3 lines)
    raise NotImplementedError("Exercise 5.4: uses_experts")


# %% exercise 5.5: web_route
def web_route(router_logits: Tensor, top_k: int, norm_topk_prob: bool) -> tuple[Tensor, Tensor]:
    """Choose experts and weigh them as route does, in float32."""
    best, chosen = router_logits.topk(top_k, dim=-1)
    weights = best.softmax(dim=-1)
    if norm_topk_prob:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights, chosen
