# The code of transformers for lab 12, in the course's signatures.

# %% exercise 12.1: sliding_window_causal_mask_function
from transformers.masking_utils import sliding_window_causal_mask_function


def sliding_window_mask(query_length, key_length, window, sinks=0):
    query = torch.arange(key_length - query_length, key_length)[:, None]
    key = torch.arange(key_length)
    near = sliding_window_causal_mask_function(window)(0, 0, query, key)
    return near | ((key < sinks) & (key <= query))  # it has no sinks


# %% exercise 12.2: Qwen3NextAttention
import transformers
from transformers.models.qwen3_next import modeling_qwen3_next as theirs


class Qwen3NextRMSNorm(theirs.Qwen3NextRMSNorm):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__(hidden_size, eps)

    def forward(self, hidden_states):
        return super().forward(hidden_states)


class InOurOrder:
    """update(layer_idx, key, value) for a caller who says update(key, value, layer_idx)."""

    def __init__(self, cache):
        self.cache = cache

    def update(self, key, value, layer_idx):
        return self.cache.update(layer_idx, key, value)


class GatedAttention(theirs.Qwen3NextAttention):
    def __init__(self, config, layer_idx):
        sizes = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim")
        named = {name: getattr(config, name) for name in (*sizes, "rms_norm_eps")}
        made = transformers.Qwen3NextConfig(**named, attn_implementation="eager")
        super().__init__(made, layer_idx)

    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        if mask is not None:
            lowest = torch.finfo(hidden_states.dtype).min
            added = torch.zeros(mask.shape, dtype=hidden_states.dtype)
            mask = added.masked_fill(~mask, lowest)
        angles = tuple(table.to(hidden_states.dtype) for table in (cos, sin))
        cache = None if cache is None else InOurOrder(cache)
        return super().forward(hidden_states, angles, mask, cache)[0]


# %% exercise 12.4: torch_recurrent_gated_delta_rule
from transformers.models.qwen3_next import modeling_qwen3_next as theirs


def prepare_heads(query, key, value, g, beta):
    times = value.size(2) // key.size(2)
    query, key = (theirs.l2norm(x.float()) for x in (query, key))
    heads = [x.repeat_interleave(times, dim=2).transpose(1, 2) for x in (query, key)]
    rest = [x.float().transpose(1, 2) for x in (value, g, beta)]
    return heads[0] * key.size(-1) ** -0.5, heads[1], *rest


def gated_delta_rule(query, key, value, g, beta, initial_state=None):
    output, state = theirs.torch_recurrent_gated_delta_rule(
        query.to(torch.float32), key, value, g, beta, initial_state=initial_state,
        output_final_state=True, use_qk_l2norm_in_kernel=True,
    )  # fmt: skip
    return output.to(value.dtype), state


# %% exercise 12.5: torch_chunk_gated_delta_rule
from transformers.models.qwen3_next import modeling_qwen3_next as theirs


def chunk_gated_delta_rule(query, key, value, g, beta, initial_state=None, chunk_size=64):
    output, state = theirs.torch_chunk_gated_delta_rule(
        query.to(torch.float32), key, value, g, beta, chunk_size=chunk_size,
        initial_state=initial_state, output_final_state=True, use_qk_l2norm_in_kernel=True,
    )  # fmt: skip
    return output.to(value.dtype), state


# %% exercise 12.6: Qwen3NextGatedDeltaNet
from contextlib import nullcontext
from unittest.mock import patch

import transformers
from transformers import DynamicCache
from transformers.models.qwen3_next import modeling_qwen3_next as theirs


class Qwen3NextRMSNormGated(theirs.Qwen3NextRMSNormGated):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__(hidden_size, eps)


class GatedDeltaNet(theirs.Qwen3NextGatedDeltaNet):
    def __init__(self, config, layer_idx):
        sizes = [name for name in vars(config) if name.startswith("linear_")]
        named = {
            name: getattr(config, name) for name in (*sizes, "rms_norm_eps", "hidden_size")
        }
        made = transformers.Qwen3NextConfig(**named, num_hidden_layers=4)
        super().__init__(made, layer_idx)
        self.their_config = made

    def forward(self, hidden_states, state=None, attention_mask=None):
        """Their cache keeps W columns; the oldest is not used again. Their layer has no
        self.rule to replace: a rule that a check sets gets the inputs of theirs."""
        cache = DynamicCache(config=self.their_config)
        layer = cache.layers[self.layer_idx]
        if state is not None:
            held = nn.functional.pad(state[0], (1, 0))
            cache.update_conv_state(held, self.layer_idx, conv_kernel_size=held.size(-1))
            cache.update_recurrent_state(state[1], self.layer_idx)
        given = []

        def rule(query, key, value, g, beta, initial_state=None, **_):
            output, memory = self.rule(query, key, value, g, beta, initial_state)
            given.append(memory)
            return output, value.new_zeros(state[1].shape) if state else memory

        rules = "torch_recurrent_gated_delta_rule", "torch_chunk_gated_delta_rule"
        replaced = dict.fromkeys(rules if hasattr(self, "rule") else (), rule)
        with patch.multiple(theirs, **replaced) if replaced else nullcontext():
            output = super().forward(hidden_states, cache, attention_mask)
        held, memory = layer.conv_states[0], layer.recurrent_states[0]
        return output, (held[..., 1 - self.conv_kernel_size :], given[0] if given else memory)


# %% exercise 12.7: Qwen3NextSparseMoeBlock
import transformers
from transformers.models.qwen3_next import modeling_qwen3_next as theirs


class Qwen3NextSparseMoeBlock(Qwen3MoeSparseMoeBlock):
    """Lab 05's block for the mixture: theirs keeps all experts in one tensor."""

    def __init__(self, config):
        super().__init__(config)
        named = {"hidden_size": config.hidden_size, "hidden_act": "silu"}
        made = transformers.Qwen3NextConfig(**named)
        size = config.shared_expert_intermediate_size
        self.shared_expert = theirs.Qwen3NextMLP(made, intermediate_size=size)
        self.shared_expert_gate = nn.Linear(config.hidden_size, 1, bias=False)

    def forward(self, hidden_states):
        mixed, router_logits = super().forward(hidden_states)
        share = self.shared_expert_gate(hidden_states).sigmoid()
        return mixed + share * self.shared_expert(hidden_states), router_logits
