"""Text from a model while it is written: the settings, the stream, and the room in the
context."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from labkit.course.lang import tr
from labkit.model.chat.thoughts import BudgetSpent, Thought

if TYPE_CHECKING:  # imported for types only, as they take a second
    import torch
    from torch import nn

    from labkit.model.tokenizer import Message, Tokenizer


LEAST = 0.001  # a temperature above 0: logits divided by less may be infinite
NEW_TOKENS = 256  # tokens of an answer by default, if there is room
REPEATS = 24  # repetitions of the same pieces, which no normal text has
MOST_PIECES = 8


class ChatError(ValueError):
    """A request that cannot be met; the message names the argument and its possible values."""

    def __init__(self, message: str, **values: object):
        super().__init__(tr(message, **values))


@dataclass(frozen=True)
class Sampling:
    """How each token is chosen; temperature 0 takes the best one.

    Errors: ChatError names an impossible value
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if self.temperature and not LEAST <= self.temperature < float("inf"):
            raise ChatError(
                "temperature is {temperature}; it must be 0, for the best token, or at least "
                "{least}",
                temperature=self.temperature,
                least=LEAST,
            )
        if self.top_k is not None and self.top_k < 1:
            raise ChatError("top_k is {top_k}; it must be at least 1", top_k=self.top_k)
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ChatError(
                "top_p is {top_p}; it must be above 0 and at most 1", top_p=self.top_p
            )

    @classmethod
    def chosen(cls, advised: Mapping[str, Any], **asked) -> Sampling:
        """The given settings (None: not given), with generation_config.json as the default."""
        asked = {name: value for name, value in asked.items() if value is not None}
        if not advised.get("do_sample"):
            advised = {}
        if not (asked or advised):
            return cls()
        defaults = {
            "temperature": advised.get("temperature", 1.0),
            "top_k": advised.get("top_k") or None,  # 0 means no limit
            "top_p": advised.get("top_p"),
        }
        return cls(**{**defaults, **asked})


@dataclass
class Speed:
    """The times at which the tokens of an answer came, and whether it was cut off."""

    prompt: int = 0
    started: float = 0.0
    arrivals: list[float] = field(default_factory=list)
    cut: bool = False

    def __str__(self) -> str:
        count = len(self.arrivals)
        if count < 2:
            return tr(
                "{prompt} prompt tokens, {count} written", prompt=self.prompt, count=count
            )
        return tr(
            "{prompt} prompt tokens in {first:.2f} s, {count} written at {rate:.1f} tokens/s",
            prompt=self.prompt,
            first=self.arrivals[0] - self.started,
            count=count,
            rate=(count - 1) / (self.arrivals[-1] - self.arrivals[0]),
        )


def stream(
    model: nn.Module,
    tokenizer: Tokenizer,
    prompt_ids: Sequence[int],
    generate: Callable,
    show: Callable[[str], None],
    sampling: Sampling | None = None,
    max_new_tokens: int | None = None,
    generator: torch.Generator | None = None,
    speed: Speed | None = None,
    thought: Thought | None = None,
) -> str:
    """Show pieces of text as the model writes them, whole characters only, no stop tokens;
    return them joined.

    `generate` is the package's own (lab 07); an exception of `show` ends it at that token. A
    thought is not part of the text; one whose budget is spent is closed, then the answer comes.
    max_new_tokens None writes NEW_TOKENS, or as many as there is room for. No thread is
    started: torch slows down where two threads have used all processors.

    Errors: see check_prompt; exceptions of `generate` are passed on
    """
    import torch

    from labkit.model.tokenizer import TextPieces

    if max_new_tokens is None:
        room = model.config.max_position_embeddings - len(prompt_ids)
        max_new_tokens = max(1, min(NEW_TOKENS, room))
    check_prompt(model, prompt_ids, max_new_tokens)
    sampling, speed, pieces = sampling or Sampling(), speed or Speed(), TextPieces(tokenizer)
    shown: list[str] = []
    device = next(model.parameters()).device

    def on_token(column: torch.Tensor) -> None:
        token = int(column[0])
        speed.arrivals.append(time.perf_counter())
        if token not in tokenizer.stop_ids:
            speed.cut = len(speed.arrivals) == max_new_tokens
            if not (thought and thought.takes(token)):
                show_more(pieces.after(token))

    def show_more(piece: str) -> None:
        if piece:
            show(piece)
            shown.append(piece)

    speed.prompt, speed.started, speed.arrivals = len(prompt_ids), time.perf_counter(), []
    speed.cut = False

    def write(ids: list[int]) -> None:
        room = model.config.max_position_embeddings - len(ids)
        generate(
            model,
            torch.tensor([ids], device=device),  # (1, T)
            max_new_tokens=min(room, max_new_tokens - len(speed.arrivals)),
            **asdict(sampling),
            eos_token_id=sorted(tokenizer.stop_ids),
            generator=generator,
            on_token=on_token,
        )

    with torch.no_grad(), model.register_forward_hook(refuse_nan):
        try:
            if thought:
                thought.check_budget()
            write(list(prompt_ids))
        except BudgetSpent:
            ids = [*prompt_ids, *thought.written, *thought.closing]
            is_full = len(ids) >= model.config.max_position_embeddings
            speed.cut = is_full or len(speed.arrivals) >= max_new_tokens
            if not speed.cut:
                write(ids)
    show_more(pieces.rest())
    return "".join(shown)


def refuse_nan(model: nn.Module, inputs: tuple, logits: torch.Tensor) -> None:
    """A forward hook: raise ChatError instead of drawing tokens from logits that are nan."""
    if logits[:, -1].isnan().any():  # (B, V)
        raise ChatError(
            "the model's logits are nan: one of its weights is nan or infinite, or its "
            "code divides by 0 somewhere"
        )


def check_prompt(model: nn.Module, prompt_ids: Sequence[int], max_new_tokens: int) -> None:
    """Raise ChatError unless the model can continue this prompt by that many tokens."""
    config, length = model.config, len(prompt_ids)
    if length == 0:
        raise ChatError("the prompt is empty; there is nothing to continue")
    wrong = [token for token in prompt_ids if not 0 <= token < config.vocab_size]
    if wrong:
        raise ChatError(
            "the prompt holds token {token}, the model knows 0 to {last}: does "
            "the tokenizer belong to this model?",
            token=wrong[0],
            last=config.vocab_size - 1,
        )
    if length + max_new_tokens > config.max_position_embeddings:
        raise ChatError(
            "the prompt has {length} tokens and {max_new_tokens} shall follow; the "
            "model has room for {max_position_embeddings} (max_position_embeddings)",
            length=length,
            max_new_tokens=max_new_tokens,
            max_position_embeddings=config.max_position_embeddings,
        )


def fit_history(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    room: int,
    thinking: bool = True,
) -> tuple[list[Message], list[int]]:
    """Return the newest messages whose prompt fits into `room` tokens, and that prompt.

    Whole turns are dropped, the oldest first; a system message and the last question stay,
    if these are too long by themselves, the prompt is longer than `room`.
    """
    history = list(messages)
    while True:
        prompt_ids = tokenizer.chat_prompt(history, thinking)
        first = 1 if history[0]["role"] == "system" else 0
        later = [i for i, m in enumerate(history) if m["role"] == "user" and i > first]
        if len(prompt_ids) <= room or not later:
            return history, prompt_ids
        del history[first : later[0]]


class Repeating(Exception):
    """The model writes the same again and again."""


def repeats(pieces: list[str]) -> bool:
    """Whether the last pieces of a text are the same few, REPEATS times."""
    sizes = range(1, MOST_PIECES + 1)
    return any(pieces[-REPEATS * n :] == REPEATS * pieces[-n:] for n in sizes if pieces)


def surprise(model: nn.Module, ids: list[int]) -> float:
    """Return a model's nats per token of a text after its first token; 0.0 if there is none."""
    import torch
    import torch.nn.functional as F

    if len(ids) < 2:
        return 0.0
    row = torch.tensor([ids], device=next(model.parameters()).device)  # (1, T)
    with torch.no_grad():
        logits = model(row)  # (1, T, V)
    return float(F.cross_entropy(logits[0, :-1].float(), row[0, 1:]))
