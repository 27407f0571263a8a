# Right answers of lab 12, written otherwise. Every one has to earn full points.

# %% exercise 12.1: two triangles
def sliding_window_mask(query_length, key_length, window, sinks=0):
    past = key_length - query_length
    square = torch.ones(query_length, key_length, dtype=torch.bool)
    seen = square.tril(past)
    mask = seen & square.triu(past - window + 1)
    mask[:, :sinks] = seen[:, :sinks]
    return mask


# %% exercise 12.1: a loop over the queries
def sliding_window_mask(query_length: int, key_length: int, window: int, sinks: int = 0):
    mask = torch.zeros(query_length, key_length, dtype=torch.bool)
    for row in range(query_length):
        last = key_length - query_length + row
        mask[row, max(0, last - window + 1) : last + 1] = True
        mask[row, : min(sinks, last + 1)] = True
    return mask


# %% exercise 12.1: the distance between the two
def sliding_window_mask(query_length, key_length, window, sinks=0):
    places = torch.arange(key_length)
    distance = places[-query_length:].unsqueeze(1) - places.unsqueeze(0)
    hidden = (distance < 0) | ((distance >= window) & (places >= sinks))
    return hidden.logical_not()


# %% exercise 12.2: split by hand, masks with -inf, rotation in one helper
class Qwen3NextRMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        x = hidden_states.to(torch.float32)
        x = x / (x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon).sqrt()
        return (x + x * self.weight.float()).type_as(hidden_states)


class GatedAttention(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.layer_idx = layer_idx
        self.H, self.K, self.D = (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
        )
        self.q_proj = nn.Linear(config.hidden_size, self.H * self.D * 2, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, self.K * self.D, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, self.K * self.D, bias=False)
        self.o_proj = nn.Linear(self.H * self.D, config.hidden_size, bias=False)
        self.q_norm = Qwen3NextRMSNorm(self.D, eps=config.rms_norm_eps)
        self.k_norm = Qwen3NextRMSNorm(self.D, eps=config.rms_norm_eps)

    def turned(self, x, cos, sin):
        size = cos.shape[-1]
        near, rest = x.split([size, x.shape[-1] - size], dim=-1)
        a, b = near.chunk(2, dim=-1)
        cos, sin = cos.to(x.dtype)[:, None], sin.to(x.dtype)[:, None]
        return torch.cat([near * cos + torch.cat([-b, a], dim=-1) * sin, rest], dim=-1)

    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        batch, length, _ = hidden_states.shape
        both = self.q_proj(hidden_states).reshape(batch, length, self.H, 2 * self.D)
        query, gate = both[..., : self.D], both[..., self.D :]
        key = self.k_proj(hidden_states).reshape(batch, length, self.K, self.D)
        value = self.v_proj(hidden_states).reshape(batch, length, self.K, self.D)
        query = self.turned(self.q_norm(query).transpose(1, 2), cos, sin)
        key = self.turned(self.k_norm(key).transpose(1, 2), cos, sin)
        value = value.transpose(1, 2)
        if cache is not None:
            key, value = cache.update(self.layer_idx, key, value)
        key = key.repeat_interleave(self.H // self.K, dim=1)
        value = value.repeat_interleave(self.H // self.K, dim=1)
        scores = query @ key.transpose(2, 3) / self.D**0.5
        if mask is not None:
            scores = scores.masked_fill(mask.logical_not(), float("-inf"))
        weights = scores.softmax(-1, dtype=torch.float32).to(value.dtype)
        mixed = (weights @ value).transpose(1, 2).reshape(batch, length, -1)
        mixed = mixed * gate.reshape(batch, length, -1).sigmoid()
        return self.o_proj(mixed)


# %% exercise 12.2: heads of KV first, queries grouped, tables padded to all features
class Qwen3NextRMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(hidden_size)), eps

    def forward(self, hidden_states):
        size = hidden_states.float().square().mean(-1, True).add(self.eps).rsqrt()
        return (hidden_states.float() * size * self.weight.float().add(1)).to(
            hidden_states.dtype
        )


class GatedAttention(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.config, self.layer_idx = config, layer_idx
        size, heads, kv = (
            config.head_dim,
            config.num_attention_heads,
            config.num_key_value_heads,
        )
        self.q_proj = nn.Linear(config.hidden_size, 2 * heads * size, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, kv * size, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, kv * size, bias=False)
        self.o_proj = nn.Linear(heads * size, config.hidden_size, bias=False)
        self.q_norm = Qwen3NextRMSNorm(size, config.rms_norm_eps)
        self.k_norm = Qwen3NextRMSNorm(size, config.rms_norm_eps)

    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        size, kv = self.config.head_dim, self.config.num_key_value_heads
        query, gate = self.q_proj(hidden_states).unflatten(-1, (-1, 2, size)).unbind(-2)
        key = self.k_norm(self.k_proj(hidden_states).unflatten(-1, (kv, size))).movedim(1, 2)
        value = self.v_proj(hidden_states).unflatten(-1, (kv, size)).movedim(1, 2)
        query = self.q_norm(query).movedim(1, 2)
        turn = cos.size(-1)
        first = apply_rotary_pos_emb(query[..., :turn], key[..., :turn], cos, sin)
        query = torch.cat((first[0], query[..., turn:]), -1)
        key = torch.cat((first[1], key[..., turn:]), -1)
        if cache is not None:
            key, value = cache.update(self.layer_idx, key, value)
        query = query.unflatten(1, (kv, -1))  # (B, K, G, T, D)
        scores = query @ key[:, :, None].mT * size**-0.5
        if mask is not None:
            whole = mask.expand(*(1,) * (4 - mask.dim()), *mask.shape)
            whole = whole.expand(whole.size(0), query.size(1) * query.size(2), -1, -1)
            scores = scores.masked_fill(
                ~whole.unflatten(1, (kv, -1)), -1e30 if scores.dtype != torch.float16 else -6e4
            )
        weights = scores.float().softmax(-1).to(value.dtype)
        mixed = (weights @ value[:, :, None]).flatten(1, 2).movedim(1, 2)
        return self.o_proj((mixed * gate.sigmoid()).flatten(2))


# %% exercise 12.2: the course's norm with another scale
class Qwen3NextRMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(hidden_size).fill_(0.0))

    def forward(self, hidden_states):
        kind, x = hidden_states.dtype, hidden_states.to(torch.float64)
        root = torch.sqrt((x * x).mean(dim=-1, keepdim=True) + self.eps)
        return ((1.0 + self.weight.double()) * (x / root)).to(kind)


class GatedAttention(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.layer_idx, self.d = layer_idx, config.head_dim
        self.rep = config.num_attention_heads // config.num_key_value_heads
        q, kv = config.num_attention_heads * self.d, config.num_key_value_heads * self.d
        for name, rows in (("q_proj", 2 * q), ("k_proj", kv), ("v_proj", kv)):
            setattr(self, name, nn.Linear(config.hidden_size, rows, bias=False))
        self.o_proj = nn.Linear(q, config.hidden_size, bias=False)
        self.q_norm = Qwen3NextRMSNorm(self.d, config.rms_norm_eps)
        self.k_norm = Qwen3NextRMSNorm(self.d, config.rms_norm_eps)

    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        heads = self.q_proj(hidden_states).unflatten(-1, (-1, 2 * self.d)).transpose(1, 2)
        query, gate = heads.split(self.d, dim=-1)
        key, value = (
            proj(hidden_states).unflatten(-1, (-1, self.d)).transpose(1, 2)
            for proj in (self.k_proj, self.v_proj)
        )
        query, key = self.q_norm(query), self.k_norm(key)
        pairs = [(x[..., : cos.size(-1)], x[..., cos.size(-1) :]) for x in (query, key)]
        turned = apply_rotary_pos_emb(pairs[0][0], pairs[1][0], cos, sin)
        query, key = (
            torch.cat((new, rest), dim=-1) for new, (_, rest) in zip(turned, pairs, strict=True)
        )
        if cache is not None:
            key, value = cache.update(self.layer_idx, key, value)
        mixed = scaled_dot_product_attention(
            query, repeat_kv(key, self.rep), repeat_kv(value, self.rep), mask
        )
        return self.o_proj((gate.sigmoid() * mixed).transpose(1, 2).flatten(2))


# %% exercise 12.3: sums over an axis
def gated_delta_step(state, query, key, value, g, beta):
    state = state * torch.exp(g).unsqueeze(-1).unsqueeze(-1)
    says = (state * key.unsqueeze(-1)).sum(dim=-2)
    delta = (value - says) * beta.unsqueeze(-1)
    state = state + key.unsqueeze(-1) * delta.unsqueeze(-2)
    return (state * query.unsqueeze(-1)).sum(dim=-2), state


# %% exercise 12.3: matrix products
def gated_delta_step(state, query, key, value, g, beta):
    faded = g.exp()[..., None, None] * state
    error = value[..., None, :] - key[..., None, :] @ faded
    new = faded + key[..., :, None] @ (beta[..., None, None] * error)
    return (query[..., None, :] @ new).squeeze(-2), new


# %% exercise 12.3: the formula with the identity: S (I - beta k k^T) + beta k v^T
def gated_delta_step(state, query, key, value, g, beta):
    beta = beta[..., None, None]
    eye = torch.eye(key.size(-1), dtype=key.dtype)
    keep = eye - beta * key[..., :, None] * key[..., None, :]
    state = (
        g.exp()[..., None, None] * keep @ state + beta * key[..., :, None] * value[..., None, :]
    )
    return torch.einsum("...p,...pq->...q", query, state), state


# %% exercise 12.4: step by step, the output in one tensor
def prepare_heads(query, key, value, g, beta):
    times = value.shape[2] // key.shape[2]
    query, key = (
        x.float().repeat_interleave(times, dim=2).transpose(1, 2) for x in (query, key)
    )
    query, key = (x / (x.pow(2).sum(-1, keepdim=True) + 1e-6).sqrt() for x in (query, key))
    value, g, beta = value.float().transpose(1, 2), g.float().mT, beta.float().mT
    return query / query.shape[-1] ** 0.5, key, value, g, beta


def gated_delta_rule(query, key, value, g, beta, initial_state=None):
    kind = value.dtype
    query, key, value, g, beta = prepare_heads(query, key, value, g, beta)
    batch, heads, length, size = value.shape
    state = torch.zeros(batch, heads, key.shape[-1], size)
    if initial_state is not None:
        state = initial_state.float()
    out = []
    for t in range(length):
        fade, strength = g[:, :, t].exp()[..., None, None], beta[:, :, t, None]
        state = state * fade
        k = key[:, :, t]
        state = (
            state
            + k[..., None]
            * ((value[:, :, t] - (k[..., None, :] @ state)[..., 0, :]) * strength)[..., None, :]
        )
        out.append((query[:, :, t, None, :] @ state)[..., 0, :])
    return torch.stack(out, 2).transpose(1, 2).to(kind), state


# %% exercise 12.4: unbound tokens, a list back
def prepare_heads(query, key, value, g, beta):
    wide = [x.to(torch.float32).movedim(2, 1) for x in (query, key, value, g, beta)]
    for place in (0, 1):
        x = wide[place]
        x = x * (x * x).sum(-1, keepdim=True).add(1e-6).rsqrt()
        wide[place] = repeat_kv(x, value.size(2) // key.size(2))
    wide[0] = wide[0] / query.size(-1) ** 0.5
    return wide


def gated_delta_rule(query, key, value, g, beta, initial_state=None):
    tokens = zip(*(x.unbind(2) for x in prepare_heads(query, key, value, g, beta)), strict=True)
    state, said = initial_state, []
    for q, k, v, fade, strength in tokens:
        if state is None:
            state = torch.zeros(*k.shape, v.size(-1))
        output, state = gated_delta_step(state, q, k, v, fade, strength)
        said.append(output.to(value.dtype))
    return [torch.stack(said, dim=1), state]


# %% exercise 12.4: everything at once, in chunks of the whole text
def prepare_heads(query, key, value, g, beta):
    rows = torch.arange(value.size(2)) // (value.size(2) // key.size(2))
    query, key = (x[:, :, rows].transpose(1, 2).float() for x in (query, key))
    query = query * query.size(-1) ** -0.5 / query.square().sum(-1, True).add(1e-6).sqrt()
    key = key / key.square().sum(-1, True).add(1e-6).sqrt()
    return query, key, *(x.float().transpose(1, 2) for x in (value, g, beta))


def gated_delta_rule(query, key, value, g, beta, initial_state=None):
    return chunk_gated_delta_rule(query, key, value, g, beta, initial_state, 16)


# %% exercise 12.5: forward substitution, row by row for all chunks at once
def chunk_gated_delta_rule(query, key, value, g, beta, initial_state=None, chunk_size=64):
    parts = prepare_heads(query, key, value, g, beta)
    length, size = parts[2].size(2), min(chunk_size, value.size(1))
    missing = -length % size
    wide = [x.movedim(2, -1) for x in parts]
    wide = [nn.functional.pad(x, (0, missing)).unflatten(-1, (-1, size)) for x in wide]
    q, k, v, g, beta = (x.movedim(-2, 2).movedim(-1, 3) for x in wide)  # (B, M, n, C, ...)
    d = g.cumsum(-1)
    near = torch.ones(size, size, dtype=torch.bool).tril()
    decay = (d[..., :, None] - d[..., None, :]).masked_fill(~near, -torch.inf).exp()
    matrix = beta[..., None] * decay * (k @ k.mT)
    inverse = [torch.eye(size)[0].expand(*g.shape[:-1], -1)]
    for i in range(1, size):
        before = torch.stack(inverse, -2)  # (B, M, n, i, C)
        row = torch.eye(size)[i] - (matrix[..., i, :i, None] * before).sum(-2)
        inverse.append(row)
    inverse = torch.stack(inverse, -2) * beta[..., None, :]
    fresh, old = inverse @ v, inverse @ (d.exp()[..., None] * k)
    state = torch.zeros(*k.shape[:2], k.size(-1), v.size(-1))
    state = state if initial_state is None else initial_state
    outputs = []
    for n in range(k.size(2)):
        w = fresh[:, :, n] - old[:, :, n] @ state
        inside = decay[:, :, n] * (q[:, :, n] @ k[:, :, n].mT)
        outputs.append(d[:, :, n].exp()[..., None] * (q[:, :, n] @ state) + inside @ w)
        left = k[:, :, n] * decay[:, :, n, -1, :, None]
        state = d[:, :, n, -1].exp()[..., None, None] * state + left.mT @ w
    output = torch.cat(outputs, 2)[:, :, :length]
    return output.transpose(1, 2).to(value.dtype), state


# %% exercise 12.5: everything by einsum, sizes by hand, the inverse as a product
def chunk_gated_delta_rule(query, key, value, g, beta, initial_state=None, chunk_size=64):
    q, k, v, g, beta = prepare_heads(query, key, value, g, beta)
    memory = initial_state
    if memory is None:
        memory = k.new_zeros(k.shape[0], k.shape[1], k.shape[3], v.shape[3])
    said = []
    for start in range(0, k.shape[2], chunk_size):
        part = slice(start, min(start + chunk_size, k.shape[2]))
        ki, qi, vi, bi = k[:, :, part], q[:, :, part], v[:, :, part], beta[:, :, part]
        d = g[:, :, part].cumsum(-1)
        size = d.shape[-1]
        later = torch.arange(size)[:, None] < torch.arange(size)
        gap = (d.unsqueeze(-1) - d.unsqueeze(-2)).masked_fill(later, float("-inf")).exp()
        a = torch.einsum("bhip,bhjp,bhij,bhi->bhij", ki, ki, gap, bi).tril(-1)
        inverse, power, count = torch.eye(size) - a, a @ a, 2
        while count < size:  # (1 - a)(1 + a^2)(1 + a^4) ...
            inverse, power, count = inverse + inverse @ power, power @ power, 2 * count
        old = torch.einsum("bhip,bhpq,bhi->bhiq", ki, memory, d.exp())
        w = inverse @ (bi.unsqueeze(-1) * (vi - old))
        said.append(
            torch.einsum("bhip,bhpq,bhi->bhiq", qi, memory, d.exp())
            + torch.einsum("bhip,bhjp,bhij,bhjq->bhiq", qi, ki, gap, w)
        )
        memory = memory * d[..., -1].exp()[..., None, None]
        memory = memory + torch.einsum("bhjp,bhj,bhjq->bhpq", ki, gap[..., -1, :], w)
    return torch.cat(said, dim=2).permute(0, 2, 1, 3).to(value.dtype), memory


# %% exercise 12.5: torch.linalg.solve of the whole matrix
def chunk_gated_delta_rule(query, key, value, g, beta, initial_state=None, chunk_size=64):
    kind = value.dtype
    parts = prepare_heads(query, key, value, g, beta)
    memory = initial_state
    if memory is None:
        memory = torch.zeros(*parts[1].shape[:2], key.size(-1), value.size(-1))
    outputs = []
    for q, k, v, g, b in zip(*(p.split(chunk_size, 2) for p in parts), strict=True):
        d, b = g.cumsum(-1), b[..., None]
        size = d.size(-1)
        gap = (d[..., None] - d[..., None, :]).clamp(max=0).exp()
        matrix = torch.eye(size) + torch.tril(b * gap * (k @ k.mT), -1)
        right = b * (v - d.exp()[..., None] * (k @ memory))
        w = torch.linalg.solve(matrix, right)
        outputs.append(d.exp()[..., None] * (q @ memory) + torch.tril(gap * (q @ k.mT)) @ w)
        memory = (k * gap[..., -1, :, None]).mT @ w + d[..., -1:, None].exp() * memory
    return torch.cat(outputs, 2).transpose(1, 2).to(kind), memory


# %% exercise 12.6: the convolution as a sum of shifted inputs
class Qwen3NextRMSNormGated(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(hidden_size)), eps

    def forward(self, hidden_states, gate):
        x, gate = hidden_states.float(), gate.float()
        x = x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        x = x.to(hidden_states.dtype) * self.weight
        return (x * gate * gate.sigmoid()).to(hidden_states.dtype)


class GatedDeltaNet(nn.Module):
    def __init__(self, config: Qwen3NextConfig, layer_idx: int):
        super().__init__()
        self.layer_idx, self.config, self.rule = layer_idx, config, gated_delta_rule
        value_heads = config.linear_num_value_heads  # M
        self.key_size = config.linear_num_key_heads * config.linear_key_head_dim  # N * P
        self.value_size = value_heads * config.linear_value_head_dim  # M * Q
        channels = 2 * self.key_size + self.value_size  # C
        width = config.linear_conv_kernel_dim  # W
        in_size = channels + self.value_size
        self.in_proj_qkvz = nn.Linear(config.hidden_size, in_size, bias=False)
        self.in_proj_ba = nn.Linear(config.hidden_size, 2 * value_heads, bias=False)
        self.conv1d = nn.Conv1d(channels, channels, width, groups=channels, bias=False)
        step = 10 ** torch.empty(value_heads).uniform_(
            -3, -1
        )  # softplus(dt_bias): fades slowly
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.A_log = nn.Parameter(torch.empty(value_heads).uniform_(0.01, 16).log())
        self.norm = Qwen3NextRMSNormGated(config.linear_value_head_dim, config.rms_norm_eps)
        self.out_proj = nn.Linear(self.value_size, config.hidden_size, bias=False)

    def forward(self, hidden_states, state=None, attention_mask=None):
        if attention_mask is not None:
            hidden_states = hidden_states * attention_mask.unsqueeze(-1).type_as(hidden_states)
        mixed, z, b, a = self._project(hidden_states)
        weight = self.conv1d.weight[:, 0]  # (C, W)
        width, length = weight.size(1), mixed.size(1)
        if state is None:
            held = mixed.new_zeros(mixed.size(0), mixed.size(2), width - 1)
            memory = None
        else:
            held, memory = state
        line = torch.cat((held.transpose(1, 2), mixed), dim=1)
        mixed = sum(line[:, w : w + length] * weight[:, w] for w in range(width))
        mixed = mixed * mixed.sigmoid()
        step = torch.log1p(torch.exp(a.float() + self.dt_bias))
        q, k, v = self._split(mixed)
        out, memory = self.rule(q, k, v, -step * self.A_log.float().exp(), b.sigmoid(), memory)
        out = self.norm(out, z).reshape(*hidden_states.shape[:2], -1)
        return self.out_proj(out), (line[:, length:].transpose(1, 2), memory)

    def _project(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        config = self.config
        heads = config.linear_num_key_heads  # N
        key_dim, value_dim = config.linear_key_head_dim, self.value_size // heads
        qkvz = self.in_proj_qkvz(hidden_states).unflatten(-1, (heads, -1))
        *qkv, z = qkvz.split((key_dim, key_dim, value_dim, value_dim), dim=-1)
        b, a = self.in_proj_ba(hidden_states).unflatten(-1, (heads, -1)).chunk(2, dim=-1)
        mixed = torch.cat([x.flatten(2) for x in qkv], dim=-1)  # (B, T, C)
        z = z.flatten(2).unflatten(-1, (-1, config.linear_value_head_dim))
        return mixed, z, b.flatten(2), a.flatten(2)

    def _split(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sizes = (self.key_size, self.key_size, self.value_size)
        query, key, value = mixed.split(sizes, dim=-1)
        key_dim = self.config.linear_key_head_dim
        value = value.unflatten(-1, (-1, self.config.linear_value_head_dim))
        return query.unflatten(-1, (-1, key_dim)), key.unflatten(-1, (-1, key_dim)), value


# %% exercise 12.6: functional conv1d with padding where nothing came before
class Qwen3NextRMSNormGated(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states, gate):
        kind, x = hidden_states.dtype, hidden_states.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        x = self.weight * x.to(kind)
        return (x * nn.functional.silu(gate.to(torch.float32))).to(kind)


class GatedDeltaNet(nn.Module):
    def __init__(self, config: Qwen3NextConfig, layer_idx: int):
        super().__init__()
        self.layer_idx, self.config, self.rule = layer_idx, config, gated_delta_rule
        value_heads = config.linear_num_value_heads  # M
        self.key_size = config.linear_num_key_heads * config.linear_key_head_dim  # N * P
        self.value_size = value_heads * config.linear_value_head_dim  # M * Q
        channels = 2 * self.key_size + self.value_size  # C
        width = config.linear_conv_kernel_dim  # W
        in_size = channels + self.value_size
        self.in_proj_qkvz = nn.Linear(config.hidden_size, in_size, bias=False)
        self.in_proj_ba = nn.Linear(config.hidden_size, 2 * value_heads, bias=False)
        self.conv1d = nn.Conv1d(channels, channels, width, groups=channels, bias=False)
        step = 10 ** torch.empty(value_heads).uniform_(
            -3, -1
        )  # softplus(dt_bias): fades slowly
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.A_log = nn.Parameter(torch.empty(value_heads).uniform_(0.01, 16).log())
        self.norm = Qwen3NextRMSNormGated(config.linear_value_head_dim, config.rms_norm_eps)
        self.out_proj = nn.Linear(self.value_size, config.hidden_size, bias=False)

    def forward(self, hidden_states, state=None, attention_mask=None):
        mixed, z, b, a = self._project(hidden_states)
        if attention_mask is not None:
            mixed = mixed.masked_fill(attention_mask[:, :, None] == 0, 0)
        mixed, width = mixed.transpose(1, 2), self.conv1d.weight.size(-1)
        pad = nn.functional.pad(mixed, (width - 1, 0))
        if state is not None:
            pad = torch.cat((state[0].to(mixed.dtype), mixed), -1)
        short = nn.functional.conv1d(pad, self.conv1d.weight, groups=mixed.size(1))
        q, k, v = self._split(nn.functional.silu(short).transpose(1, 2))
        decay = self.A_log.float().exp().neg() * nn.functional.softplus(
            a.float() + self.dt_bias
        )
        memory = None if state is None else state[1]
        out, memory = self.rule(q, k, v, decay, torch.sigmoid(b), memory)
        return self.out_proj(self.norm(out, z).flatten(-2)), (pad[..., 1 - width :], memory)

    def _project(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        config = self.config
        heads = config.linear_num_key_heads  # N
        key_dim, value_dim = config.linear_key_head_dim, self.value_size // heads
        qkvz = self.in_proj_qkvz(hidden_states).unflatten(-1, (heads, -1))
        *qkv, z = qkvz.split((key_dim, key_dim, value_dim, value_dim), dim=-1)
        b, a = self.in_proj_ba(hidden_states).unflatten(-1, (heads, -1)).chunk(2, dim=-1)
        mixed = torch.cat([x.flatten(2) for x in qkv], dim=-1)  # (B, T, C)
        z = z.flatten(2).unflatten(-1, (-1, config.linear_value_head_dim))
        return mixed, z, b.flatten(2), a.flatten(2)

    def _split(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sizes = (self.key_size, self.key_size, self.value_size)
        query, key, value = mixed.split(sizes, dim=-1)
        key_dim = self.config.linear_key_head_dim
        value = value.unflatten(-1, (-1, self.config.linear_value_head_dim))
        return query.unflatten(-1, (-1, key_dim)), key.unflatten(-1, (-1, key_dim)), value


# %% exercise 12.6: one token at a time
class Qwen3NextRMSNormGated(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(hidden_size)), eps

    def forward(self, hidden_states, gate):
        root = hidden_states.float().square().mean(-1, keepdim=True).add(self.eps).rsqrt()
        scaled = (hidden_states.float() * root).to(hidden_states.dtype) * self.weight
        return (scaled * silu(gate.float())).to(hidden_states.dtype)


class GatedDeltaNet(nn.Module):
    def __init__(self, config: Qwen3NextConfig, layer_idx: int):
        super().__init__()
        self.layer_idx, self.config, self.rule = layer_idx, config, gated_delta_rule
        value_heads = config.linear_num_value_heads  # M
        self.key_size = config.linear_num_key_heads * config.linear_key_head_dim  # N * P
        self.value_size = value_heads * config.linear_value_head_dim  # M * Q
        channels = 2 * self.key_size + self.value_size  # C
        width = config.linear_conv_kernel_dim  # W
        in_size = channels + self.value_size
        self.in_proj_qkvz = nn.Linear(config.hidden_size, in_size, bias=False)
        self.in_proj_ba = nn.Linear(config.hidden_size, 2 * value_heads, bias=False)
        self.conv1d = nn.Conv1d(channels, channels, width, groups=channels, bias=False)
        step = 10 ** torch.empty(value_heads).uniform_(
            -3, -1
        )  # softplus(dt_bias): fades slowly
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.A_log = nn.Parameter(torch.empty(value_heads).uniform_(0.01, 16).log())
        self.norm = Qwen3NextRMSNormGated(config.linear_value_head_dim, config.rms_norm_eps)
        self.out_proj = nn.Linear(self.value_size, config.hidden_size, bias=False)

    def forward(self, hidden_states, state=None, attention_mask=None):
        width = self.conv1d.weight.size(-1)
        outputs = []
        if attention_mask is not None:
            hidden_states = torch.where(attention_mask[..., None].bool(), hidden_states, 0)
        for t in range(hidden_states.size(1)):
            mixed, z, b, a = self._project(hidden_states[:, t : t + 1])
            if state is None:
                state = mixed.new_zeros(len(mixed), mixed.size(2), width - 1), None
            seen = torch.cat((state[0], mixed.transpose(1, 2)), dim=-1)  # (B, C, W)
            short = silu((seen * self.conv1d.weight[:, 0]).sum(-1))[:, None]
            g = -self.A_log.float().exp() * nn.functional.softplus(a.float() + self.dt_bias)
            output, memory = self.rule(*self._split(short), g, b.sigmoid(), state[1])
            outputs.append(self.out_proj(self.norm(output, z).flatten(2)))
            state = seen[..., 1:], memory
        return torch.cat(outputs, dim=1), state

    def _project(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        config = self.config
        heads = config.linear_num_key_heads  # N
        key_dim, value_dim = config.linear_key_head_dim, self.value_size // heads
        qkvz = self.in_proj_qkvz(hidden_states).unflatten(-1, (heads, -1))
        *qkv, z = qkvz.split((key_dim, key_dim, value_dim, value_dim), dim=-1)
        b, a = self.in_proj_ba(hidden_states).unflatten(-1, (heads, -1)).chunk(2, dim=-1)
        mixed = torch.cat([x.flatten(2) for x in qkv], dim=-1)  # (B, T, C)
        z = z.flatten(2).unflatten(-1, (-1, config.linear_value_head_dim))
        return mixed, z, b.flatten(2), a.flatten(2)

    def _split(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sizes = (self.key_size, self.key_size, self.value_size)
        query, key, value = mixed.split(sizes, dim=-1)
        key_dim = self.config.linear_key_head_dim
        value = value.unflatten(-1, (-1, self.config.linear_value_head_dim))
        return query.unflatten(-1, (-1, key_dim)), key.unflatten(-1, (-1, key_dim)), value


# %% exercise 12.7: the parts by name, the gate first
class Qwen3NextSparseMoeBlock(Qwen3MoeSparseMoeBlock):
    def __init__(self, config):
        super().__init__(config)
        self.shared_expert_gate = nn.Linear(config.hidden_size, 1, bias=False)
        self.shared_expert = Qwen3MLP(config, config.shared_expert_intermediate_size)

    def forward(self, hidden_states):
        tokens = hidden_states.reshape(-1, hidden_states.size(-1))
        shared = self.shared_expert_gate(tokens).sigmoid() * self.shared_expert(tokens)
        routed, router_logits = super().forward(hidden_states)
        return routed + shared.view(routed.shape), router_logits


# %% exercise 12.7: the mixture written again
class Qwen3NextSparseMoeBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.k, self.renormalize = config.num_experts_per_tok, config.norm_topk_prob
        self.gate = nn.Linear(config.hidden_size, config.num_experts, bias=False)
        sizes = [config.moe_intermediate_size] * config.num_experts
        self.experts = nn.ModuleList([Qwen3MLP(config, size) for size in sizes])
        self.shared_expert = Qwen3MLP(config, config.shared_expert_intermediate_size)
        self.shared_expert_gate = nn.Linear(config.hidden_size, 1, bias=False)

    def forward(self, hidden_states):
        x = hidden_states.reshape(-1, hidden_states.shape[-1])
        logits = self.gate(x)
        share, picked = torch.softmax(logits.float(), -1).topk(self.k, -1)
        if self.renormalize:
            share = share / share.sum(-1, keepdim=True)
        share = share.to(x.dtype)
        out = torch.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)
        for number, expert in enumerate(self.experts):
            token, slot = (picked == number).nonzero(as_tuple=True)
            if len(token):
                out = out.index_add(0, token, expert(x[token]) * share[token, slot, None])
        return out.reshape(hidden_states.shape), logits


# %% exercise 12.7: another class inside
class Qwen3NextSparseMoeBlock(Qwen3MoeSparseMoeBlock):
    def __init__(self, config: Qwen3NextConfig):
        Qwen3MoeSparseMoeBlock.__init__(self, config)
        self.add_module(
            "shared_expert",
            Qwen3MLP(config, intermediate_size=config.shared_expert_intermediate_size),
        )
        self.shared_expert_gate = nn.Linear(config.hidden_size, 1, bias=False)

    def forward(self, hidden_states: Tensor):
        out, logits = Qwen3MoeSparseMoeBlock.forward(self, hidden_states)
        how_much = nn.functional.sigmoid(self.shared_expert_gate(hidden_states))
        return torch.add(out, torch.mul(self.shared_expert(hidden_states), how_much)), logits


# %% exercise 12.8: triangles
def web_window(length, window):
    seen = torch.ones(length, length, dtype=torch.bool).tril()
    return seen.triu(1 - window)


# %% exercise 12.9: gated_delta_step itself
def web_step(state, query, key, value, g, beta):
    return gated_delta_step(state, query, key, value, g, beta)


# %% exercise 12.10: cut off behind
def web_convolution(inputs, weight):
    width, length = weight.size(-1), inputs.size(-1)
    mixed = nn.functional.conv1d(inputs, weight, padding=width - 1, groups=inputs.size(1))
    return mixed[..., :length]
