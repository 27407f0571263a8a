"""Lab 14's estimate of a layout over many devices: memory, bytes sent, time.

Arithmetic is left out: with few texts it takes less time than reading the weights, and it is
the same in every layout. So the estimate is too optimistic for large batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

GB, BYTES = 1e9, 2  # bfloat16
# NVIDIA H100 SXM, https://www.nvidia.com/en-us/data-center/h100/: 80 GB, 3.35 TB/s, NVLink
# 900 GB/s for both directions together. DGX H100, https://docs.nvidia.com/dgx/dgxh100-user-guide
# : eight of them in a machine, each with 400 Gb/s to the others. A start of a collective takes
# some microseconds; these two are round numbers, not measured.
MEMORY, READ = 80 * GB, 3350 * GB
LINK = {"inside": 450 * GB, "between": 50 * GB}  # per second and direction
START = {"inside": 10e-6, "between": 30e-6}  # seconds
PER_MACHINE = 8


@dataclass(frozen=True)
class Layout:
    """How devices share a model: `devices` = `tensor` * the number of copies of its attention.

    tensor    devices among which heads, dense layers and the vocabulary are divided
    expert    devices among which the experts are divided; whole experts, all_to_all
    """

    devices: int
    tensor: int = 1
    expert: int = 1

    @property
    def copies(self) -> int:
        return self.devices // self.tensor


def weights(config: Any) -> tuple[int, int]:
    """Return the number of parameters in experts and in everything else."""
    expert = 3 * config.hidden_size * config.moe_intermediate_size * config.num_experts
    heads = 2 * (config.num_attention_heads + config.num_key_value_heads) * config.head_dim
    attention = config.hidden_size * heads
    router = config.hidden_size * config.num_experts
    vocabulary = (1 if config.tie_word_embeddings else 2) * config.vocab_size
    layers = config.num_hidden_layers
    return layers * expert, layers * (attention + router) + vocabulary * config.hidden_size


def serving(config: Any, layout: Layout, texts: int, context: int) -> dict[str, float]:
    """Estimate one step of decoding for `texts` texts, each with `context` tokens cached.

    -> {"GB": memory of a device, "fits": 1 or 0, "MB sent": by a device in a step,
        "ms": time of the step, "tokens/s": of all devices together}
    """
    experts, others = weights(config)
    rows = -(-texts // layout.copies)  # texts per copy
    kv_heads = max(config.num_key_value_heads / layout.tensor, 1)
    per_token = 2 * config.num_hidden_layers * kv_heads * config.head_dim * BYTES
    weight_bytes = BYTES * (experts / layout.expert + others / layout.tensor)
    memory = weight_bytes + rows * context * per_token

    layers, size = config.num_hidden_layers, config.hidden_size * BYTES
    ring = 2 * (layout.tensor - 1) / layout.tensor
    reduced = layers * 2 * ring * size * rows  # all_reduce after attention and after experts
    away = (layout.expert - 1) / layout.expert
    routed = layers * 2 * away * config.num_experts_per_tok * size * rows / layout.tensor
    routed = routed if layout.expert > 1 else 0.0
    # The share of experts that at least one token picks, if all are equally likely
    wanted = 1 - (1 - config.num_experts_per_tok / config.num_experts) ** texts
    read = BYTES * (wanted * experts / layout.expert + others / layout.tensor)
    read += rows * context * per_token
    seconds = read / READ
    for size_sent, width, starts in ((reduced, layout.tensor, 2), (routed, layout.expert, 2)):
        where = "inside" if width <= PER_MACHINE else "between"
        if width > 1:
            seconds += size_sent / LINK[where] + layers * starts * START[where]
    speed = {"ms": 1000 * seconds, "tokens/s": texts / seconds}
    sizes = {"GB": memory / GB, "MB sent": (reduced + routed) / 1e6}
    return {**sizes, "fits": float(memory < MEMORY), **speed}


def training(config: Any, devices: int, sharded: int) -> dict[str, float]:
    """Estimate data parallel training with AdamW.

    A weight takes 2 bytes, a gradient 2, the float32 weight and its two moments 12.

    sharded    0: everything on every device; 1: the 12 bytes divided; 2: the gradient as well;
               3: the weight, too
    """
    total = sum(weights(config))
    parts = [2, 2, 12]  # weight, gradient, optimizer
    for number in range(sharded):
        parts[2 - number] /= devices
    way = (devices - 1) / devices * BYTES * total
    sent = way * (3 if sharded == 3 else 2)  # 3: the weights once more, for backward
    where = "inside" if devices <= PER_MACHINE else "between"
    return {"GB": sum(parts) * total / GB, "fits": float(sum(parts) * total < MEMORY),
            "GB sent": sent / GB, "s for that": sent / LINK[where]}  # fmt: skip


def busy(stages: list[list[tuple[str, int]]], backward: int = 2) -> Tensor:
    """Simulate a pipeline: (stages, time), 0 idle, i + 1 for the forward of micro-batch i,
    -(i + 1) for its backward, which takes `backward` units of time.

    Errors: ValueError for a schedule in which no stage can go on
    """
    import torch

    done: dict[tuple[str, int, int], int] = {}  # {(direction, micro-batch, stage): end}
    clock, places, rows = [0] * len(stages), [0] * len(stages), [[] for _ in stages]
    while any(place < len(stage) for place, stage in zip(places, stages, strict=True)):
        moved = False
        for number, stage in enumerate(stages):
            if places[number] == len(stage):
                continue
            what, micro = stage[places[number]]
            needs = [("F", micro, number - 1)] if what == "F" and number else []
            if what == "B":
                last = number == len(stages) - 1
                needs = [("F", micro, number) if last else ("B", micro, number + 1)]
            if any(need not in done for need in needs):
                continue
            start = max([clock[number], *(done[need] for need in needs)])
            length = 1 if what == "F" else backward
            rows[number] += [0] * (start - clock[number])
            rows[number] += [(micro + 1) * (1 if what == "F" else -1)] * length
            clock[number] = done[what, micro, number] = start + length
            places[number], moved = places[number] + 1, True
        if not moved:
            raise ValueError("no stage of the pipeline can go on with this schedule")
    longest = max(clock)
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows])
