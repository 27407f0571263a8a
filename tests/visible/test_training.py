"""Visible checks of lab 08: what check("8.1") and its sisters run."""

import torch

from labkit.checks.declared import Call, Given, check

VOCAB = 11


def causal_lm_loss_call(rng, scale=2.0, dtype=torch.float32, ignored=True, **options):
    labels = rng.integers(1, VOCAB, 2, 6)
    labels[0, 2] = 0
    if ignored:
        labels[0, :2] = labels[0, 5] = labels[1, 5] = -100
    logits = (scale * rng.normal(2, 6, VOCAB)).to(dtype)
    return Call("causal_lm_loss", logits=logits, labels=labels, **options)


test_causal_lm_loss_values = check("8.1", "every label counts", ignored=False)(
    causal_lm_loss_call
)
test_causal_lm_loss_ignored = check("8.1", "labels of -100 do not count")(causal_lm_loss_call)
test_causal_lm_loss_large = check("8.1", "large logits", scale=100.0)(causal_lm_loss_call)


@check("8.1")
def test_causal_lm_loss_sure(rng):
    """a model that is sure and right"""
    call = causal_lm_loss_call(rng, ignored=False)
    inputs = call.steps[0][1]
    following = torch.nn.functional.one_hot(inputs["labels"].roll(-1, 1), VOCAB)
    inputs["logits"] = 200.0 * following + inputs["logits"]
    return call


test_causal_lm_loss_bfloat16 = check(
    "8.1", "logits in bfloat16", scale=4.0, dtype=torch.bfloat16
)(causal_lm_loss_call)
test_causal_lm_loss_by_position = check(
    "8.1", "arguments by position: logits, labels", by_position=True
)(causal_lm_loss_call)
test_causal_lm_loss_gradients = check(
    "8.1", "gradients, of logits as large as {scale}", points=0.5, scale=[2.0, 100.0], grad=True
)(causal_lm_loss_call)


def learning_rate_call(step, warmup_steps=4, total_steps=20, **options):
    inputs = {"peak": 2.0, "warmup_steps": warmup_steps, "total_steps": total_steps}
    return Call("learning_rate", step=step, **inputs, **options)


test_learning_rate_long_warmup = check("8.2", "in the middle of a long warm-up")(
    lambda rng: learning_rate_call(700000, warmup_steps=1000000, total_steps=3000000)
)
test_learning_rate_warmup = check("8.2", "step {step} of 4 steps of warm-up", step=[0, 1, 3])(
    lambda rng, step: learning_rate_call(step)
)


@check("8.2", step=[4, 5, 9, 12, 17, 19])
def test_learning_rate_cosine(rng, step):
    """step {step}, after 4 steps of warm-up, of 20"""
    return learning_rate_call(step)


@check("8.2", step=[0, 1, 4, 12, 17, 20, 25])
def test_learning_rate_floor(rng, step):
    """step {step} of 20, with a floor"""
    return learning_rate_call(step, floor=0.6)


test_learning_rate_beyond = check("8.2", "step {step}, when all 20 are done", step=[20, 23])(
    lambda rng, step: learning_rate_call(step)
)
test_learning_rate_no_warmup = check("8.2", "step {step} without a warm-up", step=[0, 1])(
    lambda rng, step: learning_rate_call(step, warmup_steps=0)
)


@check("8.2")
def test_learning_rate_by_position(rng):
    """arguments by position: step, peak, warmup_steps, total_steps, floor"""
    return learning_rate_call(7, floor=0.6, by_position=True)


def small_model(experts, groups=1, **options):
    """A model of few weights: the recorded mistakes leave them behind in many copies."""
    sizes = {"vocab_size": 7, "hidden_size": 4, "num_hidden_layers": 2 if experts else 1}
    return Given("training.training", **sizes, num_experts=experts, groups=groups, **options)


def train_call(
    rng, given, rates, shape, vocab=7, cut=2, padded=False, max_grad_norm=100.0,
    parts=0, **options,
):  # fmt: skip
    """One step for every rate, all on one model: the next shows what the last left behind.

    cut    tokens at the beginning of a text that have no label, or are padding
    parts  0: train_step; otherwise train_step_in_parts, and no first label counts
    """
    call = Call("train_step_in_parts" if parts else "train_step", objects=given, **options)
    for lr in rates:
        input_ids = rng.integers(0, vocab, *shape)
        labels = input_ids.clone()
        labels[0, :cut] = -100
        inputs = {"input_ids": input_ids, "labels": labels, "lr": lr}
        if parts:
            labels[:, 0] = -100
            inputs["accumulation_steps"] = parts
        if padded:
            mask = torch.ones_like(input_ids)
            mask[1, :cut] = mask[2, :1] = 0
            labels[mask == 0] = -100
            inputs["attention_mask"] = mask
        if max_grad_norm:
            inputs["max_grad_norm"] = max_grad_norm
        call.then(**inputs)
    return call


def train_step_call(rng, experts=0, groups=1, rates=(0.1,), stale=False, top_k=2, **options):
    given = small_model(experts, groups, stale=stale, num_experts_per_tok=top_k)
    return train_call(rng, given, rates, (3, 5), **options)


test_train_step_one_step = check("8.3", "one step, nothing to clip")(train_step_call)
test_train_step_clipped = check(
    "8.3", "gradients longer than max_grad_norm", max_grad_norm=0.25
)(train_step_call)
test_train_step_two_steps = check("8.3", "two steps in a row", rates=(0.1, 0.05))(
    train_step_call
)
test_train_step_stale = check(
    "8.3", "a model that comes with gradients of something else", stale=True
)(train_step_call)
test_train_step_padded = check("8.3", "padding", padded=True)(train_step_call)
test_train_step_experts = check("8.3", "a model with experts", experts=3)(train_step_call)
test_train_step_experts_padded = check(
    "8.3", "a model with experts, 1 a token, and padding", experts=3, top_k=1, padded=True
)(train_step_call)
test_train_step_groups = check("8.3", "an optimizer with two groups of parameters", groups=2)(
    train_step_call
)
test_train_step_by_position = check(
    "8.3",
    "arguments by position, max_grad_norm left at its default",
    padded=True,
    max_grad_norm=None,
    by_position=True,
)(train_step_call)


def train_step_in_parts_call(
    rng, parts, shape=(3, 5), experts=0, rates=(0.1,), watched=False, stale=False, **options
):
    given = small_model(experts, watched=watched, stale=stale, num_experts_per_tok=1)
    return train_call(rng, given, rates, shape, parts=parts, **options)


test_train_step_in_parts_whole = check("8.4", "a batch in a single part", parts=1)(
    train_step_in_parts_call
)
test_train_step_in_parts_equal_parts = check(
    "8.4", "2 parts that hold equally many labels", parts=2, shape=(4, 5), cut=0, watched=True
)(train_step_in_parts_call)


@check("8.4")
def test_train_step_in_parts_unequal_parts(rng):
    """3 parts that hold 3, 4 and 1 counted labels"""
    call = train_step_in_parts_call(rng, 3, watched=True)
    call.steps[0][1]["labels"][2, 1:4] = -100
    return call


test_train_step_in_parts_odd = check(
    "8.4", "5 texts in 2 parts, two steps in a row", parts=2, shape=(5, 4), rates=(0.1, 0.05)
)(train_step_in_parts_call)
test_train_step_in_parts_clipped = check(
    "8.4", "gradients longer than max_grad_norm", parts=3, max_grad_norm=0.25, watched=True
)(train_step_in_parts_call)
test_train_step_in_parts_cut = check(
    "8.4", "7 texts in 3 parts: 3, 3 and 1", points=0.5, parts=3, shape=(7, 3), watched=True
)(train_step_in_parts_call)
test_train_step_in_parts_fewer_parts = check(
    "8.4", "5 texts in 4 parts, which are only 3", points=0.5, parts=4, shape=(5, 3)
)(train_step_in_parts_call)


test_train_step_in_parts_stale = check(
    "8.4", "a model that comes with gradients of something else", parts=2, stale=True
)(train_step_in_parts_call)


@check("8.4")
def test_train_step_in_parts_first_label(rng):
    """first labels that are not -100: they are never scored"""
    call = train_step_in_parts_call(rng, 3)
    inputs = call.steps[0][1]
    inputs["labels"][1:, 0] = inputs["input_ids"][1:, 0]
    return call


@check("8.4", points=0.5, part=[1, 2, 3])
def test_train_step_in_parts_a_part_without_labels(rng, part):
    """two steps; in the second no label counts in part {part} of 3"""
    call = train_step_in_parts_call(rng, 3, rates=(0.1, 0.05))
    call.steps[1][1]["labels"][part - 1] = -100
    return call


test_train_step_in_parts_padded = check("8.4", "padding", parts=3, padded=True)(
    train_step_in_parts_call
)


@check("8.4")
def test_train_step_in_parts_experts(rng):
    """a model with experts, 1 a token, padding, and 2 parts that hold 7 and 3 counted labels"""
    call = train_step_in_parts_call(rng, 2, shape=(6, 5), experts=3, padded=True, watched=True)
    call.steps[0][1]["labels"][2:, 1:4] = -100
    return call


test_train_step_in_parts_by_position = check(
    "8.4",
    "arguments by position, max_grad_norm left at its default",
    parts=3,
    padded=True,
    max_grad_norm=None,
    by_position=True,
)(train_step_in_parts_call)


def adamw_call(rng, step, shape=(3, 4), fresh=False, size=1.0, **options):
    """One step of AdamW; fresh: the means are still zeros, as before the first one."""
    exp_avg, exp_avg_sq = size * rng.normal(*shape), size**2 * rng.uniform(*shape)
    inputs = {"weight": rng.normal(*shape), "grad": size * rng.normal(*shape)}
    inputs |= {"exp_avg": exp_avg * (not fresh), "exp_avg_sq": exp_avg_sq * (not fresh)}
    inputs |= {"step": step, "lr": 0.1} | options
    by_position = inputs.pop("by_position", False)
    call = Call("adamw_step", by_position=by_position).then(**inputs)
    return call.returning("weight", "exp_avg", "exp_avg_sq")


test_adam_w_step_first = check(
    "8.5", "the first step, without decay", step=0, fresh=True, weight_decay=0.0
)(adamw_call)
test_adam_w_step_later = check(
    "8.5", "step {step}, without decay", step=[1, 5], weight_decay=0.0
)(adamw_call)
test_adam_w_step_late = check(
    "8.5", "step 100000, when nothing is left to correct", step=100000, weight_decay=0.0
)(adamw_call)
test_adam_w_step_decay = check("8.5", "step {step}, with a weight_decay of 2", step=[0, 7])(
    lambda rng, step: adamw_call(rng, step, fresh=not step, weight_decay=2.0)
)
test_adam_w_step_betas = check(
    "8.5", "other betas: 0.5 and 0.8", step=2, betas=(0.5, 0.8), weight_decay=0.0
)(adamw_call)
test_adam_w_step_eps = check("8.5", "a large eps: 0.5", step=3, eps=0.5, weight_decay=0.0)(
    adamw_call
)
test_adam_w_step_idle = check(
    "8.5", "a weight that never had a gradient", points=0.5, step=4, fresh=True, size=0.0
)(adamw_call)
test_adam_w_step_by_position = check(
    "8.5",
    "arguments by position, betas, eps and weight_decay left at their defaults",
    points=0.5,
    step=2,
    by_position=True,
)(adamw_call)
