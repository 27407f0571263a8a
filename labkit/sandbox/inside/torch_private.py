"""All that the course takes from torch beyond what torch documents. Tried on torch 2.13.0.

After an update of torch this is the file to look at.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from labkit.sandbox.inside.importer import PACKAGE

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
        return False  # to be skipped, torch imports its compiler, which takes over a second

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
    """A Bounded for what is not None; nothing where both are."""
    if numbers is None and operations is None:
        return nullcontext()
    most = [math.inf if bound is None else bound for bound in (numbers, operations)]
    return Bounded(*most)


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


# Which functions of torch ran, by any name. A ban by name does not see an alias, a
# table of decompositions, a function that another package keeps. Python itself tells what runs:
# a profile function hears of each function, with its code or its built-in name. A mode of the
# dispatcher would not do: it does not see what torch takes apart in Python (decompositions) or
# before it dispatches (kl_div), makes a call six times slower, and imports for seconds.

HOME = os.path.dirname(torch.__file__) + os.sep
set_profile, get_profile = sys.setprofile, sys.getprofile  # before learner code replaces them
# Modules of torch in which usual operations are written in Python
USUAL = re.compile(
    r"torch\.(__init__|__future__|_tensor|tensor|functional|random|types|overrides|special|storage|amp|"
    r"_jit_internal|_VF|_utils|_linalg_utils|_tensor_str|return_types|backends|nn|utils|autograd|"
    r"optim\.(optimizer|sgd))\b"
)
# Where a lab bans one of a family, each of it is odd there
FAMILIES = (re.compile("norm"), re.compile("loss|entropy|kl_div"),
            re.compile("attention"), re.compile("adam"))  # fmt: skip
NORMS = {"norm", "linalg_norm", "linalg_vector_norm", "linalg_matrix_norm"}  # the plain ones


def name_of(code: CodeType) -> str:
    """The name of a function of torch, "torch.nn.functional.silu"; "" for other code."""
    if not code.co_filename.startswith(HOME):
        return ""
    module = code.co_filename.removeprefix(HOME).removesuffix(".py").replace(os.sep, ".")
    return f"torch.{module}.{code.co_name}"


class Watch:
    """A context in which is noted what a learner's code calls of torch.

    refused    the first function that the lab does not allow
    odd        the first that a person should look at
    """

    def __init__(self, not_allowed: Sequence[str]):
        self.not_allowed = [name for name in not_allowed if ".nn.modules." not in name]
        self.families = [
            family for family in FAMILIES
            if any(family.search(name.rpartition(".")[2]) for name in not_allowed)
        ]  # fmt: skip
        self.known: dict[Hashable, str] = {}  # the name of what is odd, "" of all else
        self.refused = self.odd = ""

    def __enter__(self) -> Watch:
        set_profile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if get_profile() != self._note:
            self.odd = "sys.setprofile"
        set_profile(None)

    def _note(self, frame: FrameType, event: str, function: Any) -> None:
        if event == "call":
            key = frame.f_code
        elif event == "c_call":
            key = function.__name__
        else:
            return
        name = self.known.get(key)
        if name is None:
            name = self.known[key] = self._odd_name(key)
        if name and by_learner(frame, event == "c_call"):
            self.odd = self.odd or name
            if is_among(name, self.not_allowed):
                self.refused = self.refused or name

    def _odd_name(self, key: CodeType | str) -> str:
        """
        key    the code of a function of Python, the name of a built-in one
        """
        built_in = isinstance(key, str)
        name = f"torch.{key}" if built_in else name_of(key)
        last = name.rpartition(".")[2]
        if last.endswith("__"):
            return ""
        if built_in:
            odd = last.startswith("_") and hasattr(torch, last)
        else:
            odd = bool(name) and not USUAL.match(name)
        in_family = any(family.search(last) for family in self.families)
        odd = odd or (in_family and last not in NORMS)
        return name if name and (odd or is_among(name, self.not_allowed)) else ""


def is_among(name: str, names: Iterable[str]) -> bool:
    """Whether a dotted name is one of these, or inside one of them."""
    return f"{name}.".startswith(tuple(f"{outer}." for outer in names))


def by_learner(frame: FrameType | None, directly: bool) -> bool:
    """Whether the package under test is nearer in the stack than the course's own code.

    directly    nothing of torch may lie between
    """
    while frame:
        name = frame.f_globals.get("__name__", "")
        if directly and name.startswith("torch."):
            return False
        if name.startswith((PACKAGE, "labkit.")):
            return name.startswith(PACKAGE)
        frame = frame.f_back
    return False
