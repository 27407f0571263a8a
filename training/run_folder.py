"""The folder of a training run: its state, its log and the model it made.

recipe.json  state.pt        to resume the run
log.csv      loss.png        a line and a point for every save
model/                       the model in Hugging Face's layout
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from labkit.course.files import write_whole
from training.recipe import Recipe, TrainError

COLUMNS = (
    "step", "tokens", "loss", "balance_loss", "grad_norm", "learning_rate",
    "tokens_per_second", "bits_per_byte", "reward",
)  # fmt: skip


class Run:
    """One run in its folder. Each file is replaced as a whole, so a kill leaves the old one."""

    def __init__(self, folder: Path, recipe: Recipe):
        self.folder, self.recipe = folder, recipe
        self.log: list[dict[str, Any]] = []

    def begin(self) -> None:
        """Create the folder, or check that the run in it has this recipe. Errors: TrainError"""
        path = self.folder / "recipe.json"
        with self.errors_explained():
            self.folder.mkdir(parents=True, exist_ok=True)
            inside = sorted(item.name for item in self.folder.iterdir())
            if inside and path.name not in inside:
                raise TrainError(
                    f"{self.folder} holds {', '.join(inside[:3])} and no recipe.json; "
                    "give another folder with --out"
                )
            if "state.pt" not in inside:  # no step was finished yet
                write_whole(path, self.recipe.text().encode())
        before, now = vars(Recipe.from_file(path)), vars(self.recipe)
        if changed := [key for key in now if before[key] != now[key]]:
            raise TrainError(
                f"{self.folder} holds a run that differs in {', '.join(changed)}; go on with "
                f"that one by `tinyllm train {path}`, or give another folder with --out"
            )

    def state(self) -> dict[str, Any] | None:
        """Return the last saved state, None at the beginning."""
        path = self.folder / "state.pt"
        if not path.exists():
            return None
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises many types of errors
            raise TrainError(f"{path} is damaged ({error}); delete it to begin anew") from error
        self.log = state.pop("log")
        return state

    def save(self, state: Mapping[str, Any]) -> None:
        """Write the state, then the log and its plot."""
        buffer = io.BytesIO()
        torch.save({**state, "log": self.log}, buffer)
        with self.errors_explained():
            write_whole(self.folder / "state.pt", buffer.getbuffer(), sync=True)
            write_whole(self.folder / "log.csv", self.table().encode())
            write_whole(self.folder / "loss.png", loss_plot(self.log))

    @contextmanager
    def errors_explained(self) -> Iterator[None]:
        """Turn an OSError into a TrainError that says which files are safe."""
        try:
            yield
        except OSError as error:
            raise TrainError(
                f"{self.folder} was not written: {error.strerror or error}. What was saved "
                "before is whole; the same command goes on from there"
            ) from error

    def table(self) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.log)
        return text.getvalue()


def loss_plot(log: list[dict[str, Any]]) -> bytes:
    """Plot the loss of training batches and bits per byte of validation text, as a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    left = figure.subplots()
    right, tokens = left.twinx(), [line["tokens"] / 1e6 for line in log]
    left.plot(tokens, [line["loss"] for line in log], color="#0072B2")
    right.plot(tokens, [line["bits_per_byte"] for line in log], color="#D55E00", marker=".")
    left.set(xlabel="million tokens", ylabel="training loss, nats per token", xlim=(0, None))
    right.set(ylabel="validation, bits per byte")
    for side, color in ((left, "#0072B2"), (right, "#D55E00")):
        side.set_yscale("log")
        side.yaxis.label.set_color(color)
        side.yaxis.set_major_formatter("{x:.2g}")
        side.yaxis.set_minor_formatter("{x:.2g}")
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=110, metadata={"Software": None})
    return image.getvalue()
