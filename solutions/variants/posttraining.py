# Right answers of lab 11, written otherwise. Every one has to earn full points.

# %% exercise 11.1: token by token
def answer_labels(input_ids, header, end_of_turn, attention_mask=None):
    labels = torch.full_like(input_ids, -100)
    header = list(header)
    for row, ids in enumerate(input_ids.tolist()):
        inside = False
        for t, token in enumerate(ids):
            if inside and (attention_mask is None or attention_mask[row, t]):
                labels[row, t] = token
            if token == end_of_turn:
                inside = False
            if t + 1 >= len(header) and ids[t + 1 - len(header) : t + 1] == header:
                inside = True
    return labels


# %% exercise 11.1: windows, and counts
def answer_labels(input_ids, header, end_of_turn, attention_mask=None):
    batch, length = input_ids.shape
    wanted = torch.tensor(list(header))
    counted = torch.zeros(batch, length, dtype=torch.bool)
    if length >= len(wanted):
        windows = input_ids.unfold(1, len(wanted), 1)
        for row, begin in (windows == wanted).all(dim=-1).nonzero().tolist():
            start = begin + len(wanted)
            stops = (input_ids[row, start:] == end_of_turn).nonzero()
            end = start + int(stops[0]) + 1 if len(stops) else length
            counted[row, start:end] = True
    if attention_mask is not None:
        counted &= attention_mask.bool()
    return torch.where(counted, input_ids, torch.tensor(IGNORE))


# %% exercise 11.1: a search from answer to answer in lists
def answer_labels(input_ids, header, end_of_turn, attention_mask=None):
    rows, n = [], len(header)
    for ids in input_ids.tolist():
        labels, t = [-100] * len(ids), 0
        while t < len(ids):
            if t >= n and tuple(ids[t - n : t]) == tuple(header):
                while t < len(ids):
                    labels[t] = ids[t]
                    t += 1
                    if labels[t - 1] == end_of_turn:
                        break
            else:
                t += 1
        rows.append(labels)
    found = torch.tensor(rows)
    return found if attention_mask is None else found.masked_fill(attention_mask == 0, -100)


# %% exercise 11.2: F.linear, parameters by hand
class LoRALinear(nn.Module):
    def __init__(self, base_layer, r=8, lora_alpha=16.0):
        super().__init__()
        self.base_layer = base_layer
        for parameter in base_layer.parameters():
            parameter.requires_grad = False
        rows, columns = base_layer.weight.shape
        self.lora_A = nn.Linear(columns, r, bias=False).to(base_layer.weight)
        self.lora_B = nn.Linear(r, rows, bias=False).to(base_layer.weight)
        self.lora_B.weight.data.zero_()
        self.factor = lora_alpha / r

    def forward(self, x):
        low = nn.functional.linear(x, self.lora_A.weight)
        more = nn.functional.linear(low, self.lora_B.weight)
        return self.base_layer(x).add(more, alpha=self.factor)

    @torch.no_grad()
    def merged(self):
        change = self.lora_B.weight @ self.lora_A.weight
        weight = self.base_layer.weight + self.factor * change
        bias = self.base_layer.bias
        layer = nn.Linear(weight.size(1), weight.size(0), bias=bias is not None).to(weight)
        layer.weight.copy_(weight)
        if bias is not None:
            layer.bias.copy_(bias)
        return layer


def add_lora(model, r=8, lora_alpha=16.0, target_modules=("q_proj", "v_proj")):
    layers = dict(model.named_modules())
    names = [
        n for n, m in layers.items()
        if type(m) is nn.Linear and n.split(".")[-1] in target_modules
    ]  # fmt: skip
    if not names:
        raise ValueError("no such layer")
    for parameter in model.parameters():
        parameter.requires_grad = False
    for n in names:
        parent = layers[n.rpartition(".")[0]]
        setattr(parent, n.split(".")[-1], LoRALinear(layers[n], r=r, lora_alpha=lora_alpha))
    return names


def merge(model):
    names = []
    for n, m in list(model.named_modules()):
        for child, layer in list(m.named_children()):
            if isinstance(layer, LoRALinear):
                setattr(m, child, layer.merged())
                names.append(f"{n}.{child}".lstrip("."))
    return list(names)


# %% exercise 11.2: A begins as the paper draws it
class LoRALinear(nn.Module):
    def __init__(self, base_layer, r=8, lora_alpha=16.0):
        super().__init__()
        weight = base_layer.weight
        self.base_layer, self.r, self.lora_alpha = base_layer, r, lora_alpha
        base_layer.weight.requires_grad_(False)
        if base_layer.bias is not None:
            base_layer.bias.requires_grad_(False)
        kind = {"device": weight.device, "dtype": weight.dtype}
        self.lora_A = nn.Linear(weight.shape[1], r, bias=False, **kind)
        self.lora_B = nn.Linear(r, weight.shape[0], False, **kind)
        nn.init.normal_(self.lora_A.weight, std=1 / r)
        nn.init.constant_(self.lora_B.weight, 0.0)

    def forward(self, x):
        return self.base_layer(x) + self.lora_B(self.lora_A(x)) * self.lora_alpha / self.r

    def merged(self):
        from copy import deepcopy

        layer = deepcopy(self.base_layer)
        change = self.lora_B.weight.detach() @ self.lora_A.weight.detach()
        layer.weight.data += self.lora_alpha / self.r * change
        return layer.requires_grad_(True)


def replace(model, path, layer):
    *parents, name = path.split(".")
    for parent in parents:
        model = getattr(model, parent)
    setattr(model, name, layer)


def add_lora(model, r=8, lora_alpha=16.0, target_modules=("q_proj", "v_proj")):
    paths = [
        path for path, module in model.named_modules()
        if isinstance(module, nn.Linear) and path.split(".")[-1] in tuple(target_modules)
    ]  # fmt: skip
    if not paths:
        raise ValueError(target_modules)
    for weight in model.parameters():
        weight.requires_grad_(False)
    for path in paths:
        replace(model, path, LoRALinear(model.get_submodule(path), r, lora_alpha))
    return paths


def merge(model):
    paths = [path for path, m in model.named_modules() if type(m) is LoRALinear]
    for path in paths:
        replace(model, path, model.get_submodule(path).merged())
    return paths


# %% exercise 11.2: two products of matrices, from the layer's own dtype
class LoRALinear(nn.Module):
    def __init__(self, base_layer, r=8, lora_alpha=16.0):
        super().__init__()
        base_layer.requires_grad_(False)
        self.scale = lora_alpha / r
        kind = {"dtype": base_layer.weight.dtype, "device": base_layer.weight.device}
        kind["bias"] = False
        self.lora_B = nn.Linear(r, base_layer.out_features, **kind)
        self.lora_A = nn.Linear(base_layer.in_features, r, **kind)
        self.base_layer = base_layer
        with torch.no_grad():
            self.lora_B.weight.fill_(0)

    def forward(self, x):
        return self.base_layer(x) + self.scale * (
            x @ self.lora_A.weight.T @ self.lora_B.weight.T
        )

    def merged(self):
        base = self.base_layer
        layer = nn.Linear(base.in_features, base.out_features, base.bias is not None)
        layer = layer.to(base.weight.dtype)
        weight = base.weight + self.scale * self.lora_B.weight @ self.lora_A.weight
        layer.load_state_dict({**base.state_dict(), "weight": weight})
        return layer


def add_lora(model, r=8, lora_alpha=16.0, target_modules=("q_proj", "v_proj")):
    places = []
    for path, module in model.named_modules():
        for name, child in module.named_children():
            if isinstance(child, nn.Linear) and name in target_modules:
                places.append((f"{path}.{name}" if path else name, module, name, child))
    if not places:
        raise ValueError("nothing to adapt")
    model.requires_grad_(False)
    for _, module, name, child in places:
        setattr(module, name, LoRALinear(child, r, lora_alpha))
    return [path for path, _ in model.named_modules() if path in {p for p, *_ in places}]


def merge(model):
    found = {p: m for p, m in model.named_modules() if isinstance(m, LoRALinear)}
    for path, module in found.items():
        parent = model.get_submodule(".".join(path.split(".")[:-1]))
        setattr(parent, path.split(".")[-1], module.merged())
    return list(found)


# %% exercise 11.3: cross_entropy, unflatten, clamp by hand
def token_log_probs(logits, input_ids, temperature=1.0):
    wide = logits[:, :-1].float() / temperature
    loss = nn.functional.cross_entropy(wide.mT, input_ids[:, 1:], reduction="none")
    return -loss


def group_advantages(rewards, group_size, scale_rewards=True, eps=1e-4):
    if group_size < 2 or len(rewards) % group_size:
        raise ValueError("groups")
    parts = []
    for group in rewards.split(group_size):
        centered = group - group.mean()
        parts.append(centered / (group.std() + eps) if scale_rewards else centered)
    return torch.cat(parts)


def policy_loss(log_probs, old_log_probs, advantages, mask, clip_low=0.2, clip_high=0.2,
                loss_type="grpo", max_length=None, ref_log_probs=None, beta=0.0):  # fmt: skip
    if loss_type not in {"grpo", "dapo", "dr_grpo", "gspo"}:
        raise ValueError(loss_type)
    total, count, answers = 0.0, 0, []
    for row in range(len(log_probs)):
        keep = mask[row].bool()
        new, old = log_probs[row][keep], old_log_probs[row][keep].detach()
        change = (new - old).mean() if loss_type == "gspo" and len(new) else new - old
        ratio, gain = torch.exp(change + 0 * new), advantages[row].detach()
        clipped = torch.clamp(ratio, min=1 - clip_low, max=1 + clip_high)
        terms = torch.max(-ratio * gain, -clipped * gain)
        if ref_log_probs is not None:
            d = ref_log_probs[row][keep].detach() - new
            terms = terms + beta * (torch.expm1(d) - d)
        answers.append(terms.sum() / max(1, len(terms)))
        total, count = total + terms.sum(), count + len(terms)
    if loss_type in ("grpo", "gspo"):
        return torch.stack(answers).mean()
    if loss_type == "dapo":
        return total / max(1, count)
    return total / (len(log_probs) * (max_length or mask.size(1)))


# %% exercise 11.3: logsumexp; the clip by the sign of the advantage
def token_log_probs(logits, input_ids, temperature=1.0):
    scores = logits.float()[:, :-1].div(temperature)
    chosen = torch.take_along_dim(scores, input_ids[:, 1:].unsqueeze(-1), dim=-1)[..., 0]
    return chosen - scores.logsumexp(dim=-1)


def group_advantages(rewards, group_size, scale_rewards=True, eps=1e-4):
    if group_size < 2 or rewards.shape[0] % group_size != 0:
        raise ValueError("groups")
    mean = rewards.unflatten(0, (-1, group_size)).mean(1).repeat_interleave(group_size)
    std = rewards.unflatten(0, (-1, group_size)).std(1).repeat_interleave(group_size)
    return (rewards - mean) / (std + eps) if scale_rewards else rewards - mean


def policy_loss(log_probs, old_log_probs, advantages, mask, clip_low=0.2, clip_high=0.2,
                loss_type="grpo", max_length=None, ref_log_probs=None, beta=0.0):  # fmt: skip
    if loss_type not in ("grpo", "dapo", "dr_grpo", "gspo"):
        raise ValueError(loss_type)
    real = mask.bool()
    zero = torch.zeros(())
    change = (
        torch.where(real, log_probs, zero) - torch.where(real, old_log_probs, zero).detach()
    )
    if loss_type == "gspo":
        change = (change.sum(1) / real.sum(1).clamp(min=1)).unsqueeze(1) + zero * change
    ratio = change.exp()
    gain = advantages.detach().unsqueeze(1).expand_as(ratio)
    bound = torch.where(gain > 0, ratio.clamp(max=1 + clip_high), ratio.clamp(min=1 - clip_low))
    terms = -bound * gain
    if ref_log_probs is not None:
        d = torch.where(real, ref_log_probs.detach() - log_probs, zero)
        terms = terms + beta * (d.exp() - 1 - d)
    terms = torch.where(real, terms, zero)
    lengths = real.sum(1)
    divisor = {
        "grpo": lengths.clamp(min=1)[:, None] * len(lengths),
        "gspo": lengths.clamp(min=1)[:, None] * len(lengths),
        "dapo": lengths.sum().clamp(min=1),
        "dr_grpo": len(lengths) * (mask.size(1) if max_length is None else max_length),
    }[loss_type]
    return (terms / divisor).sum()


# %% exercise 11.3: log_softmax in float64, masked_select
def token_log_probs(logits, input_ids, temperature=1.0):
    table = torch.log_softmax(logits[:, :-1].double() / temperature, dim=2)
    return table.gather(2, input_ids[:, 1:].unsqueeze(2)).squeeze(2).float()


def group_advantages(rewards, group_size, scale_rewards=True, eps=1e-4):
    if group_size <= 1 or rewards.size(0) % group_size:
        raise ValueError("no groups")
    groups = rewards.reshape(rewards.size(0) // group_size, group_size)
    std, mean = torch.std_mean(groups, dim=1, keepdim=True)
    divisor = std + eps if scale_rewards else torch.ones_like(std)
    return ((groups - mean) / divisor).reshape(-1)


def policy_loss(log_probs, old_log_probs, advantages, mask, clip_low=0.2, clip_high=0.2,
                loss_type="grpo", max_length=None, ref_log_probs=None, beta=0.0):  # fmt: skip
    real = mask != 0
    rows = real.nonzero()[:, 0]
    new, old = log_probs[real], old_log_probs[real].detach()
    gain = advantages.detach()[rows]
    change, lengths = new - old, real.sum(1)
    if loss_type == "gspo":
        change = (torch.zeros(len(real)).index_add(0, rows, change) / lengths)[rows]
    ratio = change.exp()
    terms = -torch.min(ratio * gain, ratio.clip(1 - clip_low, 1 + clip_high) * gain)
    if ref_log_probs is not None:
        lead = ref_log_probs[real].detach() - new
        terms = terms + beta * (lead.exp() - lead - 1)
    if loss_type in ("grpo", "gspo"):
        return (terms / real.sum(1)[rows]).sum() / len(real)
    if loss_type == "dapo":
        return terms.sum() / max(len(terms), 1)
    if loss_type == "dr_grpo":
        return terms.sum() / len(real) / (max_length or real.size(1))
    raise ValueError(f"loss_type {loss_type}")


# %% exercise 11.4: lengths instead of a cumulative sum; the forward pass of old log-probs first
def grpo_step(model, optimizer, input_ids, attention_mask, reward, group_size, max_new_tokens,
              eos_token_id, pad_token_id=0, temperature=1.0, generator=None, updates=1,
              scale_rewards=True, loss_type="dapo", clip_low=0.2, clip_high=0.2,
              max_grad_norm=1.0):  # fmt: skip
    prompts = torch.cat([row.expand(group_size, -1) for row in input_ids.split(1)])
    masks = torch.cat([row.expand(group_size, -1) for row in attention_mask.split(1)])
    output = generate(
        model, prompts, masks, max_new_tokens=max_new_tokens, temperature=temperature,
        eos_token_id=eos_token_id, pad_token_id=pad_token_id, generator=generator,
    )  # fmt: skip
    begin, stops = prompts.shape[1], set(eos_token_id)
    texts, said = [], []
    for row in output[:, begin:].tolist():
        length = next((i + 1 for i, token in enumerate(row) if token in stops), len(row))
        texts.append(row[:length])
        said.append([1] * length + [0] * (len(row) - length))
    said = torch.tensor(said)
    rewards = torch.tensor([reward(text) for text in texts], dtype=torch.float32)
    gain = group_advantages(rewards, group_size, scale_rewards)
    whole = torch.cat((masks, said), dim=1)

    def score():
        logits = model(output, attention_mask=whole)
        return token_log_probs(logits, output, temperature)[:, begin - 1 :]

    with torch.no_grad():
        old = score()
    losses, norms = [], []
    for _ in range(updates):
        loss = policy_loss(
            score(), old, gain, said, clip_low=clip_low, clip_high=clip_high,
            loss_type=loss_type, max_length=max_new_tokens,
        )  # fmt: skip
        model.zero_grad()
        loss.backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)))
        optimizer.step()
        losses.append(float(loss))
    varied = [len(set(group.tolist())) > 1 for group in rewards.split(group_size)]
    return {
        "reward": float(rewards.mean()), "groups": sum(varied) / len(varied),
        "length": sum(map(len, texts)) / len(texts), "loss": losses[0], "grad_norm": norms[0],
    }  # fmt: skip


# %% exercise 11.4: padding kept in the second pass, where it is never looked at
def grpo_step(model, optimizer, input_ids, attention_mask, reward, group_size, max_new_tokens,
              eos_token_id, pad_token_id=0, temperature=1.0, generator=None, updates=1,
              scale_rewards=True, loss_type="dapo", clip_low=0.2, clip_high=0.2,
              max_grad_norm=1.0):  # fmt: skip
    ids = input_ids.repeat_interleave(group_size, 0)
    mask = attention_mask.repeat_interleave(group_size, 0)
    full = generate(model, ids, mask, max_new_tokens, temperature, None, None,
                    eos_token_id, pad_token_id, generator)  # fmt: skip
    new = full[:, ids.size(1) :]
    is_stop = (new.unsqueeze(-1) == torch.tensor(list(eos_token_id))).any(-1)
    keep = (is_stop.cumsum(1) - is_stop.int()) < 1
    rewards = torch.tensor(
        [float(reward(n[k].tolist())) for n, k in zip(new, keep, strict=True)]
    )
    advantages = group_advantages(rewards, group_size, scale_rewards=scale_rewards)
    mask = torch.cat((mask, torch.ones_like(new)), 1)
    old, out = None, {}
    for number in range(updates):
        lp = token_log_probs(model(full, mask), full, temperature)[:, -new.size(1) :]
        if number == 0:
            old = lp.detach().clone()
        loss = policy_loss(lp, old, advantages, keep, clip_low, clip_high, loss_type,
                           max_length=max_new_tokens)  # fmt: skip
        optimizer.zero_grad()
        loss.backward()
        grad_norm = nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
        optimizer.step()
        if number == 0:
            out = {"loss": loss.item(), "grad_norm": grad_norm.item()}
    differ = rewards.view(-1, group_size).std(1) > 0
    out["groups"] = differ.float().mean().item()
    out["reward"] = rewards.mean().item()
    out["length"] = keep.float().sum(1).mean().item()
    return out


# %% exercise 11.4: functions of its own
def grpo_step(model, optimizer, input_ids, attention_mask, reward, group_size, max_new_tokens,
              eos_token_id, pad_token_id=0, temperature=1.0, generator=None, updates=1,
              scale_rewards=True, loss_type="dapo", clip_low=0.2, clip_high=0.2,
              max_grad_norm=1.0):  # fmt: skip
    rows = torch.arange(len(input_ids)).repeat_interleave(group_size)
    questions, padding = input_ids[rows], attention_mask[rows]
    output = generate(
        model, questions, padding, max_new_tokens, temperature=temperature,
        eos_token_id=tuple(eos_token_id), pad_token_id=pad_token_id, generator=generator,
    )  # fmt: skip
    answers, real = said_by(output[:, questions.size(1) :], eos_token_id)
    rewards = torch.tensor([float(reward(answer)) for answer in answers])
    gains = group_advantages(rewards, group_size, scale_rewards)
    reports, before = [], None
    for _ in range(updates):
        logits = model(output, torch.cat((padding, real), dim=-1))
        now = token_log_probs(logits, output, temperature)[:, questions.size(1) - 1 :]
        if before is None:
            before = now.detach()
        loss = policy_loss(now, before, gains, real, clip_low, clip_high, loss_type,
                           max_new_tokens)  # fmt: skip
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(model.parameters()), max_grad_norm)
        optimizer.step()
        reports.append((loss.item(), norm.item()))
    spread = rewards.view(-1, group_size)
    return {
        "reward": rewards.mean().item(),
        "groups": (spread.amax(1) > spread.amin(1)).float().mean().item(),
        "length": real.sum().item() / len(real),
        "loss": reports[0][0],
        "grad_norm": reports[0][1],
    }


def said_by(rows, stops):
    answers, real = [], torch.zeros_like(rows)
    for number, row in enumerate(rows.tolist()):
        answer = []
        for token in row:
            answer.append(token)
            if token in list(stops):
                break
        real[number, : len(answer)] = 1
        answers.append(answer)
    return answers, real


# %% exercise 11.5: logsigmoid of halves
def dpo_loss(log_probs, ref_log_probs, mask, beta=0.1):
    half = len(mask) // 2
    zero = torch.zeros(())
    new = torch.where(mask.bool(), log_probs, zero).sum(-1)
    old = torch.where(mask.bool(), ref_log_probs.detach(), zero).sum(-1)
    margin = beta * ((new[:half] - old[:half]) - (new[half:] - old[half:]))
    return -nn.functional.logsigmoid(margin).mean(), margin


# %% exercise 11.5: two ratios, as the paper writes it
def dpo_loss(log_probs, ref_log_probs, mask, beta=0.1):
    real = mask != 0
    policy = log_probs.masked_fill(~real, 0).sum(1).view(2, -1)
    reference = ref_log_probs.detach().masked_fill(~real, 0).sum(1).view(2, -1)
    logits = (policy[0] - policy[1]) - (reference[0] - reference[1])
    zero = torch.zeros(())
    return torch.logaddexp(zero, -beta * logits).mean(), beta * logits


# %% exercise 11.5: binary cross-entropy
def dpo_loss(log_probs, ref_log_probs, mask, beta=0.1):
    gains = []
    for new, old, real in zip(log_probs, ref_log_probs.detach(), mask.bool(), strict=True):
        gains.append((new[real] - old[real]).sum())
    gains = torch.stack(gains)
    preferred, rejected = gains[: len(gains) // 2], gains[len(gains) // 2 :]
    margin = beta * (preferred - rejected)
    right = torch.ones_like(margin)
    return nn.functional.binary_cross_entropy_with_logits(margin, right), margin


# %% exercise 11.6: the other one
class WebLoRA(nn.Module):
    def __init__(self, base_layer, r=4):
        super().__init__()
        self.base_layer = base_layer.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.zeros(r, base_layer.in_features))
        self.lora_B = nn.Parameter(torch.randn(base_layer.out_features, r))

    def forward(self, x):
        return self.base_layer(x) + x @ self.lora_A.T @ self.lora_B.T


# %% exercise 11.7: before the loop
@torch.enable_grad()
def ratios(scores, ids, updates=4):
    old, cut = token_log_probs(scores, ids).detach(), []
    for _ in range(updates):
        scores = scores.detach().requires_grad_()
        log_probs = token_log_probs(scores, ids)
        ratio = (log_probs - old).exp()
        cut.append(((ratio - 1).abs() > 0.2).float().mean().item())
        loss = policy_loss(log_probs, old, torch.ones(1), torch.ones_like(log_probs))
        scores = scores - 3 * torch.autograd.grad(loss, scores)[0]
    return cut


# %% exercise 11.8: token_log_probs
def web_loss(logits, old, ids, start, advantages, temperature):
    new = token_log_probs(logits, ids, temperature)
    gain = (new - old).exp() * advantages[:, None]
    return -gain[:, start - 1 :].mean()
