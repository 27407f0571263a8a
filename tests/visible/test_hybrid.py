"""Visible checks of lab 12: what check("12.1") and its sisters run."""

from functools import partial

import torch
from visible.questions import PADDED, exact_numbers, hunted, in_eval_mode, mask_of, thirds
from visible.test_gqa import FAR_APART, each_text, module_call, one_query
from visible.test_moe import fresh
from visible.test_moe import state as moe_state

from labkit.checks.declared import Call, Given, New, Outcome, check, rows

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
loose = partial(check, tolerance=1e-4)  # where another order of sums is as right


def mask_call(rng, new, total, size, sinks=0, more=0, **options):
    """With up to `more` new tokens more, and as many more cached ones, if any are cached."""
    added, cached = rng.integers(0, more + 1, 2).tolist()
    total += added + cached * (total > new)
    new += added
    inputs = {"query_length": new, "key_length": total, "window": size}
    if sinks:
        inputs["sinks"] = sinks
    return Call("sliding_window_mask", **inputs, **options)


test_window = check("12.1", "a window of {size}, nothing cached", new=6, total=6, size=[3])(
    mask_call
)
test_window_one = check("12.1", "window 1: a token sees itself alone", new=4, total=4, size=1)(
    mask_call
)
test_window_wide = check(
    "12.1", "a window wider than the text is a causal mask", new=4, total=4, size=9
)(mask_call)
test_window_cache = check(
    "12.1", "new tokens after cached ones, a window of {size}",
    size=3, cases=rows("new, total", (2, 7), (1, 6)),
)(mask_call)  # fmt: skip
test_window_sinks = check(
    "12.1", "{sinks} sinks, a window of {size}",
    size=2, cases=rows("new, total, sinks", (6, 6, 1), (3, 7, 2)),
)(mask_call)  # fmt: skip
test_window_early_sinks = check(
    "12.1", "4 sinks: the first tokens do not see later ones", new=6, total=6, size=1, sinks=4
)(mask_call)
test_window_positions = check(
    "12.1", "arguments by position: query_length, key_length, window, sinks",
    new=3, total=8, size=2, sinks=1, by_position=True,
)(mask_call)  # fmt: skip


def norm_call(
    rng, symbol="Qwen3NextRMSNorm", size=8, eps=1e-6, dtype=F32, scale=2.0, **options
):
    x = (scale * rng.normal(2, 3, size)).to(dtype)
    inputs = {"hidden_states": x}
    if symbol.endswith("Gated"):
        inputs["gate"] = (2 * rng.normal(2, 3, size)).to(dtype)
    init, state = {"hidden_size": size, "eps": eps}, {"weight": 0.4 * rng.normal(size)}
    return Call(symbol, init=init, state=state, dtype=dtype, **inputs, **options)


@check("12.2", points=0.5)
def test_norm_start(rng):
    """Qwen3NextRMSNorm: the weight is zeros at the start, eps is 1e-6 if none is given"""
    x = 0.002 * rng.normal(2, 8)
    call = Call("Qwen3NextRMSNorm", init={"hidden_size": 8}, names=True, hidden_states=x)
    return call.then(".weight")


test_norm = check("12.2", "Qwen3NextRMSNorm: the scale is 1 + weight, in eval mode either")(
    in_eval_mode(norm_call)
)
test_norm_eps = check(
    "12.2", "Qwen3NextRMSNorm: eps 0.1 with small numbers", points=0.5, eps=0.1, scale=0.2
)(norm_call)


@check("12.2", dtype=[BF16], view=exact_numbers)
def test_norm_digits(rng, dtype, shape=(4, 3), symbol="Qwen3NextRMSNorm"):
    """{symbol} in {dtype}, to the last digit: what is rounded, and when"""
    call = norm_call(rng, symbol, dtype=dtype)
    inputs, x = call.steps[0][1], thirds(rng, *shape)
    inputs["hidden_states"] = x.to(dtype)
    if symbol == "Qwen3NextRMSNorm":  # 1 + weight has more digits than bfloat16
        call.state["weight"] = (3 * rng.integers(-60, 60, 8) + 2) / 512
        return call
    gate = 2 * rng.normal(*shape, 8).to(dtype)
    scaled = call.state["weight"].to(dtype) * (x / 3).to(dtype)
    exact = scaled.double() * torch.nn.functional.silu(gate.double())
    doubtful = (exact * (1 - 1e-5)).to(dtype) != (exact * (1 + 1e-5)).to(dtype)
    inputs["gate"] = gate.masked_fill(doubtful, 0)
    return call


test_norm_large = check(
    "12.2", "Qwen3NextRMSNorm: float16, large numbers", points=0.5, dtype=F16, scale=500.0
)(norm_call)

D, R = 8, 4  # head_dim, of which R features rotate


def config(size=12, **more):
    """A Qwen3NextConfig; what is not named is small."""
    fields = {
        "vocab_size": 8, "hidden_size": size, "intermediate_size": 8, "num_hidden_layers": 4,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": D,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 3,
        "linear_value_head_dim": 5,
    }  # fmt: skip
    return New("Qwen3NextConfig", **(fields | more))


def attention_call(rng, heads=6, kv_heads=2, size=12, eps=1e-6, rotated=R, **options):
    q, kv = heads * D, kv_heads * D
    made = config(
        size, num_attention_heads=heads, num_key_value_heads=kv_heads, rms_norm_eps=eps
    )
    weights = {"q_proj": (2 * q, size), "k_proj": (kv, size), "v_proj": (kv, size)}
    weights |= {"o_proj": (size, q), "q_norm": (D,), "k_norm": (D,)}
    return module_call(rng, "GatedAttention", made, weights, rotated, 2 * kv, **options)


test_attention_one = check("12.2", "one token, which can only see itself", shape=(2, 1))(
    attention_call
)
test_attention = check("12.2", "5 tokens, 4 of 8 features of a head rotated")(attention_call)
test_attention_all = check("12.2", "all 8 features of a head rotated", points=0.5, rotated=D)(
    attention_call
)
test_attention_positions = check(
    "12.2", "each text with positions of its own", points=0.5, positions=FAR_APART
)(attention_call)
test_attention_mask = check(
    "12.2", "a mask (B, 1, T, S), another for each text", points=0.5, mask=each_text
)(attention_call)
test_attention_one_query = check(
    "12.2", "one token, a mask that hides cached keys of all texts, or of the second",
    points=0.5, cuts=(0, 4, 5),
)(one_query(attention_call))  # fmt: skip
test_attention_cache = check(
    "12.2", "5 tokens in three steps with a cache: 2, then 2, then 1", cuts=(0, 2, 4, 5)
)(attention_call)
test_attention_causality = check(
    "12.2", "what comes later changes nothing before it, in eval mode either", points=0.5,
    again=3,
)(attention_call)  # fmt: skip
test_attention_half = check(
    "12.2", "bfloat16 in, bfloat16 out, cos and sin in float32",
    points=0.5, dtype=BF16, shape=(2, 1),
)(attention_call)  # fmt: skip
test_attention_gradients = check(
    "12.2", "gradients of input and parameters", points=0.5, grad=True
)(attention_call)


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


def step_inputs(rng, lead=(2, 3), key_size=4, value_size=5):
    """A key of length 1, a state, and the rest, for each of `lead`."""
    return {
        "state": rng.normal(*lead, key_size, value_size),
        "query": rng.normal(*lead, key_size),
        "key": unit(rng.normal(*lead, key_size)),
        "value": rng.normal(*lead, value_size),
        "g": -rng.uniform(*lead, low=0.2, high=1.5),
        "beta": rng.uniform(*lead, low=0.2, high=0.9),
    }


def step_call(rng, lead=(2, 3), key_size=4, value_size=5, changed=(), **options):
    """A call of gated_delta_step; `changed` gives some inputs one value everywhere."""
    inputs = step_inputs(rng, lead, key_size, value_size)
    for name, number in dict(changed).items():
        inputs[name] = torch.full_like(inputs[name], number)
    call = Call("gated_delta_step", **options).then(**inputs)
    return call.returning("output", "state")


test_step_empty = check(
    "12.3", "a state of zeros: what is written is beta times value", changed={"state": 0.0}
)(step_call)
test_step_nothing = check(
    "12.3", "beta 0 writes nothing; the state still fades", changed={"beta": 0.0}
)(step_call)
test_step_replace = check(
    "12.3", "beta 1, no fading: the value of the key is replaced",
    changed={"beta": 1.0, "g": 0.0},
)(step_call)  # fmt: skip
test_step_forget = check("12.3", "g -200: nothing is left", changed={"g": -200.0})(step_call)
test_step = check("12.3", "everything at once", points=2)(step_call)


@check("12.3")
def test_step_again(rng):
    """the key that was just written, asked for"""
    call = step_call(rng, changed={"beta": 1.0})
    inputs = call.steps[0][1]
    inputs["query"] = inputs["key"]
    return call


test_step_lead = check(
    "12.3", "a state of one text and one head, without axes for them", points=0.5, lead=()
)(step_call)
test_step_positions = check(
    "12.3", "arguments by position: state, query, key, value, g, beta", by_position=True
)(step_call)
test_step_gradients = check("12.3", "gradients", points=0.5, grad=True)(step_call)


def rule_inputs(rng, length=5, heads=(2, 4), sizes=(4, 5), batch=2, dtype=F32, scale=1.0):
    keys, values = heads
    return {
        "query": (scale * rng.normal(batch, length, keys, sizes[0])).to(dtype),
        "key": (scale * rng.normal(batch, length, keys, sizes[0])).to(dtype),
        "value": rng.normal(batch, length, values, sizes[1]).to(dtype),
        "g": -rng.uniform(batch, length, values, low=0.02, high=0.8),
        "beta": rng.uniform(batch, length, values, low=0.2, high=0.9),
    }


def prepare_call(rng, options=None, **sizes):
    call = Call("prepare_heads", **(options or {}), **rule_inputs(rng, **sizes))
    return call.returning("query", "key", "value", "g", "beta")


test_prepare = check(
    "12.4", "prepare_heads: {heads} key and value heads", heads=[(2, 2), (2, 4)]
)(prepare_call)
test_prepare_small = check(
    "12.4", "prepare_heads: keys of length 0.002, where 1e-6 counts", points=0.5, scale=0.001
)(prepare_call)
test_prepare_half = check(
    "12.4", "prepare_heads: bfloat16 in, float32 out", points=0.5, dtype=BF16
)(prepare_call)


def rule_call(rng, symbol="gated_delta_rule", start=True, options=None, chunk=None, **sizes):
    """start: with an initial_state."""
    inputs = rule_inputs(rng, **sizes)
    batch, _, values, value_size = inputs["value"].shape
    if start:
        inputs["initial_state"] = rng.normal(batch, values, inputs["key"].size(-1), value_size)
    if chunk:
        inputs["chunk_size"] = chunk
    return Call(symbol, **inputs, **(options or {})).returning("output", "state")


test_rule_one = check("12.4", "one token after a state", length=1)(rule_call)
test_rule = check("12.4", "5 tokens, no state before", points=2, start=False)(rule_call)
test_rule_start = check("12.4", "{batch} texts, each after a state", batch=[2, 1])(rule_call)
test_rule_half = check("12.4", "bfloat16 in, bfloat16 out, the state in float32", dtype=BF16)(
    rule_call
)
test_rule_gradients = check("12.4", "gradients", points=0.5, options={"grad": True})(rule_call)

CHUNKS = {"symbol": "chunk_gated_delta_rule", "length": 10}
test_chunk_one = loose("12.5", "one chunk, no state before", start=False, chunk=10, **CHUNKS)(
    rule_call
)
test_chunk_state = loose("12.5", "one chunk after a state", chunk=16, **CHUNKS)(rule_call)
test_chunks = loose("12.5", "chunks of {chunk}, the last one shorter", chunk=[4, 3], **CHUNKS)(
    rule_call
)
test_chunk_single = loose("12.5", "chunks of 1 token", points=0.5, chunk=1, **CHUNKS)(rule_call)
test_chunk_operations = loose(
    "12.5", "1,024 tokens in chunks of 64: at most 4,000 torch operations", points=5,
    symbol=CHUNKS["symbol"], length=1024, chunk=64, batch=1,
    options={"most_operations": 4000},
)(rule_call)  # fmt: skip
test_chunk_size = loose(
    "12.5", "64 tokens in chunks of 4: no matrix of 64 x 64", points=0.5,
    symbol=CHUNKS["symbol"], length=64, chunk=4, sizes=(4, 4), heads=(1, 1), batch=1,
    options={"most_numbers": 2000},
)(rule_call)  # fmt: skip
test_chunk_half = check(
    "12.5", "bfloat16 in, bfloat16 out, the state in float32", dtype=BF16, chunk=4, **CHUNKS
)(rule_call)
test_chunk_default = loose(
    "12.5", "chunk_size left out, 70 tokens", symbol=CHUNKS["symbol"], length=70
)(rule_call)
test_chunk_gradients = loose(
    "12.5", "gradients", points=0.5, chunk=4, options={"grad": True}, **CHUNKS
)(rule_call)


@loose(
    "12.5",
    "g near -20: exp of a difference must not overflow, nor its gradient",
    grad=[False, True],
)
def test_chunk_strong_decay(rng, length=40, grad=False):
    call = rule_call(rng, CHUNKS["symbol"], length=length, chunk=16, options={"grad": grad})
    inputs = call.steps[0][1]
    inputs["g"] = 40 * inputs["g"]
    return call


test_gated_norm = check(
    "12.6", "Qwen3NextRMSNormGated, in eval mode either", symbol="Qwen3NextRMSNormGated"
)(in_eval_mode(norm_call))
test_gated_norm_eps = check(
    "12.6", "Qwen3NextRMSNormGated: eps 0.1 with small numbers",
    points=0.5, symbol="Qwen3NextRMSNormGated", eps=0.1, scale=0.2,
)(norm_call)  # fmt: skip
test_gated_norm_digits = check("12.6", symbol=["Qwen3NextRMSNormGated"])(test_norm_digits)
test_gated_norm_large = check(
    "12.6", "Qwen3NextRMSNormGated: float16, large numbers", points=0.5,
    symbol="Qwen3NextRMSNormGated", dtype=F16, scale=500.0,
)(norm_call)  # fmt: skip


def net_call(
    rng, length=5, pieces=None, before=False, keys=2, values=4, sizes=(3, 5), width=4, size=12,
    batch=2, eps=1e-6, scale=1.0, again=None, dtype=F32, rule="", mask=(), **options,
):  # fmt: skip
    """A GatedDeltaNet on one piece of a text.

    before   after an earlier piece, whose state is drawn
    again    of a second step, the first token that differs
    rule     what replaces self.rule, by its name in doubles/hybrid.py
    mask     the attention_mask, a row of digits for each text
    """
    batch = len(mask) or batch
    key_size, value_size = keys * sizes[0], values * sizes[1]
    channels = 2 * key_size + value_size
    made = config(
        size, linear_num_key_heads=keys, linear_num_value_heads=values,
        linear_key_head_dim=sizes[0], linear_value_head_dim=sizes[1],
        linear_conv_kernel_dim=width, rms_norm_eps=eps,
    )  # fmt: skip
    state = {
        "in_proj_qkvz.weight": rng.normal(channels + value_size, size) / size**0.5,
        "in_proj_ba.weight": rng.normal(2 * values, size) / size**0.5,
        "conv1d.weight": rng.normal(channels, 1, width),
        "dt_bias": rng.normal(values),
        "A_log": rng.uniform(values, low=-2.0, high=0.3),
        "norm.weight": 1 + 0.4 * rng.normal(sizes[1]),
        "out_proj.weight": rng.normal(size, value_size) / value_size**0.5,
    }
    inputs = {"hidden_states": scale * rng.normal(batch, length, size, dtype=dtype)}
    if before:
        held = rng.normal(batch, channels, width - 1, dtype=dtype)
        inputs["state"] = (held, rng.normal(batch, values, *sizes))
    init = {"config": made, "layer_idx": 1}
    half = None if dtype is F32 else dtype
    call = Call("GatedDeltaNet", init=init, state=state, dtype=half, **options)
    if mask:
        inputs["attention_mask"] = mask_of(mask)
    if mask and before:  # nothing was read of a text that begins now
        for held in inputs["state"]:
            held[inputs["attention_mask"][:, 0] == 0] = 0
    if rule:
        call.then("__setattr__", name="rule", value=Given(f"hybrid.{rule}"))
    call.then(**inputs)
    if again is not None:
        x = inputs["hidden_states"]
        call.then("__setattr__", name="training", value=False)
        changed = torch.cat((x[:, :again], -x[:, again:]), dim=1)
        call.then(**{**inputs, "hidden_states": changed})
    return call.returning("output", "state")


test_net = loose("12.6", "5 tokens from the beginning", points=2)(net_call)
test_net_short = loose(
    "12.6", "tokens: {length}, fewer than the convolution is wide", length=[2, 1]
)(net_call)
test_net_width = loose("12.6", "a convolution {width} wide", width=[2, 5])(net_call)
test_net_rule = loose("12.6", "another rule in self.rule", rule="passing_rule")(net_call)


def is_pair(value):
    return isinstance(value, (list, tuple)) and len(value) == 2


def g_of(outcomes):
    """With passing_rule, whose state is g: that g; a value of another form stays."""
    values = [o.value for o in outcomes]
    found = [v[1][1] if is_pair(v) and is_pair(v[1]) else v for v in values]
    return [Outcome([v], failure=o.failure) for v, o in zip(found, outcomes, strict=True)]


test_net_g = check(
    "12.6", "bfloat16: g is computed in float32",
    points=0.5, rule="passing_rule", dtype=BF16, view=g_of,
)(net_call)  # fmt: skip
test_net_padding = loose(
    "12.6",
    "padding on the left: attention_mask {mask}",
    points=0.25,
    mask=[*PADDED, ("00001",)],
)(net_call)
test_net_padding_later = loose(
    "12.6", "texts that begin in a later piece: attention_mask {mask}", points=0.25,
    mask=PADDED[:2], before=True,
)(net_call)  # fmt: skip


def dtypes_of(outcomes):
    """Of what comes back, its dtypes: another order of sums rounds otherwise."""

    def names(value):
        many = isinstance(value, (list, tuple))
        return [names(each) for each in value] if many else str(getattr(value, "dtype", "none"))

    return [Outcome([{"dtypes": names(o.values)}], failure=o.failure) for o in outcomes]


test_net_half = check(
    "12.6", "bfloat16 in and out, the rule's state in float32",
    points=0.5, view=dtypes_of, dtype=BF16,
)(net_call)  # fmt: skip
test_net_padding_half = check(
    "12.6", "bfloat16 with padding", points=0.5, view=dtypes_of, dtype=BF16, mask=PADDED[1]
)(net_call)
test_net_decode = loose("12.6", "one token after a state", length=1, before=True)(net_call)
test_net_goes_on = loose("12.6", "5 tokens after a state", before=True)(net_call)
test_net_causality = loose(
    "12.6", "what comes later changes nothing before it, in eval mode either", points=0.5,
    again=3,
)(net_call)  # fmt: skip
test_net_gradients = loose("12.6", "gradients of input and parameters", points=0.5, grad=True)(
    net_call
)


def shared_call(
    rng, experts=4, top_k=2, shape=(2, 3, 6), sizes=(5, 7), dtype=None, scale=0.7, **options
):
    """sizes: of an expert, and of the shared one"""
    made = config(
        shape[-1], num_experts=experts, num_experts_per_tok=top_k,
        moe_intermediate_size=sizes[0], shared_expert_intermediate_size=sizes[1],
        intermediate_size=9,
    )  # fmt: skip
    weights = moe_state(experts, shape[-1], sizes[0], lambda *size: scale * rng.normal(*size))
    for name in ("gate_proj", "up_proj", "down_proj"):
        size = (sizes[1], shape[-1]) if name != "down_proj" else (shape[-1], sizes[1])
        weights[f"shared_expert.{name}.weight"] = scale * rng.normal(*size)
    weights["shared_expert_gate.weight"] = 2 * scale * rng.normal(1, shape[-1])
    x = rng.normal(*shape)
    if dtype:  # positive sums round little; the logits are the first features
        weights = {name: 0.1 + weight.abs() for name, weight in weights.items()}
        weights["gate.weight"] = torch.eye(experts, shape[-1])
        x = 0.5 * torch.argsort(x, dim=-1).to(dtype)
    call = Call("Qwen3NextSparseMoeBlock", init={"config": made}, state=weights, dtype=dtype,
                hidden_states=x, **options)  # fmt: skip
    return call.returning("mixed", "router_logits")


test_shared_names = check("12.7", "names and shapes of the parameters", points=0.5)(
    lambda rng: fresh(shared_call(rng))
)
test_shared = check("12.7", "2 texts of 3 tokens, in eval mode either", points=2)(
    in_eval_mode(shared_call)
)
test_shared_one = check("12.7", "one token, top_k 1", top_k=1, shape=(1, 1, 6))(shared_call)
test_shared_half = check(
    "12.7", "bfloat16 in, bfloat16 out", points=0.5, dtype=BF16, shape=(1, 1, 6), scale=0.2
)(shared_call)
test_shared_gradients = check("12.7", "gradients of input and parameters", grad=True)(
    shared_call
)


@check("12.8", more=3)
def test_web_window(rng, more):
    """a text shorter than the window, and one that is {more} tokens longer"""
    window = int(rng.integers(3, 9))
    for length in (window - 1, window + more):
        yield Call("web_window", length=length, window=window)


@check("12.9")
def test_web_step(rng, lead=(2, 3)):
    """the output and the state of gated_delta_step"""
    return hunted("web_step", step_call)(rng, lead=lead)


@check("12.10", width=4)
def test_web_convolution(rng, width):
    """{width} weights per channel"""
    inputs = {"inputs": rng.normal(2, 3, 7), "weight": rng.normal(3, 1, width)}
    return Call("web_convolution", **inputs)
