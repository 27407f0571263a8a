"""Triton where it is installed, and a helper of the kernels of lab 16.

Without a GPU, Triton's interpreter runs kernels with numpy. TRITON_INTERPRET=0 compiles them.
"""

import os
from types import SimpleNamespace

from torch import Tensor

os.environ.setdefault("TRITON_INTERPRET", "1")  # Triton reads it when it is imported
try:
    import triton
    import triton.language as tl
except ImportError:  # macOS and Windows have no Triton: kernels are defined, and cannot start

    class NeedsTriton(ModuleNotFoundError):
        """A kernel was started where Triton is not installed."""

        def _render_traceback_(self):
            return [str(self)]  # what a notebook shows: the message alone

    class Unavailable:
        """Stands for a kernel where Triton is not installed."""

        def __init__(self, kernel):
            self.__doc__, self.__name__ = kernel.__doc__, kernel.__name__

        def __getitem__(self, grid):
            raise NeedsTriton(
                "Not run: a kernel needs Triton, which is for Linux: pip install '.[kernels]'. "
                "Read on, and predict; the other labs do without it."
            )

    triton = SimpleNamespace(jit=Unavailable, cdiv=lambda a, b: -(-a // b))
    triton.next_power_of_2 = lambda n: 1 << (n - 1).bit_length()
    tl = SimpleNamespace(constexpr=None)


def as_rows(x: Tensor) -> Tensor:
    """All leading axes as one: (..., E) -> (N, E), a view if the numbers of a row are adjacent.

    In the result they always are; row n begins at n * stride(0).
    """
    rows = x.reshape(-1, x.size(-1))
    return rows if rows.stride(-1) == 1 else rows.contiguous()
