"""The fast path: the reference's model with some forward functions replaced.

The code in `solutions` is there to be read. `accelerate` gives the modules of a model other
forward functions that compute the same with torch's fused kernels and in fewer steps. The
Parameters stay the same with the same values, so state_dict, loading and saving do, too; some
move in memory. Models of any other package, a learner's for example, are left alone.

What it changes, and why the plain code does not:
- attention: torch's fused kernel, which the labs forbid; keys and values are not copied for
  every query head
- norms, rotation, silu: torch's own, or fewer passes over memory; the angles of all positions
  are computed once, queries and keys of one token are normed together
- one new token, or a prompt without padding: no mask to make and to apply
- matrices that meet the same numbers lie one behind the other in memory: where nothing is
  learnt, torch multiplies by those of all experts in one call, or in bfloat16, where a call is
  dear, by those of queries, keys and values
- mixture of experts: the tokens are sorted by expert, and not searched for by each of them
- learning in bfloat16 from short texts: attention in steps, since torch's kernel, quick
  forward, takes two to ten times as long backward
- bfloat16 on a processor without instructions for it: matrices are multiplied in float32
- with last_logits_only, a call with a cache scores only the last token

Nothing that is made of a Parameter is kept, so nothing is stale when weights change. Tried on
one CPU and left out, since little or nothing became faster: gate and up as one matrix to learn
or in float32, norms in steps of our own, layers without Module.__call__, attention of one token
without the fused kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import MethodType, ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

REFERENCE = "solutions"
CAUSAL = "causal"  # in place of a mask: every token sees itself and all before it
EMULATED = not torch.cpu._is_avx512_bf16_supported()  # bfloat16, up to 100 times slower
AMX = torch.cpu._is_amx_tile_supported()  # then mv is quicker in bfloat16, else F.linear
GROUPED = hasattr(F, "grouped_mm")  # since torch 2.10
FEW_ROWS = 4  # up to here a matrix is read more slowly than multiplied
FEW_TOKENS = 16  # up to here a matrix in bfloat16 is called for more slowly than multiplied
FEW_KEYS = 256  # up to here scores are written down more quickly than computed again


@torch.no_grad()
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
            for layers in together(module):
                lay_side_by_side(layers)
    return model


def last_logits(
    self, input_ids: Tensor, attention_mask=None, cache=None, output_router_logits: bool = False
) -> Tensor | tuple[Tensor, list[Tensor]]:
    hidden_states, router_logits = self.model(input_ids, attention_mask, cache)
    hidden_states = hidden_states if cache is None else hidden_states[:, -1:]
    logits = linear(self.lm_head, hidden_states)
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
    """cos and sin of these positions, (1, T, D) each; made for many positions at once, kept."""
    table = vars(self).get("angles")
    if table is None or table[0].size(1) < end or table[0].device != device:
        config = self.config
        many = torch.arange(min(2 * end, config.max_position_embeddings), device=device)
        table = home(self).rope_cos_sin(many[None], config.head_dim, config.rope_theta)
        vars(self)["angles"] = table
    return table[0][:, start:end], table[1][:, start:end]


def attention(self, hidden_states: Tensor, cos, sin, mask=None, cache=None) -> Tensor:
    heads = (*hidden_states.shape[:2], -1, self.head_dim)
    projected = at_once(hidden_states, self.q_proj, self.k_proj, self.v_proj)
    query, key, value = (each.view(heads) for each in projected)  # (B, T, H or K, D)
    value = value.transpose(1, 2)  # (B, K, T, D)
    both = turn(normed(self, query, key), cos, sin).transpose(1, 2)  # (B, H + K, T, D)
    query, key = both.split((query.size(2), key.size(2)), dim=1)
    if cache is not None:
        key, value = cache.update(self.layer_idx, key, value)  # (B, K, S, D)
    mixed = attend(query, key, value, mask)  # (B, H, T, D)
    return linear(self.o_proj, mixed.transpose(1, 2).flatten(2))  # (B, T, E)


def normed(self, query: Tensor, key: Tensor) -> Tensor:
    """(B, T, H + K, D); of one token, where steps cost more than numbers, both in one."""
    if query.size(1) > 1:
        return torch.cat((self.q_norm(query), self.k_norm(key)), dim=2)
    pairs = ((self.q_norm, query), (self.k_norm, key))
    weight = torch.cat([each.weight.expand(x.shape[2:]) for each, x in pairs])  # (H + K, D)
    both = torch.cat((query, key), dim=2)
    return F.rms_norm(both, weight.shape[1:], eps=self.q_norm.eps) * weight


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Each of (B, T, heads, D) turned by the angles of its position."""
    cos, sin = cos.to(x.dtype).unsqueeze(2), sin.to(x.dtype).unsqueeze(2)  # (1, T, 1, D)
    first, second = x.chunk(2, dim=-1)
    return torch.addcmul(x * cos, torch.cat((-second, first), dim=-1), sin)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | str | None) -> Tensor:
    causal = mask is CAUSAL
    one_for_all = mask is None or causal or mask.dim() < 3 or mask.size(-3) == 1
    learning = query.requires_grad and quick_half(query) and mask is not None
    if learning and one_for_all and key.size(2) <= FEW_KEYS:
        return in_steps(query, key, value, mask)
    if causal:
        return F.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=True
        )
    if query.size(2) > 1 or not one_for_all:
        return F.scaled_dot_product_attention(query, key, value, mask, enable_gqa=True)
    # the G queries that read a KV head stand in rows, as if they were G tokens
    rows = query.unflatten(1, (key.size(1), -1)).squeeze(3)  # (B, K, G, D)
    mixed = F.scaled_dot_product_attention(rows, key, value, mask)
    return mixed.flatten(1, 2).unsqueeze(2)  # (B, H, 1, D)


def in_steps(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | str | None) -> Tensor:
    (batch, heads, length, head_dim), kv_heads = query.shape, key.size(1)
    if mask is CAUSAL:
        mask = query.new_ones((length, length), dtype=torch.bool).tril()
    elif mask.dim() > 2:
        mask = mask.expand(batch, kv_heads, length, -1).flatten(0, 1)  # (B * K, T, S)
    unseen = torch.finfo(query.dtype).min  # not -inf: padding sees nothing, which is no NaN
    scores = query.new_zeros(mask.shape).masked_fill(~mask, unseen)
    scores = scores.view(-1, *mask.shape[-2:]).repeat(1, heads // kv_heads, 1)  # (.., G * T, S)
    query = query.reshape(batch * kv_heads, -1, head_dim)
    key, value = key.flatten(0, 1), value.flatten(0, 1)  # (B * K, S, D)
    weights = scores.baddbmm(query, key.mT, alpha=head_dim**-0.5).softmax(dim=-1)
    return (weights @ value).view(batch, heads, length, head_dim)


def norm(self, hidden_states: Tensor) -> Tensor:
    if hidden_states.dtype != self.weight.dtype:  # under autocast
        return type(self).forward(self, hidden_states)
    return F.rms_norm(hidden_states, self.weight.shape, self.weight, self.eps)


def mlp(self, x: Tensor) -> Tensor:
    gate, up = at_once(x, self.gate_proj, self.up_proj)
    return linear(self.down_proj, F.silu(gate) * up)


def moe(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
    tokens = hidden_states.flatten(0, 1)  # (N, E)
    router_logits = self.gate(tokens)  # (N, X)
    weights, chosen = home(self).route(router_logits, self.top_k, self.norm_topk_prob)
    if tokens.size(0) == 1:
        slots = zip(weights[0], chosen[0].tolist(), strict=True)
        mixed = sum(weight * mlp(self.experts[expert], tokens) for weight, expert in slots)
        return mixed.view_as(hidden_states), router_logits
    count, stacks = len(self.experts), matrices(self.experts)
    if (
        stacks
        and quick_half(tokens)
        and len(tokens) <= FEW_TOKENS
        and count <= chosen.numel() // 2
    ):
        both, down = stacks
        x = tokens.expand(count, *tokens.shape)  # nearly every expert has a token: all do all
        gate, up = (x @ both).chunk(2, dim=-1)  # (X, N, I)
        said = F.silu(gate) * up @ down  # (X, N, E)
        said = said[chosen, torch.arange(len(tokens))[:, None]]  # (N, k, E)
        mixed = (weights[:, None].to(said.dtype) @ said).squeeze(1)  # (N, E)
        return mixed.view_as(hidden_states), router_logits
    order = chosen.flatten().argsort()  # (N * k,) slots of expert 0, of expert 1, ...
    token = order // self.top_k  # (N * k,) whose slot it is
    counts = chosen.flatten().bincount(minlength=count)  # (X,)
    x = tokens.index_select(0, token)  # (N * k, E)
    if stacks:
        both, down = stacks
        ends = counts.cumsum(0, dtype=torch.int32)
        gate, up = F.grouped_mm(x, both, offs=ends).chunk(2, dim=-1)  # (N * k, I)
        said = F.grouped_mm(F.silu(gate) * up, down, offs=ends)
    else:
        shares = zip(self.experts, x.split(counts.tolist()), strict=True)
        said = torch.cat([mlp(expert, share) for expert, share in shares if len(share)])
    said = said * weights.flatten()[order, None]  # (N * k, E)
    mixed = torch.zeros_like(tokens).index_add(0, token, said.to(tokens.dtype))  # (N, E)
    return mixed.view_as(hidden_states), router_logits


def matrices(experts: nn.ModuleList) -> list[Tensor] | None:
    """All experts' gate and up, (X, E, 2 I), and down, (X, I, E), of their own memory; None
    where torch cannot use them so."""
    found = []
    for layers in together_of(experts):
        whole = joined(layers)
        if not GROUPED or whole is None or emulated(whole) or whole.device.type != "cpu":
            return None
        stack = whole.unflatten(0, (len(experts), -1))
        if any(length * stack.itemsize % 16 for length in stack.shape[1:]):
            return None
        found.append(stack.mT)
    return found


def joined(layers: Sequence[nn.Module]) -> Tensor | None:
    """The matrices of layers as one, (sum of out, in), of their own memory; None where they do
    not lie one behind the other there, or to learn."""
    if torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or not plain(layers):
        return None
    first = layers[0].weight
    rows, start = 0, first.data_ptr()
    end = start
    for layer in layers:
        weight = layer.weight
        if weight.data_ptr() != end or weight.dtype is not first.dtype:
            return None
        end += weight.nbytes
        rows += weight.size(0)
    beyond = first.storage_offset() * first.itemsize + end - start
    if beyond > first.untyped_storage().nbytes() or not first.is_contiguous():
        return None  # neighbours by chance, or turned
    return first.as_strided((rows, first.size(1)), first.stride())


def plain(layers: Sequence[nn.Module]) -> bool:
    return all(type(layer) is nn.Linear and layer.bias is None for layer in layers)


def together(module: nn.Module) -> list[list[nn.Module]]:
    """Layers of a module that are wanted side by side in memory."""
    match type(module).__name__:
        case "Qwen3Attention":
            return [[module.q_proj, module.k_proj, module.v_proj]]
        case "Qwen3MLP":
            return together_of([module])
        case "Qwen3MoeSparseMoeBlock":
            return together_of(module.experts)
    return []


def together_of(mlps: Sequence[nn.Module]) -> list[list[nn.Module]]:
    return [
        [layer for mlp in mlps for layer in (mlp.gate_proj, mlp.up_proj)],
        [mlp.down_proj for mlp in mlps],
    ]


def lay_side_by_side(layers: Sequence[nn.Module]) -> None:
    if not plain(layers) or joined(layers) is not None:
        return
    weights = [layer.weight for layer in layers]
    if len({(weight.dtype, weight.device) for weight in weights}) > 1:
        return
    whole = torch.cat(weights)
    for weight, share in zip(weights, whole.split([len(w) for w in weights]), strict=True):
        weight.data = share


def at_once(x: Tensor, *layers: nn.Module) -> Sequence[Tensor]:
    """What each of the layers makes of x."""
    whole = joined(layers) if quick_half(x) and x.size(-2) == 1 else None
    if whole is None:
        return [linear(layer, x) for layer in layers]
    return times(x, whole).split([layer.out_features for layer in layers], dim=-1)


def linear(layer: nn.Module, x: Tensor) -> Tensor:
    if not isinstance(layer, nn.Linear):  # in int8
        return layer(x)
    return times(x, layer.weight, layer.bias)


def times(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias, in float32 where bfloat16 is emulated and a matrix is more than
    read."""
    if emulated(weight) and x.numel() > FEW_ROWS * x.size(-1):
        bias = None if bias is None else bias.float()
        return F.linear(x.float(), weight.float(), bias).to(x.dtype)
    if AMX and bias is None and x.numel() == x.size(-1) and quick_half(weight):
        return torch.mv(weight, x.flatten()).view(*x.shape[:-1], -1)
    return F.linear(x, weight, bias)


def emulated(x: Tensor) -> bool:
    return EMULATED and on_cpu_in_half(x)


def quick_half(x: Tensor) -> bool:
    return on_cpu_in_half(x) and not EMULATED


def on_cpu_in_half(x: Tensor) -> bool:
    return x.dtype is torch.bfloat16 and x.device.type == "cpu"


def home(module: nn.Module) -> ModuleType:
    """The file a module's class is written in, with what that imports."""
    return sys.modules[type(module).__module__]


FAST = {
    "RMSNorm": norm,
    "Qwen3Model": stack,
    "Qwen3Attention": attention,
    "Qwen3MLP": mlp,
    "Qwen3MoeSparseMoeBlock": moe,
}
