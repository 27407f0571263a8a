"""Triton's interpreter made strict: what a GPU lets pass in silence is an error or shows here.

- A load or store outside of the tensors that a kernel was given raises OutsideMemory; the
  interpreter would read any memory of the process, and write it.
- What a masked load without `other` returns is undefined: here it is NaN.
- bfloat16 rounds to nearest, as a GPU does. tl.dot takes it; other arithmetic with it raises,
  as the interpreter would take its bits for whole numbers.
- A kernel runs the source of its own package, not that of a file with the same name.

All that the course takes from Triton beyond what Triton documents is here and in profile.py.
Tried on triton 3.9.0.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import (
    FunctionRewriter,
    GridExecutor,
    InterpretedFunction,
    InterpreterBuilder,
    TensorHandle,
)

from labkit.sandbox.inside.importer import Sources
from labkit.sandbox.inside.kernels import profile

NOT_INTERPRETED = (
    "Triton was imported before TRITON_INTERPRET=1 was set: restart the kernel, and import "
    "tinyllm.kernels first"
)
BFLOAT16 = (
    "arithmetic in bfloat16: convert to float32 first, x.to(tl.float32); only tl.dot takes it"
)


def install() -> None:
    """Change the interpreter of this process, once."""
    if getattr(InterpreterBuilder, "is_strict", False):
        return
    InterpreterBuilder.is_strict = True
    triton.knobs.compilation.front_end_debugging = True  # errors as they are raised
    for owner, name, make in CHANGES:
        original = getattr(owner, name)
        setattr(owner, name, wraps(original)(make(original)))


def guarded_grid(original: Callable) -> Callable:
    def run(executor: GridExecutor, *args: Any, **kwargs: Any) -> None:
        if not isinstance(tl.sum, InterpretedFunction):
            raise RuntimeError(NOT_INTERPRETED)
        named = dict(zip(executor.arg_names, args, strict=False)) | kwargs
        tensors = {name: x for name, x in named.items() if isinstance(x, torch.Tensor)}
        with profile.launched(executor.fn.__name__, tensors), np.errstate(all="ignore"):
            original(executor, *args, **kwargs)

    return run


def guarded_load(original: Callable) -> Callable:
    def load(builder: Any, ptrs: Any, mask: Any, other: Any, *rest: Any) -> TensorHandle:
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


def undefined(shape: tuple[int, ...], dtype: Any) -> TensorHandle:
    """NaN, or an odd whole number where the dtype has none."""
    if dtype == tl.bfloat16:
        return TensorHandle(np.full(shape, 0x7FC0, np.uint16), dtype)
    kind = interpreter._get_np_dtype(dtype)
    if kind.kind == "f":
        return TensorHandle(np.full(shape, np.nan, kind), dtype)
    return TensorHandle(np.full(shape, 0x5B, np.uint8).astype(kind), dtype)


def rounded_cast(original: Callable) -> Callable:
    """float32 to bfloat16 to nearest, ties to even: the interpreter cuts off."""

    def cast(builder: Any, source: TensorHandle, to: Any) -> TensorHandle:
        if source.dtype.scalar != tl.float32 or to.scalar != tl.bfloat16:
            return original(builder, source, to)
        bits = np.ascontiguousarray(source.data, np.float32).view(np.uint32)
        rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
        data = np.where(is_nan, 0x7FC0, rounded).astype(np.uint16)
        return TensorHandle(data.reshape(source.data.shape), tl.bfloat16)

    return cast


def dot_of_floats(original: Callable) -> Callable:
    def dot(builder: Any, a: TensorHandle, b: TensorHandle, *rest: Any) -> TensorHandle:
        return original(builder, as_float(a), as_float(b), *rest)

    return dot


def as_float(x: TensorHandle) -> TensorHandle:
    if x.dtype.scalar != tl.bfloat16:
        return x
    bits = np.ascontiguousarray(x.data).astype(np.uint32) << 16
    return TensorHandle(bits.view(np.float32), tl.float32)


def no_bfloat16(original: Callable) -> Callable:
    comparing = {np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal}

    def compute(builder: Any, a: TensorHandle, b: TensorHandle, operation: Any) -> TensorHandle:
        if tl.bfloat16 in (a.dtype.scalar, b.dtype.scalar):
            if operation in comparing:
                return original(builder, as_float(a), as_float(b), operation)
            raise TypeError(BFLOAT16)
        return original(builder, a, b, operation)

    return compute


def own_source(original: Callable) -> Callable:
    """Rewrite the function from the text of the package that it belongs to."""

    def rewrite(rewriter: FunctionRewriter) -> Callable:
        function = rewriter.fn
        loader = function.__globals__.get("__loader__")
        if not isinstance(loader, Sources):
            return original(rewriter)
        lines = loader.get_source(function.__module__).splitlines(keepends=True)
        first = function.__code__.co_firstlineno
        if not "".join(lines[first - 1 :]).strip():
            return function  # code without text runs as it is
        block = inspect.getblock(lines[first - 1 :])
        begin = next(n for n, line in enumerate(block) if line.lstrip().startswith("def "))
        rewriter.filename = function.__code__.co_filename
        rewriter.def_file_lineno, rewriter.def_lineno = first + begin, begin + 1
        tree = rewriter._transform_ast(rewriter._prepare_source(block))
        return rewriter._compile_and_exec(tree)

    return rewrite


def helper_call(original: Callable) -> Callable:
    """A function called by a kernel: the language of its module is patched once per launch,
    which takes longer than the call; errors stay as they are."""

    def call(function: InterpretedFunction, *args: Any, **kwargs: Any) -> Any:
        if not profile.is_running():
            return original(function, *args, **kwargs)
        if profile.is_first_use(function.fn.__module__):
            interpreter._patch_lang(function.fn)
        return function.rewrite()(*args, **kwargs)

    return call


CHANGES = (
    (GridExecutor, "__call__", guarded_grid),
    (InterpreterBuilder, "create_masked_load", guarded_load),
    (InterpreterBuilder, "create_masked_store", guarded_store),
    (InterpreterBuilder, "create_atomic_rmw", guarded_atomic),
    (InterpreterBuilder, "cast_impl", rounded_cast),
    (InterpreterBuilder, "create_dot", dot_of_floats),
    (InterpreterBuilder, "binary_op", no_bfloat16),
    (FunctionRewriter, "rewrite_ast", own_source),
    (InterpretedFunction, "__call__", helper_call),
)
