"""Visible checks of lab 16: what check("16.1") and its sisters run.

Interpreted programs take milliseconds: few rows, small blocks.
"""

import torch

from labkit.checks.declared import Call, Outcome, check

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16


def moved(**limits):
    """A view that compares what kernels moved: {input: (fewest, most) times it is loaded}.

    Within the limits any number is as good as the most.
    """

    def view(outcomes):
        if outcomes[0].failure or not isinstance(outcomes[0].value, dict):
            return outcomes
        report = dict(outcomes[0].value)
        for name, (fewest, most) in limits.items():
            key = f"times {name} is loaded"
            report[key] = most if fewest <= report[key] <= most else report[key]
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


@check("16.8", size=9)
def test_web_norm(rng, size):
    """rows of 8 numbers, and of {size}"""
    return [Call("web_norm", x=rng.normal(n)) for n in (8, size)]


@check("16.9", gap=5)
def test_web_rows(rng, gap):
    """rows without gaps, and with {gap} numbers between them"""
    return [Call("web_rows", x=spread(rng.normal(3, 6), n)) for n in (0, gap)]
