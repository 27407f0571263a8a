"""Visible checks of lab 06: what check("6.1") and its sisters run."""

from dataclasses import replace
from itertools import accumulate, pairwise

import torch
from visible.questions import PADDED, hunted, in_eval_mode, mask_of
from visible.test_gqa import causal, one_query

from labkit.checks.declared import Call, Given, New, Outcome, check, rows

SIZES = {
    "vocab_size": 9, "hidden_size": 6, "intermediate_size": 7, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "rope_theta": 50.0,
    "max_position_embeddings": 32, "num_experts": 0, "num_experts_per_tok": 2,
    "moe_intermediate_size": 5, "norm_topk_prob": True,
}  # fmt: skip
# Values of checks. sparse: the layers that hold experts.
MIXTURE = {"num_experts": 4, "decoder_sparse_step": 2, "sparse": (1,)}
LATE_MIXTURE = {
    "num_experts": 4, "num_hidden_layers": 3, "mlp_only_layers": (0,), "sparse": (1, 2)
}  # fmt: skip
TIED = {"tie_word_embeddings": [True, False]}
BF16 = torch.bfloat16


def layer_state(rng, fields, sparse=False, name=""):
    """Weights of one layer; those of the norms are not 1, and no two of them are alike."""
    size, D = fields["hidden_size"], fields["head_dim"]
    q, kv = (fields[f"num_{n}_heads"] * D for n in ("attention", "key_value"))
    norms = {"input_layernorm": size, "post_attention_layernorm": size}
    norms |= {"self_attn.q_norm": D, "self_attn.k_norm": D}
    shapes = {"q": (q, size), "k": (kv, size), "v": (kv, size), "o": (size, q)}
    shapes = {f"self_attn.{n}_proj": shape for n, shape in shapes.items()}
    inner, parts = fields["intermediate_size"], ["mlp"]
    if sparse:
        inner = fields["moe_intermediate_size"]
        parts = [f"mlp.experts.{x}" for x in range(fields["num_experts"])]
        shapes["mlp.gate"] = (fields["num_experts"], size)
    for part in parts:
        shapes |= {f"{part}.{n}_proj": (inner, size) for n in ("gate", "up")}
        shapes[f"{part}.down_proj"] = (size, inner)
    weights = {n: 1 + 0.5 * rng.normal(width) for n, width in norms.items()}
    weights |= {n: rng.normal(*shape) / shape[1] ** 0.5 for n, shape in shapes.items()}
    return {f"{name}{n}.weight": weight for n, weight in weights.items()}


def positive(call):
    """The call with positive sums, so that bfloat16 rounds little."""
    state = call.state.items()
    call.state = {n: weight if "norm" in n else weight.abs() for n, weight in state}
    return call


def rotary(fields, start, end, rows=1):
    """cos and sin (rows, T, D) of the tokens start to end; the first of all has position 3, in
    a second row 6."""
    size = fields["head_dim"]
    inv_freq = fields["rope_theta"] ** -(torch.arange(0, size, 2) / size)
    positions = (
        torch.arange(1, rows + 1)[:, None, None] * torch.arange(3 + start, 3 + end)[:, None]
    )
    angles = (positions * inv_freq).repeat(1, 1, 2)
    return {"cos": angles.cos(), "sin": angles.sin()}


def cache_for(fields, pieces, layers):
    """The cache as an input, where the tokens come in several pieces."""
    numbers = 2 * fields["num_key_value_heads"] * fields["head_dim"]
    cache = Given("gqa.KVCache", layers=layers, numbers=numbers)
    return {"cache": cache} if len(pieces) > 1 else {}


def layer_call(
    rng, layer_idx=1, sparse=(), pieces=(4,), batch=2, grad=False, by_position=False,
    mask=causal, apart=False, **fields,
):  # fmt: skip
    """Layer layer_idx on tokens that are given in pieces; one token needs no mask.

    mask    a function of new tokens and all
    apart   whether each text has positions of its own
    """
    fields = SIZES | fields
    init = {"config": New("Qwen3Config", **fields), "layer_idx": layer_idx}
    state = layer_state(rng, fields, layer_idx in sparse)
    options = {"grad": grad, "by_position": by_position}
    call = Call("Qwen3DecoderLayer", init=init, state=state, **options)
    x = 3 * rng.normal(batch, sum(pieces), fields["hidden_size"])
    cache = cache_for(fields, pieces, [layer_idx])
    for start, end in pairwise((0, *accumulate(pieces))):
        seen = {} if end == 1 else {"mask": mask(end - start, end)}
        tables = rotary(fields, start, end, batch if apart else 1)
        call.then(hidden_states=x[:, start:end], **tables, **seen, **cache)
    return call.returning("hidden_states", "router_logits")


def apart_from_input(outcomes):
    """All but changed inputs: a check of its own looks at those."""
    return [replace(outcome, changed=[]) for outcome in outcomes]


@check("6.1", layer_idx=[0, 1], cases=[MIXTURE, LATE_MIXTURE])
def test_layer_parameters(rng, layer_idx, sparse, **fields):
    """the parameters of layer {layer_idx}, where layers {sparse} hold experts"""
    init = {"config": New("Qwen3Config", **SIZES | fields), "layer_idx": layer_idx}
    return Call("Qwen3DecoderLayer", init=init, names=True)


test_layer = check(
    "6.1", "a dense layer, each text with positions of its own, in eval mode either",
    view=apart_from_input, apart=True,
)(in_eval_mode(layer_call))  # fmt: skip
test_layer_with_experts = check(
    "6.1", "a layer with experts, and its router logits",
    view=apart_from_input, cases=[MIXTURE],
)(layer_call)  # fmt: skip
test_layer_one_token = check(
    "6.1", "one token of one text, no mask, {num_experts} experts",
    view=apart_from_input, cases=[MIXTURE], pieces=(1,), batch=1,
)(layer_call)  # fmt: skip
test_layer_cache = check(
    "6.1", "with a cache, in pieces {pieces}, {num_experts} experts",
    view=apart_from_input, pieces=[(2, 1, 1)], num_experts=[0],
)(layer_call)  # fmt: skip
test_layer_one_query = check(
    "6.1", "one token, a mask that hides cached keys of all texts, or of the second",
    view=apart_from_input, pieces=[(4, 1)],
)(one_query(layer_call))  # fmt: skip
test_layer_positions = check(
    "6.1", "arguments by position: hidden_states, cos, sin, mask",
    view=apart_from_input, by_position=True,
)(layer_call)  # fmt: skip
test_layer_eps = check(
    "6.1", "a large rms_norm_eps", view=apart_from_input, rms_norm_eps=[0.3]
)(layer_call)
test_layer_input = check("6.1", "the hidden_states that came in stay as they were")(layer_call)


@check("6.1", view=apart_from_input)
def test_layer_half_precision(rng, **values):
    """bfloat16 in, bfloat16 out"""
    call = positive(layer_call(rng, pieces=(1,), **values))
    inputs = call.steps[0][1]
    inputs["hidden_states"] = (1.5 + 0.1 * inputs["hidden_states"]).bfloat16()
    call.dtype = BF16
    return call


test_layer_gradients = check(
    "6.1", "gradients, {num_experts} experts", cases=[{"num_experts": 0}, MIXTURE], grad=True
)(layer_call)


def model_state(rng, fields, sparse=(), name=""):
    """Weights of a model in which the layers `sparse` hold experts."""
    size = fields["hidden_size"]
    state = {f"{name}embed_tokens.weight": 2 * rng.normal(fields["vocab_size"], size)}
    for i in range(fields["num_hidden_layers"]):
        state |= layer_state(rng, fields, i in sparse, f"{name}layers.{i}.")
    return state | {f"{name}norm.weight": 1 + 0.5 * rng.normal(size)}


def model_call(
    rng, sparse=(), pieces=(5,), batch=2, mask=(), head=False, grad=False, dtype=None, **fields
):
    """The model, or the language model, on texts whose tokens are given in pieces.

    mask    the attention_mask, a row of digits for each text: "00111"
    head    whether it is the language model
    """
    fields, symbol = SIZES | fields, "Qwen3ForCausalLM" if head else "Qwen3Model"
    state = model_state(rng, fields, sparse, "model." if head else "")
    if head and not fields["tie_word_embeddings"]:
        state["lm_head.weight"] = rng.normal(fields["vocab_size"], fields["hidden_size"])
    init = {"config": New("Qwen3Config", **fields)}
    call = Call(symbol, init=init, state=state, grad=grad, dtype=dtype)
    ids = rng.integers(0, fields["vocab_size"], len(mask) or batch, sum(pieces))
    ids[-1, 0] = 0  # a word like any other
    cache = cache_for(fields, pieces, [*range(fields["num_hidden_layers"])])
    padding = mask_of(mask)
    for start, end in pairwise((0, *accumulate(pieces))):
        shown = {"attention_mask": padding[:, :end]} if mask else {}
        call.then(input_ids=ids[:, start:end], **shown, **cache)
    call.summary = "real tokens" if mask else None  # what comes out at padding is free
    return call if head else call.returning("hidden_states", "router_logits")


@check("6.2", cases=[MIXTURE])
def test_model_parameters(rng, sparse, **fields):
    """the parameters, where layers {sparse} hold experts"""
    init = {"config": New("Qwen3Config", **SIZES | fields)}
    return Call("Qwen3Model", init=init, names=True)


test_model_one_token = check(
    "6.2", "one token of one text, {num_experts} experts",
    num_hidden_layers=[1], num_experts=[0], pieces=(1,), batch=1,
)(model_call)  # fmt: skip
test_model = check("6.2", "several tokens, dense, in eval mode either")(
    in_eval_mode(model_call)
)
test_model_with_experts = check(
    "6.2", "a mixture, and the router logits of layers {sparse}, which hold experts",
    cases=[LATE_MIXTURE],
)(model_call)  # fmt: skip
test_model_padding = check(
    "6.2", "texts with padding, attention_mask {mask}: positions count real tokens only",
    points=0.5, mask=[*PADDED, ("01011", "11110")],
)(model_call)  # fmt: skip


@check("6.2", num_hidden_layers=[1], mask=[("11111", "00111")])
def test_model_boolean_mask(rng, **values):
    """an attention_mask of True and False"""
    call = model_call(rng, **values)
    inputs = call.steps[0][1]
    inputs["attention_mask"] = inputs["attention_mask"].bool()
    return call


test_model_cache = check(
    "6.2", "with a cache, in pieces {pieces}, {num_experts} experts",
    pieces=[(2, 1, 2)], num_experts=[0],
)(model_call)  # fmt: skip
test_model_cache_and_padding = check(
    "6.2", "with a cache and padding on the left, in pieces {pieces}", pieces=[(3, 1, 1)],
    points=0.5, mask=PADDED,
)(model_call)  # fmt: skip


@check("6.2", pieces=[(3, 2)], mask=[("11111", "11111")])
def test_model_mask_later(rng, **values):
    """with a cache, in pieces {pieces}: the second one comes with an attention_mask of ones"""
    call = model_call(rng, **values)
    for _, inputs in call.steps[::2]:
        del inputs["attention_mask"]
    call.summary = None
    return call


test_model_eps = check(
    "6.2", "a large rms_norm_eps", num_hidden_layers=[1], rms_norm_eps=[0.3]
)(model_call)


def last_hidden_states(outcomes):
    """The last step's hidden states with room for what bfloat16 rounds, and their dtype."""
    values = [o.value[0] if isinstance(o.value, (list, tuple)) else None for o in outcomes]
    if not all(isinstance(value, torch.Tensor) for value in values):
        return outcomes
    return [Outcome([{"dtype": str(v.dtype), "hidden_states": v.float()}]) for v in values]


@check("6.2", view=last_hidden_states, tolerance=0.06, points=0.5, has_mask=[True, False])
def test_model_half_precision(rng, has_mask):
    """bfloat16 in and out, with 300 tokens and words: positions stay whole numbers"""
    fields = {"num_hidden_layers": 1, "num_attention_heads": 2, "rope_theta": 2.0}
    fields |= {"vocab_size": 300, "max_position_embeddings": 320, "dtype": BF16}
    mask = ["1" * 312] if has_mask else ()
    call = model_call(rng, pieces=(300, 12), batch=1, mask=mask, **fields)
    call.state["layers.0.self_attn.o_proj.weight"] *= 3  # attention counts
    call.state["layers.0.self_attn.q_norm.weight"] *= 1.5  # and looks closely
    return call


@check("6.2", num_hidden_layers=[1])
def test_model_refuses(rng, **values):
    """a token that is not in the vocabulary is refused, a known one is not"""
    known, unknown = (model_call(rng, **values) for _ in range(2))
    unknown.steps[0][1]["input_ids"][1, 2] = values.get("vocab_size", SIZES["vocab_size"])
    return known, unknown


test_model_gradients = check(
    "6.2", "gradients, {num_experts} experts",
    num_hidden_layers=[1], num_experts=[0], grad=True,
)(model_call)  # fmt: skip


def lm_call(rng, tie_word_embeddings=True, **values):
    values = {"pieces": (4,), "tie_word_embeddings": tie_word_embeddings, **values}
    return model_call(rng, head=True, **values)


@check("6.3", attention_bias=[True], **TIED)
def test_lm_parameters(rng, **fields):
    """the parameters, tie_word_embeddings={tie_word_embeddings}, attention_bias"""
    init = {"config": New("Qwen3Config", **SIZES | fields)}
    return Call("Qwen3ForCausalLM", init=init, names=True)


test_lm = check(
    "6.3", "logits, tie_word_embeddings={tie_word_embeddings}, in eval mode either", **TIED
)(in_eval_mode(lm_call))


@check("6.3", cases=[{"num_experts": 0}, MIXTURE])
def test_lm_router_logits(rng, **values):
    """{num_experts} experts, without output_router_logits and with it"""
    call = lm_call(rng, **values)
    return call.then(**call.steps[0][1], output_router_logits=True)


test_lm_padding = check(
    "6.3", "padding on the left: attention_mask {mask}", points=0.5, mask=PADDED, pieces=(5,)
)(lm_call)
test_lm_cache = check(
    "6.3", "with a cache, in pieces {pieces}, attention_mask {mask}", points=0.5,
    pieces=[(3, 1, 1)], mask=[(), PADDED[0]],
)(lm_call)  # fmt: skip
test_lm_gradients = check(
    "6.3", "gradients, tie_word_embeddings={tie_word_embeddings}", **TIED, grad=True
)(lm_call)


@check("6.3", tie_word_embeddings=[True])
def test_lm_tie_after_loading(rng, **values):
    """gradients after load_state_dict(..., assign=True), which brings new Parameters"""
    call = lm_call(rng, grad=True, **values)
    call.steps.insert(0, ("load_state_dict", {"state_dict": call.state, "assign": True}))
    return call


@check("6.3", dtype=[BF16])
def test_lm_half_precision(rng, **values):
    """{dtype} weights, {dtype} logits"""
    return positive(lm_call(rng, pieces=(1,), **values))


COUNTED = {  # of which no two parts are equally large
    "vocab_size": 1009, "hidden_size": 96, "intermediate_size": 211, "num_hidden_layers": 5,
    "num_attention_heads": 12, "num_key_value_heads": 3, "head_dim": 34,
    "num_experts_per_tok": 3, "moe_intermediate_size": 61,
}  # fmt: skip
PUBLISHED = {  # E, I, layers, query heads, KV heads, and what else differs
    "Qwen3-0.6B": (1024, 3072, 28, 16, 8, {"tie_word_embeddings": True}),
    "Qwen3-4B": (2560, 9728, 36, 32, 8, {"tie_word_embeddings": True}),
    "Qwen3-32B": (5120, 25600, 64, 64, 8, {}),
    "Qwen3-30B-A3B": (2048, 6144, 48, 32, 4, {"num_experts": 128, "num_experts_per_tok": 8}),
}


def sizes_of(rng, more=0, **fields):
    """The fields, four sizes up to `more` larger."""
    fields, names = COUNTED | fields, ("vocab_size", "hidden_size", "intermediate_size")
    added = zip((*names, "moe_intermediate_size"), rng.integers(0, more + 1, 4), strict=True)
    return fields | {name: fields[name] + int(number) for name, number in added}


def count_call(rng, **fields):
    return Call("count_parameters", config=New("Qwen3Config", **sizes_of(rng, **fields)))


def growth(outcomes):
    """What total and active grow by from a call to the next; what is no pair of numbers
    stays."""
    pairs = [outcome.value for outcome in outcomes]
    if not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs):
        return next(([o] for o in outcomes if o.failure), outcomes[-1:])
    if not all(isinstance(number, (int, float)) for pair in pairs for number in pair):
        return outcomes[-1:]
    return [Outcome([[new - old for old, new in zip(*pairs, strict=True)]])]


test_count = check("6.4", "a dense model")(count_call)


@check("6.4", view=growth, cases=[
    {"num_experts": experts, "field": field, "value": value}
    for experts, field, value in (
        (0, "vocab_size", 1010), (0, "num_hidden_layers", 6), (0, "intermediate_size", 212),
        (0, "num_attention_heads", 15), (0, "head_dim", 36), (0, "attention_bias", True),
        (7, "num_experts", 8), (7, "moe_intermediate_size", 62),
    )
])  # fmt: skip
def test_count_growth(rng, field, value, **fields):
    """what {field}={value} adds to a model with {num_experts} experts"""
    fields = sizes_of(rng, **fields)
    return count_call(rng, **fields), count_call(rng, **fields | {field: value})


test_count_settings = check(
    "6.4", "tie_word_embeddings={tie_word_embeddings}, {num_experts} experts",
    tie_word_embeddings=[True], num_experts=[0],
)(count_call)  # fmt: skip
test_count_pattern = check(
    "6.4",
    "experts, decoder_sparse_step {decoder_sparse_step}, mlp_only_layers {mlp_only_layers}",
    num_experts=[7],
    cases=rows("decoder_sparse_step, mlp_only_layers", (1, ()), (2, ()), (1, (0, 3))),
)(count_call)


@check("6.4", name=["Qwen3-0.6B"])
def test_count_published(rng, name):
    """{name}"""
    size, inner, layers, heads, kv_heads, more = PUBLISHED[name]
    fields = {"hidden_size": size, "intermediate_size": inner, "num_hidden_layers": layers}
    fields |= {"num_attention_heads": heads, "num_key_value_heads": kv_heads}
    fields |= {"vocab_size": 151936, "head_dim": 128, "moe_intermediate_size": 768}
    return count_call(rng, **fields | more)


@check("6.5")
def test_web_layer(rng, batch=2):
    """the values of a dense layer"""
    return hunted("WebLayer", layer_call)(rng, batch=batch)
