# Right answers of lab 02, written otherwise. Every one has to earn full points.


# %% exercise 2.1: outer product of flat positions
def rope_cos_sin(position_ids, head_dim, rope_theta):
    inv_freq = rope_theta ** (-torch.arange(0, head_dim, 2).float() / head_dim)
    angles = torch.outer(position_ids.reshape(-1).float(), inv_freq)
    angles = angles.reshape(*position_ids.shape, head_dim // 2)
    return torch.cos(angles).tile(2), torch.sin(angles).tile(2)


# %% exercise 2.1: einsum, exp of a logarithm
def rope_cos_sin(position_ids, head_dim, rope_theta):
    inv_freq = torch.exp(-math.log(rope_theta) * torch.arange(0, head_dim, 2) / head_dim)
    half = torch.einsum("...t,d->...td", position_ids.float(), inv_freq)
    return torch.cat((half.cos(), half.cos()), -1), torch.cat((half.sin(), half.sin()), -1)


# %% exercise 2.1: complex numbers
def rope_cos_sin(position_ids, head_dim, rope_theta):
    pair = torch.arange(head_dim // 2, dtype=torch.float32)
    angles = position_ids.unsqueeze(-1) * rope_theta ** (-2 * pair / head_dim)
    turns = torch.polar(torch.ones_like(angles), angles)
    turns = torch.cat((turns, turns), dim=-1)
    return turns.real, turns.imag


# %% exercise 2.1: float64 inside
def rope_cos_sin(position_ids, head_dim, rope_theta):
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    angles = position_ids.double()[..., None] / torch.pow(rope_theta, exponents)
    angles = torch.concat([angles] * 2, dim=-1)
    return angles.cos().float(), angles.sin().float()


# %% exercise 2.1: a loop over the pairs
def rope_cos_sin(position_ids, head_dim, rope_theta):
    cos = torch.zeros(*position_ids.shape, head_dim)
    sin = torch.zeros(*position_ids.shape, head_dim)
    for i in range(head_dim // 2):
        angle = position_ids.float() * rope_theta ** (-2 * i / head_dim)
        cos[..., i] = cos[..., i + head_dim // 2] = torch.cos(angle)
        sin[..., i] = sin[..., i + head_dim // 2] = torch.sin(angle)
    return cos, sin


# %% exercise 2.1: a table that is long enough, and a list
def rope_cos_sin(position_ids, head_dim, rope_theta):
    length = int(position_ids.max()) + 1
    inv_freq = 1 / rope_theta ** (torch.arange(0, head_dim, 2) / head_dim)
    freqs = torch.arange(length)[:, None] * inv_freq[None, :]
    emb = torch.cat((freqs, freqs), dim=-1)
    return [emb.cos()[position_ids], emb.sin()[position_ids]]


# %% exercise 2.2: slices
def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat([-x[..., half:], x[..., :half]], dim=-1)


# %% exercise 2.2: roll and a row of signs
def rotate_half(x):
    half = x.shape[-1] // 2
    signs = torch.ones(x.shape[-1], dtype=x.dtype)
    signs[:half] = -1
    return x.roll(half, dims=-1) * signs


# %% exercise 2.2: complex numbers, times i
def rotate_half(x):
    a, b = x.float().split(x.shape[-1] // 2, dim=-1)
    turned = torch.complex(a, b) * 1j
    return torch.cat((turned.real, turned.imag), dim=-1).to(x.dtype)


# %% exercise 2.2: a matrix
def rotate_half(x):
    half = x.shape[-1] // 2
    eye, zero = torch.eye(half), torch.zeros(half, half)
    matrix = torch.cat((torch.cat((zero, eye), 1), torch.cat((-eye, zero), 1)), 0)
    return x @ matrix.to(x.dtype)


# %% exercise 2.2: filled in place, in a copy
def rotate_half(x):
    out = torch.empty_like(x)
    half = x.shape[-1] // 2
    out[..., :half] = x[..., half:].neg()
    out[..., half:] = x[..., :half]
    return out


# %% exercise 2.2: unflatten
def rotate_half(x):
    pairs = x.unflatten(-1, (2, -1))
    return torch.stack((-pairs[..., 1, :], pairs[..., 0, :]), dim=-2).flatten(-2)


# %% exercise 2.3: one helper for both, in float32
def turn(x, cos, sin):
    wide = x.float()
    turned = wide * cos + rotate_half(wide) * sin
    return turned.to(x.dtype)


def apply_rotary_pos_emb(query, key, cos, sin):
    cos, sin = cos[..., None, :, :], sin[..., None, :, :]
    return turn(query, cos, sin), turn(key, cos, sin)


# %% exercise 2.3: complex numbers
def apply_rotary_pos_emb(query, key, cos, sin):
    half = cos.shape[-1] // 2
    turns = torch.complex(cos[..., :half].float(), sin[..., :half].float()).unsqueeze(-3)

    def turn(x):
        first, second = x.float().chunk(2, dim=-1)
        turned = torch.complex(first, second) * turns
        return torch.cat((turned.real, turned.imag), dim=-1).type_as(x)

    return turn(query), turn(key)


# %% exercise 2.3: halves and one half of the tables
def apply_rotary_pos_emb(query, key, cos, sin):
    half = query.shape[-1] // 2
    c = cos[..., :half].to(query.dtype).unsqueeze(-3)
    s = sin[..., half:].to(query.dtype).unsqueeze(-3)
    out = []
    for x in (query, key):
        a, b = x[..., :half], x[..., half:]
        out.append(torch.cat((a * c - b * s, b * c + a * s), dim=-1))
    return tuple(out)


# %% exercise 2.3: einsum
def apply_rotary_pos_emb(query, key, cos, sin):
    cos = cos.expand(query.shape[0], -1, -1).to(query.dtype)
    sin = sin.expand(query.shape[0], -1, -1).to(query.dtype)

    def turn(x):
        plain = torch.einsum("bhtd,btd->bhtd", x, cos)
        return plain + torch.einsum("bhtd,btd->bhtd", rotate_half(x), sin)

    return turn(query), turn(key)


# %% exercise 2.3: all heads at once, sin before the rotation
def apply_rotary_pos_emb(query, key, cos, sin):
    both = torch.cat((query, key), dim=1)
    cos, sin = cos.to(both.dtype), sin.to(both.dtype)
    if cos.dim() == 2:
        cos, sin = cos[None], sin[None]
    both = both * cos[:, None] + rotate_half(both * sin[:, None])
    return both.split((query.size(1), key.size(1)), dim=1)


# %% exercise 2.3: the tables stay wide, the products are cast
def apply_rotary_pos_emb(query, key, cos, sin):
    cos, sin = cos.unsqueeze(-3), sin.unsqueeze(-3)
    q = (query * cos + rotate_half(query) * sin).to(query.dtype)
    k = (key * cos + rotate_half(key) * sin).to(key.dtype)
    return q, k


# %% exercise 2.4: stacked and cut
def sinusoidal_embedding(position_ids, hidden_size):
    even = torch.arange(0, hidden_size, 2).float()
    angles = position_ids.unsqueeze(-1) * torch.exp(-math.log(10000.0) * even / hidden_size)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[..., :hidden_size]


# %% exercise 2.4: one phase for each feature
def sinusoidal_embedding(position_ids, hidden_size):
    feature = torch.arange(hidden_size)
    angles = position_ids[..., None] / 10000 ** ((feature - feature % 2) / hidden_size)
    return torch.where(feature % 2 == 0, torch.sin(angles), torch.cos(angles))


# %% exercise 2.4: a loop over the features
def sinusoidal_embedding(position_ids, hidden_size):
    columns = []
    for feature in range(hidden_size):
        wave = torch.cos if feature % 2 else torch.sin
        rate = 10000.0 ** (-2 * (feature // 2) / hidden_size)
        columns.append(wave(position_ids.float() * rate))
    return torch.stack(columns, dim=-1)


# %% exercise 2.4: float64 and empty
def sinusoidal_embedding(position_ids, hidden_size):
    rate = torch.pow(10000.0, -torch.arange(0, hidden_size, 2).double() / hidden_size)
    angles = torch.einsum("...t,i->...ti", position_ids.double(), rate)
    out = torch.empty(*position_ids.shape, hidden_size)
    out[..., ::2] = torch.sin(angles)
    out[..., 1::2] = torch.cos(angles[..., : hidden_size // 2])
    return out


# %% exercise 2.5: the published recursion
def alibi_slopes(n):
    if math.log2(n).is_integer():
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]
    power = 2 ** math.floor(math.log2(n))
    return alibi_slopes(power) + alibi_slopes(2 * power)[0::2][: n - power]


def alibi_bias(num_heads, query_length, key_length):
    slopes = torch.tensor(alibi_slopes(num_heads)).view(-1, 1, 1)
    i = torch.arange(key_length - query_length, key_length).view(-1, 1)
    j = torch.arange(key_length).view(1, -1)
    return slopes * -(i - j).abs()


# %% exercise 2.5: loops
def alibi_bias(num_heads, query_length, key_length):
    power = 1
    while power * 2 <= num_heads:
        power *= 2
    bias = torch.zeros(num_heads, query_length, key_length)
    for h in range(num_heads):
        if h < power:
            slope = 2.0 ** (-8 * (h + 1) / power)
        else:
            slope = 2.0 ** (-4 * (2 * (h - power) + 1) / power)
        for t in range(query_length):
            for j in range(key_length):
                bias[h, t, j] = -slope * abs(key_length - query_length + t - j)
    return bias


# %% exercise 2.5: einsum of tensors
def alibi_bias(num_heads, query_length, key_length):
    power = 1 << (num_heads.bit_length() - 1)
    near = torch.pow(2.0, -8.0 * torch.arange(1, power + 1) / power)
    extra = torch.pow(2.0, -4.0 * torch.arange(1, 2 * power + 1, 2) / power)
    slopes = torch.cat((near, extra))[:num_heads]
    places = torch.arange(key_length, dtype=torch.float32)
    distance = (places[-query_length:, None] - places[None]).abs()
    return -torch.einsum("h,ts->hts", slopes, distance)


# %% exercise 2.6: a loop over the queries
def relative_scores(query, key, relative_key, content_bias, position_bias):
    B, H, T, _ = query.shape
    S = key.shape[2]
    scores = torch.full((B, H, T, S), float("-inf"), dtype=query.dtype)
    for t in range(T):
        i = S - T + t
        by_content = torch.einsum("bhd,bhsd->bhs", query[:, :, t] + content_bias, key)
        by_distance = torch.einsum("bhd,hsd->bhs", query[:, :, t] + position_bias, relative_key)
        scores[:, :, t, : i + 1] = by_content[..., : i + 1] + by_distance[..., : i + 1].flip(-1)
    return scores


# %% exercise 2.6: relative keys laid out for every pair
def relative_scores(query, key, relative_key, content_bias, position_bias):
    T, S = query.shape[-2], key.shape[-2]
    i = torch.arange(S - T, S).unsqueeze(1)
    distance = i - torch.arange(S)
    pairs = relative_key[:, distance.clamp(min=0)]  # (H, T, S, D)
    content = torch.einsum("bhtd,bhsd->bhts", query + content_bias.unsqueeze(1), key)
    position = torch.einsum("bhtd,htsd->bhts", query + position_bias.unsqueeze(1), pairs)
    return torch.where(distance >= 0, content + position, torch.tensor(-torch.inf))


# %% exercise 2.6: the shift of the paper, and an added mask
def relative_scores(query, key, relative_key, content_bias, position_bias):
    B, H, T, _ = query.shape
    S = key.shape[2]
    u, v = content_bias[None, :, None, :], position_bias[None, :, None, :]
    content = torch.matmul(query + u, key.transpose(2, 3))
    far_first = relative_key.flip(1)
    position = torch.matmul(query + v, far_first.transpose(1, 2))
    padded = torch.cat((torch.zeros(B, H, T, 1), position), dim=-1)
    shifted = padded.view(B, H, S + 1, T)[:, :, 1:].reshape(B, H, T, S)
    future = torch.full((T, S), float("-inf")).triu(S - T + 1)
    return content + shifted + future


# %% exercise 2.7: step by step as in the paper
def yarn_cos_sin(
    position_ids,
    head_dim,
    rope_theta,
    factor,
    original_max_position_embeddings,
    attention_factor=None,
    beta_fast=32.0,
    beta_slow=1.0,
):
    if attention_factor is None:
        attention_factor = 0.1 * math.log(factor) + 1.0
    pos_freqs = rope_theta ** (torch.arange(0, head_dim, 2, dtype=torch.float) / head_dim)
    inv_freq_extrapolation = 1.0 / pos_freqs
    inv_freq_interpolation = 1.0 / (factor * pos_freqs)

    def correction(rotations):
        length = original_max_position_embeddings
        return (head_dim * math.log(length / (rotations * 2 * math.pi))) / (
            2 * math.log(rope_theta)
        )

    low = max(math.floor(correction(beta_fast)), 0)
    high = min(math.ceil(correction(beta_slow)), head_dim - 1)
    if low == high:
        high += 0.001
    ramp = torch.clamp((torch.arange(head_dim // 2).float() - low) / (high - low), 0, 1)
    keep = 1 - ramp
    inv_freq = inv_freq_interpolation * (1 - keep) + inv_freq_extrapolation * keep
    freqs = position_ids.unsqueeze(-1).float() * inv_freq
    emb = torch.cat((freqs, freqs), dim=-1)
    return emb.cos() * attention_factor, emb.sin() * attention_factor


# %% exercise 2.7: on top of rope_cos_sin, each pair with a position of its own
def yarn_cos_sin(
    position_ids,
    head_dim,
    rope_theta,
    factor,
    original_max_position_embeddings,
    attention_factor=None,
    beta_fast=32.0,
    beta_slow=1.0,
):
    lengths = [
        original_max_position_embeddings / (2 * math.pi * b) for b in (beta_fast, beta_slow)
    ]
    edges = [head_dim * math.log(n) / (2 * math.log(rope_theta)) for n in lengths]
    low = max(math.floor(edges[0]), 0)
    high = max(min(math.ceil(edges[1]), head_dim - 1), low + 1e-3)
    columns = []
    for i in range(head_dim // 2):
        ramp = min(max((i - low) / (high - low), 0.0), 1.0)
        speed = rope_theta ** (-2 * i / head_dim) * ((1 - ramp) + ramp / factor)
        columns.append(position_ids.float() * speed)
    angles = torch.stack(columns + columns, dim=-1)
    scale = 0.1 * math.log(factor) + 1 if attention_factor is None else attention_factor
    return scale * torch.cos(angles), scale * torch.sin(angles)


# %% exercise 2.7: lerp, float64
def yarn_cos_sin(
    position_ids,
    head_dim,
    rope_theta,
    factor,
    original_max_position_embeddings,
    attention_factor=None,
    beta_fast=32.0,
    beta_slow=1.0,
):
    pair = torch.arange(head_dim // 2, dtype=torch.float64)
    turns = torch.tensor([beta_fast, beta_slow], dtype=torch.float64)
    wave = torch.log(original_max_position_embeddings / (2 * torch.pi * turns))
    low, high = (head_dim * wave / (2 * math.log(rope_theta))).tolist()
    low, high = max(math.floor(low), 0), min(math.ceil(high), head_dim - 1)
    high = max(high, low + 0.001)
    ramp = ((pair - low) / (high - low)).clamp(0, 1)
    fast = torch.pow(rope_theta, -2 * pair / head_dim)
    angles = position_ids[..., None].double() * torch.lerp(fast, fast / factor, ramp)
    scale = attention_factor if attention_factor is not None else 1 + 0.1 * math.log(factor)
    cos = (scale * angles.cos()).float()
    sin = (scale * angles.sin()).float()
    return torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)


# %% exercise 2.8: indices
class LearnedPositions(nn.Module):
    def __init__(self, max_position_embeddings, hidden_size):
        super().__init__()
        self.size = max_position_embeddings
        self.wpe = nn.Embedding(self.size, hidden_size)

    def forward(self, hidden_states, start=0):
        places = torch.arange(hidden_states.shape[1], device=hidden_states.device) + start
        if places[0] < 0 or places[-1] >= self.size:
            raise ValueError(f"place {places[-1]} of {self.size}")
        return hidden_states + self.wpe(places)[None]


# %% exercise 2.8: the lookup's own error, said anew
class LearnedPositions(nn.Module):
    def __init__(self, max_position_embeddings: int, hidden_size: int):
        super().__init__()
        self.wpe = nn.Embedding(max_position_embeddings, hidden_size)

    def forward(self, hidden_states: Tensor, start: int = 0) -> Tensor:
        batch, length, _ = hidden_states.shape
        places = torch.arange(start, start + length).expand(batch, -1)  # (B, T)
        try:
            return self.wpe(places).add(hidden_states)
        except IndexError as error:
            rows = len(self.wpe.weight)
            raise ValueError(f"no row for place {start + length - 1} of {rows}") from error


# %% exercise 2.8: a one for each place, times the table
class LearnedPositions(nn.Module):
    def __init__(self, max_position_embeddings, hidden_size):
        super().__init__()
        self.wpe = nn.Embedding(max_position_embeddings, hidden_size)

    def forward(self, hidden_states, start=0):
        rows = self.wpe.weight.size(0)
        if not 0 <= start <= rows - hidden_states.size(-2):
            raise ValueError(f"{hidden_states.size(-2)} tokens from {start} on, {rows} rows")
        ones = torch.eye(rows, dtype=hidden_states.dtype)[
            start : start + hidden_states.size(-2)
        ]
        return hidden_states + ones @ self.wpe.weight


# %% exercise 2.9: rope_cos_sin itself
def web_model_rotary(config, position_ids):
    return rope_cos_sin(position_ids, config["head_dim"], config["rope_theta"])


# %% exercise 2.10: rotate_half
def web_rope(x, cos, sin):
    return x * cos + rotate_half(x) * sin
