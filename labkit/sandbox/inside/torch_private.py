"""All that the course takes from torch beyond what torch documents. Tried on torch 2.13.0.

After an update of torch this is the file to look at.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

# Where torch looks an operator up for the tensors of a CPU; the last one is torch.vmap's, which
# takes an operator apart before any other is asked.
CPU_KEYS = ("CPU", "AutogradCPU", "MkldnnCPU", "SparseCPU", "SparseCsrCPU", "NestedTensorCPU",
            "QuantizedCPU", "FuncTorchBatched")  # fmt: skip


def operator_libraries() -> list[tuple[str, Any]]:
    """For each of CPU_KEYS a library, whose .impl(operator, key, function) puts the function
    in the operator's place as long as the library lives.

    torch.library.Library does the same, and imports the compiler for it.
    """
    return [(key, torch._C._dispatch_library("IMPL", "aten", key)) for key in CPU_KEYS]


def set_deterministic(wanted: bool, warn_only: bool) -> None:
    """torch.use_deterministic_algorithms without its import of the compiler, which takes
    longer than a whole check."""
    torch._C._set_deterministic_algorithms(wanted, warn_only=warn_only)


class _AtMost(TorchDispatchMode):
    """Looks at what every operation makes. A view is as large as the memory that it shows."""

    def __init__(self, most: int):
        super().__init__()
        self.most = most

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # to be skipped, torch imports its compiler, which takes over a second

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None):
        made = operator(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (list, tuple)) else [made]:
            if isinstance(tensor, Tensor):
                held = tensor.untyped_storage().nbytes() // tensor.element_size()
                if min(held, tensor.numel()) > self.most:
                    raise MemoryError(
                        f"a tensor of shape {tuple(tensor.shape)} was made: "
                        f"{tensor.numel()} numbers, {self.most} are allowed here"
                    )
        return made


def numbers_at_most(most: int | None) -> AbstractContextManager[object]:
    """Within it, an operation that makes a tensor of more numbers raises MemoryError."""
    return nullcontext() if most is None else _AtMost(most)


def torch_settings() -> tuple[torch.dtype, bool, Any]:
    """What code can set for all of torch: the default dtype, whether gradients are noted, and
    the default device, None if none was set."""
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
