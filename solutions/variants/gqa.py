# Right answers of lab 03, written otherwise. Every one has to earn full points.

# %% exercise 3.1: tril
def causal_mask(query_length, key_length):
    ones = torch.ones(query_length, key_length, dtype=torch.bool)
    return torch.tril(ones, diagonal=key_length - query_length)


# %% exercise 3.1: the last rows of the square
def causal_mask(query_length: int, key_length: int) -> Tensor:
    square = torch.full((key_length, key_length), True).triu(1).logical_not()
    return square[key_length - query_length :]


# %% exercise 3.1: a loop
def causal_mask(query_length, key_length):
    past = key_length - query_length
    mask = torch.zeros(query_length, key_length, dtype=torch.bool)
    for row in range(query_length):
        mask[row, : past + row + 1] = True
    return mask


# %% exercise 3.2: einsum, hidden with -inf
def scaled_dot_product_attention(query, key, value, mask=None, scale=None):
    if scale is None:
        scale = 1 / query.shape[-1] ** 0.5
    scores = torch.einsum("bhtd,bhsd->bhts", query, key) * scale
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    return torch.einsum("bhts,bhsd->bhtd", weights, value)


# %% exercise 3.2: scaled query, everything in float32, softmax by hand
def scaled_dot_product_attention(query, key, value, mask=None, scale=None):
    scale = query.size(-1) ** -0.5 if scale is None else scale
    scores = (query.float() * scale) @ key.float().transpose(-2, -1)
    allowed = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
    scores = torch.where(allowed, scores, torch.finfo(torch.float32).min)
    powers = (scores - scores.amax(dim=-1, keepdim=True)).exp() * allowed
    weights = powers / powers.sum(dim=-1, keepdim=True)
    return (weights @ value.float()).to(query.dtype)


# %% exercise 3.2: a bool mask turned into one to add
def scaled_dot_product_attention(query, key, value, mask=None, scale=None):
    if scale is None:
        scale = query.size(-1) ** -0.5
    scores = torch.matmul(query, key.transpose(2, 3)) * scale
    if mask is not None:
        bias = torch.zeros(mask.shape, dtype=query.dtype)
        scores = scores + bias.masked_fill(mask.logical_not(), torch.finfo(query.dtype).min)
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32)
    return torch.matmul(weights.to(query.dtype), value)


# %% exercise 3.2: a loop over the queries
def scaled_dot_product_attention(query, key, value, mask=None, scale=None):
    scale = query.size(-1) ** -0.5 if scale is None else scale
    shape = (*query.shape[:3], key.size(2))
    mask = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
    rows = []
    for t in range(query.size(2)):
        scores = (query[:, :, t, None] * key).sum(-1) * scale
        weights = scores.float().masked_fill(~mask[:, :, t], -1e30).softmax(-1)
        rows.append((weights.to(value.dtype)[..., None] * value).sum(2))
    return torch.stack(rows, dim=2)


# %% exercise 3.3: expand and reshape
def repeat_kv(hidden_states: Tensor, n_rep: int) -> Tensor:
    batch, heads, length, size = hidden_states.shape
    if n_rep == 1:
        return hidden_states
    copies = hidden_states[:, :, None].expand(batch, heads, n_rep, length, size)
    return copies.reshape(batch, heads * n_rep, length, size)


# %% exercise 3.3: an index
def repeat_kv(hidden_states, n_rep):
    reads = torch.arange(hidden_states.size(1) * n_rep) // n_rep
    return hidden_states[:, reads]


# %% exercise 3.3: a list of heads
def repeat_kv(hidden_states, n_rep):
    heads = [h for h in hidden_states.unbind(1) for _ in range(n_rep)]
    return torch.stack(heads, dim=1)


# %% exercise 3.3: stack and flatten
def repeat_kv(hidden_states, n_rep):
    return torch.stack([hidden_states] * n_rep, dim=2).flatten(1, 2)


# %% exercise 3.4: as in transformers
class Qwen3Attention(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.head_dim
        self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
        self.scaling = self.head_dim**-0.5
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        bias = config.attention_bias
        self.q_proj = nn.Linear(config.hidden_size, heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(config.hidden_size, kv_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(config.hidden_size, kv_heads * self.head_dim, bias=bias)
        self.o_proj = nn.Linear(heads * self.head_dim, config.hidden_size, bias=bias)
        self.q_norm = RMSNorm(self.head_dim, eps=config.rms_norm_eps)
        self.k_norm = RMSNorm(self.head_dim, eps=config.rms_norm_eps)

    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        query = self.q_norm(self.q_proj(hidden_states).view(shape)).transpose(1, 2)
        key = self.k_norm(self.k_proj(hidden_states).view(shape)).transpose(1, 2)
        value = self.v_proj(hidden_states).view(shape).transpose(1, 2)
        query, key = apply_rotary_pos_emb(query, key, cos, sin)
        if cache is not None:
            key, value = cache.update(self.layer_idx, key, value)
        key = repeat_kv(key, self.num_key_value_groups)
        value = repeat_kv(value, self.num_key_value_groups)
        mixed = scaled_dot_product_attention(query, key, value, mask, self.scaling)
        mixed = mixed.transpose(1, 2).reshape(*hidden_states.shape[:-1], -1).contiguous()
        return self.o_proj(mixed)


# %% exercise 3.4: einsum with an axis for the queries of a KV head, nothing repeated
class Qwen3Attention(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.K, self.D, self.layer_idx = config.num_key_value_heads, config.head_dim, layer_idx
        self.H = config.num_attention_heads
        E, bias = config.hidden_size, config.attention_bias
        self.o_proj = nn.Linear(self.H * self.D, E, bias)
        self.v_proj = nn.Linear(E, self.K * self.D, bias)
        self.k_proj = nn.Linear(E, self.K * self.D, bias)
        self.q_proj = nn.Linear(E, self.H * self.D, bias)
        self.k_norm = RMSNorm(self.D, config.rms_norm_eps)
        self.q_norm = RMSNorm(self.D, config.rms_norm_eps)

    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        B, T, _ = hidden_states.shape
        q = self.q_norm(self.q_proj(hidden_states).reshape(B, T, self.H, self.D))
        k = self.k_norm(self.k_proj(hidden_states).reshape(B, T, self.K, self.D))
        v = self.v_proj(hidden_states).reshape(B, T, self.K, self.D).permute(0, 2, 1, 3)
        q, k = apply_rotary_pos_emb(q.permute(0, 2, 1, 3), k.permute(0, 2, 1, 3), cos, sin)
        if cache is not None:
            k, v = cache.update(self.layer_idx, k, v)
        q = q.unflatten(1, (self.K, -1))
        scores = torch.einsum("bkgtd,bksd->bkgts", q, k) / self.D**0.5
        if mask is not None:
            allowed = mask.expand(B, self.H, T, k.size(2)).unflatten(1, (self.K, -1))
            scores = scores.masked_fill(~allowed, float("-inf"))
        weights = scores.float().softmax(-1).to(v.dtype)
        mixed = torch.einsum("bkgts,bksd->btkgd", weights, v)
        return self.o_proj(mixed.reshape(B, T, -1))


# %% exercise 3.4: head by head
class Qwen3Attention(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.cfg, self.layer_idx = config, layer_idx
        D, E = config.head_dim, config.hidden_size
        for name, heads in (
            ("q_proj", config.num_attention_heads),
            ("k_proj", config.num_key_value_heads),
            ("v_proj", config.num_key_value_heads),
        ):
            self.add_module(name, nn.Linear(E, heads * D, bias=config.attention_bias))
        self.o_proj = nn.Linear(config.num_attention_heads * D, E, bias=config.attention_bias)
        self.q_norm = RMSNorm(D, config.rms_norm_eps)
        self.k_norm = RMSNorm(D, config.rms_norm_eps)

    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        D = self.cfg.head_dim
        per_key = self.cfg.num_attention_heads // self.cfg.num_key_value_heads
        queries = torch.stack(self.q_proj(hidden_states).split(D, dim=-1), 1)
        keys = torch.stack(self.k_proj(hidden_states).split(D, dim=-1), 1)
        values = torch.stack(self.v_proj(hidden_states).split(D, dim=-1), 1)
        queries, keys = self.q_norm(queries), self.k_norm(keys)
        queries, keys = apply_rotary_pos_emb(queries, keys, cos, sin)
        if cache is not None:
            keys, values = cache.update(self.layer_idx, keys, values)
        out = []
        for h in range(queries.size(1)):
            kv = slice(h // per_key, h // per_key + 1)
            one = queries[:, h : h + 1]
            part = mask if mask is None or mask.dim() < 4 else mask[:, :1]
            out.append(scaled_dot_product_attention(one, keys[:, kv], values[:, kv], part))
        return self.o_proj(torch.cat(out, dim=1).transpose(1, 2).flatten(-2))


# %% exercise 3.5: view and cat
class MultiHeadLatentAttention(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        c = config
        self.c, self.layer_idx, self.H = c, layer_idx, c.num_attention_heads
        self.qk = c.qk_nope_head_dim + c.qk_rope_head_dim
        self.q_a_proj = nn.Linear(c.hidden_size, c.q_lora_rank, bias=False)
        self.q_a_layernorm = RMSNorm(c.q_lora_rank, 1e-6)
        self.q_b_proj = nn.Linear(c.q_lora_rank, self.H * self.qk, bias=False)
        down = c.kv_lora_rank + c.qk_rope_head_dim
        self.kv_a_proj_with_mqa = nn.Linear(c.hidden_size, down, bias=False)
        self.kv_a_layernorm = RMSNorm(c.kv_lora_rank, 1e-6)
        up = self.H * (c.qk_nope_head_dim + c.v_head_dim)
        self.kv_b_proj = nn.Linear(c.kv_lora_rank, up, bias=False)
        self.o_proj = nn.Linear(self.H * c.v_head_dim, c.hidden_size, bias=False)

    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        B, T, _ = hidden_states.shape
        c, nope = self.c, self.c.qk_nope_head_dim
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(hidden_states)))
        q = q.view(B, T, self.H, self.qk).transpose(1, 2)
        down = self.kv_a_proj_with_mqa(hidden_states)[:, None]
        latent = self.kv_a_layernorm(down[..., : c.kv_lora_rank])
        turned, k_rope = apply_rotary_pos_emb(
            q[..., nope:], down[..., c.kv_lora_rank :], cos, sin
        )
        if cache is not None:
            latent, k_rope = cache.update(self.layer_idx, latent, k_rope)
        S = latent.size(2)
        kv = self.kv_b_proj(latent).reshape(B, S, self.H, -1).permute(0, 2, 1, 3)
        k = torch.cat([kv[..., :nope], k_rope.repeat(1, self.H, 1, 1)], -1)
        q = torch.cat([q[..., :nope], turned], -1)
        mixed = scaled_dot_product_attention(q, k, kv[..., nope:], mask)
        return self.o_proj(mixed.transpose(1, 2).reshape(B, T, -1))


# %% exercise 3.5: scores as two sums, expanded weights absorbed into the query
class MultiHeadLatentAttention(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.config, self.layer_idx = config, layer_idx
        heads, nope = config.num_attention_heads, config.qk_nope_head_dim
        rope, v = config.qk_rope_head_dim, config.v_head_dim
        E, latent = config.hidden_size, config.kv_lora_rank
        self.q_a_proj = nn.Linear(E, config.q_lora_rank, bias=False)
        self.q_a_layernorm = RMSNorm(config.q_lora_rank)
        self.q_b_proj = nn.Linear(config.q_lora_rank, heads * (nope + rope), bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(E, latent + rope, bias=False)
        self.kv_a_layernorm = RMSNorm(latent)
        self.kv_b_proj = nn.Linear(latent, heads * (nope + v), bias=False)
        self.o_proj = nn.Linear(heads * v, E, bias=False)

    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        c = self.config
        H, nope, rope = c.num_attention_heads, c.qk_nope_head_dim, c.qk_rope_head_dim
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(hidden_states)))
        q = q.unflatten(-1, (H, nope + rope)).transpose(1, 2)
        latent, key = self.kv_a_proj_with_mqa(hidden_states).tensor_split([c.kv_lora_rank], -1)
        latent, key = self.kv_a_layernorm(latent)[:, None], key[:, None]
        q_rope, key = apply_rotary_pos_emb(q[..., nope:], key, cos, sin)
        if cache is not None:
            latent, key = cache.update(self.layer_idx, latent, key)
        up = self.kv_b_proj.weight.unflatten(0, (H, -1))
        by_content = torch.einsum("bhtn,hnr->bhtr", q[..., :nope], up[:, :nope])
        scores = by_content @ latent.mT + q_rope @ key.mT
        scores = scores * (nope + rope) ** -0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        weights = scores.softmax(-1, dtype=torch.float32).to(q.dtype)
        mixed = torch.einsum("bhtr,hvr->bthv", weights @ latent, up[:, nope:])
        return self.o_proj(mixed.flatten(2))


# %% exercise 3.5: the norm of the latent after the cache
class MultiHeadLatentAttention(nn.Module):
    def __init__(self, config: MLAConfig, layer_idx: int):
        super().__init__()
        self.config, self.layer_idx = config, layer_idx
        heads, E = config.num_attention_heads, config.hidden_size
        self.sizes = (config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim)
        nope, rope, v = self.sizes
        self.q_a_proj = nn.Linear(E, config.q_lora_rank, bias=False)
        self.q_a_layernorm = RMSNorm(config.q_lora_rank)
        self.q_b_proj = nn.Linear(config.q_lora_rank, heads * (nope + rope), bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(E, config.kv_lora_rank + rope, bias=False)
        self.kv_a_layernorm = RMSNorm(config.kv_lora_rank)
        self.kv_b_proj = nn.Linear(config.kv_lora_rank, heads * (nope + v), bias=False)
        self.o_proj = nn.Linear(heads * v, E, bias=False)

    def heads(self, x):
        return x.unflatten(-1, (self.config.num_attention_heads, -1)).transpose(1, 2)

    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        nope, rope, v = self.sizes
        q = self.heads(self.q_b_proj(self.q_a_layernorm(self.q_a_proj(hidden_states))))
        q, q_rope = q.split([nope, rope], -1)
        down = self.kv_a_proj_with_mqa(hidden_states).unsqueeze(1)
        latent, k_rope = down.split([self.config.kv_lora_rank, rope], -1)
        q_rope, k_rope = apply_rotary_pos_emb(q_rope, k_rope, cos, sin)
        if cache is not None:
            latent, k_rope = cache.update(self.layer_idx, latent, k_rope)
        k, value = self.heads(self.kv_b_proj(self.kv_a_layernorm(latent)).squeeze(1)).split(
            [nope, v], -1
        )
        k = torch.cat([k, k_rope.expand(*k.shape[:-1], rope)], -1)
        q = torch.cat([q, q_rope], -1)
        mixed = scaled_dot_product_attention(q, k, value, mask, (nope + rope) ** -0.5)
        return self.o_proj(mixed.permute(0, 2, 1, 3).flatten(2))


# %% exercise 3.6: one way for both kinds
def masked_softmax(scores, mask):
    lowest = torch.finfo(scores.dtype).min
    if mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(~mask, lowest)
    sees = (mask > lowest).any(-1, keepdim=True)
    weights = torch.softmax(scores + mask.clamp_min(lowest), dim=-1, dtype=torch.float32)
    return (weights * sees).to(scores.dtype)


# %% exercise 3.6: the softmax by hand
def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    wide = scores.float()
    if mask.dtype == torch.bool:
        allowed = mask.expand_as(scores)
    else:
        allowed = (mask > torch.finfo(mask.dtype).min).expand_as(scores)
        wide = wide + torch.where(allowed, mask.float(), 0.0)
    top = torch.where(allowed, wide, -1e30).amax(-1, keepdim=True).detach()
    powers = torch.where(allowed, wide - top, 0.0).clamp_max(0.0).exp() * allowed
    return (powers / powers.sum(-1, keepdim=True).clamp_min(1e-20)).to(scores.dtype)


# %% exercise 3.6: blind queries see everything, then count for nothing
def masked_softmax(scores, mask):
    if mask.dtype != torch.bool:
        allowed = ~((mask == -torch.inf) | (mask == torch.finfo(mask.dtype).min))
        scores = scores + mask.masked_fill(~allowed, 0.0)
    else:
        allowed = mask
    blind = torch.logical_not(allowed).all(-1, keepdim=True)
    weights = torch.where(allowed | blind, scores, float("-inf")).softmax(-1)
    return weights.masked_fill(blind, 0)


# %% exercise 3.7: the parent's
class WebAttention(Qwen3Attention):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        return super().forward(hidden_states, cos, sin, mask, cache)
