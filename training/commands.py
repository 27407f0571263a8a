"""The commands `tinyllm train` and `tinyllm measure`."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer
from rich.console import Console

from labkit.course.lang import tr
from labkit.course.terminal import ending_on
from labkit.learner.talk import commands as talk
from labkit.model.chat.session import note

if TYPE_CHECKING:
    from training.trainer import Trainer

# ruff: noqa: UP045  typer on Python 3.10 needs Optional


app = typer.Typer()
STORIES = 200  # stories to measure a model on


@app.command()
def train(
    recipe: Annotated[
        Optional[str],
        typer.Argument(
            help="a recipe, or a shipped model to train one of its shape (stories-dense)"
        ),
    ] = None,
    out: Annotated[
        Optional[Path], typer.Option(help="the run's folder; build/runs/NAME by default")
    ] = None,
    begin_with: Annotated[
        Optional[str],
        typer.Option(
            "--from",
            help="begin with the weights of a shipped model or of a run",
        ),
    ] = None,
    steps: Annotated[Optional[int], typer.Option(min=1, help="another number of steps")] = None,
    package: talk.PackageName = talk.PACKAGE,
) -> None:
    """Train a small model on stories, or go on with a run."""
    import torch

    from labkit.model import checkpoint
    from training.recipe import Recipe, TrainError
    from training.run_folder import Run
    from training.trainer import Trainer

    with ending_on(TrainError, ValueError, OSError), talk.problems_reported():
        path = _recipe_file(checkpoint, recipe)
        made = Recipe.from_file(path)
        source = checkpoint.resolve(begin_with) if begin_with else None
        if source and not made.begun_with:
            made = replace(made, begun_with=source.name, seed=made.seed + 1)
        if steps is not None:
            made = made.with_steps(steps)
        run = Run(out or _run_folder(path), made)
        run.begin()
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        _train(Trainer(run, talk.named_package(package), device, source))


@app.command()
def measure(model: talk.ModelName = None, package: talk.PackageName = talk.PACKAGE) -> None:
    """Measure a model's stories and answers.

    For a MODEL that was trained here, write scores.json and the model card.
    """
    from rich.progress import Progress

    from labkit.course.files import write_whole
    from labkit.model import checkpoint
    from training import measure as measuring
    from training.card import write_card

    console = Console()
    with talk.problems_reported():
        folder, code = checkpoint.resolve(model), talk.named_package(package)
        note(tr("The weights are those of {folder}.", folder=folder))
        with Progress(console=console, disable=not console.is_terminal) as bar:
            task = bar.add_task(tr("measuring {name}", name=folder.name), total=None)
            watch = lambda done, total: bar.update(task, completed=done, total=total)  # noqa: E731
            found = measuring.scores_of(folder, code, STORIES, watch)
    _print_scores(console, found)
    is_trained_here = all((folder / name).exists() for name in ("recipe.json", "log.csv"))
    if model and is_trained_here:
        write_whole(folder / "scores.json", (json.dumps(found, indent=2) + "\n").encode())
        write_card(folder, code)
        message = tr("written: {folder}/scores.json, README.md", folder=folder)
        console.print(message, soft_wrap=not console.is_terminal)


def _print_scores(console: Console, found: dict) -> None:
    from rich.table import Table

    from training.measure import SHARES, WAYS

    title = tr(
        "{stories} stories, {bits:.3f} bits per byte",
        stories=found["stories"],
        bits=found["bits_per_byte"],
    )
    table = Table(tr("share of, in %"), title=title, title_justify="left")
    for way in WAYS:
        table.add_column(way, justify="right", width=7)
    for name, words in SHARES.items():
        shares = (found[way].get(name) for way in WAYS)
        table.add_row(
            words, *("" if share is None else f"{100 * share:.1f}" for share in shares)
        )
    console.print(table)


def _recipe_file(checkpoint, name: str | None) -> Path:
    """Return the path of a recipe: a file, or the one of a folder or shipped model."""
    path = Path(name) if name and name.endswith(".json") else checkpoint.resolve(name)
    return path / "recipe.json" if path.is_dir() else path


def _run_folder(recipe: Path) -> Path:
    """Return build/runs/NAME, or the recipe's own folder if that has a run."""
    if (recipe.parent / "state.pt").exists():
        return recipe.parent
    name = recipe.parent.name if recipe.name == "recipe.json" else recipe.stem
    return Path("build/runs") / name


def _train(trainer: Trainer) -> None:
    console = Console()
    recipe, run = trainer.recipe, trainer.run
    count = sum(weight.numel() for weight in trainer.model.parameters())
    begun = tr(", goes on at step {step}", step=trainer.step) if trainer.step else ""
    console.print(
        tr(
            "{folder}: {count:,} parameters, {steps} steps of {tokens:,} tokens{begun}",
            folder=run.folder, count=count, steps=recipe.steps, tokens=recipe.tokens_per_step,
            begun=begun,
        ),
        soft_wrap=not console.is_terminal, highlight=False,
    )  # fmt: skip
    with stopped_gently(trainer):
        _watched(trainer, console)
    if trainer.step < recipe.steps:
        console.print(
            tr("stopped at step {step}; the same command goes on from there", step=trainer.step)
        )
        raise typer.Exit(130)
    bits = run.log[-1]["bits_per_byte"]
    console.print(
        tr(
            "{bits} bits per byte on validation text; the model is {folder}/model",
            bits=bits,
            folder=run.folder,
        )
    )


@contextmanager
def stopped_gently(trainer: Trainer) -> Iterator[None]:
    """On the first Ctrl-C or SIGTERM, finish and save the step; end at once on the second."""

    def stop(number, frame) -> None:
        trainer.stopping = True
        note(tr("this step is finished and saved; Ctrl-C again ends at once"))
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watched(trainer: Trainer, console: Console) -> None:
    """Run all steps under a progress bar; without a terminal, print a line for each save."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    if trainer.step == trainer.recipe.steps:
        return
    columns = (
        TextColumn("step"),
        MofNCompleteColumn(),
        BarColumn(),
        TimeLeft(),
        TextColumn("{task.fields[seen]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", completed=trainer.step, total=trainer.recipe.steps, seen="")
        lines = len(trainer.run.log)
        for seen in trainer.steps():
            words = f"loss {seen['loss']:.3f}, {seen['seconds']:.2f} s a step"
            bar.update(task, completed=trainer.step, seen=words)
            if len(trainer.run.log) > lines and not console.is_terminal:
                bits = trainer.run.log[-1]["bits_per_byte"]
                console.print(
                    f"step {trainer.step}  {words}, {bits} bits/byte", highlight=False
                )
            lines = len(trainer.run.log)
