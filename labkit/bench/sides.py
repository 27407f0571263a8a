"""The sides of `tinyllm bench model`: one model's weights, run by different code.

Every side offers the same three pieces of work: read a prompt into a cache, add one token to
it, and compute gradients. Weights are drawn at random, the same for all sides.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from dataclasses import dataclass
from types import MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from labkit.model import fast, int8
from labkit.model.chat.stream import ChatError
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
    model: nn.Module  # to write with
    package: ModuleType
    learner: nn.Module | None = None  # to train, where that is another

    def read(self, ids: Tensor, room: int) -> tuple[Tensor, State]:
        layers, mask = self.model.config.num_hidden_layers, torch.ones_like(ids)
        cache = part(self.package, "KVCache")(layers, ids.size(1) + room)
        return self.model(ids, mask, cache)[:, -1], State(cache, mask)

    def step(self, token: Tensor, state: State) -> Tensor:
        return self.model(token, state.grown().mask, state.cache)[:, -1]

    @property
    def trained(self) -> nn.Module:
        return self.learner or self.model

    def loss(self, ids: Tensor) -> Tensor:
        logits, router_logits = self.trained(ids, output_router_logits=True)
        loss = part(self.package, "causal_lm_loss")(logits, ids)
        if not router_logits:
            return loss
        config, balance = self.model.config, part(self.package, "load_balancing_loss")
        aux = balance(router_logits, config.num_experts_per_tok)
        return loss + config.router_aux_loss_coef * aux


@dataclass
class Theirs:
    """The same weights in `transformers`, with what it chooses by default."""

    name: str
    model: nn.Module

    @property
    def trained(self) -> nn.Module:
        return self.model

    def read(self, ids: Tensor, room: int) -> tuple[Tensor, State]:
        mask = torch.ones_like(ids)
        out = self.model(ids, attention_mask=mask, use_cache=True, logits_to_keep=1)
        return out.logits[:, -1], State(out.past_key_values, mask)

    def step(self, token: Tensor, state: State) -> Tensor:
        how = {"attention_mask": state.grown().mask, "past_key_values": state.cache}
        return self.model(token, **how, logits_to_keep=1).logits[:, -1]

    def loss(self, ids: Tensor) -> Tensor:
        experts = hasattr(self.model.config, "num_experts")
        extra = {"output_router_logits": True} if experts else {}
        return self.model(ids, labels=ids, use_cache=False, **extra).loss


def ours(config: Any, package: ModuleType, dtype: torch.dtype, device: Any = "cpu") -> Ours:
    """A new random model; norm weights around 1, never 1, so that all of it matters."""
    model = part(package, "Qwen3ForCausalLM")(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.1 * noise if "norm" in name else 0.02 * noise)
    return Ours("plain", model.to(device=device, dtype=dtype).eval(), package)


def sped_up(side: Ours, compiled: bool = False) -> Ours:
    """The fast path, as `chat` takes it to write and the trainer to train; on copies, since it
    moves Parameters in memory. Errors: ChatError where torch cannot compile the layers."""
    writer = fast.accelerate(copy.deepcopy(side.model), last_logits_only=True)
    learner = fast.accelerate(copy.deepcopy(side.model))
    if compiled and (problem := fast.compile_layers(learner)):
        raise ChatError(f"torch cannot compile here: {problem}")
    return Ours("fast", writer, side.package, learner)


def rounded(side: Ours) -> Ours:
    """A copy in int8, sped up."""
    model = int8.in_int8(copy.deepcopy(side.model))
    return Ours("fast", fast.accelerate(model, last_logits_only=True), side.package)


def every_expert(side: Ours) -> Ours:
    """The same Parameters, with every expert run on every token and weighted, mostly by 0."""
    model = copy.deepcopy(
        side.model, {id(tensor): tensor for tensor in side.model.parameters()}
    )
    for module in model.modules():
        if hasattr(module, "experts"):
            module.forward = MethodType(_every_expert, module)
    return Ours("all experts", model, side.package)


def _every_expert(block: nn.Module, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
    tokens = hidden_states.flatten(0, 1)  # (N, E)
    router_logits = block.gate(tokens)  # (N, X)
    route = fast.home(block).route
    weights, chosen = route(router_logits, block.top_k, block.norm_topk_prob)  # (N, k)
    share = torch.zeros_like(router_logits).scatter(1, chosen, weights)  # (N, X)
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
    found, experts = {}, defaultdict(list)
    for name, tensor in state.items():  # expert by expert: gate_proj, up_proj, down_proj
        before, is_expert, after = name.partition(".experts.")
        if is_expert:
            experts[before, after.split(".")[1]].append(tensor)
        else:
            found[name] = tensor
    stacks = {key: torch.stack(tensors) for key, tensors in experts.items()}  # (X, ., .)
    for before in {before for before, _ in stacks}:
        gate_up = (stacks[before, "gate_proj"], stacks[before, "up_proj"])
        found[f"{before}.experts.gate_up_proj"] = torch.cat(gate_up, dim=1)
        found[f"{before}.experts.down_proj"] = stacks[before, "down_proj"]
    return found
