"""Visible checks of lab 01: what check("1.1") and its sisters run."""

import pytest
import torch

from labkit.checks.runner import Call, Given, compare

HALF = [torch.bfloat16, torch.float16]


def layer_norm_call(
    rng, shape=(2, 3, 8), scale=1.0, shift=0.0, dtype=torch.float32, eps=1e-5, **options
):
    x = (scale * rng.normal(*shape) + shift).to(dtype)
    weight, bias = 1 + 0.5 * rng.normal(shape[-1]), rng.normal(shape[-1])
    if dtype != torch.float32:  # a sum that cancels shows the order of the roundings
        bias = torch.zeros_like(bias)
    inputs = {"weight": weight.to(dtype), "bias": bias.to(dtype), "eps": eps}
    return Call("layer_norm", x=x, **inputs, **options)


def narrow_weight_call(rng, shape=(2, 3, 8)):
    call = layer_norm_call(rng, shape, shift=0.7)
    inputs = call.steps[0][1]
    for name in ("weight", "bias"):
        inputs[name] = inputs[name].bfloat16()
    return call


@pytest.mark.exercise("1.1")
class TestLayerNorm:
    def test_values(self, student, reference, rng):
        """values"""
        compare(student, reference, layer_norm_call(rng, shift=0.7))

    @pytest.mark.parametrize(("scale", "eps"), [(1e-3, 1e-5), (0.3, 0.5)])
    def test_eps(self, student, reference, rng, scale, eps):
        """eps {eps} with numbers of about {scale}"""
        compare(student, reference, layer_norm_call(rng, scale=scale, eps=eps))

    def test_float16(self, student, reference, rng):
        """float16 with squares beyond its range"""
        compare(student, reference, layer_norm_call(rng, scale=400.0, dtype=torch.float16))

    def test_positions(self, student, reference, rng):
        """arguments by position: x, weight, bias, eps"""
        compare(student, reference, layer_norm_call(rng, by_position=True))

    def test_default_eps(self, student, reference, rng):
        """the default eps"""
        call = layer_norm_call(rng, scale=1e-3)
        del call.steps[0][1]["eps"]
        compare(student, reference, call)

    def test_shifted_half(self, student, reference, rng):
        """bfloat16 around 300, where a rounded mean shows"""
        call = layer_norm_call(rng, scale=20.0, shift=300.0, dtype=torch.bfloat16)
        compare(student, reference, call)

    def test_narrow_weight(self, student, reference, rng):
        """weight and bias in bfloat16, x in float32"""
        compare(student, reference, narrow_weight_call(rng))

    def test_gradients(self, student, reference, rng):
        """gradients"""
        compare(student, reference, layer_norm_call(rng, grad=True))


def rms_norm_call(
    rng, shape=(2, 3, 8), scale=1.0, shift=0.0, dtype=torch.float32, eps=1e-6, **options
):
    x = (scale * rng.normal(*shape) + shift).to(dtype)
    init = {"hidden_size": shape[-1], "eps": eps}
    state = {"weight": 1 + 0.5 * rng.normal(shape[-1])}
    return Call("RMSNorm", init=init, state=state, dtype=dtype, hidden_states=x, **options)


def compare_fresh(student, reference, size):
    compare(student, reference, Call("RMSNorm", init={"hidden_size": size}, names=True))
    compare(student, reference, Call("RMSNorm", init={"hidden_size": size}).then(".weight"))


@pytest.mark.exercise("1.2")
class TestRMSNorm:
    def test_parameters(self, student, reference, rng):
        """freshly made: it holds weight alone, and weight is all ones"""
        compare_fresh(student, reference, 8)

    def test_values(self, student, reference, rng):
        """values"""
        compare(student, reference, rms_norm_call(rng, shift=0.7))

    @pytest.mark.parametrize(("scale", "eps"), [(1e-3, 1e-5), (0.3, 0.5)])
    def test_eps(self, student, reference, rng, scale, eps):
        """eps {eps} with numbers of about {scale}"""
        compare(student, reference, rms_norm_call(rng, scale=scale, eps=eps))

    def test_default_eps(self, student, reference, rng):
        """the default eps"""
        call = Call("RMSNorm", init={"hidden_size": 8}, hidden_states=1e-3 * rng.normal(3, 8))
        compare(student, reference, call)

    def test_by_position(self, student, reference, rng):
        """arguments by position: hidden_size, eps"""
        compare(student, reference, rms_norm_call(rng, eps=0.5, by_position=True))

    @pytest.mark.parametrize("dtype", HALF)
    def test_half_precision(self, student, reference, rng, dtype):
        """{dtype} input"""
        compare(student, reference, rms_norm_call(rng, scale=400.0, dtype=dtype))

    def test_gradients(self, student, reference, rng):
        """gradients"""
        compare(student, reference, rms_norm_call(rng, grad=True))


def residual_call(rng, placement, shape=(2, 3, 6), alpha=1.0, **options):
    sublayer = Given("tanh_linear", weight=rng.normal(shape[-1], shape[-1]))
    functions = {"sublayer": sublayer, "norm": Given("scale_to_max")}
    inputs = {**functions, "placement": placement, "alpha": alpha}
    return Call("residual", x=rng.normal(*shape), **inputs, **options)


def compare_unknown(student, reference, call):
    outcome = compare(student, reference, call)
    placement = call.steps[0][1]["placement"]
    assert placement in outcome.failure.text, (
        f"the message of the ValueError does not hold {placement!r}, which was asked for"
    )


@pytest.mark.exercise("1.3")
class TestResidual:
    @pytest.mark.parametrize("placement", ["pre", "post", "sandwich"])
    def test_placement(self, student, reference, rng, placement):
        """placement {placement}"""
        compare(student, reference, residual_call(rng, placement, alpha=3.0, grad=True))

    def test_deepnorm(self, student, reference, rng):
        """placement deepnorm with alpha 2"""
        compare(student, reference, residual_call(rng, "deepnorm", alpha=2.0, grad=True))

    def test_defaults(self, student, reference, rng):
        """placement pre, where none is named"""
        call = residual_call(rng, "pre")
        del call.steps[0][1]["placement"], call.steps[0][1]["alpha"]
        compare(student, reference, call)

    def test_positions(self, student, reference, rng):
        """arguments by position: x, sublayer, norm, placement, alpha"""
        compare(student, reference, residual_call(rng, "deepnorm", alpha=2.0, by_position=True))

    def test_unknown(self, student, reference, rng):
        """an unknown placement raises ValueError that names it"""
        compare_unknown(student, reference, residual_call(rng, "middle"))
