"""Resolving the MODEL of a command: a folder, a checkpoint of the course, or the hub.

The hub's cache is also read by hand: huggingface_hub is an extra, and a model that was fetched
once has to load without it.
"""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

from labkit.course.lang import tr
from labkit.course.paths import CHECKPOINTS
from labkit.model.values import CheckpointError

# name -> folder; the first is the default
SHIPPED = {name: CHECKPOINTS / name for name in ("stories-dense", "stories-moe")}
WANTED = ("*.safetensors", "*.json", "tokenizer*", "merges.txt", "*.jinja")
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def trained_folder() -> Path:
    """The folder in which lab 08 saves its model, beside the learner's package"""
    return Path(find_spec("tinyllm").origin).parents[1] / "build" / "runs" / "mine"


def resolve(name: str | None = None) -> Path:
    """Return the folder of a model.

    name    a folder, a shipped name, `mine` (lab 08's model), or a name on the hub such as
            Qwen/Qwen3-0.6B; None is the first that ships

    Errors: CheckpointError if nothing has this name, there is no network, or huggingface_hub is
            not installed
    """
    if name is None:
        name = next(iter(SHIPPED))
    if name and (folder := Path(name).expanduser()).exists():
        of_run = folder / "model"  # where a training run puts its model
        inside = not (folder / "config.json").exists() and (of_run / "config.json").exists()
        return of_run if inside else folder
    if name in SHIPPED:
        return SHIPPED[name]
    if name == "mine":
        if trained_folder().exists():
            return trained_folder()
        raise CheckpointError("there is no model of yours yet: lab 08 trains and keeps it")
    if HUB_NAME.fullmatch(name):
        return _from_hub(name)
    raise CheckpointError(
        "there is no model {name!r}: give one that ships with the course "
        "({names}), a folder, or a name on the hub such as Qwen/Qwen3-0.6B",
        name=name,
        names=tr(", ").join(SHIPPED),
    )


def cached(name: str) -> Path | None:
    """Return the folder of an earlier download, None if there is none."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    folder = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    folder = folder / f"models--{name.replace('/', '--')}"
    branch = folder / "refs" / "main"
    if not branch.is_file():
        return None
    snapshot = folder / "snapshots" / branch.read_text("utf-8").strip()
    return snapshot if (snapshot / "config.json").is_file() else None


def _from_hub(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        if found := cached(name):
            return found
        raise CheckpointError(
            "there is no folder {name}, and without huggingface_hub nothing can be "
            "fetched; `pip install huggingface_hub`, or give a folder",
            name=name,
        ) from error
    try:
        return Path(snapshot_download(name, allow_patterns=list(WANTED)))
    except Exception as error:  # no network, no such model, no access: many types of errors
        first = str(error).strip().partition("\n")[0]
        raise CheckpointError(
            "there is no folder {name}, and it could not be fetched from the hub: "
            "{kind}: {first}",
            name=name,
            kind=type(error).__name__,
            first=first,
        ) from error
