"""Training data, generated from row numbers instead of stored.

A run can resume at any step and needs no files; the price is that each run generates and
tokenizes the text again.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from storyworld import SPLITS, split_text, training_text

IGNORE = -100
VALIDATION_BATCH = 16


class Rows:
    """Sequences of documents; each begins with a whole document and is cut at its length.

    Row i is the same on every machine, so a run can resume at any step.
    """

    def __init__(self, tokenizer, sequence_length: int, first: int = 0):
        self.tokenizer, self.sequence_length = tokenizer, sequence_length
        self.first = first  # number of the first row

    def row(self, number: int) -> list[int]:
        seeds = SPLITS["train"]
        ids: list[int] = []
        for text in training_text(seeds[number % len(seeds)], self.sequence_length):
            ids += self.tokenizer.encode(text, add_special_tokens=False).ids
            if len(ids) >= self.sequence_length:
                break
        return ids[: self.sequence_length]

    def batch(self, step: int, size: int) -> Tensor:
        """Batch number `step` of `size` rows: (size, T)."""
        start = self.first + step * size
        return torch.tensor([self.row(number) for number in range(start, start + size)])


class Validation:
    """Documents that are not training data, and a model's loss on them.

    A document longer than `longest` tokens is cut.
    """

    def __init__(self, tokenizer, documents: int, longest: int, split: str = "validation"):
        texts = split_text(split, documents)
        encoded = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
        encoded = sorted((text.ids[:longest] for text in encoded), key=len)  # little padding
        cut_texts = tokenizer.decode_batch(encoded, skip_special_tokens=False)
        self.bytes = sum(len(text.encode()) for text in cut_texts)
        self.batches = [
            padded(encoded[start : start + VALIDATION_BATCH])
            for start in range(0, len(encoded), VALIDATION_BATCH)
        ]

    @torch.no_grad()
    def bits_per_byte(
        self, model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]
    ) -> float:
        """Return the model's bits per byte of text, with special tokens spelled out.

        The first token of a document is given. The model's mode is restored afterwards.
        """
        device, training = next(model.parameters()).device, model.training
        model.eval()
        nats = 0.0
        for labels in self.batches:
            input_ids = labels.clamp(min=0).to(device)
            counted = (labels[:, 1:] != IGNORE).sum().item()
            nats += loss(model(input_ids), labels.to(device)).item() * counted
        model.train(training)
        return nats / math.log(2) / self.bytes


def padded(rows: list[list[int]]) -> Tensor:
    """Pad rows on the right with labels that do not count: (B, T)."""
    longest = max(map(len, rows))
    return torch.tensor([row + [IGNORE] * (longest - len(row)) for row in rows])
