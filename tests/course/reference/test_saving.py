"""Saving: a whole checkpoint under its name, or what was there before."""

import dataclasses
import errno
import json
import os
import re
import stat
import subprocess

import oracle
import pytest
import torch
from safetensors.torch import load_file

import solutions
from labkit.model import saving
from labkit.model.checkpoint import CheckpointError, load, save
from labkit.model.weights import SINGLE

MODEL = oracle.ours(oracle.DENSE)
IDS = oracle.tokens(1, 7)


def contents(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_layout(tmp_path):
    save(MODEL, oracle.DENSE, tmp_path / "a" / "b")
    folder = tmp_path / "a" / "b"
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", SINGLE]
    assert "lm_head.weight" not in load_file(folder / SINGLE)
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float32"
    assert os.listdir(tmp_path / "a") == ["b"]
    modes = {stat.S_IMODE(p.stat().st_mode) for p in folder.iterdir()}
    assert len(modes) == 1  # weights are as readable as the rest


def test_over_the_folder_it_is_mapped_from(tmp_path):
    save(MODEL, oracle.DENSE, tmp_path / "x")
    model = load(tmp_path / "x", solutions)
    expected = model(IDS)
    with torch.no_grad():
        model.model.norm.weight.mul_(2)
    (tmp_path / "x" / "model-00001-of-00001.safetensors").write_bytes(b"of an older checkpoint")
    save(model, oracle.DENSE, tmp_path / "x")
    assert sorted(os.listdir(tmp_path / "x")) == ["config.json", SINGLE]
    again = load(tmp_path / "x", solutions)(IDS)
    assert torch.equal(again, model(IDS)) and not torch.equal(again, expected)
    assert os.listdir(tmp_path) == ["x"]


def test_tokenizer_is_copied_and_then_kept(tmp_path, tokenizer_folder):
    save(MODEL, oracle.DENSE, tmp_path / "x", tokenizer_folder)
    (tmp_path / "x" / "README.md").write_text("card")
    before = contents(tmp_path / "x")
    save(oracle.ours(oracle.DENSE, seed=5), oracle.DENSE, tmp_path / "x")
    after = contents(tmp_path / "x")
    assert before.keys() == after.keys()
    assert [str(k) for k in before if before[k] != after[k]] == [SINGLE]
    save(MODEL, oracle.DENSE, tmp_path / "x", tmp_path / "x")
    assert contents(tmp_path / "x") == before
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        save(MODEL, oracle.DENSE, tmp_path / "y", tmp_path)
    assert not (tmp_path / "y").exists()


def test_refuses_what_is_not_a_checkpoint(tmp_path):
    for name in ("thesis.txt", "optimizer.pt", "model.safetensors.bak"):
        save(MODEL, oracle.DENSE, tmp_path / name)
        (tmp_path / name / name).write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "home" / "config.json").mkdir(parents=True)
    before = contents(tmp_path)
    for folder, words in (
        *((name, name) for name in ("thesis.txt", "optimizer.pt", "model.safetensors.bak")),
        ("file", "is a file"),
        ("home", "holds config.json"),
        ("file/below", "was not saved"),
    ):
        with pytest.raises(CheckpointError, match=re.escape(words)):
            save(MODEL, oracle.DENSE, tmp_path / folder)
    assert contents(tmp_path) == before


def test_an_empty_folder_and_a_link_to_one(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    save(MODEL, oracle.DENSE, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert torch.equal(load(tmp_path / "real", solutions)(IDS), MODEL(IDS))


@pytest.mark.parametrize("existing", [False, True])
def test_nothing_is_left_when_writing_fails(existing, tmp_path, monkeypatch):
    if existing:
        save(MODEL, oracle.DENSE, tmp_path / "x")
    before = contents(tmp_path)
    full = OSError(errno.ENOSPC, "No space left on device")
    needed = f"no room on the disk: {sum(p.nbytes for p in MODEL.parameters()):,} bytes"
    for error, kind, words in (
        (full, CheckpointError, needed), (KeyboardInterrupt(), KeyboardInterrupt, None),
    ):  # fmt: skip

        def failing(tensors, path, metadata, error=error):
            path.write_bytes(b"half")
            raise error

        monkeypatch.setattr(saving, "save_file", failing)
        with pytest.raises(kind, match=words):
            save(oracle.ours(oracle.DENSE, 3), oracle.DENSE, tmp_path / "x")
        assert contents(tmp_path) == before
        assert os.listdir(tmp_path) == (["x"] if existing else [])


@pytest.mark.parametrize("step", [1, 2])
def test_failing_renames_bring_the_old_one_back(step, tmp_path, monkeypatch):
    save(MODEL, oracle.DENSE, tmp_path / "x")
    before, rename, calls = contents(tmp_path), saving.Path.rename, []

    def failing(path, target):
        calls.append(path)
        if len(calls) == step:
            raise OSError(errno.EACCES, "Permission denied")
        return rename(path, target)

    monkeypatch.setattr(saving.Path, "rename", failing)
    with pytest.raises(CheckpointError, match="Permission denied"):
        save(oracle.ours(oracle.DENSE, 3), oracle.DENSE, tmp_path / "x")
    assert contents(tmp_path) == before


def test_a_really_full_disk(tmp_path):
    mounted = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path)]
    if os.geteuid() or subprocess.run(mounted, capture_output=True).returncode:
        pytest.skip("not checked: a tiny file system needs root")
    try:
        config = dataclasses.replace(oracle.DENSE, vocab_size=12_000)
        large = oracle.ours(config)
        save(MODEL, oracle.DENSE, tmp_path / "old")
        before = contents(tmp_path)
        for name in ("new", "old"):
            with pytest.raises(CheckpointError, match="no room on the disk: 1,"):
                save(large, config, tmp_path / name)
            assert contents(tmp_path) == before
            assert os.listdir(tmp_path) == ["old"]
        assert torch.equal(load(tmp_path / "old", solutions)(IDS), MODEL(IDS))
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_models_that_cannot_be_saved(tmp_path):
    untied = oracle.ours(oracle.DENSE)
    untied.lm_head.weight = torch.nn.Parameter(untied.lm_head.weight + 1)
    for model, config, words in (
        (oracle.ours(oracle.DENSE).double(), oracle.DENSE, "torch.float64"),
        (MODEL, oracle.MOE, "not the one"),
        (untied, oracle.DENSE, "the model does not"),
    ):
        with pytest.raises(CheckpointError, match=words):
            save(model, config, tmp_path / "x")
    assert os.listdir(tmp_path) == []


def test_odd_weights_that_can_be_saved(tmp_path):
    model = oracle.ours(oracle.DENSE)
    expected = model(IDS)
    weight = model.model.layers[0].mlp.up_proj.weight
    weight.data = weight.data.T.contiguous().T
    save(model, oracle.DENSE, tmp_path / "x")
    assert torch.equal(load(tmp_path / "x", solutions)(IDS), expected)
    with torch.no_grad():  # a run that diverged may still be looked at
        model.lm_head.weight.fill_(float("nan"))
    save(model, oracle.DENSE, tmp_path / "x")
    assert load(tmp_path / "x", solutions).lm_head.weight.isnan().all()
