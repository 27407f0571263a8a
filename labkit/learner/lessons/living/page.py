"""Models side by side: a table of their losses, and the text of each."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from labkit.course.lang import said, tr
from labkit.course.lang.layout import pad
from labkit.course.report import clean

NATS, PERPLEXITY = said("nats per token"), said("perplexity")


@dataclass(frozen=True)
class ModelRow:
    """A model with other parts: its loss and its text, or the error."""

    name: str
    nats: float = math.nan
    text: str = ""
    problem: str = ""

    @property
    def numbers(self) -> tuple[str, str]:
        """Nats per token and perplexity as texts"""
        perplexity = f"{math.exp(self.nats):,.2f}" if self.nats < 20 else tr("huge")
        return f"{self.nats:.3f}" if self.nats < 1e6 else f"{self.nats:.0e}", perplexity


@dataclass(frozen=True)
class Comparison:
    """Models side by side, printed as a table and their texts."""

    models: Sequence[ModelRow]
    notes: Sequence[str] = ()

    def __repr__(self) -> str:
        width = max(cell_len(each.name) for each in self.models)
        titles = tr(NATS), tr(PERPLEXITY)
        first, second = (max(10, cell_len(title)) for title in titles)
        padding = (" " * (10 - cell_len(title)) + title for title in titles)
        lines = [" " * (width + 2) + "  ".join(padding)]
        for each in self.models:
            nats, perplexity = each.numbers
            row = f"{nats:>{first}}  {perplexity:>{second}}"
            lines.append(f"{pad(each.name, width)}  {each.problem or row}")
        for each in self.models:
            if not each.problem:
                lines += ["", f"{each.name}:", textwrap.fill(each.text, 76)]
        return clean("\n".join([*lines, *([""] * bool(self.notes)), *self.notes]))
