"""Saving a model as a folder in Hugging Face's layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save as packed
from torch import Tensor, nn

from labkit.course.files import write_whole
from labkit.model.values import CheckpointError
from labkit.model.weights import EMBEDDING, HEAD, SINGLE

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


def save(
    model: nn.Module,
    config: Any,
    folder: str | Path,
    tokenizer_folder: str | Path | None = None,
) -> None:
    """Write config.json, model.safetensors and the files of a tokenizer to a folder.

    Each file is replaced as a whole, so a crash leaves the old one; other files stay. The price
    is that the weights are in memory twice.

    tokenizer_folder    copy the tokenizer from here, None: write none

    Errors: CheckpointError if the folder cannot be written, or a tied head differs
    """
    tensors = _tensors(model, config)
    dtype = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    values = json.dumps({**config.to_dict(), "dtype": dtype}, indent=2)
    files = {
        SINGLE: packed(tensors, metadata={"format": "pt"}),
        "config.json": f"{values}\n".encode(),
    }
    if tokenizer_folder is not None:
        paths = (Path(tokenizer_folder) / name for name in TOKENIZER)
        files |= {path.name: path.read_bytes() for path in paths if path.is_file()}
    try:
        for name, content in files.items():
            write_whole(Path(folder) / name, content)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CheckpointError(
            "{folder} was not saved: {reason}", folder=folder, reason=reason
        ) from error


def _tensors(model: nn.Module, config: Any) -> dict[str, Tensor]:
    tensors = dict(model.state_dict())
    if config.tie_word_embeddings:
        head, embedding = tensors.pop(HEAD), tensors[EMBEDDING]
        if head.data_ptr() != embedding.data_ptr() and not head.equal(embedding):
            raise CheckpointError(
                "config ties {head} to {embedding}, but the model does not",
                head=HEAD,
                embedding=EMBEDDING,
            )
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
