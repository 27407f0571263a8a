"""Hidden checks of lab 01: fresh numbers, odd shapes, other dtypes, gradients."""

from visible import test_rmsnorm as visible
from visible.test_rmsnorm import HALF, layer_norm_call, residual_call, rms_norm_call

from labkit.checks.declared import STRIDED, check, strided

SHAPES = [(2, 7, 32), (5,), (4, 4), (1, 3, 2, 6)]
PLACEMENTS = ["pre", "post", "sandwich", "deepnorm"]


test_layer_norm = check(
    "1.1", "values for any number of axes", points=2, shape=SHAPES, shift=1.5
)(layer_norm_call)
test_layer_norm_far = check("1.1", points=0.5, shape=[(3, 24)])(visible.test_layer_norm_far)
test_layer_norm_eps = check(
    "1.1", cases=[{"scale": s, "eps": e} for s, e in ((1e-3, 1e-4), (1e-2, 1e-4), (0.2, 0.4))],
    shape=[(3, 16)],
)(visible.test_layer_norm_eps)  # fmt: skip
test_layer_norm_constant = check(
    "1.1", "a constant vector gives the bias", shape=(2, 8), scale=0.0, shift=2.5
)(layer_norm_call)
test_layer_norm_half = check(
    "1.1", "{dtype} with large numbers", points=0.25, dtype=HALF, shape=(2, 5, 64), scale=500.0
)(layer_norm_call)
test_shifted_half = check("1.1", points=0.5, shape=[(4,
    32)])(visible.test_layer_norm_shifted_half)  # fmt: skip
test_positions = check("1.1", shape=[(3, 6)])(visible.test_layer_norm_positions)
test_narrow_weight = check("1.1", points=0.25, shape=[(3, 5,
    12)])(visible.test_layer_norm_narrow_weight)  # fmt: skip
test_default_eps = check("1.1", points=0.5, shape=[(3,
    16)])(visible.test_layer_norm_default_eps)  # fmt: skip
test_layer_norm_strided = check("1.1", STRIDED, shape=(4, 3, 6))(strided(layer_norm_call))

test_layer_norm_gradients = check(
    "1.1", "gradients of input, weight and bias", points=2, shape=(3, 5, 12), grad=True
)(layer_norm_call)
test_rms_norm = check("1.2", "values for any number of axes", shape=SHAPES,
    shift=1.5)(rms_norm_call)  # fmt: skip
test_parameters = check("1.2", size=[1, 24])(visible.test_rms_norm_parameters)
test_twice = check("1.2", shape=[(3, 4)])(visible.test_rms_norm_twice)
test_rms_norm_eps = check(
    "1.2", cases=[{"scale": s, "eps": e} for s, e in ((1e-4, 1e-5), (1e-3, 1e-5), (0.2, 0.4))],
    shape=[(3, 16)],
)(visible.test_rms_norm_eps)  # fmt: skip
test_rms_norm_default_eps = check("1.2", shape=[(2, 3, 16)])(visible.test_rms_norm_default_eps)
test_rms_norm_positions = check("1.2", shape=[(4, 6)])(visible.test_rms_norm_positions)
test_zeros = check("1.2", "a padding row of zeros", shape=(2, 8), scale=0.0)(rms_norm_call)
test_half_precision = check("1.2", points=3, dtype=HALF, shape=[(2, 5,
    64)])(visible.test_rms_norm_half_precision)  # fmt: skip
test_half_precision_near_one = check(
    "1.2", "{dtype} with numbers near 1", dtype=HALF, shape=(3, 3, 64)
)(rms_norm_call)
test_strided = check("1.2", STRIDED, shape=(4, 3, 6))(strided(rms_norm_call))

test_rms_norm_gradients = check(
    "1.2", "gradients of input and weight", points=2, shape=(3, 5, 12), grad=True
)(rms_norm_call)
test_residual = check(
    "1.3", "placement {placement}", placement=PLACEMENTS, shape=(2, 5, 10), alpha=2.5
)(residual_call)
test_residual_gradients = check(
    "1.3", "gradients with placement {placement}", placement=PLACEMENTS, shape=(1, 7),
    alpha=0.5, grad=True,
)(residual_call)  # fmt: skip
test_residual_positions = check("1.3", shape=[(2, 5, 10)])(visible.test_residual_positions)
test_unknown = check("1.3", points=0.5, placement=["between",
    "swapped"])(visible.test_residual_unknown)  # fmt: skip


@check("1.3", left_out=["placement", "alpha"])
def test_defaults(rng, left_out):
    """the default of {left_out}"""
    call = residual_call(rng, "deepnorm" if left_out == "alpha" else "pre", (2, 5, 10))
    del call.steps[0][1][left_out]
    return call


test_web_norm = check("1.4", eps=[1e-5, 0.1], shape=(3, 16))(visible.test_web_norm)
