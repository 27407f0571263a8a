"""Several processes at one batch, as `torchrun` starts them: each takes a share of the rows.

Gradients are summed, not averaged, and the balance loss is that of the whole batch, so the
step is that of one process (up to the order of additions). Experts that a process did not
choose have no gradient there; here that is a zero.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class Team:
    """This process among those that train together; alone if there is just one."""

    device: torch.device
    rank: int = 0
    world: int = 1

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.world > 1:
            dist.all_reduce(values)
        return values

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Give every parameter the gradient of the whole batch."""
        for parameter in (parameters := list(parameters)):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        if self.world == 1:
            return
        flat = self.sum(torch.cat([parameter.grad.flatten() for parameter in parameters]))
        sizes = [parameter.numel() for parameter in parameters]
        for parameter, grad in zip(parameters, flat.split(sizes), strict=True):
            parameter.grad = grad.view_as(parameter)

    def everyone(self, router_logits: Sequence[Tensor]) -> list[Tensor]:
        """Router logits of all processes, (world * N, X) a layer; gradients reach our own."""
        if self.world == 1:
            return list(router_logits)
        own = torch.stack(list(router_logits))  # (layers, N, X)
        parts = [torch.empty_like(own) for _ in range(self.world)]
        dist.all_gather(parts, own.detach().contiguous())
        parts[self.rank] = own
        return list(torch.cat(parts, dim=1))

    def agree(self, choice: bool) -> bool:
        """What the leading process chose."""
        flag = torch.tensor(float(choice and self.leads), device=self.device)
        return bool(self.sum(flag).item())


@contextmanager
def team(device: str | None = None) -> Iterator[Team]:
    """The processes that torchrun started, over nccl on GPUs and gloo elsewhere."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    place = torch.device(device, local_rank if device == "cuda" and world > 1 else None)
    if world == 1:
        yield Team(place)
        return
    if place.type == "cuda":
        torch.cuda.set_device(place)
    dist.init_process_group("nccl" if place.type == "cuda" else "gloo")
    try:
        yield Team(place, dist.get_rank(), world)
    finally:
        dist.destroy_process_group()
