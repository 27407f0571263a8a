"""The claims of lab 10 about its experiments, in five seeds each, by the notebook's own cells.

pytest -m slow tests/course/claims/test_serving_claims.py -s    prints the table
"""

import json

import pytest
import torch

import solutions.serving as serving
from labkit.course.paths import ROOT
from labkit.learner.lessons.data import Validation
from labkit.learner.models import load_chat_model
from labkit.model.int8 import in_int8

pytestmark = pytest.mark.slow
SEEDS = range(5)
CELLS = ["tools", "plain-code", "rounded-code", "bits-code", "serve-code", "arrivals-code"]
CELLS += ["serve-loop", "preempt-code", "preempt-step", "pay-code"]


@pytest.fixture(scope="module")
def lab():
    """The names that the notebook's cells define, with the reference in place of answers."""
    notebook = json.loads((ROOT / "notebooks" / "10_serving.ipynb").read_text("utf-8"))
    sources = {cell["id"]: "".join(cell["source"]) for cell in notebook["cells"]}
    names = dict(vars(serving))
    for cell in CELLS:
        source = sources[cell].replace("from tinyllm.serving", "from solutions.serving")
        exec(compile(source, cell, "exec"), names)
    return names


def tell(claim, numbers):
    print(f"\n{claim}: " + "  ".join(f"{number:.3g}" for number in numbers))


def stories(tokenizer):
    """Five sets of twelve stories that are in no training row."""
    held = Validation(tokenizer, documents=60, longest=128)
    rows = [row for batch in held.batches for row in batch.split(1)]
    draw = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0)).tolist()
    for seed in SEEDS:
        held.batches = [rows[n] for n in draw[12 * seed : 12 * seed + 12]]
        yield held


@pytest.mark.parametrize("name", ["stories-dense", "stories-moe"])
def test_bits(lab, name):
    model, tokenizer = load_chat_model(name)
    more = {}
    for bits, size in ((8, None), (4, None), (3, None), (3, 64), (3, 16), (2, None), (2, 16)):
        coarse, found = lab["rounded"](model, bits, size), []
        for held in stories(tokenizer.library):
            loss = lab["surprise"](coarse, held) - lab["surprise"](model, held)
            found.append(loss.mean().item())
        more[bits, size] = found
        tell(f"{name}, {bits} bits, {size or 'a row'} per scale, nats more", found)
    assert all(abs(x) < 0.01 for x in more[8, None])
    assert all(x < 0.1 for x in more[4, None])
    assert all(
        x > y > z for x, y, z in zip(more[3, None], more[3, 64], more[3, 16], strict=True)
    )
    assert all(x > 1 for x in more[2, None] + more[2, 16])


def test_outlier(lab):
    found = []
    for seed in SEEDS:
        matrix = torch.randn(8, 64, generator=torch.Generator().manual_seed(seed))
        matrix[3, 10] = 30.0
        others = torch.arange(8) != 3
        errors = []
        for rows, size in ((1, None), (8, None), (8, 16)):
            pair = serving.quantize(matrix.reshape(rows, -1), 4, size)
            error = (serving.dequantize(*pair).reshape(8, 64) - matrix).square().mean(1).sqrt()
            errors.append((error[others].mean().item(), error[3].item()))
        found.append(errors)
        assert errors[0][0] > 4 * errors[1][0] and errors[1][1] > 1.5 * errors[2][1]
    tell("one scale: error of ordinary rows", [e[0][0] for e in found])
    tell("a scale per row: error of ordinary rows", [e[1][0] for e in found])
    tell("a scale per row: error of the outlier's row", [e[1][1] for e in found])
    tell("groups of 16: error of the outlier's row", [e[2][1] for e in found])


def test_blocks():
    shares = []
    for seed in SEEDS:
        draw = torch.Generator().manual_seed(seed)
        lengths = 8 + (240 * torch.rand(200, generator=draw) ** 3).long()
        shares.append((lengths.sum() / (256 * 200)).item())
        unused = [1 - lengths.sum() / (-(-lengths // n) * n).sum() for n in (4, 16, 64, 256)]
        assert unused == sorted(unused)
    tell("share of places used when 256 are reserved", shares)
    assert all(0.2 < share < 0.33 for share in shares)


def test_inputs_rounded_too(lab):
    """torch's int8 rounds the inputs as well, and is less exact than rounded weights alone."""
    found = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        words, plain = torch.nn.Embedding(9, 512), torch.nn.Linear(512, 512)
        right = plain(words.weight[3])
        mine = serving.QuantizedLinear(plain.weight, plain.bias)(words.weight[3])
        quick = in_int8(torch.nn.Sequential(words, lab["copy"].deepcopy(plain)))
        theirs = quick(torch.tensor([[3]]))[0, 0]
        found.append([((x - right).norm() / right.norm()).item() for x in (mine, theirs)])
    tell("weights rounded: error", [mine for mine, _ in found])
    tell("inputs rounded, too: error", [theirs for _, theirs in found])
    assert all(theirs > 1.5 * mine for mine, theirs in found)
