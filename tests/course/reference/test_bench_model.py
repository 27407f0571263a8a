"""The benchmark of the model: every row, valid JSON, wrong results refused. No speeds."""

import json
import sys
from types import MethodType

import pytest
import torch
from typer.testing import CliRunner

import solutions
from labkit.bench import model, sides
from labkit.cli import app

ROWS = ["prefill 64 tokens", "decode, batch 1", "decode, batch 8", "training step 2 x 32"]


def said(*arguments):
    """Exit code, and what a pipe of 80 columns gets."""
    result = CliRunner().invoke(app, ["bench", *map(str, arguments)])
    return result.exit_code, result.stdout, " ".join(result.stderr.split())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    file = tmp_path_factory.mktemp("bench") / "model.json"
    return *said("model", "--size", "tiny", "--seconds", 0, "--json", file), file


def test_every_row_is_there(run):
    code, text, errors, file = run
    assert code == 0, text + errors
    report = json.loads(file.read_text())
    rows = report["rows"]
    assert [row["work"] for row in rows] == 4 * ROWS
    groups = [(row["model"], row["dtype"]) for row in rows[::4]]
    assert groups == [(m, d) for m in ("dense", "MoE") for d in ("float32", "bfloat16")]
    for row in rows:
        expected = {"transformers", "plain", "fast"}
        expected |= {"all experts"} if row["model"] == "MoE" else set()
        assert row["seconds"].keys() == row["medians"].keys() == expected
        assert row["difference"].keys() == expected - {"transformers"}
        assert max(row["difference"].values()) < (1e-5 if row["dtype"] == "float32" else 0.05)
        assert row["rounds"] == model.MIN_ROUNDS
        assert (row["bytes_read"] is None) == (not row["work"].startswith("decode"))
    assert report["threads"] == torch.get_num_threads() and report["read_bytes_per_second"] > 0


def test_the_table_is_plain_and_fits(run):
    _, text, _, _ = run
    lines = text.splitlines()
    assert text.isascii() and max(map(len, lines)) <= 80 and "\x1b" not in text
    assert all(sum(line.startswith(f"  {name}") for line in lines) == 4 for name in ROWS)
    for heading in ("fast, ms", "plain/HF", "fast/HF", "fast/all", "memory", "differs"):
        assert heading in lines[0]
    assert "fast/plain" not in lines[0]


def test_without_transformers(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr(model, "ALLOWED", {torch.float32: 1e-4})
    code, text, _ = said("model", "--size", "tiny", "--seconds", 0)
    assert code == 0
    assert "fast/plain" in text and "fast/all" in text and "/HF" not in text.split("a/b")[0]
    assert "transformers is not installed" in text and "pip install" in text


def test_wrong_results_are_not_timed(monkeypatch):
    honest = sides.sped_up

    def wrong(plain):
        side = honest(plain)
        norm = side.model.model.norm
        norm.forward = MethodType(lambda self, x: 1.01 * type(self).forward(self, x), norm)
        return side

    monkeypatch.setattr(sides, "sped_up", wrong)
    monkeypatch.setattr(model, "ALLOWED", {torch.float32: 1e-4})
    code, text, _ = said("model", "--size", "tiny", "--seconds", 0)
    assert code == 1
    assert "fast differs by 0.01: not timed" in text and "Results disagree" in text


def test_all_sides_have_the_same_weights():
    setting = model.Setting(solutions, "tiny", torch.device("cpu"))
    plain = sides.ours(setting.config(True), solutions, torch.float32)
    fast, there = sides.sped_up(plain), sides.theirs(plain)
    for name, parameter in plain.model.named_parameters():
        assert fast.model.get_parameter(name) is parameter
    assert fast.model is not plain.model
    assert "forward" not in vars(plain.model)
    count = sum(parameter.numel() for parameter in plain.model.parameters())
    assert sum(parameter.numel() for parameter in there.model.parameters()) == count


def test_bytes_of_a_step():
    """Of 8 experts 2 run for one token; the tied table is read once, by the head."""
    setting = model.Setting(solutions, "tiny", torch.device("cpu"))
    plain = sides.ours(setting.config(True), solutions, torch.float32)
    ids = torch.zeros(1, 5, dtype=torch.long)
    active = 0
    for name, parameter in plain.model.named_parameters():
        active += parameter.nbytes / (4 if ".experts." in name else 1)
    cache = 5 * 2 * (2 * 2 * 16) * 4
    assert model.bytes_of_a_step(plain, ids) == active + cache


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["speed"], "No such command 'speed'"),
        (["model", "--size", "huge"], "no size 'huge'; there are: tiny, small, 0.6B"),
        (["model", "--device", "abacus"], "device 'abacus' cannot be used"),
        (["model", "--package", "nobody"], "no package 'nobody'"),
        (["model", "--json", "/no/where/x.json"], "no folder /no/where"),
    ],
)
def test_what_cannot_be_measured(arguments, words):
    code, _, errors = said(*arguments)
    assert code == 2 and words in errors
