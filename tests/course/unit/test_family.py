"""The table of the wider family: consistent in itself, with our configs, and with published
numbers of parameters."""

import math
import re
from dataclasses import astuple, fields, replace

import pytest

from labkit.learner.figures.family import COLUMNS, MODELS, Model, compare, find_model, table
from solutions.config import PRESETS
from solutions.decoder import count_parameters

NAMES = {*COLUMNS, *(field.name for field in fields(Model))}
NOT_STATED = {  # look for a new "?"; delete what has been found
    "Gopher": {"activation", "tied"},
    "Chinchilla": {"activation", "tied"},
    "LaMDA": {"norm", "placement", "tied"},
    "MT-NLG": {"norm", "placement", "position", "activation", "tied"},
    "Jurassic-1": {"tied"},
}


def test_qwen_rows_are_those_of_our_configs():
    for name, config in PRESETS.items():
        model = find_model(name)
        sizes = (model.layers, model.width, model.heads, model.kv_heads, model.head_dim)
        experts = f"{config.num_experts_per_tok} of {config.num_experts}"
        assert model.experts == (experts if config.num_experts else ""), name
        assert sizes == (
            config.num_hidden_layers,
            config.hidden_size,
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
        ), name
        total, active = count_parameters(config)
        assert total / 1e9 == pytest.approx(model.billions, rel=0.02), name
        assert active / 1e9 == pytest.approx(model.active, rel=0.02), name
        cached = config.num_hidden_layers * 2 * config.num_key_value_heads * config.head_dim
        assert model.kv_bytes == 2 * cached, name


def test_rows_are_consistent():
    for model in MODELS:
        assert model.category in ("causal", "prefix", "encoder-decoder"), model.name
        kinds = {1: "MQA", model.heads: "MHA", None: "MLA", "?": "?"}
        assert model.attention == kinds.get(model.kv_heads, "GQA"), model.name
        assert model.kv_heads in (None, "?") or model.heads % model.kv_heads == 0, model.name
        assert (model.kv_heads is None) == (model.kv_latent is not None), model.name
        assert model.placement in ("post", "pre", "sandwich", "output", "parallel", "?")
        assert model.norm in ("LayerNorm", "RMSNorm", "?") and model.tied in ("yes", "no", "?")
        sparse = {model.active < model.billions, bool(model.experts), bool(model.expert_inner)}
        assert len(sparse) == 1, model.name
        unknown = {name for name in NAMES if getattr(model, name) == "?"}
        assert unknown == NOT_STATED.get(model.name, set()), model.name
        arxiv = re.fullmatch(r"(\d\d)\d\d\.\d{5}", model.source)
        pages = ("https://huggingface.co/", "https://www.ai21.com/")
        assert arxiv or model.source.startswith(pages), model.name
        assert not arxiv or model.year == 2000 + int(arxiv[1]), model.name


def test_every_model_is_listed_once():
    names = [model.name for model in MODELS]
    assert len(set(names)) == len(names)
    assert {m.name for m in MODELS if m.category == "prefix"} == {"GLM-130B"}
    assert [m.year for m in MODELS] == sorted(m.year for m in MODELS)
    assert {m.attention for m in MODELS} == {"MHA", "MQA", "GQA", "MLA"}


def test_the_cache_follows_from_a_row():
    v3, hybrid = find_model("DeepSeek V3"), find_model("Qwen3.5-9B")
    assert v3.kv_bytes == 2 * 61 * (512 + 64) and v3.active_share == 37 / 671
    stateful = int(hybrid.state.split()[0])
    attending = hybrid.layers - stateful
    assert hybrid.kv_bytes == 2 * attending * 2 * hybrid.kv_heads * hybrid.head_dim
    unstated = replace(find_model("Qwen3-8B"), kv_heads="?")
    assert unstated.attention == "?" and math.isnan(unstated.kv_bytes)
    rows = {row[0]: row[1:] for row in compare("MT-NLG").rows}
    assert rows["norm"] == rows["placement"] == ["?"]


def test_an_unknown_name_is_refused_with_the_nearest():
    for name, nearest in (
        ("qwen-3-0.7b", "Qwen3-0.6B"),
        ("lama-3.2-1b", "Llama-3.2-1B"),
        ("deepseek v4", "DeepSeek-V2"),
    ):
        message = f"no model {name!r} in the table of the family; the nearest: .*{nearest}"
        with pytest.raises(ValueError, match=message):
            compare("Qwen3-0.6B", name)


def test_the_table_as_text_and_html():
    beside = compare("qwen3-0.6b", "LLAMA 3.2 1b", "mt-nlg")
    assert beside.rows[0] == ["", "Qwen3-0.6B", "Llama-3.2-1B", "MT-NLG"]
    lines = [re.split(r" {2,}", line) for line in repr(beside).splitlines()]
    rows = {name: values for name, *values in lines}
    assert rows["KV a token"] == ["112 KiB", "32 KiB", "8400 KiB"]
    assert rows["norm"] == ["RMSNorm", "RMSNorm", "?"]
    assert "experts" not in rows  # none of the three has any
    page = beside._repr_html_()
    assert "<td>28</td>" in page and "<td>causal</td>" in page
    odd = replace(MODELS[0], name="<b>", extra="<i>", source='https://x"><script>')
    page = table([odd])._repr_html_()
    assert "<i>" not in page and "<script>" not in page and "&lt;b&gt;" in page
    qwen = table([find_model("Qwen3-4B")])
    assert "https://arxiv.org/abs/2505.09388" in qwen._repr_html_()
    lines = repr(qwen).splitlines()
    assert len(lines) == 2 and lines[0].startswith("name") and "QK-Norm" in lines[1]
    assert len(astuple(odd)) > len(COLUMNS) == len(lines[0].split())
