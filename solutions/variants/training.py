# Right answers of lab 08, written otherwise. Every one has to earn full points.

# %% exercise 8.1: logsumexp
def causal_lm_loss(logits, labels):
    wide = logits[:, :-1].float()
    targets = labels[:, 1:]
    counted = targets != IGNORE
    safe = torch.where(counted, targets, 0)
    right = torch.gather(wide, 2, safe.unsqueeze(2)).squeeze(2)
    losses = torch.logsumexp(wide, dim=-1) - right
    return (losses * counted).sum() / counted.sum()


# %% exercise 8.1: flat, with advanced indexing
def causal_lm_loss(logits: Tensor, labels: Tensor) -> Tensor:
    vocab = logits.shape[-1]
    flat = logits[:, :-1].reshape(-1, vocab).to(torch.float32)
    targets = labels[:, 1:].reshape(-1)
    keep = targets.ne(-100)
    flat, targets = flat[keep], targets[keep]
    log_probs = torch.log_softmax(flat, dim=1)
    return -log_probs[torch.arange(len(targets)), targets].mean()


# %% exercise 8.1: one_hot and einsum
def causal_lm_loss(logits, labels):
    targets = labels[:, 1:]
    hot = torch.nn.functional.one_hot(targets.clamp_min(0), logits.size(-1)).float()
    hot = hot * (targets != -100)[..., None]
    log_probs = torch.nn.functional.log_softmax(logits[:, :-1].float(), dim=-1)
    return -torch.einsum("btv,btv->", hot, log_probs) / hot.sum()


# %% exercise 8.1: by hand, in float64
def causal_lm_loss(logits, labels):
    wide = logits[:, :-1, :].double()
    wide = wide - wide.max(dim=-1, keepdim=True).values
    log_probs = wide - wide.exp().sum(dim=-1, keepdim=True).log()
    losses = []
    for row, targets in zip(log_probs, labels[:, 1:], strict=True):
        for t, target in enumerate(targets.tolist()):
            if target != -100:
                losses.append(-row[t, target])
    return torch.stack(losses).mean().float()


# %% exercise 8.1: the labels moved, the last one ignored
def causal_lm_loss(logits, labels):
    end = torch.full_like(labels[:, :1], IGNORE)
    targets = torch.cat([labels[:, 1:], end], dim=1)
    log_probs = nn.LogSoftmax(dim=-1)(logits.float())
    losses = -log_probs.gather(-1, targets.masked_fill(targets == IGNORE, 0).unsqueeze(-1))
    return losses.squeeze(-1).masked_select(targets != IGNORE).mean()


# %% exercise 8.2: cosine of the other half
def learning_rate(step, peak, warmup_steps, total_steps, floor=0.0):
    if step < 0 or warmup_steps < 0 or warmup_steps >= total_steps:
        raise ValueError(f"{step} {warmup_steps} {total_steps}")
    if step < warmup_steps:
        return (step + 1) * peak / warmup_steps
    if step >= total_steps:
        return floor
    left = (total_steps - step) / (total_steps - warmup_steps)
    return floor + (peak - floor) * 0.5 * (1 - math.cos(left * math.pi))


# %% exercise 8.2: numpy
import numpy as np  # noqa: E402


def learning_rate(step, peak, warmup_steps, total_steps, floor=0.0):
    if step < 0:
        raise ValueError("step")
    if not 0 <= warmup_steps < total_steps:
        raise ValueError("warmup_steps")
    if step + 1 <= warmup_steps:
        return peak * (step + 1) / warmup_steps
    progress = np.clip((step - warmup_steps) / (total_steps - warmup_steps), 0, 1)
    return np.float64(floor + (peak - floor) * np.cos(np.pi * progress / 2) ** 2)


# %% exercise 8.2: torch inside
def learning_rate(
    step: int, peak: float, warmup_steps: int, total_steps: int, floor: float = 0.0
) -> float:
    if step < 0 or not 0 <= warmup_steps < total_steps:
        raise ValueError(f"step {step}, warmup_steps {warmup_steps}")
    if step in range(warmup_steps):
        return torch.linspace(peak / warmup_steps, peak, warmup_steps)[step].item()
    done = min(step, total_steps) - warmup_steps
    angle = torch.tensor(torch.pi * done / (total_steps - warmup_steps), dtype=torch.float64)
    return peak - (peak - floor) * (1 - torch.cos(angle).item()) / 2


# %% exercise 8.3: zeroed first, clipped by hand
def train_step(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):  # fmt: skip
    model.train()
    optimizer.zero_grad()
    optimizer.param_groups[0]["lr"] = lr
    for group in optimizer.param_groups[1:]:
        group.update(lr=lr)
    logits, router_logits = model(
        input_ids, attention_mask=attention_mask, output_router_logits=True
    )
    loss = objective = causal_lm_loss(logits, labels)
    told = {"loss": float(loss.detach()), "balance_loss": 0.0}
    if len(router_logits) > 0:
        top_k = model.config.num_experts_per_tok
        term = load_balancing_loss(router_logits, top_k, attention_mask=attention_mask)
        objective = loss + model.config.router_aux_loss_coef * term
        told["balance_loss"] = float(term.detach())
    objective.backward()
    grads = [p.grad for group in optimizer.param_groups for p in group["params"]]
    norm = sum(grad.square().sum() for grad in grads).sqrt()
    if norm > max_grad_norm:
        for grad in grads:
            grad.mul_(max_grad_norm / norm)
    optimizer.step()
    return {**told, "grad_norm": float(norm)}


# %% exercise 8.3: num_experts asked, model.zero_grad, the two terms backward one by one
def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    input_ids: Tensor,
    labels: Tensor,
    lr: float,
    attention_mask: Tensor | None = None,
    max_grad_norm: float = 1.0,
) -> dict[str, float]:
    model.zero_grad()
    config, balance = model.config, torch.zeros(())
    if config.num_experts:
        logits, routers = model(input_ids, attention_mask, output_router_logits=True)
        balance = load_balancing_loss(routers, config.num_experts_per_tok, attention_mask)
        (config.router_aux_loss_coef * balance).backward(retain_graph=True)
    else:
        logits = model(input_ids, attention_mask)
    loss = causal_lm_loss(logits, labels)
    loss.backward()
    total = torch.nn.utils.clip_grad_norm_(list(model.parameters()), max_grad_norm)
    for i in range(len(optimizer.param_groups)):
        optimizer.param_groups[i]["lr"] = lr
    optimizer.step()
    names = ("loss", "balance_loss", "grad_norm")
    return {name: x.item() for name, x in zip(names, (loss, balance, total), strict=True)}


# %% exercise 8.3: gradients by autograd.grad
def train_step(
    model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0
):  # fmt: skip
    logits, router_logits = model(input_ids, attention_mask, None, True)
    loss, balance_loss = causal_lm_loss(logits, labels), torch.tensor(0.0)
    if router_logits:
        top_k = model.config.num_experts_per_tok
        balance_loss = load_balancing_loss(router_logits, top_k, attention_mask)
    weights = list(model.parameters())
    objective = torch.add(loss, balance_loss, alpha=model.config.router_aux_loss_coef)
    grads = torch.autograd.grad(objective, weights)
    norm = torch.cat([grad.flatten() for grad in grads]).norm()
    scale = torch.clamp(max_grad_norm / (norm + 1e-6), max=1.0)
    for weight, grad in zip(weights, grads, strict=True):
        weight.grad = grad * scale
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()
    report = {"loss": loss, "balance_loss": balance_loss, "grad_norm": norm}
    return {name: value.item() for name, value in report.items()}


# %% exercise 8.4: zeroed first, clipped by hand
def train_step_in_parts(
    model, optimizer, input_ids, labels, lr, accumulation_steps, attention_mask=None,
    max_grad_norm=1.0,
):  # fmt: skip
    model.train()
    optimizer.zero_grad()
    told = {"loss": 0.0, "balance_loss": 0.0}
    total = int((labels[:, 1:] != -100).sum())
    size = -(-len(labels) // accumulation_steps)
    for start in range(0, len(labels), size):
        rows = slice(start, start + size)
        wanted = labels[rows]
        mask = attention_mask[rows] if attention_mask is not None else None
        here = int((wanted[:, 1:] != -100).sum())
        if here == 0:
            continue
        logits, router_logits = model(
            input_ids[rows], attention_mask=mask, output_router_logits=True
        )
        loss = causal_lm_loss(logits, wanted) * here / total
        told["loss"] += float(loss.detach())
        if len(router_logits) > 0:
            top_k = model.config.num_experts_per_tok
            term = load_balancing_loss(router_logits, top_k, attention_mask=mask)
            term = term * here / total
            loss = loss + model.config.router_aux_loss_coef * term
            told["balance_loss"] += float(term.detach())
        loss.backward()
    grads = [p.grad for group in optimizer.param_groups for p in group["params"]]
    norm = sum(grad.square().sum() for grad in grads).sqrt()
    if norm > max_grad_norm:
        for grad in grads:
            grad.mul_(max_grad_norm / norm)
    for group in optimizer.param_groups:
        group.update(lr=lr)
    optimizer.step()
    return {**told, "grad_norm": float(norm)}


# %% exercise 8.4: all are chunked, num_experts asked, empty parts multiplied by 0
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
    for i in range(len(optimizer.param_groups)):
        optimizer.param_groups[i]["lr"] = lr
    model.zero_grad()
    config, sums = model.config, torch.zeros(2)
    masks = [None] * accumulation_steps
    if attention_mask is not None:
        masks = attention_mask.chunk(accumulation_steps)
    parts = zip(
        input_ids.chunk(accumulation_steps),
        labels.chunk(accumulation_steps),
        masks,
    )
    for ids, wanted, mask in parts:
        if config.num_experts:
            logits, routers = model(ids, mask, output_router_logits=True)
            balance = load_balancing_loss(routers, config.num_experts_per_tok, mask)
        else:
            logits = model(ids, mask)
            balance = torch.tensor(0.0)
        share = (wanted[:, 1:] != IGNORE).sum() / (labels[:, 1:] != IGNORE).sum()
        loss = torch.tensor(0.0) if share == 0 else causal_lm_loss(logits, wanted)
        objective = share * (loss + config.router_aux_loss_coef * balance)
        if objective.requires_grad:
            objective.backward()
        sums += share * torch.stack([loss.detach(), balance.detach()])
    total = torch.nn.utils.clip_grad_norm_(list(model.parameters()), max_grad_norm)
    optimizer.step()
    names = ("loss", "balance_loss", "grad_norm")
    return dict(zip(names, [*sums.tolist(), total.item()], strict=True))


# %% exercise 8.4: gradients by autograd.grad, added by hand
def train_step_in_parts(
    model, optimizer, input_ids, labels, lr, accumulation_steps, attention_mask=None,
    max_grad_norm=1.0,
):  # fmt: skip
    told, grads = {"loss": 0.0, "balance_loss": 0.0}, None
    weights = list(model.parameters())
    counts = (labels[:, 1:] != IGNORE).sum(dim=1).float()
    for rows in torch.arange(len(labels)).chunk(accumulation_steps):
        weight = counts[rows].sum() / counts.sum()
        if weight.item() == 0:
            continue
        mask = None if attention_mask is None else attention_mask[rows]
        logits, router_logits = model(input_ids[rows], mask, None, True)
        loss = weight * causal_lm_loss(logits, labels[rows])
        balance_loss = torch.zeros(())
        if router_logits:
            top_k = model.config.num_experts_per_tok
            balance_loss = weight * load_balancing_loss(router_logits, top_k, mask)
        objective = torch.add(loss, balance_loss, alpha=model.config.router_aux_loss_coef)
        new = torch.autograd.grad(objective, weights)
        grads = new if grads is None else [a + b for a, b in zip(grads, new, strict=True)]
        told["loss"] += loss.item()
        told["balance_loss"] += balance_loss.item()
    norm = torch.cat([grad.flatten() for grad in grads]).norm()
    scale = torch.clamp(max_grad_norm / (norm + 1e-6), max=1.0)
    for weight, grad in zip(weights, grads, strict=True):
        weight.grad = grad * scale
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()
    return told | {"grad_norm": norm.item()}


# %% exercise 8.5: nothing written over
def adamw_step(
    weight, grad, exp_avg, exp_avg_sq, step, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01
):  # fmt: skip
    b1, b2 = betas
    exp_avg = exp_avg * b1 + grad * (1 - b1)
    exp_avg_sq = exp_avg_sq * b2 + grad**2 * (1 - b2)
    step = step + 1
    change = exp_avg / (1 - b1**step) / ((exp_avg_sq / (1 - b2**step)) ** 0.5 + eps)
    return weight - lr * weight_decay * weight - lr * change, exp_avg, exp_avg_sq


# %% exercise 8.5: as torch writes it, the corrections in the step and the root
def adamw_step(
    weight, grad, exp_avg, exp_avg_sq, step, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01
):  # fmt: skip
    first, second = (1 - beta ** (step + 1) for beta in betas)
    exp_avg.lerp_(grad, 1 - betas[0])
    exp_avg_sq.mul_(betas[1]).addcmul_(grad, grad, value=1 - betas[1])
    root = exp_avg_sq.sqrt().div(math.sqrt(second)).add(eps)
    weight.mul_(1 - lr * weight_decay).addcdiv_(exp_avg, root, value=-lr / first)
    return weight, exp_avg, exp_avg_sq


# %% exercise 8.5: a list, corrections as powers of tensors
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
) -> list[Tensor]:
    means = [
        torch.lerp(grad**n, old, beta)
        for n, old, beta in zip((1, 2), (exp_avg, exp_avg_sq), betas)
    ]
    seen = 1 - torch.tensor(betas, dtype=torch.float64) ** (step + 1)
    mean, mean_sq = (m / s.item() for m, s in zip(means, seen))
    kept = weight - weight * lr * weight_decay
    return [kept - mean * lr / (eps + mean_sq.sqrt()), *means]
