"""A finished model without its code, for editions that hold no reference.

`tinyllm build --learners` writes the shipped model down as a program (`torch.export`, see
labkit/author/export.py) beside its weights. It computes what the reference computes and can be
called, hooked and looked into; its source cannot be read.

Shapes: B batch, T new tokens, S cached + new tokens, E hidden_size, H query heads, K KV heads,
D head_dim, V vocab_size, L layers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tinyllm.config import Qwen3Config

FILE = "model.pt2"


class Program(nn.Module):
    """The program of a checkpoint folder; it is called like Qwen3ForCausalLM.

    A cache is asked for what it holds by appending nothing to it. Afterwards `attention`
    holds the weights (L, B, H, T, S) of the last call.

    Shapes: input_ids (B, T), attention_mask (B, S) -> logits (B, T, V)
    """

    def __init__(self, folder: Path, config: Any):
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, about its own future
            whole = torch.export.unflatten(torch.export.load(folder / FILE))
        self.config, self.attention = config, None
        self.model, self.lm_head = whole.model, whole.lm_head  # the names of the decoder
        self._run = [whole]  # in a list: not a module of its own

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, cache: Any = None
    ) -> Tensor:
        cached = 0 if cache is None else cache.length
        batch, new = input_ids.shape
        if attention_mask is None:
            attention_mask = input_ids.new_ones(batch, cached + new)
        past = self._held(batch, cache if cached else None)  # (L, 2, B, K, S - T, D)
        logits, added, self.attention = self._run[0](input_ids, attention_mask, past)
        if cache is not None:
            for layer_idx, (key, value) in enumerate(added):  # (B, K, T, D) each
                cache.update(layer_idx, key, value)
        return logits

    def _held(self, batch: int, cache: Any) -> Tensor:
        config = self.config
        layers, heads = config.num_hidden_layers, config.num_key_value_heads
        nothing = torch.zeros(batch, heads, 0, config.head_dim)
        if cache is None:
            return nothing.expand(layers, 2, -1, -1, -1, -1)
        held = [cache.update(layer_idx, nothing, nothing) for layer_idx in range(layers)]
        return torch.stack([torch.stack(pair) for pair in held])


def load_program(folder: Path) -> Program | None:
    """The program of a checkpoint folder, None where there is none."""
    if not (folder / FILE).is_file():
        return None
    return Program(folder, Qwen3Config.from_file(folder)).eval()


@torch.no_grad()
def generate(
    model: nn.Module,
    input_ids: Tensor,
    max_new_tokens: int,
    temperature: float = 0.0,
    top_k: None = None,
    top_p: None = None,
    eos_token_id: Sequence[int] = (),
    generator: torch.Generator | None = None,
    on_token: Callable[[Tensor], None] | None = None,
) -> Tensor:
    """Continue one text in the plainest way: no cache, draws by temperature alone.

    It stands in for lab 07, whose top_k and top_p it leaves out.

    Shapes: input_ids (1, T) -> (1, T + new)
    """
    for _ in range(max_new_tokens):
        logits = model(input_ids)[:, -1]  # (1, V)
        if temperature == 0:
            token = logits.argmax(dim=-1, keepdim=True)  # (1, 1)
        else:
            probs = (logits.float() / temperature).softmax(dim=-1)
            token = torch.multinomial(probs, 1, generator=generator)
        input_ids = torch.cat((input_ids, token), dim=1)
        if on_token is not None:
            on_token(token[:, 0])
        if int(token) in eos_token_id:
            break
    return input_ids
