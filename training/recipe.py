"""A recipe: everything that a training run depends on, in one JSON file.

Its numbers are checked before a run starts: a wrong one would show only after minutes.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POSITIVE = (
    *("steps", "batch_size", "sequence_length", "learning_rate", "group_size", "temperature"),
    "save_every",
)


class TrainError(ValueError):
    """Training cannot start or resume; the message says why and what to do."""


@dataclass(frozen=True)
class Recipe:
    """The model to train, the amount of text, and the schedule.

    model            the fields of its config.json
    seed             of the random weights; runs with different seeds see different stories
    learning_rate    the peak; at the last step it is floor times the peak
    requests         requests per step that the model answers and the reader judges, learned
                     from with lab 11's grpo_step; 0 for none
    group_size       answers to each request, at this temperature
    save_every       steps between two saves, each with a line in the log
    begun_with       the model whose weights the run began with; `tinyllm train --from` sets it
    """

    model: Mapping[str, Any]
    steps: int
    batch_size: int = 16
    sequence_length: int = 256
    seed: int = 0
    learning_rate: float = 0.005
    warmup_steps: int = 100
    floor: float = 0.02
    requests: int = 0
    group_size: int = 8
    temperature: float = 1.0
    save_every: int = 50
    begun_with: str = ""

    def __post_init__(self) -> None:
        for name in POSITIVE:
            if not getattr(self, name) > 0:
                raise TrainError(f"{name} is {getattr(self, name)}; it must be positive")
        if self.warmup_steps >= self.steps:
            raise TrainError(
                f"warmup_steps is {self.warmup_steps}; it must be less than the "
                f"{self.steps} steps"
            )

    @classmethod
    def from_file(cls, path: Path) -> Recipe:
        """Read the recipe in a file.

        Errors: TrainError if there is none, or a field is missing, unknown or impossible
        """
        try:
            values = json.loads(path.read_text("utf-8"))
        except OSError as error:
            raise TrainError(f"no recipe can be read from {path}: {error.strerror}") from error
        except ValueError as error:
            raise TrainError(f"{path} is not valid JSON: {error}") from error
        known = [field.name for field in dataclasses.fields(cls)]
        if unknown := sorted(values.keys() - set(known)):
            raise TrainError(
                f"{path} has no use for {', '.join(unknown)}; a recipe may have "
                f"{', '.join(known)}"
            )
        try:
            return cls(**values)
        except (TrainError, TypeError) as error:  # TypeError: a field is missing
            raise TrainError(f"{path}: {error}") from error

    def with_steps(self, steps: int) -> Recipe:
        """Return the recipe with more or fewer steps, of which at most a tenth is warm-up."""
        return dataclasses.replace(
            self, steps=steps, warmup_steps=min(self.warmup_steps, steps // 10)
        )

    @property
    def tokens_per_step(self) -> int:
        """Tokens of text per step, without the stories that the model writes itself"""
        return self.batch_size * self.sequence_length

    def text(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"
