"""Loading a model from a folder in Hugging Face's layout.

The model's classes are an argument (`package`), a learner's or the reference's, so that one
loader serves both. Tensors are checked against the model first, since `load_state_dict` alone
would print hundreds of names.
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
from labkit.model.weights import EMBEDDING, HEAD, TensorHeader, list_names
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
    """Load the model in a folder, in evaluation mode.

    package    has Qwen3Config and Qwen3ForCausalLM, itself or in its modules config and decoder
    dtype      None keeps the dtype of the files. On the CPU the weights then stay mapped from
               disk: they take memory once, when they are touched.

    Errors: CheckpointError if there is no checkpoint, its architecture is a different one, or a
            tensor is missing, extra, misshaped, damaged or quantized. Errors of the package,
            such as an unfinished exercise, are passed on.
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
    """Return the object `name` of a package, or of the module where the course has it.

    Errors: CheckpointError if there is none
    """
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


def check_fit(
    folder: Path, model: nn.Module, stored: Mapping[str, TensorHeader], tied: bool
) -> None:
    """Check that files and model have the same tensors. Errors: CheckpointError"""
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
    lines = [f"  {what}: {list_names(names)}" for what, names in complaints.items() if names]
    if lines:
        head = tr("{folder} does not fit the model built from its config.json", folder=folder)
        text = "\n".join([head, *lines])
        raise CheckpointError(text)


def existing(folder: Path) -> Path:
    """Return the folder if it has a config.json. Errors: CheckpointError"""
    if not (folder / "config.json").is_file():
        raise CheckpointError(
            "there is no {path}: a checkpoint is a folder with config.json and weights",
            path=folder / "config.json",
        )
    return folder


def read_config(folder: Path, config_class: Any) -> Any:
    """Read the config of a folder. Errors: CheckpointError if it is missing or impossible"""
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
    except (ValueError, RecursionError) as error:  # quoting a deeply nested value
        raise CheckpointError("{path}: {error}", path=path, error=error) from error


def check_size(folder: Path, config: Any, stored: Mapping[str, TensorHeader]) -> None:
    """Check that the config asks for no more layers, experts or numbers than the files have.

    This comes before the model is built, which could fill the memory. Errors: CheckpointError
    """
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
    """Return the embedding; a stored head (Qwen3-0.6B has one) must be equal to it."""
    if HEAD in state and not torch.equal(state[HEAD], state[EMBEDDING]):
        raise CheckpointError(
            "{folder}: config.json says tie_word_embeddings, but {head} differs "
            "from {embedding}; one of the three is wrong",
            folder=folder,
            head=HEAD,
            embedding=EMBEDDING,
        )
    return state[EMBEDDING]
