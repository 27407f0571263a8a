"""Text that comes in pieces, wrapped at words."""

from __future__ import annotations


class Wrapped:
    """Prints pieces as they come; a word that would pass `columns` begins a new line.

    A piece that begins a word begins with a space, as tokens do; the rest of a word that comes
    in several pieces may pass the line's end.
    """

    def __init__(self, columns: int = 72):
        self.columns, self.at = columns, 0

    def __call__(self, piece: str) -> None:
        if piece.startswith(" ") and self.at + len(piece) > self.columns:
            print()
            piece, self.at = piece[1:], 0
        print(piece, end="", flush=True)
        self.at = len(piece) - piece.rfind("\n") - 1 if "\n" in piece else self.at + len(piece)
