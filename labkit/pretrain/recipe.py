"""A recipe: all that decides what a training run gives, in one JSON file."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OPTIMIZERS = ("muon", "adamw")
PRECISIONS = ("auto", "float32", "bfloat16")
BALANCES = ("pooled", "by layer")
ACCEPTED = {  # and how they are called
    "int": ((int,), "a whole number"), "float": ((int, float), "a number"),
    "str": ((str,), "a text"), "Mapping": ((dict,), "an object"), "list": ((list,), "a list"),
}  # fmt: skip
POSITIVE = (
    "sequence_length", "batch_size", "steps", "learning_rate", "adamw_learning_rate",
    "max_grad_norm", "save_every", "validate_every", "validation_documents",
    "tokenizer_documents", "asked_weight", "told_weight", "told_temperature",
)  # fmt: skip


class TrainError(ValueError):
    """Training cannot begin or go on; the message says why and what to do."""


@dataclass(frozen=True)
class Recipe:
    """What is trained, on how much, and how.

    model            the fields of its config.json
    batch_size       sequences a step, over all processes together
    optimizer        muon (matrices inside the layers; all else by AdamW), or adamw
    learning_rate    peak of the optimizer; adamw_learning_rate that of the rest under muon
    floor            share of the peak that is left at the last step
    ema_decay        share of the mean of the weights that stays at each step, the rest are
                     the step's; the model is that mean, and begins as the run does. 0: no mean
    precision        of the multiplications; auto takes bfloat16 if it is faster here
    balance          the balance loss of a mixture: of all layers' experts pooled, or the mean
                     over its layers; always of the whole batch
    asked            stories a step, besides, of which every question is asked by itself, see
                     reinforce/answers.py; 0 for none
    drills           share of these that are drills, a few sentences and questions on them, see
                     reinforce/drills.py, and of the rest that end early
    asked_weight     how much the answers count; the mean loss of all tokens of rows counts 1
    told             stories a step that the model tells and the reader judges, see
                     reinforce; 0 for none
    told_weight      how much their part of the objective counts; the others count 1 each
    told_temperature at which they are told
    remark           what a reader of the model's card should know besides
    earlier          the recipes of the runs whose weights this one begins with, the first
                     one first; written by `tinyllm train --from`
    """

    model: Mapping[str, Any]
    steps: int
    batch_size: int = 16
    sequence_length: int = 256
    seed: int = 0
    optimizer: str = "muon"
    learning_rate: float = 0.02
    adamw_learning_rate: float = 0.003
    warmup_steps: int = 100
    floor: float = 0.05
    ema_decay: float = 0.0
    weight_decay: float = 0.05
    max_grad_norm: float = 1.0
    precision: str = "auto"
    saved_dtype: str = "bfloat16"
    balance: str = "pooled"
    asked: int = 0
    drills: float = 0.25
    asked_weight: float = 4.0
    told: int = 0
    told_weight: float = 8.0
    told_temperature: float = 0.6
    save_every: int = 50
    validate_every: int = 250
    validation_documents: int = 200
    tokenizer_documents: int = 10_000
    generation: Mapping[str, Any] = field(default_factory=lambda: {"do_sample": False})
    remark: str = ""
    earlier: list[Mapping[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for known in dataclasses.fields(self):
            _check_type(known, getattr(self, known.name))
        for name in POSITIVE:
            if getattr(self, name) <= 0:
                raise TrainError(f"{name} is {getattr(self, name)}; it must be positive")
        for name in ("asked", "told"):
            if getattr(self, name) < 0:
                raise TrainError(f"{name} is {getattr(self, name)}; it must be 0 or more")
        if not 0 <= self.ema_decay < 1:
            raise TrainError(
                f"ema_decay is {self.ema_decay}; it must be 0 or more, and less than 1"
            )
        if not 0 <= self.drills <= 1:
            raise TrainError(f"drills is {self.drills}; it must lie between 0 and 1")
        if not 0 <= self.warmup_steps < self.steps:
            raise TrainError(
                f"warmup_steps is {self.warmup_steps}; it must lie between 0 and the "
                f"{self.steps} steps"
            )
        for name, accepted in (
            ("optimizer", OPTIMIZERS),
            ("precision", PRECISIONS),
            ("saved_dtype", PRECISIONS[1:]),
            ("balance", BALANCES),
        ):
            if getattr(self, name) not in accepted:
                raise TrainError(
                    f"{name} is {getattr(self, name)!r}; it may be {', '.join(accepted)}"
                )

    @classmethod
    def from_file(cls, path: Path) -> Recipe:
        """The recipe in a file.

        Errors: no file, no JSON, a field that is missing, unknown or impossible: TrainError
        """
        try:
            values = json.loads(path.read_text("utf-8"))
        except OSError as error:
            raise TrainError(f"no recipe can be read from {path}: {error.strerror}") from error
        except ValueError as error:
            raise TrainError(f"{path} is not valid JSON: {error}") from error
        if not isinstance(values, dict):
            raise TrainError(f"{path} holds a JSON {type(values).__name__}, not an object")
        return cls.from_dict(values, str(path))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "the recipe") -> Recipe:
        known = [known.name for known in dataclasses.fields(cls)]
        if unknown := sorted(values.keys() - set(known)):
            raise TrainError(
                f"{where} has no use for {', '.join(unknown)}; a recipe may have "
                f"{', '.join(known)}"
            )
        if missing := sorted({"model", "steps"} - values.keys()):
            raise TrainError(f"{where} lacks {', '.join(missing)}")
        try:
            return cls(**values)
        except TrainError as error:
            raise TrainError(f"{where}: {error}") from error

    def with_steps(self, steps: int) -> Recipe:
        """The same over more or fewer steps; of few, at most a tenth is warm-up."""
        warmup_steps = min(self.warmup_steps, steps // 10)
        return dataclasses.replace(self, steps=steps, warmup_steps=warmup_steps)

    def after(self, before: Recipe | None, ended: int = 0) -> Recipe:
        """The same, begun with the weights that another recipe made; None: with random ones.

        ended    the step at which that run was stopped
        Errors: another shape: TrainError
        """
        if before is None:
            return dataclasses.replace(self, earlier=[])
        if changed := sorted(
            key
            for key in {*self.model, *before.model}
            if self.model.get(key) != before.model.get(key)
        ):
            raise TrainError(
                f"the weights to begin with have another {', '.join(changed)} than the recipe"
            )
        last = {k: v for k, v in before.to_dict().items() if k not in ("model", "earlier")}
        return dataclasses.replace(self, earlier=[*before.earlier, last | {"ended": ended}])

    def before(self, what: str) -> int:
        """How many of what a step has ("batch_size", "asked", "told") earlier runs saw."""
        return sum(run["ended"] * run.get(what, 0) for run in self.earlier)

    @property
    def tokens_a_step(self) -> int:
        """Of rows; neither of stories that the model tells nor of `asked`."""
        return self.batch_size * self.sequence_length

    @property
    def tokens_before(self) -> int:
        """Those of earlier runs; some had `answers`, rows of stories with many questions."""
        return sum(
            run["ended"] * (run["batch_size"] + run.get("answers", 0)) * run["sequence_length"]
            for run in self.earlier
        )

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def text(self) -> str:
        return json.dumps(self.to_dict(), indent=2) + "\n"


def _check_type(known: dataclasses.Field, value: Any) -> None:
    accepted, words = ACCEPTED[known.type.partition("[")[0]]
    if type(value) not in accepted:
        raise TrainError(f"{known.name} is {value!r}; expected {words}")
