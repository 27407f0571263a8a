"""Lab 08: training.

Make the next word more likely, a small step at a time.

Shapes: B batch, T tokens, V vocab_size.
"""

import math

import torch
from torch import Tensor, nn

from .moe import load_balancing_loss

IGNORE = -100  # a label that does not count: padding, or a prompt that is not to be learnt


# %% exercise 8.1: causal_lm_loss
def causal_lm_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """How surprised the model is by the next token, on average, in nats.

        loss = mean over counted positions t of -log softmax(logits[t])[labels[t + 1]]

    labels are the input tokens, not shifted: position t is compared with label t + 1 here.
    Labels of -100 do not count, and the mean runs over those that do, of all texts together.
    Logits may differ by hundreds: an improbable label costs its full price, and never inf.

    Shapes: logits (B, T, V), labels (B, T) -> scalar, through which gradients flow
    dtype:  float32; logits in half precision are widened first
    Source: Radford et al. 2018, GPT, https://openai.com/index/language-unsupervised
    """
    ### BEGIN SOLUTION
    log_probs = logits[:, :-1].log_softmax(dim=-1, dtype=torch.float32)  # (B, T - 1, V)
    targets = labels[:, 1:]  # (B, T - 1)
    counted = targets != IGNORE
    index = targets.clamp(min=0)[..., None]  # (B, T - 1, 1)
    picked = log_probs.gather(-1, index).squeeze(-1)  # (B, T - 1)
    return -picked[counted].mean()
    ### END SOLUTION


# %% exercise 8.2: learning_rate
def learning_rate(
    step: int, peak: float, warmup_steps: int, total_steps: int, floor: float = 0.0
) -> float:
    """How large a step to take: up in a straight line, then down along half a cosine.

        step < warmup_steps:  peak * (step + 1) / warmup_steps
        after that:           floor + (peak - floor) * (1 + cos(pi * progress)) / 2

    progress runs from 0 at warmup_steps to 1 at total_steps, and stays there. Steps count
    from 0: the last step of the warm-up is at the peak, and with warmup_steps 0 there is none.
    The floor is a rate, not a share of the peak; the warm-up ignores it.

    Errors: a negative step, or warmup_steps not in 0 ... total_steps - 1, raises ValueError
            (given below)
    Source: Loshchilov, Hutter 2016, https://arxiv.org/abs/1608.03983
    """
    if step < 0:
        raise ValueError(f"step is {step}; steps count from 0")
    if not 0 <= warmup_steps < total_steps:
        raise ValueError(
            f"warmup_steps is {warmup_steps}; it must lie between 0 and "
            f"total_steps {total_steps}"
        )
    ### BEGIN SOLUTION
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    progress = min((step - warmup_steps) / (total_steps - warmup_steps), 1.0)
    return floor + (peak - floor) * (1 + math.cos(math.pi * progress)) / 2
    ### END SOLUTION


# %% exercise 8.3: train_step
def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    input_ids: Tensor,
    labels: Tensor,
    lr: float,
    attention_mask: Tensor | None = None,
    max_grad_norm: float = 1.0,
) -> dict[str, float]:
    """Learn from one batch: loss, gradients, clip them, one step of the optimizer.

        model(input_ids, attention_mask, output_router_logits=True) -> logits, router_logits
        objective = causal_lm_loss + router_aux_loss_coef * load_balancing_loss

    The second term only where the model has experts (router_logits is an empty list without):
    the mean of its layers' losses, padding left out; model.config holds router_aux_loss_coef
    and num_experts_per_tok. The gradients are those of this batch alone, whatever the weights
    held before. Where the norm of all of them together is above max_grad_norm they are scaled
    down to it. Every group of the optimizer steps with lr.

    Shapes: input_ids, labels and attention_mask (B, T)
            -> {"loss", "balance_loss", "grad_norm"}, plain numbers: loss without the balance
            term, balance_loss without its coefficient (0.0 without experts), grad_norm of
            all together, before clipping
    """
    ### BEGIN SOLUTION
    logits, router_logits = model(input_ids, attention_mask, output_router_logits=True)
    loss = causal_lm_loss(logits, labels)
    balance_loss = torch.zeros_like(loss)
    if router_logits:
        top_k = model.config.num_experts_per_tok
        balance_loss = load_balancing_loss(router_logits, top_k, attention_mask)
    objective = loss + model.config.router_aux_loss_coef * balance_loss

    optimizer.zero_grad(set_to_none=True)
    objective.backward()
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()
    return {
        "loss": loss.item(),
        "balance_loss": balance_loss.item(),
        "grad_norm": grad_norm.item(),
    }
    ### END SOLUTION


# %% exercise 8.4: train_step_in_parts
def train_step_in_parts(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    input_ids: Tensor,
    labels: Tensor,
    lr: float,
    accumulation_steps: int,
    attention_mask: Tensor | None = None,
    max_grad_norm: float = 1.0,
) -> dict[str, float]:
    """train_step for a batch too large for the memory: one part at a time, then one step.

    The texts are cut along B into parts of neighbours, as torch.chunk does it: every part holds
    B / accumulation_steps texts, rounded up, and the last what is left. There may be fewer
    parts than accumulation_steps: 5 texts with 4 steps: 2, 2, 1. Each goes forward and backward
    before the next goes forward, so that one graph at a time is kept, and its gradients add
    up with those of the others. A part weighs as much as the share of the batch's counted
    labels that it holds, so that loss and gradients are those of the whole batch. A label
    counts if causal_lm_loss scores it: it is not -100, and not the first of its text. A
    part in which no label counts is left out, be it the first or the last.

    The balance loss is taken of each part by itself, with the same weights. Clipping, lr and
    the optimizer's step come once, after the last part.

    Shapes: as in train_step; loss and balance_loss are those of the parts, summed with their
            weights, grad_norm is that of all parts together, before clipping
    """
    ### BEGIN SOLUTION
    counted = labels[:, 1:] != IGNORE  # (B, T - 1)
    report = {"loss": 0.0, "balance_loss": 0.0}
    optimizer.zero_grad(set_to_none=True)
    for rows in torch.arange(len(labels)).chunk(accumulation_steps):
        share = counted[rows].sum() / counted.sum()
        if share == 0:
            continue
        mask = None if attention_mask is None else attention_mask[rows]
        logits, router_logits = model(input_ids[rows], mask, output_router_logits=True)
        loss = causal_lm_loss(logits, labels[rows])
        balance_loss = torch.zeros_like(loss)
        if router_logits:
            top_k = model.config.num_experts_per_tok
            balance_loss = load_balancing_loss(router_logits, top_k, mask)
        objective = loss + model.config.router_aux_loss_coef * balance_loss
        (share * objective).backward()  # adds to the gradients of earlier parts
        report["loss"] += (share * loss).item()
        report["balance_loss"] += (share * balance_loss).item()

    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()
    return report | {"grad_norm": grad_norm.item()}
    ### END SOLUTION


# %% exercise 8.5: adamw_step
def adamw_step(
    weight: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    step: int,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of AdamW for one weight, as torch.optim.AdamW takes it.

        weight     = weight * (1 - lr * weight_decay)
        exp_avg    = beta1 * exp_avg    + (1 - beta1) * grad
        exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * grad^2
        mean       = exp_avg    / (1 - beta1^(step + 1))
        mean_sq    = exp_avg_sq / (1 - beta2^(step + 1))
        weight     = weight - lr * mean / (sqrt(mean_sq) + eps)

    exp_avg and exp_avg_sq are what the step before returned, zeros at first. Steps count from
    0, as in learning_rate. The grad stays as it is; the other three may be written over.

    Shapes: four tensors of one shape -> weight, exp_avg, exp_avg_sq of that shape
    dtype:  float32
    Source: Loshchilov, Hutter 2017, https://arxiv.org/abs/1711.05101
    """
    ### BEGIN SOLUTION
    beta1, beta2 = betas
    weight.mul_(1 - lr * weight_decay)
    exp_avg.mul_(beta1).add_((1 - beta1) * grad)
    exp_avg_sq.mul_(beta2).add_((1 - beta2) * grad.square())
    mean = exp_avg / (1 - beta1 ** (step + 1))
    mean_sq = exp_avg_sq / (1 - beta2 ** (step + 1))
    weight.sub_(lr * mean / (mean_sq.sqrt() + eps))
    return weight, exp_avg, exp_avg_sq
    ### END SOLUTION
