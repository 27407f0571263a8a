"""What the table of the wider family computes, against what `transformers` builds of the same
numbers: two layers of each kind of architecture, without memory."""

from dataclasses import replace

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

from labkit.learner.figures.family import find_model

OURS = {  # name of a config's field: its column
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "head_dim": "head_dim",
    "intermediate_size": "inner",
    "vocab_size": "vocab",
}
GPT = {"n_embd": "width", "n_layer": "layers", "n_head": "heads", "vocab_size": "vocab"}
FALCON = {"parallel_attn": True, "new_decoder_architecture": True}
LATENT = {"num_key_value_heads": 128, "head_dim": 64, "n_shared_experts": 1}
EXPERTS = {"intermediate_size": "expert_inner"}
T5 = {"d_model": "width", "d_kv": "head_dim", "d_ff": "inner", "num_heads": "heads"}
BUILT = {  # model: (kind, other names of fields, more fields)
    "GPT-2 XL": ("gpt2", {**GPT, "n_positions": "positions"}, {}),
    "StarCoder": ("gpt_bigcode", {**GPT, "n_positions": "positions"}, {"multi_query": True}),
    "OPT-175B": ("opt", {"ffn_dim": "inner", "word_embed_proj_dim": "width"}, {}),
    "BLOOM": ("bloom", {"n_layer": "layers", "n_head": "heads"}, {}),
    "MPT-30B": ("mpt", {"d_model": "width", "n_layers": "layers", "n_heads": "heads"}, {}),
    "Pythia-12B": ("gpt_neox", {}, {}),
    "Falcon-180B": ("falcon", {"num_kv_heads": "kv_heads"}, FALCON),
    "Gemma-7B": ("gemma", {}, {}),
    "DeepSeek-67B": ("llama", {}, {}),
    "Mixtral-8x7B": ("mixtral", EXPERTS, {"num_local_experts": 8}),
    "gpt-oss-120b": ("gpt_oss", EXPERTS, {"num_local_experts": 128}),
    "DeepSeek-V3": ("deepseek_v3", {"moe_intermediate_size": "expert_inner"}, LATENT),
    "T5-11B": ("t5", {**T5, "num_layers": "layers", "vocab_size": "vocab"}, {}),
}


def test_parameters_are_those_that_transformers_builds():
    for name, (kind, named, more) in BUILT.items():
        model = find_model(name)
        model = replace(model, layers=2, dense_layers=model.dense_layers and 1)
        fresh = transformers.CONFIG_MAPPING[kind]()
        fields = {field: getattr(model, column) for field, column in (OURS | named).items()}
        known = fresh.to_dict()
        fields = {key: value for key, value in fields.items() if value and key in known} | more
        if model.dense_layers:
            fields["first_k_dense_replace"] = model.dense_layers
        config = type(fresh)(**fields, tie_word_embeddings=model.tied == "yes")
        auto = AutoModelForSeq2SeqLM if kind == "t5" else AutoModelForCausalLM
        with torch.device("meta"):
            built = sum(p.numel() for p in auto.from_config(config).parameters())
        assert model.parameters == pytest.approx(built, rel=1e-3), name


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("Qwen3-Next-80B-A3B", transformers.Qwen3NextConfig()),
        ("Qwen3.5-9B", transformers.Qwen3_5TextConfig()),
        ("Qwen3.5-35B-A3B", transformers.Qwen3_5MoeTextConfig()),
    ],
)
def test_hybrid_rows_are_the_sizes_that_transformers_has_by_default(name, config):
    model = find_model(name)
    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(config)
    assert model.parameters == pytest.approx(
        sum(p.numel() for p in built.parameters()), rel=1e-3
    )
    stateful = [kind for kind in config.layer_types if kind == "linear_attention"]
    assert model.state.startswith(f"{len(stateful)} layers")
