"""Hidden checks of lab 14: other numbers of ranks, odd sizes, fresh numbers."""

import torch
from visible import test_parallel as visible
from visible.test_parallel import LAYER

from labkit.checks.declared import STRIDED, check, rows, strided

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16

test_pass = check("14.1", shapes=[((2, 3), (2, 3)), ((1,), (3,), (2, 2)), ((2,),) * 5])(
    visible.test_pass
)
test_pass_alone = check("14.1", points=0.5, shapes=[((2, 3),)])(visible.test_pass_alone)
test_ring = check("14.1", points=2, cases=rows("size, shape", (2, (6, 3)), (3, (3, 4)),
    (4, (2, 4)), (5, (10,))))(visible.test_ring)  # fmt: skip
test_ring_uneven = check("14.1", points=2, cases=rows("size, shape", (3, (5, 2)), (4, (9,)),
    (4, (3,)), (5, (7,)), (5, (11,)), (2, (1,))))(visible.test_ring_uneven)  # fmt: skip
test_ring_alone = check("14.1", points=0.5, shape=(2, 2))(visible.test_ring_alone)
test_ring_dtype = check("14.1", points=0.5, size=3, shape=[(6,), (5,)])(visible.test_ring_dtype)
test_ring_bits = check("14.1", size=4, shape=[(31,)])(visible.test_ring_bits)
test_ring_strided = check("14.1", points=0.5, size=3, shape=[(5, 2)])(visible.test_ring_strided)

test_data = check("14.2", sizes=[((1, 5), (1, 5)), ((2, 3),) * 3])(visible.test_data)
test_data_masks = check("14.2", points=3, share=[0.6, 0.3], sizes=[((1, 7), (4, 3)),
    ((2, 4), (1, 3), (3, 5))])(visible.test_data_masks)  # fmt: skip
test_data_silent = check("14.2", sizes=((1, 5), (2, 3), (2, 4)), without=[(1, 2), (0,)])(
    visible.test_data_silent
)
test_data_parts = check("14.2", sizes=((5, 3), (2, 5)), accumulation_steps=[2, 4])(
    visible.test_data_parts
)
test_data_parts_silent = check("14.2", points=0.5, sizes=((3, 3), (4, 4)), without=[
    ((1, 2), (1, 3)), ((0, 2),)])(visible.test_data_parts_silent)  # fmt: skip
test_data_clip = check("14.2", points=1.5, sizes=((1, 4), (3, 4)), max_grad_norm=0.03)(
    visible.test_data_clip
)
test_data_free = check("14.2", points=0.5, sizes=((1, 4), (2, 5)))(visible.test_data_free)
test_data_steps = check("14.2", sizes=((1, 4), (2, 4)))(visible.test_data_steps)
test_data_buckets = check("14.2", sizes=((1, 5), (2, 3)), bucket_size=[7, 21, 60])(
    visible.test_data_buckets
)
test_data_kinds = check("14.2", points=0.5, sizes=((2, 3), (1, 3)))(visible.test_data_kinds)
test_data_alone = check("14.2", points=0.5, sizes=((2, 5),))(visible.test_data_alone)

test_adamw = check("14.3", points=2, shapes=((3, 3), (3,)), size=[2, 4])(visible.test_adamw)
test_adamw_uneven = check("14.3", size=[3, 4], shapes=[((2, 5), (1,)), ((1,), (1,))])(
    visible.test_adamw_uneven
)
test_adamw_alone = check("14.3", points=0.5, shapes=((2, 3),))(visible.test_adamw_alone)
test_adamw_steps = check("14.3", points=2, size=[3], steps=[2, 4])(visible.test_adamw_steps)
test_adamw_settings = check("14.3", betas=(0.5, 0.8), eps=0.02, weight_decay=[0.0, 0.3])(
    visible.test_adamw_settings
)
test_adamw_none = check("14.3", without=[(0,), (1, 2)])(visible.test_adamw_none)
test_adamw_clip = check("14.3", points=1.5, clip=[0.3, 2.0, 50.0], size=3)(
    visible.test_adamw_clip
)
test_adamw_tiny = check("14.3", points=0.25, size=3)(visible.test_adamw_tiny)
test_adamw_loaded = check("14.3", points=0.5, size=3)(visible.test_adamw_loaded)
test_adamw_moments = check("14.3", size=[2, 4], steps=2)(visible.test_adamw_moments)
test_adamw_kinds = check("14.3", size=3, clip=0.2)(visible.test_adamw_kinds)

test_copy = check("14.4", size=[2, 4], shape=(3, 2))(visible.test_copy)
test_reduce = check("14.4", size=[2, 4], shape=(1, 5))(visible.test_reduce)
test_copy_residual = check("14.4", points=0.25, size=3)(visible.test_copy_residual)
test_column = check("14.4", points=2, size=[1, 3], outputs=6, shape=(4,))(visible.test_column)
test_row = check("14.4", points=2, size=[1, 3], inputs=6, outputs=5, shape=(4,))(
    visible.test_row
)
test_layer_bias = check("14.4", size=4)(visible.test_layer_bias)
test_layer_half = check("14.4", points=0.5, dtype=[BF16, F16])(visible.test_layer_half)
test_layer_traffic = check("14.4", points=0.5, size=4)(visible.test_layer_traffic)
test_layer_strided = check("14.4", STRIDED, points=0.5, symbol="ColumnParallelLinear")(
    strided(visible.layer_call)
)

test_embedding = check("14.5", size=[2, 4], shape=(3, 4))(visible.test_embedding)
test_embedding_gradient = check("14.5", size=[2, 3], shape=(1, 7))(
    visible.test_embedding_gradient
)
test_loss = check("14.5", points=1.5, size=[2, 3], vocab=12, shape=(3, 4))(visible.test_loss)
test_loss_gradient = check("14.5", points=1.5, size=[2, 4], shape=(1, 6))(
    visible.test_loss_gradient
)
test_loss_dropped = check("14.5", dropped=[0.3, 0.7], shape=(3, 4))(visible.test_loss_dropped)
test_loss_large = check("14.5", scale=[200.0, 900.0])(visible.test_loss_large)
test_loss_half = check("14.5", points=0.5, dtype=[BF16, F16])(visible.test_loss_half)
test_loss_kinds = check("14.5", points=0.5)(visible.test_loss_kinds)
test_shard_rows = check("14.5", points=0.5, rank=2, size=4, cases=rows("name, shape",
    (LAYER + "self_attn.q_proj.weight", (48, 6)), (LAYER + "self_attn.q_proj.bias", (48,)),
    (LAYER + "mlp.experts.1.gate_proj.weight", (8, 6)), ("model.embed_tokens.weight", (24, 6)),
))(visible.test_shard_rows)  # fmt: skip
test_shard_columns = check("14.5", points=0.5, rank=3, size=4)(visible.test_shard_columns)
test_shard_heads = check("14.5", cases=rows("kv_heads, shape, rank, size", (8, (16, 6), 3, 4),
    (2, (4, 6), 1, 4), (2, (4,), 5, 8), (3, (6, 6), 4, 6), (4, (8, 6), 3, 4)))(
    visible.test_shard_heads)  # fmt: skip
test_shard_whole = check("14.5", points=0.5, rank=0, size=4)(visible.test_shard_whole)
test_shard_refused = check("14.5", points=0.5)(visible.test_shard_refused)

test_moe = check("14.6", points=2, top_k=[1, 3], shapes=((2, 3), (1, 2)))(visible.test_moe)
test_moe_ranks = check("14.6", points=2, size=3, experts=6, top_k=2,
    shapes=((2, 2), (1, 1), (1, 5)))(visible.test_moe_ranks)  # fmt: skip
test_moe_own = check("14.6", points=0.5, top_k=1)(visible.test_moe_own)
test_moe_norm = check("14.6", points=0.5, top_k=3)(visible.test_moe_norm)
test_moe_idle = check("14.6", lean=[(0, 1), (2, 3)])(visible.test_moe_idle)
test_moe_empty = check("14.6", shapes=[((0, 1), (1, 4)), ((1, 2), (0, 3))])(
    visible.test_moe_empty
)
test_moe_alone = check("14.6", points=0.5, shapes=((1, 5),))(visible.test_moe_alone)
test_moe_gradient = check("14.6", points=1.5, top_k=[1, 2])(visible.test_moe_gradient)
test_moe_kinds = check("14.6", points=0.5, size=4, shapes=((1, 1),) * 4)(visible.test_moe_kinds)
test_moe_names = check("14.6", points=0.5, size=4, shapes=((1, 1),) * 4, experts=4)(
    visible.test_moe_names
)

test_attention = check("14.7", points=2, size=[2, 4], shape=(1, 4, 2, 2, 6))(
    visible.test_attention
)
test_attention_causal = check("14.7", points=3, size=[2, 3, 5], shape=(2, 2, 1, 2, 4))(
    visible.test_attention_causal
)
test_attention_alone = check("14.7", points=0.5, is_causal=[True, False])(
    visible.test_attention_alone
)
test_attention_heads = check("14.7", size=3, shape=[(1, 8, 2, 2, 2), (2, 3, 1, 1, 4)])(
    visible.test_attention_heads
)
test_attention_large = check("14.7", scale=[20.0, 50.0])(visible.test_attention_large)
test_attention_half = check("14.7", points=0.5, dtype=[BF16, F16])(visible.test_attention_half)
test_attention_traffic = check("14.7", size=4, shape=(2, 2, 1, 2, 4))(
    visible.test_attention_traffic
)

test_gpipe = check("14.8", place=visible.PLACES)(visible.test_gpipe)
test_1f1b = check("14.8", points=2, place=visible.PLACES)(visible.test_1f1b)
test_1f1b_few = check("14.8", points=1.5, place=visible.PLACES)(visible.test_1f1b_few)
test_schedule_alone = check("14.8", points=0.5)(visible.test_schedule_alone)
test_schedule_kind = check("14.8", points=0.5, kind="GPipe")(visible.test_schedule_kind)
test_web_count = check("14.9", size=[3])(visible.test_web_count)
test_web_row = check("14.10", size=[3, 4])(visible.test_web_row)
