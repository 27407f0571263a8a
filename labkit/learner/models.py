"""A model that a notebook can talk with, whatever is finished and whatever is at hand."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from labkit.model import checkpoint
from labkit.model.chat.stream import Sampling, stream
from labkit.model.program import generate, load_program
from labkit.model.tokenizer import Tokenizer
from labkit.model.weights import CheckpointError
from labkit.sandboxed.doubles import TinyDecoder


class CharTokenizer:
    """A tokenizer without a file: one token a character."""

    stop_ids = frozenset({0})

    def encode(self, text: str) -> list[int]:
        return [ord(letter) % 128 for letter in text]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return "".join(chr(token) if 32 <= token < 127 else "?" for token in ids)


def load_talker(
    name: str = "stories-dense", packages: Sequence[str] = ("solutions", "tinyllm")
) -> tuple[nn.Module, Any]:
    """A model in float32 and its tokenizer; one printed line says whose code runs.

    The decoder is that of the first package that has a finished one; in an edition without
    the reference, the course's program is. Where there is neither, or no checkpoint, a
    stand-in with random weights takes its place: it babbles, but it can be timed, cached and
    sampled like any other.
    """
    reasons = []
    for package in filter(_has_decoder, packages):
        try:
            folder = checkpoint.resolve(name)
            model = checkpoint.load(folder, importlib.import_module(package)).float()
            with torch.no_grad():
                model(torch.tensor([[1, 2]]))
        except Exception as error:  # whatever an unfinished or faulty decoder raises
            first = (str(error).splitlines() or [""])[0]
            reasons.append(f"{package}: {type(error).__name__}: {first}")
        else:
            print(f"{name} talks, with the decoder of {package}/")
            return model, Tokenizer(folder)
    with suppress(CheckpointError):
        folder = checkpoint.resolve(name)
        if model := load_program(folder):
            print(f"{name} talks, with the course's own program in the place of your decoder")
            return model, Tokenizer(folder)
    print("a stand-in with random weights babbles here (" + "; ".join(reasons) + ")")
    try:
        tokenizer = Tokenizer(checkpoint.resolve(name))
        size = tokenizer.library.get_vocab_size()
    except CheckpointError:
        tokenizer, size = CharTokenizer(), 128
    return TinyDecoder(vocab_size=size).eval(), tokenizer


def say(
    model: nn.Module, tokenizer: Any, text: str, *, temperature: float = 0.0, seed: int = 0
) -> str:
    """Print what follows the text, piece by piece as it is written, and return it.

    temperature 0 always takes the best token; above it, the same seed draws the same text.
    """
    generator = torch.Generator().manual_seed(seed)
    ids, sampling, heard = tokenizer.encode(text), Sampling(temperature), []
    for piece in stream(model, tokenizer, ids, generate, sampling, None, generator):
        print(piece, end="", flush=True)
        heard.append(piece)
    print()
    return "".join(heard)


def _has_decoder(package: str) -> bool:
    """A learner's edition holds no solutions/*.py."""
    try:
        return importlib.util.find_spec(f"{package}.decoder") is not None
    except ModuleNotFoundError:
        return False
