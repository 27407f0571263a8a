"""config.json: every published form is read, everything else is refused by name."""

import dataclasses
import json

import oracle
import pytest
import transformers

from solutions.config import PRESETS, Qwen3Config

# https://huggingface.co/Qwen/Qwen3-0.6B/blob/main/config.json
DENSE = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "max_window_layers": 28,
    "model_type": "qwen3",
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.51.0",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
# https://huggingface.co/Qwen/Qwen3-30B-A3B/blob/main/config.json
MOE = {
    **DENSE,
    "architectures": ["Qwen3MoeForCausalLM"],
    "decoder_sparse_step": 1,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "max_window_layers": 48,
    "mlp_only_layers": [],
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "output_router_logits": False,
    "rope_theta": 1000000.0,
    "router_aux_loss_coef": 0.001,
    "tie_word_embeddings": False,
}


def without(values, *names):
    return {key: value for key, value in values.items() if key not in names}


def test_published_forms():
    assert Qwen3Config.from_dict(DENSE) == PRESETS["Qwen3-0.6B"]
    assert Qwen3Config.from_dict(MOE) == PRESETS["Qwen3-30B-A3B"]


@pytest.mark.parametrize(("values", "name"), [(DENSE, "0.6B"), (MOE, "30B-A3B")])
def test_transformers_5_form(values, name):
    rope = {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}
    new = without(values, "rope_theta", "rope_scaling") | rope
    if "num_experts" in new:
        new["num_local_experts"] = new.pop("num_experts")
    assert Qwen3Config.from_dict(new) == PRESETS[f"Qwen3-{name}"]


@pytest.mark.parametrize("name", PRESETS)
def test_there_and_back(name, tmp_path):
    config = PRESETS[name]
    assert Qwen3Config.from_dict(config.to_dict()) == config
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    assert Qwen3Config.from_file(tmp_path) == config
    assert Qwen3Config.from_file(tmp_path / "config.json") == config
    there = transformers.AutoConfig.from_pretrained(tmp_path)
    assert there.rope_parameters["rope_theta"] == 1e6
    there.save_pretrained(tmp_path / "there")
    assert Qwen3Config.from_file(tmp_path / "there") == config


def test_a_config_is_a_value():
    assert hash(oracle.MOE) == hash(dataclasses.replace(oracle.MOE, mlp_only_layers=[1]))
    with pytest.raises(dataclasses.FrozenInstanceError):
        oracle.MOE.hidden_size = 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"model_type": "llama"},
            "model_type is 'llama'; this course builds qwen3 or qwen3_moe",
        ),
        ({"model_type": "qwen2"}, "model_type is 'qwen2'"),
        ({"model_type": None}, "model_type is None"),
        ({"architectures": ["Qwen3ForSequenceClassification"]}, "Qwen3ForSequenceClassif"),
        ({"architectures": ["Qwen3MoeForCausalLM"]}, "expected 'Qwen3ForCausalLM'"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_scaling is .*yarn"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6}}, "rope_type is 'yarn'"),
        ({"use_sliding_window": True}, "use_sliding_window is True"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"attention_dropout": 0.1}, "attention_dropout is 0.1"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"head_dim": None}, "the config lacks head_dim"),
        ({"head_dim": 127}, "head_dim is 127"),
        ({"rope_theta": None}, "the config lacks rope_theta"),
        ({"hidden_size": 0}, "hidden_size is 0"),
        ({"hidden_size": "1024"}, "hidden_size is '1024'"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers is 2.5"),
        ({"num_key_value_heads": 3}, "no multiple of num_key_value_heads 3"),
    ],
)
def test_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        Qwen3Config.from_dict(DENSE | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_experts": None}, "the config lacks num_experts"),
        ({"norm_topk_prob": "yes"}, "norm_topk_prob is 'yes'; expected type bool"),
        ({"num_experts_per_tok": 129}, "num_experts_per_tok is 129"),
        ({"num_experts_per_tok": 0}, "num_experts_per_tok is 0"),
        ({"decoder_sparse_step": 0}, "decoder_sparse_step is 0"),
        ({"moe_intermediate_size": -1}, "moe_intermediate_size is -1"),
    ],
)
def test_refuses_moe(change, message):
    with pytest.raises(ValueError, match=message):
        Qwen3Config.from_dict(MOE | change)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not valid JSON"), ("[1]", "a JSON list"), ('{"model_type": "t5"}', "json: .*'t5'")],
)
def test_refuses_files(text, message, tmp_path):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        Qwen3Config.from_file(tmp_path)
