"""Loading: the right weights, once in memory, or an error that names the tensor."""

import dataclasses
import json
import shutil
import subprocess
import sys
import types
from pathlib import Path

import oracle
import pytest
import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file, save_file
from torch import nn
from torch.testing import assert_close

import solutions
import solutions.decoder as decoder
from labkit.model.checkpoint import CheckpointError, load, save
from labkit.model.weights import INDEX, SINGLE

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
IDS = oracle.tokens(2, 9)


def package(**changes):
    """The reference as a namespace, as a learner's classes would be handed in."""
    parts = {"Qwen3Config": oracle.Qwen3Config, "Qwen3ForCausalLM": decoder.Qwen3ForCausalLM}
    return types.SimpleNamespace(**{**parts, **changes})


def there(config, folder, **how):
    """A random model saved by `transformers` itself."""
    start = folder / "start"
    start.mkdir(parents=True)
    oracle.save(oracle.ours(config), start)
    model = oracle.load_there(start)
    model.save_pretrained(folder / "saved", **how)
    return model, folder / "saved"


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("name", oracle.CONFIGS)
def test_what_transformers_saved(name, shards, tmp_path):
    size = {} if shards == 1 else {"max_shard_size": "20KB"}
    model, folder = there(oracle.CONFIGS[name], tmp_path, **size)
    assert (folder / (SINGLE if shards == 1 else INDEX)).exists()
    ours = load(folder, solutions)
    assert_close(ours(IDS), model(IDS).logits, **CLOSE)
    assert not ours.training
    assert all(parameter.requires_grad for parameter in ours.parameters())


@pytest.mark.parametrize("name", oracle.CONFIGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_transformers_loads_what_we_saved(name, dtype, tmp_path):
    config = oracle.CONFIGS[name]
    model = oracle.ours(config).to(dtype)
    save(model, config, tmp_path / "ours")
    theirs = oracle.load_there(tmp_path / "ours", dtype="auto")
    assert theirs.dtype == dtype
    again = load(tmp_path / "ours", solutions)
    for weight, saved in zip(again.parameters(), model.parameters(), strict=True):
        assert weight.dtype == dtype and torch.equal(weight, saved)
    expected = model(IDS)
    tolerance = CLOSE if dtype == torch.float32 else {"rtol": 0, "atol": 0}
    # some processors add up in another order where a weight begins elsewhere in memory
    assert_close(again(IDS), expected, **tolerance)
    assert_close(theirs(IDS).logits, expected, **tolerance)


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("wanted", [None, torch.float32, torch.bfloat16])
def test_dtypes(stored, wanted, tmp_path):
    model = oracle.ours(oracle.DENSE).to(stored)
    save(model, oracle.DENSE, tmp_path / "x")
    loaded = load(tmp_path / "x", solutions, dtype=wanted)
    assert {p.dtype for p in loaded.parameters()} == {wanted or stored}
    assert torch.equal(loaded(IDS), model.to(wanted or stored)(IDS))


def test_mixed_dtypes_lose_nothing(folder):
    rewrite(
        folder, lambda tensors: {k: v.bfloat16() for k, v in tensors.items() if "norm" in k}
    )
    assert {p.dtype for p in load(folder, solutions).parameters()} == {torch.float32}


def test_a_namespace_will_do_and_progress_counts_bytes(folder):
    seen = []
    model = load(folder, package(), progress=lambda done, total: seen.append((done, total)))
    assert torch.equal(model(IDS), oracle.ours(oracle.DENSE)(IDS))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1] == sum(p.nbytes for p in model.parameters())


def test_weights_are_mapped_and_no_random_number_is_drawn(folder, monkeypatch):
    def refuse(tensor, *_, **__):
        assert tensor.is_meta
        return tensor

    for name in ("normal_", "kaiming_uniform_", "uniform_"):
        monkeypatch.setattr(nn.init, name, refuse)
    before = torch.random.get_rng_state()
    model = load(folder, solutions)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert str(folder / SINGLE) in Path("/proc/self/maps").read_text()
    monkeypatch.undo()
    assert not nn.Linear(2, 2).weight.is_meta  # the patch is gone
    with torch.no_grad():
        model.model.norm.weight.add_(1)  # private: the file stays as it is
    assert not torch.equal(
        load_file(folder / SINGLE)["model.norm.weight"], model.model.norm.weight
    )


def test_tied_stays_one_parameter_and_trains(folder):
    model = load(folder, solutions)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    model(IDS).sum().backward()
    assert model.lm_head.weight.grad is not None


def test_tables_a_model_computes_for_itself_stay_real(folder):
    class WithTable(decoder.Qwen3ForCausalLM):
        def __init__(self, config):
            super().__init__(config)
            self.register_buffer("inv_freq", torch.arange(5.0), persistent=False)
            self.plain = torch.arange(3)

    model = load(folder, package(Qwen3ForCausalLM=WithTable), dtype=torch.bfloat16)
    assert model.inv_freq.tolist() == [0, 1, 2, 3, 4]
    assert model.inv_freq.dtype == torch.float32
    assert model.plain.tolist() == [0, 1, 2]


def test_unfinished_exercise_passes_through(folder):
    def stub(config):
        raise NotImplementedError("Exercise 6.3: Qwen3ForCausalLM")

    with pytest.raises(NotImplementedError, match=r"Exercise 6\.3"):
        load(folder, package(Qwen3ForCausalLM=stub))
    assert not nn.Linear(2, 2).weight.is_meta


def test_a_head_stored_beside_the_embedding(folder):
    """Qwen3-0.6B is tied and has both on disk."""
    rewrite(folder, lambda t: {"lm_head.weight": t["model.embed_tokens.weight"].clone()})
    model = load(folder, solutions)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    rewrite(folder, lambda t: {"lm_head.weight": t["lm_head.weight"] + 1})
    with pytest.raises(CheckpointError, match=r"lm_head.weight differs from model.embed_tok"):
        load(folder, solutions)


# ---------------------------------------------------------------- what can be wrong on disk


@pytest.fixture
def folder(tmp_path):
    save(oracle.ours(oracle.DENSE), oracle.DENSE, tmp_path / "dense")
    return tmp_path / "dense"


@pytest.fixture
def sharded(tmp_path):
    save(oracle.ours(oracle.MOE), oracle.MOE, tmp_path / "moe")
    tensors = load_file(tmp_path / "moe" / SINGLE)
    (tmp_path / "moe" / SINGLE).unlink()
    save_torch_state_dict(tensors, tmp_path / "moe", max_shard_size=20_000)
    return tmp_path / "moe"


def rewrite(folder, change, drop=()):
    tensors = load_file(folder / SINGLE)
    tensors |= change(tensors)
    save_file({k: v for k, v in tensors.items() if k not in drop}, folder / SINGLE)


def refused(folder, *words, package=solutions):
    with pytest.raises(CheckpointError) as caught:
        load(folder, package)
    for word in words:
        assert word in str(caught.value), str(caught.value)


Q_NORM = "model.layers.1.self_attn.q_norm.weight"


def test_missing_tensor(folder):
    rewrite(folder, lambda t: {}, drop=[Q_NORM])
    refused(folder, "missing", Q_NORM)


def test_missing_head_of_an_untied_model(sharded):
    index = json.loads((sharded / INDEX).read_text())
    file = index["weight_map"].pop("lm_head.weight")
    (sharded / INDEX).write_text(json.dumps(index))
    tensors = load_file(sharded / file)
    del tensors["lm_head.weight"]
    if tensors:
        save_file(tensors, sharded / file)
    refused(sharded, "missing: lm_head.weight")


def test_extra_tensor(folder):
    rewrite(folder, lambda t: {"model.layers.9.extra": torch.ones(2)})
    refused(folder, "without a place in the model", "model.layers.9.extra")


def test_misshaped_tensor(folder):
    rewrite(folder, lambda t: {Q_NORM: torch.ones(7)})
    refused(folder, Q_NORM, "(7,)", "expected (10,)")


def test_transposed_is_misshaped(folder):
    name = "model.layers.0.mlp.up_proj.weight"
    rewrite(folder, lambda t: {name: t[name].T.contiguous()})
    refused(folder, name, "(24, 40), expected (40, 24)")


@pytest.mark.parametrize("dtype", [torch.int8, torch.float64, torch.float8_e4m3fn, torch.bool])
def test_wrong_kind_of_numbers(folder, dtype):
    rewrite(folder, lambda t: {Q_NORM: torch.ones(10).to(dtype)})
    refused(folder, Q_NORM, "stored as")


@pytest.mark.parametrize("left", [0, 5, 100, -1])
def test_truncated(folder, left):
    blob = (folder / SINGLE).read_bytes()
    (folder / SINGLE).write_bytes(blob[:left])
    refused(folder, SINGLE, "damaged or truncated")


def test_damaged_header_and_appended_bytes(folder):
    blob = (folder / SINGLE).read_bytes()
    (folder / SINGLE).write_bytes(blob[:8] + b"x" + blob[9:])
    refused(folder, SINGLE, "damaged")
    (folder / SINGLE).write_bytes(blob + b"more")
    refused(folder, SINGLE, "damaged")


def test_git_lfs_pointer(folder):
    (folder / SINGLE).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:a\n")
    refused(folder, "git lfs pull")


def test_shard_missing(sharded):
    next(sharded.glob("model-00002*")).unlink()
    refused(sharded, "model-00002-of", "is missing", INDEX)


def test_index_names_unknown_file(sharded):
    index = json.loads((sharded / INDEX).read_text())
    index["weight_map"]["model.norm.weight"] = "model-00099-of-00099.safetensors"
    (sharded / INDEX).write_text(json.dumps(index))
    refused(sharded, "model-00099-of-00099.safetensors is missing", "model.norm.weight")


def test_index_leads_out_of_the_folder(sharded):
    index = json.loads((sharded / INDEX).read_text())
    for bad in ("../other.safetensors", "/etc/passwd", 7, ".."):
        index["weight_map"]["model.norm.weight"] = bad
        (sharded / INDEX).write_text(json.dumps(index))
        refused(sharded, "model.norm.weight")


def test_index_and_shards_disagree(sharded):
    index = json.loads((sharded / INDEX).read_text())
    first, *_, last = sorted(set(index["weight_map"].values()))
    moved = next(name for name, file in index["weight_map"].items() if file == last)
    index["weight_map"][moved] = first
    (sharded / INDEX).write_text(json.dumps(index))
    refused(sharded, moved)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {}}', "\0"]
)
def test_index_that_is_none(sharded, text):
    (sharded / INDEX).write_text(text)
    refused(sharded, INDEX)


def test_no_weights(folder):
    (folder / SINGLE).rename(folder / "pytorch_model.bin")
    refused(folder, "holds no weights", "pytorch_model.bin is a pickle")


def test_weights_file_without_tensors(folder):
    save_file({}, folder / SINGLE)
    refused(folder, "no tensor at all")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "llama"}, ["model_type is 'llama'"]),
        ({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}, ["qwen2"]),
        ({"model_type": None}, ["model_type"]),
        ({"hidden_size": 32}, ["of another shape", "model.embed_tokens.weight", "(67, 32)"]),
        ({"num_hidden_layers": 4}, ["missing", "model.layers.3."]),
        ({"num_hidden_layers": 2}, ["without a place", "model.layers.2."]),
        ({"tie_word_embeddings": False}, ["missing: lm_head.weight"]),
        ({"attention_bias": True}, ["missing", "q_proj.bias"]),
        ({"num_key_value_heads": 4}, ["k_proj.weight", "(20, 24), expected (40, 24)"]),
        ({"quantization_config": {"quant_method": "fp8"}}, ["quantization_config"]),
        ({"head_dim": None}, ["lacks head_dim"]),
    ],
)
def test_wrong_config(folder, change, words):
    values = json.loads((folder / "config.json").read_text()) | change
    (folder / "config.json").write_text(json.dumps(values))
    refused(folder, *words)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\0\0"])
def test_config_that_is_none(folder, text):
    (folder / "config.json").write_text(text)
    refused(folder, "config.json")


def test_no_config_no_folder_a_file(folder):
    refused(folder / SINGLE, "is a file")
    refused(folder / "nowhere", "there is no folder")
    (folder / "config.json").unlink()
    refused(folder, "holds no config.json")


def test_dense_weights_under_a_moe_config(folder, sharded):
    shutil.copy(sharded / "config.json", folder)
    refused(folder, "missing", "without a place")


def test_fused_experts_are_named(tmp_path):
    _, folder = there(oracle.MOE, tmp_path, save_original_format=False)
    refused(folder, "mlp.experts.gate_up_proj")


def test_a_learners_model_that_lacks_a_part(folder):
    class Without(decoder.Qwen3ForCausalLM):
        def __init__(self, config):
            super().__init__(config)
            del self.model.norm

    refused(
        folder,
        "without a place",
        "model.norm.weight",
        package=package(Qwen3ForCausalLM=Without),
    )


def test_a_learners_persistent_buffer(folder):
    class Buffered(decoder.Qwen3ForCausalLM):
        def __init__(self, config):
            super().__init__(config)
            self.register_buffer("table", torch.ones(3))

    refused(folder, "table", "persistent=False", package=package(Qwen3ForCausalLM=Buffered))


def test_package_without_the_class(folder):
    refused(
        folder,
        "offers no Qwen3ForCausalLM",
        package=types.SimpleNamespace(Qwen3Config=oracle.Qwen3Config),
    )
    refused(folder, "json offers no Qwen3Config", package=json)


def test_memory_is_used_once(tmp_path):
    """Loading and using 64 MB of weights takes less than half of that anew."""
    config = dataclasses.replace(
        oracle.DENSE, vocab_size=16384, hidden_size=1024, tie_word_embeddings=True
    )
    save(decoder.Qwen3ForCausalLM(config), config, tmp_path / "big")
    script = f"""
import re, solutions.decoder, torch
from labkit.model.checkpoint import load
def anonymous():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) >> 10
model = load({str(tmp_path / "big")!r}, solutions)
before = anonymous()
del model
model = load({str(tmp_path / "big")!r}, solutions)
model(torch.arange(9)[None])
print(anonymous() - before)
"""
    path = ":".join(p for p in sys.path if p)
    out = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    assert out.returncode == 0, out.stderr
    assert int(out.stdout) < 32, out.stdout
