"""Visible checks of lab 03: what check("3.1") and its sisters run."""

from itertools import pairwise

import torch
from visible.questions import hunted

from labkit.checks.declared import Call, Given, New, check

F32 = torch.float32
HALF = [torch.bfloat16, torch.float16]
LOW = [-torch.inf, torch.finfo(F32).min]  # what hides a key in a float mask


def causal(new, total):
    """(new, total) bool: the queries are the last of the keys."""
    return torch.ones(new, total, dtype=torch.bool).tril(total - new)


def window(new, total, width=3):
    """(new, total) bool: causal, and no further back than `width` tokens."""
    return causal(new, total).triu(total - new - width + 1)


def each_text(new, total):
    """(2, 1, new, total): a window for each of two texts."""
    return torch.stack((window(new, total), window(new, total, width=2)))[:, None]


def padded(new, total):
    """(2, 1, new, total): causal; the first two tokens of the second text are padding."""
    seen = torch.arange(total) >= torch.tensor([[0], [2]])
    return causal(new, total) & seen[:, None, None]


def padded_or_itself(new, total):
    """Padding sees itself alone."""
    return padded(new, total) | causal(new, total).triu(total - new)


def one_blind(new, total):
    """A window that hides every key from query 1."""
    return window(new, total) & (torch.arange(new) != 1)[:, None]


def mask_call(rng, new, total, more=0, **options):
    """With up to `more` new tokens more, and as many more cached ones."""
    more = rng.integers(0, more + 1, 1).item()
    return Call("causal_mask", query_length=new + more, key_length=total + 2 * more, **options)


@check("3.1", length=4)
def test_mask_square(rng, length):
    """{length} tokens, nothing cached"""
    return mask_call(rng, length, length)


test_mask_chunk = check("3.1", "3 new tokens after 2 cached ones", new=3, total=5)(mask_call)
test_mask_one_token = check(
    "3.1", "1 new token after 4 cached ones sees them all", new=1, total=5
)(mask_call)
test_mask_positions = check(
    "3.1", "arguments by position: query_length, key_length", new=2, total=6, by_position=True
)(mask_call)
test_mask_long = check("3.1", "4 new tokens after 300 cached ones", new=4, total=304)(mask_call)


def attention_call(rng, shape=(2, 3, 4, 5, 6), mask=None, features=None, **options):
    batch, heads, new, total, size = shape
    inputs = {
        "query": rng.normal(batch, heads, new, size),
        "key": rng.normal(batch, heads, total, size),
        "value": rng.normal(batch, heads, total, features or size),
    }
    if mask is not None:
        inputs["mask"] = mask(new, total)
    return Call("scaled_dot_product_attention", **inputs, **options)


def whole_numbers_call(rng, shape=(2, 2, 4, 5, 4), mask=None, size=2, dtype=F32):
    """A call whose scores are exact in any dtype, and whose values are all positive."""
    call = attention_call(rng, shape, mask)
    inputs = call.steps[0][1]
    for name in ("query", "key"):
        inputs[name] = rng.integers(-size, size + 1, *inputs[name].shape).to(dtype)
    inputs["value"] = rng.uniform(*inputs["value"].shape, low=1.0, high=2.0).to(dtype)
    return call


test_attention = check("3.2", "values without a mask")(attention_call)
test_attention_scale = check(
    "3.2", "values with scale {scale}", shape=(2, 1, 4, 5, 6), scale=[0.3, 0.0]
)(attention_call)
test_attention_mask = check(
    "3.2", "a mask (T, S): each query sees itself and up to two tokens before it",
    shape=[(2, 3, 4, 5, 6), (2, 2, 1, 5, 4)], mask=window,
)(attention_call)  # fmt: skip
test_attention_mask_of_each_text = check(
    "3.2", "a mask (B, 1, T, S), another for each text", mask=each_text
)(attention_call)
test_attention_mask_of_one_text = check(
    "3.2", "one query, keys hidden from the second text alone", mask=padded_or_itself,
    shape=(2, 2, 1, 5, 4),
)(attention_call)  # fmt: skip
test_attention_mask_and_scale = check("3.2", "a mask and scale 0.2", mask=causal, scale=0.2)(
    attention_call
)
test_attention_large_scores = check("3.2", "scores in the thousands", size=100)(
    whole_numbers_call
)


@check("3.2")
def test_attention_low_scores(rng, shape=(2, 2, 4, 5, 4)):
    """a mask, scores near -30000"""
    call = attention_call(rng, shape, window, scale=1.0)
    inputs = call.steps[0][1]
    for name, far in (("query", 300.0), ("key", -100.0)):
        inputs[name] = rng.integers(-1, 2, *inputs[name].shape).float()
        inputs[name][..., 0] = far
    return call


def first_hidden(new, total):
    """(new, total) bool: hides the first two keys from every query."""
    return (torch.arange(total) >= 2).repeat(new, 1)


@check("3.2")
def test_attention_far_ahead(rng, shape=(2, 2, 4, 5, 4)):
    """hidden keys whose scores are 200 above the rest"""
    call = attention_call(rng, shape, first_hidden, scale=1.0)
    inputs = call.steps[0][1]
    inputs["query"][..., 0] = 20.0
    inputs["key"][..., 0] = 10.0 * (torch.arange(shape[3]) < 2)
    return call


test_attention_value_size = check(
    "3.2", "values of size {features}, queries and keys of size 6, with a mask",
    mask=window, features=9,
)(attention_call)  # fmt: skip
test_attention_half = check("3.2", "{dtype} with a mask", points=0.5, mask=window, dtype=HALF)(
    whole_numbers_call
)
test_attention_positions = check(
    "3.2", "arguments by position: query, key, value, mask, scale",
    mask=window, scale=0.7, by_position=True,
)(attention_call)  # fmt: skip
test_attention_gradients = check(
    "3.2", "gradients of query, key and value", mask=window, grad=True
)(attention_call)


def repeat_call(rng, heads=2, n_rep=2, dtype=F32, **options):
    x = rng.normal(2, heads, 7, 5, dtype=dtype)
    return Call("repeat_kv", hidden_states=x, n_rep=n_rep, **options)


test_repeat = check("3.3", "{heads} KV heads, {n_rep} query heads for each", heads=2, n_rep=3)(
    repeat_call
)
test_repeat_nothing = check("3.3", "n_rep 1 changes nothing", heads=3, n_rep=1)(repeat_call)
test_repeat_half = check("3.3", "bfloat16 stays bfloat16", dtype=torch.bfloat16)(repeat_call)
test_repeat_positions = check(
    "3.3", "arguments by position: hidden_states, n_rep", heads=4, by_position=True
)(repeat_call)
test_repeat_gradients = check(
    "3.3", "gradients: a KV head collects those of all its copies", n_rep=4, grad=True
)(repeat_call)


def rotary(positions, size):
    """cos and sin (..., T, size) of the angles of these positions, as lab 02 makes them."""
    inv_freq = 100.0 ** -(torch.arange(0, size, 2).double() / size)
    angles = positions[..., None] * inv_freq  # float32 differs from processor to processor
    angles = torch.cat((angles, angles), dim=-1)
    return {"cos": angles.cos().float(), "sin": angles.sin().float()}


def module_call(
    rng, symbol, config, weights, rotated, cached, shape=(2, 5), scale=4.0, mask=causal,
    bias=False, cuts=None, held=0, positions=None, again=None, dtype=None, **options,
):  # fmt: skip
    """A module of attention on B texts of T tokens, the first at position 3.

    weights     shapes by name
    rotated     features that turn by their position
    cached      numbers that a cache holds for each token; there is one with `cuts`
    shape       (B, T), or None: names and shapes of the parameters
    scale       of hidden_states: a small eps does not show in large numbers
    mask        a function of new tokens and all; may give None
    cuts        where the texts are cut into steps
    held        tokens that the cache holds before the first step
    again       of a second step, the first token that differs
    """
    init = {"config": config, "layer_idx": 2}
    if shape is None:
        return Call(symbol, init=init, names=True)
    numbers = {name: rng.normal(*size) for name, size in weights.items()}
    state = {
        f"{name}.weight": 1 + w / 2 if w.dim() == 1 else w / w.size(1) ** 0.5
        for name, w in numbers.items()
    }
    if bias:
        state |= {f"{n}.bias": rng.normal(len(w)) for n, w in numbers.items() if w.dim() > 1}
    x = scale * rng.normal(*shape, config.arguments["hidden_size"])
    if dtype is not None:  # positive sums: little rounding
        x = (1.5 + x / 20).to(dtype)
        state = {name: weight.abs() + 0.1 for name, weight in state.items()}
    call = Call(symbol, init=init, state=state, dtype=dtype, **options)
    cache = Given("gqa.KVCache", layers=[2], numbers=cached, length_before=held)
    for start, end in pairwise(cuts or (0, shape[1])):
        where = torch.arange(3 + start, 3 + end)[None] if positions is None else positions
        inputs = {"hidden_states": x[:, start:end], **rotary(where, rotated)}
        seen = mask and mask(end - start, held + end)
        inputs |= {} if seen is None else {"mask": seen}
        call.then(**inputs, **({"cache": cache} if cuts else {}))
    if again is not None:
        inputs = dict(call.steps[0][1])
        call.then("__setattr__", name="training", value=False)
        inputs["hidden_states"] = torch.cat((x[:, :again], -x[:, again:]), dim=1)
        call.then(**inputs)
    return call


def one_query(builder):
    """A builder of two calls whose last step has one token."""

    def build(rng, **values):
        return [builder(rng, mask=mask, **values) for mask in (window, padded_or_itself)]

    return build


D, E = 4, 24  # head_dim, and a hidden_size that is 6 * D
SMALL = 12  # a hidden_size that is not H * D
FAR_APART = torch.tensor([[0, 1, 2, 3, 4], [0, 5, 9, 10, 17]])  # more than a shift


def qwen3_call(rng, heads=6, kv_heads=2, size=E, eps=1e-6, bias=False, **options):
    q, kv = heads * D, kv_heads * D
    config = New(
        "Qwen3Config", vocab_size=8, hidden_size=size, intermediate_size=8, head_dim=D,
        num_hidden_layers=4, num_attention_heads=heads, num_key_value_heads=kv_heads,
        attention_bias=bias, rms_norm_eps=eps,
    )  # fmt: skip
    weights = {"q_proj": (q, size), "k_proj": (kv, size), "v_proj": (kv, size)}
    weights |= {"o_proj": (size, q), "q_norm": (D,), "k_norm": (D,)}
    return module_call(rng, "Qwen3Attention", config, weights, D, 2 * kv, bias=bias, **options)


test_qwen3_parameters = check("3.4", "names and shapes of the parameters", shape=None)(
    qwen3_call
)
test_qwen3_parameters_of_other_sizes = check(
    "3.4", "names and shapes of the parameters, hidden_size {size} and {heads} heads of 4",
    size=SMALL, heads=6, shape=None,
)(qwen3_call)  # fmt: skip
test_qwen3_parameters_with_bias = check(
    "3.4", "names and shapes of the parameters, with attention_bias",
    points=0.5, bias=True, shape=None,
)(qwen3_call)  # fmt: skip
test_qwen3_one_token = check("3.4", "one token, which can only see itself", shape=(2, 1))(
    qwen3_call
)
test_qwen3 = check("3.4", "5 tokens, nothing cached")(qwen3_call)
test_qwen3_other_sizes = check(
    "3.4", "hidden_size {size}, {heads} heads of 4, {kv_heads} KV heads: H * D is not E",
    size=SMALL, heads=6, kv_heads=2,
)(qwen3_call)  # fmt: skip
test_qwen3_without_mask = check(
    "3.4", "without a mask every token sees every other", mask=None
)(qwen3_call)
test_qwen3_own_positions = check(
    "3.4", "two texts at other positions: 0, 1, 2, 3, 4 and 0, 5, 9, 10, 17",
    positions=FAR_APART,
)(qwen3_call)  # fmt: skip
test_qwen3_mask_of_each_text = check(
    "3.4", "a mask (B, 1, T, S), another for each text", mask=each_text
)(qwen3_call)
test_qwen3_cache = check(
    "3.4", "5 tokens in three steps with a cache: 2, then 2, then 1", cuts=(0, 2, 4, 5)
)(qwen3_call)
test_qwen3_one_query = check(
    "3.4", "one token, a mask that hides cached keys of all texts, or of the second",
    cuts=(0, 4, 5),
)(one_query(qwen3_call))  # fmt: skip
test_qwen3_held = check(
    "3.4", "a cache that holds {held} tokens from before", held=2, cuts=(0, 3)
)(qwen3_call)
test_qwen3_causality = check(
    "3.4", "what comes later changes nothing before it, in eval mode either", again=3
)(qwen3_call)
test_qwen3_eps = check(
    "3.4", "values with rms_norm_eps {eps}, entries of size {scale}", eps=0.01, scale=4.0
)(qwen3_call)
test_qwen3_bias = check("3.4", "values with attention_bias", points=0.5, bias=True)(qwen3_call)
test_qwen3_positions = check(
    "3.4", "arguments by position: hidden_states, cos, sin, mask", by_position=True
)(qwen3_call)
test_qwen3_half = check(
    "3.4", "{dtype} in, {dtype} out, cos and sin in float32",
    points=0.5, dtype=torch.bfloat16, shape=(2, 1),
)(qwen3_call)  # fmt: skip
test_qwen3_gradients = check("3.4", "gradients of input and parameters", grad=True)(qwen3_call)


def latent_call(rng, size=33, heads=3, q=7, kv=5, nope=6, rope=4, v=8, **options):
    config = New(
        "MLAConfig", hidden_size=size, num_attention_heads=heads, q_lora_rank=q,
        kv_lora_rank=kv, qk_nope_head_dim=nope, qk_rope_head_dim=rope, v_head_dim=v,
    )  # fmt: skip
    weights = {"q_a_proj": (q, size), "q_b_proj": (heads * (nope + rope), q)}
    weights |= {"kv_a_proj_with_mqa": (kv + rope, size), "kv_b_proj": (heads * (nope + v), kv)}
    weights |= {"o_proj": (size, heads * v), "q_a_layernorm": (q,), "kv_a_layernorm": (kv,)}
    return module_call(
        rng, "MultiHeadLatentAttention", config, weights, rope, kv + rope, **options
    )


test_latent_parameters = check("3.5", "names and shapes of the parameters", shape=None)(
    latent_call
)
test_latent_one_token = check("3.5", "one token, which can only see itself", shape=(2, 1))(
    latent_call
)
test_latent = check("3.5", "5 tokens, nothing cached")(latent_call)
test_latent_cache = check(
    "3.5", "5 tokens in three steps with a cache: 2, then 2, then 1", cuts=(0, 2, 4, 5)
)(latent_call)
test_latent_without_mask = check(
    "3.5", "without a mask every token sees every other", mask=None
)(latent_call)
test_latent_own_positions = check(
    "3.5", "two texts at other positions: 0, 1, 2, 3, 4 and 0, 5, 9, 10, 17",
    positions=FAR_APART,
)(latent_call)  # fmt: skip
test_latent_one_query = check(
    "3.5", "one token, a mask that hides cached keys of all texts, or of the second",
    cuts=(0, 4, 5),
)(one_query(latent_call))  # fmt: skip
test_latent_causality = check(
    "3.5", "what comes later changes nothing before it, in eval mode either", again=3
)(latent_call)
test_latent_eps = check(
    "3.5", "very small numbers, where the norms' eps of 1e-6 counts", points=0.5, scale=0.002
)(latent_call)
test_latent_positions = check(
    "3.5", "arguments by position: hidden_states, cos, sin, mask", by_position=True
)(latent_call)
test_latent_half = check(
    "3.5", "{dtype} in, {dtype} out, cos and sin in float32",
    points=0.5, dtype=torch.bfloat16, shape=(2, 1),
)(latent_call)  # fmt: skip
test_latent_gradients = check("3.5", "gradients of input and parameters", grad=True)(
    latent_call
)


def softmax_call(
    rng, shape=(2, 3, 4, 5), mask=window, low=None, favors=False, hidden=0.0, **options
):
    """Under a bool mask, or a float one with `low` where it hides.

    favors      the float mask holds other numbers elsewhere, not zeros
    hidden      how far the scores of hidden keys are above the rest
    """
    allowed = mask(*shape[2:])
    scores = 2 * rng.normal(*shape) + hidden * ~allowed
    if low is not None:
        added = rng.uniform(*allowed.shape, low=-3.0) if favors else torch.zeros(allowed.shape)
        allowed = added.masked_fill(~allowed, low)
    return Call("masked_softmax", scores=scores, mask=allowed, **options)


def half_softmax_call(rng, shape=(1, 2, 4, 5), dtype=torch.float16, high=0.0):
    """Query 1 sees nothing, as the lowest number says; `high` lifts its scores."""
    scores = rng.integers(-4, 5, *shape).to(dtype)
    scores[:, :, 1] += high
    hidden = ~one_blind(*shape[2:])
    mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, torch.finfo(dtype).min)
    return Call("masked_softmax", scores=scores, mask=mask)


test_softmax_bool_mask = check(
    "3.6", "a bool mask, True = may attend", shape=[(2, 3, 4, 5), (2, 1, 1, 5)]
)(softmax_call)
test_softmax_float_mask = check("3.6", "a float mask of 0 and {low}", low=LOW)(softmax_call)


@check("3.6", shape=(3, 4, 5))
def test_softmax_bias(rng, shape):
    """a float mask {shape} of other numbers, which favors some keys"""
    mask = rng.uniform(*shape, low=-3.0, high=3.0)
    return Call("masked_softmax", scores=2 * rng.normal(2, 3, 4, shape[-1]), mask=mask)


test_softmax_blind_query = check(
    "3.6", "all keys hidden from query 1; what hides: {low} (None: False in a bool mask)",
    mask=one_blind, low=[None, *LOW],
)(softmax_call)  # fmt: skip


@check("3.6")
def test_softmax_low_scores(rng, shape=(2, 3, 4, 5), base=-20000.0):
    """scores near {base}, a bool mask"""
    scores = rng.integers(-4, 5, *shape) + base
    return Call("masked_softmax", scores=scores, mask=window(*shape[2:]))


test_softmax_high_hidden_scores = check(
    "3.6", "scores of hidden keys some 200 above the rest, a bool mask", hidden=200.0
)(softmax_call)
test_softmax_high_hidden_scores_float_mask = check(
    "3.6", "the same with a float mask that favors some keys and hides others",
    low=-torch.inf, favors=True, hidden=200.0,
)(softmax_call)  # fmt: skip
test_softmax_half = check(
    "3.6", "{dtype}, a float mask of its lowest number, which hides all keys from query 1",
    points=0.5, dtype=HALF,
)(half_softmax_call)  # fmt: skip
test_softmax_high_scores = check(
    "3.6", "the same in float16, scores of query 1 near {high}", points=0.5, high=1000
)(half_softmax_call)
test_softmax_positions = check(
    "3.6", "a mask (B, 1, T, S); arguments by position: scores, mask",
    mask=padded, by_position=True,
)(softmax_call)  # fmt: skip
test_softmax_gradients = check(
    "3.6", "gradients, one query blind; what hides: {low} (None: False in a bool mask)",
    mask=one_blind, low=[None, -torch.inf], favors=True, grad=True,
)(softmax_call)  # fmt: skip


@check("3.7")
def test_web_attention(rng, heads=6, **options):
    """the values of Qwen3Attention, under a causal mask"""
    return hunted("WebAttention", qwen3_call)(rng, heads=heads, **options)
