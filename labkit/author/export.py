"""Writing a model down as a program, for the edition that holds no reference.

Only the course itself can do this: it needs solutions/. labkit/model/program.py reads it.
"""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor, nn

import solutions
from labkit.model import checkpoint
from labkit.model.inspect import attention_recorded
from labkit.model.program import FILE
from solutions import decoder


class _ExportCache:
    """A cache that begins with what it is given and keeps what is new apart."""

    def __init__(self, past: Tensor):
        self.past, self.added = past, []  # (L, 2, B, K, S - T, D)
        self.length = past.size(4)

    def update(self, layer_idx: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        self.added.append(torch.stack((key, value)))
        held = self.past[layer_idx]
        return torch.cat((held[0], key), dim=2), torch.cat((held[1], value), dim=2)


class _ExportWrapper(nn.Module):
    """The decoder with all that a Program needs handed in and out as tensors."""

    def __init__(self, whole: nn.Module):
        super().__init__()
        self.model, self.lm_head = whole.model, whole.lm_head

    def forward(self, input_ids: Tensor, attention_mask: Tensor, past: Tensor):
        cache = _ExportCache(past)
        with attention_recorded(self) as weights:
            hidden_states, _ = self.model(input_ids, attention_mask, cache)
        logits = self.lm_head(hidden_states)  # (B, T, V)
        return logits, torch.stack(cache.added), torch.stack(weights)


def write_program(folder: Path, target: Path) -> None:
    """Write the program of a dense checkpoint into a folder, in float32, for any B, T and S."""
    whole = checkpoint.load(folder, solutions, torch.float32)
    if whole.config.num_experts:
        raise ValueError(
            f"{folder.name} chooses experts token by token; only a dense model can"
        )
    config, any_size = whole.config, torch.export.Dim.DYNAMIC
    batch, new, cached = 3, 7, 5  # sizes to trace with; none may be 0, 1 or equal
    ids = torch.zeros(batch, new, dtype=torch.long)
    mask = torch.ones(batch, cached + new, dtype=torch.long)
    heads = (config.num_key_value_heads, cached, config.head_dim)
    past = torch.zeros(config.num_hidden_layers, 2, batch, *heads)
    sizes = ({0: any_size, 1: any_size}, {0: any_size, 1: any_size}, {2: any_size, 4: any_size})
    checks = mock.patch.object(decoder, "check_inputs")  # they read values, not only sizes
    with checks, torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("torch").setLevel(logging.ERROR)
        program = torch.export.export(
            _ExportWrapper(whole), (ids, mask, past), dynamic_shapes=sizes
        )
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)  # it quotes the reference, line by line
        torch.export.save(program, target / FILE)
