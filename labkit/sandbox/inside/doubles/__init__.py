"""Stand-ins that a lab's checks pass to the learner's code instead of unfinished parts: one
file for each lab that needs some, under the lab's name. They need no part of the package under
test, nor those parts of torch that take a second to import its compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


class Double:
    """An object that reports more about a call than its result."""

    shared = False  # one object in all steps of a call, if it is made with the same arguments

    def report(self) -> dict[str, Any]:
        """Return the report on a step with this input; it is compared like the result."""
        return {}


def find_double(name: str) -> Callable[..., Any]:
    """Return the function or class with this name: "generation.Scripted" is in a file here,
    "torch.nn.Linear" in torch. Raises ImportError or AttributeError for any other name."""
    module, _, attribute = name.rpartition(".")
    home = module if module.split(".")[0] == "torch" else f"{__name__}.{module}"
    return getattr(import_module(home), attribute)
