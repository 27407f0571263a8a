"""Recorded runs of lab 08's model, which a budget of operations buys, and one unseen run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from labkit.course.lang import tr

RECORD = Path(__file__).with_name("scaling.json")


class Run(NamedTuple):
    """A training of lab 08's model: its hidden_size, all its parameters, the tokens that it
    was trained on, and its loss on new stories."""

    size: int
    parameters: int
    tokens: int
    loss: float

    @property
    def flops(self) -> int:
        return 6 * self.parameters * self.tokens


def recorded() -> tuple[list[Run], Run]:
    """Return all runs but the unseen one, and that one (see claims/test_training_claims.py)."""
    *runs, unseen = (Run(*row[:4]) for row in json.loads(RECORD.read_text("utf-8")))
    return runs, unseen


class Laboratory:
    """Sells recorded runs for a budget of operations.

    bought    the runs that were paid for, each once
    """

    def __init__(self, budget: float):
        self.left, self.bought = budget, []
        self.runs, self._unseen = recorded()
        self.grid = sorted({run.size for run in self.runs})

    def run(self, size: int, tokens: int) -> float | None:
        """Return the loss of a run, None if it costs too much or was never made."""
        found = [run for run in self.runs if (run.size, run.tokens) == (size, tokens)]
        if not found:
            known = [run.tokens for run in self.runs if run.size == size]
            print(tr("no such run; of size {size} there are {known}", size=size, known=known))
            return None
        price = 0 if found[0] in self.bought else found[0].flops
        if price > self.left:
            print(tr("this run costs {price:.1e}, {left:.1e} is left",
                     price=price, left=self.left))  # fmt: skip
            return None
        self.left -= price
        self.bought += [found[0]] if price else []
        return found[0].loss

    def unseen(self, predicted: float) -> Run:
        """Compare a prediction with the unseen run, and return that run."""
        off = predicted / self._unseen.loss - 1
        print(tr("predicted {predicted:.3f}, measured {loss:.3f}: {off:+.1%}",
                 predicted=predicted, loss=self._unseen.loss, off=off))  # fmt: skip
        return self._unseen


def columns(runs: list[Run]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the parameters, tokens and losses of runs, float64."""
    table = torch.tensor([run[1:] for run in runs], dtype=torch.float64)
    return tuple(table.unbind(dim=1))
