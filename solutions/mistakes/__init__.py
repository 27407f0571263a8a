"""Plausible wrong versions of every exercise, each with the sentence that it earns.

A module here bears its lab's name. The sentence continues "this is what comes out when ...".
A remark is a version that is right enough to cost nothing; its sentence stands alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Mistake:
    symbol: str
    sentence: str
    code: Any
    costs: bool = True

    @property
    def name(self) -> str:
        return self.code.__name__


def mistake(symbol: str, sentence: str) -> Callable[[Any], Any]:
    """Mark a function or class as a wrong version of `symbol`."""
    return _registered(symbol, sentence, costs=True)


def remark(symbol: str, sentence: str) -> Callable[[Any], Any]:
    """Mark a version that differs from the reference in rounding only."""
    return _registered(symbol, sentence, costs=False)


_REGISTER: dict[str, list[Mistake]] = {}


def _registered(symbol: str, sentence: str, costs: bool) -> Callable[[Any], Any]:
    def register(code: Any) -> Any:
        _REGISTER.setdefault(code.__module__, []).append(Mistake(symbol, sentence, code, costs))
        return code

    return register


def mistakes_of(module: str) -> list[Mistake]:
    """All mistakes and remarks listed for a lab, in the order of its file."""
    name = f"{__name__}.{module}"
    import_module(name)
    return _REGISTER.get(name, [])
