# Right answers of lab 07, written otherwise. Every one has to earn full points.

# %% exercise 7.1: copy_ and narrow, uninitialised room
class KVCache:
    def __init__(self, num_hidden_layers, max_length):
        self.max_length = max_length
        self.lengths = [0] * num_hidden_layers
        self.keys = [None] * num_hidden_layers
        self.values = [None] * num_hidden_layers

    @property
    def length(self):
        return sorted(self.lengths)[0]

    def update(self, layer_idx, key, value):
        start, new = self.lengths[layer_idx], key.shape[2]
        if start + new > self.max_length:
            raise ValueError(f"no room for {start + new} tokens")
        for store, tensor in ((self.keys, key), (self.values, value)):
            if store[layer_idx] is None:
                shape = (*tensor.shape[:2], self.max_length, tensor.shape[3])
                store[layer_idx] = torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
            if store[layer_idx].size(0) != tensor.size(0):
                raise ValueError("another batch")
            store[layer_idx].narrow(2, start, new).copy_(tensor)
        self.lengths[layer_idx] += new
        end = self.lengths[layer_idx]
        return self.keys[layer_idx].narrow(2, 0, end), self.values[layer_idx].narrow(2, 0, end)


# %% exercise 7.1: a module with index_copy_, room laid out token first
class KVCache(nn.Module):
    def __init__(self, num_hidden_layers: int, max_length: int):
        super().__init__()
        self.max_length = max_length
        self.lengths = [0] * num_hidden_layers
        self.keys = [None] * num_hidden_layers
        self.values = [None] * num_hidden_layers

    @property
    def length(self):
        return min(self.lengths)

    def update(self, layer_idx, key, value):
        start = self.lengths[layer_idx]
        end = start + key.size(2)
        if end > self.max_length:
            raise ValueError("full")
        if start == 0:
            b, k = key.shape[:2]
            self.keys[layer_idx] = key.new_zeros(b, self.max_length, k, key.size(3))
            self.values[layer_idx] = value.new_zeros(b, self.max_length, k, value.size(3))
        elif self.keys[layer_idx].size(0) != key.size(0):
            raise ValueError("batch size")
        places = torch.arange(start, end, device=key.device)
        self.keys[layer_idx].index_copy_(1, places, key.transpose(1, 2))
        self.values[layer_idx].index_copy_(1, places, value.transpose(1, 2))
        self.lengths[layer_idx] = end
        shown = [t[layer_idx][:, :end].transpose(1, 2) for t in (self.keys, self.values)]
        return tuple(shown)


# %% exercise 7.1: gives back copies in a list
class KVCache:
    def __init__(self, num_hidden_layers, max_length):
        self.max_length, self.lengths = max_length, [0] * num_hidden_layers
        self.keys, self.values = [None] * num_hidden_layers, [None] * num_hidden_layers

    @property
    def length(self):
        return int(torch.tensor(self.lengths).min())

    def update(self, layer_idx, key, value):
        start = self.lengths[layer_idx]
        end = start + key.size(2)
        if end > self.max_length or (start and len(self.keys[layer_idx]) != len(key)):
            raise ValueError(f"{end} tokens, batch {len(key)}")
        if not start:
            self.keys[layer_idx] = self.room(key)
            self.values[layer_idx] = self.room(value)
        self.keys[layer_idx][..., start:end, :] = key
        self.values[layer_idx][..., start:end, :] = value
        self.lengths[layer_idx] = end
        return [
            self.keys[layer_idx][..., :end, :].clone(),
            self.values[layer_idx][..., :end, :].clone(),
        ]

    def room(self, new):
        places = self.max_length - new.size(2)
        return nn.functional.pad(torch.zeros_like(new), (0, 0, 0, places))


# %% exercise 7.1: one tensor for all layers, keys and values apart
class KVCache:
    def __init__(self, num_hidden_layers, max_length):
        self.layers, self.max_length = num_hidden_layers, max_length
        self.lengths = torch.zeros(num_hidden_layers, dtype=torch.long)
        self.keys = self.values = None

    length = property(lambda self: self.lengths.min().item())

    def update(self, layer_idx, key, value):
        start = int(self.lengths[layer_idx])
        if start + key.shape[-2] > self.max_length:
            raise ValueError("there is no room left")
        if self.keys is None:
            batch, heads = key.shape[:2]
            sizes = (self.layers, batch, heads, self.max_length)
            self.keys = key.new_empty(*sizes, key.shape[-1])
            self.values = value.new_empty(*sizes, value.shape[-1])
        if self.keys.size(1) != len(key):
            raise ValueError("made for another batch")
        both = []
        for room, new in ((self.keys[layer_idx], key), (self.values[layer_idx], value)):
            room[..., start : start + new.shape[-2], :] = new
            both.append(room[..., : start + new.shape[-2], :])
        self.lengths[layer_idx] += key.shape[-2]
        return both[0], both[1]


# %% exercise 7.2: a race of exponentials, over what is left in the order of the vocabulary
def sample_next_token(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if not 0 <= temperature < float("inf"):
        raise ValueError("no such temperature")
    if (top_k is not None and top_k < 1) or (top_p is not None and not 0 < top_p <= 1):
        raise ValueError("no such cut")
    if temperature == 0:
        return logits.argmax(1)
    scores = logits.to(torch.float32).div(temperature)
    order = scores.argsort(dim=1, descending=True)
    place = order.argsort(dim=1)
    if top_k is not None:
        scores = scores.where(place < top_k, torch.tensor(-1e30))
    probs = scores.softmax(1)
    if top_p is not None:
        together = probs.gather(1, order).cumsum(1)
        count = (together < top_p).sum(1, keepdim=True) + 1
        probs = probs * (place < count)
    waiting = torch.empty_like(probs).exponential_(generator=generator)
    return (probs / waiting).argmax(1)


# %% exercise 7.2: Gumbel noise
def sample_next_token(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if not 0 <= temperature < float("inf") or (top_k is not None and top_k < 1):
        raise ValueError("impossible")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError("impossible")
    if temperature == 0:
        return logits.argmax(-1)
    scores = logits.float() / temperature
    if top_k is not None:
        bound = scores.topk(min(top_k, scores.size(-1)), dim=-1).values[:, -1:]
        scores = scores.masked_fill(scores < bound, -torch.inf)
    if top_p is not None and top_p < 1:
        ordered, index = scores.sort(dim=-1, descending=True)
        probs = ordered.softmax(-1)
        drop = probs.cumsum(-1) - probs >= top_p
        drop = torch.zeros_like(drop).scatter(-1, index, drop)
        scores = scores.masked_fill(drop, -torch.inf)
    noise = torch.rand(scores.shape, generator=generator).clamp(1e-20, 1 - 1e-7)
    return (scores - (-noise.log()).log()).argmax(dim=-1)


# %% exercise 7.2: inverse of the cumulative sum
def sample_next_token(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if temperature < 0 or temperature == float("inf") or temperature != temperature:
        raise ValueError(f"temperature {temperature}")
    if (top_k or 1) < 1 or top_k == 0 or not 0 < (1.0 if top_p is None else top_p) <= 1:
        raise ValueError(f"top_k {top_k}, top_p {top_p}")
    if temperature == 0:
        return logits.max(dim=-1).indices
    probs, ids = torch.softmax(logits.double() / temperature, -1).sort(-1, descending=True)
    if top_k is not None:
        probs = probs * (torch.arange(probs.size(-1)) < top_k)
        probs = probs / probs.sum(-1, keepdim=True)
    if top_p is not None and top_p < 1:
        probs = probs * (probs.cumsum(-1) - probs < top_p)
    total = probs.cumsum(-1)
    point = torch.rand(len(probs), 1, generator=generator, dtype=torch.double) * total[:, -1:]
    rank = torch.searchsorted(total, point, right=True).clamp(max=probs.size(-1) - 1)
    return ids.gather(1, rank)[:, 0]


# %% exercise 7.2: ascending order, as transformers does it
def sample_next_token(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if not 0 <= temperature < float("inf"):
        raise ValueError("temperature")
    if top_k is not None and top_k < 1:
        raise ValueError("top_k")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError("top_p")
    if temperature == 0:
        return torch.argmax(logits, dim=-1)
    scores = logits.to(torch.float32) / temperature
    if top_k is not None:
        k = min(top_k, scores.size(-1))
        scores = torch.where(scores < scores.topk(k)[0][..., -1, None], -float("inf"), scores)
    if top_p is not None and top_p < 1.0:
        ordered, index = torch.sort(scores, descending=False)
        drop = ordered.softmax(dim=-1).cumsum(dim=-1) <= 1 - top_p
        drop[..., -1:] = False
        scores = scores.masked_fill(drop.scatter(1, index, drop), -float("inf"))
    probs = nn.functional.softmax(scores, dim=-1)
    return torch.multinomial(probs, 1, generator=generator).flatten()


# %% exercise 7.2: row by row
def sample_next_token(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if not 0 <= temperature < float("inf"):
        raise ValueError("temperature")
    if (top_k is not None and top_k < 1) or (top_p is not None and not 0 < top_p <= 1):
        raise ValueError("top_k or top_p")
    return torch.stack([one(row, temperature, top_k, top_p, generator) for row in logits])


def one(row, temperature, top_k, top_p, generator):
    if temperature == 0:
        return row.argmax()
    probs = (row.float() / temperature).softmax(-1)
    order = probs.argsort(descending=True)[:top_k]
    kept = probs[order] / probs[order].sum()
    if top_p is not None:
        count = int((kept.cumsum(0) < top_p).sum()) + 1
        order, kept = order[:count], kept[:count]
    return order[torch.multinomial(kept, 1, generator=generator)[0]]


# %% exercise 7.3: a list of columns, keywords, a set of stops
@torch.no_grad()
def generate(model, input_ids, attention_mask=None, max_new_tokens=100, temperature=0.0,
             top_k=None, top_p=None, eos_token_id=(), pad_token_id=0, generator=None,
             use_cache=True, on_token=None):  # fmt: skip
    if attention_mask is None:
        attention_mask = input_ids.new_ones(input_ids.shape)
    check_request(model, input_ids, attention_mask, max_new_tokens)
    stops = {eos_token_id} if isinstance(eos_token_id, int) else set(eos_token_id)
    batch, length = input_ids.shape
    cache = KVCache(model.config.num_hidden_layers, length + max_new_tokens - 1)
    columns, done = [input_ids], [False] * batch
    while not all(done) and len(columns) <= max_new_tokens:
        if use_cache:
            logits = model(columns[-1], attention_mask=attention_mask, cache=cache)
        else:
            logits = model(torch.cat(columns, dim=1), attention_mask=attention_mask)
        picked = sample_next_token(
            logits[:, -1, :], temperature=temperature, top_k=top_k, top_p=top_p,
            generator=generator,
        ).tolist()  # fmt: skip
        picked = [pad_token_id if end else t for t, end in zip(picked, done, strict=True)]
        done = [end or t in stops for t, end in zip(picked, done, strict=True)]
        columns.append(torch.tensor(picked).unsqueeze(1))
        attention_mask = torch.cat([attention_mask, attention_mask.new_ones(batch, 1)], dim=1)
        if on_token:
            on_token(columns[-1].squeeze(1))
    return torch.cat(columns, dim=1)


# %% exercise 7.3: everything in one preallocated tensor
def generate(model, input_ids, attention_mask=None, max_new_tokens=100, temperature=0.0,
             top_k=None, top_p=None, eos_token_id=(), pad_token_id=0, generator=None,
             use_cache=True, on_token=None):  # fmt: skip
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    check_request(model, input_ids, mask, max_new_tokens)
    stops = torch.tensor(
        [eos_token_id] if isinstance(eos_token_id, int) else list(eos_token_id)
    )
    rows, start = input_ids.shape
    total = start + max_new_tokens
    text = torch.full((rows, total), pad_token_id)
    text[:, :start] = input_ids
    mask = torch.cat((mask, torch.ones(rows, max_new_tokens, dtype=mask.dtype)), 1)
    going = torch.ones(rows, dtype=torch.bool)
    cache = KVCache(model.config.num_hidden_layers, total) if use_cache else None
    with torch.inference_mode():
        for place in range(start, total):
            first = cache.length if use_cache else 0
            logits = model(text[:, first:place], mask[:, :place], cache)[:, -1]
            token = sample_next_token(logits, temperature, top_k, top_p, generator)
            text[going, place] = token[going]
            if on_token is not None:
                on_token(text[:, place])
            going &= ~(text[:, place, None] == stops).any(-1)
            if not going.any():
                return text[:, : place + 1]
    return text


# %% exercise 7.3: the prompt all but its last token first
@torch.no_grad()
def generate(model, input_ids, attention_mask=None, max_new_tokens=100, temperature=0.0,
             top_k=None, top_p=None, eos_token_id=(), pad_token_id=0, generator=None,
             use_cache=True, on_token=None):  # fmt: skip
    if attention_mask is None:
        attention_mask = torch.ones_like(input_ids)
    check_request(model, input_ids, attention_mask, max_new_tokens)
    length = input_ids.size(1)
    cache = KVCache(model.config.num_hidden_layers, 256) if use_cache else None
    if use_cache and length > 1:
        model(input_ids[:, :-1], attention_mask[:, :-1], cache)
    output, finished = input_ids, torch.zeros(input_ids.size(0)).bool()
    stops = torch.as_tensor(eos_token_id).reshape(-1)
    for _ in range(max_new_tokens):
        new = output[:, -1:] if use_cache else output
        logits = model(new, attention_mask, cache)[:, -1]
        token = sample_next_token(logits, temperature, top_k, top_p, generator)
        token = torch.where(finished, torch.full_like(token, pad_token_id), token)
        output = torch.cat((output, token.unsqueeze(-1)), -1)
        attention_mask = nn.functional.pad(attention_mask, (0, 1), value=1)
        finished = finished | (token[:, None] == stops[None]).any(dim=-1)
        if on_token is not None:
            on_token(token)
        if bool(finished.all()):
            break
    return output


# %% exercise 7.4: sample_next_token itself
def web_top_p(logits, top_p, generator=None):
    return sample_next_token(logits, top_p=top_p, generator=generator)
