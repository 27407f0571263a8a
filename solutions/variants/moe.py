# Right answers of lab 05, written otherwise. Every one has to earn full points.

# %% exercise 5.1: sort the logits, then gather
def route(router_logits, top_k, norm_topk_prob):
    order = router_logits.argsort(dim=-1, descending=True)[:, :top_k]
    probs = torch.softmax(router_logits.float(), dim=-1)
    weights = torch.gather(probs, 1, order)
    if norm_topk_prob:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights.type_as(router_logits), order


# %% exercise 5.1: softmax by hand in float64
def route(router_logits, top_k, norm_topk_prob):
    wide = router_logits.double()
    raised = torch.exp(wide - wide.max(dim=-1, keepdim=True)[0])
    probs = raised / raised.sum(dim=-1, keepdim=True)
    weights, chosen = torch.topk(probs, k=top_k)
    if norm_topk_prob:
        weights = torch.nn.functional.normalize(weights, p=1, dim=-1)
    return weights.to(dtype=router_logits.dtype), chosen


# %% exercise 5.1: token by token
def route(router_logits, top_k, norm_topk_prob):
    weights, chosen = [], []
    for row in router_logits:
        probs = F.softmax(row, dim=0, dtype=torch.float32)
        best = sorted(range(len(row)), key=lambda x: -probs[x].item())[:top_k]
        picked = torch.stack([probs[x] for x in best])
        weights.append(picked / picked.sum() if norm_topk_prob else picked)
        chosen.append(torch.tensor(best))
    return torch.stack(weights).to(router_logits.dtype), torch.stack(chosen)


# %% exercise 5.1: logsumexp
def route(router_logits, top_k, norm_topk_prob):
    logits = router_logits.float()
    best, chosen = logits.topk(top_k, dim=1)
    over = best if norm_topk_prob else logits
    weights = torch.exp(best - torch.logsumexp(over, dim=1, keepdim=True))
    return weights.to(router_logits.dtype), chosen


# %% exercise 5.1: sort, cast before the division, a list
def route(router_logits, top_k, norm_topk_prob):
    weights, chosen = router_logits.softmax(-1, torch.float).sort(dim=-1, descending=True)
    weights, chosen = weights[..., :top_k], chosen[..., :top_k]
    weights = weights.to(router_logits.dtype)
    if norm_topk_prob:
        weights = weights / weights.sum(-1, keepdim=True)
    return [weights, chosen]


# %% exercise 5.1: a sum that is kept from zero, indices by argsort
def route(router_logits, top_k, norm_topk_prob):
    probs = torch.softmax(router_logits, dim=-1, dtype=torch.float32)
    chosen = torch.argsort(probs, dim=-1, descending=True)[..., :top_k]
    weights = torch.take_along_dim(probs, chosen, dim=-1)
    if norm_topk_prob:
        weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
    return weights.type_as(router_logits), chosen


# %% exercise 5.2: a loop over all experts, some with no token at all
class Qwen3MoeSparseMoeBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.num_experts = config.num_experts
        self.top_k = config.num_experts_per_tok
        self.norm_topk_prob = config.norm_topk_prob
        self.gate = nn.Linear(config.hidden_size, config.num_experts, bias=False)
        self.experts = nn.ModuleList()
        for _ in range(self.num_experts):
            self.experts.append(
                Qwen3MLP(config, intermediate_size=config.moe_intermediate_size)
            )

    def forward(self, hidden_states):
        batch, length, size = hidden_states.shape
        tokens = hidden_states.reshape(-1, size)
        router_logits = self.gate(tokens)
        weights, chosen = route(router_logits, self.top_k, self.norm_topk_prob)
        out = torch.zeros((batch * length, size), dtype=tokens.dtype, device=tokens.device)
        mask = F.one_hot(chosen, num_classes=self.num_experts).permute(2, 1, 0)
        for index, expert in enumerate(self.experts):
            slot, token = torch.where(mask[index])
            current = tokens[None, token].reshape(-1, size)
            current = expert(current) * weights[token, slot, None]
            out.index_add_(0, token, current.to(tokens.dtype))
        return out.reshape(batch, length, size), router_logits


# %% exercise 5.2: token by token, expert by expert
class Qwen3MoeSparseMoeBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.experts = nn.ModuleList(
            [Qwen3MLP(config, config.moe_intermediate_size) for _ in range(config.num_experts)]
        )
        self.gate = nn.Linear(config.hidden_size, config.num_experts, bias=False)

    def forward(self, hidden_states):
        flat = hidden_states.flatten(end_dim=1)
        logits = self.gate(flat)
        k, norm = self.config.num_experts_per_tok, self.config.norm_topk_prob
        weights, chosen = route(logits, k, norm)
        rows = []
        for token, w, picks in zip(flat, weights, chosen, strict=True):
            rows.append(
                sum(w[i] * self.experts[x](token) for i, x in enumerate(picks.tolist()))
            )
        return torch.stack(rows).view(hidden_states.shape), logits


# %% exercise 5.2: sorted by expert, then put back
class Qwen3MoeSparseMoeBlock(nn.Module):
    def __init__(self, config: Qwen3Config):
        super().__init__()
        self.top_k = config.num_experts_per_tok
        self.norm_topk_prob = config.norm_topk_prob
        self.gate = nn.Linear(config.hidden_size, config.num_experts, bias=False)
        self.experts = nn.ModuleList(
            Qwen3MLP(config, config.moe_intermediate_size) for _ in range(config.num_experts)
        )

    def forward(self, hidden_states):
        tokens = hidden_states.reshape(-1, hidden_states.shape[-1])
        router_logits = self.gate(tokens)
        weights, chosen = route(router_logits, self.top_k, self.norm_topk_prob)
        flat = chosen.reshape(-1)
        order = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=len(self.experts)).tolist()
        parts = tokens[order // self.top_k].split(counts)
        said = torch.cat([e(p) for e, p in zip(self.experts, parts, strict=True) if len(p)])
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        said = said[back].view(len(tokens), self.top_k, -1)
        mixed = torch.einsum("nk,nke->ne", weights, said)
        return mixed.reshape(hidden_states.shape), router_logits


# %% exercise 5.2: gathered weights, no loop over tokens
class Qwen3MoeSparseMoeBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.top_k, self.norm = config.num_experts_per_tok, config.norm_topk_prob
        self.gate = nn.Linear(config.hidden_size, config.num_experts, False)
        self.experts = nn.ModuleList(
            Qwen3MLP(config, config.moe_intermediate_size) for _ in range(config.num_experts)
        )

    def stacked(self, name, chosen):
        return torch.stack([getattr(e, name).weight for e in self.experts])[chosen]

    def forward(self, hidden_states):
        x = hidden_states.flatten(0, 1)
        logits = self.gate(x)
        weights, chosen = route(logits, self.top_k, self.norm)
        gate = torch.einsum("nkie,ne->nki", self.stacked("gate_proj", chosen), x)
        up = torch.einsum("nkie,ne->nki", self.stacked("up_proj", chosen), x)
        inner = gate * torch.sigmoid(gate) * up
        said = torch.einsum("nkei,nki->nke", self.stacked("down_proj", chosen), inner)
        return (weights.unsqueeze(-1) * said).sum(1).view_as(hidden_states), logits


# %% exercise 5.2: slot by slot, float32 sum, += where no index repeats
class Qwen3MoeSparseMoeBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.top_k = config.num_experts_per_tok
        self.norm_topk_prob = config.norm_topk_prob
        self.gate = nn.Linear(config.hidden_size, config.num_experts, bias=False)
        self.experts = nn.ModuleList(
            Qwen3MLP(config, config.moe_intermediate_size) for _ in range(config.num_experts)
        )

    def forward(self, hidden_states):
        tokens = hidden_states.flatten(0, 1)
        router_logits = self.gate(tokens)
        weights, chosen = route(router_logits, self.top_k, self.norm_topk_prob)
        mixed = torch.zeros(tokens.shape, dtype=torch.float32)
        for slot in range(self.top_k):
            for x in set(chosen[:, slot].tolist()):
                here = chosen[:, slot] == x
                said = self.experts[x](tokens[here]).float()
                mixed[here] += weights[here, slot].float().unsqueeze(1) * said
        return mixed.to(hidden_states.dtype).view_as(hidden_states), router_logits


# %% exercise 5.2: one row for each choice, view
class Qwen3MoeSparseMoeBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.gate = nn.Linear(config.hidden_size, config.num_experts, bias=False)
        self.experts = nn.ModuleList(
            [Qwen3MLP(config, config.moe_intermediate_size) for _ in range(config.num_experts)]
        )

    def forward(self, hidden_states):
        batch, length, size = hidden_states.size()
        top_k = self.config.num_experts_per_tok
        tokens = hidden_states.view(-1, size)
        logits = self.gate(tokens)
        weights, chosen = route(logits, top_k, self.config.norm_topk_prob)
        rows = tokens.repeat_interleave(top_k, dim=0)
        said = torch.empty_like(rows)
        for x, expert in enumerate(self.experts):
            here = chosen.view(-1) == x
            if here.any():
                said[here] = expert(rows[here])
        mixed = (said.view(-1, top_k, size) * weights[..., None]).sum(dim=1)
        return mixed.view(batch, length, size), logits


# %% exercise 5.2: a dense table of weights, its own routing
class Qwen3MoeSparseMoeBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.top_k = config.num_experts_per_tok
        self.norm_topk_prob = config.norm_topk_prob
        self.gate = nn.Linear(config.hidden_size, config.num_experts, bias=False)
        self.experts = nn.ModuleList(
            Qwen3MLP(config, config.moe_intermediate_size) for _ in range(config.num_experts)
        )

    def forward(self, hidden_states):
        x = hidden_states.contiguous().view(-1, hidden_states.size(-1))
        logits = F.linear(x, self.gate.weight)
        probs = logits.softmax(-1, dtype=torch.float32)
        top, chosen = probs.topk(self.top_k)
        if self.norm_topk_prob:
            top = top / top.sum(-1, keepdim=True)
        table = torch.zeros_like(probs).scatter(1, chosen, top).to(x.dtype)
        y = torch.zeros_like(x)
        for i in range(table.shape[1]):
            rows = (chosen == i).any(dim=-1).nonzero().squeeze(-1)
            if rows.numel():
                y = y.index_add(
                    0, rows, table[rows, i].unsqueeze(-1) * self.experts[i](x[rows])
                )
        return y.view(hidden_states.shape), logits


# %% exercise 5.3: one-hot per slot, as in transformers
def load_balancing_loss(router_logits, top_k, attention_mask=None, pooled=False):
    if isinstance(router_logits, (list, tuple)):
        if not pooled:
            each = [load_balancing_loss(x, top_k, attention_mask) for x in router_logits]
            return sum(each) / len(each)
        router_logits = torch.cat(list(router_logits), dim=0)
    num_experts = router_logits.shape[-1]
    weights = F.softmax(router_logits.float(), dim=-1)
    _, chosen = torch.topk(weights, top_k, dim=-1)
    mask = F.one_hot(chosen, num_experts).float()
    if attention_mask is None:
        load, prob = mask.mean(dim=0), weights.mean(dim=0)
    else:
        layers = router_logits.shape[0] // attention_mask.numel()
        keep = attention_mask[None].expand(layers, *attention_mask.shape).reshape(-1, 1)
        load = (mask * keep[..., None]).sum(0) / keep.sum()
        prob = (weights * keep).sum(0) / keep.sum()
    return num_experts * torch.sum(load * prob.unsqueeze(0))


# %% exercise 5.3: only the rows that count, and bincount
def load_balancing_loss(router_logits, top_k, attention_mask=None, pooled=False):
    layers = [router_logits] if torch.is_tensor(router_logits) else router_logits
    if attention_mask is not None:
        keep = attention_mask.reshape(-1).bool()
        layers = [layer[keep] for layer in layers]

    def of_one(logits):
        count, experts = logits.shape
        chosen = logits.topk(top_k).indices
        load = torch.bincount(chosen.flatten(), minlength=experts) / count
        probs = logits.softmax(dim=-1, dtype=torch.float32)
        return experts * torch.dot(load, probs.mean(0))

    if pooled:
        return of_one(torch.cat(tuple(layers)))
    return torch.stack([of_one(layer) for layer in layers]).mean()


# %% exercise 5.3: loops
def load_balancing_loss(router_logits, top_k, attention_mask=None, pooled=False):
    layers = [router_logits] if isinstance(router_logits, Tensor) else list(router_logits)
    sums = []
    for layer in layers:
        load, total, count = 0, 0, 0
        keep = [1] * len(layer) if attention_mask is None else attention_mask.flatten().tolist()
        for row, counts in zip(layer, keep, strict=True):
            if counts:
                probs = row.float().softmax(-1)
                picks = torch.zeros(len(row))
                picks[probs.topk(top_k)[1]] = 1
                load, total, count = load + picks, total + probs, count + 1
        sums.append((load, total, count))
    if pooled:
        sums = [tuple(map(sum, zip(*sums, strict=True)))]
    return sum(len(f) * ((f / n) * (p / n)).sum() for f, p, n in sums) / len(sums)


# %% exercise 5.3: einsum in float64
def load_balancing_loss(router_logits, top_k, attention_mask=None, pooled=False):
    layers = [router_logits] if isinstance(router_logits, Tensor) else list(router_logits)
    probs = torch.stack(list(layers)).double().softmax(-1)  # (layers, N, X)
    picks = torch.zeros_like(probs).scatter_(-1, probs.topk(top_k, -1).indices, 1.0)
    counts = torch.ones(probs.shape[1]).double()
    if attention_mask is not None:
        counts = attention_mask.reshape(-1).double()
    share = counts / counts.sum()
    load, mean_prob = (torch.einsum("lnx,n->lx", t, share) for t in (picks, probs))
    if pooled:
        load, mean_prob = load.mean(0, keepdim=True), mean_prob.mean(0, keepdim=True)
    return (probs.shape[-1] * (load * mean_prob).sum(-1).mean()).float()


# %% exercise 5.3: softmax and means in the dtype of the logits, counts by scatter
def load_balancing_loss(router_logits, top_k, attention_mask=None, pooled=False):
    layers = (router_logits,) if isinstance(router_logits, Tensor) else router_logits
    mean = 0
    for logits in (torch.cat(list(layers)),) if pooled else layers:
        probs = logits.softmax(dim=-1)
        picks = torch.zeros(probs.shape).scatter(1, probs.topk(top_k, dim=-1).indices, 1.0)
        if attention_mask is not None:
            keep = attention_mask.reshape(-1).repeat(len(logits) // attention_mask.numel()) > 0
            probs, picks = probs[keep], picks[keep]
        loss = probs.size(-1) * (picks.mean(dim=0) * probs.mean(dim=0)).sum()
        mean = mean + loss / (1 if pooled else len(layers))
    return mean


# %% exercise 5.4: one condition, as in transformers
def uses_experts(config, layer_idx):
    return (layer_idx not in config.mlp_only_layers) and (
        config.num_experts > 0 and (layer_idx + 1) % config.decoder_sparse_step == 0
    )


# %% exercise 5.4: a set of all sparse layers
def uses_experts(config, layer_idx):
    turns = range(config.decoder_sparse_step - 1, layer_idx + 1, config.decoder_sparse_step)
    sparse = set(turns) - set(config.mlp_only_layers)
    return bool(config.num_experts) and layer_idx in sparse


# %% exercise 5.4: no branch, numbers become a bool at last
def uses_experts(config: Qwen3Config, layer_idx: int) -> bool:
    turn = layer_idx % config.decoder_sparse_step == config.decoder_sparse_step - 1
    allowed = config.mlp_only_layers.count(layer_idx) == 0
    return bool(turn * allowed * config.num_experts)


# %% exercise 5.5: gathered, and divided only if asked
def web_route(router_logits, top_k, norm_topk_prob):
    chosen = router_logits.topk(top_k).indices
    if norm_topk_prob:
        return router_logits.gather(-1, chosen).softmax(-1), chosen
    return router_logits.softmax(-1).gather(-1, chosen), chosen
