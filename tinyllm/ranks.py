"""Ranks that talk to each other: given code for lab 14, read it once.

A group is what one rank knows of all of them: its number `rank`, their number `size`, and five
ways to talk, with the names and arguments of torch.distributed. All of them write into tensors
that they are given, and no gradient flows through any of them. Two forms are alike for the code
that uses them:

    World(4).run(work)      four threads of this process, one at a time: work(group) on each
    DistributedGroup()      one process for each rank, started by torchrun

In a World a rank runs until it has to wait for another one, then the next one runs. So every
run is the same, and when no rank can go on, that is known at once, and told.
"""

import ctypes
import linecache
import sys
import sysconfig
import threading
import time
from collections.abc import Callable

import torch
from torch import Tensor


class Deadlock(RuntimeError):
    """No rank can go on; the message says where each of them waits."""


class Group:
    """One rank's view of all ranks.

    Each of them calls the same collectives in the same order; send and recv come in pairs. A
    send returns when the other rank has received: two ranks that both send first wait for each
    other forever. bytes_sent adds up what this rank has sent, where collectives are counted as
    a ring does them.
    """

    def __init__(self, rank: int, size: int):
        self.rank, self.size = rank, size
        self.bytes_sent = 0
        self.log: list[tuple[str, int, int | None]] = []  # kind, bytes sent, the other rank

    def all_reduce(self, tensor: Tensor, op: str = "sum") -> None:
        """Make tensor the sum (op "sum") or maximum (op "max") of all ranks' tensors."""
        if op not in ("sum", "max"):
            raise ValueError(f'op is {op}: all_reduce here knows "sum" and "max"')
        self._count("all_reduce", 2 * (self.size - 1) * _bytes(tensor) // self.size)
        _write(tensor, self._talk("all_reduce", [tensor], op))

    def all_gather(self, tensor_list: list[Tensor], tensor: Tensor) -> None:
        """Fill tensor_list with the tensors of rank 0, 1, ...; they are all of one shape."""
        self._count("all_gather", (self.size - 1) * _bytes(tensor))
        for output, result in zip(tensor_list, self._talk("all_gather", [tensor]), strict=True):
            _write(output, result)

    def reduce_scatter(self, output: Tensor, input_list: list[Tensor]) -> None:
        """Make output the sum of what all ranks have at this rank's place of input_list."""
        self._count("reduce_scatter", (self.size - 1) * _bytes(output))
        _write(output, self._talk("reduce_scatter", input_list))

    def all_to_all(
        self, output_tensor_list: list[Tensor], input_tensor_list: list[Tensor]
    ) -> None:
        """Send input_tensor_list[r] to rank r; what rank r sends fills output_tensor_list[r].

        Shapes may differ, and may be empty; the receiver has to know them beforehand.
        """
        others = [t for r, t in enumerate(input_tensor_list) if r != self.rank]
        self._count("all_to_all", sum(map(_bytes, others)))
        results = self._talk("all_to_all", input_tensor_list, output_tensor_list)
        for output, result in zip(output_tensor_list, results, strict=True):
            _write(output, result)

    def send(self, tensor: Tensor, dst: int) -> None:
        """Hand tensor to rank dst; returns when dst has received it."""
        self._count("send", _bytes(tensor), dst)
        self._talk("send", [tensor], dst)

    def recv(self, tensor: Tensor, src: int) -> None:
        """Wait for a tensor of this shape and dtype from rank src, and write it here."""
        self._count("recv", 0, src)
        _write(tensor, self._talk("recv", [tensor], src))

    def _count(self, kind: str, size: int, other: int | None = None) -> None:
        if other is not None and not 0 <= other < self.size:
            raise ValueError(f"there is no rank {other}: ranks are 0 to {self.size - 1}")
        self.bytes_sent += size
        self.log.append((kind, size, other))

    def _talk(self, kind: str, tensors: list[Tensor], option=None):
        raise NotImplementedError


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _write(output: Tensor, result: Tensor) -> None:
    if output.shape != result.shape or output.dtype != result.dtype:
        raise ValueError(
            f"a tensor {tuple(result.shape)} of {result.dtype} arrives, and "
            f"{tuple(output.shape)} of {output.dtype} is there to receive it"
        )
    output.detach().copy_(result)


# Ranks as processes


class DistributedGroup(Group):
    """The ranks of torch.distributed, whose process group has been made: one for each process.

    The backend is gloo on CPUs and nccl on GPUs.
    """

    def __init__(self):
        import torch.distributed as dist

        self.dist = dist
        super().__init__(dist.get_rank(), dist.get_world_size())

    def _talk(self, kind: str, tensors: list[Tensor], option=None):
        dist, tensors = self.dist, [tensor.detach().contiguous() for tensor in tensors]
        if kind == "all_reduce":
            total, op = tensors[0].clone(), {"sum": "SUM", "max": "MAX"}[option]
            dist.all_reduce(total, getattr(dist.ReduceOp, op))
            return total
        if kind == "send":
            return dist.send(tensors[0], option)
        if kind == "recv":
            received = torch.empty_like(tensors[0])
            dist.recv(received, option)
            return received
        if kind == "all_gather":
            results = [torch.empty_like(tensors[0]) for _ in range(self.size)]
            dist.all_gather(results, tensors[0])
            return results
        if kind == "all_to_all":
            flat, sizes = torch.cat([t.flatten() for t in tensors]), [t.numel() for t in option]
            received = flat.new_empty(sum(sizes))
            dist.all_to_all_single(received, flat, sizes, [t.numel() for t in tensors])
            pairs = zip(received.split(sizes), option, strict=True)
            return [part.view(output.shape) for part, output in pairs]
        result = torch.empty_like(tensors[self.rank])
        dist.reduce_scatter(result, tensors)
        return result


# Ranks as threads


class Stopped(BaseException):
    """Ends a rank of a World in which another one has failed."""


class ThreadGroup(Group):
    """A rank of a World."""

    def __init__(self, world: "World", rank: int):
        super().__init__(rank, world.size)
        self.world = world

    def _talk(self, kind: str, tensors: list[Tensor], option=None):
        if kind in ("reduce_scatter", "all_to_all") and len(tensors) != self.size:
            raise ValueError(f"{kind} takes a tensor per rank, not {len(tensors)}")
        copies = [tensor.detach().clone() for tensor in tensors]
        return self.world.wait_for(self.rank, (kind, copies, option))


class World:
    """Ranks as threads of this process, of which one runs at a time.

    size       how many ranks
    seconds    how long a rank may compute without talking, before all are stopped and told
               at which line it was
    groups     of each rank, after run: bytes_sent and log say what it has sent
    """

    def __init__(self, size: int, seconds: float = 20):
        self.size, self.seconds = size, seconds

    @property
    def bytes_sent(self) -> list[int]:
        """What each rank has sent in the last run."""
        return [group.bytes_sent for group in self.groups]

    def run(self, work: Callable[[Group], object]) -> list:
        """work(group) on every rank; what it returns, by rank.

        Errors: what work raises on a rank, with a note that says on which; Deadlock if no rank
                can go on; TimeoutError if one computes for too long
        """
        self.groups = [ThreadGroup(self, rank) for rank in range(self.size)]
        self.waiting: list[tuple | None] = [None] * self.size  # what each rank waits in
        self.answers: list[object] = [None] * self.size
        self.results: list[object] = [None] * self.size
        self.finished = [False] * self.size
        self.turns = [threading.Semaphore(0) for _ in range(self.size)]
        self.error: BaseException | None = None
        self.done, self.grad = threading.Event(), torch.is_grad_enabled()
        threads = [
            threading.Thread(target=self._rank, args=(rank, work), daemon=True)
            for rank in range(self.size)
        ]
        for thread in threads:
            thread.start()
        self._begin(0)
        try:
            self._watch(threads)
        except BaseException as error:  # an interrupt, or a rank that takes too long
            self.error = error
            _raise_in(threads[self.running])
            raise
        finally:
            for turn in self.turns:  # those that wait end, too
                turn.release()
            for thread in threads:
                thread.join(timeout=1)
        if self.error is not None:
            raise self.error
        return self.results

    def wait_for(self, rank: int, event: tuple):
        """The answer to what this rank asks of others; they run meanwhile."""
        self.waiting[rank], self.since = event, time.monotonic()
        answers = settle(self.waiting)
        for other, answer in answers.items():
            self.answers[other], self.waiting[other] = answer, None
        if rank not in answers:
            self._next(rank)
            self.turns[rank].acquire()
            if self.error is not None:
                raise Stopped
        return self.answers[rank]

    def _rank(self, rank: int, work: Callable[[Group], object]) -> None:
        self.turns[rank].acquire()
        try:
            if self.error is None:
                with torch.set_grad_enabled(self.grad):
                    self.results[rank] = work(self.groups[rank])
            self.finished[rank] = True
            self._next(rank)
        except Stopped:
            pass
        except BaseException as error:
            if hasattr(error, "add_note"):  # Python 3.11 and later
                error.add_note(f"on rank {rank} of {self.size}")
            self._fail(error)

    def _next(self, rank: int) -> None:
        """Let the next rank run that can; if there is none, the World is done or has failed."""
        order = [(rank + step) % self.size for step in range(1, self.size + 1)]
        ready = [r for r in order if not self.finished[r] and self.waiting[r] is None]
        if ready:
            self._begin(ready[0])
        elif all(self.finished):
            self.done.set()
        else:
            self._fail(Deadlock(describe(self.waiting)))

    def _begin(self, rank: int) -> None:
        self.running, self.since = rank, time.monotonic()
        self.turns[rank].release()

    def _fail(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error
        self.done.set()

    def _watch(self, threads: list[threading.Thread]) -> None:
        while not self.done.wait(min(self.seconds, 1.0)):
            if time.monotonic() - self.since > self.seconds:
                raise TimeoutError(
                    f"rank {self.running} has computed for {self.seconds} seconds without a "
                    f"word to the others, and is {line_of(threads[self.running])}: all ranks "
                    "were stopped"
                )


def settle(waiting: list[tuple | None]) -> dict[int, object]:
    """{rank: answer} of those who have met: two by send and recv, or all by a collective.

    Errors: ValueError if all have met and their tensors do not fit together
    """
    for rank, event in enumerate(waiting):
        if event is not None and event[0] == "send":
            dst = event[2]
            other = waiting[dst]
            if other is not None and other[0] == "recv" and other[2] == rank:
                return {rank: None, dst: event[1][0]}
    kinds = {event and event[0] for event in waiting}
    if len(kinds) > 1 or kinds & {None, "send", "recv"}:
        return {}
    (kind,), tensors = kinds, [event[1] for event in waiting]
    everyone = range(len(waiting))
    shapes = [[tuple(t.shape) for t in row] for row in tensors]
    if kind != "all_to_all" and any(row != shapes[0] for row in shapes):
        raise ValueError(f"{kind}: the shapes differ between ranks: {shapes}")
    if kind == "all_to_all":
        return {r: [row[r] for row in tensors] for r in everyone}
    if kind == "all_gather":
        return {r: [row[0] for row in tensors] for r in everyone}
    if kind == "reduce_scatter":
        return {r: torch.stack([row[r] for row in tensors]).sum(dim=0) for r in everyone}
    stacked = torch.stack([row[0] for row in tensors])
    total = stacked.amax(dim=0) if waiting[0][2] == "max" else stacked.sum(dim=0)
    return dict.fromkeys(everyone, total)


def describe(waiting: list[tuple | None]) -> str:
    """Where each rank is when none can go on."""
    places = []
    for rank, event in enumerate(waiting):
        place = "has returned" if event is None else f"waits in {event[0]}"
        if event is not None and event[0] in ("send", "recv"):
            place += f" {'to' if event[0] == 'send' else 'from'} rank {event[2]}"
        places.append(f"rank {rank} {place}")
    return f"no rank can go on: {', '.join(places)}"


LIBRARIES = (__file__, "<", *(sysconfig.get_paths()[name] for name in ("stdlib", "purelib")))


def line_of(thread: threading.Thread) -> str:
    """Where a thread is: the innermost line of a file that is no library's."""
    frame = sys._current_frames().get(thread.ident)
    while frame and frame.f_code.co_filename.startswith(LIBRARIES):
        frame = frame.f_back
    if frame is None:
        return "in a library"
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    return f"at line {frame.f_lineno} in {frame.f_code.co_name}, `{line}`"


def _raise_in(thread: threading.Thread) -> None:
    """End a thread at its next line of Python."""
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    raise_in(ctypes.c_ulong(thread.ident), ctypes.py_object(Stopped))
