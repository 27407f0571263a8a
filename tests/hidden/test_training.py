"""Hidden checks of lab 08: fresh numbers, odd shapes, other dtypes, gradients, two steps."""

import torch
from visible.test_training import adamw_call, train_call

from labkit.checks.declared import Call, Given, check, rows

HALF = [torch.bfloat16, torch.float16]


def causal_lm_loss_call(
    rng, shape, vocab, scale=2.0, dtype=torch.float32, ignored=0.4, **options
):
    labels = rng.integers(0, vocab, *shape)
    labels[0, -1] = 0
    if ignored:
        drop = rng.uniform(*shape) < ignored
        drop[0] = True
        drop[0, -1] = False
        drop[-1, -2:] = True
        drop[-1, 2:4] = False
        labels[drop] = -100
    logits = (scale * rng.normal(*shape, vocab)).to(dtype)
    return Call("causal_lm_loss", logits=logits, labels=labels, **options)


test_causal_lm_loss_values = check(
    "8.1",
    "values for B and T {shape}",
    shape=[(3, 7), (1, 9), (4, 6), (2, 2)],
    vocab=13,
    ignored=0,
)(causal_lm_loss_call)
test_causal_lm_loss_ignored = check(
    "8.1", "labels of -100 do not count", points=2, shape=[(2, 7), (3, 9)], vocab=17
)(causal_lm_loss_call)


@check("8.1")
def test_causal_lm_loss_one_label(rng):
    """a single label that counts"""
    call = causal_lm_loss_call(rng, (2, 5), vocab=6, ignored=0)
    labels = call.steps[0][1]["labels"]
    kept = labels[1, 3].clone()
    labels.fill_(-100)
    labels[1, 3] = kept
    return call


test_causal_lm_loss_large = check("8.1", "large logits", shape=(2, 6), vocab=12, scale=300.0)(
    causal_lm_loss_call
)


@check("8.1")
def test_causal_lm_loss_sure(rng):
    """a model that is sure and right"""
    call = causal_lm_loss_call(rng, (2, 6), vocab=12, ignored=0)
    inputs = call.steps[0][1]
    following = torch.nn.functional.one_hot(inputs["labels"].roll(-1, 1), 12)
    inputs["logits"] = 150.0 * following + inputs["logits"]
    return call


test_causal_lm_loss_half_precision = check(
    "8.1",
    "logits in {dtype}",
    points=0.25,
    scale=[3.0, 30.0],
    dtype=HALF,
    shape=(3, 8),
    vocab=40,
)(causal_lm_loss_call)
test_causal_lm_loss_by_position = check(
    "8.1",
    "arguments by position: logits, labels",
    points=0.5,
    shape=(2, 5),
    vocab=8,
    by_position=True,
)(causal_lm_loss_call)
test_causal_lm_loss_gradients = check(
    "8.1",
    "gradients of the logits",
    points=2,
    scale=[1.0, 40.0],
    shape=(2, 7),
    vocab=9,
    grad=True,
)(causal_lm_loss_call)


def learning_rate_call(rng, step, warmup_steps=5, total_steps=33, floor=True, **options):
    inputs = {"peak": 2 + rng.uniform(1).item()}
    inputs |= {"warmup_steps": warmup_steps, "total_steps": total_steps}
    if floor:
        inputs["floor"] = 0.7 + 0.2 * rng.uniform(1).item()
    return Call("learning_rate", step=step, **inputs, **options)


test_learning_rate_long_warmup = check(
    "8.2",
    "step {step} of a million steps of warm-up",
    step=[300000, 650000, 900000],
    warmup_steps=1000000,
    total_steps=4000000,
)(learning_rate_call)
test_learning_rate_warmup = check(
    "8.2", "step {step} of 5 steps of warm-up", points=0.15, step=[0, 2, 4], floor=[False, True]
)(learning_rate_call)
test_learning_rate_cosine = check(
    "8.2", "step {step} of 33, after a warm-up", step=[5, 6, 19, 27, 32], floor=False
)(learning_rate_call)
test_learning_rate_floor = check(
    "8.2", "step {step} of 33, with a floor", step=[5, 13, 26, 32]
)(learning_rate_call)
test_learning_rate_beyond = check(
    "8.2", "step {step}, when all 33 are done", points=0.5, step=[33, 40], floor=[False, True]
)(learning_rate_call)
test_learning_rate_no_warmup = check(
    "8.2",
    "step {step} without a warm-up",
    points=0.5,
    step=[0, 7],
    warmup_steps=0,
    total_steps=9,
)(learning_rate_call)
test_learning_rate_by_position = check(
    "8.2",
    "arguments by position: step, peak, warmup_steps, total_steps, floor",
    points=0.5,
    step=11,
    by_position=True,
)(learning_rate_call)


def given(rng, layers=2, experts=0, groups=1, watched=False, stale=False, top_k=2):
    """A model with fresh weights, in which the balance loss weighs much."""
    sizes = {"vocab_size": 13, "hidden_size": 5, "num_hidden_layers": layers}
    seed = rng.integers(0, 1000, 1).item()
    sizes |= {"num_experts": experts, "num_experts_per_tok": top_k}
    options = {"groups": groups, "watched": watched, "stale": stale}
    return Given("training.training", **sizes, **options, router_aux_loss_coef=0.3, seed=seed)


def train_step_call(
    rng, rates=(0.1,), texts=3, layers=2, experts=0, groups=1, stale=False, top_k=2, **options
):
    made = given(rng, layers, experts, groups, stale=stale, top_k=top_k)
    return train_call(rng, made, rates, (texts, 6), vocab=13, cut=3, **options)


test_train_step_one_step = check(
    "8.3", "one step, texts in the batch: {texts}", points=2, texts=[1, 4]
)(train_step_call)
test_train_step_clipped = check(
    "8.3", "clipped gradients", points=2, max_grad_norm=[0.02, 0.3]
)(train_step_call)
test_train_step_three_steps = check(
    "8.3",
    "three steps in a row: rates change, momentum is kept",
    points=3,
    rates=(0.1, 0.02, 0.05),
)(train_step_call)
test_train_step_stale = check(
    "8.3", "a model that comes with gradients of something else", stale=True
)(train_step_call)
test_train_step_padded = check("8.3", "padding", rates=(0.1, 0.05), padded=True)(
    train_step_call
)
test_train_step_experts = check(
    "8.3",
    "a model with {experts} experts, {top_k} a token",
    cases=rows("experts, layers, top_k", (4, 2, 3), (6, 1, 1)),
)(train_step_call)
test_train_step_clipped_experts = check(
    "8.3", "clipped gradients of a model with 3 experts", experts=3, max_grad_norm=0.2
)(train_step_call)
test_train_step_padded_experts = check(
    "8.3", "padding, 4 experts", rates=(0.1, 0.05), experts=4, padded=True
)(train_step_call)
test_train_step_groups = check(
    "8.3", "an optimizer with two groups of parameters", points=0.5, groups=2
)(train_step_call)
test_train_step_default_max_grad_norm = check(
    "8.3",
    "the default of max_grad_norm, also where a wild step makes gradients large",
    points=0.5,
    rates=(9.0, 0.1, 0.1),
    max_grad_norm=None,
)(train_step_call)
test_train_step_by_position = check(
    "8.3",
    "arguments by position",
    points=0.5,
    experts=3,
    padded=True,
    max_grad_norm=0.3,
    by_position=True,
)(train_step_call)


def train_step_in_parts_call(
    rng, parts, rates=(0.1,), texts=3, experts=0, watched=False, stale=False, **options
):
    made = given(rng, experts=experts, watched=watched, stale=stale, top_k=3)
    shape = (texts, 6)
    return train_call(rng, made, rates, shape, vocab=13, cut=3, parts=parts, **options)


test_train_step_in_parts_whole = check("8.4", "a batch in a single part", parts=1, experts=3)(
    train_step_in_parts_call
)


@check("8.4", points=2, cases=rows("parts, texts", (2, 6), (3, 5), (5, 5)))
def test_train_step_in_parts_parts(rng, parts, texts):
    """a batch of {texts} texts in {parts} parts"""
    watched = texts % parts == 0
    call = train_step_in_parts_call(rng, parts, rates=(0.1, 0.05), texts=texts, watched=watched)
    for _, inputs in call.steps:
        inputs["labels"][1, :4] = -100
    return call


test_train_step_in_parts_clipped = check(
    "8.4", "clipped gradients of 3 parts", points=2, parts=3, max_grad_norm=0.1, watched=True
)(train_step_in_parts_call)
test_train_step_in_parts_cut = check(
    "8.4",
    "7 texts in 3 parts, {experts} experts",
    points=0.6,
    experts=[0, 3],
    parts=3,
    texts=7,
    watched=True,
)(train_step_in_parts_call)
test_train_step_in_parts_fewer_parts = check(
    "8.4", "5 texts in 4 parts", points=0.6, parts=4, rates=(0.1, 0.05), texts=5
)(train_step_in_parts_call)


test_train_step_in_parts_stale = check(
    "8.4", "a model that comes with gradients of something else", parts=2, stale=True
)(train_step_in_parts_call)


@check("8.4", points=0.6)
def test_train_step_in_parts_first_label(rng):
    """first labels that are not -100"""
    call = train_step_in_parts_call(rng, 3)
    inputs = call.steps[0][1]
    inputs["labels"][1:, 0] = inputs["input_ids"][1:, 0]
    return call


@check("8.4", points=0.4, part=[1, 2, 3])
def test_train_step_in_parts_a_part_without_labels(rng, part):
    """two steps; in the second no label counts in part {part} of 3"""
    call = train_step_in_parts_call(rng, 3, rates=(0.1, 0.05))
    call.steps[1][1]["labels"][part - 1] = -100
    return call


test_train_step_in_parts_padded = check("8.4", "padding", parts=2, texts=4, padded=True)(
    train_step_in_parts_call
)


@check("8.4", parts=[2, 4])
def test_train_step_in_parts_experts(rng, parts):
    """4 texts, padding and experts, in {parts} parts"""
    call = train_step_in_parts_call(
        rng, parts, texts=4, experts=4, padded=True, max_grad_norm=0.4
    )
    call.steps[0][1]["labels"][0, :4] = -100
    return call


@check("8.4", points=0.5)
def test_train_step_in_parts_by_position(rng):
    """arguments by position, max_grad_norm left at its default"""
    options = {"padded": True, "max_grad_norm": None, "by_position": True}
    return train_step_in_parts_call(rng, 3, rates=(9.0, 0.1, 0.1), **options)


test_adam_w_step_first = check(
    "8.5",
    "the first step, shape {shape}",
    points=2,
    shape=[(5,), (2, 3, 4)],
    step=0,
    fresh=True,
    weight_decay=0.0,
)(adamw_call)
test_adam_w_step_later = check(
    "8.5",
    "step {step}",
    points=2,
    step=[1, 3, 40],
    shape=(4, 7),
    betas=(0.8, 0.95),
    weight_decay=0.0,
)(adamw_call)
test_adam_w_step_late = check("8.5", "step 50000", step=50000, shape=(7, 2), weight_decay=0.0)(
    adamw_call
)
test_adam_w_step_decay = check(
    "8.5",
    "step {step}, weight_decay {weight_decay}",
    points=2,
    cases=rows("step, weight_decay", (0, 3.0), (9, 0.7)),
    shape=(3, 5),
    lr=0.2,
)(adamw_call)
test_adam_w_step_eps = check(
    "8.5", "eps {eps}", eps=[0.1, 1.0], step=2, shape=(6,), weight_decay=0.0
)(adamw_call)
test_adam_w_step_small = check(
    "8.5",
    "gradients as small as the default of eps",
    points=0.5,
    step=6,
    size=1e-08,
    betas=(0.9, 0.95),
)(adamw_call)
test_adam_w_step_idle = check(
    "8.5",
    "a weight that never had a gradient",
    points=0.5,
    step=11,
    fresh=True,
    size=0.0,
    weight_decay=0.5,
)(adamw_call)
test_adam_w_step_by_position = check(
    "8.5",
    "arguments by position, the last three left at their defaults",
    points=0.5,
    step=5,
    shape=(2, 9),
    by_position=True,
)(adamw_call)
