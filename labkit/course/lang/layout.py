"""Text in columns, where a Chinese character is as wide as two Latin ones."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from rich import _wrap
from rich.cells import cell_len

WIDE = r"\u2e80-\u9fff\uf900-\ufaff\uff01-\uff60"  # a line may break between any two of them
OPENS, CLOSES = r"（《「『【“‘", r"，。；：！？、）》」』】”’…"
PIECE = re.compile(
    rf"\s+|[{OPENS}]*(?:(?![{OPENS}{CLOSES}])[{WIDE}]|[^\s{WIDE}{OPENS}{CLOSES}]+)?[{CLOSES}]*"
)


def pad(text: str, width: int) -> str:
    """Return the text padded to `width` columns; a longer one stays as it is."""
    return text + " " * (width - cell_len(text))


def wrap_text(text: str, width: int) -> list[str]:
    """Return the text in lines of at most `width` columns; a longer word has a line of its own.

    No line begins with closing punctuation or ends with opening punctuation.
    """
    if cell_len(text) == len(text):
        return textwrap.wrap(text, width, break_long_words=False)
    lines = [""]
    for piece in filter(None, PIECE.findall(text)):
        if cell_len(lines[-1] + piece.rstrip()) <= width:
            lines[-1] += piece
        elif not piece.isspace():
            lines.append(piece)
    return [line.strip() for line in lines]


def break_wide_text() -> None:
    """Let rich, which breaks lines only at spaces, break them as `wrap_text` does."""

    def words(text: str) -> Iterator[tuple[int, int, str]]:
        pieces = filter(lambda piece: piece[0], PIECE.finditer(text))
        return ((*piece.span(), piece[0]) for piece in pieces)

    _wrap.words = words
