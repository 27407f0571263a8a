"""Lab 02: wrong versions of the position codes."""

import math

import torch

from solutions import rope as reference
from solutions.mistakes import mistake, remark


def frequencies(size, base):
    """base^(-2i / size), one for each pair."""
    even = torch.arange(0, size, 2, dtype=torch.float32)
    return 1.0 / base ** (even / size)


def twice(angles):
    """cos and sin of angles laid out twice, one half after the other."""
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def turned_pair(x):
    """What rotate_half should give."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


# 2.1


@mistake("rope_cos_sin", "sine is returned before cosine: the order is cos, sin")
def sine_first(position_ids, head_dim, rope_theta):
    cos, sin = reference.rope_cos_sin(position_ids, head_dim, rope_theta)
    return sin, cos


@mistake(
    "rope_cos_sin",
    "every angle stands twice side by side: Qwen3 lays the whole row of angles out, then the "
    "same row again (cat, not repeat_interleave)",
)
def side_by_side(position_ids, head_dim, rope_theta):
    angles = position_ids[..., None].float() * frequencies(head_dim, rope_theta)
    angles = angles.repeat_interleave(2, dim=-1)
    return angles.cos(), angles.sin()


@mistake("rope_cos_sin", "the base is 10000 whatever rope_theta says; Qwen3's is 1000000")
def base_hard_coded(position_ids, head_dim, rope_theta):
    return reference.rope_cos_sin(position_ids, head_dim, 10000.0)


@mistake("rope_cos_sin", "position_ids are not read: the tokens are counted from 0 instead")
def positions_not_read(position_ids, head_dim, rope_theta):
    counted = torch.arange(position_ids.shape[-1]).expand(position_ids.shape)
    return reference.rope_cos_sin(counted, head_dim, rope_theta)


@mistake(
    "rope_cos_sin",
    "only the first position is read and the others are counted on from it, so that gaps are lost",
)
def counted_on(position_ids, head_dim, rope_theta):
    counted = position_ids[..., :1] + torch.arange(position_ids.shape[-1])
    return reference.rope_cos_sin(counted, head_dim, rope_theta)


@mistake("rope_cos_sin", "every text of the batch gets the positions of the first one")
def first_row_for_all(position_ids, head_dim, rope_theta):
    row = position_ids.reshape(-1, position_ids.shape[-1])[0]
    return reference.rope_cos_sin(row.expand(position_ids.shape), head_dim, rope_theta)


@mistake("rope_cos_sin", "positions are counted from 1: at position 0 nothing may turn")
def counted_from_one(position_ids, head_dim, rope_theta):
    return reference.rope_cos_sin(position_ids + 1, head_dim, rope_theta)


@mistake(
    "rope_cos_sin",
    "the 2 of the exponent is there twice: either the index runs 0, 2, 4, ... or it is "
    "multiplied by 2 (dividing by D/2 in place of D does the same)",
)
def factor_two_twice(position_ids, head_dim, rope_theta):
    even = torch.arange(0, head_dim, 2, dtype=torch.float32)
    inv_freq = 1.0 / rope_theta ** (2 * even / head_dim)
    return twice(position_ids[..., None].float() * inv_freq)


@mistake("rope_cos_sin", "the 2 of the exponent is missing: it is -2i / D, not -i / D")
def factor_two_missing(position_ids, head_dim, rope_theta):
    pair = torch.arange(head_dim // 2, dtype=torch.float32)
    inv_freq = 1.0 / rope_theta ** (pair / head_dim)
    return twice(position_ids[..., None].float() * inv_freq)


@mistake(
    "rope_cos_sin",
    "the exponents are spread evenly from 0 to 1: the last one is (D - 2) / D, not 1",
)
def exponents_up_to_one(position_ids, head_dim, rope_theta):
    inv_freq = 1.0 / rope_theta ** torch.linspace(0, 1, head_dim // 2)
    return twice(position_ids[..., None].float() * inv_freq)


@mistake(
    "rope_cos_sin", "the exponent lacks its minus: later pairs turn faster instead of slower"
)
def frequency_not_inverted(position_ids, head_dim, rope_theta):
    even = torch.arange(0, head_dim, 2, dtype=torch.float32)
    return twice(position_ids[..., None].float() * rope_theta ** (even / head_dim))


@mistake("rope_cos_sin", "the angles are negative: the minus belongs into the exponent alone")
def turned_backwards(position_ids, head_dim, rope_theta):
    cos, sin = reference.rope_cos_sin(position_ids, head_dim, rope_theta)
    return cos, -sin


@mistake(
    "rope_cos_sin",
    "the D/2 angles are not laid out twice, so that half of the features is missing",
)
def laid_out_once(position_ids, head_dim, rope_theta):
    angles = position_ids[..., None].float() * frequencies(head_dim, rope_theta)
    return angles.cos(), angles.sin()


@mistake(
    "rope_cos_sin",
    "the angles are computed in bfloat16, which knows 385 numbers below 512; keep float32",
)
def angles_in_bfloat16(position_ids, head_dim, rope_theta):
    inv_freq = frequencies(head_dim, rope_theta).bfloat16()
    cos, sin = twice(position_ids[..., None].bfloat16() * inv_freq)
    return cos.float(), sin.float()


@mistake(
    "rope_cos_sin",
    "the frequencies pass through bfloat16, as after model.bfloat16(): the angle's error grows "
    "with the position",
)
def frequencies_in_bfloat16(position_ids, head_dim, rope_theta):
    inv_freq = frequencies(head_dim, rope_theta).bfloat16().float()
    return twice(position_ids[..., None].float() * inv_freq)


@mistake(
    "rope_cos_sin",
    "the angles are computed in float16, which knows no odd number above 2048; keep float32",
)
def angles_in_float16(position_ids, head_dim, rope_theta):
    inv_freq = frequencies(head_dim, rope_theta).half()
    cos, sin = twice(position_ids[..., None].half() * inv_freq)
    return cos.float(), sin.float()


@mistake("rope_cos_sin", "the tables are returned in half precision: they stay in float32")
def tables_in_half(position_ids, head_dim, rope_theta):
    cos, sin = reference.rope_cos_sin(position_ids, head_dim, rope_theta)
    return cos.bfloat16(), sin.bfloat16()


@mistake("rope_cos_sin", "the tables are returned in float64: a division by a plain number, or "
         "numpy, made them wide")  # fmt: skip
def tables_in_double(position_ids, head_dim, rope_theta):
    cos, sin = reference.rope_cos_sin(position_ids, head_dim, rope_theta)
    return cos.double(), sin.double()


@mistake(
    "rope_cos_sin",
    "the rows are looked up in a table of fixed length: a position beyond its end has no row",
)
def table_of_fixed_length(position_ids, head_dim, rope_theta):
    cos, sin = reference.rope_cos_sin(torch.arange(4096), head_dim, rope_theta)
    return cos[position_ids], sin[position_ids]


@mistake(
    "rope_cos_sin",
    "the positions lack an axis for the pairs: position_ids[..., None] has shape (..., T, 1)",
)
def positions_without_an_axis(position_ids, head_dim, rope_theta):
    return twice(position_ids * frequencies(head_dim, rope_theta))


@mistake(
    "rope_cos_sin",
    "torch.outer is given rows of positions: it takes one row, and position_ids may be (B, T)",
)
def outer_of_rows(position_ids, head_dim, rope_theta):
    return twice(torch.outer(position_ids, frequencies(head_dim, rope_theta)))


@mistake(
    "rope_cos_sin",
    "the division by D stands outside the exponent: a ** b / D means (a ** b) / D",
)
def division_outside_the_exponent(position_ids, head_dim, rope_theta):
    even = torch.arange(0, head_dim, 2, dtype=torch.float32)
    inv_freq = 1.0 / rope_theta**even / head_dim
    return twice(position_ids[..., None].float() * inv_freq)


# 2.2


@mistake(
    "rotate_half",
    "the minus stands at the wrong half: (x2, -x1) turns backwards, (-x2, x1) is right",
)
def minus_at_the_wrong_half(x):
    return -turned_pair(x)


@mistake(
    "rotate_half",
    "neighbours are paired, (x0, x1), (x2, x3), ...: Qwen3 pairs x_i with x_{i + D/2}",
)
def neighbours_paired(x):
    return torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)


@mistake(
    "rotate_half",
    "the features are split by even and odd but put together by halves, so that they change places",
)
def even_and_odd_then_halves(x):
    return torch.cat((-x[..., 1::2], x[..., 0::2]), dim=-1)


@mistake(
    "rotate_half",
    "the features are split by halves but put together in turns, one of each",
)
def halves_then_in_turns(x):
    first, second = x.chunk(2, dim=-1)
    return torch.stack((-second, first), dim=-1).flatten(-2)


@mistake(
    "rotate_half", "the halves change places but none changes its sign (torch.roll does that)"
)
def no_minus(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((second, first), dim=-1)


@mistake("rotate_half", "the first half changes its sign, but the halves do not change places")
def halves_not_swapped(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-first, second), dim=-1)


@mistake(
    "rotate_half", "both halves change their sign: only the one that moves to the front does"
)
def minus_at_both(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, -first), dim=-1)


@mistake("rotate_half", "the first axis is halved instead of the last one: dim=-1 is missing")
def first_axis(x):
    first, second = x.chunk(2)
    return torch.cat((-second, first))


@mistake(
    "rotate_half", "the axis of the tokens is halved instead of the features: dim=-1, not -2"
)
def token_axis(x):
    first, second = x.chunk(2, dim=-2)
    return torch.cat((-second, first), dim=-2)


@mistake(
    "rotate_half",
    "the second half is copied from x after the first was overwritten: a slice is a view, not a copy",
)
def overwritten_before_copied(x):
    out = x.clone()
    half = x.shape[-1] // 2
    out[..., :half] = -out[..., half:]
    out[..., half:] = out[..., :half]
    return out


@mistake("rotate_half", "x is changed in place: the caller's tensor is turned as well")
def turned_in_place(x):
    return x.copy_(turned_pair(x))


@mistake(
    "rotate_half", "the features are mirrored: flip turns the order round inside each half too"
)
def mirrored(x):
    first, second = x.flip(-1).chunk(2, dim=-1)
    return torch.cat((-first, second), dim=-1)


@mistake("rotate_half", "torch.cat joins along the first axis: dim=-1 is missing there")
def joined_along_the_first_axis(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first))


@mistake("rotate_half", "the halves are stacked, which makes a new axis: torch.cat joins them")
def stacked(x):
    first, second = x.chunk(2, dim=-1)
    return torch.stack((-second, first), dim=-1)


# 2.3


@mistake("apply_rotary_pos_emb", "cos and sin have changed places in the formula")
def cos_and_sin_swapped(query, key, cos, sin):
    return reference.apply_rotary_pos_emb(query, key, sin, cos)


@mistake(
    "apply_rotary_pos_emb", "the arguments stand in another order than query, key, cos, sin"
)
def sin_before_cos(query, key, sin, cos):
    return reference.apply_rotary_pos_emb(query, key, cos, sin)


@mistake("apply_rotary_pos_emb", "only the query is turned: the key has a position as well")
def key_not_turned(query, key, cos, sin):
    return reference.apply_rotary_pos_emb(query, key, cos, sin)[0], key


@mistake("apply_rotary_pos_emb", "only the key is turned: the query has a position as well")
def query_not_turned(query, key, cos, sin):
    return query, reference.apply_rotary_pos_emb(query, key, cos, sin)[1]


@mistake(
    "apply_rotary_pos_emb",
    "the turn goes backwards: rotate_half(x) * sin is subtracted instead of added, or its sign "
    "is wrong",
)
def subtracted(query, key, cos, sin):
    return reference.apply_rotary_pos_emb(query, key, cos, -sin)


@mistake("apply_rotary_pos_emb", "x is not rotated before it meets sin: x * cos + x * sin")
def rotate_forgotten(query, key, cos, sin):
    cos = cos.to(query.dtype).unsqueeze(-3)
    sin = sin.to(query.dtype).unsqueeze(-3)
    return query * cos + query * sin, key * cos + key * sin


@mistake(
    "apply_rotary_pos_emb",
    "neighbours are turned, (x0, x1), while the tables pair x_i with x_{i + D/2}: lengths change",
)
def neighbours_with_half_tables(query, key, cos, sin):
    def turn(x):
        rotated = torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)
        return x * cos.to(x.dtype).unsqueeze(-3) + rotated * sin.to(x.dtype).unsqueeze(-3)

    return turn(query), turn(key)


@mistake(
    "apply_rotary_pos_emb",
    "neighbours, (x0, x1), are turned by one angle each: GPT-J does so, Qwen3 turns x_i with "
    "x_{i + D/2}",
)
def neighbours_turned(query, key, cos, sin):
    def turn(x):
        half = x.shape[-1] // 2
        c = cos.to(x.dtype).unsqueeze(-3)[..., :half]
        s = sin.to(x.dtype).unsqueeze(-3)[..., :half]
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * c - odd * s, odd * c + even * s), dim=-1).flatten(-2)

    return turn(query), turn(key)


@mistake(
    "apply_rotary_pos_emb",
    "the tables get no axis for the heads: (B, T, D) lines the batch up with the heads",
)
def no_axis_for_heads(query, key, cos, sin):
    cos, sin = cos.to(query.dtype), sin.to(query.dtype)
    return query * cos + turned_pair(query) * sin, key * cos + turned_pair(key) * sin


@mistake(
    "apply_rotary_pos_emb",
    "the new axis stands behind the tokens: that fits queries of shape (B, T, H, D)",
)
def axis_behind_the_tokens(query, key, cos, sin):
    cos, sin = cos.to(query.dtype).unsqueeze(-2), sin.to(query.dtype).unsqueeze(-2)
    return query * cos + turned_pair(query) * sin, key * cos + turned_pair(key) * sin


@mistake(
    "apply_rotary_pos_emb",
    "the new axis is counted from the front: unsqueeze(1) is right for tables (B, T, D), wrong "
    "for (T, D); unsqueeze(-3) is right for both",
)
def axis_counted_from_the_front(query, key, cos, sin):
    cos, sin = cos.to(query.dtype).unsqueeze(1), sin.to(query.dtype).unsqueeze(1)
    return query * cos + turned_pair(query) * sin, key * cos + turned_pair(key) * sin


@mistake(
    "apply_rotary_pos_emb", "all texts of the batch are turned by the angles of the first one"
)
def first_text_for_all(query, key, cos, sin):
    if cos.dim() == 3:
        cos, sin = cos[0], sin[0]
    return reference.apply_rotary_pos_emb(query, key, cos, sin)


@mistake(
    "apply_rotary_pos_emb",
    "the result is float32: cos and sin were not cast to the query's dtype, and the wider one wins",
)
def tables_not_cast(query, key, cos, sin):
    return reference.apply_rotary_pos_emb(query.float(), key.float(), cos.float(), sin.float())


@mistake(
    "apply_rotary_pos_emb", "query and key are changed in place: *= writes into the caller's"
)
def applied_in_place(query, key, cos, sin):
    turned = reference.apply_rotary_pos_emb(query, key, cos, sin)
    with torch.no_grad():
        query.copy_(turned[0])
        key.copy_(turned[1])
    return turned


@mistake(
    "apply_rotary_pos_emb", "the results are returned as key, query: the query comes first"
)
def key_returned_first(query, key, cos, sin):
    return reference.apply_rotary_pos_emb(query, key, cos, sin)[::-1]


@mistake(
    "apply_rotary_pos_emb",
    "the key's line still holds a query: key * cos + rotate_half(query) * sin",
)
def pasted_line(query, key, cos, sin):
    cos, sin = cos.to(query.dtype).unsqueeze(-3), sin.to(query.dtype).unsqueeze(-3)
    return query * cos + turned_pair(query) * sin, key * cos + turned_pair(query) * sin


@mistake(
    "apply_rotary_pos_emb", "no gradient flows back: a detach or no_grad stands round the turn"
)
def detached(query, key, cos, sin):
    turned = reference.apply_rotary_pos_emb(query, key, cos, sin)
    return turned[0].detach(), turned[1].detach()


@remark("apply_rotary_pos_emb", "you turn in float32 and cast last; Qwen3 casts cos and sin first "
        "and turns in the query's dtype. In half precision that is a rounding, and costs nothing here")  # fmt: skip
def turned_in_float32(query, key, cos, sin):
    wide = reference.apply_rotary_pos_emb(query.float(), key.float(), cos.float(), sin.float())
    return wide[0].to(query.dtype), wide[1].to(key.dtype)


@mistake(
    "apply_rotary_pos_emb",
    "the features are split by even and odd but put together by halves: lengths change, and "
    "Qwen3 pairs x_i with x_{i + D/2}",
)
def even_odd_with_half_tables(query, key, cos, sin):
    cos, sin = cos.to(query.dtype).unsqueeze(-3), sin.to(query.dtype).unsqueeze(-3)

    def turn(x):
        return x * cos + torch.cat((-x[..., 1::2], x[..., 0::2]), dim=-1) * sin

    return turn(query), turn(key)


# 2.4


@mistake(
    "sinusoidal_embedding",
    "all sines stand before all cosines: they take turns, sin, cos, sin, cos, ...",
)
def sines_then_cosines(position_ids, hidden_size):
    out = reference.sinusoidal_embedding(position_ids, hidden_size)
    return torch.cat((out[..., 0::2], out[..., 1::2]), dim=-1)


@mistake("sinusoidal_embedding", "cosine comes before sine: feature 0 is a sine")
def cosine_before_sine(position_ids, hidden_size):
    wider = hidden_size + hidden_size % 2
    angles = position_ids[..., None].float() * frequencies(hidden_size, 10000.0)
    out = angles.new_zeros(*position_ids.shape, wider)
    out[..., 0::2], out[..., 1::2] = angles.cos(), angles.sin()
    return out[..., :hidden_size]


@mistake(
    "sinusoidal_embedding",
    "the 2 of the exponent is there twice: the index runs 0, 2, 4, ... and is doubled again",
)
def exponent_doubled(position_ids, hidden_size):
    even = torch.arange(0, hidden_size, 2, dtype=torch.float32)
    angles = position_ids[..., None].float() / 10000.0 ** (2 * even / hidden_size)
    out = angles.new_zeros(*position_ids.shape, hidden_size)
    out[..., 0::2] = angles.sin()
    out[..., 1::2] = angles.cos()[..., : hidden_size // 2]
    return out


@mistake(
    "sinusoidal_embedding", "the 2 of the exponent is missing: -i / E where -2i / E belongs"
)
def exponent_halved(position_ids, hidden_size):
    pair = torch.arange(0, hidden_size, 2, dtype=torch.float32) / 2
    angles = position_ids[..., None].float() / 10000.0 ** (pair / hidden_size)
    out = angles.new_zeros(*position_ids.shape, hidden_size)
    out[..., 0::2] = angles.sin()
    out[..., 1::2] = angles.cos()[..., : hidden_size // 2]
    return out


@mistake(
    "sinusoidal_embedding",
    "sine and cosine of a pair have different frequencies: both use the exponent 2i / E",
)
def own_exponent_for_cosine(position_ids, hidden_size):
    feature = torch.arange(hidden_size, dtype=torch.float32)
    angles = position_ids[..., None].float() / 10000.0 ** (feature / hidden_size)
    out = angles.sin()
    out[..., 1::2] = angles.cos()[..., 1::2]
    return out


@mistake(
    "sinusoidal_embedding", "an odd E raises an error: then there is one sine more than cosines"
)
def odd_size_refused(position_ids, hidden_size):
    angles = position_ids[..., None].float() * frequencies(hidden_size, 10000.0)
    out = angles.new_zeros(*position_ids.shape, hidden_size)
    out[..., 0::2] = angles.sin()
    out[..., 1::2] = angles.cos()
    return out


@mistake(
    "sinusoidal_embedding",
    "an odd E is rounded up before the exponents are taken: they divide by E itself",
)
def exponent_of_the_rounded_size(position_ids, hidden_size):
    wider = hidden_size + hidden_size % 2
    return reference.sinusoidal_embedding(position_ids, wider)[..., :hidden_size]


@mistake("sinusoidal_embedding", "position_ids are not read: the tokens are counted from 0")
def sinusoid_counted_from_zero(position_ids, hidden_size):
    counted = torch.arange(position_ids.shape[-1]).expand(position_ids.shape)
    return reference.sinusoidal_embedding(counted, hidden_size)


@mistake(
    "sinusoidal_embedding", "the base is Qwen3's 1000000; the first Transformer's is 10000"
)
def base_of_qwen3(position_ids, hidden_size):
    angles = position_ids[..., None].float() * frequencies(hidden_size, 1e6)
    out = angles.new_zeros(*position_ids.shape, hidden_size)
    out[..., 0::2] = angles.sin()
    out[..., 1::2] = angles.cos()[..., : hidden_size // 2]
    return out


@mistake("sinusoidal_embedding", "the angles are computed in half precision: keep float32")
def sinusoid_in_bfloat16(position_ids, hidden_size):
    return reference.sinusoidal_embedding(position_ids.bfloat16(), hidden_size)


# 2.5


@mistake("alibi_bias", "the bias is positive: far keys gain instead of losing")
def far_keys_gain(num_heads, query_length, key_length):
    return -reference.alibi_bias(num_heads, query_length, key_length)


@mistake(
    "alibi_bias",
    "the exponent starts at 0, so that the first head has slope 1: with 8 heads it starts at 1/2",
)
def exponent_starts_at_zero(num_heads, query_length, key_length):
    def slopes(count):
        return [2 ** (-8 * head / count) for head in range(count)]

    power = 2 ** int(math.log2(num_heads))
    slope = torch.tensor((slopes(power) + slopes(2 * power)[0::2])[:num_heads])
    keys = torch.arange(key_length)
    distance = (keys[key_length - query_length :, None] - keys).abs()
    return -slope[:, None, None] * distance


@mistake(
    "alibi_bias",
    "the formula for powers of two is used for every H: 12 heads take 8 slopes of 8 and 4 of 16",
)
def one_formula_for_all(num_heads, query_length, key_length):
    slope = torch.tensor([2 ** (-8 * (head + 1) / num_heads) for head in range(num_heads)])
    return slope[:, None, None] * reference.alibi_bias(1, query_length, key_length) * 2**8


@mistake(
    "alibi_bias",
    "for other H the first slopes of the next larger power of two are taken, all in a row",
)
def next_larger_power(num_heads, query_length, key_length):
    power = 2 ** math.ceil(math.log2(num_heads))
    return reference.alibi_bias(power, query_length, key_length)[:num_heads]


@mistake(
    "alibi_bias",
    "the extra slopes are the second, fourth, ... of twice the power: take the first, third, ...",
)
def wrong_half_of_the_slopes(num_heads, query_length, key_length):
    power = 2 ** int(math.log2(num_heads))
    first = reference.alibi_bias(power, query_length, key_length)
    extra = reference.alibi_bias(2 * power, query_length, key_length)[1::2]
    return torch.cat((first, extra))[:num_heads]


@mistake("alibi_bias", "the slopes are sorted: the extra ones of other H come at the end")
def slopes_sorted(num_heads, query_length, key_length):
    bias = reference.alibi_bias(num_heads, query_length, key_length)
    return bias[reference.alibi_bias(num_heads, 1, 2)[:, 0, 0].argsort()]


@mistake(
    "alibi_bias",
    "the slopes are 1/2, 1/4, 1/8, ... for every H: that is right for 8 heads alone",
)
def always_halved(num_heads, query_length, key_length):
    slope = torch.tensor([2.0 ** -(head + 1) for head in range(num_heads)])
    return slope[:, None, None] * reference.alibi_bias(1, query_length, key_length) * 2**8


@mistake(
    "alibi_bias",
    "the queries are counted from 0: with T < S they are the last of the keys, at S - T + t",
)
def queries_from_zero(num_heads, query_length, key_length):
    bias = reference.alibi_bias(num_heads, key_length, key_length)
    return bias[:, :query_length]


@mistake(
    "alibi_bias", "the distance keeps its sign, so that keys after the query gain: take |i - j|"
)
def distance_with_sign(num_heads, query_length, key_length):
    keys = torch.arange(key_length)
    sign = (keys[key_length - query_length :, None] - keys).sign()
    return reference.alibi_bias(num_heads, query_length, key_length) * sign


@mistake("alibi_bias", "keys after the query get 0: here the bias is the same on both sides")
def future_gets_zero(num_heads, query_length, key_length):
    bias = reference.alibi_bias(num_heads, query_length, key_length)
    return bias.tril(key_length - query_length)


@mistake("alibi_bias", "there is an axis for the batch: the shape is (H, T, S)")
def axis_too_many(num_heads, query_length, key_length):
    return reference.alibi_bias(num_heads, query_length, key_length)[None]


# 2.6


@mistake(
    "relative_scores",
    "relative_key is read by the key's place j: the distance i - j picks the row",
)
def distance_not_taken(query, key, relative_key, content_bias, position_bias):
    total = key.size(2)
    scores = (query + content_bias[:, None]) @ key.mT
    scores = scores + (query + position_bias[:, None]) @ relative_key.mT
    keys = torch.arange(total)
    future = keys > keys[total - query.size(2) :, None]
    return scores.masked_fill(future, -torch.inf)


@mistake(
    "relative_scores",
    "relative_key is read from its end, the farthest first: row d belongs to distance d",
)
def farthest_first(query, key, relative_key, content_bias, position_bias):
    return reference.relative_scores(
        query, key, relative_key.flip(1), content_bias, position_bias
    )


@mistake("relative_scores", "content_bias and position_bias have changed places")
def biases_swapped(query, key, relative_key, content_bias, position_bias):
    return reference.relative_scores(query, key, relative_key, position_bias, content_bias)


@mistake("relative_scores", "content_bias is left out")
def content_bias_ignored(query, key, relative_key, content_bias, position_bias):
    nothing = torch.zeros_like(content_bias)
    return reference.relative_scores(query, key, relative_key, nothing, position_bias)


@mistake("relative_scores", "position_bias is left out")
def position_bias_ignored(query, key, relative_key, content_bias, position_bias):
    nothing = torch.zeros_like(position_bias)
    return reference.relative_scores(query, key, relative_key, content_bias, nothing)


@mistake("relative_scores", "the biases are added to the keys: they stand in for a query")
def biases_on_the_keys(query, key, relative_key, content_bias, position_bias):
    nothing = torch.zeros_like(content_bias)
    key = key + content_bias[:, None]
    relative_key = relative_key + position_bias[:, None]
    return reference.relative_scores(query, key, relative_key, nothing, nothing)


@mistake("relative_scores", "keys of the future keep a score: with j > i it is -inf")
def future_not_hidden(query, key, relative_key, content_bias, position_bias):
    total = key.size(2)
    keys = torch.arange(total)
    distance = (keys[total - query.size(2) :, None] - keys).clamp(min=0)
    by_content = (query + content_bias[:, None]) @ key.mT
    by_distance = (query + position_bias[:, None]) @ relative_key.mT
    return by_content + by_distance.gather(-1, distance.expand_as(by_distance))


@mistake(
    "relative_scores", "the future scores 0 instead of -inf: after softmax 0 is no small number"
)
def future_scores_zero(query, key, relative_key, content_bias, position_bias):
    scores = reference.relative_scores(query, key, relative_key, content_bias, position_bias)
    return scores.masked_fill(scores.isinf(), 0.0)


@mistake("relative_scores", "the future scores a large negative number instead of -inf")
def future_scores_large(query, key, relative_key, content_bias, position_bias):
    scores = reference.relative_scores(query, key, relative_key, content_bias, position_bias)
    return scores.masked_fill(scores.isinf(), -1e9)


@mistake(
    "relative_scores", "a token may not attend to itself: the key at distance 0 is hidden too"
)
def own_key_hidden(query, key, relative_key, content_bias, position_bias):
    scores = reference.relative_scores(query, key, relative_key, content_bias, position_bias)
    keys = torch.arange(key.size(2))
    return scores.masked_fill(keys == keys[-query.size(2) :, None], -torch.inf)


@mistake(
    "relative_scores",
    "the queries are counted from 0: with T < S they are the last of the keys, so i = S - T + t",
)
def queries_counted_from_zero(query, key, relative_key, content_bias, position_bias):
    missing = key.size(2) - query.size(2)
    padded = torch.cat((query, query.new_zeros(*query.shape[:2], missing, query.size(3))), 2)
    scores = reference.relative_scores(padded, key, relative_key, content_bias, position_bias)
    return scores[:, :, : query.size(2)]


@mistake("relative_scores", "the scores are scaled by D^-0.5: here that is left to the caller")
def scaled(query, key, relative_key, content_bias, position_bias):
    scores = reference.relative_scores(query, key, relative_key, content_bias, position_bias)
    return scores * query.size(-1) ** -0.5


@mistake("relative_scores", "a softmax is taken: the scores themselves are asked for")
def softmax_taken(query, key, relative_key, content_bias, position_bias):
    scores = reference.relative_scores(query, key, relative_key, content_bias, position_bias)
    return scores.softmax(dim=-1)


@mistake(
    "relative_scores",
    "the product with relative_key is added as it stands: its column d belongs to distance d, "
    "not to key d, and the future is not hidden either",
)
def added_as_it_stands(query, key, relative_key, content_bias, position_bias):
    scores = (query + content_bias[:, None]) @ key.mT
    return scores + (query + position_bias[:, None]) @ relative_key.mT


# 2.7


def yarn(
    position_ids,
    head_dim,
    rope_theta,
    factor,
    original_max_position_embeddings,
    attention_factor=None,
    beta_fast=32.0,
    beta_slow=1.0,
    *,
    fault,
):
    """YaRN with one fault, named by a word."""
    trained = original_max_position_embeddings
    if fault == "new length":
        trained = trained * factor

    def index(turns):
        logarithm = math.log(trained / (2 * math.pi * turns))
        return head_dim * logarithm / (2 * math.log(rope_theta))

    low, high = index(beta_fast), index(beta_slow)
    if fault != "not rounded":
        low, high = math.floor(low), math.ceil(high)
    if fault != "low below 0":
        low = max(low, 0)
    high = min(high, head_dim // 2 - 1 if fault == "last pair" else head_dim - 1)
    if fault != "0 by 0":
        high = max(high, low + 0.001)
    ramp = (torch.arange(head_dim // 2) - low) / torch.tensor(float(high - low))
    if fault != "not clamped":
        ramp = ramp.clamp(0, 1)
    if fault == "inverted":
        ramp = 1 - ramp
    elif fault in ("all", "none"):
        ramp = torch.full_like(ramp, float(fault == "all"))
    inv_freq = frequencies(head_dim, rope_theta)
    slower = inv_freq * factor if fault == "faster" else inv_freq / factor
    if attention_factor is None:
        attention_factor = 0.1 * math.log(factor) + 1.0
    cos, sin = twice(position_ids[..., None].float() * (inv_freq * (1 - ramp) + slower * ramp))
    return cos * attention_factor, sin * (1.0 if fault == "cos alone" else attention_factor)


def with_factor(value, given, named):
    """The arguments with another attention_factor."""
    if len(given) > 5:
        return (*given[:5], value, *given[6:]), named
    return given, {**named, "attention_factor": value}


@mistake("yarn_cos_sin", "cos and sin are not multiplied by the attention factor")
def attention_factor_missing(*given, **named):
    given, named = with_factor(1.0, given, named)
    return reference.yarn_cos_sin(*given, **named)


@mistake(
    "yarn_cos_sin", "an attention_factor that is passed is not used: the formula is its default"
)
def explicit_factor_ignored(*given, **named):
    given, named = with_factor(None, given, named)
    return reference.yarn_cos_sin(*given, **named)


@mistake("yarn_cos_sin", "only cos is multiplied by the attention factor: sin needs it as well")
def factor_on_cos_alone(*given, **named):
    return yarn(*given, **named, fault="cos alone")


@mistake("yarn_cos_sin", "the attention factor uses the logarithm to base 10: ln is math.log")
def logarithm_to_base_ten(*given, **named):
    if len(given) < 6 and named.get("attention_factor") is None:
        factor = named.get("factor") or given[3]
        given, named = with_factor(0.1 * math.log10(factor) + 1.0, given, named)
    return reference.yarn_cos_sin(*given, **named)


@mistake(
    "yarn_cos_sin",
    "the ramp is the wrong way round: the fast pairs are slowed down and the slow ones stay",
)
def ramp_inverted(*given, **named):
    return yarn(*given, **named, fault="inverted")


@mistake(
    "yarn_cos_sin",
    "the turns are counted over the stretched length: they are counted over the trained one",
)
def turns_over_the_new_length(*given, **named):
    return yarn(*given, **named, fault="new length")


@mistake(
    "yarn_cos_sin",
    "every pair is slowed down, as if the positions were divided by factor: the fast ones stay",
)
def all_pairs_slowed(*given, **named):
    return yarn(*given, **named, fault="all")


@mistake("yarn_cos_sin", "no pair is slowed down: these are RoPE's own angles")
def no_pair_slowed(*given, **named):
    return yarn(*given, **named, fault="none")


@mistake("yarn_cos_sin", "the slow pairs are made faster: their frequency is divided by factor")
def slow_pairs_made_faster(*given, **named):
    return yarn(*given, **named, fault="faster")


@mistake(
    "yarn_cos_sin", "low and high are not rounded: low goes down to a whole pair, high goes up"
)
def edges_not_rounded(*given, **named):
    return yarn(*given, **named, fault="not rounded")


@mistake("yarn_cos_sin", "high ends at the last pair, D/2 - 1: the formula lets it go to D - 1")
def high_cut_at_the_last_pair(*given, **named):
    return yarn(*given, **named, fault="last pair")


@mistake(
    "yarn_cos_sin", "low falls below 0: where even pair 0 turns too seldom, low is set to 0"
)
def low_below_zero(*given, **named):
    return yarn(*given, **named, fault="low below 0")


@mistake(
    "yarn_cos_sin",
    "low and high coincide and the ramp divides by 0: high is at least low + 0.001",
)
def divided_by_zero(*given, **named):
    return yarn(*given, **named, fault="0 by 0")


@mistake("yarn_cos_sin", "the ramp is not clamped to 0 and 1: it runs on beyond its ends")
def ramp_not_clamped(*given, **named):
    return yarn(*given, **named, fault="not clamped")


@mistake("yarn_cos_sin", "beta_fast and beta_slow are not read: 32 and 1 are their defaults")
def betas_ignored(*given, **named):
    named = {k: v for k, v in named.items() if not k.startswith("beta_")}
    return reference.yarn_cos_sin(*given[:6], **named)


@mistake(
    "yarn_cos_sin",
    "the positions are divided by factor and that is all: fast pairs stay in YaRN, and cos and "
    "sin get the attention factor",
)
def positions_divided(*given, **named):
    given, named = with_factor(1.0, given, named)
    return yarn(*given, **named, fault="all")
