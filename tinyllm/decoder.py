"""Lab 06: the decoder.

Put the parts together: embeddings in, layers of attention and feed-forward with a residual
stream between them, one score for every word of the vocabulary out.

Shapes: B batch, T new tokens, S cached + new tokens, N = B*T flattened tokens,
E hidden_size, D head_dim, X experts, V vocab_size.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from .config import Qwen3Config
from .gqa import Qwen3Attention, causal_mask
from .moe import Qwen3MoeSparseMoeBlock, uses_experts
from .rmsnorm import RMSNorm
from .rope import rope_cos_sin
from .swiglu import Qwen3MLP


# %% exercise 6.1: Qwen3DecoderLayer
class Qwen3DecoderLayer(nn.Module):
    """One layer: attention, then feed-forward, each on normed input and added to the stream.

    input_layernorm belongs to attention, post_attention_layernorm to mlp, which reads the
    stream with attention's output already in it. Neither norm touches the stream itself.
    mlp is a mixture of experts where uses_experts(config, layer_idx), else a Qwen3MLP. Both
    norms take config.rms_norm_eps. The hidden_states that come in stay as they are.

    Shapes: hidden_states (B, T, E), cos and sin (B, T, D) or (1, T, D),
            a bool mask that broadcasts to (B, H, T, S), None hides nothing
            -> hidden_states (B, T, E) and router_logits (N, X), None without experts
    dtype:  that of hidden_states and of the weights
    Source: Qwen3 2025, https://arxiv.org/abs/2505.09388
    """

    def __init__(self, config: Qwen3Config, layer_idx: int):
        super().__init__()
        self.uses_experts = uses_experts(config, layer_idx)
        # YOUR CODE HERE (about 4 lines)
        raise NotImplementedError("Exercise 6.1: Qwen3DecoderLayer")

    def forward(
        self,
        hidden_states: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor | None = None,
        cache=None,
    ) -> tuple[Tensor, Tensor | None]:
        # YOUR CODE HERE (about 7 lines)
        raise NotImplementedError("Exercise 6.1: Qwen3DecoderLayer")


# %% given: what a model refuses
def check_inputs(
    config: Qwen3Config, input_ids: Tensor, attention_mask: Tensor | None, cached: int
) -> None:
    """Raise ValueError if the model cannot work on these tokens, and say why."""
    if input_ids.dim() != 2 or input_ids.numel() == 0:
        raise ValueError(
            f"input_ids has shape {tuple(input_ids.shape)}; expected (batch, tokens), "
            "at least one of each: an empty prompt has nothing to continue"
        )
    batch, length = input_ids.size(0), cached + input_ids.size(1)
    lowest, highest = int(input_ids.min()), int(input_ids.max())
    if lowest < 0 or highest >= config.vocab_size:
        raise ValueError(
            f"input_ids holds token {lowest if lowest < 0 else highest}; the vocabulary has "
            f"0 to {config.vocab_size - 1}: is this the model's own tokenizer?"
        )
    if length > config.max_position_embeddings:
        raise ValueError(
            f"input_ids reaches position {length - 1} ({cached} tokens cached); "
            f"max_position_embeddings allows {config.max_position_embeddings} tokens"
        )
    if attention_mask is not None and attention_mask.shape != (batch, length):
        raise ValueError(
            f"attention_mask has shape {tuple(attention_mask.shape)}; expected "
            f"{(batch, length)}: one column for every cached and every new token"
        )


# %% exercise 6.2: Qwen3Model
class Qwen3Model(nn.Module):
    """The stack: embed the tokens, run every layer, normalize once more.

    attention_mask is 1 (or True) for real tokens, 0 (or False) for padding; without one all
    are real. Positions count real tokens only, from 0, so a prompt padded on the left still
    starts at 0. With a cache, the new tokens continue after its cache.length tokens, and
    attention_mask covers all S. The layers get a bool mask, as in lab 03: True = may attend.
    The final norm also takes config.rms_norm_eps.

    Shapes: input_ids (B, T), attention_mask (B, S)
            -> hidden_states (B, T, E) and router_logits: (N, X) for every layer with experts
    dtype:  that of the weights; but positions are integers and angles float32: bfloat16
            counts to 256
    Errors: see check_inputs
    """

    def __init__(self, config: Qwen3Config):
        super().__init__()
        self.config = config
        # YOUR CODE HERE (about 6 lines)
        raise NotImplementedError("Exercise 6.2: Qwen3Model")

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, cache=None
    ) -> tuple[Tensor, list[Tensor]]:
        cached = 0 if cache is None else cache.length
        check_inputs(self.config, input_ids, attention_mask, cached)
        # YOUR CODE HERE (about 15 lines)
        raise NotImplementedError("Exercise 6.2: Qwen3Model")


# %% given: initial weights
def init_weights(model: nn.Module, std: float, generator: torch.Generator | None = None):
    """Draw every matrix from a normal distribution; biases 0, norm weights stay 1."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=std, generator=generator)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


# %% exercise 6.3: Qwen3ForCausalLM
class Qwen3ForCausalLM(nn.Module):
    """The language model: the stack, and a head that scores every word as the next one.

    The head scores what the stack returns. lm_head has no bias. Where
    config.tie_word_embeddings, its weight is not a copy of embed_tokens.weight but the very
    same Parameter.

    Shapes: input_ids (B, T), attention_mask (B, S) -> logits (B, T, V);
            with output_router_logits (logits, list of router logits (N, X))
    dtype:  that of the weights
    Errors: see check_inputs
    """

    def __init__(self, config: Qwen3Config):
        super().__init__()
        self.config = config
        # YOUR CODE HERE (about 2 lines)
        raise NotImplementedError("Exercise 6.3: Qwen3ForCausalLM")
        self.tie_weights()
        init_weights(self, config.initializer_range)

    def tie_weights(self) -> None:
        """Make lm_head and embed_tokens share one Parameter, if the config asks for it.

        Called once more by load_state_dict, which may bring new Parameters.
        """
        # YOUR CODE HERE (about 2 lines)
        raise NotImplementedError("Exercise 6.3: Qwen3ForCausalLM")

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        cache=None,
        output_router_logits: bool = False,
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        # YOUR CODE HERE (about 3 lines)
        raise NotImplementedError("Exercise 6.3: Qwen3ForCausalLM")

    def load_state_dict(self, state_dict: Mapping, strict: bool = True, assign: bool = False):
        """Load a checkpoint; one with tied embeddings holds the shared tensor only once."""
        embedding = state_dict.get("model.embed_tokens.weight")
        if self.config.tie_word_embeddings and embedding is not None:
            state_dict = {"lm_head.weight": embedding, **state_dict}
        result = super().load_state_dict(state_dict, strict, assign)
        self.tie_weights()  # assign=True has made two Parameters of one
        return result


# %% exercise 6.4: count_parameters
def count_parameters(config: Qwen3Config) -> tuple[int, int]:
    """Total number of parameters, and how many of them are active for one token.

    The config alone says it; the largest models would not fit into memory. A tied head
    counts once. Of each mixture of experts, num_experts_per_tok experts and the router are
    active; all the rest of the model always is.

    Shapes: -> (total, active), equal for a dense model
    Source: model cards, for example https://huggingface.co/Qwen/Qwen3-30B-A3B
    """
    # YOUR CODE HERE (about 20 lines)
    raise NotImplementedError("Exercise 6.4: count_parameters")


# %% exercise 6.5: WebLayer
class WebLayer(Qwen3DecoderLayer):
    """Do what a dense Qwen3DecoderLayer does."""

    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        x = hidden_states
        x = self.input_layernorm(x)
        x = x + self.self_attn(x, cos, sin, mask, cache)
        x = self.post_attention_layernorm(x)
        x = x + self.mlp(x)
        return x, None
