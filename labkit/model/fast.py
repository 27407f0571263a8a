"""The fast path: the reference's model with some forward functions replaced.

The code in `solutions` is there to be read. `accelerate` gives the modules of a model other
forward functions that compute the same with torch's fused kernels and in fewer steps. The
Parameters keep their values, so loading and saving work as before. Models of any other package,
a learner's for example, are left alone.

What differs from the plain code:
- attention uses torch's fused kernel, which the labs forbid, and does not copy keys and values
  for every query head
- norms are torch's own; the angles of all positions are computed once
- one new token, or a prompt without padding, needs no mask
- experts work on tokens that are sorted by expert
- to write text, only the last token is scored, matrices are stored column by column, which one
  token's product reads up to twice as fast, and all experts of a layer are one product
"""

from __future__ import annotations

import sys
from types import MethodType, ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

REFERENCE = "solutions"
FEW_TOKENS = 16  # up to here all experts on all tokens cost less than sorting
FEW_KEYS = 256  # up to here torch's kernel is slower backward in bfloat16 than plain steps
CAUSAL = "causal"  # instead of a mask: every token sees itself and all before it


def accelerate(model: nn.Module, last_logits_only: bool = False) -> nn.Module:
    """Put the fast forward functions into the reference's modules, in place; return model.

    last_logits_only: to write text. A call with a cache returns only the scores of the last
    token, (B, 1, V), as `generate` needs no others. Matrices move in memory: these
    Parameters are not contiguous, and those of experts may be changed in place only.
    dtype: float32 within 1e-5 of the plain code, half precision within its rounding
    """
    if any(parameter.is_cuda for parameter in model.parameters()):
        # it plans anew for each length: 60 ms per token
        torch.backends.cuda.enable_cudnn_sdp(False)
    modules = [m for m in model.modules() if type(m).__module__.startswith(f"{REFERENCE}.")]
    for module in modules:
        name = type(module).__name__
        if name in FAST:
            module.forward = MethodType(FAST[name], module)
        if last_logits_only:
            store_by_columns(module)
    for module in modules if last_logits_only else ():
        if hasattr(module, "experts"):
            stack_experts(module)
        if hasattr(module, "lm_head"):
            module.forward = MethodType(last_logits, module)
    return model


def store_by_columns(module: nn.Module) -> None:
    """Store each matrix column by column: for a single token the product reads it in order."""
    for layer in module.children():
        if is_plain(layer):
            layer.weight.data = layer.weight.mT.contiguous().mT


def stack_experts(module: nn.Module) -> None:
    """Move the matrices of all experts into two tensors, kept beside the Parameters, which
    become views of them: gate and up (X, E, 2 I), down (X, I, E). Rounded or pruned matrices,
    and rows that torch's grouped product does not take, stay as they are."""
    layers = [layer for expert in module.experts for layer in expert.children()]
    if not all(map(is_plain, layers)) or not hasattr(F, "grouped_mm"):  # since torch 2.10
        return
    weight = layers[0].weight  # (I, E)
    if any(length * weight.itemsize % 16 for length in weight.shape):
        return
    pairs = [torch.cat((x.gate_proj.weight, x.up_proj.weight)).mT for x in module.experts]
    matrices = torch.stack(pairs)  # (X, E, 2 I)
    down = torch.stack([x.down_proj.weight.mT for x in module.experts])  # (X, I, E)
    for expert, gate_up, out in zip(module.experts, matrices, down, strict=True):
        gate, up = gate_up.chunk(2, dim=-1)
        expert.gate_proj.weight.data, expert.up_proj.weight.data = gate.mT, up.mT
        expert.down_proj.weight.data = out.mT
    vars(module)["stacks"] = matrices, down


def is_plain(layer: nn.Module) -> bool:
    """Whether a linear layer is the reference's: not rounded, pruned or with a bias."""
    return type(layer) is nn.Linear and "weight" in layer._parameters and layer.bias is None


def last_logits(
    self, input_ids: Tensor, attention_mask=None, cache=None, output_router_logits: bool = False
) -> Tensor | tuple[Tensor, list[Tensor]]:
    hidden_states, router_logits = self.model(input_ids, attention_mask, cache)
    hidden_states = hidden_states if cache is None else hidden_states[:, -1:]
    logits = self.lm_head(hidden_states)
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
    angles = angles_of(self, start, end, input_ids.device)
    mask = None if end - start == 1 else CAUSAL
    hidden_states, router_logits = self.embed_tokens(input_ids), []
    for layer in self.layers:
        hidden_states, layer_logits = layer(hidden_states, *angles, mask, cache)
        if layer_logits is not None:
            router_logits.append(layer_logits)
    return self.norm(hidden_states), router_logits


def angles_of(self, start: int, end: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return cos and sin of these positions, (1, T, D) each; both are kept for later."""
    table = vars(self).get("angles")
    if table is None or table[0].size(1) < end or table[0].device != device:
        config = self.config
        many = torch.arange(min(2 * end, config.max_position_embeddings), device=device)
        table = home(self).rope_cos_sin(many[None], config.head_dim, config.rope_theta)
        vars(self)["angles"] = table
    return table[0][:, start:end], table[1][:, start:end]


def attention(self, hidden_states: Tensor, cos, sin, mask=None, cache=None) -> Tensor:
    heads = (*hidden_states.shape[:2], -1, self.head_dim)
    query = self.q_norm(self.q_proj(hidden_states).view(heads))  # (B, T, H, D)
    key = self.k_norm(self.k_proj(hidden_states).view(heads))  # (B, T, K, D)
    value = self.v_proj(hidden_states).view(heads).transpose(1, 2)  # (B, K, T, D)
    rotated = rotate(torch.cat((query, key), dim=2), cos, sin).transpose(1, 2)
    query, key = rotated.split((query.size(2), key.size(2)), dim=1)  # (B, H or K, T, D)
    if cache is not None:
        key, value = cache.update(self.layer_idx, key, value)  # (B, K, S, D)
    if query.requires_grad and query.dtype is torch.bfloat16 and key.size(2) <= FEW_KEYS:
        mixed = attend_plainly(self, query, key, value, mask)  # (B, H, T, D)
    else:
        mixed = attend(query, key, value, mask)  # (B, H, T, D)
    return self.o_proj(mixed.transpose(1, 2).flatten(2))  # (B, T, E)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate (B, T, heads, D) by the angles of its positions."""
    cos, sin = cos.to(x.dtype).unsqueeze(2), sin.to(x.dtype).unsqueeze(2)  # (1, T, 1, D)
    first, second = x.chunk(2, dim=-1)
    return torch.addcmul(x * cos, torch.cat((-second, first), dim=-1), sin)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | str | None) -> Tensor:
    if mask is None and query.size(2) == 1:
        # the G queries that read a KV head become rows, as if they were G tokens
        rows = query.unflatten(1, (key.size(1), -1)).squeeze(3)  # (B, K, G, D)
        mixed = F.scaled_dot_product_attention(rows, key, value)
        return mixed.flatten(1, 2).unsqueeze(2)  # (B, H, 1, D)
    shown = {"is_causal": True} if mask is CAUSAL else {"attn_mask": mask}
    return F.scaled_dot_product_attention(query, key, value, **shown, enable_gqa=True)


def attend_plainly(self, query: Tensor, key: Tensor, value: Tensor, mask) -> Tensor:
    """Attend in the reference's steps: torch's kernel is slow backward in bfloat16."""
    code = home(self)
    if mask is CAUSAL:
        mask = code.causal_mask(query.size(2), key.size(2)).to(query.device)
    key, value = code.repeat_kv(key, self.n_rep), code.repeat_kv(value, self.n_rep)
    return code.scaled_dot_product_attention(query, key, value, mask)


def norm(self, hidden_states: Tensor) -> Tensor:
    if hidden_states.dtype != self.weight.dtype:  # under autocast
        return type(self).forward(self, hidden_states)
    return F.rms_norm(hidden_states, self.weight.shape, self.weight, self.eps)


def mlp(self, x: Tensor) -> Tensor:
    return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


def moe(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
    tokens = hidden_states.flatten(0, 1)  # (N, E)
    router_logits = self.gate(tokens)  # (N, X)
    weights, chosen = home(self).route(router_logits, self.top_k, self.norm_topk_prob)
    if len(tokens) == 1:
        outputs = torch.cat([mlp(self.experts[x], tokens) for x in chosen[0].tolist()])
        mixed = weights.to(outputs.dtype) @ outputs  # (1, E)
        return mixed.view_as(hidden_states), router_logits
    if "stacks" in vars(self) and not torch.is_grad_enabled():
        return grouped(self, tokens, weights, chosen).view_as(hidden_states), router_logits
    order = chosen.flatten().argsort()  # (N * k,) slots of expert 0, of expert 1, ...
    token = order // self.top_k  # (N * k,) whose slot it is
    counts = chosen.flatten().bincount(minlength=len(self.experts)).tolist()
    shares = zip(self.experts, tokens.index_select(0, token).split(counts), strict=True)
    outputs = torch.cat([mlp(expert, share) for expert, share in shares if len(share)])
    outputs = outputs * weights.flatten()[order, None]  # (N * k, E)
    mixed = torch.zeros_like(tokens).index_add(0, token, outputs.to(tokens.dtype))  # (N, E)
    return mixed.view_as(hidden_states), router_logits


def grouped(self, tokens: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
    """Return the experts' weighted output (N, E), with one product for all experts."""
    gate_up, down = vars(self)["stacks"]
    if len(tokens) <= FEW_TOKENS:
        gate, up = (tokens @ gate_up).chunk(2, dim=-1)  # (X, N, I)
        outputs = F.silu(gate) * up @ down  # (X, N, E)
        outputs = outputs[chosen, torch.arange(len(tokens))[:, None]]  # (N, k, E)
        return (weights[:, None] @ outputs).squeeze(1)
    expert, order = chosen.flatten().sort()  # (N * k,) slots of expert 0, of expert 1, ...
    ends = torch.searchsorted(
        expert, torch.arange(len(gate_up), device=expert.device), right=True, out_int32=True
    )  # (X,)
    token = order // self.top_k  # (N * k,) whose slot it is
    gate, up = F.grouped_mm(tokens[token], gate_up, offs=ends).chunk(2, dim=-1)
    gated = F.silu(gate) * up * weights.flatten()[order, None]
    outputs = F.grouped_mm(gated, down, offs=ends)  # (N * k, E)
    return torch.zeros_like(tokens).index_add(0, token, outputs)


def home(module: nn.Module) -> ModuleType:
    """Return the module in which a class is defined, with its imports."""
    return sys.modules[type(module).__module__]


FAST = {
    "RMSNorm": norm,
    "Qwen3Model": stack,
    "Qwen3Attention": attention,
    "Qwen3MLP": mlp,
    "Qwen3MoeSparseMoeBlock": moe,
}
