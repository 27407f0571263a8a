"""A checkpoint that answers through the package's own decoder.

This module is laid into the package under test, so `.decoder` is the learner's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def reply(
    config: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    prompt_ids: Sequence[int],
    seed: int,
    **settings: Any,
) -> list[int]:
    """Return the tokens that follow the prompt; settings are those of `generate`."""
    from .config import Qwen3Config
    from .decoder import Qwen3ForCausalLM
    from .generation import generate

    model = Qwen3ForCausalLM(Qwen3Config.from_dict(config)).eval()
    model.load_state_dict(weights, strict=True)
    prompt = torch.tensor([prompt_ids])  # (1, T)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(seed)
        output = generate(model, prompt, generator=generator, **settings)
    return output[0, len(prompt_ids) :].tolist()
