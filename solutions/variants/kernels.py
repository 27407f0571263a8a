# Right answers of lab 16, written otherwise. Every one has to earn full points.

# %% exercise 16.1: pointers that move, the root by division
@triton.jit
def rms_norm_kernel(
    X, R, W, Y, S, x_stride, r_stride, n, eps, HAS_RESIDUAL: tl.constexpr, BLOCK: tl.constexpr
):
    pid = tl.program_id(axis=0)
    cols = tl.arange(0, BLOCK)
    X += pid * x_stride
    R += pid * r_stride
    Y += pid * n
    S += pid * n
    mask = cols < n
    x = tl.load(X + cols, mask=mask, other=0).to(tl.float32)
    if HAS_RESIDUAL:
        x = x + tl.load(R + cols, mask=mask, other=0).to(tl.float32)
        tl.store(S + cols, x.to(S.dtype.element_ty), mask=mask)
    rms = tl.sqrt(tl.sum(x * x) / n + eps)
    w = tl.load(W + cols, mask=mask).to(tl.float32)
    tl.store(Y + cols, (x / rms * w).to(Y.dtype.element_ty), mask=mask)


def rms_norm(hidden_states, weight, eps=1e-6, residual=None):
    x = as_rows(hidden_states)
    r = x if residual is None else as_rows(residual)
    y = torch.empty(x.shape, dtype=x.dtype)
    s = y if residual is None else torch.empty_like(y)
    n = x.shape[1]

    def grid(meta):
        return (x.shape[0],)

    rms_norm_kernel[grid](
        x,
        r,
        weight,
        y,
        s,
        x.stride(0),
        r.stride(0),
        n,
        eps,
        residual is not None,
        triton.next_power_of_2(n),
    )
    y = y.reshape(hidden_states.shape)
    return y if residual is None else (y, s.reshape(hidden_states.shape))


# %% exercise 16.1: several rows in a program
@triton.jit
def rms_norm_kernel(
    x_ptr,
    r_ptr,
    w_ptr,
    y_ptr,
    s_ptr,
    x_stride,
    r_stride,
    rows,
    size,
    eps,
    RESIDUAL: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < size)
    x = tl.load(x_ptr + row * x_stride + column, inside, 0.0).to(tl.float32)
    if RESIDUAL:
        x += tl.load(r_ptr + row * r_stride + column, inside, 0.0).to(tl.float32)
        tl.store(s_ptr + row * size + column, x, inside)
    w = tl.load(w_ptr + column, column < size, 0.0).to(tl.float32)
    root = tl.rsqrt(tl.sum(x * x, axis=1) / size + eps)
    tl.store(y_ptr + row * size + column, x * root[:, None] * w, inside)


def rms_norm(hidden_states, weight, eps=1e-6, residual=None):
    x = as_rows(hidden_states)
    r = x if residual is None else as_rows(residual)
    y, s = torch.empty(2, *x.shape, dtype=x.dtype)
    rows, size = x.shape
    rms_norm_kernel[(triton.cdiv(rows, 2),)](
        x,
        r,
        weight,
        y,
        s,
        x.stride(0),
        r.stride(0),
        rows,
        size,
        eps,
        RESIDUAL=residual is not None,
        ROWS=2,
        BLOCK=triton.next_power_of_2(size),
    )
    y, s = y.view(hidden_states.shape), s.view(hidden_states.shape)
    return y if residual is None else (y, s)


# %% exercise 16.1: undefined lanes are put right with where
@triton.jit
def rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    total_ptr,
    x_stride,
    residual_stride,
    hidden_size,
    eps,
    HAS_RESIDUAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_stride + column, mask=column < hidden_size).to(tl.float32)
    if HAS_RESIDUAL:
        start = residual_ptr + row * residual_stride
        x = x + tl.load(start + column, mask=column < hidden_size)
        tl.store(total_ptr + row * hidden_size + column, x, mask=column < hidden_size)
    squares = tl.where(column < hidden_size, x * x, 0.0)
    factor = 1 / tl.sqrt(tl.sum(squares, axis=0) / hidden_size + eps)
    weight = tl.load(weight_ptr + column, mask=column < hidden_size).to(tl.float32)
    tl.store(out_ptr + row * hidden_size + column, factor * x * weight, column < hidden_size)


def rms_norm(hidden_states, weight, eps=1e-6, residual=None):
    rows = as_rows(hidden_states)
    added = rows if residual is None else as_rows(residual)
    out = torch.empty(rows.shape, dtype=rows.dtype, device=rows.device)
    total = out if residual is None else torch.empty_like(out)
    block = 1
    while block < rows.size(1):
        block *= 2
    rms_norm_kernel[rows.size(0), 1, 1](
        rows,
        added,
        weight,
        out,
        total,
        rows.stride(0),
        added.stride(0),
        rows.size(1),
        eps,
        HAS_RESIDUAL=residual is not None,
        BLOCK=block,
    )
    out = out.view(hidden_states.shape)
    return out if residual is None else (out, total.view(hidden_states.shape))


# %% exercise 16.2: a row per program, as Liger has it
@triton.jit
def swiglu_kernel(a_ptr, b_ptr, c_ptr, a_stride, b_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    program_id = tl.program_id(0).to(tl.int64)
    a_ptr += program_id * a_stride
    b_ptr += program_id * b_stride
    c_ptr += program_id * n_cols
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    a_row = tl.load(a_ptr + col_offsets, mask=mask, other=0).to(tl.float32)
    b_row = tl.load(b_ptr + col_offsets, mask=mask, other=0)
    tl.store(c_ptr + col_offsets, a_row * tl.sigmoid(a_row) * b_row, mask=mask)


@triton.jit
def swiglu_backward_kernel(
    dc_ptr, a_ptr, b_ptr, da_ptr, db_ptr, a_stride, b_stride, n_cols, BLOCK_SIZE: tl.constexpr
):
    program_id = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    dc_row = tl.load(dc_ptr + program_id * n_cols + col_offsets, mask=mask, other=0)
    a_row = tl.load(a_ptr + program_id * a_stride + col_offsets, mask=mask, other=0)
    b_row = tl.load(b_ptr + program_id * b_stride + col_offsets, mask=mask, other=0)
    a_row, b_row, dc_row = a_row.to(tl.float32), b_row.to(tl.float32), dc_row.to(tl.float32)
    sig_a = tl.sigmoid(a_row)
    silu_a = a_row * sig_a
    da_row = dc_row * (silu_a * (1 - sig_a) + sig_a) * b_row
    tl.store(da_ptr + program_id * n_cols + col_offsets, da_row, mask=mask)
    tl.store(db_ptr + program_id * n_cols + col_offsets, dc_row * silu_a, mask=mask)


class SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        x, y = as_rows(a), as_rows(b)
        out = torch.empty(x.shape, dtype=x.dtype)
        block = triton.next_power_of_2(x.size(1))
        swiglu_kernel[(len(x),)](x, y, out, x.stride(0), y.stride(0), x.size(1), block)
        return out.view(a.shape)

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        x, y, dc = as_rows(a), as_rows(b), as_rows(grad).contiguous()
        da, db = torch.empty_like(dc), torch.empty_like(dc)
        block = triton.next_power_of_2(x.size(1))
        swiglu_backward_kernel[(len(x),)](
            dc, x, y, da, db, x.stride(0), y.stride(0), x.size(1), block
        )
        return da.view(a.shape), db.view(b.shape)


def swiglu(gate, up, block_size=1024):
    return SwiGLU.apply(gate, up)


# %% exercise 16.2: a loop over the blocks of a row
@triton.jit
def swiglu_kernel(x_ptr, y_ptr, z_ptr, x_stride, y_stride, size, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_stride + at, at < size, 0.0).to(tl.float32)
        y = tl.load(y_ptr + row * y_stride + at, at < size, 0.0).to(tl.float32)
        tl.store(z_ptr + row * size + at, x / (1 + tl.exp(-x)) * y, at < size)


@triton.jit
def swiglu_backward_kernel(
    dz_ptr, x_ptr, y_ptr, dx_ptr, dy_ptr, x_stride, y_stride, size, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        dz = tl.load(dz_ptr + row * size + at, at < size, 0.0).to(tl.float32)
        x = tl.load(x_ptr + row * x_stride + at, at < size, 0.0).to(tl.float32)
        y = tl.load(y_ptr + row * y_stride + at, at < size, 0.0).to(tl.float32)
        s = 1 / (1 + tl.exp(-x))
        tl.store(dy_ptr + row * size + at, dz * x * s, at < size)
        tl.store(dx_ptr + row * size + at, dz * y * (s + x * s * (1 - s)), at < size)


class SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up, block):
        ctx.save_for_backward(gate, up)
        ctx.block = block
        x, y = as_rows(gate), as_rows(up)
        out = torch.empty(x.shape, dtype=x.dtype)
        grid = (x.size(0),)
        swiglu_kernel[grid](x, y, out, x.stride(0), y.stride(0), x.size(1), BLOCK=block)
        return out.view(gate.shape)

    @staticmethod
    def backward(ctx, grad):
        gate, up = ctx.saved_tensors
        block = ctx.block
        x, y, dz = as_rows(gate), as_rows(up), as_rows(grad).contiguous()
        dx, dy = torch.empty_like(dz), torch.empty_like(dz)
        grid = (x.size(0),)
        swiglu_backward_kernel[grid](
            dz, x, y, dx, dy, x.stride(0), y.stride(0), x.size(1), BLOCK=block
        )
        return dx.view(gate.shape), dy.view(up.shape), None


def swiglu(gate, up, block_size=1024):
    return SwiGLU.apply(gate, up, block_size)


# %% exercise 16.2: all numbers in one line
@triton.jit
def swiglu_kernel(x_ptr, y_ptr, z_ptr, x_stride, y_stride, size, total, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row, column = at // size, at % size
    x = tl.load(x_ptr + row * x_stride + column, mask=at < total).to(tl.float32)
    y = tl.load(y_ptr + row * y_stride + column, mask=at < total).to(tl.float32)
    tl.store(z_ptr + at, y * (x * tl.sigmoid(x)), mask=at < total)


@triton.jit
def swiglu_backward_kernel(
    dz_ptr,
    x_ptr,
    y_ptr,
    dx_ptr,
    dy_ptr,
    x_stride,
    y_stride,
    size,
    total,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row, column = at // size, at % size
    dz = tl.load(dz_ptr + at, mask=at < total).to(tl.float32)
    x = tl.load(x_ptr + row * x_stride + column, mask=at < total).to(tl.float32)
    y = tl.load(y_ptr + row * y_stride + column, mask=at < total).to(tl.float32)
    s = tl.sigmoid(x)
    silu = x * s
    tl.store(dx_ptr + at, dz * y * (silu + s * (1 - silu)), mask=at < total)
    tl.store(dy_ptr + at, dz * silu, mask=at < total)


class SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up, block):
        ctx.save_for_backward(gate, up)
        ctx.block = block
        x, y = as_rows(gate), as_rows(up)
        out = torch.empty(x.shape, dtype=x.dtype)
        grid = (triton.cdiv(x.numel(), block),)
        swiglu_kernel[grid](
            x, y, out, x.stride(0), y.stride(0), x.size(1), x.numel(), BLOCK=block
        )
        return out.view(gate.shape)

    @staticmethod
    def backward(ctx, grad):
        gate, up = ctx.saved_tensors
        block = ctx.block
        x, y, dz = as_rows(gate), as_rows(up), as_rows(grad).contiguous()
        dx, dy = torch.empty_like(dz), torch.empty_like(dz)
        grid = (triton.cdiv(x.numel(), block),)
        swiglu_backward_kernel[grid](
            dz,
            x,
            y,
            dx,
            dy,
            x.stride(0),
            y.stride(0),
            x.size(1),
            x.numel(),
            BLOCK=block,
        )
        return dx.view(gate.shape), dy.view(up.shape), None


def swiglu(gate, up, block_size=1024):
    return SwiGLU.apply(gate, up, block_size)


# %% exercise 16.3: online softmax as Liger has it
@triton.jit
def cross_entropy_kernel(
    X_ptr, Y_ptr, loss_ptr, X_stride, n_cols, n_non_ignore, ignore_index, BLOCK: tl.constexpr
):
    program_id = tl.program_id(0).to(tl.int64)
    y = tl.load(Y_ptr + program_id)
    X_ptr += program_id * X_stride
    if y == ignore_index:
        for i in range(0, n_cols, BLOCK):
            X_offsets = i + tl.arange(0, BLOCK)
            tl.store(X_ptr + X_offsets, 0.0, mask=X_offsets < n_cols)
        tl.store(loss_ptr + program_id, 0.0)
        return
    m = float("-inf")
    d = 0.0
    ori_X_y = tl.load(X_ptr + y).cast(tl.float32)
    for i in range(0, n_cols, BLOCK):
        X_offsets = i + tl.arange(0, BLOCK)
        inside = X_offsets < n_cols
        X_block = tl.load(X_ptr + X_offsets, mask=inside, other=float("-inf")).cast(tl.float32)
        block_max = tl.max(X_block)
        m_new = tl.maximum(m, block_max)
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(X_block - m_new))
        m = m_new
    for i in range(0, n_cols, BLOCK):
        X_offsets = i + tl.arange(0, BLOCK)
        inside = X_offsets < n_cols
        X_block = tl.load(X_ptr + X_offsets, mask=inside, other=float("-inf")).cast(tl.float32)
        X_block = tl.exp(X_block - m) / d
        X_block = tl.where(X_offsets != y, X_block, X_block - 1.0) / n_non_ignore
        tl.store(X_ptr + X_offsets, X_block, mask=inside)
    tl.store(loss_ptr + program_id, (m + tl.log(d) - ori_X_y) / n_non_ignore)


def cross_entropy_(logits, labels, ignore_index=-100, block_size=1024):
    losses = torch.zeros(len(labels))
    counted = (labels != ignore_index).sum().item()
    cross_entropy_kernel[(len(labels),)](
        logits,
        labels,
        losses,
        logits.stride(0),
        logits.shape[1],
        counted,
        ignore_index,
        BLOCK=block_size,
    )
    return losses.sum(), logits


# %% exercise 16.3: a maximum per lane, reduced at the end
@triton.jit
def cross_entropy_kernel(
    x_ptr, label_ptr, loss_ptr, stride, size, count, ignore_index, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride
    label = tl.load(label_ptr + row)
    lane = tl.arange(0, BLOCK)
    if label == ignore_index:
        for start in range(0, size, BLOCK):
            at = start + lane
            tl.store(x_ptr + at, tl.zeros((BLOCK,), tl.float32), mask=at < size)
        tl.store(loss_ptr + row, 0.0)
    else:
        target = tl.load(x_ptr + label).to(tl.float32)
        high = tl.full((BLOCK,), -1e30, tl.float32)
        sums = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, size, BLOCK):
            at = start + lane
            x = tl.load(x_ptr + at, mask=at < size, other=-1e30).to(tl.float32)
            new = tl.maximum(high, x)
            sums = sums * tl.exp(high - new) + tl.where(at < size, tl.exp(x - new), 0.0)
            high = new
        top = tl.max(high, axis=0)
        total = tl.sum(sums * tl.exp(high - top), axis=0)
        tl.store(loss_ptr + row, (top - target + tl.log(total)) / count)
        for start in range(0, size, BLOCK):
            at = start + lane
            x = tl.load(x_ptr + at, mask=at < size).to(tl.float32)
            hot = (at == label).to(tl.float32)
            tl.store(x_ptr + at, (tl.exp(x - top) / total - hot) / count, mask=at < size)


def cross_entropy_(logits, labels, ignore_index=-100, block_size=1024):
    losses = torch.empty(labels.shape)
    counted = int(labels.ne(ignore_index).sum())
    cross_entropy_kernel[(labels.numel(),)](
        logits,
        labels,
        losses,
        logits.stride(0),
        logits.size(1),
        counted,
        ignore_index,
        block_size,
    )
    return losses.sum(), logits


# %% exercise 16.3: one path for all rows, the second pass backwards
@triton.jit
def cross_entropy_kernel(
    logits_ptr,
    labels_ptr,
    loss_ptr,
    stride,
    vocab,
    num_labels,
    ignore_index,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    label = tl.load(labels_ptr + row)
    factor = tl.where(label == ignore_index, 0.0, 1.0) / num_labels
    begin = logits_ptr + row.to(tl.int64) * stride
    target = tl.load(begin + tl.maximum(label, 0)).to(tl.float32)
    m, d = float("-inf"), 0.0
    blocks = tl.cdiv(vocab, BLOCK)
    for block in range(blocks):
        at = block * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(begin + at, mask=at < vocab, other=float("-inf")).to(tl.float32)
        new = tl.maximum(m, tl.max(x, axis=0))
        d = d * tl.exp(m - new) + tl.sum(tl.exp(x - new), axis=0)
        m = new
    lse = m + tl.log(d)
    tl.store(loss_ptr + row, (lse - target) * factor)
    for number in range(blocks):
        at = (blocks - 1 - number) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(begin + at, mask=at < vocab, other=0.0).to(tl.float32)
        gradient = (tl.exp(x - lse) - tl.where(at == label, 1.0, 0.0)) * factor
        tl.store(begin + at, gradient, mask=at < vocab)


def cross_entropy_(logits, labels, ignore_index=-100, block_size=1024):
    losses = torch.empty(labels.shape)
    counted = int(labels.ne(ignore_index).sum())
    cross_entropy_kernel[(labels.numel(),)](
        logits,
        labels,
        losses,
        logits.stride(0),
        logits.size(1),
        counted,
        ignore_index,
        block_size,
    )
    return losses.sum(), logits


# %% exercise 16.4: keys loaded transposed, the whole scale in the query, 2^x
@triton.jit
def flash_attention_kernel(
    Q,
    K,
    V,
    out,
    groups,
    T,
    S,
    D,
    scale,
    CAUSAL: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
):
    block, head = tl.program_id(0), tl.program_id(1)
    kv = head // groups
    t = block * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, WIDTH)
    q_mask = (t < T)[:, None] & (d < D)[None, :]
    q_at = head * T * D + t[:, None] * D + d[None, :]
    q = tl.load(Q + q_at, mask=q_mask, other=0.0).to(tl.float32) * (scale * 1.4426950408889634)
    m = tl.zeros([BLOCK], dtype=tl.float32) - float("inf")
    total = tl.zeros([BLOCK], dtype=tl.float32)
    acc = tl.zeros([BLOCK, WIDTH], dtype=tl.float32)
    stop = S
    if CAUSAL:
        stop = tl.minimum(S, S - T + block * BLOCK + BLOCK)
    for first in range(0, stop, BLOCK):
        s = first + tl.arange(0, BLOCK)
        k_at = kv * S * D + s[None, :] * D + d[:, None]
        k = tl.load(K + k_at, mask=(s < S)[None, :] & (d < D)[:, None], other=0.0)
        v_at = kv * S * D + s[:, None] * D + d[None, :]
        v = tl.load(V + v_at, mask=(s < S)[:, None] & (d < D)[None, :], other=0.0)
        qk = tl.dot(q, k.to(tl.float32), input_precision="ieee")
        qk = tl.where((s < S)[None, :], qk, float("-inf"))
        if CAUSAL:
            qk += tl.where(s[None, :] <= (t + S - T)[:, None], 0.0, float("-inf"))
        m_new = tl.maximum(m, tl.max(qk, 1))
        p = tl.exp2(qk - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        total = total * alpha + tl.sum(p, 1)
        acc = tl.dot(p, v.to(tl.float32), acc * alpha[:, None], input_precision="ieee")
        m = m_new
    tl.store(out + q_at, acc / total[:, None], mask=q_mask)


def flash_attention(query, key, value, is_causal=True, scale=None, block_size=16):
    batch, heads, new, dim = query.shape
    query, key, value = (x.contiguous() for x in (query, key, value))
    out = torch.empty_like(query)
    flash_attention_kernel[triton.cdiv(new, block_size), batch * heads](
        query,
        key,
        value,
        out,
        heads // key.size(1),
        new,
        key.size(2),
        dim,
        dim**-0.5 if scale is None else scale,
        is_causal,
        block_size,
        triton.next_power_of_2(dim),
    )
    return out


# %% exercise 16.4: three axes of programs, the diagonal by itself
@triton.jit
def flash_attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    H,
    K,
    T,
    S,
    D,
    scale,
    CAUSAL: tl.constexpr,
    B: tl.constexpr,
    W: tl.constexpr,
):
    batch, head = tl.program_id(2), tl.program_id(1)
    first = tl.program_id(0) * B
    t = first + tl.arange(0, B)
    s0 = tl.arange(0, B)
    d = tl.arange(0, W)
    q_row = (batch * H + head) * T
    k_row = (batch * K + head // (H // K)) * S
    ok = (t[:, None] < T) & (d[None, :] < D)
    q = tl.load(q_ptr + (q_row + t)[:, None] * D + d[None, :], mask=ok, other=0.0)
    q = q.to(tl.float32) * scale
    m = tl.full((B,), float("-inf"), dtype=tl.float32)
    n = tl.zeros((B,), dtype=tl.float32)
    acc = tl.zeros((B, W), dtype=tl.float32)
    needed = tl.minimum(S, S - T + first + B) if CAUSAL else S
    for block in range(tl.cdiv(needed, B)):
        s = block * B + s0
        inside = (s[:, None] < S) & (d[None, :] < D)
        at = (k_row + s)[:, None] * D + d[None, :]
        k = tl.load(k_ptr + at, mask=inside, other=0.0).to(tl.float32)
        x = tl.sum(q[:, None, :] * k[None, :, :], axis=2)
        seen = s[None, :] < S
        if CAUSAL:
            seen &= s[None, :] + T - S <= t[:, None]
        x = tl.where(seen, x, float("-inf"))
        high = tl.maximum(m, tl.max(x, axis=1))
        p = tl.exp(x - high[:, None])
        c = tl.exp(m - high)
        n = c * n + tl.sum(p, axis=1)
        v = tl.load(v_ptr + at, mask=inside, other=0.0).to(tl.float32)
        acc = acc * c[:, None] + tl.dot(p, v, input_precision="ieee")
        m = high
    tl.store(o_ptr + (q_row + t)[:, None] * D + d[None, :], acc / n[:, None], mask=ok)


def flash_attention(query, key, value, is_causal=True, scale=None, block_size=16):
    batch, heads, new, dim = query.shape
    query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    out = torch.empty_like(query)
    scale = dim**-0.5 if scale is None else scale
    grid = (triton.cdiv(new, block_size), heads, batch)
    flash_attention_kernel[grid](
        query,
        key,
        value,
        out,
        heads,
        key.size(1),
        new,
        key.size(2),
        dim,
        scale,
        is_causal,
        block_size,
        triton.next_power_of_2(dim),
    )
    return out


# %% exercise 16.4: normalized after each block, as in the first paper
@triton.jit
def flash_attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    H,
    K,
    T,
    S,
    D,
    scale,
    CAUSAL: tl.constexpr,
    B: tl.constexpr,
    W: tl.constexpr,
):
    pid = tl.program_id(0)
    blocks = tl.cdiv(T, B)
    row, first = pid // blocks, (pid % blocks) * B
    t = first + tl.arange(0, B)[:, None]
    d = tl.arange(0, W)[None, :]
    kv = (row // H) * K + (row % H) // (H // K)
    q = tl.load(q_ptr + (row * T + t) * D + d, mask=(t < T) & (d < D), other=0.0)
    m = tl.full((B, 1), float("-inf"), dtype=tl.float32)
    n = tl.zeros((B, 1), dtype=tl.float32)
    o = tl.zeros((B, W), dtype=tl.float32)
    last = S
    if CAUSAL:
        last = tl.minimum(S - T + first + B, S)
    for start in range(0, last, B):
        s = start + tl.arange(0, B)
        at = (kv * S + s[:, None]) * D + d
        inside = (s[:, None] < S) & (d < D)
        k = tl.load(k_ptr + at, mask=inside, other=0.0)
        v = tl.load(v_ptr + at, mask=inside, other=0.0)
        x = tl.dot(q.to(tl.float32), tl.trans(k.to(tl.float32)), input_precision="ieee") * scale
        hidden = s[None, :] >= S
        if CAUSAL:
            hidden = hidden | (s[None, :] > t + (S - T))
        x = tl.where(hidden, float("-inf"), x)
        high = tl.maximum(m, tl.max(x, axis=1, keep_dims=True))
        p = tl.exp(x - high)
        old = n * tl.exp(m - high)
        n = old + tl.sum(p, axis=1, keep_dims=True)
        o = o * (old / n) + tl.dot(p / n, v.to(tl.float32), input_precision="ieee")
        m = high
    tl.store(o_ptr + (row * T + t) * D + d, o.to(o_ptr.dtype.element_ty), (t < T) & (d < D))


def flash_attention(query, key, value, is_causal=True, scale=None, block_size=16):
    batch, heads, new, dim = query.shape
    query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    out = torch.empty_like(query)
    scale = dim**-0.5 if scale is None else scale
    grid = (triton.cdiv(new, block_size) * batch * heads,)
    flash_attention_kernel[grid](
        query,
        key,
        value,
        out,
        heads,
        key.size(1),
        new,
        key.size(2),
        dim,
        scale,
        is_causal,
        block_size,
        triton.next_power_of_2(dim),
    )
    return out


# %% exercise 16.5: one row in a program
@triton.jit
def quantized_matvec_kernel(
    x_ptr, w_ptr, s_ptr, y_ptr, columns, group_size, BITS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    per_byte: tl.constexpr = 8 // BITS
    total = 0.0
    for start in range(0, columns // per_byte, BLOCK):
        byte = start + tl.arange(0, BLOCK)
        mask = byte * per_byte < columns
        w = tl.load(w_ptr + row * (columns // per_byte) + byte, mask=mask, other=0).to(tl.int32)
        column = byte * per_byte
        groups = columns // group_size
        scale = tl.load(s_ptr + row * groups + column // group_size, mask=mask, other=0.0)
        x = tl.load(x_ptr + column, mask=mask, other=0.0).to(tl.float32)
        if BITS == 4:
            after = tl.load(x_ptr + column + 1, mask=mask, other=0.0).to(tl.float32)
            total += tl.sum((w // 16 - 8).to(tl.float32) * after * scale)
            w = w % 16 - 8
        total += tl.sum(w.to(tl.float32) * x * scale)
    tl.store(y_ptr + row, total)


def quantized_matvec(x, weight, scale, bits=8, block_size=64, block_rows=4):
    out = torch.empty(len(weight), dtype=x.dtype)
    quantized_matvec_kernel[(len(weight),)](
        x, weight, scale, out, len(x), len(x) // scale.size(1), BITS=bits, BLOCK=block_size
    )
    return out


# %% exercise 16.5: the scale after the sum of a group
@triton.jit
def quantized_matvec_kernel(
    x_ptr,
    w_ptr,
    s_ptr,
    y_ptr,
    rows,
    columns,
    groups,
    BITS: tl.constexpr,
    R: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0) * R + tl.arange(0, R)
    per: tl.constexpr = 8 // BITS
    length = columns // groups // per
    total = tl.zeros((R,), tl.float32)
    for group in range(groups):
        part = tl.zeros((R,), tl.float32)
        for start in range(0, length, BLOCK):
            i = start + tl.arange(0, BLOCK)
            ok = (row[:, None] < rows) & (i[None, :] < length)
            at = row[:, None] * (columns // per) + group * length + i[None, :]
            w = tl.load(w_ptr + at, mask=ok, other=0).to(tl.int32)
            x_at = (group * length + i) * per
            x = tl.load(x_ptr + x_at, mask=i < length, other=0.0).to(tl.float32)
            if BITS == 8:
                part += tl.sum(w * x[None, :], axis=1)
            else:
                z = tl.load(x_ptr + x_at + 1, mask=i < length, other=0.0).to(tl.float32)
                part += tl.sum(((w & 15) - 8) * x[None, :], axis=1)
                part += tl.sum(((w >> 4) - 8) * z[None, :], axis=1)
        scale = tl.load(s_ptr + row * groups + group, mask=row < rows, other=0.0)
        total += part * scale
    tl.store(y_ptr + row, total, mask=row < rows)


def quantized_matvec(x, weight, scale, bits=8, block_size=64, block_rows=4):
    rows, out = weight.size(0), torch.empty(weight.size(0), dtype=x.dtype)
    columns, groups = x.numel(), scale.size(1)
    quantized_matvec_kernel[(triton.cdiv(rows, block_rows),)](
        x, weight, scale, out, rows, columns, groups, bits, block_rows, block_size
    )
    return out


# %% exercise 16.5: one program for all rows
@triton.jit
def quantized_matvec_kernel(
    x_ptr,
    w_ptr,
    s_ptr,
    y_ptr,
    rows,
    columns,
    groups,
    BITS: tl.constexpr,
    R: tl.constexpr,
    BLOCK: tl.constexpr,
):
    per: tl.constexpr = 8 // BITS
    for row in range(rows):
        total = 0.0
        for start in range(0, columns // per, BLOCK):
            i = start + tl.arange(0, BLOCK)
            ok = i < columns // per
            w = tl.load(w_ptr + row * (columns // per) + i, mask=ok, other=0).to(tl.int32)
            s_at = s_ptr + row * groups + i * per * groups // columns
            s = tl.load(s_at, mask=ok, other=0.0)
            x = tl.load(x_ptr + i * per, mask=ok, other=0.0).to(tl.float32)
            if BITS == 4:
                z = tl.load(x_ptr + i * per + 1, mask=ok, other=0.0).to(tl.float32)
                total += tl.sum(s * z * ((w >> 4) - 8), axis=0)
                w = (w & 15) - 8
            total += tl.sum(s * x * w, axis=0)
        tl.store(y_ptr + row, total)


def quantized_matvec(x, weight, scale, bits=8, block_size=64, block_rows=4):
    rows, out = weight.size(0), torch.empty(weight.size(0), dtype=x.dtype)
    columns, groups = x.numel(), scale.size(1)
    quantized_matvec_kernel[(1,)](
        x, weight, scale, out, rows, columns, groups, bits, 1, block_size
    )
    return out


# %% exercise 16.8: a sum that is divided first
@triton.jit
def web_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + lane, mask=lane < size, other=0.0)
    out = x / tl.sqrt(tl.sum(x * x / size, axis=0) + 1e-6)
    tl.store(out_ptr + lane, out, mask=lane < size)


def web_norm(x):
    out = torch.empty_like(x)
    web_kernel[(1,)](x, out, len(x), BLOCK=triton.next_power_of_2(len(x)))
    return out


# %% exercise 16.9: a copy without gaps
@triton.jit
def web_row_kernel(x_ptr, out_ptr, stride, size, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    begin = tl.program_id(0) * size
    x = tl.load(x_ptr + begin + lane, mask=lane < size, other=0.0)
    out = x * tl.rsqrt(tl.sum(x * x, axis=0) / size + 1e-6)
    tl.store(out_ptr + begin + lane, out, mask=lane < size)


def web_rows(x):
    x, out = x.contiguous(), torch.empty(x.shape)
    block = triton.next_power_of_2(x.size(1))
    web_row_kernel[(len(x),)](x, out, x.stride(0), x.size(1), BLOCK=block)
    return out
