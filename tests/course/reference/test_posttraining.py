"""Lab 11 compared with PEFT's loader, plain objectives under autograd, and a loop by hand."""

import json

import oracle
import pytest
import torch
from safetensors.torch import save_file
from torch.testing import assert_close

from solutions.posttraining import (
    add_lora,
    answer_labels,
    dpo_loss,
    group_advantages,
    grpo_step,
    lora_state_dict,
    merge,
    policy_loss,
    token_log_probs,
)

IDS = torch.arange(3, 60).view(3, 19)


def adapted(seed=0):
    """A tiny model without LoRA, and one with random LoRA weights"""
    torch.manual_seed(seed)
    plain, model = (oracle.ours(oracle.DENSE) for _ in range(2))
    model.load_state_dict(plain.state_dict())
    paths = add_lora(model, r=3, lora_alpha=5.0, target_modules=("q_proj", "down_proj"))
    for name, weight in model.named_parameters():
        if "lora_" in name:
            weight.data.normal_(std=0.3)
    return plain, model, paths


def test_lora_begins_as_the_model_and_merges_into_its_layout():
    plain, model, paths = adapted()
    assert len(paths) == 2 * oracle.DENSE.num_hidden_layers
    learned = model(IDS)
    assert not torch.allclose(learned, plain(IDS), atol=0.01)
    assert merge(model) == paths
    assert model.state_dict().keys() == plain.state_dict().keys()
    assert_close(model(IDS), learned, **oracle.CLOSE)


def test_peft_loads_what_we_save(tmp_path):
    peft = pytest.importorskip("peft", reason="not checked: peft is not installed")
    plain, model, _ = adapted()
    (tmp_path / "base").mkdir()
    oracle.save(plain, tmp_path / "base")
    there = oracle.load_hf(tmp_path / "base", torch.float32)
    folder = tmp_path / "adapter"
    folder.mkdir()
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 3, "lora_alpha": 5.0}
    config["target_modules"] = ["q_proj", "down_proj"]
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(lora_state_dict(model), folder / "adapter_model.safetensors")
    loaded = peft.PeftModel.from_pretrained(there, str(folder))
    assert_close(loaded(IDS).logits, model(IDS), **oracle.CLOSE)
    assert_close(loaded.merge_and_unload()(IDS).logits, model(IDS), **oracle.CLOSE)


def test_names_are_those_of_peft():
    _, model, paths = adapted()
    expected = [
        f"base_model.model.{path}.lora_{letter}.weight" for path in paths for letter in "AB"
    ]
    assert sorted(lora_state_dict(model)) == sorted(expected)


def test_labels_are_the_answers_of_a_chat_template():
    """Labels are exactly the tokens between the header and the end."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda: torch.randint(9, 30, (4,), generator=generator).tolist()  # noqa: E731
    for turns in range(1, 5):
        ids, right = [], []
        for number in range(turns):
            head = [4, 6 + number % 2, 5]
            said = [*draw(), 3]
            ids += [*head, *said, 5]
            right += [-100] * 3 + (said if number % 2 else [-100] * 5) + [-100]
        labels = answer_labels(torch.tensor([ids]), (4, 7, 5), 3)
        assert labels.tolist() == [right]


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "dr_grpo"])
def test_at_first_the_gradient_is_that_of_the_plain_objective(loss_type):
    """If old and new policy are equal: the gradient of -A * log p, averaged as in each type."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(4, 7, 11, generator=generator, requires_grad=True)
    ids = torch.randint(0, 11, (4, 7), generator=generator)
    lengths = torch.tensor([6, 2, 4, 5])
    mask = torch.arange(6) < lengths[:, None]
    gains = group_advantages(torch.tensor([1.0, 0.0, 0.2, 0.4]), 2)
    log_probs = token_log_probs(logits, ids, temperature=0.7)
    loss = policy_loss(log_probs, log_probs.detach(), gains, mask, loss_type=loss_type)
    (grad,) = torch.autograd.grad(loss, logits)
    by_hand = 0.0
    for row, length in enumerate(lengths.tolist()):
        share = {"grpo": 1 / (4 * length), "dapo": 1 / 17, "dr_grpo": 1 / 24}[loss_type]
        for t in range(length):
            p = torch.distributions.Categorical(logits=logits[row, t] / 0.7)
            by_hand = by_hand - share * gains[row] * p.log_prob(ids[row, t + 1])
    (right,) = torch.autograd.grad(by_hand, logits)
    assert_close(grad, right)


def test_the_kl_term_is_an_unbiased_estimate():
    """Its mean over samples of the new model is the KL divergence from the reference."""
    generator = torch.Generator().manual_seed(2)
    new, ref = torch.randn(2, 5, generator=generator).log_softmax(-1)
    zeros, ones = torch.zeros(5, 1), torch.ones(5, 1)
    terms = [
        policy_loss(
            new[None, None, i], new[None, None, i], zeros[0], ones[:1],
            ref_log_probs=ref[None, None, i], beta=1.0,
        )
        for i in range(5)
    ]  # fmt: skip
    estimate = (new.exp() * torch.stack(terms)).sum()
    assert_close(
        estimate, torch.nn.functional.kl_div(ref, new, log_target=True, reduction="sum")
    )


def test_dpo_is_a_logistic_regression_on_log_ratios():
    generator = torch.Generator().manual_seed(3)
    new, ref = torch.randn(2, 6, 4, generator=generator)
    loss, margin = dpo_loss(new.requires_grad_(), ref, torch.ones(6, 4), beta=0.4)
    sums = (new - ref).sum(1)
    right = -torch.log(torch.sigmoid(0.4 * (sums[:3] - sums[3:])))
    assert_close(loss, right.mean())
    assert_close(torch.exp(-right), margin.sigmoid())


def test_a_wish_for_a_token_is_learned():
    """A tiny model learns from scratch to write the token that the reward counts."""
    torch.manual_seed(0)
    model = oracle.ours(oracle.DENSE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.0)
    generator = torch.Generator().manual_seed(0)
    rewards = [
        grpo_step(
            model, optimizer, IDS[:2, :4], torch.ones(2, 4, dtype=torch.long),
            lambda ids: ids.count(7) / len(ids), 8, 8, [2], generator=generator,
        )["reward"]
        for _ in range(40)
    ]  # fmt: skip
    assert sum(rewards[:5]) / 5 < 0.2 < 0.6 < sum(rewards[-5:]) / 5
