"""Training: lab 08's step on stories, and lab 11's with the reader's verdict as reward."""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from labkit.course.files import write_whole
from labkit.learner.lessons import rewards
from labkit.learner.lessons.data import Rows, Validation
from labkit.learner.lessons.muon import MuonAdamW
from labkit.model import checkpoint
from labkit.model.fast import accelerate
from labkit.model.hub import SHIPPED
from labkit.model.tokenizer import Tokenizer
from training.recipe import TrainError
from training.run_folder import Run

VALIDATION = 50  # documents
ROOM = 256  # tokens of a request and its story
OTHER_FORMS = {"rope_parameters", "num_local_experts", "dtype"}  # also fields of config.json
ROWS = 100_000  # rows of one seed; more steps continue with the rows of the next seed


class Trainer:
    """One run of a recipe with the code of `package`: the reference's, or a learner's."""

    def __init__(
        self,
        run: Run,
        package: ModuleType,
        device: torch.device,
        begin_with: Path | None = None,
    ):
        self.run, self.recipe, self.package, self.device = run, run.recipe, package, device
        self.config = self.part("Qwen3Config").from_dict(self.recipe.model)
        self.tokenizer = Tokenizer(next(iter(SHIPPED.values())))
        self.check_fit()
        library, length = self.tokenizer.library, self.recipe.sequence_length
        self.rows = Rows(library, length, ROWS * self.recipe.seed)
        longest = self.config.max_position_embeddings
        self.validation = Validation(library, VALIDATION, longest)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.recipe.seed)
            self.model = self.part("Qwen3ForCausalLM")(self.config).to(device).train()
        accelerate(self.model)
        self.optimizer = MuonAdamW(self.model)
        self.step, self.stopping = 0, False
        if state := run.state():
            self.restore(state)
        elif begin_with:
            before = checkpoint.load(begin_with, package, torch.float32)
            if before.config.to_dict() != self.config.to_dict():
                raise TrainError(f"{begin_with} has a different shape than the recipe's model")
            self.model.load_state_dict(before.state_dict())
        elif self.recipe.begun_with:
            raise TrainError(
                f"{run.folder} begins with the weights of {self.recipe.begun_with}; name them "
                "again with --from"
            )

    def check_fit(self) -> None:
        """Check that the numbers of the recipe fit together. Errors: TrainError"""
        recipe, longest = self.recipe, self.config.max_position_embeddings
        known = {field.name for field in dataclasses.fields(self.config)}
        unknown = recipe.model.keys() - known - self.config.to_dict().keys() - OTHER_FORMS
        if unknown:
            raise TrainError(
                f"the recipe's model has no use for {', '.join(sorted(unknown))}; it may have "
                f"{', '.join(sorted(known))}"
            )
        size = self.tokenizer.library.get_vocab_size()
        if self.config.vocab_size < size:
            raise TrainError(
                f"vocab_size is {self.config.vocab_size}; the course's tokenizer has {size}"
            )
        needed = max(recipe.sequence_length, ROOM if recipe.requests else 0)
        if needed > longest:
            raise TrainError(
                f"sequence_length or requests needs {needed} tokens, more than the model's "
                f"max_position_embeddings {longest}"
            )

    def part(self, name: str) -> Any:
        return checkpoint.part(self.package, name)

    def steps(self) -> Iterator[dict[str, float]]:
        """Train to the end and yield the numbers of each step; save and measure on the way.

        Once `stopping` is set, save and end after the current step.
        """
        unlogged: list[dict[str, float]] = []
        stop = False
        while self.step < self.recipe.steps and not stop:
            start = time.perf_counter()
            seen = self.train_step()
            if self.recipe.requests:
                seen["reward"] = self.reader_step()
            stop = self.stopping
            seen["seconds"] = time.perf_counter() - start
            unlogged.append(seen)
            self.step += 1
            last = self.step == self.recipe.steps
            if last or stop or self.step % self.recipe.save_every == 0:
                self.save(unlogged)
                unlogged = []
            yield seen

    def train_step(self) -> dict[str, float]:
        """Train on the rows of this step as lab 08 does."""
        recipe = self.recipe
        input_ids = self.rows.batch(self.step, recipe.batch_size).to(self.device)  # (B, T)
        peak = recipe.learning_rate
        rate = self.part("learning_rate")(
            self.step, peak, recipe.warmup_steps, recipe.steps, recipe.floor * peak
        )
        seen = self.part("train_step")(self.model, self.optimizer, input_ids, input_ids, rate)
        if seen["loss"] != seen["loss"]:
            raise TrainError(f"the loss is not a number at step {self.step}; learn more slowly")
        return {**seen, "learning_rate": rate}

    def reader_step(self) -> float:
        """Train on answers to requests with the reader's verdict as reward, as lab 11 does."""
        recipe, number = self.recipe, ROWS * self.recipe.seed + self.step
        texts = rewards.requests(recipe.requests, number % (ROWS * 9))
        input_ids, mask = rewards.batch(self.tokenizer, texts)
        report = self.part("grpo_step")(
            self.model, self.optimizer, input_ids.to(self.device), mask.to(self.device),
            lambda ids: rewards.sound(rewards.written(self.tokenizer, ids)),
            recipe.group_size, rewards.MOST, sorted(self.tokenizer.stop_ids),
            temperature=recipe.temperature,
            generator=torch.Generator(self.device).manual_seed(number),
        )  # fmt: skip
        return report["reward"]

    def save(self, unlogged: list[dict[str, float]]) -> None:
        """Add a line to the log, and write the model and all that is needed to resume."""
        mean = {key: sum(s[key] for s in unlogged) / len(unlogged) for key in unlogged[0]}
        tokens, loss = self.recipe.tokens_per_step, self.part("causal_lm_loss")
        line = {
            "step": self.step,
            "tokens": self.step * tokens,
            "loss": round(mean["loss"], 5),
            "balance_loss": round(mean["balance_loss"], 5),
            "grad_norm": round(mean["grad_norm"], 4),
            "learning_rate": round(unlogged[-1]["learning_rate"], 7),
            "tokens_per_second": round(tokens / mean["seconds"]),
            "bits_per_byte": round(self.validation.bits_per_byte(self.model, loss), 5),
        }
        if "reward" in mean:
            line["reward"] = round(mean["reward"], 5)
        self.run.log.append(line)
        weights, optimizer = self.model.state_dict(), self.optimizer.state_dict()
        self.run.save({"step": self.step, "model": weights, "optimizer": optimizer})
        self.export()

    def restore(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        for part in (self.model, self.optimizer):
            part.load_state_dict(state["model" if part is self.model else "optimizer"])

    def export(self) -> None:
        """Write the current model in Hugging Face's layout, with recipe, log and plot."""
        folder = self.run.folder / "model"
        model = copy.deepcopy(self.model).to("cpu", torch.bfloat16)
        checkpoint.save(model, self.config, folder, next(iter(SHIPPED.values())))
        for name in ("recipe.json", "log.csv", "loss.png"):
            write_whole(folder / name, (self.run.folder / name).read_bytes())
