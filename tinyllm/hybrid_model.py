"""The hybrid decoder: given code that puts lab 12's parts together, read it once.

Three layers with a state, then one with full attention, or what config.layer_types lists.
Parameters have the names of Hugging Face's Qwen3NextForCausalLM. The feed-forward layers are
dense, or mixtures of experts where config.num_experts is not 0.

Shapes: B batch, T new tokens, S cached + new tokens, E hidden_size, K KV heads, D head_dim,
V vocab_size.
"""

import torch
from torch import Tensor, nn

from . import hybrid  # its parts are looked up when a model is made: the newest answers run
from .config import Qwen3NextConfig
from .moe import uses_experts
from .rope import rope_cos_sin
from .swiglu import Qwen3MLP


class HybridCache:
    """What the layers of a hybrid model remember: keys and values, or a state.

    A layer with full attention keeps all tokens, in room for max_length of them; one with a
    window keeps the last window - 1; one with a state nothing but the state.
    """

    def __init__(self, config: Qwen3NextConfig, max_length: int):
        self.config, self.length = config, 0
        self.max_length = max_length
        self.full: dict[int, list[Tensor]] = {}
        self.windows: dict[int, tuple[Tensor, Tensor]] = {}
        self.states: dict[int, tuple[Tensor, Tensor]] = {}

    def update(self, layer_idx: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys and values (B, K, T, D) of a layer, return those that it may need."""
        if self.config.layer_types[layer_idx] == "full_attention":
            return self._store(layer_idx, key, value)
        if layer_idx in self.windows:
            pairs = zip(self.windows[layer_idx], (key, value), strict=True)
            key, value = (torch.cat(pair, dim=2) for pair in pairs)
        start = max(key.size(2) - self.config.sliding_window + 1, 0)
        self.windows[layer_idx] = key[:, :, start:], value[:, :, start:]
        return key, value

    def _store(self, layer_idx: int, *new: Tensor) -> list[Tensor]:
        """Write keys and values behind the self.length tokens so far, return all of them."""
        if layer_idx not in self.full:
            sizes = [(*x.shape[:2], self.max_length, x.size(-1)) for x in new]
            self.full[layer_idx] = [
                x.new_zeros(size) for x, size in zip(new, sizes, strict=True)
            ]
        end = self.length + new[0].size(2)
        if end > self.max_length:
            raise ValueError(f"the cache has room for {self.max_length} tokens, not for {end}")
        for room, x in zip(self.full[layer_idx], new, strict=True):
            room[:, :, self.length : end] = x
        return [room[:, :, :end] for room in self.full[layer_idx]]

    @property
    def bytes(self) -> int:
        """How much is held for the tokens so far; empty room does not count."""
        pairs = (*self.windows.values(), *self.states.values())
        held = [tensor for pair in pairs for tensor in pair]
        held += [room[:, :, : self.length] for pair in self.full.values() for room in pair]
        return sum(tensor.numel() * tensor.element_size() for tensor in held)


class Qwen3NextDecoderLayer(nn.Module):
    """Lab 06's layer with norms of weight 1 + w, and a mixer chosen by config.layer_types.

    Shapes: hidden_states (B, T, E), padding (B, T), 0 where it is padding -> (B, T, E)
    """

    def __init__(self, config: Qwen3NextConfig, layer_idx: int):
        super().__init__()
        self.layer_idx, self.kind = layer_idx, config.layer_types[layer_idx]
        if self.kind == "linear_attention":
            self.linear_attn = hybrid.GatedDeltaNet(config, layer_idx)
        else:
            self.self_attn = hybrid.GatedAttention(config, layer_idx)
        is_sparse = uses_experts(config, layer_idx)
        self.mlp = (hybrid.Qwen3NextSparseMoeBlock if is_sparse else Qwen3MLP)(config)
        self.input_layernorm = hybrid.Qwen3NextRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = hybrid.Qwen3NextRMSNorm(
            config.hidden_size, config.rms_norm_eps
        )

    def forward(
        self, hidden_states: Tensor, cos: Tensor, sin: Tensor, mask, padding=None, cache=None
    ) -> Tensor:
        normed = self.input_layernorm(hidden_states)
        if self.kind == "linear_attention":
            states = {} if cache is None else cache.states
            mixed, states[self.layer_idx] = self.linear_attn(
                normed, states.get(self.layer_idx), padding
            )
        else:
            mixed = self.self_attn(normed, cos, sin, mask, cache)
        hidden_states = hidden_states + mixed
        fed = self.mlp(self.post_attention_layernorm(hidden_states))
        return hidden_states + (fed[0] if isinstance(fed, tuple) else fed)  # (B, T, E)


class Qwen3NextModel(nn.Module):
    """The stack: embed the tokens, run every layer, normalize once more.

    Shorter texts of a batch have padding on their left, where attention_mask is 0.

    Shapes: input_ids (B, T), attention_mask (B, S) of 0 and 1 -> (B, T, E)
    """

    def __init__(self, config: Qwen3NextConfig):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            Qwen3NextDecoderLayer(config, layer_idx)
            for layer_idx in range(config.num_hidden_layers)
        )
        self.norm = hybrid.Qwen3NextRMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(
        self,
        input_ids: Tensor,
        cache: HybridCache | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        config, new = self.config, input_ids.size(1)  # T
        total = new + (0 if cache is None else cache.length)  # S
        device = input_ids.device
        position_ids = torch.arange(total - new, total, device=device)[None]  # (1, T)
        reach = min(total, new + config.sliding_window - 1)  # keys that a window still holds
        masks = {
            "full_attention": hybrid.sliding_window_mask(new, total, total),
            "sliding_attention": hybrid.sliding_window_mask(new, reach, config.sliding_window),
        }
        masks = {kind: mask.to(device) for kind, mask in masks.items()}  # (T, S) each
        padding = None
        if attention_mask is not None:
            padding = attention_mask[:, -new:]  # (B, T)
            position_ids = (attention_mask.cumsum(-1) - 1).clamp(min=0)[:, -new:]  # (B, T)
            is_token = attention_mask.bool()[:, None, None]  # (B, 1, 1, S)
            masks = {kind: m & is_token[..., -m.size(1) :] for kind, m in masks.items()}
        cos, sin = rope_cos_sin(position_ids, config.rotary_dim, config.rope_theta)
        hidden_states = self.embed_tokens(input_ids)  # (B, T, E)
        for layer in self.layers:
            mask = masks.get(layer.kind)
            hidden_states = layer(hidden_states, cos, sin, mask, padding, cache)
        if cache is not None:
            cache.length = total
        return self.norm(hidden_states)


class Qwen3NextForCausalLM(nn.Module):
    """The hybrid language model with its head.

    Shapes: input_ids (B, T), attention_mask (B, S) -> logits (B, T, V)
    """

    def __init__(self, config: Qwen3NextConfig):
        super().__init__()
        self.config = config
        self.model = Qwen3NextModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=config.initializer_range)

    def forward(
        self,
        input_ids: Tensor,
        cache: HybridCache | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        return self.lm_head(self.model(input_ids, cache, attention_mask))
