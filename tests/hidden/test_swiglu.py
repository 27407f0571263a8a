"""Hidden checks of lab 04: fresh numbers, odd shapes, other dtypes, extremes, gradients."""

import pytest
import torch
from visible.test_swiglu import (
    HALF,
    config,
    feed_forward_call,
    feed_forward_init,
    matrices,
    mlp_call,
    pickers,
    positive_pickers,
)

from labkit.checks.runner import Call, compare


@pytest.mark.exercise("4.1")
class TestSilu:
    @pytest.mark.parametrize("shape", [(2, 7, 32), (5,), (), (4, 1, 3, 2)])
    def test_values(self, student, reference, rng, shape):
        """values for any number of axes"""
        compare(student, reference, Call("silu", x=2 * rng.normal(*shape)))

    @pytest.mark.points(0.5)
    @pytest.mark.parametrize("grad", [False, True])
    def test_far_out(self, student, reference, rng, grad):
        """from -10000 to 10000, gradients: {grad}"""
        far = rng.uniform(20, low=100.0, high=1e4)
        near = torch.tensor([-20.0, -1.0, 0.0, 1.0, 20.0])
        compare(student, reference, Call("silu", x=torch.cat([far, near, -far]), grad=grad))

    @pytest.mark.points(0.5)
    @pytest.mark.parametrize("dtype", HALF)
    def test_half_precision(self, student, reference, rng, dtype):
        """{dtype} input, from -8 to 8"""
        x = rng.uniform(3, 4, 16, low=-8, high=8).to(dtype)
        compare(student, reference, Call("silu", x=x))

    @pytest.mark.points(0.25)
    @pytest.mark.parametrize("dtype", HALF)
    def test_half_far_out(self, student, reference, rng, dtype):
        """{dtype} from -10000 to 10000, with gradients"""
        far = rng.uniform(16, low=20.0, high=1e4).to(dtype)
        compare(student, reference, Call("silu", x=torch.cat([-far, far]), grad=True))

    def test_strided_input(self, student, reference, rng):
        """an input that is not contiguous, and that stays as it was"""
        compare(student, reference, Call("silu", x=rng.normal(4, 3, 6).transpose(0, 2)))

    @pytest.mark.points(3)
    def test_gradients(self, student, reference, rng):
        """gradients"""
        compare(student, reference, Call("silu", x=2 * rng.normal(3, 5, 12), grad=True))


@pytest.mark.exercise("4.2")
class TestQwen3MLP:
    @pytest.mark.parametrize(("hidden_size", "intermediate_size"), [(6, 10), (8, 3)])
    def test_parameters(self, student, reference, rng, hidden_size, intermediate_size):
        """three matrices with the checkpoint's names and shapes, no bias"""
        init = {"config": config(hidden_size, intermediate_size)}
        compare(student, reference, Call("Qwen3MLP", init=init, names=True))
        call = mlp_call(rng, hidden_size, intermediate_size, x=rng.normal(2, hidden_size))
        compare(student, reference, call)

    @pytest.mark.parametrize("shape", [(2, 7, 12), (8,), (5, 6), (1, 3, 2, 10)])
    def test_values(self, student, reference, rng, shape):
        """values for any number of axes"""
        compare(student, reference, mlp_call(rng, shape[-1], 9, x=1.5 * rng.normal(*shape)))

    @pytest.mark.parametrize("size", [1, 5])
    def test_other_size(self, student, reference, rng, size):
        """another intermediate_size than the config's, as an expert has"""
        init = {"config": config(6, 10), "intermediate_size": size}
        compare(student, reference, Call("Qwen3MLP", init=init, names=True))
        call = Call("Qwen3MLP", init=init, state=matrices(rng, 6, size), x=rng.normal(3, 6))
        compare(student, reference, call)

    @pytest.mark.points(2)
    def test_gate_and_up(self, student, reference, rng):
        """gate_proj is what opens and closes, up_proj what passes"""
        state = matrices(rng, 6, 10)
        state["gate_proj.weight"] = 4 * state["gate_proj.weight"]
        init = {"config": config(6, 10)}
        call = Call("Qwen3MLP", init=init, state=state, x=rng.normal(8, 6))
        compare(student, reference, call)

    @pytest.mark.points(0.5)
    @pytest.mark.parametrize("dtype", HALF)
    def test_half_precision(self, student, reference, rng, dtype):
        """{dtype}"""
        x = (2 * rng.normal(7, 8)).to(dtype)
        compare(student, reference, mlp_call(rng, 8, 14, pickers, dtype=dtype, x=x))

    @pytest.mark.points(0.25)
    @pytest.mark.parametrize("dtype", HALF)
    def test_extremes(self, student, reference, rng, dtype):
        """{dtype} with gates at plus and minus 10000: finite"""
        x = 0.1 * rng.normal(9, 8)
        x[:, :4] = 1e4 * x[:, :4].sign()
        compare(student, reference, mlp_call(rng, 8, 14, pickers, dtype=dtype, x=x.to(dtype)))

    def test_strided_input(self, student, reference, rng):
        """an input that is not contiguous, and that stays as it was"""
        compare(student, reference, mlp_call(rng, 6, 10, x=rng.normal(6, 5, 3).transpose(0, 2)))

    @pytest.mark.points(2)
    def test_gradients(self, student, reference, rng):
        """gradients of the input and of all three matrices"""
        compare(student, reference, mlp_call(rng, 6, 10, x=rng.normal(3, 4, 6), grad=True))


KINDS = ["relu", "gelu", "swish", "geglu", "swiglu"]


@pytest.mark.exercise("4.3")
class TestFeedForward:
    @pytest.mark.parametrize("kind", KINDS)
    def test_values(self, student, reference, rng, kind):
        """kind {kind}"""
        call = Call("FeedForward", init=feed_forward_init(kind, (10, 7)), names=True)
        compare(student, reference, call)
        call = feed_forward_call(rng, kind, (10, 7), x=1.5 * rng.normal(2, 5, 10))
        compare(student, reference, call)
        call = feed_forward_call(rng, kind, (10, 7), x=20 * rng.normal(3, 10))
        compare(student, reference, call)

    @pytest.mark.parametrize("kind", KINDS)
    def test_gradients(self, student, reference, rng, kind):
        """gradients of kind {kind}"""
        compare(student, reference, feed_forward_call(rng, kind, x=rng.normal(4, 6), grad=True))

    @pytest.mark.points(0.1)
    @pytest.mark.parametrize("dtype", HALF)
    @pytest.mark.parametrize("kind", KINDS)
    def test_half_precision(self, student, reference, rng, kind, dtype):
        """kind {kind} in {dtype}"""
        x = rng.uniform(5, 8, low=0.2, high=2.0).to(dtype)
        call = feed_forward_call(rng, kind, (8, 13), positive_pickers, dtype=dtype, x=x)
        compare(student, reference, call)

    @pytest.mark.points(0.1)
    @pytest.mark.parametrize("kind", ["gelu", "geglu", "swiglu"])
    def test_extremes(self, student, reference, rng, kind):
        """kind {kind} in float16 at plus and minus 10000: finite"""
        x = 0.1 * rng.normal(6, 8)
        x[:, :4] = 1e4 * x[:, :4].sign()
        x = x.half()
        call = feed_forward_call(rng, kind, (8, 12), pickers, dtype=torch.float16, x=x)
        compare(student, reference, call)

    def test_strided_input(self, student, reference, rng):
        """an input that is not contiguous, and that stays as it was"""
        call = feed_forward_call(rng, "geglu", x=rng.normal(6, 3, 2).transpose(0, 2))
        compare(student, reference, call)

    @pytest.mark.points(0.5)
    @pytest.mark.parametrize("unknown", ["tanh", "SwiGLU", "glu"])
    def test_unknown(self, student, reference, rng, unknown):
        """kind swish is built, an unknown kind raises ValueError that names it"""
        compare(student, reference, feed_forward_call(rng, "swish", x=rng.normal(3, 6)))
        call = Call("FeedForward", init=feed_forward_init(unknown))
        outcome = compare(student, reference, call)
        assert unknown in outcome.failure.text, "the error does not name the kind"
