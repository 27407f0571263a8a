"""Tiny random models, each twice: ours and the same weights in `transformers`.

Norm weights are random, head_dim is not hidden_size / heads, KV heads are fewer than query
heads, and there are at least two layers: a fresh model of `transformers` has every norm
weight at 1, and then several wrong models give the same numbers.
"""

import dataclasses
import json
from itertools import accumulate

import torch
import transformers
from safetensors.torch import save_file

from solutions.config import Qwen3Config
from solutions.decoder import Qwen3ForCausalLM
from solutions.generation import KVCache

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
DENSE = Qwen3Config(
    vocab_size=67,
    hidden_size=24,
    intermediate_size=40,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=10,
    rope_theta=1e4,
    max_position_embeddings=64,
    tie_word_embeddings=True,
)
MOE = dataclasses.replace(
    DENSE,
    num_hidden_layers=4,
    tie_word_embeddings=False,
    num_experts=6,
    num_experts_per_tok=2,
    moe_intermediate_size=14,
    norm_topk_prob=True,
    mlp_only_layers=(1,),
    router_aux_loss_coef=0.3,
)
CONFIGS = {
    "dense": DENSE,
    "dense-untied-bias": dataclasses.replace(
        DENSE, tie_word_embeddings=False, attention_bias=True
    ),
    "moe": MOE,
    "moe-raw-weights-tied": dataclasses.replace(
        MOE, norm_topk_prob=False, num_experts_per_tok=3, tie_word_embeddings=True
    ),
    # sizes for which torch multiplies all experts' matrices in one call
    "moe-whole-lines": dataclasses.replace(MOE, moe_intermediate_size=16),
    "moe-every-second": dataclasses.replace(MOE, decoder_sparse_step=2, mlp_only_layers=()),
}


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randomise(model: torch.nn.Module, seed: int = 0) -> None:
    """Draw weights that separate wrong models; norm weights are around 1, never 1."""
    generator = rng(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.4 * noise if "norm" in name else 0.2 * noise)


def ours(config: Qwen3Config, seed: int = 0) -> Qwen3ForCausalLM:
    model = Qwen3ForCausalLM(config)
    randomise(model, seed)
    return model.eval()


def save(model: Qwen3ForCausalLM, folder) -> None:
    """Our model as a folder in the layout of the hub."""
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(model.config.to_dict()))


def load_hf(folder, dtype=torch.float32):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=dtype,
        attn_implementation="eager",
        experts_implementation="eager",
        output_loading_info=True,
    )
    assert not any(info.values()), info
    return model.eval()


def tokens(batch: int, length: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(DENSE.vocab_size, (batch, length), generator=rng(seed))


def left_padded(lengths: tuple[int, ...], seed: int = 2):
    """input_ids and attention_mask of prompts with these lengths, padded on the left."""
    width = max(lengths)
    mask = torch.tensor([[0] * (width - n) + [1] * n for n in lengths])
    return tokens(len(lengths), width, seed) * mask, mask


def positions(mask: torch.Tensor) -> torch.Tensor:
    return (mask.cumsum(-1) - 1).clamp(min=0)


@torch.no_grad()
def chunks(model, ids, sizes, mask=None) -> torch.Tensor:
    """Return the logits of a prompt that the model reads piece by piece with a cache."""
    cache, start, found = KVCache(model.config.num_hidden_layers, ids.size(1)), 0, []
    for end in accumulate(sizes):
        seen = None if mask is None else mask[:, :end]
        found.append(model(ids[:, start:end], seen, cache))
        start = end
    return torch.cat(found, dim=1)


@torch.no_grad()
def hf_chunks(model, ids, sizes, mask=None) -> torch.Tensor:
    """The same for a model of `transformers`"""
    mask = torch.ones_like(ids) if mask is None else mask
    memory, start, found = None, 0, []
    for end in accumulate(sizes):
        out = model(
            ids[:, start:end],
            attention_mask=mask[:, :end],
            position_ids=positions(mask)[:, start:end],
            past_key_values=memory,
            use_cache=True,
        )
        found.append(out.logits)
        memory, start = out.past_key_values, end
    return torch.cat(found, dim=1)
