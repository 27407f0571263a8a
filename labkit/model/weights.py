"""The tensors of a checkpoint folder: their names and files, and reading them.

Hugging Face's layout: one model.safetensors, or several shards and an index of their tensors.
Files are memory-mapped, so that opening a folder costs no memory.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from labkit.course.lang import said, tr
from labkit.model.values import CheckpointError, Kind, read_object

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"  # one tensor if tied
DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
MOST_TENSORS = 2**17  # Qwen3-235B-A22B has 37,000
SHARD = re.compile(r"[\w.-]{1,200}\.safetensors")
PLACES = Kind(
    said("an object that puts each tensor into a file NAME.safetensors"),
    lambda value: (
        isinstance(value, dict)
        and all(isinstance(name, str) and SHARD.fullmatch(name) for name in value.values())
    ),
)


@dataclass(frozen=True)
class TensorHeader:
    """The entry of a tensor in the header of a file; its numbers are not read yet."""

    path: Path
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def stored_tensors(folder: Path) -> dict[str, TensorHeader]:
    """Return the headers of all tensors in a folder by name.

    Errors: CheckpointError if there are no weights, a shard is missing or damaged, index and
            shards disagree, or a dtype is not float32, bfloat16 or float16
    """
    if (folder / SINGLE).is_file():
        return _header(folder / SINGLE)
    if (folder / INDEX).is_file():
        return _sharded(folder)
    pickled = sorted(path.name for path in folder.glob("*.bin"))
    hint = (
        tr(" ({file} is a pickle: only safetensors are read)", file=pickled[0])
        if pickled
        else ""
    )
    raise CheckpointError(
        "{folder} holds no weights: no {single} and no {index}{hint}",
        folder=folder,
        single=SINGLE,
        index=INDEX,
        hint=hint,
    )


def common_dtype(stored: Mapping[str, TensorHeader]) -> torch.dtype:
    """Return the smallest dtype that represents all tensors exactly."""
    return reduce(torch.promote_types, {tensor.dtype for tensor in stored.values()})


def read(stored: Mapping[str, TensorHeader]) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, tensor), mapped from disk: tensors take memory when they are touched."""
    by_file = defaultdict(list)
    for name, tensor in stored.items():
        by_file[tensor.path].append(name)
    for path, names in by_file.items():
        with safe_open(path, framework="pt") as file:
            for name in names:
                yield name, file.get_tensor(name)


def list_names(names: Iterable[str], at_most: int = 3) -> str:
    """List names in a message: the first few, and the number of the others."""
    names = sorted(names)
    more = len(names) - at_most
    shown = tr(", ").join(names[:at_most])
    return tr("{names} and {more} more", names=shown, more=more) if more > 0 else shown


def _header(path: Path) -> dict[str, TensorHeader]:
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            if len(names) > MOST_TENSORS:
                raise CheckpointError(
                    "{path} holds {count:,} tensors; expected at most {most:,}",
                    path=path,
                    count=len(names),
                    most=MOST_TENSORS,
                )
            slices = {name: file.get_slice(name) for name in names}
            found = {
                name: TensorHeader(
                    path, tuple(part.get_shape()), _dtype(path, name, part.get_dtype())
                )
                for name, part in slices.items()
            }
    except (SafetensorError, OSError) as error:
        raise CheckpointError(_damage(path, error)) from error
    if not found:
        raise CheckpointError("{path} holds no tensor at all", path=path)
    return found


def _dtype(path: Path, name: str, code: str) -> torch.dtype:
    if code not in DTYPES:
        raise CheckpointError(
            "{name} in {path} is stored as {code}; expected one of {names} "
            "(quantised weights are not read)",
            name=name,
            path=path,
            code=code,
            names=tr(", ").join(DTYPES),
        )
    return DTYPES[code]


def _damage(path: Path, error: Exception) -> str:
    with path.open("rb") as file:
        pointer = file.read(24).startswith(b"version https://git-lfs")
    if pointer:
        return tr(
            "{path} is only a git-lfs pointer; `git lfs pull` fetches the weights", path=path
        )
    return tr(
        "{path} is damaged or truncated ({size} bytes: {error}); copy or download it again",
        path=path,
        size=path.stat().st_size,
        error=error,
    )


def _sharded(folder: Path) -> dict[str, TensorHeader]:
    """Return the headers of the tensors in all shards of the index."""
    path = folder / INDEX
    places = read_object(path, {"weight_map": PLACES}).get("weight_map")
    if not places:
        raise CheckpointError("{path} has no weight_map, or an empty one", path=path)
    found: dict[str, TensorHeader] = {}
    for shard in sorted(set(places.values())):
        if not (folder / shard).is_file():
            raise CheckpointError(
                "{path} is missing; {index} lists it", path=folder / shard, index=INDEX
            )
        found |= _header(folder / shard)
    if lost := places.keys() - found.keys():
        raise CheckpointError(
            "no shard holds {names}, which {path} lists", names=list_names(lost), path=path
        )
    return found
