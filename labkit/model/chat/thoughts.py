"""A model's thought before its answer: separated from the answer, and limited by a budget.

Qwen3 writes its thought between the tokens <think> and </think>. When the budget is spent, the
closing mark replaces the model's next token and the answer follows it, as in Qwen3's report
(2025, section 4.7) and in lab 13's `generate_with_budget`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labkit.model.tokenizer import Tokenizer

OPEN, CLOSE = "<think>", "</think>"
CLOSING = f"\n{CLOSE}\n\n"


class BudgetSpent(Exception):
    """The thought has used up its tokens and is still open."""


class Thought:
    """The thought of one reply; a model without Qwen3's marks never has one.

    prompt_ids  may contain the opening mark, as with models that always think
    budget      the most tokens of thought, the marks not counted
    show        called with pieces of its text; by default it is not shown
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_ids: Sequence[int],
        budget: int,
        show: Callable[[str], None] = lambda piece: None,
    ):
        from labkit.model.tokenizer import TextPieces

        self.open_id, self.close_id = tokenizer.token_id(OPEN), tokenizer.token_id(CLOSE)
        marks = [token for token in prompt_ids if token in self.marks]
        self.is_open = bool(marks) and marks[-1] == self.open_id
        self.budget, self.show, self.pieces = budget, show, TextPieces(tokenizer)
        self.written: list[int] = []  # marks included
        self.closing = tokenizer.encode(CLOSING)

    @property
    def marks(self) -> set[int]:
        """Return the ids of both marks; none if the model lacks one of them."""
        both = {self.open_id, self.close_id}
        return set() if None in both else both

    @property
    def count(self) -> int:
        return sum(token not in self.marks for token in self.written)

    def takes(self, token: int) -> bool:
        """Whether this token, the next one of the reply, belongs to the thought.

        Errors: BudgetSpent once the thought must end
        """
        if token in self.marks:
            self.is_open = token == self.open_id
        elif not self.is_open:
            return False
        self.written.append(token)
        if token not in self.marks:
            self.show(self.pieces.after(token))
        self.check_budget()
        return True

    def check_budget(self) -> None:
        if self.is_open and self.count >= self.budget:
            self.is_open = False
            raise BudgetSpent
