"""A mixture that begins with a dense model's weights: sparse upcycling.

Source: Komatsuzaki et al. 2022, https://arxiv.org/abs/2212.05055 (whole copies; here an expert
gets some of the dense layer's units)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

# what may differ between a dense model and the mixture that begins with it
MIXTURE = {
    "model_type", "num_experts", "num_experts_per_tok", "moe_intermediate_size",
    "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers", "router_aux_loss_coef",
}  # fmt: skip


def upcycled(
    dense: Mapping[str, Tensor], mixture: Mapping[str, Tensor], seed: int
) -> dict[str, Tensor]:
    """The weights of `dense` under the names of `mixture`; routers stay as they are there.

    Experts get units of the dense layer, drawn by chance: all units are given out before one
    is given out again. `down_proj` is multiplied so that the mean of experts says, on
    average over experts, what the dense layer said (weights that sum to 1: norm_topk_prob).
    """
    weights, units = {}, {}
    generator = torch.Generator().manual_seed(seed)
    for name, there in mixture.items():
        if name in dense:
            weights[name] = dense[name]
        elif ".experts." not in name:
            weights[name] = there  # a router
        else:
            layer, rest = name.split("experts.")
            expert, projection = rest.split(".", 1)
            whole, side = dense[layer + projection], int("down_proj" in projection)
            size, every = there.size(side), whole.size(side)
            if layer not in units:
                rounds = [torch.randperm(every, generator=generator) for _ in range(every)]
                units[layer] = torch.cat(rounds)
            first = int(expert) * size
            part = whole.index_select(side, units[layer][first : first + size])
            weights[name] = part * every / size if side else part
    return weights
