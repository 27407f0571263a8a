"""Visible checks of lab 08: what check("8.1") and its sisters run."""

from functools import partial

import torch
from visible.questions import PADDED, mask_of

from labkit.checks.declared import Call, Given, New, Outcome, check, rows


def loss_call(
    rng, shape=(2, 6), vocab=11, scale=2.0, dtype=torch.float32, ignored=True, **options
):
    labels = rng.integers(0, vocab, *shape)
    labels[0, -1] = 0  # a token like any other
    if ignored:
        is_dropped = rng.uniform(*shape) < 0.4
        is_dropped[0] = True
        is_dropped[0, -1] = False
        is_dropped[-1, -2:] = True
        is_dropped[-1, 2:4] = False
        labels[is_dropped] = -100
    logits = (scale * rng.normal(*shape, vocab)).to(dtype)
    return Call("causal_lm_loss", logits=logits, labels=labels, **options)


test_loss_values = check("8.1", "every label counts", ignored=False)(loss_call)
test_loss_ignored = check("8.1", "labels of -100 do not count")(loss_call)
test_loss_large = check("8.1", "large logits", scale=100.0)(loss_call)


@check("8.1")
def test_loss_sure(rng, shape=(2, 6), vocab=11):
    """a model that is sure and right"""
    call = loss_call(rng, shape, vocab, ignored=False)
    inputs = call.steps[0][1]
    following = torch.nn.functional.one_hot(inputs["labels"].roll(-1, 1), vocab)
    inputs["logits"] = 200.0 * following + inputs["logits"]
    return call


test_loss_half = check("8.1", "logits in {dtype}", scale=4.0, dtype=[torch.bfloat16])(loss_call)
test_loss_by_position = check("8.1", "arguments by position: logits, labels", by_position=True)(
    loss_call
)
test_loss_gradients = check(
    "8.1", "gradients, of logits as large as {scale}", points=0.5, scale=[2.0, 100.0], grad=True
)(loss_call)


def rate_call(
    rng, step, warmup_steps=4, total_steps=20, peak=2.0, floor=None, more=0, **options
):
    """floor   a share of the peak, which is drawn where it is None
    more    up to so many more steps of warm-up, which later steps come after
    """
    peak = 10 ** rng.uniform(low=-6.0).item() if peak is None else peak
    more = rng.integers(0, more + 1, 1).item()
    step += more if step >= warmup_steps - 1 else 0
    warmup_steps, total_steps = warmup_steps + more, total_steps + more
    inputs = {"peak": peak, "warmup_steps": warmup_steps, "total_steps": total_steps}
    inputs |= {} if floor is None else {"floor": floor * peak}
    return Call("learning_rate", step=step, **inputs, **options)


def small_numbers(outcomes):
    """Numbers as tensors, so that small ones are compared as closely as large ones."""

    def tensor(value):
        is_number = isinstance(value, (int, float))
        return torch.tensor(round(value, 20), dtype=torch.float64) if is_number else value

    return [Outcome([tensor(v) for v in o.values], failure=o.failure) for o in outcomes]


check_rate = partial(check, "8.2", view=small_numbers, tolerance=1e-6)
test_rate_long_warmup = check_rate(
    "a step in some million steps of warm-up",
    step=[700000], warmup_steps=1000000, total_steps=3000000,
)(rate_call)  # fmt: skip
test_rate_warmup = check_rate("step {step}, in a warm-up", step=[0, 1, 3])(rate_call)
test_rate_cosine = check_rate(
    "step {step} of {total_steps}, after a warm-up",
    step=[4, 5, 9, 12, 17, 19], total_steps=20,
)(rate_call)  # fmt: skip
test_rate_floor = check_rate(
    "step {step} of {total_steps}, with a floor",
    step=[0, 1, 4, 12, 17, 20, 25], total_steps=20, floor=0.3,
)(rate_call)  # fmt: skip
test_rate_small = check_rate(
    "step {step}, with a peak of {peak}", step=[1, 9], peak=[3.2e-4, 1e-6]
)(rate_call)
test_rate_beyond = check_rate("step {step}, when all are done", step=[20, 23])(rate_call)
test_rate_no_warmup = check_rate("step {step} without a warm-up", step=[0, 1], warmup_steps=0)(
    rate_call
)
test_rate_by_position = check_rate(
    "arguments by position: step, peak, warmup_steps, total_steps, floor",
    step=7, floor=0.3, by_position=True,
)(rate_call)  # fmt: skip


def train_call(
    rng, rates=(0.1,), texts=3, tokens=5, vocab=7, size=4, layers=1, experts=0, top_k=2,
    groups=1, watched=False, stale=False, weight=0.1, seed=0, cut=2, padded=False,
    max_grad_norm=100.0, parts=0, mask=(), labeled=False, **options,
):  # fmt: skip
    """One step for every rate, all on one model: the next shows what the last left behind.

    size, layers     of the model; small ones, since mistakes leave weights in many copies
    groups, watched, stale    see doubles.training.training
    weight           of the balance loss
    cut    tokens at the beginning of a text that have no label, or are padding
    mask   the attention_mask, a row of digits per text
    labeled   whether labels of padding count
    parts  0: train_step; otherwise train_step_in_parts, and no first label counts
    """
    given = Given(
        "training.training", vocab_size=vocab, hidden_size=size, num_hidden_layers=layers,
        num_experts=experts, num_experts_per_tok=top_k, router_aux_loss_coef=weight,
        groups=groups, watched=watched, stale=stale, seed=seed,
    )  # fmt: skip
    call = Call("train_step_in_parts" if parts else "train_step", objects=given, **options)
    texts, tokens = (len(mask), len(mask[0])) if mask else (texts, tokens)
    for lr in rates:
        input_ids = rng.integers(0, vocab, texts, tokens)
        labels = input_ids.clone()
        labels[0, :cut] = -100
        inputs = {"input_ids": input_ids, "labels": labels, "lr": lr}
        if parts:
            labels[:, 0] = -100
            inputs["accumulation_steps"] = parts
        if padded or mask:
            shown = mask_of(mask) if mask else torch.ones_like(input_ids)
            if padded:
                shown[1, :cut] = shown[2, :1] = 0
            if not labeled:
                labels[shown == 0] = -100
            inputs["attention_mask"] = shown
        if max_grad_norm:
            inputs["max_grad_norm"] = max_grad_norm
        call.then(**inputs)
    return call


TWO = {"rates": (0.1, 0.05)}
BY_POSITION = "arguments by position, max_grad_norm left at its default"
STALE = "a model that comes with gradients of something else"
test_step = check("8.3", "one step, nothing to clip")(train_call)
test_step_clipped = check("8.3", "gradients longer than max_grad_norm", max_grad_norm=0.25)(
    train_call
)
test_step_several = check("8.3", "several steps in a row", **TWO)(train_call)
test_step_stale = check("8.3", STALE, stale=True)(train_call)
test_step_padded = check("8.3", "padding: {mask}", points=0.5, mask=PADDED)(train_call)
test_step_labeled = check(
    "8.3", "padding that has labels, which count", points=0.5, padded=True, labeled=True
)(train_call)
test_step_experts = check(
    "8.3", "a model with {experts} experts, {top_k} a token",
    layers=2, cases=rows("experts, top_k", (3, 2)),
)(train_call)  # fmt: skip
test_step_experts_padded = check(
    "8.3", "a model with experts, 1 a token, and padding",
    layers=2, experts=3, top_k=1, padded=True,
)(train_call)  # fmt: skip
test_step_groups = check("8.3", "an optimizer with two groups of parameters", groups=2)(
    train_call
)
test_step_by_position = check(
    "8.3", BY_POSITION, padded=True, max_grad_norm=None, by_position=True
)(train_call)
test_parts_whole = check("8.4", "a batch in a single part", parts=1)(train_call)
test_parts_equal = check(
    "8.4", "2 parts that hold equally many labels", parts=2, texts=4, cut=0, watched=True
)(train_call)


@check("8.4")
def test_parts_unequal(rng):
    """3 parts that hold 3, 4 and 1 counted labels"""
    call = train_call(rng, parts=3, watched=True)
    call.steps[0][1]["labels"][2, 1:4] = -100
    return call


test_parts_odd = check(
    "8.4", "5 texts in 2 parts, two steps in a row, two groups of parameters",
    parts=2, texts=5, tokens=4, groups=2, **TWO,
)(train_call)  # fmt: skip
test_parts_clipped = check(
    "8.4", "gradients longer than max_grad_norm", parts=3, max_grad_norm=0.25, watched=True
)(train_call)
test_parts_cut = check(
    "8.4", "7 texts in 3 parts: 3, 3 and 1",
    points=0.5, parts=3, texts=7, tokens=3, watched=True,
)(train_call)  # fmt: skip
test_parts_fewer = check(
    "8.4", "5 texts in 4 parts, which are only 3", points=0.5, parts=4, texts=5, tokens=3
)(train_call)
test_parts_stale = check("8.4", STALE, parts=2, stale=True)(train_call)


@check("8.4")
def test_parts_first_label(rng, **sizes):
    """first labels that are not -100: they are never scored"""
    call = train_call(rng, parts=3, **sizes)
    inputs = call.steps[0][1]
    inputs["labels"][1:, 0] = inputs["input_ids"][1:, 0]
    return call


@check("8.4", points=0.5, part=[1, 2, 3])
def test_parts_without_labels(rng, part, **sizes):
    """two steps; in the second no label counts in part {part} of 3"""
    call = train_call(rng, parts=3, **TWO, **sizes)
    call.steps[1][1]["labels"][part - 1] = -100
    return call


test_parts_padded = check(
    "8.4", "padding, 2 parts or one: {mask}", points=0.5, parts=2, mask=PADDED
)(train_call)


@check("8.4")
def test_parts_experts(rng):
    """a model with experts, 1 a token, padding, and 2 parts that hold 7 and 3 counted labels"""
    model = {"layers": 2, "experts": 3, "top_k": 1, "watched": True}
    call = train_call(rng, parts=2, texts=6, padded=True, **model)
    call.steps[0][1]["labels"][2:, 1:4] = -100
    return call


test_parts_by_position = check(
    "8.4", BY_POSITION, parts=3, padded=True, max_grad_norm=None, by_position=True
)(train_call)


def adamw_call(rng, step, shape=(3, 4), fresh=False, size=1.0, **options):
    """One step of AdamW; fresh: the means are still zeros, as before the first one."""
    exp_avg, exp_avg_sq = size * rng.normal(*shape), size**2 * rng.uniform(*shape)
    inputs = {"weight": rng.normal(*shape), "grad": size * rng.normal(*shape)}
    inputs |= {"exp_avg": exp_avg * (not fresh), "exp_avg_sq": exp_avg_sq * (not fresh)}
    inputs |= {"step": step, "lr": 0.1} | options
    by_position = inputs.pop("by_position", False)
    call = Call("adamw_step", by_position=by_position).then(**inputs)
    return call.returning("weight", "exp_avg", "exp_avg_sq")


test_adamw_first = check(
    "8.5", "the first step, without decay", step=0, fresh=True, weight_decay=0.0
)(adamw_call)
test_adamw_later = check("8.5", "step {step}, without decay", step=[1, 5], weight_decay=0.0)(
    adamw_call
)
test_adamw_late = check(
    "8.5", "step 100000, when nothing is left to correct", step=100000, weight_decay=0.0
)(adamw_call)
test_adamw_decay = check("8.5", "step {step}, with a weight_decay of 2", step=[0, 7])(
    lambda rng, step: adamw_call(rng, step, fresh=not step, weight_decay=2.0)
)
test_adamw_betas = check(
    "8.5", "other betas: 0.5 and 0.8", step=2, betas=(0.5, 0.8), weight_decay=0.0
)(adamw_call)
test_adamw_eps = check("8.5", "a large eps: 0.5", step=3, eps=0.5, weight_decay=0.0)(adamw_call)
test_adamw_idle = check(
    "8.5", "a weight that never had a gradient", points=0.5, step=4, fresh=True, size=0.0
)(adamw_call)
test_adamw_by_position = check(
    "8.5", "arguments by position, betas, eps and weight_decay left at their defaults",
    points=0.5, step=2, by_position=True,
)(adamw_call)  # fmt: skip


def minhash_call(rng, count=9, functions=6, **options):
    shingles = rng.integers(0, 2**31 - 1, count)
    numbers = [rng.integers(1, 2**31 - 1, functions) for _ in range(2)]
    inputs = {"shingles": shingles, "factors": numbers[0], "offsets": numbers[1]}
    return Call("minhash", **inputs, **options)


test_minhash = check("8.6", "the signature of {count} shingles", count=[9, 1])(minhash_call)
test_minhash_empty = check("8.6", "a text without shingles", points=0.5, count=0)(minhash_call)


def alike_call(rng, texts=12, size=12, bands=3, threshold=0.5):
    """Signatures of which later ones agree with earlier ones in some entries of any place."""
    signatures = rng.integers(0, 2**31 - 1, texts, size)
    for number in range(1, texts, max(texts // 12, 1)):
        earlier = int(rng.integers(0, number, 1))
        same = rng.uniform(size) < rng.uniform(1, low=0.3, high=1.3)
        signatures[number, same] = signatures[earlier, same]
    inputs = {"signatures": signatures, "bands": bands, "threshold": threshold}
    return Call("near_duplicates", **inputs)


def bands_call(rng, size=12, bands=4, threshold=0.0, shift=0):
    """Pairs that agree in a band, in as many entries of two bands, in a band of another place,
    and in all entries."""
    rows, width = rng.integers(0, 2**31 - 1, 7, size), size // bands
    rows[1, width : 2 * width] = rows[0, width : 2 * width]
    rows[2, 1 : width + 1] = rows[0, 1 : width + 1]
    rows[4, :width] = rows[3, width : 2 * width]
    rows[6] = rows[5]
    return Call("near_duplicates", signatures=rows, bands=bands, threshold=threshold)


test_alike = check("8.6", "pairs of 12 texts, {bands} bands", bands=[3, 6], points=2)(
    alike_call
)
test_alike_bands = check("8.6", "texts that agree in a whole band, across two, and in all")(
    bands_call
)
test_alike_share = check("8.6", "a share of exactly the threshold", points=0.5, threshold=0.25)(
    bands_call
)

TEXTS = (
    "Anna had a ball.", "Ben ran a", "Anna had a ball. ", 'Mia said: "Hi!"', "Tom # sat.",
    'Tom sat "', "Where is it?", "Mia ran,", "# # No!", "She slept.", "He ate.", "Sam #",
)  # fmt: skip


def clean_call(rng, pairs=(), texts=TEXTS, count=10):
    order = [int(i) for i in rng.uniform(len(texts)).argsort()][:count]
    place = {text: number for number, text in enumerate(order)}
    found = [sorted((place[i], place[j])) for i, j in pairs if i in place and j in place]
    inputs = {"texts": [texts[i] for i in order], "pairs": sorted(map(tuple, found))}
    return Call("clean", contradictions=Given("training.count_of", mark="#"), **inputs)


test_clean = check("8.6", "whole texts and texts cut off, some with contradictions", count=12)(
    clean_call
)
test_clean_pairs = check("8.6", "copies: some of them cut off, or wrong", points=2, pairs=(
    (0, 2), (1, 2), (3, 4), (3, 5), (6, 7), (8, 9), (9, 10), (6, 10)), count=12)(
    clean_call
)  # fmt: skip


def copies_call(rng, texts=10):
    """Three copies of one text; a copy of a copy that is no copy of the first; and three texts
    after one that is cut off: two copies of each other, and one that contradicts itself."""
    found = [f"Anna had {number} balls." for number in range(texts)]
    places = rng.uniform(texts).argsort().tolist()
    a, b, c = sorted(places[:3])
    d, e, f = sorted(places[3:6])
    g, h, i, j = sorted(places[6:10])
    found[g], found[j] = "Tom sat", "Tom # sat."
    pairs = [(a, b), (a, c), (b, c), (d, e), (e, f), (g, h), (g, i), (h, i), (g, j)]
    given = Given("training.count_of", mark="#")
    return Call("clean", texts=found, pairs=sorted(pairs), contradictions=given)


test_clean_copies = check(
    "8.6", "copies of copies: alike to a text that is kept?", texts=[10, 13]
)(copies_call)


def as_tensors(outcomes):
    """Numbers as tensors of their own, so that small ones are compared as closely as large."""

    def tensors(value):
        if isinstance(value, (list, tuple)):
            return [tensors(item) for item in value]
        if isinstance(value, torch.Tensor) and value.dim() == 1:
            return list(value)
        return torch.tensor(value, dtype=torch.float64) if type(value) is float else value

    return [Outcome([tensors(v) for v in o.values], failure=o.failure) for o in outcomes]


def law_call(rng, runs=14, noise=0.02, floor=None, is_sum=True, by_position=False, exact=None):
    """Runs of a drawn law, with an error of some per cent in each loss.

    exact  its alpha and beta; drawn otherwise
    """
    sizes, tokens = (10 ** rng.uniform(runs, low=4, high=6.5).double() for _ in range(2))
    alpha, beta = exact or rng.uniform(2, low=0.2, high=0.7).tolist()
    floor = rng.uniform(1, low=0.4, high=1.2).item() if floor is None else floor
    scale = rng.uniform(2, low=1.0, high=3.0).tolist()
    terms = scale[0] * (sizes / 3e4) ** -alpha, scale[1] * (tokens / 3e4) ** -beta
    losses = floor + (terms[0] + terms[1] if is_sum else terms[0] * terms[1])
    inputs = {
        "columns": Given("training.law_columns", is_sum=is_sum), "parameters": sizes,
        "tokens": tokens, "losses": losses * (1 + noise * rng.normal(runs).double()),
        "exponents": torch.tensor([0.2, 0.35, 0.5, 0.7]).double(),
    }  # fmt: skip
    call = Call("fit_scaling_law", by_position=by_position, **inputs)
    return call.returning("factors", "alpha", "beta")


check_law = partial(check, "8.7", view=as_tensors, tolerance=1e-3)
test_law = check_law("a sum of powers, {runs} runs", runs=[14, 40], points=1.5)(law_call)
test_law_product = check_law("a product of powers", is_sum=False)(law_call)
test_law_relative = check_law("losses far apart: errors count as shares", noise=0.2)(law_call)
test_law_positive = check_law("a law that wants a negative factor", floor=-0.3, points=0.5)(
    law_call
)
test_law_nearly = check_law("the best factor is a little below 0", floor=-0.005, noise=0.0,
    exact=(0.35, 0.5), points=0.5)(law_call)  # fmt: skip
test_law_equal = check_law("alpha and beta are the same", exact=(0.5, 0.5), noise=0.001,
    points=0.5)(law_call)  # fmt: skip
test_law_by_position = check_law("arguments by position", by_position=True, points=0.5)(
    law_call
)


def optimal_call(rng, flops=None):
    low = torch.tensor([0.3, 50.0, 0.2, 50.0, 0.2])
    law = (low * (1 + 2 * rng.uniform(5))).double().tolist()
    flops = 10 ** rng.uniform(1, low=10, high=22).double().item() if flops is None else flops
    return Call("compute_optimal", law=law, flops=flops)


test_optimal = check_law("the best run for a drawn budget", points=1.5)(optimal_call)
test_optimal_small = check_law("the best run for 6 operations", points=0.5, flops=6.0)(
    optimal_call
)


def trainer_of(rng, texts=7, tokens=5, batch=2, total=20, seed=0, peak=0.3):
    model = Given("training.Shared", vocab_size=9, hidden_size=4, seed=seed)
    return {
        "model": model, "optimizer": Given("training.momentum", model=model),
        "texts": rng.integers(0, 9, texts, tokens), "batch_size": batch, "total_steps": total,
        "peak": peak, "generator": Given("training.draws", seed=seed + 5),
    }  # fmt: skip


def resume_call(rng, before=5, after=6, **sizes):
    """Another trainer trains and saves itself; this one, of other weights, loads it."""
    arguments = trainer_of(rng, **sizes)
    seeds = rng.integers(1, 1000, 2).tolist()
    other = trainer_of(rng, **sizes, seed=seeds[0]) | {"texts": arguments["texts"]}
    file = Given("training.Disk", trainer=New("Trainer", **other), steps=before,
        generator=arguments["generator"])  # fmt: skip
    call = Call("Trainer", init=arguments, grad=True).then("load", file=file)
    return call.then("run", steps=after).then(".step")


def rollback_call(rng, before=3, after=5, **sizes):
    """One trainer saves, trains on, loads, and trains the same steps again."""
    disk = Given("training.Disk")
    call = Call("Trainer", init=trainer_of(rng, **sizes), grad=True).then("run", steps=before)
    call.then("save", file=disk).then("run", steps=after).then("load", file=disk)
    return call.then("run", steps=after)


test_resume = check("8.8", "a new trainer loads the checkpoint of one that was stopped",
    points=2)(resume_call)  # fmt: skip
test_resume_epoch = check("8.8", "stopped after {before} steps, in the middle of an epoch of 5",
    before=[2, 8], texts=10)(resume_call)  # fmt: skip
test_resume_start = check("8.8", "a checkpoint before the first step", points=0.5, before=0)(
    rollback_call
)
test_rollback = check("8.8", "a trainer goes back to its own checkpoint")(rollback_call)


def masters_call(
    rng, steps=1, lr=0.1, size=1.0, max_grad_norm=100.0, dtype=torch.bfloat16, idle="", seed=0,
    **options,
):  # fmt: skip
    model = Given("training.Half", vocab_size=7, hidden_size=4, dtype=dtype, seed=seed)
    call = Call("step_with_masters", objects=Given("training.half", model=model), **options)
    for number, seed in enumerate(rng.integers(1, 1000, steps).tolist()):
        gradients = {"model": model, "seed": seed, "size": size, "idle": idle if number else ""}
        rate = Given("training.backward", lr=lr, **gradients)
        call.then(lr=rate, **({"max_grad_norm": max_grad_norm} if max_grad_norm else {}))
    return call


test_masters = check("8.9", "one step", points=0.5)(masters_call)
test_masters_small = check("8.9", "{steps} steps, each too small for the weights", points=2,
    steps=[6], lr=2e-4)(masters_call)  # fmt: skip
test_masters_clipped = check("8.9", "gradients longer than max_grad_norm", max_grad_norm=0.5)(
    masters_call
)
test_masters_half = check("8.9", "weights in float16, two steps", points=0.5, steps=2,
    dtype=torch.float16)(masters_call)  # fmt: skip
test_masters_idle = check("8.9", "a weight without a gradient in the second step",
    points=0.5, steps=2, idle="mix.bias")(masters_call)  # fmt: skip
test_masters_by_position = check("8.9", "arguments by position, max_grad_norm at its default",
    points=0.5, max_grad_norm=None, by_position=True)(masters_call)  # fmt: skip


@check("8.10", sizes=(3.0, 0.5, 2.0), longest=0.5)
def test_web_clip(rng, sizes, longest):
    """one tensor, and {sizes} times as large ones, clipped to {longest} together"""
    drawn = [size * rng.normal(4, 2 + place) for place, size in enumerate(sizes)]
    for gradients in (drawn[:1], drawn):
        yield Call("web_clip", gradients=gradients, max_grad_norm=longest)
        yield Call("web_clip", gradients=gradients, max_grad_norm=1000.0)
