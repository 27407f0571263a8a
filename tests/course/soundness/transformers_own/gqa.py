# The code of transformers for lab 03, in the course's signatures. Its masks are added.

# %% exercise 3.1: causal_mask_function
from transformers.masking_utils import causal_mask_function


def causal_mask(query_length, key_length):
    query = torch.arange(key_length - query_length, key_length)[:, None]
    return causal_mask_function(0, 0, query, torch.arange(key_length))


# %% exercise 3.2: eager_attention_forward of Qwen3
from types import SimpleNamespace

from transformers.models.qwen3.modeling_qwen3 import eager_attention_forward


def scaled_dot_product_attention(query, key, value, mask=None, scale=None):
    if mask is not None:
        lowest = torch.finfo(query.dtype).min
        mask = torch.zeros(mask.shape, dtype=query.dtype).masked_fill(~mask, lowest)
    layer = SimpleNamespace(num_key_value_groups=1, training=False)
    scaling = query.size(-1) ** -0.5 if scale is None else scale
    return eager_attention_forward(layer, query, key, value, mask, scaling)[0].transpose(1, 2)


# %% exercise 3.3: repeat_kv of Qwen3
from transformers.models.qwen3.modeling_qwen3 import repeat_kv


# %% exercise 3.4: Qwen3Attention
import transformers
from transformers.models.qwen3 import modeling_qwen3 as qwen3


class InOurOrder:
    """update(layer_idx, key, value) for a caller who says update(key, value, layer_idx)."""

    def __init__(self, cache):
        self.cache = cache

    def update(self, key, value, layer_idx):
        return self.cache.update(layer_idx, key, value)


class Qwen3Attention(qwen3.Qwen3Attention):
    def __init__(self, config, layer_idx):
        theirs = transformers.Qwen3Config(**config.to_dict(), attn_implementation="eager")
        super().__init__(theirs, layer_idx)

    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        if mask is not None:
            lowest = torch.finfo(hidden_states.dtype).min
            added = torch.zeros(mask.shape, dtype=hidden_states.dtype)
            mask = added.masked_fill(~mask, lowest)
        angles = tuple(table.to(hidden_states.dtype) for table in (cos, sin))
        cache = None if cache is None else InOurOrder(cache)
        return super().forward(hidden_states, angles, mask, cache)[0]


# %% exercise 3.5: DeepseekV3Attention
import transformers
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek


class InOurOrder:
    """update(layer_idx, key, value) for a caller who says update(key, value, layer_idx)."""

    def __init__(self, cache):
        self.cache = cache

    def update(self, key, value, layer_idx):
        return self.cache.update(layer_idx, key, value)


class MultiHeadLatentAttention(deepseek.DeepseekV3Attention):
    def __init__(self, config, layer_idx):
        theirs = transformers.DeepseekV3Config(
            **vars(config),
            num_key_value_heads=config.num_attention_heads,
            rope_interleave=False,
            attn_implementation="eager",
        )
        super().__init__(theirs, layer_idx)

    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        if mask is not None:
            lowest = torch.finfo(hidden_states.dtype).min
            added = torch.zeros(mask.shape, dtype=hidden_states.dtype)
            mask = added.masked_fill(~mask, lowest)
        angles = tuple(table.to(hidden_states.dtype) for table in (cos, sin))
        cache = None if cache is None else InOurOrder(cache)
        return super().forward(hidden_states, angles, mask, cache)[0]
