"""The world of lab 13: five cups, a ball under one of them, and swaps. Where is the ball?

A question is the ball's cup, twelve pairs of cups that change places (blanks behind the last
one, so that a step of thought is always as far from its swap), and a flag for the mode. A
thought names, swap by swap, its first cup and where the ball is then.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from labkit.learner.lessons import lesson

WEIGHTS = Path(__file__).with_name("cups.safetensors")
RECORD = Path(__file__).with_name("thinking.json")

PAD, CUP, BLANK, OPEN, CLOSE, END, NO_THINK, THINK = 0, 1, 6, 7, 8, 9, 10, 11
CUPS, MOST = 5, 12  # cups; swaps of the longest question
WORDS = [" ", *"ABCDE", ".", "<think>", "</think>", "<end>", "/no_think", "/think"]
MARKS = {
    "think_flag": THINK, "no_think_flag": NO_THINK, "open_think": OPEN,
    "close_think": CLOSE, "eos_token_id": END, "pad_token_id": PAD,
}  # fmt: skip
SHAPE = {
    "vocab_size": 12, "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "rope_theta": 1e4,
    "max_position_embeddings": 128, "tie_word_embeddings": True,
}  # fmt: skip

Questions = tuple[list[list[int]], list[list[int]], list[list[int]]]


def questions(count: int, swaps: int | Sequence[int], generator: torch.Generator) -> Questions:
    """Return prompts without a flag, thoughts and answers of `count` questions, as token ids.

    swaps    the number in each question, or the numbers from which each question draws
    """
    choices = torch.tensor([swaps] if isinstance(swaps, int) else list(swaps))
    picked = choices[torch.randint(len(choices), (count,), generator=generator)].tolist()
    balls = torch.randint(CUPS, (count,), generator=generator).tolist()
    pairs = torch.rand(count, MOST, CUPS, generator=generator).argsort(-1)[..., :2].tolist()
    prompts, thoughts, answers = [], [], []
    for number, ball, pair in zip(picked, balls, pairs, strict=True):
        prompt, thought, place = [ball + CUP], [], ball
        for a, b in pair[:number]:
            place = b if place == a else a if place == b else place
            prompt += [a + CUP, b + CUP]
            thought += [a + CUP, place + CUP]
        prompts.append(prompt + [BLANK] * (2 * (MOST - number)))
        thoughts.append(thought)
        answers.append([place + CUP])
    return prompts, thoughts, answers


def ask(prompts: Sequence[Sequence[int]], flag: int) -> Tensor:
    """Append a flag to prompts, which all have the same length: a batch (B, T)."""
    return torch.tensor([[*prompt, flag] for prompt in prompts])


def spell(ids: Any) -> str:
    """Return a text in letters and marks, without padding."""
    return " ".join(WORDS[int(token)] for token in ids if int(token) != PAD)


def answers_in(output: Tensor, start: int) -> Tensor:
    """Return the first token after the first CLOSE from column `start` on; 0 if there is none.

    Shapes: output (B, S) -> (B,)
    """
    written = output[:, start:]
    closed = (written == CLOSE).int().cumsum(1)
    first = (closed == 1) & (written != CLOSE)
    place = first.int().argmax(1, keepdim=True)
    return written.gather(1, place).squeeze(1) * first.any(1)


def share_right(output: Tensor, start: int, answers: Sequence[Sequence[int]]) -> float:
    """Return the share of right answers in a batch; the prompts end before `start`."""
    found = answers_in(output, start)
    return (found == torch.tensor([answer[0] for answer in answers])).float().mean().item()


def build(**changes: Any) -> Any:
    """Build a model of two layers and some 100,000 parameters, from the learner's parts if they
    train, else from the course's."""
    (config, model), _ = lesson.decoder()
    return model(config(**SHAPE | changes))


def trained(part: str = "model") -> Any:
    """Load the model that the course trained for 900 steps ("model"), or an earlier state of
    it ("half")."""
    state = load_file(WEIGHTS)
    model = build()
    names = {key.removeprefix(f"{part}."): value.float() for key, value in state.items()
             if key.startswith(f"{part}.")}  # fmt: skip
    model.load_state_dict(names, strict=False)
    return model


def recorded(part: str) -> list[dict[str, Any]]:
    """Return the recorded results, one per seed: of trained models ("main"), or of distilled
    students ("distill")."""
    record = json.loads(RECORD.read_text("utf-8"))
    return [numbers for name, numbers in record.items() if name.split()[0] == part]


def recorded_by_layers() -> dict[int, list[dict[str, Any]]]:
    """{layers: results of trained models, one per seed, by mode and number of swaps}"""
    others = {layers: [row[str(layers)] for row in recorded("layers")] for layers in (1, 4)}
    return dict(sorted({2: recorded("main"), **others}.items()))
