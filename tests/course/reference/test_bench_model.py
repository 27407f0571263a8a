"""The benchmark of the model: every row, valid JSON, wrong results refused. No speeds."""

import json
import random
import re
import sys
import time
from dataclasses import replace
from types import MethodType

import pytest
import torch
from torch._dynamo.utils import counters
from typer.testing import CliRunner

import solutions
from labkit.bench import model, sides
from labkit.bench.duration import in_words
from labkit.bench.table import FEW, SURE, BenchRow
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
    assert report["threads"] == torch.get_num_threads() and report["read_bytes_per_second"] > 0


def test_it_says_beforehand_how_long_it_takes(run):
    _, _, errors, _ = run
    assert re.fullmatch(
        r"By a quick first look this takes at most about \d+ (seconds|minutes)\.", errors
    )


@pytest.mark.parametrize("done", [0, 1])
def test_an_interrupt_shows_what_was_done_and_writes_no_file(monkeypatch, tmp_path, done):
    def interrupted(setting, tell):
        yield from [BenchRow("dense", "float32", "half a row", {"plain": 0.0})] * done
        raise KeyboardInterrupt

    monkeypatch.setattr(model, "expected", lambda setting: 1.0)
    monkeypatch.setattr(model, "measured", interrupted)
    code, text, _ = said("model", "--size", "tiny", "--json", tmp_path / "model.json")
    assert code != 0 and ("half a row" in text) == bool(done)
    assert not list(tmp_path.iterdir())


def test_the_time_to_come_grows_with_the_work(monkeypatch):
    """The first run of all sides, and the row's seconds unless that took them already."""
    monkeypatch.setattr(model, "ALLOWED", {torch.float32: 1e-4})

    def slow(side, ids):
        time.sleep(0.02)
        return ids, None

    ids = torch.zeros(4, 1, dtype=torch.long)
    monkeypatch.setattr(model.Setting, "jobs", lambda self, dtype: {"x": (slow, ids)})
    monkeypatch.setattr(model, "contestants", lambda plain, *_: [plain, plain])
    few, many = (
        model.expected(model.Setting(solutions, "tiny", torch.device("cpu"), seconds))
        for seconds in (0, 50)
    )
    assert few >= 2 * 2 * 4 * 0.02  # dense and MoE, two sides, four texts
    assert 100 < many < 101 + few
    assert [in_words(seconds) for seconds in (3, 41, 90, 91, 600)] == [
        *("10 seconds", "50 seconds", "90 seconds", "2 minutes", "10 minutes"),
    ]


def row_of(first, second):
    return BenchRow("dense", "float32", "work", {}, {"plain": first, "fast": second})


def test_a_ratio_is_that_of_rounds_and_says_how_sure_it_is():
    """What slows a round down slows both sides; where it does not, more rounds help."""
    busy = row_of([1, 9, 2, 5, 3, 1, 4, 2], [0.5, 4.5, 1, 2.5, 1.5, 0.5, 2, 1])
    assert busy.ratio("fast", "plain") == "2.00" and busy.spread == 0
    noisy = [row_of([1, 1.2, 0.9, 1.1] * count, [1] * 4 * count) for count in (2, 8, 32)]
    spreads = [row.spread for row in noisy]
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[0] > SURE and spreads[0] / spreads[2] == pytest.approx(4, rel=0.2)
    assert row_of([1] * 4, [1] * 4).spread == float("inf")


def test_rounds_end_when_the_ratio_is_sure_or_the_time_is_up():
    setting = model.Setting(solutions, "tiny", torch.device("cpu"), seconds=30)
    steady = BenchRow("dense", "float32", "work", {})
    model.race(steady, {"plain": lambda: 1.0, "fast": lambda: 2.0}, setting)
    assert steady.rounds == FEW and steady.ratio("fast", "plain") == "0.50"
    wild = BenchRow("dense", "float32", "work", {})
    draw = random.Random(0).random
    hurried = model.Setting(solutions, "tiny", torch.device("cpu"), seconds=0.05)

    def sample():
        time.sleep(0.001)
        return 0.1 + 9 * draw()

    model.race(wild, {"plain": sample, "fast": sample}, hurried)
    assert FEW < wild.rounds < 100 and wild.spread > SURE


def test_the_table_is_plain_and_fits(run):
    _, text, _, _ = run
    lines = text.splitlines()
    assert text.isascii() and max(map(len, lines)) <= 80 and "\x1b" not in text
    counts = [sum(line.startswith(f"  {name}") for line in lines) for name in ROWS]
    assert counts == [4, 6, 6, 4] and "nats a token" in " ".join(lines)
    for heading in ("ms", "plain/HF", "fast/HF", "fast/all", "unsure", "memory", "differs"):
        assert heading in lines[0]
    assert sum(" 1 run " in line for line in lines) == 20
    assert "fast/plain" not in lines[0]


def test_compiled_layers_train(monkeypatch):
    monkeypatch.setattr(model, "ALLOWED", {torch.float32: 1e-4})
    plain = model.Setting(solutions, "tiny", torch.device("cpu"), 0)
    with_compiled = replace(plain, compiled=True)
    torch.compiler.reset()
    counters.clear()
    code, text, _ = said("model", "--size", "tiny", "--seconds", 0, "--compile")
    assert code == 0 and "fast has layers compiled by torch" in " ".join(text.split())
    assert counters["stats"]["unique_graphs"] >= 2  # dense and MoE
    more = model.expected(with_compiled) - model.expected(plain)
    assert more > 2 * model.COMPILING - 5


def test_where_torch_cannot_compile(monkeypatch):
    monkeypatch.setattr(sides.fast, "compile_layers", lambda model: "no C++ compiler")
    monkeypatch.setattr(model, "ALLOWED", {torch.float32: 1e-4})
    code, _, errors = said("model", "--size", "tiny", "--seconds", 0, "--compile")
    assert code == 2 and "torch cannot compile here: no C++ compiler" in errors


def test_without_transformers(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr(model, "ALLOWED", {torch.float32: 1e-4})
    code, text, _ = said("model", "--size", "tiny", "--seconds", 0)
    assert code == 0
    assert "fast/plain" in text and "fast/all" in text and "/HF" not in text.split("a/b")[0]
    assert "transformers is not installed" in text and "pip install" in text


def test_wrong_results_are_not_timed(monkeypatch):
    honest = sides.sped_up

    def wrong(plain, compiled):
        side = honest(plain, compiled)
        for each in (side.model, side.trained):
            norm = each.model.norm
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
        for each in (fast.model, fast.trained):
            assert torch.equal(each.get_parameter(name), parameter)
            assert each.get_parameter(name).data_ptr() != parameter.data_ptr()
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
        (["model", "--json", "/no/where/x.json"], "no file can be written at /no/where/x.json"),
    ],
)
def test_what_cannot_be_measured(arguments, words):
    code, _, errors = said(*arguments)
    assert code == 2 and words in errors
