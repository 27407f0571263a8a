"""Lab 16: kernels.

The layers of the decoder as programs that run over memory once, written in Triton.

Shapes: N rows (tokens of all texts), B batch, T new tokens, S cached + new tokens,
E hidden_size, H query heads, K KV heads, G = H/K queries per KV head, D head_dim,
I intermediate_size, V vocab_size.
"""

import torch
from torch import Tensor

from .triton_tools import as_rows, tl, triton


# %% exercise 16.1: rms_norm_kernel, rms_norm
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
    """One program normalizes one row: y = x / sqrt(mean(x^2) + eps) * weight.

    If HAS_RESIDUAL, x is first x + residual, and that sum is stored at total_ptr. Row n of x
    begins at n * x_stride, of residual at n * residual_stride, of out and total at
    n * hidden_size. BLOCK is a power of two, hidden_size or more: lanes past the end of a row
    load 0 and store nothing. Everything is computed in float32. Each number of x and residual
    is loaded once, each number of out and total stored once.
    """
    ### BEGIN SOLUTION
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    is_inside = column < hidden_size
    x = tl.load(x_ptr + row * x_stride + column, mask=is_inside, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        place = residual_ptr + row * residual_stride + column
        x += tl.load(place, mask=is_inside, other=0.0).to(tl.float32)
        tl.store(total_ptr + row * hidden_size + column, x, mask=is_inside)
    weight = tl.load(weight_ptr + column, mask=is_inside, other=0.0).to(tl.float32)
    mean_square = tl.sum(x * x, axis=0) / hidden_size
    out = x * tl.rsqrt(mean_square + eps) * weight
    tl.store(out_ptr + row * hidden_size + column, out, mask=is_inside)
    ### END SOLUTION


def rms_norm(
    hidden_states: Tensor, weight: Tensor, eps: float = 1e-6, residual: Tensor | None = None
) -> Tensor | tuple[Tensor, Tensor]:
    """Start rms_norm_kernel, one program per row.

    Shapes: hidden_states (..., E), weight (E,), residual (..., E) or None
            -> normalized (..., E); with a residual (normalized, hidden_states + residual)
    dtype:  those of hidden_states; float32 inside
    Source: Zhang and Sennrich 2019, https://arxiv.org/abs/1910.07467; one pass with the
            residual: https://github.com/linkedin/Liger-Kernel
    """
    rows = as_rows(hidden_states)  # (N, E)
    added = rows if residual is None else as_rows(residual)
    out = torch.empty(rows.shape, dtype=rows.dtype, device=rows.device)
    total = out if residual is None else torch.empty_like(out)
    ### BEGIN SOLUTION
    rms_norm_kernel[(rows.size(0),)](
        rows, added, weight, out, total, rows.stride(0), added.stride(0), rows.size(1), eps,
        HAS_RESIDUAL=residual is not None, BLOCK=triton.next_power_of_2(rows.size(1)),
    )  # fmt: skip
    ### END SOLUTION
    out = out.view(hidden_states.shape)
    return out if residual is None else (out, total.view(hidden_states.shape))


# %% exercise 16.2: swiglu_kernel, swiglu_backward_kernel
@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, gate_stride, up_stride, size, BLOCK: tl.constexpr):
    """Program (n, block) computes BLOCK numbers of row n: out = silu(gate) * up.

    silu(x) = x * sigmoid(x), in float32. Row n of gate begins at n * gate_stride, of up at
    n * up_stride, of out at n * size. size need not be a multiple of BLOCK.
    """
    ### BEGIN SOLUTION
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = column < size
    gate = tl.load(gate_ptr + row * gate_stride + column, mask=is_inside).to(tl.float32)
    up = tl.load(up_ptr + row * up_stride + column, mask=is_inside).to(tl.float32)
    tl.store(out_ptr + row * size + column, gate * tl.sigmoid(gate) * up, mask=is_inside)
    ### END SOLUTION


@triton.jit
def swiglu_backward_kernel(
    grad_ptr, gate_ptr, up_ptr, grad_gate_ptr, grad_up_ptr, gate_stride, up_stride, size,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradients of swiglu_kernel's inputs, from grad, the gradient of its output.

        grad_up   = grad * silu(gate)
        grad_gate = up * s * (1 + (1 - s) * gate) * grad,   s = sigmoid(gate)

    s is computed anew: three numbers are loaded, two stored, nothing is kept of the forward
    pass. Row n of grad, grad_gate and grad_up begins at n * size; gate and up as above.
    """
    ### BEGIN SOLUTION
    row = tl.program_id(0)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    in_row = place < size
    grad = tl.load(grad_ptr + row * size + place, mask=in_row).to(tl.float32)
    gate = tl.load(gate_ptr + row * gate_stride + place, mask=in_row).to(tl.float32)
    up = tl.load(up_ptr + row * up_stride + place, mask=in_row).to(tl.float32)
    s = tl.sigmoid(gate)
    grad_gate = grad * up * s * (1 + gate * (1 - s))
    tl.store(grad_gate_ptr + row * size + place, grad_gate, mask=in_row)
    tl.store(grad_up_ptr + row * size + place, grad * gate * s, mask=in_row)
    ### END SOLUTION


class SwiGLU(torch.autograd.Function):
    """The two kernels, as torch's autograd starts them."""

    @staticmethod
    def forward(ctx, gate: Tensor, up: Tensor, block_size: int) -> Tensor:
        ctx.save_for_backward(gate, up)
        ctx.block_size = block_size
        gates, ups = as_rows(gate), as_rows(up)  # (N, I)
        out = torch.empty(gates.shape, dtype=gate.dtype, device=gate.device)
        grid = (gates.size(0), triton.cdiv(gates.size(1), block_size))
        swiglu_kernel[grid](
            gates, ups, out, gates.stride(0), ups.stride(0), gates.size(1), BLOCK=block_size
        )
        return out.view(gate.shape)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        gate, up = ctx.saved_tensors
        gates, ups, grads = as_rows(gate), as_rows(up), as_rows(grad).contiguous()
        grad_gate, grad_up = torch.empty_like(grads), torch.empty_like(grads)
        grid = (gates.size(0), triton.cdiv(gates.size(1), ctx.block_size))
        swiglu_backward_kernel[grid](
            grads, gates, ups, grad_gate, grad_up, gates.stride(0), ups.stride(0),
            gates.size(1), BLOCK=ctx.block_size,
        )  # fmt: skip
        return grad_gate.view(gate.shape), grad_up.view(up.shape), None


def swiglu(gate: Tensor, up: Tensor, block_size: int = 1024) -> Tensor:
    """silu(gate) * up with its gradient, no intermediate stored.

    gate and up may be two halves of one tensor: their rows then are further apart than they
    are long.

    Shapes: gate (..., I), up (..., I) -> (..., I)
    dtype:  that of gate; float32 inside
    Source: Shazeer 2020, https://arxiv.org/abs/2002.05202
    """
    return SwiGLU.apply(gate, up, block_size)


# %% exercise 16.3: cross_entropy_kernel
@triton.jit
def cross_entropy_kernel(
    logits_ptr, labels_ptr, loss_ptr, logits_stride, vocab_size, num_labels, ignore_index,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One program computes the loss of one row, and writes its gradient over the logits.

        loss     = (log(sum_v exp(logits_v)) - logits_label) / num_labels
        gradient = (softmax(logits) - (1 at the label, else 0)) / num_labels

    First pass: BLOCK columns at a time, the largest logit so far and the sum of
    exp(logit - largest); a block that raises the largest first shrinks the sum. Second pass:
    the gradient, stored where the logits were. Each logit is loaded twice (the label's once
    more), stored once. A row whose label is ignore_index has loss 0 and gradient 0, and loads
    no logits. Row n begins at n * logits_stride, which may pass 2^31: count rows in int64.
    Everything is computed in float32.
    """
    ### BEGIN SOLUTION
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * logits_stride
    label = tl.load(labels_ptr + row)
    if label == ignore_index:
        for start in range(0, vocab_size, BLOCK):
            column = start + tl.arange(0, BLOCK)
            tl.store(logits_ptr + column, 0.0, mask=column < vocab_size)
        tl.store(loss_ptr + row, 0.0)
        return
    label_logit = tl.load(logits_ptr + label).to(tl.float32)  # before it is written over
    largest = -float("inf")
    total = 0.0
    for start in range(0, vocab_size, BLOCK):
        column = start + tl.arange(0, BLOCK)
        logits = tl.load(logits_ptr + column, mask=column < vocab_size, other=-float("inf"))
        logits = logits.to(tl.float32)
        new_largest = tl.maximum(largest, tl.max(logits, axis=0))
        shrunk = total * tl.exp(largest - new_largest)
        total = shrunk + tl.sum(tl.exp(logits - new_largest), axis=0)
        largest = new_largest
    log_sum = largest + tl.log(total)
    tl.store(loss_ptr + row, (log_sum - label_logit) / num_labels)
    for start in range(0, vocab_size, BLOCK):
        column = start + tl.arange(0, BLOCK)
        is_inside = column < vocab_size
        again = tl.load(logits_ptr + column, mask=is_inside, other=-float("inf"))
        probs = tl.exp(again.to(tl.float32) - log_sum)
        gradient = tl.where(column == label, probs - 1.0, probs) / num_labels
        tl.store(logits_ptr + column, gradient, mask=is_inside)
    ### END SOLUTION


def cross_entropy_(
    logits: Tensor, labels: Tensor, ignore_index: int = -100, block_size: int = 1024
) -> tuple[Tensor, Tensor]:
    """Mean loss of the labels that count; the gradient of that loss takes the logits' place.

    The logits are never copied: with Qwen3's 151,936 columns they are the largest tensor of a
    training step, and their softmax and gradient would be two more of that size.

    Shapes: logits (N, V), the numbers of a row adjacent, labels (N,) int64
            -> loss, a scalar float32, and gradient (N, V), which is logits itself
    Errors: no label that counts: the loss is NaN, as torch's is, and the gradient 0
    Source: Milakov and Gimelshein 2018, https://arxiv.org/abs/1805.02867; in place:
            https://github.com/linkedin/Liger-Kernel
    """
    losses = torch.empty(logits.size(0), dtype=torch.float32, device=logits.device)
    num_labels = int((labels != ignore_index).sum())
    if num_labels == 0:
        return losses.fill_(torch.nan).sum(), logits.zero_()
    cross_entropy_kernel[(logits.size(0),)](
        logits, labels, losses, logits.stride(0), logits.size(1), num_labels, ignore_index,
        BLOCK=block_size,
    )  # fmt: skip
    return losses.sum(), logits


# %% exercise 16.4: flash_attention_kernel
@triton.jit
def flash_attention_kernel(
    query_ptr, key_ptr, value_ptr, out_ptr, queries_per_kv_head, new, total, head_dim, scale,
    IS_CAUSAL: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Program (block, n) attends for BLOCK queries of one head; n counts B * H heads.

    Lab 10's tiles: BLOCK keys at a time, and for each query the largest score so far, the sum
    of exp(score - largest), and that sum times value. Head n of all heads reads KV head
    n // queries_per_kv_head of all B * K. Query t is at position total - new + t. If IS_CAUSAL,
    it attends up to its own position, and blocks of keys past the last query of the program are
    not loaded. All four tensors are contiguous; head_dim need not be a power of two, BLOCK_D
    is. Scores and sums are float32. (On a GPU tl.dot rounds float32 numbers to 10 bits unless
    it is told input_precision="ieee"; the interpreter never does.)
    """
    ### BEGIN SOLUTION
    head = tl.program_id(1)
    query_row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    feature = tl.arange(0, BLOCK_D)
    is_feature = feature[None, :] < head_dim
    is_query = (query_row[:, None] < new) & is_feature
    query_place = (head * new + query_row[:, None]) * head_dim + feature[None, :]
    query = tl.load(query_ptr + query_place, mask=is_query, other=0.0)  # (BLOCK, BLOCK_D)
    position = total - new + query_row  # (BLOCK,)
    first_key = (head // queries_per_kv_head) * total
    end = total
    if IS_CAUSAL:
        end = tl.minimum(total, total - new + (tl.program_id(0) + 1) * BLOCK)

    largest = tl.full((BLOCK,), -float("inf"), tl.float32)
    weight_sum = tl.zeros((BLOCK,), tl.float32)
    value_sum = tl.zeros((BLOCK, BLOCK_D), tl.float32)
    for start in range(0, end, BLOCK):
        key_row = start + tl.arange(0, BLOCK)
        place = (first_key + key_row[:, None]) * head_dim + feature[None, :]
        is_key = (key_row[:, None] < total) & is_feature
        key = tl.load(key_ptr + place, mask=is_key, other=0.0)  # (BLOCK, BLOCK_D)
        value = tl.load(value_ptr + place, mask=is_key, other=0.0)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        may_see = key_row[None, :] < total
        if IS_CAUSAL:
            may_see = may_see & (key_row[None, :] <= position[:, None])
        scores = tl.where(may_see, scores, -float("inf"))  # (BLOCK, BLOCK)
        new_largest = tl.maximum(largest, tl.max(scores, axis=1))
        shrink = tl.exp(largest - new_largest)
        weights = tl.exp(scores - new_largest[:, None])
        weight_sum = weight_sum * shrink + tl.sum(weights, axis=1)
        mixed = tl.dot(weights.to(value.dtype), value, input_precision="ieee")
        value_sum = value_sum * shrink[:, None] + mixed
        largest = new_largest
    tl.store(out_ptr + query_place, value_sum / weight_sum[:, None], mask=is_query)
    ### END SOLUTION


def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_causal: bool = True,
    scale: float | None = None,
    block_size: int = 16,
) -> Tensor:
    """Attention without a table of scores in memory: exact, one pass over the keys per block.

    The queries are the last of the keys. scale is D^-0.5 if it is None.

    Shapes: query (B, H, T, D), key (B, K, S, D), value (B, K, S, D) -> (B, H, T, D)
    dtype:  that of query; float32 inside
    Source: Dao et al. 2022, https://arxiv.org/abs/2205.14135
    """
    batch, heads, new, head_dim = query.shape
    kv_heads, total = key.shape[1:3]
    query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    out = torch.empty_like(query)
    flash_attention_kernel[(triton.cdiv(new, block_size), batch * heads)](
        query, key, value, out, heads // kv_heads, new, total, head_dim,
        head_dim**-0.5 if scale is None else scale,
        IS_CAUSAL=is_causal, BLOCK=block_size, BLOCK_D=triton.next_power_of_2(head_dim),
    )  # fmt: skip
    return out


# %% exercise 16.5: quantized_matvec_kernel
@triton.jit
def quantized_matvec_kernel(
    x_ptr, weight_ptr, scale_ptr, out_ptr, rows, columns, group_size,
    BITS: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_ROWS numbers of out = (weight * scale) @ x, in float32.

    If BITS is 8, weight is (rows, columns) int8. If BITS is 4, it is (rows, columns / 2) uint8
    as lab 10 packs it: byte i of a row has column 2i in its low four bits and column 2i + 1 in
    its high four bits, each from -8 to 7 with 8 added. scale is (rows, columns / group_size)
    float32, one number per group of neighboring columns; with 4 bits group_size is even.

    BLOCK bytes of a row at a time: each byte of the weight is loaded once, and no float copy
    of it is stored.
    """
    ### BEGIN SOLUTION
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    per_byte = 8 // BITS
    row_bytes = columns // per_byte
    total = tl.zeros((BLOCK_ROWS,), tl.float32)
    for start in range(0, row_bytes, BLOCK):
        byte = start + tl.arange(0, BLOCK)
        in_row = byte < row_bytes
        is_inside = (row[:, None] < rows) & in_row[None, :]
        place = row[:, None] * row_bytes + byte[None, :]
        weight = tl.load(weight_ptr + place, mask=is_inside, other=0).to(tl.int32)
        group = (
            row[:, None] * (columns // group_size) + (byte * per_byte // group_size)[None, :]
        )
        scale = tl.load(scale_ptr + group, mask=is_inside, other=0.0)
        x_low = tl.load(x_ptr + byte * per_byte, mask=in_row, other=0.0).to(tl.float32)
        if BITS == 8:
            product = weight.to(tl.float32) * x_low[None, :]
        else:
            x_high = tl.load(x_ptr + byte * 2 + 1, mask=in_row, other=0.0).to(tl.float32)
            low, high = (weight & 15) - 8, (weight >> 4) - 8
            product = (
                low.to(tl.float32) * x_low[None, :] + high.to(tl.float32) * x_high[None, :]
            )
        total += tl.sum(product * scale, axis=1)
    tl.store(out_ptr + row, total, mask=row < rows)
    ### END SOLUTION


def quantized_matvec(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    bits: int = 8,
    block_size: int = 64,
    block_rows: int = 4,
) -> Tensor:
    """A matrix of whole numbers times a vector: what decoding one token is made of.

    Shapes: x (columns,), weight (rows, columns) int8 or (rows, columns / 2) uint8,
            scale (rows, groups) float32 -> (rows,)
    dtype:  that of x; float32 inside
    Source: https://github.com/pytorch-labs/gpt-fast (int8 and int4 weights)
    """
    rows, columns = weight.size(0), x.size(0)
    out = torch.empty(rows, dtype=x.dtype, device=x.device)
    quantized_matvec_kernel[(triton.cdiv(rows, block_rows),)](
        x, weight, scale, out, rows, columns, columns // scale.size(1),
        BITS=bits, BLOCK_ROWS=block_rows, BLOCK=block_size,
    )  # fmt: skip
    return out


# %% exercise 16.6: moe_kernel, moe_linear
@triton.jit
def moe_kernel(
    x_ptr, weight_ptr, order_ptr, first_ptr, out_ptr, top_k, in_size, out_size,
    BLOCK: tl.constexpr, BLOCK_IN: tl.constexpr, BLOCK_OUT: tl.constexpr,
):  # fmt: skip
    """Program (x, block) computes BLOCK_OUT outputs of all picks of expert x.

    Pick p is choice p % top_k of token p // top_k. The picks of expert x are those at
    order[first[x]] up to, without, order[first[x + 1]]; for each of them
    out[p] = weight[x] @ x[p // top_k].

    BLOCK picks at a time: a tile of their tokens' numbers, times a tile of the expert's weight,
    BLOCK_IN columns at a time, summed in float32. So a weight is loaded once per block of picks
    and not once per pick, that of an expert nobody picked not at all, and no sorted copy of the
    tokens is stored.

    Shapes: x (N, in_size), weight (X, out_size, in_size), order (N * top_k,) int64,
            first (X + 1,) int64, out (N * top_k, out_size), all contiguous
    """
    ### BEGIN SOLUTION
    expert = tl.program_id(0)
    feature = tl.program_id(1) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    last = tl.load(first_ptr + expert + 1)
    for start in range(tl.load(first_ptr + expert), last, BLOCK):
        slot = start + tl.arange(0, BLOCK)
        is_pick = slot < last
        pick = tl.load(order_ptr + slot, mask=is_pick, other=0)
        token = pick // top_k
        total = tl.zeros((BLOCK, BLOCK_OUT), tl.float32)
        for begin in range(0, in_size, BLOCK_IN):
            column = begin + tl.arange(0, BLOCK_IN)
            in_row = column[None, :] < in_size
            x_place = token[:, None] * in_size + column[None, :]
            x = tl.load(x_ptr + x_place, mask=is_pick[:, None] & in_row, other=0.0)
            place = (expert * out_size + feature[:, None]) * in_size + column[None, :]
            is_weight = (feature[:, None] < out_size) & in_row
            weight = tl.load(weight_ptr + place, mask=is_weight, other=0.0)
            total += tl.dot(x, tl.trans(weight), input_precision="ieee")
        is_out = is_pick[:, None] & (feature[None, :] < out_size)
        tl.store(out_ptr + pick[:, None] * out_size + feature[None, :], total, mask=is_out)
    ### END SOLUTION


def moe_linear(x: Tensor, weight: Tensor, experts: Tensor, block_size: int = 16) -> Tensor:
    """Sort the picks by expert, and start moe_kernel: each token times its experts' matrices.

    order    the picks 0 ... N * k - 1, those of expert 0 first, then those of expert 1, ...
    first    where those of each expert begin in order, and, last, where all end

    Shapes: x (N, in_size), weight (X, out_size, in_size), experts (N, k) int64
            -> (N, k, out_size), in the order of experts
    dtype:  that of x; sums are float32
    Source: Gale et al. 2022, https://arxiv.org/abs/2211.15841
    """
    (tokens, top_k), (num_experts, out_size, in_size) = experts.shape, weight.shape
    out = torch.empty(tokens, top_k, out_size, dtype=x.dtype, device=x.device)
    ### BEGIN SOLUTION
    picked = experts.flatten()  # (N * k,) the expert of each pick
    order = picked.argsort(stable=True)
    counts = picked.bincount(minlength=num_experts)
    first = torch.cat([counts.new_zeros(1), counts.cumsum(dim=0)])
    ### END SOLUTION
    moe_kernel[(num_experts, triton.cdiv(out_size, block_size))](
        x, weight, order, first, out, top_k, in_size, out_size,
        BLOCK=block_size, BLOCK_IN=block_size, BLOCK_OUT=block_size,
    )  # fmt: skip
    return out


# %% exercise 16.7: query_grad_kernel, key_value_grad_kernel
@triton.jit
def load_rows(ptr, row, is_row, size, BLOCK_D: tl.constexpr):
    """Rows of a contiguous tensor in float32, (lanes, BLOCK_D), 0 outside."""
    feature = tl.arange(0, BLOCK_D)[None, :]
    inside = is_row[:, None] & (feature < size)
    return tl.load(ptr + row[:, None] * size + feature, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def store_rows(ptr, row, is_row, numbers, size, BLOCK_D: tl.constexpr):
    """Store (lanes, BLOCK_D) numbers as rows of a contiguous tensor."""
    feature = tl.arange(0, BLOCK_D)[None, :]
    inside = is_row[:, None] & (feature < size)
    tl.store(ptr + row[:, None] * size + feature, numbers, mask=inside)


@triton.jit
def scores_of(query, key, scale, position, key_row, total, IS_CAUSAL: tl.constexpr):
    """The scores of a tile, as in 16.4: -inf where a query does not attend."""
    may_see = key_row[None, :] < total
    if IS_CAUSAL:
        may_see = may_see & (key_row[None, :] <= position[:, None])
    scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
    return tl.where(may_see, scores, -float("inf"))


@triton.jit
def query_grad_kernel(
    query_ptr, key_ptr, value_ptr, out_ptr, grad_ptr, query_grad_ptr, log_sum_ptr, delta_ptr,
    queries_per_kv_head, new, total, head_dim, scale,
    IS_CAUSAL: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Program (block, n) computes the gradient of BLOCK queries of head n of all B * H.

        delta      = sum over the features of grad * out, one number per query
        log_sum    = log(sum over the keys of exp(score)), one number per query
        weights    = exp(scores - log_sum)
        d_scores   = weights * (grad @ value^T - delta)
        query_grad = scale * d_scores @ key

    First pass over the blocks of keys: log_sum, with the running maximum of 16.4. Second pass:
    the gradient. log_sum and delta (B * H, T) are stored for the other kernel. If IS_CAUSAL,
    blocks of keys past the last query of the program are not loaded. All in float32.
    """
    ### BEGIN SOLUTION
    head = tl.program_id(1)
    query_row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_query, row = query_row < new, head * new + query_row
    query = load_rows(query_ptr, row, is_query, head_dim, BLOCK_D)
    grad = load_rows(grad_ptr, row, is_query, head_dim, BLOCK_D)
    delta = tl.sum(grad * load_rows(out_ptr, row, is_query, head_dim, BLOCK_D), axis=1)
    position = total - new + query_row
    first_key = (head // queries_per_kv_head) * total
    end = total
    if IS_CAUSAL:
        end = tl.minimum(total, total - new + (tl.program_id(0) + 1) * BLOCK)
    largest = tl.full((BLOCK,), -float("inf"), tl.float32)
    weight_sum = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, end, BLOCK):
        key_row = start + tl.arange(0, BLOCK)
        key = load_rows(key_ptr, first_key + key_row, key_row < total, head_dim, BLOCK_D)
        scores = scores_of(query, key, scale, position, key_row, total, IS_CAUSAL)
        new_largest = tl.maximum(largest, tl.max(scores, axis=1))
        shrunk = weight_sum * tl.exp(largest - new_largest)
        weight_sum = shrunk + tl.sum(tl.exp(scores - new_largest[:, None]), axis=1)
        largest = new_largest
    log_sum = largest + tl.log(weight_sum)
    tl.store(log_sum_ptr + row, log_sum, mask=is_query)
    tl.store(delta_ptr + row, delta, mask=is_query)
    query_grad = tl.zeros((BLOCK, BLOCK_D), tl.float32)
    for start in range(0, end, BLOCK):
        key_row = start + tl.arange(0, BLOCK)
        key = load_rows(key_ptr, first_key + key_row, key_row < total, head_dim, BLOCK_D)
        value = load_rows(value_ptr, first_key + key_row, key_row < total, head_dim, BLOCK_D)
        scores = scores_of(query, key, scale, position, key_row, total, IS_CAUSAL)
        weights = tl.exp(scores - log_sum[:, None])
        weight_grad = tl.dot(grad, tl.trans(value), input_precision="ieee")
        d_scores = weights * (weight_grad - delta[:, None])
        query_grad += tl.dot(d_scores, key, input_precision="ieee")
    store_rows(query_grad_ptr, row, is_query, query_grad * scale, head_dim, BLOCK_D)
    ### END SOLUTION


@triton.jit
def key_value_grad_kernel(
    query_ptr, key_ptr, value_ptr, grad_ptr, log_sum_ptr, delta_ptr, key_grad_ptr,
    value_grad_ptr, queries_per_kv_head, new, total, head_dim, scale,
    IS_CAUSAL: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Program (block, n) computes the gradients of BLOCK keys and values of KV head n of B * K.

        value_grad = weights^T @ grad
        key_grad   = scale * d_scores^T @ query

    summed over all queries of all heads that read this KV head: a program owns its keys, so no
    two of them add to one place. weights and d_scores as above, from log_sum and delta. If
    IS_CAUSAL, blocks of queries before the first key of the program are not loaded.
    """
    ### BEGIN SOLUTION
    kv_head = tl.program_id(1)
    key_row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_key, row = key_row < total, kv_head * total + key_row
    key = load_rows(key_ptr, row, is_key, head_dim, BLOCK_D)
    value = load_rows(value_ptr, row, is_key, head_dim, BLOCK_D)
    begin = 0
    if IS_CAUSAL:
        begin = tl.maximum(0, tl.program_id(0) * BLOCK - (total - new)) // BLOCK * BLOCK
    key_grad = tl.zeros((BLOCK, BLOCK_D), tl.float32)
    value_grad = tl.zeros((BLOCK, BLOCK_D), tl.float32)
    for number in range(queries_per_kv_head):
        first_query = (kv_head * queries_per_kv_head + number) * new
        for start in range(begin, new, BLOCK):
            query_row = start + tl.arange(0, BLOCK)
            is_query, place = query_row < new, first_query + query_row
            query = load_rows(query_ptr, place, is_query, head_dim, BLOCK_D)
            grad = load_rows(grad_ptr, place, is_query, head_dim, BLOCK_D)
            log_sum = tl.load(log_sum_ptr + place, mask=is_query, other=0.0)
            delta = tl.load(delta_ptr + place, mask=is_query, other=0.0)
            position = query_row + total - new
            scores = scores_of(query, key, scale, position, key_row, total, IS_CAUSAL)
            weights = tl.exp(scores - log_sum[:, None])
            value_grad += tl.dot(tl.trans(weights), grad, input_precision="ieee")
            weight_grad = tl.dot(grad, tl.trans(value), input_precision="ieee")
            d_scores = (weight_grad - delta[:, None]) * weights
            key_grad += tl.dot(tl.trans(d_scores), query, input_precision="ieee")
    store_rows(key_grad_ptr, row, is_key, key_grad * scale, head_dim, BLOCK_D)
    store_rows(value_grad_ptr, row, is_key, value_grad, head_dim, BLOCK_D)
    ### END SOLUTION


def flash_attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    is_causal: bool = True,
    scale: float | None = None,
    block_size: int = 16,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of flash_attention's query, key and value.

    No table of scores in memory: two numbers per query are kept, and the weights are computed
    again from them.

    Shapes: grad_out, query, out (B, H, T, D), key, value (B, K, S, D)
            -> (query_grad, key_grad, value_grad), each of its tensor's shape
    dtype:  that of its tensor; float32 inside
    Source: Dao 2023, https://arxiv.org/abs/2307.08691
    """
    batch, heads, new, head_dim = query.shape
    kv_heads, total = key.shape[1:3]
    grad_out, query, key, value, out = (
        x.contiguous() for x in (grad_out, query, key, value, out)
    )
    query_grad, key_grad, value_grad = map(torch.empty_like, (query, key, value))
    log_sum = torch.empty(batch, heads, new, dtype=torch.float32, device=query.device)
    delta = torch.empty_like(log_sum)
    sizes = (heads // kv_heads, new, total, head_dim)
    scale = head_dim**-0.5 if scale is None else scale
    blocks = {"BLOCK": block_size, "BLOCK_D": triton.next_power_of_2(head_dim)}
    query_grad_kernel[(triton.cdiv(new, block_size), batch * heads)](
        query, key, value, out, grad_out, query_grad, log_sum, delta, *sizes, scale,
        IS_CAUSAL=is_causal, **blocks,
    )  # fmt: skip
    key_value_grad_kernel[(triton.cdiv(total, block_size), batch * kv_heads)](
        query, key, value, grad_out, log_sum, delta, key_grad, value_grad, *sizes, scale,
        IS_CAUSAL=is_causal, **blocks,
    )  # fmt: skip
    return query_grad, key_grad, value_grad


# %% exercise 16.8: web_norm
@triton.jit
def web_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + lane, mask=lane < size, other=0.0)
    ### BEGIN SOLUTION
    out = x * tl.rsqrt(tl.sum(x * x, axis=0) / size + 1e-6)
    ### INSTEAD
    # out = x * tl.rsqrt(tl.sum(x * x, axis=0) / BLOCK + 1e-6)
    ### END SOLUTION
    tl.store(out_ptr + lane, out, mask=lane < size)


def web_norm(x: Tensor) -> Tensor:
    """Divide the numbers of one row by their root mean square: (size,) -> (size,)."""
    out = torch.empty_like(x)
    web_kernel[(1,)](x, out, len(x), BLOCK=triton.next_power_of_2(len(x)))
    return out


# %% exercise 16.9: web_rows
@triton.jit
def web_row_kernel(x_ptr, out_ptr, stride, size, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    ### BEGIN SOLUTION
    begin = tl.program_id(0) * stride
    ### INSTEAD
    # begin = tl.program_id(0) * size
    ### END SOLUTION
    x = tl.load(x_ptr + begin + lane, mask=lane < size, other=0.0)
    out = x * tl.rsqrt(tl.sum(x * x, axis=0) / size + 1e-6)
    tl.store(out_ptr + tl.program_id(0) * size + lane, out, mask=lane < size)


def web_rows(x: Tensor) -> Tensor:
    """Divide every row by its root mean square: (rows, size) -> (rows, size)."""
    out = torch.empty(x.shape)
    block = triton.next_power_of_2(x.size(1))
    web_row_kernel[(len(x),)](x, out, x.stride(0), x.size(1), BLOCK=block)
    return out
