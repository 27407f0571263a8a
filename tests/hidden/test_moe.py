"""Hidden checks of lab 05: fresh numbers, odd sizes, other dtypes, gradients, what must not
run."""

import torch
from visible import test_moe as visible
from visible.questions import PADDED, in_eval_mode
from visible.test_moe import (
    balance_call,
    block_call,
    close_logits,
    crowded,
    distinct_logits,
    fresh,
    layers_call,
    route_call,
    sharp_logits,
    some_balance_call,
    some_route_call,
    state,
    with_a_stranger,
    with_idle_experts,
)

from labkit.checks.declared import check, rows

BF16, F16 = torch.bfloat16, torch.float16
BOTH = [True, False]
MIXED = rows("top_k, norm", (2, True), (3, False), (1, False))


test_route = check(
    "5.1", "tokens and experts {shape}, top_k {top_k}, norm_topk_prob={norm}", norm=BOTH,
    cases=rows("shape, top_k", ((9, 7), 3), ((1, 8), 2), ((3, 5), 3)),
)(some_route_call)  # fmt: skip


@check("5.1", points=2)
def test_route_all_count(rng):
    """a logit that is not picked still lowers the weights, unless they are renormalized"""
    logits = rng.uniform(6, 5) + torch.tensor([6.0, 6, 0, 0, 0])  # the first two win
    higher = logits + 3 * torch.eye(5)[4]
    return [route_call(x.clone(), 2, norm) for norm in BOTH for x in (logits, higher)]


test_route_every_expert = check(
    "5.1", "top_k is the number of experts, norm_topk_prob={norm}", norm=BOTH, top_k=6
)(some_route_call)
test_route_one_expert_in_all = check(
    "5.1", "one expert and nothing to choose, norm_topk_prob={norm}",
    points=0.5, norm=BOTH, shape=(4, 1), top_k=1,
)(some_route_call)  # fmt: skip


def nearly_zero(outcomes):
    """Gradients below 1e-5 as zeros: they are sums that cancel."""
    for outcome in outcomes:
        outcome.grads = {
            name: grad.where(grad.abs() >= 1e-5, 0.0) for name, grad in outcome.grads.items()
        }
    return outcomes


test_route_top_1 = check(
    "5.1", "top_k 1, norm_topk_prob=True: weight 1, and no gradient",
    view=nearly_zero, top_k=1, grad=True,
)(some_route_call)  # fmt: skip
test_best_first = check("5.1", shape=(6, 9), top_k=5, norm=True)(visible.test_route_best_first)
test_many_experts = check("5.1", tokens=[7])(visible.test_route_many_experts)
test_large_logits = check("5.1")(visible.test_route_large_logits)


@check("5.1", points=0.25, dtype=[BF16, F16], norm=BOTH)
def test_route_half(rng, dtype, norm):
    """{dtype} logits, norm_topk_prob={norm}"""
    return route_call(distinct_logits(rng, 8, 7, dtype), 3, norm)


test_route_close_logits = check("5.1", "bfloat16 logits that lie close together")(
    lambda rng: route_call(close_logits(rng, 64, 9), 2, True)
)
test_route_positions = check("5.1")(visible.test_route_positions)


test_route_gradients = check(
    "5.1", "gradients with top_k {top_k}, norm_topk_prob={norm}", grad=True, cases=MIXED
)(some_route_call)


def large_block_call(rng, experts=5, top_k=2, norm=True, shape=(2, 5, 8), inner=6, **options):
    return block_call(rng, experts, top_k, norm, shape, (inner, 11), 0.6, **options)


@check(
    "5.2", cases=[{"experts": x, "size": e, "inner": i} for x, e, i in ((3, 8, 5), (6, 4, 9))]
)
def test_block_parameters(rng, experts, size, inner):
    """{experts} experts of sizes {size} and {inner}: names and shapes"""
    return fresh(large_block_call(rng, experts, shape=(2, 3, size), inner=inner))


test_block = check(
    "5.2", "top_k {top_k} of 5, norm_topk_prob={norm}", top_k=[1, 2, 5], norm=BOTH
)(in_eval_mode(large_block_call))
test_block_shapes = check(
    "5.2", "input of shape {shape}", shape=[(1, 1, 8), (3, 1, 8), (1, 7, 8), (5, 5, 5)]
)(large_block_call)
test_block_one_expert_in_all = check(
    "5.2", "one expert and nothing to choose: an ordinary MLP", experts=1, top_k=1
)(large_block_call)
test_block_crowded = check("5.2", "many tokens with one favorite expert")(
    lambda rng: crowded(large_block_call(rng, shape=(4, 6, 8)), 3, 8.0)
)


@check("5.2", points=2, norm=BOTH)
def test_block_only_chosen(rng, norm):
    """experts that nobody picked hold NaN, norm_topk_prob={norm}"""
    idle = torch.argsort(rng.normal(6))[:3].tolist()
    return with_idle_experts(large_block_call(rng, experts=6, norm=norm, grad=True), idle)


@check("5.2", points=2)
def test_block_only_its_own_tokens(rng):
    """a token that would overflow in an expert that it did not pick"""
    call = large_block_call(rng, grad=True)
    return with_a_stranger(call, int(rng.integers(0, 5, 1)), (1, 2))


@check("5.2", cases=[{"dtype": d, "top_k": k} for d, k in ((BF16, 2), (BF16, 3), (F16, 2))])
def test_block_half(rng, dtype, top_k):
    """{dtype}, top_k {top_k}"""
    call = large_block_call(rng, top_k=top_k, norm=top_k == 2, dtype=dtype)
    call.state = state(5, 8, 6, lambda *sizes: rng.uniform(*sizes, low=0.1, high=0.4))
    call.state["gate.weight"] = torch.eye(5, 8)  # the logits are the first five features
    hidden = rng.uniform(10, 8, low=0.5)
    hidden[:, :5] = distinct_logits(rng, 10, 5, torch.float32) + 1
    call.steps[0][1]["hidden_states"] = hidden.view(2, 5, 8).to(dtype)
    return call


@check("5.2", shape=[(1, 3, 8), (2, 5, 8)])
def test_block_two_calls(rng, shape):
    """a second input, of shape {shape}"""
    return large_block_call(rng).then(hidden_states=rng.normal(*shape))


test_block_gradients = check(
    "5.2", "gradients of input, router and experts with top_k {top_k}, norm_topk_prob={norm}",
    points=2, cases=MIXED, shape=(1, 6, 8), grad=True,
)(large_block_call)  # fmt: skip


def random_mask(rng, batch, tokens):
    """Left or right padding of 0 to tokens - 1 places, and at least one in the batch."""
    pad = rng.integers(0, tokens, batch)
    pad[0] = 1 + pad[0] % (tokens - 1)
    mask = (torch.arange(tokens) >= pad[:, None]).long()
    return mask.flip(-1) if rng.integers(0, 2, 1) else mask


test_loss = check("5.3", "tokens and experts {shape}, top_k {top_k}", cases=rows(
    "shape, top_k", ((12, 6), 2), ((1, 4), 2), ((7, 5), 1), ((6, 1), 1), ((900, 6), 2)
))(some_balance_call)  # fmt: skip


@check("5.3", top_k=[1, 3])
def test_loss_even(rng, top_k):
    """perfect balance scores top_k, here {top_k}"""
    row = torch.sort(2 * rng.normal(6)).values
    return balance_call(torch.stack([row.roll(turn) for turn in range(6)]), top_k)


@check("5.3", top_k=[1, 2])
def test_loss_collapse(rng, top_k):
    """all on the same experts scores the number of experts, top_k {top_k}"""
    return balance_call(rng.normal(9, 7) + torch.tensor([0.0, 60, 0, 90, 0, 0, 0]), top_k)


test_loss_below = check("5.3", tokens=[5])(visible.test_loss_below)
test_loss_every_expert = check("5.3", "top_k is the number of experts",
    top_k=5)(some_balance_call)  # fmt: skip
test_loss_layers = check("5.3", "the mean over {layers} layers", points=2, layers=[2,
    4])(some_balance_call)  # fmt: skip


@check("5.3")
def test_loss_tuple(rng):
    """a tuple of layers, or one layer in a list"""
    two = (2 * rng.normal(6, 5), 2 * rng.normal(6, 5))
    return balance_call(two, 2), balance_call([2 * rng.normal(6, 5)], 2)


@check("5.3", cases=rows("batch, tokens", (3, 4), (1, 5)))
def test_loss_mask(rng, batch, tokens):
    """padding in a batch of {batch}"""
    mask = random_mask(rng, batch, tokens)
    return balance_call(2 * rng.normal(batch * tokens, 5), 2, attention_mask=mask)


test_loss_padded = check("5.3", points=0.5, mask=PADDED)(visible.test_loss_mask)


@check("5.3", points=2)
def test_loss_layers_and_mask(rng):
    """padding in three layers"""
    logits = [2 * rng.normal(10, 6) for _ in range(3)]
    return balance_call(logits, 2, attention_mask=random_mask(rng, 2, 5))


test_loss_pooled = check("5.3", points=1.5, layers=[2])(visible.test_loss_pooled)
test_loss_mask_of_ones = check(
    "5.3", "a mask without padding changes nothing", attention_mask=torch.ones(2, 4).long()
)(some_balance_call)


@check("5.3", points=0.5, dtype=[BF16, F16], masked=BOTH)
def test_loss_half(rng, dtype, masked):
    """{dtype} logits, with padding: {masked}"""
    mask = (torch.arange(8) < torch.tensor([[3], [8], [5]])).long()  # 16 tokens count
    options = {"attention_mask": mask} if masked else {}
    return balance_call(sharp_logits(rng, 24 if masked else 16, 6).to(dtype), 2, **options)


@check("5.3")
def test_loss_positions(rng):
    """arguments by position: router_logits, top_k, attention_mask"""
    mask = random_mask(rng, 2, 4)
    return balance_call(2 * rng.normal(8, 5), 3, attention_mask=mask, by_position=True)


@check("5.3", points=2, layers=[1, 2])
def test_loss_gradients(rng, layers):
    """gradients; layers: {layers}, with padding if there are two"""
    logits = [2 * rng.normal(8, 5) for _ in range(layers)]
    if layers == 1:
        return balance_call(logits[0], 2, grad=True)
    return balance_call(logits, 2, attention_mask=random_mask(rng, 2, 4), grad=True)


def some_layers(rng, count, among=12):
    """Some of twelve layers, or of more."""
    return tuple(sorted(rng.generator.permutation(among)[:count].tolist()))


@check("5.4", points=2, step=[1, 2, 3, 5, 12])
def test_layers_step(rng, step):
    """decoder_sparse_step {step}; 12 layers of 60, in their order"""
    return layers_call(6, step, (), some_layers(rng, 12, among=60))


@check("5.4", count=[1, 4, 7])
def test_layers_listed(rng, count):
    """{count} of layers 0 to 11 listed in mlp_only_layers; here step 1 is layer 0"""
    return layers_call(6, 1, some_layers(rng, count), range(12))


@check("5.4", step=[2, 3])
def test_layers_listed_and_step(rng, step):
    """decoder_sparse_step {step}, and layers of both kinds listed"""
    return layers_call(6, step, (step - 1, 0, *some_layers(rng, 4)), range(12))


test_layers_dense = check("5.4", points=0.5, step=[1, 3],
    layers=[range(12)])(visible.test_layers_dense)  # fmt: skip
test_layers_last = check("5.4", "the step is as large as the number of layers", points=0.5)(
    lambda rng: layers_call(2, 12, (), range(12))
)
test_layers_positions = check("5.4", "arguments by position: config, layer_idx", points=0.5)(
    lambda rng: layers_call(6, 2, some_layers(rng, 3), by_position=True)
)
test_web_route = check("5.5", top_k=[1, 3], shape=(4, 7))(visible.test_web_route)
