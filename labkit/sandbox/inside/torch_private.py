"""All undocumented parts of torch that the course uses.

They are in one file, so that an update of torch means checking one file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode


def copy_with_strides(tensor: Tensor, strides: Sequence[int]) -> Tensor:
    """Return a copy with these strides. Gaps between its numbers hold NaN (whole numbers: 0),
    so that each read of them gets the same."""
    shape = tensor.shape
    places = 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    if places <= tensor.numel() or not tensor.numel():  # no gaps
        return torch.empty_strided(shape, strides, dtype=tensor.dtype).copy_(tensor)
    filler = math.nan if tensor.is_floating_point() else 0
    memory = torch.full((places,), filler, dtype=tensor.dtype)
    return memory.as_strided(shape, strides).copy_(tensor)


@contextmanager
def strict_memory() -> Iterator[None]:
    """Within it, uninitialized memory reads as NaN, so that torch.empty cannot pass by luck.

    torch.use_deterministic_algorithms would import the compiler, which takes longer than a
    whole check.
    """
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch._C._set_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch._C._set_deterministic_algorithms(before, warn_only=warn_only)


class Bounded(TorchDispatchMode):
    """Within it, torch runs at most `operations` operations (else RuntimeError), none of which
    makes a tensor of more than `numbers` numbers (else MemoryError). A view of one of the
    inputs is nothing new."""

    def __init__(self, numbers: float, operations: float):
        super().__init__()
        self.numbers, self.operations, self.count = numbers, operations, 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # with True, torch would import its compiler, which takes over a second

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None):
        self.count += 1
        if self.count > self.operations:
            most = self.operations
            raise RuntimeError(f"torch ran more than the {most} operations allowed here")
        made = operator(*args, **(kwargs or {}))
        given = {t.untyped_storage().data_ptr() for t in args if isinstance(t, Tensor)}
        for tensor in made if isinstance(made, (list, tuple)) else [made]:
            if not isinstance(tensor, Tensor) or tensor.numel() <= self.numbers:
                continue
            if tensor.untyped_storage().data_ptr() not in given:
                raise MemoryError(
                    f"a tensor of shape {tuple(tensor.shape)} was made: "
                    f"{tensor.numel()} numbers, {self.numbers} are allowed here"
                )
        return made


def bounded(numbers: int | None, operations: int | None) -> AbstractContextManager[object]:
    """Return a Bounded for the limits that are not None; an empty context if both are None."""
    if numbers is None and operations is None:
        return nullcontext()
    most = [math.inf if bound is None else bound for bound in (numbers, operations)]
    return Bounded(*most)


def torch_settings() -> tuple[torch.dtype, bool, Any]:
    """Return the settings that code can change for all of torch: the default dtype, whether
    gradients are recorded, and the default device, None if none was set."""
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    device = None if context is None else context.device
    return torch.get_default_dtype(), torch.is_grad_enabled(), device


def set_torch(dtype: torch.dtype, grad: bool, device: Any) -> None:
    torch.set_default_dtype(dtype)
    torch.set_grad_enabled(grad)
    if device != torch_settings()[2]:
        torch.set_default_device(device)


@contextmanager
def parameters_without_memory() -> Iterator[None]:
    """Within it, new parameters have a shape and no numbers, so none are drawn or stored.

    Only parameters: unlike under torch.device("meta"), tables that a model computes for
    itself stay real. And to draw no numbers, torch imports its compiler, which takes as long
    as torch itself: here nothing happens instead.
    """
    register, normal = nn.Module.register_parameter, Tensor.normal_

    def register_empty(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and not parameter.is_meta:
            empty = torch.empty_like(parameter, device="meta")
            parameter = nn.Parameter(empty, requires_grad=parameter.requires_grad)
        register(module, name, parameter)

    def normal_if_any(tensor: Tensor, *args: Any, **settings: Any) -> Tensor:
        return tensor if tensor.is_meta else normal(tensor, *args, **settings)

    nn.Module.register_parameter, Tensor.normal_ = register_empty, normal_if_any
    try:
        yield
    finally:
        nn.Module.register_parameter, Tensor.normal_ = register, normal
