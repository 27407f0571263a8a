"""Records the calls of the package's functions and classes in a model."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from labkit.sandbox.inside.banned import replaced
from labkit.sandbox.inside.call import (
    Call,
    Inputs,
    Outcome,
    describe,
    detached,
    shapes_of,
    state_of,
)
from labkit.sandbox.inside.importer import PACKAGE


@contextmanager
def tracing(call: Call, outcome: Outcome):
    """While open, the calls that `call` wants traced are recorded; they end in its outcome."""
    if not call.trace:
        yield
        return
    tracer = Tracer(call)
    try:
        with replaced(tracer.wrappers()):
            yield
    finally:
        outcome.values.append(tracer.records)
        outcome.state = tracer.state


class Tracer:
    """Records the calls of some functions and classes of the package, in the order in which
    they end. A record is a dictionary of the fields of an Outcome and of

    symbol    the function, or the class of the module
    path      of the module in the model, "model.layers.0.mlp"; of a function, that of the
              module that calls it
    step      0 while the model is made, then 1, 2, ...
    inputs    what caches hold and the inputs; of a module then those with which it was made
    """

    MOST = 1000  # records; those of labkit.checks.assembly have under 200

    def __init__(self, call: Call):
        self.call, self.step, self.running = call, 0, [""]  # paths
        self.records: list[dict[str, Any]] = []
        self.made: dict[int, dict[str, Any]] = {}  # how a module was made, by its id
        self.paths: dict[int, str] = {}
        self.state: dict[str, Tensor] = {}  # the weights as they were loaded

    def wrappers(self) -> dict[tuple[Any, str], Callable]:
        """Return {(owner, name): the function that records its calls}."""
        found: dict[tuple[Any, str], Callable] = {}
        for module in [m for name, m in sys.modules.items() if name.startswith(f"{PACKAGE}.")]:
            for symbol in vars(module).keys() & {*self.call.trace}:
                part = vars(module)[symbol]
                owners = [(part, "__init__"), (part, "forward")]
                for place in owners if isinstance(part, type) else [(module, symbol)]:
                    if hasattr(*place):
                        found[place] = self.wrapper(symbol, *place)
        return found

    def wrapper(self, symbol: str, owner: Any, name: str) -> Callable:
        function = getattr(owner, name)
        of_module, makes = isinstance(owner, type), name == "__init__"
        home = getattr(owner if of_module else function, "__module__", "")
        file = getattr(sys.modules.get(home), "__file__", None)

        def call_and_record(*args: Any, **kwargs: Any) -> Any:
            if len(self.records) >= self.MOST:
                return function(*args, **kwargs)
            inputs, outcome = arguments(function, args, kwargs), Outcome()
            module = inputs.pop(next(iter(inputs))) if of_module else None
            if symbol == self.call.symbol and of_module and not makes:
                self.begin_step(module)
            path = self.paths.get(id(module), "") if of_module else self.running[-1]
            made = {} if makes else self.made.get(id(module), {})
            values = detached([[state_of(inputs), *inputs.values()], *made.get("inputs", [])])
            tensors = Inputs(inputs)
            self.running.append(path)
            try:
                value = function(*args, **kwargs)
                outcome.values = [detached(value)]
                outcome.names = shapes_of(module) if makes else {}
            except BaseException as error:
                outcome.failure = describe(error, file)
                raise
            finally:
                self.running.pop()
                outcome.changed = tensors.changed()
                outcome.state = state_of(inputs)
                record = {"symbol": symbol, "path": path, "step": self.step, "inputs": values}
                failure = outcome.failure and [*vars(outcome.failure).values()]
                self.records.append({**record, **vars(outcome), "failure": failure})
                if makes:
                    self.made[id(module)] = self.records[-1]
            return value

        return call_and_record

    def begin_step(self, model: nn.Module) -> None:
        self.step += 1
        if self.step == 1:
            self.paths = {id(module): path for path, module in model.named_modules()}
            self.state = detached(model.state_dict())
            for module, record in self.made.items():
                record["path"] = self.paths.get(module, "")


def arguments(function: Callable, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return {parameter: value} with defaults; by number if they do not fit the function."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {str(n): value for n, value in enumerate([*args, *kwargs.values()])}
    bound.apply_defaults()
    return bound.arguments
