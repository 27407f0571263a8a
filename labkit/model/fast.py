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
- to write text, a matrix lies column by column in memory: one token's product then reads it
  from the beginning to the end, at up to twice the speed, and matrices that meet the same
  numbers lie side by side and are one product
- mixture of experts: the tokens are sorted by expert, and not searched for by each of them;
  torch multiplies by the matrices of all experts in one call, forward and backward
- learning in bfloat16 from short texts: attention in steps, since torch's kernel, quick
  forward, takes two to ten times as long backward
- bfloat16 on a processor without instructions for it: matrices are multiplied in float32
- with last_logits_only, a call with a cache scores only the last token
- with compile_layers, for long training: torch writes the steps between the matrices as code
  of their own, which passes over memory once

Nothing that is made of a Parameter is kept, so nothing is stale when weights change. Tried on
one CPU and left out, since little or nothing became faster: to learn a mixture, as many rows
for each expert and a product of the batch in place of grouped_mm; to learn a dense model,
columns, or gate and up as one matrix; norms in steps of our own, also with their own gradient;
layers without Module.__call__; oneDNN in place of MKL.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
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

    last_logits_only: to write text. A call with a cache returns the scores of the last token
    alone, (B, 1, V), which is all that `generate` looks at; and where a matrix makes a token's
    numbers not fewer, it lies in columns: these Parameters are not contiguous any more, which
    torch's fused optimizers do not see.
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
            for groups in together(module, last_logits_only):
                lay_side_by_side(groups, columns=last_logits_only)
    return model


def compile_layers(model: nn.Module) -> str:
    """Let torch compile the layers of an accelerated model, for texts that it learns from.

    It takes a C++ compiler and, when the first text comes, some 20 seconds. Writing, padded
    texts, caches and the products of experts go as before. Returns why torch cannot do it
    here, and has changed nothing then; "" where it can.
    """
    stacks = [module for module in model.modules() if runs(module, stack)]
    if not stacks:
        return "only the reference's layers are compiled, and this is other code"
    try:
        torch.compile(torch.sinc)(torch.ones(2))
    except Exception as error:  # no compiler, no headers, a system that torch cannot do it on
        return str(error).strip().partition("\n")[0]
    for module in stacks:
        vars(module)["compiled"] = torch.compile(learn)
    see, apart = torch.compiler.disable(stacks_of), torch.compiler.disable(of_many)

    def many(self, *args: Tensor) -> Tensor:
        if torch.compiler.is_compiling() and all(map(groupable, stacks := see(self))):
            return in_groups(self, *args, stacks)
        return apart(self, *args)  # it looks at memory and at numbers

    def compiled_moe(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        return moe(self, hidden_states, many)

    for module in model.modules():
        if runs(module, moe):
            module.forward = MethodType(compiled_moe, module)
    return ""


def runs(module: nn.Module, forward: Callable) -> bool:
    return vars(module).get("forward") == MethodType(forward, module)


def learn(layer: nn.Module, *args: Tensor) -> tuple[Tensor, Tensor | None]:
    return layer(*args, CAUSAL)


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
    compiled = vars(self).get("compiled") if hidden_states.requires_grad and mask else None
    for layer in self.layers:
        if compiled and cache is None:
            hidden_states, layer_logits = compiled(layer, hidden_states, *angles)
        else:
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
    better = quick_half(query) or torch.compiler.is_compiling()
    learning = query.requires_grad and better and mask is not None
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
    if mask is not None or query.device.type != "cpu" or query.dtype is not torch.float32:
        mixed = F.scaled_dot_product_attention(rows, key, value, mask)
        return mixed.flatten(1, 2).unsqueeze(2)  # (B, H, 1, D)
    rows = rows.flatten(0, 1) * query.size(-1) ** -0.5
    weights = torch.bmm(rows, key.flatten(0, 1).mT).softmax(dim=-1)  # (B * K, G, S)
    return torch.bmm(weights, value.flatten(0, 1)).view(query.shape)


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


def moe(self, hidden_states: Tensor, many: Callable | None = None) -> tuple[Tensor, Tensor]:
    tokens = hidden_states.flatten(0, 1)  # (N, E)
    router_logits = self.gate(tokens)  # (N, X)
    weights, chosen = home(self).route(router_logits, self.top_k, self.norm_topk_prob)
    said_by = of_one if len(tokens) == 1 else many or of_many
    return said_by(self, tokens, weights, chosen).view_as(hidden_states), router_logits


def of_one(self, token: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
    picked = [self.experts[expert] for expert in chosen[0].tolist()]
    parts = [part for x in picked for part in products(token, x.gate_proj, x.up_proj)]
    gate, up = torch.cat(parts, dim=-1).view(len(picked), -1).chunk(2, dim=-1)  # (k, I)
    rows = (F.silu(gate) * up).split(1)
    said = [linear(x.down_proj, row) for x, row in zip(picked, rows, strict=True)]
    said = torch.cat(said)  # (k, E)
    return weights.to(said.dtype) @ said  # (1, E)


def of_many(self, tokens: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
    count, stacks = len(self.experts), stacks_of(self)
    there = all(stack is not None for stack in stacks) and not torch.is_grad_enabled()
    few = len(tokens) <= FEW_TOKENS and count <= chosen.numel() // 2  # nearly all have one
    if there and few and (quick_half(tokens) or torch.get_num_threads() > 1):  # all do all
        both, down = stacks
        gate, up = (tokens @ both).chunk(2, dim=-1)  # (X, N, I)
        said = F.silu(gate) * up @ down  # (X, N, E)
        said = said[chosen, torch.arange(len(tokens))[:, None]]  # (N, k, E)
        return (weights[:, None].to(said.dtype) @ said).squeeze(1)  # (N, E)
    if all(map(groupable, stacks)):
        return in_groups(self, tokens, weights, chosen, stacks)
    order = chosen.flatten().argsort()  # (N * k,) slots of expert 0, of expert 1, ...
    token = order // self.top_k  # (N * k,) whose slot it is
    counts = chosen.flatten().bincount(minlength=count).tolist()
    shares = zip(self.experts, tokens.index_select(0, token).split(counts), strict=True)
    said = torch.cat([mlp(expert, share) for expert, share in shares if len(share)])
    said = said * weights.flatten()[order, None]  # (N * k, E)
    return torch.zeros_like(tokens).index_add(0, token, said.to(tokens.dtype))  # (N, E)


def in_groups(
    self, tokens: Tensor, weights: Tensor, chosen: Tensor, stacks: Sequence[Tensor]
) -> Tensor:
    """What the chosen experts say, one product for all of them, (N, E)."""
    expert, order = chosen.flatten().sort()  # (N * k,) slots of expert 0, of expert 1, ...
    experts = torch.arange(len(self.experts), device=expert.device)
    ends = torch.searchsorted(expert, experts, right=True, out_int32=True)  # (X,)
    token, groups = order // self.top_k, together(self)  # (N * k,) whose slot it is
    compiling = torch.compiler.is_compiling()  # then whatever only reads is quick
    if compiling:
        back = order.argsort()
        x = Reordered.apply(tokens.repeat_interleave(self.top_k, 0), order, back)
    else:
        x = tokens.index_select(0, token)  # (N * k, E)
    both = grouped_product(x, stacks[0], groups[0], ends)  # (N * k, 2 I)
    gated = swiglu(both, weights.flatten()[order, None])
    said = grouped_product(gated, stacks[1], groups[1], ends)  # (N * k, E)
    if compiling:
        return Reordered.apply(said, back, order).unflatten(0, chosen.shape).sum(1)  # (N, E)
    return torch.zeros_like(tokens).index_add(0, token, said)


class Reordered(torch.autograd.Function):
    """Rows in another order; the way back is read as well, where torch would add up."""

    @staticmethod
    def forward(ctx, x: Tensor, order: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        return x[order]

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        (back,) = ctx.saved_tensors
        return grad[back], None, None


def grouped_product(
    x: Tensor, stack: Tensor, groups: Sequence[Sequence[nn.Module]], ends: Tensor
) -> Tensor:
    """The rows of x up to each of the ends, (N, in), by one matrix each of the stack of the
    groups' layers -> (N, out)."""
    if not torch.is_grad_enabled():
        return grouped_mm(x, stack, ends)
    weights = [layer.weight for group in groups for layer in group]
    return GroupedProduct.apply(x, stack, ends, *weights)


class GroupedProduct(torch.autograd.Function):
    """Learns what are Parameters one by one in one call."""

    @staticmethod
    def forward(ctx, x: Tensor, stack: Tensor, ends: Tensor, *weights: Tensor) -> Tensor:
        ctx.save_for_backward(x, stack, ends)
        ctx.rows = [len(weight) for weight in weights]
        return grouped_mm(x, stack, ends)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, stack, ends = ctx.saved_tensors
        grad_x = grouped_mm(grad, stack.mT, ends)
        grads = grouped_mm(grad.mT, x, ends).flatten(0, 1)
        return grad_x, None, None, *grads.split(ctx.rows)


def grouped_mm(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
    """a @ b for each group of a's rows, or of the columns of a and the rows of b."""
    return (opaque_mm if torch.compiler.is_compiling() else F.grouped_mm)(a, b, offs=ends)


@torch.library.custom_op("labkit::opaque_mm", mutates_args=())
def opaque_mm(a: Tensor, b: Tensor, offs: Tensor) -> Tensor:
    """F.grouped_mm, hidden from torch's compiler, which knows its shape in bfloat16 alone."""
    return F.grouped_mm(a, b, offs=offs)


@opaque_mm.register_fake
def _(a: Tensor, b: Tensor, offs: Tensor) -> Tensor:
    groups = (len(offs),) if b.dim() == 2 else ()
    return a.new_empty(*groups, a.size(0), b.size(-1))  # len would make it a constant


def swiglu(both: Tensor, weights: Tensor) -> Tensor:
    """silu(gate) * up * weights; gate and up lie side by side in the last dimension."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        return SwiGLU.apply(both, weights)
    gate, up = both.chunk(2, dim=-1)
    return F.silu(gate) * up * weights


class SwiGLU(torch.autograd.Function):
    """The gradients are written side by side at once."""

    @staticmethod
    def forward(ctx, both: Tensor, weights: Tensor) -> Tensor:
        gate, up = both.chunk(2, dim=-1)
        gated = F.silu(gate)
        ctx.save_for_backward(both, gated, weights)
        return (gated * up).mul_(weights)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor]:
        both, gated, weights = ctx.saved_tensors
        gate, up = both.chunk(2, dim=-1)
        grads = torch.empty_like(both)
        grad_gate, grad_up = grads.chunk(2, dim=-1)
        shared = grad * gated
        torch.mul(shared, weights, out=grad_up)
        slope = (grad * up).mul_(weights)
        torch.ops.aten.silu_backward.grad_input(slope, gate, grad_input=grad_gate)
        return grads, (shared * up).sum(dim=-1, keepdim=True)


def groupable(stack: Tensor | None) -> bool:
    """Whether torch can multiply by these matrices, each for some of the rows, in one call."""
    if not GROUPED or stack is None or emulated(stack) or stack.device.type != "cpu":
        return False
    return all(length * stack.itemsize % 16 == 0 for length in stack.shape[1:])


def stacks_of(self) -> list[Tensor | None]:
    return [stacked(groups) for groups in together(self)]


def stacked(groups: Sequence[Sequence[nn.Module]]) -> Tensor | None:
    """The matrices of groups of layers, (groups, in, sum of out), in their own memory, where
    they lie in rows or in columns; None where they do not lie so there. Asked for every token:
    it looks at what is quick to see."""
    if torch.is_autocast_enabled("cpu") or not all(map(plain, groups)):
        return None
    first = groups[0][0]._parameters["weight"]
    rows = [layer._parameters["weight"].size(0) for layer in groups[0]]
    long, wide, place, itemsize = first.size(1), sum(rows), first.data_ptr(), first.itemsize
    columns = first.stride() == (1, wide)
    strides, step, rest = ((1, wide), 1, (long - 1) * wide) if columns else ((long, 1), long, 0)
    for group in groups:
        for layer, count in zip(group, rows, strict=True):
            weight = layer._parameters["weight"]
            if weight.data_ptr() != place or weight.stride() != strides:
                return None
            place += count * step * itemsize
        place += rest * itemsize
    if len(rows) * len(groups) > 1:
        last = groups[-1][-1]._parameters["weight"]
        if last.untyped_storage().data_ptr() != first.untyped_storage().data_ptr():
            return None  # neighbours by chance
    first = first.detach()
    if columns:
        return first.as_strided((len(groups), long, wide), (wide * long, wide, 1))
    return first.as_strided((len(groups), wide, long), (wide * long, long, 1)).mT


def plain(layers: Sequence[nn.Module]) -> bool:
    """Linear layers without a bias; no pruned ones, whose matrix is not a Parameter."""
    parts = [x._parameters if type(x) is nn.Linear else {} for x in layers]
    return all("weight" in each and each["bias"] is None for each in parts)


def together(module: nn.Module, writing: bool = False) -> list[list[list[nn.Module]]]:
    """Stacks of groups of a module's layers that are wanted side by side in memory; some only
    to write text."""
    match type(module).__name__:
        case "Qwen3Attention" if writing:
            return [[[module.q_proj, module.k_proj, module.v_proj]], [[module.o_proj]]]
        case "Qwen3MLP" if writing and stacked([[module.gate_proj, module.up_proj]]) is None:
            return [[[module.gate_proj, module.up_proj]]]
        case "Qwen3ForCausalLM" if writing:
            return [[[module.lm_head]]]
        case "Qwen3MoeSparseMoeBlock":
            experts = [expert._modules for expert in module.experts]  # quicker than getattr
            return [
                [[expert["gate_proj"], expert["up_proj"]] for expert in experts],
                [[expert["down_proj"]] for expert in experts],
            ]
    return []


def lay_side_by_side(groups: Sequence[Sequence[nn.Module]], columns: bool = False) -> None:
    """Every group's matrices as one, the groups one after the other: in rows, (sum of out, in)
    in memory, or in columns, which for one token a processor reads from the beginning to the
    end."""
    layers = [layer for group in groups for layer in group]
    if not plain(layers):
        return
    if AMX and on_cpu_in_half(layers[0].weight) and len(groups) == 1:
        return  # mv wants rows
    if len({(layer.weight.dtype, layer.weight.device) for layer in layers}) > 1:
        return
    wholes = torch.stack([torch.cat([layer.weight for layer in group]) for group in groups])
    wholes = wholes.mT.contiguous().mT if columns else wholes  # (groups, sum of out, in)
    for group, whole in zip(groups, wholes, strict=True):
        for layer, share in zip(
            group, whole.split([len(x.weight) for x in group]), strict=True
        ):
            layer.weight.data = share


def at_once(x: Tensor, *layers: nn.Module) -> Sequence[Tensor]:
    """What each of the layers makes of x."""
    found = products(x, *layers)
    if len(found) == len(layers):
        return found
    return found[0].split([layer.out_features for layer in layers], dim=-1)


def products(x: Tensor, *layers: nn.Module) -> list[Tensor]:
    """What the layers make of x, (..., out) each; of few rows as one, (..., sum of out)."""
    few = x.numel() <= FEW_TOKENS * x.size(-1) and not torch.is_grad_enabled()
    stack = stacked([layers]) if few else None
    if stack is None or emulated(stack):
        return [linear(layer, x) for layer in layers]
    return [x @ stack[0]]


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
    if AMX and bias is None and x.numel() == x.size(-1) and in_rows(weight):
        return torch.mv(weight, x.flatten()).view(*x.shape[:-1], -1)
    return F.linear(x, weight, bias)


def emulated(x: Tensor) -> bool:
    return EMULATED and on_cpu_in_half(x)


def quick_half(x: Tensor) -> bool:
    return on_cpu_in_half(x) and not EMULATED


def on_cpu_in_half(x: Tensor) -> bool:
    return x.dtype is torch.bfloat16 and x.device.type == "cpu"


def in_rows(weight: Tensor) -> bool:
    return quick_half(weight) and weight.is_contiguous()


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
