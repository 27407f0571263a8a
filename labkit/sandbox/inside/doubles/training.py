"""A model and an optimizer for the checks of training."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from labkit.sandbox.inside.doubles import Double


@dataclass(frozen=True)
class WindowConfig:
    vocab_size: int
    hidden_size: int
    window: int = 4  # tokens that the model sees, the newest included
    num_hidden_layers: int = 1
    num_experts: int = 0
    num_experts_per_tok: int = 2
    router_aux_loss_coef: float = 0.1


class WindowModel(nn.Module):
    """Predicts the next token from the last few: embed them, mix, one or two hidden layers.

    With experts every hidden layer is a mixture of `num_experts` linear layers, weighed by a
    router. Tokens where attention_mask is 0 are seen as zeros.

    Shapes: input_ids, attention_mask (B, T) -> logits (B, T, V);
            with output_router_logits (logits, list of router logits (N, X))
    """

    def __init__(self, config: WindowConfig, seed: int = 0):
        super().__init__()
        self.config = config
        size, experts = config.hidden_size, max(config.num_experts, 1)
        self.embed_tokens = nn.Embedding(config.vocab_size, size)
        self.mix = nn.Linear(config.window * size, size)
        self.layers = nn.ModuleList(
            nn.ModuleDict({"experts": nn.Linear(size, experts * size)})
            for _ in range(config.num_hidden_layers)
        )
        if config.num_experts:
            for layer in self.layers:
                layer["gate"] = nn.Linear(size, experts, bias=False)
        self.lm_head = nn.Linear(size, config.vocab_size)
        generator = torch.Generator().manual_seed(seed)
        for weight in self.parameters():
            std = weight.size(-1) ** -0.5 if weight.dim() == 2 else 0.1
            nn.init.normal_(weight, std=std, generator=generator)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        cache: Any = None,
        output_router_logits: bool = False,
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        x = self.embed_tokens(input_ids)  # (B, T, E)
        if attention_mask is not None:
            x = x * attention_mask[..., None].to(x.dtype)
        before = self.config.window - 1
        x = nn.functional.pad(x, (0, 0, before, 0))  # (B, window - 1 + T, E)
        x = x.unfold(1, self.config.window, 1).flatten(2)  # (B, T, E * window)
        x = torch.tanh(self.mix(x))  # (B, T, E)
        router_logits = []
        for layer in self.layers:
            outputs = layer["experts"](x).unflatten(-1, (-1, self.config.hidden_size))
            weights = torch.ones_like(outputs[..., 0])  # (B, T, X)
            if self.config.num_experts:
                scores = layer["gate"](x)
                router_logits.append(scores.flatten(0, 1))  # (N, X)
                weights = scores.softmax(dim=-1)
            x = x + torch.tanh((weights[..., None] * outputs).sum(dim=-2))  # (B, T, E)
        logits = self.lm_head(x)  # (B, T, V)
        return (logits, router_logits) if output_router_logits else logits


class Watched(WindowModel, Double):
    """A WindowModel that notes how many texts went backward from each of its calls, and
    whether the graph of one was kept while a later one was made."""

    def __init__(self, config: WindowConfig, seed: int = 0):
        super().__init__(config, seed)
        self.forget()

    def forget(self) -> None:
        self.calls = 0
        # {call: (its texts, number of calls made by then)}
        self.learnt: dict[int, tuple[int, int]] = {}

    def forward(self, input_ids: Tensor, *args: Any, **kwargs: Any) -> Any:
        result = super().forward(input_ids, *args, **kwargs)
        logits = result[0] if isinstance(result, tuple) else result
        self.calls += 1
        number = self.calls

        def note(gradient: Tensor) -> None:
            if gradient.any():  # a factor of 0 also leaves a part out
                self.learnt.setdefault(number, (len(input_ids), self.calls))

        if logits.requires_grad:
            logits.register_hook(note)
        return result

    def report(self) -> dict[str, str]:
        """Return the events since the last report."""
        parts = sorted(self.learnt.items())
        overlap = any(a < b <= made for a, (_, made) in parts for b, _ in parts)
        texts = ", ".join(str(count) for _, (count, _) in parts)
        self.forget()
        return {"texts in each part": texts + " (all graphs kept to the end)" * overlap}


class Momentum:
    """Gradient descent that keeps a part of its last step, as torch.optim.SGD does."""

    def __init__(self, groups: list[dict[str, Any]], lr: float, momentum: float):
        self.param_groups = [{"lr": lr, "momentum": momentum, **group} for group in groups]
        self.moving: dict[Tensor, Tensor] = {}

    def state(self) -> dict[str, Tensor]:
        """Return the learning rate of each group."""
        rates = enumerate((float(group["lr"]) for group in self.param_groups), 1)
        return {f"the learning rate of group {n}": torch.tensor(rate) for n, rate in rates}

    def weights(self) -> list[Tensor]:
        return [weight for group in self.param_groups for weight in group["params"]]

    def state_dict(self) -> dict[str, Any]:
        """Return the state as torch does: by number, with the tensors that steps change."""
        numbers, groups = iter(range(len(self.weights()))), []
        for group in self.param_groups:
            groups.append(group | {"params": [next(numbers) for _ in group["params"]]})
        moving = {i: self.moving[w] for i, w in enumerate(self.weights()) if w in self.moving}
        return {"state": moving, "param_groups": groups}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        weights = self.weights()
        self.moving = {weights[i]: moving.clone() for i, moving in state["state"].items()}
        for group, found in zip(self.param_groups, state["param_groups"], strict=True):
            group.update(found | {"params": group["params"]})

    def zero_grad(self, set_to_none: bool = True) -> None:
        for weight in self.weights():
            if set_to_none or weight.grad is None:
                weight.grad = None
            else:
                weight.grad.zero_()

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    before = self.moving.get(weight, torch.zeros_like(weight))
                    self.moving[weight] = group["momentum"] * before + weight.grad
                    weight -= group["lr"] * self.moving[weight]


def training(
    seed: int = 0, groups: int = 1, watched: bool = False, stale: bool = False, **config: Any
) -> dict[str, Any]:
    """Return {"model", "optimizer"}: a WindowModel with the fields of WindowConfig, and
    Momentum with its weights in one group, or in two: matrices, and the rest. A watched model's
    report is part of a step's outcome; a stale one comes with gradients of something else."""
    model = (Watched if watched else WindowModel)(WindowConfig(**config), seed)
    parts = [list(model.parameters())]
    for weight in parts[0] if stale else ():
        weight.grad = torch.ones_like(weight)
    if groups == 2:
        parts = [[w for w in parts[0] if (w.dim() == 2) is matrix] for matrix in (True, False)]
    optimizer = Momentum([{"params": part} for part in parts], lr=0.7, momentum=0.9)
    return {"model": model, "optimizer": optimizer}


class Shared(WindowModel):
    """One model shared by all doubles that a call makes with the same arguments."""

    shared = True

    def __init__(self, seed: int = 0, **config: Any):
        super().__init__(WindowConfig(**config), seed)


def momentum(model: nn.Module) -> Momentum:
    """Return the optimizer of a model's weights."""
    return Momentum([{"params": [*model.parameters()]}], lr=0.7, momentum=0.9)


def draws(seed: int) -> torch.Generator:
    """One generator shared by all doubles that a call makes with the same seed."""
    return torch.Generator().manual_seed(seed)


draws.shared = True


class Disk(Double, io.BytesIO):
    """A file that is kept between the steps of a call; each step reads it from the beginning.

    trainer    trains for `steps` steps, saves itself here, and trains on
    generator  of another trainer; each step reports what it would draw next
    """

    shared = True

    def __init__(
        self, trainer: Any = None, steps: int = 0, generator: torch.Generator | None = None
    ):
        super().__init__()
        self.generator = generator
        if trainer is not None:
            with torch.enable_grad():
                trainer.run(steps)
                trainer.save(self)
                trainer.run(2)
        self.seek(0)

    def report(self) -> dict[str, Any]:
        self.seek(0)
        if self.generator is None:
            return {}
        copy = torch.Generator().set_state(self.generator.get_state())
        return {"the next draw of the generator given": torch.randperm(9, generator=copy)}


class Half(Shared, Double):
    """A model in half precision, with float32 copies and an optimizer of those."""

    def __init__(self, dtype: torch.dtype = torch.bfloat16, seed: int = 0, **config: Any):
        super().__init__(seed, **config)
        self.copies = {name: w.detach().clone() for name, w in self.named_parameters()}
        self.to(dtype)
        parts = [
            [w for w in self.copies.values() if (w.dim() == 2) is m] for m in (True, False)
        ]
        self.optimizer = Momentum([{"params": part} for part in parts], lr=0.7, momentum=0.9)

    def report(self) -> dict[str, Any]:
        left = sum(weight.grad is not None for weight in self.parameters())
        dtypes = sorted({str(weight.dtype) for weight in self.parameters()})
        return {"masters": self.copies, "weights with a gradient": left, "dtypes": dtypes}


def half(model: Half) -> dict[str, Any]:
    return {"model": model, "masters": model.copies, "optimizer": model.optimizer}


def backward(model: Half, lr: float, seed: int, size: float, idle: str = "") -> float:
    """Draw new gradients for the model's weights, except for `idle`; return the rate."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        grad = size * torch.randn(weight.shape, generator=generator)
        weight.grad = None if name == idle else grad.to(weight.dtype)
    return lr


def count_of(mark: str) -> Callable[[str], int]:
    """Return a function that counts a mark in a text."""
    return lambda text: text.count(mark)


def law_columns(is_sum: bool) -> Callable[[Tensor, Tensor, float, float], Tensor]:
    """Return the columns of a law: a constant, and a sum or a product of two powers."""

    def columns(parameters: Tensor, tokens: Tensor, alpha: float, beta: float) -> Tensor:
        powers = parameters**-alpha, tokens**-beta
        parts = powers if is_sum else (powers[0] * powers[1],)
        return torch.stack((torch.ones_like(tokens), *parts), dim=1)

    return columns
