"""The claims of lab 14 about its experiments, in five draws each, by the notebook's own cells.

pytest -m slow tests/course/claims/test_parallel_claims.py -s    prints the table
"""

import copy
import json

import pytest
import torch

import solutions.parallel as parallel
from labkit.course.paths import ROOT
from labkit.learner.lessons.data import Rows
from labkit.learner.lessons.machines import Layout, serving
from labkit.learner.models import load_chat_model
from solutions.config import PRESETS
from solutions.ranks import World

pytestmark = pytest.mark.slow


def tell(claim, numbers):
    print(f"\n{claim}: " + "  ".join(f"{number:.3g}" for number in numbers))


def cell(name, names):
    notebook = json.loads((ROOT / "notebooks" / "14_parallel.ipynb").read_text("utf-8"))
    (source,) = ["".join(c["source"]) for c in notebook["cells"] if c["id"] == name]
    exec(compile(source, name, "exec"), names)


def test_many_tokens_are_less_unequal_than_few():
    """14.balance: busiest rank over the mean, 256 tokens against 8."""
    names = {**vars(parallel), "World": World}
    cell("balance-load", names)
    model, tokenizer = load_chat_model("stories-moe")
    few, many = [], []
    for seed in range(5):
        texts, caught = Rows(tokenizer.library, 128).batch(40_000 + 1000 * seed, 4), []
        hooks = [
            layer.mlp.register_forward_pre_hook(
                lambda block, given, kept=caught: kept.append((block, given[0].detach()))
            )
            for layer in model.model.layers
            if layer.uses_experts
        ]
        with torch.no_grad():
            model(texts)
        for hook in hooks:
            hook.remove()
        for size, ratios in ((8, few), (256, many)):
            found = [
                names["load"](copy.deepcopy(block), tokens.flatten(0, 1)[start:][:size])
                for block, tokens in caught
                for start in (0, 128, 256)
            ]
            ratios.append(sum((n.max() / n.float().mean()).item() for n in found) / len(found))
    tell("busiest / mean, 8 tokens", few)
    tell("busiest / mean, 256 tokens", many)
    assert min(few) > max(many) > 1


def test_means_of_means_are_right_for_equal_counts_alone():
    """14.means, with other models and other texts."""
    names = {**vars(parallel)}
    cell("means-code", names)
    for seed in range(5):
        model = names["small_model"](seed)
        ids = torch.randint(48, (8, 17), generator=torch.Generator().manual_seed(seed))
        gaps = []
        for counted in (16, 12, 8, 4, 2):
            labels = ids.clone()
            labels[4:, 1 + counted :] = -100
            whole = names["gradient"](model, ids, labels)
            halves = [
                names["gradient"](model, ids[part], labels[part])
                for part in (slice(0, 4), slice(4, 8))
            ]
            gaps.append(float((sum(halves) / 2 - whole).norm() / whole.norm()))
        tell(f"error of the mean of means, seed {seed}", gaps)
        assert gaps[0] < 1e-5 and gaps == sorted(gaps)


def test_the_plan_answers_as_the_text_says():
    """14.plan and the model answer of 14.c."""
    config = PRESETS["Qwen3-235B-A22B"]
    layouts = [Layout(64, 8, 8), Layout(64, 64, 64), Layout(64, 4, 64)]
    many = [serving(config, layout, 1024, 4096) for layout in layouts]
    assert [row["fits"] for row in many] == [0, 0, 1]
    alone = [serving(config, layout, 1, 4096)["ms"] for layout in layouts]
    tell("ms for one text", alone)
    assert min(alone) == alone[0]
