"""Training itself: batches in, weights out, and nothing lost but the last interval."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from labkit.core.files import write_whole
from labkit.model import checkpoint
from labkit.model.fast import accelerate, compile_layers
from labkit.pretrain.data import Rows, Steps, Validation
from labkit.pretrain.muon import Muon
from labkit.pretrain.recipe import Recipe, TrainError
from labkit.pretrain.reinforce import LEAST as LEAST_TOLD
from labkit.pretrain.reinforce import Told, objectives, told_stories
from labkit.pretrain.reinforce.answers import LEAST, asked, losses
from labkit.pretrain.run_folder import Run
from labkit.stories import tokenizer as story_tokenizer

JUDGED = ("answers_loss", "told_sound")
OTHER_FORMS = {"rope_parameters", "num_local_experts", "dtype"}  # that a config.json may have
TIMED = 2  # steps that are timed to choose the precision


class Trainer:
    """One run of a recipe with the code of `package`: the reference's, or a learner's."""

    def __init__(
        self,
        run: Run,
        package: ModuleType,
        device: torch.device,
        begin_with: Path | None = None,
        compiled: bool = False,
    ):
        self.run, self.recipe, self.device = run, run.recipe, device
        part = lambda name: checkpoint.part(package, name)  # noqa: E731
        self.loss, self.schedule = part("causal_lm_loss"), part("learning_rate")
        self.balance, self.make_cache = part("load_balancing_loss"), part("KVCache")
        self.config = part("Qwen3Config").from_dict(self.recipe.model)
        _check_fit(self.recipe, self.config)

        tokenizer = _tokenizer(run, self.config.vocab_size, begin_with)
        length, before = self.recipe.sequence_length, self.recipe.before
        self.rows = Rows(tokenizer, length, before("batch_size"))
        self.tokenizer = tokenizer
        longest = self.config.max_position_embeddings
        self.validation = Validation(tokenizer, self.recipe.validation_documents, longest)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.recipe.seed)
            self.model = part("Qwen3ForCausalLM")(self.config).to(device).train()
        accelerate(self.model)
        if compiled and (problem := compile_layers(self.model)):
            raise TrainError(f"torch cannot compile here: {problem}; go on without --compile")
        self.optimizers = optimizers(self.model, self.recipe)
        self.mean, decay = None, self.recipe.ema_decay
        if decay:
            self.mean = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(decay))
        self.step, self.precision, self.stopping = 0, "", False
        if state := run.state():
            self.restore(state)
        elif self.recipe.earlier:
            self.begin(begin_with, package)
        if self.mean and self.step == 0:
            self.mean.update_parameters(self.model)  # the first are taken as they are
        self.precision = self.precision or self.choose_precision()

    def begin(self, folder: Path | None, package: ModuleType) -> None:
        """Take over the weights that earlier runs made, and their log."""
        if folder is None:
            raise TrainError(
                f"{self.run.folder} begins with earlier weights; name them again with --from"
            )
        weights = checkpoint.load(folder, package, torch.float32).state_dict()
        self.model.load_state_dict(weights)
        self.run.take_log(folder / "log.csv")

    def steps(self) -> Iterator[dict[str, float]]:
        """Train to the end, one step for every item; saves and measures on the way.

        Once `stopping` is set, it saves and ends after this step.
        """
        unlogged: list[dict[str, float]] = []
        stop = False
        processes = 0 if self.device.type == "cpu" else os.cpu_count() or 1
        batches = iter(Steps(self.batch).of(range(self.step, self.recipe.steps), processes))
        while self.step < self.recipe.steps and not stop:
            start = time.perf_counter()
            seen = self.one_step(next(batches))
            stop = self.stopping
            seen["seconds"] = time.perf_counter() - start
            unlogged.append(seen)
            self.step += 1
            last = self.step == self.recipe.steps
            if last or stop or self.step % self.recipe.save_every == 0:
                self.save(unlogged, measure=last or self.step % self.recipe.validate_every == 0)
                unlogged = []
            yield seen

    def batch(self, step: int) -> Tensor:
        """The rows of a step."""
        return self.rows.batch(step, self.recipe.batch_size)

    def one_step(self, input_ids: Tensor) -> dict[str, float]:
        recipe = self.recipe
        objective, parts = self.objective(input_ids.to(self.device), self.precision)
        objective.backward()
        seen = self.more_gradients()
        for parameter in self.model.parameters():
            if parameter.grad is None:  # of an expert that no token chose
                parameter.grad = torch.zeros_like(parameter)
        grad_norm = nn.utils.clip_grad_norm_(self.model.parameters(), recipe.max_grad_norm)
        share = self.schedule(self.step, 1.0, recipe.warmup_steps, recipe.steps, recipe.floor)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = share * group["peak"]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if self.mean:
            self.mean.update_parameters(self.model)
        loss, balance_loss = parts.tolist()
        if loss != loss:
            raise TrainError(f"the loss is not a number at step {self.step}; learn more slowly")
        return {
            "loss": loss,
            "balance_loss": balance_loss,
            "grad_norm": grad_norm.item(),
            "learning_rate": share * recipe.learning_rate,
            **seen,
        }

    def more_gradients(self) -> dict[str, float]:
        """Add those of answers and of told stories; what is logged of them."""
        recipe, seen = self.recipe, {}
        if recipe.asked:
            longest = self.config.max_position_embeddings
            stories = [
                asked(self.tokenizer, number, longest, recipe.drills)
                for number in self.numbers("asked")
            ]
            seen["answers_loss"] = 0.0
            for loss in losses(stories, self.logits):
                (recipe.asked_weight * loss).backward()
                seen["answers_loss"] += loss.item()
        if recipe.told:
            stories = self.tell()
            for objective in objectives(stories, recipe.told_temperature, self.logits):
                (recipe.told_weight * objective).backward()
            seen["told_sound"] = sum(story.sound for story in stories) / recipe.told
        return seen

    def tell(self) -> list[Told]:
        """The stories of a step; the dice are the step's own."""
        recipe, numbers = self.recipe, self.numbers("told")
        dice = torch.Generator(self.device).manual_seed(numbers.start)
        self.model.eval()
        tell = told_stories(
            self.model, self.make_cache, self.tokenizer, numbers, recipe.told_temperature, dice
        )
        self.model.train()
        return tell

    def numbers(self, what: str) -> range:
        """Those of the stories of a step, "asked" or "told"."""
        many = getattr(self.recipe, what)
        start = self.recipe.before(what) + self.step * many
        return range(start, start + many)

    def logits(
        self, input_ids: Tensor, mask: Tensor | None = None, cache: Any = None
    ) -> Tensor:
        device = self.device
        with self.half():
            return self.model(
                input_ids.to(device), mask if mask is None else mask.to(device), cache
            )

    def half(self) -> torch.autocast:
        enabled = self.precision == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=enabled)

    def objective(self, input_ids: Tensor, precision: str) -> tuple[Tensor, Tensor]:
        """The objective, and its losses of text and of balance."""
        half = precision == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=half):
            logits, router_logits = self.model(input_ids, output_router_logits=True)
            loss = self.loss(logits, input_ids)
            objective, parts = loss, [loss, torch.zeros_like(loss)]
            if router_logits:
                pools = [[layer] for layer in router_logits]
                if self.recipe.balance == "pooled":
                    pools = [list(router_logits)]
                top_k = self.config.num_experts_per_tok
                balance_loss = sum(self.balance(pool, top_k) for pool in pools) / len(pools)
                objective = objective + self.config.router_aux_loss_coef * balance_loss
                parts[1] = balance_loss
        return objective, torch.stack(parts).detach()

    def choose_precision(self) -> str:
        """bfloat16 where asked for, or faster here; float32 where the model cannot do it."""
        if self.recipe.precision != "auto":
            return self.recipe.precision
        input_ids = self.batch(0).to(self.device)
        seconds = {"float32": self.seconds(input_ids, "float32")}
        try:
            seconds["bfloat16"] = self.seconds(input_ids, "bfloat16")
        except RuntimeError:  # code that mixes dtypes
            return "float32"
        return min(seconds, key=seconds.__getitem__)

    def seconds(self, input_ids: Tensor, precision: str) -> float:
        """Of the fastest of some steps that change nothing."""
        taken = []
        for _ in range(TIMED):
            start = time.perf_counter()
            objective, _ = self.objective(input_ids, precision)
            objective.backward()
            objective.item()  # waits for a GPU
            taken.append(time.perf_counter() - start)
            self.model.zero_grad(set_to_none=True)
        return min(taken)

    def save(self, unlogged: list[dict[str, float]], measure: bool) -> None:
        """Add a line to the log and keep everything that is needed to go on."""
        if unlogged:
            mean = {key: sum(s[key] for s in unlogged) / len(unlogged) for key in unlogged[0]}
            tokens_a_step = self.recipe.tokens_a_step
            bits = self.validation.bits_per_byte(self.made, self.loss) if measure else ""
            self.run.log.append(
                {
                    "step": self.step,
                    "tokens": self.recipe.tokens_before + self.step * tokens_a_step,
                    "loss": round(mean["loss"], 5),
                    "balance_loss": round(mean["balance_loss"], 5),
                    "grad_norm": round(mean["grad_norm"], 4),
                    "learning_rate": round(unlogged[-1]["learning_rate"], 7),
                    "tokens_per_second": round(tokens_a_step / mean["seconds"]),
                    "bits_per_byte": bits if bits == "" else round(bits, 5),
                    **{key: round(mean[key], 5) for key in JUDGED if key in mean},
                }
            )
        state = {
            "step": self.step,
            "precision": self.precision,
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }
        if self.mean:
            state["mean"] = self.mean.state_dict()
        self.run.save(state)
        if measure or self.stopping:
            self.export()

    @property
    def made(self) -> nn.Module:
        """What the run makes: the mean of its models, or the last one."""
        return self.mean.module if self.mean else self.model

    def restore(self, state: dict[str, Any]) -> None:
        try:
            self.model.load_state_dict(state["model"])
            if self.mean:
                self.mean.load_state_dict(state["mean"])
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
        except (KeyError, ValueError, RuntimeError) as error:
            raise TrainError(
                f"{self.run.folder}/state.pt does not fit this model ({error}); give another "
                "folder with --out"
            ) from error
        self.step, self.precision = state["step"], state["precision"]

    def export(self) -> None:
        """The model as it is now, in Hugging Face's layout, with recipe, log and plot."""
        folder = self.run.folder / "model"
        dtype = getattr(torch, self.recipe.saved_dtype)
        model = copy.deepcopy(self.made).to("cpu", dtype)
        checkpoint.save(model, self.config, folder, self.run.folder / "tokenizer")
        for name in ("recipe.json", "log.csv", "loss.png"):
            write_whole(folder / name, (self.run.folder / name).read_bytes())


def optimizers(model: nn.Module, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """AdamW for all weights; or Muon for the matrices that map features to features.

    Embeddings, routers and vectors are AdamW's in any case, and only matrices decay.
    """
    matrices, others = [], []
    for name, weight in model.named_parameters():
        outer = name.endswith(("embed_tokens.weight", "mlp.gate.weight"))
        (others if outer or weight.dim() != 2 else matrices).append(weight)
    peak, decay = recipe.learning_rate, recipe.weight_decay
    adamw = {"betas": (0.9, 0.95), "weight_decay": 0.0, "fused": True}
    if recipe.optimizer == "muon":
        first = Muon(matrices, lr=peak, weight_decay=decay)
        made = [first, torch.optim.AdamW(others, lr=recipe.adamw_learning_rate, **adamw)]
    else:
        groups = [{"params": matrices, "weight_decay": decay}, {"params": others}]
        made = [torch.optim.AdamW(groups, lr=peak, **adamw)]
    for optimizer in made:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return made


def _tokenizer(run: Run, vocab_size: int, begin_with: Path | None):
    """The run's tokenizer: an earlier run's, or learnt from the stories at its beginning."""
    from tokenizers import Tokenizer

    folder = run.folder / "tokenizer"
    if not (folder / "generation_config.json").exists():
        if run.recipe.earlier and begin_with:
            made = Tokenizer.from_file(str(begin_with / "tokenizer.json"))
        else:
            made = story_tokenizer.train_on_stories(run.recipe.tokenizer_documents, vocab_size)
        with run.errors_explained():
            story_tokenizer.save(made, folder)
            write_whole(
                folder / "generation_config.json", _generation_config(run.recipe).encode()
            )
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def _generation_config(recipe: Recipe) -> str:
    end, begin, turn = range(len(story_tokenizer.SPECIAL_TOKENS))
    values = {**recipe.generation, "eos_token_id": [turn, end, begin], "pad_token_id": end}
    return json.dumps(values, indent=2) + "\n"


def _check_fit(recipe: Recipe, config: Any) -> None:
    """Raise TrainError where the numbers of a recipe do not go together."""
    known = {field.name for field in dataclasses.fields(config)}
    if unknown := sorted(recipe.model.keys() - known - config.to_dict().keys() - OTHER_FORMS):
        raise TrainError(
            f"the recipe's model has no use for {', '.join(unknown)}; it may have "
            f"{', '.join(sorted(known))}"
        )
    if recipe.told and config.max_position_embeddings < LEAST_TOLD:
        raise TrainError(
            f"max_position_embeddings {config.max_position_embeddings} leaves no room for the "
            f"stories that the model tells; take {LEAST_TOLD} or more, or 0 for told"
        )
    if recipe.asked and config.max_position_embeddings < LEAST:
        raise TrainError(
            f"max_position_embeddings {config.max_position_embeddings} leaves no room for a "
            f"story and an answer; take {LEAST} or more, or 0 for asked"
        )
    if recipe.sequence_length > config.max_position_embeddings:
        raise TrainError(
            f"sequence_length {recipe.sequence_length} is more than the model's "
            f"max_position_embeddings {config.max_position_embeddings}"
        )
