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
    ### BEGIN SOLUTION
    even = torch.arange(0, head_dim, 2, dtype=torch.float32, device=position_ids.device)
    inv_freq = 1.0 / rope_theta ** (even / head_dim)  # (D/2,)
    angles = position_ids[..., None].float() * inv_freq  # (..., T, D/2)
    angles = torch.cat((angles, angles), dim=-1)  # (..., T, D)
    return angles.cos(), angles.sin()
    ### END SOLUTION


# %% exercise 2.2: rotate_half
def rotate_half(x: Tensor) -> Tensor:
    """Turn every pair, feature i and feature i + D/2, by 90 degrees: (a, b) becomes (-b, a).

    Shapes: x (..., D) -> (..., D)
    Source: https://github.com/huggingface/transformers (models/qwen3/modeling_qwen3.py)
    """
    ### BEGIN SOLUTION
    first, second = x.chunk(2, dim=-1)  # (..., D/2) each
    return torch.cat((-second, first), dim=-1)  # (..., D)
    ### END SOLUTION


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
    ### BEGIN SOLUTION
    cos = cos.to(query.dtype).unsqueeze(-3)  # (B, 1, T, D) the same for every head
    sin = sin.to(query.dtype).unsqueeze(-3)  # (B, 1, T, D)
    turned_query = query * cos + rotate_half(query) * sin  # (B, H, T, D)
    turned_key = key * cos + rotate_half(key) * sin  # (B, K, T, D)
    return turned_query, turned_key
    ### END SOLUTION


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
    ### BEGIN SOLUTION
    even = torch.arange(0, hidden_size, 2, dtype=torch.float32, device=position_ids.device)
    inv_freq = 1.0 / 10000.0 ** (even / hidden_size)  # (ceil(E/2),)
    angles = position_ids[..., None].float() * inv_freq  # (..., T, ceil(E/2))
    out = angles.new_zeros(*position_ids.shape, hidden_size)  # (..., T, E)
    out[..., 0::2] = angles.sin()
    out[..., 1::2] = angles.cos()[..., : hidden_size // 2]
    return out
    ### END SOLUTION


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

    ### BEGIN SOLUTION
    def slopes(count: int) -> list[float]:
        return [2 ** (-8 * (head + 1) / count) for head in range(count)]

    power = 2 ** int(math.log2(num_heads))
    slope = (slopes(power) + slopes(2 * power)[0::2])[:num_heads]
    key_position = torch.arange(key_length)
    query_position = key_position[key_length - query_length :]
    distance = (query_position[:, None] - key_position).abs()  # (T, S)
    return -torch.tensor(slope)[:, None, None] * distance  # (H, T, S)
    ### END SOLUTION


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
    ### BEGIN SOLUTION
    key_position = torch.arange(key.size(2), device=key.device)
    query_position = key_position[key.size(2) - query.size(2) :]
    distance = query_position[:, None] - key_position  # (T, S)
    by_content = (query + content_bias[:, None]) @ key.mT  # (B, H, T, S)
    by_distance = (query + position_bias[:, None]) @ relative_key.mT  # column d: distance d
    column = distance.clamp(min=0).expand_as(by_distance)  # (B, H, T, S)
    scores = by_content + by_distance.gather(-1, column)  # (B, H, T, S)
    return scores.masked_fill(distance < 0, -torch.inf)
    ### END SOLUTION


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

    ### BEGIN SOLUTION
    def index(turns: float) -> float:
        trained = original_max_position_embeddings / (2 * math.pi * turns)
        return head_dim * math.log(trained) / (2 * math.log(rope_theta))

    low = max(math.floor(index(beta_fast)), 0)
    high = max(min(math.ceil(index(beta_slow)), head_dim - 1), low + 0.001)
    pair = torch.arange(head_dim // 2, dtype=torch.float32, device=position_ids.device)
    ramp = ((pair - low) / (high - low)).clamp(0, 1)  # (D/2,) 0 stays, 1 slows down
    inv_freq = 1.0 / rope_theta ** (2 * pair / head_dim)  # (D/2,)
    inv_freq = inv_freq * (1 - ramp) + inv_freq / factor * ramp
    angles = position_ids[..., None].float() * inv_freq  # (..., T, D/2)
    angles = torch.cat((angles, angles), dim=-1)  # (..., T, D)
    if attention_factor is None:
        attention_factor = 0.1 * math.log(factor) + 1.0
    return angles.cos() * attention_factor, angles.sin() * attention_factor
    ### END SOLUTION


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
        ### BEGIN SOLUTION
        self.wpe = nn.Embedding(max_position_embeddings, hidden_size)
        ### END SOLUTION

    def forward(self, hidden_states: Tensor, start: int = 0) -> Tensor:
        ### BEGIN SOLUTION
        rows, end = self.wpe.num_embeddings, start + hidden_states.size(1)
        if start < 0 or end > rows:
            raise ValueError(
                f"the tokens stand at places {start} to {end - 1}, but there are only {rows} "
                "rows, from 0 on: shorten the text"
            )
        return hidden_states + self.wpe.weight[start:end]  # (B, T, E) + (T, E)
        ### END SOLUTION


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
    ### BEGIN SOLUTION
    rotary = WebRotary(config["head_dim"], config["rope_theta"])
    ### INSTEAD
    # rotary = WebRotary(config["head_dim"])
    ### END SOLUTION
    return rotary(position_ids)


# %% exercise 2.10: web_rope
def web_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate x by the tables of rope_cos_sin, in the layout of Qwen3."""
    ### BEGIN SOLUTION
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
    ### INSTEAD
    # even, odd = x[..., 0::2], x[..., 1::2]
    # return x * cos + torch.cat((-odd, even), dim=-1) * sin
    ### END SOLUTION
