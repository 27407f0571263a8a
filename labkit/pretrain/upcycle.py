"""A model that begins with a smaller one's weights: with experts, with more layers, or both.

Sources: sparse upcycling, Komatsuzaki et al. 2022, https://arxiv.org/abs/2212.05055 (whole
copies; here an expert gets some of the dense layer's units); layers that say nothing at first,
Wu et al. 2024, https://arxiv.org/abs/2401.02415
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

# what may differ between a dense model and the mixture that begins with it
MIXTURE = {
    "model_type", "num_experts", "num_experts_per_tok", "moe_intermediate_size",
    "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers", "router_aux_loss_coef",
}  # fmt: skip
# and between a model and a deeper one, whose layers with experts may lie further apart
DEEPER = {"num_hidden_layers", "decoder_sparse_step"}
LAYER = re.compile(r"(?<=layers\.)\d+")
TO_STREAM = ("o_proj.weight", "down_proj.weight")  # what a layer adds to the residual stream


def upcycled(
    smaller: Mapping[str, Tensor], larger: Mapping[str, Tensor], seed: int
) -> dict[str, Tensor]:
    """The weights of `smaller` under the names of `larger`; routers stay as they are there.

    Experts get units of the dense layer, drawn by chance: all units are given out before one
    is given out again. `down_proj` is multiplied so that the mean of experts says, on
    average over experts, what the dense layer said (weights that sum to 1: norm_topk_prob).
    Layers that are more are copies of the one below and at first add nothing to the stream.

    Errors: a layer that has no counterpart (experts in `smaller` alone): KeyError
    """
    weights, units = {}, {}
    generator = torch.Generator().manual_seed(seed)
    source = _sources(_layers(smaller), _layers(larger))
    for name, there in larger.items():
        layer = LAYER.search(name)
        new = int(layer[0]) if layer else 0
        old_name = LAYER.sub(lambda found: str(source[int(found[0])]), name)
        if old_name in smaller:
            weights[name] = smaller[old_name]
        elif ".experts." in name:
            mlp, rest = old_name.split("experts.")
            expert, projection = rest.split(".", 1)
            whole, side = smaller[mlp + projection], int("down_proj" in projection)
            size, every = there.size(side), whole.size(side)
            if new not in units:
                rounds = [torch.randperm(every, generator=generator) for _ in range(every)]
                units[new] = torch.cat(rounds)
            first = int(expert) * size
            part = whole.index_select(side, units[new][first : first + size])
            weights[name] = part * every / size if side else part
        elif name.endswith("mlp.gate.weight"):
            weights[name] = there  # a router
        else:
            raise KeyError(name)
        if new and source[new] == source[new - 1] and name.endswith(TO_STREAM):
            weights[name] = torch.zeros_like(there)
    return weights


def _layers(weights: Mapping[str, Tensor]) -> int:
    return 1 + max(int(found[0]) for name in weights if (found := LAYER.search(name)))


def _sources(smaller: int, larger: int) -> list[int]:
    """For every layer of the larger model, the one that it begins as, evenly spread."""
    return [layer * smaller // larger for layer in range(larger)]
