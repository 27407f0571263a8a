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


@mistake(
    "causal_lm_loss",
    "the shift runs the wrong way: position t is scored on token t - 1",
)
def shifted_backwards(logits, labels):
    return mean_nll(logits[:, 1:].float().log_softmax(dim=-1), labels[:, :-1])


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


@mistake("causal_lm_loss", "the losses are not averaged: one number a token comes back")
def not_reduced(logits, labels):
    log_probs = logits[:, :-1].float().log_softmax(dim=-1)
    targets = labels[:, 1:]
    picked = log_probs.gather(-1, targets.clamp(min=0)[..., None]).squeeze(-1)
    return -picked * (targets != IGNORE)


@mistake(
    "causal_lm_loss", "softmax is taken twice: log_softmax wants logits, not probabilities"
)
def softmax_twice(logits, labels):
    probs = logits[:, :-1].float().softmax(dim=-1)
    return mean_nll(probs.log_softmax(dim=-1), labels[:, 1:])


@mistake("causal_lm_loss", "the logits are used as they are, without a softmax")
def no_softmax(logits, labels):
    return mean_nll(logits[:, :-1].float(), labels[:, 1:])


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


@mistake("causal_lm_loss", "a small number inside the log hides how wrong a guess is")
def epsilon_in_the_log(logits, labels):
    probs = logits[:, :-1].float().softmax(dim=-1)
    return mean_nll((probs + 1e-9).log(), labels[:, 1:])


@mistake("causal_lm_loss", "the softmax runs over the tokens of the text, not the vocabulary")
def softmax_over_tokens(logits, labels):
    return mean_nll(logits[:, :-1].float().log_softmax(dim=1), labels[:, 1:])


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


@mistake("causal_lm_loss", "the logarithm has base 2: that counts bits, not nats")
def in_bits(logits, labels):
    return reference.causal_lm_loss(logits, labels) / math.log(2)


@mistake("causal_lm_loss", "the exponential of the loss comes back: that is the perplexity")
def perplexity(logits, labels):
    return reference.causal_lm_loss(logits, labels).exp()


@mistake("causal_lm_loss", "a plain number comes back: .item() cuts the way to the gradients")
def plain_number(logits, labels):
    return reference.causal_lm_loss(logits, labels).item()


@mistake("causal_lm_loss", "the caller's labels are changed in place: -100 is gone afterwards")
def labels_overwritten(logits, labels):
    loss = reference.causal_lm_loss(logits, labels)
    labels[labels == IGNORE] = 0
    return loss


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


@mistake("learning_rate", "the warm-up climbs from the floor; it climbs from 0")
def warmup_from_floor(step, peak, warmup_steps, total_steps, floor=0.0):
    if step < warmup_steps:
        return floor + (peak - floor) * (step + 1) / warmup_steps
    return reference.learning_rate(step, peak, warmup_steps, total_steps, floor)


@mistake("learning_rate", "there is no warm-up: the cosine is all")
def no_warmup(step, peak, warmup_steps, total_steps, floor=0.0):
    return cosine(peak, floor, min(step / total_steps, 1.0))


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


@mistake("learning_rate", "the cosine is a step ahead: progress is 0 at warmup_steps")
def cosine_a_step_ahead(step, peak, warmup_steps, total_steps, floor=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return cosine(peak, floor, share_done(step + 1, warmup_steps, total_steps))


@mistake(
    "learning_rate",
    "progress reaches 1 at the last step, total_steps - 1, instead of at total_steps",
)
def ends_a_step_early(step, peak, warmup_steps, total_steps, floor=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return cosine(peak, floor, share_done(step, warmup_steps, total_steps - 1))


@mistake("learning_rate", "nothing stops progress at 1: after total_steps the rate rises again")
def rises_again(step, peak, warmup_steps, total_steps, floor=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return cosine(peak, floor, (step - warmup_steps) / (total_steps - warmup_steps))


@mistake("learning_rate", "after total_steps the rate is 0 instead of the floor")
def zero_beyond(step, peak, warmup_steps, total_steps, floor=0.0):
    if step >= total_steps:
        return 0.0
    return reference.learning_rate(step, peak, warmup_steps, total_steps, floor)


@mistake("learning_rate", "the floor is ignored: the cosine ends at 0")
def floor_ignored(step, peak, warmup_steps, total_steps, floor=0.0):
    return reference.learning_rate(step, peak, warmup_steps, total_steps)


@mistake("learning_rate", "the cosine falls to 0 and is cut off at the floor")
def floor_cuts_off(step, peak, warmup_steps, total_steps, floor=0.0):
    rate = reference.learning_rate(step, peak, warmup_steps, total_steps)
    return max(rate, floor) if step >= warmup_steps else rate


@mistake("learning_rate", "the floor is added on top: scale the cosine by peak - floor")
def floor_on_top(step, peak, warmup_steps, total_steps, floor=0.0):
    rate = reference.learning_rate(step, peak, warmup_steps, total_steps)
    return rate + floor if step >= warmup_steps else rate


@mistake("learning_rate", "the floor is taken as a share of the peak; it is a rate")
def floor_as_share(step, peak, warmup_steps, total_steps, floor=0.0):
    return reference.learning_rate(step, peak, warmup_steps, total_steps, floor * peak)


@mistake("learning_rate", "the way down is a straight line instead of half a cosine")
def straight_down(step, peak, warmup_steps, total_steps, floor=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return peak + (floor - peak) * share_done(step, warmup_steps, total_steps)


@mistake("learning_rate", "the cosine runs a whole turn: down and up again; half a turn is pi")
def whole_turn(step, peak, warmup_steps, total_steps, floor=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return cosine(peak, floor, 2 * share_done(step, warmup_steps, total_steps))


@mistake("learning_rate", "the 1 + before the cosine is missing: it runs from 1 to -1")
def cosine_below_zero(step, peak, warmup_steps, total_steps, floor=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    done = share_done(step, warmup_steps, total_steps)
    return floor + (peak - floor) * math.cos(math.pi * done)


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


def learn(model, optimizer, objective, lr, max_grad_norm):
    """The rest of the step, right; gives grad_norm."""
    optimizer.zero_grad()
    objective.backward()
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    set_rate(optimizer, lr)
    optimizer.step()
    return grad_norm


def set_rate(optimizer, lr):
    for group in optimizer.param_groups:
        group["lr"] = lr


def told(loss, balance_loss, grad_norm):
    return {
        "loss": torch.as_tensor(loss).item(),
        "balance_loss": torch.as_tensor(balance_loss).item(),
        "grad_norm": torch.as_tensor(grad_norm).item(),
    }


@mistake(
    "train_step",
    "the gradients are never zeroed: those of earlier steps are still in them",
)
def never_zeroed(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    loss, balance_loss, objective = losses_of(model, input_ids, labels, attention_mask)
    objective.backward()
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    set_rate(optimizer, lr)
    optimizer.step()
    return told(loss, balance_loss, grad_norm)


@mistake(
    "train_step",
    "the gradients are zeroed right after backward: nothing is left to learn from",
)
def zeroed_after_backward(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    loss, balance_loss, objective = losses_of(model, input_ids, labels, attention_mask)
    objective.backward()
    optimizer.zero_grad()
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    set_rate(optimizer, lr)
    optimizer.step()
    return told(loss, balance_loss, grad_norm)


@mistake(
    "train_step",
    "the weights stay as they were: optimizer.step() is missing, or comes after zero_grad()",
)
def no_step(model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0):
    loss, balance_loss, objective = losses_of(model, input_ids, labels, attention_mask)
    optimizer.zero_grad()
    objective.backward()
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    set_rate(optimizer, lr)
    return told(loss, balance_loss, grad_norm)


@mistake("train_step", "the gradients are not clipped before the step: not at all, or too late")
def not_clipped(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    loss, balance_loss, objective = losses_of(model, input_ids, labels, attention_mask)
    grad_norm = learn(model, optimizer, objective, lr, float("inf"))
    return told(loss, balance_loss, grad_norm)


@mistake(
    "train_step",
    "the gradients are clipped before backward: there are none, or those of the last step",
)
def clipped_before_backward(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    loss, balance_loss, objective = losses_of(model, input_ids, labels, attention_mask)
    optimizer.zero_grad()
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    objective.backward()
    set_rate(optimizer, lr)
    optimizer.step()
    return told(loss, balance_loss, grad_norm)


@mistake("train_step", "every parameter is clipped by itself; the norm is that of all together")
def clipped_one_by_one(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    loss, balance_loss, objective = losses_of(model, input_ids, labels, attention_mask)
    optimizer.zero_grad()
    objective.backward()
    norms = [nn.utils.clip_grad_norm_([p], max_grad_norm) for p in model.parameters()]
    set_rate(optimizer, lr)
    optimizer.step()
    return told(loss, balance_loss, torch.stack(norms).norm())


@mistake("train_step", "every entry is cut off at max_grad_norm: that bends the gradient")
def clipped_by_value(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    loss, balance_loss, objective = losses_of(model, input_ids, labels, attention_mask)
    optimizer.zero_grad()
    objective.backward()
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
    nn.utils.clip_grad_value_(model.parameters(), max_grad_norm)
    set_rate(optimizer, lr)
    optimizer.step()
    return told(loss, balance_loss, grad_norm)


@mistake("train_step", "short gradients are stretched to max_grad_norm; only long ones change")
def stretched(model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0):
    loss, balance_loss, objective = losses_of(model, input_ids, labels, attention_mask)
    optimizer.zero_grad()
    objective.backward()
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
    for parameter in model.parameters():
        parameter.grad *= max_grad_norm / grad_norm
    set_rate(optimizer, lr)
    optimizer.step()
    return told(loss, balance_loss, grad_norm)


@mistake("train_step", "max_grad_norm is not used: another number stands in its place")
def fixed_norm(model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0):
    loss, balance_loss, objective = losses_of(model, input_ids, labels, attention_mask)
    grad_norm = learn(model, optimizer, objective, lr, 1.0)
    return told(loss, balance_loss, grad_norm)


@mistake("train_step", "the default of max_grad_norm is not 1.0")
def another_default(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=0.5
):
    loss, balance_loss, objective = losses_of(model, input_ids, labels, attention_mask)
    grad_norm = learn(model, optimizer, objective, lr, max_grad_norm)
    return told(loss, balance_loss, grad_norm)


@mistake("train_step", "grad_norm is the norm after clipping; what tells you more is before")
def norm_after_clipping(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    loss, balance_loss, objective = losses_of(model, input_ids, labels, attention_mask)
    grad_norm = learn(model, optimizer, objective, lr, max_grad_norm)
    return told(loss, balance_loss, min(grad_norm.item(), max_grad_norm))


@mistake("train_step", "lr is never set: the optimizer steps with the rate it was made with")
def rate_never_set(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    loss, balance_loss, objective = losses_of(model, input_ids, labels, attention_mask)
    grad_norm = learn(
        model, optimizer, objective, optimizer.param_groups[0]["lr"], max_grad_norm
    )
    return told(loss, balance_loss, grad_norm)


@mistake("train_step", "lr is set in the first group of parameters only")
def rate_of_one_group(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    loss, balance_loss, objective = losses_of(model, input_ids, labels, attention_mask)
    optimizer.zero_grad()
    objective.backward()
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.param_groups[0]["lr"] = lr
    optimizer.step()
    return told(loss, balance_loss, grad_norm)


@mistake("train_step", "lr is set after the step, which used the rate of the step before")
def rate_set_too_late(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    loss, balance_loss, objective = losses_of(model, input_ids, labels, attention_mask)
    optimizer.zero_grad()
    objective.backward()
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    set_rate(optimizer, lr)
    return told(loss, balance_loss, grad_norm)


@mistake("train_step", "lr is multiplied onto the optimizer's own rate instead of replacing it")
def rate_multiplied(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    loss, balance_loss, objective = losses_of(model, input_ids, labels, attention_mask)
    grad_norm = learn(
        model, optimizer, objective, lr * optimizer.param_groups[0]["lr"], max_grad_norm
    )
    return told(loss, balance_loss, grad_norm)


@mistake(
    "train_step",
    "the balance loss does not reach the gradients: it is left out of the objective, or "
    "added as a plain number",
)
def balance_not_learnt(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    loss, balance_loss, _ = losses_of(model, input_ids, labels, attention_mask)
    grad_norm = learn(model, optimizer, loss, lr, max_grad_norm)
    return told(loss, balance_loss, grad_norm)


@mistake("train_step", "the balance loss is missing: experts are not looked at")
def no_balance_loss(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    loss = causal_lm_loss(model(input_ids, attention_mask), labels)
    grad_norm = learn(model, optimizer, loss, lr, max_grad_norm)
    return told(loss, 0.0, grad_norm)


@mistake("train_step", "the balance loss is not weighted with router_aux_loss_coef")
def balance_unweighted(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    loss, balance_loss, _ = losses_of(model, input_ids, labels, attention_mask)
    grad_norm = learn(model, optimizer, loss + balance_loss, lr, max_grad_norm)
    return told(loss, balance_loss, grad_norm)


@mistake("train_step", "balance_loss is reported with its weight on; report it as it is")
def balance_reported_weighted(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    loss, _, objective = losses_of(model, input_ids, labels, attention_mask)
    grad_norm = learn(model, optimizer, objective, lr, max_grad_norm)
    return told(loss, objective - loss, grad_norm)


@mistake("train_step", "loss is reported with the balance term in it; report it without")
def objective_reported(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    _, balance_loss, objective = losses_of(model, input_ids, labels, attention_mask)
    grad_norm = learn(model, optimizer, objective, lr, max_grad_norm)
    return told(objective, balance_loss, grad_norm)


@mistake("train_step", "the balance loss counts padding: hand attention_mask on to it")
def balance_counts_padding(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    logits, router_logits = model(input_ids, attention_mask, output_router_logits=True)
    loss = causal_lm_loss(logits, labels)
    balance_loss = torch.zeros_like(loss)
    if router_logits:
        balance_loss = load_balancing_loss(router_logits, model.config.num_experts_per_tok)
    objective = loss + model.config.router_aux_loss_coef * balance_loss
    grad_norm = learn(model, optimizer, objective, lr, max_grad_norm)
    return told(loss, balance_loss, grad_norm)


@mistake(
    "train_step", "the balance loss of each layer is averaged; pool the layers: pass the list"
)
def balance_layer_by_layer(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    logits, router_logits = model(input_ids, attention_mask, output_router_logits=True)
    loss = causal_lm_loss(logits, labels)
    balance_loss = torch.zeros_like(loss)
    top_k = model.config.num_experts_per_tok
    for layer in router_logits:
        balance_loss = balance_loss + load_balancing_loss(layer, top_k, attention_mask)
    balance_loss = balance_loss / max(len(router_logits), 1)
    objective = loss + model.config.router_aux_loss_coef * balance_loss
    grad_norm = learn(model, optimizer, objective, lr, max_grad_norm)
    return told(loss, balance_loss, grad_norm)


@mistake("train_step", "the balance loss looks at one expert a token, not num_experts_per_tok")
def balance_of_one_expert(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    logits, router_logits = model(input_ids, attention_mask, output_router_logits=True)
    loss = causal_lm_loss(logits, labels)
    balance_loss = torch.zeros_like(loss)
    if router_logits:
        balance_loss = load_balancing_loss(router_logits, 1, attention_mask)
    objective = loss + model.config.router_aux_loss_coef * balance_loss
    grad_norm = learn(model, optimizer, objective, lr, max_grad_norm)
    return told(loss, balance_loss, grad_norm)


@mistake(
    "train_step", "attention_mask is not handed to the model, which then reads the padding"
)
def model_without_mask(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    logits, router_logits = model(input_ids, output_router_logits=True)
    loss = causal_lm_loss(logits, labels)
    balance_loss = torch.zeros_like(loss)
    if router_logits:
        top_k = model.config.num_experts_per_tok
        balance_loss = load_balancing_loss(router_logits, top_k, attention_mask)
    objective = loss + model.config.router_aux_loss_coef * balance_loss
    grad_norm = learn(model, optimizer, objective, lr, max_grad_norm)
    return told(loss, balance_loss, grad_norm)


@mistake("train_step", "attention_mask is used nowhere: the model and the balance loss need it")
def mask_ignored(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    loss, balance_loss, objective = losses_of(model, input_ids, labels, None)
    grad_norm = learn(model, optimizer, objective, lr, max_grad_norm)
    return told(loss, balance_loss, grad_norm)


@mistake("train_step", "the loss is taken of input_ids: labels say what counts")
def inputs_as_labels(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    loss, balance_loss, objective = losses_of(model, input_ids, input_ids, attention_mask)
    grad_norm = learn(model, optimizer, objective, lr, max_grad_norm)
    return told(loss, balance_loss, grad_norm)


@mistake("train_step", "the labels are shifted here, and causal_lm_loss shifts them once more")
def shifted_once_more(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    last = torch.full_like(labels[:, :1], IGNORE)
    labels = torch.cat((labels[:, 1:], last), dim=1)
    loss, balance_loss, objective = losses_of(model, input_ids, labels, attention_mask)
    grad_norm = learn(model, optimizer, objective, lr, max_grad_norm)
    return told(loss, balance_loss, grad_norm)


@mistake("train_step", "the report holds tensors, and with them the whole graph: use .item()")
def tensors_reported(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):
    loss, balance_loss, objective = losses_of(model, input_ids, labels, attention_mask)
    grad_norm = learn(model, optimizer, objective, lr, max_grad_norm)
    return {"loss": loss, "balance_loss": balance_loss, "grad_norm": grad_norm}


@mistake("train_step", "the step goes uphill: the objective is to fall, so no minus before it")
def uphill(model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0):
    loss, balance_loss, objective = losses_of(model, input_ids, labels, attention_mask)
    grad_norm = learn(model, optimizer, -objective, lr, max_grad_norm)
    return told(loss, balance_loss, grad_norm)
