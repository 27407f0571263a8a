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


# %% exercise 8.6: loops and sets
def minhash(shingles, factors, offsets):
    signature = []
    for a, b in zip(factors.tolist(), offsets.tolist(), strict=True):
        signature.append(min(((a * x + b) % PRIME for x in shingles.tolist()), default=PRIME))
    return torch.tensor(signature)


def near_duplicates(signatures, bands, threshold):
    rows = [tuple(row) for row in signatures.tolist()]
    width = signatures.size(1) // bands
    found = set()
    for start in range(0, signatures.size(1), width):
        buckets = {}
        for i, row in enumerate(rows):
            buckets.setdefault(row[start : start + width], []).append(i)
        for bucket in buckets.values():
            found |= {(i, j) for n, i in enumerate(bucket) for j in bucket[n + 1 :]}

    def share(i, j):
        return sum(a == b for a, b in zip(rows[i], rows[j], strict=True)) / len(rows[i])

    return sorted(pair for pair in found if share(*pair) >= threshold)


def clean(texts, pairs, contradictions):
    keep = []
    for j, text in enumerate(texts):
        end = text.strip()
        if end.endswith('"'):
            end = end[:-1]
        if not end or end[-1] not in ".!?" or contradictions(text):
            continue
        if not any((i, j) in set(pairs) for i in keep):
            keep.append(j)
    return keep


# %% exercise 8.6: unique bands
def minhash(shingles, factors, offsets):
    if shingles.numel() == 0:
        return torch.full_like(factors, PRIME)
    hashes = torch.outer(shingles, factors).add(offsets).remainder(PRIME)  # (S, K)
    return hashes.min(dim=0).values


def near_duplicates(signatures, bands, threshold):
    pairs = []
    for band in signatures.unflatten(1, (bands, -1)).unbind(dim=1):
        _, groups = band.unique(dim=0, return_inverse=True)
        for group in groups.bincount().gt(1).nonzero().flatten():
            members = (groups == group).nonzero().flatten()
            pairs.append(torch.combinations(members))
    if not pairs:
        return []
    pairs = torch.cat(pairs).unique(dim=0)
    same = signatures[pairs[:, 0]] == signatures[pairs[:, 1]]
    chosen = pairs[same.double().mean(dim=1) >= threshold]
    return [(i, j) for i, j in chosen.tolist()]


def clean(texts, pairs, contradictions):
    dropped, order = set(), []
    for number, text in enumerate(texts):
        whole = re.search(r'[.!?]"?\s*$', text) is not None
        if number in dropped or not whole or contradictions(text) > 0:
            continue
        order.append(number)
        dropped.update(j for i, j in pairs if i == number)
    return order


import re  # noqa: E402


# %% exercise 8.6: a running minimum
def minhash(shingles: Tensor, factors: Tensor, offsets: Tensor) -> Tensor:
    least = torch.full_like(offsets, PRIME)
    for shingle in shingles:
        least = torch.minimum(least, (factors * shingle + offsets) % PRIME)
    return least


def near_duplicates(signatures, bands, threshold):
    seen, pairs = {}, set()
    for j, row in enumerate(signatures):
        for key in enumerate(map(tuple, row.view(bands, -1).tolist())):
            for i in seen.setdefault(key, []):
                if (row == signatures[i]).sum() >= threshold * len(row):
                    pairs.add((i, j))
            seen[key].append(j)
    return sorted(pairs)


def clean(texts, pairs, contradictions):
    good = [
        text.rstrip().endswith((".", "!", "?", '."', '!"', '?"')) and contradictions(text) < 1
        for text in texts
    ]
    for i, j in sorted(pairs, key=lambda pair: pair[::-1]):
        good[j] = good[j] and not good[i]
    return [number for number, is_good in enumerate(good) if is_good]


# %% exercise 8.7: normal equations
def fit_scaling_law(columns, parameters, tokens, losses, exponents):
    laws = []
    for alpha in exponents.tolist():
        for beta in exponents.tolist():
            x = columns(parameters, tokens, alpha, beta)
            scale = x.amax(dim=0)
            x = x / scale / losses.unsqueeze(1)
            solved = torch.linalg.solve(x.T @ x, x.sum(dim=0))
            left = ((x @ solved - 1) ** 2).sum().item()
            if (solved / scale).min() >= 0:
                laws.append((left, alpha, beta, solved / scale))
    _, alpha, beta, factors = min(laws, key=lambda law: law[0])
    return factors, alpha, beta


def compute_optimal(law, flops):
    _, a, alpha, b, beta = law
    product = flops / 6
    n = math.exp(
        (math.log(alpha * a) - math.log(beta * b) + beta * math.log(product)) / (alpha + beta)
    )
    return n, product / n


# %% exercise 8.7: numpy
import numpy as np  # noqa: E402


def fit_scaling_law(columns, parameters, tokens, losses, exponents):
    y, best = losses.numpy(), None
    for alpha in exponents:
        for beta in exponents:
            x = columns(parameters, tokens, alpha.item(), beta.item()).numpy()
            w = x / y[:, None]
            norm = np.linalg.norm(w, axis=0)
            c = np.linalg.lstsq(w / norm, np.ones_like(y), rcond=None)[0] / norm
            if (c < 0).any():
                continue
            error = ((x @ c / y - 1) ** 2).sum()
            if best is None or error < best[0]:
                best = error, torch.from_numpy(c), float(alpha), float(beta)
    return best[1:]


def compute_optimal(law, flops):
    _, a, alpha, b, beta = law
    tokens = ((beta * b) / (alpha * a) * (flops / 6) ** alpha) ** (1 / (alpha + beta))
    return flops / 6 / tokens, tokens


# %% exercise 8.7: all pairs in one batch, the budget by bisection
def fit_scaling_law(columns, parameters, tokens, losses, exponents):
    pairs = torch.cartesian_prod(exponents, exponents)  # (P, 2)
    x = torch.stack([columns(parameters, tokens, a, b) for a, b in pairs.tolist()])
    x = x / losses[:, None]  # (P, R, C)
    size = x.norm(dim=1, keepdim=True)
    q, r = torch.linalg.qr(x / size)
    target = q.sum(dim=1)[..., None]
    c = torch.linalg.solve_triangular(r, target, upper=True)[..., 0] / size[:, 0]
    error = ((x @ c[..., None])[..., 0] - 1).square().sum(dim=1)
    error = error.masked_fill((c < 0).any(dim=1), torch.inf)
    best = int(error.argmin())
    return c[best], *pairs[best].tolist()


def compute_optimal(law, flops):
    _, a, alpha, b, beta = law
    low, high = -60.0, 60.0  # of the logarithm of the parameters
    for _ in range(200):
        middle = (low + high) / 2
        n = math.exp(middle)
        slope = -alpha * a * n**-alpha + beta * b * (flops / 6 / n) ** -beta
        low, high = (middle, high) if slope < 0 else (low, middle)
    return math.exp(low), flops / 6 / math.exp(low)


# %% exercise 8.8: a tuple in one list
class Trainer:
    def __init__(self, model, optimizer, texts, batch_size, total_steps, peak, generator):
        self.model, self.optimizer, self.texts = model, optimizer, texts
        self.batch_size, self.total_steps, self.peak = batch_size, total_steps, peak
        self.generator = generator
        self.step = 0
        self.order = torch.arange(0)
        self.position = 0

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

    def save(self, file):
        torch.save(
            [
                self.model.state_dict(),
                self.optimizer.state_dict(),
                self.generator.get_state(),
                self.order,
                self.step,
                self.position,
            ],
            file,
        )

    def load(self, file):
        weights, optimizer, numbers, self.order, self.step, self.position = torch.load(
            file, weights_only=True
        )
        self.model.load_state_dict(weights)
        self.optimizer.load_state_dict(optimizer)
        self.generator.set_state(numbers)


# %% exercise 8.8: names in a loop
class Trainer:
    def __init__(self, model, optimizer, texts, batch_size, total_steps, peak, generator):
        self.model, self.optimizer, self.texts = model, optimizer, texts
        self.batch_size, self.total_steps, self.peak = batch_size, total_steps, peak
        self.generator = generator
        self.step, self.order, self.position = 0, torch.arange(0), 0

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

    def save(self, file):
        state = {name: getattr(self, name) for name in ("step", "order", "position")}
        for name in ("model", "optimizer"):
            state[name] = getattr(self, name).state_dict()
        torch.save({"state": state, "rng": self.generator.get_state()}, file)

    def load(self, file):
        found = torch.load(file, weights_only=True, map_location="cpu")
        self.generator.set_state(found["rng"])
        for name, value in found["state"].items():
            if name in ("model", "optimizer"):
                getattr(self, name).load_state_dict(value)
            else:
                setattr(self, name, value)


# %% exercise 8.8: the position from the step
class Trainer:
    def __init__(self, model, optimizer, texts, batch_size, total_steps, peak, generator):
        self.model, self.optimizer, self.texts = model, optimizer, texts
        self.batch_size, self.total_steps, self.peak = batch_size, total_steps, peak
        self.generator = generator
        self.step = 0
        self.order = torch.arange(0)
        self.position = 0

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

    def save(self, file):
        state = {"weights": [w.detach().clone() for w in self.model.parameters()]}
        state["rest"] = self.optimizer.state_dict(), self.generator.get_state(), self.order
        torch.save({**state, "step": self.step}, file)

    def load(self, file):
        state = torch.load(file, weights_only=True)
        with torch.no_grad():
            for weight, saved in zip(self.model.parameters(), state["weights"], strict=True):
                weight.copy_(saved)
        optimizer, numbers, self.order = state["rest"]
        self.optimizer.load_state_dict(optimizer)
        self.generator.set_state(numbers)
        self.step = state["step"]
        in_epoch = len(self.texts) // self.batch_size
        done = (self.step - 1) % in_epoch + 1 if self.step else 0
        self.position = done * self.batch_size


# %% exercise 8.9: one list of pairs
def step_with_masters(model, masters, optimizer, lr, max_grad_norm=1.0):
    pairs = [(w, masters[name]) for name, w in model.named_parameters()]
    for weight, master in pairs:
        master.grad = weight.grad.to(torch.float32) if weight.grad is not None else None
    norm = torch.nn.utils.clip_grad_norm_([master for _, master in pairs], max_grad_norm)
    for group in optimizer.param_groups:
        group.update(lr=lr)
    optimizer.step()
    for weight, master in pairs:
        weight.data.copy_(master)
        weight.grad = None
    return float(norm)


# %% exercise 8.9: clipped by hand
@torch.no_grad()
def step_with_masters(model, masters, optimizer, lr, max_grad_norm=1.0):
    wide = {n: w.grad.float() for n, w in model.named_parameters() if w.grad is not None}
    norm = sum(grad.square().sum() for grad in wide.values()).sqrt().item()
    factor = min(1.0, max_grad_norm / (norm + 1e-6))
    for name, master in masters.items():
        master.grad = wide[name] * factor if name in wide else None
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()
    for name, weight in model.named_parameters():
        weight.set_(masters[name].to(weight.dtype))
    model.zero_grad(set_to_none=True)
    return norm


# %% exercise 8.9: load_state_dict
def step_with_masters(model, masters, optimizer, lr, max_grad_norm=1.0):
    optimizer.zero_grad()
    for name, weight in model.named_parameters():
        if weight.grad is not None:
            masters[name].grad = weight.grad.float()
    norm = nn.utils.clip_grad_norm_(list(masters.values()), max_grad_norm)
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()
    model.load_state_dict({name: m.detach() for name, m in masters.items()}, strict=False)
    model.zero_grad()
    return norm.item()


# %% exercise 8.10: all entries in a row
def web_clip(gradients, max_grad_norm):
    norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
    return [gradient / (norm / max_grad_norm).clamp(min=1) for gradient in gradients]
