"""Visible checks of lab 16: what check("16.1") and its sisters run.

Interpreted programs take milliseconds: few rows, small blocks.
"""

import torch

from labkit.checks.declared import Call, Outcome, check

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16


def moved(stored=None, **limits):
    """A view that compares what kernels moved: {input: (fewest, most) times it is loaded}, and
    how many bytes are stored beside the inputs, at least and at most.

    Within the limits any number is as good as the most.
    """

    def view(outcomes):
        if outcomes[0].failure or not isinstance(outcomes[0].value, dict):
            return outcomes
        report = dict(outcomes[0].value)
        for name, (fewest, most) in limits.items():
            key = f"times {name} is loaded"
            inside = fewest - 1e-3 <= report[key] <= most + 1e-3  # the report is rounded
            report[key] = float(most if inside else report[key])
        if stored:
            inside = stored[0] <= report["bytes stored"] <= stored[1]
            report["bytes stored"] = stored[1] if inside else report["bytes stored"]
        return [Outcome([report], changed=outcomes[0].changed)]

    return view


def spread(tensor, gap=3):
    """The same numbers, with a gap behind each row in memory."""
    wide = torch.zeros(*tensor.shape[:-1], tensor.size(-1) + gap, dtype=tensor.dtype)
    wide[..., : tensor.size(-1)] = tensor
    return wide[..., : tensor.size(-1)]


# 16.1


def norm_call(rng, shape=(3, 6), dtype=F32, scale=2.0, residual=False, gap=0, weight=True,
              eps=None, **options):  # fmt: skip
    size = shape[-1]
    inputs = {"hidden_states": (scale * rng.normal(*shape) + 0.5).to(dtype)}
    inputs["weight"] = (1 + 0.4 * rng.normal(size)).to(dtype)
    if eps is not None:
        inputs["eps"] = eps
    if residual:
        inputs["residual"] = (scale * rng.normal(*shape)).to(dtype)
    for name in ("hidden_states", "residual") if gap else ():
        if name in inputs:
            inputs[name] = spread(inputs[name], gap + (name == "residual"))
    call = Call("rms_norm", **inputs, **options)
    return call.returning("normalized", "hidden_states + residual") if residual else call


test_norm = check("16.1", "rows of {shape}", shape=[(3, 8)])(norm_call)
test_norm_tail = check(
    "16.1", "rows of {shape}: lanes past the end of a row", shape=[(2, 2, 6)]
)(norm_call)
test_norm_eps = check("16.1", "eps {eps} with small numbers", eps=0.1, scale=0.2)(norm_call)
test_norm_rows = check("16.1", "rows with a gap of {gap} behind each in memory", gap=5)(
    norm_call
)
test_norm_large = check(
    "16.1", "float16, large numbers: their squares do not fit", dtype=F16, scale=500.0
)(norm_call)
test_norm_half = check("16.1", "{dtype}", dtype=BF16, residual=[False, True])(norm_call)
test_norm_residual = check("16.1", "with a residual, gaps behind the rows: {gap}",
                           residual=True, gap=[0, 4])(norm_call)  # fmt: skip


@check("16.1", view=moved(hidden_states=(1, 1), residual=(1, 1)))
def test_norm_traffic(rng, shape=(3, 6)):
    """with a residual: each input is loaded once, each result stored once"""
    return norm_call(rng, shape, residual=True, profile=("hidden_states", "residual"))


# 16.2


def swiglu_call(rng, shape=(2, 21), block=16, dtype=F32, halves=False, scale=2.0, **options):
    gate, up = (scale * rng.normal(*shape) for _ in range(2))
    gate, up = gate.to(dtype), up.to(dtype)
    if halves:
        gate, up = spread(gate, shape[-1]), spread(up, shape[-1] + 2)
    return Call("swiglu", gate=gate, up=up, block_size=block, **options)


test_swiglu = check("16.2", "rows of one block", shape=(3, 8), block=8)(swiglu_call)
test_swiglu_tail = check("16.2", "rows of several blocks, the last one not full: {shape}",
                         shape=[(2, 21)])(swiglu_call)  # fmt: skip
test_swiglu_rows = check("16.2", "gate and up are parts of wider tensors", halves=True)(
    swiglu_call
)
test_swiglu_half = check("16.2", "{dtype}", dtype=[BF16, F16], shape=(2, 9))(swiglu_call)
test_swiglu_large = check(
    "16.2", "float16: a product that fits, of a square that does not", dtype=F16, shape=(2, 9),
    scale=90.0,
)(swiglu_call)  # fmt: skip
test_swiglu_grad = check("16.2", "gradients of gate and up", grad=True)(swiglu_call)
test_swiglu_grad_rows = check(
    "16.2", "gradients, gate and up being parts of wider tensors", grad=True, halves=True,
    shape=(3, 7), block=8,
)(swiglu_call)  # fmt: skip


@check("16.2", view=moved(gate=(1, 1), up=(1, 1)))
def test_swiglu_traffic(rng, shape=(2, 21)):
    """forward: gate and up loaded once, one result stored"""
    return swiglu_call(rng, shape, profile=("gate", "up"))


@check("16.2", view=moved(gate=(1, 1), up=(1, 1)))
def test_swiglu_backward_traffic(rng, shape=(2, 21)):
    """backward: gate and up loaded once, two gradients stored"""
    return swiglu_call(rng, shape, profile=("gate", "up"), grad=True)


# 16.3


def loss_call(rng, shape=(3, 21), block=8, ignored=(), scale=2.0, dtype=F32, gap=0, rising=0.0,
              ignore=None, **options):  # fmt: skip
    count, vocab = shape
    logits = scale * rng.normal(*shape) + rising * torch.arange(vocab)
    labels = rng.integers(0, vocab, count)
    labels[list(ignored)] = -100 if ignore is None else ignore
    logits = spread(logits.to(dtype), gap) if gap else logits.to(dtype)
    more = {} if ignore is None else {"ignore_index": ignore}
    call = Call(
        "cross_entropy_", logits=logits, labels=labels, block_size=block, **more, **options
    )
    return call.returning("loss", "gradient")


test_loss = check("16.3", "a vocabulary of one block", shape=(3, 8))(loss_call)
test_loss_blocks = check("16.3", "several blocks, the last one not full: {shape}",
                         shape=[(3, 21)])(loss_call)  # fmt: skip
test_loss_rising = check("16.3", "from block to block the logits rise by {rising} a column",
                         rising=[0.9, -0.9])(loss_call)  # fmt: skip
test_loss_large = check("16.3", "logits around {rising} times their column: exp overflows",
                        rising=[60.0, -60.0])(loss_call)  # fmt: skip
test_loss_ignored = check("16.3", "rows whose label is ignore_index", ignored=(1, 2),
                          shape=(4, 13))(loss_call)  # fmt: skip
test_loss_index = check("16.3", "an ignore_index of {ignore}", ignored=(0,), ignore=5)(
    loss_call
)
test_loss_half = check("16.3", "{dtype}", dtype=[BF16, F16], shape=(2, 11))(loss_call)
test_loss_rows = check("16.3", "rows with a gap of {gap} behind each in memory", gap=3)(
    loss_call
)
test_loss_far = check("16.3", "rows that begin more than 2^31 numbers behind the first",
                      shape=(2, 12), first_program=2**31 // 12 + 1)(loss_call)  # fmt: skip


@check("16.3", view=moved(logits=(1, 2.05)))
def test_loss_traffic(rng, shape=(2, 20), **how):
    """what the kernel moves: logits loaded twice and the label's once more, stored once"""
    return loss_call(rng, shape, profile=("logits",), **how)


# 16.4


def attention_call(rng, shape=(1, 2, 1, 5, 9, 6), block=4, dtype=F32, scale=None, size=1.0,
                   causal=True, **options):  # fmt: skip
    batch, heads, kv_heads, new, total, dim = shape
    query = size * rng.normal(batch, heads, new, dim)
    key, value = (rng.normal(batch, kv_heads, total, dim) for _ in range(2))
    inputs = {"query": query.to(dtype), "key": key.to(dtype), "value": value.to(dtype)}
    if scale is not None:
        inputs["scale"] = scale
    return Call("flash_attention", **inputs, is_causal=causal, block_size=block, **options)


test_attention = check("16.4", "one head, not causal, one block", shape=(1, 1, 1, 4, 4, 8),
                       causal=False)(attention_call)  # fmt: skip
test_attention_blocks = check("16.4", "not causal, several blocks of keys",
                              shape=(1, 1, 1, 3, 10, 8), causal=False)(
    attention_call)  # fmt: skip
test_attention_causal = check("16.4", "causal, as many queries as keys",
                              shape=(1, 1, 1, 6, 6, 8))(attention_call)  # fmt: skip
test_attention_offset = check(
    "16.4", "causal, the last of the keys are new: (B, H, K, T, S, D) = {shape}",
    shape=[(1, 1, 1, 1, 7, 4), (1, 1, 1, 5, 9, 4)],
)(attention_call)  # fmt: skip
test_attention_heads = check("16.4", "several queries per KV head: {shape}",
                             shape=[(2, 4, 2, 2, 3, 4)])(attention_call)  # fmt: skip
test_attention_dim = check("16.4", "head_dim {shape[5]} is not a power of two",
                           shape=[(1, 2, 1, 3, 5, 6)])(attention_call)  # fmt: skip
test_attention_scale = check("16.4", "scale {scale}", scale=0.9, shape=(1, 1, 1, 3, 6, 4))(
    attention_call
)
test_attention_large = check("16.4", "large scores: exp overflows", size=200.0, tolerance=1e-4,
                             shape=(1, 1, 1, 3, 10, 4))(attention_call)  # fmt: skip
test_attention_half = check("16.4", "{dtype}", dtype=[BF16, F16], shape=(1, 2, 1, 3, 6, 8))(
    attention_call
)


def key_loads(shape, block):
    """How many times a causal kernel loads all keys: blocks up to the last query of each
    program, divided by the keys of all KV heads."""
    _, heads, kv_heads, new, total, _ = shape
    ends = [min(total, total - new + start + block) for start in range(0, new, block)]
    return sum(min(total, -(-end // block) * block) for end in ends) * heads / kv_heads / total


def loads_view(shape, block):
    most = key_loads(shape, block)
    return moved(query=(1, 1), key=(0.5, most), value=(0.5, most))


SKIPPED = (1, 2, 1, 8, 12, 4)


@check("16.4", view=loads_view(SKIPPED, 4))
def test_attention_skips(rng, shape=SKIPPED):
    """blocks of keys that no query of the program may see are not loaded; queries are, once"""
    return attention_call(rng, shape, profile=("query", "key", "value"))


# 16.5


def matvec_call(rng, rows=5, columns=24, bits=8, groups=1, block=8, dtype=F32, **options):
    limit = 2 ** (bits - 1)
    weight = rng.integers(-limit, limit, rows, columns)
    if bits == 4:
        low, high = (weight + 8).unflatten(-1, (-1, 2)).unbind(-1)
        weight = (low + 16 * high).to(torch.uint8)
    scale = rng.uniform(rows, groups, low=0.1)
    x = rng.normal(columns).to(dtype)
    inputs = {"x": x, "weight": weight.to(torch.int8) if bits == 8 else weight, "scale": scale}
    return Call("quantized_matvec", **inputs, bits=bits, block_size=block, **options)


test_matvec = check("16.5", "8 bits, one scale per row", rows=4, columns=16)(matvec_call)
test_matvec_groups = check("16.5", "8 bits, {groups} groups per row, a block not full",
                           groups=3, columns=18)(matvec_call)  # fmt: skip
test_matvec_four = check("16.5", "4 bits, {groups} groups per row", bits=4, groups=[1, 3])(
    matvec_call
)
test_matvec_half = check("16.5", "{dtype}, {bits} bits", dtype=[BF16], bits=[8, 4])(matvec_call)


@check("16.5", view=moved(weight=(1, 1), x=(1, 64), scale=(1, 64)))
def test_matvec_traffic(rng, rows=8, columns=16, bits=4):
    """each byte of the weight is loaded once, and only the result is stored"""
    return matvec_call(rng, rows, columns, bits, profile=("weight", "x", "scale"))


# 16.6


def moe_call(rng, tokens=4, top_k=2, sizes=(4, 8), experts=3, idle=(), picked=None, block=4,
             dtype=F32, **options):  # fmt: skip
    likes = rng.normal(tokens, experts)
    likes[:, list(idle)] = -torch.inf
    order = likes.argsort(dim=-1, descending=True)[:, :top_k]
    order = order if picked is None else torch.tensor(picked)
    x, weight = rng.normal(len(order), sizes[0]), rng.normal(experts, *sizes[::-1])
    inputs = {"x": x.to(dtype), "weight": weight.to(dtype), "experts": order}
    return Call("moe_linear", **inputs, block_size=block, **options)


test_moe = check("16.6", "one expert per token, sizes that fill their blocks", top_k=1)(
    moe_call
)
test_moe_picks = check("16.6", "{top_k} experts per token", top_k=[2, 3])(moe_call)
test_moe_sizes = check("16.6", "in_size and out_size {sizes}, no multiples of the block",
                       sizes=[(6, 5)], tokens=3)(moe_call)  # fmt: skip
test_moe_many = check("16.6", "{tokens} tokens, more than a block for an expert", tokens=9,
                      experts=2, top_k=1)(moe_call)  # fmt: skip
test_moe_idle = check("16.6", "experts that nobody picked", idle=(0, 2), experts=4, top_k=1)(
    moe_call
)
test_moe_half = check("16.6", "{dtype}", dtype=[BF16, F16], tokens=3)(moe_call)


def expert_loads(picked, experts, block=4, sizes=(4, 8)):
    """All weights once per block of picks of their expert; each token once per pick and block
    of outputs."""
    counts = torch.tensor(picked).flatten().bincount(minlength=experts)
    weight = -(-counts // block).sum().item() / experts
    return moved(weight=(0.1, weight), x=(0.5, len(picked[0]) * -(-sizes[1] // block)))


PICKED = [(0, 2), (2, 0), (2, 3), (0, 2), (2, 3)]


@check("16.6", view=expert_loads(PICKED, 5))
def test_moe_traffic(rng, picked=PICKED, experts=5):
    """a weight is loaded once per block of picks, no sorted copy of the tokens is stored"""
    return moe_call(rng, picked=picked, experts=experts, profile=("x", "weight"))


# 16.7


def backward_call(rng, shape=(1, 2, 1, 3, 6, 4), causal=True, dtype=F32, size=1.0, **options):
    call = attention_call(rng, shape, causal=causal, dtype=dtype, size=size, **options)
    inputs = call.steps[0][1]
    query, key, value = (inputs[name].double() for name in ("query", "key", "value"))
    key, value = (x.repeat_interleave(shape[1] // shape[2], dim=1) for x in (key, value))
    scores = query @ key.mT * inputs.get("scale", shape[-1] ** -0.5)
    later = torch.ones(shape[3:5], dtype=torch.bool).triu(shape[4] - shape[3] + 1)
    weights = scores.masked_fill(later & causal, -torch.inf).softmax(dim=-1)
    call.symbol = "flash_attention_backward"
    inputs["out"] = (weights @ value).to(dtype)
    inputs["grad_out"] = rng.normal(*shape[:2], shape[3], shape[5]).to(dtype)
    return call.returning("query_grad", "key_grad", "value_grad")


test_backward = check("16.7", "one head, not causal, one block", shape=(1, 1, 1, 4, 4, 4),
                      causal=False)(backward_call)  # fmt: skip
test_backward_blocks = check("16.7", "not causal, several blocks: {shape}", causal=False,
                             shape=[(1, 1, 1, 5, 7, 4)])(backward_call)  # fmt: skip
test_backward_causal = check("16.7", "causal, as many queries as keys",
                             shape=(1, 1, 1, 5, 5, 4))(backward_call)  # fmt: skip
test_backward_offset = check("16.7", "causal, the last of the keys are new: {shape}",
                             shape=[(1, 1, 1, 2, 6, 4)])(backward_call)  # fmt: skip
test_backward_heads = check("16.7", "several queries per KV head: {shape}",
                            shape=[(2, 4, 2, 2, 3, 4)])(backward_call)  # fmt: skip
test_backward_scale = check("16.7", "scale {scale}, head_dim 3", scale=0.9,
                            shape=(1, 1, 1, 3, 4, 3))(backward_call)  # fmt: skip
test_backward_large = check("16.7", "large scores: exp overflows", size=200.0, tolerance=1e-4,
                            shape=(1, 1, 1, 2, 6, 4))(backward_call)  # fmt: skip
test_backward_half = check("16.7", "{dtype}", dtype=[BF16, F16], shape=(1, 1, 1, 3, 4, 4))(
    backward_call
)


def backward_loads(shape, block=2):
    """Keys: two passes for the queries, one for themselves; queries: two for themselves, and
    one per block of keys that they may see. What is stored: two numbers per query, and the
    three gradients."""
    batch, heads, kv_heads, new, total, dim = shape
    keys = key_loads(shape, block)
    begins = [max(0, first - total + new) // block * block for first in range(0, total, block)]
    queries = 2 + sum(new - begin for begin in begins) / new
    numbers = batch * (heads * new * (2 + dim) + 2 * kv_heads * total * dim)
    return moved(
        key=(1, 2 * keys + 1), value=(1, keys + 1), query=(1, queries), stored=(4, 4 * numbers)
    )


SEEN = (1, 1, 1, 8, 8, 2)


@check("16.7", view=backward_loads(SEEN))
def test_backward_skips(rng, shape=SEEN):
    """blocks that hold nothing to attend to are not loaded, and no table of scores is stored"""
    return backward_call(rng, shape, block=2, profile=("query", "key", "value"))


@check("16.8", size=9)
def test_web_norm(rng, size):
    """rows of 8 numbers, and of {size}"""
    return [Call("web_norm", x=rng.normal(n)) for n in (8, size)]


@check("16.9", gap=5)
def test_web_rows(rng, gap):
    """rows without gaps, and with {gap} numbers between them"""
    return [Call("web_rows", x=spread(rng.normal(3, 6), n)) for n in (0, gap)]
