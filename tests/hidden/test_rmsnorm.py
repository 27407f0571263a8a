"""Hidden checks of lab 01: fresh numbers, odd shapes, other dtypes, gradients."""

import pytest
import torch

from labkit.checks.runner import Call, Given, assert_same

HALF = [torch.bfloat16, torch.float16]


@pytest.mark.exercise("1.1")
class TestLayerNorm:
    def call(self, rng, shape, scale=1.0, shift=0.0, dtype=torch.float32, eps=1e-5, **options):
        x = (scale * rng.normal(*shape) + shift).to(dtype)
        size = shape[-1]
        weight, bias = 1 + 0.5 * rng.normal(size), rng.normal(size)
        if dtype != torch.float32:  # a sum that cancels shows the order of the roundings
            bias = torch.zeros_like(bias)
        inputs = {"weight": weight.to(dtype), "bias": bias.to(dtype), "eps": eps}
        return Call("layer_norm", x=x, **inputs, **options)

    @pytest.mark.parametrize("shape", [(2, 7, 32), (5,), (4, 4), (1, 3, 2, 6)])
    def test_values(self, student, reference, rng, shape):
        """values for any number of axes"""
        call = self.call(rng, shape, shift=1.5)
        assert_same(student(call), reference(call))

    @pytest.mark.parametrize("scale", [1e-3, 1e-2])
    def test_small_input(self, student, reference, rng, scale):
        """small numbers, where eps counts"""
        call = self.call(rng, (3, 16), scale=scale, eps=1e-4)
        assert_same(student(call), reference(call))

    def test_constant_input(self, student, reference, rng):
        """a constant vector gives the bias"""
        call = self.call(rng, (2, 8), scale=0.0, shift=2.5)
        assert_same(student(call), reference(call))

    @pytest.mark.points(2)
    @pytest.mark.parametrize("dtype", HALF)
    def test_half_precision(self, student, reference, rng, dtype):
        """{dtype} with large numbers"""
        call = self.call(rng, (2, 5, 64), scale=500.0, dtype=dtype)
        assert_same(student(call), reference(call))

    def test_shifted_half(self, student, reference, rng):
        """bfloat16 around 300, where a rounded mean shows"""
        call = self.call(rng, (4, 32), scale=20.0, shift=300.0, dtype=torch.bfloat16)
        assert_same(student(call), reference(call))

    def test_positions(self, student, reference, rng):
        """arguments by position: x, weight, bias, eps"""
        call = self.call(rng, (3, 6), by_position=True)
        assert_same(student(call), reference(call))

    def test_default_eps(self, student, reference, rng):
        """the default eps"""
        call = self.call(rng, (3, 16), scale=1e-3)
        del call.steps[0][1]["eps"]
        assert_same(student(call), reference(call))

    def test_strided_input(self, student, reference, rng):
        """an input that is not contiguous, and that stays as it was"""
        call = self.call(rng, (6, 4))
        call.steps[0][1]["x"] = rng.normal(4, 3, 6).transpose(0, 2)
        assert_same(student(call), reference(call))

    def test_gradients(self, student, reference, rng):
        """gradients of input, weight and bias"""
        call = self.call(rng, (3, 5, 12), grad=True)
        assert_same(student(call), reference(call))


@pytest.mark.exercise("1.2")
class TestRMSNorm:
    def call(self, rng, shape, scale=1.0, shift=0.0, dtype=torch.float32, eps=1e-6, **options):
        x = (scale * rng.normal(*shape) + shift).to(dtype)
        init = {"hidden_size": shape[-1], "eps": eps}
        state = {"weight": 1 + 0.5 * rng.normal(shape[-1])}
        return Call("RMSNorm", init=init, state=state, dtype=dtype, hidden_states=x, **options)

    @pytest.mark.parametrize("shape", [(2, 7, 32), (5,), (4, 4), (1, 3, 2, 6)])
    def test_values(self, student, reference, rng, shape):
        """values for any number of axes"""
        call = self.call(rng, shape, shift=1.5)
        assert_same(student(call), reference(call))

    @pytest.mark.parametrize("size", [1, 24])
    def test_parameters(self, student, reference, rng, size):
        """freshly made, with one parameter, weight"""
        call = Call(
            "RMSNorm", init={"hidden_size": size}, names=True, hidden_states=rng.normal(3, size)
        )
        assert_same(student(call), reference(call))

    @pytest.mark.parametrize("scale", [1e-4, 1e-3, 1e-2])
    def test_small_input(self, student, reference, rng, scale):
        """small numbers, where eps counts"""
        call = self.call(rng, (3, 16), scale=scale, eps=1e-5)
        assert_same(student(call), reference(call))

    def test_default_eps(self, student, reference, rng):
        """the default eps"""
        call = Call(
            "RMSNorm", init={"hidden_size": 16}, hidden_states=1e-3 * rng.normal(2, 3, 16)
        )
        assert_same(student(call), reference(call))

    def test_zeros(self, student, reference, rng):
        """a padding row of zeros"""
        call = self.call(rng, (2, 8), scale=0.0)
        assert_same(student(call), reference(call))

    @pytest.mark.points(3)
    @pytest.mark.parametrize("dtype", HALF)
    def test_half_precision(self, student, reference, rng, dtype):
        """{dtype} with large numbers"""
        call = self.call(rng, (2, 5, 64), scale=500.0, dtype=dtype)
        assert_same(student(call), reference(call))

    @pytest.mark.parametrize("dtype", HALF)
    def test_half_precision_near_one(self, student, reference, rng, dtype):
        """{dtype} with numbers near 1"""
        call = self.call(rng, (3, 3, 64), dtype=dtype)
        assert_same(student(call), reference(call))

    def test_strided_input(self, student, reference, rng):
        """an input that is not contiguous, and that stays as it was"""
        call = self.call(rng, (6, 4))
        call.steps[0][1]["hidden_states"] = rng.normal(4, 3, 6).transpose(0, 2)
        assert_same(student(call), reference(call))

    @pytest.mark.points(2)
    def test_gradients(self, student, reference, rng):
        """gradients of input and weight"""
        call = self.call(rng, (3, 5, 12), grad=True)
        assert_same(student(call), reference(call))


@pytest.mark.exercise("1.3")
class TestResidual:
    def call(self, rng, placement, shape=(2, 5, 10), alpha=1.0, **options):
        size = shape[-1]
        sublayer = Given("tanh_linear", weight=rng.normal(size, size))
        functions = {"sublayer": sublayer, "norm": Given("scale_to_max")}
        inputs = {**functions, "placement": placement, "alpha": alpha}
        return Call("residual", x=rng.normal(*shape), **inputs, **options)

    @pytest.mark.parametrize("placement", ["pre", "post", "sandwich", "deepnorm"])
    def test_values(self, student, reference, rng, placement):
        """placement {placement}"""
        call = self.call(rng, placement, alpha=2.5)
        assert_same(student(call), reference(call))

    @pytest.mark.parametrize("placement", ["pre", "post", "sandwich", "deepnorm"])
    def test_gradients(self, student, reference, rng, placement):
        """gradients with placement {placement}"""
        call = self.call(rng, placement, shape=(1, 7), alpha=0.5, grad=True)
        assert_same(student(call), reference(call))

    def test_positions(self, student, reference, rng):
        """arguments by position: x, sublayer, norm, placement, alpha"""
        call = self.call(rng, "deepnorm", alpha=2.0, by_position=True)
        assert_same(student(call), reference(call))

    def test_unknown_placement(self, student, reference, rng):
        """an unknown placement raises ValueError that names it"""
        call = self.call(rng, "between")
        outcome = student(call)
        assert_same(outcome, reference(call))
        assert "between" in outcome.failure.text, "the error does not name the placement"

    @pytest.mark.parametrize("left_out", ["placement", "alpha"])
    def test_defaults(self, student, reference, rng, left_out):
        """the default of {left_out}"""
        call = self.call(rng, "deepnorm" if left_out == "alpha" else "pre")
        del call.steps[0][1][left_out]
        assert_same(student(call), reference(call))
