"""Test doubles: what the course hands to the learner's code in the place of parts that may be
unfinished. They need no part of the package under test, nor those parts of torch that take a
second to import its compiler.

Shapes: B batch, T new tokens, S cached + new tokens, E features, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn


def _config(vocab_size: int, layers: int) -> SimpleNamespace:
    return SimpleNamespace(
        vocab_size=vocab_size, num_hidden_layers=layers, max_position_embeddings=256
    )


def _columns(input_ids: Tensor, attention_mask: Tensor | None, cache: Any) -> tuple[int, int]:
    """Cached and all columns; raises ValueError where a decoder would."""
    cached = 0 if cache is None else cache.length
    total = cached + input_ids.size(1)
    if attention_mask is not None and attention_mask.shape != (input_ids.size(0), total):
        raise ValueError(
            f"attention_mask has shape {tuple(attention_mask.shape)}; expected "
            f"{(input_ids.size(0), total)}: one column for every cached and every new token"
        )
    return cached, total


class TinyDecoder(nn.Module):
    """A decoder of random weights that takes what Qwen3ForCausalLM takes.

    Each token mixes in the tokens up to itself, found by content and position; keys and
    values go through the cache if there is one. Its words mean nothing, but every one
    depends on all before it, on their order, and on which are padding.

    Shapes: input_ids (B, T), attention_mask (B, S) -> logits (B, T, V)
    """

    def __init__(self, seed: int = 0, vocab_size: int = 23, size: int = 16, layers: int = 2):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def matrix(rows: int, columns: int, scale: float) -> nn.Parameter:
            numbers = torch.randn(rows, columns, generator=generator)
            return nn.Parameter(scale * numbers, requires_grad=False)

        self.config = _config(vocab_size, layers)
        self.words = matrix(vocab_size, size, 1.0)
        self.mixers = nn.ParameterList(
            [matrix(size, 4 * size, 1.6 * size**-0.5) for _ in range(layers)]
        )
        self.head = matrix(size, vocab_size, 2.0)
        self.speeds = nn.Parameter(2.2 / torch.arange(1.0, size + 1), requires_grad=False)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, cache: Any = None
    ) -> Tensor:
        cached, total = _columns(input_ids, attention_mask, cache)
        if attention_mask is None:
            attention_mask = input_ids.new_ones(input_ids.size(0), total)
        real = attention_mask.bool()  # (B, S)
        place = (real.long().cumsum(-1) - 1).clamp(min=0)[:, cached:]  # (B, T)
        column = torch.arange(total)
        seen = (column <= column[cached:, None]) & real[:, None, :]  # (B, T, S)
        wave = 1.5 * (place[..., None] * self.speeds).sin()
        x = self.words[input_ids] + wave  # (B, T, E)
        for index, mixer in enumerate(self.mixers):
            query, key, value, kept = (x @ mixer).chunk(4, dim=-1)  # (B, T, E) each
            key, value = key[:, None], value[:, None]  # (B, 1, T, E): one head
            if cache is not None:
                key, value = cache.update(index, key, value)  # (B, 1, S, E)
            likeness = (query @ key[:, 0].mT).sigmoid() * seen  # (B, T, S)
            share = likeness / likeness.sum(-1, keepdim=True).clamp(min=1e-6)
            x = torch.tanh(kept + 3 * share @ value[:, 0])
        return x @ self.head  # (B, T, V)


class Scripted(nn.Module):
    """A model that says what its script says: after S columns, the logits of place S.

    The script fixes every token, so that stops and padding can be tried at will. With
    count_work the place is the number of columns computed so far, which is S only where
    each was computed once; it then also refuses to work while gradients are recorded.

    Shapes: script (B or 1, places, V); input_ids (B, T) -> logits (B, T, V)
    """

    def __init__(self, script: Tensor, count_work: bool = False, breaks_at: int | None = None):
        super().__init__()
        self.config = _config(script.size(-1), layers=1)
        self.script = nn.Parameter(script, requires_grad=False)
        self.count_work, self.work, self.breaks_at = count_work, 0, breaks_at

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, cache: Any = None
    ) -> Tensor:
        _, total = _columns(input_ids, attention_mask, cache)
        if self.count_work and torch.is_grad_enabled():
            raise RuntimeError("gradients are being recorded: torch.no_grad() is missing")
        if self.breaks_at is not None and total >= self.breaks_at:
            raise RuntimeError(f"the model was run on {total} columns")
        batch, new = input_ids.shape
        if cache is not None:
            cache.update(0, torch.zeros(batch, 1, new, 1), torch.zeros(batch, 1, new, 1))
        self.work += new
        place = self.work if self.count_work else total
        last = self.script[:, place % self.script.size(1)].expand(batch, -1)  # (B, V)
        before = last.roll(1, dims=-1)  # what stands at earlier columns is no use to anyone
        rows = [before] * (new - 1) + [last]
        return torch.stack(rows, dim=1)  # (B, T, V)


@dataclass(frozen=True)
class WindowConfig:
    vocab_size: int
    hidden_size: int
    window: int = 4  # tokens that are seen, the newest included
    num_hidden_layers: int = 1
    num_experts: int = 0
    num_experts_per_tok: int = 2
    router_aux_loss_coef: float = 0.1


class WindowModel(nn.Module):
    """Foresees the next token from the last few: embed them, mix, one or two hidden layers.

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
            said = layer["experts"](x).unflatten(-1, (-1, self.config.hidden_size))
            weights = torch.ones_like(said[..., 0])  # (B, T, X)
            if self.config.num_experts:
                scores = layer["gate"](x)
                router_logits.append(scores.flatten(0, 1))  # (N, X)
                weights = scores.softmax(dim=-1)
            x = x + torch.tanh((weights[..., None] * said).sum(dim=-2))  # (B, T, E)
        logits = self.lm_head(x)  # (B, T, V)
        return (logits, router_logits) if output_router_logits else logits


class Watched(WindowModel):
    """A WindowModel that notes how many texts went backward from each of its calls, and
    whether the graph of one was kept while a later one was made."""

    def __init__(self, config: WindowConfig, seed: int = 0):
        super().__init__(config, seed)
        self.forget()

    def forget(self) -> None:
        self.calls = 0
        self.learnt: dict[int, tuple[int, int]] = {}  # call: its texts, calls made by then

    def forward(self, input_ids: Tensor, *args: Any, **kwargs: Any) -> Any:
        result = super().forward(input_ids, *args, **kwargs)
        logits = result[0] if isinstance(result, tuple) else result
        self.calls += 1
        number = self.calls

        def note(gradient: Tensor) -> None:
            if gradient.any():  # a part may also be left out by a factor of 0
                self.learnt.setdefault(number, (len(input_ids), self.calls))

        if logits.requires_grad:
            logits.register_hook(note)
        return result

    def report(self) -> dict[str, str]:
        """What was noted since the last report."""
        parts = sorted(self.learnt.items())
        kept = any(a < b <= made for a, (_, made) in parts for b, _ in parts)
        told = ", ".join(str(texts) for _, (texts, _) in parts)
        self.forget()
        return {"texts in each part": told + " (all graphs kept to the end)" * kept}


class Listener:
    """An on_token that keeps what it hears; a check compares it with the result."""

    def __init__(self) -> None:
        self.tokens: list[Any] = []

    def __call__(self, token: Any) -> None:
        self.tokens.append(token.clone() if isinstance(token, Tensor) else token)


class GoneAfter:
    """An on_token whose reader leaves: the call number `tokens` raises InterruptedError."""

    def __init__(self, tokens: int) -> None:
        self.left = tokens

    def __call__(self, token: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise InterruptedError("the reader has gone")


class Cache:
    """A KV cache for layers under test: it joins what it is given to what it holds.

    layer_idx   the only layer that may use it
    numbers     how many numbers it stores for each token, keys and values together
    held        tokens that it holds from before, whose keys are not like their values
    """

    def __init__(self, layer_idx: int, numbers: int, held: int = 0):
        self.layer_idx, self.numbers, self.held = layer_idx, numbers, held
        self.stored: tuple[Tensor, Tensor] | None = None

    def update(self, layer_idx: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if layer_idx != self.layer_idx:
            raise ValueError(f"cache.update got layer {layer_idx}; this is {self.layer_idx}")
        for tensor in (key, value):
            if tensor.dim() != 4:
                shape = tuple(tensor.shape)
                raise ValueError(f"the cache takes (B, heads, T, size), not {shape}")
        came = sum(t.size(1) * t.size(3) for t in (key, value))
        if came != self.numbers:
            raise ValueError(
                f"the cache was given {came} numbers a token; it stores {self.numbers}"
            )
        if self.stored is None and self.held:
            sizes = [(len(t), t.size(1), self.held, t.size(3)) for t in (key, value)]
            self.stored = torch.full(sizes[0], -0.5).to(key), torch.full(sizes[1], 2.0).to(key)
        if self.stored is not None:
            pairs = zip(self.stored, (key, value), strict=True)
            key, value = (torch.cat(pair, dim=2) for pair in pairs)
        self.stored = (key, value)
        return self.stored


class ModelCache:
    """A KV cache for a whole model under test: one Cache for each layer."""

    def __init__(self, layers: int, numbers: int):
        self.layers = [Cache(layer_idx, numbers) for layer_idx in range(layers)]

    @property
    def length(self) -> int:
        """How many tokens every layer holds."""
        stored = [layer.stored for layer in self.layers]
        return min(0 if each is None else each[0].size(2) for each in stored)

    def update(self, layer_idx: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if layer_idx not in range(len(self.layers)):
            raise ValueError(
                f"cache.update got layer {layer_idx}; there are {len(self.layers)}, from 0 on"
            )
        return self.layers[layer_idx].update(layer_idx, key, value)


class Momentum:
    """Gradient descent that keeps a part of its last step, as torch.optim.SGD does."""

    def __init__(self, groups: list[dict[str, Any]], lr: float, momentum: float):
        self.param_groups = [{"lr": lr, "momentum": momentum, **group} for group in groups]
        self.moving: dict[Tensor, Tensor] = {}

    def zero_grad(self, set_to_none: bool = True) -> None:
        for weight in [weight for group in self.param_groups for weight in group["params"]]:
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
    vocab_size: int = 11,
    hidden_size: int = 6,
    layers: int = 2,
    experts: int = 0,
    top_k: int = 2,
    coefficient: float = 0.1,
    seed: int = 0,
    groups: int = 1,
    watched: bool = False,
    stale: bool = False,
) -> dict[str, Any]:
    """{"model", "optimizer"}: a WindowModel, and Momentum with its weights in one group, or
    in two: matrices, and the rest. A watched model's report is part of what a step gives; a
    stale one comes with gradients of something else."""
    config = WindowConfig(
        vocab_size,
        hidden_size,
        num_hidden_layers=layers,
        num_experts=experts,
        num_experts_per_tok=top_k,
        router_aux_loss_coef=coefficient,
    )
    model = (Watched if watched else WindowModel)(config, seed)
    parts = [list(model.parameters())]
    for weight in parts[0] if stale else ():
        weight.grad = torch.ones_like(weight)
    if groups == 2:
        parts = [[w for w in parts[0] if (w.dim() == 2) is matrix] for matrix in (True, False)]
    optimizer = Momentum([{"params": part} for part in parts], lr=0.7, momentum=0.9)
    return {"model": model, "optimizer": optimizer}


def policy(seed: int = 0, lr: float = 0.3, used: bool = False) -> dict[str, Any]:
    """{"model", "optimizer"}: a TinyDecoder that learns and is sure of little, and Momentum
    with its weights. A used one still has gradients of something else."""
    model = TinyDecoder(seed, layers=1).requires_grad_(True)
    model.head.data *= 0.25
    for weight in model.parameters() if used else ():
        weight.grad = torch.ones_like(weight)
    return {"model": model, "optimizer": Momentum([{"params": [*model.parameters()]}], lr, 0.5)}


class Judge(Listener):
    """A reward: what the tokens of an answer are worth on average. It keeps the answers."""

    def __init__(self, worth: list[float]) -> None:
        super().__init__()
        self.worth = worth

    def __call__(self, ids: Any) -> float:
        super().__call__(ids)
        return sum(self.worth[int(token)] for token in ids) / max(1, len(ids))


class Adaptable(nn.Module):
    """Two layers of linear layers with a head, on which LoRA can be put.

    put    {path: module} to be put into it; their matrices A and B get numbers

    Shapes: x (B, E) -> (B, V)
    """

    def __init__(
        self, size: int = 6, put: dict[str, nn.Module] | None = None, dtype: str = "float32"
    ):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleDict({
                "q_proj": nn.Linear(size, size + 2, bias=False),
                "v_proj": nn.Linear(size, size + 2),
                "o_proj": nn.Linear(size + 2, size, bias=False),
                "norm": nn.LayerNorm(size),
            })
            for _ in range(2)
        )  # fmt: skip
        self.lm_head = nn.Linear(size, 5, bias=False)
        self.to(getattr(torch, dtype))
        for path, module in (put or {}).items():
            parent, _, name = path.rpartition(".")
            setattr(self.get_submodule(parent), name, module)
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(3, size, generator=generator).to(getattr(torch, dtype))
        self.fill("")

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            mixed = torch.tanh(layer["q_proj"](x)) * layer["v_proj"](x)
            x = layer["norm"](x + layer["o_proj"](mixed))
        return self.lm_head(x)

    def fill(self, part: str) -> None:
        """Put numbers into the weights whose names contain `part`, each by its own name."""
        for name, weight in self.named_parameters():
            if part in name:
                generator = torch.Generator().manual_seed(sum(map(ord, name)))
                weight.data.normal_(std=weight.size(-1) ** -0.5, generator=generator)

    @torch.no_grad()
    def report(self) -> dict[str, Any]:
        """What the model is now: its output, what learns, its numbers, and its output with
        other numbers in LoRA's matrices."""
        named = dict(self.named_parameters())
        learn = {name: weight.requires_grad for name, weight in named.items()}
        numbers = {name: weight.clone() for name, weight in self.state_dict().items()}
        found = {"output": self(self.x), "which weights learn": learn, "weights": numbers}
        self.fill(".lora_")
        return found | {"output once A and B have learned": self(self.x)}


def linear(
    rows: int,
    columns: int,
    bias: bool = True,
    seed: int = 0,
    dtype: str = "float32",
    device: str = "cpu",
) -> nn.Linear:
    """A linear layer with numbers of its own."""
    layer = nn.Linear(columns, rows, bias=bias)
    generator = torch.Generator().manual_seed(seed)
    for weight in layer.parameters():
        weight.data.normal_(generator=generator)
    return layer.to(device, getattr(torch, dtype))


def passing_rule(query, key, value, g, beta, initial_state=None) -> tuple[Tensor, Tensor]:
    """A rule for GatedDeltaNet that shows by what it gives that it was called, and with which g
    last: (B, T, M, Q) and (B, M)."""
    return 3 * value, g[:, -1]


# By the names that a Given uses.
DOUBLES: dict[str, Callable[..., Any]] = {
    "tanh_linear": lambda weight: lambda x: torch.tanh(x @ weight.T),
    "scale_to_max": lambda: lambda x: x / x.abs().amax(dim=-1, keepdim=True).clamp_min(1e-3),
    "generator": lambda seed: torch.Generator().manual_seed(seed),
    "tiny_decoder": TinyDecoder,
    "scripted": Scripted,
    "listener": Listener,
    "gone_after": GoneAfter,
    "kv_cache": Cache,
    "model_cache": ModelCache,
    "training": training,
    "policy": policy,
    "judge": Judge,
    "linear": linear,
    "adaptable": Adaptable,
    "passing_rule": lambda: passing_rule,
}
SHARED = ("kv_cache", "model_cache", "tiny_decoder")  # one object in all steps of a call
