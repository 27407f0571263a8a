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
    grid = lambda meta: (x.shape[0],)
    rms_norm_kernel[grid](
        x, r, weight, y, s, x.stride(0), r.stride(0), n, eps, residual is not None,
        triton.next_power_of_2(n),
    )
    y = y.reshape(hidden_states.shape)
    return y if residual is None else (y, s.reshape(hidden_states.shape))


# %% exercise 16.1: several rows in a program
@triton.jit
def rms_norm_kernel(
    x_ptr, r_ptr, w_ptr, y_ptr, s_ptr, x_stride, r_stride, rows, size, eps,
    RESIDUAL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
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
        x, r, weight, y, s, x.stride(0), r.stride(0), rows, size, eps,
        RESIDUAL=residual is not None, ROWS=2, BLOCK=triton.next_power_of_2(size),
    )
    y, s = y.view(hidden_states.shape), s.view(hidden_states.shape)
    return y if residual is None else (y, s)


# %% exercise 16.1: undefined lanes are put right with where
@triton.jit
def rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, x_stride, residual_stride,
    hidden_size, eps, HAS_RESIDUAL: tl.constexpr, BLOCK: tl.constexpr,
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
        rows, added, weight, out, total, rows.stride(0), added.stride(0), rows.size(1), eps,
        HAS_RESIDUAL=residual is not None, BLOCK=block,
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
        logits, labels, losses, logits.stride(0), logits.shape[1], counted, ignore_index,
        BLOCK=block_size,
    )
    return losses.sum(), logits


# %% exercise 16.4: keys loaded transposed, the whole scale in the query, 2^x
@triton.jit
def flash_attention_kernel(
    Q, K, V, O, groups, T, S, D, scale, CAUSAL: tl.constexpr, BLOCK: tl.constexpr,
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
    l = tl.zeros([BLOCK], dtype=tl.float32)
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
        l = l * alpha + tl.sum(p, 1)
        acc = tl.dot(p, v.to(tl.float32), acc * alpha[:, None], input_precision="ieee")
        m = m_new
    tl.store(O + q_at, acc / l[:, None], mask=q_mask)


def flash_attention(query, key, value, is_causal=True, scale=None, block_size=16):
    batch, heads, new, dim = query.shape
    query, key, value = (x.contiguous() for x in (query, key, value))
    out = torch.empty_like(query)
    flash_attention_kernel[triton.cdiv(new, block_size), batch * heads](
        query, key, value, out, heads // key.size(1), new, key.size(2), dim,
        dim**-0.5 if scale is None else scale, is_causal, block_size,
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
