"""Lab 03: attention.

Let every token gather what it needs from the tokens before it. In grouped-query attention
several query heads read the same KV head, which makes the cache small.

Shapes: B batch, T new tokens, S cached + new tokens, E hidden_size, H query heads,
K KV heads, G = H/K queries per KV head, D head_dim.

A cache, where one is passed, has the one method that attention needs:
`cache.update(layer_idx, key, value)` stores what is new and returns all keys and values
so far (lab 07 builds it).
"""

import torch
from torch import Tensor, nn

from .config import MLAConfig, Qwen3Config
from .rmsnorm import RMSNorm
from .rope import apply_rotary_pos_emb


# %% exercise 3.1: causal_mask
def causal_mask(query_length: int, key_length: int) -> Tensor:
    """Which keys each query may attend to: itself and everything before it.

    The queries are the last of the keys: query number t is at position S - T + t.
    With a cache, S is larger than T.

    Shapes: -> (T, S) bool, True = may attend
    """
    ### BEGIN SOLUTION
    key_position = torch.arange(key_length)
    query_position = key_position[key_length - query_length :]
    return key_position <= query_position[:, None]  # (T, S)
    ### END SOLUTION


# %% exercise 3.2: scaled_dot_product_attention
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Mix the values, each weighted by how well its key matches the query.

        mixed = softmax(query key^T * scale, masked) value

    scale is D^-0.5 if not given. The mask is bool: True = may attend, False = the key gets no
    weight; None hides nothing. Here every query may attend to at least one key (exercise 3.6
    has the others).

    Shapes: query (B, H, T, D), key (B, H, S, D), value (B, H, S, features, often D),
            mask broadcasts to (B, H, T, S) -> (B, H, T, features)
    dtype:  the result has that of query, which key and value share
    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762
    """
    ### BEGIN SOLUTION
    scale = query.size(-1) ** -0.5 if scale is None else scale
    scores = query @ key.mT * scale  # (B, H, T, S)
    if mask is not None:  # with -inf a query that sees no key would give NaN, and it spreads
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1, dtype=torch.float32)  # (B, H, T, S)
    return weights.to(query.dtype) @ value  # (B, H, T, features)
    ### END SOLUTION


# %% exercise 3.3: repeat_kv
def repeat_kv(hidden_states: Tensor, n_rep: int) -> Tensor:
    """Lay each KV head out n_rep times in a row, one copy for every query head that reads it.

    KV heads (a, b) with n_rep 2 become (a, a, b, b): query heads 0 and 1 share a.

    Shapes: hidden_states (B, K, S, D) -> (B, K * n_rep, S, D)
    dtype:  that of hidden_states
    """
    ### BEGIN SOLUTION
    return hidden_states.repeat_interleave(n_rep, dim=1)  # (B, K * n_rep, S, D)
    ### END SOLUTION


# %% exercise 3.4: Qwen3Attention
class Qwen3Attention(nn.Module):
    """Grouped-query attention with a norm on every query and key head, as in Qwen3.

    Project to heads; normalize each head of query and key over its D features; turn them by
    their positions; store keys and values in the cache; attend with scale D^-0.5; project
    back. D is config.head_dim: H * D need not be E.

    The norms have one weight of size D each, shared by all heads, and config.rms_norm_eps. No
    projection has a bias, unless config.attention_bias gives one to all four.

    Parameters: q_proj, k_proj, v_proj, o_proj (Linear), q_norm, k_norm (RMSNorm)
    Shapes: hidden_states (B, T, E), cos and sin (B, T, D) or (1, T, D),
            a bool mask that broadcasts to (B, H, T, S), None hides nothing -> (B, T, E)
    dtype:  that of hidden_states and the weights; cos and sin always come in float32
    Source: Ainslie et al. 2023, https://arxiv.org/abs/2305.13245 (GQA);
            Henry et al. 2020, https://arxiv.org/abs/2010.04245, and Dehghani et al. 2023,
            https://arxiv.org/abs/2302.05442 (QK-Norm); Qwen3 2025, 2505.09388 (all of it)
    """

    def __init__(self, config: Qwen3Config, layer_idx: int):
        super().__init__()
        self.layer_idx = layer_idx
        self.head_dim = config.head_dim
        ### BEGIN SOLUTION
        self.n_rep = config.num_attention_heads // config.num_key_value_heads  # G
        query_size = config.num_attention_heads * config.head_dim  # H * D, need not be E
        kv_size = config.num_key_value_heads * config.head_dim  # K * D
        bias = config.attention_bias
        self.q_proj = nn.Linear(config.hidden_size, query_size, bias=bias)
        self.k_proj = nn.Linear(config.hidden_size, kv_size, bias=bias)
        self.v_proj = nn.Linear(config.hidden_size, kv_size, bias=bias)
        self.o_proj = nn.Linear(query_size, config.hidden_size, bias=bias)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
        ### END SOLUTION

    def forward(
        self,
        hidden_states: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor | None = None,
        cache=None,
    ) -> Tensor:
        ### BEGIN SOLUTION
        query = self.q_norm(self._heads(self.q_proj(hidden_states)))  # (B, H, T, D)
        key = self.k_norm(self._heads(self.k_proj(hidden_states)))  # (B, K, T, D)
        value = self._heads(self.v_proj(hidden_states))  # (B, K, T, D)
        query, key = apply_rotary_pos_emb(query, key, cos, sin)
        if cache is not None:
            key, value = cache.update(self.layer_idx, key, value)  # (B, K, S, D)
        key = repeat_kv(key, self.n_rep)  # (B, H, S, D)
        value = repeat_kv(value, self.n_rep)  # (B, H, S, D)
        scale = self.head_dim**-0.5
        mixed = scaled_dot_product_attention(query, key, value, mask, scale)  # (B, H, T, D)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))  # (B, T, H * D) -> (B, T, E)
        ### END SOLUTION

    def _heads(self, x: Tensor) -> Tensor:
        """Split the features into heads: (B, T, heads * D) -> (B, heads, T, D)."""
        ### BEGIN SOLUTION
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)  # (B, heads, T, D)
        ### END SOLUTION


# %% exercise 3.5: MultiHeadLatentAttention
class MultiHeadLatentAttention(nn.Module):
    """Attention whose cache holds one small latent per token instead of all keys and values.

    The latent (kv_lora_rank numbers) is expanded to the keys and values of every head when
    they are needed. Rotation would not survive that, so a second, rotated key of
    qk_rope_head_dim numbers is kept beside it and shared by all heads:

        query head = [from the query latent, without position | rotated part]
        key head   = [from the KV latent, without position    | shared rotated key]

    Both latents pass an RMSNorm with its default eps of 1e-6. No projection has a bias. The
    scale is (qk_nope_head_dim + qk_rope_head_dim)^-0.5.
    The cache stores the latent and the rotated key, each as one head: (B, 1, S, size).

    Parameters, and what their outputs hold, in this order:
        q_a_proj            the query latent, q_lora_rank; then q_a_layernorm
        q_b_proj            head by head: [qk_nope_head_dim | qk_rope_head_dim]
        kv_a_proj_with_mqa  [the KV latent, kv_lora_rank | the shared key, qk_rope_head_dim];
                            then kv_a_layernorm on the latent alone
        kv_b_proj           head by head: [key, qk_nope_head_dim | value, v_head_dim]
        o_proj              from H * v_head_dim back to E

    Shapes: hidden_states (B, T, E), cos and sin (B, T, qk_rope_head_dim) or with B = 1,
            a bool mask that broadcasts to (B, H, T, S), None hides nothing -> (B, T, E)
    dtype:  that of hidden_states and the weights; cos and sin always come in float32
    Source: DeepSeek-V2 2024, https://arxiv.org/abs/2405.04434
    """

    def __init__(self, config: MLAConfig, layer_idx: int):
        super().__init__()
        self.layer_idx = layer_idx
        self.config = config
        ### BEGIN SOLUTION
        heads = config.num_attention_heads
        qk_head_dim = config.qk_nope_head_dim + config.qk_rope_head_dim
        kv_head_dim = config.qk_nope_head_dim + config.v_head_dim
        latent_and_rope = config.kv_lora_rank + config.qk_rope_head_dim
        self.scale = qk_head_dim**-0.5
        self.q_a_proj = nn.Linear(config.hidden_size, config.q_lora_rank, bias=False)
        self.q_a_layernorm = RMSNorm(config.q_lora_rank)
        self.q_b_proj = nn.Linear(config.q_lora_rank, heads * qk_head_dim, bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(config.hidden_size, latent_and_rope, bias=False)
        self.kv_a_layernorm = RMSNorm(config.kv_lora_rank)
        self.kv_b_proj = nn.Linear(config.kv_lora_rank, heads * kv_head_dim, bias=False)
        self.o_proj = nn.Linear(heads * config.v_head_dim, config.hidden_size, bias=False)
        ### END SOLUTION

    def forward(
        self,
        hidden_states: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor | None = None,
        cache=None,
    ) -> Tensor:
        ### BEGIN SOLUTION
        nope, rope = self.config.qk_nope_head_dim, self.config.qk_rope_head_dim
        query = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(hidden_states)))
        query_nope, query_rope = self._heads(query).split((nope, rope), dim=-1)

        compressed = self.kv_a_proj_with_mqa(hidden_states)  # (B, T, kv_lora_rank + rope)
        latent, key_rope = compressed.split((self.config.kv_lora_rank, rope), dim=-1)
        latent = self.kv_a_layernorm(latent).unsqueeze(1)  # (B, 1, T, kv_lora_rank)
        key_rope = key_rope.unsqueeze(1)  # (B, 1, T, rope)
        query_rope, key_rope = apply_rotary_pos_emb(query_rope, key_rope, cos, sin)
        if cache is not None:
            latent, key_rope = cache.update(self.layer_idx, latent, key_rope)

        key_value = self._heads(self.kv_b_proj(latent.squeeze(1)))  # (B, H, S, nope + v)
        key_nope, value = key_value.split((nope, self.config.v_head_dim), dim=-1)
        key_rope = key_rope.expand(-1, self.config.num_attention_heads, -1, -1)
        query = torch.cat((query_nope, query_rope), dim=-1)  # (B, H, T, nope + rope)
        key = torch.cat((key_nope, key_rope), dim=-1)  # (B, H, S, nope + rope)
        mixed = scaled_dot_product_attention(query, key, value, mask, self.scale)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))  # (B, T, H * v) -> (B, T, E)
        ### END SOLUTION

    def _heads(self, x: Tensor) -> Tensor:
        """Split the features into heads: (B, T, heads * size) -> (B, heads, T, size)."""
        ### BEGIN SOLUTION
        heads = self.config.num_attention_heads
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)  # (B, H, T, size)
        ### END SOLUTION


# %% exercise 3.6: masked_softmax
def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """The weights of attention under any mask; zeros for a query that may attend to nothing.

    A bool mask says where a query may attend (True). A float mask is added to the scores: 0
    changes nothing, -inf and the lowest number of its dtype hide a key, any other number is a
    bias. Where the mask hides every key of a query, its weights are zeros, not NaN, whatever
    its scores are. No NaN comes back in the gradients, which reach scores and a float mask.

    Shapes: scores (B, H, T, S), mask broadcasts to (B, H, T, S) -> (B, H, T, S)
    dtype:  scores and a float mask have the same one; so do the weights
    """
    ### BEGIN SOLUTION
    allowed = mask
    if mask.dtype != torch.bool:
        allowed = mask > torch.finfo(mask.dtype).min  # False where nothing may be seen
        scores = scores + mask
    blind = ~allowed.any(dim=-1, keepdim=True)  # (B, H, T, 1) queries that see no key at all
    scores = scores.masked_fill(~allowed, -torch.inf)
    scores = scores.masked_fill(blind, 0.0)  # softmax over nothing but -inf would be NaN
    return scores.softmax(dim=-1).masked_fill(blind, 0.0)
    ### END SOLUTION


# %% exercise 3.7: WebAttention
class WebAttention(Qwen3Attention):
    """Attend as Qwen3Attention does, under a mask that is always given."""

    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        B, T, _ = hidden_states.shape
        q = self.q_proj(hidden_states).view(B, T, -1, self.head_dim).transpose(1, 2)
        k = self.k_proj(hidden_states).view(B, T, -1, self.head_dim).transpose(1, 2)
        v = self.v_proj(hidden_states).view(B, T, -1, self.head_dim).transpose(1, 2)
        q, k = self.q_norm(q), self.k_norm(k)
        q, k = apply_rotary_pos_emb(q, k, cos, sin)
        if cache is not None:
            k, v = cache.update(self.layer_idx, k, v)
        k, v = (repeat_kv(t, q.size(1) // t.size(1)) for t in (k, v))
        ### BEGIN SOLUTION
        scores = (q @ k.mT * self.head_dim**-0.5).masked_fill(~mask, -torch.inf)
        ### INSTEAD
        # scores = (q @ k.mT).masked_fill(~mask, -torch.inf)
        ### END SOLUTION
        mixed = scores.softmax(-1) @ v
        return self.o_proj(mixed.transpose(1, 2).flatten(2))
