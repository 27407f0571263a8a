"""Lab 08: training.

Make the next word more likely, a small step at a time.

Shapes: B batch, T tokens, V vocab_size.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import IO

import torch
from torch import Tensor, nn

from .moe import load_balancing_loss

IGNORE = -100  # a label that does not count: padding, or a prompt that is not to be learnt
PRIME = 2**31 - 1  # hashes of minhash are smaller


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
    and num_experts_per_tok. Labels alone say which tokens the loss counts; no input is changed.
    The gradients are those of this batch alone, whatever the weights held before. Where the
    norm of all of them together is above max_grad_norm they are scaled down to it. Every group
    of the optimizer steps with lr.

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


# %% exercise 8.6: minhash, near_duplicates, clean
def minhash(shingles: Tensor, factors: Tensor, offsets: Tensor) -> Tensor:
    """The signature of a text: for each of K hash functions the least hash of its shingles.

    Hash function k makes (factors[k] * shingle + offsets[k]) % PRIME of a shingle. Two texts
    agree in an entry with a probability of |shingles of both| / |shingles of either|, so the
    share of equal entries estimates how alike they are. A text without shingles has PRIME in
    every entry.

    Shapes: shingles (S,), factors and offsets (K,) -> (K,)
    dtype:  int64; no product is larger than it holds
    Source: Broder 1997, https://doi.org/10.1109/SEQUEN.1997.666900
    """
    ### BEGIN SOLUTION
    hashes = (factors[:, None] * shingles + offsets[:, None]) % PRIME  # (K, S)
    last = torch.full_like(offsets[:, None], PRIME)  # (K, 1)
    return torch.cat((hashes, last), dim=1).amin(dim=1)
    ### END SOLUTION


def near_duplicates(signatures: Tensor, bands: int, threshold: float) -> list[tuple[int, int]]:
    """Pairs of texts that are alike, found without a comparison of all with all.

    A signature is cut into `bands` bands of neighboring entries, equally many in each. Two
    texts are a candidate where they agree in all entries of at least one band (of the same
    place), and a pair where they also agree in a share of at least `threshold` of all entries.

    Shapes: signatures (N, K), K a multiple of bands -> pairs (i, j), i < j, each once, sorted
    """
    ### BEGIN SOLUTION
    buckets, candidates = defaultdict(list), set()
    for text, signature in enumerate(signatures):
        for place, band in enumerate(signature.chunk(bands)):
            bucket = buckets[(place, *band.tolist())]
            candidates.update((earlier, text) for earlier in bucket)
            bucket.append(text)
    shares = {(i, j): (signatures[i] == signatures[j]).float().mean() for i, j in candidates}
    return sorted(pair for pair, share in shares.items() if share >= threshold)
    ### END SOLUTION


def clean(
    texts: Sequence[str], pairs: Sequence[tuple[int, int]], contradictions: Callable[[str], int]
) -> list[int]:
    """The numbers of the texts that are worth training on, in their order.

    A text is left out if it is cut off: white space aside, it does not end with . or ! or ? or
    with one of these and a closing ". It is left out if it contradicts itself:
    contradictions(text) counts how often. And it is left out if it is alike (pairs, as
    near_duplicates gives them) to any earlier text that is *kept*. One that is alike only to
    texts that were left out stays: of several copies the first that is whole and true.
    """
    ### BEGIN SOLUTION
    alike, kept = defaultdict(set), []
    for i, j in pairs:
        alike[j].add(i)
    for number, text in enumerate(texts):
        is_whole = text.rstrip().removesuffix('"').endswith((".", "!", "?"))
        if is_whole and not alike[number] & set(kept) and contradictions(text) == 0:
            kept.append(number)
    return kept
    ### END SOLUTION


# %% exercise 8.7: fit_scaling_law, compute_optimal
def fit_scaling_law(
    columns: Callable[[Tensor, Tensor, float, float], Tensor],
    parameters: Tensor,
    tokens: Tensor,
    losses: Tensor,
    exponents: Tensor,
) -> tuple[Tensor, float, float]:
    """The law of a given form that fits runs best: its factors, alpha and beta.

    columns(parameters, tokens, alpha, beta) gives C numbers for each run, (R, C), and

        law = columns(...) @ factors

    alpha and beta are any two of `exponents`, which may be the same. The best factors of such a
    pair are those, of any sign, with the least sum of squared *relative* errors,
    (law / loss - 1)^2, over all runs. A pair is left out if one of its best factors is
    negative; at least one pair remains. Of these, the one with the least sum is the answer.

    Shapes: parameters, tokens and losses (R,), exponents (X,) -> factors (C,), alpha, beta
    dtype:  float64; alpha and beta are plain numbers
    Source: Hoffmann et al. 2022, approach 3, https://arxiv.org/abs/2203.15556
    """
    ### BEGIN SOLUTION
    best, found = math.inf, None
    for alpha in exponents.tolist():
        for beta in exponents.tolist():
            matrix = columns(parameters, tokens, alpha, beta) / losses[:, None]  # (R, C)
            size = matrix.norm(dim=0)  # columns of one size, for lstsq
            target = torch.ones_like(losses)[:, None]  # (R, 1)
            factors = torch.linalg.lstsq(matrix / size, target).solution[:, 0] / size  # (C,)
            error = (matrix @ factors - 1).square().sum().item()
            if error < best and (factors >= 0).all():
                best, found = error, (factors, alpha, beta)
    return found
    ### END SOLUTION


def compute_optimal(
    law: tuple[float, float, float, float, float], flops: float
) -> tuple[float, float]:
    """Parameters and tokens of the run with the least loss among all that cost `flops`.

    A run costs 6 * parameters * tokens operations, and law holds E, A, alpha, B and beta of

        loss = E + A / parameters^alpha + B / tokens^beta

    Both results are real numbers, not rounded.
    """
    ### BEGIN SOLUTION
    _, a, alpha, b, beta = law
    ratio = alpha * a / (beta * b)
    parameters = (ratio * (flops / 6) ** beta) ** (1 / (alpha + beta))
    return parameters, flops / (6 * parameters)
    ### END SOLUTION


# %% exercise 8.8: Trainer
class Trainer:
    """A training that can be stopped after any step, and goes on as if it never had been.

    Every epoch visits the texts once, in an order that the generator draws when it begins.
    What is left of an epoch and does not fill a batch is dropped.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        texts: Tensor,
        batch_size: int,
        total_steps: int,
        peak: float,
        generator: torch.Generator,
    ):
        self.model, self.optimizer, self.texts = model, optimizer, texts
        self.batch_size, self.total_steps, self.peak = batch_size, total_steps, peak
        self.generator = generator
        self.step = 0  # of the schedule
        self.order = torch.arange(0)  # of the texts, in this epoch
        self.position = 0  # in this order

    def next_batch(self) -> Tensor:
        """The next batch_size texts; a new epoch begins where fewer are left."""
        if self.position + self.batch_size > len(self.order):
            self.order = torch.randperm(len(self.texts), generator=self.generator)
            self.position = 0
        rows = self.order[self.position : self.position + self.batch_size]
        self.position += self.batch_size
        return self.texts[rows]

    def run(self, steps: int) -> list[float]:
        """Train for so many steps; returns their losses."""
        losses = []
        for _ in range(steps):
            ids = self.next_batch()
            rate = learning_rate(self.step, self.peak, self.total_steps // 10, self.total_steps)
            losses.append(train_step(self.model, self.optimizer, ids, ids, rate)["loss"])
            self.step += 1
        return losses

    def save(self, file: IO[bytes]) -> None:
        """Write a checkpoint: all that later steps depend on and that a new Trainer, made with
        the same arguments, does not have.

        file is open for writing; torch.save writes to it.
        """
        ### BEGIN SOLUTION
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "order": self.order,
            "step": self.step,
            "position": self.position,
        }
        torch.save(state, file)
        ### END SOLUTION

    def load(self, file: IO[bytes]) -> None:
        """Go on from a checkpoint: the steps that follow are, bit by bit, those that followed
        save.

        The trainer was made with the same arguments, in another process perhaps, or has
        trained on since. Its model, optimizer and generator stay the same objects; others may
        hold them. file is open for reading; torch.load(file, weights_only=True) reads it.
        """
        ### BEGIN SOLUTION
        state = torch.load(file, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
        self.order = state["order"]
        self.step, self.position = state["step"], state["position"]
        ### END SOLUTION


# %% exercise 8.9: step_with_masters
def step_with_masters(
    model: nn.Module,
    masters: dict[str, Tensor],
    optimizer: torch.optim.Optimizer,
    lr: float,
    max_grad_norm: float = 1.0,
) -> float:
    """One step of a model in half precision, whose optimizer moves float32 copies of it.

    backward has run: the model's weights have gradients in their own dtype, bfloat16 or
    float16. masters holds a float32 copy of each weight under its name in
    model.named_parameters(), and the optimizer holds the masters. The gradients are widened,
    and clipped together to max_grad_norm in float32; the optimizer steps with lr in every
    group; the weights become the rounded masters. The masters keep what rounding takes from
    the weights, so they are never made from the weights anew. Weights stay the same objects in
    the same dtype. A weight without a gradient leaves its master without one, even if that has
    one of an earlier step. Afterwards no weight has a gradient: None, not zeros.

    Shapes: -> the norm of all gradients together, before clipping, a plain number
    Source: Micikevicius et al. 2017, https://arxiv.org/abs/1710.03740
    """
    ### BEGIN SOLUTION
    for name, weight in model.named_parameters():
        masters[name].grad = None if weight.grad is None else weight.grad.float()
        weight.grad = None
    grad_norm = nn.utils.clip_grad_norm_(masters.values(), max_grad_norm)
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(masters[name])
    return grad_norm.item()
    ### END SOLUTION


# %% exercise 8.10: web_clip
def web_clip(gradients: Sequence[Tensor], max_grad_norm: float) -> list[Tensor]:
    """Shorten the gradient of a model, which has a tensor per weight, to max_grad_norm.

    Shapes: the gradients keep theirs; those of a model whose norm is smaller are as they were
    """
    ### BEGIN SOLUTION
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    return [gradient * min(1.0, max_grad_norm / norm) for gradient in gradients]
    ### INSTEAD
    # norms = [gradient.norm() for gradient in gradients]
    # return [g * min(1.0, max_grad_norm / norm) for g, norm in zip(gradients, norms)]
    ### END SOLUTION
