"""Given for lab 09: bytes as visible characters, and where a text may be cut."""

import re
import unicodedata
from collections.abc import Sequence

# Qwen's rule of where a text may be cut: \p{L} is any letter, \p{N} any digit
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Each of the 256 bytes as one visible character, as GPT-2 writes them: 32, a space, is "Ġ"
VISIBLE = (*range(33, 127), *range(161, 173), *range(174, 256))
HIDDEN = [byte for byte in range(256) if byte not in VISIBLE]
BYTES = {byte: chr(byte) for byte in VISIBLE} | {
    byte: chr(256 + place) for place, byte in enumerate(HIDDEN)
}
BYTE_OF = {character: byte for byte, character in BYTES.items()}


def byte_tokens(piece: str) -> list[str]:
    """The UTF-8 bytes of a text, each as its visible character: "ë" gives ["Ã", "«"]."""
    return [BYTES[byte] for byte in piece.encode("utf-8")]


def pre_tokenize(text: str, pattern: str = PATTERN) -> list[str]:
    """Cut a text into pieces, mostly words with their leading space; joined, they are the text.

    Python's `re` knows no \\p{L}, so the letters, digits and spaces that occur in the text are
    written out in the pattern.
    """
    members = {"L": "a", "N": "0", "s": " "}
    for character in set(text):
        kind = unicodedata.category(character)[0]
        if character.isspace() and not "\x1c" <= character <= "\x1f":
            kind = "s"
        if kind in members:
            members[kind] += re.escape(character)

    def write_out(match: re.Match) -> str:
        inner = re.sub(r"\\p\{(.)\}|\\(s)", lambda m: members[m[1] or m[2]], match[0])
        return inner if inner.startswith("[") else f"[{inner}]"

    pattern = pattern.replace(r"\S", r"[^\s]")
    return re.findall(re.sub(r"\[.*?\]|\\p\{.\}|\\s", write_out, pattern), text)


def vocabulary(
    merges: Sequence[tuple[str, str]], special_tokens: Sequence[str] = ()
) -> dict[str, int]:
    """The id of each token: special tokens first, then the bytes, then what merges make."""
    tokens = [*special_tokens, *sorted(BYTE_OF), *map("".join, merges)]
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}
