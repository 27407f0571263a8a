"""Visible checks of lab 05: what check("5.1") and its sisters run."""

import torch
from visible.questions import PADDED, in_eval_mode, mask_of

from labkit.checks.declared import Call, New, check


def distinct_logits(rng, rows, columns, dtype):
    """Logits of which no two of a token are equal, whatever the dtype: multiples of 1/4."""
    ranks = torch.argsort(rng.normal(rows, 3 * columns), dim=-1)[:, :columns]
    return (0.25 * ranks - 1).to(dtype)


def close_logits(rng, rows, columns):
    """Logits that bfloat16 tells apart, and whose probabilities it does not."""
    return (1 / 16 + torch.argsort(rng.normal(rows, columns), dim=-1) / 2048).bfloat16()


def route_call(logits, top_k, norm, summary="by index", **options):
    """A call that does not ask for the order of the chosen, unless `summary` is None."""
    inputs = {"router_logits": logits, "top_k": top_k, "norm_topk_prob": norm}
    call = Call("route", summary=summary, **inputs, **options)
    return call.returning("weights", "chosen")


def some_route_call(rng, shape=(5, 6), top_k=2, norm=True, shift=0.0, **options):
    return route_call(2 * rng.normal(*shape) + shift, top_k, norm, **options)


test_route = check("5.1", "norm_topk_prob=True", top_k=3)(some_route_call)
test_route_not_renormalized = check("5.1", "norm_topk_prob=False", top_k=3, norm=False)(
    some_route_call
)
test_route_one_expert = check(
    "5.1", "top_k 1, norm_topk_prob={norm}", norm=[True, False], top_k=1
)(some_route_call)


@check("5.1")
def test_route_many_experts(rng, tokens=5):
    """128 experts of nearly the same probability, norm_topk_prob=True"""
    return route_call(torch.argsort(rng.normal(tokens, 128), dim=-1) / 1000, 2, True)


test_route_best_first = check(
    "5.1", "the best expert first", shape=(5, 8), top_k=4, norm=False, summary=None
)(some_route_call)
test_route_large_logits = check("5.1", "logits in the hundreds", norm=False, shift=200.0)(
    some_route_call
)
test_route_half = check("5.1", "bfloat16 logits, norm_topk_prob={norm}", norm=[True, False])(
    lambda rng, norm: route_call(distinct_logits(rng, 5, 6, torch.bfloat16), 2, norm)
)
test_route_close_logits = check("5.1", "bfloat16 logits that lie close together")(
    lambda rng, shape=(40, 6), norm=False: route_call(close_logits(rng, *shape), 2, norm)
)


@check("5.1")
def test_route_positions(rng):
    """arguments by position: router_logits, top_k, norm_topk_prob"""
    other = some_route_call(rng, top_k=1, norm=False, by_position=True)
    return other, some_route_call(rng, by_position=True)


test_route_gradients = check("5.1", "gradients")(
    lambda rng: [some_route_call(rng, top_k=3, norm=norm, grad=True) for norm in (True, False)]
)


def config(experts, top_k, norm, hidden_size, moe_size, dense_size):
    """A tiny model; its dense layers, which are not built here, have a size of their own."""
    attention = {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 2}
    dense = {"vocab_size": 8, "num_hidden_layers": 1, "intermediate_size": dense_size}
    return New(
        "Qwen3Config",
        **(attention | dense),
        hidden_size=hidden_size,
        num_experts=experts,
        num_experts_per_tok=top_k,
        moe_intermediate_size=moe_size,
        norm_topk_prob=norm,
    )


def state(experts, hidden_size, moe_size, draw):
    """Weights of the block, made by `draw(rows, columns)`."""
    weights = {"gate.weight": draw(experts, hidden_size)}
    for x in range(experts):
        for name in ("gate_proj", "up_proj"):
            weights[f"experts.{x}.{name}.weight"] = draw(moe_size, hidden_size)
        weights[f"experts.{x}.down_proj.weight"] = draw(hidden_size, moe_size)
    return weights


def block_call(
    rng, experts=4, top_k=2, norm=True, shape=(2, 3, 6), sizes=(5, 7), scale=0.7, **options
):
    """sizes: of an expert, and of a dense layer"""
    init = {"config": config(experts, top_k, norm, shape[-1], *sizes)}
    weights = state(experts, shape[-1], sizes[0], lambda *shape: scale * rng.normal(*shape))
    inputs = {"hidden_states": rng.normal(*shape)}
    call = Call("Qwen3MoeSparseMoeBlock", init=init, state=weights, **inputs, **options)
    return call.returning("mixed", "router_logits")


def fresh(call):
    """The call without weights and inputs: loading would fail before names are seen."""
    call.state, call.names = None, True
    call.steps.clear()
    return call


def crowded(call, expert, score):
    """The call with one favorite expert."""
    call.state["gate.weight"][expert, 0] = score
    call.steps[0][1]["hidden_states"][..., 0] = 1.0
    return call


def with_idle_experts(call, idle):
    """The call with experts that nobody picks and that hold NaN."""
    call.steps[0][1]["hidden_states"][..., 0] = 1.0
    gate = call.state["gate.weight"]
    gate[:, 0] = 0.0
    gate[idle, 0] = -60.0
    for name, weight in call.state.items():
        if name.startswith(tuple(f"experts.{x}." for x in idle)):
            weight.fill_(torch.nan)
    return call


def with_a_stranger(call, expert, token):
    """The call with one token that would overflow in everybody else's expert."""
    hidden, gate = call.steps[0][1]["hidden_states"], call.state["gate.weight"]
    hidden[..., 0], gate[expert, 0] = 1.0, 9.0  # everybody's favorite
    hidden[..., 1], hidden[(*token, 1)] = 0.0, 2.0
    gate[:, 1], gate[expert, 1] = 0.0, -60.0  # but not of this token
    for name in ("gate_proj", "up_proj"):
        call.state[f"experts.{expert}.{name}.weight"][:, 1] = 1e25
    return call


test_block_parameters = check("5.2", "the parameters, their names and shapes")(
    lambda rng: fresh(block_call(rng))
)
test_block = check("5.2", "values, in eval mode either")(in_eval_mode(block_call))
test_block_not_renormalized = check("5.2", "norm_topk_prob=False", top_k=3, norm=False)(
    block_call
)
test_block_one_expert_each = check(
    "5.2", "one expert a token, norm_topk_prob={norm}", norm=[True, False], top_k=1
)(block_call)
test_block_twice = check("5.2", "one object is used twice")(
    lambda rng, **sizes: block_call(rng, **sizes).then(hidden_states=rng.normal(2, 3, 6))
)
test_block_crowded = check("5.2", "many tokens with one favorite expert")(
    lambda rng: crowded(block_call(rng, shape=(3, 5, 6)), 1, 6.0)
)


@check("5.2")
def test_block_only_chosen(rng):
    """experts that nobody picked hold NaN, which must not show"""
    return with_idle_experts(block_call(rng, experts=5, grad=True), [1, 3])


@check("5.2")
def test_block_only_its_own_tokens(rng):
    """a token that would overflow in an expert that it did not pick"""
    return with_a_stranger(block_call(rng, grad=True), 2, (0, 1))


@check("5.2")
def test_block_half(rng):
    """bfloat16"""
    call = block_call(rng, dtype=torch.bfloat16)
    call.state = state(4, 6, 5, lambda *shape: rng.uniform(*shape, low=0.1, high=0.5))
    call.state["gate.weight"] = torch.eye(4, 6)
    hidden = rng.uniform(2, 3, 6, low=0.5)
    hidden[..., :4] = 0.5 * torch.argsort(rng.normal(2, 3, 4), dim=-1)
    call.steps[0][1]["hidden_states"] = hidden.bfloat16()
    return call


test_block_gradients = check("5.2", "gradients", shape=(1, 4, 6), grad=True)(block_call)


def sharp_logits(rng, rows, columns):
    """Logits whose probabilities are all but 0 and 1, so that no dtype rounds them; the means
    of 8 or 16 tokens are exact in any, too."""
    return 16.0 * torch.argsort(rng.normal(rows, columns), dim=-1)


def balance_call(logits, top_k, **options):
    return Call("load_balancing_loss", router_logits=logits, top_k=top_k, **options)


def some_balance_call(rng, shape=(8, 5), layers=1, top_k=2, mask=(), **options):
    """mask    the attention_mask, a row of digits per text"""
    if mask:
        options = {"attention_mask": mask_of(mask), **options}
        shape = (options["attention_mask"].numel(), shape[1])
    logits = [2 * rng.normal(*shape) for _ in range(layers)]
    return balance_call(logits[0] if layers == 1 else logits, top_k, **options)


test_loss = check("5.3", "top_k {top_k}", top_k=[2, 1])(some_balance_call)
test_loss_one_of_a_kind = check("5.3", "one token, and one expert in all")(
    lambda rng: (balance_call(2 * rng.normal(1, 5), 2), balance_call(2 * rng.normal(6, 1), 1))
)
test_loss_many_tokens = check("5.3", "300 tokens")(
    lambda rng: balance_call(rng.normal(300, 4) + 4 * torch.eye(4)[0], 1)
)


@check("5.3")
def test_loss_collapse(rng):
    """every token on the same two experts"""
    call = some_balance_call(rng)
    call.steps[0][1]["router_logits"] += torch.tensor([0.0, 30, 0, 20, 0])
    return call


@check("5.3", tokens=[3])
def test_loss_below(rng, tokens):
    """load and probability disagree: the loss is below top_k; {tokens} tokens, 2 experts"""
    logits = torch.tensor([0.2, 0.0]).repeat(tokens, 1)
    logits[-1, 1] = 7.0
    return balance_call(logits + 0.02 * rng.normal(tokens, 2), 1)


@check("5.3")
def test_loss_layers(rng):
    """three layers in a list, two in a tuple"""
    two = (2 * rng.normal(8, 5), 2 * rng.normal(8, 5))
    return some_balance_call(rng, layers=3), balance_call(two, 2)


test_loss_mask = check(
    "5.3", "one layer, some tokens padding: {mask}", points=0.5, mask=PADDED
)(some_balance_call)
test_loss_layers_and_mask = check(
    "5.3", "three layers, some tokens padding", layers=3, mask=("0111", "0011")
)(some_balance_call)
test_loss_pooled = check(
    "5.3", "pooled: three layers as one list, some tokens padding", points=0.5, layers=3,
    mask=("0111", "0011"), pooled=True,
)(some_balance_call)  # fmt: skip


@check("5.3")
def test_loss_half(rng):
    """bfloat16 logits, with padding"""
    mask = (torch.arange(5) >= torch.tensor([[0], [3], [4]])).long()  # 8 tokens count
    return balance_call(sharp_logits(rng, 15, 5).bfloat16(), 2, attention_mask=mask)


test_loss_positions = check(
    "5.3", "arguments by position: router_logits, top_k, attention_mask, pooled",
    layers=2, mask=("0111", "0011"), pooled=True, by_position=True,
)(some_balance_call)  # fmt: skip
test_loss_gradients = check("5.3", "gradients", grad=True)(some_balance_call)


def layers_call(experts, step, listed, layers=range(6), **options):
    """Which of these layers are sparse, one step a layer."""
    fields = {"decoder_sparse_step": step, "mlp_only_layers": listed}
    model = config(experts, min(2, experts) or 1, True, 4, 3, 5)
    model.arguments |= {**fields, "num_hidden_layers": max(12, *layers) + 1}
    call = Call("uses_experts", **options)
    for layer_idx in layers:
        call.then(config=model, layer_idx=layer_idx)
    return call


@check("5.4", step=[2, 3, 4])
def test_layers_step(rng, step):
    """decoder_sparse_step {step}; here step 1 is layer 0, step 6 is layer 5"""
    return layers_call(4, step, ())


@check("5.4", listed=[(1, 4), (0, 2)])
def test_layers_listed(rng, listed):
    """mlp_only_layers {listed}; here step 1 is layer 0, step 6 is layer 5"""
    return layers_call(4, 1, listed)


@check("5.4")
def test_layers_listed_and_step(rng):
    """decoder_sparse_step 2, mlp_only_layers (1, 2); step 1 is layer 0, step 6 layer 5"""
    return layers_call(4, 2, (1, 2))


@check("5.4", step=[1, 2])
def test_layers_dense(rng, step, layers=range(6)):
    """a dense model: num_experts 0, decoder_sparse_step {step}"""
    return layers_call(0, step, (), layers)


test_layers_positions = check("5.4", "arguments by position: config, layer_idx")(
    lambda rng: layers_call(4, 3, (0,), by_position=True)
)


@check("5.5", top_k=2)
def test_web_route(rng, top_k, shape=(6, 5)):
    """the weights and experts of route, with both values of norm_topk_prob"""
    for norm in (True, False):
        inputs = {"router_logits": 2 * rng.normal(*shape), "top_k": top_k}
        yield Call("web_route", **inputs, norm_topk_prob=norm)
