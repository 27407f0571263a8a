"""config.json: every published form is read, everything else is refused by name."""

import dataclasses
import json

import oracle
import pytest
import transformers

from solutions.config import PRESETS, Qwen3Config

# https://huggingface.co/Qwen/Qwen3-0.6B/blob/main/config.json
DENSE = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu",
    "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151645, "head_dim": 128, "hidden_size": 1024, "initializer_range": 0.02,
    "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28,
    "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000,
    "sliding_window": None, "use_sliding_window": False, "tie_word_embeddings": True,
    "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": True,
    "vocab_size": 151936,
}  # fmt: skip
# https://huggingface.co/Qwen/Qwen3-30B-A3B/blob/main/config.json
MOE = {
    **DENSE,
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
    "decoder_sparse_step": 1, "hidden_size": 2048, "intermediate_size": 6144,
    "max_window_layers": 48, "mlp_only_layers": [], "moe_intermediate_size": 768,
    "norm_topk_prob": True, "num_attention_heads": 32, "num_experts": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4,
    "output_router_logits": False, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001,
    "tie_word_embeddings": False,
}  # fmt: skip


def test_published_forms():
    for values, name in ((DENSE, "Qwen3-0.6B"), (MOE, "Qwen3-30B-A3B")):
        assert Qwen3Config.from_dict(values) == PRESETS[name]
        newer = values | {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}
        del newer["rope_theta"], newer["rope_scaling"]  # as transformers 5 writes them
        if "num_experts" in newer:
            newer["num_local_experts"] = newer.pop("num_experts")
        assert Qwen3Config.from_dict(newer) == PRESETS[name]


def test_there_and_back(tmp_path):
    for name, config in (PRESETS | oracle.CONFIGS).items():
        assert Qwen3Config.from_dict(config.to_dict()) == config, name
        (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
        assert Qwen3Config.from_file(tmp_path) == config, name
        assert Qwen3Config.from_file(tmp_path / "config.json") == config, name
        there = transformers.AutoConfig.from_pretrained(tmp_path)
        assert there.rope_parameters["rope_theta"] == config.rope_theta, name
        there.save_pretrained(tmp_path / "there")
        assert Qwen3Config.from_file(tmp_path / "there") == config, name


def test_a_config_is_a_value():
    assert hash(oracle.MOE) == hash(dataclasses.replace(oracle.MOE, mlp_only_layers=[1]))
    with pytest.raises(dataclasses.FrozenInstanceError):
        oracle.MOE.hidden_size = 3


def test_refuses():
    for values, change, message in (
        (DENSE, {"model_type": "llama"}, "'llama'; this course builds qwen3 or qwen3_moe"),
        (DENSE, {"model_type": None}, "model_type is None"),
        (DENSE, {"architectures": ["Qwen3ForSequenceClassification"]}, "Qwen3ForSequenceClas"),
        (DENSE, {"architectures": ["Qwen3MoeForCausalLM"]}, "expected 'Qwen3ForCausalLM'"),
        (DENSE, {"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling is .*yarn"),
        (DENSE, {"rope_parameters": {"rope_type": "yarn"}}, "rope_type is 'yarn'"),
        (DENSE, {"use_sliding_window": True}, "use_sliding_window is True"),
        (DENSE, {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        (DENSE, {"attention_dropout": 0.1}, "attention_dropout is 0.1"),
        (DENSE, {"quantization_config": {"bits": 4}}, "quantization_config"),
        (DENSE, {"head_dim": None}, "the config lacks head_dim"),
        (DENSE, {"head_dim": 127}, "head_dim is 127"),
        (DENSE, {"rope_theta": None}, "the config lacks rope_theta"),
        (DENSE, {"hidden_size": 0}, "hidden_size is 0"),
        (DENSE, {"hidden_size": "1024"}, "hidden_size is '1024'"),
        (DENSE, {"num_hidden_layers": 2.5}, "num_hidden_layers is 2.5"),
        (DENSE, {"num_key_value_heads": 3}, "no multiple of num_key_value_heads 3"),
        (MOE, {"num_experts": None}, "the config lacks num_experts"),
        (MOE, {"norm_topk_prob": "yes"}, "norm_topk_prob is 'yes'; expected type bool"),
        (MOE, {"num_experts_per_tok": 129}, "num_experts_per_tok is 129"),
        (MOE, {"num_experts_per_tok": 0}, "num_experts_per_tok is 0"),
        (MOE, {"decoder_sparse_step": 0}, "decoder_sparse_step is 0"),
        (MOE, {"moe_intermediate_size": -1}, "moe_intermediate_size is -1"),
    ):
        with pytest.raises(ValueError, match=message):
            Qwen3Config.from_dict(values | change)


def test_refuses_files(tmp_path):
    path = tmp_path / "config.json"
    for text, message in (
        ("{", "not valid JSON"),
        ("[1]", "a JSON list"),
        ('{"model_type": "t5"}', "json: .*'t5'"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            Qwen3Config.from_file(tmp_path)
