"""The fast path computes what the plain code computes, and leaves other models alone."""

import copy

import oracle
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch._dynamo.utils import counters
from torch.nn.utils import prune
from torch.testing import assert_close
from typer.testing import CliRunner

from labkit.cli import app
from labkit.learner.talk import commands
from labkit.model.fast import CAUSAL, accelerate, compile_layers, lay_side_by_side, stacked
from labkit.model.saving import SINGLE, save
from solutions.generation import KVCache, generate
from solutions.gqa import Qwen3Attention, causal_mask

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def both(name, dtype=torch.float32, **settings):
    """(plain, fast) with the same weights."""
    model = oracle.ours(oracle.CONFIGS[name]).to(dtype)
    return model, accelerate(copy.deepcopy(model), **settings)


def chunks(model, ids, sizes, mask=None):
    """The logits of a prompt that is fed to a cache piece by piece."""
    cache, start, found = KVCache(model.config.num_hidden_layers, ids.size(1)), 0, []
    for end in torch.tensor(sizes).cumsum(0).tolist():
        seen = None if mask is None else mask[:, :end]
        found.append(model(ids[:, start:end], seen, cache))
        start = end
    return torch.cat(found, dim=1)


@pytest.mark.parametrize("name", oracle.CONFIGS)
@pytest.mark.parametrize("batch", [1, 8])
@torch.no_grad()
def test_float32(name, batch):
    model, fast = both(name)
    ids = oracle.tokens(batch, 9)
    assert_close(fast(ids), model(ids), **CLOSE)
    for sizes in ((9,), (4, 5), (3, 1, 1, 4), (1,) * 9):
        assert_close(chunks(fast, ids, sizes), chunks(model, ids, sizes), **CLOSE)


@pytest.mark.parametrize("name", oracle.CONFIGS)
@torch.no_grad()
def test_left_padding(name):
    model, fast = both(name)
    ids, mask = oracle.left_padded((7, 3, 9))
    real = mask.bool()
    assert_close(fast(ids, mask)[real], model(ids, mask)[real], **CLOSE)
    for sizes in ((9,), (8, 1), (4, 3, 1, 1)):
        got = chunks(fast, ids, sizes, mask)
        assert not got.isnan().any()
        assert_close(got[real], chunks(model, ids, sizes, mask)[real], **CLOSE)


@pytest.mark.parametrize("name", oracle.CONFIGS)
@pytest.mark.parametrize(("batch", "length"), [(1, 1), (8, 1), (1, 9), (8, 9)])
@torch.no_grad()
def test_bfloat16_differs_by_rounding_alone(name, batch, length):
    """Part by part on the same input, so that no rounding earlier on sends a token to another
    expert: within two units in the last place of the largest value."""
    model, fast = both(name, torch.bfloat16)
    x = torch.randn(batch, length, 24, generator=oracle.rng(3)).bfloat16()
    turned = torch.ones(1, length, 10)
    mask = causal_mask(length, length)
    for here, there in zip(model.model.layers, fast.model.layers, strict=True):
        for part, extra in (("self_attn", (turned, 0 * turned, mask)), ("mlp", ())):
            ours, quick = (first(getattr(layer, part)(x, *extra)) for layer in (here, there))
            assert quick.dtype == torch.bfloat16
            assert (quick - ours).abs().max() <= 2 * 2**-7 * ours.abs().max()


def first(result):
    return result[0] if isinstance(result, tuple) else result


@pytest.mark.parametrize("name", ["dense", "dense-untied-bias"])
@torch.no_grad()
def test_bfloat16_whole_model(name):
    model, fast = both(name, torch.bfloat16)
    ids = oracle.tokens(8, 9)
    expected = chunks(model, ids, (8, 1))
    difference = chunks(fast, ids, (8, 1)) - expected
    assert difference.norm() < 0.03 * expected.norm()


@pytest.mark.parametrize("name", oracle.CONFIGS)
def test_greedy_words_are_the_same(name):
    model, fast = both(name, last_logits_only=True)
    ids, mask = oracle.left_padded((6, 2, 8))
    assert torch.equal(generate(fast, ids, mask, 12), generate(model, ids, mask, 12))
    assert torch.equal(
        generate(fast, ids[:1, 2:], None, 12), generate(model, ids[:1, 2:], None, 12)
    )
    assert torch.equal(
        generate(fast, ids, mask, 12, use_cache=False), generate(model, ids, mask, 12)
    )


@torch.no_grad()
def test_last_logits_only_where_there_is_a_cache():
    model, fast = both("moe", last_logits_only=True)
    ids = oracle.tokens(2, 5)
    logits, router_logits = fast(ids, output_router_logits=True)
    assert_close(logits, model(ids), **CLOSE)
    assert len(router_logits) == 3
    assert_close(fast(ids, cache=KVCache(4, 5)), model(ids)[:, -1:], **CLOSE)


@pytest.mark.parametrize("name", ["dense", "moe", "moe-whole-lines"])
@pytest.mark.parametrize("length", [1, 5, 30])
@pytest.mark.parametrize("writing", [False, True])
def test_gradients(name, length, writing):
    model, fast = both(name, last_logits_only=writing)
    learns_the_same(fast, model, length)


@pytest.mark.parametrize("name", ["dense", "moe", "moe-whole-lines"])
def test_compiled_layers_learn_the_same(name):
    """Also as a copy with weights of its own, such as the mean of a run's weights, whose
    experts do not lie side by side."""
    torch.compiler.reset()  # what other tests had compiled
    model, fast = both(name)
    assert compile_layers(fast) == ""
    apart = copy.deepcopy(fast)
    counters.clear()
    for length in (9, 14):
        learns_the_same(fast, model, length)
    graphs = counters["stats"]["unique_graphs"]
    assert graphs >= 1
    learns_the_same(fast, model, 21)
    assert counters["stats"]["unique_graphs"] == graphs  # of any length by now
    with torch.no_grad():
        for parameter in fast.parameters():
            parameter.mul_(2)
    for length in (9, 14):
        learns_the_same(apart, model, length)
    counters.clear()
    ids, mask = oracle.left_padded((7, 3, 9))
    assert_close(apart(ids, mask)[mask.bool()], model(ids, mask)[mask.bool()], **CLOSE)
    with torch.no_grad():
        assert_close(chunks(apart, ids, (8, 1)), chunks(model, ids, (8, 1)), **CLOSE)
    assert not counters["stats"]


def learns_the_same(learner, model, length):
    ids = oracle.tokens(3, length)
    for one in (model, learner):
        one.zero_grad()
        one(ids).square().mean().backward()
    grads = {name: p.grad for name, p in learner.named_parameters()}
    for key, parameter in model.named_parameters():
        if parameter.grad is None:
            assert grads[key] is None or not grads[key].any()
        else:
            assert_close(grads[key], parameter.grad, **CLOSE)


def test_where_torch_cannot_compile_it_says_why_and_nothing_changes(monkeypatch):
    def compiler(function):
        raise RuntimeError("no C++ compiler\nand much more")

    monkeypatch.setattr(torch, "compile", compiler)
    plain, fast = both("moe")
    assert "other code" in compile_layers(plain)
    before = [dict(vars(module)) for module in fast.modules()]
    assert compile_layers(fast) == "no C++ compiler"
    assert before == [vars(module) for module in fast.modules()]


@pytest.mark.parametrize("name", ["dense", "moe", "moe-whole-lines"])
@torch.no_grad()
def test_weights_that_change_are_seen(name):
    """Whatever lies beside what in memory, and by chance or not."""
    model, fast = both(name, last_logits_only=True)
    ids = oracle.tokens(2, 6)
    for one in (model, fast):
        one(ids, cache=KVCache(4, 9))
        for parameter in one.parameters():
            parameter.mul_(1.1)
    assert_close(fast(ids), model(ids), **CLOSE)
    for one in (model, fast):
        for module in one.modules():  # another storage behind the same Parameter
            if isinstance(module, nn.Linear):
                module.weight.data = module.weight.data * 0.9
    assert_close(fast(ids), model(ids), **CLOSE)


@torch.no_grad()
def test_matrices_as_one():
    memory = bytearray(4 * 4 * 2 * 2)
    layers = [nn.Linear(4, 2, bias=False, dtype=torch.bfloat16) for _ in range(4)]
    groups = [layers[:2], layers[2:]]
    assert stacked(groups) is None and stacked([layers]) is None
    for place, layer in enumerate(layers):  # neighbours, but of different storages
        near = torch.frombuffer(memory, dtype=torch.bfloat16, count=8, offset=16 * place)
        layer.weight.data = near.view(4, 2).copy_(layer.weight.T).T
    assert stacked([[layer] for layer in layers]) is None
    lay_side_by_side(groups, columns=True)
    whole = torch.stack([torch.cat([layer.weight for layer in group]).T for group in groups])
    assert torch.equal(stacked(groups), whole) and whole.shape == (2, 4, 4)
    assert stacked(groups).data_ptr() == layers[0].weight.data_ptr()
    assert torch.equal(stacked(groups[1:]), whole[1:])
    layers[1].weight.mul_(2)
    assert torch.equal(stacked(groups)[0, :, 2:], 2 * whole[0, :, 2:])
    for others in (groups[::-1], [layers[::2]], [layers], [[layer] for layer in layers]):
        assert stacked(others) is None
    layers[3].weight = nn.Parameter(layers[3].weight.clone())
    assert stacked(groups) is None and stacked(groups[:1]) is not None
    whole[0, :, 2:] *= 2
    lay_side_by_side(groups)  # in rows, in which each is contiguous
    assert torch.equal(stacked(groups), whole)
    assert all(layer.weight.is_contiguous() for layer in layers)


@pytest.mark.parametrize(
    "odd",
    [
        nn.Linear(4, 2),
        nn.Linear(4, 2, bias=False).double(),
        nn.Linear(4, 2, bias=False, device="meta"),
        nn.Identity(),
    ],
)
@torch.no_grad()
def test_layers_that_cannot_be_one_stay_as_they_are(odd):
    layers = [nn.Linear(4, 2, bias=False), odd]
    before = copy.deepcopy(layers)
    lay_side_by_side([layers])
    assert stacked([layers]) is None
    for layer, same in zip(layers, before, strict=True):
        for mine, its in zip(layer.parameters(), same.parameters(), strict=True):
            assert mine.dtype == its.dtype and mine.device == its.device


@torch.no_grad()
def test_a_pruned_model_is_sped_up_as_far_as_it_can_be():
    model = oracle.ours(oracle.CONFIGS["moe"])
    for module in model.modules():
        if isinstance(module, nn.Linear):
            prune.l1_unstructured(module, "weight", 0.3)
    fast = accelerate(copy.deepcopy(model), last_logits_only=True)
    ids = oracle.tokens(2, 6)
    assert_close(fast(ids), model(ids), **CLOSE)


@pytest.mark.parametrize(("length", "padded"), [(1, False), (30, False), (30, True)])
def test_gradients_in_bfloat16(length, padded):
    """Of attention, whose steps are others where it learns."""
    plain = Qwen3Attention(oracle.DENSE, 0).bfloat16()
    quick, mask = accelerate(copy.deepcopy(plain)), causal_mask(length, length)
    if padded:
        real = torch.arange(length) >= torch.tensor([[0], [3], [9]])  # (3, T)
        mask = mask & real[:, None, None] | torch.eye(length, dtype=torch.bool)
    turned = torch.ones(1, length, oracle.DENSE.head_dim)
    found = []
    for one, seen in ((plain, mask), (quick, mask if padded else CAUSAL)):
        x = torch.randn(3, length, 24, generator=oracle.rng(3)).bfloat16().requires_grad_()
        one(x, turned, 0 * turned, seen).float().square().sum().backward()
        found.append([x.grad, *(parameter.grad for parameter in one.parameters())])
    for ours, fast in zip(*found, strict=True):
        assert (fast - ours).norm() <= 0.02 * ours.norm()


@pytest.mark.filterwarnings("error")
def test_autocast():
    """Part by part, as in bfloat16: matrices in half precision, the rest as it comes."""
    model, fast = both("moe")
    x = torch.randn(3, 30, 24, generator=oracle.rng(3))
    turned, mask = torch.ones(1, 30, 10), causal_mask(30, 30)
    with torch.autocast("cpu", torch.bfloat16):
        for here, there in zip(model.model.layers, fast.model.layers, strict=True):
            for part, extra in (("self_attn", (turned, 0 * turned, mask)), ("mlp", ())):
                ours, quick = (
                    first(getattr(layer, part)(x, *extra)) for layer in (here, there)
                )
                assert quick.dtype == ours.dtype
                assert (quick - ours).abs().max() <= 2 * 2**-7 * ours.abs().max()


def test_a_mask_for_every_head():
    attention = Qwen3Attention(oracle.DENSE, 0)
    quick = accelerate(copy.deepcopy(attention))
    mask = torch.rand(2, 4, 1, 6, generator=oracle.rng(0)) < 0.7
    mask[..., 0] = True
    x, past = torch.randn(2, 1, 24), torch.randn(2, 5, 24)
    results = []
    for one in (attention, quick):
        cache = KVCache(1, 6)
        turned = [torch.ones(1, length, 10) for length in (5, 1)]
        one(past, turned[0], 0 * turned[0], None, cache)
        results.append(one(x, turned[1], 0 * turned[1], mask, cache))
    assert_close(results[1], results[0], **CLOSE)


def test_errors_stay():
    _, fast = both("dense")
    cache = KVCache(3, 80)
    with torch.no_grad():
        fast(oracle.tokens(1, 64), cache=cache)
        with pytest.raises(ValueError, match="max_position_embeddings allows 64"):
            fast(oracle.tokens(1, 1), cache=cache)
        with pytest.raises(ValueError, match="holds token 67"):
            fast(torch.tensor([[67]]), cache=KVCache(3, 80))


def test_weights_are_untouched(tmp_path):
    model = oracle.ours(oracle.MOE)
    parameters, before = list(model.parameters()), copy.deepcopy(model.state_dict())
    assert accelerate(model, last_logits_only=True) is model
    for parameter, same in zip(model.parameters(), parameters, strict=True):
        assert parameter is same
    assert_close(dict(model.state_dict()), dict(before), rtol=0, atol=0)
    save(model, model.config, tmp_path / "experts lie side by side")
    saved = load_file(tmp_path / "experts lie side by side" / SINGLE)
    assert_close(saved, {name: before[name] for name in saved}, rtol=0, atol=0)
    assert len(saved) >= len(parameters)


def test_what_learns_stays_contiguous():
    """torch's fused optimizers take the memory of a Parameter for its numbers in a row."""
    for parameter in both("moe")[1].parameters():
        assert parameter.is_contiguous()


def test_other_models_are_left_alone():
    """A learner's package may bear the same names and do other things within."""
    learners = type("Qwen3Attention", (nn.Linear,), {"__module__": "tinyllm.gqa"})
    model = nn.Sequential(learners(3, 3), nn.Linear(3, 3))
    accelerate(model, last_logits_only=True)
    assert not any("forward" in vars(module) for module in model.modules())


@pytest.mark.parametrize("plain", [False, True])
def test_chat_and_generate_use_it_unless_told(chat_folder, plain):
    options = commands.ModelOptions(str(chat_folder), seed=0, package="solutions", plain=plain)
    chosen = options.chat_model()
    assert any("forward" in vars(module) for module in chosen.model.modules()) != plain


def test_both_ways_write_the_same(chat_folder):
    arguments = ["generate", str(chat_folder), "-p", "Anna has"]
    arguments += ["--greedy", "--max-new-tokens", "9"]
    fast, slow = (CliRunner().invoke(app, arguments + more) for more in ([], ["--plain"]))
    assert fast.exit_code == slow.exit_code == 0
    assert fast.stdout == slow.stdout and fast.stdout.strip()
