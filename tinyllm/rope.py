"""Lab 02: positions.

Tell attention where a token is. Qwen3 rotates queries and keys by an angle that grows
with the position (RoPE); the stretch exercises build the other ways.

Shapes: B batch, T new tokens, S cached + new tokens, H query heads, K KV heads,
D head_dim, E hidden_size.
"""

import math

import torch
from torch import Tensor, nn


# %% exercise 2.1: rope_cos_sin
def rope_cos_sin(
    position_ids: Tensor, head_dim: int, rope_theta: float
) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the angle by which each feature of each position is turned.

        angle[p, i] = p * rope_theta^(-2i / D)      for i = 0 .. D/2 - 1

    Feature i and feature i + D/2 form a pair and share an angle, so the D/2 angles are
    laid out twice, one half after the other.

    Shapes: position_ids (..., T) integers -> cos, sin (..., T, D)
    dtype:  float32 throughout, whatever the model's dtype: bfloat16 cannot count to 512
    Source: Su et al. 2021, https://arxiv.org/abs/2104.09864
    """
    # YOUR CODE HERE (about 5 lines)
    raise NotImplementedError("Exercise 2.1: rope_cos_sin")


# %% exercise 2.2: rotate_half
def rotate_half(x: Tensor) -> Tensor:
    """Turn every pair, feature i and feature i + D/2, by 90 degrees: (a, b) becomes (-b, a).

    Shapes: x (..., D) -> (..., D)
    Source: https://github.com/huggingface/transformers (models/qwen3/modeling_qwen3.py)
    """
    # YOUR CODE HERE (about 2 lines)
    raise NotImplementedError("Exercise 2.2: rotate_half")


# %% exercise 2.3: apply_rotary_pos_emb
def apply_rotary_pos_emb(
    query: Tensor, key: Tensor, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor]:
    """Turn every query and every key by the angles of its position.

    By the angle t the pair (a, b) of features i and i + D/2 becomes

        (a cos t - b sin t, b cos t + a sin t)

    Lengths stay; the dot product of a turned query and a turned key depends on their
    contents and on the distance between them, not on their positions.

    Shapes: query (B, H, T, D), key (B, K, T, D), cos and sin (B, T, D), (1, T, D) or (T, D)
            -> the shapes of query and key
    dtype:  the result has that of query, whatever cos and sin have
    Source: Su et al. 2021, https://arxiv.org/abs/2104.09864
    """
    # YOUR CODE HERE (about 5 lines)
    raise NotImplementedError("Exercise 2.3: apply_rotary_pos_emb")


# %% exercise 2.4: sinusoidal_embedding
def sinusoidal_embedding(position_ids: Tensor, hidden_size: int) -> Tensor:
    """The vector that the first Transformer adds to each token embedding.

        out[p, 2i]     = sin(p * 10000^(-2i / E))
        out[p, 2i + 1] = cos(p * 10000^(-2i / E))

    Sine and cosine alternate. If E is odd, the last feature is a sine without a cosine.

    Shapes: position_ids (..., T) integers -> (..., T, E)
    dtype:  float32
    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762
    """
    # YOUR CODE HERE (about 7 lines)
    raise NotImplementedError("Exercise 2.4: sinusoidal_embedding")


# %% exercise 2.5: alibi_bias
def alibi_bias(num_heads: int, query_length: int, key_length: int) -> Tensor:
    """What ALiBi adds to the attention scores: the farther a key, the lower its score.

        bias[h, i, j] = -slope[h] * |i - j|

    The queries are the last of the keys, so query number t is at i = S - T + t.
    For H a power of two, slope[h] = 2^(-8 (h + 1) / H): 8 heads start at 1/2. For any other
    H, take all slopes of the next smaller power of two, then every second slope (the first,
    the third, ...) of twice that power until there are H.

    Shapes: -> (H, T, S)
    dtype:  float32 throughout: bfloat16 counts to 256 without gaps, float16 to 2048
    Source: Press, Smith, Lewis 2021, https://arxiv.org/abs/2108.12409
    """

    # YOUR CODE HERE (about 8 lines)
    raise NotImplementedError("Exercise 2.5: alibi_bias")


# %% exercise 2.6: relative_scores
def relative_scores(
    query: Tensor,
    key: Tensor,
    relative_key: Tensor,
    content_bias: Tensor,
    position_bias: Tensor,
) -> Tensor:
    """Attention scores of Transformer-XL: one part for content, one for distance.

        scores[i, j] = (query_i + content_bias) . key_j
                     + (query_i + position_bias) . relative_key_{i - j}      for j <= i

    The queries are the last of the keys: query number t is at i = S - T + t. Keys of
    the future (j > i) have no distance and score -inf. No scale and no softmax here.

    Shapes: query (B, H, T, D), key (B, H, S, D), relative_key (H, S, D) with row d for
            distance d, content_bias and position_bias (H, D) -> (B, H, T, S)
    Source: Dai et al. 2019, https://arxiv.org/abs/1901.02860
    """
    # YOUR CODE HERE (about 8 lines)
    raise NotImplementedError("Exercise 2.6: relative_scores")


# %% exercise 2.7: yarn_cos_sin
def yarn_cos_sin(
    position_ids: Tensor,
    head_dim: int,
    rope_theta: float,
    factor: float,
    original_max_position_embeddings: int,
    attention_factor: float | None = None,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """cos and sin of RoPE stretched by YaRN to `factor` times the trained length.

    Pair i makes `turns` full turns over the trained length. Pairs that turn more often than
    beta_fast know only near distances and stay; pairs that turn less often than beta_slow
    are slowed down by `factor`; between the two, a straight ramp over the pair index:

        index(turns) = D * ln(original_max / (2 pi turns)) / (2 ln rope_theta)
        low  = max(floor(index(beta_fast)), 0)
        high = min(ceil(index(beta_slow)), D - 1),     at least low + 0.001
        ramp[i] = clamp((i - low) / (high - low), 0, 1)
        inv_freq[i] = rope_theta^(-2i / D) * ((1 - ramp[i]) + ramp[i] / factor)

    cos and sin are both multiplied by attention_factor, 0.1 ln(factor) + 1 if it is None.

    Shapes: position_ids (..., T) integers -> cos, sin (..., T, D)
    dtype:  float32
    Errors: factor below 1 raises ValueError
    Source: Peng et al. 2023, https://arxiv.org/abs/2309.00071
    """
    if factor < 1:
        raise ValueError(f"factor is {factor}; YaRN lengthens, so it must be at least 1")

    # YOUR CODE HERE (about 14 lines)
    raise NotImplementedError("Exercise 2.7: yarn_cos_sin")


# %% exercise 2.8: LearnedPositions
class LearnedPositions(nn.Module):
    """Add to each token embedding the learned row of its place, as GPT-2 does.

        out[t] = hidden_states[t] + wpe.weight[start + t]

    `wpe` is an nn.Embedding with one row for each of max_position_embeddings places. `start`
    is the place of the first token: 0, or with a cache the number of tokens that it holds.

    Shapes: hidden_states (B, T, E) -> (B, T, E)
    dtype:  that of hidden_states and the weight
    Errors: a place that has no row, behind the last or below 0, raises ValueError, which says
            the places and how many rows there are
    Source: Radford et al. 2019, GPT-2, https://openai.com/index/better-language-models
    """

    def __init__(self, max_position_embeddings: int, hidden_size: int):
        super().__init__()
        # YOUR CODE HERE (about 1 line)
        raise NotImplementedError("Exercise 2.8: LearnedPositions")

    def forward(self, hidden_states: Tensor, start: int = 0) -> Tensor:
        # YOUR CODE HERE (about 7 lines)
        raise NotImplementedError("Exercise 2.8: LearnedPositions")


# %% exercise 2.9: web_model_rotary
class WebRotary:
    def __init__(self, dim: int, base: float = 10000.0):
        self.inv_freq = base ** (-torch.arange(0, dim, 2) / dim)

    def __call__(self, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        angles = position_ids[..., None] * self.inv_freq
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()


def web_model_rotary(config: dict, position_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Make the tables of rope_cos_sin for the head_dim and the rope_theta of a config."""
    rotary = WebRotary(config["head_dim"])
    return rotary(position_ids)


# %% exercise 2.10: web_rope
def web_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate x by the tables of rope_cos_sin, in the layout of Qwen3."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return x * cos + torch.cat((-odd, even), dim=-1) * sin
