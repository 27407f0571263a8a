"""Visible checks of lab 04: what check("4.1") and its sisters run."""

import torch

from labkit.checks.declared import STRIDED, Call, New, check, strided

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


def silu_call(rng, shape=(2, 3, 8), **options):
    return Call("silu", x=2 * rng.normal(*shape), **options)


test_silu = check("4.1", "values")(silu_call)
test_silu_gradients = check("4.1", "gradients", shape=(3, 6), grad=True)(silu_call)


@check("4.1")
def test_silu_far_out(rng):
    """from -10000 to 10000, with gradients"""
    x = torch.tensor([-1e4, -100.0, -20.0, 0.0, 20.0, 100.0, 1e4, -1.0])
    return Call("silu", x=x, grad=True)


@check("4.1", low=-20.0)
def test_silu_small(rng, low, shape=(3, 6)):
    """small results: x from {low} to -6"""
    return Call("silu", x=rng.uniform(*shape, low=low, high=-6.0))


@check("4.1", dtype=HALF)
def test_silu_half(rng, dtype, shape=(6, 8)):
    """{dtype} input, from -8 to 8"""
    return Call("silu", x=rng.uniform(*shape, low=-8, high=8).to(dtype))


test_silu_strided = check("4.1", STRIDED, shape=(3, 4))(strided(silu_call))


@check("4.1")
def test_silu_half_far_out(rng):
    """float16 from -10000 to 10000, with gradients"""
    x = torch.tensor([-1e4, -100.0, -20.0, 20.0, 100.0, 1e4], dtype=torch.float16)
    return Call("silu", x=x, grad=True)


def mlp_call(rng, hidden_size=6, intermediate_size=10, weights=matrices, **options):
    init = {"config": config(hidden_size, intermediate_size)}
    state = weights(rng, hidden_size, intermediate_size)
    return Call("Qwen3MLP", init=init, state=state, **options)


test_mlp_parameters = check("4.2", "freshly made, with three matrices and no bias")(
    lambda rng: Call("Qwen3MLP", init={"config": config(6, 10)}, names=True)
)
test_mlp = check("4.2", "values")(lambda rng: mlp_call(rng, x=1.5 * rng.normal(2, 3, 6)))
test_mlp_one_text = check("4.2", "a batch of one text")(
    lambda rng: mlp_call(rng, x=rng.normal(1, 3, 6))
)


@check("4.2")
def test_mlp_twice(rng, shape=(2, 6)):
    """one object is used twice, then in eval mode"""
    return (
        mlp_call(rng, x=rng.normal(*shape))
        .then("__setattr__", name="training", value=False)
        .then(x=rng.normal(*shape))
    )


@check("4.2")
def test_mlp_other_size(rng, size=5):
    """another intermediate_size than the config's"""
    init = {"config": config(6, 10), "intermediate_size": size}
    return (
        Call("Qwen3MLP", init=init, names=True),
        Call("Qwen3MLP", init=init, state=matrices(rng, 6, size), x=rng.normal(4, 6)),
    )


test_mlp_strided = check("4.2", STRIDED)(
    strided(lambda rng, shape=(2, 3, 6): mlp_call(rng, x=rng.normal(*shape)))
)


@check("4.2", dtype=HALF)
def test_mlp_half(rng, dtype, sizes=(6, 10)):
    """{dtype}"""
    x = (2 * rng.normal(7, sizes[0])).to(dtype)
    return mlp_call(rng, *sizes, pickers, dtype=dtype, x=x)


test_mlp_gradients = check("4.2", "gradients")(
    lambda rng, shape=(4, 6): mlp_call(rng, x=rng.normal(*shape), grad=True)
)


def feed_forward_init(kind, sizes=(6, 9)):
    return {"hidden_size": sizes[0], "intermediate_size": sizes[1], "kind": kind}


def feed_forward_call(rng, kind, sizes=(6, 9), weights=matrices, **options):
    state = weights(rng, *sizes, gated=kind in ("geglu", "swiglu"))
    return Call("FeedForward", init=feed_forward_init(kind, sizes), state=state, **options)


KINDS = ["relu", "gelu", "swish", "geglu", "swiglu"]


@check("4.3", kind=KINDS)
def test_kind(rng, kind, sizes=(6, 9), grad=True):
    """kind {kind}, in eval mode either"""
    return (
        Call("FeedForward", init=feed_forward_init(kind, sizes), names=True),
        feed_forward_call(rng, kind, sizes, x=1.5 * rng.normal(2, 4, sizes[0]), grad=grad),
        feed_forward_call(rng, kind, sizes, x=20 * rng.normal(3, sizes[0]))
        .then("__setattr__", name="training", value=False)
        .then(x=rng.normal(3, sizes[0])),
    )


@check("4.3", kind=["gelu", "swiglu"])
def test_kind_half(rng, kind):
    """kind {kind} in bfloat16"""
    x = rng.uniform(5, 6, low=0.2, high=2.0).bfloat16()
    return feed_forward_call(rng, kind, dtype=torch.bfloat16, weights=positive_pickers, x=x)


test_kind_strided = check("4.3", STRIDED)(
    strided(lambda rng: feed_forward_call(rng, "geglu", x=rng.normal(2, 3, 6)))
)


@check("4.3", unknown=["tanh"])
def test_kind_unknown(rng, unknown):
    """an unknown kind raises ValueError that names it"""
    built = feed_forward_call(rng, "relu", x=rng.normal(6))  # a class that builds nothing fails
    return built, Call("FeedForward", init=feed_forward_init(unknown)).mentioning(unknown)


@check("4.4", size=6)
def test_web_mlp(rng, size):
    """the values of Qwen3MLP; {size} features"""
    state = {f"w{n}.weight": rng.normal(*shape) for n, shape in
             ((1, (9, size)), (2, (size, 9)), (3, (9, size)))}  # fmt: skip
    init = {"dim": size, "hidden": 9}
    return Call("WebMLP", init=init, state=state, x=2 * rng.normal(3, size))


@check("4.5", size=6)
def test_fused(rng, size):
    """the values of Qwen3MLP, from a stack of two matrices; {size} features"""
    weights = {"gate_up": rng.normal(10, size), "down": rng.normal(size, 5)}
    return Call("fused", x=rng.normal(3, size), **weights)
