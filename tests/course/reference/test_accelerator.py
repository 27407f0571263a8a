"""The models on a GPU: the numbers of transformers there, and those of the CPU."""

import copy

import oracle
import pytest
import torch
from torch.testing import assert_close

from solutions.config import Qwen3NextConfig
from solutions.generation import generate
from solutions.hybrid_model import Qwen3NextForCausalLM
from solutions.posttraining import grpo_step
from solutions.serving import PagedCache, Request, Scheduler
from solutions.training import causal_lm_loss

pytestmark = pytest.mark.skipif(
    not torch.accelerator.is_available(), reason="not checked: there is no GPU"
)
GPU = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "cpu"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["dense", "moe", "moe-raw-weights-tied"])
def test_logits_are_those_of_transformers_there(name, dtype, tmp_path):
    model = oracle.ours(oracle.CONFIGS[name]).to(dtype)
    oracle.save(model, tmp_path)
    there = oracle.load_hf(tmp_path, dtype).to(GPU)
    ids, mask = (tensor.to(GPU) for tensor in oracle.left_padded((7, 3, 9)))
    for sizes in ((9,), (3, 1, 1, 4)):
        mine = oracle.chunks(model.to(GPU), ids, sizes, mask)[mask.bool()]
        theirs = oracle.hf_chunks(there, ids, sizes, mask)[mask.bool()]
        close = oracle.CLOSE if dtype == torch.float32 else {"rtol": 0, "atol": 0}
        assert_close(mine, theirs, **close)


@pytest.mark.parametrize("name", ["dense", "moe"])
def test_gradients_and_words_are_those_of_the_cpu(name):
    model, ids = oracle.ours(oracle.CONFIGS[name]), oracle.tokens(2, 9)
    gpu_model = copy.deepcopy(model).to(GPU)
    causal_lm_loss(model(ids), ids).backward()
    causal_lm_loss(gpu_model(ids.to(GPU)), ids.to(GPU)).backward()
    for mine, theirs in zip(gpu_model.parameters(), model.parameters(), strict=True):
        if theirs.grad is not None:
            assert_close(mine.grad.cpu(), theirs.grad, rtol=1e-4, atol=1e-5)
    words = generate(gpu_model, ids.to(GPU), None, 12)
    assert torch.equal(words.cpu(), generate(model, ids, None, 12))
    drawn = [
        generate(gpu_model, ids.to(GPU), None, 12, temperature=1.0, top_k=9, top_p=0.9,
                 generator=torch.Generator(GPU).manual_seed(1))
        for _ in range(2)
    ]  # fmt: skip
    assert torch.equal(*drawn) and not torch.equal(drawn[0], words)


def test_the_hybrid_model_gives_the_numbers_of_the_cpu():
    torch.manual_seed(0)
    sizes = {"vocab_size": 53, "hidden_size": 24, "intermediate_size": 40, "num_experts": 0}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    linear = {f"linear_num_{part}_heads": 2 for part in ("key", "value")}
    linear |= {f"linear_{part}_head_dim": 8 for part in ("key", "value")}
    config = Qwen3NextConfig(num_hidden_layers=4, **sizes, **heads, **linear)
    model = Qwen3NextForCausalLM(config)
    ids = torch.randint(53, (2, 70))
    with torch.no_grad():
        logits = copy.deepcopy(model).to(GPU)(ids.to(GPU)).cpu()
        assert_close(logits, model(ids), rtol=0, atol=1e-4)


def test_serving_gives_the_answers_of_the_cpu():
    answers = []
    for device in ("cpu", GPU):
        model = oracle.ours(oracle.DENSE).to(device)
        scheduler = Scheduler(model, PagedCache(3, num_blocks=11, block_size=3), 2, ())
        for number in range(4):
            scheduler.submit(Request(number, oracle.tokens(1, 3, number)[0].tolist(), 6))
        while scheduler.waiting or scheduler.running:
            scheduler.step()
        answers.append(scheduler.finished)
    assert answers[0] == answers[1]


def test_a_step_of_grpo_learns_there():
    model = oracle.ours(oracle.DENSE).to(GPU).train()
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    ids = oracle.tokens(2, 5).to(GPU)
    grpo_step(
        model, optimizer, ids, torch.ones_like(ids),
        lambda text: len(set(text)),
        group_size=4, max_new_tokens=6, eos_token_id=[1],
        generator=torch.Generator(GPU).manual_seed(0),
    )  # fmt: skip
    assert any(not torch.equal(model.state_dict()[key], before[key]) for key in before)
