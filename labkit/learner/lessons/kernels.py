"""Tools of lab 16: a strict interpreter, the bytes that torch's operations move, recorded runs
on a GPU, and a decoder that uses the learner's kernels."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from labkit.course.lang import tr
from labkit.sandbox.inside.banned import replaced
from labkit.sandbox.inside.kernels import make_strict
from labkit.sandbox.inside.kernels.profile import Profile as Profile
from labkit.sandbox.inside.kernels.profile import profiled as profiled

make_strict()
RECORDED = Path(__file__).with_name("kernels.json")  # two runs of benchmarks/kernels.py
# NVIDIA's data sheet of the H200: bytes per second, and dense bfloat16 operations per second
H200_BYTES, H200_OPERATIONS = 4.8e12, 989e12
# Operations per number of the largest tensor, counted by hand from the formulas
OPERATIONS = {
    "RMSNorm with residual": 5,
    "SwiGLU, both passes": 20,
    "cross-entropy with gradient": 10,
    "int8 matvec": 2,
    "int4 matvec": 2,
}
# The bytes that a kernel must move, per number of that tensor
BYTES = {
    "RMSNorm with residual": 8,
    "SwiGLU, both passes": 16,
    "cross-entropy with gradient": 6,
    "int8 matvec": 1 + 4 / 128,
    "int4 matvec": 0.5 + 4 / 128,
}
ATTEND = "scaled_dot_product_attention"  # the function of lab 03


class TorchBytes(TorchDispatchMode):
    """Counts the bytes that torch's operations load and store, each with empty caches.

    A view moves nothing, and neither does allocation.
    """

    bytes = 0

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None):
        made = operator(*args, **(kwargs or {}))
        name = operator.overloadpacket.__name__
        if not operator.is_view and not name.startswith(("empty", "new_empty", "detach")):
            tensors = [*args, *(made if isinstance(made, (list, tuple)) else [made])]
            self.bytes += sum(x.nbytes for x in tensors if isinstance(x, Tensor))
        return made


def recorded() -> list[dict[str, Any]]:
    """Print the recorded runs; return rows with the milliseconds of both runs, and the
    operations and bytes of one."""
    table = json.loads(RECORDED.read_text("utf-8"))
    machine = table["machine"]
    print(
        tr(
            "recorded {date} on an {card}, torch {torch}, triton {triton}, liger-kernel "
            "{liger}; milliseconds, two runs",
            **{name: machine[name] for name in ("date", "card", "torch", "triton", "liger")},
        )
    )
    rows = []
    for first, second in zip(*table["runs"], strict=True):
        name = first["kernel"]
        ways = ("ours", "torch", "compiled", "liger", "torch's fused")
        times = {way: (first[way], second[way]) for way in ways if way in first}
        shown = [f"{way} {a:.3f}/{b:.3f}" for way, (a, b) in times.items()]
        print(f"{name:28}", "  ".join(shown))
        flops = first["flops"] or first["bytes"] / BYTES[name] * OPERATIONS[name]
        rows.append({"kernel": name, "times": times, "bytes": first["bytes"], "flops": flops})
    return rows


@contextmanager
def with_kernels(
    model: nn.Module, rms_norm: Callable, swiglu: Callable, flash_attention: Callable
) -> Iterator[None]:
    """While open, a decoder computes its norms, feed-forward layers and attention with these
    kernels.

    Attention is a function in lab 03, and is replaced in the module of the layers' class.
    """
    eps, changes, scopes = model.config.rms_norm_eps, {}, {}
    for module in model.modules():
        kind = type(module).__name__
        if kind == "RMSNorm":
            changes[module, "forward"] = lambda x, norm=module: rms_norm(x, norm.weight, eps)
        elif kind == "Qwen3MLP":
            changes[module, "forward"] = lambda x, mlp=module: mlp.down_proj(
                swiglu(mlp.gate_proj(x), mlp.up_proj(x))
            )
        elif ATTEND in (scope := type(module).forward.__globals__) and "Attention" in kind:
            scopes[id(scope)] = scope, scope[ATTEND]
    try:
        for scope, _ in scopes.values():
            scope[ATTEND] = lambda q, k, v, mask=None, scale=None: flash_attention(
                q, k, v, scale=scale
            )
        with torch.no_grad(), replaced(changes):
            yield
    finally:
        for scope, function in scopes.values():
            scope[ATTEND] = function
