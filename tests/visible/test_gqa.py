"""Visible checks of lab 03: what check("3.1") and its sisters run."""

import pytest
import torch

from labkit.checks.runner import Call, Given, New, assert_same


def causal(new, total):
    """(new, total) bool: the queries are the last of the keys."""
    return torch.ones(new, total, dtype=torch.bool).tril(total - new)


def rotary(positions, size):
    """cos and sin (1, T, size) of the angles of these positions, as lab 02 makes them."""
    inv_freq = 100.0 ** -(torch.arange(0, size, 2) / size)
    angles = positions.float()[:, None] * inv_freq
    angles = torch.cat((angles, angles), dim=-1)[None]
    return {"cos": angles.cos(), "sin": angles.sin()}


@pytest.mark.exercise("3.1")
class TestCausalMask:
    def test_square(self, student, reference):
        """4 tokens, nothing cached"""
        call = Call("causal_mask", query_length=4, key_length=4)
        assert_same(student(call), reference(call))

    def test_chunk(self, student, reference):
        """3 new tokens after 2 cached ones"""
        call = Call("causal_mask", query_length=3, key_length=5)
        assert_same(student(call), reference(call))

    def test_one_token(self, student, reference):
        """1 new token after 4 cached ones sees them all"""
        call = Call("causal_mask", query_length=1, key_length=5)
        assert_same(student(call), reference(call))

    def test_positions(self, student, reference):
        """arguments by position: query_length, key_length"""
        call = Call("causal_mask", query_length=2, key_length=6, by_position=True)
        assert_same(student(call), reference(call))


@pytest.mark.exercise("3.2")
class TestAttention:
    def call(self, rng, shape=(2, 3, 4, 5, 6), mask=None, **options):
        batch, heads, new, total, size = shape
        inputs = {
            "query": rng.normal(batch, heads, new, size),
            "key": rng.normal(batch, heads, total, size),
            "value": rng.normal(batch, heads, total, size),
        }
        if mask is not None:
            inputs["mask"] = mask
        return Call("scaled_dot_product_attention", **inputs, **options)

    def whole_numbers(self, rng, dtype, size=2, shape=(2, 2, 4, 5, 4)):
        """A call whose scores are exact in any dtype, and whose values are all positive."""
        call = self.call(rng, shape)
        inputs = call.steps[0][1]
        for name in ("query", "key"):
            inputs[name] = rng.integers(-size, size + 1, *inputs[name].shape).to(dtype)
        inputs["value"] = rng.uniform(*inputs["value"].shape, low=1.0, high=2.0).to(dtype)
        return call

    def test_values(self, student, reference, rng):
        """values without a mask"""
        call = self.call(rng)
        assert_same(student(call), reference(call))

    def test_scale(self, student, reference, rng):
        """values with scale 0.3"""
        call = self.call(rng, scale=0.3)
        assert_same(student(call), reference(call))

    def test_bool_mask(self, student, reference, rng):
        """a bool mask, True = may attend"""
        call = self.call(rng, mask=causal(4, 5))
        assert_same(student(call), reference(call))

    def test_float_mask(self, student, reference, rng):
        """a float mask of 0 and -inf"""
        mask = torch.zeros(4, 5).masked_fill(~causal(4, 5), -torch.inf)
        call = self.call(rng, mask=mask)
        assert_same(student(call), reference(call))

    def test_bias(self, student, reference, rng):
        """a float mask that favours near keys, one for each head"""
        call = self.call(rng, mask=-rng.uniform(3, 4, 5, high=3.0))
        assert_same(student(call), reference(call))

    def test_large_scores(self, student, reference, rng):
        """scores in the thousands"""
        call = self.whole_numbers(rng, torch.float32, size=100)
        assert_same(student(call), reference(call))

    def test_blind_query(self, student, reference, rng):
        """a query that may attend to nothing gets zeros"""
        mask = causal(4, 5)
        mask[1] = False
        call = self.call(rng, mask=mask)
        assert_same(student(call), reference(call))

    def test_blind_query_float_mask(self, student, reference, rng):
        """the same with a float mask of the dtype's lowest number"""
        mask = torch.zeros(4, 5).masked_fill(~causal(4, 5), torch.finfo(torch.float32).min)
        mask[1] = torch.finfo(torch.float32).min
        call = self.call(rng, mask=mask)
        assert_same(student(call), reference(call))

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_half_precision(self, student, reference, rng, dtype):
        """{dtype} with a bool mask"""
        call = self.whole_numbers(rng, dtype)
        call.steps[0][1]["mask"] = causal(4, 5)
        assert_same(student(call), reference(call))

    def test_positions(self, student, reference, rng):
        """arguments by position: query, key, value, mask, scale"""
        call = self.call(rng, mask=causal(4, 5), scale=0.7, by_position=True)
        assert_same(student(call), reference(call))

    def test_gradients(self, student, reference, rng):
        """gradients, with a query that may attend to nothing"""
        mask = causal(4, 5)
        mask[1] = False
        call = self.call(rng, mask=mask, grad=True)
        assert_same(student(call), reference(call))


@pytest.mark.exercise("3.3")
class TestRepeatKV:
    def test_values(self, student, reference, rng):
        """2 KV heads, each for 3 query heads"""
        call = Call("repeat_kv", hidden_states=rng.normal(2, 2, 4, 5), n_rep=3)
        assert_same(student(call), reference(call))

    def test_one_each(self, student, reference, rng):
        """n_rep 1 changes nothing"""
        call = Call("repeat_kv", hidden_states=rng.normal(2, 3, 4, 5), n_rep=1)
        assert_same(student(call), reference(call))

    def test_positions(self, student, reference, rng):
        """arguments by position: hidden_states, n_rep"""
        call = Call(
            "repeat_kv", hidden_states=rng.normal(1, 4, 3, 2), n_rep=2, by_position=True
        )
        assert_same(student(call), reference(call))

    def test_gradients(self, student, reference, rng):
        """gradients: a KV head collects those of all its copies"""
        call = Call("repeat_kv", hidden_states=rng.normal(2, 2, 3, 4), n_rep=4, grad=True)
        assert_same(student(call), reference(call))


@pytest.mark.exercise("3.4")
class TestQwen3Attention:
    H, K, D, E = 6, 2, 4, 10

    def config(self, **changes):
        sizes = {
            "vocab_size": 8,
            "hidden_size": self.E,
            "intermediate_size": 8,
            "num_hidden_layers": 4,
            "num_attention_heads": self.H,
            "num_key_value_heads": self.K,
            "head_dim": self.D,
            "rms_norm_eps": 0.01,
        }
        return New("Qwen3Config", **{**sizes, **changes})

    def call(self, rng, new=5, total=5, bias=False, **options):
        q, kv = self.H * self.D, self.K * self.D
        sizes = {"q_proj": (q, self.E), "k_proj": (kv, self.E), "v_proj": (kv, self.E)}
        sizes["o_proj"] = (self.E, q)
        state = {f"{n}.weight": rng.normal(*s) / s[1] ** 0.5 for n, s in sizes.items()}
        if bias:
            state |= {f"{n}.bias": rng.normal(s[0]) for n, s in sizes.items()}
        state |= {f"{n}.weight": 1 + 0.5 * rng.normal(self.D) for n in ("q_norm", "k_norm")}
        init = {"config": self.config(attention_bias=bias), "layer_idx": 2}
        call = Call("Qwen3Attention", init=init, state=state, **options)
        self.x = rng.normal(2, total, self.E)
        return call.then(**self.tokens(total - new, total))

    def tokens(self, start, end):
        """The inputs for tokens number start to end; the first stands at position 3."""
        x = self.x[:, start:end]
        angles = rotary(torch.arange(3 + start, 3 + end), self.D)
        return {"hidden_states": x, **angles, "mask": causal(end - start, end)}

    def test_parameters(self, student, reference):
        """names and shapes of the parameters"""
        call = Call(
            "Qwen3Attention", init={"config": self.config(), "layer_idx": 2}, names=True
        )
        assert_same(student(call), reference(call))

    def test_parameters_with_bias(self, student, reference):
        """the same with attention_bias"""
        init = {"config": self.config(attention_bias=True), "layer_idx": 2}
        call = Call("Qwen3Attention", init=init, names=True)
        assert_same(student(call), reference(call))

    def test_one_token(self, student, reference, rng):
        """one token, which can only see itself"""
        call = self.call(rng, new=1, total=1)
        assert_same(student(call), reference(call))

    def test_values(self, student, reference, rng):
        """5 tokens, nothing cached"""
        call = self.call(rng)
        assert_same(student(call), reference(call))

    def test_without_mask(self, student, reference, rng):
        """without a mask every token sees every other"""
        call = self.call(rng)
        del call.steps[0][1]["mask"]
        assert_same(student(call), reference(call))

    def test_cache(self, student, reference, rng):
        """5 tokens in three steps with a cache: 2, then 2, then 1"""
        call = self.call(rng)
        call.steps.clear()
        cache = Given("kv_cache", layer_idx=2, numbers=2 * self.K * self.D)
        for start, end in ((0, 2), (2, 4), (4, 5)):
            call.then(**self.tokens(start, end), cache=cache)
        assert_same(student(call), reference(call))

    def test_bias(self, student, reference, rng):
        """values with attention_bias"""
        call = self.call(rng, bias=True)
        assert_same(student(call), reference(call))

    def test_positions(self, student, reference, rng):
        """arguments by position: hidden_states, cos, sin, mask"""
        call = self.call(rng, by_position=True)
        assert_same(student(call), reference(call))

    def test_half_precision(self, student, reference, rng):
        """bfloat16 in, bfloat16 out"""
        call = self.call(rng, new=1, total=1, dtype=torch.bfloat16)
        inputs = call.steps[0][1]
        inputs["hidden_states"] = (1.5 + 0.2 * inputs["hidden_states"]).bfloat16()
        for name in ("v_proj.weight", "o_proj.weight"):  # positive sums: little rounding
            call.state[name] = call.state[name].abs()
        assert_same(student(call), reference(call))

    def test_gradients(self, student, reference, rng):
        """gradients"""
        call = self.call(rng, grad=True)
        assert_same(student(call), reference(call))


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

    def init(self):
        return {"config": New("MLAConfig", **self.SIZES), "layer_idx": 1}

    def call(self, rng, total=5, **options):
        state = {
            f"{name}.weight": 1 + 0.5 * rng.normal(*shape)
            if len(shape) == 1
            else rng.normal(*shape) / shape[1] ** 0.5
            for name, shape in self.SHAPES.items()
        }
        self.x = rng.normal(2, total, 10)
        call = Call("MultiHeadLatentAttention", init=self.init(), state=state, **options)
        return call.then(**self.tokens(0, total))

    def tokens(self, start, end):
        x = self.x[:, start:end]
        angles = rotary(torch.arange(3 + start, 3 + end), 4)
        return {"hidden_states": x, **angles, "mask": causal(end - start, end)}

    def test_parameters(self, student, reference):
        """names and shapes of the parameters"""
        call = Call("MultiHeadLatentAttention", init=self.init(), names=True)
        assert_same(student(call), reference(call))

    def test_one_token(self, student, reference, rng):
        """one token, which can only see itself"""
        call = self.call(rng, total=1)
        assert_same(student(call), reference(call))

    def test_values(self, student, reference, rng):
        """5 tokens, nothing cached"""
        call = self.call(rng)
        assert_same(student(call), reference(call))

    def test_cache(self, student, reference, rng):
        """5 tokens in three steps with a cache: 2, then 2, then 1"""
        call = self.call(rng)
        call.steps.clear()
        cache = Given("kv_cache", layer_idx=1, numbers=5 + 4)
        for start, end in ((0, 2), (2, 4), (4, 5)):
            call.then(**self.tokens(start, end), cache=cache)
        assert_same(student(call), reference(call))

    def test_positions(self, student, reference, rng):
        """arguments by position: hidden_states, cos, sin, mask"""
        call = self.call(rng, by_position=True)
        assert_same(student(call), reference(call))

    def test_gradients(self, student, reference, rng):
        """gradients"""
        call = self.call(rng, grad=True)
        assert_same(student(call), reference(call))
