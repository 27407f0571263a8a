"""Lab 08: wrong versions of the loss, the schedule and the training step."""

import math

import torch
from torch import nn

from solutions import training as reference
from solutions.mistakes import mistake
from solutions.moe import load_balancing_loss
from solutions.training import IGNORE, causal_lm_loss

# 8.1 causal_lm_loss


def mean_nll(log_probs, targets):
    """The mean of -log_probs at the targets that count: log_probs (B, T, V), targets (B, T)."""
    counted = targets != IGNORE
    picked = log_probs.gather(-1, targets.clamp(min=0)[..., None]).squeeze(-1)
    return -picked[counted].mean()


@mistake(
    "causal_lm_loss",
    "nothing is shifted: position t is scored on token t, which it has just read",
)
def not_shifted(logits, labels):
    return mean_nll(logits.float().log_softmax(dim=-1), labels)


@mistake(
    "causal_lm_loss",
    "the last position is cut off both: position t is still scored on token t",
)
def cut_but_not_shifted(logits, labels):
    return mean_nll(logits[:, :-1].float().log_softmax(dim=-1), labels[:, :-1])


@mistake("causal_lm_loss", "the labels are shifted twice: position t is scored on token t + 2")
def shifted_twice(logits, labels):
    return mean_nll(logits[:, :-2].float().log_softmax(dim=-1), labels[:, 2:])


@mistake(
    "causal_lm_loss",
    "the labels are rolled: the last position is scored on the first token of the text",
)
def rolled(logits, labels):
    return mean_nll(logits.float().log_softmax(dim=-1), labels.roll(-1, dims=1))


@mistake(
    "causal_lm_loss",
    "the sum is divided by all positions, those that do not count included",
)
def mean_over_all_positions(logits, labels):
    log_probs = logits[:, :-1].float().log_softmax(dim=-1)
    targets = labels[:, 1:]
    picked = log_probs.gather(-1, targets.clamp(min=0)[..., None]).squeeze(-1)
    return -(picked * (targets != IGNORE)).sum() / targets.numel()


@mistake("causal_lm_loss", "labels of -100 count as token 0 instead of not counting")
def ignored_count_as_zero(logits, labels):
    log_probs = logits[:, :-1].float().log_softmax(dim=-1)
    return mean_nll(log_probs, labels[:, 1:].clamp(min=0))


@mistake("causal_lm_loss", "labels of 0 are taken for padding; only -100 does not count")
def zero_is_ignored(logits, labels):
    return mean_nll(logits[:, :-1].float().log_softmax(dim=-1), _zeros_out(labels[:, 1:]))


def _zeros_out(targets):
    return targets.masked_fill(targets == 0, IGNORE)


@mistake("causal_lm_loss", "-100 is used as an index: replace it before gather, drop it after")
def ignored_as_index(logits, labels):
    log_probs = logits[:, :-1].float().log_softmax(dim=-1)
    picked = log_probs.gather(-1, labels[:, 1:, None]).squeeze(-1)
    return -picked[labels[:, 1:] != IGNORE].mean()


@mistake(
    "causal_lm_loss",
    "the wrong positions are dropped: the mask is that of the inputs, not of the targets",
)
def mask_not_shifted(logits, labels):
    log_probs = logits[:, :-1].float().log_softmax(dim=-1)
    picked = log_probs.gather(-1, labels[:, 1:].clamp(min=0)[..., None]).squeeze(-1)
    return -picked[labels[:, :-1] != IGNORE].mean()


@mistake("causal_lm_loss", "each text is averaged first, so that short texts count for more")
def mean_of_means(logits, labels):
    means = [
        reference.causal_lm_loss(*pair)
        for pair in zip(logits.split(1), labels.split(1), strict=True)
    ]
    return torch.stack(means).mean()


@mistake("causal_lm_loss", "the losses are summed instead of averaged")
def summed(logits, labels):
    counted = (labels[:, 1:] != IGNORE).sum()
    return reference.causal_lm_loss(logits, labels) * counted


@mistake(
    "causal_lm_loss", "softmax is taken twice: log_softmax wants logits, not probabilities"
)
def softmax_twice(logits, labels):
    probs = logits[:, :-1].float().softmax(dim=-1)
    return mean_nll(probs.log_softmax(dim=-1), labels[:, 1:])


@mistake(
    "causal_lm_loss", "the log of a softmax that has rounded to 0 is -inf: use log_softmax"
)
def log_of_softmax(logits, labels):
    return mean_nll(logits[:, :-1].float().softmax(dim=-1).log(), labels[:, 1:])


@mistake(
    "causal_lm_loss",
    "exp overflows: subtract each position's largest logit first, or use log_softmax",
)
def exp_without_maximum(logits, labels):
    wide = logits[:, :-1].float()
    return mean_nll(wide - wide.exp().sum(dim=-1, keepdim=True).log(), labels[:, 1:])


@mistake("causal_lm_loss", "log_softmax is taken in the dtype of the logits, not in float32")
def narrow_softmax(logits, labels):
    return mean_nll(logits[:, :-1].log_softmax(dim=-1).float(), labels[:, 1:])


@mistake(
    "causal_lm_loss", "the result is narrowed to the dtype of the logits; it stays float32"
)
def narrowed_result(logits, labels):
    return reference.causal_lm_loss(logits, labels).to(logits.dtype)


@mistake("causal_lm_loss", "the sign is missing: a loss is minus the log of a probability")
def sign_missing(logits, labels):
    return -reference.causal_lm_loss(logits, labels)


@mistake("causal_lm_loss", "a plain number comes back: .item() cuts the way to the gradients")
def plain_number(logits, labels):
    return reference.causal_lm_loss(logits, labels).item()


# 8.2 learning_rate


def cosine(peak, floor, progress):
    return floor + (peak - floor) * (1 + math.cos(math.pi * progress)) / 2


def share_done(step, warmup_steps, total_steps):
    return min((step - warmup_steps) / (total_steps - warmup_steps), 1.0)


@mistake("learning_rate", "the warm-up begins at 0, so that the first step learns nothing")
def warmup_from_zero(step, peak, warmup_steps, total_steps, floor=0.0):
    if step < warmup_steps:
        return peak * step / warmup_steps
    return reference.learning_rate(step, peak, warmup_steps, total_steps, floor)


@mistake(
    "learning_rate",
    "the warm-up takes a step too many: its last step does not reach the peak",
)
def warmup_too_long(step, peak, warmup_steps, total_steps, floor=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / (warmup_steps + 1)
    return reference.learning_rate(step, peak, warmup_steps, total_steps, floor)


@mistake(
    "learning_rate",
    "step == warmup_steps still counts as warm-up: steps count from 0, so use <, not <=",
)
def warmup_off_by_one(step, peak, warmup_steps, total_steps, floor=0.0):
    if step <= warmup_steps:
        return peak * (step + 1) / warmup_steps
    return reference.learning_rate(step, peak, warmup_steps, total_steps, floor)


@mistake(
    "learning_rate",
    "progress is counted from step 0: after the warm-up the rate jumps down",
)
def progress_from_zero(step, peak, warmup_steps, total_steps, floor=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return cosine(peak, floor, min(step / total_steps, 1.0))


@mistake(
    "learning_rate",
    "progress is divided by all steps, not by those after the warm-up: it ends too early",
)
def progress_of_the_whole(step, peak, warmup_steps, total_steps, floor=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return cosine(peak, floor, min((step - warmup_steps) / total_steps, 1.0))


@mistake("learning_rate", "nothing stops progress at 1: after total_steps the rate rises again")
def rises_again(step, peak, warmup_steps, total_steps, floor=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return cosine(peak, floor, (step - warmup_steps) / (total_steps - warmup_steps))


@mistake("learning_rate", "the floor is ignored: the cosine ends at 0")
def floor_ignored(step, peak, warmup_steps, total_steps, floor=0.0):
    return reference.learning_rate(step, peak, warmup_steps, total_steps)


@mistake("learning_rate", "the cosine falls to 0 and is cut off at the floor")
def floor_cuts_off(step, peak, warmup_steps, total_steps, floor=0.0):
    rate = reference.learning_rate(step, peak, warmup_steps, total_steps)
    return max(rate, floor) if step >= warmup_steps else rate


@mistake("learning_rate", "the cosine gets degrees: math.cos wants radians, pi * progress")
def degrees(step, peak, warmup_steps, total_steps, floor=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    done = share_done(step, warmup_steps, total_steps)
    return floor + (peak - floor) * (1 + math.cos(180 * done)) / 2


# 8.3 train_step


def losses_of(model, input_ids, labels, attention_mask):
    """(loss, balance_loss, objective), all right."""
    logits, router_logits = model(input_ids, attention_mask, output_router_logits=True)
    loss = causal_lm_loss(logits, labels)
    balance_loss = torch.zeros_like(loss)
    if router_logits:
        top_k = model.config.num_experts_per_tok
        balance_loss = load_balancing_loss(router_logits, top_k, attention_mask)
    return loss, balance_loss, loss + model.config.router_aux_loss_coef * balance_loss


def set_rate(optimizer, lr):
    for group in optimizer.param_groups:
        group["lr"] = lr


def a_step(
    model,
    optimizer,
    input_ids,
    labels,
    lr,
    attention_mask=None,
    max_grad_norm=1.0,
    accumulation_steps=1,
    zero=lambda optimizer: optimizer.zero_grad(),
    cut=lambda rows, parts: rows.chunk(parts),
    mask_of=lambda mask, rows: mask[rows],
    losses=losses_of,
    before_backward=lambda optimizer: None,
    weigh=lambda share: share,
    report=None,
    after_backward=lambda optimizer: None,
    clip=nn.utils.clip_grad_norm_,
    rate=set_rate,
    learn=lambda optimizer: optimizer.step(),
):
    """All right as it stands; a mistake puts something else in one place."""
    counted = labels[:, 1:] != IGNORE
    told = {"loss": 0.0, "balance_loss": 0.0}
    zero(optimizer)
    for rows in cut(torch.arange(len(labels)), accumulation_steps):
        share = counted[rows].sum() / counted.sum()
        if share == 0:
            continue
        mask = None if attention_mask is None else mask_of(attention_mask, rows)
        loss, balance_loss, objective = losses(model, input_ids[rows], labels[rows], mask)
        weight = weigh(share)
        before_backward(optimizer)
        (weight * objective).backward()
        after_backward(optimizer)
        told["loss"] += ((report or weigh)(share) * loss).item()
        told["balance_loss"] += ((report or weigh)(share) * balance_loss).item()
    grad_norm = clip(list(model.parameters()), max_grad_norm)
    rate(optimizer, lr)
    learn(optimizer)
    return told | {"grad_norm": float(grad_norm)}


@mistake(
    "train_step",
    "the gradients are never zeroed: those of earlier steps are still in them",
)
def never_zeroed(*args, **kwargs):
    return a_step(*args, **kwargs, zero=lambda optimizer: None)


@mistake(
    "train_step",
    "the weights stay as they were: optimizer.step() is missing, or comes after zero_grad()",
)
def no_step(*args, **kwargs):
    return a_step(*args, **kwargs, learn=lambda optimizer: None)


@mistake("train_step", "the gradients are not clipped before the step: not at all, or too late")
def not_clipped(*args, **kwargs):
    def measured(weights, max_grad_norm):
        return nn.utils.clip_grad_norm_(weights, float("inf"))

    return a_step(*args, **kwargs, clip=measured)


@mistake(
    "train_step",
    "the gradients are clipped before backward: there are none, or those of the last step",
)
def clipped_before_backward(*args, **kwargs):
    return a_step(*args, **kwargs, clip=lambda weights, max_grad_norm: 0.0)


@mistake("train_step", "every entry is cut off at max_grad_norm: that bends the gradient")
def clipped_by_value(*args, **kwargs):
    def bent(weights, max_grad_norm):
        grad_norm = nn.utils.clip_grad_norm_(weights, float("inf"))
        nn.utils.clip_grad_value_(weights, max_grad_norm)
        return grad_norm

    return a_step(*args, **kwargs, clip=bent)


@mistake("train_step", "max_grad_norm is not used: another number stands in its place")
def fixed_norm(*args, **kwargs):
    def fixed(weights, max_grad_norm):
        return nn.utils.clip_grad_norm_(weights, 1.0)

    return a_step(*args, **kwargs, clip=fixed)


@mistake("train_step", "grad_norm is the norm after clipping; what tells you more is before")
def norm_after_clipping(*args, **kwargs):
    def after(weights, max_grad_norm):
        return min(float(nn.utils.clip_grad_norm_(weights, max_grad_norm)), max_grad_norm)

    return a_step(*args, **kwargs, clip=after)


@mistake("train_step", "lr is never set: the optimizer steps with the rate it was made with")
def rate_never_set(*args, **kwargs):
    return a_step(*args, **kwargs, rate=lambda optimizer, lr: None)


@mistake("train_step", "lr is set in the first group of parameters only")
def rate_of_one_group(*args, **kwargs):
    def first(optimizer, lr):
        optimizer.param_groups[0]["lr"] = lr

    return a_step(*args, **kwargs, rate=first)


@mistake("train_step", "lr is set after the step, which used the rate of the step before")
def rate_set_too_late(model, optimizer, input_ids, labels, lr, *args, **kwargs):
    def kept(optimizer, lr):
        pass

    told = a_step(model, optimizer, input_ids, labels, lr, *args, **kwargs, rate=kept)
    set_rate(optimizer, lr)
    return told


@mistake(
    "train_step",
    "the balance loss does not reach the gradients: it is left out of the objective, or "
    "added as a plain number",
)
def balance_not_learnt(*args, **kwargs):
    def losses(*inputs):
        loss, balance_loss, _ = losses_of(*inputs)
        return loss, balance_loss, loss

    return a_step(*args, **kwargs, losses=losses)


@mistake("train_step", "the balance loss is missing: experts are not looked at")
def no_balance_loss(*args, **kwargs):
    def losses(model, input_ids, labels, attention_mask):
        loss = causal_lm_loss(model(input_ids, attention_mask), labels)
        return loss, 0.0, loss

    return a_step(*args, **kwargs, losses=losses)


@mistake("train_step", "the balance loss is not weighted with router_aux_loss_coef")
def balance_unweighted(*args, **kwargs):
    def losses(*inputs):
        loss, balance_loss, _ = losses_of(*inputs)
        return loss, balance_loss, loss + balance_loss

    return a_step(*args, **kwargs, losses=losses)


@mistake("train_step", "loss is reported with the balance term in it; report it without")
def objective_reported(*args, **kwargs):
    def losses(*inputs):
        _, balance_loss, objective = losses_of(*inputs)
        return objective, balance_loss, objective

    return a_step(*args, **kwargs, losses=losses)


@mistake("train_step", "the balance loss counts padding: hand attention_mask on to it")
def balance_counts_padding(*args, **kwargs):
    def losses(model, input_ids, labels, attention_mask):
        logits, router_logits = model(input_ids, attention_mask, output_router_logits=True)
        loss = causal_lm_loss(logits, labels)
        balance_loss = torch.zeros_like(loss)
        if router_logits:
            balance_loss = load_balancing_loss(router_logits, model.config.num_experts_per_tok)
        return loss, balance_loss, loss + model.config.router_aux_loss_coef * balance_loss

    return a_step(*args, **kwargs, losses=losses)


@mistake("train_step", "attention_mask is used nowhere: the model and the balance loss need it")
def mask_ignored(*args, **kwargs):
    def losses(model, input_ids, labels, attention_mask):
        return losses_of(model, input_ids, labels, None)

    return a_step(*args, **kwargs, losses=losses)


@mistake("train_step", "the loss is taken of input_ids: labels say what counts")
def inputs_as_labels(model, optimizer, input_ids, labels, *args, **kwargs):
    return a_step(model, optimizer, input_ids, input_ids, *args, **kwargs)


@mistake("train_step", "the labels are shifted here, and causal_lm_loss shifts them once more")
def shifted_once_more(model, optimizer, input_ids, labels, *args, **kwargs):
    last = torch.full_like(labels[:, :1], IGNORE)
    labels = torch.cat((labels[:, 1:], last), dim=1)
    return a_step(model, optimizer, input_ids, labels, *args, **kwargs)


@mistake("train_step", "the report holds tensors, and with them the whole graph: use .item()")
def tensors_reported(*args, **kwargs):
    return {name: torch.tensor(said) for name, said in a_step(*args, **kwargs).items()}


@mistake(
    "train_step",
    "the parts count alike; a part weighs what it holds of the labels that count",
)
def parts_alike(*args, accumulation_steps=1, **kwargs):
    part = torch.tensor(1 / accumulation_steps)
    return a_step(
        *args, **kwargs, accumulation_steps=accumulation_steps, weigh=lambda share: part
    )


@mistake(
    "train_step", "the parts are added up as they are: weigh each part's loss by its share"
)
def parts_added(*args, **kwargs):
    return a_step(*args, **kwargs, weigh=lambda share: torch.ones_like(share))


@mistake("train_step", "the report is weighed, the gradients are not: weigh before backward")
def gradients_added(*args, **kwargs):
    every = torch.tensor(1.0)
    return a_step(*args, **kwargs, weigh=lambda share: every, report=lambda share: share)


@mistake("train_step", "split takes the size of a part, not how many there are: use chunk")
def split_by_size(*args, **kwargs):
    return a_step(*args, **kwargs, cut=lambda rows, parts: rows.split(parts))


@mistake("train_step", "attention_mask is not cut: every part needs its own rows of it")
def mask_not_cut(*args, **kwargs):
    return a_step(*args, **kwargs, mask_of=lambda mask, rows: mask)


@mistake("train_step", "the gradients are zeroed before each part: only the last one is left")
def zeroed_between_parts(*args, **kwargs):
    return a_step(*args, **kwargs, before_backward=lambda optimizer: optimizer.zero_grad())


@mistake("train_step", "the optimizer steps after every part; it steps once, after the last")
def step_after_every_part(
    model,
    optimizer,
    input_ids,
    labels,
    lr,
    attention_mask=None,
    max_grad_norm=1.0,
    accumulation_steps=1,
):
    norms = []

    def each(optimizer):
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm))
        set_rate(optimizer, lr)
        optimizer.step()

    batch = (input_ids, labels, lr, attention_mask, max_grad_norm, accumulation_steps)
    return a_step(
        model, optimizer, *batch, after_backward=each, clip=lambda *_: norms[-1],
        learn=lambda optimizer: None,
    )  # fmt: skip


@mistake("train_step", "the gradients are clipped after every part; clip once, after the last")
def clipped_after_every_part(
    model,
    optimizer,
    input_ids,
    labels,
    lr,
    attention_mask=None,
    max_grad_norm=1.0,
    accumulation_steps=1,
):
    norms = []

    def each(optimizer):
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm))

    batch = (input_ids, labels, lr, attention_mask, max_grad_norm, accumulation_steps)
    return a_step(model, optimizer, *batch, after_backward=each, clip=lambda *_: norms[-1])


@mistake("train_step", "the batch is not cut: accumulation_steps is not used")
def not_cut(*args, accumulation_steps=1, **kwargs):
    return a_step(*args, **kwargs)
