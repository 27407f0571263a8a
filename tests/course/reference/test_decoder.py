"""Lab 06: the modules of the decoder, its size, and the inputs that it refuses."""

import dataclasses

import oracle
import pytest
import torch

from solutions.config import PRESETS
from solutions.decoder import Qwen3ForCausalLM, count_parameters, init_weights
from solutions.generation import KVCache
from solutions.moe import Qwen3MoeSparseMoeBlock

PUBLISHED = {  # billions: total, active or without embeddings, from the model cards
    "Qwen3-0.6B": (0.596, 0.44),
    "Qwen3-1.7B": (1.72, 1.4),
    "Qwen3-4B": (4.02, 3.6),
    "Qwen3-8B": (8.19, 6.95),
    "Qwen3-14B": (14.77, 13.2),
    "Qwen3-32B": (32.76, 31.2),
    "Qwen3-30B-A3B": (30.53, 3.35),
    "Qwen3-235B-A22B": (235.09, 22.2),
}


def test_presets_have_the_published_size():
    assert PRESETS.keys() == PUBLISHED.keys()
    for name, config in PRESETS.items():
        total, active = count_parameters(config)
        size, second = PUBLISHED[name]
        assert total / 1e9 == pytest.approx(size, abs=0.006), name
        if config.num_experts == 0:
            assert active == total
            copies = 1 if config.tie_word_embeddings else 2
            active -= copies * config.vocab_size * config.hidden_size
        assert active / 1e9 == pytest.approx(second, rel=0.02), name


def test_count_is_what_is_built_and_tied_is_one_parameter():
    for name, config in oracle.CONFIGS.items():
        model = Qwen3ForCausalLM(config)
        total, active = count_parameters(config)
        assert total == sum(parameter.numel() for parameter in model.parameters()), name
        idle = config.num_experts - config.num_experts_per_tok
        blocks = [m for m in model.modules() if isinstance(m, Qwen3MoeSparseMoeBlock)]
        unused = sum(idle * sum(p.numel() for p in b.experts[0].parameters()) for b in blocks)
        assert active == total - unused, name
        model = model.to(torch.bfloat16)
        same = model.lm_head.weight is model.model.embed_tokens.weight
        assert same == config.tie_word_embeddings, name


@pytest.mark.parametrize(
    ("step", "listed", "expected"),
    [(1, (), [0, 1, 2, 3]), (2, (), [1, 3]), (3, (), [2]), (1, (0, 2), [1, 3]), (2, (3,), [1])],
)
def test_which_layers_have_experts(step, listed, expected):
    config = dataclasses.replace(oracle.MOE, decoder_sparse_step=step, mlp_only_layers=listed)
    model = Qwen3ForCausalLM(config)
    built = [layer.mlp for layer in model.model.layers]
    found = [i for i, mlp in enumerate(built) if isinstance(mlp, Qwen3MoeSparseMoeBlock)]
    assert found == expected
    logits, router_logits = model(oracle.tokens(2, 3), output_router_logits=True)
    assert logits.shape == (2, 3, config.vocab_size)
    assert [tuple(r.shape) for r in router_logits] == [(6, config.num_experts)] * len(expected)


def test_a_dense_model_has_no_router_logits():
    model = oracle.ours(oracle.DENSE)
    logits, router_logits = model(oracle.tokens(1, 3), output_router_logits=True)
    assert logits.shape == (1, 3, 67) and router_logits == []


def test_fresh_weights():
    model = Qwen3ForCausalLM(dataclasses.replace(oracle.DENSE, attention_bias=True))
    draws = []
    for _ in range(2):
        init_weights(model, 0.02, oracle.rng(5))
        draws.append({k: v.clone() for k, v in model.state_dict().items()})
    for name, value in draws[0].items():
        assert torch.equal(value, draws[1][name])
        if value.dim() == 2:
            assert value.std().item() == pytest.approx(0.02, rel=0.2)
        else:
            assert (value == (1.0 if "norm" in name else 0.0)).all()


def test_refuses():
    model, none = oracle.ours(oracle.DENSE), torch.zeros(0, dtype=torch.long)
    for ids, mask, message in (
        (none.view(1, 0), None, "empty prompt"),
        (none.view(0, 4), None, "at least one of each"),
        (torch.zeros(4, dtype=torch.long), None, r"shape \(4,\)"),
        (torch.tensor([[1, 67]]), None, "holds token 67; the vocabulary has 0 to 66"),
        (torch.tensor([[1, -1]]), None, "holds token -1"),
        (oracle.tokens(1, 65), None, "max_position_embeddings allows 64 tokens"),
        (oracle.tokens(2, 4), torch.ones(2, 3), r"shape \(2, 3\); expected \(2, 4\)"),
        (oracle.tokens(2, 4), torch.ones(1, 4), r"shape \(1, 4\); expected \(2, 4\)"),
    ):
        with pytest.raises(ValueError, match=message):
            model(ids, mask)
    cache = KVCache(3, 100)
    with torch.no_grad():
        model(oracle.tokens(2, 60), cache=cache)
        with pytest.raises(ValueError, match=r"position 64 \(60 tokens cached\)"):
            model(oracle.tokens(2, 5), cache=cache)
        with pytest.raises(ValueError, match=r"expected \(2, 61\)"):
            model(oracle.tokens(2, 1), torch.ones(2, 1), cache)
        with pytest.raises(ValueError, match="batch size 1; this cache holds 2"):
            model(oracle.tokens(1, 1), cache=cache)
        model(oracle.tokens(2, 4), cache=cache)  # the longest sequence that fits
    with pytest.raises(ValueError, match="room for 3 tokens, not for 4"):
        model(oracle.tokens(1, 4), cache=KVCache(3, 3))
