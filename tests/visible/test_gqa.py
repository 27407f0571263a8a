"""Visible checks of lab 03: what check("3.1") and its sisters run."""

import pytest
import torch

from labkit.checks.runner import Call, Given, New, compare

HALF = [torch.bfloat16, torch.float16]


def causal(new, total):
    """(new, total) bool: the queries are the last of the keys."""
    return torch.ones(new, total, dtype=torch.bool).tril(total - new)


def rotary(positions, size):
    """cos and sin (..., T, size) of the angles of these positions, as lab 02 makes them."""
    inv_freq = 100.0 ** -(torch.arange(0, size, 2) / size)
    angles = positions.float()[..., None] * inv_freq
    angles = torch.cat((angles, angles), dim=-1)
    return {"cos": angles.cos(), "sin": angles.sin()}


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


@pytest.mark.exercise("3.2")
class TestAttention:
    def test_values(self, student, reference, rng):
        """values without a mask"""
        compare(student, reference, attention_call(rng))

    def test_scale(self, student, reference, rng):
        """values with scale 0.3"""
        compare(student, reference, attention_call(rng, scale=0.3))

    def test_bool_mask(self, student, reference, rng):
        """a bool mask, True = may attend"""
        compare(student, reference, attention_call(rng, mask=causal(4, 5)))

    def test_float_mask(self, student, reference, rng):
        """a float mask of 0 and -inf"""
        mask = torch.zeros(4, 5).masked_fill(~causal(4, 5), -torch.inf)
        compare(student, reference, attention_call(rng, mask=mask))

    def test_bias(self, student, reference, rng):
        """a float mask that favours near keys, one for each head"""
        compare(student, reference, attention_call(rng, mask=-rng.uniform(3, 4, 5, high=3.0)))

    def test_large_scores(self, student, reference, rng):
        """scores in the thousands"""
        compare(student, reference, whole_numbers_call(rng, torch.float32, size=100))

    def test_blind_query(self, student, reference, rng):
        """a query that may attend to nothing gets zeros"""
        mask = causal(4, 5)
        mask[1] = False
        compare(student, reference, attention_call(rng, mask=mask))

    def test_blind_query_float_mask(self, student, reference, rng):
        """the same with a float mask of the dtype's lowest number"""
        mask = torch.zeros(4, 5).masked_fill(~causal(4, 5), torch.finfo(torch.float32).min)
        mask[1] = torch.finfo(torch.float32).min
        compare(student, reference, attention_call(rng, mask=mask))

    @pytest.mark.parametrize("dtype", HALF)
    def test_half_precision(self, student, reference, rng, dtype):
        """{dtype} with a bool mask"""
        call = whole_numbers_call(rng, dtype)
        call.steps[0][1]["mask"] = causal(4, 5)
        compare(student, reference, call)

    def test_positions(self, student, reference, rng):
        """arguments by position: query, key, value, mask, scale"""
        call = attention_call(rng, mask=causal(4, 5), scale=0.7, by_position=True)
        compare(student, reference, call)

    def test_gradients(self, student, reference, rng):
        """gradients, with a query that may attend to nothing"""
        mask = causal(4, 5)
        mask[1] = False
        compare(student, reference, attention_call(rng, mask=mask, grad=True))


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


D, E = 4, 10  # of Qwen3Attention


def qwen3_config(heads=6, kv_heads=2, **changes):
    sizes = {
        "vocab_size": 8,
        "hidden_size": E,
        "intermediate_size": 8,
        "num_hidden_layers": 4,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": D,
        "rms_norm_eps": 0.01,
    }
    return New("Qwen3Config", **(sizes | changes))


def qwen3_state(rng, heads=6, kv_heads=2, bias=False):
    q, kv = heads * D, kv_heads * D
    sizes = {"q_proj": (q, E), "k_proj": (kv, E), "v_proj": (kv, E), "o_proj": (E, q)}
    state = {f"{n}.weight": rng.normal(*s) / s[1] ** 0.5 for n, s in sizes.items()}
    if bias:
        state |= {f"{n}.bias": rng.normal(s[0]) for n, s in sizes.items()}
    norms = {f"{n}.weight": 1 + 0.5 * rng.normal(D) for n in ("q_norm", "k_norm")}
    return state | norms


@pytest.mark.exercise("3.4")
class TestQwen3Attention:
    def call(self, rng, bias=False, **options):
        init = {"config": qwen3_config(attention_bias=bias), "layer_idx": 2}
        return Call("Qwen3Attention", init=init, state=qwen3_state(rng, bias=bias), **options)

    def test_parameters(self, student, reference):
        """names and shapes of the parameters"""
        init = {"config": qwen3_config(), "layer_idx": 2}
        compare(student, reference, Call("Qwen3Attention", init=init, names=True))

    def test_parameters_with_bias(self, student, reference):
        """the same with attention_bias"""
        init = {"config": qwen3_config(attention_bias=True), "layer_idx": 2}
        compare(student, reference, Call("Qwen3Attention", init=init, names=True))

    def test_one_token(self, student, reference, rng):
        """one token, which can only see itself"""
        compare(student, reference, self.call(rng).then(**tokens(rng.normal(2, 1, E), 0, 1)))

    def test_values(self, student, reference, rng):
        """5 tokens, nothing cached"""
        compare(student, reference, self.call(rng).then(**tokens(rng.normal(2, 5, E), 0, 5)))

    def test_without_mask(self, student, reference, rng):
        """without a mask every token sees every other"""
        call = self.call(rng).then(**tokens(rng.normal(2, 5, E), 0, 5))
        del call.steps[0][1]["mask"]
        compare(student, reference, call)

    def test_cache(self, student, reference, rng):
        """5 tokens in three steps with a cache: 2, then 2, then 1"""
        call, x = self.call(rng), rng.normal(2, 5, E)
        cache = Given("kv_cache", layer_idx=2, numbers=2 * 2 * D)
        for start, end in ((0, 2), (2, 4), (4, 5)):
            call.then(**tokens(x, start, end), cache=cache)
        compare(student, reference, call)

    def test_bias(self, student, reference, rng):
        """values with attention_bias"""
        call = self.call(rng, bias=True).then(**tokens(rng.normal(2, 5, E), 0, 5))
        compare(student, reference, call)

    def test_positions(self, student, reference, rng):
        """arguments by position: hidden_states, cos, sin, mask"""
        call = self.call(rng, by_position=True).then(**tokens(rng.normal(2, 5, E), 0, 5))
        compare(student, reference, call)

    def test_half_precision(self, student, reference, rng):
        """bfloat16 in, bfloat16 out"""
        call = self.call(rng, dtype=torch.bfloat16).then(**tokens(rng.normal(2, 1, E), 0, 1))
        inputs = call.steps[0][1]
        inputs["hidden_states"] = (1.5 + 0.2 * inputs["hidden_states"]).bfloat16()
        for name in ("v_proj.weight", "o_proj.weight"):  # positive sums: little rounding
            call.state[name] = call.state[name].abs()
        compare(student, reference, call)

    def test_gradients(self, student, reference, rng):
        """gradients"""
        call = self.call(rng, grad=True).then(**tokens(rng.normal(2, 5, E), 0, 5))
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
        "hidden_size": 10,
        "num_attention_heads": 3,
        "q_lora_rank": 7,
        "kv_lora_rank": 5,
        "qk_nope_head_dim": 6,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
    }
    SHAPES = {
        "q_a_proj": (7, 10),
        "q_b_proj": (30, 7),
        "kv_a_proj_with_mqa": (9, 10),
        "kv_b_proj": (42, 5),
        "o_proj": (10, 24),
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
        compare(student, reference, self.call(rng).then(**tokens(rng.normal(2, 1, 10), 0, 1)))

    def test_values(self, student, reference, rng):
        """5 tokens, nothing cached"""
        compare(student, reference, self.call(rng).then(**tokens(rng.normal(2, 5, 10), 0, 5)))

    def test_cache(self, student, reference, rng):
        """5 tokens in three steps with a cache: 2, then 2, then 1"""
        call, x = self.call(rng), rng.normal(2, 5, 10)
        cache = Given("kv_cache", layer_idx=1, numbers=5 + 4)
        for start, end in ((0, 2), (2, 4), (4, 5)):
            call.then(**tokens(x, start, end), cache=cache)
        compare(student, reference, call)

    def test_positions(self, student, reference, rng):
        """arguments by position: hidden_states, cos, sin, mask"""
        call = self.call(rng, by_position=True).then(**tokens(rng.normal(2, 5, 10), 0, 5))
        compare(student, reference, call)

    def test_gradients(self, student, reference, rng):
        """gradients"""
        call = self.call(rng, grad=True).then(**tokens(rng.normal(2, 5, 10), 0, 5))
        compare(student, reference, call)
