"""A Call, which a check asks for, and the Outcome, which comes back."""

from __future__ import annotations

import math
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

_equal = torch.equal  # bound before learner code can replace it
Step = tuple[str, dict[str, Any]]  # a method, "" for the call itself, and its inputs


class New:
    """An object of the package under test, made where the call is performed: New("KVCache")."""

    def __init__(self, name: str, /, **arguments: Any):
        self.name, self.arguments = name, arguments


class Given:
    """Something that the course hands to the learner's code: Given("generation.Scripted", ...)
    of a lab's file in doubles/, Given("torch.nn.Linear", ...) of torch."""

    def __init__(self, name: str, /, **arguments: Any):
        self.name, self.arguments = name, arguments


# The options of a call: their types and their defaults
OPTIONS: dict[str, tuple[Any, Any]] = {
    "init": (Mapping, None),
    "state": ((Mapping, Given), None),
    "dtype": (torch.dtype, None),
    "grad": ((bool, list, tuple), False),
    "names": (bool, False),
    "by_position": (bool, False),
    "summary": (str, None),
    "objects": (Given, None),
    "trace": (tuple, ()),
    "most_numbers": (int, None),
    "most_operations": (int, None),
    "ranks": (int, None),
    "traffic": (str, "none"),
    "add_input": (str, None),
    "profile": (tuple, ()),
    "first_program": (int, 0),
}


class Call:
    """One use of a symbol: build it (if it is a class), give it weights, feed it inputs.

    Call("layer_norm", x=..., weight=...)                      a function
    Call("RMSNorm", init={"hidden_size": 8}, state={"weight": w}, hidden_states=x)
    Call("KVCache", init={...}).then("update", key=k, value=v)  several steps on one object,
        of which .then(".length") reads an attribute; .then("?update", ...) gives "ValueError"
        where that is raised, and the steps go on

    init    constructor arguments; None for a function
    state   tensors for load_state_dict(strict=True)
    dtype   the module is moved to it after loading
    grad    also return the gradients of inputs and parameters; a tuple of names limits this to
            some inputs, if a right answer may use only a part of the others
    names   also return the names and shapes of parameters and buffers
    by_position  pass the arguments, also of the constructor, in their order, not by name
    summary  compare only a summary of the results, one of SUMMARIES
    objects a Given that makes {name: object}, once for all steps: every step gets them as its
            first inputs, and the state they end in is part of the outcome
    trace   functions and classes of the package, whose calls are recorded: the records are one
            more value, see Tracer, and the outcome's state is the weights that were loaded
    most_numbers  a tensor of more numbers than this, made on the way, raises MemoryError
    most_operations  more operations of torch than this in a step raise RuntimeError
    ranks   perform it on this many ranks that talk to each other, see doubles/parallel.py:
            Given("parallel.group") is the group of each, Given("parallel.by_rank", values=...)
            what differs between them; each value is {"rank 0": ..., "rank 1": ..., ...}
    traffic the messages between ranks that are compared besides their values, one of TRAFFIC
    add_input  an input that is added to the value, as around a layer
    profile  inputs of the last step: the loads and stores of Triton kernels there are one more
            value, see kernels.profile.Profile.report
    first_program   the number of the first program, see kernels.profile.numbered_from

    If a Double among a step's inputs has a report, the value of the step is {"returned": ...,
    and the report}. torch's global generator starts every call with the same seed.

    Values may be None, bool, int, float, str, Tensor, torch.dtype, New, Given, and lists,
    tuples or dicts of those.

    Errors: an option that is of another kind, as an input of the same name would be:
            ValueError. Such an input goes into a step: Call("f").then(grad=...)
    """

    def __init__(self, symbol: str, /, **inputs: Any):
        self.symbol = symbol
        for name, (kinds, default) in OPTIONS.items():
            value = inputs.pop(name, default)
            if value is not None and not isinstance(value, kinds):
                raise ValueError(
                    f"{name} is an option of Call, and {type(value).__name__} none of its "
                    f"kinds; an input of that name goes into a step: .then({name}=...)"
                )
            setattr(self, name, value)
        # Only for the judge's side, see checks/compare.py:
        self.returns: tuple[str, ...] = ()  # names for the values of a pair
        self.probs: Tensor | None = None  # the probabilities that counts of draws must fit
        self.mentions = ""  # words that the error's message must contain
        self.key = ""  # set by the check that makes the call, as in "test_values[2]#1"
        self.steps: list[Step] = [("", inputs)] if inputs else []

    def returning(self, *names: str) -> Call:
        """Name the values of a returned pair, for the report of a check."""
        self.returns = names
        return self

    def drawn_from(self, probs: Tensor) -> Call:
        """Set the probabilities that the counts of draws must fit (summary "counts")."""
        self.probs = probs
        return self

    def mentioning(self, text: str) -> Call:
        """Require words in the message of the expected error."""
        self.mentions = text
        return self

    def then(self, method: str = "", /, **inputs: Any) -> Call:
        """Add a step: call the same object again, or its `method`, or read ".attribute"."""
        self.steps.append((method, inputs))
        return self


@dataclass
class Failure:
    """An exception that learner code raised: its name, its text, the line of its cell, the
    names of the exceptions it derives from, and the rank on which, see Call.ranks."""

    kind: str
    text: str
    line: int | None = None
    bases: list[str] = field(default_factory=list)
    rank: int | None = None


@dataclass
class Outcome:
    """The result of a call: one value per step, and its effects on its surroundings."""

    values: list[Any] = field(default_factory=list)
    grads: dict[str, Tensor] = field(default_factory=dict)
    names: dict[str, list[int]] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    state: dict[str, Tensor] = field(default_factory=dict)
    failure: Failure | None = None

    @property
    def value(self) -> Any:
        return self.values[-1] if self.values else None

    @property
    def over(self) -> bool:
        """Whether a limit is used up, so that no further outcome can follow."""
        return self.failure is not None and self.failure.kind in ("TimeLimit", "OutputLimit")


def tensors_in(value: Any, path: str) -> list[tuple[str, Tensor]]:
    """Return every tensor inside `value` with its path: "x", "cache[0]", "out.key"."""
    if isinstance(value, Tensor):
        return [(path, value)]
    if isinstance(value, Mapping):
        return [t for key, item in value.items() for t in tensors_in(item, f"{path}.{key}")]
    if isinstance(value, (list, tuple)):
        return [t for i, item in enumerate(value) for t in tensors_in(item, f"{path}[{i}]")]
    return []


def detached(value: Any) -> Any:
    """`value` with plain tensors; all but tensors, numbers, texts and lists become types."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, (list, tuple)):
        return [detached(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): detached(item) for key, item in value.items()}
    if type(value) in (bool, int, str, type(None)):
        return value
    if isinstance(value, float):  # numpy's too
        value = float(value)
        return value if math.isfinite(value) else str(value)
    return {"an object of type": type(value).__name__}


def describe(error: BaseException, filename: str | None) -> Failure:
    """The exception as a Failure, with the last line of the learner's file in its trace."""
    line = None
    for frame in traceback.extract_tb(error.__traceback__):
        if filename and frame.filename == filename:
            line = frame.lineno
    try:
        text = str(error.msg if isinstance(error, SyntaxError) else error)
    except Exception:  # str() of the exception fails
        text = ""
    if isinstance(error, SyntaxError) and isinstance(error.lineno, int):
        line = error.lineno
    bases = [kind.__name__ for kind in type(error).__mro__[1:8]]
    text, rank = " ".join(text[:1000].split())[:300], getattr(error, "rank", None)
    rank = rank if type(rank) is int else None
    return Failure(type(error).__name__[:80], text, line, bases, rank)


def state_of(objects: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the state after a call: the weights of models, and the reports of doubles."""
    state: dict[str, Tensor] = {}
    for name, item in objects.items():
        if isinstance(item, nn.Module):
            weights = item.state_dict().items()
            state |= {f"{name}.{key}": weight.detach().clone() for key, weight in weights}
        elif hasattr(item, "state"):
            state |= item.state()
    return state


def shapes_of(target: Any) -> dict[str, list[int]]:
    """Return {name: shape} of a module's parameters and buffers."""
    state = target.state_dict() if isinstance(target, nn.Module) else {}
    return {name: list(tensor.shape) for name, tensor in state.items()}


class Inputs:
    """The tensors and lists among some inputs, as they were before a call."""

    def __init__(self, inputs: Mapping[str, Any]):
        found = [pair for name, item in inputs.items() for pair in tensors_in(item, name)]
        self.before = [(path, tensor, tensor.detach().clone()) for path, tensor in found]
        self.lists = [(name, item, [*item]) for name, item in inputs.items()
                      if type(item) is list and not tensors_in(item, name)]  # fmt: skip

    def changed(self) -> list[str]:
        """Return the paths of those that are different now."""
        lists = [name for name, now, before in self.lists if now != before]
        return lists + [path for path, now, x in self.before if not same(now.detach(), x)]


def same(tensor: Tensor, before: Tensor) -> bool:
    return _equal(tensor, before) or _equal(tensor.nan_to_num(), before.nan_to_num())
