"""Matrices in int8: nearly the same logits, and a reason if they cannot be rounded."""

import copy

import oracle
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from typer.testing import CliRunner

from labkit.cli import app
from labkit.model.chat.stream import ChatError
from labkit.model.fast import accelerate
from labkit.model.int8 import in_int8
from solutions.generation import KVCache, generate


@pytest.mark.parametrize("name", ["dense", "moe", "moe-whole-lines"])
@torch.no_grad()
def test_the_logits_are_nearly_the_same(name):
    model = oracle.ours(oracle.CONFIGS[name])
    ids = oracle.tokens(3, 9)
    expected = model(ids)
    matrices = {key for key, layer in model.named_modules() if type(layer) is nn.Linear}
    rounded = in_int8(copy.deepcopy(model))
    left = {key for key, layer in rounded.named_modules() if type(layer) is nn.Linear}
    assert left == {key for key in matrices if key.endswith("mlp.gate")}
    for quick in (rounded, accelerate(rounded)):
        assert 0 < (quick(ids) - expected).norm() < 0.25 * expected.norm()
        cache = KVCache(model.config.num_hidden_layers, 9)
        assert quick(ids[:, :8], cache=cache).shape[:2] == (3, 8) and cache.length == 8
        assert generate(quick, ids, None, 5).shape == (3, 14)


class ReadsAWeight(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(5, 4), nn.Linear(4, 5)

    def forward(self, ids):
        return F.linear(self.embed(ids), self.head.weight)


def test_what_cannot_be(monkeypatch):
    with pytest.raises(ChatError, match="this one is in bfloat16 on cpu"):
        in_int8(oracle.ours(oracle.DENSE).bfloat16())
    with pytest.raises(ChatError, match="only calls its layers"):
        in_int8(ReadsAWeight())
    monkeypatch.setattr("labkit.model.int8.OFFERED", False)
    with pytest.raises(ChatError, match="has no dynamic quantisation"):
        in_int8(oracle.ours(oracle.DENSE))


def test_generate_in_int8(chat_folder):
    arguments = ["generate", str(chat_folder), "-p", "Anna has", "--int8"]
    arguments += ["--package", "solutions", "--max-new-tokens", "4"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0 and result.stdout.strip()
    assert "in float32, matrices rounded to int8" in " ".join(result.stderr.split())
