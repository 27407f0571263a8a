"""Hidden checks of lab 10: odd sizes, other dtypes, fresh numbers, longer lines."""

import torch
from visible import test_serving as visible
from visible.test_serving import column

from labkit.checks.declared import STRIDED, check, strided

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16

test_tiles = check("10.1", block_size=[1, 5, 16], shape=[(2, 6, 3, 4, 9,
    5)])(visible.test_tiles)  # fmt: skip
test_tiles_causal = check("10.1", points=2, block_size=[1, 4, 7], shape=[(3, 4, 1, 9, 9,
    7)])(visible.test_tiles_causal)  # fmt: skip
test_tiles_offset = check("10.1", points=2, block_size=[4], shape=[
    (1, 1, 1, 1, 1, 3), (2, 6, 2, 1, 13, 5), (1, 4, 4, 5, 11, 8), (2, 8, 1, 3, 6, 2),
])(visible.test_tiles_offset)  # fmt: skip
test_tiles_heads = check("10.1", shape=[(2, 8, 2, 3, 5, 4), (1, 6, 6, 2, 4,
    3)])(visible.test_tiles_heads)  # fmt: skip
test_tiles_scale = check("10.1", scale=[0.2, 0.0], features=[9])(visible.test_tiles_scale)
test_tiles_large = check("10.1", points=2, tolerance=1e-3, size=[900.0], shape=[(2, 4, 2, 7, 7,
    4)])(visible.test_tiles_large)  # fmt: skip
test_tiles_rising = check("10.1", points=2, size=[90.0], tokens=[11], falling=[False,
    True])(visible.test_tiles_rising)  # fmt: skip
test_tiles_half = check("10.1", dtype=[BF16, F16], shape=[(2, 4, 2, 5, 41,
    8)])(visible.test_tiles_half)  # fmt: skip
test_tiles_sums = check("10.1", total=110)(visible.test_tiles_sums)
test_tiles_gradient = check("10.1", points=2, shape=[(1, 4, 2, 3, 8, 5)],
    block_size=[3])(visible.test_tiles_gradient)  # fmt: skip
test_tiles_memory = check("10.1", points=3, cases=[
    {"shape": (1, 3, 3, 70, 70, 2), "most": 4000},
    {"shape": (1, 4, 2, 1, 1100, 6), "most": 1000},
    {"shape": (1, 2, 1, 2, 500, 12), "most": 490, "dtype": F16},
])(visible.test_tiles_memory)  # fmt: skip
test_tiles_positions = check("10.1", scale=[0.9])(visible.test_tiles_positions)
test_tiles_strided = check("10.1", STRIDED, block_size=3)(strided(visible.tiles_call))

test_quantize = check("10.2", points=2, rows=[5], columns=[12, 1])(visible.test_quantize)
test_quantize_four = check("10.2", points=2, bits=[3, 4, 7],
    columns=[10])(visible.test_quantize_four)  # fmt: skip
test_quantize_groups = check(
    "10.2", points=2, group_size=[1, 3, 12], bits=[8, 4], columns=[12]
)(visible.test_quantize_groups)
test_quantize_zeros = check("10.2", points=1.5, group_size=[None,
    2])(visible.test_quantize_zeros)  # fmt: skip
test_quantize_half = check("10.2", dtype=[BF16, F16], bits=[8, 6], group_size=[2,
    8])(visible.test_quantize_half)  # fmt: skip
test_quantize_refused = check("10.2", wrong=[{"bits": 1},
    {"group_size": 5}])(visible.test_quantize_refused)  # fmt: skip
test_dequantize = check("10.2", points=1.5, groups=[1, 2, 6], rows=[4],
    columns=[6])(visible.test_dequantize)  # fmt: skip
test_layer = check("10.2", points=2, rows=[7], columns=[12], shape=[(4,)], cases=[
    {"bits": 8, "group_size": None}, {"bits": 4, "group_size": 3},
    {"bits": 6, "group_size": 12},
])(visible.test_layer)  # fmt: skip
test_layer_bias = check("10.2", rows=[3], group_size=[2])(visible.test_layer_bias)
test_layer_names = check("10.2", bits=[8], group_size=[4])(visible.test_layer_names)
test_layer_half = check("10.2", points=0.5, dtype=[BF16, F16])(visible.test_layer_half)
test_layer_plain = check("10.2", rows=[4], columns=[10])(visible.test_layer_plain)
test_layer_detached = check("10.2", bits=[4])(visible.test_layer_detached)
test_layer_stored = check("10.2", points=2, bits=[3, 8], group_size=[None,
    2])(visible.test_layer_stored)  # fmt: skip


test_layer_loaded = check("10.2", points=2, bits=[8], group_size=[3],
    columns=[12])(visible.test_layer_loaded)  # fmt: skip
test_quantize_strided = check("10.2", STRIDED)(strided(visible.quantize_call))

test_one = check("10.3", block_size=[5, 3], heads=[1], dim=[5])(visible.test_pool_one)
test_chunks = check("10.3", points=2, block_size=[4, 1],
    num_blocks=[9])(visible.test_pool_chunks)  # fmt: skip
test_two = check("10.3", points=2, layers=[3], block_size=[3])(visible.test_pool_two)
test_forms = check("10.3", dtype=[BF16, F16])(visible.test_pool_forms)
test_free = check("10.3", points=2, layers=[2], num_blocks=[6])(visible.test_pool_free)
test_fork = check("10.3", block_size=[3])(visible.test_pool_fork)
test_write = check("10.3", points=3, layers=[3], block_size=[2, 5])(visible.test_pool_write)
test_boundary = check("10.3", points=1.5, layers=[1])(visible.test_pool_boundary)
test_left = check("10.3", points=2, layers=[2])(visible.test_pool_left)
test_passes = check("10.3", points=1.5, layers=[3], block_size=[2, 3])(visible.test_pool_passes)
test_last = check("10.3", layers=[2])(visible.test_pool_last)
test_full = check("10.3", points=1.5, layers=[2])(visible.test_pool_full)
test_refused = check("10.3", points=1.5, layers=[2])(visible.test_pool_refused)
test_half = check("10.3", points=0.5, layers=[2])(visible.test_pool_half)
test_ahead = check("10.3", points=0.5, heads=[1])(visible.test_pool_ahead)
test_family = check("10.3", points=3, layers=[2], block_size=[2, 3])(visible.test_pool_family)
test_pool_strided = check("10.3", STRIDED, view=visible.books, steps=(
    ("add", 0), ("append", 0, 3), ("append", 0, 2), ("gather", 0),
))(strided(visible.pool))  # fmt: skip

test_alone = check("10.4", requests=[((6, 5),)], rounds=[6])(visible.test_served_one)
test_together = check("10.4", requests=[((4, 5),) * 3])(visible.test_served_together)
test_lengths = check("10.4", points=2, blocks=[20], rounds=[7], requests=[
    ((1, 6), (7, 3), (3, 5)), ((6, 2), (5, 6), (1, 7)),
])(visible.test_served_lengths)  # fmt: skip
test_batch = check("10.4", points=2, batch=[1, 2], rounds=[9], requests=[
    ((3, 2), (1, 4), (5, 3), (2, 2)),
])(visible.test_served_batch)  # fmt: skip
test_blocks = check("10.4", points=2, blocks=[7, 9], rounds=[9], requests=[
    ((3, 5), (6, 3), (2, 4), (4, 4)),
])(visible.test_served_blocks)  # fmt: skip
test_promised = check("10.4", points=2, batch=[4], blocks=[7], rounds=[5], requests=[
    ((2, 2), (2, 4), (3, 4), (4, 4)), ((1, 4), (4, 2), (4, 4), (2, 4)),
])(visible.test_served_promised)  # fmt: skip
test_order = check("10.4", points=2, blocks=[9], rounds=[8], requests=[
    ((5, 4), (9, 6), (1, 1), (2, 3)),
])(visible.test_served_order)  # fmt: skip
test_late = check("10.4", late=[((2, 2), (5, 3))])(visible.test_served_late)
test_first = check("10.4", batch=[2], requests=[((2, 1), (5, 1), (1,
    3))])(visible.test_served_first)  # fmt: skip
test_stop = check("10.4", points=2, batch=[3], rounds=[8], eos=[
    (1, 3, 5, 7, 9, 11, 12, 14, 16, 18, 20), (0, 1, 4, 5, 8, 9, 12, 13, 16, 17),
])(visible.test_served_stop)  # fmt: skip
test_line = check(
    "10.4", "eight requests, few blocks, places for four", points=2,
    batch=4, blocks=11, block_size=3,
    requests=((4, 3), (2, 6), (7, 2), (1, 1), (3, 8), (5, 5), (2, 2), (6, 4)), rounds=14,
)(visible.test_served_one)  # fmt: skip

test_sure = check("10.5", points=0.75, passes=[0, 1, 2, 3],
    vocab=15)(visible.test_speculative_sure)  # fmt: skip
test_rows = check("10.5", points=4, rows=[1, 30], k=5)(visible.test_speculative_rows)
test_accepted = check("10.5", points=2, view=column(0), drafted=[0, 1, 2, 3], draws=[3000],
                      p=(0.1, 0.2, 0.3, 0.4), q=(0.2, 0.4, 0.15, 0.25),
                      )(visible.test_speculative_accepted)  # fmt: skip
test_nearly = check("10.5", view=column(0), draws=9000, p=(0.5, 0.5, 0.0, 0.0),
                    q=(0.5019, 0.2, 0.2981, 0.0))(visible.test_speculative_nearly)  # fmt: skip
test_last_drawn = check("10.5", points=2, view=column(1), p=(0.05, 0.6, 0.15,
    0.2))(visible.test_speculative_last)  # fmt: skip
test_second = check("10.5", points=0.5)(visible.test_speculative_second)
test_dropped = check("10.5", points=1.5, view=column(1))(visible.test_speculative_dropped)
test_dice = check("10.5", points=1.5, view=column(2, columns=3),
    ratio=[0.4])(visible.test_speculative_dice)  # fmt: skip
test_generator = check("10.5", rows=[12])(visible.test_speculative_generator)

test_pack = check("10.6", points=2, rows=[1, 5], columns=[4, 10])(visible.test_pack)
test_unpack = check("10.6", points=2, rows=[1, 4], size=[1, 7])(visible.test_unpack)
test_pack_odd = check("10.6")(visible.test_pack_odd)
test_pack_unfit = check("10.6")(visible.test_pack_unfit)
test_pack_strided = check("10.6", STRIDED)(
    strided(lambda rng: visible.Call("pack_int4", quantized=visible.four_bits(rng)))
)
test_web_attention = check("10.7", length=[6, 9])(visible.test_web_attention)
test_web_zeros = check("10.8", bits=[3, 8])(visible.test_web_zeros)
test_web_outcome = check("10.9", size=[5, 8])(visible.test_web_outcome)
