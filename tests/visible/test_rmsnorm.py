"""Visible checks of lab 01: what check("1.1") and its sisters run."""

import torch

from labkit.checks.declared import Call, Given, check

HALF = [torch.bfloat16, torch.float16]
F32, BF16 = torch.float32, torch.bfloat16


def layer_norm_call(rng, shape=(2, 3, 8), scale=1.0, shift=0.0, dtype=F32, eps=1e-5, **options):
    x = (scale * rng.normal(*shape) + shift).to(dtype)
    weight, bias = 1 + 0.5 * rng.normal(shape[-1]), rng.normal(shape[-1])
    if dtype != F32:  # a sum that cancels shows the order of the roundings
        bias = torch.zeros_like(bias)
    inputs = {"weight": weight.to(dtype), "bias": bias.to(dtype), "eps": eps}
    return Call("layer_norm", x=x, **inputs, **options)


test_layer_norm = check("1.1", "values", shape=(2, 3, 8), shift=0.7)(layer_norm_call)
test_layer_norm_far = check(
    "1.1", "a mean of about 300 and a spread of 1", shift=300.0, tolerance=3e-4
)(layer_norm_call)
test_layer_norm_eps = check(
    "1.1", "eps {eps} with numbers of about {scale}",
    cases=[{"scale": 0.001, "eps": 1e-05}, {"scale": 0.3, "eps": 0.5}], shape=(2, 3, 8),
)(layer_norm_call)  # fmt: skip
test_layer_norm_float16 = check(
    "1.1", "float16 with squares beyond its range", scale=400.0, dtype=torch.float16
)(layer_norm_call)
test_layer_norm_positions = check(
    "1.1", "arguments by position: x, weight, bias, eps", shape=(2, 3, 8), by_position=True
)(layer_norm_call)


@check("1.1")
def test_layer_norm_default_eps(rng, shape=(2, 3, 8)):
    """the default eps"""
    call = layer_norm_call(rng, shape, scale=1e-3)
    del call.steps[0][1]["eps"]
    return call


test_layer_norm_shifted_half = check(
    "1.1", "bfloat16 around 300, where a rounded mean shows", shape=(2, 3, 8), scale=20.0,
    shift=300.0, dtype=BF16,
)(layer_norm_call)  # fmt: skip


@check("1.1")
def test_layer_norm_narrow_weight(rng, shape=(2, 3, 8)):
    """weight and bias in bfloat16, x in float32"""
    call = layer_norm_call(rng, shape, shift=0.7)
    inputs = call.steps[0][1]
    inputs |= {name: inputs[name].bfloat16() for name in ("weight", "bias")}
    return call


test_layer_norm_gradients = check("1.1", "gradients", shape=(2, 3, 8), grad=True)(
    layer_norm_call
)


def rms_norm_call(rng, shape=(2, 3, 8), scale=1.0, shift=0.0, dtype=F32, eps=1e-6, **options):
    x = (scale * rng.normal(*shape) + shift).to(dtype)
    init = {"hidden_size": shape[-1], "eps": eps}
    state = {"weight": 1 + 0.5 * rng.normal(shape[-1])}
    return Call("RMSNorm", init=init, state=state, dtype=dtype, hidden_states=x, **options)


@check("1.2")
def test_rms_norm_parameters(rng, size=8):
    """freshly made: it holds weight alone, and weight is all ones"""
    init = {"hidden_size": size}
    return Call("RMSNorm", init=init, names=True), Call("RMSNorm", init=init).then(".weight")


test_rms_norm = check("1.2", "values", shape=(2, 3, 8), shift=0.7)(rms_norm_call)


@check("1.2")
def test_rms_norm_twice(rng, shape=(2, 3, 8)):
    """values when one object is used twice, then in eval mode"""
    return (
        rms_norm_call(rng, shape)
        .then("__setattr__", name="training", value=False)
        .then(hidden_states=rng.normal(*shape))
    )


test_rms_norm_eps = check(
    "1.2", "eps {eps} with numbers of about {scale}",
    cases=[{"scale": 0.001, "eps": 1e-05}, {"scale": 0.3, "eps": 0.5}], shape=(2, 3, 8),
)(rms_norm_call)  # fmt: skip


@check("1.2")
def test_rms_norm_default_eps(rng, shape=(3, 8)):
    """the default eps"""
    init = {"hidden_size": shape[-1]}
    return Call("RMSNorm", init=init, hidden_states=1e-3 * rng.normal(*shape))


test_rms_norm_positions = check(
    "1.2", "arguments by position: hidden_size, eps", shape=(2, 3, 8), eps=0.5, by_position=True
)(rms_norm_call)
test_rms_norm_half_precision = check(
    "1.2", "{dtype} with large numbers", dtype=HALF, shape=(2, 3, 8), scale=400.0
)(rms_norm_call)
test_rms_norm_gradients = check("1.2", "gradients", shape=(2, 3, 8), grad=True)(rms_norm_call)


def residual_call(rng, placement, shape=(2, 3, 6), alpha=1.0, **options):
    sublayer = Given("torch.nn.Linear", in_features=shape[-1], out_features=shape[-1])
    functions = {"sublayer": sublayer, "norm": Given("torch.nn.Softmax", dim=-1)}
    inputs = {**functions, "placement": placement, "alpha": alpha}
    return Call("residual", x=rng.normal(*shape), **inputs, **options)


test_residual = check(
    "1.3", "placement {placement}", placement=["pre", "post", "sandwich"], shape=(2, 3, 6),
    alpha=3.0, grad=True,
)(residual_call)  # fmt: skip
test_residual_deepnorm = check(
    "1.3", "placement deepnorm with alpha 2", placement="deepnorm", alpha=2.0, grad=True
)(residual_call)


@check("1.3")
def test_residual_defaults(rng):
    """placement pre, where none is named"""
    call = residual_call(rng, "pre")
    del call.steps[0][1]["placement"], call.steps[0][1]["alpha"]
    return call


test_residual_positions = check(
    "1.3", "arguments by position: x, sublayer, norm, placement, alpha", placement="deepnorm",
    shape=(2, 3, 6), alpha=2.0, by_position=True,
)(residual_call)  # fmt: skip


@check("1.3", placement=["middle"])
def test_residual_unknown(rng, placement):
    """an unknown placement raises ValueError that names it"""
    return residual_call(rng, placement).mentioning(placement)


@check("1.4", eps=[1e-6, 1e-3])
def test_web_norm(rng, eps, shape=(2, 3, 8)):
    """the values of RMSNorm, with numbers of about 1 and far smaller ones"""
    for scale in (1.0, eps**0.5, 0.0):
        init, state = (
            {"dim": shape[-1], "eps": eps},
            {"weight": 1 + 0.5 * rng.normal(shape[-1])},
        )
        yield Call("WebRMSNorm", init=init, state=state, x=scale * rng.normal(*shape))
