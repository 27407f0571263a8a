"""Lab 08's tools for training, and calls with objects as arguments."""

import time

import pytest
import torch

from labkit.checks.compare import Difference, assert_same
from labkit.learner import finale, models
from labkit.learner.lessons import lesson
from labkit.model import hub
from labkit.model.weights import CheckpointError
from labkit.sandbox.inside.call import Call, Given
from labkit.sandbox.inside.doubles.training import Momentum, WindowConfig, WindowModel
from labkit.sandbox.inside.perform import perform
from labkit.sandbox.inside.wire import (
    decode_call,
    decode_outcome,
    encode_call,
    encode_outcome,
)


def test_objects_are_made_once_and_their_state_comes_back():
    def step(model, optimizer, rate):
        optimizer.param_groups[1]["lr"] = rate
        model.mix.bias.data += 1
        return model.mix.bias.mean().item()

    def forgetful(model, optimizer, rate):
        return step(model, optimizer, 2 * rate)

    call = (
        Call("step", objects=Given("training.training", vocab_size=11, hidden_size=6, groups=2))
        .then(rate=0.5)
        .then(rate=0.25)
    )
    call = decode_call(encode_call(call))
    outcome, other = (perform(call, {"step": code}) for code in (step, forgetful))
    outcome = decode_outcome(encode_outcome(outcome))
    assert outcome.failure is None
    assert outcome.values[1] == pytest.approx(outcome.values[0] + 1)
    assert outcome.state["the learning rate of group 2"].item() == 0.25
    assert "model.mix.bias" in outcome.state
    assert_same(outcome, perform(call, {"step": step}))
    with pytest.raises(Difference, match="group 2 is 0\\.5 instead"):
        assert_same(other, outcome)


def test_momentum_steps_as_torch_does():
    torchs, ours = (torch.tensor([1.0, -2.0, 0.5], requires_grad=True) for _ in range(2))
    idle = torch.ones(2, requires_grad=True)  # no gradient ever reaches it
    pair = [
        torch.optim.SGD([{"params": [torchs]}, {"params": [idle]}], lr=0.1, momentum=0.9),
        Momentum([{"params": [ours]}, {"params": [idle]}], lr=0.1, momentum=0.9),
    ]
    for rate in (0.1, 0.5, 0.2):
        for weight, optimizer in zip((torchs, ours), pair, strict=True):
            optimizer.zero_grad(set_to_none=rate > 0.3)
            (weight**3).sum().backward()
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
    torch.testing.assert_close(ours, torchs)
    assert torch.equal(idle, torch.ones(2))


@pytest.mark.parametrize("experts", [0, 3])
def test_the_window_model_sees_its_window_and_no_padding(experts):
    model = WindowModel(WindowConfig(7, 5, num_hidden_layers=2, num_experts=experts))
    ids = torch.tensor([[1, 2, 3, 4, 5, 6]])
    logits, router_logits = model(ids, output_router_logits=True)
    assert logits.shape == (1, 6, 7)
    assert [tuple(r.shape) for r in router_logits] == ([(6, 3)] * 2 if experts else [])
    far, near = ids.clone(), ids.clone()
    far[0, 1], near[0, 2] = 0, 0
    assert torch.equal(model(far)[0, 5], logits[0, 5])
    assert not torch.equal(model(near)[0, 5], logits[0, 5])
    mask = torch.tensor([[0, 0, 0, 1, 1, 1]])
    assert torch.equal(model(ids, mask)[0, 3:], model(ids * mask, mask)[0, 3:])


def test_an_unfinished_decoder_is_replaced_and_named():
    with torch.no_grad():  # as in a cell that only measures a model
        found, whose = lesson.decoder()
    assert found is not None
    assert whose == "The course's own code stands in for all of yours, labs 01 to 06."


def test_an_expert_that_no_token_picked_stays_as_it_is():
    model = lesson.build(
        vocab_size=50, num_experts=4, num_experts_per_tok=1, moe_intermediate_size=8
    )
    optimizer = lesson.MuonAdamW(model)
    held = [p for group in optimizer.param_groups for p in group["params"]]
    assert len(held) == len({id(p) for p in held}) == len(list(model.parameters()))
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    model(torch.tensor([[1, 2]])).sum().backward()
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    optimizer.step()
    idle = [name for name, weight in model.named_parameters() if weight.grad is None]
    assert any("experts" in name for name in idle)
    same = {name for name, weight in model.named_parameters() if weight.equal(before[name])}
    assert same == set(idle)


def test_a_trained_model_is_kept_found_and_trained_further(monkeypatch, tmp_path, capsys):
    for room in (hub, lesson):
        monkeypatch.setattr(room, "trained_folder", lambda: tmp_path / "runs" / "mine")
    with pytest.raises(CheckpointError, match="lab 08 trains and keeps it"):
        hub.resolve("mine")
    assert not finale.hub.trained_folder().exists() and lesson.load_kept() is not None
    assert "this one is fresh" in capsys.readouterr().out
    model, ids = lesson.build(seed=5), torch.arange(24)[None]
    lesson.keep(model)
    assert "tinyllm chat mine" in capsys.readouterr().out
    assert (
        hub.resolve("mine") == finale.choose(None, models.reference()) == hub.trained_folder()
    )
    again = lesson.load_kept()
    assert torch.equal(again(ids), model(ids))
    stored = (hub.trained_folder() / "model.safetensors").read_bytes()
    again(ids).sum().backward()
    torch.optim.SGD(again.parameters(), lr=1.0).step()
    assert not torch.equal(again(ids), model(ids))
    assert (hub.trained_folder() / "model.safetensors").read_bytes() == stored


def test_it_tells_the_requested_number_of_stories_reproducibly():
    tokenizer, model = lesson.tokenizer(), lesson.build()
    told = [lesson.tell(model, tokenizer, count=2, longest=5, seed=3) for _ in range(2)]
    assert len(told[0]) == 2 and told[0] == told[1]
    assert set(lesson.truth(told[0])) == {"understood", "consistent", "sound"}
    shares = lesson.expert_shares([torch.randn(9, 4), torch.randn(9, 4)], 2)
    assert shares.shape == (2, 4) and torch.allclose(shares.sum(dim=1), torch.ones(2))


def test_the_pace_is_that_of_the_quicker_number_of_threads():
    before = torch.get_num_threads()
    try:
        for slow, best in ((2, 1), (1, 2)):
            done = []

            def steps(count, slow=slow, done=done):
                done.append(count)
                time.sleep(0.05 * count * (torch.get_num_threads() == slow))

            torch.set_num_threads(2)
            assert lesson.pace(steps) < 0.05
            assert torch.get_num_threads() == best and sum(done) == 8
    finally:
        torch.set_num_threads(before)
