"""Lab 13's reference compared with formulas, torch's divergence, enumeration and `generate`."""

from itertools import combinations

import pytest
import torch
from torch.testing import assert_close

from labkit.learner.lessons import cups
from solutions.config import Qwen3Config
from solutions.decoder import Qwen3ForCausalLM
from solutions.generation import generate
from solutions.thinking import (
    distill_loss,
    fuse_modes,
    generate_with_budget,
    paired_test,
    pass_at_k,
    questions_needed,
)
from solutions.training import causal_lm_loss

WRITES = {"open_think": cups.OPEN, "close_think": cups.CLOSE, "eos_token_id": [cups.END]}


def model():
    torch.manual_seed(0)
    return Qwen3ForCausalLM(Qwen3Config(**cups.SHAPE)).requires_grad_(False)


def prompts(count=12, swaps=(1, 3, 9)):
    return cups.ask(
        cups.questions(count, swaps, torch.Generator().manual_seed(1))[0], cups.THINK
    )


def test_without_a_budget_it_is_generate():
    x = prompts()
    mine = generate_with_budget(model(), x, None, None, 20, **WRITES)
    assert torch.equal(mine, generate(model(), x, None, 20, eos_token_id=[cups.END]))


@pytest.mark.parametrize("budget", [0, 1, 5])
def test_a_batch_is_its_rows_one_by_one(budget):
    x, decoder = prompts(), model()
    x[::2, -1] = cups.OPEN  # some thoughts begin in the prompt
    settings = {**WRITES, "closing": [cups.BLANK, cups.CLOSE, cups.THINK]}
    batch = generate_with_budget(decoder, x, None, budget, 16, **settings)
    for row in range(len(x)):
        alone = generate_with_budget(decoder, x[row : row + 1], None, budget, 16, **settings)[0]
        assert torch.equal(batch[row, : len(alone)], alone)
        written = alone[x.size(1) :].tolist()
        if row % 2 == 0:
            assert cups.CLOSE in written[: budget + 2]


def test_the_loss_of_both_modes_is_that_of_each_text_alone():
    batch = cups.questions(3, (1, 6), torch.Generator().manual_seed(2))
    ids, mask, labels = fuse_modes(*batch, **cups.MARKS)
    decoder = model()
    total, count = 0.0, 0
    for row in range(6):
        n = int(mask[row].sum())
        kept = int((labels[row] != -100).sum())
        total += (
            causal_lm_loss(decoder(ids[row : row + 1, :n]), labels[row : row + 1, :n]) * kept
        )
        count += kept
    assert_close(causal_lm_loss(decoder(ids, mask), labels), total / count)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_the_loss_is_torch_s_divergence(direction):
    generator = torch.Generator().manual_seed(3)
    student, teacher = torch.randn(2, 4, 6, 9, generator=generator)
    log_q, log_p = (x.log_softmax(-1).flatten(0, 1) for x in (student / 2, teacher / 2))
    pair = (log_q, log_p) if direction == "forward" else (log_p, log_q)
    right = torch.nn.functional.kl_div(*pair, log_target=True, reduction="batchmean")
    assert_close(distill_loss(student, teacher, torch.ones(4, 6), direction, 2.0), 4 * right)


def test_pass_at_k_counts_subsets():
    for n, c, k in ((5, 2, 2), (6, 1, 4), (4, 4, 1), (5, 0, 3)):
        sets = list(combinations(range(n), k))
        share = sum(min(chosen) < c for chosen in sets) / len(sets)
        assert_close(pass_at_k(torch.tensor([c]), n, k), torch.tensor([share]).double())


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    generator, hits = torch.Generator().manual_seed(4), 0
    for _ in range(200):
        first = torch.rand(100, generator=generator) < 0.6
        second = torch.where(torch.rand(100, generator=generator) < 0.2, ~first, first)
        truth = -0.2 * 0.2  # a fifth of 60 % right and of 40 % wrong answers flips
        found = paired_test(first, second, 300, generator=generator)
        hits += found["low"] <= truth <= found["high"]
        assert found["standard_error"] < found["unpaired"]
    assert 0.88 <= hits / 200 <= 0.99


def test_the_number_of_questions_makes_the_difference_that_large():
    needed = questions_needed(0.02, 0.2)
    error = ((0.2 - 0.02**2) / needed) ** 0.5
    assert 1.96 * error <= 0.02 and 1.96 * error * (needed / (needed - 1)) ** 0.5 > 0.02
