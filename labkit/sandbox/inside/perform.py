"""Performing a call with the symbols of a package: its outcome, errors included."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from labkit.sandbox.inside.call import (
    Call,
    Given,
    Inputs,
    New,
    Outcome,
    Step,
    describe,
    detached,
    same,
    shapes_of,
    state_of,
    tensors_in,
)
from labkit.sandbox.inside.doubles import Double, find_double
from labkit.sandbox.inside.doubles.parallel import TRAFFIC, Ranks
from labkit.sandbox.inside.kernels import counted, make_strict
from labkit.sandbox.inside.kernels.profile import numbered_from
from labkit.sandbox.inside.torch_private import bounded, copy_with_strides, strict_memory
from labkit.sandbox.inside.tracer import tracing

_generator = torch.default_generator  # bound before learner code can replace it


def perform(call: Call, namespace: Mapping[str, Any], filename: str | None = None) -> Outcome:
    """Perform `call` with the symbols of `namespace`; return its Outcome, errors included.

    filename    of the learner's code, to find the line that raised
    """
    outcome = Outcome()
    try:
        with strict_memory(), same_numbers(), tracing(call, outcome):
            if call.ranks:
                _perform_on_ranks(call, namespace, outcome)
            else:
                _perform(call, namespace, outcome)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit included: the learner's code may raise anything
        outcome.failure = describe(error, filename)
    return outcome


def _perform(call: Call, namespace: Mapping[str, Any], outcome: Outcome) -> None:
    make_strict()
    shared: dict[str, Any] = {}
    target = _build(call, namespace, shared)
    if call.names:
        outcome.names = shapes_of(target)
    objects = resolve(call.objects, namespace, shared) or {}
    leaves: dict[str, Tensor] = {}  # tensors whose gradients are wanted
    for number, (method, inputs) in enumerate(call.steps):
        inputs = resolve(inputs, namespace, shared)
        step = "" if len(call.steps) == 1 else f"step {number + 1} "
        for name in inputs if call.grad is True else call.grad or ():
            for path, tensor in tensors_in(inputs[name], name):
                if tensor.is_floating_point():
                    leaves[step + path] = tensor.requires_grad_()
        tensors, given = Inputs(inputs), {**objects, **inputs}
        gradients_on = torch.set_grad_enabled(bool(call.grad or objects))
        with (
            gradients_on,
            bounded(call.most_numbers, call.most_operations),
            numbered_from(call.first_program),
            counted(call.profile, inputs) as kernels,
        ):
            value = _run(target, method, given, call.by_position)
            if call.add_input and isinstance(value, Tensor):
                value = value + inputs[call.add_input]
        # later steps may overwrite it
        outcome.values.append(value if call.grad else detached(value))
        outcome.changed += [step + path for path in tensors.changed()]
    if call.summary is not None:
        outcome.values = SUMMARIES[call.summary](outcome.values, call.steps)
    if call.grad:
        with counted(call.profile, inputs) as kernels:
            outcome.grads = gradients(outcome.values, leaves | _parameters(target))
    outcome.values = [detached(value) for value in outcome.values]
    outcome.values += [kernels] if call.profile else []
    outcome.state = state_of(objects)


def _perform_on_ranks(call: Call, namespace: Mapping[str, Any], outcome: Outcome) -> None:
    """Perform the call on each of its ranks; results are kept under "rank 0", ..."""

    def work() -> Outcome:
        _generator.manual_seed(0)
        part = Outcome()
        _perform(call, namespace, part)
        return part

    ranks = Ranks(call.ranks)
    parts = {f"rank {rank}": part for rank, part in enumerate(ranks.run(work))}
    for number in range(len(parts["rank 0"].values)):
        outcome.values.append({name: part.values[number] for name, part in parts.items()})
    outcome.values[-1] |= TRAFFIC[call.traffic](ranks.groups)
    outcome.names = parts["rank 0"].names
    for name, part in parts.items():
        outcome.changed += [f"{path} of {name}" for path in part.changed]
        outcome.grads |= {f"{path} of {name}": grad for path, grad in part.grads.items()}
        outcome.state |= {f"{path} of {name}": item for path, item in part.state.items()}


def _build(call: Call, namespace: Mapping[str, Any], shared: dict[str, Any]) -> Any:
    """Return the function, or the object with its weights, that the steps use."""
    if call.symbol not in namespace:
        raise NameError(f"{call.symbol} is not defined")
    target = namespace[call.symbol]
    if call.init is not None:
        target = _called(target, resolve(call.init, namespace, shared), call.by_position)
    if isinstance(target, nn.Module):
        if call.state is not None:
            target.load_state_dict(resolve(call.state, namespace, shared), strict=True)
        if call.dtype is not None:
            target.to(call.dtype)
    return target


def _called(function: Callable, inputs: dict[str, Any], by_position: bool) -> Any:
    return function(*inputs.values()) if by_position else function(**inputs)


def _run(target: Any, method: str, inputs: dict[str, Any], by_position: bool) -> Any:
    """Return the value of one step, with the reports of the doubles among its inputs."""
    if method.startswith("."):
        return attrgetter(method[1:])(target)
    if method.startswith("?"):
        with suppress(ValueError):
            return _run(target, method[1:], inputs, by_position)
        return "ValueError"
    function = getattr(target, method) if method else target
    value = _called(function, inputs, by_position)
    reports = [item.report() for item in inputs.values() if isinstance(item, Double)]
    found = {key: text for report in reports for key, text in report.items()}
    return {"returned": value, **found} if found else value


def _parameters(target: Any) -> dict[str, Tensor]:
    """Return a shared Parameter under each of its names, in whichever order they were set."""
    if not isinstance(target, nn.Module):
        return {}
    named = target.named_parameters(remove_duplicate=False)
    return {f"parameter {name}": parameter for name, parameter in named}


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


def resolve(value: Any, namespace: Mapping[str, Any], shared: dict[str, Any]) -> Any:
    """`value` with every New made from the namespace and every Given looked up, and with fresh
    tensors of the same strides, so that no call can spoil another.

    shared    the shared doubles that this call has so far, for its later steps
    """
    if isinstance(value, Tensor):
        return copy_with_strides(value, value.stride())
    if isinstance(value, New):
        return namespace[value.name](**resolve(value.arguments, namespace, shared))
    if isinstance(value, Given):
        arguments = resolve(value.arguments, namespace, shared)
        make = find_double(value.name)
        if not getattr(make, "shared", False):
            return make(**arguments)
        if (key := repr((value.name, arguments))) not in shared:
            shared[key] = make(**arguments)
        return shared[key]
    if isinstance(value, Mapping):
        return {key: resolve(item, namespace, shared) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(resolve(item, namespace, shared) for item in value)
    return value


@contextmanager
def same_numbers():
    """While open, torch's generator starts as after manual_seed(0); then it is as before.

    torch.manual_seed does this for devices too, and notes the stack each time, which takes
    longer than most calls.
    """
    before = _generator.get_state()
    _generator.manual_seed(0)
    try:
        yield
    finally:
        _generator.set_state(before)


def _drawn(values: list[Any], steps: list[Step]) -> list[Any]:
    drawn = [v.unique().tolist() if isinstance(v, Tensor) else v for v in values]
    texts = [" ".join(map(str, v)) if isinstance(v, list) else v for v in drawn]
    return [{"tokens that come out": text} for text in texts]


def _counts(values: list[Any], steps: list[Step]) -> list[Any]:
    """Count the tokens of tensors (rows,); other shapes stay, so that the check reports
    them."""

    def count(value: Any) -> Any:
        fits = isinstance(value, Tensor) and value.dim() == 1 and value.dtype == torch.int64
        return value.clamp(min=0).bincount() if fits else value

    return [count(value) for value in values]


def _repeats(values: list[Any], steps: list[Step]) -> list[Any]:
    first, *later = [v if isinstance(v, Tensor) else torch.empty(0) for v in values]
    return [v.shape == first.shape and same(v, first) for v in later]


def _real_tokens(values: list[Any], steps: list[Step]) -> list[Any]:
    """Put zeros where the step's attention_mask is 0: any output is right at padding."""
    masks = [i["attention_mask"][:, -i["input_ids"].size(1) :] for _, i in steps]
    return [mask_padding(v, mask == 0) for v, mask in zip(values, masks, strict=True)]


def mask_padding(value: Any, *paddings: Tensor) -> Any:
    """Return `value` with zeros wherever one of these masks (B, T) marks padding."""
    if isinstance(value, (list, tuple)):
        return [mask_padding(item, *paddings) for item in value]
    for where in [w for p in paddings for w in (p, p.flatten(), p[:, None])]:
        if not isinstance(value, Tensor) or value.dim() < where.dim():
            continue  # not (B, T, ...), (N, ...) or (B, H, T, ...)
        if all(n in (1, size) for n, size in zip(where.shape, value.shape, strict=False)):
            more = [1] * (value.dim() - where.dim())
            return value.masked_fill(where.view(*where.shape, *more), 0)
    return value


def _by_index(values: list[Any], steps: list[Step]) -> list[Any]:
    """Sort each row of pairs (numbers, indices) of one shape (rows, k) by its indices.
    Any other pair stays unchanged, so that the check reports it."""
    return [[t.gather(1, v[1].argsort(1)) for t in v] if _is_choice(v) else v for v in values]


def _is_choice(value: Any) -> bool:
    pair = isinstance(value, (list, tuple)) and len(value) == 2
    if not pair or not all(isinstance(v, Tensor) and v.dim() == 2 for v in value):
        return False
    return value[0].shape == value[1].shape and value[1].dtype == torch.int64


def _first(values: list[Any], steps: list[Step]) -> list[Any]:
    return [v[0] if isinstance(v, (list, tuple)) and v else v for v in values]


# Summaries to compare if a right answer may draw random numbers in different ways, choose an
# order, or return anything at some places.
SUMMARIES: dict[str, Callable[[list[Any], list[Step]], list[Any]]] = {
    "drawn": _drawn,  # for each step, the set of numbers in it
    "counts": _counts,  # for each step, the counts of 0, 1, 2, ...
    "repeats": _repeats,  # for each later step, whether it equals the first one
    "real tokens": _real_tokens,  # for each step, its output at tokens that are not padding
    "first": _first,  # for each step, the first of several values
    "by index": _by_index,  # for each step, numbers and their places, in any order
}
