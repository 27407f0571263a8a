"""The benchmark of the model: every row, valid JSON, wrong results refused. No speeds."""

import json
import random
import re
import sys
import time
from types import MethodType

import pytest
import torch
from torch._dynamo.utils import counters
from typer.testing import CliRunner

import solutions
from labkit.bench import model, sides
from labkit.bench.table import FEW, SURE, BenchRow
from labkit.cli import app

ROWS = ["prefill 64 tokens", "decode, batch 1", "decode, batch 8", "training step 2 x 32"]
TINY = ("model", "--size", "tiny", "--seconds", 0)


def bench(*arguments):
    """Exit code, and what a pipe of 80 columns gets."""
    result = CliRunner().invoke(app, ["bench", *map(str, arguments)])
    return result.exit_code, result.stdout, " ".join(result.stderr.split())


@pytest.fixture
def float32_alone(monkeypatch):
    monkeypatch.setattr(model, "ALLOWED", {torch.float32: 1e-4})


@pytest.mark.slow
def test_every_row_is_there(tmp_path):
    file = tmp_path / "model.json"
    code, text, errors = bench(*TINY, "--json", file)
    assert code == 0, text + errors
    forecast = r"By a quick first look this takes at most about \d+ (seconds|minutes)\."
    assert re.fullmatch(forecast, errors)
    report = json.loads(file.read_text())
    rows = report["rows"]
    assert [row["work"] for row in rows] == 2 * [*ROWS, *ROWS, *ROWS[1:3]]
    groups = list(dict.fromkeys((row["model"], row["dtype"]) for row in rows))
    limits = {"float32": 1e-5, "bfloat16": 0.05, "int8": 0.1}
    assert groups == [(m, d) for m in ("dense", "MoE") for d in limits]
    for row in rows:
        expected, whole = {"transformers", "plain", "fast"}, row["dtype"] != "int8"
        expected |= {"all experts"} if row["model"] == "MoE" and whole else set()
        assert row["times"].keys() == expected
        assert {len(times) for times in row["times"].values()} == {1}
        assert row["difference"].keys() == expected - {"transformers"}
        assert max(row["difference"].values()) < limits[row["dtype"]]
        assert (row["bytes_read"] is not None) == (whole and row["work"] in ROWS[1:3])
    assert 0 < report["int8_nats_a_token"] < 0.05
    lines = text.splitlines()
    assert text.isascii() and max(map(len, lines)) <= 80 and "\x1b" not in text
    counts = [sum(line.startswith(f"  {name}") for line in lines) for name in ROWS]
    assert counts == [4, 6, 6, 4] and "nats a token" in " ".join(lines)


@pytest.mark.slow
def test_compiled_layers_train(float32_alone):
    torch.compiler.reset()
    counters.clear()
    code, text, _ = bench(*TINY, "--compile")
    assert code == 0 and "fast has layers compiled by torch" in " ".join(text.split())
    assert counters["stats"]["unique_graphs"] >= 2  # dense and MoE


def test_without_transformers(monkeypatch, float32_alone):
    monkeypatch.setitem(sys.modules, "transformers", None)
    code, text, _ = bench(*TINY)
    assert code == 0
    assert "fast/plain" in text and "fast/all" in text and "/HF" not in text.split("a/b")[0]
    assert "transformers is not installed" in text and "pip install" in text


def test_wrong_results_are_not_timed(monkeypatch, float32_alone):
    honest = sides.sped_up

    def wrong(plain, compiled):
        side = honest(plain, compiled)
        for each in (side.model, side.trained):
            norm = each.model.norm
            norm.forward = MethodType(lambda self, x: 1.01 * type(self).forward(self, x), norm)
        return side

    monkeypatch.setattr(sides, "sped_up", wrong)
    code, text, _ = bench(*TINY)
    assert code == 1
    assert "fast differs by 0.01: not timed" in text and "Results disagree" in text


@pytest.mark.parametrize("done", [0, 1])
def test_an_interrupt_shows_what_was_done_and_writes_no_file(monkeypatch, tmp_path, done):
    def interrupted(setting, tell):
        yield from [BenchRow("dense", "float32", "half a row", {"plain": 0.0})] * done
        raise KeyboardInterrupt

    monkeypatch.setattr(model, "expected", lambda setting: 1.0)
    monkeypatch.setattr(model, "measured", interrupted)
    code, text, _ = bench(*TINY, "--json", tmp_path / "model.json")
    assert code != 0 and ("half a row" in text) == bool(done)
    assert not list(tmp_path.iterdir())


def test_a_ratio_is_that_of_rounds_which_end_once_it_is_sure():
    times = {"plain": [1, 9, 2, 5, 3, 1, 4, 2], "fast": [0.5, 4.5, 1, 2.5, 1.5, 0.5, 2, 1]}
    busy = BenchRow("dense", "float32", "work", {}, times)
    assert busy.ratio("fast", "plain") == "2.00" and busy.spread == 0
    setting = model.Setting(solutions, "tiny", torch.device("cpu"), seconds=30)
    steady, wild = (BenchRow("dense", "float32", "work", {}) for _ in range(2))
    model.race(steady, {"plain": lambda: 1.0, "fast": lambda: 2.0}, setting)
    assert steady.rounds == FEW and steady.ratio("fast", "plain") == "0.50"
    draw = random.Random(0).random

    def sample():
        time.sleep(0.001)
        return 0.1 + 9 * draw()

    setting = model.Setting(solutions, "tiny", torch.device("cpu"), seconds=0.05)
    model.race(wild, {"plain": sample, "fast": sample}, setting)
    assert FEW < wild.rounds < 100 and wild.spread > SURE


def test_what_cannot_be_measured(monkeypatch):
    for arguments, words in (
        (["speed"], "No such command 'speed'"),
        (["model", "--size", "huge"], "no size 'huge'; there are: tiny, small, 0.6B"),
        (["model", "--device", "abacus"], "device 'abacus' cannot be used"),
        (["model", "--package", "nobody"], "no package 'nobody'"),
        (["model", "--json", "/no/where/x.json"], "no file can be written at /no/where/x.json"),
    ):
        code, _, errors = bench(*arguments)
        assert code == 2 and words in errors
    monkeypatch.setattr(sides.fast, "compile_layers", lambda model: "no C++ compiler")
    code, _, errors = bench(*TINY, "--compile")
    assert code == 2 and "torch cannot compile here: no C++ compiler" in errors
