"""Hidden checks of lab 01: fresh numbers, odd shapes, other dtypes, gradients."""

import pytest
import torch
from visible.test_rmsnorm import (
    HALF,
    compare_fresh,
    compare_unknown,
    layer_norm_call,
    narrow_weight_call,
    residual_call,
    rms_norm_call,
)

from labkit.checks.runner import Call, compare

SHAPE = (2, 5, 10)


@pytest.mark.exercise("1.1")
class TestLayerNorm:
    @pytest.mark.points(2)
    @pytest.mark.parametrize("shape", [(2, 7, 32), (5,), (4, 4), (1, 3, 2, 6)])
    def test_values(self, student, reference, rng, shape):
        """values for any number of axes"""
        compare(student, reference, layer_norm_call(rng, shape, shift=1.5))

    @pytest.mark.parametrize(("scale", "eps"), [(1e-3, 1e-4), (1e-2, 1e-4), (0.2, 0.4)])
    def test_eps(self, student, reference, rng, scale, eps):
        """eps {eps} with numbers of about {scale}"""
        compare(student, reference, layer_norm_call(rng, (3, 16), scale=scale, eps=eps))

    def test_constant_input(self, student, reference, rng):
        """a constant vector gives the bias"""
        compare(student, reference, layer_norm_call(rng, (2, 8), scale=0.0, shift=2.5))

    @pytest.mark.points(0.25)
    @pytest.mark.parametrize("dtype", HALF)
    def test_half_precision(self, student, reference, rng, dtype):
        """{dtype} with large numbers"""
        compare(student, reference, layer_norm_call(rng, (2, 5, 64), scale=500.0, dtype=dtype))

    @pytest.mark.points(0.5)
    def test_shifted_half(self, student, reference, rng):
        """bfloat16 around 300, where a rounded mean shows"""
        call = layer_norm_call(rng, (4, 32), scale=20.0, shift=300.0, dtype=torch.bfloat16)
        compare(student, reference, call)

    def test_positions(self, student, reference, rng):
        """arguments by position: x, weight, bias, eps"""
        compare(student, reference, layer_norm_call(rng, (3, 6), by_position=True))

    @pytest.mark.points(0.25)
    def test_narrow_weight(self, student, reference, rng):
        """weight and bias in bfloat16, x in float32"""
        compare(student, reference, narrow_weight_call(rng, (3, 5, 12)))

    @pytest.mark.points(0.5)
    def test_default_eps(self, student, reference, rng):
        """the default eps"""
        call = layer_norm_call(rng, (3, 16), scale=1e-3)
        del call.steps[0][1]["eps"]
        compare(student, reference, call)

    def test_strided_input(self, student, reference, rng):
        """an input that is not contiguous, and that stays as it was"""
        call = layer_norm_call(rng, (6, 4))
        call.steps[0][1]["x"] = rng.normal(4, 3, 6).transpose(0, 2)
        compare(student, reference, call)

    @pytest.mark.points(2)
    def test_gradients(self, student, reference, rng):
        """gradients of input, weight and bias"""
        compare(student, reference, layer_norm_call(rng, (3, 5, 12), grad=True))


@pytest.mark.exercise("1.2")
class TestRMSNorm:
    @pytest.mark.parametrize("shape", [(2, 7, 32), (5,), (4, 4), (1, 3, 2, 6)])
    def test_values(self, student, reference, rng, shape):
        """values for any number of axes"""
        compare(student, reference, rms_norm_call(rng, shape, shift=1.5))

    @pytest.mark.parametrize("size", [1, 24])
    def test_parameters(self, student, reference, rng, size):
        """freshly made: it holds weight alone, and weight is all ones"""
        compare_fresh(student, reference, size)

    @pytest.mark.parametrize(("scale", "eps"), [(1e-4, 1e-5), (1e-3, 1e-5), (0.2, 0.4)])
    def test_eps(self, student, reference, rng, scale, eps):
        """eps {eps} with numbers of about {scale}"""
        compare(student, reference, rms_norm_call(rng, (3, 16), scale=scale, eps=eps))

    def test_default_eps(self, student, reference, rng):
        """the default eps"""
        call = Call(
            "RMSNorm", init={"hidden_size": 16}, hidden_states=1e-3 * rng.normal(2, 3, 16)
        )
        compare(student, reference, call)

    def test_by_position(self, student, reference, rng):
        """arguments by position: hidden_size, eps"""
        compare(student, reference, rms_norm_call(rng, (4, 6), eps=0.3, by_position=True))

    def test_zeros(self, student, reference, rng):
        """a padding row of zeros"""
        compare(student, reference, rms_norm_call(rng, (2, 8), scale=0.0))

    @pytest.mark.points(3)
    @pytest.mark.parametrize("dtype", HALF)
    def test_half_precision(self, student, reference, rng, dtype):
        """{dtype} with large numbers"""
        compare(student, reference, rms_norm_call(rng, (2, 5, 64), scale=500.0, dtype=dtype))

    @pytest.mark.parametrize("dtype", HALF)
    def test_half_precision_near_one(self, student, reference, rng, dtype):
        """{dtype} with numbers near 1"""
        compare(student, reference, rms_norm_call(rng, (3, 3, 64), dtype=dtype))

    def test_strided_input(self, student, reference, rng):
        """an input that is not contiguous, and that stays as it was"""
        call = rms_norm_call(rng, (6, 4))
        call.steps[0][1]["hidden_states"] = rng.normal(4, 3, 6).transpose(0, 2)
        compare(student, reference, call)

    @pytest.mark.points(2)
    def test_gradients(self, student, reference, rng):
        """gradients of input and weight"""
        compare(student, reference, rms_norm_call(rng, (3, 5, 12), grad=True))


@pytest.mark.exercise("1.3")
class TestResidual:
    @pytest.mark.parametrize("placement", ["pre", "post", "sandwich", "deepnorm"])
    def test_values(self, student, reference, rng, placement):
        """placement {placement}"""
        compare(student, reference, residual_call(rng, placement, SHAPE, alpha=2.5))

    @pytest.mark.parametrize("placement", ["pre", "post", "sandwich", "deepnorm"])
    def test_gradients(self, student, reference, rng, placement):
        """gradients with placement {placement}"""
        call = residual_call(rng, placement, shape=(1, 7), alpha=0.5, grad=True)
        compare(student, reference, call)

    def test_positions(self, student, reference, rng):
        """arguments by position: x, sublayer, norm, placement, alpha"""
        call = residual_call(rng, "deepnorm", SHAPE, alpha=2.0, by_position=True)
        compare(student, reference, call)

    @pytest.mark.points(0.5)
    @pytest.mark.parametrize("placement", ["between", "swapped"])
    def test_unknown_placement(self, student, reference, rng, placement):
        """an unknown placement raises ValueError that names it"""
        compare_unknown(student, reference, residual_call(rng, placement, SHAPE))

    @pytest.mark.parametrize("left_out", ["placement", "alpha"])
    def test_defaults(self, student, reference, rng, left_out):
        """the default of {left_out}"""
        call = residual_call(rng, "deepnorm" if left_out == "alpha" else "pre", SHAPE)
        del call.steps[0][1][left_out]
        compare(student, reference, call)
