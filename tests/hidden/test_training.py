"""Hidden checks of lab 08: fresh numbers, odd shapes, other dtypes, gradients, two steps."""

import torch
from visible import test_training as visible
from visible.test_training import adamw_call, loss_call, train_call

from labkit.checks.declared import check, rows

HALF = [torch.bfloat16, torch.float16]

test_loss_values = check("8.1", shape=[(3, 7), (1, 9), (4, 6), (2, 2)],
    vocab=13)(visible.test_loss_values)  # fmt: skip
test_loss_ignored = check("8.1", points=2, shape=[(2, 7), (3, 9)],
    vocab=17)(visible.test_loss_ignored)  # fmt: skip


@check("8.1")
def test_loss_one_label(rng):
    """a single label that counts"""
    call = loss_call(rng, (2, 5), vocab=6, ignored=False)
    labels = call.steps[0][1]["labels"]
    token = labels[1, 3].clone()
    labels.fill_(-100)
    labels[1, 3] = token
    return call


test_loss_large = check("8.1", vocab=12, scale=300.0)(visible.test_loss_large)
test_loss_sure = check("8.1", vocab=12)(visible.test_loss_sure)
test_loss_half = check(
    "8.1", points=0.25, scale=[3.0, 30.0], dtype=HALF, shape=(3, 8), vocab=40
)(visible.test_loss_half)
test_loss_by_position = check("8.1", points=0.5, shape=(2, 5),
    vocab=8)(visible.test_loss_by_position)  # fmt: skip
test_loss_gradients = check("8.1", points=2, ignored=False, scale=[1.0, 40.0], shape=(2, 7),
    vocab=9)(visible.test_loss_gradients)  # fmt: skip

RATE = {"peak": None, "warmup_steps": 5, "total_steps": 33, "more": 99}
test_rate_long_warmup = check(
    "8.2", step=[300000, 650000, 900000], peak=None, total_steps=4000000
)(visible.test_rate_long_warmup)
test_rate_warmup = check("8.2", points=0.15, step=[0, 2, 4], floor=[0.0, 0.3],
    **RATE)(visible.test_rate_warmup)  # fmt: skip
test_rate_cosine = check("8.2", step=[5, 6, 19, 27, 32], **RATE)(visible.test_rate_cosine)
test_rate_floor = check("8.2", step=[5, 13, 26, 32], floor=0.35,
    **RATE)(visible.test_rate_floor)  # fmt: skip
test_rate_beyond = check("8.2", points=0.5, step=[33, 40], floor=[0.0, 0.35],
    **RATE)(visible.test_rate_beyond)  # fmt: skip
test_rate_no_warmup = check(
    "8.2", points=0.5, step=[0, 7], peak=None, floor=0.35, total_steps=9
)(visible.test_rate_no_warmup)
test_rate_by_position = check("8.2", points=0.5, step=11, floor=0.35,
    **RATE)(visible.test_rate_by_position)  # fmt: skip

# A model with other weights, in which the balance loss weighs much
OTHER = {"tokens": 6, "vocab": 13, "size": 5, "layers": 2, "weight": 0.3, "seed": 417, "cut": 3}
TWO = visible.TWO | OTHER
test_step = check("8.3", points=2, texts=[1, 4], **OTHER)(visible.test_step)
test_step_clipped = check("8.3", points=2, max_grad_norm=[0.02, 0.3],
    **OTHER)(visible.test_step_clipped)  # fmt: skip
test_step_several = check("8.3", points=3, rates=(0.1, 0.02, 0.05),
    **OTHER)(visible.test_step_several)  # fmt: skip
test_step_stale = check("8.3", **OTHER)(visible.test_step_stale)
test_step_padded = check(
    "8.3", points=0.25, mask=[*visible.PADDED, ("111111", "000111", "011111")], **TWO
)(visible.test_step_padded)
test_step_labeled = check("8.3", points=0.25, **OTHER)(visible.test_step_labeled)
test_step_experts = check(
    "8.3", **OTHER, cases=rows("experts, layers, top_k", (4, 2, 3), (6, 1, 1))
)(visible.test_step_experts)
test_step_clipped_experts = check(
    "8.3", "clipped gradients of a model with 3 experts",
    experts=3, max_grad_norm=0.2, **OTHER,
)(train_call)  # fmt: skip
test_step_experts_padded = check("8.3", experts=4, top_k=2,
    **TWO)(visible.test_step_experts_padded)  # fmt: skip
test_step_groups = check("8.3", points=0.5, **OTHER)(visible.test_step_groups)
test_step_default_max_grad_norm = check(
    "8.3", "the default of max_grad_norm, also where a wild step makes gradients large",
    points=0.5, rates=(9.0, 0.1, 0.1), max_grad_norm=None, **OTHER,
)(train_call)  # fmt: skip
test_step_by_position = check("8.3", points=0.5, experts=3, max_grad_norm=0.3,
    **OTHER)(visible.test_step_by_position)  # fmt: skip

test_parts_whole = check("8.4", experts=3, top_k=3, **OTHER)(visible.test_parts_whole)


@check("8.4", points=2, cases=rows("parts, texts", (2, 6), (3, 5), (5, 5)))
def test_parts(rng, parts, texts):
    """a batch of {texts} texts in {parts} parts"""
    call = train_call(rng, parts=parts, texts=texts, watched=texts % parts == 0, **TWO)
    for _, inputs in call.steps:
        inputs["labels"][1, :4] = -100
    return call


test_parts_clipped = check("8.4", points=2, max_grad_norm=0.1,
    **OTHER)(visible.test_parts_clipped)  # fmt: skip
test_parts_cut = check("8.4", points=0.6, experts=[0, 3], top_k=3,
    **OTHER)(visible.test_parts_cut)  # fmt: skip
test_parts_fewer = check("8.4", points=0.6, **TWO)(visible.test_parts_fewer)
test_parts_stale = check("8.4", **OTHER)(visible.test_parts_stale)
test_parts_first_label = check("8.4", points=0.6, **OTHER)(visible.test_parts_first_label)
test_parts_without_labels = check("8.4", points=0.4, part=[1, 2, 3],
    **OTHER)(visible.test_parts_without_labels)  # fmt: skip
test_parts_padded = check("8.4", points=0.5, mask=visible.PADDED,
    **OTHER | {"cut": 2})(visible.test_parts_padded)  # fmt: skip
test_parts_groups = check("8.4", points=0.5, **TWO | {"texts": 5})(visible.test_parts_odd)


@check("8.4", parts=[2, 4])
def test_parts_experts(rng, parts):
    """4 texts, padding and experts, in {parts} parts"""
    more = {"experts": 4, "top_k": 3, "padded": True, "max_grad_norm": 0.4}
    call = train_call(rng, parts=parts, texts=4, **more, **OTHER)
    call.steps[0][1]["labels"][0, :4] = -100
    return call


test_parts_by_position = check("8.4", points=0.5, rates=(9.0, 0.1, 0.1),
    **OTHER)(visible.test_parts_by_position)  # fmt: skip

test_adamw_first = check(
    "8.5", "the first step, shape {shape}", points=2, shape=[(5,), (2, 3, 4)], step=0,
    fresh=True, weight_decay=0.0,
)(adamw_call)  # fmt: skip
test_adamw_later = check(
    "8.5", "step {step}", points=2, step=[1, 3, 40], shape=(4, 7), betas=(0.8, 0.95),
    weight_decay=0.0,
)(adamw_call)  # fmt: skip
test_adamw_late = check("8.5", "step 50000", step=50000, shape=(7, 2),
    weight_decay=0.0)(adamw_call)  # fmt: skip
test_adamw_decay = check(
    "8.5", "step {step}, weight_decay {weight_decay}", points=2,
    cases=rows("step, weight_decay", (0, 3.0), (9, 0.7)), shape=(3, 5), lr=0.2,
)(adamw_call)  # fmt: skip
test_adamw_eps = check(
    "8.5", "eps {eps}", eps=[0.1, 1.0], step=2, shape=(6,), weight_decay=0.0
)(adamw_call)
test_adamw_small = check(
    "8.5", "gradients as small as the default of eps", points=0.5, step=6, size=1e-08,
    betas=(0.9, 0.95),
)(adamw_call)  # fmt: skip
test_adamw_idle = check(
    "8.5", "a weight that never had a gradient", points=0.5, step=11, fresh=True, size=0.0,
    weight_decay=0.5,
)(adamw_call)  # fmt: skip
test_adamw_by_position = check(
    "8.5", "arguments by position, the last three left at their defaults", points=0.5, step=5,
    shape=(2, 9), by_position=True,
)(adamw_call)  # fmt: skip

test_minhash = check("8.6", count=[13, 40], functions=24)(visible.test_minhash)
test_minhash_empty = check("8.6", points=0.3, functions=4)(visible.test_minhash_empty)
test_alike = check("8.6", points=1.5, texts=16, size=24, bands=[4, 8],
    threshold=0.4375)(visible.test_alike)  # fmt: skip
test_alike_bands = check("8.6", size=24, bands=6)(visible.test_alike_bands)
test_alike_share = check("8.6", points=0.3, size=32, bands=8,
    threshold=0.125)(visible.test_alike_share)  # fmt: skip
test_clean = check("8.6", points=0.7, count=[9, 11])(visible.test_clean)
test_clean_pairs = check("8.6", points=0.9, count=[11, 12, 12])(visible.test_clean_pairs)
test_clean_copies = check("8.6", points=0.7, texts=[11, 12])(visible.test_clean_copies)

test_law = check("8.7", points=1.5, runs=[17, 30])(visible.test_law)
test_law_product = check("8.7", runs=[15, 25])(visible.test_law_product)
test_law_relative = check("8.7", points=1.5, noise=0.25, runs=[12, 20, 16])(
    visible.test_law_relative
)
test_law_positive = check("8.7", points=0.5, floor=-0.4, runs=25)(visible.test_law_positive)
test_law_nearly = check("8.7", points=0.5, runs=20, exact=(0.2, 0.35))(visible.test_law_nearly)
test_law_equal = check("8.7", points=0.5, runs=18, exact=(0.35, 0.35))(visible.test_law_equal)
test_law_by_position = check("8.7", points=0.5, runs=16)(visible.test_law_by_position)
test_optimal = check("8.7", points=1.5, flops=[None, 3e13])(visible.test_optimal)

test_resume = check("8.8", points=2, before=[4, 11], texts=6, tokens=7)(visible.test_resume)
test_resume_epoch = check("8.8", before=[1, 6], texts=13, batch=3)(visible.test_resume_epoch)
test_resume_start = check("8.8", points=0.5, texts=5)(visible.test_resume_start)
test_rollback = check("8.8", points=1, before=[2, 7], texts=9)(visible.test_rollback)

test_masters = check("8.9", points=0.5, seed=5)(visible.test_masters)
test_masters_small = check("8.9", points=2, steps=8, lr=[1e-4, 3e-4], seed=9)(
    visible.test_masters_small
)
test_masters_clipped = check("8.9", max_grad_norm=[0.2, 3.0], seed=7)(
    visible.test_masters_clipped
)
test_masters_half = check("8.9", points=0.5, steps=3, seed=11)(visible.test_masters_half)
test_masters_idle = check("8.9", points=0.5, idle="lm_head.bias")(visible.test_masters_idle)
test_masters_by_position = check("8.9", points=0.5, seed=3)(visible.test_masters_by_position)
test_web_clip = check("8.10", sizes=[(1.0, 4.0), (0.1, 2.0, 0.1, 5.0)], longest=1.5)(
    visible.test_web_clip
)
