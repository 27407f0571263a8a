"""The fast path: the reference's model with some forward functions replaced.

The code in `solutions` is there to be read. `accelerate` gives the modules of a model other
forward functions that compute the same with torch's fused kernels and in fewer steps. No
Parameter changes, so state_dict, loading and saving stay as they are. Models of any other
package, a learner's for example, are left alone.

What it changes, and why the plain code does not:
- attention: torch's fused kernel, which the labs forbid; keys and values are not copied for
  every query head
- one new token, or a prompt without padding: no mask to make and to apply
- mixture of experts, few tokens: no search for the tokens of each expert
- silu: torch's own, one pass over memory instead of several
- with last_logits_only, a call with a cache scores only the last token

Tried on one CPU and left out, since nothing became faster: `W @ x.T` for few rows in bfloat16
(the same for one row, half as fast for eight), torch's rms_norm, sorting tokens by expert for
a long prompt.
"""

from __future__ import annotations

import sys
from types import MethodType, ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

REFERENCE = "solutions"
CAUSAL = "causal"  # in place of a mask: every token sees itself and all before it
FEW_TOKENS = 64  # up to here sorting beats searching in a mixture of experts


def accelerate(model: nn.Module, last_logits_only: bool = False) -> nn.Module:
    """Put the fast forward functions into the reference's modules, in place; returns model.

    last_logits_only: a call with a cache returns the scores of the last token alone,
    (B, 1, V), which is all that `generate` looks at.
    dtype: float32 within 1e-5 of the plain code, half precision within its rounding
    """
    for module in model.modules():
        package, _, _ = type(module).__module__.partition(".")
        name = type(module).__name__
        forward = FAST.get(name)
        if name == "Qwen3ForCausalLM" and last_logits_only:
            forward = last_logits
        if package == REFERENCE and forward is not None:
            module.forward = MethodType(forward, module)
    return model


def last_logits(
    self, input_ids: Tensor, attention_mask=None, cache=None, output_router_logits: bool = False
) -> Tensor | tuple[Tensor, list[Tensor]]:
    hidden_states, router_logits = self.model(input_ids, attention_mask, cache)
    logits = self.lm_head(hidden_states if cache is None else hidden_states[:, -1:])
    return (logits, router_logits) if output_router_logits else logits


def stack(
    self, input_ids: Tensor, attention_mask=None, cache=None
) -> tuple[Tensor, list[Tensor]]:
    start = 0 if cache is None else cache.length
    end = start + input_ids.size(1)
    padded = attention_mask is not None and not attention_mask.all()
    if padded or (start > 0 and end - start > 1):
        return type(self).forward(self, input_ids, attention_mask, cache)
    home(self).check_inputs(self.config, input_ids, attention_mask, start)
    position_ids = torch.arange(start, end, device=input_ids.device)[None]  # (1, T)
    angles = home(self).rope_cos_sin(position_ids, self.config.head_dim, self.config.rope_theta)
    mask = None if end - start == 1 else CAUSAL
    hidden_states, router_logits = self.embed_tokens(input_ids), []
    for layer in self.layers:
        hidden_states, layer_logits = layer(hidden_states, *angles, mask, cache)
        if layer_logits is not None:
            router_logits.append(layer_logits)
    return self.norm(hidden_states), router_logits


def attention(self, hidden_states: Tensor, cos, sin, mask=None, cache=None) -> Tensor:
    query = self.q_norm(self._heads(self.q_proj(hidden_states)))  # (B, H, T, D)
    key = self.k_norm(self._heads(self.k_proj(hidden_states)))  # (B, K, T, D)
    value = self._heads(self.v_proj(hidden_states))  # (B, K, T, D)
    query, key = home(self).apply_rotary_pos_emb(query, key, cos, sin)
    if cache is not None:
        key, value = cache.update(self.layer_idx, key, value)  # (B, K, S, D)
    mixed = attend(query, key, value, mask)  # (B, H, T, D)
    return self.o_proj(mixed.transpose(1, 2).flatten(2))  # (B, T, E)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | str | None) -> Tensor:
    if mask is CAUSAL:
        return F.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=True
        )
    one_for_all = mask is None or mask.dim() < 3 or mask.size(-3) == 1
    if query.size(2) > 1 or not one_for_all:
        return F.scaled_dot_product_attention(query, key, value, mask, enable_gqa=True)
    # the G queries that read a KV head stand in rows, as if they were G tokens
    rows = query.unflatten(1, (key.size(1), -1)).squeeze(3)  # (B, K, G, D)
    mixed = F.scaled_dot_product_attention(rows, key, value, mask)
    return mixed.flatten(1, 2).unsqueeze(2)  # (B, H, 1, D)


def mlp(self, x: Tensor) -> Tensor:
    return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


def moe(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
    tokens = hidden_states.flatten(0, 1)  # (N, E)
    if tokens.size(0) > FEW_TOKENS:
        return type(self).forward(self, hidden_states)
    router_logits = self.gate(tokens)  # (N, X)
    weights, chosen = home(self).route(router_logits, self.top_k, self.norm_topk_prob)
    if tokens.size(0) == 1:
        slots = zip(weights[0], chosen[0].tolist(), strict=True)
        mixed = sum(weight * self.experts[expert](tokens) for weight, expert in slots)
        return mixed.view_as(hidden_states), router_logits
    order = chosen.flatten().argsort()  # (N * k,) slots of expert 0, of expert 1, ...
    token = order // self.top_k  # (N * k,) whose slot it is
    counts = chosen.flatten().bincount(minlength=len(self.experts)).tolist()
    shares = zip(self.experts, tokens[token].split(counts), strict=True)
    said = torch.cat([expert(share) for expert, share in shares if len(share)])  # (N * k, E)
    said = said * weights.flatten()[order, None]
    mixed = torch.zeros_like(tokens).index_add_(0, token, said)  # (N, E)
    return mixed.view_as(hidden_states), router_logits


def home(module: nn.Module) -> ModuleType:
    """The file a module's class is written in, with what that imports."""
    return sys.modules[type(module).__module__]


FAST = {
    "Qwen3Model": stack,
    "Qwen3Attention": attention,
    "Qwen3MLP": mlp,
    "Qwen3MoeSparseMoeBlock": moe,
}
