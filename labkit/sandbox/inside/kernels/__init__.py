"""Triton kernels under the interpreter: strict about memory, and counted."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from labkit.sandbox.inside.kernels import guard
from labkit.sandbox.inside.kernels.profile import profiled

os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything here imports Triton


def make_strict() -> None:
    """If Triton is imported, make its interpreter strict, see guard.py; once is enough."""
    if "triton" in sys.modules:
        guard.install()


@contextmanager
def counted(names: Sequence[str], inputs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """While open, kernels are counted; then the dict has what they did with these inputs."""
    found: dict[str, Any] = {}
    if not names:
        yield found
        return
    with profiled() as seen:
        yield found
    found |= seen.report({name: inputs[name] for name in names})
