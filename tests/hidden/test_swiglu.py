"""Hidden checks of lab 04: fresh numbers, odd shapes, other dtypes, extremes, gradients."""

import torch
from visible import test_swiglu as visible
from visible.test_swiglu import (
    HALF,
    KINDS,
    config,
    feed_forward_call,
    matrices,
    mlp_call,
    pickers,
    positive_pickers,
)

from labkit.checks.declared import Call, check

SHAPES = [(2, 7, 32), (5,), (), (4, 1, 3, 2)]


test_silu = check("4.1", "values for any number of axes", shape=SHAPES)(visible.silu_call)


@check("4.1", points=0.5, grad=[False, True])
def test_silu_far_out(rng, grad):
    """from -10000 to 10000, gradients: {grad}"""
    far = rng.uniform(20, low=100.0, high=1e4)
    near = torch.tensor([-20.0, -1.0, 0.0, 1.0, 20.0])
    return Call("silu", x=torch.cat([far, near, -far]), grad=grad)


test_silu_small = check("4.1", low=-60.0, shape=[(5, 7)])(visible.test_silu_small)
test_silu_half = check("4.1", points=0.5, dtype=HALF, shape=[(3, 4,
    16)])(visible.test_silu_half)  # fmt: skip


@check("4.1", points=0.25, dtype=HALF)
def test_silu_half_far_out(rng, dtype):
    """{dtype} from -10000 to 10000, with gradients"""
    far = rng.uniform(16, low=20.0, high=1e4).to(dtype)
    return Call("silu", x=torch.cat([-far, far]), grad=True)


test_silu_strided = check("4.1", shape=(4, 3, 6))(visible.test_silu_strided)
test_silu_gradients = check("4.1", points=3, shape=[(3, 5, 12)])(visible.test_silu_gradients)


@check("4.2", sizes=[(6, 10), (8, 3)])
def test_mlp_parameters(rng, sizes):
    """three matrices with the checkpoint's names and shapes, no bias"""
    fresh = Call("Qwen3MLP", init={"config": config(*sizes)}, names=True)
    return fresh, mlp_call(rng, *sizes, x=rng.normal(2, sizes[0]))


@check("4.2", shape=[(2, 7, 12), (8,), (5, 6), (1, 3, 2, 10)])
def test_mlp(rng, shape):
    """values for any number of axes"""
    return mlp_call(rng, shape[-1], 9, x=1.5 * rng.normal(*shape))


test_mlp_twice = check("4.2", shape=[(5, 6)])(visible.test_mlp_twice)
test_mlp_other_size = check("4.2", size=[1, 5])(visible.test_mlp_other_size)


@check("4.2", points=2)
def test_mlp_gate_and_up(rng):
    """gate_proj is what opens and closes, up_proj what passes"""
    state = matrices(rng, 6, 10)
    state["gate_proj.weight"] = 4 * state["gate_proj.weight"]
    return Call("Qwen3MLP", init={"config": config(6, 10)}, state=state, x=rng.normal(8, 6))


test_mlp_half = check("4.2", points=0.5, dtype=HALF, sizes=[(8, 14)])(visible.test_mlp_half)


@check("4.2", points=0.25, dtype=HALF)
def test_mlp_extremes(rng, dtype):
    """{dtype} with gates at plus and minus 10000: finite"""
    return mlp_call(rng, 8, 14, pickers, dtype=dtype, x=extreme(rng, 9).to(dtype))


def extreme(rng, rows):
    x = 0.1 * rng.normal(rows, 8)
    x[:, :4] = 1e4 * x[:, :4].sign()
    return x


test_mlp_strided = check("4.2", shape=[(3, 5, 6)])(visible.test_mlp_strided)
test_mlp_gradients = check("4.2", points=2, shape=[(3, 4, 6)])(visible.test_mlp_gradients)
test_kind = check("4.3", kind=KINDS, sizes=[(10, 7)], grad=[False])(visible.test_kind)
test_kind_gradients = check("4.3", "gradients of kind {kind}", kind=KINDS)(
    lambda rng, kind: feed_forward_call(rng, kind, x=rng.normal(4, 6), grad=True)
)


@check("4.3", points=0.1, kind=KINDS, dtype=HALF)
def test_kind_half(rng, kind, dtype):
    """kind {kind} in {dtype}"""
    x = rng.uniform(5, 8, low=0.2, high=2.0).to(dtype)
    return feed_forward_call(rng, kind, (8, 13), positive_pickers, dtype=dtype, x=x)


@check("4.3", points=0.1, kind=["gelu", "geglu", "swiglu"])
def test_kind_extremes(rng, kind):
    """kind {kind} in float16 at plus and minus 10000: finite"""
    x = extreme(rng, 6).half()
    return feed_forward_call(rng, kind, (8, 12), pickers, dtype=torch.float16, x=x)


test_kind_strided = check("4.3")(visible.test_kind_strided)
test_kind_unknown = check("4.3", points=0.5, unknown=["tanh", "SwiGLU",
    "glu"])(visible.test_kind_unknown)  # fmt: skip
test_web_mlp = check("4.4", size=[4, 7])(visible.test_web_mlp)
test_fused = check("4.5", size=[4, 7])(visible.test_fused)
