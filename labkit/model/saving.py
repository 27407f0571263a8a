"""Saving a model as a folder in Hugging Face's layout: whole, or not at all."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from labkit.model.weights import DTYPES, EMBEDDING, HEAD, SINGLE, CheckpointError, listed

WRITTEN = re.compile(r"config\.json|model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")
TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "generation_config.json",
)
# kept when we overwrite
BESIDE = (
    *(*TOKENIZER, "README.md", "LICENSE", ".gitattributes"),
    *("recipe.json", "log.csv", "loss.png", "scores.json"),
)


def save(
    model: nn.Module,
    config: Any,
    folder: str | Path,
    tokenizer_folder: str | Path | None = None,
) -> None:
    """Write config.json and model.safetensors.

    Everything is written beside `folder` first and then renamed, so that its name never
    leads to half a checkpoint. An older checkpoint there is replaced; the tokenizer and
    model card beside its weights stay, unless tokenizer_folder brings new ones.

    Errors: no room on the disk, a folder with files of others, a head that should be tied
            and is not, a dtype no file has: CheckpointError; what was there before stays
    """
    target = Path(os.path.realpath(folder))
    kept = _files_to_keep(target)
    if tokenizer_folder is not None:
        kept |= _tokenizer_files(Path(tokenizer_folder))
    tensors = _tensors(model, config)
    needed = sum(tensor.nbytes for tensor in tensors.values())
    with _written_whole(target, needed) as temporary:
        for name, path in kept.items():
            shutil.copyfile(path, temporary / name)
        dtype = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
        values = json.dumps({**config.to_dict(), "dtype": dtype}, indent=2)
        (temporary / "config.json").write_text(values + "\n", "utf-8")
        ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        save_file(ready, temporary / SINGLE, metadata={"format": "pt"})
        # save_file lets only the owner read; config.json has the mode files get here
        (temporary / SINGLE).chmod((temporary / "config.json").stat().st_mode & 0o777)


def _tensors(model: nn.Module, config: Any) -> dict[str, Tensor]:
    tensors = dict(model.state_dict())
    if getattr(model, "config", config).to_dict() != config.to_dict():
        raise CheckpointError("config is not the one this model was built from")
    if config.tie_word_embeddings:
        head, embedding = tensors.pop(HEAD), tensors[EMBEDDING]
        if head.data_ptr() != embedding.data_ptr() and not torch.equal(head, embedding):
            raise CheckpointError(f"config ties {HEAD} to {EMBEDDING}, but the model does not")
    odd = {name: t.dtype for name, t in tensors.items() if t.dtype not in DTYPES.values()}
    if odd:
        name, dtype = next(iter(odd.items()))
        raise CheckpointError(f"{name} is {dtype}; a checkpoint holds {', '.join(DTYPES)}")
    return tensors


def _files_to_keep(target: Path) -> dict[str, Path]:
    """What stays of the folder to be replaced; a folder that is no checkpoint is refused."""
    if not target.exists():
        return {}
    if not target.is_dir():
        raise CheckpointError(f"{target} is a file; a checkpoint is saved as a folder")
    found = {path.name: path for path in target.iterdir()}
    unknown = [
        name
        for name, path in found.items()
        if not path.is_file() or not (name in BESIDE or WRITTEN.fullmatch(name))
    ]
    if unknown:
        raise CheckpointError(
            f"{target} holds {listed(unknown)}, which no checkpoint has; nothing was "
            "overwritten: choose another folder"
        )
    return {name: path for name, path in found.items() if name in BESIDE}


def _tokenizer_files(folder: Path) -> dict[str, Path]:
    if not (folder / "tokenizer.json").is_file():
        raise CheckpointError(f"{folder} holds no tokenizer.json to copy")
    return {name: folder / name for name in TOKENIZER if (folder / name).is_file()}


@contextmanager
def _written_whole(target: Path, needed: int) -> Iterator[Path]:
    """A folder beside `target` to write into; at the end it takes target's name."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(
            prefix=f".{target.name}.saving-", dir=target.parent, ignore_cleanup_errors=True
        ) as beside:
            new = Path(beside) / target.name
            new.mkdir()
            yield new
            for path in new.iterdir():
                with path.open("r+b") as file:
                    os.fsync(file.fileno())  # on the disk before the name says it is
            _take_name(new, target)
    except (OSError, SafetensorError) as error:
        reason = str(error)
        if "No space left" in reason:  # SafetensorError carries no errno
            free = shutil.disk_usage(target.parent).free
            reason = f"no room on the disk: {needed:,} bytes are needed, {free:,} are free"
        raise CheckpointError(f"{target} was not saved: {reason}") from error


def _take_name(new: Path, target: Path) -> None:
    old = target.with_name(f".{target.name}.old-{os.getpid()}")
    if target.exists():
        target.rename(old)
    try:
        new.rename(target)
    except OSError:
        if old.exists():
            old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
