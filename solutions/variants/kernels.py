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


# %% exercise 16.1: an addition and a norm in one pass, as Liger has them
@triton.jit
def rms_norm_kernel(
    Y_ptr, S_ptr, X_ptr, R_ptr, W_ptr, Y_stride, X_stride, R_stride, n_cols, eps,
    has_residual: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    Y_ptr += row_idx * Y_stride
    S_ptr += row_idx * Y_stride
    X_ptr += row_idx * X_stride
    R_ptr += row_idx * R_stride
    S_row = tl.load(X_ptr + col_offsets, mask=mask, other=0).to(tl.float32)
    if has_residual:
        S_row += tl.load(R_ptr + col_offsets, mask=mask, other=0).to(tl.float32)
        S_row = S_row.to(S_ptr.dtype.element_ty)  # the norm sees the sum as it is stored
        tl.store(S_ptr + col_offsets, S_row, mask=mask)
    S_row = S_row.to(tl.float32)
    W_row = tl.load(W_ptr + col_offsets, mask=mask, other=0)
    mean_square = tl.sum(S_row * S_row, axis=0) / n_cols
    rstd = tl.rsqrt(mean_square + eps)
    tl.store(Y_ptr + col_offsets, S_row * rstd * W_row.to(tl.float32), mask=mask)


def rms_norm(hidden_states, weight, eps=1e-6, residual=None):
    shape = hidden_states.shape
    X = as_rows(hidden_states)
    R = X if residual is None else as_rows(residual)
    n_rows, n_cols = X.shape
    Y = torch.empty((n_rows, n_cols), dtype=X.dtype, device=X.device)
    S = Y if residual is None else torch.empty((n_rows, n_cols), dtype=X.dtype)
    rms_norm_kernel[(n_rows,)](
        Y, S, X, R, weight, Y.stride(0), X.stride(0), R.stride(0), n_cols, eps,
        has_residual=residual is not None, BLOCK_SIZE=triton.next_power_of_2(n_cols),
    )  # fmt: skip
    return Y.view(*shape) if residual is None else (Y.view(*shape), S.view(*shape))


# %% exercise 16.1: names of the puzzles, masks by where
@triton.jit
def rms_norm_kernel(x_ptr, y_ptr, g_ptr, z_ptr, s_ptr, xs, ys, T, eps, ADD, B0: tl.constexpr):
    pid = tl.program_id(0)
    off_x = tl.arange(0, B0)
    mask_x = off_x < T
    x = tl.load(x_ptr + pid * xs + off_x, mask_x, other=0.0).to(tl.float32)
    if ADD:
        x = x + tl.load(y_ptr + pid * ys + off_x, mask_x, other=0.0)
    tl.store(s_ptr + pid * T + off_x, x, mask_x)
    x_sq = tl.where(mask_x, x * x, 0.0)
    z = x / tl.sqrt(tl.sum(x_sq) / T + eps)
    z = z * tl.load(g_ptr + off_x, mask_x, other=1.0)
    tl.store(z_ptr + pid * T + off_x, z, mask_x)


def rms_norm(hidden_states, weight, eps=1e-6, residual=None):
    x, T = as_rows(hidden_states), hidden_states.shape[-1]
    y = as_rows(residual) if residual is not None else x
    z, s = torch.empty(x.shape, dtype=x.dtype), torch.empty(x.shape, dtype=x.dtype)
    B0 = 2 ** (T - 1).bit_length()
    rms_norm_kernel[(len(x),)](
        x, y, weight, z, s, x.stride(0), y.stride(0), T, eps, residual is not None, B0=B0
    )
    z, s = z.view(hidden_states.shape), s.view(hidden_states.shape)
    return z if residual is None else (z, s)


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


# %% exercise 16.6: tokens in order of expert, a program per block of picks
@triton.jit
def moe_kernel(
    x_ptr, w_ptr, row_ptr, owner_ptr, begin_ptr, end_ptr, y_ptr, k, width, height,
    B: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    expert = tl.load(owner_ptr + block)
    at = tl.load(begin_ptr + block) + tl.arange(0, B)
    ok = at < tl.load(end_ptr + block)
    pick = tl.load(row_ptr + at, mask=ok, other=0)
    o = tl.program_id(1) * C + tl.arange(0, C)[None, :]
    acc = tl.zeros((B, C), tl.float32)
    for start in range(0, width, C):
        i = start + tl.arange(0, C)
        inside = ok[:, None] & (i[None, :] < width)
        x = tl.load(x_ptr + (pick // k)[:, None] * width + i[None, :], mask=inside, other=0.0)
        w_at = w_ptr + expert * height * width + o * width + i[:, None]
        w = tl.load(w_at, mask=(o < height) & (i[:, None] < width), other=0.0)
        acc = tl.dot(x.to(tl.float32), w.to(tl.float32), acc, input_precision="ieee")
    tl.store(y_ptr + pick[:, None] * height + o, acc, mask=ok[:, None] & (o < height))


def moe_linear(x, weight, experts, block_size=16):
    n, k = experts.shape
    out = x.new_empty(n, k, weight.size(1))
    sorted_picks = torch.sort(experts.reshape(-1), stable=True)
    blocks, begin = [], 0
    for expert in range(len(weight)):
        count = int((experts == expert).sum())
        for start in range(begin, begin + count, block_size):
            blocks.append((expert, start, begin + count))
        begin += count
    owner, begins, ends = torch.tensor(blocks).T.contiguous()
    moe_kernel[len(blocks), triton.cdiv(weight.size(1), block_size)](
        x, weight, sorted_picks.indices, owner, begins, ends, out, k, x.size(1), weight.size(1),
        B=block_size, C=block_size,
    )  # fmt: skip
    return out


# %% exercise 16.6: no matrix product, sums over an axis
@triton.jit
def moe_kernel(
    x_ptr, weight_ptr, order_ptr, first_ptr, out_ptr, top_k, in_size, out_size,
    BLOCK: tl.constexpr, BLOCK_IN: tl.constexpr, BLOCK_OUT: tl.constexpr,
):  # fmt: skip
    expert, outputs = tl.program_id(0), tl.program_id(1) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    weight_ptr += expert.to(tl.int64) * out_size * in_size
    begin, end = tl.load(first_ptr + expert), tl.load(first_ptr + expert + 1)
    blocks = tl.cdiv(end - begin, BLOCK)
    for number in range(blocks):
        at = begin + number * BLOCK + tl.arange(0, BLOCK)
        pick = tl.load(order_ptr + at, mask=at < end, other=-1)
        there = pick[:, None] >= 0
        acc = tl.zeros((BLOCK, BLOCK_OUT), dtype=tl.float32)
        for start in range(0, in_size, BLOCK_IN):
            c = start + tl.arange(0, BLOCK_IN)[None, :]
            x_at = x_ptr + (pick[:, None] // top_k) * in_size + c
            x = tl.load(x_at, mask=there & (c < in_size), other=0.0).to(tl.float32)
            w_ok = (outputs[:, None] < out_size) & (c < in_size)
            w = tl.load(weight_ptr + outputs[:, None] * in_size + c, mask=w_ok, other=0.0)
            acc += tl.sum(x[:, None, :] * w.to(tl.float32)[None, :, :], axis=2)
        out_at = out_ptr + pick[:, None] * out_size + outputs[None, :]
        tl.store(out_at, acc, mask=there & (outputs[None, :] < out_size))


def moe_linear(x, weight, experts, block_size=16):
    out = torch.empty(*experts.shape, weight.size(1), dtype=x.dtype)
    order = torch.argsort(experts.reshape(-1))
    names = torch.arange(len(weight) + 1)
    first = torch.searchsorted(experts.reshape(-1)[order], names)
    moe_kernel[(len(weight), triton.cdiv(weight.size(1), block_size))](
        x, weight, order, first, out, experts.size(1), x.size(1), weight.size(1),
        block_size, block_size, block_size,
    )  # fmt: skip
    return out


# %% exercise 16.6: all outputs and all columns in one tile
@triton.jit
def moe_kernel(
    x_ptr, w_ptr, token_ptr, pick_ptr, first_ptr, y_ptr, width, height,
    B: tl.constexpr, BI: tl.constexpr, BO: tl.constexpr,
):  # fmt: skip
    e = tl.program_id(0)
    i, o = tl.arange(0, BI), tl.arange(0, BO)
    start, stop = tl.load(first_ptr + e), tl.load(first_ptr + e + 1)
    if start < stop:
        w_mask = (i[:, None] < width) & (o[None, :] < height)
        w = tl.load(
            w_ptr + (e * height + o[None, :]) * width + i[:, None], mask=w_mask, other=0.0
        )
        while start < stop:
            at = start + tl.arange(0, B)
            token = tl.load(token_ptr + at, mask=at < stop, other=0)[:, None]
            pick = tl.load(pick_ptr + at, mask=at < stop, other=0)[:, None]
            mask = (at < stop)[:, None]
            x = tl.load(
                x_ptr + token * width + i[None, :], mask=mask & (i[None, :] < width), other=0.0
            )
            y = tl.dot(x, w, input_precision="ieee")
            tl.store(y_ptr + pick * height + o[None, :], y, mask=mask & (o[None, :] < height))
            start += B


def moe_linear(x, weight, experts, block_size=16):
    tokens, top_k = experts.shape
    num_experts, height, width = weight.shape
    out = torch.empty(tokens, top_k, height, dtype=x.dtype)
    pick = experts.flatten().sort(stable=True)[1]
    first = [int((experts < expert).sum()) for expert in range(num_experts + 1)]
    moe_kernel[(num_experts,)](
        x, weight, torch.div(pick, top_k, rounding_mode="floor"), pick, torch.tensor(first),
        out, width, height,
        block_size, triton.next_power_of_2(width), triton.next_power_of_2(height),
    )  # fmt: skip
    return out


# %% exercise 16.7: log_sum and delta in a kernel of their own
@triton.jit
def sums_kernel(
    Q, K, Y, G, L, D, groups, T, S, dim, scale,
    CAUSAL: tl.constexpr, B: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    head, t, d = tl.program_id(0), tl.program_id(1) * B + tl.arange(0, B), tl.arange(0, W)
    ok = (t < T)[:, None] & (d < dim)[None, :]
    at = (head * T + t)[:, None] * dim + d[None, :]
    q = tl.load(Q + at, mask=ok, other=0.0).to(tl.float32) * scale
    o = tl.load(Y + at, mask=ok, other=0.0).to(tl.float32)
    g = tl.load(G + at, mask=ok, other=0.0).to(tl.float32)
    tl.store(D + head * T + t, tl.sum(o * g, 1), mask=t < T)
    m = tl.full((B,), -float("inf"), tl.float32)
    z = tl.zeros((B,), tl.float32)
    stop = tl.minimum(S, S - T + tl.program_id(1) * B + B) if CAUSAL else S
    for first in range(0, stop, B):
        s = first + tl.arange(0, B)
        k_at = (head // groups * S + s)[None, :] * dim + d[:, None]
        k = tl.load(K + k_at, mask=(s < S)[None, :] & (d < dim)[:, None], other=0.0)
        x = tl.dot(q, k.to(tl.float32), input_precision="ieee")
        hidden = (s >= S)[None, :]
        if CAUSAL:
            hidden |= s[None, :] > (S - T + t)[:, None]
        x = tl.where(hidden, -float("inf"), x)
        high = tl.maximum(m, tl.max(x, 1))
        z = z * tl.exp(m - high) + tl.sum(tl.exp(x - high[:, None]), 1)
        m = high
    tl.store(L + head * T + t, m + tl.log(z), mask=t < T)


@triton.jit
def query_grad_kernel(
    Q, K, V, G, L, D, DQ, groups, T, S, dim, scale,
    CAUSAL: tl.constexpr, B: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    head, t, d = tl.program_id(0), tl.program_id(1) * B + tl.arange(0, B), tl.arange(0, W)
    ok = (t < T)[:, None] & (d < dim)[None, :]
    at = (head * T + t)[:, None] * dim + d[None, :]
    q = tl.load(Q + at, mask=ok, other=0.0).to(tl.float32)
    g = tl.load(G + at, mask=ok, other=0.0).to(tl.float32)
    low = tl.load(L + head * T + t, mask=t < T, other=0.0)[:, None]
    delta = tl.load(D + head * T + t, mask=t < T, other=0.0)[:, None]
    acc = tl.zeros((B, W), tl.float32)
    stop = tl.minimum(S, S - T + tl.program_id(1) * B + B) if CAUSAL else S
    for first in range(0, stop, B):
        s = first + tl.arange(0, B)
        k_at = (head // groups * S + s)[:, None] * dim + d[None, :]
        k_ok = (s < S)[:, None] & (d < dim)[None, :]
        k = tl.load(K + k_at, mask=k_ok, other=0.0).to(tl.float32)
        v = tl.load(V + k_at, mask=k_ok, other=0.0).to(tl.float32)
        p = tl.exp(tl.dot(q, tl.trans(k), input_precision="ieee") * scale - low)
        seen = (s < S)[None, :]
        if CAUSAL:
            seen &= s[None, :] <= (S - T + t)[:, None]
        p = tl.where(seen, p, 0.0)
        ds = p * (tl.dot(g, tl.trans(v), input_precision="ieee") - delta) * scale
        acc = tl.dot(ds, k, acc, input_precision="ieee")
    tl.store(DQ + at, acc, mask=ok)


@triton.jit
def key_value_grad_kernel(
    Q, K, V, G, L, D, DK, DV, groups, T, S, dim, scale,
    CAUSAL: tl.constexpr, B: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    kv, s, d = tl.program_id(0), tl.program_id(1) * B + tl.arange(0, B), tl.arange(0, W)
    k_at = (kv * S + s)[:, None] * dim + d[None, :]
    k_ok = (s < S)[:, None] & (d < dim)[None, :]
    k = tl.load(K + k_at, mask=k_ok, other=0.0).to(tl.float32)
    v = tl.load(V + k_at, mask=k_ok, other=0.0).to(tl.float32)
    dk = tl.zeros((B, W), tl.float32)
    dv = tl.zeros((B, W), tl.float32)
    start = tl.maximum(0, T - S + tl.program_id(1) * B) if CAUSAL else 0
    for head in range(kv * groups, kv * groups + groups):
        for first in range(start, T, B):
            t = first + tl.arange(0, B)
            at = (head * T + t)[:, None] * dim + d[None, :]
            ok = (t < T)[:, None] & (d < dim)[None, :]
            q = tl.load(Q + at, mask=ok, other=0.0).to(tl.float32)
            g = tl.load(G + at, mask=ok, other=0.0).to(tl.float32)
            low = tl.load(L + head * T + t, mask=t < T, other=float("inf"))[None, :]
            delta = tl.load(D + head * T + t, mask=t < T, other=0.0)[None, :]
            p = tl.exp(tl.dot(k, tl.trans(q), input_precision="ieee") * scale - low)
            if CAUSAL:
                p = tl.where(s[:, None] <= (S - T + t)[None, :], p, 0.0)
            dv += tl.dot(p, g, input_precision="ieee")
            ds = p * (tl.dot(v, tl.trans(g), input_precision="ieee") - delta)
            dk += tl.dot(ds, q, input_precision="ieee")
    tl.store(DK + k_at, scale * dk, mask=k_ok)
    tl.store(DV + k_at, dv, mask=k_ok)


def flash_attention_backward(
    grad_out, query, key, value, out, is_causal=True, scale=None, block_size=16
):
    B, H, T, dim = query.shape
    K, S = key.shape[1:3]
    G, Q, k, v, Y = (x.contiguous() for x in (grad_out, query, key, value, out))
    DQ, DK, DV = torch.empty_like(Q), torch.empty_like(k), torch.empty_like(v)
    L, D = torch.empty(2, B * H, T).unbind()
    scale = dim**-0.5 if scale is None else scale
    rest = (H // K, T, S, dim, scale, is_causal, block_size, triton.next_power_of_2(dim))
    over_queries = (B * H, triton.cdiv(T, block_size))
    sums_kernel[over_queries](Q, k, Y, G, L, D, *rest)
    query_grad_kernel[over_queries](Q, k, v, G, L, D, DQ, *rest)
    key_value_grad_kernel[(B * K, triton.cdiv(S, block_size))](Q, k, v, G, L, D, DK, DV, *rest)
    return DQ, DK, DV


# %% exercise 16.7: the logarithm of the sum is what runs along the keys
@triton.jit
def tile(ptr, row, limit, size, W: tl.constexpr):
    d = tl.arange(0, W)
    mask = (row < limit)[:, None] & (d < size)[None, :]
    return tl.load(ptr + row[:, None] * size + d[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit
def weights_of(q, k, low, t, s, T, S, scale, CAUSAL: tl.constexpr):
    x = scale * tl.sum(q[:, None, :] * k[None, :, :], axis=2)
    seen = (t < T)[:, None] & (s < S)[None, :]
    if CAUSAL:
        seen = seen & (t[:, None] + (S - T) >= s[None, :])
    return tl.where(seen, tl.exp(x - low[:, None]), 0.0)


@triton.jit
def query_grad_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, g_ptr, dq_ptr, low_ptr, delta_ptr, G, T, S, D, scale,
    CAUSAL: tl.constexpr, B: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    head, first = tl.program_id(1), tl.program_id(0) * B
    t = first + tl.arange(0, B)
    lane, kv = tl.arange(0, B), head // G
    q_ptr += head * T * D
    k_ptr += kv * S * D
    v_ptr += kv * S * D
    q, g = tile(q_ptr, t, T, D, W), tile(g_ptr + head * T * D, t, T, D, W)
    delta = tl.sum(g * tile(o_ptr + head * T * D, t, T, D, W), axis=1)
    blocks = tl.cdiv(S, B)
    if CAUSAL:
        blocks = tl.cdiv(tl.minimum(S, S - T + first + B), B)
    low = tl.full((B,), -1e30, tl.float32)
    for block in range(blocks):
        s = block * B + lane
        x = scale * tl.dot(q, tl.trans(tile(k_ptr, s, S, D, W)), input_precision="ieee")
        seen = s[None, :] < S
        if CAUSAL:
            seen = seen & (t[:, None] + (S - T) >= s[None, :])
        x = tl.where(seen, x, -1e30)
        high = tl.maximum(low, tl.max(x, axis=1))
        both = tl.exp(low - high) + tl.sum(tl.exp(x - high[:, None]), axis=1)
        low = high + tl.log(both)  # the logarithm of the sum so far
    tl.store(low_ptr + head * T + t, low, mask=t < T)
    tl.store(delta_ptr + head * T + t, delta, mask=t < T)
    dq = tl.zeros((B, W), tl.float32)
    for block in range(blocks):
        s = block * B + lane
        k, v = tile(k_ptr, s, S, D, W), tile(v_ptr, s, S, D, W)
        p = weights_of(q, k, low, t, s, T, S, scale, CAUSAL)
        dp = tl.dot(g, tl.trans(v), input_precision="ieee")
        dq += scale * tl.dot(p * (dp - delta[:, None]), k, input_precision="ieee")
    at = dq_ptr + (head * T + t)[:, None] * D + tl.arange(0, W)[None, :]
    tl.store(at, dq, mask=(t < T)[:, None] & (tl.arange(0, W) < D)[None, :])


@triton.jit
def key_value_grad_kernel(
    q_ptr, k_ptr, v_ptr, g_ptr, low_ptr, delta_ptr, dk_ptr, dv_ptr, G, T, S, D, scale,
    CAUSAL: tl.constexpr, B: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    kv, first = tl.program_id(1), tl.program_id(0) * B
    s = first + tl.arange(0, B)
    k, v = tile(k_ptr + kv * S * D, s, S, D, W), tile(v_ptr + kv * S * D, s, S, D, W)
    dk = tl.zeros((B, W), tl.float32)
    dv = tl.zeros((B, W), tl.float32)
    start = 0
    if CAUSAL:
        start = tl.maximum(first - (S - T), 0)
    for step in range(G * tl.cdiv(T - start, B)):
        per_head = tl.cdiv(T - start, B)
        head = kv * G + step // per_head
        t = start + step % per_head * B + tl.arange(0, B)
        q, g = tile(q_ptr + head * T * D, t, T, D, W), tile(g_ptr + head * T * D, t, T, D, W)
        low = tl.load(low_ptr + head * T + t, mask=t < T, other=0.0)
        delta = tl.load(delta_ptr + head * T + t, mask=t < T, other=0.0)
        p = weights_of(q, k, low, t, s, T, S, scale, CAUSAL)
        dp = tl.dot(g, tl.trans(v), input_precision="ieee")
        dv += tl.dot(tl.trans(p), g, input_precision="ieee")
        dk += tl.dot(tl.trans(p * (dp - delta[:, None]) * scale), q, input_precision="ieee")
    at = (kv * S + s)[:, None] * D + tl.arange(0, W)[None, :]
    mask = (s < S)[:, None] & (tl.arange(0, W) < D)[None, :]
    tl.store(dk_ptr + at, dk, mask=mask)
    tl.store(dv_ptr + at, dv, mask=mask)


def flash_attention_backward(
    grad_out, query, key, value, out, is_causal=True, scale=None, block_size=16
):
    inputs = [x.contiguous() for x in (query, key, value, out, grad_out)]
    query, key, value, out, grad_out = inputs
    (B, H, T, D), (_, K, S, _) = query.shape, key.shape
    grads = [torch.empty_like(x) for x in inputs[:3]]
    low, delta = torch.empty(B * H * T), torch.empty(B * H * T)
    numbers = (H // K, T, S, D, D**-0.5 if scale is None else scale)
    sizes = {"CAUSAL": is_causal, "B": block_size, "W": triton.next_power_of_2(D)}
    query_grad_kernel[triton.cdiv(T, block_size), B * H](
        *inputs, grads[0], low, delta, *numbers, **sizes
    )
    key_value_grad_kernel[triton.cdiv(S, block_size), B * K](
        query, key, value, grad_out, low, delta, grads[1], grads[2], *numbers, **sizes
    )
    return tuple(grads)


# %% exercise 16.7: delta by torch, the maximum and the sum kept apart
@triton.jit
def query_grad_kernel(
    query_ptr, key_ptr, value_ptr, grad_ptr, delta_ptr, query_grad_ptr, max_ptr, sum_ptr,
    group, T, S, D, scale, CAUSAL: tl.constexpr, B: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    n, t = tl.program_id(1), tl.program_id(0) * B + tl.arange(0, B)
    w = tl.arange(0, W)[None, :]
    here = (t[:, None] < T) & (w < D)
    place = (n * T + t)[:, None] * D + w
    q = tl.load(query_ptr + place, mask=here, other=0.0).to(tl.float32)
    g = tl.load(grad_ptr + place, mask=here, other=0.0).to(tl.float32)
    delta = tl.load(delta_ptr + n * T + t, mask=t < T, other=0.0)
    m = tl.full((B,), -float("inf"), tl.float32)
    z = tl.zeros((B,), tl.float32)
    dq = tl.zeros((B, W), tl.float32)
    end = S
    if CAUSAL:
        end = tl.minimum(S, S - T + tl.program_id(0) * B + B)
    for start in range(0, end, B):  # one pass: the gradient shrinks with the sum
        s = start + tl.arange(0, B)
        k_place = ((n // group) * S + s)[:, None] * D + w
        k_here = (s[:, None] < S) & (w < D)
        k = tl.load(key_ptr + k_place, mask=k_here, other=0.0).to(tl.float32)
        v = tl.load(value_ptr + k_place, mask=k_here, other=0.0).to(tl.float32)
        x = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        x = tl.where(s[None, :] < S, x, -float("inf"))
        if CAUSAL:
            x = tl.where(s[None, :] <= (t + S - T)[:, None], x, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=1))
        p = tl.exp(x - m_new[:, None])
        c = tl.exp(m - m_new)
        z = c * z + tl.sum(p, axis=1)
        dp = tl.dot(g, tl.trans(v), input_precision="ieee") - delta[:, None]
        dq = dq * c[:, None] + tl.dot(p * dp, k, input_precision="ieee")
        m = m_new
    tl.store(max_ptr + n * T + t, m, mask=t < T)
    tl.store(sum_ptr + n * T + t, z, mask=t < T)
    tl.store(query_grad_ptr + place, dq * scale / z[:, None], mask=here)


@triton.jit
def key_value_grad_kernel(
    query_ptr, key_ptr, value_ptr, grad_ptr, delta_ptr, max_ptr, sum_ptr, key_grad_ptr,
    value_grad_ptr, group, T, S, D, scale,
    CAUSAL: tl.constexpr, B: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    n, s = tl.program_id(1), tl.program_id(0) * B + tl.arange(0, B)
    w = tl.arange(0, W)[None, :]
    here = (s[:, None] < S) & (w < D)
    place = (n * S + s)[:, None] * D + w
    k = tl.load(key_ptr + place, mask=here, other=0.0).to(tl.float32)
    v = tl.load(value_ptr + place, mask=here, other=0.0).to(tl.float32)
    dk = tl.zeros((B, W), tl.float32)
    dv = tl.zeros((B, W), tl.float32)
    for start in range(0, T, B):
        t = start + tl.arange(0, B)
        if not CAUSAL or tl.program_id(0) * B <= start + B - 1 + S - T:
            for number in range(group):
                rows = (n * group + number) * T + t
                q_here = (t[:, None] < T) & (w < D)
                q_place = rows[:, None] * D + w
                q = tl.load(query_ptr + q_place, mask=q_here, other=0.0).to(tl.float32)
                g = tl.load(grad_ptr + q_place, mask=q_here, other=0.0).to(tl.float32)
                delta = tl.load(delta_ptr + rows, mask=t < T, other=0.0)
                m = tl.load(max_ptr + rows, mask=t < T, other=0.0)
                z = tl.load(sum_ptr + rows, mask=t < T, other=1.0)
                x = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
                p = tl.exp(x - m[:, None]) / z[:, None]
                if CAUSAL:
                    p = tl.where(s[None, :] <= (t + S - T)[:, None], p, 0.0)
                dp = tl.dot(g, tl.trans(v), input_precision="ieee") - delta[:, None]
                dv = tl.dot(tl.trans(p), g, dv, input_precision="ieee")
                dk = tl.dot(tl.trans(p * dp), q, dk, input_precision="ieee")
    tl.store(key_grad_ptr + place, dk * scale, mask=here)
    tl.store(value_grad_ptr + place, dv, mask=here)


def flash_attention_backward(
    grad_out, query, key, value, out, is_causal=True, scale=None, block_size=16
):
    g, q, k, v = (x.contiguous() for x in (grad_out, query, key, value))
    delta = (grad_out.float() * out.float()).sum(dim=-1).contiguous()
    m, z = torch.empty_like(delta), torch.empty_like(delta)
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    batch, heads, T, D = q.shape
    kv_heads, S = k.shape[1:3]
    shared = (heads // kv_heads, T, S, D, D**-0.5 if scale is None else scale)
    blocks = (is_causal, block_size, triton.next_power_of_2(D))
    query_grad_kernel[(triton.cdiv(T, block_size), batch * heads)](
        q, k, v, g, delta, dq, m, z, *shared, *blocks
    )
    key_value_grad_kernel[(triton.cdiv(S, block_size), batch * kv_heads)](
        q, k, v, g, delta, m, z, dk, dv, *shared, *blocks
    )
    return dq, dk, dv


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
