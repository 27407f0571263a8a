"""Lab 12: after Qwen3, the hybrid layer of Qwen3-Next and Qwen3.5.

Three ways to remember a long text in little space: a window over the last tokens, a gate
behind attention, and a state of fixed size that is corrected with each token.

Shapes: B batch, T new tokens, S cached + new tokens, E hidden_size, H query heads, K KV heads,
D head_dim. In a layer with a state: N key heads, M value heads (M a multiple of N), P features
of a key, Q features of a value, C = 2NP + MQ channels of the convolution, W its width. In a
mixture: X experts, k of them per token.
"""

import torch
from torch import Tensor, nn

from .config import Qwen3NextConfig
from .gqa import repeat_kv, scaled_dot_product_attention
from .moe import Qwen3MoeSparseMoeBlock
from .rope import apply_rotary_pos_emb
from .swiglu import Qwen3MLP, silu


# %% exercise 12.1: sliding_window_mask
def sliding_window_mask(
    query_length: int, key_length: int, window: int, sinks: int = 0
) -> Tensor:
    """Which keys each query may attend to: the last `window` tokens and the first `sinks`.

    The window counts the query's own token: with window 1 a token sees itself alone. The
    first `sinks` tokens of the text stay visible forever, but no token sees a later one. The
    queries are the last of the keys: query number t is at position S - T + t.

    Shapes: -> (T, S) bool, True = may attend
    Errors: window below 1 or sinks below 0 raises ValueError
    Source: Beltagy et al. 2020, https://arxiv.org/abs/2004.05150 (window);
            Xiao et al. 2023, https://arxiv.org/abs/2309.17453 (sinks)
    """
    if window < 1 or sinks < 0:
        raise ValueError(f"window is {window}, sinks is {sinks}; at least 1 and 0 are needed")
    # YOUR CODE HERE (about 5 lines)
    raise NotImplementedError("Exercise 12.1: sliding_window_mask")


# %% exercise 12.2: GatedAttention
class Qwen3NextRMSNorm(nn.Module):
    """RMSNorm whose weight is stored as its distance from 1.

        y = x / sqrt(mean(x^2) + eps) * (1 + weight)

    weight is zeros at the start, so that weight decay pulls the scale to 1 and not to 0. Write
    it with basic operations: F.rms_norm is not allowed.

    Shapes: hidden_states (..., E) -> (..., E); weight (E,)
    dtype:  everything in float32, the product with 1 + weight included; the result in the
            dtype of hidden_states
    Source: https://github.com/huggingface/transformers (models/qwen3_next)
    """

    def __init__(self, hidden_size: int, eps: float = 1e-6):
        super().__init__()
        # YOUR CODE HERE (about 2 lines)
        raise NotImplementedError("Exercise 12.2: Qwen3NextRMSNorm, GatedAttention")

    def forward(self, hidden_states: Tensor) -> Tensor:
        # YOUR CODE HERE (about 4 lines)
        raise NotImplementedError("Exercise 12.2: Qwen3NextRMSNorm, GatedAttention")


class GatedAttention(nn.Module):
    """Qwen3's attention with three changes: other norms, few rotated features, and a gate.

    q_proj is twice as wide as in Qwen3. Of each head's 2D features the first D are the query,
    the last D the gate. q_norm and k_norm work on the D features of each head. Only the first
    R features of queries and keys are rotated, with R the width of cos and sin; the other
    D - R carry no position. Keys and values go through the cache, and attention has scale
    D^-0.5, as in lab 03. Before o_proj each feature of each head is multiplied by the sigmoid
    of its gate.

    Parameters: q_proj (E -> H * 2D), k_proj, v_proj (E -> K * D), o_proj (H * D -> E), without
            bias; q_norm, k_norm (Qwen3NextRMSNorm, config.rms_norm_eps)
    Shapes: hidden_states (B, T, E), cos and sin (B, T, R) or (1, T, R),
            a bool mask that broadcasts to (B, H, T, S), None hides nothing -> (B, T, E)
    dtype:  that of hidden_states and the weights; cos and sin always come in float32
    Source: Qiu et al. 2025, https://arxiv.org/abs/2505.06708
    """

    def __init__(self, config: Qwen3NextConfig, layer_idx: int):
        super().__init__()
        self.layer_idx = layer_idx
        self.head_dim = config.head_dim
        self.n_rep = config.num_attention_heads // config.num_key_value_heads  # G
        query_size = config.num_attention_heads * config.head_dim  # H * D
        kv_size = config.num_key_value_heads * config.head_dim  # K * D
        self.q_proj = nn.Linear(config.hidden_size, 2 * query_size, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, kv_size, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, kv_size, bias=False)
        self.o_proj = nn.Linear(query_size, config.hidden_size, bias=False)
        self.q_norm = Qwen3NextRMSNorm(config.head_dim, config.rms_norm_eps)
        self.k_norm = Qwen3NextRMSNorm(config.head_dim, config.rms_norm_eps)

    def forward(
        self,
        hidden_states: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor | None = None,
        cache=None,
    ) -> Tensor:
        # YOUR CODE HERE (about 17 lines)
        raise NotImplementedError("Exercise 12.2: Qwen3NextRMSNorm, GatedAttention")

    def _heads(self, x: Tensor) -> Tensor:
        """Split the features into heads: (B, T, heads * D) -> (B, T, heads, D)."""
        return x.unflatten(-1, (-1, self.head_dim))


# %% exercise 12.3: gated_delta_step
def gated_delta_step(
    state: Tensor, query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """Fade a state, correct the value that it holds for one key, and read it with one query.

        state = exp(g) state                              fade
        error = value - state^T key                       how far the state is off for key
        state = state + key (beta error)^T                write: beta 1 replaces, 0 keeps
        output = state^T query                            read

    The state is a matrix that maps keys to values. It fades before it is read for the error,
    and the output comes from the new state. Keys of length 1 are expected, no norm is taken
    here, and no scale. The state that comes in stays as it is. Gradients flow to every input,
    so write with new tensors, not in place.

    Shapes: state (..., P, Q), query and key (..., P), value (..., Q), g and beta (...)
            -> output (..., Q), state (..., P, Q)
    Source: Yang, Kautz, Hatamizadeh 2024, https://arxiv.org/abs/2412.06464
    """
    # YOUR CODE HERE (about 5 lines)
    raise NotImplementedError("Exercise 12.3: gated_delta_step")


# %% exercise 12.4: gated_delta_rule
def prepare_heads(
    query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """What the rule works on: all in float32, heads before tokens, M heads each.

    Each query and each key is divided by sqrt(sum of its squares + 1e-6), so that keys have
    length 1; queries are then multiplied by P^-0.5. Value heads i * M/N to (i + 1) * M/N - 1
    share key head i, as in lab 03's repeat_kv.

    Shapes: query and key (B, T, N, P), value (B, T, M, Q), g and beta (B, T, M)
            -> query and key (B, M, T, P), value (B, M, T, Q), g and beta (B, M, T)
    dtype:  float32, for inputs of any dtype
    """
    # YOUR CODE HERE (about 7 lines)
    raise NotImplementedError("Exercise 12.4: prepare_heads, gated_delta_rule")


def gated_delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    initial_state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Carry a state through a text, one gated_delta_step for each token.

    prepare_heads comes first. The state begins as initial_state, or as zeros where none is
    given. The last state goes out, too, so that a text may be read in pieces.

    Shapes: query and key (B, T, N, P), value (B, T, M, Q), g and beta (B, T, M),
            initial_state (B, M, P, Q) -> output (B, T, M, Q), state (B, M, P, Q)
    dtype:  float32 inside; the output in the dtype of value, the state in float32
    Source: Yang, Kautz, Hatamizadeh 2024, https://arxiv.org/abs/2412.06464
    """
    # YOUR CODE HERE (about 12 lines)
    raise NotImplementedError("Exercise 12.4: prepare_heads, gated_delta_rule")


# %% exercise 12.5: chunk_gated_delta_rule
def chunk_gated_delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    initial_state: Tensor | None = None,
    chunk_size: int = 64,
) -> tuple[Tensor, Tensor]:
    """gated_delta_rule in a few large products: chunk_size tokens at once.

    Within a chunk that begins with `state`, let d_i be the sum of its g up to token i, that
    token included. What token i writes, w_i, depends on what the tokens before it wrote:

        w_i + sum_{j<i} beta_i exp(d_i - d_j) (key_i . key_j) w_j
                                     = beta_i (value_i - exp(d_i) state^T key_i)
        output_i = exp(d_i) state^T query_i + sum_{j<=i} exp(d_i - d_j) (query_i . key_j) w_j
        state    = exp(d_last) state + sum_j exp(d_last - d_j) key_j w_j^T

    The first line is one triangular system for the whole chunk. The last chunk may be shorter.
    exp(d_i - d_j) overflows where j > i: hide those pairs before exp, or their gradients become
    nan. A loop goes over chunks, never over all tokens: for 1,024 tokens in chunks of 64 at
    most 4,000 torch operations (the rows of the systems may be solved in a loop if it serves
    all chunks at once). No matrix is larger than chunk_size asks for.

    Shapes: those of gated_delta_rule
    dtype:  that of gated_delta_rule
    Source: Yang et al. 2024, https://arxiv.org/abs/2406.06484
    """
    # YOUR CODE HERE (about 24 lines)
    raise NotImplementedError("Exercise 12.5: chunk_gated_delta_rule")


# %% exercise 12.6: GatedDeltaNet
class Qwen3NextRMSNormGated(nn.Module):
    """RMSNorm, then a gate that lets each feature of a state's output through, or not.

        y = x / sqrt(mean(x^2) + eps) * weight * silu(gate)

    weight is ones at the start (here no 1 is added). F.rms_norm is not allowed here either.

    Shapes: hidden_states and gate (..., Q) -> (..., Q); weight (Q,)
    dtype:  the norm in float32, back to the input's dtype, times weight; then times silu(gate)
            in float32, and back to the input's dtype
    Source: https://github.com/huggingface/transformers (models/qwen3_next)
    """

    def __init__(self, hidden_size: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps

    def forward(self, hidden_states: Tensor, gate: Tensor) -> Tensor:
        # YOUR CODE HERE (about 5 lines)
        raise NotImplementedError("Exercise 12.6: Qwen3NextRMSNormGated, GatedDeltaNet")


class GatedDeltaNet(nn.Module):
    """The mixer of three layers in four: a short convolution, the rule, a gated norm.

    Queries, keys and values pass a convolution over time, each channel by itself: the output
    at token t is the sum of conv1d.weight[c, 0, w] * input[t - W + 1 + w] over w < W; inputs
    before the text are 0. Then silu. Per value head,

        beta = sigmoid(b)                                 how much is written
        g    = -exp(A_log) softplus(a + dt_bias)          how much fades, in float32

    The rule is self.rule, called with (query, key, value, g, beta, its state): at first
    gated_delta_rule, but chunk_gated_delta_rule can be put in its place. Its output goes
    through `norm` with gate z, head by head, then through out_proj.

    state is what an earlier piece of the text gave: (the last W - 1 inputs of the convolution,
    the state of the rule); None at the beginning of a text. The new one goes out.
    attention_mask is 0 where there is padding before a text. Padding enters the convolution as
    zeros, so that it writes nothing; None means that there is none.

    Parameters: in_proj_qkvz, in_proj_ba, conv1d.weight (C, 1, W), dt_bias, A_log (M,),
            norm (Qwen3NextRMSNormGated), out_proj
    Shapes: hidden_states (B, T, E), attention_mask (B, T) of 0 and 1, int64
            -> (B, T, E) and ((B, C, W - 1), (B, M, P, Q))
    dtype:  that of hidden_states and the weights; the rule's state in float32
    Source: Yang, Kautz, Hatamizadeh 2024, https://arxiv.org/abs/2412.06464
    """

    def __init__(self, config: Qwen3NextConfig, layer_idx: int):
        super().__init__()
        self.layer_idx, self.config, self.rule = layer_idx, config, gated_delta_rule
        value_heads = config.linear_num_value_heads  # M
        self.key_size = config.linear_num_key_heads * config.linear_key_head_dim  # N * P
        self.value_size = value_heads * config.linear_value_head_dim  # M * Q
        channels = 2 * self.key_size + self.value_size  # C
        width = config.linear_conv_kernel_dim  # W
        in_size = channels + self.value_size
        self.in_proj_qkvz = nn.Linear(config.hidden_size, in_size, bias=False)
        self.in_proj_ba = nn.Linear(config.hidden_size, 2 * value_heads, bias=False)
        self.conv1d = nn.Conv1d(channels, channels, width, groups=channels, bias=False)
        step = 10 ** torch.empty(value_heads).uniform_(
            -3, -1
        )  # softplus(dt_bias): fades slowly
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.A_log = nn.Parameter(torch.empty(value_heads).uniform_(0.01, 16).log())
        self.norm = Qwen3NextRMSNormGated(config.linear_value_head_dim, config.rms_norm_eps)
        self.out_proj = nn.Linear(self.value_size, config.hidden_size, bias=False)

    def forward(
        self,
        hidden_states: Tensor,
        state: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        mixed, z, b, a = self._project(hidden_states)  # (B, T, C), (B, T, M, Q), (B, T, M) x 2
        # YOUR CODE HERE (about 16 lines)
        raise NotImplementedError("Exercise 12.6: Qwen3NextRMSNormGated, GatedDeltaNet")

    def _project(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """in_proj_qkvz and in_proj_ba, whose outputs are ordered key head by key head:

            [query P | key P | values M/N * Q | gates z M/N * Q]   and   [b M/N | a M/N]

        -> queries, keys, values (B, T, C); z (B, T, M, Q); b and a (B, T, M)
        """
        config = self.config
        heads = config.linear_num_key_heads  # N
        key_dim, value_dim = config.linear_key_head_dim, self.value_size // heads
        qkvz = self.in_proj_qkvz(hidden_states).unflatten(-1, (heads, -1))
        *qkv, z = qkvz.split((key_dim, key_dim, value_dim, value_dim), dim=-1)
        b, a = self.in_proj_ba(hidden_states).unflatten(-1, (heads, -1)).chunk(2, dim=-1)
        mixed = torch.cat([x.flatten(2) for x in qkv], dim=-1)  # (B, T, C)
        z = z.flatten(2).unflatten(-1, (-1, config.linear_value_head_dim))
        return mixed, z, b.flatten(2), a.flatten(2)

    def _split(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, T, C) -> query and key (B, T, N, P), value (B, T, M, Q)."""
        sizes = (self.key_size, self.key_size, self.value_size)
        query, key, value = mixed.split(sizes, dim=-1)
        key_dim = self.config.linear_key_head_dim
        value = value.unflatten(-1, (-1, self.config.linear_value_head_dim))
        return query.unflatten(-1, (-1, key_dim)), key.unflatten(-1, (-1, key_dim)), value


# %% exercise 12.7: Qwen3NextSparseMoeBlock
class Qwen3NextSparseMoeBlock(Qwen3MoeSparseMoeBlock):
    """Lab 05's mixture of experts, and one more expert that serves every token.

        y = mixture(x) + sigmoid(shared_expert_gate(x)) * shared_expert(x)

    The router does not know the shared expert. The gate is one number per token.

    Parameters: those of Qwen3MoeSparseMoeBlock; shared_expert, a Qwen3MLP of size
            config.shared_expert_intermediate_size; shared_expert_gate (E -> 1), without bias
    Shapes: hidden_states (B, T, E) -> (B, T, E) and router_logits (B * T, X)
    dtype:  that of hidden_states and of the weights
    Source: Dai et al. 2024, https://arxiv.org/abs/2401.06066 (shared experts);
            https://github.com/huggingface/transformers (models/qwen3_next, the gate)
    """

    def __init__(self, config: Qwen3NextConfig):
        super().__init__(config)
        # YOUR CODE HERE (about 3 lines)
        raise NotImplementedError("Exercise 12.7: Qwen3NextSparseMoeBlock")

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        # YOUR CODE HERE (about 3 lines)
        raise NotImplementedError("Exercise 12.7: Qwen3NextSparseMoeBlock")


# %% exercise 12.8: web_window
def web_window(length: int, window: int) -> Tensor:
    """Make the mask of sliding_window_mask for a text with nothing cached: (T, T)."""
    key = torch.arange(length)
    behind = key[:, None] - key  # (T, T)
    return (behind >= 0) & (behind <= window)


# %% exercise 12.9: web_step
def web_step(
    state: Tensor, query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """Take the step of gated_delta_step."""
    error = value - torch.einsum("...pq,...p->...q", state, key)
    state = state * g.exp()[..., None, None]
    state = state + key[..., None] * (beta[..., None] * error)[..., None, :]
    return torch.einsum("...pq,...p->...q", state, query), state


# %% exercise 12.10: web_convolution
def web_convolution(inputs: Tensor, weight: Tensor) -> Tensor:
    """Mix each channel of the inputs with its last W tokens; no token sees a later one.

    Shapes: inputs (B, C, T), weight (C, 1, W) -> (B, C, T)
    """
    width, channels = weight.size(-1), inputs.size(1)
    inputs = nn.functional.pad(inputs, (width // 2, (width - 1) // 2))
    return nn.functional.conv1d(inputs, weight, groups=channels)
