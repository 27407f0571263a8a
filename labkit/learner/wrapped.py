"""Text that comes in pieces, wrapped at words."""

from __future__ import annotations

from labkit.model.chat.session import WordWrapper, show


class Wrapped(WordWrapper):
    """Prints pieces as they come; a word that would pass `columns` begins a new line."""

    def __call__(self, piece: str) -> None:
        show(self.wrap(piece))
