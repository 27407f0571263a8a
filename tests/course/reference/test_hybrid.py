"""The hybrid layers and the decoder made of them, against transformers' Qwen3-Next."""

import pytest
import torch
from transformers import DynamicCache, Qwen3NextForCausalLM
from transformers import Qwen3NextConfig as TheirConfig

from solutions import hybrid
from solutions.config import Qwen3NextConfig
from solutions.hybrid_model import HybridCache
from solutions.hybrid_model import Qwen3NextForCausalLM as OurModel

SIZES = {
    "vocab_size": 53, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 8,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 8,
    "linear_value_head_dim": 10, "linear_conv_kernel_dim": 4,
}  # fmt: skip


DENSE = {"num_experts": 0, "mlp_only_layers": list(range(SIZES["num_hidden_layers"]))}
MIXTURE = {
    "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
    "shared_expert_intermediate_size": 20, "mlp_only_layers": [2],
}  # fmt: skip


def one_by_one(state):
    """Split transformers' tensors of all experts into one tensor per expert."""
    found = {}
    for name, tensor in state.items():
        path, _, last = name.rpartition(".experts.")
        parts = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}
        if last not in parts:
            found[name] = tensor
            continue
        for number, expert in enumerate(tensor):
            for part, weight in zip(parts[last], expert.chunk(len(parts[last])), strict=True):
                found[f"{path}.experts.{number}.{part}.weight"] = weight
    return found


@pytest.fixture(params=[(0, DENSE), (1, DENSE), (2, MIXTURE), (3, MIXTURE)])
def pair(request):
    """(theirs, ours): one random hybrid model of eight layers, norms and decays randomised."""
    seed, feed_forward = request.param
    torch.manual_seed(seed)
    rope = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25}
    config = TheirConfig(**SIZES, **feed_forward, rope_parameters=rope, initializer_range=0.1)
    config._attn_implementation = "eager"
    model = Qwen3NextForCausalLM(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name or "dt_bias" in name:
                weight.add_(0.3 * torch.randn_like(weight))
            if "gate.weight" in name:
                weight.copy_(torch.randn_like(weight))  # routers and the shared experts' gates
    layers = tuple(feed_forward["mlp_only_layers"])
    fields = {**feed_forward, "mlp_only_layers": layers}
    ours = OurModel(Qwen3NextConfig(**SIZES, **fields, rope_theta=1e4))
    ours.load_state_dict(one_by_one(model.state_dict()), strict=True)
    return model, ours


@torch.no_grad()
def test_logits_of_a_text_at_once(pair):
    model, ours = pair
    input_ids = torch.randint(SIZES["vocab_size"], (2, 70))  # more than one chunk of 64
    torch.testing.assert_close(ours(input_ids), model(input_ids).logits, rtol=0, atol=1e-4)


@torch.no_grad()
def test_logits_in_pieces_with_a_cache(pair):
    model, ours = pair
    input_ids = torch.randint(SIZES["vocab_size"], (2, 14))
    whole = ours(input_ids)
    their_cache, cache = DynamicCache(config=model.config), HybridCache(ours.config, 20)
    for start, end in ((0, 7), (7, 8), (8, 9), (9, 13), (13, 14)):
        piece = input_ids[:, start:end]
        right = model(piece, past_key_values=their_cache, use_cache=True).logits
        mine = ours(piece, cache)
        torch.testing.assert_close(mine, right, rtol=0, atol=1e-4)
        torch.testing.assert_close(mine, whole[:, start:end], rtol=0, atol=1e-4)


@torch.no_grad()
def test_logits_of_texts_with_padding_on_their_left(pair):
    model, ours = pair
    input_ids = torch.randint(SIZES["vocab_size"], (3, 12))
    mask = (torch.arange(12) >= torch.tensor([[0], [3], [8]])).long()
    places = (mask.cumsum(-1) - 1).clamp(min=0)
    right = model(input_ids, attention_mask=mask, position_ids=places).logits
    mine, cache = ours(input_ids, attention_mask=mask), HybridCache(ours.config, 12)
    steps = [
        ours(input_ids[:, a:b], cache, mask[:, :b]) for a, b in ((0, 9), (9, 10), (10, 12))
    ]
    alone = [
        ours(row[-int(n) :][None])[0] for row, n in zip(input_ids, mask.sum(1), strict=True)
    ]
    for text, real in enumerate(mask.bool()):
        for found in (mine, torch.cat(steps, dim=1)):
            torch.testing.assert_close(found[text, real], right[text, real], rtol=0, atol=1e-4)
        torch.testing.assert_close(mine[text, real], alone[text], rtol=0, atol=1e-4)


@torch.no_grad()
def test_decoding_with_a_window_is_reading_at_once():
    layers = ("sliding_attention", "linear_attention", "sliding_attention", "full_attention")
    sizes = {**SIZES, "num_hidden_layers": 4, "layer_types": layers, "sliding_window": 5}
    model = OurModel(Qwen3NextConfig(**sizes, initializer_range=0.2))
    input_ids = torch.randint(SIZES["vocab_size"], (2, 17))
    whole, cache = model(input_ids), HybridCache(model.config, 17)
    pieces = [model(input_ids[:, a:b], cache) for a, b in ((0, 8), (8, 9), (9, 12), (12, 17))]
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, rtol=0, atol=1e-4)
    assert all(key.size(2) == 4 for key, _ in cache.windows.values())


def rule_inputs(length, keys=2, values=6):
    shape = (2, length, keys, 8)
    query, key, value = (
        torch.randn(shape),
        torch.randn(shape),
        torch.randn(2, length, values, 5),
    )
    g, beta = -torch.rand(2, length, values).exp(), torch.rand(2, length, values)
    return query, key, value, g, beta


def test_chunks_have_the_gradients_of_single_tokens():
    inputs = [x.requires_grad_() for x in rule_inputs(23)]
    found = []
    for rule in (hybrid.gated_delta_rule, hybrid.chunk_gated_delta_rule):
        options = {} if rule is hybrid.gated_delta_rule else {"chunk_size": 8}
        output, state = rule(*inputs, **options)
        found.append(torch.autograd.grad(output.square().sum() + state.sum(), inputs))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("times", [1, 20, 60, 1000])
def test_a_strong_decay_overflows_nowhere(times):
    found = []
    query, key, value, g, beta = rule_inputs(130)
    inputs = [x.requires_grad_() for x in (query, key, value, times * g, beta)]
    for rule in (hybrid.chunk_gated_delta_rule, hybrid.gated_delta_rule):
        output, state = rule(*inputs)
        grads = torch.autograd.grad(output.square().sum() + state.sum(), inputs)
        found.append((output, state, *grads))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
