"""The sides of `tinyllm bench model`: one model's weights, run by different code.

Every side offers the same three pieces of work: read a prompt into a cache, add one token to
it, and compute gradients. Weights are drawn at random, the same for all sides.
"""

from __future__ import annotations

import copy
import importlib
from dataclasses import dataclass
from types import MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from labkit.model import fast
from labkit.model.checkpoint import part


@dataclass
class State:
    """A prompt that was read: its cache, and the mask that grows with it."""

    cache: Any
    mask: Tensor  # (B, S)

    def grown(self) -> State:
        """The mask of one more token, as both generate loops build it."""
        self.mask = torch.cat((self.mask, torch.ones_like(self.mask[:, :1])), dim=1)
        return self


@dataclass
class Ours:
    """The package's own model, called as its own `generate` and `train_step` call it."""

    name: str
    model: nn.Module
    package: ModuleType

    def read(self, ids: Tensor, room: int) -> tuple[Tensor, State]:
        cache = self._function("generation", "KVCache")(
            self.model.config.num_hidden_layers, ids.size(1) + room
        )
        state = State(cache, torch.ones_like(ids))
        return self.model(ids, state.mask, cache)[:, -1], state

    def step(self, token: Tensor, state: State) -> Tensor:
        return self.model(token, state.grown().mask, state.cache)[:, -1]

    def loss(self, ids: Tensor) -> Tensor:
        logits, router_logits = self.model(ids, output_router_logits=True)
        loss = self._function("training", "causal_lm_loss")(logits, ids)
        if not router_logits:
            return loss
        config = self.model.config
        balance = self._function("moe", "load_balancing_loss")
        aux = balance(router_logits, config.num_experts_per_tok)
        return loss + config.router_aux_loss_coef * aux

    def _function(self, module: str, name: str) -> Any:
        return getattr(importlib.import_module(f"{self.package.__name__}.{module}"), name)


@dataclass
class Theirs:
    """The same weights in `transformers`, with what it chooses by default."""

    name: str
    model: nn.Module

    def read(self, ids: Tensor, room: int) -> tuple[Tensor, State]:
        mask = torch.ones_like(ids)
        out = self.model(ids, attention_mask=mask, use_cache=True, logits_to_keep=1)
        return out.logits[:, -1], State(out.past_key_values, mask)

    def step(self, token: Tensor, state: State) -> Tensor:
        mask = state.grown().mask
        cache = state.cache
        out = self.model(token, attention_mask=mask, past_key_values=cache, logits_to_keep=1)
        return out.logits[:, -1]

    def loss(self, ids: Tensor) -> Tensor:
        extra = (
            {"output_router_logits": True} if hasattr(self.model.config, "num_experts") else {}
        )
        return self.model(ids, labels=ids, use_cache=False, **extra).loss


def ours(
    config: Any, package: ModuleType, dtype: torch.dtype, device: Any = "cpu", seed: int = 0
) -> Ours:
    """A new random model; norm weights around 1, never 1, so that all of it matters."""
    model = part(package, "Qwen3ForCausalLM")(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.1 * noise if "norm" in name else 0.02 * noise)
    return Ours("plain", model.to(device=device, dtype=dtype).eval(), package)


def sped_up(side: Ours) -> Ours:
    """The fast path on the same Parameters."""
    return Ours(
        "fast", fast.accelerate(shared(side.model), last_logits_only=True), side.package
    )


def every_expert(side: Ours) -> Ours:
    """The same Parameters, with every expert run on every token and weighted, mostly by 0."""
    model = shared(side.model)
    for module in model.modules():
        if hasattr(module, "experts"):
            module.forward = MethodType(_every_expert, module)
    return Ours("all experts", model, side.package)


def shared(model: nn.Module) -> nn.Module:
    """A copy of the modules around the very same Parameters."""
    return copy.deepcopy(model, {id(tensor): tensor for tensor in model.parameters()})


def _every_expert(block: nn.Module, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
    tokens = hidden_states.flatten(0, 1)  # (N, E)
    router_logits = block.gate(tokens)  # (N, X)
    probs = router_logits.softmax(dim=-1, dtype=torch.float32)
    weights, chosen = probs.topk(block.top_k, dim=-1)  # (N, k)
    if block.norm_topk_prob:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    share = torch.zeros_like(router_logits).scatter(
        1, chosen, weights.to(tokens.dtype)
    )  # (N, X)
    mixed = torch.zeros_like(tokens)
    for index, expert in enumerate(block.experts):
        mixed = mixed + share[:, index, None] * expert(tokens)
    return mixed.view_as(hidden_states), router_logits


def theirs(side: Ours) -> Theirs:
    """The same weights in transformers. Errors: ImportError where it is not installed."""
    import transformers

    model = side.model
    values = model.config.to_dict()
    config = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
    weight = next(model.parameters())
    with torch.device(weight.device):
        there = transformers.AutoModelForCausalLM.from_config(config, dtype=weight.dtype)
    there.load_state_dict(_stacked(model.state_dict()), strict=True)
    return Theirs("transformers", there.eval())


def _stacked(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Experts as transformers holds them in memory: one tensor a layer, gate above up."""
    found, experts = {}, {}
    for name, tensor in state.items():
        before, is_expert, after = name.partition(".experts.")
        if not is_expert:
            found[name] = tensor
            continue
        index, kind = after.split(".")[:2]
        experts.setdefault(before, {})[int(index), kind] = tensor
    for before, parts in experts.items():
        count = 1 + max(index for index, _ in parts)
        pairs = [torch.cat((parts[x, "gate_proj"], parts[x, "up_proj"])) for x in range(count)]
        found[f"{before}.experts.gate_up_proj"] = torch.stack(pairs)
        downs = [parts[x, "down_proj"] for x in range(count)]
        found[f"{before}.experts.down_proj"] = torch.stack(downs)
    return found
