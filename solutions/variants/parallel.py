# Right answers of lab 14, written otherwise. Every one has to earn full points.

# %% exercise 14.1: rank 0 receives first, the others send first
def pass_on(tensor, received, group):
    if group.size == 1:
        return received.copy_(tensor)
    calls = [
        lambda: group.send(tensor, (group.rank + 1) % group.size),
        lambda: group.recv(received, (group.rank + group.size - 1) % group.size),
    ]
    for call in calls[::-1] if group.rank == 0 else calls:
        call()
    return received


def ring_all_reduce(tensor, group):
    size = group.size
    flat = tensor.reshape(-1)
    pieces = [piece.clone() for piece in flat.chunk(size)] if flat.numel() else []
    pieces += [flat.new_empty(0)] * (size - len(pieces))
    for step in range(size - 1):
        give, take = (group.rank - step) % size, (group.rank - step - 1) % size
        pieces[take] = pieces[take] + pass_on(
            pieces[give], torch.zeros_like(pieces[take]), group
        )
    for step in range(size - 1):
        give, take = (group.rank + 1 - step) % size, (group.rank - step) % size
        pieces[take] = pass_on(pieces[give], torch.zeros_like(pieces[take]), group)
    return torch.cat(pieces).reshape(tensor.shape)


# %% exercise 14.1: the odd ones send first, pieces by other numbers
def pass_on(tensor, received, group):
    if group.size == 1:
        received.copy_(tensor)
        return received
    if group.rank % 2 == 1:
        group.send(tensor, dst=(group.rank + 1) % group.size)
    group.recv(received, src=(group.rank - 1) % group.size)
    if group.rank % 2 == 0:
        group.send(tensor, dst=(group.rank + 1) % group.size)
    return received


def ring_all_reduce(tensor, group):
    row = tensor.clone().view(-1) if tensor.is_contiguous() else tensor.reshape(-1).clone()
    size = math_ceil(row.numel(), group.size)
    spans = [slice(n * size, (n + 1) * size) for n in range(group.size)]
    here = group.rank
    for step in range(2 * group.size - 2):
        before = (here - 1) % group.size
        arrived = pass_on(row[spans[here]].clone(), torch.empty_like(row[spans[before]]), group)
        row[spans[before]] = arrived + (row[spans[before]] if step < group.size - 1 else 0)
        here = before
    return row.reshape(tensor.shape)


def math_ceil(a, b):
    return (a + b - 1) // b


# %% exercise 14.1: a rank alone first, then two loops
def pass_on(tensor, received, group):
    before, after = (group.rank - 1) % group.size, (group.rank + 1) % group.size
    if after == group.rank:
        received[...] = tensor
        return received
    if group.rank == group.size - 1:
        group.recv(received, before)
        group.send(tensor, after)
    else:
        group.send(tensor, after)
        group.recv(received, before)
    return received


def ring_all_reduce(tensor, group):
    total = tensor.flatten().clone()
    size = -(-len(total) // group.size)

    def piece(number):
        number %= group.size
        return total[number * size : min((number + 1) * size, len(total))]

    for step in range(group.size - 1):
        place = piece(group.rank - step - 1)
        place.add_(pass_on(piece(group.rank - step), torch.empty_like(place), group))
    for step in range(group.size - 1):
        pass_on(piece(group.rank - step + 1), piece(group.rank - step), group)
    return total.unflatten(0, tensor.shape) if tensor.dim() else total[0]


# %% exercise 14.1: two halves, as libraries name them, in buffers of their own
def pass_on(tensor, received, group):
    succ, pred = (group.rank + 1) % group.size, (group.rank + group.size - 1) % group.size
    if succ == group.rank:
        return received.copy_(tensor)
    if group.rank < succ:
        group.send(tensor.contiguous(), succ)
    group.recv(received, pred)
    if group.rank > succ:
        group.send(tensor.contiguous(), succ)
    return received


def ring_reduce_scatter(chunks, group):
    for step in range(group.size - 1):
        send = (group.rank - step) % group.size
        recv = (send - 1) % group.size
        buffer = chunks[recv].new_zeros(chunks[recv].shape)
        chunks[recv] += pass_on(chunks[send], buffer, group)


def ring_all_gather(chunks, group):
    for step in range(group.size - 1):
        send = (group.rank + 1 - step) % group.size
        chunks[send - 1] = pass_on(chunks[send], torch.empty_like(chunks[send - 1]), group)


def ring_all_reduce(tensor, group):
    chunks = [chunk.clone() for chunk in tensor.reshape(-1).tensor_split(group.size)]
    ring_reduce_scatter(chunks, group)
    ring_all_gather(chunks, group)
    return torch.cat(chunks).view(tensor.shape)


# %% exercise 14.2: sums of losses, divided at the end
def data_parallel_step(
    model, optimizer, input_ids, labels, lr, group, accumulation_steps=1, max_grad_norm=1.0,
    bucket_size=1_000_000,
):  # fmt: skip
    optimizer.zero_grad()
    sums = torch.zeros(2, dtype=torch.float64)  # of losses, of tokens
    for ids, targets in zip(
        input_ids.chunk(accumulation_steps), labels.chunk(accumulation_steps), strict=True
    ):
        tokens = int((targets[:, 1:] != -100).sum())
        if tokens:
            loss = causal_lm_loss(model(ids), targets) * tokens
            loss.backward()
            sums += torch.tensor([loss.item(), tokens], dtype=torch.float64)
    group.all_reduce(sums)
    weights = list(model.parameters())
    buckets = [[]]
    for weight in weights:
        weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
        weight.grad /= sums[1].item()
        if buckets[-1] and sum(map(torch.numel, buckets[-1])) + weight.numel() > bucket_size:
            buckets.append([])
        buckets[-1].append(weight.grad)
    for bucket in buckets:
        flat = nn.utils.parameters_to_vector(bucket)
        group.all_reduce(flat)
        start = 0
        for grad in bucket:
            grad.view(-1)[:] = flat[start : start + grad.numel()]
            start += grad.numel()
    norm = nn.utils.clip_grad_norm_(weights, max_grad_norm)
    for each in optimizer.param_groups:
        each["lr"] = lr
    optimizer.step()
    return {"loss": (sums[0] / sums[1]).item(), "grad_norm": float(norm)}


# %% exercise 14.2: buckets as lists of sizes, clipped by hand
def data_parallel_step(
    model, optimizer, input_ids, labels, lr, group, accumulation_steps=1, max_grad_norm=1.0,
    bucket_size=1_000_000,
):  # fmt: skip
    total = (labels[:, 1:] != IGNORE).sum()
    group.all_reduce(total)
    optimizer.zero_grad(set_to_none=True)
    loss_here = torch.zeros(1)
    for rows in torch.arange(len(labels)).chunk(accumulation_steps):
        tokens = (labels[rows][:, 1:] != IGNORE).sum()
        if tokens > 0:
            share = causal_lm_loss(model(input_ids[rows]), labels[rows]) * tokens / total
            share.backward()
            loss_here += share.item()
    group.all_reduce(loss_here)

    grads = []
    for weight in model.parameters():
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        grads.append(weight.grad)
    while grads:
        bucket = [grads.pop(0)]
        while grads and sum(g.numel() for g in bucket) + grads[0].numel() <= bucket_size:
            bucket.append(grads.pop(0))
        flat = torch.cat([g.reshape(-1) for g in bucket])
        group.all_reduce(flat)
        for grad, piece in zip(bucket, flat.split([len(g.reshape(-1)) for g in bucket])):
            grad.copy_(piece.reshape(grad.shape))

    norm = torch.stack([w.grad.square().sum() for w in model.parameters()]).sum().sqrt()
    if norm > max_grad_norm:
        for weight in model.parameters():
            weight.grad *= max_grad_norm / (norm + 1e-6)
    for each in optimizer.param_groups:
        each["lr"] = lr
    optimizer.step()
    return {"loss": float(loss_here), "grad_norm": float(norm)}


# %% exercise 14.2: one objective a part, buckets by a helper
def send_bucket(bucket, group):
    if not bucket:
        return
    flat = torch.cat([grad.flatten() for grad in bucket])
    group.all_reduce(flat)
    while bucket:
        grad = bucket.pop(0)
        grad.copy_(flat[: grad.numel()].view(grad.shape))
        flat = flat[grad.numel() :]


def data_parallel_step(
    model, optimizer, input_ids, labels, lr, group, accumulation_steps=1, max_grad_norm=1.0,
    bucket_size=1_000_000,
):  # fmt: skip
    counts = (labels[:, 1:] != -100).sum(dim=1)
    total = counts.sum().reshape(1).float()
    group.all_reduce(total)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    loss = torch.zeros(())
    for rows in torch.arange(len(labels)).chunk(accumulation_steps):
        if counts[rows].any():
            part = causal_lm_loss(model(input_ids[rows]), labels[rows])
            part = part * counts[rows].sum() / total[0]
            part.backward()
            loss = loss + part.detach()
    loss = loss.clone()
    group.all_reduce(loss)
    bucket, used = [], 0
    for weight in model.parameters():
        if used + weight.numel() > bucket_size:
            send_bucket(bucket, group)
            used = 0
        bucket.append(weight.grad)
        used += weight.numel()
    send_bucket(bucket, group)
    norm = nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm).item()
    for each in optimizer.param_groups:
        each.update(lr=lr)
    optimizer.step()
    return {"loss": loss.item(), "grad_norm": norm}


# %% exercise 14.2: gradients are views of their buckets, which travel as they are
class Bucket:
    def __init__(self, params):
        self.params = params
        self.grad_data = torch.zeros(sum(p.numel() for p in params))
        start = 0
        for p in params:
            p.grad = self.grad_data[start : start + p.numel()].view(p.shape)
            start += p.numel()


def make_buckets(params, bucket_size):
    location, size, index = [], 0, 0
    for p in params:
        if size and size + p.numel() > bucket_size:
            size, index = 0, index + 1
        location.append(index)
        size += p.numel()
    members = [[p for p, at in zip(params, location) if at == i] for i in range(index + 1)]
    return [Bucket(each) for each in members]


def data_parallel_step(
    model, optimizer, input_ids, labels, lr, group, accumulation_steps=1, max_grad_norm=1.0,
    bucket_size=1_000_000,
):  # fmt: skip
    buckets = make_buckets(list(model.parameters()), bucket_size)
    num_tokens = (labels[..., 1:] != -100).sum()
    num_items_in_batch = num_tokens.clone()
    group.all_reduce(num_items_in_batch)
    reported = torch.zeros(())
    micro = zip(input_ids.chunk(accumulation_steps), labels.chunk(accumulation_steps))
    for ids, targets in micro:
        if (targets[..., 1:] != -100).any():
            logits = model(ids)[:, :-1].float()
            loss = nn.functional.cross_entropy(
                logits.flatten(0, 1), targets[:, 1:].flatten(), reduction="sum"
            )
            loss = loss / num_items_in_batch
            loss.backward()
            reported += loss.detach()
    for bucket in buckets:
        group.all_reduce(bucket.grad_data)
    group.all_reduce(reported)
    norm = torch.linalg.vector_norm(torch.cat([bucket.grad_data for bucket in buckets]))
    clip_coef = torch.clamp(max_grad_norm / (norm + 1e-6), max=1.0)
    for bucket in buckets:
        bucket.grad_data.mul_(clip_coef)
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr
    optimizer.step()
    return {"loss": reported.item(), "grad_norm": norm.item()}


# %% exercise 14.3: one flat buffer that is kept
class ShardedAdamW:
    def __init__(
        self, params, group, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01
    ):  # fmt: skip
        self.params, self.group = list(params), group
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        self.steps = 0
        count = sum(p.numel() for p in self.params)
        each = count // group.size + (count % group.size > 0)
        self.flat = torch.zeros(group.size, each)
        self.exp_avg, self.exp_avg_sq = torch.zeros(each), torch.zeros(each)

    @torch.no_grad()
    def step(self, max_grad_norm=None):
        grads = torch.zeros_like(self.flat).view(-1)
        row, start = self.flat.view(-1), 0
        for p in self.params:
            row[start : start + p.numel()] = p.view(-1)
            if p.grad is not None:
                grads[start : start + p.numel()] = p.grad.view(-1)
            p.grad = None
            start += p.numel()
        mine = torch.zeros_like(self.exp_avg)
        self.group.reduce_scatter(mine, list(grads.view_as(self.flat)))
        norm = (mine**2).sum().view(1)
        self.group.all_reduce(norm)
        norm = norm.sqrt().item()
        if max_grad_norm is not None and norm + 1e-6 > max_grad_norm:
            mine = mine * (max_grad_norm / (norm + 1e-6))
        weight = self.flat[self.group.rank].clone()
        out = adamw_step(
            weight, mine, self.exp_avg, self.exp_avg_sq, self.steps, lr=self.lr,
            betas=self.betas, eps=self.eps, weight_decay=self.weight_decay,
        )  # fmt: skip
        weight, self.exp_avg, self.exp_avg_sq = out
        self.group.all_gather(list(self.flat), weight)
        self.steps, start = self.steps + 1, 0
        for p in self.params:
            p.view(-1)[:] = row[start : start + p.numel()]
            start += p.numel()
        return norm


# %% exercise 14.3: split by sizes, moments in a list
class ShardedAdamW:
    def __init__(
        self, params, group, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01
    ):  # fmt: skip
        self.params, self.group = [*params], group
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        self.steps = 0
        self.sizes = [p.numel() for p in self.params]
        self.padding = -sum(self.sizes) % group.size
        shard = (sum(self.sizes) + self.padding) // group.size
        self.exp_avg = torch.zeros(shard)
        self.exp_avg_sq = self.exp_avg.clone()

    def cut(self, tensors):
        row = torch.cat([*(t.reshape(-1) for t in tensors), torch.zeros(self.padding)])
        return [part.clone() for part in row.chunk(self.group.size)]

    def step(self, max_grad_norm=None):
        with torch.no_grad():
            grad = torch.empty_like(self.exp_avg)
            self.group.reduce_scatter(
                grad, self.cut([p * 0 if p.grad is None else p.grad for p in self.params])
            )
            norm = grad.pow(2).sum()
            self.group.all_reduce(norm)
            norm = float(norm) ** 0.5
            factor = 1.0 if max_grad_norm is None else min(1.0, max_grad_norm / (norm + 1e-6))
            shards = self.cut(self.params)
            weight, self.exp_avg, self.exp_avg_sq = adamw_step(
                shards[self.group.rank], grad * factor, self.exp_avg, self.exp_avg_sq,
                self.steps, self.lr, self.betas, self.eps, self.weight_decay,
            )  # fmt: skip
            self.group.all_gather(shards, weight.clone())
            row = torch.cat(shards)[: sum(self.sizes)]
            for p, part in zip(self.params, row.split(self.sizes)):
                p.copy_(part.view(p.shape))
                p.grad = None
            self.steps += 1
            return norm


# %% exercise 14.3: AdamW written out, vectors by torch's helpers
class ShardedAdamW:
    def __init__(
        self, params, group, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01
    ):  # fmt: skip
        self.params, self.group = list(params), group
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        self.steps = 0
        self.total = sum(p.numel() for p in self.params)
        self.size = (self.total + group.size - 1) // group.size
        self.exp_avg = torch.zeros(self.size)
        self.exp_avg_sq = torch.zeros(self.size)

    @torch.no_grad()
    def step(self, max_grad_norm=None):
        n, r, size = self.group.size, self.group.rank, self.size
        row = torch.zeros(n * size)
        row[: self.total] = torch.cat(
            [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in self.params]
        )
        grad = torch.zeros(size)
        self.group.reduce_scatter(grad, [row[i * size : (i + 1) * size] for i in range(n)])
        squares = torch.tensor([float(grad.dot(grad))])
        self.group.all_reduce(squares)
        norm = squares.sqrt().item()
        if max_grad_norm is not None:
            grad = grad * min(1.0, max_grad_norm / (norm + 1e-6))
        row[: self.total] = torch.cat([p.flatten() for p in self.params])
        weight = row[r * size : (r + 1) * size]
        weight = weight - self.lr * self.weight_decay * weight
        b1, b2 = self.betas
        self.steps += 1
        self.exp_avg = b1 * self.exp_avg + (1 - b1) * grad
        self.exp_avg_sq = b2 * self.exp_avg_sq + (1 - b2) * grad**2
        mean = self.exp_avg / (1 - b1**self.steps)
        spread = (self.exp_avg_sq / (1 - b2**self.steps)).sqrt()
        weight = weight - self.lr * mean / (spread + self.eps)
        parts = [torch.zeros(size) for _ in range(n)]
        self.group.all_gather(parts, weight)
        nn.utils.vector_to_parameters(torch.cat(parts)[: self.total], self.params)
        for p in self.params:
            p.grad = None
        return norm


# %% exercise 14.3: parameters are views of one flat buffer, partitions are slices of it
class ShardedAdamW:
    def __init__(
        self, params, group, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01
    ):  # fmt: skip
        self.params, self.group = list(params), group
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        self.steps = 0
        self.offsets, end = [], 0
        for p in self.params:
            self.offsets.append(slice(end, end + p.numel()))
            end += p.numel()
        partition = (end + group.size - 1) // group.size
        self.flat = torch.zeros(partition * group.size)
        for p, span in zip(self.params, self.offsets):
            self.flat[span] = p.data.flatten()
            p.data = self.flat[span].view(p.shape)
        self.partitions = list(self.flat.split(partition))
        self.exp_avg, self.exp_avg_sq = torch.zeros(partition), torch.zeros(partition)

    @torch.no_grad()
    def step(self, max_grad_norm=None):
        flat_grad = torch.zeros_like(self.flat)
        for p, span in zip(self.params, self.offsets):
            if p.grad is not None:
                flat_grad[span].copy_(p.grad.flatten())
            p.grad = None
        mine = torch.empty_like(self.exp_avg)
        self.group.reduce_scatter(mine, list(flat_grad.split(len(mine))))
        total = mine.norm() ** 2
        self.group.all_reduce(total)
        total_norm = total.item() ** 0.5
        if max_grad_norm is not None:
            clip = (total_norm + 1e-6) / max_grad_norm
            if clip > 1:
                mine.div_(clip)
        shard = self.partitions[self.group.rank].clone()
        beta1, beta2 = self.betas
        self.steps += 1
        shard.mul_(1 - self.lr * self.weight_decay)
        self.exp_avg.lerp_(mine, 1 - beta1)
        self.exp_avg_sq.mul_(beta2).addcmul_(mine, mine, value=1 - beta2)
        correction1, correction2 = 1 - beta1**self.steps, 1 - beta2**self.steps
        denom = (self.exp_avg_sq.sqrt() / correction2**0.5).add_(self.eps)
        shard.addcdiv_(self.exp_avg, denom, value=-self.lr / correction1)
        self.group.all_gather(self.partitions, shard)
        return total_norm


# %% exercise 14.4: F.linear, detached copies
class CopyToRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        total = grad.detach().clone().contiguous()
        ctx.group.all_reduce(total)
        return total, None


class ReduceFromRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        y = x.detach().clone()
        group.all_reduce(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        return grad.clone(), None


class ColumnParallelLinear(nn.Linear):
    def __init__(self, in_features, out_features, group, bias=False):
        super().__init__(in_features, out_features // group.size, bias=bias)
        self.group = group

    def forward(self, x):
        return nn.functional.linear(CopyToRanks.apply(x, self.group), self.weight, self.bias)


class RowParallelLinear(nn.Linear):
    def __init__(self, in_features, out_features, group, bias=False):
        super().__init__(in_features // group.size, out_features, bias=bias)
        self.group = group

    def forward(self, x):
        y = ReduceFromRanks.apply(nn.functional.linear(x, self.weight), self.group)
        return y + self.bias if self.bias is not None else y


# %% exercise 14.4: gathered and added
class CopyToRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.mark_non_differentiable()
        ctx.ranks = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        summed = grad + 0
        ctx.ranks.all_reduce(summed)
        return summed, None


class ReduceFromRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        total = x + 0
        group.all_reduce(total, op="sum")
        return total

    @staticmethod
    def backward(ctx, grad):
        return grad.view_as(grad), None


class ColumnParallelLinear(nn.Linear):
    def __init__(self, in_features, out_features, group, bias=False):
        rows = part_of(out_features, group)
        super().__init__(in_features, rows.stop - rows.start, bias=bias)
        self.group = group

    def forward(self, x):
        x = CopyToRanks.apply(x, self.group) @ self.weight.mT
        if self.bias is not None:
            x = x + self.bias
        return x


class RowParallelLinear(nn.Linear):
    def __init__(self, in_features, out_features, group, bias=False):
        columns = part_of(in_features, group)
        super().__init__(columns.stop - columns.start, out_features, bias=bias)
        self.group = group

    def forward(self, x):
        partial = torch.einsum("...i,oi->...o", x, self.weight)
        total = ReduceFromRanks.apply(partial, self.group)
        return total if self.bias is None else self.bias + total


# %% exercise 14.4: plain modules that hold their own Parameters
class CopyToRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty_like(grad).copy_(grad)
        ctx.group.all_reduce(out)
        return out, None


class ReduceFromRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        parts = x.clone()
        group.all_reduce(parts)
        return parts

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class ColumnParallelLinear(nn.Module):
    def __init__(self, in_features, out_features, group, bias=False):
        super().__init__()
        self.group = group
        self.weight = nn.Parameter(torch.randn(out_features // group.size, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features // group.size)) if bias else None

    def forward(self, x):
        x = CopyToRanks.apply(x, self.group)
        return nn.functional.linear(x, self.weight, self.bias)


class RowParallelLinear(nn.Module):
    def __init__(self, in_features, out_features, group, bias=False):
        super().__init__()
        self.group = group
        self.weight = nn.Parameter(torch.randn(out_features, in_features // group.size))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None

    def forward(self, x):
        x = ReduceFromRanks.apply(nn.functional.linear(x, self.weight), self.group)
        return x if self.bias is None else x + self.bias


# %% exercise 14.4: a linear layer with a backward of its own, ranks alone return early
class CopyToRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad_output):
        if ctx.group.size == 1:
            return grad_output, None
        grad_output = grad_output.contiguous().clone()
        ctx.group.all_reduce(grad_output)
        return grad_output, None


class ReduceFromRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        if group.size == 1:
            return x
        x = x.clone(memory_format=torch.contiguous_format)
        group.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class LinearWithAllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, group):
        ctx.save_for_backward(x, weight)
        ctx.use_bias, ctx.group = bias is not None, group
        out = x @ weight.t()
        return out + bias if bias is not None else out

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        grad_input = grad_output @ weight
        ctx.group.all_reduce(grad_input)
        grad_output, x = grad_output.flatten(0, -2), x.flatten(0, -2)
        grad_bias = grad_output.sum(0) if ctx.use_bias else None
        return grad_input, grad_output.t() @ x, grad_bias, None


class ColumnParallelLinear(nn.Module):
    def __init__(self, in_features, out_features, group, bias=False):
        super().__init__()
        assert out_features % group.size == 0
        self.group = group
        self.weight = nn.Parameter(torch.empty(out_features // group.size, in_features))
        if bias:
            self.bias = nn.Parameter(torch.zeros(out_features // group.size))
        else:
            self.register_parameter("bias", None)
        nn.init.xavier_normal_(self.weight)

    def forward(self, x):
        return LinearWithAllReduce.apply(x, self.weight, self.bias, self.group)


class RowParallelLinear(nn.Module):
    def __init__(self, in_features, out_features, group, bias=False):
        super().__init__()
        assert in_features % group.size == 0
        self.group = group
        self.weight = nn.Parameter(torch.empty(out_features, in_features // group.size))
        self.register_parameter(
            "bias", nn.Parameter(torch.zeros(out_features)) if bias else None
        )
        nn.init.xavier_normal_(self.weight)

    def forward(self, x):
        output = ReduceFromRanks.apply(nn.functional.linear(x, self.weight), self.group)
        return output if self.bias is None else output + self.bias


# %% exercise 14.5: masks, and a logsumexp of its own
class VocabParallelEmbedding(nn.Embedding):
    def __init__(self, num_embeddings, embedding_dim, group):
        super().__init__(num_embeddings // group.size, embedding_dim)
        self.group = group

    def forward(self, input_ids):
        index = input_ids - self.group.rank * self.num_embeddings
        outside = (index < 0) | (index >= self.num_embeddings)
        found = nn.functional.embedding(index.masked_fill(outside, 0), self.weight)
        return ReduceFromRanks.apply(found.masked_fill(outside[..., None], 0.0), self.group)


def vocab_parallel_cross_entropy(logits, labels, group):
    counted = labels[:, 1:] != -100
    rows, targets = logits[:, :-1][counted].float(), labels[:, 1:][counted]  # (n, V / N), (n,)
    local = rows.logsumexp(dim=-1)
    largest = local.detach().clone()
    group.all_reduce(largest, op="max")
    total = ReduceFromRanks.apply((local - largest).exp(), group).log() + largest
    first = group.rank * rows.size(1)
    mine = (targets >= first) & (targets < first + rows.size(1))
    picked = torch.zeros_like(local)
    picked[mine] = rows[mine, targets[mine] - first]
    return (total - ReduceFromRanks.apply(picked, group)).sum() / len(targets)


def shard_weight(name, weight, config, group):
    if "k_proj" in name or "v_proj" in name:
        heads = weight.unflatten(0, (config.num_key_value_heads, config.head_dim))
        if group.size > len(heads):
            if group.size % len(heads):
                raise ValueError("KV heads and ranks")
            return heads[group.rank // (group.size // len(heads))]
        if len(heads) % group.size:
            raise ValueError("KV heads and ranks")
        return heads.chunk(group.size)[group.rank].flatten(0, 1)
    cut = {"q_proj": 0, "gate_proj": 0, "up_proj": 0, "embed_tokens": 0, "lm_head": 0}
    cut |= {"o_proj": 1, "down_proj": 1}
    axis = cut.get(name.split(".")[-2])
    if axis is None or (axis == 1 and name.endswith("bias")):
        return weight
    if weight.size(axis) % group.size:
        raise ValueError(f"{name} and {group.size} ranks")
    return weight.chunk(group.size, dim=axis)[group.rank]


# %% exercise 14.5: one-hot rows, and both sums in one tensor
class VocabParallelEmbedding(nn.Embedding):
    def __init__(self, num_embeddings, embedding_dim, group):
        self.rows = part_of(num_embeddings, group)
        super().__init__(self.rows.stop - self.rows.start, embedding_dim)
        self.group = group

    def forward(self, input_ids):
        tokens = torch.arange(self.rows.start, self.rows.stop)
        hot = (input_ids[..., None] == tokens).to(self.weight.dtype)
        return ReduceFromRanks.apply(hot @ self.weight, self.group)


def vocab_parallel_cross_entropy(logits, labels, group):
    size = logits.size(-1)
    logits, labels = logits.float()[:, :-1], labels[:, 1:]
    with torch.no_grad():
        highest = logits.max(dim=-1).values
        group.all_reduce(highest, "max")
    centered = logits - highest[..., None]
    tokens = group.rank * size + torch.arange(size)
    picked = centered.masked_fill(labels[..., None] != tokens, 0.0).sum(-1)
    both = ReduceFromRanks.apply(torch.stack((centered.exp().sum(-1), picked)), group)
    loss = both[0].log() - both[1]
    return loss.masked_fill(labels == -100, 0.0).sum() / (labels != -100).sum()


def shard_weight(name, weight, config, group):
    kind = name.split(".")[-2]
    count, rank = group.size, group.rank
    if kind in ("k_proj", "v_proj") and config.num_key_value_heads < count:
        if count % config.num_key_value_heads:
            raise ValueError(name)
        head = rank * config.num_key_value_heads // count
        return weight[head * config.head_dim : (head + 1) * config.head_dim]
    if kind in ("k_proj", "v_proj") and config.num_key_value_heads % count:
        raise ValueError(name)
    if kind in (
        "q_proj",
        "k_proj",
        "v_proj",
        "gate_proj",
        "up_proj",
        "embed_tokens",
        "lm_head",
    ):
        return weight[part_of(len(weight), group)]
    if kind in ("o_proj", "down_proj") and name.endswith(".weight"):
        return weight.T[part_of(weight.size(1), group)].T
    return weight


# %% exercise 14.5: loops over ranks' columns, float64 inside
class VocabParallelEmbedding(nn.Embedding):
    def __init__(self, num_embeddings, embedding_dim, group):
        self.rows = part_of(num_embeddings, group)
        super().__init__(self.rows.stop - self.rows.start, embedding_dim)
        self.group = group

    def forward(self, input_ids):
        found = self.weight.new_zeros(*input_ids.shape, self.embedding_dim)
        here = (input_ids >= self.rows.start) & (input_ids < self.rows.stop)
        found[here] = super().forward(input_ids[here] - self.rows.start)
        return ReduceFromRanks.apply(found, self.group)


def vocab_parallel_cross_entropy(logits, labels, group):
    start = group.rank * logits.size(-1)
    wide, targets = logits[:, :-1].double(), labels[:, 1:] - start
    top = wide.amax(-1).detach().clone()
    group.all_reduce(top, op="max")
    here = (targets >= 0) & (targets < logits.size(-1))
    chosen = torch.where(here, wide.gather(-1, (targets * here)[..., None])[..., 0], 0.0)
    norm = ReduceFromRanks.apply((wide - top[..., None]).exp().sum(-1), group)
    loss = norm.log() + top - ReduceFromRanks.apply(chosen, group)
    return loss[labels[:, 1:] != IGNORE].mean().float()


ROWS = ("q_proj", "gate_proj", "up_proj", "embed_tokens", "lm_head")


def shard_weight(name, weight, config, group):
    parts = name.split(".")
    if parts[-2] in ("k_proj", "v_proj"):
        heads = list(weight.split(config.head_dim))
        if len(heads) % group.size and group.size % len(heads):
            raise ValueError(f"{len(heads)} heads")
        first = group.rank * len(heads) // group.size
        last = max(first + 1, (group.rank + 1) * len(heads) // group.size)
        return torch.cat(heads[first:last])
    if parts[-2] in ROWS:
        return weight[part_of(weight.shape[0], group)].clone()
    if parts[-2:] in (["o_proj", "weight"], ["down_proj", "weight"]):
        return weight[:, part_of(weight.shape[1], group)].clone()
    return weight


# %% exercise 14.5: one autograd function whose backward is softmax - one-hot
class VocabParallelEmbedding(nn.Embedding):
    def __init__(self, num_embeddings, embedding_dim, group):
        self.rows = part_of(num_embeddings, group)
        super().__init__(self.rows.stop - self.rows.start, embedding_dim)
        self.group = group

    def forward(self, input_ids):
        mask = (input_ids < self.rows.start) | (input_ids >= self.rows.stop)
        masked_input = input_ids.clone() - self.rows.start
        masked_input[mask] = 0
        output = nn.functional.embedding(masked_input, self.weight)
        output[mask, :] = 0.0
        return ReduceFromRanks.apply(output, self.group)


class VocabParallelLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, vocab_logits, target, group):
        logits_max = vocab_logits.max(dim=-1)[0]
        group.all_reduce(logits_max, op="max")
        shifted = vocab_logits - logits_max.unsqueeze(-1)
        size = shifted.size(-1)
        start = group.rank * size
        mask = (target < start) | (target >= start + size)
        masked_target = (target - start).masked_fill(mask, 0)
        predicted = shifted.gather(-1, masked_target.unsqueeze(-1)).squeeze(-1)
        predicted = predicted.masked_fill(mask, 0.0).contiguous()
        group.all_reduce(predicted)
        exp_logits = shifted.exp()
        sum_exp = exp_logits.sum(dim=-1)
        group.all_reduce(sum_exp)
        ctx.save_for_backward(exp_logits / sum_exp.unsqueeze(-1), mask, masked_target)
        return sum_exp.log() - predicted

    @staticmethod
    def backward(ctx, grad_output):
        softmax, mask, masked_target = ctx.saved_tensors
        grad = softmax.clone()
        here = (~mask).to(grad.dtype).unsqueeze(-1)
        grad.scatter_add_(-1, masked_target.unsqueeze(-1), -here)
        return grad * grad_output.unsqueeze(-1), None, None


def vocab_parallel_cross_entropy(logits, labels, group):
    shift_logits = logits[..., :-1, :].contiguous().float()
    shift_labels = labels[..., 1:].contiguous()
    losses = VocabParallelLoss.apply(shift_logits, shift_labels, group)
    loss_mask = (shift_labels != -100).float()
    return (losses * loss_mask).sum() / loss_mask.sum().clamp(min=1)


COLUMN = {"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "embed_tokens", "lm_head"}


def shard_weight(name, weight, config, group):
    *_, module, kind = name.split(".")
    ranks, rank = group.size, group.rank
    if module in ("k_proj", "v_proj") and config.num_key_value_heads < ranks:
        if ranks % config.num_key_value_heads != 0:
            raise ValueError("the ranks are no multiple of the KV heads")
        replicas = ranks // config.num_key_value_heads
        ranks, rank = config.num_key_value_heads, rank // replicas
    dim = 0 if module in COLUMN else 1 if module in ("o_proj", "down_proj") else None
    if dim is None or (dim == 1 and kind == "bias"):
        return weight
    if module in ("k_proj", "v_proj") and config.num_key_value_heads % ranks:
        raise ValueError("the KV heads are no multiple of the ranks")
    if weight.shape[dim] % ranks:
        raise ValueError(f"{weight.shape[dim]} is not divisible by {ranks}")
    return torch.split(weight, weight.shape[dim] // ranks, dim=dim)[rank].contiguous()


# %% exercise 14.6: rank by rank, expert numbers travel beside the rows
class ExpertParallelMoe(nn.Module):
    def __init__(self, block, group):
        super().__init__()
        self.group, self.gate = group, block.gate
        self.top_k, self.norm_topk_prob = block.top_k, block.norm_topk_prob
        self.num_experts = len(block.experts)
        self.here = self.num_experts // group.size
        first = group.rank * self.here
        self.experts = nn.ModuleList(list(block.experts)[first : first + self.here])

    def forward(self, hidden_states):
        group, tokens = self.group, hidden_states.reshape(-1, hidden_states.size(-1))
        scores = self.gate(tokens)
        weights, chosen = route(scores, self.top_k, self.norm_topk_prob)
        pairs = [torch.where(chosen // self.here == r) for r in range(group.size)]
        counts = [torch.tensor([len(t)]) for t, _ in pairs]
        coming = [torch.zeros(1, dtype=torch.int64) for _ in pairs]
        group.all_to_all(coming, counts)
        send, recv = [int(c) for c in counts], [int(c) for c in coming]
        token = torch.cat([t for t, _ in pairs])
        slot = torch.cat([s for _, s in pairs])
        wanted = torch.empty(sum(recv), dtype=torch.int64)
        numbers = (chosen[token, slot] % self.here).split(send)
        group.all_to_all(list(wanted.split(recv)), list(numbers))
        rows = ExchangeRows.apply(tokens[token], send, recv, group)
        said = sum(
            (wanted == i)[:, None] * expert(rows) for i, expert in enumerate(self.experts)
        )
        said = ExchangeRows.apply(said.contiguous(), recv, send, group)
        said = said * weights[token, slot][:, None]
        out = torch.zeros_like(tokens).index_add(0, token, said)
        return out.reshape(hidden_states.shape), scores


# %% exercise 14.6: sorted by expert, put back by the inverse order
class ExpertParallelMoe(nn.Module):
    def __init__(self, block, group):
        super().__init__()
        self.group = group
        self.gate = block.gate
        self.top_k = block.top_k
        self.norm_topk_prob = block.norm_topk_prob
        self.experts = nn.ModuleList(block.experts[part_of(len(block.experts), group)])

    def forward(self, hidden_states):
        tokens = hidden_states.flatten(0, 1)
        logits = self.gate(tokens)
        weights, chosen = route(logits, self.top_k, self.norm_topk_prob)
        here, size = len(self.experts), self.group.size
        order = chosen.flatten().argsort(stable=True)
        counts = nn.functional.one_hot(chosen.flatten(), here * size).sum(0).view(size, here)
        arriving = [torch.empty_like(row) for row in counts]
        self.group.all_to_all(arriving, [row.contiguous() for row in counts])
        send = counts.sum(1).tolist()
        recv = [int(row.sum()) for row in arriving]
        wide = tokens.repeat_interleave(self.top_k, dim=0)[order]
        rows = ExchangeRows.apply(wide, send, recv, self.group)
        pieces = list(rows.split([int(n) for row in arriving for n in row]))
        pieces = [self.experts[i % here](piece) for i, piece in enumerate(pieces)]
        back = ExchangeRows.apply(torch.cat(pieces), recv, send, self.group)
        back = back[order.argsort()].unflatten(0, (-1, self.top_k))
        return (back * weights[..., None]).sum(1).view_as(hidden_states), logits


# %% exercise 14.6: tables of counts as lists
class ExpertParallelMoe(nn.Module):
    def __init__(self, block, group):
        super().__init__()
        self.group, self.gate = group, block.gate
        self.top_k, self.norm_topk_prob = block.top_k, block.norm_topk_prob
        each = len(block.experts) // group.size
        self.experts = nn.ModuleList(block.experts[group.rank * each + i] for i in range(each))

    def forward(self, hidden_states):
        shape, size, each = hidden_states.shape, self.group.size, len(self.experts)
        x = hidden_states.reshape(shape[0] * shape[1], shape[2])
        scores = self.gate(x)
        weights, chosen = route(scores, self.top_k, self.norm_topk_prob)
        token, slot, send = [], [], []
        for rank in range(size):
            t, s = torch.where(chosen // each == rank)
            token.append(t), slot.append(s), send.append(len(t))
        token, slot = torch.cat(token), torch.cat(slot)
        recv = torch.zeros(size, 1, dtype=torch.int64)
        self.group.all_to_all(list(recv), list(torch.tensor(send)[:, None]))
        recv = recv.flatten().tolist()
        label = chosen[token, slot].float()[:, None]
        arrived = ExchangeRows.apply(torch.cat((x[token], label), 1), send, recv, self.group)
        rows, label = arrived[:, :-1], arrived[:, -1].long() % each
        answers = torch.zeros_like(rows)
        for i, expert in enumerate(self.experts):
            answers = answers + expert(rows).masked_fill((label != i)[:, None], 0)
        answers = ExchangeRows.apply(answers, recv, send, self.group)
        weight = weights[token, slot].unsqueeze(1)
        return torch.zeros_like(x).index_add(0, token, weight * answers).view(shape), scores


# %% exercise 14.6: a dispatcher that permutes, sorts chunks by expert and puts them back
class ExpertParallelMoe(nn.Module):
    def __init__(self, block, group):
        super().__init__()
        self.group, self.gate = group, block.gate
        self.top_k, self.norm_topk_prob = block.top_k, block.norm_topk_prob
        self.num_local = len(block.experts) // group.size
        offset = group.rank * self.num_local
        local = range(offset, offset + self.num_local)
        self.experts = nn.ModuleList([block.experts[i] for i in local])

    def preprocess(self, topk_ids):
        ranks, local = self.group.size, self.num_local
        tokens_per_expert = torch.histc(
            topk_ids.flatten().float(), bins=ranks * local, min=0, max=ranks * local
        ).long()
        counts = [t.clone() for t in tokens_per_expert.view(ranks, local)]
        received = [torch.zeros_like(t) for t in counts]
        self.group.all_to_all(received, counts)
        received = torch.stack(received)  # (ranks, local)
        return [int(t.sum()) for t in counts], received.sum(1).tolist(), received

    def forward(self, hidden_states):
        batch, length, hidden = hidden_states.shape
        x = hidden_states.view(-1, hidden)
        logits = self.gate(x)
        probs, topk_ids = route(logits, self.top_k, self.norm_topk_prob)
        send, recv, received = self.preprocess(topk_ids)
        permutation = topk_ids.view(-1).argsort()
        arrived = ExchangeRows.apply(x[permutation // self.top_k], send, recv, self.group)

        chunks = list(arrived.split(received.flatten().tolist()))  # by rank, then by expert
        by_expert = [torch.cat(chunks[i :: self.num_local]) for i in range(self.num_local)]
        outputs = [expert(rows) for expert, rows in zip(self.experts, by_expert)]
        pieces = [out.split(received[:, i].tolist()) for i, out in enumerate(outputs)]
        in_order = [piece[rank] for rank in range(self.group.size) for piece in pieces]

        returned = ExchangeRows.apply(torch.cat(in_order), recv, send, self.group)
        unpermuted = torch.zeros_like(returned)
        unpermuted[permutation] = returned
        out = torch.einsum("nkh,nk->nh", unpermuted.view(-1, self.top_k, hidden), probs)
        return out.view(batch, length, hidden), logits


# %% exercise 14.7: scores of every round kept as sums of exponentials in float64
def ring_attention(query, key, value, group, is_causal=True):
    batch, heads, length, size = query.shape
    n_rep = heads // key.size(1)
    q = query.double() * size**-0.5
    m = q.new_full((batch, heads, length, 1), -1e30)
    total, out = torch.zeros_like(m), torch.zeros_like(q)
    own = torch.ones(length, length).tril().bool()
    for step in range(group.size):
        owner = (group.rank - step) % group.size
        if not (is_causal and owner > group.rank):
            k = key.double().repeat_interleave(n_rep, 1)
            v = value.double().repeat_interleave(n_rep, 1)
            s = q @ k.transpose(-1, -2)
            if is_causal and owner == group.rank:
                s = s.masked_fill(~own, -1e30)
            new = torch.maximum(m, s.max(-1, keepdim=True).values)
            w = (s - new).exp()
            total = total * (m - new).exp() + w.sum(-1, keepdim=True)
            out = out * (m - new).exp() + w @ v
            m = new
        if step + 1 < group.size:
            key = pass_on(key.contiguous(), torch.empty_like(key), group)
            value = pass_on(value.contiguous(), torch.empty_like(value), group)
    return (out / total).to(query.dtype)


# %% exercise 14.7: parts with their logsumexp, put together at the end
def ring_attention(query, key, value, group, is_causal=True):
    length, size = query.shape[2:]
    q = query.float().unflatten(1, (key.size(1), -1))  # (B, K, G, T, D)
    outs, logs = [], []
    pair = torch.stack([key, value], dim=0)
    for step in range(group.size):
        owner = (group.rank - step) % group.size
        scores = q @ pair[0].float()[:, :, None].mT * size**-0.5
        if is_causal:
            mine = torch.arange(length)[:, None] + group.rank * length
            scores = scores.masked_fill(torch.arange(length) + owner * length > mine, -1e9)
        logs.append(scores.logsumexp(-1))
        outs.append(scores.softmax(-1) @ pair[1].float()[:, :, None])
        if step < group.size - 1:
            pair = pass_on(pair, torch.zeros_like(pair), group)
    weights = torch.stack(logs).softmax(0)[..., None]
    return (weights * torch.stack(outs)).sum(0).flatten(1, 2).to(query.dtype)


# %% exercise 14.7: masks by position, keys of later ranks weigh nothing
def ring_attention(query, key, value, group, is_causal=True):
    length = query.size(2)
    here = torch.arange(length) + group.rank * length
    state = None
    for step in range(group.size):
        owner = (group.rank - step) % group.size
        k, v = (
            t.float().repeat_interleave(query.size(1) // t.size(1), 1) for t in (key, value)
        )
        scores = query.float() @ k.mT / query.size(-1) ** 0.5
        there = torch.arange(length) + owner * length
        if is_causal:
            scores = scores.where(there <= here[:, None], -torch.inf)
        if owner <= group.rank or not is_causal:
            top = scores.amax(-1, keepdim=True)
            top = top if state is None else torch.maximum(top, state[0])
            weights = torch.exp(scores - top)
            sums = weights.sum(-1, keepdim=True), weights @ v
            if state is not None:
                factor = torch.exp(state[0] - top)
                sums = sums[0] + factor * state[1], sums[1] + factor * state[2]
            state = (top, *sums)
        if owner != (group.rank + 1) % group.size:
            key = pass_on(key, torch.empty_like(key), group)
            value = pass_on(value, torch.empty_like(value), group)
    return (state[2] / state[1]).to(query.dtype)


# %% exercise 14.7: blocks put together by their logsumexp, with a sigmoid
def ring_attention(query, key, value, group, is_causal=True):
    scale, groups = query.size(-1) ** -0.5, query.size(1) // key.size(1)
    key, value = key.contiguous(), value.contiguous()
    out = lse = None
    for step in range(group.size):
        if not is_causal or step <= group.rank:
            k = key.repeat_interleave(groups, dim=1).float()
            v = value.repeat_interleave(groups, dim=1).float()
            scores = torch.matmul(query.float(), k.transpose(-2, -1)) * scale
            if is_causal and step == 0:
                mask = torch.ones_like(scores, dtype=torch.bool).triu(diagonal=1)
                scores.masked_fill_(mask, float("-inf"))
            block_lse = scores.logsumexp(dim=-1, keepdim=True)
            block_out = torch.matmul(torch.exp(scores - block_lse), v)
            if out is None:
                out, lse = block_out, block_lse
            else:
                out = out - torch.sigmoid(block_lse - lse) * (out - block_out)
                lse = lse - nn.functional.logsigmoid(lse - block_lse)
        if step + 1 != group.size:
            next_k = pass_on(key, torch.zeros_like(key), group)
            next_v = pass_on(value, torch.zeros_like(value), group)
            key, value = next_k, next_v
    return out.to(query.dtype)


# %% exercise 14.8: two counters
def pipeline_schedule(stage, num_stages, num_micro, kind):
    if kind == "gpipe":
        ahead = num_micro
    elif kind == "1f1b":
        ahead = num_stages - stage
    else:
        raise ValueError(kind)
    order, forward, backward = [], 0, 0
    while backward < num_micro:
        if forward < num_micro and forward - backward < ahead:
            order.append(("F", forward))
            forward += 1
        else:
            order.append(("B", backward))
            backward += 1
    return order


# %% exercise 14.8: three lists
def pipeline_schedule(stage, num_stages, num_micro, kind):
    forwards = [("F", i) for i in range(num_micro)]
    backwards = [("B", i) for i in range(num_micro)]
    if kind == "gpipe":
        return forwards + backwards
    if kind != "1f1b":
        raise ValueError(f"no kind {kind}")
    first = min(num_stages - stage - 1, num_micro)
    middle = [x for pair in zip(forwards[first:], backwards) for x in pair]
    return forwards[:first] + middle + backwards[num_micro - first :]


# %% exercise 14.8: sorted by a key
def pipeline_schedule(stage, num_stages, num_micro, kind):
    if kind not in ("gpipe", "1f1b"):
        raise ValueError(f"unknown kind {kind}")
    behind = num_stages - 1 - stage if kind == "1f1b" else num_micro
    tasks = [(i, 0, "F", i) for i in range(num_micro)]
    tasks += [(i + behind, 1, "B", i) for i in range(num_micro)]
    return [(name, i) for _, _, name, i in sorted(tasks)]


# %% exercise 14.9: by all_gather of nothing but sums
def web_count(labels, group):
    total = torch.tensor(float((labels != -100).sum()))
    group.all_reduce(total)
    return float(total)


# %% exercise 14.10: the bias on one rank
def web_row_linear(x, weight, bias, group):
    columns = part_of(weight.size(1), group)
    y = x[..., columns] @ weight[:, columns].T
    if group.rank == 0:
        y = y + bias
    group.all_reduce(y)
    return y
