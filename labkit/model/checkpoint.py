"""Loading a model from a folder and saving it to one, in Hugging Face's layout.

The model's classes are handed in (`package`): a learner's or the reference's.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from labkit.course.lang import tr
from labkit.model import values, weights
from labkit.model.hub import resolve
from labkit.model.saving import save
from labkit.model.values import CheckpointError
from labkit.model.weights import EMBEDDING, HEAD, Stored, listed
from labkit.sandbox.inside.torch_private import parameters_without_memory

__all__ = ["CheckpointError", "load", "part", "resolve", "save"]

KINDS = {int: values.WHOLE, float: values.NUMBER, bool: values.FLAG}
HOMES = {
    "Qwen3Config": "config",
    "Qwen3ForCausalLM": "decoder",
    "count_parameters": "decoder",
    "KVCache": "generation",
    "generate": "generation",
    "causal_lm_loss": "training",
    "learning_rate": "training",
    "train_step": "training",
    "grpo_step": "posttraining",
}


def load(
    folder: str | Path,
    package: Any,
    dtype: torch.dtype | None = None,
    device: str | torch.device = "cpu",
) -> nn.Module:
    """The model in a folder, built from the classes of `package`, in evaluation mode.

    package offers Qwen3Config and Qwen3ForCausalLM, itself or in its modules config and
    decoder. dtype None keeps that of the files. On the CPU, in that dtype, the weights stay
    mapped from disk: they take memory once, as they are touched.

    Errors: a folder that is none, another architecture, and any tensor that is missing,
            extra, misshaped, damaged or of another kind: CheckpointError names it. What the
            package itself raises (an unfinished exercise) passes.
    """
    folder = existing(Path(folder))
    config = read_config(folder, part(package, "Qwen3Config"))
    stored = weights.stored_tensors(folder)
    check_size(folder, config, stored)
    with parameters_without_memory():
        model = part(package, "Qwen3ForCausalLM")(config)
    check_fit(folder, model, stored, config.tie_word_embeddings)
    dtype = dtype or weights.common_dtype(stored)
    tensors = weights.read(stored)
    state = {name: tensor.to(device=device, dtype=dtype) for name, tensor in tensors}
    if config.tie_word_embeddings:
        state[HEAD] = _tied_head(folder, state)
    model.load_state_dict(state, strict=True, assign=True)
    return model.to(device).eval()


def part(package: Any, name: str) -> Any:
    """What a package calls `name`, itself or in the module where the course puts it."""
    found = getattr(package, name, None)
    if found is None and isinstance(package, ModuleType):
        try:
            module = importlib.import_module(f"{package.__name__}.{HOMES[name]}")
        except ModuleNotFoundError as error:
            raise CheckpointError(
                "{package} offers no {name}: {error}",
                package=package.__name__,
                name=name,
                error=error,
            ) from error
        found = getattr(module, name, None)
    if found is None:
        raise CheckpointError(
            "{package} offers no {name}",
            package=getattr(package, "__name__", package),
            name=name,
        )
    return found


def check_fit(folder: Path, model: nn.Module, stored: Mapping[str, Stored], tied: bool) -> None:
    """Raise CheckpointError unless every tensor has its place, and every place its tensor."""
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if tied and HEAD not in stored:
        expected.pop(HEAD, None)
    buffers = [name for name, _ in model.named_buffers()]
    complaints = {
        tr("missing"): [
            tr("{name} (a buffer of your model: register it with persistent=False)", name=name)
            if name in buffers
            else name
            for name in expected.keys() - stored.keys()
        ],
        tr("without a place in the model"): stored.keys() - expected.keys(),
        tr("of another shape"): [
            tr(
                "{name} is {found}, expected {shape}",
                name=name,
                found=stored[name].shape,
                shape=shape,
            )
            for name, shape in expected.items()
            if name in stored and stored[name].shape != shape
        ],
    }
    lines = [f"  {what}: {listed(names)}" for what, names in complaints.items() if names]
    if lines:
        head = tr("{folder} does not fit the model built from its config.json", folder=folder)
        text = "\n".join([head, *lines])
        raise CheckpointError(text)


def existing(folder: Path) -> Path:
    """The folder, if it has a config.json; else CheckpointError."""
    if not (folder / "config.json").is_file():
        raise CheckpointError(
            "there is no {path}: a checkpoint is a folder with config.json and weights",
            path=folder / "config.json",
        )
    return folder


def read_config(folder: Path, config_class: Any) -> Any:
    """The config of a folder. Errors: none there, or one that cannot be: CheckpointError"""
    path = existing(folder) / "config.json"
    fields = dataclasses.fields(config_class)
    kinds = {
        "model_type": values.TEXT,
        "architectures": values.TEXTS,
        "rope_parameters": values.OBJECT,
        "mlp_only_layers": values.WHOLES,
        **{field.name: KINDS[field.type] for field in fields if field.type in KINDS},
    }
    found = values.read_object(path, kinds)
    try:
        return config_class.from_dict(found)
    except (ValueError, RecursionError) as error:  # a message may quote what is nested deeply
        raise CheckpointError("{path}: {error}", path=path, error=error) from error


def check_size(folder: Path, config: Any, stored: Mapping[str, Stored]) -> None:
    """Raise CheckpointError if the config asks for more layers, experts or numbers than the
    files hold; a model is built only afterwards, as it may fill any memory."""
    hidden, experts = config.hidden_size, config.num_experts
    tensors, numbers = len(stored), sum(math.prod(each.shape) for each in stored.values())
    dense = set(config.mlp_only_layers)
    sparse = sum(
        layer not in dense and (layer + 1) % config.decoder_sparse_step == 0
        for layer in range(min(config.num_hidden_layers, tensors))
    )
    least_tensors = (
        ("num_hidden_layers", config.num_hidden_layers),
        ("num_experts", experts * sparse),
    )
    least_numbers = (
        ("vocab_size", config.vocab_size * hidden),
        ("head_dim", config.num_attention_heads * config.head_dim * hidden),
        ("intermediate_size", config.intermediate_size * hidden),
        ("moe_intermediate_size", experts * config.moe_intermediate_size * hidden),
    )
    for needs, stored_count, what in (
        (least_tensors, tensors, tr("tensors")),
        (least_numbers, numbers, tr("numbers")),
    ):
        name, most = max(needs, key=itemgetter(1))
        if most > stored_count:
            raise CheckpointError(
                "{folder} holds {count:,} {what}; by {name} in its config.json the model has "
                "{most:,} or more",
                folder=folder,
                count=stored_count,
                what=what,
                name=name,
                most=most,
            )


def _tied_head(folder: Path, state: Mapping[str, Tensor]) -> Tensor:
    """The embedding; a head stored beside it (Qwen3-0.6B has one) must say the same."""
    if HEAD in state and not torch.equal(state[HEAD], state[EMBEDDING]):
        raise CheckpointError(
            "{folder}: config.json says tie_word_embeddings, but {head} differs "
            "from {embedding}; one of the three is wrong",
            folder=folder,
            head=HEAD,
            embedding=EMBEDDING,
        )
    return state[EMBEDDING]
