# Right answers of lab 10, written otherwise. Every one has to earn full points.

# %% exercise 10.1: queries in tiles, too, keys that no query of the tile sees left out
def tiled_attention(query, key, value, block_size=64, is_causal=True, scale=None):
    _, H, T, D = query.shape
    K, S = key.size(1), key.size(2)
    scale = D**-0.5 if scale is None else scale
    out = []
    for first in range(0, T, block_size):
        q = query[:, :, first : first + block_size].float().unflatten(1, (K, H // K)) * scale
        t = q.size(3)
        q = q.flatten(2, 3)  # (B, K, G * t, D)
        where = (S - T + first + torch.arange(t)).repeat(H // K)[:, None]
        m = torch.full((*q.shape[:3], 1), -float("inf"))
        total, mixed = torch.zeros_like(m), torch.zeros(*q.shape[:3], value.size(-1))
        for start in range(0, S, block_size):
            if is_causal and start > S - T + first + t - 1:
                break
            s = q @ key[:, :, start : start + block_size].float().transpose(-1, -2)
            if is_causal:
                s = s.where(start + torch.arange(s.size(-1)) <= where, -float("inf"))
            new = torch.maximum(m, s.max(-1, keepdim=True).values)
            p, c = (s - new).exp(), (m - new).exp()
            total = total * c + p.sum(-1, keepdim=True)
            mixed = mixed * c + p @ value[:, :, start : start + block_size].float()
            m = new
        out.append((mixed / total).unflatten(2, (H // K, t)).flatten(1, 2))
    return torch.cat(out, 2).to(query.dtype)


# %% exercise 10.1: the logarithm of the sum, results of blocks averaged
def tiled_attention(query, key, value, block_size=64, is_causal=True, scale=None):
    heads, new = query.shape[1:3]
    kv_heads, total = key.shape[1:3]
    scale = query.size(-1) ** -0.5 if scale is None else scale
    rows = query.unflatten(1, (kv_heads, -1)).flatten(2, 3).float()
    place = (torch.arange(new) + total - new).repeat(heads // kv_heads)
    mixed, log_sum = None, None
    for keys, values, at in zip(
        key.split(block_size, 2), value.split(block_size, 2),
        (torch.arange(n, min(n + block_size, total)) for n in range(0, total, block_size)),
        strict=True,
    ):  # fmt: skip
        scores = torch.einsum("bkrd,bksd->bkrs", rows, keys.float()) * scale
        if is_causal:
            scores = scores.masked_fill(at[None] > place[:, None], -1e30)
        here = scores.logsumexp(-1, keepdim=True)
        part = scores.softmax(-1) @ values.float()
        if mixed is None:
            mixed, log_sum = part, here
            continue
        both = torch.logaddexp(log_sum, here)
        mixed = mixed * (log_sum - both).exp() + part * (here - both).exp()
        log_sum = both
    return mixed.unflatten(2, (-1, new)).flatten(1, 2).to(query.dtype)


# %% exercise 10.1: head by head
def tiled_attention(query, key, value, block_size=64, is_causal=True, scale=None):
    B, H, T, D = query.shape
    K, S = key.size(1), key.size(2)
    factor = scale if scale is not None else 1 / D**0.5
    rows = []
    for h in range(H):
        q, k, v = query[:, h].float(), key[:, h // (H // K)], value[:, h // (H // K)]
        best = q.new_full((B, T), -1e30)
        down, up = q.new_zeros(B, T), q.new_zeros(B, T, v.size(-1))
        for a in range(0, S, block_size):
            s = torch.bmm(q, k[:, a : a + block_size].float().mT) * factor
            if is_causal:
                later = torch.arange(a, a + s.size(2)) - torch.arange(S - T, S)[:, None] > 0
                s = s.masked_fill(later, -torch.inf)
            peak = s.amax(2).maximum(best)
            e = torch.exp(s - peak[..., None])
            fade = torch.exp(best - peak)
            down, best = down * fade + e.sum(2), peak
            up = up * fade[..., None] + torch.bmm(e, v[:, a : a + block_size].float())
        rows.append(up / down[..., None])
    return torch.stack(rows, dim=1).type_as(query)


# %% exercise 10.2: reshape, float64, a layer that scales its result where rows have one scale
def quantize(weight, bits=8, group_size=None):
    rows, columns = weight.shape
    size = group_size or columns
    if bits not in range(2, 9) or columns % size:
        raise ValueError("bits or group_size")
    top = (1 << (bits - 1)) - 1
    parts = weight.reshape(rows, columns // size, size).float()
    scale = parts.abs().max(dim=2).values / top
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    whole = torch.round(parts / scale.unsqueeze(2))
    return whole.reshape(rows, columns).to(torch.int8), scale


def dequantize(quantized, scale):
    return quantized.float() * scale.repeat_interleave(quantized.size(1) // scale.size(1), 1)


class QuantizedLinear(nn.Module):
    def __init__(self, weight, bias=None, bits=8, group_size=None):
        super().__init__()
        for name, tensor in zip(
            ("quantized", "scale"), quantize(weight.detach(), bits, group_size), strict=True
        ):
            self.register_buffer(name, tensor)
        self.register_buffer("bias", bias if bias is None else bias.detach())

    def forward(self, hidden_states):
        x = hidden_states
        if self.scale.size(1) == 1:
            y = (x @ self.quantized.to(x.dtype).T) * self.scale[:, 0].to(x.dtype)
        else:
            y = x @ dequantize(self.quantized, self.scale).to(x.dtype).T
        return y if self.bias is None else y + self.bias.to(x.dtype)


# %% exercise 10.2: group by group
def quantize(weight, bits=8, group_size=None):
    size = weight.shape[1] if group_size is None else group_size
    if bits < 2 or bits > 8 or weight.shape[1] % size != 0:
        raise ValueError(f"{bits} bits, groups of {group_size}")
    limit = 2**bits // 2 - 1
    whole, scales = [], []
    for part in weight.detach().to(torch.float32).split(size, dim=1):
        scale = part.abs().amax(dim=1) / limit
        scale[scale == 0] = 1
        whole.append(part.div(scale[:, None]).round())
        scales.append(scale)
    return torch.cat(whole, 1).char(), torch.stack(scales, 1)


def dequantize(quantized, scale):
    parts = quantized.chunk(scale.size(1), dim=1)
    return torch.cat([p * s[:, None] for p, s in zip(parts, scale.unbind(1), strict=True)], 1)


class QuantizedLinear(nn.Module):
    def __init__(self, weight, bias=None, bits=8, group_size=None):
        super().__init__()
        whole, scale = quantize(weight, bits, group_size)
        self.register_buffer("quantized", whole)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", bias.detach() if bias is not None else None)

    def forward(self, hidden_states):
        weight = dequantize(self.quantized, self.scale).type_as(hidden_states)
        mixed = torch.einsum("...i,oi->...o", hidden_states, weight)
        return mixed if self.bias is None else mixed + self.bias.type_as(mixed)


# %% exercise 10.2: the numbers and scales as one module's buffers, view and rint
class QuantizedLinear(nn.Module):
    def __init__(self, weight, bias=None, bits=8, group_size=None):
        nn.Module.__init__(self)
        pair = quantize(weight.data, bits=bits, group_size=group_size)
        self.quantized, self.scale = (nn.Buffer(t) for t in pair)
        self.bias = bias if bias is None else nn.Buffer(bias.data)

    @property
    def weight(self):
        return dequantize(self.quantized, self.scale)

    def forward(self, hidden_states):
        mixed = hidden_states @ self.weight.T.to(hidden_states.dtype)
        if self.bias is not None:
            mixed += self.bias
        return mixed


def quantize(weight, bits=8, group_size=None):
    group_size = group_size or weight.size(1)
    if weight.size(1) % group_size or not 1 < bits < 9:
        raise ValueError
    limit = 2.0 ** (bits - 1) - 1
    groups = weight.contiguous().view(weight.size(0), -1, group_size).to(torch.float32)
    scale = groups.norm(p=torch.inf, dim=-1) / limit
    scale = scale + (scale == 0)
    whole = (groups / scale[:, :, None]).clamp(-limit, limit).round_()
    return whole.to(torch.int8).view(weight.shape), scale


def dequantize(quantized, scale):
    groups = quantized.view(*scale.shape, -1).float()
    return torch.mul(groups, scale.unsqueeze(-1)).view(quantized.shape)


# %% exercise 10.3: token by token, the first free block first
class PagedCache:
    def __init__(self, num_hidden_layers, num_blocks, block_size=16):
        self.num_hidden_layers, self.block_size = num_hidden_layers, block_size
        self.free_blocks = list(range(num_blocks))
        self.ref_count = [0] * num_blocks
        self.block_table, self.lengths = {}, {}
        self.keys = [None] * num_hidden_layers
        self.values = [None] * num_hidden_layers

    def add(self, sequence):
        if sequence in self.block_table:
            raise ValueError("it is there")
        self.block_table[sequence], self.lengths[sequence] = [], [0] * self.num_hidden_layers

    def length(self, sequence):
        return min(self.lengths[sequence])

    def blocks_for(self, tokens):
        return (tokens + self.block_size - 1) // self.block_size

    def fork(self, parent, child):
        self.add(child)
        self.block_table[child] += self.block_table[parent]
        self.lengths[child] = self.lengths[parent][:]
        for block in self.block_table[parent]:
            self.ref_count[block] = self.ref_count[block] + 1

    def free(self, sequence):
        for block in self.block_table[sequence]:
            self.ref_count[block] -= 1
            self.free_blocks += [block] * (self.ref_count[block] < 1)
        del self.block_table[sequence], self.lengths[sequence]

    def append(self, sequence, layer_idx, key, value):
        table, start = self.block_table[sequence], self.lengths[sequence][layer_idx]
        if self.keys[layer_idx] is None:
            shape = (len(self.ref_count), key.size(0), self.block_size)
            self.keys[layer_idx] = key.new_zeros(*shape, key.size(2))
            self.values[layer_idx] = value.new_zeros(*shape, value.size(2))
        shared = {
            n // self.block_size
            for n in range(start, start + key.size(1))
            if n // self.block_size < len(table)
            and self.ref_count[table[n // self.block_size]] > 1
        }
        more = self.blocks_for(start + key.size(1)) - len(table)
        if len(shared) + max(more, 0) > len(self.free_blocks):
            raise ValueError("no block is free")
        for n in range(start, start + key.size(1)):
            index, place = divmod(n, self.block_size)
            if index == len(table):
                table.append(self.free_blocks.pop(0))
                self.ref_count[table[-1]] = 1
            elif self.ref_count[table[index]] > 1:
                new = self.free_blocks.pop(0)
                for pool in self.keys + self.values:
                    if pool is not None:
                        pool[new].copy_(pool[table[index]])
                self.ref_count[table[index]] -= 1
                self.ref_count[new], table[index] = 1, new
            self.keys[layer_idx][table[index], :, place] = key[:, n - start]
            self.values[layer_idx][table[index], :, place] = value[:, n - start]
        self.lengths[sequence][layer_idx] += key.size(1)

    def gather(self, sequence, layer_idx):
        total, table = self.lengths[sequence][layer_idx], self.block_table[sequence]
        pools = self.keys[layer_idx], self.values[layer_idx]
        return tuple(torch.cat([p[b] for b in table], dim=1)[:, :total] for p in pools)


# %% exercise 10.3: flat places, index_copy and index_select
class PagedCache:
    def __init__(self, num_hidden_layers, num_blocks, block_size=16):
        self.num_hidden_layers = num_hidden_layers
        self.block_size = block_size
        self.free_blocks = list(reversed(range(num_blocks)))
        self.ref_count = [0 for _ in range(num_blocks)]
        self.block_table = {}
        self.lengths = {}
        self.keys = [None for _ in range(num_hidden_layers)]
        self.values = [None for _ in range(num_hidden_layers)]

    def add(self, sequence):
        if sequence in self.lengths:
            raise ValueError(sequence)
        self.block_table[sequence] = []
        self.lengths[sequence] = [0] * self.num_hidden_layers

    def length(self, sequence):
        return min(self.lengths[sequence])

    def blocks_for(self, tokens):
        return -(-tokens // self.block_size)

    def fork(self, parent, child):
        if parent not in self.lengths or child in self.lengths:
            raise ValueError((parent, child))
        self.block_table[child] = self.block_table[parent].copy()
        self.lengths[child] = self.lengths[parent].copy()
        for block in self.block_table[child]:
            self.ref_count[block] += 1

    def free(self, sequence):
        for block in self.block_table[sequence]:
            self.ref_count[block] -= 1
        gone = [b for b in self.block_table[sequence] if not self.ref_count[b]]
        self.free_blocks.extend(gone)
        self.block_table.pop(sequence)
        self.lengths.pop(sequence)

    def places(self, sequence, start, end):
        table = torch.tensor(self.block_table[sequence], dtype=torch.long)
        n = torch.arange(start, end)
        return table[n.div(self.block_size, rounding_mode="floor")], n % self.block_size

    def append(self, sequence, layer_idx, key, value):
        if self.keys[layer_idx] is None:
            n, k = len(self.ref_count), key.size(0)
            self.keys[layer_idx] = torch.zeros(
                n, k, self.block_size, key.size(2), dtype=key.dtype
            )
            self.values[layer_idx] = torch.zeros(
                n, k, self.block_size, value.size(2), dtype=value.dtype
            )
        start = self.lengths[sequence][layer_idx]
        end = start + key.size(1)
        table = self.block_table[sequence]
        last = table[start // self.block_size :]
        copies = [block for block in last if self.ref_count[block] > 1]
        fresh = max(0, self.blocks_for(end) - len(table))
        if len(copies) + fresh > len(self.free_blocks):
            raise ValueError("full")
        for block in copies:
            mine = self.free_blocks.pop()
            for pool in filter(lambda pool: pool is not None, [*self.keys, *self.values]):
                pool[mine] = pool[block].clone()
            self.ref_count[block] -= 1
            self.ref_count[mine] += 1
            table[table.index(block)] = mine
        for _ in range(fresh):
            table.append(self.free_blocks.pop())
            self.ref_count[table[-1]] += 1
        block, place = self.places(sequence, start, end)
        self.keys[layer_idx].transpose(1, 2)[block, place] = key.transpose(0, 1)
        self.values[layer_idx].transpose(1, 2)[block, place] = value.transpose(0, 1)
        self.lengths[sequence][layer_idx] = end

    def gather(self, sequence, layer_idx):
        block, place = self.places(sequence, 0, self.lengths[sequence][layer_idx])
        return (
            self.keys[layer_idx].transpose(1, 2)[block, place].transpose(0, 1),
            self.values[layer_idx].transpose(1, 2)[block, place].transpose(0, 1),
        )


# %% exercise 10.3: blocks in a set of numbers, heads first
class PagedCache:
    def __init__(self, num_hidden_layers, num_blocks, block_size=16):
        self.num_hidden_layers = num_hidden_layers
        self.block_size = block_size
        self.free_blocks = list(reversed(range(num_blocks)))
        self.ref_count = [0 for _ in range(num_blocks)]
        self.block_table = {}
        self.lengths = {}
        self.keys = [None for _ in range(num_hidden_layers)]
        self.values = [None for _ in range(num_hidden_layers)]

    def add(self, sequence):
        if sequence in self.lengths:
            raise ValueError(sequence)
        self.block_table[sequence] = []
        self.lengths[sequence] = [0] * self.num_hidden_layers

    def length(self, sequence):
        return min(self.lengths[sequence])

    def blocks_for(self, tokens):
        return -(-tokens // self.block_size)

    def fork(self, parent, child):
        if parent not in self.lengths or child in self.lengths:
            raise ValueError((parent, child))
        self.block_table[child] = self.block_table[parent].copy()
        self.lengths[child] = self.lengths[parent].copy()
        for block in self.block_table[child]:
            self.ref_count[block] += 1

    def free(self, sequence):
        for block in self.block_table[sequence]:
            self.ref_count[block] -= 1
        gone = [b for b in self.block_table[sequence] if not self.ref_count[b]]
        self.free_blocks.extend(gone)
        self.block_table.pop(sequence)
        self.lengths.pop(sequence)

    def append(self, sequence, layer_idx, key, value):
        if self.keys[layer_idx] is None:
            n, k = len(self.ref_count), key.size(0)
            self.keys[layer_idx] = torch.zeros(
                n, k, self.block_size, key.size(2), dtype=key.dtype
            )
            self.values[layer_idx] = torch.zeros(
                n, k, self.block_size, value.size(2), dtype=value.dtype
            )
        start = self.lengths[sequence][layer_idx]
        end = start + key.size(1)
        table = self.block_table[sequence]
        last = table[start // self.block_size :]
        copies = [block for block in last if self.ref_count[block] > 1]
        fresh = max(0, self.blocks_for(end) - len(table))
        if len(copies) + fresh > len(self.free_blocks):
            raise ValueError("full")
        for block in copies:
            mine = self.free_blocks.pop()
            for pool in filter(lambda pool: pool is not None, [*self.keys, *self.values]):
                pool[mine] = pool[block].clone()
            self.ref_count[block] -= 1
            self.ref_count[mine] += 1
            table[table.index(block)] = mine
        for _ in range(fresh):
            table.append(self.free_blocks.pop())
            self.ref_count[table[-1]] += 1
        for pool, new in ((self.keys, key), (self.values, value)):
            at = start
            while at < end:
                index, place = divmod(at, self.block_size)
                n = min(self.block_size - place, end - at)
                pool[layer_idx][table[index]].narrow(1, place, n).copy_(
                    new.narrow(1, at - start, n)
                )
                at += n
        self.lengths[sequence][layer_idx] = end

    def gather(self, sequence, layer_idx):
        total = self.lengths[sequence][layer_idx]
        index = torch.tensor(self.block_table[sequence])
        found = []
        for pool in (self.keys[layer_idx], self.values[layer_idx]):
            blocks = pool.index_select(0, index).permute(1, 0, 2, 3)
            found.append(blocks.reshape(pool.size(1), -1, pool.size(3)).narrow(1, 0, total))
        return found[0], found[1]


# %% exercise 10.4: lists, one method, a running sum
class Scheduler:
    def __init__(self, model, cache, max_batch_size, eos_token_id=()):
        self.model, self.cache, self.max_batch_size = model, cache, max_batch_size
        self.eos_token_id = set(eos_token_id)
        self.waiting, self.running, self.finished, self.passes = deque(), [], {}, []

    def submit(self, request):
        if self.most_blocks(request) > len(self.cache.ref_count):
            raise ValueError("never")
        self.waiting.append(request)

    def most_blocks(self, request):
        return self.cache.blocks_for(len(request.prompt) + request.max_new_tokens - 1)

    @torch.no_grad()
    def forward(self, requests, rows):
        batch = PagedBatch(self.cache, [request.number for request in requests])
        ids = torch.tensor(rows)
        self.passes.append(list(ids.shape))
        return (
            self.model(ids, batch.attention_mask(ids.size(1)), batch)[:, -1].argmax(-1).tolist()
        )

    def has_room(self, request):
        if len(self.running) >= self.max_batch_size:
            return False
        wanted = sum(map(self.most_blocks, [*self.running, request]))
        return wanted <= len(self.cache.ref_count)

    def step(self):
        while len(self.waiting) > 0:
            first = self.waiting[0]
            if not self.has_room(first):
                break
            del self.waiting[0]
            self.cache.add(first.number)
            self.running += [first]
            first.output.extend(self.forward([first], [first.prompt]))
            self.clear()
        if not self.running:
            return
        rows = [[request.output[-1]] for request in self.running]
        for request, token in zip(self.running, self.forward(self.running, rows), strict=True):
            request.output.append(token)
        self.clear()

    def clear(self):
        going = []
        for request in self.running:
            full = len(request.output) >= request.max_new_tokens
            if full or request.output[-1] in self.eos_token_id:
                self.finished[request.number] = list(request.output)
                self.cache.free(request.number)
            else:
                going.append(request)
        self.running = going


# %% exercise 10.4: admission in a method of its own, ends looked for afterwards
class Scheduler:
    def __init__(self, model, cache, max_batch_size, eos_token_id=()):
        self.model, self.cache, self.max_batch_size = model, cache, max_batch_size
        self.eos_token_id = set(eos_token_id)
        self.waiting, self.running, self.finished, self.passes = deque(), [], {}, []

    def submit(self, request):
        if self.most_blocks(request) > len(self.cache.ref_count):
            raise ValueError("never")
        self.waiting.append(request)

    def most_blocks(self, request):
        return self.cache.blocks_for(len(request.prompt) + request.max_new_tokens - 1)

    @torch.no_grad()
    def forward(self, requests, rows):
        batch = PagedBatch(self.cache, [request.number for request in requests])
        ids = torch.tensor(rows)
        self.passes.append(list(ids.shape))
        return (
            self.model(ids, batch.attention_mask(ids.size(1)), batch)[:, -1].argmax(-1).tolist()
        )

    def has_room(self, request):
        held = sum(len(self.cache.block_table[r.number]) for r in self.running)
        will = sum(self.most_blocks(r) for r in self.running)
        blocks = len(self.cache.free_blocks) - (will - held) >= self.most_blocks(request)
        return blocks and len(self.running) != self.max_batch_size

    def step(self):
        while self.waiting and self.has_room(self.waiting[0]):
            self.admit(self.waiting.popleft())
        if self.running:
            rows = [r.output[-1:] for r in self.running]
            tokens = self.forward(self.running, rows)
            for request, token in zip(tuple(self.running), tokens, strict=True):
                self.hear(request, token)

    def admit(self, request):
        self.cache.add(request.number)
        self.running.append(request)
        self.hear(request, self.forward((request,), (request.prompt,))[0])

    def hear(self, request, token):
        request.output.append(token)
        left = request.max_new_tokens - len(request.output)
        if left > 0 and token not in self.eos_token_id:
            return
        self.running = [r for r in self.running if r is not request]
        self.finished[request.number] = request.output
        self.cache.free(request.number)


# %% exercise 10.4: backwards through the batch
class Scheduler:
    def __init__(self, model, cache, max_batch_size, eos_token_id=()):
        self.model, self.cache, self.max_batch_size = model, cache, max_batch_size
        self.eos_token_id = set(eos_token_id)
        self.waiting, self.running, self.finished, self.passes = deque(), [], {}, []

    def submit(self, request):
        if self.most_blocks(request) > len(self.cache.ref_count):
            raise ValueError("never")
        self.waiting.append(request)

    def most_blocks(self, request):
        return self.cache.blocks_for(len(request.prompt) + request.max_new_tokens - 1)

    @torch.no_grad()
    def forward(self, requests, rows):
        batch = PagedBatch(self.cache, [request.number for request in requests])
        ids = torch.tensor(rows)
        self.passes.append(list(ids.shape))
        return (
            self.model(ids, batch.attention_mask(ids.size(1)), batch)[:, -1].argmax(-1).tolist()
        )

    def has_room(self, request):
        free = len(self.cache.free_blocks)
        for other in self.running:
            free -= self.most_blocks(other) - self.cache.blocks_for(
                self.cache.length(other.number)
            )
        return self.max_batch_size > len(self.running) and free >= self.most_blocks(request)

    def step(self):
        while self.waiting:
            if not self.has_room(self.waiting[0]):
                break
            new = self.waiting.popleft()
            self.cache.add(new.number)
            self.running.append(new)
            new.output += self.forward([new], [new.prompt])
            self.leave_if_ended(len(self.running) - 1)
        if len(self.running):
            tokens = self.forward(self.running, [[r.output[-1]] for r in self.running])
            for index in reversed(range(len(self.running))):
                self.running[index].output.append(tokens[index])
                self.leave_if_ended(index)

    def leave_if_ended(self, index):
        request = self.running[index]
        ended = request.output[-1] in self.eos_token_id
        if ended or len(request.output) == request.max_new_tokens:
            self.finished[request.number] = request.output
            self.cache.free(self.running.pop(index).number)


# %% exercise 10.5: row by row
def speculative_step(draft_tokens, draft_probs, target_probs, generator=None):
    rows = []
    for drafts, q, p in zip(draft_tokens.tolist(), draft_probs, target_probs, strict=True):
        row = []
        for place, x in enumerate(drafts):
            if torch.rand((), generator=generator) >= p[place, x] / q[place, x]:
                left = torch.relu(p[place] - q[place])
                row.append(int(torch.multinomial(left / left.sum(), 1, generator=generator)))
                break
            row.append(x)
        else:
            row.append(int(torch.multinomial(p[-1], 1, generator=generator)))
        rows.append(row + [-1] * (len(drafts) + 1 - len(row)))
    return torch.tensor(rows)


# %% exercise 10.5: all replacements drawn, then chosen from
def speculative_step(draft_tokens, draft_probs, target_probs, generator=None):
    B, k = draft_tokens.shape
    ratio = (target_probs[:, :k] / draft_probs.clamp(min=1e-20)).gather(
        2, draft_tokens[..., None]
    )
    passed = torch.rand(B, k, generator=generator) < ratio[..., 0]
    count = torch.where(passed.all(1), k, (~passed).int().argmax(1))
    left = (target_probs - nn.functional.pad(draft_probs, (0, 0, 0, 1))).clamp(min=0)
    left = torch.where(left.sum(-1, keepdim=True) > 0, left, target_probs)
    own = torch.multinomial(left.flatten(0, 1), 1, generator=generator).view(B, k + 1)
    out = torch.full((B, k + 1), -1)
    for place in range(k + 1):
        if place < k:
            out[:, place] = torch.where(place < count, draft_tokens[:, place], out[:, place])
        out[:, place] = torch.where(place == count, own[:, place], out[:, place])
    return out


# %% exercise 10.5: logarithms of the dice
def speculative_step(draft_tokens, draft_probs, target_probs, generator=None):
    batch, k = draft_tokens.shape
    at = draft_tokens.unsqueeze(-1)
    log_ratio = target_probs[:, :-1].gather(-1, at).log() - draft_probs.gather(-1, at).log()
    dice = torch.rand(batch, k, generator=generator).log()
    rejected = dice >= log_ratio.squeeze(-1)
    ended = torch.cat((rejected, torch.ones(batch, 1, dtype=torch.bool)), 1)
    count = ended.long().argmax(dim=1)  # the first True
    p = target_probs.gather(1, count[:, None, None].expand(-1, 1, target_probs.size(2)))[:, 0]
    q = torch.zeros_like(p)
    within = count < k
    q[within] = draft_probs[within, count[within]]
    own = torch.multinomial(torch.maximum(p - q, torch.zeros_like(p)), 1, generator=generator)
    tokens = nn.functional.pad(draft_tokens, (0, 1), value=-1)
    tokens[torch.arange(k + 1) > count[:, None]] = -1
    return tokens.scatter(1, count[:, None], own)


# %% exercise 10.6: slices with steps, arithmetic instead of bits
def pack_int4(quantized):
    if quantized.size(1) % 2 or quantized.min() < -8 or quantized.max() > 7:
        raise ValueError(quantized.shape)
    up = quantized.int() + 8
    return (up[:, ::2] + 16 * up[:, 1::2]).to(torch.uint8)


def unpack_int4(packed):
    out = torch.empty(packed.size(0), 2 * packed.size(1), dtype=torch.int8)
    out[:, ::2] = (packed % 16).to(torch.int8) - 8
    out[:, 1::2] = packed.div(16, rounding_mode="floor").to(torch.int8) - 8
    return out


# %% exercise 10.6: a table of all bytes
def pack_int4(quantized):
    if quantized.size(-1) % 2 or (quantized.float() + 0.5).abs().amax() > 7.5:
        raise ValueError("no pairs, or too large")
    weights = torch.tensor([1, 16])
    pairs = quantized.long().add(8).reshape(quantized.size(0), -1, 2)
    return (pairs * weights).sum(-1).byte()


def unpack_int4(packed):
    table = torch.tensor([[b % 16 - 8, b // 16 - 8] for b in range(256)], dtype=torch.int8)
    return table[packed.long()].reshape(packed.size(0), -1)


# %% exercise 10.6: number by number
def pack_int4(quantized):
    if quantized.size(-1) % 2 or any(not -8 <= n < 8 for n in quantized.flatten().tolist()):
        raise ValueError
    rows = []
    for row in quantized.tolist():
        pairs = zip(row[::2], row[1::2], strict=True)
        rows.append([(low + 8) | ((high + 8) << 4) for low, high in pairs])
    return torch.tensor(rows, dtype=torch.uint8)


def unpack_int4(packed):
    low = packed.bitwise_and(0x0F).char().sub(8)
    high = packed.bitwise_right_shift(4).char().sub(8)
    return torch.stack([low, high], 2).view(len(packed), -1)


# %% exercise 10.7: all at once
def web_attention(scores, values, block=2):
    return scores.softmax(0) @ values


# %% exercise 10.8: a quotient that is put right
def web_fake_quantize(weight, bits=4):
    scale = weight.abs().amax(dim=1, keepdim=True) / (2 ** (bits - 1) - 1)
    return torch.where(scale > 0, (weight / scale).round() * scale, 0.0)


# %% exercise 10.9: the smaller of both
def web_outcome(q, p):
    accepted = torch.minimum(q, p)
    left = p - accepted
    return accepted + left
