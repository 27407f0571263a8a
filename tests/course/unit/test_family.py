"""The table of the wider family: consistent in itself, and with our own configs."""

import re

import pytest

from labkit.learner.figures.family import COLUMNS, MODELS, Model, Table, family
from solutions.config import PRESETS
from solutions.decoder import count_parameters


@pytest.mark.parametrize("name", PRESETS)
def test_qwen_rows_say_what_our_configs_say(name):
    (model,), config = family(name=name), PRESETS[name]
    shape = (config.num_hidden_layers, config.hidden_size, config.num_attention_heads)
    assert (model.layers, model.width, model.heads) == shape
    assert model.kv_heads == config.num_key_value_heads
    experts = f"{config.num_experts_per_tok} of {config.num_experts}"
    assert model.experts == (experts if config.num_experts else "")
    total, active = count_parameters(config)
    assert total / 1e9 == pytest.approx(model.billions, rel=0.02)
    assert active / 1e9 == pytest.approx(model.active, rel=0.02)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_rows_are_consistent(model):
    kinds = {1: "MQA", model.heads: "MHA", None: "MLA"}
    assert model.attention == kinds.get(model.kv_heads, "GQA")
    assert model.kv_heads is None or model.heads % model.kv_heads == 0
    assert model.placement in ("post", "pre", "sandwich", "output", "parallel")
    assert model.norm in ("LayerNorm", "RMSNorm")
    assert (model.active < model.billions) == bool(model.experts)
    arxiv = re.fullmatch(r"(\d\d)\d\d\.\d{5}", model.source)
    assert arxiv or model.source.startswith("https://huggingface.co/")
    assert not arxiv or model.year == 2000 + int(arxiv[1])


def test_names_are_unique():
    assert len({model.name for model in MODELS}) == len(MODELS) >= 30


def test_filters_and_sorting():
    assert {m.name for m in family(attention="MLA")} == {"DeepSeek-V2", "DeepSeek-V3"}
    assert all(m.layers > 90 for m in family(layers=lambda n: n > 90))
    widths = [m.width for m in family(sort="-width")]
    assert widths == sorted(widths, reverse=True)
    assert [m.kv_heads for m in family(sort="kv_heads")][-2:] == [None, None]
    assert len(family(kv_heads=lambda n: n < 1)) == 0 and len(family()) == len(MODELS)
    assert [m.year for m in family()] == sorted(m.year for m in MODELS)


@pytest.mark.parametrize("asked", [{"size": 7}, {"sort": "size"}, {"sort": "-size"}])
def test_an_unknown_column_is_named(asked):
    with pytest.raises(ValueError, match="no column 'size'; there are name, year"):
        family(**asked)


def test_the_table_as_html_and_text():
    odd = ("<b>", *[""] * (len(COLUMNS) - 2), 'https://x"><script>')
    page = Table([Model(*odd)])._repr_html_()
    assert "<b>" not in page and "<script>" not in page and "&lt;b&gt;" in page
    assert "https://arxiv.org/abs/2505.09388" in family(name="Qwen3-4B")._repr_html_()
    lines = repr(family(name="Qwen3-4B")).splitlines()
    assert len(lines) == 2 and lines[0].startswith("name") and "QK-Norm" in lines[1]
