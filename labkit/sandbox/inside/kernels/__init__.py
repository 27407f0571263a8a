"""Triton kernels under the interpreter: strict about memory, and counted."""

from __future__ import annotations

import sys


def make_strict() -> None:
    """If Triton is imported, make its interpreter strict, see guard.py; once is enough."""
    if "triton" in sys.modules:
        from labkit.sandbox.inside.kernels import guard

        guard.install()
