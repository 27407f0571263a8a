"""Text that comes in pieces, wrapped at words."""

from __future__ import annotations


class Wrapped:
    """Prints words as they come; one that would pass `columns` begins a new line.

    A word comes in one or more pieces, the first of which begins with a space, as tokens do; it
    is printed when the next begins, or at the `end`.
    """

    def __init__(self, columns: int = 72):
        self.columns, self.at, self.word = columns, 0, ""

    def __call__(self, piece: str) -> None:
        if piece[:1].isspace():
            self.end()
        self.word += piece

    def end(self) -> None:
        word, self.word = self.word, ""
        if word.startswith(" ") and self.at + len(word) > self.columns:
            print()
            word, self.at = word[1:], 0
        print(word, end="", flush=True)
        self.at = len(word) - word.rfind("\n") - 1 if "\n" in word else self.at + len(word)
