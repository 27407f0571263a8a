"""Loading: the right weights, once in memory, or an error that names the tensor."""

import json
import shutil
import types
from pathlib import Path

import oracle
import pytest
import torch
from huggingface_hub import save_torch_state_dict
from oracle import CLOSE
from safetensors.torch import load_file, save_file
from torch import nn
from torch.testing import assert_close

import solutions
import solutions.decoder as decoder
from labkit.model.checkpoint import CheckpointError, load, save
from labkit.model.weights import INDEX, SINGLE

IDS = oracle.tokens(2, 9)
Q_NORM = "model.layers.1.self_attn.q_norm.weight"
UP_PROJ = "model.layers.0.mlp.up_proj.weight"


def package(**changes):
    """The reference as a namespace, which is how a learner's classes are passed"""
    parts = {"Qwen3Config": oracle.Qwen3Config, "Qwen3ForCausalLM": decoder.Qwen3ForCausalLM}
    return types.SimpleNamespace(**{**parts, **changes})


@pytest.fixture
def folder(tmp_path):
    save(oracle.ours(oracle.DENSE), oracle.DENSE, tmp_path / "dense")
    return tmp_path / "dense"


@pytest.fixture
def sharded(tmp_path):
    folder = tmp_path / "moe"
    save(oracle.ours(oracle.MOE), oracle.MOE, folder)
    tensors = load_file(folder / SINGLE)
    (folder / SINGLE).unlink()
    save_torch_state_dict(tensors, folder, max_shard_size=20_000)
    return folder


def rewrite(folder, **tensors):
    """Replace tensors of a file; None removes one."""
    tensors = load_file(folder / SINGLE) | tensors
    save_file({k: v for k, v in tensors.items() if v is not None}, folder / SINGLE)


# ------------------------------------------------------------------ to and from transformers


@pytest.mark.parametrize("size", ["1GB", "20KB"])
def test_what_transformers_saved(pair, size, tmp_path):
    model, there = pair
    there.save_pretrained(tmp_path, max_shard_size=size)
    assert (tmp_path / (SINGLE if size == "1GB" else INDEX)).exists()
    ours = load(tmp_path, solutions)
    assert ours.config == model.config
    assert_close(ours(IDS), there(IDS).logits, **CLOSE)
    assert not ours.training
    assert all(parameter.requires_grad for parameter in ours.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", oracle.CONFIGS)
def test_transformers_loads_what_we_saved(name, dtype, tmp_path):
    config = oracle.CONFIGS[name]
    model = oracle.ours(config).to(dtype)
    save(model, config, tmp_path / "ours")
    theirs = oracle.load_hf(tmp_path / "ours", dtype="auto")
    assert theirs.dtype == dtype
    again = load(tmp_path / "ours", solutions)
    for weight, saved in zip(again.parameters(), model.parameters(), strict=True):
        assert weight.dtype == dtype and torch.equal(weight, saved)
    expected = model(IDS)
    tolerance = CLOSE if dtype == torch.float32 else {"rtol": 0, "atol": 0}
    # some CPUs sum in a different order if a weight is aligned differently
    assert_close(again(IDS), expected, **tolerance)
    assert_close(theirs(IDS).logits, expected, **tolerance)


def test_dtypes(tmp_path):
    for stored in (torch.float32, torch.bfloat16, torch.float16):
        model = oracle.ours(oracle.DENSE).to(stored)
        save(model, oracle.DENSE, tmp_path / "x")
        for wanted in (None, torch.float32, torch.bfloat16):
            loaded = load(tmp_path / "x", solutions, dtype=wanted)
            assert {p.dtype for p in loaded.parameters()} == {wanted or stored}
            expected = oracle.ours(oracle.DENSE).to(stored).to(wanted or stored)
            assert torch.equal(loaded(IDS), expected(IDS))
    rewrite(tmp_path / "x", **{Q_NORM: torch.ones(10)})  # mixed dtypes lose nothing
    assert {p.dtype for p in load(tmp_path / "x", solutions).parameters()} == {torch.float32}


def test_a_head_stored_beside_the_embedding(folder):
    """Qwen3-0.6B is tied and has both on disk."""
    head = load_file(folder / SINGLE)["model.embed_tokens.weight"]
    rewrite(folder, **{"lm_head.weight": head.clone()})
    model = load(folder, solutions)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    model(IDS).sum().backward()
    assert model.lm_head.weight.grad is not None
    rewrite(folder, **{"lm_head.weight": head + 1})
    refused(folder, "lm_head.weight differs from model.embed_tok")


# ------------------------------------------------------------------------- how it is loaded


def test_a_namespace_will_do(folder):
    assert torch.equal(load(folder, package())(IDS), oracle.ours(oracle.DENSE)(IDS))


def test_weights_are_mapped_and_no_random_number_is_drawn(folder, monkeypatch):
    def refuse(tensor, *_, **__):
        assert tensor.is_meta
        return tensor

    for name in ("normal_", "kaiming_uniform_", "uniform_"):
        monkeypatch.setattr(nn.init, name, refuse)
    before = torch.random.get_rng_state()
    model = load(folder, solutions)
    assert torch.equal(torch.random.get_rng_state(), before)
    spans = [
        [int(end, 16) for end in line.split()[0].split("-")]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if line.endswith(str(folder / SINGLE))
    ]
    for weight in model.parameters():  # none was copied into memory
        assert any(start <= weight.data_ptr() < end for start, end in spans)
    monkeypatch.undo()
    assert not nn.Linear(2, 2).weight.is_meta  # the patch is gone
    with torch.no_grad():
        model.model.norm.weight.add_(1)  # a private mapping: the file stays as it is
    stored = load_file(folder / SINGLE)["model.norm.weight"]
    assert not torch.equal(stored, model.model.norm.weight)


def test_tables_that_a_model_computes_stay_real(folder):
    class WithTable(decoder.Qwen3ForCausalLM):
        def __init__(self, config):
            super().__init__(config)
            self.register_buffer("inv_freq", torch.arange(5.0), persistent=False)
            self.plain = torch.arange(3)

    model = load(folder, package(Qwen3ForCausalLM=WithTable), dtype=torch.bfloat16)
    assert model.inv_freq.tolist() == [0, 1, 2, 3, 4]
    assert model.inv_freq.dtype == torch.float32
    assert model.plain.tolist() == [0, 1, 2]


def test_an_unfinished_exercise_passes_through(folder):
    def stub(config):
        raise NotImplementedError("Exercise 6.3: Qwen3ForCausalLM")

    with pytest.raises(NotImplementedError, match=r"Exercise 6\.3"):
        load(folder, package(Qwen3ForCausalLM=stub))
    assert not nn.Linear(2, 2).weight.is_meta


# ---------------------------------------------------------------- what can be wrong on disk


def refused(folder, *words, package=solutions):
    with pytest.raises(CheckpointError) as caught:
        load(folder, package)
    for word in words:
        assert word in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        (Q_NORM, lambda t: None, ["missing", Q_NORM]),
        (
            "model.layers.9.extra",
            lambda t: torch.ones(2),
            ["without a place in the model", ".9."],
        ),
        (Q_NORM, lambda t: torch.ones(7), [Q_NORM, "(7,)", "expected (10,)"]),
        (UP_PROJ, lambda t: t.T.contiguous(), [UP_PROJ, "(24, 40), expected (40, 24)"]),
        *(
            (Q_NORM, lambda t, dtype=dtype: t.to(dtype), [Q_NORM, "stored as"])
            for dtype in (torch.int8, torch.float64, torch.float8_e4m3fn, torch.bool)
        ),
    ],
)
def test_tensors_that_do_not_fit(folder, name, change, words):
    rewrite(folder, **{name: change(load_file(folder / SINGLE).get(name))})
    refused(folder, *words)


def test_damaged_files(folder):
    path, blob = folder / SINGLE, (folder / SINGLE).read_bytes()
    for damaged in (
        b"",
        blob[:5],
        blob[:100],
        blob[:-1],
        blob[:8] + b"x" + blob[9:],
        blob + b"x",
    ):
        path.write_bytes(damaged)
        refused(folder, SINGLE, "damaged or truncated")
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:a\n")
    refused(folder, "git lfs pull")
    save_file({}, path)
    refused(folder, "no tensor at all")
    path.rename(folder / "pytorch_model.bin")
    refused(folder, "holds no weights", "pytorch_model.bin is a pickle")


def test_an_index_and_its_shards(sharded):
    text = (sharded / INDEX).read_text()
    places = json.loads(text)["weight_map"]
    for added, *words in (
        ({"model.extra.weight": places["model.norm.weight"]}, "model.extra.weight"),
        ({"model.norm.weight": "model-00099.safetensors"}, "model-00099.safetensors is miss"),
    ):
        (sharded / INDEX).write_text(json.dumps({"weight_map": places | added}))
        refused(sharded, *words)
    for broken in ("", "[]", "{}", '{"weight_map": 3}', "\0"):
        (sharded / INDEX).write_text(broken)
        refused(sharded, INDEX)
    (sharded / INDEX).write_text(text)
    next(sharded.glob("model-00002*")).unlink()
    refused(sharded, "model-00002-of", "is missing", INDEX)


def test_a_config_that_does_not_fit(folder, sharded):
    text = (folder / "config.json").read_text()
    for change, *words in (
        ({"model_type": "llama"}, "model_type is 'llama'"),
        ({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}, "qwen2"),
        ({"model_type": None}, "model_type"),
        ({"hidden_size": 32}, "of another shape", "model.embed_tokens.weight", "(67, 32)"),
        ({"num_hidden_layers": 4}, "missing", "model.layers.3."),
        ({"num_hidden_layers": 2}, "without a place", "model.layers.2."),
        ({"tie_word_embeddings": False}, "missing: lm_head.weight"),
        ({"attention_bias": True}, "missing", "q_proj.bias"),
        ({"num_key_value_heads": 4}, "k_proj.weight", "(20, 24), expected (40, 24)"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
        ({"head_dim": None}, "lacks head_dim"),
    ):
        (folder / "config.json").write_text(json.dumps(json.loads(text) | change))
        refused(folder, *words)
    for broken in ("", "{", "[]", "null", "\0\0"):
        (folder / "config.json").write_text(broken)
        refused(folder, "config.json")
    shutil.copy(sharded / "config.json", folder)  # dense weights under an MoE config
    refused(folder, "missing", "without a place")
    (folder / "config.json").unlink()
    for missing in (folder, folder / SINGLE, folder / "nowhere"):
        refused(missing, f"there is no {missing}/config.json")


def test_fused_experts_are_named(tmp_path):
    start, saved = tmp_path / "start", tmp_path / "saved"
    start.mkdir()
    oracle.save(oracle.ours(oracle.MOE), start)
    oracle.load_hf(start).save_pretrained(saved, save_original_format=False)
    refused(saved, "mlp.experts.gate_up_proj")


def test_a_package_that_does_not_fit(folder):
    class Without(decoder.Qwen3ForCausalLM):
        def __init__(self, config):
            super().__init__(config)
            del self.model.norm

    class Buffered(decoder.Qwen3ForCausalLM):
        def __init__(self, config):
            super().__init__(config)
            self.register_buffer("table", torch.ones(3))

    for model, *words in (
        (Without, "without a place", "model.norm.weight"),
        (Buffered, "table", "persistent=False"),
        (None, "offers no Qwen3ForCausalLM"),
    ):
        refused(folder, *words, package=package(Qwen3ForCausalLM=model))
    refused(folder, "json offers no Qwen3Config", package=json)
