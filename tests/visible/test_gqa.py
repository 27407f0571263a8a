"""Visible checks of lab 03: what check("3.1") and its sisters run."""

import pytest
import torch

from labkit.checks.runner import Call, Given, New, compare

HALF = [torch.bfloat16, torch.float16]


def causal(new, total):
    """(new, total) bool: the queries are the last of the keys."""
    return torch.ones(new, total, dtype=torch.bool).tril(total - new)


def window(new, total, width=3):
    """(new, total) bool: causal, and no further back than `width` tokens."""
    return causal(new, total).triu(total - new - width + 1)


def rotary(positions, size):
    """cos and sin (..., T, size) of the angles of these positions, as lab 02 makes them."""
    inv_freq = 100.0 ** -(torch.arange(0, size, 2).double() / size)
    angles = positions[..., None] * inv_freq  # float32 differs from processor to processor
    angles = torch.cat((angles, angles), dim=-1)
    return {"cos": angles.cos().float(), "sin": angles.sin().float()}


def tokens(x, start, end, rotary_dim=4, first=3):
    """The inputs for tokens number start to end of x; token 0 stands at position `first`."""
    angles = rotary(torch.arange(first + start, first + end)[None], rotary_dim)
    return {"hidden_states": x[:, start:end], **angles, "mask": causal(end - start, end)}


@pytest.mark.exercise("3.1")
class TestCausalMask:
    def test_square(self, student, reference):
        """4 tokens, nothing cached"""
        compare(student, reference, Call("causal_mask", query_length=4, key_length=4))

    def test_chunk(self, student, reference):
        """3 new tokens after 2 cached ones"""
        compare(student, reference, Call("causal_mask", query_length=3, key_length=5))

    def test_one_token(self, student, reference):
        """1 new token after 4 cached ones sees them all"""
        compare(student, reference, Call("causal_mask", query_length=1, key_length=5))

    def test_positions(self, student, reference):
        """arguments by position: query_length, key_length"""
        call = Call("causal_mask", query_length=2, key_length=6, by_position=True)
        compare(student, reference, call)

    def test_long(self, student, reference):
        """4 new tokens after 300 cached ones"""
        compare(student, reference, Call("causal_mask", query_length=4, key_length=304))


def attention_call(rng, shape=(2, 3, 4, 5, 6), mask=None, **options):
    batch, heads, new, total, size = shape
    inputs = {
        "query": rng.normal(batch, heads, new, size),
        "key": rng.normal(batch, heads, total, size),
        "value": rng.normal(batch, heads, total, size),
    }
    if mask is not None:
        inputs["mask"] = mask
    return Call("scaled_dot_product_attention", **inputs, **options)


def whole_numbers_call(rng, dtype, size=2, shape=(2, 2, 4, 5, 4)):
    """A call whose scores are exact in any dtype, and whose values are all positive."""
    call = attention_call(rng, shape)
    inputs = call.steps[0][1]
    for name in ("query", "key"):
        inputs[name] = rng.integers(-size, size + 1, *inputs[name].shape).to(dtype)
    inputs["value"] = rng.uniform(*inputs["value"].shape, low=1.0, high=2.0).to(dtype)
    return call


def low_scores_call(rng, shape=(2, 2, 4, 5, 4)):
    """A call with a mask whose scores are all near -30000."""
    call = attention_call(rng, shape, mask=window(*shape[2:4]), scale=1.0)
    inputs = call.steps[0][1]
    for name, far in (("query", 300.0), ("key", -100.0)):
        inputs[name] = rng.integers(-1, 2, *inputs[name].shape).float()
        inputs[name][..., 0] = far
    return call


@pytest.mark.exercise("3.2")
class TestAttention:
    def test_values(self, student, reference, rng):
        """values without a mask"""
        compare(student, reference, attention_call(rng))

    def test_scale(self, student, reference, rng):
        """values with scale 0.3"""
        compare(student, reference, attention_call(rng, (2, 1, 4, 5, 6), scale=0.3))

    def test_mask(self, student, reference, rng):
        """a mask (T, S): each query sees itself and up to two tokens before it"""
        compare(student, reference, attention_call(rng, mask=window(4, 5)))

    def test_mask_of_each_text(self, student, reference, rng):
        """a mask (B, 1, T, S), another for each text"""
        mask = torch.stack((window(4, 5), window(4, 5, width=2)))[:, None]
        compare(student, reference, attention_call(rng, mask=mask))

    def test_mask_and_scale(self, student, reference, rng):
        """a mask and scale 0.2"""
        compare(student, reference, attention_call(rng, mask=window(4, 5), scale=0.2))

    def test_large_scores(self, student, reference, rng):
        """scores in the thousands"""
        compare(student, reference, whole_numbers_call(rng, torch.float32, size=100))

    def test_low_scores(self, student, reference, rng):
        """a mask, scores near -30000"""
        compare(student, reference, low_scores_call(rng))

    def test_other_value_size(self, student, reference, rng):
        """values of size 9, queries and keys of size 6, with a mask"""
        call = attention_call(rng, mask=window(4, 5))
        call.steps[0][1]["value"] = rng.normal(2, 3, 5, 9)
        compare(student, reference, call)

    @pytest.mark.points(0.5)
    @pytest.mark.parametrize("dtype", HALF)
    def test_half_precision(self, student, reference, rng, dtype):
        """{dtype} with a mask"""
        call = whole_numbers_call(rng, dtype)
        call.steps[0][1]["mask"] = window(4, 5)
        compare(student, reference, call)

    def test_positions(self, student, reference, rng):
        """arguments by position: query, key, value, mask, scale"""
        call = attention_call(rng, mask=window(4, 5), scale=0.7, by_position=True)
        compare(student, reference, call)

    def test_gradients(self, student, reference, rng):
        """gradients of query, key and value"""
        compare(student, reference, attention_call(rng, mask=window(4, 5), grad=True))


@pytest.mark.exercise("3.3")
class TestRepeatKV:
    def test_values(self, student, reference, rng):
        """2 KV heads, each for 3 query heads"""
        call = Call("repeat_kv", hidden_states=rng.normal(2, 2, 4, 5), n_rep=3)
        compare(student, reference, call)

    def test_one_each(self, student, reference, rng):
        """n_rep 1 changes nothing"""
        call = Call("repeat_kv", hidden_states=rng.normal(2, 3, 4, 5), n_rep=1)
        compare(student, reference, call)

    def test_half_precision(self, student, reference, rng):
        """bfloat16 stays bfloat16"""
        x = rng.normal(2, 2, 3, 4, dtype=torch.bfloat16)
        compare(student, reference, Call("repeat_kv", hidden_states=x, n_rep=2))

    def test_positions(self, student, reference, rng):
        """arguments by position: hidden_states, n_rep"""
        call = Call(
            "repeat_kv", hidden_states=rng.normal(1, 4, 3, 2), n_rep=2, by_position=True
        )
        compare(student, reference, call)

    def test_gradients(self, student, reference, rng):
        """gradients: a KV head collects those of all its copies"""
        call = Call("repeat_kv", hidden_states=rng.normal(2, 2, 3, 4), n_rep=4, grad=True)
        compare(student, reference, call)


D = 4  # head_dim of Qwen3Attention
E = 24  # its hidden_size: that of 6 heads
SMALL = 12  # a hidden_size that is not H * D


def qwen3_config(heads=6, kv_heads=2, **changes):
    sizes = {
        "vocab_size": 8,
        "hidden_size": E,
        "intermediate_size": 8,
        "num_hidden_layers": 4,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": D,
    }
    return New("Qwen3Config", **(sizes | changes))


def qwen3_state(rng, heads=6, kv_heads=2, bias=False, size=E):
    q, kv = heads * D, kv_heads * D
    sizes = {"q_proj": (q, size), "k_proj": (kv, size), "v_proj": (kv, size)}
    sizes |= {"o_proj": (size, q)}
    state = {f"{n}.weight": rng.normal(*s) / s[1] ** 0.5 for n, s in sizes.items()}
    if bias:
        state |= {f"{n}.bias": rng.normal(s[0]) for n, s in sizes.items()}
    norms = {f"{n}.weight": 1 + 0.5 * rng.normal(D) for n in ("q_norm", "k_norm")}
    return state | norms


def qwen3_call(rng, heads=6, kv_heads=2, size=E, layer_idx=2, state=None, **options):
    """A Qwen3Attention; options of its config and of the Call."""
    fields = ("attention_bias", "rms_norm_eps")
    changes = {name: options.pop(name) for name in fields if name in options}
    bias = changes.get("attention_bias", False)
    state = qwen3_state(rng, heads, kv_heads, bias, size) if state is None else state
    config = qwen3_config(heads, kv_heads, hidden_size=size, **changes)
    init = {"config": config, "layer_idx": layer_idx}
    return Call("Qwen3Attention", init=init, state=state, **options)


def hidden(rng, *shape):
    """hidden_states so large that a small eps does not show."""
    return 4 * rng.normal(*shape)


def own_positions(x, rotary_dim=D):
    """Two texts whose tokens stand at positions of their own: more than a shift apart."""
    positions = torch.tensor([[0, 1, 2, 3, 4], [0, 5, 9, 10, 17]])
    return {"hidden_states": x, **rotary(positions, rotary_dim), "mask": causal(5, 5)}


@pytest.mark.exercise("3.4")
class TestQwen3Attention:
    def test_parameters(self, student, reference):
        """names and shapes of the parameters"""
        init = {"config": qwen3_config(), "layer_idx": 2}
        compare(student, reference, Call("Qwen3Attention", init=init, names=True))

    def test_parameters_of_other_sizes(self, student, reference):
        """the same with hidden_size 12 and 6 heads of 4: H * D is not E"""
        init = {"config": qwen3_config(hidden_size=SMALL), "layer_idx": 2}
        compare(student, reference, Call("Qwen3Attention", init=init, names=True))

    @pytest.mark.points(0.5)
    def test_parameters_with_bias(self, student, reference):
        """the same with attention_bias"""
        init = {"config": qwen3_config(attention_bias=True), "layer_idx": 2}
        compare(student, reference, Call("Qwen3Attention", init=init, names=True))

    def test_one_token(self, student, reference, rng):
        """one token, which can only see itself"""
        compare(student, reference, qwen3_call(rng).then(**tokens(hidden(rng, 2, 1, E), 0, 1)))

    def test_values(self, student, reference, rng):
        """5 tokens, nothing cached"""
        compare(student, reference, qwen3_call(rng).then(**tokens(hidden(rng, 2, 5, E), 0, 5)))

    def test_other_sizes(self, student, reference, rng):
        """5 tokens, hidden_size 12 and 6 heads of 4: H * D is not E"""
        call = qwen3_call(rng, size=SMALL).then(**tokens(hidden(rng, 2, 5, SMALL), 0, 5))
        compare(student, reference, call)

    def test_without_mask(self, student, reference, rng):
        """without a mask every token sees every other"""
        call = qwen3_call(rng).then(**tokens(hidden(rng, 2, 5, E), 0, 5))
        del call.steps[0][1]["mask"]
        compare(student, reference, call)

    def test_own_positions(self, student, reference, rng):
        """two texts at other positions: 0, 1, 2, 3, 4 and 0, 5, 9, 10, 17"""
        compare(student, reference, qwen3_call(rng).then(**own_positions(hidden(rng, 2, 5, E))))

    def test_own_mask(self, student, reference, rng):
        """a mask (B, 1, T, S), another for each text"""
        call = qwen3_call(rng).then(**tokens(hidden(rng, 2, 5, E), 0, 5))
        call.steps[0][1]["mask"] = torch.stack((window(5, 5), window(5, 5, width=2)))[:, None]
        compare(student, reference, call)

    def test_cache(self, student, reference, rng):
        """5 tokens in three steps with a cache: 2, then 2, then 1"""
        call, x = qwen3_call(rng), hidden(rng, 2, 5, E)
        cache = Given("kv_cache", layer_idx=2, numbers=2 * 2 * D)
        for start, end in ((0, 2), (2, 4), (4, 5)):
            call.then(**tokens(x, start, end), cache=cache)
        compare(student, reference, call)

    def test_eps(self, student, reference, rng):
        """values with rms_norm_eps 0.01"""
        call = qwen3_call(rng, rms_norm_eps=0.01).then(**tokens(hidden(rng, 2, 5, E), 0, 5))
        compare(student, reference, call)

    @pytest.mark.points(0.5)
    def test_bias(self, student, reference, rng):
        """values with attention_bias"""
        call = qwen3_call(rng, attention_bias=True).then(**tokens(hidden(rng, 2, 5, E), 0, 5))
        compare(student, reference, call)

    def test_positions(self, student, reference, rng):
        """arguments by position: hidden_states, cos, sin, mask"""
        call = qwen3_call(rng, by_position=True).then(**tokens(hidden(rng, 2, 5, E), 0, 5))
        compare(student, reference, call)

    @pytest.mark.points(0.5)
    def test_half_precision(self, student, reference, rng):
        """bfloat16 in, bfloat16 out, cos and sin in float32"""
        call = qwen3_call(rng, dtype=torch.bfloat16).then(**tokens(rng.normal(2, 1, E), 0, 1))
        inputs = call.steps[0][1]
        inputs["hidden_states"] = (1.5 + 0.2 * inputs["hidden_states"]).bfloat16()
        for name in ("v_proj.weight", "o_proj.weight"):  # positive sums: little rounding
            call.state[name] = call.state[name].abs()
        compare(student, reference, call)

    def test_gradients(self, student, reference, rng):
        """gradients of input and parameters"""
        call = qwen3_call(rng, grad=True).then(**tokens(hidden(rng, 2, 5, E), 0, 5))
        compare(student, reference, call)


def latent_state(rng, shapes):
    return {
        f"{name}.weight": 1 + 0.5 * rng.normal(*shape)
        if len(shape) == 1
        else rng.normal(*shape) / shape[1] ** 0.5
        for name, shape in shapes.items()
    }


def latent_call(sizes, layer_idx, **options):
    init = {"config": New("MLAConfig", **sizes), "layer_idx": layer_idx}
    return Call("MultiHeadLatentAttention", init=init, **options)


@pytest.mark.exercise("3.5")
class TestLatentAttention:
    SIZES = {
        "hidden_size": 12,
        "num_attention_heads": 3,
        "q_lora_rank": 7,
        "kv_lora_rank": 5,
        "qk_nope_head_dim": 6,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
    }
    SHAPES = {
        "q_a_proj": (7, 12),
        "q_b_proj": (30, 7),
        "kv_a_proj_with_mqa": (9, 12),
        "kv_b_proj": (42, 5),
        "o_proj": (12, 24),
        "q_a_layernorm": (7,),
        "kv_a_layernorm": (5,),
    }

    def call(self, rng, **options):
        return latent_call(self.SIZES, 1, state=latent_state(rng, self.SHAPES), **options)

    def test_parameters(self, student, reference):
        """names and shapes of the parameters"""
        compare(student, reference, latent_call(self.SIZES, 1, names=True))

    def test_one_token(self, student, reference, rng):
        """one token, which can only see itself"""
        compare(student, reference, self.call(rng).then(**tokens(hidden(rng, 2, 1, 12), 0, 1)))

    def test_values(self, student, reference, rng):
        """5 tokens, nothing cached"""
        compare(student, reference, self.call(rng).then(**tokens(hidden(rng, 2, 5, 12), 0, 5)))

    def test_cache(self, student, reference, rng):
        """5 tokens in three steps with a cache: 2, then 2, then 1"""
        call, x = self.call(rng), hidden(rng, 2, 5, 12)
        cache = Given("kv_cache", layer_idx=1, numbers=5 + 4)
        for start, end in ((0, 2), (2, 4), (4, 5)):
            call.then(**tokens(x, start, end), cache=cache)
        compare(student, reference, call)

    def test_without_mask(self, student, reference, rng):
        """without a mask every token sees every other"""
        call = self.call(rng).then(**tokens(hidden(rng, 2, 5, 12), 0, 5))
        del call.steps[0][1]["mask"]
        compare(student, reference, call)

    def test_own_positions(self, student, reference, rng):
        """two texts at other positions: 0, 1, 2, 3, 4 and 0, 5, 9, 10, 17"""
        compare(student, reference, self.call(rng).then(**own_positions(hidden(rng, 2, 5, 12))))

    @pytest.mark.points(0.5)
    def test_eps(self, student, reference, rng):
        """very small numbers, where the norms' eps of 1e-6 counts"""
        x = 2e-3 * rng.normal(2, 5, 12)
        compare(student, reference, self.call(rng).then(**tokens(x, 0, 5)))

    def test_positions(self, student, reference, rng):
        """arguments by position: hidden_states, cos, sin, mask"""
        call = self.call(rng, by_position=True).then(**tokens(hidden(rng, 2, 5, 12), 0, 5))
        compare(student, reference, call)

    @pytest.mark.points(0.5)
    def test_half_precision(self, student, reference, rng):
        """bfloat16 in, bfloat16 out, cos and sin in float32"""
        call = self.call(rng, dtype=torch.bfloat16)
        call.state = {name: weight.abs() + 0.1 for name, weight in call.state.items()}
        x = (1.5 + 0.2 * rng.normal(2, 1, 12)).bfloat16()  # positive sums: little rounding
        compare(student, reference, call.then(**tokens(x, 0, 1)))

    def test_gradients(self, student, reference, rng):
        """gradients of input and parameters"""
        call = self.call(rng, grad=True).then(**tokens(hidden(rng, 2, 5, 12), 0, 5))
        compare(student, reference, call)


def as_float(mask, low, dtype=torch.float32):
    """A bool mask as one to add: 0 where it is True, `low` where it is False."""
    return torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, low)


def one_blind(new, total, row=1):
    """A mask that hides every key from one query."""
    mask = window(new, total)
    mask[row] = False
    return mask


def softmax_call(rng, mask, shape=(2, 3, 4, 5), **options):
    return Call("masked_softmax", scores=2 * rng.normal(*shape), mask=mask, **options)


def half_precision_softmax_call(rng, dtype, high=0.0, shape=(1, 2, 4, 5)):
    """Query 1 is blind, told by the lowest number; high lifts its scores."""
    mask = as_float(one_blind(*shape[2:]), torch.finfo(dtype).min, dtype)
    call = softmax_call(rng, mask, shape)
    scores = rng.integers(-4, 5, *shape).to(dtype)
    scores[:, :, 1] += high
    call.steps[0][1]["scores"] = scores
    return call


def high_hidden_call(rng, mask, shape=(2, 3, 4, 5)):
    """The hidden keys have scores some 200 above those of the rest."""
    hidden = ~mask if mask.dtype == torch.bool else mask == -torch.inf
    call = softmax_call(rng, mask, shape)
    call.steps[0][1]["scores"] += 200.0 * hidden
    return call


@pytest.mark.exercise("3.6")
class TestMaskedSoftmax:
    def test_bool_mask(self, student, reference, rng):
        """a bool mask, True = may attend"""
        compare(student, reference, softmax_call(rng, window(4, 5)))

    def test_float_mask(self, student, reference, rng):
        """a float mask of 0 and -inf"""
        compare(student, reference, softmax_call(rng, as_float(window(4, 5), -torch.inf)))

    def test_lowest_number(self, student, reference, rng):
        """a float mask of 0 and float32's lowest number"""
        mask = as_float(window(4, 5), torch.finfo(torch.float32).min)
        compare(student, reference, softmax_call(rng, mask))

    def test_bias(self, student, reference, rng):
        """a float mask that favours near keys, one for each head"""
        compare(student, reference, softmax_call(rng, -rng.uniform(3, 4, 5, high=3.0)))

    def test_blind_query(self, student, reference, rng):
        """a bool mask that hides all keys from query 1"""
        compare(student, reference, softmax_call(rng, one_blind(4, 5)))

    def test_blind_query_float_mask(self, student, reference, rng):
        """the same as a float mask of 0 and -inf"""
        compare(student, reference, softmax_call(rng, as_float(one_blind(4, 5), -torch.inf)))

    def test_blind_query_lowest_number(self, student, reference, rng):
        """the same as a float mask of 0 and float32's lowest number"""
        mask = as_float(one_blind(4, 5), torch.finfo(torch.float32).min)
        compare(student, reference, softmax_call(rng, mask))

    def test_low_scores(self, student, reference, rng):
        """scores near -20000, a bool mask"""
        call = softmax_call(rng, window(4, 5))
        call.steps[0][1]["scores"] = rng.integers(-4, 5, 2, 3, 4, 5) - 20000.0
        compare(student, reference, call)

    def test_high_hidden_scores(self, student, reference, rng):
        """scores of hidden keys some 200 above the rest, a bool mask"""
        compare(student, reference, high_hidden_call(rng, window(4, 5)))

    def test_high_hidden_scores_float_mask(self, student, reference, rng):
        """the same with a float mask that favours some keys and hides others"""
        mask = rng.uniform(4, 5, low=-3.0).masked_fill(~window(4, 5), -torch.inf)
        compare(student, reference, high_hidden_call(rng, mask))

    @pytest.mark.points(0.5)
    @pytest.mark.parametrize("dtype", HALF)
    def test_half_precision(self, student, reference, rng, dtype):
        """{dtype}, a float mask of its lowest number, which hides all keys from query 1"""
        compare(student, reference, half_precision_softmax_call(rng, dtype))

    @pytest.mark.points(0.5)
    def test_high_scores(self, student, reference, rng):
        """the same in float16, scores of query 1 near 1000"""
        compare(student, reference, half_precision_softmax_call(rng, torch.float16, high=1000))

    def test_positions(self, student, reference, rng):
        """a mask (B, 1, T, S); arguments by position: scores, mask"""
        mask = torch.stack((window(4, 5), one_blind(4, 5, row=2)))[:, None]
        compare(student, reference, softmax_call(rng, mask, by_position=True))

    def test_gradients(self, student, reference, rng):
        """gradients, a bool mask that hides all keys from query 1"""
        compare(student, reference, softmax_call(rng, one_blind(4, 5), grad=True))

    def test_gradients_float_mask(self, student, reference, rng):
        """gradients of scores and of a float mask that hides all keys from query 1"""
        mask = -rng.uniform(3, 4, 5, high=3.0).masked_fill(~one_blind(4, 5), torch.inf)
        compare(student, reference, softmax_call(rng, mask, grad=True))
