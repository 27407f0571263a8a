"""Ranks of a check: the learner's code on several of them, in one thread.

A sandbox has no threads. A rank that has to wait for another one is stopped and runs again from
its start once the answer is known, with the answers that it had before. So every run is the
same, a rank that waits forever is found at once, and time, memory and errors are counted as in
any other call. The price: a rank's code runs once more for each answer that it waits for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Event = tuple[str, list[Tensor], Any]  # the kind of a message, its tensors, its option
MOST_EVENTS = 400  # messages of one rank; more would be an endless loop


class Deadlock(RuntimeError):
    """No rank can go on."""


class Waits(BaseException):
    """Stops a rank that has to wait. A learner's `except Exception` does not catch it."""


class Ranks:
    """The waiting ranks of one call, and the answers that they have had."""

    current: Ranks | None = None

    def __init__(self, size: int):
        self.size = size
        self.groups = [ReplayedGroup(self, rank) for rank in range(size)]
        self.waiting: list[Event | None] = [None] * size
        self.answers: list[list[Any]] = [[] for _ in range(size)]
        self.running = 0

    def run(self, work: Callable[[], Any]) -> list[Any]:
        """Return the result of work() on each rank. Raises its errors, or Deadlock."""
        results: dict[int, Any] = {}
        before, Ranks.current = Ranks.current, self
        try:
            while len(results) < self.size:
                free = [r for r, e in enumerate(self.waiting) if e is None and r not in results]
                if not free:
                    raise Deadlock(describe(self.waiting))
                for self.running in free:
                    self.groups[self.running].begin()
                    try:
                        results[self.running] = work()
                    except Waits:
                        continue
                    except BaseException as error:
                        error.rank = self.running
                        raise
        finally:
            Ranks.current = before
        return [results[rank] for rank in range(self.size)]

    def answer(self, rank: int, event: Event) -> Any:
        """Return the others' answer to this rank; raise Waits if it has not come yet."""
        if len(self.answers[rank]) >= MOST_EVENTS:
            raise RuntimeError(f"rank {rank} talks more than {MOST_EVENTS} times in one call")
        self.waiting[rank] = event
        answers = settle(self.waiting)
        for other, found in answers.items():
            self.answers[other].append(found)
            self.waiting[other] = None
        if rank not in answers:
            raise Waits
        return answers[rank]


class ReplayedGroup:
    """The group of tinyllm/ranks.py, for one rank of a check."""

    def __init__(self, ranks: Ranks, rank: int):
        self.rank, self.size, self.ranks = rank, ranks.size, ranks
        self.begin()

    def begin(self) -> None:
        """Start again with the answers so far; nothing is sent yet."""
        self.place, self.bytes_sent = 0, 0
        self.weights: list[nn.Parameter] = []  # see `weights`
        self.log: list[tuple[str, int, int | None]] = []

    def all_reduce(self, tensor: Tensor, op: str = "sum") -> None:
        self._count("all_reduce", 2 * (self.size - 1) * size_of(tensor) // self.size)
        write(tensor, self._talk("all_reduce", [tensor], op))

    def all_gather(self, tensor_list: list[Tensor], tensor: Tensor) -> None:
        self._count("all_gather", (self.size - 1) * size_of(tensor))
        for output, found in zip(tensor_list, self._talk("all_gather", [tensor]), strict=True):
            write(output, found)

    def reduce_scatter(self, output: Tensor, input_list: list[Tensor]) -> None:
        self._count("reduce_scatter", (self.size - 1) * size_of(output))
        write(output, self._talk("reduce_scatter", input_list))

    def all_to_all(
        self, output_tensor_list: list[Tensor], input_tensor_list: list[Tensor]
    ) -> None:
        others = [t for r, t in enumerate(input_tensor_list) if r != self.rank]
        self._count("all_to_all", sum(map(size_of, others)))
        found = self._talk("all_to_all", input_tensor_list)
        for output, tensor in zip(output_tensor_list, found, strict=True):
            write(output, tensor)

    def send(self, tensor: Tensor, dst: int) -> None:
        self._count("send", size_of(tensor), dst)
        self._talk("send", [tensor], dst)

    def recv(self, tensor: Tensor, src: int) -> None:
        self._count("recv", 0, src)
        write(tensor, self._talk("recv", [tensor], src))

    def _count(self, kind: str, size: int, other: int | None = None) -> None:
        if other is not None and not 0 <= other < self.size:
            raise ValueError(f"there is no rank {other}: ranks are 0 to {self.size - 1}")
        self.bytes_sent += size
        self.log.append((kind, size, other))

    def _talk(self, kind: str, tensors: list[Tensor], option: Any = None) -> Any:
        if kind in ("reduce_scatter", "all_to_all") and len(tensors) != self.size:
            raise ValueError(f"{kind} takes a tensor per rank, not {len(tensors)}")
        answers = self.ranks.answers[self.rank]
        self.place += 1
        if self.place <= len(answers):
            return answers[self.place - 1]
        copies = [tensor.detach().clone() for tensor in tensors]
        return self.ranks.answer(self.rank, (kind, copies, option))


def settle(waiting: list[Event | None]) -> dict[int, Any]:
    """{rank: answer} for those that have met, as tinyllm/ranks.py does: a test compares."""
    for rank, event in enumerate(waiting):
        if event is not None and event[0] == "send":
            other = waiting[event[2]]
            if other is not None and other[0] == "recv" and other[2] == rank:
                return {rank: None, event[2]: event[1][0]}
    kinds = {event and event[0] for event in waiting}
    if len(kinds) > 1 or kinds & {None, "send", "recv"}:
        return {}
    (kind,), tensors = kinds, [event[1] for event in waiting if event]
    shapes = [[tuple(tensor.shape) for tensor in row] for row in tensors]
    if kind != "all_to_all" and any(row != shapes[0] for row in shapes):
        raise ValueError(f"{kind}: the shapes differ between ranks: {shapes}")
    everyone = range(len(waiting))
    if kind == "all_to_all":
        return {r: [row[r] for row in tensors] for r in everyone}
    if kind == "all_gather":
        return {r: [row[0] for row in tensors] for r in everyone}
    if kind == "reduce_scatter":
        return {r: torch.stack([row[r] for row in tensors]).sum(dim=0) for r in everyone}
    stacked, first = torch.stack([row[0] for row in tensors]), waiting[0]
    total = stacked.amax(dim=0) if first and first[2] == "max" else stacked.sum(dim=0)
    return dict.fromkeys(everyone, total)


def describe(waiting: list[Event | None]) -> str:
    """Return where each rank waits when none can go on."""
    places = []
    for rank, event in enumerate(waiting):
        place = "has returned" if event is None else f"waits in {event[0]}"
        if event is not None and event[0] in ("send", "recv"):
            place += f" {'to' if event[0] == 'send' else 'from'} rank {event[2]}"
        places.append(f"rank {rank} {place}")
    return f"no rank can go on: {', '.join(places)}"


def size_of(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def write(output: Tensor, found: Tensor) -> None:
    if output.shape != found.shape or output.dtype != found.dtype:
        raise ValueError(
            f"a tensor {tuple(found.shape)} of {found.dtype} arrives, and "
            f"{tuple(output.shape)} of {output.dtype} is there to receive it"
        )
    output.detach().copy_(found)


# For Given("parallel.group") and Given("parallel.by_rank", values=[...]) in calls


def group(rank: int | None = None, size: int = 1) -> ReplayedGroup:
    """Return the group of the rank that runs; outside, or with a rank, one that only counts."""
    if Ranks.current is None or rank is not None:
        return ReplayedGroup(Ranks(size), rank or 0)
    return Ranks.current.groups[Ranks.current.running]


def by_rank(values: list[Any]) -> Any:
    """Return the value of the rank that runs."""
    return values[group().rank]


def weights(shapes: list[tuple[int, ...]], seed: int) -> list[nn.Parameter]:
    """Parameters with numbers, the same on all ranks; `gradients` gives them gradients."""
    numbers = torch.Generator().manual_seed(seed)
    made = [nn.Parameter(torch.randn(shape, generator=numbers)) for shape in shapes]
    group().weights = made
    return made


def gradients(
    seed: int, value: Any, without: tuple[int, ...] = (), scale: float = 1, loaded: bool = False
) -> Any:
    """Add this rank's gradients to those of `weights`, as backward does; returns value.

    without    numbers of the parameters that get none
    loaded     the weights are new, too, as after a checkpoint was loaded
    """
    numbers = torch.Generator().manual_seed(100 * seed + group().rank)
    for number, weight in enumerate(group().weights):
        grad = scale * torch.randn(weight.shape, generator=numbers)
        weight.data += number + 1 if loaded else 0
        if number not in without:
            weight.grad = grad if weight.grad is None else weight.grad + grad
    return value


def kinds_in(groups: list[ReplayedGroup]) -> dict[str, Any]:
    return {"what travels": ", ".join(sorted({kind for g in groups for kind, _, _ in g.log}))}


TRAFFIC: dict[str, Callable[[list[ReplayedGroup]], dict[str, Any]]] = {
    "none": lambda groups: {},
    "kinds": kinds_in,
    "bytes": lambda groups: (
        kinds_in(groups) | {"bytes that each rank sends": [g.bytes_sent for g in groups]}
    ),
    "total": lambda groups: (
        kinds_in(groups)
        | {"bytes that all ranks send": sum(g.bytes_sent for g in groups)}
        | {"bytes of the largest piece": max((e[1] for g in groups for e in g.log), default=0)}
    ),
    "buckets": lambda groups: {  # large messages of rank 0; smaller ones are counts and losses
        "numbers in each bucket": [
            size * groups[0].size // (groups[0].size - 1) // 8
            for kind, size, _ in groups[0].log
            if kind == "all_reduce" and size > 16
        ]
    },
}
