"""Write a checkpoint folder as a script that a page can load from a file or a server.

A script and not data to fetch, which browsers refuse to a page opened from a file. The price is
base64, a third more bytes."""

from __future__ import annotations

import base64
import importlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from labkit.model import weights
from labkit.model.chat.thoughts import CLOSE, CLOSING, OPEN
from labkit.model.checkpoint import check_size, read_config
from labkit.model.tokenizer import Tokenizer
from labkit.model.values import CheckpointError
from labkit.model.weights import EMBEDDING, HEAD

MOST = 64 * 2**20  # bytes of weights that a page may hold
REQUEST = "\ue000"  # stands for a request in the chat template; no tokenizer has it


def model_script(name: str, folder: Path, computed: Mapping[str, Any] | None = None) -> str:
    """Return the script that gives a model to the page: config, tokenizer, weights as stored.

    computed    numbers computed by Python code (learner_code.py), for the page to compare

    Errors: no checkpoint, one that is too large for a page, a tokenizer of another kind:
            CheckpointError
    """
    tokenizer = Tokenizer(folder)
    tensors, data = _packed(folder)
    payload = {
        "config": config_of(folder).to_dict(),
        "tokenizer": _tokenizer(tokenizer),
        "tensors": tensors,
        "computed": computed,
        "data": data,
    }
    return f"TinyLLM.receive({json.dumps(name)}, {json.dumps(payload)});\n"


def config_of(folder: Path) -> Any:
    """The config of a checkpoint folder; its class is given code of the learner's package."""
    return read_config(folder, importlib.import_module("tinyllm.config").Qwen3Config)


def advised(folder: Path) -> dict[str, float]:
    """Return temperature, top-k and top-p to begin with, from the checkpoint's settings."""
    found = Tokenizer(folder).generation
    return {
        "temperature": found.get("temperature", 1.0),
        "topK": found.get("top_k") or 0,
        "topP": found.get("top_p") or 1.0,
    }


def base64_of(tensor: Tensor) -> str:
    """The bytes of a tensor, little-endian, in base64."""
    raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
    return base64.b64encode(raw).decode("ascii")


def _packed(folder: Path) -> tuple[dict[str, dict], str]:
    """{name: shape, dtype, offset} and all bytes in a row; a tied head is stored once."""
    stored, config = weights.stored_tensors(folder), config_of(folder)
    check_size(folder, config, stored)
    if config.tie_word_embeddings and EMBEDDING in stored:
        stored = {name: each for name, each in stored.items() if name != HEAD}
    if (size := sum(each.nbytes for each in stored.values())) > MOST:
        raise CheckpointError(
            "{folder} holds {size:.0f} MB of weights; a page shows models of up to "
            "{most:.0f} MB, such as stories-dense",
            folder=folder,
            size=size / 2**20,
            most=MOST / 2**20,
        )
    places, parts, offset = {}, [], 0
    for name, tensor in weights.read(stored):
        values = tensor if tensor.dtype == torch.bfloat16 else tensor.float()
        dtype = str(values.dtype).removeprefix("torch.")
        places[name] = {"shape": list(values.shape), "dtype": dtype, "offset": offset}
        parts.append(values.contiguous().flatten().view(torch.uint8))
        offset += math.prod(values.shape) * values.dtype.itemsize
    return places, base64_of(torch.cat(parts))


def _tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    """The parts of tokenizer.json and of the chat template that the page's tokenizer needs."""
    library = json.loads(tokenizer.library.to_str())
    steps = (library["pre_tokenizer"] or {}).get("pretokenizers", ())
    patterns = [each["pattern"].get("Regex") for each in steps if each["type"] == "Split"]
    normal = (library["normalizer"] or {}).get("type")
    if library["model"]["type"] != "BPE" or normal not in (None, "NFC") or len(patterns) != 1:
        raise CheckpointError(
            "{folder}: the page reads byte-level BPE that cuts by one pattern, as "
            "the models of this course do; tokenizer.json describes another kind",
            folder=tokenizer.folder,
        )
    ids = tokenizer.library.get_vocab(with_added_tokens=True)
    vocab = [""] * (max(ids.values()) + 1)
    for token, number in ids.items():
        vocab[number] = token
    talk = [{"role": role, "content": REQUEST} for role in ("user", "assistant", "user")]
    pieces = tokenizer.chat_text(talk, thinking=False).split(REQUEST)
    if len(pieces) != len(talk) + 1:
        raise CheckpointError(
            "{folder}: the page needs a chat template that writes each message once; this one "
            "wrote {count} of {all}",
            folder=tokenizer.folder,
            count=len(pieces) - 1,
            all=len(talk),
        )
    first, _, following, _ = pieces
    *_, ends = tokenizer.chat_text(talk[:1], thinking=False).split(REQUEST)
    return {
        "vocab": vocab,
        "merges": library["model"]["merges"],
        "pattern": patterns[0],
        "normal": normal,
        "added": [
            {key: each[key] for key in ("id", "content", "special")}
            for each in library["added_tokens"]
        ],
        "chat": [first, ends, following],
        "stops": sorted(tokenizer.stop_ids),
        "think": _thoughts(tokenizer, talk[:1]),
    }


def _thoughts(tokenizer: Tokenizer, talk: list[dict[str, str]]) -> dict[str, Any] | None:
    """Return the texts that ask a model with Qwen3's marks for a thought, and that end one."""
    marks = [tokenizer.token_id(mark) for mark in (OPEN, CLOSE)]
    if None in marks:
        return None
    *_, asks = tokenizer.chat_text(talk, thinking=True).split(REQUEST)
    return {"marks": marks, "asks": asks, "closing": tokenizer.encode(CLOSING)}
