"""Models side by side on a page: a small table, and their words beside each other."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rich.cells import cell_len

from labkit.course.lang import said, tr
from labkit.course.lang.layout import padded
from labkit.course.report import clean

NATS, PERPLEXITY = said("nats per token"), said("perplexity")


@dataclass(frozen=True)
class Heard:
    """A model with other parts in it: its loss, what it says; or what went wrong."""

    name: str
    nats: float = math.nan
    text: str = ""
    problem: str = ""

    @property
    def numbers(self) -> tuple[str, str]:
        """Nats a token and perplexity, to be read."""
        perplexity = f"{math.exp(self.nats):,.2f}" if self.nats < 20 else tr("huge")
        return f"{self.nats:.3f}" if self.nats < 1e6 else f"{self.nats:.0e}", perplexity


@dataclass(frozen=True)
class Comparison:
    """Models side by side, as a table and their words."""

    models: Sequence[Heard]
    notes: Sequence[str] = ()

    def __repr__(self) -> str:
        width = max(cell_len(each.name) for each in self.models)
        lines = [f"{'':{width}}  {tr(NATS):>12}  {tr(PERPLEXITY):>10}"]
        for each in self.models:
            nats, perplexity = each.numbers
            row = f"{nats:>12}  {perplexity:>10}"
            lines.append(f"{padded(each.name, width)}  {each.problem or row}")
        for each in self.models:
            if not each.problem:
                lines += ["", f"{each.name}:", textwrap.fill(each.text, 76)]
        return clean("\n".join([*lines, *([""] * bool(self.notes)), *self.notes]))

    def _repr_html_(self) -> str:
        table = "".join(
            _row("td", each.name, each.problem, *each.numbers) for each in self.models
        )
        table = _row("th", "", "", tr(NATS), tr(PERPLEXITY)) + table
        texts = "".join(
            f'<div style="flex:1 1 16em;max-width:26em"><b>{escape(clean(each.name))}</b><br>'
            f"{escape(clean(each.text))}</div>"
            for each in self.models
            if not each.problem
        )
        notes = "".join(f"<p>{escape(clean(note))}</p>" for note in self.notes)
        side = f'<div style="display:flex;flex-wrap:wrap;gap:12px 24px">{texts}</div>'
        return f'<table style="margin:0 0 12px 0">{table}</table>{side}{notes}'


def _row(tag: str, name: str, problem: str, *numbers: str) -> str:
    """A row of a table: a name, then a problem in the place of the numbers, or these."""
    left, right = (f'style="text-align:{s};padding:2px 16px 2px 0"' for s in ("left", "right"))
    cells = "".join(f"<{tag} {right}>{number}</{tag}>" for number in numbers)
    if problem:
        cells = f'<td colspan="{len(numbers)}" {left}>{escape(clean(problem))}</td>'
    return f'<tr><th scope="row" {left}>{escape(clean(name))}</th>{cells}</tr>'
