"""The table of the wider family: consistent in itself, with our own configs, and with the
counts that its models' makers published."""

import re
from dataclasses import astuple, replace

import pytest

from labkit.learner.figures import family as room
from labkit.learner.figures.family import COLUMNS, MODELS, Table, compare, family
from solutions.config import PRESETS
from solutions.decoder import count_parameters

# what a survey of 25 models lists, and the four that it sets beside one another
SURVEYED = """
GPT-3, PanGu-alpha, OPT-175B, PaLM, BLOOM, MT-NLG, Gopher, Chinchilla, Galactica, LaMDA,
Jurassic-1, Llama-2-70B, Pythia-12B, Baichuan-2-13B, Qwen1.5-72B, InternLM2-20B, Falcon-180B,
MPT-30B, Mistral-7B, Gemma-7B, DeepSeek-67B, Yi-34B, YuLan-12B, GLM-130B, T5-11B,
Llama-3.1-405B, DeepSeek-V2, DeepSeek-V3
"""

NOT_STATED = {  # a new ? has to be looked for; one that was found goes
    "Gopher": {"activation", "tied"},
    "Chinchilla": {"activation", "tied"},
    "LaMDA": {"norm", "placement", "tied"},
    "MT-NLG": {"norm", "placement", "position", "activation", "tied"},
    "Jurassic-1": {"tied"},
}
# Published counts are rounded: half a unit of the last figure and 2.5 % are allowed for.
APART = {
    "Baichuan-2-13B": "13 is the size of the generation before, with half the vocabulary",
    "gpt-oss-120b": "its makers leave the input table out of the active ones",
}


def close(ours, published):
    unit = 10.0 ** -len(f"{published:.10f}".rstrip("0").split(".")[1])
    return ours / 1e9 == pytest.approx(published, rel=0.025, abs=0.025 * published + unit / 2)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_counts_are_the_published_ones(model):
    same = close(model.parameters, model.billions)
    same = same and close(model.active_parameters, model.active)
    assert same == (model.name not in APART)


@pytest.mark.parametrize("name", PRESETS)
def test_qwen_rows_say_what_our_configs_say(name):
    (model,), config = family(name=name), PRESETS[name]
    assert (model.layers, model.width, model.heads) == (
        config.num_hidden_layers,
        config.hidden_size,
        config.num_attention_heads,
    )
    assert (model.kv_heads, model.head_dim) == (config.num_key_value_heads, config.head_dim)
    experts = f"{config.num_experts_per_tok} of {config.num_experts}"
    assert model.experts == (experts if config.num_experts else "")
    total, active = count_parameters(config)
    assert total / 1e9 == pytest.approx(model.billions, rel=0.02)
    assert active / 1e9 == pytest.approx(model.active, rel=0.02)
    assert model.parameters == pytest.approx(total, rel=2e-3)
    assert model.active_parameters == pytest.approx(active, rel=2e-3)
    cached = config.num_hidden_layers * 2 * config.num_key_value_heads * config.head_dim
    assert model.kv_bytes == 2 * cached


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_rows_are_consistent(model):
    assert model.category in ("causal", "prefix", "encoder-decoder")
    kinds = {1: "MQA", model.heads: "MHA", None: "MLA", "?": "?"}
    assert model.attention == kinds.get(model.kv_heads, "GQA")
    assert model.kv_heads in (None, "?") or model.heads % model.kv_heads == 0
    assert (model.kv_heads is None) == (model.kv_latent is not None)
    assert model.placement in ("post", "pre", "sandwich", "output", "parallel", "?")
    assert model.norm in ("LayerNorm", "RMSNorm", "?") and model.tied in ("yes", "no", "?")
    assert (model.active < model.billions) == bool(model.experts) == bool(model.expert_inner)
    assert (model.positions is not None) == (model.position == "learned")
    unknown = {name for name in room.ALL if getattr(model, name) == "?"}
    assert unknown - {"parameters", "active_parameters", "active_share"} == NOT_STATED.get(
        model.name, set()
    )
    arxiv = re.fullmatch(r"(\d\d)\d\d\.\d{5}", model.source)
    assert arxiv or model.source.startswith(
        ("https://huggingface.co/", "https://www.ai21.com/")
    )
    assert not arxiv or model.year == 2000 + int(arxiv[1])


def test_all_are_there_once():
    names = [model.name for model in MODELS]
    assert len(set(names)) == len(names) and not set(re.split(r",\s+", SURVEYED.strip())) - set(
        names
    )
    assert {m.name for m in family(category="prefix")} == {"GLM-130B"}
    assert {m.attention for m in MODELS} == {"MHA", "MQA", "GQA", "MLA"}


def test_what_follows_from_a_row():
    gopher, v3 = compare("gopher", "DeepSeek V3")
    shorter = replace(gopher, position="RoPE")
    assert gopher.parameters - shorter.parameters == gopher.layers * gopher.width**2
    assert v3.kv_bytes == 2 * 61 * (512 + 64)
    one_less = replace(v3, dense_layers=4)
    expert = 3 * v3.width * v3.expert_inner
    lost = 257 * expert + 256 * v3.width - 3 * v3.width * v3.inner
    assert v3.parameters - one_less.parameters == lost
    assert v3.parameters - v3.active_parameters == 58 * 248 * expert


def test_filters_and_sorting():
    assert {m.name for m in family(attention="MLA")} == {"DeepSeek-V2", "DeepSeek-V3"}
    assert all(m.layers > 90 for m in family(layers=lambda n: n > 90))
    widths = [m.width for m in family(sort="-width")]
    assert widths == sorted(widths, reverse=True)
    assert {m.kv_heads for m in list(family(sort="kv_heads"))[-2:]} == {None}
    assert len(family(parameters=lambda n: n > 0)) == len(MODELS)
    assert len(family(kv_heads=lambda n: n < 1)) == 0 and len(family()) == len(MODELS)
    assert [m.year for m in family()] == sorted(m.year for m in MODELS)


@pytest.mark.parametrize("asked", [{"size": 7}, {"sort": "size"}, {"sort": "-size"}])
def test_an_unknown_column_is_named(asked):
    with pytest.raises(ValueError, match="no column 'size'; there are name, year"):
        family(**asked)


def test_side_by_side():
    table = compare("qwen3-0.6b", "LLAMA 3.2 1b", "mt-nlg")
    assert [m.name for m in table] == ["Qwen3-0.6B", "Llama-3.2-1B", "MT-NLG"]
    rows = {
        line.split("  ")[0]: re.split(r" {2,}", line)[1:] for line in repr(table).splitlines()
    }
    assert rows["KV a token"] == ["112 KiB", "32 KiB", "8400 KiB"]
    assert rows["norm"] == ["RMSNorm", "RMSNorm", "?"]
    assert "experts" not in rows  # none has any
    page = table._repr_html_()
    assert "<td><b>28</b></td>" in page and "<td>causal</td>" in page


def test_what_follows_from_a_size_that_nobody_states_is_not_known():
    known = next(model for model in MODELS if model.name == "Qwen3-8B")
    unsaid = replace(known, inner="?", kv_heads="?")
    counted = (unsaid.parameters, unsaid.active_share, unsaid.kv_bytes, unsaid.attention)
    assert counted == ("?",) * 4


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("qwen-3-0.7b", "Qwen3-0.6B"),
        ("lama-3.2-1b", "Llama-3.2-1B"),
        ("deepseek", "DeepSeek-67B, DeepSeek-V2, DeepSeek-V3"),
        ("%", "none; family"),
    ],
)
def test_an_unknown_name_gives_the_nearest(name, nearest):
    with pytest.raises(
        ValueError, match=f"no model {name!r} in the table; the nearest: .*{nearest}"
    ):
        compare("Qwen3-0.6B", name)
    with pytest.raises(ValueError, match="compare wants names"):
        compare()


def test_one_line_more_is_one_model_more():
    line = dict.fromkeys((*COLUMNS, *room.ALL), "")
    line |= {"name": "New", "year": "2026", "billions": "1", "layers": "2", "width": "64"}
    line |= {"heads": "4", "kv_heads": "1", "inner": "256", "vocab": "?", "tied": "yes"}
    model = room._model(dict(line))
    assert (model.head_dim, model.active, model.attention) == (16, 1.0, "MQA")
    assert model.parameters == "?" and model.kv_bytes == 2 * 2 * 2 * 16
    with pytest.raises(ValueError, match=r"New, column vocab: 'many' is no number; [?] says"):
        room._model(line | {"vocab": "many"})


def test_the_table_as_html_and_text():
    odd = replace(MODELS[0], name="<b>", extra="<i>", source='https://x"><script>')
    for table in (Table([odd]), Table([odd], beside=True)):
        page = table._repr_html_()
        assert "<i>" not in page and "<script>" not in page and "&lt;b&gt;" in page
    assert "https://arxiv.org/abs/2505.09388" in family(name="Qwen3-4B")._repr_html_()
    lines = repr(family(name="Qwen3-4B")).splitlines()
    assert len(lines) == 2 and lines[0].startswith("name") and "QK-Norm" in lines[1]
    assert len(astuple(odd)) > len(COLUMNS) == len(lines[0].split())
