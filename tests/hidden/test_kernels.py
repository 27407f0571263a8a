"""Hidden checks of lab 16: odd sizes, other dtypes, fresh numbers."""

import torch
from visible import test_kernels as visible
from visible.test_kernels import backward_loads, expert_loads, loads_view, moved

from labkit.checks.declared import STRIDED, check, strided

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16

test_norm = check("16.1", shape=[(2, 16), (4,), (1, 1)])(visible.test_norm)
test_norm_tail = check("16.1", points=2, shape=[(3, 5), (1, 2, 11)])(visible.test_norm_tail)
test_norm_eps = check("16.1", eps=0.3)(visible.test_norm_eps)
test_norm_rows = check("16.1", points=2, gap=[1, 8], shape=(3, 7))(visible.test_norm_rows)
test_norm_large = check("16.1", shape=(2, 9))(visible.test_norm_large)
test_norm_half = check("16.1", dtype=[BF16, F16], shape=(2, 10))(visible.test_norm_half)
test_norm_residual = check("16.1", points=2, gap=[0, 3], shape=(2, 2, 5))(
    visible.test_norm_residual
)
test_norm_traffic = check("16.1", points=3, shape=[(4, 5)])(visible.test_norm_traffic)
test_norm_strided = check("16.1", STRIDED)(strided(visible.norm_call))

test_swiglu = check("16.2", shape=(2, 16), block=16)(visible.test_swiglu)
test_swiglu_tail = check("16.2", points=2, shape=[(3, 35), (1, 2, 17), (5,)])(
    visible.test_swiglu_tail
)
test_swiglu_rows = check("16.2", points=2, shape=(3, 11), block=8)(visible.test_swiglu_rows)
test_swiglu_half = check("16.2", shape=(1, 13))(visible.test_swiglu_half)
test_swiglu_large = check("16.2", shape=(2, 5))(visible.test_swiglu_large)
test_swiglu_grad = check("16.2", points=2, shape=(3, 19))(visible.test_swiglu_grad)
test_swiglu_grad_rows = check("16.2", points=2, shape=(2, 13))(visible.test_swiglu_grad_rows)
test_swiglu_traffic = check("16.2", points=2, shape=[(3, 18)])(visible.test_swiglu_traffic)
test_swiglu_backward_traffic = check("16.2", points=2, shape=[(3, 18)])(
    visible.test_swiglu_backward_traffic
)
test_swiglu_strided = check("16.2", STRIDED)(strided(visible.swiglu_call))

test_loss = check("16.3", shape=(2, 16), block=16)(visible.test_loss)
test_loss_blocks = check("16.3", points=2, shape=[(4, 35), (1, 9)])(visible.test_loss_blocks)
test_loss_rising = check("16.3", points=3, rising=[0.7, -0.7], shape=(2, 26))(
    visible.test_loss_rising
)
test_loss_large = check("16.3", points=2, rising=[45.0, -50.0])(visible.test_loss_large)
test_loss_ignored = check("16.3", points=2, ignored=(0, 3))(visible.test_loss_ignored)
test_loss_index = check("16.3", ignored=(2,), ignore=[0, -1])(visible.test_loss_index)
test_loss_half = check("16.3", shape=(3, 13))(visible.test_loss_half)
test_loss_rows = check("16.3", points=2, gap=[1, 6])(visible.test_loss_rows)
test_loss_far = check("16.3", shape=(3, 9), first_program=2**31 // 9 + 5)(visible.test_loss_far)
test_loss_traffic = check("16.3", points=3, view=moved(logits=(1, 2.04)), shape=[(3, 25)])(
    visible.test_loss_traffic
)

test_attention = check("16.4", shape=(1, 1, 1, 3, 3, 4))(visible.test_attention)
test_attention_blocks = check("16.4", points=2, shape=[(1, 2, 2, 5, 13, 4)])(
    visible.test_attention_blocks
)
test_attention_causal = check("16.4", points=2, shape=[(1, 1, 1, 9, 9, 4)])(
    visible.test_attention_causal
)
test_attention_offset = check("16.4", points=3, shape=[
    (1, 1, 1, 6, 13, 4), (1, 2, 1, 1, 9, 3), (2, 1, 1, 3, 4, 8),
])(visible.test_attention_offset)  # fmt: skip
test_attention_heads = check("16.4", points=3, shape=[(2, 6, 2, 2, 4, 4), (2, 3, 1, 1, 3, 2)])(
    visible.test_attention_heads
)
test_attention_dim = check("16.4", shape=[(1, 1, 1, 2, 6, 5), (1, 1, 1, 2, 3, 1)])(
    visible.test_attention_dim
)
test_attention_scale = check("16.4", scale=[0.3])(visible.test_attention_scale)
test_attention_large = check("16.4", points=2, size=[150.0])(visible.test_attention_large)
test_attention_half = check("16.4", shape=(1, 2, 2, 2, 9, 4))(visible.test_attention_half)
ODD = (1, 2, 2, 7, 15, 4)
test_attention_skips = check("16.4", points=3, view=loads_view(ODD, 4), shape=[ODD])(
    visible.test_attention_skips
)
test_attention_strided = check("16.4", STRIDED)(strided(visible.attention_call))

test_matvec = check("16.5", rows=[3, 9], columns=32)(visible.test_matvec)
test_matvec_groups = check("16.5", points=2, groups=[2, 6])(visible.test_matvec_groups)
test_matvec_four = check("16.5", points=3, groups=[2, 4], rows=6)(visible.test_matvec_four)
test_matvec_half = check("16.5", dtype=[BF16, F16])(visible.test_matvec_half)
test_matvec_traffic = check("16.5", points=2, rows=[12], bits=[4, 8])(
    visible.test_matvec_traffic
)

test_moe = check("16.6", tokens=5, sizes=(8, 4))(visible.test_moe)
test_moe_picks = check("16.6", points=3, top_k=[2, 4], experts=6, tokens=5)(
    visible.test_moe_picks
)
test_moe_sizes = check("16.6", points=2, sizes=[(5, 9), (1, 3)])(visible.test_moe_sizes)
test_moe_many = check("16.6", points=2, tokens=[11])(visible.test_moe_many)
test_moe_idle = check("16.6", points=2, idle=(1, 3, 4), experts=6)(visible.test_moe_idle)
test_moe_half = check("16.6", sizes=(5, 6))(visible.test_moe_half)
UNEVEN = [(3, 1), (1, 4), (1, 3), (4, 1), (1, 3), (3, 1)]
test_moe_traffic = check("16.6", points=3, view=expert_loads(UNEVEN, 6), picked=[UNEVEN],
                         experts=6)(visible.test_moe_traffic)  # fmt: skip

test_backward = check("16.7", shape=(1, 1, 1, 3, 4, 4))(visible.test_backward)
test_backward_blocks = check("16.7", points=2, shape=[(1, 1, 1, 6, 5, 4)])(
    visible.test_backward_blocks
)
test_backward_causal = check("16.7", points=2, shape=[(1, 1, 1, 7, 7, 2)])(
    visible.test_backward_causal
)
test_backward_offset = check("16.7", points=2, shape=[(1, 1, 1, 5, 9, 4), (1, 1, 1, 1, 6, 2)])(
    visible.test_backward_offset
)
test_backward_heads = check("16.7", points=3, shape=[(2, 6, 2, 2, 3, 2), (1, 3, 1, 3, 5, 4)])(
    visible.test_backward_heads
)
test_backward_scale = check("16.7", scale=0.4, shape=(1, 2, 1, 2, 5, 3))(
    visible.test_backward_scale
)
test_backward_large = check("16.7", size=150.0)(visible.test_backward_large)
test_backward_half = check("16.7", shape=(1, 2, 2, 2, 5, 4))(visible.test_backward_half)
TURN = (1, 2, 1, 8, 11, 2)
test_backward_skips = check("16.7", points=2, view=backward_loads(TURN), shape=TURN)(
    visible.test_backward_skips
)
test_web_norm = check("16.8", size=[5, 11])(visible.test_web_norm)
test_web_rows = check("16.9", gap=[1, 6])(visible.test_web_rows)
