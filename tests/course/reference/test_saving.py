"""Saving: each file is written as a whole, or the old one stays."""

import json
import os
import resource
import signal
import stat

import oracle
import pytest
import torch
from safetensors.torch import load_file

import solutions
from labkit.model.checkpoint import CheckpointError, load, save
from labkit.model.weights import SINGLE

MODEL = oracle.ours(oracle.DENSE)
IDS = oracle.tokens(1, 7)


def contents(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_layout(tmp_path):
    folder = tmp_path / "a" / "b"
    save(MODEL, oracle.DENSE, folder)
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", SINGLE]
    assert "lm_head.weight" not in load_file(folder / SINGLE)
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float32"
    modes = {stat.S_IMODE(p.stat().st_mode) for p in folder.iterdir()}
    assert len(modes) == 1  # weights are as readable as the rest


def test_over_the_file_it_is_mapped_from(tmp_path):
    save(MODEL, oracle.DENSE, tmp_path)
    model = load(tmp_path, solutions)
    expected = model(IDS)
    with torch.no_grad():
        model.model.norm.weight.mul_(2)
    save(model, oracle.DENSE, tmp_path)
    again = load(tmp_path, solutions)(IDS)
    assert torch.equal(again, model(IDS)) and not torch.equal(again, expected)


def test_a_tokenizer_is_copied_and_other_files_stay(tmp_path, tokenizer_folder):
    (tmp_path / "thesis.txt").write_text("mine")
    save(MODEL, oracle.DENSE, tmp_path, tokenizer_folder)
    before = contents(tmp_path)
    assert {"thesis.txt", "tokenizer.json", "tokenizer_config.json"} <= set(map(str, before))
    save(oracle.ours(oracle.DENSE, seed=5), oracle.DENSE, tmp_path)
    after = contents(tmp_path)
    assert before.keys() == after.keys()
    assert [str(name) for name in before if before[name] != after[name]] == [SINGLE]


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path):
    save(MODEL, oracle.DENSE, tmp_path)
    before, size = contents(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, size[1]))
    try:
        with pytest.raises(CheckpointError, match="was not saved: File too large"):
            save(oracle.ours(oracle.DENSE, 3), oracle.DENSE, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, size)
        signal.signal(signal.SIGXFSZ, handler)
    assert contents(tmp_path) == before
    with pytest.raises(CheckpointError, match="was not saved"):
        save(MODEL, oracle.DENSE, tmp_path / SINGLE / "below a file")


def test_a_head_that_should_be_tied(tmp_path):
    untied = oracle.ours(oracle.DENSE)
    untied.lm_head.weight = torch.nn.Parameter(untied.lm_head.weight + 1)
    with pytest.raises(CheckpointError, match="the model does not"):
        save(untied, oracle.DENSE, tmp_path)
    assert os.listdir(tmp_path) == []


def test_odd_weights(tmp_path):
    model = oracle.ours(oracle.DENSE)
    expected = model(IDS)
    weight = model.model.layers[0].mlp.up_proj.weight
    weight.data = weight.data.T.contiguous().T
    save(model, oracle.DENSE, tmp_path)
    assert torch.equal(load(tmp_path, solutions)(IDS), expected)
    with torch.no_grad():  # a run that diverged may still be looked at
        model.lm_head.weight.fill_(float("nan"))
    save(model, oracle.DENSE, tmp_path)
    assert load(tmp_path, solutions).lm_head.weight.isnan().all()
