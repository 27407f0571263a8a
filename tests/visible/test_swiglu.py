"""Visible checks of lab 04: what check("4.1") and its sisters run."""

import pytest
import torch

from labkit.checks.runner import Call, New, compare

HALF = [torch.bfloat16, torch.float16]


def config(hidden_size, intermediate_size):
    sizes = {"hidden_size": hidden_size, "intermediate_size": intermediate_size}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4}
    return New("Qwen3Config", vocab_size=32, num_hidden_layers=1, **sizes, **heads)


def matrices(rng, hidden_size, intermediate_size, gated=True):
    """Weights of an uneven layer: what the gate reads differs from what it lets through."""
    wide = (intermediate_size, hidden_size)
    gate = {"gate_proj.weight": 0.8 * rng.normal(*wide)} if gated else {}
    return {
        **gate,
        "up_proj.weight": 0.5 * rng.normal(*wide),
        "down_proj.weight": 0.4 * rng.normal(hidden_size, intermediate_size),
    }


def pickers(rng, hidden_size, intermediate_size, gated=True):
    """Weights that pick one number each and multiply it by 1/2, 1 or 2, with either sign.

    So every product is exact in half precision, and no two right orders of rounding differ by
    more than the tolerance. The gate picks from the first half of x, up from the second.
    """
    half = hidden_size // 2
    gate = {"gate_proj.weight": picked(rng, intermediate_size, hidden_size, 0, half)}
    first = half if gated else 0
    return {
        **(gate if gated else {}),
        "up_proj.weight": picked(rng, intermediate_size, hidden_size, first, hidden_size),
        "down_proj.weight": picked(rng, hidden_size, intermediate_size, 0, intermediate_size),
    }


def picked(rng, rows, columns, low, high):
    weight = torch.zeros(rows, columns)
    factor = 2.0 ** rng.integers(-1, 2, rows) * (2 * rng.integers(0, 2, rows) - 1)
    weight[torch.arange(rows), rng.integers(low, high, rows)] = factor
    return weight


def positive_pickers(*arguments, **options):
    """gelu computed in half precision loses its digits below zero, and no points for it."""
    return {name: weight.abs() for name, weight in pickers(*arguments, **options).items()}


@pytest.mark.exercise("4.1")
class TestSilu:
    def test_values(self, student, reference, rng):
        """values"""
        compare(student, reference, Call("silu", x=2 * rng.normal(2, 3, 8)))

    def test_gradients(self, student, reference, rng):
        """gradients"""
        compare(student, reference, Call("silu", x=2 * rng.normal(3, 6), grad=True))

    def test_far_out(self, student, reference, rng):
        """from -10000 to 10000, with gradients"""
        x = torch.tensor([-1e4, -100.0, -20.0, 0.0, 20.0, 100.0, 1e4, -1.0])
        compare(student, reference, Call("silu", x=x, grad=True))

    @pytest.mark.parametrize("dtype", HALF)
    def test_half_precision(self, student, reference, rng, dtype):
        """{dtype} input, from -8 to 8"""
        compare(student, reference, Call("silu", x=rng.uniform(6, 8, low=-8, high=8).to(dtype)))

    def test_strided_input(self, student, reference, rng):
        """an input that is not contiguous"""
        compare(student, reference, Call("silu", x=rng.normal(4, 3).T))

    def test_half_far_out(self, student, reference, rng):
        """float16 from -10000 to 10000, with gradients"""
        x = torch.tensor([-1e4, -100.0, -20.0, 20.0, 100.0, 1e4], dtype=torch.float16)
        compare(student, reference, Call("silu", x=x, grad=True))


def mlp_call(rng, hidden_size=6, intermediate_size=10, weights=matrices, **options):
    init = {"config": config(hidden_size, intermediate_size)}
    state = weights(rng, hidden_size, intermediate_size)
    return Call("Qwen3MLP", init=init, state=state, **options)


@pytest.mark.exercise("4.2")
class TestQwen3MLP:
    def test_parameters(self, student, reference, rng):
        """freshly made, with three matrices and no bias"""
        call = Call("Qwen3MLP", init={"config": config(6, 10)}, names=True)
        compare(student, reference, call)

    def test_values(self, student, reference, rng):
        """values"""
        compare(student, reference, mlp_call(rng, x=1.5 * rng.normal(2, 3, 6)))

    def test_one_text(self, student, reference, rng):
        """a batch of one text"""
        compare(student, reference, mlp_call(rng, x=rng.normal(1, 3, 6)))

    def test_other_size(self, student, reference, rng):
        """another intermediate_size than the config's"""
        init = {"config": config(6, 10), "intermediate_size": 5}
        compare(student, reference, Call("Qwen3MLP", init=init, names=True))
        call = Call("Qwen3MLP", init=init, state=matrices(rng, 6, 5), x=rng.normal(4, 6))
        compare(student, reference, call)

    def test_strided_input(self, student, reference, rng):
        """an input that is not contiguous"""
        compare(student, reference, mlp_call(rng, x=rng.normal(6, 3, 2).transpose(0, 2)))

    @pytest.mark.parametrize("dtype", HALF)
    def test_half_precision(self, student, reference, rng, dtype):
        """{dtype}"""
        x = (2 * rng.normal(5, 6)).to(dtype)
        compare(student, reference, mlp_call(rng, weights=pickers, dtype=dtype, x=x))

    def test_gradients(self, student, reference, rng):
        """gradients"""
        compare(student, reference, mlp_call(rng, x=rng.normal(4, 6), grad=True))


def feed_forward_init(kind, sizes=(6, 9)):
    return {"hidden_size": sizes[0], "intermediate_size": sizes[1], "kind": kind}


def feed_forward_call(rng, kind, sizes=(6, 9), weights=matrices, **options):
    state = weights(rng, *sizes, gated=kind in ("geglu", "swiglu"))
    return Call("FeedForward", init=feed_forward_init(kind, sizes), state=state, **options)


@pytest.mark.exercise("4.3")
class TestFeedForward:
    @pytest.mark.parametrize("kind", ["relu", "gelu", "swish", "geglu", "swiglu"])
    def test_kind(self, student, reference, rng, kind):
        """kind {kind}"""
        call = Call("FeedForward", init=feed_forward_init(kind), names=True)
        compare(student, reference, call)
        call = feed_forward_call(rng, kind, x=1.5 * rng.normal(2, 4, 6), grad=True)
        compare(student, reference, call)
        compare(student, reference, feed_forward_call(rng, kind, x=20 * rng.normal(3, 6)))

    @pytest.mark.parametrize("kind", ["gelu", "swiglu"])
    def test_half_precision(self, student, reference, rng, kind):
        """kind {kind} in bfloat16"""
        x = rng.uniform(5, 6, low=0.2, high=2.0).bfloat16()
        call = feed_forward_call(rng, kind, dtype=torch.bfloat16, weights=positive_pickers, x=x)
        compare(student, reference, call)

    def test_strided_input(self, student, reference, rng):
        """kind geglu, an input that is not contiguous"""
        call = feed_forward_call(rng, "geglu", x=rng.normal(6, 3, 2).transpose(0, 2))
        compare(student, reference, call)

    def test_unknown(self, student, reference, rng):
        """kind relu is built, an unknown kind raises ValueError"""
        compare(student, reference, feed_forward_call(rng, "relu", x=rng.normal(6)))
        compare(student, reference, Call("FeedForward", init=feed_forward_init("tanh")))
