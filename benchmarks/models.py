"""How fast the model is: the reference, plain and fast, beside transformers, in one run.

    python benchmarks/models.py [--size tiny|small|0.6B] [--rounds 7] [--threads N]

All sides have the same random weights. Their results are compared first; a row whose results
differ too much is refused. Then the sides take turns; a time is the median over the rounds.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import product
from statistics import median
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from labkit.model import fast
from solutions.config import Qwen3Config
from solutions.decoder import Qwen3ForCausalLM
from solutions.generation import KVCache
from solutions.moe import load_balancing_loss
from solutions.training import causal_lm_loss

CONFIG = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim"),
)
EXPERTS = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
SIZES = {  # config, experts, tokens of the prompt, (sequences, tokens) of a training step
    "tiny": ((512, 64, 192, 2, 4, 2, 16), (8, 2, 48), 64, (2, 32)),
    "small": ((2048, 256, 768, 4, 8, 4, 32), (16, 4, 192), 512, (4, 128)),
    # layers of Qwen3-0.6B, 4 of 28, and a vocabulary cut in proportion
    "0.6B": ((21504, 1024, 3072, 4, 16, 8, 128), (32, 4, 768), 512, (4, 128)),
}
ALLOWED = {torch.float32: 1e-4, torch.bfloat16: 0.1}  # relative difference of the results
STEPS = 8  # tokens decoded in one sample


class Ours:
    """The reference, or its fast path, with a writer for generation and a learner to train."""

    def __init__(self, writer: nn.Module, learner: nn.Module):
        self.writer, self.learner = writer, learner

    def read(self, ids: Tensor) -> tuple[Tensor, Any]:
        cache = KVCache(self.writer.config.num_hidden_layers, ids.size(1) + STEPS)
        return self.writer(ids, torch.ones_like(ids), cache)[:, -1], cache

    def step(self, token: Tensor, mask: Tensor, cache: Any) -> Tensor:
        return self.writer(token, mask, cache)[:, -1]

    def loss(self, ids: Tensor) -> Tensor:
        config = self.learner.config
        logits, router_logits = self.learner(ids, output_router_logits=True)
        loss = causal_lm_loss(logits, ids)
        if router_logits:
            balance = load_balancing_loss(
                router_logits, config.num_experts_per_tok, pooled=True
            )
            loss = loss + config.router_aux_loss_coef * balance
        return loss


class Transformers:
    def __init__(self, plain: nn.Module):
        values = plain.config.to_dict()
        config = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
        dtype = next(plain.parameters()).dtype
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
        model.load_state_dict(stacked(plain.state_dict()), strict=True)
        self.learner = model.eval()
        self.extra = {"output_router_logits": True} if hasattr(config, "num_experts") else {}

    def read(self, ids: Tensor) -> tuple[Tensor, Any]:
        out = self.learner(ids, use_cache=True, logits_to_keep=1)
        return out.logits[:, -1], out.past_key_values

    def step(self, token: Tensor, mask: Tensor, cache: Any) -> Tensor:
        options = {"attention_mask": mask, "past_key_values": cache, "logits_to_keep": 1}
        return self.learner(token, **options).logits[:, -1]

    def loss(self, ids: Tensor) -> Tensor:
        return self.learner(ids, labels=ids, use_cache=False, **self.extra).loss


def stacked(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Stack experts as transformers does: one tensor per layer, gate above up."""
    found, experts = {}, defaultdict(list)
    for name, tensor in state.items():
        layer, is_expert, rest = name.partition(".experts.")
        if is_expert:
            experts[layer, rest.split(".")[1]].append(tensor)
        else:
            found[name] = tensor
    stacks = {key: torch.stack(tensors) for key, tensors in experts.items()}  # (X, ., .)
    for layer in {layer for layer, _ in stacks}:
        gate_up = stacks[layer, "gate_proj"], stacks[layer, "up_proj"]
        found[f"{layer}.experts.gate_up_proj"] = torch.cat(gate_up, dim=1)
        found[f"{layer}.experts.down_proj"] = stacks[layer, "down_proj"]
    return found


def sides(size: str, is_moe: bool, dtype: torch.dtype) -> dict[str, Ours | Transformers]:
    sizes, experts, prompt, _ = SIZES[size]
    values = dict(zip(CONFIG, sizes, strict=True))
    if is_moe:
        values |= dict(zip(EXPERTS, experts, strict=True), norm_topk_prob=True)
    config = Qwen3Config(tie_word_embeddings=True, max_position_embeddings=4 * prompt, **values)
    plain, generator = Qwen3ForCausalLM(config), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in plain.named_parameters():  # norms near 1, never 1
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.1 * noise if "norm" in name else 0.02 * noise)
    plain = plain.to(dtype).eval()
    writer = fast.accelerate(copy.deepcopy(plain), last_logits_only=True)
    learner = fast.accelerate(copy.deepcopy(plain))
    return {
        "transformers": Transformers(plain),
        "plain": Ours(plain, plain),
        "fast": Ours(writer, learner),
    }


Sample = Callable[[], float]  # runs the work once, returns its seconds


def prefill(side: Ours | Transformers, ids: Tensor) -> tuple[Tensor, Sample]:
    return side.read(ids)[0], lambda: clocked(lambda: side.read(ids))


def decode(side: Ours | Transformers, ids: Tensor) -> tuple[Tensor, Sample]:
    token, (_, start) = ids[:, :1], side.read(ids)
    masks = [ids.new_ones(len(ids), ids.size(1) + n + 1) for n in range(STEPS)]

    def sample() -> float:
        cache = copy.deepcopy(start)
        return clocked(lambda: [side.step(token, mask, cache) for mask in masks]) / STEPS

    return side.step(token, masks[0], copy.deepcopy(start)), sample


def train(side: Ours | Transformers, ids: Tensor) -> tuple[Tensor, Sample]:
    def work() -> None:
        side.learner.zero_grad()
        with torch.enable_grad():
            side.loss(ids).backward()

    work()
    return side.learner.model.embed_tokens.weight.grad.clone(), lambda: clocked(work)


def clocked(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def row(done: dict[str, tuple[Tensor, Sample]], allowed: float, rounds: int) -> str:
    """Return the times of one kind of work.

    Errors: ValueError if a result differs too much from transformers', which comes first
    """
    right = done["transformers"][0].float()
    for name, (result, _) in done.items():
        difference = float((result.float() - right).norm() / right.norm())
        if not difference <= allowed:
            raise ValueError(f"refused: {name} differs by {difference:.1g}")
    times = [[sample() for _, sample in done.values()] for _ in range(rounds)]
    base, *others = (1000 * median(column) for column in zip(*times, strict=True))
    return f"{base:12.2f}" + "".join(f"{time:9.2f} ({base / time:4.2f})" for time in others)


@torch.no_grad()
def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    (vocab_size, *_), _, prompt, training = SIZES[options.size]
    works = {
        f"prefill {prompt}": (prefill, (1, prompt)),
        "decode, batch 1": (decode, (1, prompt)),
        "decode, batch 8": (decode, (8, prompt)),
        "train {} x {}".format(*training): (train, training),
    }
    print(f"{options.size}: milliseconds, and how many times as fast as transformers")
    print(f"{'':36}{'transformers':>12}{'plain':>16}{'fast':>16}")
    status = 0
    for is_moe, dtype in product((False, True), ALLOWED):
        models = sides(options.size, is_moe, dtype)
        for name, (work, shape) in works.items():
            generator = torch.Generator().manual_seed(1)
            ids = torch.randint(vocab_size, shape, generator=generator)
            done = {side: work(model, ids) for side, model in models.items()}
            try:
                cells = row(done, ALLOWED[dtype], options.rounds)
            except ValueError as error:
                cells, status = f"  {error}", 1
            kind, numbers = "MoE" if is_moe else "dense", str(dtype).removeprefix("torch.")
            print(f"{kind:6}{numbers:10}{name:20}{cells}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
