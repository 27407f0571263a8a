"""The kernels of lab 16 compiled on a GPU: are they right, and how fast are they?

    python benchmarks/kernels.py kernels.json

Each kernel is compared with torch, then timed beside torch as it stands, beside torch.compile
and, if it is installed, beside liger-kernel. The file gets the card, the versions, the date and
the table. `--tiny` runs everything interpreted on a CPU, to try the script itself.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

TINY = "--tiny" in sys.argv
os.environ["TRITON_INTERPRET"] = "1" if TINY else "0"  # Triton reads it when it is imported
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import triton  # noqa: E402

from solutions import kernels  # noqa: E402

DEVICE = "cpu" if TINY else "cuda"
DTYPE = torch.float32 if TINY else torch.bfloat16
SECONDS = 170  # seconds of the whole run; then nothing more is timed
started = time.monotonic()
# Qwen3-8B's sizes; tiny ones to try the script
ROWS, HIDDEN, WIDE, VOCAB, LOSSES, HEADS, KV_HEADS, TOKENS, HEAD_DIM = (
    (3, 24, 40, 70, 3, 4, 2, 20, 12)
    if TINY
    else (16384, 4096, 12288, 151936, 4096, 32, 8, 4096, 128)
)
# Qwen3-30B-A3B's experts
PICKING, MODEL, INNER, EXPERTS, PICKED = (9, 10, 7, 5, 2) if TINY else (4096, 2048, 768, 128, 8)
BLOCKS: dict[str, Any] = (
    {"swiglu": 16, "loss": 32, "attention": 16, "backward": 16, "matvec": (4, 16), "moe": 16}
    if TINY
    else {"swiglu": 1024, "loss": 4096, "attention": 64, "backward": 32, "matvec": (4, 1024),
          "moe": 64}
)  # fmt: skip
TRIED = [(1, 1024), (1, 2048), (2, 1024), (4, 512), (8, 512), (4, 2048)][: 1 if TINY else 6]


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator(DEVICE).manual_seed(seed)
    return torch.randn(shape, generator=generator, device=DEVICE).to(DTYPE)


def milliseconds(function: Callable[[], Any], repeats: int = 20) -> float:
    """Return the median time of single runs after a warm-up, each with a cold cache."""
    if TINY:
        begin = time.perf_counter()
        function()
        return 1e3 * (time.perf_counter() - begin)
    flush = torch.empty(256 << 20, dtype=torch.int8, device=DEVICE)
    for _ in range(3):
        function()
    times = []
    for _ in range(repeats):
        flush.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        function()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def distance(found: Any, expected: Any) -> float:
    """Return the largest difference, divided by the largest expected number."""
    pairs = zip(found, expected, strict=True)
    return max(
        float((a.float() - b.float()).abs().max() / b.float().abs().max().clamp(min=1e-9))
        for a, b in pairs
    )


def with_gradient(function: Callable, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    out = function(*leaves)
    return out.detach(), *torch.autograd.grad(out, leaves, torch.ones_like(out))


def liger(name: str) -> Any:
    """Return liger-kernel's function module:name, None if there is none."""
    module, _, attribute = name.partition(":")
    with suppress(ImportError, AttributeError):
        return getattr(import_module(f"liger_kernel.ops.{module}"), attribute)
    return None


# Each: {"ours", "torch", "compiled", "liger"}: functions without arguments that return tensors;
# bytes: the least that must be moved


def norm_case() -> dict[str, Any]:
    x, residual, weight = randn(ROWS, HIDDEN), randn(ROWS, HIDDEN, seed=1), randn(HIDDEN)

    def plain(x, residual, weight):
        total = x + residual
        return F.rms_norm(total, (total.size(-1),), weight, 1e-6), total

    theirs = liger("fused_add_rms_norm:LigerFusedAddRMSNormFunction")
    return {
        "ours": lambda: kernels.rms_norm(x, weight, residual=residual),
        "torch": lambda: plain(x, residual, weight),
        "compiled": partial(torch.compile(plain), x, residual, weight),
        "liger": theirs
        and (lambda: theirs.apply(x, residual, weight, 1e-6, 0.0, "llama", False)),
        "bytes": 4 * x.nbytes,
    }


def swiglu_case() -> dict[str, Any]:
    gate, up = randn(ROWS // 2 + 1, WIDE), randn(ROWS // 2 + 1, WIDE, seed=1)

    def plain(gate, up):
        return F.silu(gate) * up

    ours = partial(kernels.swiglu, block_size=BLOCKS["swiglu"])
    theirs, compiled = liger("swiglu:LigerSiLUMulFunction"), torch.compile(plain)
    return {
        "ours": lambda: with_gradient(ours, gate, up),
        "torch": lambda: with_gradient(plain, gate, up),
        "compiled": lambda: with_gradient(compiled, gate, up),
        "liger": theirs and (lambda: with_gradient(theirs.apply, gate, up)),
        "bytes": 8 * gate.nbytes,
    }


def loss_case() -> dict[str, Any]:
    logits, labels = 3 * randn(LOSSES, VOCAB), torch.arange(LOSSES, device=DEVICE) * 7 % VOCAB
    labels[1] = -100
    work = logits.clone()

    def ours():  # in place: when timed, it works on its own output, which takes as long
        return kernels.cross_entropy_(work, labels, block_size=BLOCKS["loss"])

    def plain(logits):
        return F.cross_entropy(logits.float(), labels)

    theirs, compiled = liger("cross_entropy:LigerCrossEntropyFunction"), torch.compile(plain)

    def liger_loss():  # writes over the logits too
        out = theirs.apply(work.requires_grad_(), labels, None)
        loss = out[0] if isinstance(out, tuple) else out
        return (loss.detach(),)

    return {
        "ours": ours,
        "torch": lambda: with_gradient(plain, logits),
        "compiled": lambda: with_gradient(compiled, logits),
        "liger": theirs and liger_loss,
        "bytes": 3 * logits.nbytes,
    }


def attention_inputs() -> tuple[torch.Tensor, ...]:
    shapes = (HEADS, KV_HEADS, KV_HEADS)
    return tuple(randn(1, heads, TOKENS, HEAD_DIM, seed=n) for n, heads in enumerate(shapes))


def plain_attention(query, key, value):
    key, value = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (key, value))
    scores = query @ key.mT * HEAD_DIM**-0.5
    hidden = torch.ones(TOKENS, TOKENS, dtype=torch.bool, device=DEVICE).triu(1)
    return scores.float().masked_fill(hidden, -torch.inf).softmax(-1).to(value.dtype) @ value


fused_attention = partial(F.scaled_dot_product_attention, is_causal=True, enable_gqa=True)


def attention_case() -> dict[str, Any]:
    inputs, compiled = attention_inputs(), torch.compile(plain_attention)
    block = BLOCKS["attention"]
    return {
        "ours": lambda: (kernels.flash_attention(*inputs, block_size=block),),
        "torch": lambda: (plain_attention(*inputs),),
        "compiled": lambda: (compiled(*inputs),),
        "torch's fused": lambda: (fused_attention(*inputs),),
        "bytes": inputs[0].nbytes + sum(x.nbytes for x in inputs),
        "flops": 2 * HEADS * TOKENS * TOKENS * HEAD_DIM,
    }


def attention_backward_case() -> dict[str, Any]:
    """Only the backward passes: forward runs once, and its graph is kept."""
    inputs, grad = attention_inputs(), randn(1, HEADS, TOKENS, HEAD_DIM, seed=3)

    def backward(attention: Callable) -> Callable[[], tuple[torch.Tensor, ...]]:
        leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        out = attention(*leaves)
        return lambda: torch.autograd.grad(out, leaves, grad, retain_graph=True)

    out, block = fused_attention(*inputs), BLOCKS["backward"]
    return {
        "ours": lambda: kernels.flash_attention_backward(grad, *inputs, out, block_size=block),
        "torch": backward(plain_attention),
        "torch's fused": backward(fused_attention),
        "bytes": 2 * grad.nbytes + 2 * sum(x.nbytes for x in inputs),
        "flops": 5 * HEADS * TOKENS * TOKENS * HEAD_DIM,  # five products, half of each
    }


def moe_case() -> dict[str, Any]:
    x, weight = randn(PICKING, MODEL), randn(EXPERTS, INNER, MODEL, seed=1)
    experts = randn(PICKING, EXPERTS, seed=2).topk(PICKED).indices  # (N, k)

    def plain():
        out = x.new_empty(PICKING, PICKED, INNER)
        for number, matrix in enumerate(weight):
            token, choice = (experts == number).nonzero(as_tuple=True)
            out[token, choice] = x[token] @ matrix.mT
        return (out,)

    def grouped():  # rows stay in the order of the experts
        expert, order = experts.flatten().sort()
        numbers = torch.arange(EXPERTS, device=DEVICE)
        ends = torch.searchsorted(expert, numbers, right=True, out_int32=True)
        return (F.grouped_mm(x[order // PICKED], weight.mT, offs=ends),)

    return {
        "ours": lambda: (kernels.moe_linear(x, weight, experts, BLOCKS["moe"]),),
        "torch": plain,
        "torch's fused": grouped if hasattr(F, "grouped_mm") and not TINY else None,
        "bytes": x.nbytes + weight.nbytes + PICKING * PICKED * INNER * x.itemsize,
        "flops": 2 * PICKING * PICKED * MODEL * INNER,
    }


def matvec_case(bits: int) -> dict[str, Any]:
    group, limit = 8 if TINY else 128, 2 ** (bits - 1) - 1
    matrix, x = randn(WIDE, HIDDEN).float(), randn(HIDDEN, seed=1)
    groups = matrix.unflatten(-1, (-1, group))
    scale = groups.abs().amax(-1) / limit
    whole = (groups / scale[..., None]).round().flatten(-2)
    rounded = (whole.unflatten(-1, (-1, group)) * scale[..., None]).flatten(-2).to(DTYPE)
    packed = whole.to(torch.int8)
    if bits == 4:
        low, high = (packed + 8).to(torch.uint8).unflatten(-1, (-1, 2)).unbind(-1)
        packed = low | high << 4
    rows, block = BLOCKS["matvec"]

    def ours(rows=rows, block=block):
        return (kernels.quantized_matvec(x, packed, scale, bits, block, rows),)

    return {
        "ours": ours,
        **{f"{r} x {b}": partial(ours, r, b) for r, b in TRIED},
        "torch": lambda: (rounded @ x,),
        "bytes": packed.nbytes + scale.nbytes,
    }


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "RMSNorm with residual": norm_case,
    "SwiGLU, both passes": swiglu_case,
    "cross-entropy with gradient": loss_case,
    "causal attention": attention_case,
    "int8 matvec": partial(matvec_case, 8),
    "int4 matvec": partial(matvec_case, 4),
    "experts": moe_case,
    "gradients of causal attention": attention_backward_case,
}


def measured(name: str, case: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the table: distance from torch, and milliseconds or the error of each."""
    row: dict[str, Any] = {"kernel": name, "bytes": case["bytes"], "flops": case.get("flops")}
    found = case["ours"]()
    row["distance"] = distance(found, case["torch"]()[: len(found)])
    del found
    for way, function in case.items():
        if not callable(function) or (TINY and way == "compiled"):
            continue
        if time.monotonic() - started > SECONDS:
            row[way] = "no time was left"
            continue
        try:
            row[way] = milliseconds(function)
        except Exception as error:  # a library of a different version
            row[way] = f"{type(error).__name__}: {str(error)[:300]}"
        if not TINY:
            torch.cuda.empty_cache()
    return row


def machine() -> dict[str, str]:
    card, driver = "CPU, interpreted", ""
    if not TINY:
        card = torch.cuda.get_device_name()
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        with suppress(OSError):
            driver = subprocess.run(query, capture_output=True, text=True).stdout.strip()
    day = datetime.now(timezone.utc).date().isoformat()
    versions = {"torch": torch.__version__, "triton": triton.__version__}
    with suppress(PackageNotFoundError):
        versions["liger"] = version("liger-kernel")
    return {"card": card, "driver": driver, "date": day, "dtype": str(DTYPE), **versions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--tiny", action="store_true", help="interpreted, on a CPU")
    file = parser.parse_args().file
    table = {"machine": machine(), "rows": []}
    print(table["machine"], flush=True)
    for name, make in CASES.items():
        try:
            row = measured(name, make())
        except Exception as error:
            row = {"kernel": name, "error": f"{type(error).__name__}: {str(error)[:3000]}"}
        table["rows"].append(row)
        print(f"{time.monotonic() - started:6.1f} s", row, flush=True)
        file.write_text(json.dumps(table, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
