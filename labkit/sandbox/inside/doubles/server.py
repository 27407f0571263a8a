"""The parts of a cache that lab 15's exercises use, and hashes that collide."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from labkit.sandbox.inside.doubles import Double


class Blocks(Double):
    """A cache that counts blocks and knows a given number of tokens of each text.

    known     pairs: a sequence, and the number of its tokens that are known
    tables    texts that are there from the beginning: pairs of a sequence and its blocks
    named     blocks that are known
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        known: Sequence[Sequence[int]] = (),
        tables: Sequence[tuple[int, Sequence[int]]] = (),
        named: Sequence[int] = (),
    ):
        self.block_size, self.known = block_size, dict(known)
        self.block_table = {n: list(blocks) for n, blocks in tables}
        self.ref_count = [0] * num_blocks
        for blocks in self.block_table.values():
            for block in blocks:
                self.ref_count[block] += 1
        free = [block for block, count in enumerate(self.ref_count) if not count]
        self.free_blocks = OrderedDict.fromkeys(free)
        self.content = dict.fromkeys(named, ())

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def begin(self, sequence: int, tokens: Sequence[int]) -> int:
        if sequence in self.block_table:
            raise ValueError(f"sequence {sequence} is in the cache already")
        known = self.known.get(sequence, 0)
        self._extend([], self.blocks_for(len(tokens) - known), sequence)
        return known

    def reserve(self, sequence: int, length: int) -> None:
        table, shared = self.block_table[sequence], self.known.get(sequence, 0)
        missing = self.blocks_for(length - shared) - len(table)
        self._extend(table, max(missing, 0), sequence)

    def _extend(self, table: list[int], count: int, sequence: int) -> None:
        if count > len(self.free_blocks):
            raise ValueError(f"{count} more blocks are needed for sequence {sequence}")
        taken = [self.free_blocks.popitem(last=False)[0] for _ in range(count)]
        for block in taken:
            self.ref_count[block] += 1
        self.block_table[sequence] = table + taken

    def commit(self, sequence: int, tokens: Sequence[int]) -> None:
        """Do nothing: this cache learns no new blocks."""

    def free(self, sequence: int) -> None:
        for block in reversed(self.block_table.pop(sequence)):
            self._drop(block)

    def _drop(self, block: int) -> None:
        self.ref_count[block] -= 1
        if not self.ref_count[block]:
            self.free_blocks[block] = None
            if block not in self.content:
                self.free_blocks.move_to_end(block, last=False)

    def report(self) -> dict[str, Any]:
        return {
            "block_table": {str(n): blocks for n, blocks in self.block_table.items()},
            "free_blocks": list(self.free_blocks),
            "ref_count": list(self.ref_count),
        }


def weak_hash(kind: str) -> Callable[[bytes, Sequence[int]], bytes]:
    """Return a hash that collides for different blocks."""
    hashes = {
        "the same for all": lambda parent, tokens: b"block",
        "of the block's own tokens alone": lambda parent, tokens: repr(list(tokens)).encode(),
        "of the first token and the parent": lambda parent, tokens: (
            parent + repr(list(tokens[:1])).encode()
        ),
    }
    return hashes[kind]


def vocabulary(texts: Sequence[str]) -> list[bytes]:
    """Tokens in bytes, each letter of a text one byte."""
    return [text.encode("latin-1") for text in texts]


def grammar(arrows: Sequence[tuple[int, str, int]], ends: Sequence[int]) -> SimpleNamespace:
    """A state machine: in each state some letters are allowed, and each leads to a state."""
    steps: list[dict[int, int]] = [{} for _ in range(1 + max(max(a, c) for a, _, c in arrows))]
    for state, letters, target in arrows:
        steps[state].update(dict.fromkeys(letters.encode("latin-1"), target))
    return SimpleNamespace(steps=steps, ends=set(ends))
