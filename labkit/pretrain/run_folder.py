"""The folder of a training run: what it needs to go on, what it has seen, what it made.

recipe.json  state.pt        the run goes on from here
log.csv      loss.png        a line and a point for every save
tokenizer/   model/          Hugging Face's layout
"""

from __future__ import annotations

import csv
import errno
import io
import shutil
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from labkit.core.files import write_whole
from labkit.pretrain.recipe import Recipe, TrainError

COLUMNS = (
    "step", "tokens", "loss", "balance_loss", "grad_norm", "learning_rate",
    "tokens_per_second", "bits_per_byte", "answers_loss", "told_sound",
)  # fmt: skip


class Run:
    """One run in its folder. Files are replaced whole: a kill leaves the older ones."""

    def __init__(self, folder: Path, recipe: Recipe):
        self.folder, self.recipe = folder, recipe
        self.log: list[dict[str, Any]] = []

    def begin(self) -> None:
        """Make the folder, or see that it belongs to this recipe."""
        with self.errors_explained():
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / "recipe.json"
            inside = {item.name for item in self.folder.iterdir()}
            if not path.exists() and inside:
                raise TrainError(
                    f"{self.folder} holds {', '.join(sorted(inside)[:3])} and no recipe.json; "
                    "give another folder with --out"
                )
            if inside <= {path.name, "tokenizer"} and not self._is_there(path):
                shutil.rmtree(self.folder / "tokenizer", ignore_errors=True)
                write_whole(path, self.recipe.text().encode())
        before = Recipe.from_file(path).to_dict()
        changed = [key for key, value in self.recipe.to_dict().items() if before[key] != value]
        if changed:
            raise TrainError(
                f"{self.folder} holds a run that differs in {', '.join(changed)}; go on with "
                f"that one by `tinyllm train {path}`, or give another folder with --out"
            )

    def _is_there(self, path: Path) -> bool:
        """Whether it is this recipe: another, of which no step was saved, is not missed."""
        return path.exists() and path.read_text("utf-8") == self.recipe.text()

    def state(self) -> dict[str, Any] | None:
        """What was saved last, None at the beginning."""
        path = self.folder / "state.pt"
        if not path.exists():
            return None
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises many kinds
            raise TrainError(f"{path} is damaged ({error}); delete it to begin anew") from error
        self.log = state.pop("log")
        return state

    def save(self, state: Mapping[str, Any]) -> None:
        """Keep the state, then the log and its plot."""
        buffer = io.BytesIO()
        torch.save({**state, "log": self.log}, buffer)
        with self.errors_explained():
            write_whole(self.folder / "state.pt", buffer.getbuffer(), sync=True)
            write_whole(self.folder / "log.csv", self.table().encode())
            write_whole(self.folder / "loss.png", loss_plot(self.log))

    def take_log(self, path: Path) -> None:
        """Begin with the log of the run before: its steps, then ours from 1 on."""
        with path.open(encoding="utf-8", newline="") as file:
            self.log = [
                {key: _number(value) for key, value in line.items()}
                for line in csv.DictReader(file)
            ]

    def table(self) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.log)
        return text.getvalue()

    @contextmanager
    def errors_explained(self):
        """An OSError becomes a TrainError that says what is safe."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            if error.errno == errno.ENOSPC:
                free = shutil.disk_usage(self.folder).free
                reason = f"no room on the disk, {free:,} bytes are free"
            raise TrainError(
                f"{self.folder} was not written: {reason}. What was saved before is whole; "
                "the same command goes on from there"
            ) from error


def last_step(model: Path) -> int:
    """At which step the run ended that made the model in this folder.

    Errors: no log there, or one without a step: TrainError
    """
    path = model / "log.csv"
    try:
        return int(path.read_text("utf-8").splitlines()[-1].split(",")[0])
    except (OSError, ValueError, IndexError) as error:
        raise TrainError(
            f"{path} does not say how far the model was trained ({error}); begin with a folder "
            "that `tinyllm train` made"
        ) from error


def _number(text: str) -> Any:
    """As it was before it was written: 100, 0.25, or "" for what was not measured."""
    return "" if text == "" else float(text) if {".", "e"} & set(text) else int(text)


def loss_plot(log: list[dict[str, Any]]) -> bytes:
    """The loss of training batches and bits per byte of validation text, as a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.plot(
        [line["tokens"] / 1e6 for line in log], [line["loss"] for line in log], color="#0072B2"
    )
    axes.set(xlabel="million tokens", ylabel="training loss, nats per token", xlim=(0, None))
    axes.yaxis.label.set_color("#0072B2")
    axes.set_yscale("log")
    seen = [line for line in log if line["bits_per_byte"] != ""]
    right = axes.twinx()
    right.plot(
        [line["tokens"] / 1e6 for line in seen], [line["bits_per_byte"] for line in seen],
        color="#D55E00", marker="o", markersize=3,
    )  # fmt: skip
    right.set(ylabel="validation, bits per byte", yscale="log")
    right.yaxis.label.set_color("#D55E00")
    for side in (axes, right):
        side.yaxis.set_major_formatter("{x:.2g}")
        side.yaxis.set_minor_formatter("{x:.2g}")
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=110, metadata={"Software": None})
    return image.getvalue()
