"""The output of a chat on the terminal: a model's text, wrapped and without control characters,
and remarks beside it."""

from __future__ import annotations

import re

from rich.cells import cell_len
from rich.console import Console

from labkit.course.lang import ntr
from labkit.course.report import clean
from labkit.model.chat.thoughts import Thought

JOINERS = re.compile("([\u200c\u200d])")  # emoji and several scripts need them


class WordWrapper:
    """Wraps text that comes in pieces: a word that would pass `columns` begins a new line.

    A piece that begins a word begins with a space, as tokens do; the rest of a word that comes
    in several pieces may pass the end of the line.
    """

    def __init__(self, columns: int = 72):
        self.columns, self.column = columns, 0

    def wrap(self, piece: str) -> str:
        if piece.startswith(" ") and self.column + cell_len(piece) > self.columns:
            piece = "\n" + piece[1:]
        _, newline, tail = piece.rpartition("\n")
        self.column = cell_len(tail) + (0 if newline else self.column)
        return piece

    def print(self, piece: str) -> None:
        show(self.wrap(printable(piece)))


def printable(text: str) -> str:
    """Return a model's text without terminal control sequences, even if they come in pieces."""
    return "".join(
        part if JOINERS.fullmatch(part) else clean(part) for part in JOINERS.split(text)
    )


def show(text: str) -> None:
    print(text, end="", flush=True)


def show_thought(piece: str) -> None:
    """Print a piece of a thought, apart from the answer: on stderr."""
    Console(stderr=True, highlight=False).print(
        printable(piece), style="dim", markup=False, soft_wrap=True, end=""
    )


def fold(thought: Thought) -> None:
    """Print how long a thought was, instead of showing it."""
    count = thought.count
    note(ntr("(a thought of {n} token)", "(a thought of {n} tokens)", count))


def note(text: str, style: str = "dim", only_terminal: bool = False) -> None:
    """Print a remark to the person, apart from the text: on stderr."""
    console = Console(stderr=True, highlight=False)
    if console.is_terminal or not only_terminal:
        whole_lines = not console.is_terminal
        console.print(clean(text), style=style, markup=False, soft_wrap=whole_lines)
