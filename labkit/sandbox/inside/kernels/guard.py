"""A strict mode for Triton's interpreter: faults that a GPU ignores raise errors or show in the
result.

- A load or store outside of the tensors that a kernel was given raises OutsideMemory; the
  interpreter would read any memory of the process, and write it.
- The result of a masked load without `other` is undefined: here it is NaN.
- bfloat16 rounds to nearest, as a GPU does. tl.dot takes it; other arithmetic with it raises,
  as the interpreter would take its bits for whole numbers.
- A kernel runs as it is. The interpreter would rewrite it from a file of its name, which may be
  another version of it; code that would need the rewriting, `and` or a chained comparison,
  raises instead.

All undocumented parts of Triton that the course uses are here and in profile.py.
Tried on triton 3.9.0.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import torch

from labkit.sandbox.inside.kernels import profile

# Triton is imported by the learner's module, after this one: install() fetches it
tl: Any = None
interpreter: Any = None

NOT_INTERPRETED = (
    "Triton was imported before TRITON_INTERPRET=1 was set: restart the kernel, and import "
    "tinyllm.kernels first"
)
SEVERAL = (
    "a block of numbers has no truth value: combine masks with & and |, one comparison each"
)
BFLOAT16 = (
    "arithmetic in bfloat16: convert to float32 first, x.to(tl.float32); only tl.dot takes it"
)


def install() -> None:
    """Change the interpreter of this process, once."""
    global tl, interpreter
    if interpreter is not None:
        return
    import triton
    import triton.language
    from triton.runtime import interpreter

    tl = triton.language
    triton.knobs.compilation.front_end_debugging = True  # errors as they are raised
    for owner, name, make in changes():
        original = getattr(owner, name)
        setattr(owner, name, wraps(original)(make(original)))


UNSTARTED = "a kernel starts with its grid: {name}[(programs,)](arguments)"
GRID = "the grid is a tuple, also of one number: [(programs,)]"


def guarded_grid(original: Callable) -> Callable:
    def run(executor: Any, *args: Any, **kwargs: Any) -> None:
        if not isinstance(tl.sum, interpreter.InterpretedFunction):
            raise RuntimeError(NOT_INTERPRETED)
        if isinstance(executor.grid, int):
            raise TypeError(GRID)
        named = dict(zip(executor.arg_names, args, strict=False)) | kwargs
        tensors = {name: x for name, x in named.items() if isinstance(x, torch.Tensor)}
        with (
            profile.launched(executor.fn.__name__, tensors),
            np.errstate(all="ignore"),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", RuntimeWarning)  # about empty maxima
            original(executor, *args, **kwargs)

    return run


def guarded_load(original: Callable) -> Callable:
    def load(builder: Any, ptrs: Any, mask: Any, other: Any, *rest: Any) -> Any:
        dtype = ptrs.get_element_ty()
        profile.access(builder.grid_idx, ptrs.data, mask.data, dtype, "loads")
        if other is None and not mask.data.all():
            other = undefined(ptrs.data.shape, dtype)
        return original(builder, ptrs, mask, other, *rest)

    return load


def guarded_store(original: Callable) -> Callable:
    def store(builder: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        dtype = ptrs.get_element_ty()
        profile.access(builder.grid_idx, ptrs.data, mask.data, dtype, "stores")
        return original(builder, ptrs, value, mask, *rest)

    return store


def guarded_atomic(original: Callable) -> Callable:
    def update(
        builder: Any, operation: Any, ptr: Any, value: Any, mask: Any, *rest: Any
    ) -> Any:
        dtype = ptr.get_element_ty()
        profile.access(builder.grid_idx, ptr.data, mask.data, dtype, "updates")
        return original(builder, operation, ptr, value, mask, *rest)

    return update


def far_number(original: Callable) -> Callable:
    def number(builder: Any, axis: int) -> Any:
        found = original(builder, axis)
        found.data = found.data + (0 if axis else profile.first_program)
        return found

    return number


def far_pointer(original: Callable) -> Callable:
    def convert(argument: Any) -> Any:
        made = original(argument)
        if isinstance(argument, torch.Tensor) and argument.dim():
            row = argument.stride(0) * argument.element_size()
            made.handle.data = made.handle.data - np.uint64(profile.first_program * row)
        return made

    return convert


def undefined(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return NaN, or an odd whole number if the dtype has none."""
    if dtype == tl.bfloat16:
        return interpreter.TensorHandle(np.full(shape, 0x7FC0, np.uint16), dtype)
    kind = interpreter._get_np_dtype(dtype)
    if kind.kind == "f":
        return interpreter.TensorHandle(np.full(shape, np.nan, kind), dtype)
    return interpreter.TensorHandle(np.full(shape, 0x5B, np.uint8).astype(kind), dtype)


def rounded_cast(original: Callable) -> Callable:
    """float32 to bfloat16 to nearest, ties to even: the interpreter cuts off."""

    def cast(builder: Any, source: Any, to: Any) -> Any:
        if source.dtype.scalar != tl.float32 or to.scalar != tl.bfloat16:
            return original(builder, source, to)
        bits = np.ascontiguousarray(source.data, np.float32).view(np.uint32)
        rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
        data = np.where(is_nan, 0x7FC0, rounded).astype(np.uint16)
        return interpreter.TensorHandle(data.reshape(source.data.shape), tl.bfloat16)

    return cast


def dot_of_floats(original: Callable) -> Callable:
    def dot(builder: Any, a: Any, b: Any, *rest: Any) -> Any:
        return original(builder, as_float(a), as_float(b), *rest)

    return dot


def as_float(x: Any) -> Any:
    if x.dtype.scalar != tl.bfloat16:
        return x
    bits = np.ascontiguousarray(x.data).astype(np.uint32) << 16
    return interpreter.TensorHandle(bits.view(np.float32), tl.float32)


def no_bfloat16(original: Callable) -> Callable:
    comparing = {np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal}

    def compute(builder: Any, a: Any, b: Any, operation: Any) -> Any:
        if tl.bfloat16 in (a.dtype.scalar, b.dtype.scalar):
            if operation in comparing:
                return original(builder, as_float(a), as_float(b), operation)
            raise TypeError(BFLOAT16)
        return original(builder, a, b, operation)

    return compute


def as_it_is(original: Callable) -> Callable:
    return lambda rewriter: rewriter.fn


def strict_bool(original: Callable) -> Callable:
    """Refuse to branch on several numbers at once."""

    def truth(tensor: Any) -> bool:
        if tensor.handle.data.size == 1:
            return bool(tensor.handle.data.item())
        if str(sys._getframe(1).f_globals.get("__name__")).startswith("triton."):
            return True  # the argument is only tested for existence
        raise ValueError(SEVERAL)

    def patch(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__bool__", truth)

    return patch


def helper_call(original: Callable) -> Callable:
    """A function called by a kernel: the language of its module is patched once per launch,
    which takes longer than the call; errors stay as they are."""

    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        if not profile.is_running():
            raise TypeError(UNSTARTED.format(name=function.__name__))
        if profile.is_first_use(function.fn.__module__):
            interpreter._patch_lang(function.fn)
        return function.rewrite()(*args, **kwargs)

    return call


def changes() -> tuple[tuple[Any, str, Callable], ...]:
    """Return (owner, attribute, function from the old one to the new one)."""
    builder, grid = interpreter.InterpreterBuilder, interpreter.GridExecutor
    return (
        (grid, "__call__", guarded_grid),
        (builder, "create_masked_load", guarded_load),
        (builder, "create_masked_store", guarded_store),
        (builder, "create_atomic_rmw", guarded_atomic),
        (builder, "create_get_program_id", far_number),
        (interpreter, "_implicit_cvt", far_pointer),
        (builder, "cast_impl", rounded_cast),
        (builder, "create_dot", dot_of_floats),
        (builder, "binary_op", no_bfloat16),
        (interpreter.FunctionRewriter, "rewrite_ast", as_it_is),
        (interpreter, "_patch_lang_tensor", strict_bool),
        (interpreter.InterpretedFunction, "__call__", helper_call),
    )
