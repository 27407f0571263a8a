"""What a check asks for and what comes back: Call, Outcome, and the performing of one.

This module is all that the learner's side of grading needs. It holds no test and no answer.
"""

from __future__ import annotations

import inspect
import math
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from labkit.sandbox.inside.banned import replaced
from labkit.sandbox.inside.doubles import (
    DOUBLES,
    SHARED,
    Adaptable,
    Listener,
    ModelCache,
    Momentum,
    Watched,
)
from labkit.sandbox.inside.importer import PACKAGE
from labkit.sandbox.inside.torch_private import (
    numbers_at_most,
    operations_at_most,
    set_deterministic,
)

# Kept from before any learner code can replace them.
_equal, _generator = torch.equal, torch.default_generator
UNWATCHED = nullcontext()
Step = tuple[str, dict[str, Any]]  # of a call: a method, "" for the call itself, and its inputs


class New:
    """An object of the package under test, made where the call is performed: New("KVCache")."""

    def __init__(self, symbol: str, /, **arguments: Any):
        self.symbol, self.arguments = symbol, arguments


class Given:
    """Something that the course hands to the learner's code, from the table doubles.DOUBLES.

    Those in SHARED are one object through all steps of a call: a cache keeps what it holds,
    and a model what was stored on it.
    """

    def __init__(self, name: str, /, **arguments: Any):
        if name not in DOUBLES:
            raise ValueError(f"nothing is given as {name!r}; there are {', '.join(DOUBLES)}")
        self.name, self.arguments = name, arguments


def _drawn(values: list[Any], steps: list[Step]) -> list[Any]:
    texts = [
        " ".join(map(str, v.unique().tolist())) if isinstance(v, Tensor) else v for v in values
    ]
    return [{"tokens that come out": text} for text in texts]


def _counts(values: list[Any], steps: list[Step]) -> list[Any]:
    """Of tensors (rows,) alone: another shape stays, so that it shows."""
    fit = [isinstance(v, Tensor) and v.dim() == 1 and v.dtype == torch.int64 for v in values]
    return [v.clamp(min=0).bincount() if ok else v for v, ok in zip(values, fit, strict=True)]


def _repeats(values: list[Any], steps: list[Step]) -> list[Any]:
    first, *later = [v if isinstance(v, Tensor) else torch.empty(0) for v in values]
    return [v.shape == first.shape and _equal(v, first) for v in later]


def _real_tokens(values: list[Any], steps: list[Step]) -> list[Any]:
    """Of each step, zeros where its attention_mask is 0: what comes out at padding is nobody's
    business."""
    masks = [i["attention_mask"][:, -i["input_ids"].size(1) :] for _, i in steps]
    return [blanked(v, mask == 0) for v, mask in zip(values, masks, strict=True)]


def blanked(value: Any, *paddings: Tensor) -> Any:
    """`value` with zeros where one of these masks (B, T) says that there is padding."""
    if isinstance(value, (list, tuple)):
        return [blanked(item, *paddings) for item in value]
    for where in [w for p in paddings for w in (p, p.flatten(), p[:, None])]:
        if not isinstance(value, Tensor) or value.dim() < where.dim():
            continue  # no (B, T, ...), (N, ...), (B, H, T, ...)
        if all(n in (1, size) for n, size in zip(where.shape, value.shape, strict=False)):
            more = [1] * (value.dim() - where.dim())
            return value.masked_fill(where.view(*where.shape, *more), 0)
    return value


def _by_index(values: list[Any], steps: list[Step]) -> list[Any]:
    """Of pairs (numbers, places) of one shape (rows, k): each row in the order of its places.
    Another pair stays, so that it shows."""
    return [[t.gather(1, v[1].argsort(1)) for t in v] if _is_choice(v) else v for v in values]


def _is_choice(value: Any) -> bool:
    pair = isinstance(value, (list, tuple)) and len(value) == 2
    if not pair or not all(isinstance(v, Tensor) and v.dim() == 2 for v in value):
        return False
    return value[0].shape == value[1].shape and value[1].dtype == torch.int64


def _first(values: list[Any], steps: list[Step]) -> list[Any]:
    return [v[0] if isinstance(v, (list, tuple)) and v else v for v in values]


# What a check looks at where a right answer may draw random numbers in its own way, give what
# it likes, or choose an order.
SUMMARIES: dict[str, Callable[[list[Any], list[Step]], list[Any]]] = {
    "drawn": _drawn,  # of each step, which numbers occur in it at all
    "counts": _counts,  # of each step, how often 0, 1, 2, ... occur
    "repeats": _repeats,  # of each later step, whether it equals the first
    "real tokens": _real_tokens,  # of each step, what it says of tokens that are no padding
    "first": _first,  # of each step, the first of several values
    "by index": _by_index,  # of each step, numbers and their places, in whichever order
}


# What the options of a call may be. Whatever else comes under such a name is an input.
OPTIONS: dict[str, tuple[type, ...]] = {
    "init": (Mapping,),
    "state": (Mapping,),
    "dtype": (torch.dtype,),
    "grad": (bool, list, tuple),
    "names": (bool,),
    "by_position": (bool,),
    "summary": (str,),
    "objects": (Given,),
    "trace": (tuple,),
    "most_numbers": (int,),
    "most_operations": (int,),
}


class Call:
    """One use of a symbol: build it (if it is a class), give it weights, feed it inputs.

    Call("layer_norm", x=..., weight=...)                      a function
    Call("RMSNorm", init={"hidden_size": 8}, state={"weight": w}, hidden_states=x)
    Call("KVCache", init={...}).then("update", key=k, value=v)  several steps on one object,
        of which .then(".length") reads an attribute; .then("?update", ...) gives "ValueError"
        where that is raised, and the steps go on

    init    constructor arguments; None says that the symbol is a function
    state   tensors for load_state_dict(strict=True)
    dtype   the module is moved to it after loading
    grad    also return the gradients of inputs and parameters; a tuple of names says of which
            inputs, where a right answer may use only a part of the others
    names   also return the names and shapes of parameters and buffers
    by_position  pass the arguments, also of the constructor, in their order, not by name
    summary  compare only a summary of the results, one of SUMMARIES
    objects a Given that makes {name: object}, once for all steps: every step gets them as its
            first inputs, and the state they end in is part of the outcome
    trace   functions and classes of the package, whose calls are recorded: the records are one
            more value, see Tracer, and the outcome's state is the weights that were loaded
    most_numbers  a tensor of more numbers than this, made on the way, raises MemoryError
    most_operations  more operations of torch than this in a step raise RuntimeError

    A Given("listener") among a step's inputs makes its value {"returned": ..., name: what
    the listener heard}. torch's global generator starts every call with the same seed.

    Values may be None, bool, int, float, str, Tensor, torch.dtype, New, Given, and lists,
    tuples or dicts of those.

    Errors: an option that is of another kind, as an input of the same name would be:
            ValueError. Such an input goes into a step: Call("f").then(grad=...)
    """

    def __init__(
        self,
        symbol: str,
        /,
        *,
        init: Mapping[str, Any] | None = None,
        state: Mapping[str, Tensor] | None = None,
        dtype: torch.dtype | None = None,
        grad: bool | tuple[str, ...] = False,
        names: bool = False,
        by_position: bool = False,
        summary: str | None = None,
        objects: Given | None = None,
        trace: tuple[str, ...] = (),
        most_numbers: int | None = None,
        most_operations: int | None = None,
        **inputs: Any,
    ):
        given = (
            *(init, state, dtype, grad, names, by_position, summary, objects, trace),
            *(most_numbers, most_operations),
        )
        for (name, kinds), value in zip(OPTIONS.items(), given, strict=True):
            if value is not None and not isinstance(value, kinds):
                raise ValueError(
                    f"{name} is an option of Call, and {type(value).__name__} none of its "
                    f"kinds; an input of that name goes into a step: .then({name}=...)"
                )
        self.symbol, self.init, self.state = symbol, init, state
        self.dtype, self.grad, self.names = dtype, grad, names
        self.by_position, self.summary, self.objects = by_position, summary, objects
        self.trace, self.most_numbers, self.most_operations = (
            trace, most_numbers, most_operations,
        )  # fmt: skip
        # For the judge's side alone, see checks/compare.py:
        self.returns: tuple[str, ...] = ()  # what the values of a pair are called
        self.probs: Tensor | None = None  # which counts of draws must fit
        self.mentions = ""  # what the message of the error must contain
        self.key = ""  # set by the check that makes the call: "test_values[2]#1"
        self.steps: list[Step] = [("", inputs)] if inputs else []

    def returning(self, *names: str) -> Call:
        """Say what the values of a returned pair are called, for the words of a check."""
        self.returns = names
        return self

    def drawn_from(self, probs: Tensor) -> Call:
        """Say which probabilities the counts of draws must fit (summary "counts")."""
        self.probs = probs
        return self

    def mentioning(self, text: str) -> Call:
        """Say what the message of the expected error must contain."""
        self.mentions = text
        return self

    def then(self, method: str = "", /, **inputs: Any) -> Call:
        """Add a step: call the same object again, or its `method`, or read ".attribute"."""
        self.steps.append((method, inputs))
        return self


@dataclass
class Failure:
    """What learner code raised: the exception's name, its text, the line of its cell, and the
    names of the exceptions it derives from."""

    kind: str
    text: str
    line: int | None = None
    bases: list[str] = field(default_factory=list)


@dataclass
class Outcome:
    """What a call gave: one value a step, and what the call did to its surroundings.

    renamed    {argument as it was asked: the name that the learner gave it}
    odd        what ran of torch and a person should look at, see torch_private.Watch
    """

    values: list[Any] = field(default_factory=list)
    grads: dict[str, Tensor] = field(default_factory=dict)
    names: dict[str, list[int]] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    state: dict[str, Tensor] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    failure: Failure | None = None
    odd: str = ""

    @property
    def value(self) -> Any:
        return self.values[-1] if self.values else None

    @property
    def over(self) -> bool:
        """Whether it is of no use to ask for another outcome: the limits are used up."""
        return self.failure is not None and self.failure.kind in ("TimeLimit", "OutputLimit")


def tensors_in(value: Any, path: str) -> list[tuple[str, Tensor]]:
    """Every tensor inside `value` with its path: "x", "cache[0]", "out.key"."""
    if isinstance(value, Tensor):
        return [(path, value)]
    if isinstance(value, Mapping):
        return [t for key, item in value.items() for t in tensors_in(item, f"{path}.{key}")]
    if isinstance(value, (list, tuple)):
        return [t for i, item in enumerate(value) for t in tensors_in(item, f"{path}[{i}]")]
    return []


def resolve(value: Any, namespace: Mapping[str, Any], shared: dict[str, Any]) -> Any:
    """`value` with every New made from the namespace and every Given looked up.

    shared    the objects of SHARED that this call has so far, for its later steps
    """
    if isinstance(value, New):
        return namespace[value.symbol](**resolve(value.arguments, namespace, shared))
    if isinstance(value, Given):
        arguments = resolve(value.arguments, namespace, shared)
        if value.name not in SHARED:
            return DOUBLES[value.name](**arguments)
        key = repr((value.name, arguments))
        if key not in shared:
            shared[key] = DOUBLES[value.name](**arguments)
        return shared[key]
    if isinstance(value, Mapping):
        return {key: resolve(item, namespace, shared) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(resolve(item, namespace, shared) for item in value)
    return value


def copied(value: Any) -> Any:
    """`value` with fresh tensors of the same strides, so that no call can spoil another."""
    if isinstance(value, Tensor):
        fresh = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
        return fresh.copy_(value)
    if isinstance(value, (New, Given)):
        made = object.__new__(type(value))
        made.__dict__.update(value.__dict__, arguments=copied(value.arguments))
        return made
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(copied(item) for item in value)
    return value


@contextmanager
def strict_torch():
    """Uninitialised memory reads as NaN, so that torch.empty cannot pass by luck."""
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    set_deterministic(True, warn_only=True)
    try:
        yield
    finally:
        set_deterministic(before, warn_only)


@contextmanager
def same_numbers():
    """torch's generator as it is after manual_seed(0), and afterwards as it was.

    torch.manual_seed does this for devices too, and notes the stack each time, which takes
    longer than most calls.
    """
    before = _generator.get_state()
    _generator.manual_seed(0)
    try:
        yield
    finally:
        _generator.set_state(before)


def perform(
    call: Call,
    namespace: Mapping[str, Any],
    filename: str | None = None,
    watch: AbstractContextManager = UNWATCHED,
) -> Outcome:
    """Do what `call` says with the symbols of `namespace`; errors become part of the outcome.

    filename    where the learner's code lives, to find the line that raised
    watch       open while that runs
    """
    outcome = Outcome()
    try:
        with strict_torch(), same_numbers(), tracing(call, outcome):
            _perform(call, namespace, outcome, watch)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit included: the learner's code may raise anything
        outcome.failure = describe(error, filename)
    return outcome


def _perform(
    call: Call, namespace: Mapping[str, Any], outcome: Outcome, watch: AbstractContextManager
) -> None:
    shared: dict[str, Any] = {}
    target = _build(call, namespace, shared, outcome.renamed)
    if call.names:
        outcome.names = _shapes(target)
    objects = {} if call.objects is None else resolve(copied(call.objects), namespace, shared)
    leaves: dict[str, Tensor] = {}  # of which gradients are wanted
    for number, (method, inputs) in enumerate(call.steps):
        inputs = resolve(copied(inputs), namespace, shared)
        step = "" if len(call.steps) == 1 else f"step {number + 1} "
        for path, tensor in _tensors(inputs, inputs if call.grad is True else call.grad or ()):
            if tensor.is_floating_point():
                leaves[step + path] = tensor.requires_grad_()
        before = [(step + p, t, t.detach().clone()) for p, t in _tensors(inputs, inputs)]
        given = {**objects, **inputs}
        gradients_on = torch.set_grad_enabled(bool(call.grad or objects))
        limits = numbers_at_most(call.most_numbers), operations_at_most(call.most_operations)
        with gradients_on, limits[0], limits[1], watch:
            value = _run(target, method, given, call.by_position, outcome.renamed)
        outcome.values.append(value if call.grad else detached(value))  # later steps may write
        outcome.changed += [path for path, t, old in before if not _same(t.detach(), old)]
    if call.summary is not None:
        outcome.values = SUMMARIES[call.summary](outcome.values, call.steps)
    if call.grad:
        outcome.grads = gradients(outcome.values, leaves | _parameters(target))
    outcome.values = [detached(value) for value in outcome.values]
    outcome.state = state_of(objects)


def _build(
    call: Call, namespace: Mapping[str, Any], shared: dict[str, Any], renamed: dict[str, str]
) -> Any:
    """The function, or the object with its weights, that the steps are about."""
    if call.symbol not in namespace:
        raise NameError(f"{call.symbol} is not defined")
    target = namespace[call.symbol]
    if call.init is not None:
        arguments = resolve(copied(call.init), namespace, shared)
        target = _called(target, arguments, call.by_position, renamed)
    if isinstance(target, nn.Module):
        if call.state is not None:
            target.load_state_dict(copied(call.state), strict=True)
        if call.dtype is not None:
            target.to(call.dtype)
    return target


def _shapes(target: Any) -> dict[str, list[int]]:
    state = target.state_dict() if isinstance(target, nn.Module) else {}
    return {name: list(tensor.shape) for name, tensor in state.items()}


def _tensors(inputs: Mapping[str, Any], names: Iterable[str]) -> list[tuple[str, Tensor]]:
    return [found for name in names for found in tensors_in(inputs[name], name)]


def _called(
    function: Callable, inputs: dict[str, Any], by_position: bool, renamed: dict[str, str]
) -> Any:
    """What the function gives. Arguments that it does not know by name take, in order, the
    places of the parameters that got nothing, if there are as many of these."""
    if by_position:
        return function(*inputs.values())
    try:
        return function(**inputs)
    except TypeError as error:
        if "unexpected keyword" not in str(error):
            raise
        names = _own_names(function, inputs)
        if not names:
            raise
    renamed.update(names)
    return function(**{names.get(name, name): value for name, value in inputs.items()})


def _own_names(function: Callable, inputs: Mapping[str, Any]) -> dict[str, str]:
    if isinstance(function, nn.Module):
        function = function.forward
    parameters = inspect.signature(function).parameters.values()
    unknown = [name for name in inputs if name not in {each.name for each in parameters}]
    free = [each for each in parameters if each.name not in inputs]
    needed = [each for each in free if each.default is each.empty]
    chosen = needed if len(needed) == len(unknown) else free
    plain = all(each.kind is each.POSITIONAL_OR_KEYWORD for each in chosen)
    fits = plain and len(chosen) == len(unknown)
    return dict(zip(unknown, [each.name for each in chosen], strict=True)) if fits else {}


def _run(
    target: Any, method: str, inputs: dict[str, Any], by_position: bool, renamed: dict[str, str]
) -> Any:
    """What one step gives, and beside it what its listeners heard."""
    if method.startswith("."):
        return getattr(target, method[1:])
    if method.startswith("?"):
        with suppress(ValueError):
            return _run(target, method[1:], inputs, by_position, renamed)
        return "ValueError"
    function = getattr(target, method) if method else target
    value = _called(function, inputs, by_position, renamed)
    heard = {name: item.tokens for name, item in inputs.items() if isinstance(item, Listener)}
    for model in [item for item in inputs.values() if isinstance(item, Watched)]:
        noted = model.report()
        value = {**value, **noted} if isinstance(value, dict) else value
    for model in [item for item in inputs.values() if isinstance(item, Adaptable)]:
        heard |= model.report()
    return {"returned": value, **heard} if heard else value


def _same(tensor: Tensor, before: Tensor) -> bool:
    return _equal(tensor, before) or _equal(tensor.nan_to_num(), before.nan_to_num())


def _parameters(target: Any) -> dict[str, Tensor]:
    """A shared Parameter under each of its names, in whichever order they were set."""
    if not isinstance(target, nn.Module):
        return {}
    named = target.named_parameters(remove_duplicate=False)
    return {f"parameter {name}": parameter for name, parameter in named}


def state_of(objects: Mapping[str, Any]) -> dict[str, Tensor]:
    """What a call left behind: the weights of models, the learning rates of optimizers, how
    much caches hold."""
    state: dict[str, Tensor] = {}
    for name, item in objects.items():
        if isinstance(item, nn.Module):
            weights = item.state_dict().items()
            state |= {f"{name}.{key}": weight.detach().clone() for key, weight in weights}
        if isinstance(item, Momentum):
            for number, group in enumerate(item.param_groups):
                rate = torch.tensor(float(group["lr"]))
                state[f"the learning rate of group {number + 1}"] = rate
        for layer in item.layers if isinstance(item, ModelCache) else []:
            held = 0 if layer.stored is None else layer.stored[0].size(2)
            state[f"the number of cached tokens of layer {layer.layer_idx}"] = torch.tensor(
                held
            )
    return state


def gradients(values: list[Any], leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    """d(sum of value * c)/d(leaf) with fixed, uneven c; zeros where nothing flows."""
    total = None
    for _, tensor in tensors_in(values, "value"):
        if not tensor.requires_grad:
            continue
        wave = torch.arange(tensor.numel(), dtype=torch.float32).mul(0.7).add(0.3).cos()
        term = (tensor.float() * wave.reshape(tensor.shape)).sum()
        total = term if total is None else total + term
    if total is None:
        return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
    asked = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}  # not frozen
    found = torch.autograd.grad(total, list(asked.values()), allow_unused=True)
    return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()} | {
        name: grad for name, grad in zip(asked, found, strict=True) if grad is not None
    }


def detached(value: Any) -> Any:
    """`value` with plain tensors; what is no tensor, number, text or list becomes its type."""
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
    """The exception in words, with the last line of the learner's own file that it passed."""
    line = None
    for frame in traceback.extract_tb(error.__traceback__):
        if filename and frame.filename == filename:
            line = frame.lineno
    try:
        text = str(error.msg if isinstance(error, SyntaxError) else error)
    except Exception:  # an exception whose own text fails
        text = ""
    if isinstance(error, SyntaxError) and isinstance(error.lineno, int):
        line = error.lineno
    bases = [kind.__name__ for kind in type(error).__mro__[1:8]]
    return Failure(type(error).__name__[:80], " ".join(text[:1000].split())[:300], line, bases)


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
        """{(owner, name): what records its calls}"""
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

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if len(self.records) >= self.MOST:
                return function(*args, **kwargs)
            inputs, outcome = arguments(function, args, kwargs), Outcome()
            module = inputs.pop(next(iter(inputs))) if of_module else None
            if symbol == self.call.symbol and of_module and not makes:
                self.begin_step(module)
            path = self.paths.get(id(module), "") if of_module else self.running[-1]
            made = {} if makes else self.made.get(id(module), {})
            values = detached([[state_of(inputs), *inputs.values()], *made.get("inputs", [])])
            before = [(path, t, t.detach().clone()) for path, t in _tensors(inputs, inputs)]
            self.running.append(path)
            try:
                value = function(*args, **kwargs)
                outcome.values = [detached(value)]
                outcome.names = _shapes(module) if makes else {}
            except BaseException as error:
                outcome.failure = describe(error, file)
                raise
            finally:
                self.running.pop()
                outcome.changed = [path for path, t, old in before if not _same(t, old)]
                outcome.state = state_of(inputs)
                record = {"symbol": symbol, "path": path, "step": self.step, "inputs": values}
                failure = outcome.failure and [*vars(outcome.failure).values()]
                self.records.append({**record, **vars(outcome), "failure": failure})
                if makes:
                    self.made[id(module)] = self.records[-1]
            return value

        return wrapped

    def begin_step(self, model: nn.Module) -> None:
        self.step += 1
        if self.step == 1:
            self.paths = {id(module): path for path, module in model.named_modules()}
            self.state = detached(model.state_dict())
            for module, record in self.made.items():
                record["path"] = self.paths.get(module, "")


def arguments(function: Callable, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """{parameter: value}, defaults too; by number where they do not fit the function."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {str(n): value for n, value in enumerate([*args, *kwargs.values()])}
    bound.apply_defaults()
    return bound.arguments
